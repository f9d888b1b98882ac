/* Reports and exits of legs: what must be refused and where, what is read, and that writing loses nothing. */
#include <glob.h>
#include <math.h>
#include "help.h"
#include "contract/json.h"
#include "contract/report.h"
#include "schema_check.h"

#define DATA "contract/tests/data/report/"
#define EXITS "contract/tests/data/exit/"
#define SHA "e779982118ff8dcc702299cb869ed08facc8d056e863a140d0ec1658652648d9"

static struct report r;
static struct leg_exit e;
static struct err err;

static void start(void)
{
	r = (struct report){ 0 };
	e = (struct leg_exit){ 0 };
	err = (struct err){ 0 };
}

static void stop(void)
{
	report_release(&r);
	leg_exit_release(&e);
}

static int load(const char *path, struct err *to)
{
	return report_load(&r, path, to);
}

static int load_exit(const char *path, struct err *to)
{
	return leg_exit_load(&e, path, to);
}

START_TEST(refused)
{
	ck_assert_int_ge(help_refused("contract/tests/data/report", load), 80);
	ck_assert_ptr_null(r.leg);     /* a refused report leaves nothing to release */
}
END_TEST

START_TEST(refused_exits)
{
	ck_assert_int_ge(help_refused("contract/tests/data/exit", load_exit), 14);
	ck_assert_ptr_null(e.leg);
}
END_TEST

START_TEST(absent_files)
{
	ck_assert_int_eq(report_load(&r, DATA "absent.json", &err), -1);
	ck_assert_str_eq(err.text, DATA "absent.json: No such file or directory");
	err = (struct err){ 0 };
	ck_assert_int_eq(leg_exit_load(&e, EXITS "absent.json", &err), -1);
	ck_assert_str_eq(err.text, EXITS "absent.json: No such file or directory");
}
END_TEST

/* ---- what is read ---- */

START_TEST(minimal)
{
	const struct report_mode *m = &r.modes[MODE_FORCED];
	const struct report_step *s;

	ck_ok(load(DATA "minimal.json", &err), err);
	ck_assert_str_eq(r.leg, "on");
	ck_assert_int_eq(r.requested.value[FACTOR_MAMBA_PROJ], MAMBA_PROJ_W8A8);
	ck_assert_int_eq(r.requested.value[FACTOR_GRAPH], ARM_UNSET);
	ck_assert(arm_equal(&r.requested, &r.effective));
	ck_assert_int_eq(r.effective_at.n, 0);
	ck_assert_ptr_null(r.engine.git);
	ck_assert_int_eq(r.engine.dirty, -1);
	ck_assert_str_eq(r.engine.binary_sha256, "");
	ck_assert_ptr_null(r.engine.flags);
	ck_assert_int_eq(r.engine.n_features, 0);
	ck_assert_str_eq(r.host.name, "box");
	ck_assert_ptr_null(r.host.cuda);
	ck_assert_int_eq((int)r.host.cores, -1);
	ck_assert_int_eq((int)r.host.memory, -1);
	ck_assert_str_eq(r.golden_sha256, "");
	ck_assert(!r.modes[MODE_FREE].present);
	ck_assert(!r.timing.present);
	ck_assert(r.timing.verify_s < 0);
	ck_assert_ptr_null(r.busy);
	ck_assert_int_eq((int)r.peak_rss_bytes, -1);
	ck_assert_int_eq((int)r.peak_device_bytes, -1);
	ck_assert(!r.audit.present);
	ck_assert(m->present);
	ck_assert_ptr_eq(report_row_find(m, "p0"), m->rows);
	ck_assert_ptr_null(report_row_find(m, "p1"));
	ck_assert_ptr_null(m->rows[0].text);
	ck_assert(m->rows[0].wall_s < 0);
	s = m->rows[0].steps;
	ck_assert(s[0].has_logits && s[0].margin == 1.5 && s[0].lse == 9);
	ck_assert_int_eq(s[0].n_top, 2);
	ck_assert_int_eq(s[0].top[1].id, 6);
	ck_assert(s[0].top[1].value == 7);
	ck_assert(s[0].has_given && s[0].given == 6 && s[0].given_logit == 7 && s[0].given_rank == 2);
	ck_assert(s[0].has_hash && s[0].logits_xxh64 == 0xff);
	ck_assert(!s[1].has_logits && !s[1].has_given && !s[1].has_hash && s[1].id == 6 && s[1].n_top == 0);
	/* a counter that is not there is not zero */
	for (int c = 0; c < N_COUNTERS; c++) {
		ck_assert_int_eq((int)m->total.n[c], c == COUNT_GATHERS ? 2 : COUNTER_ABSENT);
		ck_assert_int_eq((int)m->trace[0].counters.n[c], c == COUNT_GATHERS ? 2 : COUNTER_ABSENT);
	}
	ck_assert_int_eq(m->n_trace, 1);
	ck_assert(m->trace[0].step == 0 && m->trace[0].T == 1 && m->trace[0].nd == 0 && m->trace[0].np == 1);
}
END_TEST

