/* The thread's three legs as a story, and numbers, texts and stops that the canned cases leave out. */
#include <math.h>

#include "gates/evidence.h"
#include "gates/tests/run_dir.h"
#include "gates/until.h"

/* ---- the thread's three legs */

START_TEST(the_story_of_three_legs)
{
	static const char *const legs[] = { "on", "off", "host" };
	static const int matched[] = { 95, 95, 96 };
	const json_t *all, *claim;
	size_t i;

	use("seed-three-legs");
	judge();
	for (int k = 0; k < 3; k++) {
		const json_t *leg = json_object_get(json_object_get(verdict, "legs"), legs[k]), *tokens = json_object_get(leg, "tokens");

		ck_assert_int_eq(json_integer_value(json_object_get(tokens, "matched")), matched[k]);
		ck_assert_int_eq(json_integer_value(json_object_get(tokens, "compared")), 96);
		if (k < 2) {
			const json_t *flip = json_array_get(json_object_get(leg, "flips"), 0);

			/* the same wrong token on both device legs, whose margin nobody measured */
			ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(flip, "got"), "id")), 11286);
			ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(flip, "exp"), "id")), 3468);
			ck_assert_str_eq(json_string_value(json_object_get(flip, "adjudication")), "NOT MEASURED");
			leg_is(legs[k], "DIVERGENCE", "UNDETERMINED", "margins NOT MEASURED: profile `base` holds ids only; capture it again "
			       "with the top 20 log-probabilities of every step");
			leg_is(legs[k], "DIVERGENCE", "UNDETERMINED", "capture another benign profile");
		}
		ck_assert_ptr_null(strstr(leg_says(legs[k], "reason"), "sm_121a"));
		ck_assert_ptr_null(strstr(leg_says(legs[k], "reason"), "GB10"));
	}
	char *aliased = json_dumps(json_object_get(json_object_get(verdict, "design"), "aliased"), JSON_COMPACT);

	ck_assert_str_eq(aliased, "[[\"place.mamba\",\"mamba.proj\"]]");
	free(aliased);
	all = json_object_get(verdict, "next_legs");
	ck_assert_uint_eq(json_array_size(all), 2);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(all, 0), "leg")), "on+mamba.proj=w8a16");
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(all, 1), "leg")), "host+mamba.proj=w8a8");
	/* no claim about the architecture, the host or the build: nothing here varies them */
	json_array_foreach(json_object_get(verdict, "claims"), i, claim) {
		const char *about = json_string_value(json_object_get(claim, "about"));

		ck_assert(!strcmp(about, "mamba.decode") || !strcmp(about, "place.mamba") || !strcmp(about, "mamba.proj"));
		ck_assert_str_eq(json_string_value(json_object_get(claim, "status")), strcmp(about, "mamba.decode") ? "refused" : "consistent");
	}
	ck_assert_uint_eq(i, 3);
	ck_assert_str_eq(overall(), "UNDECIDED");
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(json_object_get(verdict, "overall"), "reason")),
				     "place, fp8 are left; next leg: on+mamba.proj=w8a16 or host+mamba.proj=w8a8"));
}
END_TEST

START_TEST(explained_before_anything_runs)
{
	struct recipe r = { 0 };

	run[0] = '\0';
	err = (struct err){ 0 };
	ck_assert_msg(!recipe_load(&r, CASES "seed-three-legs/recipe.yaml", &err), "%s", err.text);
	json_t *x = verdict_explain_recipe(&r, &err);
	char *claims = json_dumps(json_object_get(x, "claims"), JSON_COMPACT | JSON_SORT_KEYS);
	char *aliased = json_dumps(json_object_get(json_object_get(x, "design"), "aliased"), JSON_COMPACT);
	const json_t *next = json_object_get(x, "next_legs");

	ck_assert_str_eq(aliased, "[[\"place.mamba\",\"mamba.proj\"]]");
	ck_assert_str_eq(claims,
		"[{\"about\":\"place.mamba\",\"legs\":[],\"needs\":[\"on\",\"host+mamba.proj=w8a8\"],\"status\":\"refused\"},"
		"{\"about\":\"mamba.decode\",\"legs\":[\"on\",\"off\"],\"needs\":null,\"status\":\"supportable\"},"
		"{\"about\":\"mamba.proj\",\"legs\":[],\"needs\":[\"host\",\"host+mamba.proj=w8a8\"],\"status\":\"refused\"}]");
	ck_assert_uint_eq(json_array_size(next), 2);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(next, 0), "leg")), "host+mamba.proj=w8a8");
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(next, 1), "leg")), "on+mamba.proj=w8a16");
	ck_assert(json_is_null(json_object_get(json_array_get(next, 0), "minutes")));
	ck_assert(json_is_null(json_object_get(x, "tokens_per_leg")));
	free(claims);
	free(aliased);
	json_decref(x);
	recipe_release(&r);
}
END_TEST

