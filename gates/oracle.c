#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of the best ids */

double top_value(const struct top *top, int n, int32_t id)
{
	for (int i = 0; i < n; i++)
		if (top[i].id == id)
			return top[i].value;
	return NAN;
}

void top_align(double *values, const struct top *base, int n, const struct top *other, int n_other)
{
	for (int i = 0; i < n; i++) {
		int32_t id = base[i].id;

		/* Benign noise swaps neighbours: look near the same rank before searching. */
		if (i < n_other && other[i].id == id)
			values[i] = other[i].value;
		else if (i + 1 < n_other && other[i + 1].id == id)
			values[i] = other[i + 1].value;
		else if (i > 0 && i - 1 < n_other && other[i - 1].id == id)
			values[i] = other[i - 1].value;
		else
			values[i] = top_value(other, n_other, id);
	}
}

double top_distance(const double *a, const double *b, int n)
{
	double diff[TOP_MAX], sum = 0, squares = 0;
	int m = 0;

	for (int i = 0; i < n; i++) {
		double x = a[i] - b[i];

		if (!isfinite(x))
			continue;
		diff[m++] = x;
		sum += x;
	}
	if (m < 2)
		return NAN;
	for (int i = 0; i < m; i++)
		squares += (diff[i] - sum / m) * (diff[i] - sum / m);
	double d = sqrt(squares / m);

	return d < SAME ? 0 : d;
}

int row_fork(const struct golden_row *row, const struct golden_row *base)
{
	int n = row->n < base->n ? row->n : base->n;

	for (int i = 0; i < n; i++)
		if (row->ids[i] != base->ids[i])
			return i;
	return -1;
}

double ulp_of(double m, const char *dtype)
{
	int b = !dtype ? -1 : !strcmp(dtype, "bf16") ? 7 : !strcmp(dtype, "fp16") ? 10 : !strcmp(dtype, "fp32") ? 23 : -1;
	int e;

	if (b < 0 || !isfinite(m) || m == 0)
		return NAN;
	frexp(fabs(m), &e);
	return ldexp(1, e - 1 - b);
}

/* ---- one prompt over all profiles */

#define PAIRS_MAX(k) ((size_t)(k) * ((size_t)(k) - 1) / 2 + 1)

/* What is needed while walking one prompt: the rows of all profiles and how far each follows base. */
struct walk {
	const struct golden *g;
	const struct golden_profile *base_profile;
	const struct golden_row *base;
	const struct golden_row **row;   /* owned [profiles] */
	int *reach;                      /* owned: steps of that row that are under base's prefix */
	int n, me;                       /* profiles; which of them is base */
	double (*value)[TOP_MAX];        /* owned [profiles]: aligned with base's list */
	double *margin;                  /* owned [profiles]: l[y1] - l[y2], NaN unless both are listed */
	double *spread;                  /* owned [pairs]: ln A_kl where it is not 0 */
};

/* |d| of one prompt, and where the largest stands. */
struct gaps { double *d; size_t n, room; struct contradiction worst; };

static void walk_open(struct walk *w, const struct golden *g, const struct golden_profile *base)
{
	size_t k = (size_t)g->n_profiles;

	*w = (struct walk){ .g = g, .base_profile = base, .n = g->n_profiles, .me = (int)(base - g->profiles) };
	w->row = xcalloc(k + 1, sizeof *w->row);
	w->reach = xcalloc(k + 1, sizeof *w->reach);
	w->value = xcalloc(k + 1, sizeof *w->value);
	w->margin = xcalloc(k + 1, sizeof *w->margin);
	w->spread = xcalloc(PAIRS_MAX(k), sizeof *w->spread);
}

static void walk_close(struct walk *w)
{
	free(w->row);
	free(w->reach);
	free(w->value);
	free(w->margin);
	free(w->spread);
}

static void walk_prompt(struct walk *w, int prompt)
{
	w->base = golden_row_find(w->base_profile, prompt);
	for (int k = 0; k < w->n; k++) {
		const struct golden_profile *p = &w->g->profiles[k];
		const struct golden_row *row = w->row[k] = golden_row_find(p, prompt);

		w->reach[k] = 0;
		if (!row || !row->steps)
			continue;
		int fork = p->mode == GOLDEN_FORCED ? -1 : row_fork(row, w->base);

		w->reach[k] = fork >= 0 ? fork + 1 : row->n;
	}
}