START_TEST(full)
{
	const struct report_mode *free_mode = &r.modes[MODE_FREE], *forced = &r.modes[MODE_FORCED];

	ck_ok(load(DATA "full.json", &err), err);
	ck_assert_int_eq(r.requested.value[FACTOR_BATCH], ARM_ALL);
	ck_assert_int_eq(r.effective.value[FACTOR_BATCH], 15);
	ck_assert_int_eq(r.requested_at.n, 2);
	ck_assert_str_eq(r.requested_at.item[0].layers, "0-11,30");
	ck_assert_int_eq(r.requested_at.item[1].arm.value[FACTOR_ATTN_KV], ATTN_KV_BF16);
	ck_assert_str_eq(r.engine.git, "00ff");
	ck_assert_int_eq(r.engine.dirty, 1);
	ck_assert_str_eq(r.engine.binary_sha256, SHA);
	ck_assert_str_eq(r.engine.flags, "-O3 \"x\"");
	ck_assert_int_eq(r.engine.n_features, 2);
	ck_assert_str_eq(r.engine.features[1].name, "cublaslt_fp8");
	ck_assert_str_eq(r.engine.features[1].value, "no such device");
	ck_assert_str_eq(r.host.cpu, "generic");
	ck_assert_str_eq(r.host.kernel, "6.1");
	ck_assert_str_eq(r.host.gpu, "NVIDIA H200");
	ck_assert_str_eq(r.host.arch, "sm_90");
	ck_assert_str_eq(r.host.driver, "580.1");
	ck_assert_str_eq(r.host.cuda, "13.0");
	ck_assert(r.host.cores == 2 && r.host.memory == 8589934592);
	ck_assert_str_eq(r.model.name, "book52");
	ck_assert_int_eq(r.model.n_files, 2);
	ck_assert_str_eq(r.model.files[0].name, "config.json");
	ck_assert_int_eq((int)json_integer_value(json_object_get(r.model.config, "hidden_size")), 64);
	ck_assert(r.model.mamba == 23 && r.model.attn == 6 && r.model.moe == 23 && r.model.mlp == 0 && r.model.layers == 52);
	ck_assert_str_eq(r.golden_sha256, SHA);
	ck_assert_int_eq(free_mode->n_rows, 2);
	ck_assert_ptr_null(free_mode->rows[0].steps);
	ck_assert_str_eq(free_mode->rows[0].text, " \xe2\x80\x9cx\xe2\x80\x9d");
	ck_assert(free_mode->rows[0].wall_s == 0.125);
	ck_assert_int_eq(free_mode->rows[1].prompt_ids[0], 2147483647);
	ck_assert_ptr_nonnull(free_mode->rows[1].steps);     /* it has logits, for none of its ids */
	ck_assert_int_eq(free_mode->n_trace, 0);
	ck_assert_str_eq(forced->rows[0].text, "");
	ck_assert(forced->rows[0].steps[0].logits_xxh64 == 0xfedcba9876543210);
	ck_assert(forced->rows[0].steps[0].lse == 23.7974472);
	ck_assert(!forced->rows[0].steps[1].has_logits && forced->rows[0].steps[1].has_given);
	ck_assert(forced->total.n[COUNT_ALLOCS_AFTER_OPEN] == INT64_MAX);
	ck_assert(forced->total.n[COUNT_STATE_UPDATE_ROWS] == 46 && forced->total.n[COUNT_GRAPH_REPLAYS] == 11);
	ck_assert_int_eq(forced->n_trace, 2);
	ck_assert(forced->trace[1].step == 1 && forced->trace[1].nd == 1);
	ck_assert(forced->trace[1].counters.n[COUNT_CHUNK_SCAN_CALLS] == 0);
	ck_assert(r.timing.present && r.timing.load_s == 1.5 && r.timing.prefill_s == 0.25 && r.timing.decode_s == 3);
	ck_assert(r.timing.verify_s == 0 && r.timing.p50 == 1.25 && r.timing.p90 == 2.5 && r.timing.p99 == 1e-5);
	ck_assert_int_eq((int)r.timing.n, 64);
	ck_assert(json_number_value(json_object_get(r.busy, "busy_share")) == 0.9);
	ck_assert(r.peak_rss_bytes == 123456789012 && r.peak_device_bytes == 0);
	ck_assert(r.audit.present && !r.audit.agrees);
	ck_assert_str_eq(r.audit.source, "cupti");
	ck_assert_int_eq(r.audit.n_mismatches, 1);
	ck_assert_str_eq(r.audit.mismatches[0], "ssm_step: 22 of 23");
	ck_assert_uint_eq(json_array_size(r.audit.kernels), 1);
}
END_TEST

