/* The runner as a program (run_rig.h): what a run leaves behind, legs that fail, every canned case, options. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "run_rig.h"

START_TEST(a_run_leaves_its_directory)
{
	write_two_good_legs();
	ck_assert_int_eq(run_here(), 0);
	char *recipe = read_in("recipe.yaml"), *kept = read_in("run/recipe.yaml");
	struct leg_exit e = load_exit("good");
	char from[SHA256_HEX], to[SHA256_HEX];
	char *golden = path_join(canned, "golden.json"), *golden_kept = in_dir("run/golden.json");
	json_t *run = load_json("run/run.json"), *verdict = load_json("run/verdict.json");

	ck_assert_str_eq(recipe, kept);
	ck_assert_int_eq(sha256_file(golden, from, &err), 0);
	ck_assert_int_eq(sha256_file(golden_kept, to, &err), 0);
	ck_assert_str_eq(from, to);
	ck_assert_int_eq(e.exit_code, 0);
	ck_assert_str_eq(e.signal, "");
	ck_assert(!e.timed_out);
	ck_assert_int_lt(strcmp(e.started, e.ended), 1);
	ck_assert_int_eq(strncmp(json_string_value(json_object_get(run, "id")), "runs-2", 6), 0);
	ck_assert(json_is_string(json_object_get(run, "ended")));
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(run, "argv"), 0)), "assay");
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(verdict, "overall"), "verdict")), "STRICT PASS");
	ck_assert(there("run/legs/good.stdout") && there("run/legs/better.stderr"));
	ck_assert(!there("run/overrides.json"));
	json_decref(run);
	json_decref(verdict);
	leg_exit_release(&e);
	free(golden);
	free(golden_kept);
	free(recipe);
	free(kept);
}
END_TEST

/* What the engine is asked. */
/* No word of the command line is left out, whatever its bytes. */
START_TEST(every_word_is_kept)
{
	char *run = run_dir_option(), *out = in_dir("o\xff"), *shown = in_dir("o\xef\xbf\xbd");

	write_two_good_legs();
	ck_assert_int_eq(mkdir(run, 0700), 0);
	ck_assert_int_eq(symlink(run, out), 0);
	ck_assert_int_eq(run_assay("--out", out, "--quiet"), 0);
	char *text = read_in("run/run.json");
	json_t *doc = json_loads(text, 0, NULL), *argv = json_object_get(doc, "argv");

	ck_assert_int_eq(json_array_size(argv), 8);
	ck_assert_str_eq(json_string_value(json_array_get(argv, 5)), "--out");
	ck_assert_str_eq(json_string_value(json_array_get(argv, 6)), shown);
	json_decref(doc);
	free(text);
	free(shown);
	free(out);
	free(run);
}
END_TEST

START_TEST(the_engine_gets_the_leg)
{
	static const char *const pairs[][2] = {{"--leg", "good"}, {"--profile", "base"}, {"--only", "p0,p2"},
		{"--arm", "backend=cpu,mamba.decode=chunk,threads=2"}, {"--at", "0-3,7:mamba.proj=w8a16"}, {"--steps", "7"},
		{"--mode", "free,forced"}};
	char *path = in_dir("recipe.yaml");
	char *text = xasprintf("schema: assay/recipe/1\nname: runs\nkind: gate\nmodel: %s\ngolden: %s/golden.json\n"
			       "prompts: [p0, p2]\nsteps: [3, 7]\nmodes: [forced, free]\nbase: {backend: cpu, threads: 2}\n"
			       "legs: {good: {mamba.decode: chunk, at: [{layers: \"0-3,7\", mamba.proj: w8a16}]}}\n"
			       "require: {good: " CONTRACT "}\n", canned, canned);

	ck_assert_int_eq(file_write(path, text, strlen(text), &err), 0);
	run_here();
	struct leg_exit e = load_exit("good");

	ck_assert_str_eq(e.argv[0], engine);
	ck_assert_str_eq(e.argv[1], "run");
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		int k = 2;

		while (k + 1 < e.argc && strcmp(e.argv[k], pairs[i][0]) != 0)
			k++;
		ck_assert_msg(k + 1 < e.argc, "no %s", pairs[i][0]);
		ck_assert_str_eq(e.argv[k + 1], pairs[i][1]);
	}
	leg_exit_release(&e);
	free(text);
	free(path);
}
END_TEST

START_TEST(legs_that_fail_cost_no_other)
{
	write_recipe("  first: {threads: 1}\n  killed: {threads: 2}\n  hanging: {threads: 3}\n  silent: {threads: 4}\n"
		     "  garbage: {threads: 5}\n  full: {threads: 6}\n  cannot: {threads: 7}\n"
		     "  missing: {engine: {argv: [/no/such/program]}}\n  last: {threads: 8}\n",
		     "  first: " CONTRACT "\n  killed: " CONTRACT "\n  hanging: " CONTRACT "\n  silent: " CONTRACT "\n"
		     "  garbage: " CONTRACT "\n  full: " CONTRACT "\n  cannot: " CONTRACT "\n  missing: " CONTRACT "\n"
		     "  last: " CONTRACT "\n");
	char *out = run_dir_option();

	ck_assert_int_eq(run_assay("--out", out, "--timeout", LEG_LIMIT), 2);
	check_exit("first", 0, "", false, NULL);
	check_exit("killed", -1, "SIGKILL", false, NULL);
	check_exit("hanging", -1, "SIGTERM", true, "loading");
	check_exit("silent", 0, "", false, NULL);
	check_exit("garbage", 0, "", false, NULL);
	check_exit("full", 1, "", false, "File too large");
	check_exit("cannot", 77, "", false, "this build has no CUDA");
	check_exit("missing", 127, "", false, "/no/such/program: cannot be started: No such file or directory");
	json_t *verdict = load_json("run/verdict.json");

	check_leg(verdict, "first", "STRICT PASS", NULL);
	check_leg(verdict, "killed", "ERROR", "SIGKILL");
	check_leg(verdict, "hanging", "ERROR", "time");
	check_leg(verdict, "silent", "ERROR", "report");
	check_leg(verdict, "garbage", "ERROR", "garbage.json");
	check_leg(verdict, "full", "ERROR", "File too large");
	check_leg(verdict, "cannot", "NOT MEASURED", "this build has no CUDA");
	check_leg(verdict, "missing", "ERROR", "cannot be started");
	check_leg(verdict, "last", "STRICT PASS", NULL);
	ck_assert(!there("run/legs/full.json"));
	json_decref(verdict);
	free(out);
}
END_TEST

