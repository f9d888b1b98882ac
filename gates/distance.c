#include "distance.h"

#include <math.h>
#include <stdlib.h>

const char *distance_class_name(enum distance_class c)
{
	switch (c) {
	case DISTANCE_EQUIVALENT: return "EQUIVALENT";
	case DISTANCE_EXCESS: return "EXCESS";
	case DISTANCE_INCONCLUSIVE: return "INCONCLUSIVE";
	default: return "NOT MEASURED";
	}
}

/* ---- what the leg answered */

bool step_finite(const struct report_step *s)
{
	if (s->has_given && !isfinite(s->given_logit))
		return false;
	if (!s->has_logits)
		return true;
	for (int i = 0; i < s->n_top; i++)
		if (!isfinite(s->top[i].value))
			return false;
	return isfinite(s->margin) && isfinite(s->lse);
}

double step_logit(const struct report_step *s, int32_t id)
{
	double x = s->has_logits ? top_value(s->top, s->n_top, id) : NAN;

	return isnan(x) && s->has_given && s->given == id ? s->given_logit : x;
}

const struct report_step *subject_step(const struct subject *s, int prompt, int step)
{
	const struct report_row *row = s->row[prompt];

	if (!row || !row->steps || step >= row->n)
		return NULL;
	const struct report_step *at = &row->steps[step];

	return at->has_logits && step_finite(at) ? at : NULL;
}

/* The oracle's step of an asked position; NULL where it lists nothing. */
static const struct golden_step *expected_step(const struct oracle *o, int prompt, int step)
{
	const struct golden_row *base = o->prompts[prompt].base;

	return base->steps && base->steps[step].n_top ? &base->steps[step] : NULL;
}

static void list_values(double *values, const struct golden_step *s)
{
	for (int i = 0; i < s->n_top; i++)
		values[i] = s->top[i].value;
}

/* KL(base || subject) over the ids that both list and one bucket for the rest. */
static double kl_of(const double *l, const double *logit, int n, double lse)
{
	double sum = 0, p_rest = 1, q_rest = 1;

	for (int i = 0; i < n; i++) {
		double lq = logit[i] - lse, p = exp(l[i]);

		if (!isfinite(lq))
			continue;
		sum += p * (l[i] - lq);
		p_rest -= p;
		q_rest -= exp(lq);
	}
	p_rest = p_rest > 1e-12 ? p_rest : 1e-12;
	q_rest = q_rest > 1e-12 ? q_rest : 1e-12;
	return sum + p_rest * log(p_rest / q_rest);
}

void distance_fill(double *B, double *kl, const struct subject *s)
{
	const struct oracle *o = s->oracle;
	double l[TOP_MAX], logit[TOP_MAX];

	for (int p = 0; p < o->n_prompts; p++) {
		for (int t = 0; t < o->prompts[p].planned; t++) {
			size_t at = o->prompts[p].first + (size_t)t;
			const struct report_step *r = subject_step(s, p, t);
			const struct golden_step *g = r ? expected_step(o, p, t) : NULL;

			B[at] = NAN;
			if (kl)
				kl[at] = NAN;
			if (!g)
				continue;
			list_values(l, g);
			top_align(logit, g->top, g->n_top, r->top, r->n_top);
			B[at] = top_distance(l, logit, g->n_top);
			if (kl)
				kl[at] = kl_of(l, logit, g->n_top, r->lse);
		}
	}
}

/* ---- R */

/* The sum of Student's quantiles for P prompts, times sd / sqrt(P): it falls as P grows. */
static double half_width(int64_t prompts, double sd, const double *quantiles, int n)
{
	double t = 0;

	for (int i = 0; i < n; i++)
		t += stats_student_quantile(quantiles[i], (double)(prompts - 1));
	return t * sd / sqrt((double)prompts);
}

#define PROMPTS_HOPELESS 1000000

/* The smallest number of prompts, two or more, whose half-width is at most `limit`; -1: hopeless. */
static int64_t prompts_for(double sd, double limit, const double *quantiles, int n)
{
	int64_t few = 1, enough = 2;

	if (isnan(sd))
		return -1;
	while (half_width(enough, sd, quantiles, n) > limit) {
		if (enough > PROMPTS_HOPELESS)
			return -1;
		few = enough;
		enough *= 2;
	}
	while (enough - few > 1) {
		int64_t mid = few + (enough - few) / 2;

		*(half_width(mid, sd, quantiles, n) > limit ? &few : &enough) = mid;
	}
	return enough;
}

