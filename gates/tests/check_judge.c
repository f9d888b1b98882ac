/* The judge where the canned cases do not go: what makes a leg VOID, damaged runs, and the thread's three legs as a story. */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/file.h"
#include "contract/json.h"
#include "contract/tests/schema_check.h"
#include "gates/evidence.h"
#include "gates/until.h"
#include "gates/verdict.h"

#define CASES "gates/tests/verdicts/"

/* ---- a run directory that can be changed */

static char run[64];
static json_t *golden, *verdict;
static struct err err;

static char *in_run(const char *name)
{
	return path_join(run, name);
}

static void copy_files(const char *from, const char *to)
{
	DIR *dir = opendir(from);
	struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		char *a = path_join(from, entry->d_name), *b = path_join(to, entry->d_name);

		if (strchr(entry->d_name, '.') && entry->d_name[0] != '.')
			ck_assert_msg(!file_copy(a, b, &err), "%s", err.text);
		free(a);
		free(b);
	}
	closedir(dir);
}

static json_t *read_json(const char *name)
{
	char *path = in_run(name);
	json_t *j = json_read_file(path, false, &err);

	ck_assert_msg(j != NULL, "%s", err.text);
	free(path);
	return j;
}

static void write_json(const char *name, const json_t *j)
{
	char *path = in_run(name);

	ck_assert_msg(!json_write_file(j, path, JSON_COMPACT, &err), "%s", err.text);
	free(path);
}

static void write_text(const char *name, const char *text)
{
	char *path = in_run(name);

	ck_assert(!file_write(path, text, strlen(text), &err));
	free(path);
}

static void remove_file(const char *name)
{
	char *path = in_run(name);

	ck_assert_int_eq(unlink(path), 0);
	free(path);
}

/* Starts from a canned case. */
static void use(const char *name)
{
	char *from = xasprintf(CASES "%s", name), *legs = path_join(from, "legs"), *to;

	err = (struct err){ 0 };
	strcpy(run, "/tmp/assay-judge-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(run));
	to = in_run("legs");
	ck_assert(!file_mkdirs(to, &err));
	copy_files(from, run);
	copy_files(legs, to);
	golden = read_json("golden.json");
	free(from);
	free(legs);
	free(to);
}

static void remove_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char *inside = path_join(path, entry->d_name);

		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && unlink(inside))
			remove_tree(inside);
		free(inside);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static void stop(void)
{
	json_decref(golden);
	json_decref(verdict);
	golden = verdict = NULL;
	if (run[0])
		remove_tree(run);
	run[0] = '\0';
}

static void judge(void)
{
	json_decref(verdict);
	verdict = verdict_judge(run, &err);
	ck_assert_msg(verdict != NULL, "%s", err.text);
	ck_assert_msg(schema_check("verdict", NULL, verdict, &err), "%s", err.text);
}

static const char *leg_says(const char *leg, const char *key)
{
	const json_t *v = json_object_get(json_object_get(json_object_get(verdict, "legs"), leg), key);

	return json_is_string(v) ? json_string_value(v) : "null";
}

static void leg_is(const char *leg, const char *want, const char *adjudication, const char *reason)
{
	ck_assert_msg(!strcmp(leg_says(leg, "verdict"), want), "%s is %s: %s", leg, leg_says(leg, "verdict"), leg_says(leg, "reason"));
	ck_assert_str_eq(leg_says(leg, "adjudication"), adjudication);
	ck_assert_msg(strstr(leg_says(leg, "reason"), reason) != NULL, "`%s` is not in `%s`", reason, leg_says(leg, "reason"));
}

static const char *overall(void)
{
	return json_string_value(json_object_get(json_object_get(verdict, "overall"), "verdict"));
}

