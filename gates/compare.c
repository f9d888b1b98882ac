/* assay compare: two runs, what differs between them. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "record.h"
#include "show.h"

static json_t *load_summary(const char *dir, struct err *err)
{
	struct findings f = { 0 };
	json_t *summary = findings_load(&f, dir, err) ? NULL : record_summary(&f, "");

	findings_release(&f);
	return summary;
}

/* Which run is which. */
static void print_runs(struct term *t, const json_t *const both[2])
{
	for (int i = 0; i < 2; i++)
		term_say(t, TINT_NONE, 3, "%d  %s  %s (exit %lld)  %s", i + 1, show_string(json_object_get(both[i], "when")),
			 show_string(json_object_get(both[i], "verdict")), (long long)json_integer_value(json_object_get(both[i], "exit_code")),
			 show_string(json_object_get(both[i], "run")));
	term_blank(t);
}

static void add_leg(struct table *table, const char *name, int run, const json_t *leg)
{
	const json_t *tokens = show_get(leg, "tokens");
	const char *verdict = leg ? show_string(json_object_get(leg, "verdict")) : "not there";
	char R[32], ms[32];

	table_add(table, TINT_BOLD, "%s", run ? "" : name);
	table_add(table, TINT_DIM, "%d", run + 1);
	table_add(table, term_tint_of(verdict), "%s", verdict);
	if (tokens)
		table_add(table, TINT_NONE, "%lld/%lld", (long long)json_integer_value(json_object_get(tokens, "matched")),
			  (long long)json_integer_value(json_object_get(tokens, "compared")));
	else
		table_add(table, TINT_NONE, "%s", leg ? "-" : "");
	table_add(table, TINT_NONE, "%s%s", leg ? "R " : "", leg ? show_number(show_get(leg, "R"), 3, R, sizeof R) : "");
	table_add_right(table, TINT_NONE, "%s%s", leg ? show_number(show_get(leg, "ms_per_token"), 3, ms, sizeof ms) : "",
			leg ? " ms/token" : "");
}

/* A line per leg and run: what a reader looks for first. */
static void print_legs(struct term *t, const json_t *const both[2])
{
	struct table table = {.term = t, .columns = 6};
	const json_t *first = json_object_get(both[0], "legs"), *second = json_object_get(both[1], "legs"), *leg;
	const char *name;

	json_object_foreach((json_t *)first, name, leg) {
		add_leg(&table, name, 0, leg);
		add_leg(&table, name, 1, json_object_get(second, name));
	}
	json_object_foreach((json_t *)second, name, leg)
		if (!json_object_get(first, name)) {
			add_leg(&table, name, 0, NULL);
			add_leg(&table, name, 1, leg);
		}
	table_print(&table, t, 0, table_rows(&table), "");
	table_release(&table);
}

int command_compare(int argc, char **argv)
{
	static const struct option options[] = {{0}};
	struct err err = { 0 };
	struct term term;

	if (getopt_long(argc, argv, "", options, NULL) == '?')
		return EXIT_USAGE;
	if (argc - optind != 2)
		return command_usage("compare", "which two run directories?");
	json_t *a = load_summary(argv[optind], &err), *b = a ? load_summary(argv[optind + 1], &err) : NULL;

	if (a && b) {
		char *changes = history_changes(a, b, "");

		term_open(&term, stdout);
		print_runs(&term, (const json_t *const[]){ a, b });
		print_legs(&term, (const json_t *const[]){ a, b });
		printf("\n%s", *changes ? changes : "nothing differs\n");
		free(changes);
	}
	json_decref(a);
	json_decref(b);
	return err.kind ? command_fail(&err) : 0;
}