/* ---- numbers that the canned cases leave at null */

/* Two prompts with medians 0.6 and 0.8 of w: mean 0.7, sd sqrt(0.02); ln 2 is 0.0069 away.  1639 prompts have a half-width
 * below that (Student's quantile by bisection), at one position each. */
START_TEST(positions_that_would_decide)
{
	struct oracle_position positions[2] = { { .log_spread = 0, .max_spread = 1 }, { .log_spread = 0, .max_spread = 3 } };
	struct oracle_prompt prompts[2] = { { .planned = 1, .first = 0, .forks_at = -1 }, { .planned = 1, .first = 1, .forks_at = -1 } };
	struct oracle o = { .n_prompts = 2, .prompts = prompts, .n_positions = 2, .positions = positions };
	double B[2] = { exp(0.6), exp(0.8) }, w[2];
	struct distance d;

	distance_measure(&d, w, &o, B, 2);
	ck_assert_int_eq(d.class, DISTANCE_INCONCLUSIVE);
	ck_assert(fabs(d.R - exp(0.7)) < 1e-12 && fabs(d.sd - sqrt(0.02)) < 1e-12);
	ck_assert(fabs(d.upper / d.R - exp(12.706204736432095 * 0.1)) < 1e-6);
	ck_assert_int_eq(d.more_positions, 1639 - 2);
	ck_assert(d.above_max == 0.5 && d.largest_prompt == 1);
	/* above 1 for certain, and not yet above c: noisier, but no EXCESS; nor one that reaches just over it */
	B[0] = exp(0.69);
	B[1] = exp(0.7);
	distance_measure(&d, w, &o, B, 2);
	ck_assert(d.class == DISTANCE_INCONCLUSIVE && d.noisier && d.lower > 1 && d.lower < 2 && d.upper > 2);
	B[0] = exp(0.76);
	B[1] = exp(0.77);
	distance_measure(&d, w, &o, B, 2);
	ck_assert(d.class == DISTANCE_EXCESS && d.lower > 2);
	/* one prompt: no interval */
	o.n_prompts = 1;
	distance_measure(&d, w, &o, B, 2);
	ck_assert(d.class == DISTANCE_INCONCLUSIVE && isnan(d.lower) && d.more_positions == -1 && !isnan(d.R));
}
END_TEST

/* sd 0.2, four prompts: e = exp((3.182446 + 0.978472) 0.2 / 2); 9, 5 and 3 prompts reach 1.25, 1.5 and 2. */
START_TEST(power_by_hand)
{
	struct distance d = { .prompts = 4, .positions = 26, .sd = 0.2, .c = 2 };
	struct oracle o = { 0 };
	struct power p;

	power_measure(&p, &d, &o, NULL);
	ck_assert(fabs(p.noisier_R - exp(0.4160918)) < 1e-6);
	ck_assert(fabs(p.excess_R - 2 * exp(0.4160918)) < 1e-6);
	ck_assert_int_eq(p.positions_for[0], 9 * 7);
	ck_assert_int_eq(p.positions_for[1], 5 * 7);
	ck_assert_int_eq(p.positions_for[2], 3 * 7);
	ck_assert(isnan(p.flips_at_2x));
}
END_TEST

