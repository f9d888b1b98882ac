/* Parts of what is shown: members of the document, groups of flips, the design. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "show.h"
#include "speed.h"

#define TOKEN_COLUMNS 14

const json_t *show_path(const json_t *value, const char *const *keys)
{
	while (*keys)
		value = json_object_get(value, *keys++);
	return json_is_null(value) ? NULL : value;
}

const char *show_string(const json_t *value)
{
	const char *s = json_string_value(value);

	return s ? s : "";
}

const char *show_number(const json_t *value, int digits, char *buf, size_t size)
{
	if (json_is_string(value))
		snprintf(buf, size, "%s", json_string_value(value));
	else if (json_is_number(value))
		snprintf(buf, size, "%.*g", digits, json_number_value(value));
	else
		snprintf(buf, size, "-");
	return buf;
}

/* ---- flips ---- */

/* A tie is a tie: only what is worse is sorted before the others. */
static int severity(const char *adjudication)
{
	static const char *const order[] = {"EXACT TIE", "NEAR-TIE", "NOT MEASURED", "SUSPICIOUS", "EXCESS"};

	for (int i = 0; i < (int)(sizeof(order) / sizeof(order[0])); i++)
		if (strcmp(adjudication, order[i]) == 0)
			return i;
	return 0;
}

/* A flip of one leg in one mode, with what it is sorted by. */
struct one_flip { const json_t *flip; const char *leg, *prompt; json_int_t step, got, exp; int order; };

static int same_place_order(const struct one_flip *a, const struct one_flip *b)
{
	/* Prompts are numbered, so p2 stands before p10. */
	int d = strverscmp(a->prompt, b->prompt);

	if (!d)
		d = (a->step > b->step) - (a->step < b->step);
	if (!d)
		d = (a->got > b->got) - (a->got < b->got);
	if (!d)
		d = (a->exp > b->exp) - (a->exp < b->exp);
	return d;
}

static int one_order(const void *va, const void *vb)
{
	const struct one_flip *a = va, *b = vb;
	int d = same_place_order(a, b);

	return d ? d : a->order - b->order;
}

static struct one_flip *collect_flips(const json_t *legs, int *n)
{
	size_t room = 64, i;
	struct one_flip *all = xcalloc(room, sizeof(*all));
	const char *name;
	const json_t *leg, *flip;

	*n = 0;
	json_object_foreach((json_t *)legs, name, leg) {
		json_array_foreach(json_object_get(leg, "flips"), i, flip) {
			if ((size_t)*n == room) {
				room *= 2;
				all = xrealloc(all, room, sizeof(*all));
			}
			all[*n] = (struct one_flip){.flip = flip, .leg = name, .order = *n,
				.prompt = show_string(json_object_get(flip, "prompt")),
				.step = json_integer_value(json_object_get(flip, "step")),
				.got = json_integer_value(show_get(flip, "got", "id")),
				.exp = json_integer_value(show_get(flip, "exp", "id"))};
			++*n;
		}
	}
	if (*n)
		qsort(all, (size_t)*n, sizeof(*all), one_order);
	return all;
}

static void add_flip(struct flip_group *g, const struct one_flip *one)
{
	const json_t *margin = show_get(one->flip, "subject_margin");
	const char *adjudication = show_string(json_object_get(one->flip, "adjudication"));

	/* A leg's flips follow each other: free, then forced. */
	if (g->n_legs == 0 || g->legs[g->n_legs - 1] != one->leg) {
		g->legs = xrealloc(g->legs, (size_t)g->n_legs + 1, sizeof(*g->legs));
		g->legs[g->n_legs++] = one->leg;
	}
	g->free |= strcmp(show_string(json_object_get(one->flip, "mode")), "free") == 0;
	if (json_is_number(margin))
		g->margin = fmax(g->margin, json_number_value(margin));
	if (severity(adjudication) > severity(g->adjudication))
		g->adjudication = adjudication;
}