/* Positions per prompt, rounded up. */
static int64_t per_prompt(const struct distance *d)
{
	return d->prompts ? (int64_t)((d->positions + (size_t)d->prompts - 1) / (size_t)d->prompts) : 0;
}

static void classify(struct distance *d, double mean)
{
	d->R = exp(mean);
	if (d->prompts < 2) {
		d->class = DISTANCE_INCONCLUSIVE;
		return;
	}
	double half = stats_student_quantile(0.975, d->prompts - 1) * d->sd / sqrt(d->prompts);

	d->lower = exp(mean - half);
	d->upper = exp(mean + half);
	d->noisier = d->lower > 1;
	d->class = d->upper < d->c ? DISTANCE_EQUIVALENT : d->lower > d->c ? DISTANCE_EXCESS : DISTANCE_INCONCLUSIVE;
	if (d->class == DISTANCE_INCONCLUSIVE) {
		int64_t more = prompts_for(d->sd, fabs(mean - log(d->c)), (double[]){ 0.975 }, 1);

		if (more > d->prompts)
			d->more_positions = (more - d->prompts) * per_prompt(d);
	}
}

/* Counts over the positions with a B. */
static size_t count_positions(struct distance *d, double *w, const struct oracle *o, const double *B)
{
	size_t n = 0, above = 0, compared = 0;

	for (int p = 0; p < o->n_prompts; p++) {
		for (int t = 0; t < o->prompts[p].planned; t++) {
			size_t at = o->prompts[p].first + (size_t)t;
			const struct oracle_position *op = &o->positions[at];

			w[at] = NAN;
			if (isnan(B[at]))
				continue;
			n++;
			d->bit_equal_subject += B[at] == 0;
			d->bit_equal_oracle += (size_t)op->bit_equal;
			if (B[at] > 0)
				w[at] = log(B[at]) - op->log_spread;
			if (!isnan(op->max_spread)) {
				compared++;
				above += B[at] > op->max_spread;
			}
			if (!d->has_largest || B[at] > d->largest) {
				d->has_largest = true;
				d->largest = B[at];
				d->largest_prompt = p;
				d->largest_step = t;
			}
		}
	}
	d->above_max = compared ? (double)above / (double)compared : NAN;
	return n;
}

void distance_measure(struct distance *d, double *w, const struct oracle *o, const double *B, double c)
{
	double *medians = xcalloc((size_t)o->n_prompts + 1, sizeof *medians);
	double *x = xcalloc(o->n_positions + 1, sizeof *x);

	*d = (struct distance){ .present = true, .R = NAN, .lower = NAN, .upper = NAN, .c = c, .sd = NAN, .more_positions = -1 };
	size_t measured = count_positions(d, w, o, B);

	for (int p = 0; p < o->n_prompts; p++) {
		size_t n = 0;

		for (int t = 0; t < o->prompts[p].planned; t++)
			if (!isnan(w[o->prompts[p].first + (size_t)t]))
				x[n++] = w[o->prompts[p].first + (size_t)t];
		d->positions += n;
		if (n)
			medians[d->prompts++] = stats_median(x, n);
	}
	d->sd = stats_sd(medians, (size_t)d->prompts);
	if (measured > 0 && d->bit_equal_subject == measured) {
		d->R = d->lower = d->upper = 0;
		d->class = DISTANCE_EQUIVALENT;
	} else if (d->prompts) {
		classify(d, stats_mean(medians, (size_t)d->prompts));
	}
	free(medians);
	free(x);
}

void divergence_measure(struct divergence *d, const double *kl, size_t n)
{
	double *x = xcalloc(n + 1, sizeof *x);

	*d = (struct divergence){ 0 };
	for (size_t i = 0; i < n; i++)
		if (!isnan(kl[i]))
			x[d->n++] = kl[i];
	if (d->n) {
		d->mean = stats_mean(x, d->n);
		d->p99 = stats_percentile(x, d->n, 0.99);
		d->max = x[0];
		for (size_t i = 1; i < d->n; i++)
			d->max = x[i] > d->max ? x[i] : d->max;
	}
	free(x);
}

