/* The judge where the canned cases do not go: what makes a leg VOID, how processes end, damaged runs. */
#include "gates/tests/run_dir.h"

/* ---- section 1: what makes a leg VOID */

static const struct { const char *path, *value, *reason; } voids[] = {
	{ "effective compute", "\"fp32\"", "compute=bf16 was requested and fp32 was run" },
	{ "effective batch", "2", "batch=1 was requested and 2 was run" },
	{ "effective at", "[{\"layers\": \"0\", \"mamba.decode\": \"chunk\"}]", "`at` was not run as requested" },
	{ "golden_sha256", "\"0000000000000000000000000000000000000000000000000000000000000000\"", "another golden" },
	{ "golden_sha256", "null", "without the golden" },
	{ "model files config.json", "\"0000000000000000000000000000000000000000000000000000000000000000\"", "config.json is not the golden's" },
	{ "model files config.json", NULL, "config.json is not named by the report" },
	{ "modes forced prompts 1 prompt_ids 0", "9", "forced p1: the prompt ids are not the golden's" },
	{ "modes forced prompts 2 steps 4 given", "[999999, 1, 30]", "forced p2[4]: the id that was fed is not the golden's" },
	{ "modes forced prompts 2 steps 4 given", NULL, "does not say which id was fed" },
	{ "modes forced prompts 0 steps", NULL, "forced p0[0]: no logits" },
	{ "modes free trace 5", NULL, "the trace decodes 32 tokens, the returned tokens need 33" },
	{ "modes free trace 0", NULL, "the trace prefills 2 sequences or chunks, the prompts need 3" },
	{ "modes free counters_total w8a8_calls", "1", "the trace rows of w8a8_calls do not add up to its total" },
	{ "modes free counters_total w8a8_calls", NULL, "w8a8_calls do not add up" },
	{ "modes forced trace 7 allocs_after_open", "1", "allocs_after_open" },
	{ "modes free counters_total allocs_after_open", NULL, "free total allocs_after_open: want 0, got absent" },
	{ "audit", "{\"source\": \"cupti\", \"agrees\": false, \"mismatches\": [\"state_update_rows: 3, kernels 4\"]}",
	  "the device audit (cupti) contradicts the counters: state_update_rows" },
	{ "leg", "\"other\"", "the report is of leg `other`" },
	{ "requested at", "[{\"layers\": \"0\", \"mamba.decode\": \"chunk\"}]", "`at` is not what the report says was requested" },
	{ "modes free trace 0 np", "2", "the trace prefills 4 sequences or chunks, the prompts need 3" },
};

START_TEST(each_reason_to_be_void)
{
	use("near-tie");
	change_report("step", voids[_i].path, voids[_i].value ? json_loads(voids[_i].value, JSON_DECODE_ANY, NULL) : NULL);
	judge();
	leg_is("step", "VOID", "null", voids[_i].reason);
	ck_assert_str_eq(overall(), "VOID");
	ck_assert_int_eq(verdict_exit_code(verdict), 3);
}
END_TEST

START_TEST(another_factor_than_the_recipe_asks_for)
{
	use("near-tie");
	change_report("step", "requested backend", json_string("cuda"));
	change_report("step", "effective backend", json_string("cuda"));
	judge();
	leg_is("step", "VOID", "null", "the recipe asks for backend=cpu, the report says cuda was requested");
	stop();
	/* `all` may come back as the number it became, and no less */
	use("batched");
	rewrite_recipe("batch: 3", "batch: all");
	judge();
	leg_is("step", "STRICT PASS", "EQUIVALENT", "");
	change_report("step", "requested batch", json_string("all"));
	judge();
	leg_is("step", "STRICT PASS", "EQUIVALENT", "");
	change_report("step", "effective batch", json_integer(2));
	judge();
	leg_is("step", "VOID", "null", "batch=all was requested and 2 was run");
}
END_TEST