/* Groups are made in the order of their places, so a stable order keeps it. */
static int group_order(const void *va, const void *vb)
{
	const struct flip_group *a = va, *b = vb;
	int worse_a = severity(a->adjudication), worse_b = severity(b->adjudication);

	if (a->free != b->free)
		return b->free - a->free;
	if (worse_a != worse_b && (worse_a > 1 || worse_b > 1))
		return worse_b - worse_a;
	return a->order - b->order;
}

struct flip_group *show_group_flips(const json_t *legs, int *n)
{
	int n_all;
	struct one_flip *all = collect_flips(legs, &n_all);
	struct flip_group *groups = xcalloc((size_t)n_all + 1, sizeof(*groups));

	*n = 0;
	for (int i = 0; i < n_all; i++) {
		if (i == 0 || same_place_order(&all[i - 1], &all[i]) != 0) {
			groups[*n] = (struct flip_group){.flip = all[i].flip, .margin = NAN, .order = *n,
				.adjudication = show_string(json_object_get(all[i].flip, "adjudication"))};
			++*n;
		}
		add_flip(&groups[*n - 1], &all[i]);
	}
	qsort(groups, (size_t)*n, sizeof(*groups), group_order);
	free(all);
	return groups;
}

void show_free_groups(struct flip_group *groups, int n)
{
	for (int i = 0; i < n; i++)
		free(groups[i].legs);
	free(groups);
}

/* " the" 257 */
static void token_cell(struct table *table, const json_t *token)
{
	const json_t *text = show_get(token, "text");
	char *shown = text ? term_text(table->term, json_string_value(text), true, TOKEN_COLUMNS) : xstrdup("");

	table_add(table, TINT_NONE, "%s%s%lld", shown, text ? " " : "",
		  (long long)json_integer_value(json_object_get(token, "id")));
	free(shown);
}

/* Where the oracle itself leaves its own row, under another benign configuration. */
static void oracle_cell(struct table *table, const json_t *flip)
{
	const json_t *forks = show_get(flip, "oracle_forks_at");
	long long at = json_integer_value(forks), step = json_integer_value(json_object_get(flip, "step"));

	if (!forks)
		table_add(table, TINT_NONE, "never");
	else if (at == step)
		table_add(table, TINT_NONE, "here");
	else
		table_add(table, TINT_NONE, "at %lld", at);
}

static void margin_cell(struct table *table, const json_t *flip)
{
	const json_t *margin = show_get(flip, "oracle_margin");
	bool bound = json_is_true(json_object_get(flip, "oracle_margin_bound"));

	if (json_is_number(margin))
		table_add_right(table, TINT_NONE, "%s%.3f", bound ? ">=" : "", json_number_value(margin));
	else
		table_add_right(table, TINT_NONE, "-");
}

static void legs_cell(struct table *table, const struct flip_group *g, int n_legs)
{
	char *legs = xstrdup("");

	if (g->n_legs == n_legs && n_legs > 1) {
		free(legs);
		legs = xasprintf("all %d", n_legs);
	}
	for (int i = 0; i < g->n_legs && (g->n_legs < n_legs || n_legs == 1); i++) {
		char *longer = xasprintf("%s%s%s", legs, i ? " " : "", g->legs[i]);

		free(legs);
		legs = longer;
	}
	table_add(table, TINT_NONE, "%s", legs);
	free(legs);
}

static void flip_head(struct table *table, const char *of)
{
	table_add(table, TINT_DIM, "%s", of);
	table_add(table, TINT_DIM, "expected");
	table_add(table, TINT_DIM, "got");
	table_add_right(table, TINT_DIM, "margin");
	table_add_right(table, TINT_DIM, "own");
	table_add(table, TINT_DIM, "adjudication");
	table_add(table, TINT_DIM, "oracle");
	table_add(table, TINT_DIM, "legs");
}