/* ---- direction and drift */

void direction_fill(double *x, const struct subject *s)
{
	const struct oracle *o = s->oracle;

	for (int p = 0; p < o->n_prompts; p++) {
		for (int t = 0; t < o->prompts[p].planned; t++) {
			size_t at = o->prompts[p].first + (size_t)t;
			const struct oracle_position *op = &o->positions[at];
			const struct report_step *r = subject_step(s, p, t);

			x[at] = NAN;
			if (r && op->second >= 0)
				x[at] = step_logit(r, o->prompts[p].base->ids[t]) - step_logit(r, op->second) - op->others;
		}
	}
}

void direction_measure(struct direction *d, const double *x, size_t n)
{
	double sum = 0;
	size_t positions = 0;

	*d = (struct direction){ 0 };
	for (size_t i = 0; i < n; i++) {
		if (isnan(x[i]))
			continue;
		positions++;
		sum += x[i];
		d->n += fabs(x[i]) >= SAME;
		d->positive += x[i] >= SAME;
	}
	if (!positions)
		return;
	d->measured = true;
	d->mean = sum / (double)positions;
	d->p = d->n ? stats_sign_two_sided((int64_t)d->positive, (int64_t)d->n) : 1;
}

void drift_measure(struct drift *d, const struct oracle *o, const double *w)
{
	double *slopes = xcalloc((size_t)o->n_prompts + 1, sizeof *slopes);
	double *x = xcalloc(o->n_positions + 1, sizeof *x), *y = xcalloc(o->n_positions + 1, sizeof *y);
	size_t m = 0;

	*d = (struct drift){ 0 };
	for (int p = 0; p < o->n_prompts; p++) {
		size_t n = 0;

		for (int t = 0; t < o->prompts[p].planned; t++) {
			size_t at = o->prompts[p].first + (size_t)t;

			if (isnan(w[at]))
				continue;
			x[n] = t;
			y[n++] = w[at];
		}
		if (n < 3)
			continue;
		double slope = stats_theil_sen(x, y, n);

		d->prompts += slope != 0;
		d->rising += slope > 0;
		slopes[m++] = slope;
	}
	if (m) {
		d->measured = true;
		d->median_slope = stats_median(slopes, m);
		d->p = stats_sign_upper(d->rising, d->prompts);
	}
	free(slopes);
	free(x);
	free(y);
}

/* ---- power */

void power_measure(struct power *p, const struct distance *d, const struct oracle *o, const double *B)
{
	static const double reach[3] = { 1.25, 1.5, 2 };
	double flips = 0;
	bool any = false;

	*p = (struct power){ .excess_R = NAN, .noisier_R = NAN, .positions_for = { -1, -1, -1 }, .flips_at_2x = NAN };
	for (size_t i = 0; i < o->n_positions; i++) {
		if (isnan(B[i]) || isnan(o->positions[i].q_halved))
			continue;
		any = true;
		flips += o->positions[i].q_halved;
	}
	if (any)
		p->flips_at_2x = flips;
	if (d->prompts >= 2) {
		double df = d->prompts - 1;
		double t = stats_student_quantile(0.975, df) + stats_student_quantile(0.8, df);

		p->noisier_R = exp(t * d->sd / sqrt(d->prompts));
		p->excess_R = d->c * p->noisier_R;
		for (int i = 0; i < 3; i++) {
			int64_t n = prompts_for(d->sd, log(reach[i]), (double[]){ 0.975, 0.8 }, 2);

			p->positions_for[i] = n < 0 ? -1 : n * per_prompt(d);
		}
	}
	p->present = any || d->prompts >= 2;
}

/* ---- between legs */

