/* The table of `assay run` and `assay show`.  docs/formats.md, section 7. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "recipe.h"
#include "show.h"

#define FLIPS_AT_LEAST 3
#define FLIPS_BELOW 400          /* of those that are not on the first screen */

struct shown {
	struct term *t;
	const json_t *verdict, *legs;
	const struct show_options *o;
	struct recipe recipe;            /* the one beside the verdict, if it is the one that was judged */
	bool has_recipe;
};

static void load_recipe(struct shown *s)
{
	struct err ignored = {0};
	char *path = s->o->run_dir ? path_join(s->o->run_dir, "recipe.yaml") : s->o->recipe ? xstrdup(s->o->recipe) : NULL;

	s->has_recipe = path && file_exists(path) && recipe_load(&s->recipe, path, &ignored) == 0
			&& strcmp(s->recipe.sha256, show_string(show_get(s->verdict, "recipe", "sha256"))) == 0;
	free(path);
}

/* ---- the answer ---- */

static int widest(const struct table *table, int column)
{
	int most = 0;

	for (int i = column; i < table->n_cells; i += table->columns) {
		int width = term_columns(table->cells[i].text);

		most = width > most ? width : most;
	}
	return most;
}

/* A line each; where they do not fit, leg, verdict and adjudication stay together on a second line. */
static void print_heads(const struct shown *s, const struct table *tokens, const struct table *verdicts)
{
	int width = widest(tokens, 0) + 2 + widest(verdicts, 0) + 2 + widest(verdicts, 1) + 2 + widest(verdicts, 2);
	struct table both = {.term = s->t, .columns = 4};

	for (int i = 0; i < table_rows(tokens); i++) {
		if (width > s->t->width) {
			table_print(tokens, s->t, i, i + 1, "");
			table_print(verdicts, s->t, i, i + 1, "    ");
			continue;
		}
		table_add(&both, tokens->cells[i].tint, "%s", tokens->cells[i].text);
		for (int k = 3 * i; k < 3 * i + 3; k++)
			table_add(&both, verdicts->cells[k].tint, "%s", verdicts->cells[k].text);
	}
	table_print(&both, s->t, 0, table_rows(&both), "");
	table_release(&both);
}

static void show_heads(const struct shown *s)
{
	struct table table = {.term = s->t, .columns = 1}, verdicts = {.term = s->t, .columns = 3};
	const char *name;
	const json_t *leg;

	json_object_foreach((json_t *)s->legs, name, leg) {
		const json_t *tokens = show_get(leg, "tokens");
		const char *verdict = show_string(json_object_get(leg, "verdict"));
		const char *adjudication = show_string(json_object_get(leg, "adjudication"));

		if (tokens)
			table_add(&table, TINT_NONE, "TOKEN MATCH %lld/%lld full rows=%lld short rows=%lld mode=%s",
				  (long long)json_integer_value(json_object_get(tokens, "matched")),
				  (long long)json_integer_value(json_object_get(tokens, "compared")),
				  (long long)json_integer_value(json_object_get(tokens, "full_rows")),
				  (long long)json_integer_value(json_object_get(tokens, "short_rows")),
				  show_string(json_object_get(tokens, "mode")));
		else
			table_add(&table, TINT_NONE, "TOKEN MATCH none");
		table_add(&verdicts, TINT_BOLD, "%s", name);
		table_add(&verdicts, term_tint_of(verdict), "%s", verdict);
		table_add(&verdicts, term_tint_of(adjudication), "%s", adjudication);
	}
	print_heads(s, &table, &verdicts);
	table_release(&table);
	table_release(&verdicts);
}

/* What --set, --leg and --until-decided made of the recipe. */
static void say_overrides(struct term *t, const json_t *overrides)
{
	const json_t *prompts = json_object_get(overrides, "prompts"), *set = json_object_get(overrides, "set");
	const json_t *legs = json_object_get(overrides, "legs"), *value, *leg;
	char *text = xstrdup(""), number[32];
	const char *name;
	size_t i;

	json_object_foreach((json_t *)set, name, value) {
		char *longer = xasprintf("%s --set %s=%s", text, name, json_is_string(value) ? json_string_value(value)
					 : show_number(value, 9, number, sizeof(number)));

		free(text);
		text = longer;
	}
	json_array_foreach(legs, i, leg) {
		char *longer = xasprintf("%s --leg %s", text, show_string(leg));

		free(text);
		text = longer;
	}
	if (*text)
		term_say(t, TINT_WARN, 2, "not the recipe as written:%s", text);
	if (prompts)
		term_say(t, TINT_WARN, 2, "stopped early by --until-decided, after %zu prompts", json_array_size(prompts));
	free(text);
}