START_TEST(pins_and_features)
{
	static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
	static const char *const what[] = { "sha256: {golden: \"%s\"}\n", "sha256: {engine: \"%s\"}\n",
		"sha256: {model: {config.json: \"%s\"}}\n", "features: {cutlass_fp8: enabled}\n%.0s" };
	static const char *const reasons[] = { "the golden is not the pinned one", "the engine is not the pinned one",
		"config.json is not the pinned one", "feature cutlass_fp8: want enabled, got no such cell" };
	char *pin = xasprintf(what[_i], zeros), *all = xasprintf("%slegs:", pin);

	use("near-tie");
	rewrite_recipe("legs:", all);
	judge();
	leg_is("step", "VOID", "null", reasons[_i]);
	free(pin);
	free(all);
}
END_TEST

START_TEST(a_prompt_with_one_id_more)
{
	use("near-tie");
	json_t *report = read_json("legs/step.json");
	char last[64];

	json_array_append_new(json_object_get(walk(report, "modes free prompts 1 prompt_ids", last), last), json_integer(1));
	write_json("legs/step.json", report);
	json_decref(report);
	judge();
	leg_is("step", "VOID", "null", "free p1: the prompt ids are not the golden's");
}
END_TEST

/* A file or cell that the report does not name is not the one that was asked for. */
START_TEST(a_pin_of_a_file_not_named)
{
	use("near-tie");
	rewrite_recipe("legs:", "sha256: {model: {generation_config.json: \"00000000000000000000000000000000000000000000000000000000000000"
		       "00\"}}\nlegs:");
	judge();
	leg_is("step", "VOID", "null", "model file generation_config.json is not the pinned one");
}
END_TEST

/* What is wanted of a counter, at the edges. */
START_TEST(more_than_none)
{
	use("near-tie");
	rewrite_recipe("gathers: 0, scatters: 0}", "gathers: \">0\"}");
	judge();
	leg_is("step", "VOID", "null", "free decode_step gathers: want >0, got 0");
	stop();
	use("near-tie");
	rewrite_recipe("gathers: 0, scatters: 0}", "gathers: \">=0\"}, prefill_step: {graph_replays: layers*T}");
	for (int i = 0; i < 36; i += 12)
		for (int m = 0; m < 2; m++) {
			char *counter = xasprintf("modes %s trace %d graph_replays", m ? "forced" : "free", i);
			char *tokens = xasprintf("modes %s trace %d T", m ? "forced" : "free", i);
			char *total = xasprintf("modes %s counters_total graph_replays", m ? "forced" : "free");

			change_report("step", tokens, json_integer(5));
			change_report("step", counter, json_integer(52 * 5));
			change_report("step", total, json_integer(52 * 5 * (i / 12 + 1)));
			free(counter);
			free(tokens);
			free(total);
		}
	judge();
	leg_is("step", "DIVERGENCE", "NEAR-TIE", "");
}
END_TEST

/* A report that knows no blocks cannot meet a contract that counts in them, not even with counters that are all zero. */
START_TEST(blocks_that_are_not_known)
{
	use("near-tie");
	rewrite_recipe("state_update_rows: mamba*nd, conv_update_rows: mamba*nd", "graph_replays: mamba*nd");
	change_report("step", "model blocks", json_loads("{\"mamba\": 0, \"attn\": 0, \"moe\": 0, \"mlp\": 0, \"layers\": 0}", 0, NULL));
	judge();
	leg_is("step", "VOID", "null", "free decode_step graph_replays: want mamba*nd, got 0");
}
END_TEST

/* A step that prefills one sequence and decodes others is a prefill step: the contract of decode steps is not for it. */
START_TEST(a_step_of_both_kinds)
{
	use("batched");
	json_t *report = read_json("legs/step.json"), *trace = json_object_get(json_object_get(json_object_get(report, "modes"), "free"), "trace");
	json_t *both = json_array_get(trace, 2), *decode = json_array_get(trace, 3), *value;
	const char *key;

	ck_assert_int_eq(json_integer_value(json_object_get(both, "np")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(decode, "np")), 0);
	json_object_foreach(decode, key, value)
		if (strcmp(key, "step"))
			json_object_set_new(both, key, json_integer(json_integer_value(json_object_get(both, key)) + json_integer_value(value)));
	json_array_remove(trace, 3);
	write_json("legs/step.json", report);
	json_decref(report);
	judge();
	leg_is("step", "STRICT PASS", "EQUIVALENT", "");
}
END_TEST

