/* Which leg to run next: one-factor changes of the legs, ranked by what they would separate.  docs/judging.md, section 7. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "evidence.h"

char *candidate_name(const struct design *d, const struct candidate *c)
{
	char buf[64];

	return xasprintf("%s+%s=%s", d->rows[c->row].name, factor_name((enum factor)c->factor),
			 arm_text(&c->arm, (enum factor)c->factor, buf, sizeof buf));
}

/* The design row that a candidate would be. */
static struct design_row candidate_row(const struct design *d, const struct candidate *c)
{
	struct design_row row = d->rows[c->row];

	row.arm = c->arm;
	row.leg = -1;
	return row;
}

static bool rows_equal(const struct design_row *a, const struct design_row *b)
{
	for (int c = 0; c < N_COLUMNS; c++)
		if (rows_differ_in(a, b, c))
			return false;
	return true;
}

static bool same_places(const struct arm *a, const struct arm *b)
{
	static const int places[] = { FACTOR_BACKEND, FACTOR_PLACE_MAMBA, FACTOR_PLACE_ATTN, FACTOR_PLACE_MOE, FACTOR_PLACE_MLP };

	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (a->value[places[i]] != b->value[places[i]])
			return false;
	return true;
}

/* Of two ways to the same leg: the one that changes a leg with the same backend and places, else the slowest. */
static bool better_way(const struct design *d, const struct candidate *c, const struct candidate *old)
{
	const struct design_row *a = &d->rows[c->row], *b = &d->rows[old->row];
	bool near_a = same_places(&a->arm, &c->arm), near_b = same_places(&b->arm, &c->arm);

	return near_a != near_b ? near_a : !near_a && a->seconds > b->seconds;
}

static void candidate_add(struct design *d, int row, int factor, int value)
{
	struct candidate c = { .row = row, .factor = factor, .value = value, .arm = d->rows[row].arm, .minutes = NAN };

	c.arm.value[factor] = value;
	struct design_row as_row = candidate_row(d, &c);

	for (int i = 0; i < d->n_rows; i++)
		if (rows_equal(&d->rows[i], &as_row))
			return;
	for (int i = 0; i < d->n_candidates; i++) {
		struct design_row other = candidate_row(d, &d->candidates[i]);

		if (!rows_equal(&other, &as_row))
			continue;
		if (better_way(d, &c, &d->candidates[i]))
			d->candidates[i] = c;
		return;
	}
	d->candidates = xrealloc(d->candidates, (size_t)d->n_candidates + 1, sizeof *d->candidates);
	d->candidates[d->n_candidates++] = c;
}

/* What a hypothesis predicts for the leg that a candidate would be; -1: nothing. */
static int predicted(const struct design *d, const struct hypothesis *h, const struct candidate *c)
{
	struct design_row as_row = candidate_row(d, c);

	for (int i = 0; i < h->n; i++) {
		const struct predict *p = &h->predicts[i];

		for (int row = 0; p->factor >= 0 && row < d->n_rows; row++) {
			if (d->rows[row].leg != p->leg)
				continue;
			struct design_row named = d->rows[row];

			named.arm.value[p->factor] = p->value;
			if (rows_equal(&named, &as_row))
				return (int)p->says;
		}
	}
	return -1;
}

/* Do two predictions exclude each other?  A strict pass may be EXCESS, so the two kinds do not mix. */
static bool exclude(int a, int b)
{
	return (a == PREDICT_PASS && b == PREDICT_DIVERGE) || (a == PREDICT_DIVERGE && b == PREDICT_PASS) ||
		(a == PREDICT_CLEAN && b == PREDICT_EXCESS) || (a == PREDICT_EXCESS && b == PREDICT_CLEAN);
}

static void weigh_hypotheses(const struct design *d, const struct recipe *r, const struct hypothesis_finding *h,
			     struct candidate *c)
{
	size_t n = (size_t)r->n_hypotheses;

	c->pairs = xcalloc(n * n / 2 + 1, sizeof *c->pairs);
	for (int i = 0; i < r->n_hypotheses; i++) {
		int a = h && h[i].status == HYPOTHESIS_ELIMINATED ? -1 : predicted(d, &r->hypotheses[i], c);

		for (int j = i + 1; a >= 0 && j < r->n_hypotheses; j++) {
			if (h && h[j].status == HYPOTHESIS_ELIMINATED)
				continue;
			if (!exclude(a, predicted(d, &r->hypotheses[j], c)))
				continue;
			c->pairs[c->n_pairs][0] = i;
			c->pairs[c->n_pairs++][1] = j;
		}
	}
}