/* The best id of base's list but the one it emitted; -1 if nothing else is listed. */
static int32_t second_best(const struct golden_step *s)
{
	for (int i = 0; i < s->n_top; i++)
		if (s->top[i].id != s->id)
			return s->top[i].id;
	return -1;
}

/* Aligns every profile with base's list at one step.  Returns y2, or -1 if base lists nothing of use. */
static int32_t walk_step(struct walk *w, int step)
{
	const struct golden_step *s = w->base->steps ? &w->base->steps[step] : NULL;
	int32_t y2 = s && s->n_top ? second_best(s) : -1;

	if (y2 < 0)
		return -1;
	for (int k = 0; k < w->n; k++) {
		w->margin[k] = NAN;
		if (step < w->reach[k] && w->row[k]->steps[step].n_top) {
			const struct golden_step *o = &w->row[k]->steps[step];

			top_align(w->value[k], s->top, s->n_top, o->top, o->n_top);
			w->margin[k] = top_value(o->top, o->n_top, s->id) - top_value(o->top, o->n_top, y2);
		} else {
			for (int i = 0; i < s->n_top; i++)
				w->value[k][i] = NAN;
		}
	}
	return y2;
}

static void gap_add(struct gaps *g, double d, int prompt, int step, int k, int l)
{
	if (g->n == g->room) {
		g->room = g->room ? 2 * g->room : 256;
		g->d = xrealloc(g->d, g->room, sizeof *g->d);
	}
	g->d[g->n++] = d;
	if (d > g->worst.d || g->n == 1) {
		g->worst.prompt = prompt;
		g->worst.step = step;
		g->worst.d = d;
		g->worst.pair[0] = k;
		g->worst.pair[1] = l;
	}
}

/* A_kl and d of every pair at one step.  Returns how many ln A_kl stand in w->spread. */
static size_t walk_pairs(struct walk *w, struct gaps *g, int prompt, int step, double *max, int *bit_equal)
{
	int n_top = w->base->steps[step].n_top;
	size_t n = 0;

	*max = NAN;
	*bit_equal = 0;
	for (int k = 0; k < w->n; k++) {
		if (step >= w->reach[k])
			continue;
		for (int l = k + 1; l < w->n; l++) {
			double a = step < w->reach[l] ? top_distance(w->value[k], w->value[l], n_top) : NAN;

			if (isnan(a))
				continue;
			*max = a > *max || isnan(*max) ? a : *max;
			if (a == 0) {
				++*bit_equal;
				continue;
			}
			w->spread[n++] = log(a);
			double d = fabs(w->margin[l] - w->margin[k]);

			if (isfinite(d))
				gap_add(g, d, prompt, step, k, l);
		}
	}
	return n;
}

/* Median margin of the other profiles that are not bit-equal to base. */
static double others_margin(struct walk *w, int n_top)
{
	double *x = w->spread;      /* at least as long as there are other profiles, and no longer needed */
	size_t n = 0;

	for (int k = 0; k < w->n; k++)
		if (k != w->me && isfinite(w->margin[k]) && top_distance(w->value[w->me], w->value[k], n_top) > 0)
			x[n++] = w->margin[k];
	return stats_median(x, n);
}

/* The side of a profile that is not there any more at the contradiction: the nearer one, by D, at the first step that it and
 * both sides answer differently; -1: there is none. */
static signed char side_by_distance(struct walk *w, int k, const struct contradiction *c)
{
	for (int t = 0; t < w->base->n && t < w->reach[k]; t++) {
		if (walk_step(w, t) < 0)
			continue;
		int n = w->base->steps[t].n_top;
		double a = top_distance(w->value[k], w->value[c->pair[0]], n), b = top_distance(w->value[k], w->value[c->pair[1]], n);

		if (fabs(a - b) >= SAME)
			return a > b;
	}
	return -1;
}

