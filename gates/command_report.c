/* assay report: the verdict for other readers. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "commands.h"
#include "contract/file.h"
#include "contract/json.h"
#include "bench_array.h"
#include "page.h"

#define CHART_JS_MOST ((size_t)8 << 20)

enum { TO_HTML, TO_JUNIT, TO_MARKDOWN, TO_BENCH, N_TO };

struct wanted {
	const char *to[N_TO];        /* "-": standard output */
	const char *chart_js;
};

static int parse_report(int argc, char **argv, struct wanted *w)
{
	static const struct option options[] = {
		{"html", required_argument, NULL, TO_HTML}, {"junit", required_argument, NULL, TO_JUNIT},
		{"markdown", required_argument, NULL, TO_MARKDOWN}, {"bench", required_argument, NULL, TO_BENCH},
		{"chart-js", required_argument, NULL, N_TO}, {0},
	};
	int c, to_stdout = 0, any = 0;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return EXIT_USAGE;
		if (c == N_TO)
			w->chart_js = optarg;
		else
			w->to[c] = optarg;
	}
	if (argc - optind != 1)
		return command_usage("report", "which run directory?");
	for (int i = 0; i < N_TO; i++) {
		any += w->to[i] != NULL;
		to_stdout += w->to[i] && strcmp(w->to[i], "-") == 0;
	}
	if (!any)
		return command_usage("report", "as what? --html, --junit, --markdown or --bench");
	return to_stdout > 1 ? command_usage("report", "only one of them can go to standard output") : 0;
}

static int write_to(const char *path, const char *text, size_t size, struct err *err)
{
	if (strcmp(path, "-") != 0)
		return file_write(path, text, size, err);
	if (fwrite(text, 1, size, stdout) != size)
		return err_set(err, ERR_FAILED, "standard output cannot be written");
	return 0;
}

/* Debian's, where it is installed; the page says what it lacks. */
static int read_chart_js(const char *asked, char **text, struct err *err)
{
	size_t size;

	*text = NULL;
	if (asked && !*asked)
		return 0;
	if (!asked && !file_exists(CHART_JS)) {
		fprintf(stderr, "assay report: %s is not installed (libjs-chart.js): the page has tables instead of charts\n", CHART_JS);
		return 0;
	}
	*text = file_read(asked ? asked : CHART_JS, CHART_JS_MOST, &size, err);
	return *text ? 0 : -1;
}

static int write_one(const struct findings *f, int kind, const struct wanted *w, struct err *err)
{
	size_t size = 0;
	char *text = NULL, *chart_js = NULL;
	int failed = 0;

	switch (kind) {
	case TO_HTML:
		failed = read_chart_js(w->chart_js, &chart_js, err);
		text = failed ? NULL : show_html(f, chart_js, &size);
		break;
	case TO_JUNIT: text = show_junit(f, &size); break;
	case TO_MARKDOWN: text = show_markdown(f, &size); break;
	default: {
		json_t *array = bench_array(f);

		text = json_text(array, JSON_INDENT(1), &size);
		json_decref(array);
	}
	}
	failed = failed || write_to(w->to[kind], text, size, err);
	free(chart_js);
	free(text);
	return failed ? -1 : 0;
}

int command_report(int argc, char **argv)
{
	struct wanted w = {0};
	struct findings f = {0};
	struct err err = {0};
	int code = parse_report(argc, argv, &w);

	if (code)
		return code;
	int failed = findings_load(&f, argv[optind], &err);

	for (int i = 0; i < N_TO && !failed; i++)
		failed = w.to[i] && write_one(&f, i, &w, &err);
	findings_release(&f);
	return failed ? command_fail(&err) : 0;
}
