/* Pairs of legs that are timed in turns: the ratio and its interval, what refuses it, and the runner that runs them. */
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "gates/bench_array.h"
#include "beside_rig.h"
#include "reported.h"

#define TURNS 5

static struct evidence *e;
static struct speed *pair;

/* Times of five turns by hand: log ratios ln 2 plus 0, 0.1, -0.1, 0.2, -0.2. */
static const double times[TURNS][2] = { { 2, 1 }, { 2.210341836151295, 1 }, { 3.6193496721438385, 2 }, { 2.4428055163203397, 1 },
	{ 1.6374615061559636, 1 } };

static json_t *watch(int samples)
{
	return json_pack("{s:i, s:i, s:f, s:{s:i, s:i, s:i}, s:s}", "hz", 10, "samples", samples, "busy_share", 0.9, "sm_clock", "min", 1900,
			 "p50", 1980, "max", 1980, "window", "decode");
}

/* Two legs of two engines on one idle device, each of which gave in every turn what it gave when it was judged. */
static void two_engines(void)
{
	use("strict-pass-equivalent");
	load();
	e = &found.evidence;
	ck_assert_int_eq(e->n_legs, 2);
	e->speed = pair = xcalloc(1, sizeof(*pair));
	e->n_speed = 1;
	e->recipe.speed = xcalloc(1, sizeof(*e->recipe.speed));
	e->recipe.speed[0] = (struct speed_pair){ 0, 1 };
	e->recipe.n_speed = 1;
	*pair = (struct speed){ .leg = { 0, 1 }, .turns = xcalloc(TURNS, sizeof(*pair->turns)), .n = TURNS };
	for (int l = 0; l < 2; l++) {
		struct report *r = &e->legs[l].report;

		e->legs[l].verdict = LEG_STRICT_PASS;
		free(r->host.gpu);
		r->host.gpu = xstrdup("NVIDIA H200");
		r->effective.value[FACTOR_BACKEND] = BACKEND_CUDA;
		for (int t = 0; t < TURNS; t++) {
			struct speed_side *side = &pair->turns[t].side[l];

			*side = (struct speed_side){ .p50 = times[t][l], .p90 = 4, .n = 20, .busy = watch(6) };
			speed_digest(side->ids_sha256, r, MODE_FREE);
		}
	}
	free(e->legs[1].report.engine.name);
	e->legs[1].report.engine.name = xstrdup("other");
}

static void refused(const char *says)
{
	speed_judge(pair, e);
	if (says) {
		ck_assert_ptr_nonnull(pair->refused);
		has(pair->refused, says);
	} else {
		ck_assert_msg(pair->refused == NULL, "%s", pair->refused);
	}
	json_object_set_new(found.verdict, "speed", speed_findings(e));
	ck_assert_msg(schema_check("verdict", NULL, found.verdict, &err), "%s", err.text);

	/* the records say the same, and no ratio where there is none */
	json_t *lines = bench_records(&found, "2026-12-01T00:00:00Z"), *line, *against = json_object_get(json_array_get(lines, 0), "against");
	size_t i;

	json_array_foreach(lines, i, line)
		ck_assert_msg(schema_check("bench", NULL, line, &err), "%s", err.text);
	ck_assert_int_eq(json_object_get(against, "ratio") != NULL, says == NULL);
	if (says)
		has(json_string_value(json_object_get(against, "refused")), says);
	json_decref(lines);
}

static void watch_all(int leg, json_t *busy)
{
	for (int t = 0; t < TURNS; t++) {
		json_decref(pair->turns[t].side[leg].busy);
		pair->turns[t].side[leg].busy = json_incref(busy);
	}
	json_decref(busy);
}

static void is_near(double x, double want)
{
	ck_assert_double_eq_tol(x, want, 1e-9 * want);
}

