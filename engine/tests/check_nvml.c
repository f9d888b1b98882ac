/* Sampling NVML in the decode window, with a library that says what a test wants; and what is refused because of it. */
#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "contract/busy.h"
#include "contract/err.h"
#include "contract/file.h"
#include "contract/tests/schema_check.h"
#include "engine/nvml.h"
#include "nvml/fake_nvml.h"

#define FAST 500                 /* Hz: 30 samples need not take three seconds */
#define SLOW 10                  /* Hz: three seconds from the third sample to the thirtieth, for a machine that is slow to shut a window */

static char *library;
static void *fake;
static struct nvml *watch;
static const char *why;

static void *named(const char *name)
{
	void *at = dlsym(fake, name);

	ck_assert_msg(at != NULL, "%s", dlerror());
	return at;
}

static void say(struct fake_nvml says)
{
	void (*set)(const struct fake_nvml *);

	*(void **)&set = named("fake_nvml_set");
	set(&says);
}

static const struct fake_nvml idle_but_for_us = { .busy = { 80, 90 }, .clock = { 1980, 1980 }, .processes = 1 };

static void begin(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	ck_assert_int_gt(n, 0);
	self[n] = '\0';
	char *dir = path_dir(self);

	library = path_join(dir, "fake_nvml.so");
	fake = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(fake != NULL, "%s", dlerror());
	say(idle_but_for_us);
	free(dir);
}

static void end(void)
{
	int (*open)(void);

	nvml_close(watch);
	watch = NULL;
	*(void **)&open = named("fake_nvml_open");
	ck_assert_int_eq(open(), 0);
	dlclose(fake);
	free(library);
}

static void pause_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static void start(int hz)
{
	watch = nvml_open(library, "0000:01:00.0", hz, &why);
	ck_assert_msg(watch != NULL, "%s", why);
}

static long long sampled(void)
{
	json_t *busy = nvml_busy(watch);
	long long n = json_integer_value(json_object_get(busy, "samples"));

	json_decref(busy);
	return n;
}

/* A window of at least so many samples; the machine may be slow. */
static void decode(long long samples)
{
	nvml_window(watch, true);
	for (int i = 0; i < 20000 && sampled() < samples; i++)
		pause_ms(1);
	nvml_window(watch, false);
	ck_assert_int_ge(sampled(), samples);
}

/* A window that is shut before it has 30. */
static void decode_briefly(void)
{
	decode(3);
	ck_assert_int_lt(sampled(), BUSY_SAMPLES_LEAST);
}

static void refused(const char *says)
{
	json_t *busy = nvml_busy(watch);
	char *reason = busy_refuse(busy);

	if (says)
		ck_assert_msg(reason && strstr(reason, says), "`%s` is not in `%s`", says, reason ? reason : "no refusal");
	else
		ck_assert_msg(reason == NULL, "%s", reason);
	free(reason);
	json_decref(busy);
}

START_TEST(what_a_report_says)
{
	struct err err = {0};
	json_t *schema = json_loads(schema_text("report"), 0, NULL), *busy, *clock;

	start(FAST);
	decode(40);
	busy = nvml_busy(watch);
	clock = json_object_get(busy, "sm_clock");
	ck_assert_msg(schema_valid(schema, json_object_get(json_object_get(schema, "properties"), "busy"), busy, "$", &err), "%s", err.text);
	ck_assert_double_eq_tol(json_number_value(json_object_get(busy, "busy_share")), 0.85, 0.01);
	ck_assert_int_eq(json_integer_value(json_object_get(clock, "p50")), 1980);
	ck_assert_int_eq(json_integer_value(json_object_get(busy, "other_processes")), 0);
	ck_assert_str_eq(json_string_value(json_object_get(busy, "window")), "decode");
	json_decref(busy);
	json_decref(schema);
	refused(NULL);
}
END_TEST

/* At 10 Hz, a second cannot hold more than eleven. */
START_TEST(ten_a_second)
{
	struct timespec a, b;
	json_t *busy;

	start(NVML_HZ);
	clock_gettime(CLOCK_MONOTONIC, &a);
	decode(4);
	clock_gettime(CLOCK_MONOTONIC, &b);
	double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);

	ck_assert_double_ge(seconds, 0.3);
	ck_assert_double_le((double)sampled(), 10 * seconds + 1);
	busy = nvml_busy(watch);
	ck_assert_int_eq(json_integer_value(json_object_get(busy, "hz")), 10);
	json_decref(busy);
}
END_TEST

/* What is sampled while no window is open (load, prefill) is not kept; two windows add up. */
START_TEST(the_window_alone)
{
	long long one;

	start(FAST);
	pause_ms(60);
	ck_assert_ptr_null(nvml_busy(watch));
	decode(5);
	one = sampled();
	say((struct fake_nvml){ .busy = { 0, 0 }, .clock = { 300, 300 }, .processes = 9 });
	pause_ms(60);
	ck_assert_int_eq(sampled(), one);
	say(idle_but_for_us);
	decode(one + 30);
	refused(NULL);
	nvml_clear(watch);
	ck_assert_ptr_null(nvml_busy(watch));
}
END_TEST

