/* How the time of judging grows with what is judged, once the files are parsed into arrays.  check_scale [PROMPTS STEPS] takes
 * another size:
 *   build/gates/tests/check_scale 2000 500      is 1,000,000 forced positions of 20 ids each. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "gates/evidence.h"

#define PROFILES 3

static int n_prompts = 200, n_steps = 500;
static uint64_t state = 1;

static double uniform(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

/* A list whose gaps are those of `truth`, each value moved by up to `noise`. */
static void fill_list(struct top *top, const struct top *truth, double noise)
{
	for (int i = 0; i < TOP_MAX; i++) {
		struct top x = { truth[i].id, truth[i].value + noise * (uniform() - 0.5) };
		int j = i;

		for (; j > 0 && top[j - 1].value < x.value; j--)
			top[j] = top[j - 1];
		top[j] = x;
	}
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct world {
	struct golden g;
	struct golden_profile profiles[PROFILES];
	struct leg leg;
	struct recipe_leg want;
	struct evidence e;
};

static void build_rows(struct world *w, int p, char **ids)
{
	size_t n = (size_t)n_steps;
	struct top *lists[PROFILES + 1], truth[TOP_MAX];
	struct report_row *rr = &w->leg.report.modes[MODE_FORCED].rows[p];

	for (int k = 0; k <= PROFILES; k++)
		lists[k] = xcalloc(n * TOP_MAX, sizeof(struct top));
	w->g.prompts[p].id = ids[p];
	for (int k = 0; k < PROFILES; k++)
		w->profiles[k].rows[p] = (struct golden_row){ .prompt = p, .n = n_steps, .ids = xcalloc(n, sizeof(int32_t)),
							      .steps = xcalloc(n, sizeof(struct golden_step)) };
	*rr = (struct report_row){ .id = ids[p], .n = n_steps, .ids = xcalloc(n, sizeof(int32_t)), .steps = xcalloc(n, sizeof(struct report_step)) };
	for (size_t t = 0; t < n; t++) {
		double at = -0.5;

		for (int i = 0; i < TOP_MAX; i++, at -= (i == 1 ? 2.5 : 0.5) * uniform())
			truth[i] = (struct top){ 100 + 7 * i, at };
		for (int k = 0; k < PROFILES; k++) {
			struct top *top = lists[k] + t * TOP_MAX;

			fill_list(top, truth, 0.2);
			w->profiles[k].rows[p].ids[t] = top[0].id;
			w->profiles[k].rows[p].steps[t] = (struct golden_step){ .id = top[0].id, .n_top = TOP_MAX, .top = top };
		}
		struct top *top = lists[PROFILES] + t * TOP_MAX;

		fill_list(top, truth, 0.2);
		rr->ids[t] = top[0].id;
		rr->steps[t] = (struct report_step){ .id = top[0].id, .margin = top[0].value - top[1].value, .lse = 0.1, .n_top = TOP_MAX,
			.top = top, .has_logits = true };
	}
}

static void build(struct world *w)
{
	size_t n = (size_t)n_prompts;
	char **ids = xcalloc(n, sizeof *ids);
	static char *names[PROFILES] = { "base", "a", "b" };

	w->g = (struct golden){ .n_prompts = n_prompts, .prompts = xcalloc(n, sizeof(struct golden_prompt)), .n_profiles = PROFILES,
				.profiles = w->profiles };
	for (int k = 0; k < PROFILES; k++)
		w->profiles[k] = (struct golden_profile){ .name = names[k], .n_rows = n_prompts, .logits_dtype = "bf16",
			.mode = k ? GOLDEN_FORCED : GOLDEN_FREE, .rows = xcalloc(n, sizeof(struct golden_row)) };
	w->leg.report.modes[MODE_FORCED] = (struct report_mode){ .present = true, .n_rows = n_prompts, .rows = xcalloc(n, sizeof(struct report_row)) };
	w->want.name = "leg";
	w->leg.want = &w->want;
	w->leg.has_report = true;
	for (int p = 0; p < n_prompts; p++) {
		ids[p] = xasprintf("p%d", p);
		build_rows(w, p, ids);
	}
	w->e.golden = w->g;
	w->e.recipe.modes[MODE_FORCED] = true;
	w->e.recipe.limit = 2;
	w->e.recipe.max_steps = n_steps;
	w->e.legs = &w->leg;
	w->e.n_legs = 1;
	free(ids);
}

static double judge(struct world *w)
{
	int *asked = xcalloc((size_t)n_prompts, sizeof *asked);
	double from = seconds();

	for (int p = 0; p < n_prompts; p++)
		asked[p] = p;
	oracle_measure(&w->e.oracle, &w->e.golden, &w->e.golden.profiles[0], asked, n_prompts, n_steps);
	tokens_compare(&w->e, &w->leg);
	ladder_verdict(&w->e, &w->leg);
	margins_adjudicate(&w->e, &w->leg);
	noise_measure(&w->e, &w->leg);
	noise_across(&w->e);
	ladder_adjudicate(&w->e, &w->leg);
	double took = seconds() - from;

	free(asked);
	return took;
}

static void release(struct world *w)
{
	for (int p = 0; p < n_prompts; p++) {
		struct report_row *rr = &w->leg.report.modes[MODE_FORCED].rows[p];

		for (int k = 0; k < PROFILES; k++) {
			struct golden_row *row = &w->profiles[k].rows[p];
			struct top *first = row->steps[0].top;

			free(first);
			free(row->ids);
			free(row->steps);
		}
		free(rr->steps[0].top);
		free(rr->steps);
		free(rr->ids);
		free(rr->id);
	}
	for (int k = 0; k < PROFILES; k++)
		free(w->profiles[k].rows);
	free(w->leg.report.modes[MODE_FORCED].rows);
	free(w->g.prompts);
	free(w->leg.modes[MODE_FORCED].rows);
	free(w->leg.flips);
	text_release(&w->leg.reason);
	oracle_release(&w->e.oracle);
}

/* Judges so many prompts; CPU seconds. */
static double judge_prompts(int prompts)
{
	static struct world none, w;
	struct rusage use;

	n_prompts = prompts;
	w = none;
	build(&w);
	double took = judge(&w);
	size_t n = (size_t)n_prompts * (size_t)n_steps;

	getrusage(RUSAGE_SELF, &use);
	printf("%zu forced positions, %d profiles: %.2f s, %ld MB in all; R %.4f, %zu flips, p %.3g\n", n, PROFILES, took, use.ru_maxrss / 1024,
	       w.leg.noise.distance.R, w.leg.n_flips, w.leg.noise.flips.p);
	ck_assert_uint_eq(w.leg.noise.distance.positions, n);
	ck_assert(fabs(w.leg.noise.distance.R - 1) < 0.05);
	release(&w);
	return took;
}

/* Four times the prompts cost four times the time, not sixteen times.  Seconds are for `make bench-judge`. */
START_TEST(forced_positions)
{
	int all = n_prompts;
	double few = judge_prompts(all / 4), many = judge_prompts(all);

	ck_assert_msg(many < 9 * few, "%d prompts: %.2f s, %d: %.2f s", all / 4, few, all, many);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("scale");
	TCase *c = tcase_create("parsed");

	if (argc == 3) {
		n_prompts = atoi(argv[1]);
		n_steps = atoi(argv[2]);
	}
	tcase_set_timeout(c, 300);
	tcase_add_test(c, forced_positions);
	suite_add_tcase(s, c);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	return failed != 0;
}