/* The factor is what tells before and after apart, and the only one. */
static void varies(const char *factor)
{
	const json_t *design = json_object_get(verdict, "design");
	char *varied = json_dumps(json_object_get(design, "varied"), JSON_COMPACT);
	char *want = xasprintf("[\"%s\"]", factor);

	ck_assert_str_eq(varied, want);
	ck_assert_uint_eq(json_array_size(json_object_get(design, "separable")), 1);
	free(varied);
	free(want);
}

/* Two legs of one binary are two runs if they ran on different hosts, or differ in one layer. */
START_TEST(legs_that_differ_elsewhere)
{
	static const char *const elsewhere[] = { "host name", "effective at", "requested at" };

	use("void-same-binary");
	judge();
	leg_is("before", "VOID", "null", "the same run as leg after");
	change_report("before", elsewhere[0], json_string("another-box"));
	judge();
	ck_assert_ptr_null(strstr(leg_says("before", "reason"), "the same run"));
	varies("host");
	stop();
	use("void-same-binary");
	/* the machine that one leg's GPU stands in is the machine of the leg that uses none, unless two are named */
	change_report("before", "host gpu", json_string("NVIDIA H200"));
	judge();
	leg_is("before", "VOID", "null", "the same run as leg after");
	change_report("after", "host gpu", json_string("NVIDIA A100"));
	judge();
	varies("host");
	stop();
	use("void-same-binary");
	rewrite_recipe("before: {engine: {argv: [build-old/assay-engine]}}",
		       "before: {engine: {argv: [build-old/assay-engine]}, at: [{layers: \"0\", mamba.decode: chunk}]}");
	for (int i = 1; i < 3; i++)
		change_report("before", elsewhere[i], json_loads("[{\"layers\": \"0\", \"mamba.decode\": \"chunk\"}]", 0, NULL));
	judge();
	ck_assert_ptr_null(strstr(leg_says("before", "reason"), "the same run"));
	varies("at");
}
END_TEST

/* An audit that was asked for must be there; the verdict keeps what it says. */
START_TEST(the_audit)
{
	use("near-tie");
	rewrite_recipe("step: {}", "step: {audit: on}");
	judge();
	leg_is("step", "VOID", "null", "the device audit was asked, and the report has none");
	change_report("step", "audit", json_loads("{\"source\": \"cupti\", \"agrees\": true, \"mismatches\": [], "
						  "\"kernels\": [{\"name\": \"copy_rows\", \"launches\": 46}]}", 0, NULL));
	judge();
	leg_is("step", "DIVERGENCE", "NEAR-TIE", "tokens equal");
	const json_t *audit = json_object_get(json_object_get(json_object_get(verdict, "legs"), "step"), "audit");
	const json_t *kernel = json_array_get(json_object_get(audit, "kernels"), 0);

	ck_assert(json_is_true(json_object_get(audit, "agrees")));
	ck_assert_int_eq(json_integer_value(json_object_get(kernel, "launches")), 46);
}
END_TEST

START_TEST(a_row_longer_than_planned)
{
	use("near-tie");
	rewrite_recipe("steps: 12", "steps: 11");
	judge();
	leg_is("step", "VOID", "null", "free p0: 12 tokens came back, 11 were planned");
}
END_TEST

/* Files that no engine needs to read may be missing, but not differ. */
START_TEST(identity_of_the_model)
{
	use("near-tie");
	change_report("step", "model files tokenizer.json", NULL);
	judge();
	leg_is("step", "DIVERGENCE", "NEAR-TIE", "tokens equal");
	change(golden, "model files", json_object());
	rewrite_golden("step");
	judge();
	leg_is("step", "DIVERGENCE", "NEAR-TIE", "identity of the model NOT MEASURED");
}
END_TEST