START_TEST(few_samples_are_refused)
{
	start(SLOW);
	decode_briefly();
	refused("busy samples, fewer than 30");
}
END_TEST

START_TEST(wandering_clocks_are_refused)
{
	say((struct fake_nvml){ .busy = { 80, 80 }, .clock = { 1980, 1880 }, .processes = 1 });
	start(FAST);
	decode(40);
	refused("SM clock from 1880 to 1980 MHz, a spread of 5.");
	/* 4.2 % */
	say((struct fake_nvml){ .busy = { 80, 80 }, .clock = { 1980, 1900 }, .processes = 1 });
	nvml_clear(watch);
	decode(40);
	refused(NULL);
}
END_TEST

START_TEST(other_processes_are_refused)
{
	say((struct fake_nvml){ .busy = { 80, 80 }, .clock = { 1980, 1980 }, .processes = 3 });
	start(FAST);
	decode(40);
	refused("2 other compute processes on the device");
	/* the most that were seen in the window, not the last */
	say((struct fake_nvml){ .busy = { 80, 80 }, .clock = { 1980, 1980 }, .processes = 2 });
	decode(80);
	refused("2 other compute processes on the device");
	nvml_clear(watch);
	decode(40);
	refused("1 other compute process on the device");
}
END_TEST

/* A container may see no process at all: then nothing is known of others, and nothing is said. */
START_TEST(an_empty_list_says_nothing)
{
	json_t *busy;

	say((struct fake_nvml){ .busy = { 80, 80 }, .clock = { 1980, 1980 }, .processes = 0 });
	start(FAST);
	decode(40);
	busy = nvml_busy(watch);
	ck_assert_ptr_null(json_object_get(busy, "other_processes"));
	json_decref(busy);
}
END_TEST

START_TEST(what_is_missing_is_said)
{
	watch = nvml_open("libno-such-nvml.so.1", "0000:01:00.0", NVML_HZ, &why);
	ck_assert(!watch && strcmp(why, "NVML was not found") == 0);
	watch = nvml_open(library, "ffff:01:00.0", NVML_HZ, &why);
	ck_assert(!watch && strcmp(why, "NVML does not know the device") == 0);
	say((struct fake_nvml){ .fails_to_start = 1 });
	watch = nvml_open(library, "0000:01:00.0", NVML_HZ, &why);
	ck_assert(!watch && strcmp(why, "NVML does not start") == 0);
	ck_assert_str_eq(nvml_missing(library, "0000:01:00.0"), "NVML does not start");
	say(idle_but_for_us);
	ck_assert_ptr_null(nvml_missing(library, "0000:01:00.0"));
	watch = nvml_open("libm.so.6", "0000:01:00.0", NVML_HZ, &why);
	ck_assert(!watch && strcmp(why, "NVML lacks a function") == 0);
	/* no watch: no report, and no refusal to be had but this */
	nvml_window(watch, true);
	nvml_clear(watch);
	ck_assert_ptr_null(nvml_busy(watch));
	refused("how busy the device was is not known");
}
END_TEST

/* Several processes of one leg, as when legs run in turns. */
START_TEST(watches_are_joined)
{
	json_t *both[2];

	start(FAST);
	decode(20);
	nvml_window(watch, false);
	both[0] = nvml_busy(watch);
	say((struct fake_nvml){ .busy = { 20, 20 }, .clock = { 1960, 1960 }, .processes = 2 });
	nvml_clear(watch);
	decode(20);
	both[1] = nvml_busy(watch);
	json_object_set_new(both[0], "samples", json_integer(30));
	json_object_set_new(both[1], "samples", json_integer(10));
	json_object_set_new(both[0], "busy_share", json_real(0.8));

	json_t *joined = busy_join((const json_t *const *)both, 2), *clock = json_object_get(joined, "sm_clock");

	ck_assert_int_eq(json_integer_value(json_object_get(joined, "samples")), 40);
	ck_assert_double_eq_tol(json_number_value(json_object_get(joined, "busy_share")), (30 * 0.8 + 10 * 0.2) / 40, 1e-12);
	ck_assert_double_eq(json_number_value(json_object_get(clock, "min")), 1960);
	ck_assert_double_eq(json_number_value(json_object_get(clock, "max")), 1980);
	ck_assert_int_eq(json_integer_value(json_object_get(joined, "other_processes")), 1);
	json_decref(joined);
	json_decref(both[1]);
	both[1] = NULL;
	joined = busy_join((const json_t *const *)both, 2);
	ck_assert(json_is_null(joined));
	json_decref(joined);
	json_decref(both[0]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nvml");
	TCase *c = tcase_create("nvml");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, begin, end);
	tcase_set_timeout(c, 120);
	tcase_add_test(c, what_a_report_says);
	tcase_add_test(c, ten_a_second);
	tcase_add_test(c, the_window_alone);
	tcase_add_test(c, few_samples_are_refused);
	tcase_add_test(c, wandering_clocks_are_refused);
	tcase_add_test(c, other_processes_are_refused);
	tcase_add_test(c, an_empty_list_says_nothing);
	tcase_add_test(c, what_is_missing_is_said);
	tcase_add_test(c, watches_are_joined);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
