/* The rungs of the ladder at their edges, on findings set by hand.  docs/judging.md, sections 3, 4, 5, 7 and 8. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gates/evidence.h"

static struct evidence e;
static struct leg leg;
static struct recipe_leg want = { .name = "leg" };
static struct flip flip;
static struct oracle_position positions[6];
static struct oracle_prompt prompts[3];
static struct golden_prompt names[3] = { { .id = "p0" }, { .id = "p1" }, { .id = "p2" } };
static struct golden_row base_rows[3];
static struct golden_profile profiles[1] = { { .name = "base", .rows = base_rows, .n_rows = 3, .logits_dtype = "bf16" } };

/* A leg that diverged with one near tie among 100 forced positions, and about which all else is benign. */
static void start(void)
{
	e = (struct evidence){ .legs = &leg, .n_legs = 1, .golden = { .n_prompts = 3, .prompts = names, .n_profiles = 1, .profiles = profiles } };
	e.recipe.modes[MODE_FORCED] = true;
	e.oracle = (struct oracle){ .golden = &e.golden, .base = &profiles[0], .n_prompts = 1, .prompts = prompts };
	prompts[0] = (struct oracle_prompt){ .prompt = 0, .base = &base_rows[0], .forks_at = -1 };
	flip = (struct flip){ .mode = MODE_FORCED, .adjudication = ADJ_NEAR_TIE, .tau = 1, .subject_tau = 1, .p = 0.9, .forks_at = -1 };
	leg = (struct leg){ .want = &want, .has_report = true, .verdict = LEG_DIVERGENCE, .flips = &flip, .n_flips = 1 };
	leg.modes[MODE_FORCED] = (struct mode_compare){ .asked = true, .compared = 100, .matched = 99,
		.rows = xcalloc(3, sizeof(struct row_compare)) };
	leg.noise = (struct noise){
		.present = true, .flip_rate_upper = 0.03, .same_top1 = 0.99, .arbiter.leg = -1,
		.flips = { .present = true, .positions = 100, .sum_q = 1, .count = 1, .p = 0.6, .exact = true },
		.distance = { .present = true, .class = DISTANCE_EQUIVALENT, .R = 1, .lower = 0.9, .upper = 1.1, .prompts = 10, .positions = 100,
			      .c = 2 },
		.direction = { .measured = true, .n = 100, .positive = 50, .p = 1, .p_holm = 1 },
		.drift = { .measured = true, .prompts = 7, .rising = 4, .p = 0.5, .p_holm = 1 },
	};
}

static void end(void)
{
	free(leg.modes[MODE_FORCED].rows);
	free(leg.modes[MODE_FREE].rows);
	text_release(&leg.reason);
}

static void is(enum adjudication a, const char *reason)
{
	text_release(&leg.reason);
	ladder_adjudicate(&e, &leg);
	ck_assert_str_eq(adjudication_name(leg.adjudication), adjudication_name(a));
	ck_assert_msg(strstr(leg.reason.s, reason) != NULL, "`%s` is not in `%s`", reason, leg.reason.s);
}

START_TEST(all_is_benign)
{
	is(ADJ_NEAR_TIE, "99/100 tokens equal in mode forced; R 1 [0.9, 1.1] over 10 prompts, 100 positions");
	leg.verdict = LEG_STRICT_PASS;
	is(ADJ_EQUIVALENT, "100 positions");
}
END_TEST