/* Theil and Sen's slope needs three positions. */
START_TEST(drift_needs_three_positions)
{
	struct oracle_position positions[6] = { { 0 } };
	struct oracle_prompt prompts[2] = { { .planned = 3, .first = 0 }, { .planned = 3, .first = 3 } };
	struct oracle o = { .n_prompts = 2, .prompts = prompts, .n_positions = 6, .positions = positions };
	double w[6] = { 0, 1, NAN, 0, 1, 5 };
	struct drift d;

	drift_measure(&d, &o, w);
	ck_assert(d.measured && d.prompts == 1 && d.rising == 1);
	ck_assert(fabs(d.median_slope - 2.5) < 1e-12 && fabs(d.p - 0.5) < 1e-12);      /* slopes 1, 2.5, 4 */
	w[2] = -2;                                                                     /* slopes 1, -1, -3 */
	drift_measure(&d, &o, w);
	ck_assert(d.prompts == 2 && d.rising == 1 && fabs(d.median_slope - 0.75) < 1e-12 && fabs(d.p - 0.75) < 1e-12);
	w[3] = w[4] = w[5] = NAN;
	w[1] = NAN;
	drift_measure(&d, &o, w);
	ck_assert(!d.measured);
}
END_TEST

/* Five ids at one value: four chances of one half each, and no more than 0.8 in all. */
START_TEST(flip_chance_is_capped)
{
	struct golden g = { 0 };
	struct oracle o;
	int asked = 0;

	run[0] = '\0';
	err = (struct err){ 0 };
	ck_assert_msg(!golden_load(&g, CASES "near-tie/golden.json", &err), "%s", err.text);
	struct top *top = g.profiles[0].rows[0].steps[2].top;

	for (int i = 1; i < 5; i++)
		top[i].value = top[0].value;
	oracle_measure(&o, &g, &g.profiles[0], &asked, 1, 12);
	ck_assert(o.law.measured);
	ck_assert(fabs(o.positions[2].q - 0.8) < 1e-12 && fabs(o.positions[2].q_halved - 0.8) < 1e-12);
	ck_assert(o.positions[3].q < 0.8 && o.positions[3].q_halved > o.positions[3].q);
	oracle_release(&o);
	golden_release(&g);
}
END_TEST

/* Profile eager drops every token but the first by 3 nats in p1[3]: the f64 leg says that it stands alone. */
START_TEST(the_arbiter_takes_a_side)
{
	use("strict-pass-equivalent");
	json_t *top = NULL, *item;
	char last[64];
	size_t i;

	top = walk(golden, "profiles 2 prompts 1 steps 3 top 0", last);
	json_array_foreach(top, i, item)
		if (i > 0)
			json_array_set_new(item, 1, json_real(json_number_value(json_array_get(item, 1)) - 3));
	rewrite_golden("step");
	rewrite_golden("arbiter");
	judge();
	const json_t *found = json_object_get(json_object_get(verdict, "golden"), "contradictory");
	char *sides = json_dumps(json_object_get(json_array_get(found, 0), "sides"), JSON_COMPACT);

	ck_assert_uint_eq(json_array_size(found), 1);
	ck_assert_str_eq(sides, "[[\"base\",\"batch8\",\"chunked\"],[\"eager\"]]");
	ck_assert_ptr_nonnull(strstr(leg_says("arbiter", "reason"), "in prompt p1: leave it out or capture it again; there this f64 leg "
				     "sides with base, batch8, chunked (median D "));
	ck_assert_ptr_nonnull(strstr(leg_says("step", "reason"), "contradicts itself in prompt p1"));
	ck_assert_ptr_null(strstr(leg_says("step", "reason"), "sides with"));
	free(sides);
}
END_TEST

/* The first pair that differs in one factor alone, by what the legs are when defaults are filled in; a pair that differs
 * in two factors separates neither. */