/* Which side of a contradiction each profile stands on: base's side is 0. */
static void take_sides(struct walk *w, struct contradiction *c)
{
	c->side = xcalloc((size_t)w->n + 1, 1);
	walk_prompt(w, c->prompt);
	walk_step(w, c->step);
	double a = w->margin[c->pair[0]], b = w->margin[c->pair[1]];

	for (int k = 0; k < w->n; k++)
		c->side[k] = isnan(w->margin[k]) ? -1 : fabs(w->margin[k] - a) > fabs(w->margin[k] - b);
	for (int k = 0; k < w->n; k++)
		if (c->side[k] < 0)
			c->side[k] = side_by_distance(w, k, c);
	if (c->side[w->me] == 1)
		for (int k = 0; k < w->n; k++)
			c->side[k] = c->side[k] < 0 ? -1 : !c->side[k];
}

/* ---- the golden as a whole */

static void position_clear(struct oracle_position *p)
{
	*p = (struct oracle_position){ .margin = NAN, .second = -1, .log_spread = NAN, .max_spread = NAN, .others = NAN,
				       .q = NAN, .q_halved = NAN };
}

/* Every |d| of one prompt into g, and its positions from `at` on (NULL: not asked). */
static void measure_prompt(struct walk *w, struct gaps *g, int prompt, struct oracle_position *at, int planned)
{
	walk_prompt(w, prompt);
	for (int t = 0; w->base && t < w->base->n; t++) {
		struct oracle_position p;

		position_clear(&p);
		p.second = walk_step(w, t);
		if (p.second >= 0) {
			size_t n = walk_pairs(w, g, prompt, t, &p.max_spread, &p.bit_equal);

			if (at && t < planned) {
				p.margin = w->margin[w->me];
				p.log_spread = stats_median(w->spread, n);
				p.others = others_margin(w, w->base->steps[t].n_top);
			}
		}
		if (at && t < planned)
			at[t] = p;
	}
	stats_sort(g->d, g->n);
}

/* The percentile of the sorted values all[n] without the sorted values mine[m], which are among them. */
static double percentile_without(const double *all, size_t n, const double *mine, size_t m, double p)
{
	if (n <= m)
		return NAN;
	double at = (double)(n - m - 1) * p, x[2];
	size_t k = (size_t)at;

	for (int i = 0; i < 2; i++) {
		size_t rank = k + (size_t)i < n - m ? k + (size_t)i : k, skipped = 0, j = rank;

		/* The rank-th of the others is at rank + (how many of mine come before it). */
		while (skipped < m && mine[skipped] <= all[j]) {
			skipped++;
			j = rank + skipped;
		}
		x[i] = all[j];
	}
	return x[0] + (at - (double)k) * (x[1] - x[0]);
}

static void find_contradictions(struct oracle *o, struct walk *w, const struct gaps *gaps, int n_gaps)
{
	size_t n = 0;

	for (int i = 0; i < n_gaps; i++)
		n += gaps[i].n;
	double *all = xcalloc(n + 1, sizeof *all);

	n = 0;
	for (int i = 0; i < n_gaps; i++) {
		if (gaps[i].n)
			memcpy(all + n, gaps[i].d, gaps[i].n * sizeof *all);
		n += gaps[i].n;
	}
	stats_sort(all, n);
	for (int i = 0; i < o->n_prompts; i++) {
		const struct gaps *g = &gaps[o->prompts[i].prompt];

		if (g->n == 0 || n - g->n < FLIP_LAW_MIN ||
		    g->worst.d <= 5 * percentile_without(all, n, g->d, g->n, 0.99))
			continue;
		o->contradictions = xrealloc(o->contradictions, (size_t)o->n_contradictions + 1,
					     sizeof *o->contradictions);
		o->contradictions[o->n_contradictions] = g->worst;
		take_sides(w, &o->contradictions[o->n_contradictions++]);
	}
	free(all);
}

/* The scale of the differences: 1.4826 median |d| for noise that is about normal in the middle; where rounding left most
 * margins unmoved, the mean. */
static double noise_scale(const double *d, size_t n)
{
	if (n == 0)
		return NAN;
	double median = stats_percentile_sorted(d, n, 0.5);

	return median >= SAME ? 1.4826 * median : sqrt(M_PI / 2) * stats_mean(d, n);
}

