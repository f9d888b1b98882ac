/* The rig of the tests that drive build/assay (run_rig.h). */
#include "run_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "beside_rig.h"
#include "contract/file.h"

char *assay, *engine, *root, *canned;
char dir[64];
struct err err;

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

char *in_dir(const char *name)
{
	return path_join(dir, name);
}

char *read_in(const char *name)
{
	char *path = in_dir(name);
	size_t size;
	char *bytes = file_read(path, 1 << 24, &size, &err);

	ck_assert_msg(bytes != NULL, "%s", err.text);
	free(path);
	return bytes;
}

bool there(const char *name)
{
	char *path = in_dir(name);
	bool exists = file_exists(path);

	free(path);
	return exists;
}

void check_holds(const char *name, const char *text)
{
	char *bytes = read_in(name);

	ck_assert_msg(strstr(bytes, text) != NULL, "%s lacks \"%s\"; it holds:\n%s", name, text, bytes);
	free(bytes);
}

void write_recipe(const char *legs, const char *require)
{
	char *path = in_dir("recipe.yaml");
	char *text = xasprintf("schema: assay/recipe/1\nname: runs\nkind: gate\nquestion: Does it run?\nmodel: %s\n"
			       "golden: %s/golden.json\nsteps: 12\nmodes: [free, forced]\nbase: {backend: cpu}\n"
			       "legs:\n%srequire:\n%s", canned, canned, legs, require);

	ck_assert_int_eq(file_write(path, text, strlen(text), &err), 0);
	free(text);
	free(path);
}

void write_two_good_legs(void)
{
	write_recipe("  good: {threads: 2}\n  better: {threads: 3}\n", "  good: " CONTRACT "\n  better: " CONTRACT "\n");
}

/* ---- assay ---- */

pid_t start_assay(char **argv)
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

pid_t start_run(const char *const *words)
{
	char *recipe = in_dir("recipe.yaml"), *argv[32] = {assay, "run", recipe, "--engine", engine};
	int n = 5;

	while (*words)
		argv[n++] = (char *)*words++;
	pid_t pid = start_assay(argv);

	free(recipe);
	return pid;
}

int end_run(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	ck_assert_msg(WIFEXITED(status), "assay died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

char *run_dir_option(void)
{
	return in_dir("run");
}

int run_here(void)
{
	char *out = run_dir_option();
	int code = run_assay("--out", out);

	free(out);
	return code;
}

struct leg_exit load_exit(const char *leg)
{
	char *path = xasprintf("%s/run/legs/%s.exit.json", dir, leg);
	struct leg_exit e;

	ck_assert_msg(leg_exit_load(&e, path, &err) == 0, "%s", err.text);
	ck_assert_str_eq(e.leg, leg);
	free(path);
	return e;
}

const json_t *leg_verdict(const json_t *verdict, const char *leg)
{
	const json_t *found = json_object_get(json_object_get(verdict, "legs"), leg);

	ck_assert_msg(found != NULL, "the verdict has no leg %s", leg);
	return found;
}

json_t *load_json(const char *name)
{
	char *path = in_dir(name);
	json_error_t error;
	json_t *json = json_load_file(path, 0, &error);

	ck_assert_msg(json != NULL, "%s: %s", path, error.text);
	free(path);
	return json;
}

/* ---- what a leg came to ---- */

void check_exit(const char *leg, int exit_code, const char *signal, bool timed_out, const char *tail)
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

void check_leg(const json_t *verdict, const char *leg, const char *expected, const char *reason)
{
	const json_t *v = leg_verdict(verdict, leg);
	const char *said = json_string_value(json_object_get(v, "reason"));

	ck_assert_str_eq(json_string_value(json_object_get(v, "verdict")), expected);
	ck_assert_msg(!reason || strstr(said, reason), "%s: the reason lacks \"%s\": %s", leg, reason, said);
}

/* ---- canned cases ---- */

void write_case_recipe(const char *name)
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

int expected_code(const char *name)
{
	char *path = xasprintf("gates/tests/verdicts/%s/expected.json", name);
	json_t *expected = json_load_file(path, 0, NULL);
	int code = (int)json_integer_value(json_object_get(expected, "exit_code"));

	ck_assert_ptr_nonnull(expected);
	json_decref(expected);
	free(path);
	return code;
}

static const struct timespec a_moment = {0, 20000000};

void wait_for_file(const char *name)
{
	for (int i = 0; i < 500 && !there(name); i++)
		nanosleep(&a_moment, NULL);
	ck_assert_msg(there(name), "%s did not come", name);
}

static void find_programs(void)
{
	engine = beside_test("fake_engine");
	assay = beside_test(BUILT_ASSAY);
	root = realpath(".", NULL);
	canned = path_join(root, CASE);
}

int run_rig_main(const char *name, void (*add)(TCase *tc))
{
	find_programs();

	Suite *suite = suite_create(name);
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, start, stop);
	tcase_set_timeout(tc, 60);
	add(tc);
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