static int by_column_name(const void *a, const void *b)
{
	return strcmp(column_name(*(const int *)a), column_name(*(const int *)b));
}

/* The columns that become separable when the candidate joins the rows, by name. */
static void weigh_factors(const struct design *d, struct candidate *c)
{
	struct design_row as_row = candidate_row(d, c);
	bool gained[N_COLUMNS] = { false };

	for (int i = 0; i < d->n_rows; i++) {
		int only = rows_only_difference(&d->rows[i], &as_row);

		if (only >= 0 && d->separable[only][0] < 0)
			gained[only] = true;
	}
	c->gained = xcalloc(N_COLUMNS, sizeof *c->gained);
	for (int k = 0; k < N_COLUMNS; k++)
		if (gained[k])
			c->gained[c->n_gained++] = k;
	qsort(c->gained, (size_t)c->n_gained, sizeof *c->gained, by_column_name);
}

/* Stable: candidates that weigh the same keep the order of rows, factors and values. */
static bool candidate_before(const struct candidate *a, const struct candidate *b, bool ran)
{
	if (ran && a->n_pairs != b->n_pairs)
		return a->n_pairs > b->n_pairs;
	if (a->n_gained != b->n_gained)
		return a->n_gained > b->n_gained;
	return a->minutes < b->minutes || (!isnan(a->minutes) && isnan(b->minutes));
}

static void collect(struct design *d, const struct recipe *r)
{
	for (int row = 0; row < d->n_rows; row++) {
		for (int f = 0; f < N_FACTORS; f++) {
			int mine = d->rows[row].arm.value[f];

			for (int i = 0; i < d->n_rows; i++) {
				int v = d->rows[i].arm.value[f];

				if (v != mine && v != ARM_UNSET)
					candidate_add(d, row, f, v);
			}
			for (int h = 0; h < r->n_hypotheses; h++)
				for (int i = 0; i < r->hypotheses[h].n; i++) {
					const struct predict *p = &r->hypotheses[h].predicts[i];

					if (p->factor == f && p->leg == d->rows[row].leg && p->value != mine)
						candidate_add(d, row, f, p->value);
				}
		}
	}
}

void candidates_rank(struct design *d, const struct recipe *r, const struct hypothesis_finding *h, double tokens)
{
	int kept = 0;

	collect(d, r);
	for (int i = 0; i < d->n_candidates; i++) {
		struct candidate c = d->candidates[i];

		weigh_hypotheses(d, r, h, &c);
		weigh_factors(d, &c);
		c.minutes = tokens * d->rows[c.row].seconds / 60;
		if (c.n_pairs + c.n_gained == 0) {
			free(c.pairs);
			free(c.gained);
			continue;
		}
		int at = kept++;

		for (; at > 0 && candidate_before(&c, &d->candidates[at - 1], h != NULL); at--)
			d->candidates[at] = d->candidates[at - 1];
		d->candidates[at] = c;
	}
	d->n_candidates = kept;
	d->n_next = 0;
	while (r->kind == RECIPE_DISCRIMINATE && d->n_next < kept &&
	       (!h || d->candidates[d->n_next].n_pairs == d->candidates[0].n_pairs) &&
	       d->candidates[d->n_next].n_gained == d->candidates[0].n_gained)
		d->n_next++;
}

void next_legs(struct evidence *e)
{
	double tokens = 0;

	for (int m = 0; m < N_MODES; m++)
		if (e->recipe.modes[m])
			tokens += (double)e->oracle.n_positions;
	candidates_rank(&e->design, &e->recipe, e->hypotheses, tokens);
}

bool candidate_pair(const struct design *d, int column, int *row, const struct candidate **found)
{
	for (int i = 0; i < d->n_candidates; i++) {
		const struct candidate *c = &d->candidates[i];
		struct design_row as_row = candidate_row(d, c);

		for (int k = 0; k < d->n_rows; k++)
			if (rows_only_difference(&d->rows[k], &as_row) == column) {
				*row = k;
				*found = c;
				return true;
			}
	}
	return false;
}