double distance_between(struct distance *d, size_t *n, const struct subject *a, const struct subject *b, double c)
{
	const struct oracle *o = a->oracle;
	double x[TOP_MAX], y[TOP_MAX], *all = xcalloc(o->n_positions + 1, sizeof *all);
	double *B = xcalloc(o->n_positions + 1, sizeof *B), *w = xcalloc(o->n_positions + 1, sizeof *w);

	*n = 0;
	for (int p = 0; p < o->n_prompts; p++) {
		for (int t = 0; t < o->prompts[p].planned; t++) {
			const struct golden_step *g = expected_step(o, p, t);
			const struct report_step *ra = subject_step(a, p, t), *rb = subject_step(b, p, t);
			double *at = &B[o->prompts[p].first + (size_t)t];

			*at = NAN;
			if (!g || !ra || !rb)
				continue;
			top_align(x, g->top, g->n_top, ra->top, ra->n_top);
			top_align(y, g->top, g->n_top, rb->top, rb->n_top);
			*at = top_distance(x, y, g->n_top);
			if (!isnan(*at))
				all[(*n)++] = *at;
		}
	}
	distance_measure(d, w, o, B, c);
	double median = stats_median(all, *n);

	free(all);
	free(B);
	free(w);
	return median;
}

size_t distance_to_arbiter(double *subject, double *oracle, const struct subject *s, const struct subject *arbiter)
{
	const struct oracle *o = s->oracle;
	double l[TOP_MAX], x[TOP_MAX], y[TOP_MAX];
	double *mine = xcalloc(o->n_positions + 1, sizeof *mine), *theirs = xcalloc(o->n_positions + 1, sizeof *theirs);
	size_t n = 0;

	for (int p = 0; p < o->n_prompts; p++) {
		for (int t = 0; t < o->prompts[p].planned; t++) {
			const struct golden_step *g = expected_step(o, p, t);
			const struct report_step *r = subject_step(s, p, t), *ra = subject_step(arbiter, p, t);

			if (!g || !r || !ra)
				continue;
			list_values(l, g);
			top_align(x, g->top, g->n_top, r->top, r->n_top);
			top_align(y, g->top, g->n_top, ra->top, ra->n_top);
			mine[n] = top_distance(x, y, g->n_top);
			theirs[n] = top_distance(l, y, g->n_top);
			n += !isnan(mine[n]) && !isnan(theirs[n]);
		}
	}
	*subject = stats_median(mine, n);
	*oracle = stats_median(theirs, n);
	free(mine);
	free(theirs);
	return n;
}

/* D to every profile that answers at one step, by side; returns whether both sides do. */
static bool side_distances(double *all[2], size_t n[2], const struct subject *s, const struct contradiction *c, int prompt,
			   int step)
{
	const struct oracle *o = s->oracle;
	const struct golden_step *g = expected_step(o, prompt, step);
	const struct report_step *r = g ? subject_step(s, prompt, step) : NULL;
	double x[TOP_MAX], y[TOP_MAX];
	size_t before[2] = { n[0], n[1] };

	if (!r)
		return false;
	top_align(x, g->top, g->n_top, r->top, r->n_top);
	for (int k = 0; k < o->golden->n_profiles; k++) {
		const struct golden_profile *p = &o->golden->profiles[k];
		const struct golden_row *row = golden_row_find(p, c->prompt);
		int side = (int)c->side[k], fork = row && p->mode == GOLDEN_FREE ? row_fork(row, o->prompts[prompt].base) : -1;

		if (side < 0 || !row || !row->steps || step >= row->n || (fork >= 0 && step > fork))
			continue;
		top_align(y, g->top, g->n_top, row->steps[step].top, row->steps[step].n_top);
		double d = top_distance(x, y, g->n_top);

		if (!isnan(d))
			all[side][n[side]++] = d;
	}
	if (n[0] > before[0] && n[1] > before[1])
		return true;
	n[0] = before[0];
	n[1] = before[1];
	return false;
}

size_t distance_to_sides(double median[2], const struct subject *s, const struct contradiction *c)
{
	const struct oracle *o = s->oracle;
	int prompt = 0;
	size_t steps = 0, n[2] = { 0, 0 };

	while (prompt < o->n_prompts && o->prompts[prompt].prompt != c->prompt)
		prompt++;
	if (prompt == o->n_prompts)
		return 0;
	size_t room = (size_t)o->prompts[prompt].planned * (size_t)o->golden->n_profiles + 1;
	double *all[2] = { xcalloc(room, sizeof(double)), xcalloc(room, sizeof(double)) };

	for (int t = 0; t < o->prompts[prompt].planned; t++)
		steps += side_distances(all, n, s, c, prompt, t);
	for (int i = 0; i < 2; i++) {
		median[i] = stats_median(all[i], n[i]);
		free(all[i]);
	}
	return steps;
}