START_TEST(contract_lines_say_what_was_found)
{
	const json_t *lines, *line;

	use("near-tie");
	rewrite_recipe("gathers: 0, scatters: 0}", "gathers: 0, scatters: 0, w8a8_calls: \">0\", w4a16_calls: \">=230\"}, prefill_step: {state_update_rows: mamba}");
	change_report("step", "modes free trace 4 w8a8_calls", json_integer(47));
	change_report("step", "modes free counters_total w8a8_calls", json_integer(36 * 46 + 1));
	judge();
	lines = json_object_get(json_object_get(json_object_get(verdict, "legs"), "step"), "contract");
	for (size_t i = 0; i < json_array_size(lines); i++) {
		line = json_array_get(lines, i);
		const char *counter = json_string_value(json_object_get(line, "counter")), *scope = json_string_value(json_object_get(line, "scope"));
		const json_t *got = json_object_get(line, "got");

		if (strcmp(json_string_value(json_object_get(line, "mode")), "free"))
			continue;
		if (!strcmp(counter, "w8a8_calls")) {
			ck_assert_str_eq(json_string_value(got), "46..47");
			ck_assert_str_eq(json_string_value(json_object_get(line, "want")), ">0");
			ck_assert(json_is_true(json_object_get(line, "ok")));
		}
		if (!strcmp(counter, "w4a16_calls"))
			ck_assert_int_eq(json_integer_value(got), 230);
		if (!strcmp(scope, "prefill_step")) {
			ck_assert(json_is_false(json_object_get(line, "ok")));
			ck_assert_int_eq(json_integer_value(got), 0);
			ck_assert_int_eq(json_integer_value(json_object_get(line, "rows")), 3);
			ck_assert_int_eq(json_integer_value(json_object_get(line, "bad_rows")), 3);
			ck_assert_int_eq(json_integer_value(json_object_get(line, "row")), 0);
		}
	}
	leg_is("step", "VOID", "null", "free prefill_step state_update_rows: want mamba, got 0 in row 0 (3 of 3 rows)");
}
END_TEST

/* ---- process ends */

static void put_exit(const char *leg, const char *code, const char *sig, bool timed_out, const char *line)
{
	char *name = xasprintf("legs/%s.exit.json", leg);
	char *text = xasprintf("{\"schema\":\"assay/exit/1\",\"leg\":\"%s\",\"argv\":[\"e\"],\"started\":\"2026-12-01T00:00:00Z\","
			       "\"ended\":\"2026-12-01T00:00:01Z\",\"exit_code\":%s,\"signal\":%s,\"timed_out\":%s,\"stderr_tail\":[\"%s\"]}",
			       leg, code, sig, timed_out ? "true" : "false", line);

	write_text(name, text);
	free(text);
	free(name);
}

START_TEST(processes_end_in_many_ways)
{
	use("batched");
	put_exit("step", "77", "null", false, "no CUDA device");
	remove_file("legs/step.json");
	judge();
	leg_is("step", "NOT MEASURED", "null", "cannot run here: no CUDA device");
	leg_is("chunk", "STRICT PASS", "EQUIVALENT", "24/24 tokens equal in mode forced");
	ck_assert_int_eq(verdict_exit_code(verdict), 4);
	ck_assert_str_eq(overall(), "NOT MEASURED");
	put_exit("step", "1", "null", false, "out of disk");
	judge();
	leg_is("step", "ERROR", "null", "exit code 1: out of disk");
	put_exit("step", "null", "\"SIGKILL\"", true, "p1");
	judge();
	leg_is("step", "ERROR", "null", "timed out: p1");
	put_exit("step", "77", "null", true, "no device");      /* its last word came too late */
	judge();
	leg_is("step", "ERROR", "null", "timed out: no device");
	put_exit("step", "0", "null", false, "");
	judge();
	leg_is("step", "ERROR", "null", "left no report");
	write_text("legs/step.exit.json", "{\"schema\":\"assay/exit/1\",\"leg\":\"step\",\"argv\":[\"x\"],\"started\":\"2026-12-01T00:00:00Z\","
		   "\"ended\":null,\"exit_code\":null,\"signal\":null,\"timed_out\":false,\"stderr_tail\":[\"p3\"]}");
	judge();
	leg_is("step", "ERROR", "null", "did not end: p3");
	remove_file("legs/step.exit.json");
	judge();
	leg_is("step", "ERROR", "null", "was not run");
	write_text("legs/step.json", "{\"schema\": \"assay/report/1\", ");
	judge();
	leg_is("step", "ERROR", "null", "legs/step.json");
	ck_assert_int_eq(verdict_exit_code(verdict), 2);
}
END_TEST

