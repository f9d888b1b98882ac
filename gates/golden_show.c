/* assay golden show and diff. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/tokenizer.h"
#include "golden_tool.h"
#include "oracle.h"
#include "text.h"

#define TIGHTEST 5

static void print_token(FILE *out, const struct tokenizer *t, int32_t id)
{
	struct err err = { 0 };
	size_t size = 0;
	char *text = t ? tokenizer_decode(t, &id, 1, false, &size, &err) : NULL;

	fprintf(out, "%d", id);
	if (text) {
		fputs(" \"", out);
		for (size_t i = 0; i < size; i++)
			if ((unsigned char)text[i] < ' ' || text[i] == '"' || text[i] == '\\' || text[i] == 127)
				fprintf(out, "\\x%02x", (unsigned char)text[i]);
			else
				fputc(text[i], out);
		fputc('"', out);
	}
	free(text);
}

static void show_margins(FILE *out, const struct oracle *o, double *sorted, size_t n)
{
	static const double at[] = { 0, 0.01, 0.05, 0.1, 0.25, 0.5 };
	size_t ties = 0;

	fprintf(out, "margins of %s, nats, %zu of %zu positions:", o->base->name, n, o->n_positions);
	for (size_t i = 0; i < sizeof at / sizeof *at && n; i++)
		fprintf(out, " %s %.4g", (const char *[]){ "min", "1%", "5%", "10%", "25%", "median" }[i],
			stats_percentile_sorted(sorted, n, at[i]));
	while (ties < n && sorted[ties] < SAME)
		ties++;
	fprintf(out, "; %zu exact ties\n", ties);
}

/* The positions with the smallest margins, ties by order. */
static void show_tightest(FILE *out, const struct oracle *o, const struct tokenizer *t)
{
	struct { double margin; int prompt, step; } best[TIGHTEST + 1];
	int n = 0;

	for (int p = 0; p < o->n_prompts; p++) {
		for (int s = 0; s < o->prompts[p].planned; s++) {
			double m = o->positions[o->prompts[p].first + (size_t)s].margin;
			int at = n;

			if (isnan(m) || (n == TIGHTEST && m >= best[n - 1].margin))
				continue;
			for (; at > 0 && best[at - 1].margin > m; at--)
				best[at] = best[at - 1];
			best[at].margin = m;
			best[at].prompt = p;
			best[at].step = s;
			n += n < TIGHTEST;
		}
	}
	for (int i = 0; i < n; i++) {
		const struct oracle_prompt *p = &o->prompts[best[i].prompt];
		const struct oracle_position *at = &o->positions[p->first + (size_t)best[i].step];

		fprintf(out, "  tight %s[%d] %.4g nats", o->golden->prompts[p->prompt].id, best[i].step, best[i].margin);
		if (!isnan(o->s))
			fprintf(out, ", %.3g noise scales", best[i].margin / o->s);
		fprintf(out, ": ");
		print_token(out, t, p->base->ids[best[i].step]);
		fprintf(out, " over ");
		print_token(out, t, at->second);
		fputc('\n', out);
	}
}

/* Where one profile leaves base, prompt by prompt, and how wide base's margin is there. */
static void show_forks(FILE *out, const struct oracle *o, const struct golden_profile *p)
{
	int forks = 0, compared = 0;
	double widest = 0;

	for (int i = 0; i < o->n_prompts; i++) {
		const struct golden_row *row = golden_row_find(p, o->prompts[i].prompt);
		int fork = row ? row_fork(row, o->prompts[i].base) : -1;

		compared += row != NULL;
		if (fork < 0)
			continue;
		double m = o->positions[o->prompts[i].first + (size_t)fork].margin;

		fprintf(out, "%s%s[%d]", forks++ ? ", " : "", o->golden->prompts[o->prompts[i].prompt].id, fork);
		if (!isnan(m)) {
			fprintf(out, " at %.3g", m);
			widest = m > widest ? m : widest;
		}
	}
	fprintf(out, "%s%d of %d prompts", forks ? "; " : "", forks, compared);
	if (forks)
		fprintf(out, ", margins up to %.3g nats", widest);
	fputc('\n', out);
}

