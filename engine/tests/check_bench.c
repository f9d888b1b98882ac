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
		"--model " TINY " --prompt 5 --decode 3 --batch 2 --runs 2 --no-bandwidth --arm threads=1 --json %s", path);
	struct err err = {0};
	char text[4096];
	int n = 0;
	FILE *f;

	ck_assert_int_eq(bench(line), 0);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(text, sizeof(text), f)) {
		json_t *r = json_loads(text, 0, NULL), *metric, *shape;

		ck_assert_msg(schema_check("bench", NULL, r, &err), "%s", err.text);
		metric = json_object_get(r, "metric");
		shape = json_object_get(r, "shape");
		ck_assert_str_eq(json_string_value(json_object_get(r, "model")), "tiny-lightning");
		ck_assert_str_eq(json_string_value(json_object_get(r, "leg")), "backend=cpu,threads=1,compute=bf16");
		ck_assert_int_eq(json_integer_value(json_object_get(shape, "prompt")), 5);
		ck_assert_int_eq(json_integer_value(json_object_get(shape, "decode")), 3);
		ck_assert_int_eq(json_integer_value(json_object_get(shape, "batch")), 2);
		ck_assert(json_number_value(json_object_get(metric, "value")) > 0);
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
START_TEST(test_percentile)
{
	double v[] = { 5, 1, 4, 2, 3 };
	struct series s = { .name = "x", .unit = "ms" };

	ck_assert(percentile(v, 5, 0.5) == 3 && percentile(v, 5, 0.9) == 5 && percentile(v, 5, 0.8) == 4);
	ck_assert(percentile(v, 5, 0) == 1 && percentile(v, 5, 1) == 5 && percentile(v, 1, 0.5) == 1);
	for (int i = 0; i < 4; i++)
		series_add(&s, 4 - i);
	ck_assert(series_median(&s) == 2);
	ck_assert(s.run[0] == 4);
	series_release(&s);
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
	tcase_add_test(c, test_percentile);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	command = xasprintf("rm -rf %s", temp);
	failed |= system(command);
	free(command);
	return failed != 0;
}