/* An edited report is that leg's error, with file and place, and the other legs are judged. */
START_TEST(a_report_that_contradicts_itself)
{
	static const struct { const char *path; double value; const char *says; } edits[] = {
		{ "margin", 0.5, "$.modes.forced.prompts[1].steps[3]: margin is 0.5, but" },
		{ "lse", -3, "$.modes.forced.prompts[1].steps[3]: lse is -3, with which" },
		{ "given 1", 1000, "$.modes.forced.prompts[1].steps[3]: given has the logit 1000, top has" },
		{ "given 2", 20, "$.modes.forced.prompts[1].steps[3]: given has the rank 20, but 0 of top are better and no more" },
	};
	char *path = xasprintf("modes forced prompts 1 steps 3 %s", edits[_i].path);

	use("batched");
	change_report("chunk", path, edits[_i].value == 20 ? json_integer(20) : json_real(edits[_i].value));
	judge();
	leg_is("chunk", "ERROR", "null", edits[_i].says);
	leg_is("chunk", "ERROR", "null", "/legs/chunk.json: ");
	leg_is("step", "STRICT PASS", "EQUIVALENT", "");
	ck_assert_int_eq(verdict_exit_code(verdict), 2);
	free(path);
}
END_TEST

/* The golden's tokens, over logits that prefer another: an engine that repeats what it was asked for is found out. */
START_TEST(tokens_that_its_own_logits_deny)
{
	use("strict-pass-equivalent");
	json_t *report = read_json("legs/step.json"), *step = json_array_get(json_object_get(json_array_get(json_object_get(json_object_get(
		json_object_get(report, "modes"), "free"), "prompts"), 0), "steps"), 3), *top = json_object_get(step, "top");
	json_t *first = json_incref(json_array_get(json_array_get(top, 0), 0)), *second = json_incref(json_array_get(json_array_get(top, 1), 0));

	json_array_set_new(json_array_get(top, 0), 0, second);
	json_array_set_new(json_array_get(top, 1), 0, first);
	json_object_set_new(step, "logits_xxh64", json_string("0123456789abcdef"));      /* no longer those of mode forced */
	write_json("legs/step.json", report);
	json_decref(report);
	judge();
	leg_is("step", "DIVERGENCE", "EXCESS", "free p0[3]: the token is not the best of its own logits (1 such positions)");
	ck_assert_int_eq(verdict_exit_code(verdict), 1);
}
END_TEST

START_TEST(the_end_of_another_leg)
{
	use("batched");
	put_exit("step", "0", "null", false, "");
	char *from = in_run("legs/step.exit.json"), *to = in_run("legs/chunk.exit.json");

	ck_assert(!file_copy(from, to, &err));
	judge();
	leg_is("step", "STRICT PASS", "EQUIVALENT", "");
	leg_is("chunk", "ERROR", "null", "legs/chunk.exit.json: is of leg `step`");
	free(from);
	free(to);
}
END_TEST

/* ---- what did not come back */

START_TEST(short_and_nothing)
{
	use("near-tie");
	change_report("step", "modes forced", NULL);
	judge();
	leg_is("step", "SHORT", "null", "forced: 0 of 36 positions came back");
	stop();
	use("free-hazard");
	change_report("step", "modes free", json_loads("{\"prompts\": [], \"counters_total\": {}, \"trace\": []}", 0, NULL));
	rewrite_recipe("  all: {total: {allocs_after_open: 0}}\n", "");
	rewrite_recipe(", total: {reference_tier: 0}", "");
	judge();
	leg_is("step", "NOT MEASURED", "null", "no position came back");
	ck_assert_int_eq(verdict_exit_code(verdict), 4);
}
END_TEST