/* sd of 0, .1, -.1, .2, -.2 is sqrt(.1 / 4); t(.975, 4) = 2.7764451051977987; the half width is t sd / sqrt(5). */
START_TEST(a_ratio_from_the_differences)
{
	two_engines();
	refused(NULL);
	double half = 2.7764451051977987 * 0.15811388300841897 / 2.23606797749979;

	is_near(pair->ratio, 2);
	is_near(pair->lower, 2 * exp(-half));
	is_near(pair->upper, 2 * exp(half));
	is_near(pair->ms[0], 2.210341836151295);
	is_near(pair->ms[1], 1);

	json_t *lines = bench_records(&found, "2026-12-01T00:00:00Z"), *line = json_array_get(lines, 0);
	const json_t *against = json_object_get(line, "against"), *metric = json_object_get(line, "metric");

	ck_assert_str_eq(json_string_value(json_object_get(against, "peer")), "other");
	ck_assert_double_eq(json_real_value(json_object_get(against, "ratio")), 2);
	ck_assert_double_eq(json_real_value(json_object_get(against, "lower")), 1.643);
	ck_assert_double_eq(json_real_value(json_object_get(against, "upper")), 2.434);
	ck_assert_int_eq(json_integer_value(json_object_get(against, "turns")), TURNS);
	ck_assert_double_eq(json_real_value(json_object_get(metric, "value")), 2.21);
	ck_assert_int_eq(json_integer_value(json_object_get(metric, "n")), 100);
	is_near(json_real_value(json_object_get(line, "busy")), 0.9);
	/* the second leg has its own time and no peer: it began no pair, and the other engine did not race it so */
	has(json_string_value(json_object_get(json_object_get(json_array_get(lines, 1), "against"), "refused")), "did not run in turns");
	json_decref(lines);
}
END_TEST

START_TEST(a_sentence_for_readers)
{
	size_t size;

	two_engines();
	refused(NULL);
	char *sentence = speed_sentence(json_array_get(json_object_get(found.verdict, "speed"), 0)), *text = show_markdown(&found, &size);

	ck_assert_str_eq(sentence, "step takes 2 [1.64, 2.43] times as long as arbiter: 2.21 and 1 ms/token, 5 turns");
	has(text, "- speed: step takes 2 &#91;1.64, 2.43&#93; times as long");
	free(sentence);
	free(text);
}
END_TEST

START_TEST(few_samples)
{
	two_engines();
	watch_all(1, watch(5));
	refused("25 busy samples, fewer than 30");
	watch_all(1, NULL);
	refused("how busy the device was is not known");
}
END_TEST

START_TEST(clocks_that_wander)
{
	json_t *wide = watch(6), *clock = json_object_get(wide, "sm_clock");

	two_engines();
	/* 5 % of 1980 is 99; from one turn to the next counts too */
	json_object_set_new(clock, "min", json_integer(1881));
	watch_all(0, json_incref(wide));
	refused(NULL);
	watch_all(0, watch(6));
	json_object_set_new(clock, "min", json_integer(1880));
	json_object_set_new(clock, "max", json_integer(1880));
	json_decref(pair->turns[3].side[0].busy);
	pair->turns[3].side[0].busy = wide;
	refused("SM clock from 1880 to 1980 MHz, a spread of 5.1 %, over 5 %");
}
END_TEST

/* Of all turns together: the lowest, the middle and the highest clock. */
START_TEST(clocks_are_joined)
{
	static const int middle[TURNS] = { 1990, 1970, 1980, 1990, 1970 };

	two_engines();
	for (int t = 0; t < TURNS; t++)
		json_object_set_new(json_object_get(pair->turns[t].side[0].busy, "sm_clock"), "p50", json_integer(middle[t]));
	json_t *busy = speed_busy(pair, 0);
	const json_t *clock = json_object_get(busy, "sm_clock");

	is_near(json_number_value(json_object_get(clock, "min")), 1900);
	is_near(json_number_value(json_object_get(clock, "p50")), 1980);
	is_near(json_number_value(json_object_get(clock, "max")), 1980);
	ck_assert_int_eq(json_integer_value(json_object_get(busy, "samples")), 30);
	json_decref(busy);
}
END_TEST

START_TEST(others_on_the_device)
{
	json_t *busy = watch(6);

	two_engines();
	json_object_set_new(busy, "other_processes", json_integer(0));
	watch_all(0, json_deep_copy(busy));
	refused(NULL);
	json_object_set_new(busy, "other_processes", json_integer(2));
	json_decref(pair->turns[2].side[0].busy);
	pair->turns[2].side[0].busy = busy;
	refused("2 other compute processes");

	/* and the record says so beside its number */
	json_t *lines = bench_records(&found, "2026-12-01T00:00:00Z");

	ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(lines, 0), "other_processes")), 2);
	json_decref(lines);
}
END_TEST