static void show_overall(const struct shown *s)
{
	const json_t *overall = json_object_get(s->verdict, "overall"), *overrides = show_get(s->verdict, "run", "overrides");
	const char *verdict = show_string(json_object_get(overall, "verdict"));
	const char *reason = show_string(json_object_get(overall, "reason"));

	if (s->has_recipe && s->recipe.question && !s->o->quiet) {
		term_blank(s->t);
		term_say(s->t, TINT_BOLD, 0, "%s", s->recipe.question);
	}
	term_say(s->t, term_tint_of(verdict), 2, "%s (exit %lld)%s%s", verdict,
		 (long long)json_integer_value(json_object_get(overall, "exit_code")), *reason ? ": " : "", reason);
	if (overrides && !s->o->quiet)
		say_overrides(s->t, overrides);
}

static const char *hypothesis_says(const struct shown *s, const char *name)
{
	for (int i = 0; s->has_recipe && i < s->recipe.n_hypotheses; i++)
		if (strcmp(s->recipe.hypotheses[i].name, name) == 0)
			return s->recipe.hypotheses[i].says;
	return "";
}

static void show_hypotheses(const struct shown *s)
{
	struct table table = {.term = s->t, .columns = 4};
	const json_t *finding, *leg;
	const char *name;
	size_t i;

	json_object_foreach(json_object_get(s->verdict, "hypotheses"), name, finding) {
		const char *status = show_string(json_object_get(finding, "status"));
		char *by = xstrdup("");

		json_array_foreach(json_object_get(finding, "by"), i, leg) {
			char *longer = xasprintf("%s%s%s", by, i ? ", " : "by ", show_string(leg));

			free(by);
			by = longer;
		}
		table_add(&table, TINT_NONE, "%s", name);
		table_add(&table, term_tint_of(status), "%s", status);
		table_add(&table, TINT_NONE, "%s", hypothesis_says(s, name));
		table_add(&table, TINT_DIM, "%s", by);
		free(by);
	}
	if (table.n_cells) {
		term_blank(s->t);
		table_print(&table, s->t, 0, table_rows(&table), "  ");
	}
	table_release(&table);
}

/* ---- the legs ---- */

static void path_cell(struct table *table, const json_t *leg)
{
	const json_t *contract = json_object_get(leg, "contract"), *audit = json_object_get(leg, "audit"), *line;
	bool agrees = !audit || json_is_true(json_object_get(audit, "agrees"));
	size_t i, ok = 0, n = json_array_size(contract);

	json_array_foreach(contract, i, line) {
		ok += json_is_true(json_object_get(line, "ok"));
	}
	if (n == 0)
		table_add(table, TINT_WARN, "-");
	else
		table_add(table, ok == n && agrees ? TINT_NONE : TINT_WARN, "%zu/%zu met%s", ok, n,
			  !audit ? "" : agrees ? ", audited" : ", not so the device");
}

static void distance_cells(struct table *table, const json_t *distance)
{
	const char *class = show_string(json_object_get(distance, "class"));
	const json_t *r = show_get(distance, "R"), *lower = show_get(distance, "lower");

	if (!json_is_number(r))
		table_add(table, TINT_NONE, "not measured");
	else if (!json_is_number(lower))
		table_add(table, TINT_NONE, "%.2f", json_number_value(r));
	else
		table_add(table, TINT_NONE, "%.2f [%.2f, %.2f]", json_number_value(r), json_number_value(lower),
			  json_number_value(json_object_get(distance, "upper")));
	table_add(table, term_tint_of(class), "%s", json_is_number(r) ? class : "");
}

static void forks_cell(struct table *table, const json_t *forks)
{
	const json_t *p = show_get(forks, "p");
	long long forked = json_integer_value(json_object_get(forks, "forked")), of = json_integer_value(json_object_get(forks, "prompts"));

	if (!forks)
		table_add(table, TINT_NONE, "-");
	else if (json_is_number(p))
		table_add(table, json_number_value(p) < 0.05 ? TINT_WARN : TINT_NONE, "%lld/%lld p %.2g", forked, of, json_number_value(p));
	else
		table_add(table, TINT_NONE, "%lld/%lld", forked, of);
}

static void flips_cell(struct table *table, const json_t *flips)
{
	double p = json_number_value(json_object_get(flips, "p"));

	if (!flips)
		table_add(table, TINT_NONE, "-");
	else
		table_add(table, p < 0.05 ? TINT_WARN : TINT_NONE, "%lld/%lld (%.1f) p %.2g",
			  (long long)json_integer_value(json_object_get(flips, "S")),
			  (long long)json_integer_value(json_object_get(flips, "positions")),
			  json_number_value(json_object_get(flips, "sum_q")), p);
}