static void set_all_logits(json_t *report, const char *mode, const char *value)
{
	json_t *prompts = json_object_get(json_object_get(json_object_get(report, "modes"), mode), "prompts"), *row, *step, *item;
	size_t p, t, i;

	json_array_foreach(prompts, p, row) {
		json_array_foreach(json_object_get(row, "steps"), t, step) {
			const json_t *top = json_object_get(step, "top");

			json_object_set_new(step, "margin", json_string(value));
			json_object_set_new(step, "lse", json_string(value));
			/* the reader wants the best first: one infinity at its end of the list */
			json_array_foreach(top, i, item)
				if (value[0] == 'n' || i == (value[0] == '-' ? json_array_size(top) - 1 : 0))
					json_array_set_new(item, 1, json_string(value));
			if (json_object_get(step, "given"))
				json_array_set_new(json_object_get(step, "given"), 1, json_string(value));
		}
	}
}

START_TEST(nothing_is_finite)
{
	static const char *const values[] = { "nan", "inf", "-inf" };

	use("near-tie");
	json_t *r = read_json("legs/step.json");

	set_all_logits(r, "free", values[_i]);
	set_all_logits(r, "forced", values[_i]);
	write_json("legs/step.json", r);
	json_decref(r);
	judge();
	leg_is("step", "DIVERGENCE", "EXCESS", "free p0[0]: a number is not finite (72 such positions)");
}
END_TEST

START_TEST(no_logits_in_free_mode)
{
	use("free-hazard");
	for (int p = 0; p < 3; p++) {
		char *path = xasprintf("modes free prompts %d steps", p);

		change_report("step", path, NULL);
		free(path);
	}
	judge();
	leg_is("step", "DIVERGENCE", "UNDETERMINED", "the leg gives no logits");
}
END_TEST

/* A golden whose rows are empty plans nothing. */
START_TEST(no_prompts_at_all)
{
	use("free-hazard");
	for (int k = 0; k < 4; k++)
		for (int p = 0; p < 3; p++) {
			char *ids = xasprintf("profiles %d prompts %d ids", k, p), *steps = xasprintf("profiles %d prompts %d steps", k, p);

			change(golden, ids, json_array());
			change(golden, steps, NULL);
			free(ids);
			free(steps);
		}
	rewrite_golden("step");
	judge();
	leg_is("step", "NOT MEASURED", "null", "no position was planned");
	remove_file("recipe.yaml");
	ck_assert_ptr_null(verdict_judge(run, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "recipe.yaml"));
}
END_TEST

START_TEST(prompts_that_the_golden_lacks)
{
	use("near-tie");
	rewrite_recipe("steps: 12", "prompts: [p0, p9]\nsteps: 12");
	ck_assert_ptr_null(verdict_judge(run, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "recipe.yaml:6:15: the golden has no prompt `p9`"));
}
END_TEST

/* The prompts asked for, in the order asked for, and no others. */
START_TEST(some_prompts)
{
	use("near-tie");
	rewrite_recipe("steps: 12", "prompts: [p2, p0]\nsteps: 12");
	judge();
	const json_t *leg = json_object_get(json_object_get(verdict, "legs"), "step"), *prompts = json_object_get(leg, "prompts");

	ck_assert_uint_eq(json_array_size(prompts), 2);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(prompts, 0), "id")), "p2");
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(leg, "tokens"), "planned")), 24);
}
END_TEST

/* ---- many damaged reports: a verdict or a complaint, and never a crash */

static uint64_t state = 7;

static size_t pick(size_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return n ? (size_t)(state % n) : 0;
}

static json_t *odd_value(void)
{
	static const char *const odd[] = { "null", "\"nan\"", "-1", "0", "2147483647", "1e300", "[]", "{}", "\"\"", "true", "\"inf\"",
		"[[1,2]]", "-1e-320" };

	return json_loads(odd[pick(sizeof odd / sizeof *odd)], JSON_DECODE_ANY, NULL);
}