#define NO_ALLOCS "{total: {allocs_after_open: 0}}"
START_TEST(which_pairs_separate)
{
	static const char text[] = "schema: assay/recipe/1\nname: n\nkind: gate\nmodel: m\ngolden: g\nsteps: 1\nlegs:\n"
		"  a: {threads: 1}\n  b: {threads: 2}\n  c: {threads: 3}\n  d: {threads: 1, mamba.decode: step, slots: dirty}\n"
		"  e: {threads: 1, backend: ref, prefill_chunk: 4}\n"
		"require:\n  a: " NO_ALLOCS "\n  b: " NO_ALLOCS "\n  c: " NO_ALLOCS "\n  d: " NO_ALLOCS "\n  e: " NO_ALLOCS "\n";
	struct recipe r = { 0 };

	err = (struct err){ 0 };
	ck_assert_msg(!recipe_load_bytes(&r, text, strlen(text), "r.yaml", &err), "%s", err.text);
	json_t *x = verdict_explain_recipe(&r, &err);
	char *separable = json_dumps(json_object_get(json_object_get(x, "design"), "separable"), JSON_COMPACT);

	ck_assert_ptr_nonnull(strstr(separable, "{\"factor\":\"threads\",\"legs\":[\"a\",\"b\"]}"));
	ck_assert_ptr_nonnull(strstr(separable, "{\"factor\":\"slots\",\"legs\":[\"a\",\"d\"]}"));
	ck_assert_ptr_null(strstr(separable, "backend"));
	ck_assert_ptr_null(strstr(separable, "prefill_chunk"));
	free(separable);
	json_decref(x);
	recipe_release(&r);
}
END_TEST

/* Of two f64 legs a leg asks the one of its own numerics, wherever it stands in the recipe. */
START_TEST(the_arbiter_of_the_same_numerics)
{
	use("strict-pass-equivalent");
	rewrite_recipe("  arbiter:", "  kept: {backend: ref, compute: f64, mamba.decode: chunk, threads: 1, mamba.proj: w8a16}\n  arbiter:");
	rewrite_recipe("  arbiter: {decode_step", "  kept: {total: {allocs_after_open: 0}}\n  arbiter: {decode_step");
	json_t *report = read_json("legs/arbiter.json");

	json_object_set_new(report, "leg", json_string("kept"));
	write_json("legs/kept.json", report);
	json_decref(report);
	change_report("kept", "requested mamba.proj", json_string("w8a16"));
	change_report("kept", "effective mamba.proj", json_string("w8a16"));
	judge();
	ck_assert_str_eq(json_string_value(json_object_get(walk(verdict, "legs step noise arbiter leg", (char[64]){ 0 }), "leg")), "arbiter");
	change_report("arbiter", "effective mamba.proj", json_string("native"));
	change_report("arbiter", "requested mamba.proj", json_string("native"));
	judge();
	ck_assert_str_eq(json_string_value(json_object_get(walk(verdict, "legs step noise arbiter leg", (char[64]){ 0 }), "leg")), "kept");
	ck_assert_ptr_nonnull(strstr(leg_says("step", "reason"), "its arbiter kept differs in mamba.proj"));
}
END_TEST

/* One position of the oracle without log-probabilities: the count of flips has no chance to be held against. */
START_TEST(a_position_without_chances)
{
	use("near-tie");
	judge();
	ck_assert(json_is_object(walk(verdict, "legs step noise flips p", (char[64]){ 0 })));
	change(golden, "profiles 0 prompts 1 steps 3 top", NULL);
	rewrite_golden("step");
	judge();
	leg_is("step", "DIVERGENCE", "UNDETERMINED", "");
	ck_assert(!json_is_number(json_object_get(walk(verdict, "legs step noise flips", (char[64]){ 0 }), "p")));
}
END_TEST