/* Seven prompts that all rise have p = 1/128 = 0.0078; with the direction test beside it Holm makes 0.0156 of that. */
START_TEST(a_systematic_finding_is_below_one_in_a_hundred_after_holm)
{
	for (int passed = 0; passed < 2; passed++) {
		enum adjudication clean = passed ? ADJ_EQUIVALENT : ADJ_NEAR_TIE;

		leg.verdict = passed ? LEG_STRICT_PASS : LEG_DIVERGENCE;
		leg.noise.drift = (struct drift){ .measured = true, .prompts = 7, .rising = 7, .p = 1 / 128.0 };
		leg.noise.direction = (struct direction){ .measured = true, .n = 100, .positive = 50, .p = 1 };
		noise_across(&e);
		ck_assert(leg.noise.drift.p_holm == 2 / 128.0 && leg.noise.direction.p_holm == 1);
		is(clean, "");
		leg.noise.drift.p = 1 / 256.0;              /* eight of eight */
		leg.noise.direction.p = 1;
		noise_across(&e);
		is(ADJ_SYSTEMATIC, "drift: the distance grows with the step in 7 of 7 prompts, p 0.00781 after Holm");
		ck_assert_ptr_null(strstr(leg.reason.s, "direction:"));
		leg.noise.drift.p = leg.noise.direction.p = 0.0051;
		noise_across(&e);
		is(clean, "");
		leg.noise.direction.p = 0.0049;
		leg.noise.drift.p = 0.5;
		noise_across(&e);
		is(ADJ_SYSTEMATIC, "direction: 50 of 100 margins moved to the oracle's token, p 0.0098 after Holm");
		ck_assert_ptr_null(strstr(leg.reason.s, "drift:"));
		leg.noise.direction.measured = leg.noise.drift.measured = false;   /* then no p is one */
		leg.noise.drift.p_holm = 0;
		is(clean, "");
	}
}
END_TEST

/* Another leg's tests are of the same family: what holds alone need not hold among four. */
START_TEST(holm_is_over_all_legs)
{
	static struct leg two[2];

	two[0] = two[1] = leg;
	e.legs = two;
	e.n_legs = 2;
	two[0].noise.drift.p = 0.003;
	noise_across(&e);
	ck_assert(fabs(two[0].noise.drift.p_holm - 0.012) < 1e-15);
	ck_assert(two[1].noise.drift.p_holm == 1 && two[1].noise.direction.p_holm == 1);
	leg.noise.drift.p_holm = two[0].noise.drift.p_holm;
	leg.noise.drift.p = 0.003;
	is(ADJ_NEAR_TIE, "");
}
END_TEST

START_TEST(a_suspicious_flip_is_benign_from_one_in_twenty)
{
	flip = (struct flip){ .mode = MODE_FORCED, .adjudication = ADJ_SUSPICIOUS, .tau = 3, .subject_tau = 1, .p = 0.05, .forks_at = -1 };
	is(ADJ_NEAR_TIE, "");
	flip.p = 0.049;
	is(ADJ_UNDETERMINED, "forced p0[0] SUSPICIOUS at 3 noise scales, p 0.049");
	flip.p = 0.03;
	is(ADJ_UNDETERMINED, "forced p0[0] SUSPICIOUS at 3 noise scales, p 0.03");
	flip.p = NAN;
	is(ADJ_UNDETERMINED, "forced p0[0] SUSPICIOUS at 3 noise scales");
}
END_TEST

/* How far a margin moved at least says nothing of how far it moved. */
START_TEST(a_suspicious_flip_that_is_a_bound_is_open)
{
	flip = (struct flip){ .mode = MODE_FORCED, .adjudication = ADJ_SUSPICIOUS, .tau = 3, .subject_tau = 1, .p = 0.9, .forks_at = -1 };
	is(ADJ_NEAR_TIE, "");
	flip.margin_bound = true;
	is(ADJ_UNDETERMINED, "forced p0[0] SUSPICIOUS at least 3 noise scales, p 0.9");
	flip.margin_bound = false;
	flip.subject_bound = true;
	is(ADJ_UNDETERMINED, "forced p0[0] SUSPICIOUS at least 3 noise scales, p 0.9");
}
END_TEST

START_TEST(a_count_of_flips_is_usual_from_one_in_twenty)
{
	leg.noise.flips.p = 0.05;
	is(ADJ_NEAR_TIE, "");
	leg.noise.flips.p = 0.03;
	is(ADJ_UNDETERMINED, "1 flips where 1 are usual, p 0.03");
	leg.noise.flips.present = false;                 /* and forks do not stand in for what forced mode did not measure */
	leg.noise.forks = (struct flip_test){ .present = true, .positions = 3, .count = 0, .p = 1 };
	is(ADJ_UNDETERMINED, "");
}
END_TEST