/* Changes one member somewhere below. */
static void damage(json_t *at)
{
	json_t *child = NULL;
	const char *key = NULL;

	if (json_is_array(at) && json_array_size(at)) {
		size_t i = pick(json_array_size(at));

		child = json_array_get(at, i);
		if ((json_is_array(child) || json_is_object(child)) && pick(8)) {
			damage(child);
		} else if (pick(2)) {
			json_array_set_new(at, i, odd_value());
		} else {
			json_array_remove(at, i);
		}
	} else if (json_is_object(at) && json_object_size(at)) {
		size_t i = pick(json_object_size(at));
		void *it = json_object_iter(at);

		while (i--)
			it = json_object_iter_next(at, it);
		key = json_object_iter_key(it);
		child = json_object_iter_value(it);
		if ((json_is_array(child) || json_is_object(child)) && pick(8))
			damage(child);
		else if (pick(2))
			json_object_set_new(at, key, odd_value());
		else
			json_object_del(at, key);
	}
}

START_TEST(damaged_documents)
{
	static const char *const sources[] = { "near-tie", "seed-three-legs", "strict-pass-equivalent", "batched" };
	static const char *const legs[] = { "legs/step.json", "legs/on.json", "legs/arbiter.json", "legs/chunk.json" };
	int judged = 0;

	state += (uint64_t)_i * 1000003;
	use(sources[_i]);
	json_t *report = read_json(legs[_i]);

	for (int round = 0; round < 150; round++) {
		json_t *r = json_deep_copy(report), *g = json_deep_copy(golden);
		bool of_golden = pick(4) == 0;

		for (size_t n = 1 + pick(3); n > 0; n--)
			damage(of_golden ? g : r);
		write_json(legs[_i], r);
		write_json("golden.json", g);
		err = (struct err){ 0 };
		json_t *v = verdict_judge(run, &err);

		ck_assert(v || err.text[0]);
		ck_assert_msg(!v || schema_check("verdict", NULL, v, &err), "round %d: %s", round, err.text);
		judged += v != NULL;
		json_decref(v);
		json_decref(r);
		json_decref(g);
	}
	json_decref(report);
	ck_assert_int_ge(judged, 50);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("judge");
	TCase *c = tcase_create("damaged");

	tcase_set_timeout(c, 120);
	tcase_add_checked_fixture(c, NULL, stop);
	tcase_add_loop_test(c, each_reason_to_be_void, 0, sizeof voids / sizeof *voids);
	tcase_add_test(c, another_factor_than_the_recipe_asks_for);
	tcase_add_loop_test(c, pins_and_features, 0, 4);
	tcase_add_test(c, a_pin_of_a_file_not_named);
	tcase_add_test(c, a_prompt_with_one_id_more);
	tcase_add_test(c, more_than_none);
	tcase_add_test(c, blocks_that_are_not_known);
	tcase_add_test(c, a_step_of_both_kinds);
	tcase_add_test(c, legs_that_differ_elsewhere);
	tcase_add_test(c, the_audit);
	tcase_add_test(c, a_row_longer_than_planned);
	tcase_add_test(c, identity_of_the_model);
	tcase_add_test(c, contract_lines_say_what_was_found);
	tcase_add_test(c, processes_end_in_many_ways);
	tcase_add_loop_test(c, a_report_that_contradicts_itself, 0, 4);
	tcase_add_test(c, tokens_that_its_own_logits_deny);
	tcase_add_test(c, the_end_of_another_leg);
	tcase_add_test(c, short_and_nothing);
	tcase_add_loop_test(c, nothing_is_finite, 0, 3);
	tcase_add_test(c, no_logits_in_free_mode);
	tcase_add_test(c, no_prompts_at_all);
	tcase_add_test(c, prompts_that_the_golden_lacks);
	tcase_add_test(c, some_prompts);
	tcase_add_loop_test(c, damaged_documents, 0, 4);
	suite_add_tcase(s, c);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	return failed != 0;
}
