/* The judge on simulated gates whose true answer is known: 2,000 of each kind, fixed seeds.
 *
 * The noise is like the bundled golden's (oracle-goldens/book52-nvfp4.json, without p15), whose profiles without
 * bit-equal repeats are base, eager and prefill-score.  Measured there over the three pairs, per position:
 *   median D 0.0545, sd of ln D 0.43; 0.16 between prompt medians; correlation of ln D between pairs 0.62;
 *   kurtosis of the 20 differences about their mean 2.8 (normal within a position); largest D 0.62 of 479, 11 times the median.
 * So: true logits are rows of base itself, drawn with replacement, each prompt from a random step on; a position has the scale
 *   0.034 exp(0.10 prompt + 0.31 position), both standard normal;
 *   a profile multiplies it by exp(0.30 normal), and by 4 in one position of 100 (a router that flipped); and adds that
 *   much normal noise to each of the 20 logits, which are then rounded to bf16 at their magnitude (1/16).
 * A leg draws as a profile does, with its scale times k.  k = 1 is exchangeable with the profiles: R = 1.  For other k the true
 * R is taken from the mean of ln R over all gates, whose own error is below 0.005.
 *
 * Bounds: a rate r of n gates has the standard error sqrt(r (1-r) / n); three of them are allowed. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gates/evidence.h"

#define GATES 2000
#define PROMPTS 12
#define STEPS_MAX 32
#define PROFILES 3
#define ULP (1.0 / 16)

/* ---- random numbers */

static uint64_t state;

static double uniform(void)          /* (0, 1) */
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)           /* Marsaglia's polar method */
{
	static double spare;
	static bool have;
	double u, v, s;

	if (have) {
		have = false;
		return spare;
	}
	do {
		u = 2 * uniform() - 1;
		v = 2 * uniform() - 1;
		s = u * u + v * v;
	} while (s >= 1 || s == 0);
	s = sqrt(-2 * log(s) / s);
	spare = v * s;
	have = true;
	return u * s;
}

/* ---- a simulated gate: the structures that the readers would have filled */

struct stream {                      /* what one profile or leg answers */
	struct top top[PROMPTS][STEPS_MAX][TOP_MAX];
	int32_t ids[PROMPTS][STEPS_MAX];
	struct golden_step golden[PROMPTS][STEPS_MAX];
	struct report_step report[PROMPTS][STEPS_MAX];
};

struct gate {
	struct golden true_golden;       /* the bundled one */
	int steps;
	double logits[PROMPTS][STEPS_MAX][TOP_MAX];
	int32_t listed[PROMPTS][STEPS_MAX][TOP_MAX];
	double scale[PROMPTS][STEPS_MAX];
	struct stream profiles[PROFILES], leg;
	struct golden golden;
	struct golden_profile golden_profiles[PROFILES];
	struct golden_prompt golden_prompts[PROMPTS];
	struct golden_row rows[PROFILES][PROMPTS];
	struct report_row leg_rows[PROMPTS];
	struct recipe_leg want;
	struct leg leg_found;
	struct evidence e;
};

static struct gate *g;
static char ids[PROMPTS][8];

static void draw_truth(void)
{
	const struct golden_profile *base = golden_profile_find(&g->true_golden, "base");

	for (int p = 0; p < PROMPTS; p++) {
		const struct golden_row *row;
		double prompt = 0.10 * normal();

		do
			row = &base->rows[(int)(uniform() * base->n_rows)];
		while (!strcmp(g->true_golden.prompts[row->prompt].id, "p15"));
		int from = (int)(uniform() * row->n);

		for (int t = 0; t < g->steps; t++) {
			const struct golden_step *s = &row->steps[(from + t) % row->n];

			g->scale[p][t] = 0.034 * exp(prompt + 0.31 * normal());
			for (int i = 0; i < TOP_MAX; i++) {
				g->listed[p][t][i] = s->top[i].id;
				/* the golden's own rounding undone at random */
				g->logits[p][t][i] = 14 + s->top[i].value + ULP * (uniform() - 0.5);
			}
		}
	}
}

static bool before(const struct top *a, const struct top *b)
{
	return a->value > b->value || (a->value == b->value && a->id < b->id);
}

/* Noise of k times the scale, growing by `drift` a step about the middle. */
static void draw_stream(struct stream *s, double k, double drift)
{
	for (int p = 0; p < PROMPTS; p++) {
		for (int t = 0; t < g->steps; t++) {
			struct top *top = s->top[p][t];
			double scale = k * g->scale[p][t] * exp(0.30 * normal() + drift * (t - (g->steps - 1) / 2.0));

			scale *= uniform() < 0.01 ? 4 : 1;
			for (int i = 0; i < TOP_MAX; i++) {
				struct top x = { g->listed[p][t][i], ULP * round((g->logits[p][t][i] + scale * normal()) / ULP) };
				int j = i;

				for (; j > 0 && before(&x, &top[j - 1]); j--)
					top[j] = top[j - 1];
				top[j] = x;
			}
			s->ids[p][t] = top[0].id;
		}
	}
}