START_TEST(a_count_of_forks_is_usual_from_one_in_twenty)
{
	e.recipe.modes[MODE_FORCED] = leg.modes[MODE_FORCED].asked = false;
	e.recipe.modes[MODE_FREE] = leg.modes[MODE_FREE].asked = true;
	leg.modes[MODE_FREE].rows = xcalloc(3, sizeof(struct row_compare));
	flip.mode = MODE_FREE;
	leg.noise.forks = (struct flip_test){ .present = true, .positions = 3, .count = 1, .sum_q = 0.2, .p = 0.05, .exact = true };
	is(ADJ_NEAR_TIE, "");
	leg.noise.forks.p = 0.03;
	is(ADJ_UNDETERMINED, "1 of 3 prompts fork, p 0.03");
}
END_TEST

/* ---- section 4 */

/* Three prompts of two positions with q = 0.1 and 0.2; the third sent nothing back.  Each prompt that ran forks with
 * 1 - 0.9 * 0.8 = 0.28; at least one of two: 1 - 0.72^2 = 0.4816. */
START_TEST(prompts_that_sent_nothing_fork_not)
{
	struct mode_compare *c = &leg.modes[MODE_FREE];

	for (int p = 0; p < 3; p++) {
		prompts[p] = (struct oracle_prompt){ .prompt = p, .base = &base_rows[p], .planned = 2, .first = 2 * (size_t)p, .forks_at = -1 };
		positions[2 * p] = (struct oracle_position){ .q = 0.1, .q_halved = 0.1 };
		positions[2 * p + 1] = (struct oracle_position){ .q = 0.2, .q_halved = 0.2 };
	}
	e.oracle.n_prompts = 3;
	e.oracle.n_positions = 6;
	e.oracle.positions = positions;
	*c = (struct mode_compare){ .asked = true, .planned = 6, .compared = 4, .matched = 3, .rows = xcalloc(3, sizeof(struct row_compare)) };
	leg.modes[MODE_FORCED].asked = false;
	c->rows[0] = (struct row_compare){ .compared = 2, .matched = 1, .first_fork = 1 };
	c->rows[1] = (struct row_compare){ .compared = 2, .matched = 2, .first_fork = -1 };
	c->rows[2] = (struct row_compare){ .first_fork = -1 };
	noise_measure(&e, &leg);
	ck_assert_uint_eq(leg.noise.forks.positions, 2);
	ck_assert_uint_eq(leg.noise.forks.count, 1);
	ck_assert(fabs(leg.noise.forks.p - 0.4816) < 1e-12);
	ck_assert(fabs(leg.noise.forks.sum_q + 2 * log(0.72)) < 1e-12);
	/* half a row has half the hazard: 0.1 and 0.28, at least one: 1 - 0.9 * 0.72 */
	c->rows[0] = (struct row_compare){ .compared = 1, .matched = 0, .first_fork = 0 };
	noise_measure(&e, &leg);
	ck_assert(fabs(leg.noise.forks.p - 0.352) < 1e-12);
}
END_TEST

/* ---- section 8 */

/* Whichever leg comes first. */
START_TEST(the_worst_leg_decides)
{
	static const enum leg_verdict worst_first[] = { LEG_ERROR, LEG_VOID, LEG_NOT_MEASURED, LEG_SHORT, LEG_DIVERGENCE, LEG_STRICT_PASS };
	static const int codes[] = { 2, 3, 4, 4, 1, 0 };
	struct leg two[2] = { { .want = &want }, { .want = &want } };

	e.legs = two;
	e.n_legs = 2;
	for (int a = 0; a < 6; a++)
		for (int b = 0; b < 6; b++) {
			int worst = a < b ? a : b;

			two[0].verdict = worst_first[a];
			two[1].verdict = worst_first[b];
			overall_decide(&e);
			ck_assert_str_eq(e.overall.verdict, leg_verdict_name(worst_first[worst]));
			ck_assert_int_eq(e.overall.exit_code, codes[worst]);
			text_release(&e.overall.reason);
		}
}
END_TEST

/* ---- section 7 */

