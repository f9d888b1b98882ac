/* Hypotheses against outcomes, and claims with the legs they rest on.  docs/judging.md, section 7. */
#include <stdlib.h>
#include <string.h>

#include "evidence.h"

/* ---- hypotheses */

/* Does the leg's outcome contradict the prediction?  -1: it tests nothing. */
static int contradicts(const struct evidence *e, const struct leg *l, enum prediction says)
{
	if (l->verdict != LEG_STRICT_PASS && l->verdict != LEG_DIVERGENCE)
		return -1;
	if (says == PREDICT_PASS || says == PREDICT_DIVERGE) {
		const struct mode_compare *c = &l->modes[headline_mode(&e->recipe)];
		bool pass = c->matched == c->compared && l->n_suspects == 0;

		return pass != (says == PREDICT_PASS);
	}
	if (l->adjudication == ADJ_UNDETERMINED)
		return -1;
	bool excess = l->adjudication == ADJ_EXCESS || l->adjudication == ADJ_SYSTEMATIC;

	return excess != (says == PREDICT_EXCESS);
}

void hypotheses_test(struct evidence *e)
{
	const struct recipe *r = &e->recipe;

	e->hypotheses = xcalloc((size_t)r->n_hypotheses + 1, sizeof *e->hypotheses);
	for (int i = 0; i < r->n_hypotheses; i++) {
		const struct hypothesis *h = &r->hypotheses[i];
		struct hypothesis_finding *f = &e->hypotheses[i];
		bool tested = false;

		f->by = xcalloc((size_t)e->n_legs + 1, sizeof *f->by);
		for (int leg = 0; leg < e->n_legs; leg++) {
			bool against = false;

			for (int k = 0; k < h->n; k++) {
				int c = h->predicts[k].leg == leg && h->predicts[k].factor < 0 ?
					contradicts(e, &e->legs[leg], h->predicts[k].says) : -1;

				tested = tested || c >= 0;
				against = against || c == 1;
			}
			if (against)
				f->by[f->n_by++] = leg;
		}
		f->status = f->n_by ? HYPOTHESIS_ELIMINATED : tested ? HYPOTHESIS_SURVIVES : HYPOTHESIS_UNTESTED;
	}
}

/* ---- claims */

static const struct pair *pair_find(const struct evidence *e, int a, int b)
{
	for (int i = 0; i < e->n_pairs; i++)
		if ((e->pairs[i].a == a && e->pairs[i].b == b) || (e->pairs[i].a == b && e->pairs[i].b == a))
			return &e->pairs[i];
	return NULL;
}

static enum claim_status pair_says(const struct pair *p)
{
	if (p->ids_equal < 0)
		return CLAIM_REFUSED;      /* nothing to compare */
	return !p->ids_equal ? CLAIM_SUPPORTED : p->bit_equal == 1 ? CLAIM_EXONERATED : CLAIM_CONSISTENT;
}

/* The pair that a claim still needs: a row, and the best candidate that differs from it in that column alone. */
static void state_need(const struct design *d, struct claim *c, int column)
{
	const struct candidate *best;
	int row;

	if (!candidate_pair(d, column, &row, &best))
		return;
	c->needs[0] = xstrdup(d->rows[row].name);
	c->needs[1] = candidate_name(d, best);
}

static const struct design_row *row_of_leg(const struct design *d, int leg)
{
	for (int i = 0; i < d->n_rows; i++)
		if (d->rows[i].leg == leg)
			return &d->rows[i];
	return NULL;
}

/* A claim of the recipe rests on its own legs: every pair of them that differs in the factor alone counts. */
static void judge_claim(const struct evidence *e, struct claim *c, int column)
{
	int said[CLAIM_WITHDRAWN] = { 0 };

	for (int i = 0; i < c->n_legs; i++) {
		const struct leg *l = &e->legs[c->legs[i]];

		if (l->verdict == LEG_VOID || l->verdict == LEG_ERROR) {
			c->status = CLAIM_WITHDRAWN;
			return;
		}
	}
	for (int i = 0; i < c->n_legs; i++)
		for (int j = i + 1; j < c->n_legs; j++) {
			const struct design_row *a = row_of_leg(&e->design, c->legs[i]), *b = row_of_leg(&e->design, c->legs[j]);

			if (a && b && rows_only_difference(a, b) == column)
				said[pair_says(pair_find(e, c->legs[i], c->legs[j]))]++;
		}
	c->status = said[CLAIM_SUPPORTED] ? CLAIM_SUPPORTED : said[CLAIM_CONSISTENT] ? CLAIM_CONSISTENT :
		said[CLAIM_EXONERATED] ? CLAIM_EXONERATED : CLAIM_REFUSED;
	if (c->status == CLAIM_REFUSED)
		state_need(&e->design, c, column);
}

static void draw_claim(const struct evidence *e, struct claim *c, int column)
{
	const int *pair = e->design.separable[column];

	c->about = column_name(column);
	c->legs = xcalloc(2, sizeof *c->legs);
	if (pair[0] < 0) {
		c->status = CLAIM_REFUSED;
		state_need(&e->design, c, column);
		return;
	}
	c->n_legs = 2;
	c->legs[0] = e->design.rows[pair[0]].leg;
	c->legs[1] = e->design.rows[pair[1]].leg;
	c->status = pair_says(pair_find(e, c->legs[0], c->legs[1]));
}

void claims_draw(struct evidence *e)
{
	const struct recipe *r = &e->recipe;

	e->claims = xcalloc((size_t)r->n_claims + N_COLUMNS + 1, sizeof *e->claims);
	for (int i = 0; i < r->n_claims; i++) {
		const struct recipe_claim *rc = &r->claims[i];
		struct claim *c = &e->claims[e->n_claims++];

		*c = (struct claim){ .name = rc->name, .says = rc->says, .about = rc->about, .n_legs = rc->n_legs };
		c->legs = xcalloc((size_t)rc->n_legs + 1, sizeof *c->legs);
		for (int k = 0; k < rc->n_legs; k++)
			c->legs[k] = rc->legs[k];
		judge_claim(e, c, column_find(rc->about));
	}
	for (int c = 0; c < N_COLUMNS; c++)
		if (e->design.varied[c])
			draw_claim(e, &e->claims[e->n_claims++], c);
}
