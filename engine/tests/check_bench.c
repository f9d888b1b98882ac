/* `assay-engine bench`: exit codes, its records against their schema, what it counts, and --shape with --save. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "contract/err.h"
#include "contract/file.h"
#include "contract/tests/schema_check.h"
#include "engine/bench.h"
#include "engine/bench_output.h"
#include "engine/model.h"

#define TINY "engine/tests/fixtures/tiny-lightning"

static char temp[64];

/* bench_main with the words of `line`, its output thrown away. */
static int bench(const char *line)
{
	char *words = xstrdup(line), *rest = words, *argv[32] = { (char *)"bench" };
	int n = 1, out = dup(1), err = dup(2), null = open("/dev/null", O_WRONLY), status;

	while (n < 31 && (argv[n] = strsep(&rest, " ")))
		n++;
	argv[n] = NULL;
	fflush(NULL);
	dup2(null, 1);
	dup2(null, 2);
	status = bench_main(n, argv);
	fflush(NULL);
	dup2(out, 1);
	dup2(err, 2);
	close(out);
	close(err);
	close(null);
	free(words);
	return status;
}

START_TEST(test_exit_codes)
{
	static const struct { const char *line; int code; } cases[] = {
		{ "--help", 0 },
		{ "", 2 },
		{ "--model " TINY " --shape " TINY "/config.json", 2 },
		{ "--model " TINY " --save somewhere", 2 },
		{ "--model " TINY " --runs 0", 2 },
		{ "--model " TINY " --batch 0", 2 },
		{ "--model " TINY " --prompt x", 2 },
		{ "--model " TINY " more", 2 },
		{ "--model " TINY " --level avx3", 2 },
		{ "--model engine/tests/fixtures/nothing", 2 },
		{ "--shape engine/tests/fixtures/nothing.json", 2 },
		{ "--model " TINY " --prompt 3 --decode 1 --runs 1 --no-bandwidth --profile --arm backend=ref", 77 },
		{ "--model " TINY " --prompt 3 --decode 1 --runs 1 --no-bandwidth --profile", 0 },
		{ "--model " TINY " --prompt 3 --decode 0 --runs 1 --no-bandwidth --level portable", 0 },
		{ "--model " TINY " --prompt 3 --decode 1 --runs 1 --no-bandwidth --json /nonexistent/directory/x", 1 },
	};

	ck_assert_msg(bench(cases[_i].line) == cases[_i].code, "bench %s: expected exit %d", cases[_i].line, cases[_i].code);
}
END_TEST

/* Every record fits the schema that users are given, and carries what was asked for. */
START_TEST(test_records)
{
	char *path = xasprintf("%s/records.jsonl", temp), *line = xasprintf(
		"--model " TINY " --prompt 5 --decode 3 --batch 2 --runs 2 --no-bandwidth --arm threads=1,mamba.decode=chunk "
		"--at 0:mamba.decode=step --json %s", path);
	struct err err = {0};
	char text[4096], *same;
	size_t size;
	int n = 0;
	FILE *f;

	ck_assert_int_eq(bench(line), 0);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(text, sizeof(text), f)) {
		json_t *r = json_loads(text, 0, NULL), *metric, *shape;

		ck_assert_msg(schema_check("bench", NULL, r, &err), "%s", err.text);
		/* `assay record` writes the lines of results/bench.jsonl in these bytes: what was there must not change */
		same = json_text(r, JSON_COMPACT, &size);
		ck_assert_str_eq(text, same);
		free(same);
		metric = json_object_get(r, "metric");
		shape = json_object_get(r, "shape");
		ck_assert_str_eq(json_string_value(json_object_get(r, "model")), "tiny-lightning");
		ck_assert_str_eq(json_string_value(json_object_get(r, "leg")), "backend=cpu,threads=1,compute=bf16,mamba.decode=chunk "
				 "at 0:mamba.decode=step");
		ck_assert_int_eq(json_integer_value(json_object_get(shape, "prompt")), 5);
		ck_assert_int_eq(json_integer_value(json_object_get(shape, "decode")), 3);
		ck_assert_int_eq(json_integer_value(json_object_get(shape, "batch")), 2);
		ck_assert(json_number_value(json_object_get(metric, "value")) > 0);
		/* one population a record: steps where the name says so, else runs */
		ck_assert(json_equal(json_object_get(metric, "value"), json_object_get(metric, "p50")));
		ck_assert(json_number_value(json_object_get(metric, "p90")) >= json_number_value(json_object_get(metric, "p50")));
		if (!strcmp(json_string_value(json_object_get(metric, "name")), "decode step"))
			ck_assert_int_eq(json_integer_value(json_object_get(metric, "n")), 2 * 3);
		n++;
		json_decref(r);
	}
	fclose(f);
	/* prefill, decode step, decode, first token, peak memory; shares of a bandwidth are for batch 1 */
	ck_assert_int_eq(n, 5);
	free(path);
	free(line);
}
END_TEST