void golden_show(FILE *out, const struct golden *g, const struct golden_profile *base, const struct tokenizer *t)
{
	int *asked = xcalloc((size_t)g->n_prompts + 1, sizeof *asked), n = 0;
	struct oracle o;
	size_t known = 0;

	for (int i = 0; i < g->n_prompts; i++)
		if (golden_row_find(base, i))
			asked[n++] = i;
	oracle_measure(&o, g, base, asked, n, INT32_MAX);
	double *margins = xcalloc(o.n_positions + 1, sizeof *margins);

	for (size_t i = 0; i < o.n_positions; i++)
		if (!isnan(o.positions[i].margin))
			margins[known++] = o.positions[i].margin;
	stats_sort(margins, known);
	show_margins(out, &o, margins, known);
	show_tightest(out, &o, t);
	for (int k = 0; k < g->n_profiles; k++) {
		if (&g->profiles[k] == base)
			continue;
		fprintf(out, "  %s forks from %s: ", g->profiles[k].name, base->name);
		show_forks(out, &o, &g->profiles[k]);
	}
	if (o.n_d)
		fprintf(out, "noise scale %.4g nats, from %zu differences of margins\n", o.s, o.n_d);
	for (int i = 0; i < o.n_contradictions; i++)
		fprintf(out, "CONTRADICTORY %s[%d]: %.3g nats apart\n", g->prompts[o.contradictions[i].prompt].id, o.contradictions[i].step,
			o.contradictions[i].d);
	free(margins);
	free(asked);
	oracle_release(&o);
}

/* ---- diff */

static const char *file_sha(const struct golden *g, const char *name)
{
	for (int i = 0; i < g->n_files; i++)
		if (!strcmp(g->files[i].name, name))
			return g->files[i].sha256;
	return NULL;
}

static int diff_models(FILE *out, const struct golden *a, const struct golden *b)
{
	int differ = 0;

	if (!text_same(a->model, b->model)) {
		fprintf(out, "model: %s | %s\n", a->model, b->model);
		differ = 1;
	}
	for (int side = 0; side < 2; side++) {
		const struct golden *x = side ? b : a, *y = side ? a : b;

		for (int i = 0; i < x->n_files; i++) {
			const char *other = file_sha(y, x->files[i].name);

			if (other && (side || !strcmp(other, x->files[i].sha256)))
				continue;
			fprintf(out, "model file %s: %s\n", x->files[i].name, other ? "differs" : side ? "only in the second" : "only in the first");
			differ = 1;
		}
	}
	return differ;
}

static int diff_prompts(FILE *out, const struct golden *a, const struct golden *b)
{
	int differ = 0;

	for (int side = 0; side < 2; side++) {
		const struct golden *x = side ? b : a, *y = side ? a : b;

		for (int i = 0; i < x->n_prompts; i++) {
			const struct golden_prompt *p = &x->prompts[i];
			int j = golden_prompt_find(y, p->id);
			const struct golden_prompt *q = j < 0 ? NULL : &y->prompts[j];

			if (q && (side || (p->n == q->n && !memcmp(p->ids, q->ids, (size_t)p->n * sizeof *p->ids))))
				continue;
			fprintf(out, "prompt %s: %s\n", p->id, q ? "other ids" : side ? "only in the second" : "only in the first");
			differ = 1;
		}
	}
	return differ;
}

/* D between two rows at the steps that both hold under a common prefix; appended to all. */
static size_t row_distances(double *all, const struct golden_row *x, const struct golden_row *y, int upto)
{
	double a[TOP_MAX], b[TOP_MAX];
	size_t n = 0;

	for (int t = 0; t < upto && x->steps && y->steps; t++) {
		const struct golden_step *s = &x->steps[t], *r = &y->steps[t];

		if (!s->n_top || !r->n_top)
			continue;
		for (int i = 0; i < s->n_top; i++)
			a[i] = s->top[i].value;
		top_align(b, s->top, s->n_top, r->top, r->n_top);
		double d = top_distance(a, b, s->n_top);

		if (!isnan(d))
			all[n++] = d;
	}
	return n;
}