/* The limit c that all legs share; 0 if no leg was measured. */
static double limit_of(const json_t *legs)
{
	const char *name;
	const json_t *leg;

	json_object_foreach((json_t *)legs, name, leg) {
		const json_t *c = show_get(leg, "noise", "distance", "c");

		if (c)
			return json_number_value(c);
	}
	return 0;
}

static bool any_measured(const json_t *legs)
{
	const char *name;
	const json_t *leg;

	json_object_foreach((json_t *)legs, name, leg) {
		if (show_get(leg, "tokens"))
			return true;
	}
	return false;
}

static void ms_cell(struct table *table, const json_t *ms)
{
	double x = json_number_value(ms);

	if (json_is_number(ms))
		table_add_right(table, TINT_NONE, "%.*f", x < 10 ? 2 : x < 100 ? 1 : 0, x);
	else
		table_add_right(table, TINT_NONE, "-");
}

static void show_legs(const struct shown *s)
{
	struct table table = {.term = s->t, .columns = 7};
	double c = limit_of(s->legs);
	const char *name;
	const json_t *leg;

	table_add(&table, TINT_DIM, "leg");
	table_add(&table, TINT_DIM, "counters");
	if (c > 0)
		table_add(&table, TINT_DIM, "R, 95 %% (limit %g)", c);
	else
		table_add(&table, TINT_DIM, "R");
	table_add(&table, TINT_NONE, "%s", "");
	table_add(&table, TINT_DIM, "forked, p");
	table_add(&table, TINT_DIM, "flips (expected), p");
	table_add_right(&table, TINT_DIM, "ms/token");
	json_object_foreach((json_t *)s->legs, name, leg) {
		table_add(&table, TINT_BOLD, "%s", name);
		path_cell(&table, leg);
		distance_cells(&table, show_get(leg, "noise", "distance"));
		forks_cell(&table, show_get(leg, "noise", "forks"));
		flips_cell(&table, show_get(leg, "noise", "flips"));
		ms_cell(&table, show_get(leg, "timing", "per_token_ms", "p50"));
	}
	term_blank(s->t);
	table_print(&table, s->t, 0, table_rows(&table), "");
	table_release(&table);
}

/* ---- the design ---- */

static const json_t *find_pair(const json_t *pairs, const char *a, const char *b)
{
	const json_t *pair;
	size_t i;

	json_array_foreach(pairs, i, pair) {
		if (strcmp(show_string(json_object_get(pair, "a")), a) == 0 && strcmp(show_string(json_object_get(pair, "b")), b) == 0)
			return pair;
	}
	return NULL;
}

static void pair_cells(struct table *table, const json_t *pair)
{
	const json_t *fork = show_get(pair, "first_fork"), *distance = show_get(pair, "distance");

	if (json_is_true(json_object_get(pair, "ids_equal")))
		table_add(table, TINT_NONE, "same tokens");
	else if (fork)
		table_add(table, TINT_NONE, "part at %s step %lld", show_string(json_object_get(fork, "prompt")),
			  (long long)json_integer_value(json_object_get(fork, "step")));
	else
		table_add(table, TINT_NONE, json_is_false(json_object_get(pair, "ids_equal")) ? "tokens differ" : "not compared");
	if (json_is_true(json_object_get(pair, "logits_bit_equal")))
		table_add(table, TINT_NONE, "logits bit-equal");
	else if (json_is_number(distance) && !json_is_number(json_object_get(pair, "lower")))
		table_add(table, TINT_NONE, "distance %.3g", json_number_value(distance));
	else if (json_is_number(distance))
		table_add(table, TINT_NONE, "distance %.3g, R %.2f [%.2f, %.2f] %s", json_number_value(distance),
			  json_number_value(json_object_get(pair, "R")), json_number_value(json_object_get(pair, "lower")),
			  json_number_value(json_object_get(pair, "upper")), show_string(json_object_get(pair, "class")));
	else
		table_add(table, TINT_NONE, json_is_false(json_object_get(pair, "logits_bit_equal")) ? "logits differ" : "");
}

static void show_factors(const struct shown *s)
{
	const json_t *design = show_get(s->verdict, "design"), *item;
	struct table table = {.term = s->t, .columns = 4};
	size_t i;

	if (!design)
		return;
	json_array_foreach(json_object_get(design, "separable"), i, item) {
		const json_t *legs = json_object_get(item, "legs");
		const char *a = show_string(json_array_get(legs, 0)), *b = show_string(json_array_get(legs, 1));

		table_add(&table, TINT_NONE, "%s", show_string(json_object_get(item, "factor")));
		table_add(&table, TINT_NONE, "%s / %s", a, b);
		pair_cells(&table, find_pair(json_object_get(s->verdict, "pairs"), a, b));
	}
	if (table.n_cells || json_array_size(json_object_get(design, "aliased")))
		term_blank(s->t);
	table_print(&table, s->t, 0, table_rows(&table), "");
	table_release(&table);
	show_separable(s->t, design);
}