/* Only KL asks for the normalising constant, and nothing here asks for KL. */
#define LSE 15

static void as_profile(struct stream *s)
{
	for (int p = 0; p < PROMPTS; p++)
		for (int t = 0; t < g->steps; t++) {
			struct top *top = s->top[p][t];

			for (int i = 0; i < TOP_MAX; i++)
				top[i].value -= LSE;
			s->golden[p][t] = (struct golden_step){ .id = top[0].id, .n_top = TOP_MAX, .top = top };
		}
}

static void as_leg(struct stream *s)
{
	for (int p = 0; p < PROMPTS; p++)
		for (int t = 0; t < g->steps; t++) {
			struct top *top = s->top[p][t];

			s->report[p][t] = (struct report_step){ .id = top[0].id, .margin = top[0].value - top[1].value,
				.lse = LSE, .n_top = TOP_MAX, .top = top, .has_logits = true };
		}
}

static void gate_open(void)
{
	struct err err = { 0 };

	g = xcalloc(1, sizeof *g);
	ck_assert_msg(!golden_load(&g->true_golden, "oracle-goldens/book52-nvfp4.json", &err), "%s", err.text);
	g->golden = (struct golden){ .n_prompts = PROMPTS, .prompts = g->golden_prompts, .n_profiles = PROFILES,
				     .profiles = g->golden_profiles };
	for (int p = 0; p < PROMPTS; p++) {
		snprintf(ids[p], sizeof ids[p], "p%d", p);
		g->golden_prompts[p].id = ids[p];
	}
	for (int k = 0; k < PROFILES; k++) {
		static char *names[] = { "base", "eager", "prefill-score" };

		g->golden_profiles[k] = (struct golden_profile){ .name = names[k], .n_rows = PROMPTS, .rows = g->rows[k],
			.logits_dtype = "bf16", .mode = k == 2 ? GOLDEN_FORCED : GOLDEN_FREE };
	}
	g->want.name = "leg";
	g->e.recipe.modes[MODE_FREE] = g->e.recipe.modes[MODE_FORCED] = true;
	g->e.recipe.limit = 2;
	g->e.golden = g->golden;
	g->e.legs = &g->leg_found;
	g->e.n_legs = 1;
}

static void gate_close(void)
{
	struct leg *l = &g->leg_found;

	for (int m = 0; m < N_MODES; m++)
		free(l->modes[m].rows);
	free(l->flips);
	text_release(&l->reason);
	oracle_release(&g->e.oracle);
	golden_release(&g->true_golden);
	free(g);
}

/* A new oracle of so many steps a prompt. */
static void draw_oracle(int steps)
{
	int asked[PROMPTS];

	g->steps = g->e.recipe.max_steps = steps;
	draw_truth();
	for (int k = 0; k < PROFILES; k++) {
		draw_stream(&g->profiles[k], 1, 0);
		as_profile(&g->profiles[k]);
		for (int p = 0; p < PROMPTS; p++)
			g->rows[k][p] = (struct golden_row){ .prompt = p, .n = steps, .ids = g->profiles[k].ids[p],
							     .steps = g->profiles[k].golden[p] };
	}
	for (int p = 0; p < PROMPTS; p++)
		asked[p] = p;
	oracle_release(&g->e.oracle);
	oracle_measure(&g->e.oracle, &g->e.golden, &g->e.golden.profiles[0], asked, PROMPTS, steps);
}

/* A new leg against that oracle, judged as a run would be.  Its free rows stand for forced ones: up to a fork they are the
 * same, and nothing after it counts. */
static const struct leg *draw_leg(double k, double drift)
{
	struct leg *l = &g->leg_found;

	for (int m = 0; m < N_MODES; m++)
		free(l->modes[m].rows);
	free(l->flips);
	text_release(&l->reason);
	*l = (struct leg){ .want = &g->want, .has_report = true };
	draw_stream(&g->leg, k, drift);
	as_leg(&g->leg);
	for (int p = 0; p < PROMPTS; p++)
		g->leg_rows[p] = (struct report_row){ .id = ids[p], .n = g->steps, .ids = g->leg.ids[p], .steps = g->leg.report[p] };
	for (int m = 0; m < N_MODES; m++)
		l->report.modes[m] = (struct report_mode){ .present = true, .n_rows = PROMPTS, .rows = g->leg_rows };
	tokens_compare(&g->e, l);
	ladder_verdict(&g->e, l);
	margins_adjudicate(&g->e, l);
	noise_measure(&g->e, l);
	noise_across(&g->e);
	ladder_adjudicate(&g->e, l);
	return l;
}

