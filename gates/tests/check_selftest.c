/* The self-test on the tiny models: a clean engine alarms nobody, and planted faults alarm whom they should. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/file.h"
#include "gates/selftest.h"

static char *engine, out[] = "/tmp/assay-selftest-XXXXXX";

/* This program is BUILD/gates/tests/check_selftest. */
static void find_engine(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	self[n > 0 ? n : 0] = '\0';
	for (int i = 0; i < 3; i++)
		*strrchr(self, '/') = '\0';
	engine = path_join(self, "assay-engine-faulty");
}

static const struct { const char *fault; bool f64, fp32, twins; } table[] = {
	{ NULL, false, false, false },
	{ "swap-bc", true, true, false },
	{ "state-left", true, true, false },
	{ "chunk-boundary", true, true, false },
	{ "input-scale", true, false, false },      /* it needs quantised activations */
	{ "router-bias", true, true, false },
	{ "counter-only", false, false, true },
	{ "counter-step", false, false, true },
	{ "counter-host", false, false, true },
};

START_TEST(who_catches_what)
{
	struct selftest s = { .engine = engine, .fixtures = "engine/tests/fixtures", .out = out,
		.backend = "cpu" };
	struct detection d = { .f64 = 0 };
	struct err err = { 0 };

	ck_assert_msg(!selftest_tiny(&d, &s, table[_i].fault, &err), "%s", err.text);
	ck_assert_msg(d.caught[BY_F64] == table[_i].f64, "f64 error %g", d.f64);
	ck_assert_msg(d.caught[BY_FP32] == table[_i].fp32, "fp32 error %g", d.fp32);
	ck_assert(d.caught[BY_TWINS] == table[_i].twins);
}
END_TEST

START_TEST(an_engine_that_cannot_run)
{
	struct selftest s = { .engine = "/bin/false", .fixtures = "engine/tests/fixtures", .out = out,
		.backend = "cpu" };
	struct detection d = { .f64 = 0 };
	struct err err = { 0 };

	ck_assert_int_eq(selftest_tiny(&d, &s, NULL, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "/bin/false"));
	ck_assert_ptr_nonnull(strstr(err.text, "exit code 1"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("selftest");
	TCase *c = tcase_create("tiny models");

	find_engine();
	if (!mkdtemp(out))
		return 1;
	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, who_catches_what, 0, sizeof table / sizeof *table);
	tcase_add_test(c, an_engine_that_cannot_run);
	suite_add_tcase(s, c);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	for (const char *const *f = (const char *const[]){ "clean.json", "faulty.json", "prompts.json", "stderr", NULL }; *f; f++) {
		char *path = path_join(out, *f);

		unlink(path);
		free(path);
	}
	rmdir(out);
	free(engine);
	return failed != 0;
}