/* ---- rows ---- */

static void say_row(const struct shown *s, const char *key, const json_t *row)
{
	const json_t *ids = json_object_get(row, key), *text = show_get(row, key[0] == 'g' ? "got_text" : "exp_text"), *id;
	char *line = xasprintf("    %s:", key);
	size_t i;

	json_array_foreach(ids, i, id) {
		char *longer = xasprintf("%s%s%lld", line, i ? "," : " ", (long long)json_integer_value(id));

		free(line);
		line = longer;
	}
	fprintf(s->t->out, "%s\n", line);
	if (text) {
		char *shown = term_text(s->t, json_string_value(text), true, 0);

		term_say(s->t, TINT_NONE, 9, "         %s", shown);
		free(shown);
	}
	free(line);
}

/* As the log of a token gate has it: one line per prompt, and both rows where they differ. */
static void show_rows(const struct shown *s)
{
	const char *name;
	const json_t *leg, *row;
	size_t i;

	json_object_foreach((json_t *)s->legs, name, leg) {
		if (json_array_size(json_object_get(leg, "prompts")) == 0)
			continue;
		term_blank(s->t);
		json_array_foreach(json_object_get(leg, "prompts"), i, row) {
			const json_t *fork = show_get(row, "first_fork");

			term_say(s->t, TINT_NONE, 4, "%s prompt %s: prompt_tokens=%lld compared=%lld matched=%lld", name,
				 show_string(json_object_get(row, "id")),
				 (long long)json_integer_value(json_object_get(row, "prompt_tokens")),
				 (long long)json_integer_value(json_object_get(row, "compared")),
				 (long long)json_integer_value(json_object_get(row, "matched")));
			if (fork) {
				say_row(s, "got", row);
				say_row(s, "exp", row);
			}
		}
	}
}

/* ---- all of it ---- */

static void say_legend(const struct shown *s)
{
	term_say(s->t, TINT_DIM, 2, "R: distance from the oracle over its own spread, Student's t over prompts; p: Poisson binomial; "
		 "flips: forced");
}

static void show_flips(const struct shown *s)
{
	struct table table = {.term = s->t, .columns = SHOW_FLIP_COLUMNS};
	int n, n_free = 0, n_legs = (int)json_object_size(s->legs), first, heads;
	struct flip_group *groups = show_group_flips(s->legs, &n);

	while (n_free < n && groups[n_free].free)
		n_free++;
	heads = (n_free > 0) + (n_free < n);
	if (n_free)
		show_flip_rows(&table, "forks", groups, n_free, n_legs);
	if (n_free < n)
		show_flip_rows(&table, "forced", groups + n_free, n - n_free, n_legs);
	/* The others: a blank line, what the columns mean, the run directory. */
	first = SHOW_FIRST - s->t->lines - 2 - (s->o->run_dir != NULL);
	first = first < FLIPS_AT_LEAST ? FLIPS_AT_LEAST : first;
	first = first > n + heads ? n + heads : first;
	if (n) {
		term_blank(s->t);
		table_print(&table, s->t, 0, first, "");
		term_say(s->t, TINT_DIM, 2, "margin: the oracle's between the two, own: the leg's, in nats; oracle: where it forks from itself");
	}
	if (s->o->run_dir)
		term_say(s->t, TINT_DIM, 2, "run directory: %s%s", s->o->run_dir, first < n + heads ? " (more flips below)" : "");
	if (first < n + heads) {
		int last = first + FLIPS_BELOW < n + heads ? first + FLIPS_BELOW : n + heads;

		term_blank(s->t);
		table_print(&table, s->t, first, last, "");
		if (last < n + heads)
			term_say(s->t, TINT_DIM, 2, "and %d more in verdict.json", n + heads - last);
	}
	table_release(&table);
	show_free_groups(groups, n);
}

void show_verdict(struct term *t, const json_t *verdict, const struct show_options *o)
{
	struct shown s = {.t = t, .verdict = verdict, .legs = json_object_get(verdict, "legs"), .o = o};

	load_recipe(&s);
	show_heads(&s);
	show_overall(&s);
	if (o->quiet) {
		show_failures(t, verdict);
	} else {
		show_hypotheses(&s);
		if (any_measured(s.legs)) {
			show_legs(&s);
			say_legend(&s);
		}
		show_reasons(t, verdict);
		show_factors(&s);
		show_speeds(t, json_object_get(verdict, "speed"));
		show_next_legs(t, show_get(verdict, "next_legs"), 2);
		show_flips(&s);
		if (o->prompts)
			show_rows(&s);
	}
	recipe_release(&s.recipe);
}