void show_flip_rows(struct table *table, const char *of, const struct flip_group *groups, int n, int n_legs)
{
	if (of)
		flip_head(table, of);
	for (int i = 0; i < n; i++) {
		const struct flip_group *g = &groups[i];

		table_add(table, TINT_NONE, "%s:%lld", show_string(json_object_get(g->flip, "prompt")),
			  (long long)json_integer_value(json_object_get(g->flip, "step")));
		token_cell(table, json_object_get(g->flip, "exp"));
		token_cell(table, json_object_get(g->flip, "got"));
		margin_cell(table, g->flip);
		table_add_right(table, TINT_NONE, isnan(g->margin) ? "-" : "%.3f", g->margin);
		table_add(table, term_tint_of(g->adjudication), "%s", g->adjudication);
		oracle_cell(table, g->flip);
		legs_cell(table, g, n_legs);
	}
}

/* ---- the design ---- */

static char *join(const json_t *list, const char *between)
{
	char *text = xstrdup("");
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) {
		char *longer = xasprintf("%s%s%s", text, i ? between : "", show_string(item));

		free(text);
		text = longer;
	}
	return text;
}

void show_separable(struct term *t, const json_t *design)
{
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(design, "aliased"), i, item) {
		char *factors = join(item, ", ");

		term_say(t, TINT_WARN, 2, "ALIASED: %s change together in every leg: no two legs tell them apart", factors);
		free(factors);
	}
}

static void say_next(struct term *t, const json_t *next)
{
	const json_t *pairs = show_get(next, "separates", "hypotheses"), *factors = show_get(next, "separates", "factors");
	const json_t *minutes = show_get(next, "minutes"), *pair;
	char *text = xasprintf("next leg: %s", show_string(json_object_get(next, "leg")));
	size_t i;

	json_array_foreach(pairs, i, pair) {
		char *two = join(pair, " from "), *longer = xasprintf("%s%s %s", text, i ? "," : " tells", two);

		free(two);
		free(text);
		text = longer;
	}
	if (json_array_size(factors)) {
		char *names = join(factors, ", "), *longer = xasprintf("%s%s separable: %s", text, json_array_size(pairs) ? "; makes"
			: " makes", names);

		free(names);
		free(text);
		text = longer;
	}
	if (json_is_number(minutes)) {
		double m = json_number_value(minutes);
		char *longer = m < 1 ? xasprintf("%s; about %.0f s", text, ceil(60 * m)) : xasprintf("%s; about %.1f min", text, m);

		free(text);
		text = longer;
	}
	term_say(t, TINT_BOLD, 2, "%s", text);
	free(text);
}

void show_next_legs(struct term *t, const json_t *next_legs, int most)
{
	const json_t *next;
	size_t i;

	json_array_foreach(next_legs, i, next) {
		if ((int)i < most)
			say_next(t, next);
	}
}

/* ---- the whole design ---- */

static void design_matrix(struct term *t, const json_t *design)
{
	const json_t *varied = json_object_get(design, "varied"), *factor, *values, *value;
	struct table table = {.term = t, .columns = (int)json_array_size(varied) + 1};
	const char *leg;
	char number[32];
	size_t i;

	table_add(&table, TINT_DIM, "leg");
	json_array_foreach(varied, i, factor) {
		table_add(&table, TINT_DIM, "%s", show_string(factor));
	}
	json_object_foreach(json_object_get(design, "factors"), leg, values) {
		table_add(&table, TINT_NONE, "%s", leg);
		json_array_foreach(varied, i, factor) {
			value = json_object_get(values, show_string(factor));
			if (json_is_array(value) || json_is_object(value)) {
				char *text = json_dumps(value, JSON_COMPACT);

				table_add(&table, TINT_NONE, "%s", text);
				free(text);
			} else {
				table_add(&table, TINT_NONE, "%s", json_is_string(value) ? json_string_value(value)
					  : show_number(value, 9, number, sizeof(number)));
			}
		}
	}
	table_print(&table, t, 0, table_rows(&table), "  ");
	table_release(&table);
}

