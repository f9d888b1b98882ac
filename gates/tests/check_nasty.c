/* Markup, direction marks, escapes, NUL and bytes that are no UTF-8, in prompts, tokens, questions and what engines say of
 * themselves: every output shows them harmlessly.  gates/tests/nasty is a run of page_cases.py --nasty whose recipe and first
 * report say such things too. */
#include <locale.h>
#include "contract/utf8.h"
#include "gates/bench_array.h"
#include "gates/record.h"
#include "gates/show.h"
#include "reported.h"

#define HERE "gates/tests/nasty"

static char root[64];

/* ---- the outputs ---- */

static char *on_terminal(size_t *size, bool utf8)
{
	struct show_options o = { .run_dir = HERE, .prompts = true };
	char *text;
	struct term t = { .out = open_memstream(&text, size), .utf8 = utf8, .width = 80 };

	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, utf8 ? "C.UTF-8" : "C"));
	show_verdict(&t, found.verdict, &o);
	show_design(&t, found.verdict);
	fclose(t.out);
	return text;
}

static char *terminal(size_t *size)
{
	return on_terminal(size, true);
}

static char *terminal_in_ascii(size_t *size)
{
	char *text = on_terminal(size, false);

	for (size_t i = 0; i < *size; i++)
		ck_assert_msg((unsigned char)text[i] < 0x80, "not ASCII: %.60s", text + i);
	return text;
}

static char *html(size_t *size)
{
	return show_html(&found, "", size);
}

static char *junit(size_t *size)
{
	return show_junit(&found, size);
}

static char *markdown(size_t *size)
{
	return show_markdown(&found, size);
}

static char *github(size_t *size)
{
	char *text = show_github(&found, "r.yaml");

	*size = strlen(text);
	return text;
}

/* Every line of it must be an annotation of ours. */
static char *github_reasons(size_t *size)
{
	json_object_set_new((json_t *)findings_leg(&found, 0), "reason", json_string("a\n::error::owned\u202e <script> %0A\x1b[31m"));
	return github(size);
}

static char *dumped(json_t *json, size_t *size)
{
	char *text = json_dumps(json, JSON_INDENT(1));

	json_decref(json);
	*size = strlen(text);
	return text;
}

static char *array_of_the_action(size_t *size)
{
	return dumped(bench_array(&found), size);
}

/* What `assay history` and `assay compare` print of it. */
static char *changes(size_t *size)
{
	json_t *a = record_summary(&found, root), *b = json_deep_copy(a);

	json_object_set_new(json_object_get(json_object_get(json_object_get(b, "legs"), "leg0"), "box"), "cpu", json_string("another"));
	json_object_set_new(json_object_get(json_object_get(json_object_get(b, "legs"), "leg0"), "engine"), "git", json_string("another"));
	char *text = history_changes(a, b, "");

	json_decref(a);
	json_decref(b);
	*size = strlen(text);
	return text;
}

static char *doc(char *(*make)(const char *, struct err *), size_t *size)
{
	ck_assert_msg(!record_keep(&found, root, &err), "%s", err.text);
	char *text = make(root, &err);

	ck_assert_msg(text != NULL, "%s", err.text);
	*size = strlen(text);
	return text;
}

static char *status(size_t *size)
{
	return doc(record_status, size);
}

static char *benchmarks(size_t *size)
{
	return doc(record_benchmarks, size);
}

enum kind { TEXT, MARKUP, MARKDOWN, COMMANDS, JSON_TEXT };
static const struct output { const char *name; char *(*make)(size_t *); enum kind kind; const char *shows; } outputs[] = {
	{ "terminal", terminal, TEXT, "<script>doc" },
	{ "terminal, no UTF-8", terminal_in_ascii, TEXT, "\\u202eevil" },
	{ "html", html, MARKUP, "document.title='owned'" },
	{ "junit", junit, MARKUP, "&lt;script&gt;" },
	{ "markdown", markdown, MARKDOWN, "&#60;script&#62;" },
	{ "github", github, COMMANDS, "DIVERGENCE" },
	{ "github, reasons", github_reasons, COMMANDS, "a\\n::error::owned\\u{202e} <script> %250A\\u{1b}" },
	{ "bench array", array_of_the_action, JSON_TEXT, "<script>document.title='owned'</script>\\\\u{202e}evil" },
	{ "history and compare", changes, TEXT, "<script>document.title='owned'</script>\\u{202e}evil" },
	{ "STATUS.md", status, MARKDOWN, "&#60;script&#62;" },
	{ "BENCHMARKS.md", benchmarks, MARKDOWN, "&#60;script&#62;" },
};

/* ---- what is harmless ---- */

/* Well-formed, and nothing in it that a reader could not see or that turns text around. */
static void check_characters(const char *name, const char *text, size_t size)
{
	static const struct { uint32_t first, last; } bad[] = { { 0, 8 }, { 11, 31 }, { 0x7f, 0x9f }, { 0xad, 0xad }, { 0x200b, 0x200f },
		{ 0x2028, 0x202e }, { 0x2060, 0x206f }, { 0xfeff, 0xfeff } };
	size_t same;
	char *lossy = utf8_lossy(text, size, &same);

	ck_assert_msg(same == size && memcmp(lossy, text, size) == 0, "%s: is no UTF-8", name);
	free(lossy);
	for (size_t at = 0; at < size;) {
		uint32_t c;
		size_t n = utf8_get(text + at, &c);

		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			ck_assert_msg(c < bad[i].first || c > bad[i].last, "%s: U+%04X after `%.*s`", name, c, (int)(at < 60 ? at : 60),
				      text + at - (at < 60 ? at : 60));
		at += n;
	}
}

static void check_markup(const char *text)
{
	lacks(text, "<script>document");
	lacks(text, "<img src");
	lacks(text, "<b>");
}

static void check_markdown(const char *text)
{
	check_markup(text);
	lacks(text, "[l](u)");
	lacks(text, "[x](http");
	lacks(text, "`c`");
	lacks(text, "\n::error");
}

static void check_commands(const char *text)
{
	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		ck_assert_ptr_nonnull(strchr(line, '\n'));
		ck_assert_msg(strncmp(line, "::error file=r.yaml,title=", 26) == 0, "a line begins: %.60s", line);
	}
}

START_TEST(shows_it_harmlessly)
{
	const struct output *o = &outputs[_i];
	size_t size;

	strcpy(root, "/tmp/assay-nasty-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	ck_assert_msg(!findings_load(&found, HERE, &err), "%s", err.text);
	char *text = o->make(&size);

	has(text, o->shows);
	check_characters(o->name, text, size);
	if (o->kind == MARKUP)
		check_markup(text);
	if (o->kind == MARKDOWN)
		check_markdown(text);
	if (o->kind == COMMANDS)
		check_commands(text);
	if (o->kind == JSON_TEXT) {
		json_t *back = json_loads(text, 0, NULL);

		ck_assert_ptr_nonnull(back);
		json_decref(back);
	}
	free(text);
	remove_tree(root);
}
END_TEST

/* A NUL does not end the text that it stands in. */
START_TEST(a_nul_is_shown)
{
	int32_t ids[] = { 65, 0, 66 };

	ck_assert_msg(!findings_load(&found, HERE, &err), "%s", err.text);
	char *text = evidence_text(&found.evidence, ids, 3);

	ck_assert_str_eq(text, "A\xe2\x90\x80" "B");
	free(text);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("nasty");

	tcase_add_loop_test(c, shows_it_harmlessly, 0, sizeof(outputs) / sizeof(outputs[0]));
	tcase_add_test(c, a_nul_is_shown);
	return run_suite("nasty", c);
}