/* 64 tokens in 3.2 s are 0.05 s each, however short the middle one was. */
START_TEST(minutes_rest_on_the_mean)
{
	leg.engine = leg.host = (char *)"";
	leg.report.timing.present = true;
	leg.report.timing.decode_s = 3.2;
	leg.report.timing.n = 64;
	leg.report.timing.p50 = 1.25;
	design_of_run(&e);
	ck_assert_int_eq(e.design.n_rows, 1);
	ck_assert(fabs(e.design.rows[0].seconds - 0.05) < 1e-15);
	design_release(&e.design);
	leg.report.timing.n = 0;                         /* a report that does not count: what it states */
	design_of_run(&e);
	ck_assert(fabs(e.design.rows[0].seconds - 0.00125) < 1e-15);
	design_release(&e.design);
	leg.report.timing.p50 = 0;
	design_of_run(&e);
	ck_assert(isnan(e.design.rows[0].seconds));
	design_release(&e.design);
	leg.report.timing.present = false;
	design_of_run(&e);
	ck_assert(isnan(e.design.rows[0].seconds));
	design_release(&e.design);
}
END_TEST

/* Minutes of the leg in which all is in its place and the batch is 1, after `n` of these rows in this order; 60 tokens, so
 * that minutes are seconds a token. */
static double minutes_of_plain(const struct design_row *rows, const int *order, int n)
{
	struct recipe r = { .kind = RECIPE_DISCRIMINATE };
	struct design d = { .rows = xcalloc((size_t)n, sizeof *d.rows), .n_rows = n };
	double minutes = NAN;

	for (int i = 0; i < n; i++)
		d.rows[i] = rows[order[i]];
	design_measure(&d);
	candidates_rank(&d, &r, NULL, 60);
	for (int i = 0; i < d.n_candidates; i++) {
		const int *v = d.candidates[i].arm.value;

		if (v[FACTOR_PLACE_MAMBA] == PLACE_MAMBA_BACKEND && v[FACTOR_PLACE_ATTN] == PLACE_ATTN_BACKEND && v[FACTOR_BATCH] == 1)
			minutes = d.candidates[i].minutes;
	}
	design_release(&d);
	return minutes;
}

/* A leg that several rows lead to: the slowest of them counts, but for one that computes in the same places. */
START_TEST(minutes_are_those_of_the_nearest_row)
{
	static const int orders[][3] = { { 0, 1, 2 }, { 1, 0, 2 }, { 2, 0, 1 }, { 0, 2, 1 } };
	static const struct arm_at_list none;
	struct design_row rows[3];

	for (int i = 0; i < 3; i++) {
		rows[i] = (struct design_row){ .name = "", .leg = i, .at = &none, .engine = "", .host = "", .seconds = 1 + 2 * i };
		arm_init(&rows[i].arm);
		rows[i].arm.value[FACTOR_PLACE_MAMBA] = i == 0 ? PLACE_MAMBA_HOST : PLACE_MAMBA_BACKEND;
		rows[i].arm.value[FACTOR_PLACE_ATTN] = i == 1 ? PLACE_ATTN_HOST : PLACE_ATTN_BACKEND;
		rows[i].arm.value[FACTOR_BATCH] = i == 2 ? 2 : 1;
	}
	for (int i = 0; i < 2; i++)
		ck_assert_double_eq(minutes_of_plain(rows, orders[i], 2), 3);
	rows[2].seconds = 0.5;
	for (int i = 0; i < 4; i++)
		ck_assert_double_eq(minutes_of_plain(rows, orders[i], 3), 0.5);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ladder");
	TCase *c = tcase_create("edges");

	tcase_add_checked_fixture(c, start, end);
	tcase_add_test(c, all_is_benign);
	tcase_add_test(c, the_worst_leg_decides);
	tcase_add_test(c, a_systematic_finding_is_below_one_in_a_hundred_after_holm);
	tcase_add_test(c, holm_is_over_all_legs);
	tcase_add_test(c, a_suspicious_flip_is_benign_from_one_in_twenty);
	tcase_add_test(c, a_suspicious_flip_that_is_a_bound_is_open);
	tcase_add_test(c, a_count_of_flips_is_usual_from_one_in_twenty);
	tcase_add_test(c, a_count_of_forks_is_usual_from_one_in_twenty);
	tcase_add_test(c, prompts_that_sent_nothing_fork_not);
	tcase_add_test(c, minutes_rest_on_the_mean);
	tcase_add_test(c, minutes_are_those_of_the_nearest_row);
	suite_add_tcase(s, c);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	return failed != 0;
}
