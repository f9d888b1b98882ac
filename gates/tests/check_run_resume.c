/* Interrupted, killed and resumed runs, and directories that are not to be written. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "contract/file.h"
#include "run_rig.h"

/* The command that is printed, read by a shell, is the one that was given. */
static void check_again(const char *out)
{
	char *errors = read_in("err.txt"), *again = strstr(errors, "To resume:");
	char *expected = xasprintf("assay\nrun\n%s/recipe.yaml\n--engine\n%s\n--out\n%s\n", dir, engine, out);

	ck_assert_ptr_nonnull(again);
	char *command = xasprintf("set -- %.*s; printf '%%s\\n' \"$@\" > %s/words", (int)strcspn(again + 10, "\n"), again + 10, dir);

	ck_assert_int_eq(system(command), 0);
	char *words = read_in("words");

	ck_assert_str_eq(words, expected);
	free(words);
	free(command);
	free(expected);
	free(errors);
}

static void interrupt_and_resume(int signal, int expected)
{
	char *run = run_dir_option(), *out = in_dir("it's $HOME; & (so)");

	ck_assert_int_eq(mkdir(run, 0700), 0);
	ck_assert_int_eq(symlink(run, out), 0);
	free(run);
	write_recipe("  first: {threads: 1}\n  hanging: {threads: 2}\n  last: {threads: 3}\n",
		     "  first: " CONTRACT "\n  hanging: " CONTRACT "\n  last: " CONTRACT "\n");
	pid_t pid = start_run((const char *const[]){"--out", out, NULL});

	wait_for_file("run/legs/hanging.stderr");
	kill(pid, signal);
	ck_assert_int_eq(end_run(pid), expected);
	check_holds("err.txt", "interrupted; the legs that ran are kept");
	check_again(out);
	ck_assert(there("run/legs/first.exit.json") && there("run/legs/first.json"));
	ck_assert(!there("run/legs/hanging.exit.json") && !there("run/legs/last.exit.json") && !there("run/verdict.json"));

	/* judged as far as it came, and still to be resumed */
	ck_assert_int_eq(end_run(start_assay((char *[]){assay, "judge", out, NULL})), 2);
	check_holds("out.txt", "hanging, last: was not run");
	check_holds("err.txt", "the verdict is not kept");
	ck_assert(!there("run/verdict.json"));

	struct leg_exit before = load_exit("first");

	ck_assert_int_eq(run_assay("--out", out, "--timeout", LEG_LIMIT), 2);
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
	ck_assert_int_eq(run_assay("--out", out, "--timeout", LEG_LIMIT), 2);
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

static void add(TCase *tc)
{
	tcase_add_test(tc, interrupted);
	tcase_add_test(tc, terminated);
	tcase_add_test(tc, killed_and_resumed);
	tcase_add_test(tc, a_complete_run_is_not_overwritten);
	tcase_add_test(tc, another_run_is_not_resumed);
	tcase_add_test(tc, a_directory_of_something_else_is_left_alone);
	tcase_add_test(tc, one_at_a_time);
}

int main(void)
{
	return run_rig_main("resumed runs", add);
}
