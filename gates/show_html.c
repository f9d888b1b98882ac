/* One self-contained page: gates/page/ holds its markup, style and program, page_data.c its contents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "contract/utf8.h"
#include "page.h"
#include "show.h"

/* The assembler reads the files themselves, from the directory in which make runs. */
#define PAGE(name, file) \
	extern const char page_##name[]; \
	__asm__(".pushsection .rodata\n" \
		"page_" #name ":\n" \
		".incbin \"gates/page/" file "\"\n" \
		".byte 0\n" \
		".popsection\n")

PAGE(markup, "page.html");
PAGE(style, "page.css");
PAGE(data_, "data.js");
PAGE(tables, "tables.js");
PAGE(strips, "strips.js");
PAGE(charts, "charts.js");
PAGE(start, "start.js");

struct bytes { char *s; size_t n, room; };

static void put(struct bytes *to, const char *s, size_t n)
{
	if (to->room - to->n <= n) {
		to->room = 2 * to->room + n + 1;
		to->s = xrealloc(to->s, to->room, 1);
	}
	memcpy(to->s + to->n, s, n);
	to->n += n;
	to->s[to->n] = '\0';
}

static void put_string(struct bytes *to, const char *s)
{
	put(to, s, strlen(s));
}

/* \u202e, or a pair of surrogates. */
static void put_escape(struct bytes *to, uint32_t c)
{
	char text[16];

	if (c < 0x10000)
		snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
	else
		snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + (unsigned)((c - 0x10000) >> 10), 0xdc00 + (unsigned)((c - 0x10000) & 0x3ff));
	put_string(to, text);
}

/* JSON in a script element: only '<' can end it; who reads the source is not fooled by what turns text around. */
static void put_json(struct bytes *to, json_t *json)
{
	size_t size;
	char *text = json_text(json, JSON_COMPACT, &size);

	for (const char *at = text; *at;) {
		size_t n = strcspn(at, "<\x7f\xc2\xd8\xe1\xe2\xef\xf3");   /* first bytes of all that is hidden */
		uint32_t c = 0;

		put(to, at, n);
		at += n;
		if (!*at)
			break;
		n = utf8_get(at, &c);
		if (c == '<' || unicode_is_hidden(c))
			put_escape(to, c);
		else
			put(to, at, n);
		at += n;
	}
	free(text);
	json_decref(json);
}

/* A program in a script element; `</script` stands in no regular expression or operator of it. */
static void put_program(struct bytes *to, const char *text)
{
	for (const char *end; (end = strcasestr(text, "</script")); text = end + 2) {
		put(to, text, (size_t)(end - text));
		put_string(to, "<\\/");
	}
	put_string(to, text);
}

static void put_text(struct bytes *to, const char *s)
{
	char *safe = text_xml(s);

	put_string(to, safe);
	free(safe);
}

static void put_programs(struct bytes *to)
{
	const char *const parts[] = { page_data_, page_tables, page_strips, page_charts, page_start };

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		put_program(to, parts[i]);
}

char *show_html(const struct findings *f, const char *chart_js, size_t *size)
{
	const json_t *overall = json_object_get(f->verdict, "overall");
	const char *verdict = show_string(json_object_get(overall, "verdict")), *question = f->evidence.recipe.question;
	struct bytes page = { 0 };

	for (const char *at = page_markup; *at;) {
		const char *mark = strstr(at, "@@"), *end = mark ? strstr(mark + 2, "@@") : NULL;

		if (!end) {
			put_string(&page, at);
			break;
		}
		put(&page, at, (size_t)(mark - at));
		size_t n = (size_t)(end - mark - 2);
#define IS(name) (n == strlen(name) && memcmp(mark + 2, name, n) == 0)
		if (IS("TITLE"))
			put_text(&page, f->evidence.recipe.name);
		else if (IS("VERDICT"))
			put_text(&page, verdict);
		else if (IS("QUESTION"))
			put_text(&page, question ? question : "");
		else if (IS("REASON"))
			put_text(&page, show_string(json_object_get(overall, "reason")));
		else if (IS("STYLE"))
			put_string(&page, page_style);
		else if (IS("DATA"))
			put_json(&page, page_data(f));
		else if (IS("CHART"))
			put_program(&page, chart_js ? chart_js : "");
		else if (IS("PROGRAM"))
			put_programs(&page);
		else
			BUG("page.html asks for %.*s", (int)n, mark + 2);
#undef IS
		at = end + 2;
	}
	if (size)
		*size = page.n;
	return page.s;
}
