/* The command line of assay: exit codes, what is said where, and what `assay show` prints for canned verdicts.
 * gates/tests/show/<case>/: verdict.json, maybe recipe.yaml, and the text expected of it. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "beside_rig.h"
#include "contract/file.h"
#include "contract/tests/man_check.h"

#define SHOW "gates/tests/show/"

static char *assay, dir[64];
static char *out, *errors;           /* what the last call printed */

static void start(void)
{
	strcpy(dir, "/tmp/check_cli.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	setenv("LC_ALL", "C.UTF-8", 1);
	unsetenv("NO_COLOR");
}

static void stop(void)
{
	char *command = xasprintf("rm -rf %s", dir);

	ck_assert_int_eq(system(command), 0);
	free(command);
	free(out);
	free(errors);
	out = errors = NULL;
}

static char *take(const char *name)
{
	struct err err = {0};
	char *path = path_join(dir, name);
	size_t size;
	char *bytes = file_read(path, 1 << 24, &size, &err);

	ck_assert_msg(bytes != NULL, "%s", err.text);
	free(path);
	return bytes;
}

static int call(const char *const *words)
{
	char *argv[16] = {assay}, *out_path = path_join(dir, "out"), *err_path = path_join(dir, "err");
	int n = 1, status;

	while (*words)
		argv[n++] = (char *)*words++;
	pid_t pid = fork();

	if (pid == 0) {
		dup2(open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
		dup2(open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
		execv(assay, argv);
		_exit(99);
	}
	waitpid(pid, &status, 0);
	free(out_path);
	free(err_path);
	free(out);
	free(errors);
	out = take("out");
	errors = take("err");
	ck_assert_msg(WIFEXITED(status), "assay died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

#define assay(...) call((const char *const[]){__VA_ARGS__, NULL})

/* ---- what is refused ---- */

static const struct {
	const char *words[8];
	const char *says;            /* the whole of stderr begins so */
} refused[] = {
	{{NULL}, "usage: assay COMMAND ... (assay --help)"},
	{{"rum"}, "assay: no command is named `rum`; did you mean `run`?"},
	{{"verify"}, "assay: no command is named `verify`; known: run, judge, explain, show, "},
	{{"run"}, "assay run: which recipe? (assay run --help)"},
	{{"run", "a.yaml", "b.yaml"}, "assay run: one recipe, please (assay run --help)"},
	{{"run", "--bad"}, "assay run: unrecognized option '--bad'"},
	{{"run", "--out"}, "assay run: option '--out' requires an argument"},
	{{"run", "no-such.yaml"}, "assay: no-such.yaml: No such file or directory"},
	{{"run", "--timeout", "soon", "a.yaml"}, "assay run: --timeout soon: expected seconds, more than 0"},
	{{"run", "--timeout", "0", "a.yaml"}, "assay run: --timeout 0: expected seconds, more than 0"},
	{{"run", "--timeout", "inf", "a.yaml"}, "assay run: --timeout inf: expected seconds, more than 0"},
	{{"run", "--set", "mamba.proj=w9", "a.yaml"}, "assay: --set mamba.proj=w9: mamba.proj: expected w8a8, w8a8-lt, w8a16 or native"},
	{{"run", "--set", "kernel", "a.yaml"}, "assay: --set kernel: "},
	{{"run", "recipes/token-gate.yaml", "--leg", "stepp"}, "assay: --leg stepp: recipes/token-gate.yaml has no such leg; did you mean `step`?"},
	{{"run", "recipes/token-gate.yaml", "--engine", "/no/such/engine"}, "assay: /no/such/engine: No such file or directory\n"},
	{{"run", "gates/tests/recipes/invalid/unknown-key/recipe.yaml"},
	 "assay: gates/tests/recipes/invalid/unknown-key/recipe.yaml:14:1: recipe: unknown key `stesp`; did you mean `steps`?"},
	{{"judge"}, "assay judge: which run directory? (assay judge --help)"},
	{{"judge", "/no/such/run"}, "assay: /no/such/run/recipe.yaml: "},
	{{"judge", "--out", "x"}, "assay judge: unrecognized option '--out'"},
	{{"show"}, "assay show: which run directory or verdict? (assay show --help)"},
	{{"show", "/no/such/verdict.json"}, "assay: /no/such/verdict.json: "},
	{{"show", "recipes/token-gate.yaml"}, "assay: recipes/token-gate.yaml:1:1: "},
	{{"show", "gates/tests/verdicts/short"}, "assay: gates/tests/verdicts/short: holds no verdict.json (assay judge "},
	{{"explain"}, "assay explain: which recipe or run directory? (assay explain --help)"},
	{{"explain", "gates/tests/recipes/invalid/alias/recipe.yaml"},
	 "assay: gates/tests/recipes/invalid/alias/recipe.yaml:10:8: alias `*b`: a recipe has no aliases"},
	{{"schema"}, "assay schema: which? known: recipe, golden, report, verdict, bench, capture"},
	{{"schema", "recip"}, "assay schema: no schema is named `recip`; did you mean `recipe`?"},
	{{"doctor", "now"}, "assay doctor: takes no argument"},
};

START_TEST(what_is_refused_is_said_on_stderr)
{
	ck_assert_int_eq(call(refused[_i].words), 2);
	ck_assert_msg(strncmp(errors, refused[_i].says, strlen(refused[_i].says)) == 0, "expected \"%s\", got \"%s\"",
		      refused[_i].says, errors);
	ck_assert_str_eq(out, "");
}
END_TEST

START_TEST(help_is_everywhere)
{
	static const char *const names[] = {"run", "judge", "explain", "show", "report", "record", "history", "compare", "capture",
		"openai", "golden", "selftest", "doctor", "schema"};

	ck_assert_int_eq(assay("--help"), 0);
	ck_assert_str_eq(errors, "");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_ptr_nonnull(strstr(out, names[i]));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *usage = xasprintf("usage: assay %s ", names[i]);

		ck_assert_int_eq(assay(names[i], "--help"), 0);
		ck_assert_int_eq(strncmp(out, usage, strlen(usage)), 0);
		ck_assert_int_eq(assay(names[i], "-h"), 0);
		ck_assert_str_eq(errors, "");
		free(usage);
	}
}
END_TEST

START_TEST(the_man_page_has_the_options)
{
	static const char *const names[] = {"run", "judge", "explain", "show", "report", "record", "history", "compare", "capture",
		"openai", "golden", "selftest", "doctor", "schema"};
	char *page = man_page("docs/assay.1"), *all = xstrdup("--help");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *before = all;

		ck_assert_int_eq(assay(names[i], "--help"), 0);
		man_covers(page, out);
		all = xasprintf("%s %s", before, out);
		free(before);
	}
	man_covers(all, page);
	free(all);
	free(page);
}
END_TEST

START_TEST(version_names_the_build)
{
	ck_assert_int_eq(assay("--version"), 0);
	ck_assert_int_eq(strncmp(out, "assay ", 6), 0);
	ck_assert_ptr_nonnull(strstr(out, "\ngit "));
	ck_assert_ptr_nonnull(strstr(out, "\nflags "));
}
END_TEST

START_TEST(schemas_are_printed_as_they_are)
{
	static const char *const names[] = {"recipe", "golden", "report", "verdict", "bench", "capture"};

	for (int i = 0; i < 6; i++) {
		char *path = xasprintf("contract/schemas/%s.schema.json", names[i]);
		struct err err = {0};
		size_t size;
		char *file = file_read(path, 1 << 20, &size, &err);

		ck_assert_int_eq(assay("schema", names[i]), 0);
		ck_assert_str_eq(out, file);
		free(file);
		free(path);
	}
}
END_TEST

START_TEST(doctor_names_what_there_is)
{
	static const char *const heads[] = {"assay  ", "\nCPU ", "\nmemory ", "\nlibraries  jansson ", "\nengine "};

	assay("doctor");
	for (int i = 0; i < 5; i++)
		ck_assert_ptr_nonnull(strstr(out, heads[i]));
	ck_assert_int_eq(assay("doctor", "--engine", "/no/such/engine"), 2);
	ck_assert_ptr_nonnull(strstr(out, "/no/such/engine: cannot be started: No such file or directory"));
}
END_TEST

START_TEST(output_that_cannot_be_written_is_an_error)
{
	char *command = xasprintf("'%s' show " SHOW "crashed >/dev/full 2>%s/err", assay, dir);
	int status = system(command);

	ck_assert_int_eq(WEXITSTATUS(status), 2);
	free(command);
}
END_TEST

/* ---- what is shown ---- */

static void check_file(const char *path)
{
	struct err err = {0};
	size_t size;
	char *expected = file_read(path, 1 << 20, &size, &err);

	ck_assert_msg(expected != NULL, "%s", err.text);
	ck_assert_msg(strcmp(out, expected) == 0, "%s differs; it is now:\n%s", path, out);
	free(expected);
}

START_TEST(tables)
{
	static const char *const cases[] = {"seed-three-legs", "void-contract", "crashed", "hostile-text"};

	for (int i = 0; i < 4; i++) {
		char *path = xasprintf(SHOW "%s", cases[i]), *expected = xasprintf("%s/expected.utf8", path);

		ck_assert_int_eq(assay("show", path), 0);
		ck_assert_str_eq(errors, "");
		check_file(expected);
		free(path);
		free(expected);
	}
}
END_TEST

/* A verdict by its file name is the same verdict. */
START_TEST(a_file_is_shown_too)
{
	ck_assert_int_eq(assay("show", SHOW "hostile-text/verdict.json"), 0);
	check_file(SHOW "hostile-text/expected.utf8");
}
END_TEST

START_TEST(quiet_is_the_answer_alone)
{
	ck_assert_int_eq(assay("show", "--quiet", SHOW "seed-three-legs"), 0);
	check_file(SHOW "seed-three-legs/expected.quiet");
}
END_TEST

/* In a log, a run that proved nothing says why. */
START_TEST(quiet_says_what_went_wrong)
{
	char *command = xasprintf("cp -r gates/tests/verdicts/crashed %s/run", dir), *run = path_join(dir, "run");

	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(assay("judge", "--quiet", run), 2);
	ck_assert_msg(strstr(out, "\nchunk: killed by SIGKILL: prompt p1 step 3\n") != NULL, "%s", out);
	free(command);
	free(run);
}
END_TEST

/* A server's model goes into JSON, which has no other bytes. */
START_TEST(a_model_that_is_no_text)
{
	ck_assert_int_eq(assay("openai", "--url", "http://127.0.0.1:1/v1", "--model", "\xff"), 2);
	ck_assert_str_eq(errors, "assay openai: --model: not UTF-8 (assay openai --help)\n");
}
END_TEST

START_TEST(prompts_are_shown_on_request)
{
	ck_assert_int_eq(assay("show", SHOW "hostile-text", "--prompts"), 0);
	check_file(SHOW "hostile-text/expected.prompts");
}
END_TEST

START_TEST(without_utf8_everything_is_ascii)
{
	setenv("LC_ALL", "C", 1);
	ck_assert_int_eq(assay("show", SHOW "hostile-text"), 0);
	check_file(SHOW "hostile-text/expected.ascii");
	for (const char *c = out; *c; c++)
		ck_assert_msg(*c == '\n' || (*c >= ' ' && *c <= '~'), "byte 0x%02x", (unsigned char)*c);
}
END_TEST

/* With 900 flips the answer still ends on line 40; the others follow, as many as a person may read. */
START_TEST(the_first_forty_lines_are_the_answer)
{
	json_t *verdict = json_load_file(SHOW "hostile-text/verdict.json", 0, NULL), *flips, *flip;
	char *path = path_join(dir, "verdict.json"), *recipe = path_join(dir, "recipe.yaml"), *line;
	struct err err = {0};
	int lines = 1;

	flips = json_object_get(json_object_get(json_object_get(verdict, "legs"), "step"), "flips");
	flip = json_array_get(flips, 0);
	ck_assert_ptr_nonnull(flip);
	for (int i = 0; i < 900; i++) {
		json_t *copy = json_deep_copy(flip);

		json_object_set_new(copy, "step", json_integer(100 + i));
		json_array_append_new(flips, copy);
	}
	ck_assert_int_eq(json_dump_file(verdict, path, JSON_COMPACT), 0);
	ck_assert_int_eq(file_write(recipe, "", 0, &err), 0);
	ck_assert_int_eq(assay("show", dir), 0);
	line = strstr(out, "run directory: ");
	ck_assert_ptr_nonnull(line);
	for (const char *c = out; c < line; c++)
		lines += *c == '\n';
	ck_assert_int_eq(lines, 40);
	ck_assert_ptr_nonnull(strstr(line, "(more flips below)"));
	ck_assert_ptr_nonnull(strstr(line, " more in verdict.json\n"));
	json_decref(verdict);
	free(path);
	free(recipe);
}
END_TEST

/* The worked example: three legs, two of which share the suspect. */
START_TEST(the_seed_is_explained)
{
	ck_assert_int_eq(assay("explain", "recipes/seed-three-legs.yaml"), 0);
	ck_assert_ptr_nonnull(strstr(out, "mamba.decode: on and off differ in nothing else"));
	ck_assert_ptr_nonnull(strstr(out, "ALIASED: place.mamba, mamba.proj change together in every leg"));
	ck_assert(strstr(out, "next leg: on+mamba.proj=w8a16") || strstr(out, "next leg: host+mamba.proj=w8a8"));
	ck_assert_int_eq(assay("explain", "recipes/on-off-host.yaml"), 0);
	ck_assert_ptr_null(strstr(out, "ALIASED"));
	ck_assert_ptr_nonnull(strstr(out, "mamba.proj: host and host-w8a8 differ in nothing else"));
	ck_assert_ptr_nonnull(strstr(out, "place.mamba: on and host-w8a8 differ in nothing else"));
}
END_TEST

static bool line_has(const char *first, const char *second)
{
	for (const char *line = out; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *a = strstr(line, first), *end = strchr(line, '\n'), *b = a ? strstr(a, second) : NULL;

		if (b && (!end || b < end))
			return true;
	}
	return false;
}

START_TEST(claims_and_hypotheses_are_explained)
{
	ck_assert_int_eq(assay("explain", "recipes/seed-three-legs.yaml"), 0);
	ck_assert_msg(line_has("mamba.decode", "supportable  by on and off"), "%s", out);
	ck_assert_msg(line_has("place.mamba", "refused      needs on against host+mamba.proj=w8a8"), "%s", out);
	ck_assert_msg(line_has("mamba.proj", "refused      needs host against host+mamba.proj=w8a8"), "%s", out);
	ck_assert_ptr_null(strstr(out, "Hypotheses"));
	ck_assert_int_eq(assay("explain", "gates/tests/verdicts/seed-three-legs"), 0);
	ck_assert_msg(line_has("mamba.decode", "consistent  by on and off"), "%s", out);
	ck_assert_msg(line_has("mamba.proj", "refused     needs "), "%s", out);
	ck_assert_msg(line_has("kernel", "eliminated  by off"), "%s", out);
	ck_assert_msg(line_has("place", "survives"), "%s", out);
}
END_TEST

/* Two runs, which is which, and what differs. */
START_TEST(runs_are_compared)
{
	ck_assert_int_eq(assay("compare", "gates/tests/verdicts/near-tie", "gates/tests/verdicts/noisy-pass"), 0);
	ck_assert_ptr_nonnull(strstr(out, "  DIVERGENCE (exit 1)  near-tie\n2  "));
	ck_assert_ptr_nonnull(strstr(out, "\nstep  1  DIVERGENCE   29/36  R "));
	ck_assert_ptr_nonnull(strstr(out, "\n      2  STRICT PASS  24/24  R "));
	ck_assert_ptr_nonnull(strstr(out, "\nverdict: DIVERGENCE -> STRICT PASS\n"));
	ck_assert_int_eq(assay("compare", "gates/tests/verdicts/near-tie", "gates/tests/verdicts/near-tie"), 0);
	ck_assert_ptr_nonnull(strstr(out, "\nnothing differs\n"));
	ck_assert_int_eq(assay("compare", "gates/tests/verdicts/void-contract", "gates/tests/verdicts/near-tie"), 0);
	ck_assert_ptr_nonnull(strstr(out, "\n       2  not there\n"));
	ck_assert_ptr_nonnull(strstr(out, "\nchunk: is no more\n"));
}
END_TEST

int main(void)
{
	assay = beside_test(BUILT_ASSAY);

	Suite *suite = suite_create("cli");
	TCase *tc = tcase_create("cli");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, what_is_refused_is_said_on_stderr, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(tc, help_is_everywhere);
	tcase_add_test(tc, the_man_page_has_the_options);
	tcase_add_test(tc, version_names_the_build);
	tcase_add_test(tc, schemas_are_printed_as_they_are);
	tcase_add_test(tc, doctor_names_what_there_is);
	tcase_add_test(tc, output_that_cannot_be_written_is_an_error);
	tcase_add_test(tc, tables);
	tcase_add_test(tc, a_file_is_shown_too);
	tcase_add_test(tc, quiet_is_the_answer_alone);
	tcase_add_test(tc, quiet_says_what_went_wrong);
	tcase_add_test(tc, a_model_that_is_no_text);
	tcase_add_test(tc, prompts_are_shown_on_request);
	tcase_add_test(tc, without_utf8_everything_is_ascii);
	tcase_add_test(tc, the_first_forty_lines_are_the_answer);
	tcase_add_test(tc, the_seed_is_explained);
	tcase_add_test(tc, claims_and_hypotheses_are_explained);
	tcase_add_test(tc, runs_are_compared);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	free(assay);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
