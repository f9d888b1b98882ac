/* Markdown for a pull request, and the annotations of a GitHub run. */
#include "reported.h"

static const char *const cases[] = { "bit-equal", "crashed", "excess", "near-tie", "noisy-pass", "seed-four-legs-diverges", "seed-three-legs", "short",
	"void-contract", "void-counter-missing", "drift", "single-profile" };

START_TEST(under_60_lines)
{
	size_t size;

	use(cases[_i]);
	load();
	char *text = show_markdown(&found, &size);
	char *head = xasprintf("### assay: %s, exit %d (%s)\n", json_string_value(json_object_get(json_object_get(found.verdict, "overall"), "verdict")),
			       verdict_exit_code(found.verdict), found.evidence.recipe.name);

	ck_assert_uint_eq(size, strlen(text));
	ck_assert_int_lt(count_of(text, "\n"), 60);
	ck_assert_msg(strncmp(text, head, strlen(head)) == 0, "it begins: %.100s", text);
	free(head);
	free(text);
}
END_TEST

START_TEST(nothing_in_it_is_markup)
{
	size_t size;

	use("near-tie");
	nasty_question();
	load();
	char *text = show_markdown(&found, &size);

	lacks(text, "<b>");
	lacks(text, "`c`");
	lacks(text, "[l](u)");
	lacks(text, "@all");
	lacks(text, "\xe2\x80\xae");
	has(text, "&#60;b&#62;x&#60;/b&#62;");
	free(text);
}
END_TEST

START_TEST(annotations_by_severity)
{
	use("near-tie");
	load();
	char *lines = show_github(&found, "a,b:c.yaml");

	ck_assert_int_eq(count_of(lines, "\n"), 2);
	has(lines, "::error file=a%2Cb%3Ac.yaml,title=step DIVERGENCE::");
	has(lines, "\n::error file=a%2Cb%3Ac.yaml,title=DIVERGENCE::");
	free(lines);
	end();
	use("noisy-pass");
	load();
	lines = show_github(&found, "r.yaml");
	lacks(lines, "::error");
	ck_assert_int_eq(count_of(lines, "::notice file=r.yaml,title="), found.evidence.n_legs + 1);
	free(lines);
	end();
	use("seed-three-legs");
	load();
	lines = show_github(&found, "r.yaml");
	/* a leg's divergence is data; what is left undecided is not */
	ck_assert_int_eq(count_of(lines, "::error"), verdict_exit_code(found.verdict) != 0);
	free(lines);
}
END_TEST

START_TEST(an_annotation_is_one_line)
{
	use("near-tie");
	load();
	json_object_set_new(json_object_get(found.verdict, "overall"), "reason", json_string("a\r\n::error::b %0A"));
	char *lines = show_github(&found, "r.yaml");

	ck_assert_int_eq(count_of(lines, "\n"), 2);
	lacks(lines, "\n::error::b");
	has(lines, "a\\u{d}\\n::error::b %250A");
	free(lines);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("markdown");

	tcase_add_loop_test(c, under_60_lines, 0, sizeof(cases) / sizeof(cases[0]));
	tcase_add_test(c, nothing_in_it_is_markup);
	tcase_add_test(c, annotations_by_severity);
	tcase_add_test(c, an_annotation_is_one_line);
	return run_suite("markdown", c);
}