START_TEST(another_box)
{
	two_engines();
	free(e->legs[0].report.host.gpu);
	e->legs[0].report.host.gpu = xstrdup("NVIDIA B200");
	refused("ran on different boxes");
	free(e->legs[0].report.host.gpu);
	e->legs[0].report.host.gpu = xstrdup("NVIDIA H200");
	free(e->legs[0].report.host.name);
	e->legs[0].report.host.name = xstrdup("elsewhere");
	refused("ran on different boxes");
}
END_TEST

START_TEST(what_was_not_proved_or_not_timed)
{
	two_engines();
	pair->turns[1].side[1].n = 4;
	refused("arbiter: 4 tokens were timed, fewer than 5");
	pair->turns[1].side[1].n = 20;
	pair->n = 4;
	refused("4 turns, fewer than 5");
	pair->n = TURNS;
	pair->failed = xstrdup("turn 3 of arbiter timed out");
	refused("turn 3 of arbiter timed out");
	free(pair->failed);
	pair->failed = NULL;
	pair->turns[4].side[0].ids_sha256[0] ^= 1;
	refused("step gave other tokens in turn 5 than those that were judged");
	e->legs[1].verdict = LEG_VOID;
	refused("arbiter is VOID");
	e->legs[1].verdict = LEG_ERROR;
	refused("arbiter is ERROR");
}
END_TEST

/* Two engines in one run, whose recipe does not pair them: two numbers, no ratio. */
START_TEST(no_ratio_without_turns)
{
	two_engines();
	speed_release(e->speed, e->n_speed);
	e->speed = NULL;
	e->n_speed = 0;
	json_t *lines = bench_records(&found, "2026-12-01T00:00:00Z"), *against = json_object_get(json_array_get(lines, 0), "against");

	ck_assert_str_eq(json_string_value(json_object_get(against, "refused")),
			 "step and arbiter did not run in turns: the recipe's `speed` does not pair them");
	ck_assert_ptr_null(json_object_get(against, "ratio"));
	json_decref(lines);
}
END_TEST

/* --until-decided runs prompts in an order of its own. */
START_TEST(the_order_of_prompts_is_no_matter)
{
	char before[SHA256_HEX], after[SHA256_HEX];

	two_engines();
	struct report_mode *m = &e->legs[0].report.modes[MODE_FREE];
	struct report_row kept = m->rows[0];

	speed_digest(before, &e->legs[0].report, MODE_FREE);
	m->rows[0] = m->rows[1];
	m->rows[1] = kept;
	speed_digest(after, &e->legs[0].report, MODE_FREE);
	ck_assert_str_eq(after, before);
	m->rows[0].ids[0]++;
	speed_digest(after, &e->legs[0].report, MODE_FREE);
	ck_assert_str_ne(after, before);
}
END_TEST

START_TEST(the_file_comes_back)
{
	struct speed *again;
	int n;

	two_engines();
	pair->turns[0].side[1].p50 = NAN;
	json_decref(pair->turns[0].side[1].busy);
	pair->turns[0].side[1].busy = NULL;
	json_t *document = speed_document(pair, 1, &e->recipe), *bad;
	char *path = in_run("speed.json");

	write_json("speed.json", document);
	ck_assert_msg(!speed_load(&again, &n, &e->recipe, path, &err), "%s", err.text);
	ck_assert(n == 1 && again->n == TURNS && again->leg[1] == 1 && !again->failed);
	ck_assert(isnan(again->turns[0].side[1].p50) && !again->turns[0].side[1].busy);
	ck_assert(again->turns[2].side[0].p50 == times[2][0] && again->turns[2].side[0].n == 20);
	ck_assert_str_eq(again->turns[4].side[1].ids_sha256, pair->turns[4].side[1].ids_sha256);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(json_array_get(json_object_get(document, "pairs"), 0),
			 "turns"), 1), "first")), "b");
	speed_release(again, n);

	/* and a bad one is refused in its place */
	bad = json_deep_copy(document);
	change(bad, "pairs 0 b", json_string("nobody"));
	write_json("speed.json", bad);
	ck_assert(speed_load(&again, &n, &e->recipe, path, &err));
	has(err.text, "speed.json: $.pairs[0].b: the recipe has no leg `nobody`");
	speed_release(again, n);
	err = (struct err){ 0 };
	json_decref(bad);
	bad = json_deep_copy(document);
	change(bad, "pairs 0 turns 3 a n", json_string("20"));
	write_json("speed.json", bad);
	ck_assert(speed_load(&again, &n, &e->recipe, path, &err));
	has(err.text, "$.pairs[0].turns[3].a.n: expected an integer");
	speed_release(again, n);
	json_decref(bad);
	json_decref(document);
	free(path);
}
END_TEST