/* ---- rates */

struct rates {
	int n, flips_excess, class_excess, excess, equivalent, noisier, diverged, near_tie, drift, direction;
	int flips_05, forks_05, signs;               /* p < 0.05 of section 4's tests; the e-process said noisier */
	int one_flip_01, one_flip_05;                /* the smallest p of a forced flip is below that (section 3) */
	int early[4];                                /* the class at which --until-decided would have stopped */
	double log_R, lower[GATES], upper[GATES];
};

struct scene { const char *name; double k, drift; struct rates r; };

/* Prompt after prompt as --until-decided does: the class when the interval first decides. */
static enum distance_class stop_early(const struct oracle *o, const double *B, double *w)
{
	struct distance d = { 0 };
	struct oracle some = *o;

	for (some.n_prompts = 2; some.n_prompts <= o->n_prompts; some.n_prompts++) {
		distance_measure(&d, w, &some, B, 2);
		if (d.class != DISTANCE_INCONCLUSIVE)
			break;
	}
	return d.class;
}

static bool signs_decide(const double *w, size_t n)
{
	struct eprocess e = { 0 };

	for (size_t i = 0; i < n; i++) {
		eprocess_add(&e, w[i]);
		if (eprocess_decided(&e))
			return true;
	}
	return false;
}

static void count_early(struct rates *r, const struct leg *l)
{
	static double B[PROMPTS * STEPS_MAX], w[PROMPTS * STEPS_MAX];
	const struct report_row *rows[PROMPTS];
	struct subject s = leg_subject(&g->e, l, rows);
	struct distance d;

	distance_fill(B, NULL, &s);
	r->early[stop_early(&g->e.oracle, B, w)]++;
	distance_measure(&d, w, &g->e.oracle, B, 2);
	r->signs += signs_decide(w, g->e.oracle.n_positions);
}

static void count(struct rates *r, const struct leg *l)
{
	const struct noise *n = &l->noise;
	bool flip = false;
	double least = 1;

	for (size_t i = 0; i < l->n_flips; i++) {
		flip = flip || l->flips[i].adjudication == ADJ_EXCESS;
		if (l->flips[i].mode == MODE_FORCED)
			least = fmin(least, l->flips[i].p);
	}
	r->one_flip_01 += least < 0.01;
	r->one_flip_05 += least < 0.05;
	r->lower[r->n] = log(n->distance.lower);
	r->upper[r->n] = log(n->distance.upper);
	r->log_R += log(n->distance.R) / GATES;
	r->flips_excess += flip;
	r->class_excess += n->distance.class == DISTANCE_EXCESS;
	r->excess += l->adjudication == ADJ_EXCESS;
	r->equivalent += n->distance.class == DISTANCE_EQUIVALENT;
	r->noisier += n->distance.noisier;
	r->diverged += l->verdict == LEG_DIVERGENCE;
	r->near_tie += l->adjudication == ADJ_NEAR_TIE;
	r->drift += n->drift.p_holm < 0.01;
	r->direction += n->direction.p_holm < 0.01;
	r->flips_05 += n->flips.p < 0.05;
	r->forks_05 += n->forks.p < 0.05;
	count_early(r, l);
	r->n++;
}

static double coverage(const struct rates *r, double log_R)
{
	int covered = 0;

	for (int i = 0; i < r->n; i++)
		covered += r->lower[i] <= log_R && log_R <= r->upper[i];
	return (double)covered / r->n;
}

static double rate(int n)
{
	return (double)n / GATES;
}

