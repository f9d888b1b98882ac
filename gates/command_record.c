/* assay record and assay history. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "record.h"
#include "show.h"

int command_record(int argc, char **argv)
{
	static const struct option options[] = {{"docs", no_argument, NULL, 'd'}, {"root", required_argument, NULL, 'r'}, {0}};
	struct findings f = { 0 };
	struct err err = { 0 };
	const char *asked = NULL;
	bool docs = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return EXIT_USAGE;
		docs |= c == 'd';
		asked = c == 'r' ? optarg : asked;
	}
	if (argc - optind != !docs)
		return command_usage("record", docs ? "--docs reads the records alone" : "which run directory?");
	char *root = asked ? realpath(asked, NULL) : record_root(&err);

	if (asked && !root)
		err_set(&err, ERR_INPUT, "%s: No such directory", asked);
	int failed = !root || (docs ? record_docs(root, &err) : findings_load(&f, argv[optind], &err) || record_keep(&f, root, &err));

	findings_release(&f);
	free(root);
	return failed ? command_fail(&err) : 0;
}

/* ---- history */

static void print_run(const json_t *summary)
{
	char *run = text_plain(show_string(json_object_get(summary, "run")));

	printf("%s  %s (exit %lld)  %s\n", show_string(json_object_get(summary, "when")), show_string(json_object_get(summary, "verdict")),
	       (long long)json_integer_value(json_object_get(summary, "exit_code")), run);
	free(run);
}

/* Where the history begins: what later lines are changes of. */
static void print_legs(const json_t *summary)
{
	const char *name;
	const json_t *leg;

	json_object_foreach(json_object_get((json_t *)summary, "legs"), name, leg) {
		const char *git = show_string(show_get(leg, "engine", "git"));
		bool is_hash = strspn(git, "0123456789abcdef") >= 12;
		char R[32], ms[32];

		printf("    %s: %s %s", name, show_string(json_object_get(leg, "verdict")), show_string(json_object_get(leg, "adjudication")));
		if (show_get(leg, "tokens"))
			printf(", tokens %lld/%lld", (long long)json_integer_value(show_get(leg, "tokens", "matched")),
			       (long long)json_integer_value(show_get(leg, "tokens", "compared")));
		printf(", R %s, %s ms/token%s%.12s\n", show_number(show_get(leg, "R"), 3, R, sizeof R),
		       show_number(show_get(leg, "ms_per_token"), 3, ms, sizeof ms), is_hash ? ", git " : "", is_hash ? git : "");
	}
}

static void print_changes(const json_t *before, const json_t *after)
{
	char *changes = history_changes(before, after, "    ");

	fputs(*changes ? changes : "    nothing changed\n", stdout);
	free(changes);
}

/* recipes/NAME.yaml or NAME */
static char *history_name(const char *recipe)
{
	char *name = xstrdup(path_base(recipe)), *dot = strrchr(name, '.');

	if (dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0))
		*dot = '\0';
	return name;
}

int command_history(int argc, char **argv)
{
	static const struct option options[] = {{"root", required_argument, NULL, 'r'}, {0}};
	struct err err = { 0 };
	const char *asked = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return EXIT_USAGE;
		asked = optarg;
	}
	if (argc - optind != 1)
		return command_usage("history", "which recipe?");
	char *root = asked ? xstrdup(asked) : record_root(&err), *name = history_name(argv[optind]);
	char *path = root ? xasprintf("%s/results/history/%s.jsonl", root, name) : NULL;
	json_t *lines = path ? record_lines(path, "assay/history/1", &err) : NULL;

	if (lines && json_array_size(lines) == 0)
		err_set(&err, ERR_INPUT, "%s: no run of `%s` was recorded (assay record RUN_DIR)", path, name);
	for (size_t i = 0; i < json_array_size(lines); i++) {
		print_run(json_array_get(lines, i));
		if (i)
			print_changes(json_array_get(lines, i - 1), json_array_get(lines, i));
		else
			print_legs(json_array_get(lines, i));
	}
	json_decref(lines);
	free(path);
	free(name);
	free(root);
	return err.kind ? command_fail(&err) : 0;
}
