/* What each flip means: margins on both sides, in nats, ulps and noise scales.  docs/judging.md, section 3. */
#include <math.h>
#include <stdlib.h>

#include "evidence.h"

static int rank_of(const struct top *top, int n, int32_t id)
{
	for (int i = 0; i < n; i++)
		if (top[i].id == id)
			return i + 1;
	return 0;
}

/* m = l[y1] - l[got]; where got is not listed, what the last listed id leaves at least. */
static void oracle_side(struct flip *f, const struct golden_step *g)
{
	double exp = top_value(g->top, g->n_top, f->exp), got = top_value(g->top, g->n_top, f->got);

	f->got_rank = rank_of(g->top, g->n_top, f->got);
	f->exp_rank = rank_of(g->top, g->n_top, f->exp);
	f->got_logprob = got;
	f->exp_logprob = exp;
	if (g->n_top == 0)
		return;
	f->margin_bound = isnan(got);
	f->margin = exp - (f->margin_bound ? g->top[g->n_top - 1].value : got);
}

/* m' = l'[got] - l'[y1] of the leg's own raw logits. */
static void subject_side(struct flip *f, const struct report_step *s)
{
	double got = step_logit(s, f->got), exp = step_logit(s, f->exp);

	f->got_subject = got - s->lse;
	f->exp_subject = exp - s->lse;
	if (s->n_top == 0)
		return;
	f->subject_bound = isnan(exp);
	f->subject_margin = got - (f->subject_bound ? s->top[s->n_top - 1].value : exp);
}

/* The spacing of the oracle's logits at the larger of the two tokens' magnitudes. */
static double flip_ulp(const struct flip *f, const struct golden_step *g, const struct report_step *s, const char *dtype)
{
	double a = g->has_lse ? f->exp_logprob + g->lse : s ? step_logit(s, f->exp) : NAN;
	double b = g->has_lse ? f->got_logprob + g->lse : s ? step_logit(s, f->got) : NAN;
	double m = fmax(fabs(a), fabs(b));       /* an id that is not listed counts for nothing */

	return ulp_of(m, dtype);
}

static double thousandths(double x)
{
	return round(x * 1000) / 1000;
}

/* Files hold six decimals, so a margin of exactly one ulp reads a hair more or less: classes are of rounded values. */
static enum adjudication adjudicate(const struct flip *f)
{
	if (f->subject_margin < -SAME)
		return ADJ_EXCESS;
	if (isnan(f->tau) || isnan(f->subject_tau))
		return ADJ_NOT_MEASURED;
	double tau = thousandths(fmax(f->tau, f->subject_tau));

	if (tau <= 2) {
		if (f->margin_bound || f->subject_bound)
			return ADJ_NOT_MEASURED;
		return thousandths(f->ulps) == 0 ? ADJ_EXACT_TIE : ADJ_NEAR_TIE;
	}
	return tau > 4 && f->p < 0.01 ? ADJ_EXCESS : ADJ_SUSPICIOUS;
}

static void weigh(struct flip *f, const struct oracle *o, double ulp, size_t n)
{
	double scale = isnan(ulp) || o->s > ulp / 2 ? o->s : ulp / 2;
	double moved = f->margin + f->subject_margin;

	f->ulps = f->margin / ulp;
	if (isnan(o->s))
		scale = NAN;
	if (scale > 0) {
		f->tau = f->margin / scale;
		f->subject_tau = f->subject_margin / scale;
	}
	/* A margin that moved the other way is no move of noise. */
	if (o->law.measured && moved > -SAME)
		f->p = fmin(1, (double)n * flip_law_q1(&o->law, moved > 0 ? moved : 0));
}

static void flip_add(struct evidence *e, struct leg *l, enum mode m, int prompt, int step)
{
	const struct oracle_prompt *want = &e->oracle.prompts[prompt];
	const struct report_row *row = l->modes[m].rows[prompt].row;
	const struct report_step *s = row->steps && row->steps[step].has_logits ? &row->steps[step] : NULL;
	const struct golden_step *g = want->base->steps ? &want->base->steps[step] : NULL;
	struct flip f = {
		.mode = m, .prompt = prompt, .step = step, .got = row->ids[step], .exp = want->base->ids[step],
		.got_logprob = NAN, .exp_logprob = NAN, .got_subject = NAN, .exp_subject = NAN, .margin = NAN,
		.subject_margin = NAN, .ulps = NAN, .tau = NAN, .subject_tau = NAN, .p = NAN,
		.forks_at = want->forks_at, .unstable = want->forks_at >= 0 && want->forks_at <= step,
	};

	if (g)
		oracle_side(&f, g);
	if (s && step_finite(s))
		subject_side(&f, s);
	weigh(&f, &e->oracle, g ? flip_ulp(&f, g, s, e->oracle.base->logits_dtype) : NAN, l->modes[m].compared);
	f.adjudication = adjudicate(&f);
	if (l->n_flips == l->flip_room) {
		l->flip_room = l->flip_room ? 2 * l->flip_room : 16;
		l->flips = xrealloc(l->flips, l->flip_room, sizeof *l->flips);
	}
	l->flips[l->n_flips++] = f;
}

void margins_adjudicate(struct evidence *e, struct leg *l)
{
	for (int m = 0; m < N_MODES; m++) {
		for (int p = 0; l->modes[m].asked && p < e->oracle.n_prompts; p++) {
			const struct row_compare *c = &l->modes[m].rows[p];

			for (int t = c->first_fork; t >= 0 && t < c->compared; t++) {
				if (c->row->ids[t] != e->oracle.prompts[p].base->ids[t])
					flip_add(e, l, (enum mode)m, p, t);
				if (m == MODE_FREE)        /* what follows a fork has other inputs */
					break;
			}
		}
	}
}