START_TEST(numbers_that_are_not_finite)
{
	const struct report_step *s;

	ck_ok(load(DATA "not-finite.json", &err), err);
	s = r.modes[MODE_FORCED].rows[0].steps;
	ck_assert(isnan(s->margin) && s->lse == INFINITY && s->n_top == 5);
	ck_assert(s->top[0].value == INFINITY && isnan(s->top[2].value) && s->top[4].value == -INFINITY);
	ck_assert(isnan(s->given_logit));
	report_release(&r);
	ck_ok(load("gates/tests/verdicts/not-finite/legs/step.json", &err), err);
	ck_assert(isnan(r.modes[MODE_FREE].rows[0].steps[8].top[19].value));
}
END_TEST

/* members may stand in any order, though arrays are cut out in that of the text */
START_TEST(order_of_members)
{
	ck_ok(load(DATA "trace-first.json", &err), err);
	ck_assert_int_eq(r.modes[MODE_FREE].rows[0].steps[0].id, 3);
	ck_assert(r.modes[MODE_FREE].trace[0].step == 7);
	ck_assert(r.modes[MODE_FORCED].trace[0].step == 0);
	ck_assert_int_eq(r.modes[MODE_FORCED].rows[0].steps[1].id, 6);
}
END_TEST

/* `steps` and `trace` elsewhere are nobody's */
START_TEST(steps_in_the_config)
{
	char *config;

	ck_ok(load(DATA "steps-in-config.json", &err), err);
	config = json_dumps(r.model.config, JSON_COMPACT);
	ck_assert_str_eq(config, "{\"prompts\":[{\"steps\":[{\"id\":9}]}],\"trace\":[1,2],\"forced\":{\"trace\":[3]}}");
	ck_assert_int_eq(r.modes[MODE_FORCED].rows[0].steps[0].id, 5);
	ck_assert_int_eq(r.modes[MODE_FORCED].n_trace, 1);
	free(config);
}
END_TEST

