/* The benchmark array and records, and when a ratio is refused. */
#include "gates/bench_array.h"
#include "reported.h"

static struct report *report_of(int leg)
{
	return &found.evidence.legs[leg].report;
}

/* Two legs of two engines on one idle device. */
static void two_engines(void)
{
	use("strict-pass-equivalent");
	load();
	ck_assert_int_eq(found.evidence.n_legs, 2);
	for (int l = 0; l < 2; l++) {
		struct report *r = report_of(l);

		free(r->host.gpu);
		r->host.gpu = xstrdup("NVIDIA H200");
		r->effective.value[FACTOR_BACKEND] = BACKEND_CUDA;
		json_decref(r->busy);
		r->busy = json_pack("{s:i, s:i, s:f, s:{s:i, s:i, s:i}, s:s}", "hz", 10, "samples", 30, "busy_share", 0.9, "sm_clock", "min", 1900,
				    "p50", 1980, "max", 1980, "window", "decode");
		r->timing.present = true;
		r->timing.p50 = l ? 2 : 3;
		r->timing.p90 = 4;
		r->timing.n = 5;
	}
	free(report_of(1)->engine.name);
	report_of(1)->engine.name = xstrdup("other");
}

static void refused(const char *says)
{
	char *why = bench_refuse(&found, 0, 1);

	if (says) {
		ck_assert_ptr_nonnull(why);
		has(why, says);
	} else {
		ck_assert_msg(why == NULL, "%s", why);
	}
	free(why);
}

static void set_busy(int leg, const char *key, json_t *value)
{
	json_object_set_new(report_of(leg)->busy, key, value);
}

START_TEST(a_ratio_where_nothing_speaks_against_it)
{
	two_engines();
	refused(NULL);
	json_t *lines = bench_records(&found, "2026-12-01T00:00:00Z"), *line, *against = json_object_get(json_array_get(lines, 0), "against");
	size_t i;

	ck_assert_uint_eq(json_array_size(lines), 2);
	json_array_foreach(lines, i, line)
		ck_assert_msg(schema_check("bench", NULL, line, &err), "%s", err.text);
	ck_assert_double_eq(json_real_value(json_object_get(against, "ratio")), 1.5);
	ck_assert_str_eq(json_string_value(json_object_get(against, "peer")), "other");
	json_decref(lines);
}
END_TEST

START_TEST(few_samples)
{
	two_engines();
	set_busy(1, "samples", json_integer(29));
	refused("29 busy samples, fewer than 30");
	json_t *lines = bench_records(&found, "2026-12-01T00:00:00Z"), *line = json_array_get(lines, 0);

	ck_assert_msg(schema_check("bench", NULL, line, &err), "%s", err.text);
	has(json_string_value(json_object_get(json_object_get(line, "against"), "refused")), "29 busy samples");
	ck_assert_ptr_null(json_object_get(json_object_get(line, "against"), "ratio"));
	json_decref(lines);
}
END_TEST

START_TEST(clocks_that_wander)
{
	two_engines();
	/* 5 % of 2000 is 100 */
	set_busy(0, "sm_clock", json_pack("{s:i, s:i, s:i}", "min", 1900, "p50", 2000, "max", 2000));
	refused(NULL);
	set_busy(0, "sm_clock", json_pack("{s:i, s:i, s:i}", "min", 1899, "p50", 2000, "max", 2000));
	refused("a spread of 5.0 %, over 5 %");
	set_busy(0, "sm_clock", json_null());
	refused("the clocks of the device are not known");
}
END_TEST

START_TEST(another_box)
{
	two_engines();
	free(report_of(1)->host.gpu);
	report_of(1)->host.gpu = xstrdup("NVIDIA B200");
	refused("ran on different boxes");
	free(report_of(1)->host.gpu);
	report_of(1)->host.gpu = xstrdup("NVIDIA H200");
	free(report_of(1)->host.name);
	report_of(1)->host.name = xstrdup("elsewhere");
	refused("ran on different boxes");
}
END_TEST

START_TEST(others_on_the_device)
{
	two_engines();
	set_busy(0, "other_processes", json_integer(0));
	refused(NULL);
	set_busy(0, "other_processes", json_integer(2));
	refused("2 other compute processes");
}
END_TEST

START_TEST(what_was_not_watched_or_not_proved)
{
	two_engines();
	json_t *legs = json_object_get(found.verdict, "legs");
	const char *name = found.evidence.legs[1].want->name;

	report_of(0)->timing.n = 4;
	refused("4 tokens were timed, fewer than 5");
	report_of(0)->timing.n = 5;
	json_decref(report_of(0)->busy);
	report_of(0)->busy = NULL;
	refused("how busy the device was is not known");
	json_object_set_new(json_object_get(legs, name), "verdict", json_string("VOID"));
	refused("is VOID");
}
END_TEST

START_TEST(the_array_of_the_action)
{
	use("void-contract");
	load();
	json_t *array = bench_array(&found), *item = json_array_get(array, 0);
	json_t *schema = json_loads(schema_text("bench"), 0, NULL);

	ck_assert_msg(schema_valid(schema, json_object_get(json_object_get(schema, "$defs"), "action_array"), array, "$", &err), "%s", err.text);
	/* the leg that is VOID is not in it */
	ck_assert_uint_eq(json_array_size(array), 1);
	ck_assert_str_eq(json_string_value(json_object_get(item, "name")), "void-contract/step: decode, time per token");
	ck_assert_str_eq(json_string_value(json_object_get(item, "unit")), "ms");
	ck_assert_double_eq(json_number_value(json_object_get(item, "value")), 8.0);
	json_decref(array);
	json_decref(schema);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("bench");

	tcase_add_test(c, a_ratio_where_nothing_speaks_against_it);
	tcase_add_test(c, few_samples);
	tcase_add_test(c, clocks_that_wander);
	tcase_add_test(c, another_box);
	tcase_add_test(c, others_on_the_device);
	tcase_add_test(c, what_was_not_watched_or_not_proved);
	tcase_add_test(c, the_array_of_the_action);
	return run_suite("bench", c);
}