static const struct { const char *at, *json, *says; } odd[] = {
	{ "pairs 0 turns 1 b p50", "\"inf\"", "$.pairs[0].turns[1].b.p50: expected a time or null, found inf" },
	{ "pairs 0 turns 1 b p50", "-1", "$.pairs[0].turns[1].b.p50: expected a time or null, found -1" },
	{ "pairs 0 turns 1 b p90", "\"nan\"", "$.pairs[0].turns[1].b.p90: expected a time or null, found " },
	{ "pairs 0 turns 1 first", "\"a\"", "$.pairs[0].turns[1].first: expected " },
	{ "pairs 0 turns 2 first", "\"b\"", "$.pairs[0].turns[2].first: expected " },
	{ "pairs 0 b", "\"step\"", "$.pairs[0]: the recipe's `speed` does not pair `step` and `step`" },
};

START_TEST(a_file_that_contradicts_itself)
{
	struct speed *again;
	int n;

	two_engines();
	json_t *document = speed_document(pair, 1, &e->recipe), *pairs = json_object_get(document, "pairs");
	char *path = in_run("speed.json");

	if (_i < (int)(sizeof(odd) / sizeof(odd[0])))
		change(document, odd[_i].at, json_loads(odd[_i].json, JSON_DECODE_ANY, NULL));
	else
		json_array_append(pairs, json_array_get(pairs, 0));
	write_json("speed.json", document);
	ck_assert(speed_load(&again, &n, &e->recipe, path, &err));
	has(err.text, _i < (int)(sizeof(odd) / sizeof(odd[0])) ? odd[_i].says : "are there twice");
	speed_release(again, n);
	json_decref(document);
	free(path);
}
END_TEST

/* A pair that the recipe asks for and the file lacks is refused and not forgotten. */
START_TEST(a_pair_that_is_missing)
{
	struct speed *none = NULL;
	int n = 0;

	two_engines();
	speed_add_absent(&none, &n, &e->recipe);
	ck_assert(n == 1 && none[0].leg[0] == 0 && none[0].leg[1] == 1);
	speed_judge(&none[0], e);
	ck_assert_str_eq(none[0].refused, "speed.json does not hold this pair");
	speed_release(none, n);
	n = e->n_speed;
	speed_add_absent(&e->speed, &n, &e->recipe);
	pair = e->speed;
	ck_assert_int_eq(n, 1);
}
END_TEST

/* ---- the runner, with an engine that writes down when it was called ---- */

static char place[64];

static char *in_place(const char *name)
{
	return path_join(place, name);
}

static void put_file(const char *name, mode_t mode, const char *text)
{
	char *path = in_place(name);

	ck_assert(!file_write(path, text, strlen(text), &err));
	chmod(path, mode);
	free(path);
}

/* assay run of three good legs, two of which race; its exit code.  `dies`: the engine fails from this
 * call on, 0: never. */
static int race(const char *more, int dies)
{
	char *canned = realpath(CASES "strict-pass-equivalent", NULL), *fake = beside_test("fake_engine"), *assay = beside_test("../../assay");
	char *recipe = xasprintf("schema: assay/recipe/1\nname: race\nkind: gate\nmodel: %s\ngolden: %s/golden.json\nsteps: 12\nmodes: [free, forced]\n"
				 "base: {backend: cpu}\nlegs:\n  good: {threads: 2}\n  better: {threads: 3}\n  rest: {threads: 4}\nrequire:\n  good: {total: {gathers: 0}}\n"
				 "  better: {total: {gathers: 0}}\n  rest: {total: {gathers: 0}}\nspeed: {pairs: [[good, better]], runs: 5}\n", canned, canned);
	char *script = xasprintf("#!/bin/sh\necho \"$@\" | sed 's/.*--leg \\([a-z]*\\) .*--mode \\([a-z,]*\\) .*/\\1 \\2/' >>%s/calls\n"
				 "[ %d -eq 0 ] || [ $(wc -l <%s/calls) -lt %d ] || { echo 'assay-engine: out of luck' >&2; exit 1; }\n"
				 "exec '%s' \"$@\"\n", place, dies, place, dies, fake);
	char *command = xasprintf("'%s' run %s/recipe.yaml --engine %s/engine --out %s/run %s >%s/out 2>%s/err", assay, place, place, place, more,
				  place, place);

	put_file("recipe.yaml", 0600, recipe);
	put_file("engine", 0700, script);
	int status = system(command);

	free(canned);
	free(fake);
	free(assay);
	free(recipe);
	free(script);
	free(command);
	return WEXITSTATUS(status);
}