/* What may be said of each factor, and what is missing where nothing may be. */
static void show_claims_by_factor(struct term *t, const json_t *claims)
{
	struct table table = {.term = t, .columns = 3};
	const json_t *claim;
	size_t i;

	json_array_foreach(claims, i, claim) {
		const json_t *needs = show_get(claim, "needs"), *name = show_get(claim, "name");
		const char *status = show_string(json_object_get(claim, "status"));
		char *legs = join(needs ? needs : json_object_get(claim, "legs"), needs ? " against " : " and ");

		table_add(&table, TINT_NONE, "%s", show_string(name ? name : json_object_get(claim, "about")));
		table_add(&table, strcmp(status, "refused") ? TINT_NONE : TINT_WARN, "%s", status);
		table_add(&table, TINT_NONE, "%s%s", !*legs ? "" : needs ? "needs " : "by ", legs);
		free(legs);
	}
	if (table.n_cells) {
		term_blank(t);
		term_say(t, TINT_BOLD, 0, "What may be claimed of each factor");
		table_print(&table, t, 0, table_rows(&table), "  ");
	}
	table_release(&table);
}

static void show_findings(struct term *t, const json_t *hypotheses)
{
	struct table table = {.term = t, .columns = 3};
	const json_t *finding;
	const char *name;

	json_object_foreach((json_t *)hypotheses, name, finding) {
		const char *status = show_string(json_object_get(finding, "status"));
		char *by = join(json_object_get(finding, "by"), ", ");

		table_add(&table, TINT_NONE, "%s", name);
		table_add(&table, term_tint_of(status), "%s", status);
		table_add(&table, TINT_DIM, "%s%s", *by ? "by " : "", by);
		free(by);
	}
	if (table.n_cells) {
		term_blank(t);
		term_say(t, TINT_BOLD, 0, "Hypotheses");
		table_print(&table, t, 0, table_rows(&table), "  ");
		term_blank(t);
	}
	table_release(&table);
}

void show_speeds(struct term *t, const json_t *speed)
{
	const json_t *found;
	size_t i;

	json_array_foreach(speed, i, found) {
		char *sentence = speed_sentence(found);

		if (i == 0)
			term_blank(t);
		term_say(t, show_get(found, "refused") ? TINT_WARN : TINT_NONE, 2, "speed: %s", sentence);
		free(sentence);
	}
}

void show_design(struct term *t, const json_t *explained)
{
	const json_t *design = show_get(explained, "design"), *varied = json_object_get(design, "varied"), *item;
	size_t i;

	if (!design) {
		term_say(t, TINT_WARN, 0, "There is no design: no leg can be compared.");
		return;
	}
	if (json_array_size(varied) == 0) {
		term_say(t, TINT_NONE, 0, "Nothing is varied: there is one arm.");
	} else {
		term_say(t, TINT_BOLD, 0, "What is varied");
		design_matrix(t, design);
		term_blank(t);
		term_say(t, TINT_BOLD, 0, "What the pairs of legs separate");
		json_array_foreach(json_object_get(design, "separable"), i, item) {
			char *legs = join(json_object_get(item, "legs"), " and ");

			term_say(t, TINT_NONE, 4, "  %s: %s differ in nothing else", show_string(json_object_get(item, "factor")), legs);
			free(legs);
		}
		if (json_array_size(json_object_get(design, "separable")) == 0)
			term_say(t, TINT_WARN, 2, "  nothing: no two legs differ in one factor alone");
		show_separable(t, design);
		show_claims_by_factor(t, show_get(explained, "claims"));
	}
	show_findings(t, show_get(explained, "hypotheses"));
	show_next_legs(t, show_get(explained, "next_legs"), 100);
	show_speeds(t, show_get(explained, "speed"));
}