START_TEST(the_tail_is_the_last_words_without_the_trace)
{
	write_recipe("  wordy: {}\n", "  wordy: " CONTRACT "\n");
	ck_assert_int_eq(run_here(), 2);
	struct leg_exit e = load_exit("wordy");

	ck_assert_int_eq(e.n_tail, 20);
	ck_assert_str_eq(e.tail[19], "line 99?[31m?");
	ck_assert_str_eq(e.tail[0], "line 80?[31m?");
	leg_exit_release(&e);
}
END_TEST

/* ---- every canned case, run and not only judged ---- */

START_TEST(exit_codes_of_all_canned_cases)
{
	DIR *cases = opendir("gates/tests/verdicts");
	struct dirent *entry;
	int n = 0, seen[5] = {0};

	ck_assert_ptr_nonnull(cases);
	while ((entry = readdir(cases))) {
		const char *name = entry->d_name;

		if (strchr(name, '.'))
			continue;
		if (strcmp(name, "void-same-binary") == 0) {
			printf("void-same-binary: skipped: its legs name programs that are not here\n");
			continue;
		}
		char *out = in_dir(name);
		int code;

		write_case_recipe(name);
		code = run_assay("--out", out, "--quiet");
		ck_assert_msg(code == expected_code(name), "%s: exit code %d, expected %d", name, code, expected_code(name));
		seen[code]++;
		n++;
		free(out);
	}
	closedir(cases);
	ck_assert_int_ge(n, 25);
	for (int code = 0; code < 5; code++)
		ck_assert_msg(seen[code], "no case ends with %d", code);
}
END_TEST

/* ---- options ---- */

START_TEST(set_and_leg_are_written_down)
{
	char *out = run_dir_option();

	write_two_good_legs();
	ck_assert_int_eq(run_assay("--out", out, "--leg", "better", "--set", "batch=3"), 0);
	ck_assert(there("run/legs/better.json") && !there("run/legs/good.exit.json"));
	json_t *over = load_json("run/overrides.json"), *verdict = load_json("run/verdict.json");
	struct leg_exit e = load_exit("better");

	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(over, "set"), "batch")), 3);
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(over, "legs"), 0)), "better");
	ck_assert(json_is_object(json_object_get(json_object_get(verdict, "run"), "overrides")));
	bool asked = false;

	for (int i = 0; i < e.argc; i++)
		asked |= strcmp(e.argv[i], "backend=cpu,batch=3,threads=3") == 0;
	ck_assert(asked);
	leg_exit_release(&e);
	json_decref(over);
	json_decref(verdict);
	free(out);
}
END_TEST

START_TEST(json_is_the_verdict_alone)
{
	char *out = run_dir_option();

	write_two_good_legs();
	ck_assert_int_eq(run_assay("--out", out, "--json", "--quiet"), 0);
	json_t *printed = load_json("out.txt"), *stored = load_json("run/verdict.json");
	char *errors = read_in("err.txt");

	ck_assert(json_equal(printed, stored));
	ck_assert_str_eq(errors, "");
	free(errors);
	json_decref(printed);
	json_decref(stored);
	free(out);
}
END_TEST

START_TEST(legs_are_told_on_stderr_and_the_bar_is_not)
{
	write_two_good_legs();
	ck_assert_int_eq(run_here(), 0);
	check_holds("err.txt", "good: done after ");
	char *errors = read_in("err.txt"), *out = read_in("out.txt");

	ck_assert_ptr_null(strchr(errors, '\r'));
	ck_assert_ptr_null(strchr(errors, '\x1b'));
	ck_assert_ptr_null(strchr(out, '\x1b'));          /* colour only on a terminal */
	ck_assert_int_eq(strncmp(out, "TOKEN MATCH 36/36 full rows=3 short rows=0 mode=free  good ", 58), 0);
	free(errors);
	free(out);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, a_run_leaves_its_directory);
	tcase_add_test(tc, every_word_is_kept);
	tcase_add_test(tc, the_engine_gets_the_leg);
	tcase_add_test(tc, legs_that_fail_cost_no_other);
	tcase_add_test(tc, the_tail_is_the_last_words_without_the_trace);
	tcase_add_test(tc, exit_codes_of_all_canned_cases);
	tcase_add_test(tc, set_and_leg_are_written_down);
	tcase_add_test(tc, json_is_the_verdict_alone);
	tcase_add_test(tc, legs_are_told_on_stderr_and_the_bar_is_not);
}

int main(void)
{
	return run_rig_main("run", add);
}