/* A saved shape is a checkpoint that loads, with the vocabulary's tokenizer, and is measured like one. */
START_TEST(test_save)
{
	char *dir = xasprintf("%s/saved", temp), *tokenizer = path_join(dir, "tokenizer.json"), *line = xasprintf(
		"--shape " TINY "/config.json --save %s --prompt 4 --decode 2 --runs 1 --no-bandwidth", dir);
	struct model m = {0};
	struct err err = {0};

	ck_assert_int_eq(bench(line), 0);
	ck_assert_msg(model_open(&m, dir, &err) == 0, "%s", err.text);
	ck_assert_int_eq(m.config.vocab_size, 128);
	ck_assert(m.has_fp8 && m.has_nvfp4 && file_exists(tokenizer));
	model_release(&m);
	free(line);
	line = xasprintf("--model %s --prompt 4 --decode 2 --runs 1 --no-bandwidth", dir);
	ck_assert_int_eq(bench(line), 0);
	free(line);
	free(tokenizer);
	free(dir);
}
END_TEST

/* The smallest value that a share of all do not exceed. */
START_TEST(test_shares)
{
	static const double v[] = { 5, 1, 4, 2, 3 };
	struct series s = { .name = "x", .unit = "ms" };

	series_add(&s, 5);
	ck_assert(series_share(&s, 0.5) == 5);
	for (int i = 1; i < 5; i++)
		series_add(&s, v[i]);
	ck_assert(series_share(&s, 0.5) == 3 && series_share(&s, 0.9) == 5 && series_share(&s, 0.8) == 4);
	ck_assert(series_share(&s, 0) == 1 && series_share(&s, 1) == 5);
	/* the order of the runs is kept */
	ck_assert(s.value[0] == 5 && s.value[4] == 3);
	series_release(&s);
}
END_TEST

/* What was seen of the device is said of what was timed while it was watched, and of nothing else. */
START_TEST(test_device)
{
	struct series s[2] = { { .name = "prefill", .unit = "tokens/s" }, { .name = "decode step", .unit = "ms", .of_window = true } };
	struct report about = { .host = { .gpu = (char *)"NVIDIA H200", .arch = (char *)"sm_90", .driver = (char *)"13.0" } };
	struct bench_shape shape = { 1, 2, 3 };
	char *path = xasprintf("%s/device.jsonl", temp), text[4096];
	struct err err = {0};

	about.busy = json_pack("{s:i, s:i, s:f, s:{s:i, s:i, s:i}, s:s}", "hz", 10, "samples", 30, "busy_share", 0.75, "sm_clock", "min",
			       1900, "p50", 1980, "max", 1980, "window", "decode");
	series_add(&s[0], 7);
	series_add(&s[1], 9);
	ck_assert_int_eq(bench_write(path, s, 2, "m", "l", &shape, &about, &err), 0);
	FILE *f = fopen(path, "r");

	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
		json_t *r = json_loads(text, 0, NULL);

		ck_assert_msg(schema_check("bench", NULL, r, &err), "%s", err.text);
		ck_assert_str_eq(json_string_value(json_object_get(json_object_get(r, "box"), "gpu")), "NVIDIA H200");
		ck_assert_int_eq(json_is_null(json_object_get(r, "busy")), i == 0);
		if (i == 1) {
			ck_assert(json_real_value(json_object_get(r, "busy")) == 0.75);
			ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(r, "clocks"), "min")), 1900);
		}
		json_decref(r);
	}
	fclose(f);
	json_decref(about.busy);
	series_release(&s[0]);
	series_release(&s[1]);
	free(path);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench");
	TCase *c = tcase_create("bench");
	SRunner *runner = srunner_create(s);
	char *command;
	int failed;

	strcpy(temp, "/tmp/check_bench.XXXXXX");
	if (!mkdtemp(temp))
		return 1;
	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_exit_codes, 0, 15);
	tcase_add_test(c, test_records);
	tcase_add_test(c, test_save);
	tcase_add_test(c, test_shares);
	tcase_add_test(c, test_device);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	command = xasprintf("rm -rf %s", temp);
	failed |= system(command);
	free(command);
	return failed != 0;
}