/* Judges with a report that was changed by a jansson path: "modes free prompts 0 ids 3", value NULL: deleted. */
static json_t *walk(json_t *at, const char *path, char last[64])
{
	char *copy = xstrdup(path), *save = NULL, *word = strtok_r(copy, " ", &save), *next;

	for (; (next = strtok_r(NULL, " ", &save)); word = next)
		at = json_is_array(at) ? json_array_get(at, (size_t)atoi(word)) : json_object_get(at, word);
	snprintf(last, 64, "%s", word);
	free(copy);
	ck_assert_msg(at != NULL, "no %s", path);
	return at;
}

static void change(json_t *doc, const char *path, json_t *value)
{
	char last[64];
	json_t *at = walk(doc, path, last);

	if (json_is_array(at) && !value)
		ck_assert(!json_array_remove(at, (size_t)atoi(last)));
	else if (json_is_array(at))
		ck_assert(!json_array_set_new(at, (size_t)atoi(last), value));
	else if (!value)
		ck_assert(!json_object_del(at, last));
	else
		ck_assert(!json_object_set_new(at, last, value));
}

static void change_report(const char *leg, const char *path, json_t *value)
{
	char *name = xasprintf("legs/%s.json", leg);
	json_t *r = read_json(name);

	change(r, path, value);
	write_json(name, r);
	json_decref(r);
	free(name);
}

/* The golden of the run, and the reports say that they saw it. */
static void rewrite_golden(const char *leg)
{
	char *path = in_run("golden.json"), hex[SHA256_HEX];

	write_json("golden.json", golden);
	ck_assert(!sha256_file(path, hex, &err));
	change_report(leg, "golden_sha256", json_string(hex));
	free(path);
}

static void rewrite_recipe(const char *from, const char *to)
{
	char *path = in_run("recipe.yaml"), *old, *at, *new;
	size_t size;

	old = file_read(path, 1 << 20, &size, &err);
	at = strstr(old, from);
	ck_assert_msg(at != NULL, "`%s` is not in the recipe", from);
	new = xasprintf("%.*s%s%s", (int)(at - old), old, to, at + strlen(from));
	write_text("recipe.yaml", new);
	free(new);
	free(old);
	free(path);
}

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
	{ "modes forced prompts 2 steps 4 given 0", "9", "forced p2[4]: the id that was fed is not the golden's" },
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
	put_exit("step", "0", "null", false, "");
	judge();
	leg_is("step", "ERROR", "null", "left no report");
	remove_file("legs/step.exit.json");
	judge();
	leg_is("step", "ERROR", "null", "was not run");
	write_text("legs/step.json", "{\"schema\": \"assay/report/1\", ");
	judge();
	leg_is("step", "ERROR", "null", "legs/step.json");
	ck_assert_int_eq(verdict_exit_code(verdict), 2);
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
	Suite *s = suite_create("judge");
	TCase *c = tcase_create("judge");

	tcase_set_timeout(c, 120);
	tcase_add_checked_fixture(c, NULL, stop);
	tcase_add_loop_test(c, each_reason_to_be_void, 0, sizeof voids / sizeof *voids);
	tcase_add_test(c, another_factor_than_the_recipe_asks_for);
	tcase_add_loop_test(c, pins_and_features, 0, 4);
	tcase_add_test(c, a_row_longer_than_planned);
	tcase_add_test(c, identity_of_the_model);
	tcase_add_test(c, contract_lines_say_what_was_found);
	tcase_add_test(c, processes_end_in_many_ways);
	tcase_add_test(c, short_and_nothing);
	tcase_add_loop_test(c, nothing_is_finite, 0, 3);
	tcase_add_test(c, no_logits_in_free_mode);
	tcase_add_test(c, no_prompts_at_all);
	tcase_add_test(c, prompts_that_the_golden_lacks);
	tcase_add_test(c, some_prompts);
	tcase_add_loop_test(c, damaged_documents, 0, 4);
	tcase_add_test(c, the_story_of_three_legs);
	tcase_add_test(c, explained_before_anything_runs);
	tcase_add_test(c, positions_that_would_decide);
	tcase_add_test(c, power_by_hand);
	tcase_add_test(c, drift_needs_three_positions);
	tcase_add_test(c, flip_chance_is_capped);
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