START_TEST(absent_counter)
{
	const struct report_mode *m = &r.modes[MODE_FREE];

	ck_ok(load("gates/tests/verdicts/void-counter-missing/legs/step.json", &err), err);
	ck_assert(m->total.n[COUNT_GATHERS] == COUNTER_ABSENT && m->trace[1].counters.n[COUNT_GATHERS] == COUNTER_ABSENT);
	ck_assert(m->total.n[COUNT_SCATTERS] == 0 && m->trace[1].counters.n[COUNT_SCATTERS] == 0);
	ck_assert(m->total.n[COUNT_STATE_UPDATE_ROWS] == 414);
}
END_TEST

/* ---- against another parser, for everything that is shipped ---- */

static double value_of(const json_t *v)
{
	const char *s = json_string_value(v);

	return s == NULL ? json_number_value(v) : strtod(s, NULL);
}

static bool same(double a, double b)
{
	return a == b || (isnan(a) && isnan(b));
}

static int expect_step(const struct report_step *s, const json_t *step)
{
	const json_t *top = json_object_get(step, "top"), *given = json_object_get(step, "given");
	const char *hash = json_string_value(json_object_get(step, "logits_xxh64"));

	ck_assert_int_eq(s->id, (int)json_integer_value(json_object_get(step, "id")));
	ck_assert_int_eq(s->n_top, (int)json_array_size(top));
	ck_assert_int_eq(s->has_logits, top != NULL);
	if (top != NULL)
		ck_assert(same(s->margin, value_of(json_object_get(step, "margin"))) &&
			  same(s->lse, value_of(json_object_get(step, "lse"))));
	for (int j = 0; j < s->n_top; j++) {
		const json_t *pair = json_array_get(top, (size_t)j);

		ck_assert_int_eq(s->top[j].id, (int)json_integer_value(json_array_get(pair, 0)));
		ck_assert(same(s->top[j].value, value_of(json_array_get(pair, 1))));
	}
	ck_assert_int_eq(s->has_given, given != NULL);
	if (given != NULL)
		ck_assert(s->given == json_integer_value(json_array_get(given, 0)) &&
			  same(s->given_logit, value_of(json_array_get(given, 1))) &&
			  s->given_rank == json_integer_value(json_array_get(given, 2)));
	ck_assert_int_eq(s->has_hash, hash != NULL);
	ck_assert(hash == NULL || s->logits_xxh64 == strtoull(hash, NULL, 16));
	return s->n_top;
}

static void expect_counters(const struct counters *counters, const json_t *object)
{
	for (int c = 0; c < N_COUNTERS; c++) {
		const json_t *n = json_object_get(object, counter_name(c));

		ck_assert(counters->n[c] == (n != NULL ? json_integer_value(n) : COUNTER_ABSENT));
	}
}

static int expect_mode(const struct report_mode *m, const json_t *tree)
{
	const json_t *rows = json_object_get(tree, "prompts"), *trace = json_object_get(tree, "trace");
	int pairs = 0;

	ck_assert_int_eq(m->present, tree != NULL);
	ck_assert_int_eq(m->n_rows, (int)json_array_size(rows));
	ck_assert_int_eq(m->n_trace, (int)json_array_size(trace));
	if (tree != NULL)
		expect_counters(&m->total, json_object_get(tree, "counters_total"));
	for (int i = 0; i < m->n_rows; i++) {
		const json_t *row = json_array_get(rows, (size_t)i), *steps = json_object_get(row, "steps");

		ck_assert_str_eq(m->rows[i].id, json_string_value(json_object_get(row, "id")));
		ck_assert_int_eq(m->rows[i].steps != NULL, steps != NULL);
		ck_assert_int_eq(m->rows[i].n, (int)json_array_size(json_object_get(row, "ids")));
		for (int j = 0; steps != NULL && j < m->rows[i].n; j++)
			pairs += expect_step(&m->rows[i].steps[j], json_array_get(steps, (size_t)j));
	}
	for (int i = 0; i < m->n_trace; i++) {
		const json_t *row = json_array_get(trace, (size_t)i);

		ck_assert(m->trace[i].step == json_integer_value(json_object_get(row, "step")));
		ck_assert(m->trace[i].T == json_integer_value(json_object_get(row, "T")));
		ck_assert(m->trace[i].nd == json_integer_value(json_object_get(row, "nd")));
		ck_assert(m->trace[i].np == json_integer_value(json_object_get(row, "np")));
		expect_counters(&m->trace[i].counters, row);
	}
	return pairs;
}