static void play(struct scene *scenes, int n, int steps, uint64_t seed)
{
	state = seed;
	gate_open();
	for (int i = 0; i < GATES; i++) {
		draw_oracle(steps);
		for (int s = 0; s < n; s++)
			count(&scenes[s].r, draw_leg(scenes[s].k, scenes[s].drift));
	}
	for (int s = 0; s < n; s++) {
		const struct rates *r = &scenes[s].r;

		printf("%d x %-2d %-8s R %.3f, covered %.4f (1 itself: %.4f); R EXCESS %.4f EQUIVALENT %.4f lower > 1 %.4f; leg EXCESS %.4f (a flip %.4f), "
		       "NEAR-TIE %.4f of %d; drift %.4f direction %.4f; p < 0.05: flips %.4f forks %.4f; one flip p < 0.01 %.4f, < 0.05 %.4f; stopped early EXCESS %.4f "
		       "EQUIVALENT %.4f, signs %.4f\n", PROMPTS, steps, scenes[s].name, exp(r->log_R), coverage(r, r->log_R), coverage(r, 0),
		       rate(r->class_excess), rate(r->equivalent), rate(r->noisier), rate(r->excess), rate(r->flips_excess),
		       (double)r->near_tie / r->diverged, r->diverged, rate(r->drift), rate(r->direction), rate(r->flips_05),
		       rate(r->forks_05), rate(r->one_flip_01), rate(r->one_flip_05), rate(r->early[DISTANCE_EXCESS]), rate(r->early[DISTANCE_EQUIVALENT]), rate(r->signs));
	}
	gate_close();
}

/* A rate of n trials lies within three standard errors of r. */
static void about(double got, double r, int n)
{
	double error = sqrt(r * (1 - r) / n);

	ck_assert_msg(fabs(got - r) <= 3 * error, "rate %.4f, want %.4f +- %.4f", got, r, 3 * error);
}

static void at_most(double got, double r, int n)
{
	double error = sqrt(r * (1 - r) / n);

	ck_assert_msg(got <= r + 3 * error, "rate %.4f, want at most %.4f + %.4f", got, r, 3 * error);
}

static void at_least(double got, double r, int n)
{
	at_most(1 - got, 1 - r, n);
}

/* Tests of benign legs keep their level: 0.01 for systematic findings and for a flip called EXCESS, 0.05 for counts of flips. */
static void benign_holds(const struct scene *s)
{
	const struct rates *r = &s->r;

	/* Profiles whose own scale varies make the median of three pairs a little larger than a pair: R is 1.5 % low. */
	ck_assert_msg(r->log_R > -0.03 && r->log_R < 0.01, "R %.4f", exp(r->log_R));
	about(coverage(r, r->log_R), 0.95, GATES);
	at_most(rate(r->class_excess), 0.0005, GATES);
	at_least(rate(r->equivalent), 0.999, GATES);
	at_most(rate(r->excess), 0.01, GATES);
	at_most(rate(r->drift) + rate(r->direction), 0.01, GATES);
	at_most(rate(r->one_flip_01), 0.01, GATES);
	at_most(rate(r->one_flip_05), 0.05, GATES);
	at_most(rate(r->flips_05), 0.05, GATES);
	at_most(rate(r->forks_05), 0.05, GATES);
	at_most(rate(r->signs), EPROCESS_ALPHA, GATES);
	at_least((double)r->near_tie / r->diverged, 0.95, r->diverged);
}

static struct scene scenes[] = {
	{ "benign", 1, 0, { 0 } }, { "R = 2", 3.19, 0, { 0 } }, { "R = 2.5", 4.135, 0, { 0 } }, { "drift", 1, 0.05, { 0 } },
};

START_TEST(twelve_prompts_of_32)
{
	play(scenes, 4, 32, 1);
	benign_holds(&scenes[0]);

	const struct rates *two = &scenes[1].r, *more = &scenes[2].r;

	ck_assert(fabs(exp(two->log_R) - 2) < 0.02 && fabs(exp(more->log_R) - 2.5) < 0.02);
	about(coverage(two, two->log_R), 0.95, GATES);
	about(coverage(more, more->log_R), 0.95, GATES);
	at_least(rate(two->noisier), 0.9999, GATES);
	at_most(rate(two->class_excess), 0.025, GATES);          /* one side of a 95 % interval */
	at_most(rate(more->equivalent), 0.0001, GATES);
	at_least(rate(more->excess), 0.95, GATES);
	at_most(rate(more->early[DISTANCE_EQUIVALENT]), 0.01, GATES);
	at_least(rate(scenes[3].r.drift), 0.999, GATES);
}
END_TEST

START_TEST(twelve_prompts_of_8)
{
	struct scene *benign = &scenes[0], *more = &scenes[1];

	*more = (struct scene){ "R = 2.5", 4.135, 0, { 0 } };
	play(scenes, 2, 8, 2);
	benign_holds(benign);
	about(coverage(&more->r, more->r.log_R), 0.95, GATES);
	at_most(rate(more->r.equivalent), 0.0001, GATES);
	at_least(rate(more->r.excess), 0.95, GATES);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("simulate");
	TCase *c = tcase_create("2000 gates of each kind");

	tcase_set_timeout(c, 300);
	tcase_add_test(c, twelve_prompts_of_32);
	tcase_add_test(c, twelve_prompts_of_8);
	suite_add_tcase(s, c);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	return failed != 0;
}