/* By how much a step preferred its choice to another id; NaN: not listed. */
static double margin_over(const struct golden_step *s, int32_t other)
{
	return s->n_top ? top_value(s->top, s->n_top, s->id) - top_value(s->top, s->n_top, other) : NAN;
}

static void say_fork(FILE *out, const char *prompt, const struct golden_row *x, const struct golden_row *y, int at)
{
	fprintf(out, "  %s[%d]: %d | %d", prompt, at, x->ids[at], y->ids[at]);
	double margin[2] = { x->steps ? margin_over(&x->steps[at], y->ids[at]) : NAN, y->steps ? margin_over(&y->steps[at], x->ids[at]) : NAN };

	for (int side = 0; side < 2; side++)
		if (isnan(margin[side]))
			fprintf(out, "%s not listed", side ? " |" : ", preferred by");
		else
			fprintf(out, "%s %.3g nats", side ? " |" : ", preferred by", margin[side]);
	fputc('\n', out);
}

static int diff_profile(FILE *out, const struct golden *a, const struct golden *b, const struct golden_profile *p,
			const struct golden_profile *q)
{
	size_t room = 1, n = 0, equal = 0;
	int forks = 0, shared = 0;

	for (int i = 0; i < p->n_rows; i++)
		room += (size_t)p->rows[i].n;
	double *all = xcalloc(room, sizeof *all);

	for (int i = 0; i < p->n_rows; i++) {
		const struct golden_row *x = &p->rows[i];
		int j = golden_prompt_find(b, a->prompts[x->prompt].id);
		const struct golden_row *y = j < 0 ? NULL : golden_row_find(q, j);

		if (!y)
			continue;
		int fork = row_fork(y, x), both = x->n < y->n ? x->n : y->n;

		shared++;
		n += row_distances(all + n, x, y, p->mode == GOLDEN_FREE && fork >= 0 ? fork + 1 : both);
		forks += fork >= 0;
	}
	for (size_t i = 0; i < n; i++)
		equal += all[i] == 0;
	fprintf(out, "profile %s", p->name);
	if (strcmp(p->name, q->name))
		fprintf(out, " | %s", q->name);
	fprintf(out, ": %d prompts in both, ids %s", shared, forks ? "fork" : "equal");
	if (forks)
		fprintf(out, " in %d", forks);
	if (n)
		fprintf(out, "; %zu positions under a common prefix, %zu bit-equal, median D %.4g", n, equal, stats_median(all, n));
	fputc('\n', out);
	for (int i = 0; i < p->n_rows; i++) {
		int j = golden_prompt_find(b, a->prompts[p->rows[i].prompt].id);
		const struct golden_row *y = j < 0 ? NULL : golden_row_find(q, j);
		int fork = y ? row_fork(y, &p->rows[i]) : -1;

		if (fork >= 0)
			say_fork(out, a->prompts[p->rows[i].prompt].id, &p->rows[i], y, fork);
	}
	free(all);
	return forks > 0 || equal < n || shared < p->n_rows || shared < q->n_rows;
}

int golden_diff_profiles(FILE *out, const struct golden *a, const struct golden *b, const struct golden_profile *p,
			 const struct golden_profile *q)
{
	int differ = diff_models(out, a, b) | diff_prompts(out, a, b) | diff_profile(out, a, b, p, q);

	if (!differ)
		fprintf(out, "no difference\n");
	return differ;
}

int golden_diff(FILE *out, const struct golden *a, const struct golden *b)
{
	int differ = diff_models(out, a, b) | diff_prompts(out, a, b);

	for (int k = 0; k < a->n_profiles; k++) {
		const struct golden_profile *q = golden_profile_find(b, a->profiles[k].name);

		if (q) {
			differ |= diff_profile(out, a, b, &a->profiles[k], q);
		} else {
			fprintf(out, "profile %s: only in the first\n", a->profiles[k].name);
			differ = 1;
		}
	}
	for (int k = 0; k < b->n_profiles; k++)
		if (!golden_profile_find(a, b->profiles[k].name)) {
			fprintf(out, "profile %s: only in the second\n", b->profiles[k].name);
			differ = 1;
		}
	if (!differ)
		fprintf(out, "no difference in models, prompts and profiles\n");
	return differ;
}