/* DECIDED: something was eliminated, one is left, and a leg tested that one. */
START_TEST(what_decides)
{
	static const struct { const char *hypotheses; int code; const char *reason; } cases[] = {
		{ "  a: {says: a, predicts: {step: pass}}\n  b: {says: b, predicts: {step: diverge}}\n", 0, "b is left" },
		{ "  b: {says: b, predicts: {step: diverge}}\n", 4, "b is left" },
		{ "  a: {says: a, predicts: {step: pass}}\n  b: {says: b, predicts: {step+mamba.decode=chunk: diverge}}\n", 4,
		  "b (untested) is left" },
		{ "  a: {says: a, predicts: {step: pass}}\n", 4, "none of the hypotheses stated is left" },
	};
	char *all = xasprintf("hypotheses:\n%slegs:", cases[_i].hypotheses);

	use("near-tie");
	rewrite_recipe("kind: gate", "kind: discriminate");
	rewrite_recipe("legs:", all);
	judge();
	ck_assert_int_eq(verdict_exit_code(verdict), cases[_i].code);
	ck_assert_str_eq(overall(), cases[_i].code ? "UNDECIDED" : "DECIDED");
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(json_object_get(verdict, "overall"), "reason")), cases[_i].reason));
	change_report("step", "modes free", NULL);       /* SHORT decides nothing */
	judge();
	ck_assert_int_eq(verdict_exit_code(verdict), 4);
	ck_assert_str_eq(overall(), "SHORT");
	free(all);
}
END_TEST

START_TEST(another_regime_than_the_leg)
{
	use("batched");
	change(golden, "profiles 0 engine config batch", json_string("1"));
	rewrite_golden("step");
	judge();
	leg_is("step", "STRICT PASS", "EQUIVALENT", "captured one at a time: capture a batched profile");
	change(golden, "profiles 1 engine config batch", json_integer(8));
	rewrite_golden("step");
	judge();
	leg_is("step", "STRICT PASS", "EQUIVALENT", "");
	ck_assert_ptr_null(strstr(leg_says("step", "reason"), "batched profile"));
}
END_TEST

/* ---- texts, several lengths, stopping early */

START_TEST(texts_need_a_tokenizer)
{
	char *to;

	use("near-tie");
	to = in_run("tokenizer.json");
	ck_assert_msg(!file_copy("oracle-goldens/models/book52-nvfp4/tokenizer.json", to, &err), "%s", err.text);
	free(to);
	judge();
	const json_t *flip = json_array_get(json_object_get(json_object_get(json_object_get(verdict, "legs"), "step"), "flips"), 0);

	ck_assert(json_is_string(json_object_get(json_object_get(flip, "got"), "text")));
	ck_assert(json_is_string(json_object_get(json_object_get(flip, "exp"), "text")));
	write_text("tokenizer.json", "{}");
	judge();
	leg_is("step", "DIVERGENCE", "NEAR-TIE", "");
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(json_object_get(verdict, "overall"), "reason")), "no texts: "));
}
END_TEST

START_TEST(several_lengths)
{
	use("drift");
	rewrite_recipe("steps: 12", "steps: [4, 8, 12]");
	judge();
	leg_is("step", "STRICT PASS", "SYSTEMATIC", "up to step 4: 12 of 12 prompts without a fork");
	leg_is("step", "STRICT PASS", "SYSTEMATIC", "drift: the distance grows with the step in 12 of 12 prompts");
}
END_TEST