/* Equal as documents: 1 and 1.0 are one number, no layers are null or an empty list, what a row need not say is null. */
static void expect_same(const json_t *a, const json_t *b, const char *path)
{
	const char *key;
	char inner[512];
	json_t *value;
	size_t i;

	if (json_is_array(a) && json_array_size(a) == 0 && json_is_null(b))
		return;
	if (json_is_number(a) && json_is_number(b)) {
		ck_assert_msg(json_number_value(a) == json_number_value(b), "%s: %.17g, %.17g", path, json_number_value(a),
			      json_number_value(b));
		return;
	}
	ck_assert_msg(a != NULL && b != NULL && json_typeof(a) == json_typeof(b), "%s: %s, %s", path, json_says(a), json_says(b));
	if (json_is_object(a)) {
		ck_assert_msg(json_object_size(a) == json_object_size(b), "%s: members", path);
		json_object_foreach((json_t *)a, key, value)
			expect_same(value, json_object_get(b, key), json_path(inner, sizeof(inner), path, key));
	} else if (json_is_array(a)) {
		ck_assert_msg(json_array_size(a) == json_array_size(b), "%s: items", path);
		json_array_foreach(a, i, value) {
			snprintf(inner, sizeof(inner), "%s[%zu]", path, i);
			expect_same(value, json_array_get(b, i), inner);
		}
	} else {
		ck_assert_msg(json_equal(a, b), "%s", path);
	}
}

