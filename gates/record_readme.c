/* The verdict that README.md shows, from its record. */
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "record.h"
#include "show.h"

#define MARK "<!-- assay show results/"
#define INDENT "    "

char *record_recipe(const char *results, const json_t *verdict)
{
	return xasprintf("%s/../recipes/%s.yaml", results, show_string(show_get(verdict, "recipe", "name")));
}

/* The first screen, as Markdown's preformatted text. */
static void add_screen(struct text *to, const char *results, const json_t *verdict)
{
	char *recipe = record_recipe(results, verdict), *screen;
	struct show_options o = { .recipe = recipe };
	size_t size;
	struct term t = { .out = open_memstream(&screen, &size), .width = 110 };
	int n = 0;

	show_verdict(&t, verdict, &o);
	fclose(t.out);
	for (char *line = screen, *end; *line && n < SHOW_FIRST; line = end + 1, n++) {
		end = strchrnul(line, '\n');
		text_add(to, "%s%.*s\n", end > line ? INDENT : "", (int)(end - line), line);
		if (!*end)
			break;
	}
	while (to->n > 1 && to->s[to->n - 1] == '\n' && to->s[to->n - 2] == '\n')
		to->s[--to->n] = '\0';
	free(recipe);
	free(screen);
}

/* After the lines that are indented, and the empty ones between them. */
static const char *end_of_block(const char *at)
{
	const char *end = at;

	while (*at == '\n' || strncmp(at, INDENT, strlen(INDENT)) == 0) {
		const char *next = strchrnul(at, '\n');

		if (next > at)
			end = *next ? next + 1 : next;
		if (!*next)
			break;
		at = next + 1;
	}
	return end;
}

char *record_readme(const char *root, struct err *err)
{
	char *path = path_join(root, "README.md"), *results = path_join(root, "results"), *text = NULL;
	struct text to = { 0 };
	size_t size;

	if (file_exists(path))
		text = file_read(path, (size_t)1 << 24, &size, err);
	const char *mark = text ? strstr(text, MARK) : NULL, *name = mark ? mark + strlen(MARK) : NULL, *end = name ? strstr(name, " -->\n") : NULL;

	if (end) {
		char *verdict_path = xasprintf("%s/%.*s", results, (int)(end - name), name);
		json_t *verdict = verdict_load(verdict_path, err);
		const char *block = strchr(end, '\n') + 1;

		if (verdict) {
			text_add(&to, "%.*s\n", (int)(block - text), text);
			add_screen(&to, results, verdict);
			text_add(&to, "%s", end_of_block(block));
		}
		json_decref(verdict);
		free(verdict_path);
	}
	free(text);
	free(path);
	free(results);
	return to.s;
}
