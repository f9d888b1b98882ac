/* assay compare: two runs, what differs between them. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "gates/commands.h"
#include "gates/record.h"
#include "gates/show.h"

static json_t *load_summary(const char *dir, struct err *err)
{
	struct findings f = { 0 };
	json_t *summary = findings_load(&f, dir, err) ? NULL : record_summary(&f, "");

	findings_release(&f);
	return summary;
}

/* One column a run: what a reader looks for first. */
static void print_legs(struct term *t, const json_t *a, const json_t *b)
{
	struct table table = { .term = t, .columns = 5 };
	const json_t *both[2] = { json_object_get(a, "legs"), json_object_get(b, "legs") }, *leg;
	const char *name;

	json_object_foreach((json_t *)both[0], name, leg)
		for (int i = 0; i < 2; i++) {
			const json_t *at = json_object_get(both[i], name);
			const char *verdict = at ? show_string(json_object_get(at, "verdict")) : "not there";
			char R[32], ms[32];

			table_add(&table, TINT_BOLD, "%s", i ? "" : name);
			table_add(&table, term_tint_of(verdict), "%s", verdict);
			if (show_get(at, "tokens"))
				table_add(&table, TINT_NONE, "%lld/%lld", (long long)json_integer_value(show_get(at, "tokens", "matched")),
					  (long long)json_integer_value(show_get(at, "tokens", "compared")));
			else
				table_add(&table, TINT_NONE, "-");
			table_add(&table, TINT_NONE, "R %s", show_number(show_get(at, "R"), 3, R, sizeof R));
			table_add_right(&table, TINT_NONE, "%s ms/token", show_number(show_get(at, "ms_per_token"), 3, ms, sizeof ms));
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
		print_legs(&term, a, b);
		printf("\n%s", *changes ? changes : "nothing differs\n");
		free(changes);
	}
	json_decref(a);
	json_decref(b);
	return err.kind ? command_fail(&err) : 0;
}