/* q = min(0.8, sum of q1 over the four best ids after y1), and the same with margins halved. */
static void flip_chance(const struct oracle *o, const struct golden_step *s, double *q, double *halved)
{
	double best = top_value(s->top, s->n_top, s->id);
	int others = 0;

	*q = *halved = NAN;
	if (!o->law.measured || s->n_top < 2)
		return;
	*q = *halved = 0;
	for (int i = 0; i < s->n_top && others < 4; i++) {
		if (s->top[i].id == s->id)
			continue;
		double m = best - s->top[i].value;

		m = m > 0 ? m : 0;
		*q += flip_law_q1(&o->law, m);
		*halved += flip_law_q1(&o->law, m / 2);
		others++;
	}
	*q = *q < 0.8 ? *q : 0.8;
	*halved = *halved < 0.8 ? *halved : 0.8;
}

static void plan(struct oracle *o, const int *prompts, int n_prompts, int max_steps)
{
	o->n_prompts = n_prompts;
	o->prompts = xcalloc((size_t)n_prompts + 1, sizeof *o->prompts);
	for (int i = 0; i < n_prompts; i++) {
		struct oracle_prompt *p = &o->prompts[i];

		p->prompt = prompts[i];
		p->base = golden_row_find(o->base, p->prompt);     /* the caller promised one */
		p->planned = p->base->n < max_steps ? p->base->n : max_steps;
		p->first = o->n_positions;
		o->n_positions += (size_t)p->planned;
		p->forks_at = -1;
		for (int k = 0; k < o->golden->n_profiles; k++) {
			const struct golden_row *row = golden_row_find(&o->golden->profiles[k], p->prompt);
			int fork = row ? row_fork(row, p->base) : -1;

			if (fork >= 0 && (p->forks_at < 0 || fork < p->forks_at))
				p->forks_at = fork;
		}
	}
	o->positions = xcalloc(o->n_positions + 1, sizeof *o->positions);
}

/* |d| of the prompts asked for, sorted. */
static void collect(struct oracle *o, const struct gaps *gaps)
{
	for (int i = 0; i < o->n_prompts; i++)
		o->n_d += gaps[o->prompts[i].prompt].n;
	o->d = xcalloc(o->n_d + 1, sizeof *o->d);
	size_t n = 0;

	for (int i = 0; i < o->n_prompts; i++) {
		const struct gaps *g = &gaps[o->prompts[i].prompt];

		if (g->n)
			memcpy(o->d + n, g->d, g->n * sizeof *o->d);
		n += g->n;
	}
	stats_sort(o->d, o->n_d);
}

void oracle_measure(struct oracle *o, const struct golden *g, const struct golden_profile *base,
		    const int *prompts, int n_prompts, int max_steps)
{
	struct gaps *gaps = xcalloc((size_t)g->n_prompts + 1, sizeof *gaps);
	int *asked = xcalloc((size_t)g->n_prompts + 1, sizeof *asked);      /* 1 + its place; 0: not asked */
	struct walk w;

	*o = (struct oracle){ .golden = g, .base = base };
	plan(o, prompts, n_prompts, max_steps);
	for (int i = 0; i < n_prompts; i++)
		asked[prompts[i]] = i + 1;
	walk_open(&w, g, base);
	for (int p = 0; p < g->n_prompts; p++) {
		const struct oracle_prompt *op = asked[p] ? &o->prompts[asked[p] - 1] : NULL;

		measure_prompt(&w, &gaps[p], p, op ? o->positions + op->first : NULL, op ? op->planned : 0);
	}
	collect(o, gaps);
	o->s = noise_scale(o->d, o->n_d);
	flip_law_fit(&o->law, o->d, o->n_d);
	for (int i = 0; i < n_prompts; i++) {
		const struct oracle_prompt *p = &o->prompts[i];

		for (int t = 0; t < p->planned && p->base->steps; t++) {
			struct oracle_position *at = &o->positions[p->first + (size_t)t];

			flip_chance(o, &p->base->steps[t], &at->q, &at->q_halved);
		}
	}
	find_contradictions(o, &w, gaps, g->n_prompts);
	walk_close(&w);
	for (int p = 0; p < g->n_prompts; p++)
		free(gaps[p].d);
	free(gaps);
	free(asked);
}

void oracle_release(struct oracle *o)
{
	for (int i = 0; i < o->n_contradictions; i++)
		free(o->contradictions[i].side);
	free(o->contradictions);
	free(o->prompts);
	free(o->positions);
	free(o->d);
	*o = (struct oracle){ 0 };
}