/* Loads, compares with jansson's tree, saves, and compares the saved document with the tree; returns the pairs seen. */
static int there_and_back(const char *path)
{
	char *dir = help_directory(), *copy = path_join(dir, "copy.json");
	json_t *tree = json_load_file(path, 0, NULL), *saved, *modes;
	int pairs = 0;

	ck_assert_ptr_nonnull(tree);
	ck_assert_msg(schema_check("report", NULL, tree, &err), "%s: %s", path, err.text);
	ck_ok(load(path, &err), err);
	modes = json_object_get(tree, "modes");
	for (int m = 0; m < N_MODES; m++)
		pairs += expect_mode(&r.modes[m], json_object_get(modes, mode_name(m)));
	ck_ok(report_save(&r, copy, &err), err);
	saved = json_load_file(copy, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(saved);
	ck_assert_msg(schema_check("report", NULL, saved, &err), "%s: %s", path, err.text);
	expect_same(tree, saved, "$");
	json_decref(saved);
	json_decref(tree);
	report_release(&r);
	free(copy);
	help_remove(dir);
	return pairs;
}

START_TEST(canned_reports)
{
	int pairs = 0, reports = 0, exits = 0;
	glob_t found;

	ck_assert_int_eq(glob("gates/tests/verdicts/*/legs/*.json", 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		if (strstr(found.gl_pathv[i], ".exit.json") != NULL) {
			ck_ok(load_exit(found.gl_pathv[i], &err), err);
			leg_exit_release(&e);
			exits++;
			continue;
		}
		pairs += there_and_back(found.gl_pathv[i]);
		reports++;
	}
	ck_assert_int_ge(reports, 40);
	ck_assert_int_ge(exits, 2);
	ck_assert_int_ge(pairs, 20000);
	globfree(&found);
}
END_TEST

START_TEST(full_there_and_back)
{
	ck_assert_int_eq(there_and_back(DATA "full.json"), 2);
}
END_TEST

/* ---- what is written ---- */

static char *dir, *copy;

static void save_and_slurp(char **text)
{
	size_t size;

	dir = help_directory();
	copy = path_join(dir, "copy.json");
	ck_ok(report_save(&r, copy, &err), err);
	*text = help_slurp(copy, &size);
	ck_assert_int_eq(help_count(dir), 1);
	free(copy);
	help_remove(dir);
}

/* Text for text: keys, their order and the layout. */
START_TEST(saved_text)
{
	char *saved, *expected;
	size_t size;

	ck_ok(load(DATA "full.json", &err), err);
	save_and_slurp(&saved);
	expected = help_slurp(DATA "full.json", &size);
	help_same_text(saved, expected);
	free(expected);
	free(saved);
}
END_TEST

/* 0.1f and a third: nine digits give the float back, and compute f64 keeps the double */
START_TEST(digits)
{
	struct report_step *s;
	char *saved;

	ck_ok(load(DATA "minimal.json", &err), err);
	s = &r.modes[MODE_FORCED].rows[0].steps[0];
	s->top[0].value = (double)0.1f;
	s->top[1].value = -1.0 / 3;
	s->margin = s->top[0].value - s->top[1].value;
	save_and_slurp(&saved);
	ck_assert_ptr_nonnull(strstr(saved, "\"margin\":0.433333335,"));
	ck_assert_ptr_nonnull(strstr(saved, "\"top\":[[5,0.100000001],[6,-0.333333333]]"));
	free(saved);
	r.effective.value[FACTOR_COMPUTE] = COMPUTE_F64;
	save_and_slurp(&saved);
	ck_assert_ptr_nonnull(strstr(saved, "\"top\":[[5,0.10000000149011612],[6,-0.3333333333333333]]"));
	free(saved);
}
END_TEST

/* a name in bytes that are not UTF-8 must not cost the report */
START_TEST(foreign_bytes)
{
	char *saved;

	ck_ok(load(DATA "minimal.json", &err), err);
	free(r.host.name);
	r.host.name = xstrdup("caf\xe9");
	save_and_slurp(&saved);
	ck_assert_ptr_nonnull(strstr(saved, "\"name\":\"caf\xef\xbf\xbd\""));
	free(saved);
}
END_TEST

START_TEST(save_refuses)
{
	ck_ok(load(DATA "minimal.json", &err), err);
	ck_assert_int_eq(report_save(&r, "contract/tests/data/absent/x.json", &err), -1);
	ck_assert_int_eq(err.kind, ERR_FAILED);
	ck_assert_str_eq(err.text, "contract/tests/data/absent/x.json: cannot write: No such file or directory");
}
END_TEST

/* ---- exits ---- */

START_TEST(exits)
{
	ck_ok(load_exit(EXITS "ended.json", &err), err);
	ck_assert_str_eq(e.leg, "on");
	ck_assert_int_eq(e.argc, 2);
	ck_assert_str_eq(e.argv[1], "run");
	ck_assert_ptr_null(e.argv[2]);
	ck_assert_str_eq(e.started, "2026-12-01T00:00:00Z");
	ck_assert_str_eq(e.ended, "2026-12-01T00:00:05Z");
	ck_assert_int_eq(e.exit_code, 77);
	ck_assert_str_eq(e.signal, "");
	ck_assert(!e.timed_out);
	ck_assert_int_eq(e.n_tail, 2);
	ck_assert_str_eq(e.tail[1], "\xc3\xa9\t");
	leg_exit_release(&e);
	ck_ok(load_exit(EXITS "killed.json", &err), err);
	ck_assert_int_eq(e.exit_code, -1);
	ck_assert_str_eq(e.signal, "SIGKILL");
	leg_exit_release(&e);
	ck_ok(load_exit(EXITS "timed-out.json", &err), err);
	ck_assert(e.timed_out);
	leg_exit_release(&e);
	ck_ok(load_exit(EXITS "running.json", &err), err);
	ck_assert_str_eq(e.ended, "");
}
END_TEST

START_TEST(exits_there_and_back)
{
	static const char *const names[] = { "ended", "killed", "timed-out", "running" };

	dir = help_directory();
	copy = path_join(dir, "copy.json");
	for (int i = 0; i < 4; i++) {
		char *path = xasprintf(EXITS "%s.json", names[i]), *text, *expected;
		json_t *saved;
		size_t size;

		ck_ok(load_exit(path, &err), err);
		ck_ok(leg_exit_save(&e, copy, &err), err);
		text = help_slurp(copy, &size);
		expected = help_slurp(path, &size);
		ck_assert_str_eq(text, expected);
		saved = json_load_file(copy, JSON_REJECT_DUPLICATES, NULL);
		ck_assert_msg(schema_check("report", "exit", saved, &err), "%s", err.text);
		json_decref(saved);
		free(expected);
		free(text);
		leg_exit_release(&e);
		free(path);
	}
	/* what a child prints may be any bytes */
	ck_ok(load_exit(EXITS "ended.json", &err), err);
	free(e.tail[0]);
	e.tail[0] = xstrdup("\xff" "abc");
	ck_ok(leg_exit_save(&e, copy, &err), err);
	leg_exit_release(&e);
	ck_ok(load_exit(copy, &err), err);
	ck_assert_str_eq(e.tail[0], "\xef\xbf\xbd" "abc");
	free(copy);
	help_remove(dir);
}
END_TEST

/* ---- damage ---- */

static void load_damaged(const char *bytes, size_t size, bool must_fail)
{
	char *exact = xmalloc(size);
	int status;

	memcpy(exact, bytes, size);
	status = report_load_bytes(&r, exact, size, "f", &err);
	ck_assert(!must_fail || status == -1);
	ck_assert_int_eq(status == -1, err.kind == ERR_INPUT);
	ck_assert(status == 0 || strchr(err.text, '\n') == NULL);
	report_release(&r);
	err = (struct err){ 0 };
	free(exact);
}

START_TEST(truncated_everywhere)
{
	size_t size;
	char *bytes = help_slurp(DATA "full.json", &size);

	for (size_t n = 0; n + 1 < size; n++)
		load_damaged(bytes, n, true);
	free(bytes);
}
END_TEST

START_TEST(damaged_everywhere)
{
	static const char with[] = "\"{}[],:0-\0\xff";
	size_t size;
	char *bytes = help_slurp(DATA "minimal.json", &size);

	for (size_t i = 0; i < size; i++) {
		char old = bytes[i];

		for (size_t j = 0; j < sizeof(with) - 1; j++) {
			bytes[i] = with[j];
			load_damaged(bytes, size, false);
		}
		bytes[i] = old;
	}
	free(bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("report");
	TCase *tc = tcase_create("report");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, start, stop);
	tcase_add_test(tc, refused);
	tcase_add_test(tc, refused_exits);
	tcase_add_test(tc, absent_files);
	tcase_add_test(tc, minimal);
	tcase_add_test(tc, full);
	tcase_add_test(tc, numbers_that_are_not_finite);
	tcase_add_test(tc, order_of_members);
	tcase_add_test(tc, steps_in_the_config);
	tcase_add_test(tc, absent_counter);
	tcase_add_test(tc, canned_reports);
	tcase_add_test(tc, full_there_and_back);
	tcase_add_test(tc, saved_text);
	tcase_add_test(tc, digits);
	tcase_add_test(tc, foreign_bytes);
	tcase_add_test(tc, save_refuses);
	tcase_add_test(tc, exits);
	tcase_add_test(tc, exits_there_and_back);
	tcase_add_test(tc, truncated_everywhere);
	tcase_add_test(tc, damaged_everywhere);
	suite_add_tcase(suite, tc);
	return help_run(suite);
}
