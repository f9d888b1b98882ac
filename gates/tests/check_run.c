/* The runner as a program: build/assay with an engine that misbehaves on request, in a directory of its own.
 * Over 600 lines because all of it drives the same program in the same way. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "contract/file.h"
#include "contract/report.h"
#include "gates/report_merge.h"

#define CASE "gates/tests/verdicts/strict-pass-equivalent"
#define CONTRACT "{decode_step: {gathers: 0}}"

static char *assay, *engine, *root, *canned;      /* absolute paths */
static char dir[64];
static struct err err;

/* ---- files ---- */

static void start(void)
{
	err = (struct err){0};
	strcpy(dir, "/tmp/check_run.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void stop(void)
{
	char *command = xasprintf("rm -rf %s", dir);

	ck_assert_int_eq(system(command), 0);
	free(command);
}

static char *in_dir(const char *name)
{
	return path_join(dir, name);
}

static char *read_in(const char *name)
{
	char *path = in_dir(name);
	size_t size;
	char *bytes = file_read(path, 1 << 24, &size, &err);

	ck_assert_msg(bytes != NULL, "%s", err.text);
	free(path);
	return bytes;
}

static bool there(const char *name)
{
	char *path = in_dir(name);
	bool exists = file_exists(path);

	free(path);
	return exists;
}

static void check_holds(const char *name, const char *text)
{
	char *bytes = read_in(name);

	ck_assert_msg(strstr(bytes, text) != NULL, "%s lacks \"%s\"; it holds:\n%s", name, text, bytes);
	free(bytes);
}

/* recipe.yaml with these legs (YAML lines) and their contracts. */
static void write_recipe(const char *legs, const char *require)
{
	char *path = in_dir("recipe.yaml");
	char *text = xasprintf("schema: assay/recipe/1\nname: runs\nkind: gate\nquestion: Does it run?\nmodel: %s\n"
			       "golden: %s/golden.json\nsteps: 12\nmodes: [free, forced]\nbase: {backend: cpu}\n"
			       "legs:\n%srequire:\n%s", canned, canned, legs, require);

	ck_assert_int_eq(file_write(path, text, strlen(text), &err), 0);
	free(text);
	free(path);
}

static void write_two_good_legs(void)
{
	write_recipe("  good: {threads: 2}\n  better: {threads: 3}\n", "  good: " CONTRACT "\n  better: " CONTRACT "\n");
}

/* ---- assay ---- */

/* Starts assay; output in out.txt and err.txt. */
static pid_t start_assay(char **argv)
{
	char *out = in_dir("out.txt"), *errors = in_dir("err.txt");
	pid_t pid = fork();

	if (pid == 0) {
		ck_assert_int_eq(dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1), 1);
		ck_assert_int_eq(dup2(open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2), 2);
		execv(assay, argv);
		_exit(99);
	}
	free(out);
	free(errors);
	return pid;
}

/* `assay run recipe.yaml --engine FAKE WORDS...` */
static pid_t start_run(const char *const *words)
{
	char *recipe = in_dir("recipe.yaml"), *argv[32] = {assay, "run", recipe, "--engine", engine};
	int n = 5;

	while (*words)
		argv[n++] = (char *)*words++;
	pid_t pid = start_assay(argv);

	free(recipe);
	return pid;
}

static int end_run(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	ck_assert_msg(WIFEXITED(status), "assay died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

#define run_assay(...) end_run(start_run((const char *const[]){__VA_ARGS__, NULL}))

static char *run_dir_option(void)
{
	return in_dir("run");
}

/* Runs into <dir>/run. */
static int run_here(void)
{
	char *out = run_dir_option();
	int code = run_assay("--out", out);

	free(out);
	return code;
}

static struct leg_exit load_exit(const char *leg)
{
	char *path = xasprintf("%s/run/legs/%s.exit.json", dir, leg);
	struct leg_exit e;

	ck_assert_msg(leg_exit_load(&e, path, &err) == 0, "%s", err.text);
	ck_assert_str_eq(e.leg, leg);
	free(path);
	return e;
}

static const json_t *leg_verdict(const json_t *verdict, const char *leg)
{
	const json_t *found = json_object_get(json_object_get(verdict, "legs"), leg);

	ck_assert_msg(found != NULL, "the verdict has no leg %s", leg);
	return found;
}

static json_t *load_json(const char *name)
{
	char *path = in_dir(name);
	json_error_t error;
	json_t *json = json_load_file(path, 0, &error);

	ck_assert_msg(json != NULL, "%s: %s", path, error.text);
	free(path);
	return json;
}

/* ---- the tests ---- */

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

static void check_exit(const char *leg, int exit_code, const char *signal, bool timed_out, const char *tail)
{
	struct leg_exit e = load_exit(leg);
	bool said = !tail;

	ck_assert_int_eq(e.exit_code, exit_code);
	ck_assert_str_eq(e.signal, signal);
	ck_assert_int_eq(e.timed_out, timed_out);
	for (int i = 0; i < e.n_tail; i++)
		said |= tail && strstr(e.tail[i], tail) != NULL;
	ck_assert_msg(said, "%s: the tail lacks \"%s\"", leg, tail);
	leg_exit_release(&e);
}

static void check_leg(const json_t *verdict, const char *leg, const char *expected, const char *reason)
{
	const json_t *v = leg_verdict(verdict, leg);
	const char *said = json_string_value(json_object_get(v, "reason"));

	ck_assert_str_eq(json_string_value(json_object_get(v, "verdict")), expected);
	ck_assert_msg(!reason || strstr(said, reason), "%s: the reason lacks \"%s\": %s", leg, reason, said);
}

START_TEST(legs_that_fail_cost_no_other)
{
	write_recipe("  first: {threads: 1}\n  killed: {threads: 2}\n  hanging: {threads: 3}\n  silent: {threads: 4}\n"
		     "  garbage: {threads: 5}\n  full: {threads: 6}\n  cannot: {threads: 7}\n"
		     "  missing: {engine: {argv: [/no/such/program]}}\n  last: {threads: 8}\n",
		     "  first: " CONTRACT "\n  killed: " CONTRACT "\n  hanging: " CONTRACT "\n  silent: " CONTRACT "\n"
		     "  garbage: " CONTRACT "\n  full: " CONTRACT "\n  cannot: " CONTRACT "\n  missing: " CONTRACT "\n"
		     "  last: " CONTRACT "\n");
	char *out = run_dir_option();

	ck_assert_int_eq(run_assay("--out", out, "--timeout", "1"), 2);
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

/* The recipe of a case, with the case as model and its golden as golden. */
static void write_case_recipe(const char *name)
{
	char *from = xasprintf("gates/tests/verdicts/%s/recipe.yaml", name), *path = in_dir("recipe.yaml");
	FILE *in = fopen(from, "r"), *out = fopen(path, "w");
	char line[2000];

	ck_assert_ptr_nonnull(in);
	ck_assert_ptr_nonnull(out);
	while (fgets(line, sizeof(line), in)) {
		if (strncmp(line, "model: ", 7) == 0)
			fprintf(out, "model: %s/gates/tests/verdicts/%s\n", root, name);
		else if (strncmp(line, "golden: ", 8) == 0)
			fprintf(out, "golden: %s/gates/tests/verdicts/%s/golden.json\n", root, name);
		else
			fputs(line, out);
	}
	fclose(in);
	ck_assert_int_eq(fclose(out), 0);
	free(from);
	free(path);
}

static int expected_code(const char *name)
{
	char *path = xasprintf("gates/tests/verdicts/%s/expected.json", name);
	json_t *expected = json_load_file(path, 0, NULL);
	int code = (int)json_integer_value(json_object_get(expected, "exit_code"));

	ck_assert_ptr_nonnull(expected);
	json_decref(expected);
	free(path);
	return code;
}

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

/* ---- interruption ---- */

static const struct timespec a_moment = {0, 20000000};

static void wait_for_file(const char *name)
{
	for (int i = 0; i < 500 && !there(name); i++)
		nanosleep(&a_moment, NULL);
	ck_assert_msg(there(name), "%s did not come", name);
}

static void interrupt_and_resume(int signal, int expected)
{
	char *out = run_dir_option();

	write_recipe("  first: {threads: 1}\n  hanging: {threads: 2}\n  last: {threads: 3}\n",
		     "  first: " CONTRACT "\n  hanging: " CONTRACT "\n  last: " CONTRACT "\n");
	pid_t pid = start_run((const char *const[]){"--out", out, NULL});

	wait_for_file("run/legs/hanging.stderr");
	kill(pid, signal);
	ck_assert_int_eq(end_run(pid), expected);
	check_holds("err.txt", "interrupted; the legs that ran are kept");
	char *again = xasprintf("/recipe.yaml --engine %s --out %s\n", engine, out);

	check_holds("err.txt", again);
	free(again);
	ck_assert(there("run/legs/first.exit.json") && there("run/legs/first.json"));
	ck_assert(!there("run/legs/hanging.exit.json") && !there("run/legs/last.exit.json") && !there("run/verdict.json"));

	/* judged as far as it came, and still to be resumed */
	ck_assert_int_eq(end_run(start_assay((char *[]){assay, "judge", out, NULL})), 2);
	check_holds("out.txt", "hanging, last: was not run");
	check_holds("err.txt", "the verdict is not kept");
	ck_assert(!there("run/verdict.json"));

	struct leg_exit before = load_exit("first");

	ck_assert_int_eq(run_assay("--out", out, "--timeout", "1"), 2);
	check_holds("err.txt", "first: kept from the interrupted run");
	struct leg_exit after = load_exit("first");

	ck_assert_str_eq(before.started, after.started);
	check_exit("hanging", -1, "SIGTERM", true, "loading");
	check_exit("last", 0, "", false, NULL);
	ck_assert(there("run/verdict.json"));
	ck_assert_int_eq(end_run(start_assay((char *[]){assay, "judge", out, NULL})), 2);
	char *errors = read_in("err.txt");

	ck_assert_str_eq(errors, "");
	free(errors);
	leg_exit_release(&before);
	leg_exit_release(&after);
	free(out);
}

START_TEST(interrupted)
{
	interrupt_and_resume(SIGINT, 130);
}
END_TEST

START_TEST(terminated)
{
	interrupt_and_resume(SIGTERM, 143);
}
END_TEST

/* Killed outright: what was done is kept all the same. */
START_TEST(killed_and_resumed)
{
	char *out = run_dir_option();
	int status;

	write_recipe("  first: {threads: 1}\n  hanging: {threads: 2}\n", "  first: " CONTRACT "\n  hanging: " CONTRACT "\n");
	pid_t pid = start_run((const char *const[]){"--out", out, NULL});

	wait_for_file("run/legs/hanging.stderr");
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	ck_assert_int_eq(run_assay("--out", out, "--timeout", "1"), 2);
	check_holds("err.txt", "first: kept from the interrupted run");
	ck_assert(there("run/verdict.json"));
	free(out);
}
END_TEST

/* ---- directories that are not to be written ---- */

static void check_refused(const char *text, const char *option, const char *value)
{
	char *out = run_dir_option();

	ck_assert_int_eq(option ? run_assay("--out", out, option, value) : run_assay("--out", out), 2);
	check_holds("err.txt", text);
	free(out);
}

START_TEST(a_complete_run_is_not_overwritten)
{
	write_two_good_legs();
	ck_assert_int_eq(run_here(), 0);
	check_refused("holds a complete run; give another --out", NULL, NULL);
}
END_TEST

START_TEST(another_run_is_not_resumed)
{
	char *verdict = in_dir("run/verdict.json");

	write_two_good_legs();
	ck_assert_int_eq(run_here(), 0);
	unlink(verdict);
	check_refused("was begun with other --set, --leg or --until-decided", "--leg", "good");
	write_recipe("  good: {threads: 2}\n", "  good: " CONTRACT "\n");
	check_refused("was begun with another recipe.yaml", NULL, NULL);
	free(verdict);
}
END_TEST

START_TEST(a_directory_of_something_else_is_left_alone)
{
	char *out = run_dir_option(), *other = in_dir("run/letter.txt");

	write_two_good_legs();
	ck_assert_int_eq(mkdir(out, 0700), 0);
	ck_assert_int_eq(file_write(other, "dear\n", 5, &err), 0);
	check_refused("exists and is no run directory", NULL, NULL);
	ck_assert(!there("run/legs"));
	unlink(other);
	ck_assert_int_eq(run_here(), 0);          /* an empty one is fine */
	free(out);
	free(other);
}
END_TEST

START_TEST(one_at_a_time)
{
	char *out = run_dir_option();

	write_recipe("  hanging: {}\n", "  hanging: " CONTRACT "\n");
	pid_t pid = start_run((const char *const[]){"--out", out, NULL});

	wait_for_file("run/legs/hanging.stderr");
	check_refused("another assay is at work in it", NULL, NULL);
	kill(pid, SIGTERM);
	ck_assert_int_eq(end_run(pid), 143);
	free(out);
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

/* ---- stopping early ---- */

/* A leg's report holds the prompts that overrides.json names, in the order in which they ran. */
static void check_plan(const json_t *over, const char *mode)
{
	const json_t *plan = json_object_get(over, "prompts");
	json_t *report = load_json("run/legs/step.json");
	const json_t *m = json_object_get(json_object_get(report, "modes"), mode), *rows = json_object_get(m, "prompts"), *row;
	size_t i;

	ck_assert_uint_eq(json_array_size(rows), json_array_size(plan));
	json_array_foreach(rows, i, row)
		ck_assert(json_equal(json_object_get(row, "id"), json_array_get(plan, i)));
	json_array_foreach(json_object_get(m, "trace"), i, row)
		ck_assert_int_eq(json_integer_value(json_object_get(row, "step")), (long)i);
	json_decref(report);
}

START_TEST(until_decided_stops_and_says_so)
{
	char *out = run_dir_option();

	write_case_recipe("drift");
	ck_assert_int_eq(run_assay("--out", out, "--until-decided"), 0);
	json_t *over = load_json("run/overrides.json"), *verdict = load_json("run/verdict.json");
	size_t n = json_array_size(json_object_get(over, "prompts"));

	ck_assert(n >= 2 && n < 12 && n % 2 == 0);
	check_plan(over, "forced");
	check_holds("err.txt", "2 of 12 prompts: step ");
	check_exit("step", 0, "", false, NULL);
	check_leg(verdict, "step", "STRICT PASS", "stopped early after ");
	check_holds("out.txt", "stopped early by --until-decided, after ");
	ck_assert(!there("run/legs/step.part") && !there("run/legs/step.part.exit"));
	json_decref(over);
	json_decref(verdict);
	free(out);
}
END_TEST

/* Nothing to decide by: every prompt runs, in an order of its own, and the verdict is that of the whole recipe. */
START_TEST(until_decided_without_a_distance_runs_everything)
{
	char *out = run_dir_option();

	write_case_recipe("single-profile");
	ck_assert_int_eq(run_assay("--out", out, "--until-decided"), expected_code("single-profile"));
	ck_assert(!there("run/overrides.json"));
	check_holds("err.txt", "3 of 3 prompts: step no distance to decide by");
	check_holds("out.txt", "TOKEN MATCH 22/24 full rows=3 short rows=0 mode=free  step  DIVERGENCE");
	free(out);
}
END_TEST

START_TEST(until_decided_ends_a_leg_that_fails)
{
	char *out = run_dir_option();

	write_recipe("  good: {}\n  killed: {threads: 3}\n", "  good: " CONTRACT "\n  killed: " CONTRACT "\n");
	ck_assert_int_eq(run_assay("--out", out, "--until-decided"), 2);
	json_t *verdict = load_json("run/verdict.json");

	check_leg(verdict, "good", "STRICT PASS", NULL);
	check_leg(verdict, "killed", "ERROR", "SIGKILL");
	check_exit("killed", -1, "SIGKILL", false, NULL);
	json_decref(verdict);
	free(out);
}
END_TEST

START_TEST(until_decided_needs_a_distance)
{
	char *out = run_dir_option();

	write_case_recipe("free-hazard");
	ck_assert_int_eq(run_assay("--out", out, "--until-decided"), 2);
	check_holds("err.txt", "does not ask mode `forced`: there is no distance to decide by");
	ck_assert(!there("run"));
	free(out);
}
END_TEST

START_TEST(until_decided_starts_over)
{
	char *out = run_dir_option();

	write_recipe("  good: {}\n  hanging: {threads: 3}\n", "  good: " CONTRACT "\n  hanging: " CONTRACT "\n");
	pid_t pid = start_run((const char *const[]){"--out", out, "--until-decided", NULL});

	wait_for_file("run/legs/hanging.stderr");
	kill(pid, SIGTERM);
	ck_assert_int_eq(end_run(pid), 143);
	ck_assert(!there("run/legs/good.exit.json") && !there("run/verdict.json"));
	ck_assert_int_eq(run_assay("--out", out, "--until-decided", "--timeout", "1"), 2);
	check_exit("hanging", -1, "SIGTERM", true, "loading");
	check_exit("good", 0, "", false, NULL);
	free(out);
}
END_TEST

static void write_report(const char *name, const char *engine_name, const char *rest)
{
	char *path = in_dir(name);
	char *text = xasprintf("{\"schema\":\"assay/report/1\",\"leg\":\"on\",\"engine\":{\"name\":\"%s\"},%s}", engine_name, rest);

	ck_assert_int_eq(file_write(path, text, strlen(text), &err), 0);
	free(text);
	free(path);
}

START_TEST(reports_are_merged)
{
	char *whole = in_dir("whole.json"), *part = in_dir("part.json");

	write_report("part.json", "e", "\"modes\":{\"free\":{\"prompts\":[1],\"counters_total\":{\"gathers\":2},\"trace\":[{\"step\":0,"
		     "\"gathers\":2}]}},\"timing\":{\"per_token_ms\":{\"p50\":1,\"n\":3}},\"busy\":null,\"peak_rss_bytes\":9,"
		     "\"audit\":{\"agrees\":true}");
	ck_assert_int_eq(report_merge(whole, part, &err), 0);        /* the first is the whole */
	ck_assert(!there("part.json"));
	write_report("part.json", "e", "\"modes\":{\"free\":{\"prompts\":[2,3],\"counters_total\":{\"gathers\":5},\"trace\":[{\"step\":0,"
		     "\"gathers\":1},{\"step\":1,\"gathers\":4}]}},\"timing\":{\"per_token_ms\":{\"p50\":2,\"n\":5}},\"busy\":{\"hz\":10},"
		     "\"peak_rss_bytes\":7,\"audit\":{\"agrees\":false}");
	ck_assert_msg(report_merge(whole, part, &err) == 0, "%s", err.text);
	json_t *merged = load_json("whole.json");
	json_t *expected = json_loads("{\"schema\":\"assay/report/1\",\"leg\":\"on\",\"engine\":{\"name\":\"e\"},\"modes\":{\"free\":"
		"{\"prompts\":[1,2,3],\"counters_total\":{\"gathers\":7},\"trace\":[{\"step\":0,\"gathers\":2},{\"step\":1,\"gathers\":1},"
		"{\"step\":2,\"gathers\":4}]}},\"timing\":{\"per_token_ms\":{\"p50\":2,\"n\":5}},\"busy\":{\"hz\":10},"
		"\"peak_rss_bytes\":9,\"audit\":{\"agrees\":false}}", 0, NULL);

	ck_assert_ptr_nonnull(expected);
	ck_assert(json_equal(merged, expected));
	write_report("part.json", "another", "\"modes\":{}");
	ck_assert_int_eq(report_merge(whole, part, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "part.json: $.engine: is not that of the prompts before"));
	json_decref(merged);
	json_decref(expected);
	free(whole);
	free(part);
}
END_TEST

/* ---- foreign engines ---- */

START_TEST(a_foreign_engine_gets_a_request_and_prints_a_report)
{
	char *legs = xasprintf("  other: {mamba.decode: step, at: [{layers: \"1\", mamba.proj: w8a16}], engine: {argv: [%s, foreign, %s]}}\n",
			       engine, canned);

	write_recipe(legs, "  other: " CONTRACT "\n");
	run_here();
	json_t *request = load_json("run/legs/other.stderr"), *prompt, *requested;
	char *golden = path_join(canned, "golden.json"), sha[SHA256_HEX];

	ck_assert_int_eq(sha256_file(golden, sha, &err), 0);
	ck_assert_str_eq(json_string_value(json_object_get(request, "schema")), "assay/request/1");
	ck_assert_str_eq(json_string_value(json_object_get(request, "leg")), "other");
	ck_assert_str_eq(json_string_value(json_object_get(request, "model")), canned);
	ck_assert_str_eq(json_string_value(json_object_get(request, "golden_sha256")), sha);
	ck_assert_int_eq(json_integer_value(json_object_get(request, "steps")), 12);
	ck_assert_int_eq(json_array_size(json_object_get(request, "modes")), 2);
	ck_assert_int_eq(json_array_size(json_object_get(request, "prompts")), 3);
	prompt = json_array_get(json_object_get(request, "prompts"), 2);
	ck_assert_str_eq(json_string_value(json_object_get(prompt, "id")), "p2");
	ck_assert_int_eq(json_array_size(json_object_get(prompt, "ids")), 11);
	ck_assert_int_eq(json_array_size(json_object_get(prompt, "given")), 12);
	requested = json_object_get(request, "requested");
	ck_assert_str_eq(json_string_value(json_object_get(requested, "mamba.decode")), "step");
	ck_assert(json_is_null(json_object_get(requested, "graph")));
	ck_assert_int_eq(json_array_size(json_object_get(requested, "at")), 1);
	ck_assert(there("run/legs/other.json"));
	check_exit("other", 0, "", false, NULL);
	json_decref(request);
	free(golden);
	free(legs);
}
END_TEST

START_TEST(a_foreign_engine_that_prints_no_report)
{
	char *legs = xasprintf("  nothing: {engine: {argv: [/bin/true]}}\n  words: {engine: {argv: [%s, sign, hello]}}\n"
			       "  failed: {engine: {argv: [/bin/false]}}\n  far: {host: elsewhere}\n", engine);

	write_recipe(legs, "  nothing: " CONTRACT "\n  words: " CONTRACT "\n  failed: " CONTRACT "\n  far: " CONTRACT "\n");
	ck_assert_int_eq(run_here(), 2);
	json_t *verdict = load_json("run/verdict.json");

	check_leg(verdict, "nothing", "ERROR", "report");
	check_leg(verdict, "words", "ERROR", "words.json");
	check_leg(verdict, "failed", "ERROR", "1");
	check_leg(verdict, "far", "NOT MEASURED", "no launcher for other machines");
	json_decref(verdict);
	free(legs);
}
END_TEST

/* ---- inputs that do not fit ---- */

static void check_input(const char *old, const char *new, const char *text)
{
	char *recipe, *at, *changed, *path = in_dir("recipe.yaml"), *out = run_dir_option();

	write_two_good_legs();
	recipe = read_in("recipe.yaml");
	at = strstr(recipe, old);
	ck_assert_ptr_nonnull(at);
	*at = '\0';
	changed = xasprintf("%s%s%s", recipe, new, at + strlen(old));
	ck_assert_int_eq(file_write(path, changed, strlen(changed), &err), 0);
	ck_assert_int_eq(run_assay("--out", out), 2);
	check_holds("err.txt", text);
	ck_assert(!there("run"));
	free(changed);
	free(recipe);
	free(path);
	free(out);
}

START_TEST(inputs_are_checked_before_anything_is_written)
{
	check_input("steps: 12", "steps: 12\nprompts: [p0, p9]", "recipe.yaml:8:15: the golden has no prompt `p9`; did you mean `p0`?");
	check_input("steps: 12", "steps: 12\nprofile: eagre", "recipe.yaml:8:10: the golden has no profile `eagre`; did you mean `eager`?");
	check_input("/golden.json", "/gold.json", "recipe.yaml:6:9: golden `");
	check_input("strict-pass-equivalent\ng", "nothing-there\ng", "recipe.yaml:5:8: model `");
	check_input("model: ", "model: relative", "neither beside the recipe nor in any directory above it");
	check_input("/golden.json", "/recipe.yaml", "recipe.yaml:1:");
	check_input("kind: gate", "kind: gates", "recipe.yaml:3:7: kind: unknown kind `gates`; did you mean `gate`?");
}
END_TEST

/* ---- full disks ---- */

/* The runner itself may write no more than a few kilobytes: the verdict cannot be kept, but it is shown. */
START_TEST(a_file_that_cannot_be_written_is_an_error_and_the_verdict_is_shown)
{
	char *out = run_dir_option();
	const char *words[] = {"--out", out, NULL};
	struct stat golden;
	char *path = path_join(canned, "golden.json");

	ck_assert_int_eq(stat(path, &golden), 0);
	write_recipe("  good: {}\n", "  good: " CONTRACT "\n");
	/* Too little for a verdict is too little for the golden: take a run up to its verdict, then shrink. */
	ck_assert_int_eq(run_here(), 0);
	char *verdict = in_dir("run/verdict.json");

	unlink(verdict);
	signal(SIGXFSZ, SIG_IGN);
	struct rlimit old, small;

	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){600, old.rlim_max};
	setrlimit(RLIMIT_FSIZE, &small);
	pid_t pid = start_run(words);

	setrlimit(RLIMIT_FSIZE, &old);
	ck_assert_int_eq(end_run(pid), 2);
	ck_assert(!there("run/verdict.json"));
	check_holds("err.txt", "verdict.json");
	check_holds("err.txt", "File too large");
	free(verdict);
	free(path);
	free(out);
}
END_TEST

/* A file system of its own with this much room at <dir>/run; false where none can be mounted. */
static bool mount_small(const char *test, long bytes)
{
	char *at = in_dir("run"), *size = xasprintf("size=%ldk", bytes / 1024);
	bool mounted;

	ck_assert_int_eq(mkdir(at, 0700), 0);
	mounted = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
		  && mount("tmpfs", at, "tmpfs", 0, size) == 0;
	if (!mounted)
		printf("%s: skipped: no file system can be mounted here: %s\n", test, strerror(errno));
	free(at);
	free(size);
	return mounted;
}

static long size_of(const char *name)
{
	char *path = path_join(canned, name);
	struct stat s;

	ck_assert_int_eq(stat(path, &s), 0);
	free(path);
	return (long)s.st_size;
}

static void umount_small(void)
{
	char *at = in_dir("run");

	umount(at);
	free(at);
}

START_TEST(a_disk_without_room_for_the_inputs)
{
	if (!mount_small("a_disk_without_room_for_the_inputs", size_of("golden.json") - 8192))
		return;
	write_two_good_legs();
	ck_assert_int_eq(run_here(), 2);
	check_holds("err.txt", "golden.json: cannot write: No space left on device");
	ck_assert(!there("run/run.json"));
	umount_small();
}
END_TEST

/* Room for the inputs and one report: the second leg fails, the first counts, the table is printed all the same. */
START_TEST(a_disk_that_is_full_after_the_first_leg)
{
	if (!mount_small("a_disk_that_is_full_after_the_first_leg",
			 size_of("golden.json") + size_of("legs/step.json") + 48 * 1024))
		return;
	write_two_good_legs();
	ck_assert_int_eq(run_here(), 2);
	check_holds("out.txt", "mode=free  good    STRICT PASS");
	check_holds("out.txt", "better.json: cannot write: No space");
	ck_assert(there("run/legs/good.json") && !there("run/legs/better.json"));
	umount_small();
}
END_TEST

static void find_programs(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	BUG_ON(n <= 0);
	self[n] = '\0';
	char *tests = path_dir(self);

	engine = path_join(tests, "fake_engine");
	assay = xasprintf("%s/../../assay", tests);
	root = realpath(".", NULL);
	canned = path_join(root, CASE);
	free(tests);
}

int main(void)
{
	find_programs();

	Suite *suite = suite_create("run");
	TCase *tc = tcase_create("run");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_run_leaves_its_directory);
	tcase_add_test(tc, the_engine_gets_the_leg);
	tcase_add_test(tc, legs_that_fail_cost_no_other);
	tcase_add_test(tc, the_tail_is_the_last_words_without_the_trace);
	tcase_add_test(tc, exit_codes_of_all_canned_cases);
	tcase_add_test(tc, interrupted);
	tcase_add_test(tc, terminated);
	tcase_add_test(tc, killed_and_resumed);
	tcase_add_test(tc, a_complete_run_is_not_overwritten);
	tcase_add_test(tc, another_run_is_not_resumed);
	tcase_add_test(tc, a_directory_of_something_else_is_left_alone);
	tcase_add_test(tc, one_at_a_time);
	tcase_add_test(tc, set_and_leg_are_written_down);
	tcase_add_test(tc, json_is_the_verdict_alone);
	tcase_add_test(tc, legs_are_told_on_stderr_and_the_bar_is_not);
	tcase_add_test(tc, until_decided_stops_and_says_so);
	tcase_add_test(tc, until_decided_without_a_distance_runs_everything);
	tcase_add_test(tc, until_decided_ends_a_leg_that_fails);
	tcase_add_test(tc, until_decided_needs_a_distance);
	tcase_add_test(tc, until_decided_starts_over);
	tcase_add_test(tc, reports_are_merged);
	tcase_add_test(tc, a_foreign_engine_gets_a_request_and_prints_a_report);
	tcase_add_test(tc, a_foreign_engine_that_prints_no_report);
	tcase_add_test(tc, inputs_are_checked_before_anything_is_written);
	tcase_add_test(tc, a_file_that_cannot_be_written_is_an_error_and_the_verdict_is_shown);
	tcase_add_test(tc, a_disk_without_room_for_the_inputs);
	tcase_add_test(tc, a_disk_that_is_full_after_the_first_leg);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	free(engine);
	free(assay);
	free(root);
	free(canned);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