START_TEST(until_decided_order)
{
	static const char sha[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	int a[40], b[40], seen[40] = { 0 }, moved = 0, same = 0;

	until_order(a, 40, sha);
	until_order(b, 40, sha);
	ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
	for (int i = 0; i < 40; i++) {
		seen[a[i]]++;
		moved += a[i] != i;
	}
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(seen[i], 1);
	ck_assert_int_ge(moved, 30);
	until_order(b, 40, "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
	for (int i = 0; i < 40; i++)
		same += a[i] == b[i];
	ck_assert_int_le(same, 10);
}
END_TEST

START_TEST(until_decided_states)
{
	enum until_by by[2];

	use("noisy-pass");
	ck_assert_int_eq(until_decided(run, by, 1, &err), 1);
	ck_assert_int_eq(by[0], UNTIL_EXCESS);
	stop();
	use("batched");
	ck_assert_int_eq(until_decided(run, by, 2, &err), 1);
	ck_assert(by[0] == UNTIL_EQUIVALENT && by[1] == UNTIL_EQUIVALENT);
	/* with one prompt of three so far there is no interval, and the signs say nothing */
	change_report("chunk", "modes forced prompts 2", NULL);
	change_report("chunk", "modes forced prompts 1", NULL);
	change_report("chunk", "modes forced counters_total", json_object());
	change_report("chunk", "modes forced trace", json_array());
	ck_assert_int_eq(until_decided(run, by, 2, &err), 1);       /* its trace is not its own: VOID, nothing to wait for */
	ck_assert(by[1] == UNTIL_NOTHING);
	stop();
	use("free-hazard");
	ck_assert_int_eq(until_decided(run, by, 1, &err), 1);
	ck_assert(by[0] == UNTIL_NOTHING);
	stop();
	use("drift");
	json_t *r = read_json("legs/step.json");

	for (int p = 11; p > 0; p--) {
		char *path = xasprintf("modes forced prompts %d", p);

		change(r, path, NULL);
		free(path);
	}
	json_t *trace = json_object_get(json_object_get(json_object_get(r, "modes"), "forced"), "trace");

	while (json_array_size(trace) > 12)
		json_array_remove(trace, 12);
	write_json("legs/step.json", r);
	json_decref(r);
	rewrite_recipe(", total: {reference_tier: 0}", "");
	change_report("step", "modes forced counters_total", json_loads("{\"allocs_after_open\": 0}", 0, NULL));
	r = read_json("legs/step.json");
	size_t i;
	json_t *row;

	json_array_foreach(json_object_get(json_object_get(json_object_get(r, "modes"), "forced"), "trace"), i, row) {
		json_t *step = json_pack("{s:O, s:O, s:O, s:O, s:i}", "step", json_object_get(row, "step"), "T", json_object_get(row, "T"),
					 "nd", json_object_get(row, "nd"), "np", json_object_get(row, "np"), "allocs_after_open", 0);

		json_object_clear(row);
		json_object_update(row, step);
		json_decref(step);
	}
	write_json("legs/step.json", r);
	json_decref(r);
	rewrite_recipe("{decode_step: {state_update_rows: mamba*nd, conv_update_rows: mamba*nd, chunk_scan_calls: 0, conv_fwd_calls: 0, gathers: 0, scatters: 0}}",
		       "{total: {allocs_after_open: 0}}");
	ck_assert_int_eq(until_decided(run, by, 1, &err), 0);       /* one prompt of twelve: open */
	ck_assert_int_eq(by[0], UNTIL_OPEN);
	write_text("overrides.json", "{\"prompts\": [\"p0\"]}");
	judge();
	leg_is("step", "STRICT PASS", "UNPROVEN", "stopped early after 1 of 12 prompts (not decided): the others were not compared");
	ck_assert_int_eq(json_array_size(json_object_get(json_object_get(json_object_get(verdict, "run"), "overrides"), "prompts")), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("story");
	TCase *c = tcase_create("judge");

	tcase_set_timeout(c, 120);
	tcase_add_checked_fixture(c, NULL, stop);
	tcase_add_test(c, the_story_of_three_legs);
	tcase_add_test(c, explained_before_anything_runs);
	tcase_add_test(c, positions_that_would_decide);
	tcase_add_test(c, power_by_hand);
	tcase_add_test(c, drift_needs_three_positions);
	tcase_add_test(c, flip_chance_is_capped);
	tcase_add_test(c, the_arbiter_of_the_same_numerics);
	tcase_add_test(c, a_position_without_chances);
	tcase_add_loop_test(c, what_decides, 0, 4);
	tcase_add_test(c, which_pairs_separate);
	tcase_add_test(c, the_arbiter_takes_a_side);
	tcase_add_test(c, another_regime_than_the_leg);
	tcase_add_test(c, texts_need_a_tokenizer);
	tcase_add_test(c, several_lengths);
	tcase_add_test(c, until_decided_order);
	tcase_add_test(c, until_decided_states);
	suite_add_tcase(s, c);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	return failed != 0;
}