static void begin_place(void)
{
	strcpy(place, "/tmp/assay-speed-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(place));
}

static void end_place(void)
{
	remove_tree(place);
}

static char *read_in(const char *name)
{
	char *path = in_place(name), *text;
	size_t size;

	text = file_read(path, 1 << 24, &size, &err);
	ck_assert_msg(text != NULL, "%s", err.text);
	free(path);
	return text;
}

START_TEST(turns_change_their_order)
{
	ck_assert_int_eq(race("", 0), 0);
	char *calls = read_in("calls"), *out = read_in("out"), *speed = read_in("run/speed.json"), *path = in_place("run");

	/* the legs first, in all modes; then five turns in the headline's */
	ck_assert_str_eq(calls, "good free,forced\nbetter free,forced\nrest free,forced\n"
			 "good free\nbetter free\nbetter free\ngood free\ngood free\nbetter free\nbetter free\ngood free\ngood free\nbetter free\n");
	has(out, "speed: good takes 1 [1, 1] times as long as better: 8 and 8 ms/token, 5 turns");
	ck_assert_int_eq(count_of(speed, "\"first\": \"a\""), 3);
	ck_assert_int_eq(count_of(speed, "\"first\": \"b\""), 2);
	/* nothing else is left, and what was judged is still there */
	char *inside = in_place("run/legs");
	DIR *legs = opendir(inside);

	ck_assert_ptr_nonnull(legs);
	for (struct dirent *entry; (entry = readdir(legs));)
		ck_assert_msg(!strstr(entry->d_name, ".speed."), "%s is left", entry->d_name);
	closedir(legs);
	/* judged again from the files alone */
	json_t *again = verdict_judge(path, &err);

	ck_assert_msg(schema_check("verdict", NULL, again, &err), "%s", err.text);
	ck_assert_double_eq(json_number_value(json_object_get(json_array_get(json_object_get(again, "speed"), 0), "ratio")), 1);
	json_decref(again);
	free(inside);
	free(calls);
	free(out);
	free(speed);
	free(path);
}
END_TEST

START_TEST(a_turn_that_fails_is_said)
{
	/* the seventh call is the second turn's second */
	ck_assert_int_eq(race("", 7), 0);
	char *out = read_in("out"), *path = in_place("run/legs/good.speed.stderr");

	has(out, "speed: good and better: no ratio of their speed: turn 2 of good ended badly: assay-engine: out of luck");
	ck_assert(file_exists(path));
	free(path);
	free(out);
}
END_TEST

START_TEST(legs_that_are_left_out_do_not_race)
{
	ck_assert_int_eq(race("--leg good --leg rest", 0), 0);
	char *calls = read_in("calls"), *path = in_place("run/speed.json");

	ck_assert_str_eq(calls, "good free,forced\nrest free,forced\n");
	ck_assert(!file_exists(path));
	free(path);
	free(calls);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("speed"), *run_them = tcase_create("run");

	tcase_add_test(c, a_ratio_from_the_differences);
	tcase_add_test(c, a_sentence_for_readers);
	tcase_add_test(c, few_samples);
	tcase_add_test(c, clocks_that_wander);
	tcase_add_test(c, clocks_are_joined);
	tcase_add_test(c, others_on_the_device);
	tcase_add_test(c, another_box);
	tcase_add_test(c, what_was_not_proved_or_not_timed);
	tcase_add_test(c, no_ratio_without_turns);
	tcase_add_test(c, the_order_of_prompts_is_no_matter);
	tcase_add_test(c, the_file_comes_back);
	tcase_add_loop_test(c, a_file_that_contradicts_itself, 0, (int)(sizeof(odd) / sizeof(odd[0])) + 1);
	tcase_add_test(c, a_pair_that_is_missing);
	tcase_add_checked_fixture(run_them, begin_place, end_place);
	tcase_set_timeout(run_them, 120);
	tcase_add_test(run_them, turns_change_their_order);
	tcase_add_test(run_them, a_turn_that_fails_is_said);
	tcase_add_test(run_them, legs_that_are_left_out_do_not_race);
	return run_suites("speed", c, run_them);
}
