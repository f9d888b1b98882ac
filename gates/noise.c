/* How surprising a leg is against the oracle's own spread.  docs/judging.md, sections 4 to 6. */
#include <math.h>
#include <stdlib.h>

#include "evidence.h"

/* ---- section 4 */

static void forced_flips(struct flip_test *t, const struct oracle *o, const struct mode_compare *c)
{
	double *q = xcalloc(c->compared + 1, sizeof *q);
	bool known = o->law.measured;

	for (int p = 0; p < o->n_prompts; p++)
		for (int i = 0; i < c->rows[p].compared; i++) {
			double x = o->positions[o->prompts[p].first + (size_t)i].q;

			known = known && !isnan(x);
			t->sum_q += x;
			q[t->positions++] = x;
		}
	t->count = c->compared - c->matched;
	t->present = known && t->positions > 0;
	if (t->present)
		t->p = stats_poisson_binomial_upper(q, t->positions, t->count, &t->exact);
	free(q);
}

/* The hazard of the whole row that came back, also past a fork: one that stopped there would be small because of the
 * fork. */
static void free_forks(struct flip_test *t, const struct oracle *o, const struct mode_compare *c)
{
	double *q = xcalloc((size_t)o->n_prompts + 1, sizeof *q);

	t->present = true;
	t->exact = true;
	t->p = NAN;
	for (int p = 0; p < o->n_prompts; p++) {
		double h = 0;

		if (c->rows[p].compared == 0)
			continue;
		for (int i = 0; i < c->rows[p].compared; i++)
			h -= log1p(-o->positions[o->prompts[p].first + (size_t)i].q);
		q[t->positions++] = -expm1(-h);
		t->sum_q += h;
		t->count += c->rows[p].first_fork >= 0;
	}
	if (t->positions == 0)
		t->sum_q = NAN;
	if (!isnan(t->sum_q))
		t->p = stats_poisson_binomial_upper(q, t->positions, t->count, &t->exact);
	free(q);
}

/* ---- section 5 */

static void distances(struct evidence *e, struct leg *l)
{
	const struct oracle *o = &e->oracle;
	struct noise *n = &l->noise;
	const struct report_row **rows = xcalloc((size_t)o->n_prompts + 1, sizeof *rows);
	double *B = xcalloc(o->n_positions + 1, sizeof *B), *w = xcalloc(o->n_positions + 1, sizeof *w);
	double *x = xcalloc(o->n_positions + 1, sizeof *x);
	struct subject s = leg_subject(e, l, rows);

	distance_fill(B, x, &s);
	divergence_measure(&n->kl, x, o->n_positions);
	distance_measure(&n->distance, w, o, B, e->recipe.limit);
	drift_measure(&n->drift, o, w);
	direction_fill(x, &s);
	direction_measure(&n->direction, x, o->n_positions);
	power_measure(&n->power, &n->distance, o, B);
	free(rows);
	free(B);
	free(w);
	free(x);
}

void noise_measure(struct evidence *e, struct leg *l)
{
	const struct mode_compare *forced = &l->modes[MODE_FORCED], *free_run = &l->modes[MODE_FREE];
	struct noise *n = &l->noise;

	*n = (struct noise){ .present = true, .flip_rate_upper = NAN, .same_top1 = NAN, .arbiter.leg = -1 };
	if (free_run->asked)
		free_forks(&n->forks, &e->oracle, free_run);
	if (forced->asked && forced->compared) {
		forced_flips(&n->flips, &e->oracle, forced);
		n->same_top1 = (double)forced->matched / (double)forced->compared;
		distances(e, l);
	}
	size_t compared = forced->asked && forced->compared ? forced->compared : free_run->compared;

	if (compared)
		n->flip_rate_upper = 1 - pow(0.05, 1 / (double)compared);
}

/* ---- what needs the other legs */

bool leg_is_arbiter(const struct leg *l)
{
	return leg_counts(l) && l->report.effective.value[FACTOR_BACKEND] == BACKEND_REF &&
		l->report.effective.value[FACTOR_COMPUTE] == COMPUTE_F64;
}

/* The `ref` f64 leg of the same numerics, else the first `ref` f64 leg; -1: none. */
static int arbiter_of(const struct evidence *e, const struct leg *l)
{
	const struct arm *mine = &l->report.effective;
	int first = -1;

	if (leg_is_arbiter(l))
		return -1;
	for (int i = 0; i < e->n_legs; i++) {
		const struct arm *a = &e->legs[i].report.effective;

		if (!leg_is_arbiter(&e->legs[i]))
			continue;
		if (a->value[FACTOR_MAMBA_PROJ] == mine->value[FACTOR_MAMBA_PROJ] &&
		    a->value[FACTOR_MOE_EXPERTS] == mine->value[FACTOR_MOE_EXPERTS])
			return i;
		first = first < 0 ? i : first;
	}
	return first;
}

static void ask_arbiter(struct evidence *e, struct leg *l)
{
	int arbiter = arbiter_of(e, l);

	if (arbiter < 0 || !l->noise.distance.present)
		return;
	const struct report_row **rows = xcalloc((size_t)e->oracle.n_prompts + 1, sizeof *rows);
	const struct report_row **theirs = xcalloc((size_t)e->oracle.n_prompts + 1, sizeof *theirs);
	struct subject s = leg_subject(e, l, rows), a = leg_subject(e, &e->legs[arbiter], theirs);

	l->noise.arbiter.n = distance_to_arbiter(&l->noise.arbiter.subject, &l->noise.arbiter.oracle, &s, &a);
	if (l->noise.arbiter.n)
		l->noise.arbiter.leg = arbiter;
	free(rows);
	free(theirs);
}

void noise_across(struct evidence *e)
{
	double *p = xcalloc(2 * (size_t)e->n_legs + 1, sizeof *p), **back = xcalloc(2 * (size_t)e->n_legs + 1, sizeof *back);
	size_t n = 0;

	for (int i = 0; i < e->n_legs; i++) {
		struct noise *at = &e->legs[i].noise;

		if (!at->present)
			continue;
		ask_arbiter(e, &e->legs[i]);
		if (at->direction.measured) {
			back[n] = &at->direction.p_holm;
			p[n++] = at->direction.p;
		}
		if (at->drift.measured) {
			back[n] = &at->drift.p_holm;
			p[n++] = at->drift.p;
		}
	}
	stats_holm(p, n);
	for (size_t i = 0; i < n; i++)
		*back[i] = p[i];
	free(p);
	free(back);
}
