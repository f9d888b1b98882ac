/* Child processes.  The child is this program again: check_proc child WHAT. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "contract/file.h"
#include "gates/proc.h"

static char self[4096];
static char dir[] = "/tmp/check_proc.XXXXXX";
static char *out, *errors;
static struct proc_end end;
static struct err err;

/* ---- the child ---- */

static void sleep_on(void)
{
	for (;;)
		pause();
}

static int leave_grandchild(void)
{
	pid_t grandchild = fork();       /* in the same group */

	if (grandchild == 0)
		sleep_on();
	printf("%d\n", (int)grandchild);
	return 0;
}

static int eat(size_t size)
{
	volatile char *room = malloc(size);      /* or the compiler leaves it out */

	for (size_t i = 0; i < size; i++)
		room[i] = 1;
	free((void *)room);
	return 0;
}

static int child(const char *what)
{
	char bytes[4096];
	ssize_t n;

	if (!strcmp(what, "talk")) {
		printf("to stdout\n");
		fprintf(stderr, "to stderr\n");
		return 0;
	}
	if (!strcmp(what, "seven"))
		return 7;
	if (!strcmp(what, "segv")) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGSEGV, SIG_DFL);    /* a sanitizer would make an exit of it */
		raise(SIGSEGV);
	}
	if (!strcmp(what, "echo")) {
		while ((n = read(0, bytes, sizeof(bytes))) > 0)
			if (write(1, bytes, (size_t)n) != n)
				return 1;
		return 0;
	}
	if (!strcmp(what, "polite"))
		sleep_on();
	if (!strcmp(what, "stubborn")) {
		signal(SIGTERM, SIG_IGN);
		signal(SIGINT, SIG_IGN);
		printf("%d\n", (int)getpid());
		fflush(stdout);
		sleep_on();
	}
	if (!strcmp(what, "stopped")) {
		raise(SIGSTOP);
		sleep_on();
	}
	if (!strcmp(what, "group"))
		return getpgrp() == getpid() ? 0 : 1;
	if (!strcmp(what, "mask")) {
		sigset_t mask;

		sigprocmask(SIG_BLOCK, NULL, &mask);
		return sigismember(&mask, SIGINT) || sigismember(&mask, SIGTERM) || sigismember(&mask, SIGCHLD);
	}
	if (!strcmp(what, "flood")) {
		memset(bytes, 'x', sizeof(bytes));
		while (write(1, bytes, sizeof(bytes)) > 0)
			;
		return errno == EFBIG ? 3 : 4;
	}
	if (!strcmp(what, "words")) {        /* stdin is /dev/null, nothing else is open */
		if (read(0, bytes, 1) != 0)
			return 1;
		for (int fd = 3; fd < 32; fd++)
			if (fcntl(fd, F_GETFD) >= 0)
				return fd;
		return 0;
	}
	if (!strcmp(what, "family"))
		return leave_grandchild();
	if (!strcmp(what, "eat"))
		return eat(64u << 20);
	return 99;
}

/* ---- the tests ---- */

static void start(void)
{
	err = (struct err){0};
	remove(out);
}

/* `check_proc child WHAT`, its output in `out` and `errors`. */
static int run(const char *what, struct proc p)
{
	char *argv[] = {self, "child", (char *)what, NULL};

	p.argv = argv;
	p.out_path = out;
	p.err_path = errors;
	return proc_run(&p, &end, &err);
}

static void check_file(const char *path, const char *expected)
{
	size_t size;
	char *bytes = file_read(path, 1 << 20, &size, &err);

	ck_assert_msg(bytes != NULL, "%s", err.text);
	ck_assert_str_eq(bytes, expected);
	free(bytes);
}

START_TEST(output_goes_to_files)
{
	ck_assert_int_eq(run("talk", (struct proc){0}), 0);
	ck_assert_int_eq(end.exit_code, 0);
	ck_assert_int_eq(end.signal, 0);
	ck_assert(!end.timed_out && !end.interrupted);
	check_file(out, "to stdout\n");
	check_file(errors, "to stderr\n");
}
END_TEST

START_TEST(exit_code_and_signal_are_told_apart)
{
	char name[24];

	ck_assert_int_eq(run("seven", (struct proc){0}), 0);
	ck_assert_int_eq(end.exit_code, 7);
	ck_assert_int_eq(end.signal, 0);
	ck_assert_int_eq(run("segv", (struct proc){0}), 0);
	ck_assert_int_eq(end.exit_code, -1);
	ck_assert_int_eq(end.signal, SIGSEGV);
	ck_assert_str_eq(proc_signal_name(end.signal, name, sizeof(name)), "SIGSEGV");
}
END_TEST

START_TEST(a_program_that_cannot_start_is_named)
{
	char *missing[] = {"/no/such/program", NULL}, *directory[] = {"/tmp", NULL}, *in_path[] = {"no-such-program", NULL};
	char *const *argvs[] = {missing, directory, in_path};
	const char *expected[] = {"/no/such/program: cannot be started: No such file or directory",
		"/tmp: cannot be started: Permission denied", "no-such-program: cannot be started: No such file or directory"};

	for (int i = 0; i < 3; i++) {
		struct proc p = {.argv = argvs[i]};

		start();
		ck_assert_int_eq(proc_run(&p, &end, &err), -1);
		ck_assert_int_eq(err.kind, ERR_FAILED);
		ck_assert_str_eq(err.text, expected[i]);
		ck_assert_int_eq(end.exit_code, PROC_NOT_STARTED);
	}
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);    /* nothing is left to reap */
	ck_assert_int_eq(errno, ECHILD);
}
END_TEST

START_TEST(output_that_cannot_be_made_is_an_error)
{
	char *argv[] = {self, "child", "talk", NULL};
	struct proc p = {.argv = argv, .out_path = "/no/such/dir/out"};

	ck_assert_int_eq(proc_run(&p, &end, &err), -1);
	ck_assert_str_eq(err.text, "/no/such/dir/out: cannot be written: No such file or directory");
}
END_TEST

/* More than a pipe holds, to a child that reads it all and to one that reads none of it. */
START_TEST(input_bytes_arrive)
{
	size_t size = 300000, got;
	char *input = malloc(size), *back;

	for (size_t i = 0; i < size; i++)
		input[i] = (char)(i * 7 + i / 255);
	ck_assert_int_eq(run("echo", (struct proc){.input = input, .input_size = size}), 0);
	ck_assert_int_eq(end.exit_code, 0);
	back = file_read(out, 1 << 20, &got, &err);
	ck_assert_uint_eq(got, size);
	ck_assert_int_eq(memcmp(back, input, size), 0);
	ck_assert_int_eq(run("talk", (struct proc){.input = input, .input_size = size}), 0);
	ck_assert_int_eq(end.exit_code, 0);
	free(back);
	free(input);
}
END_TEST

START_TEST(without_input_stdin_is_empty_and_nothing_else_is_open)
{
	ck_assert_int_eq(run("words", (struct proc){0}), 0);
	ck_assert_int_eq(end.exit_code, 0);
}
END_TEST

START_TEST(child_has_its_own_group_and_an_open_mask)
{
	sigset_t old;

	proc_hold_signals(&old);
	ck_assert_int_eq(run("group", (struct proc){0}), 0);
	ck_assert_int_eq(end.exit_code, 0);
	ck_assert_int_eq(run("mask", (struct proc){0}), 0);
	ck_assert_int_eq(end.exit_code, 0);
	proc_release_signals(&old);
}
END_TEST

START_TEST(timeout_asks_first)
{
	ck_assert_int_eq(run("polite", (struct proc){.timeout_s = 0.3, .grace_s = 20}), 0);
	ck_assert(end.timed_out);
	ck_assert_int_eq(end.signal, SIGTERM);
	ck_assert_double_ge(end.wall_s, 0.3);
	ck_assert_double_lt(end.wall_s, 15);
}
END_TEST

START_TEST(timeout_then_kills)
{
	ck_assert_int_eq(run("stubborn", (struct proc){.timeout_s = 0.5, .grace_s = 0.3}), 0);
	ck_assert(end.timed_out);
	ck_assert_int_eq(end.signal, SIGKILL);
	ck_assert_double_ge(end.wall_s, 0.8);
}
END_TEST

START_TEST(timeout_reaches_a_stopped_child)
{
	ck_assert_int_eq(run("stopped", (struct proc){.timeout_s = 0.3, .grace_s = 20}), 0);
	ck_assert(end.timed_out);
	ck_assert_int_eq(end.signal, SIGTERM);
}
END_TEST

/* Dead, or a zombie that only its new parent has yet to reap. */
static bool is_gone(pid_t pid)
{
	char *path = xasprintf("/proc/%d/stat", (int)pid);
	FILE *stat = fopen(path, "r");
	char state = 0;
	bool gone = !stat || fscanf(stat, "%*d %*s %c", &state) != 1 || state == 'Z' || state == 'X';

	if (stat)
		fclose(stat);
	free(path);
	return gone;
}

static const struct timespec while_it_happens = {0, 20000000};

static void check_goes(pid_t pid)
{
	int tries = 0;

	while (!is_gone(pid) && tries++ < 250)
		nanosleep(&while_it_happens, NULL);
	ck_assert_msg(is_gone(pid), "process %d lives on", (int)pid);
}

/* The number in a file that is being written; 0 if it does not come. */
static int read_number(const char *path, int tries)
{
	int number = 0;

	while (number == 0 && tries-- > 0) {
		FILE *f = fopen(path, "r");

		if (f && fscanf(f, "%d\n", &number) != 1)
			number = 0;
		if (f)
			fclose(f);
		if (!number)
			nanosleep(&while_it_happens, NULL);
	}
	return number;
}

START_TEST(what_is_left_of_the_group_is_killed)
{
	ck_assert_int_eq(run("family", (struct proc){0}), 0);
	ck_assert_int_eq(end.exit_code, 0);
	int grandchild = read_number(out, 1);

	ck_assert_int_gt(grandchild, 0);
	check_goes(grandchild);
}
END_TEST

/* A signal to the runner ends the child and is reported, not obeyed. */
static void interrupt_with(int signal, const char *what, int expected)
{
	pid_t runner = getpid(), sender = fork();
	struct timespec soon = {0, 300000000};

	if (sender == 0) {
		nanosleep(&soon, NULL);
		kill(runner, signal);
		_exit(0);
	}
	ck_assert_int_eq(run(what, (struct proc){.timeout_s = 30, .grace_s = 0.3}), 0);
	ck_assert_int_eq(end.interrupted, signal);
	ck_assert_int_eq(end.signal, expected);
	ck_assert(!end.timed_out);
	waitpid(sender, NULL, 0);
}

START_TEST(interrupt)
{
	interrupt_with(SIGINT, "polite", SIGTERM);
}
END_TEST

START_TEST(terminate)
{
	interrupt_with(SIGTERM, "stubborn", SIGKILL);
}
END_TEST

START_TEST(held_signals_wait)
{
	sigset_t old;

	proc_hold_signals(&old);
	ck_assert_int_eq(proc_pending_signal(), 0);
	raise(SIGTERM);
	ck_assert_int_eq(proc_pending_signal(), SIGTERM);
	ck_assert_int_eq(proc_pending_signal(), 0);
	proc_release_signals(&old);
}
END_TEST

START_TEST(ignored_signals_stay_ignored)
{
	sigset_t old;

	signal(SIGINT, SIG_IGN);
	proc_hold_signals(&old);
	raise(SIGINT);
	ck_assert_int_eq(proc_pending_signal(), 0);
	proc_release_signals(&old);
}
END_TEST

START_TEST(an_ignored_sigchld_loses_nothing)
{
	signal(SIGCHLD, SIG_IGN);
	ck_assert_int_eq(run("seven", (struct proc){.timeout_s = 20}), 0);
	ck_assert_int_eq(end.exit_code, 7);
}
END_TEST

static int ticks;

static void tick(void *ud)
{
	ck_assert_ptr_eq(ud, &ticks);
	ticks++;
}

START_TEST(ticks_while_it_runs)
{
	ticks = 0;
	ck_assert_int_eq(run("polite", (struct proc){.timeout_s = 0.5, .tick = tick, .ud = &ticks, .tick_s = 0.05}), 0);
	ck_assert_int_ge(ticks, 3);
	ck_assert_int_le(ticks, 20);
}
END_TEST

START_TEST(no_file_grows_beyond_the_limit)
{
	size_t size;

	ck_assert_int_eq(run("flood", (struct proc){.max_file_bytes = 10000, .timeout_s = 20}), 0);
	ck_assert_int_eq(end.signal, SIGXFSZ);
	free(file_read(out, 1 << 20, &size, &err));
	ck_assert_uint_eq(size, 10000);
}
END_TEST

START_TEST(resources_are_measured)
{
	ck_assert_int_eq(run("eat", (struct proc){0}), 0);
	ck_assert_int_eq(end.exit_code, 0);
	ck_assert_int_ge(end.max_rss_bytes, 64 << 20);
	ck_assert_double_gt(end.user_s + end.system_s, 0);
	ck_assert_double_gt(end.wall_s, 0);
}
END_TEST

/* The child dies with a runner that is killed outright. */
START_TEST(child_dies_with_the_runner)
{
	pid_t runner = fork();

	if (runner == 0) {
		run("stubborn", (struct proc){0});
		_exit(0);
	}
	pid_t orphan = (pid_t)read_number(out, 250);

	ck_assert_int_gt(orphan, 0);
	ck_assert(!is_gone(orphan));
	kill(runner, SIGKILL);
	waitpid(runner, NULL, 0);
	check_goes(orphan);
}
END_TEST

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "child") == 0)
		return child(argv[2]);
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	BUG_ON(n <= 0 || !mkdtemp(dir));
	out = path_join(dir, "out");
	errors = path_join(dir, "err");

	Suite *suite = suite_create("proc");
	TCase *tc = tcase_create("proc");

	tcase_add_checked_fixture(tc, start, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, output_goes_to_files);
	tcase_add_test(tc, exit_code_and_signal_are_told_apart);
	tcase_add_test(tc, a_program_that_cannot_start_is_named);
	tcase_add_test(tc, output_that_cannot_be_made_is_an_error);
	tcase_add_test(tc, input_bytes_arrive);
	tcase_add_test(tc, without_input_stdin_is_empty_and_nothing_else_is_open);
	tcase_add_test(tc, child_has_its_own_group_and_an_open_mask);
	tcase_add_test(tc, timeout_asks_first);
	tcase_add_test(tc, timeout_then_kills);
	tcase_add_test(tc, timeout_reaches_a_stopped_child);
	tcase_add_test(tc, what_is_left_of_the_group_is_killed);
	tcase_add_test(tc, interrupt);
	tcase_add_test(tc, terminate);
	tcase_add_test(tc, held_signals_wait);
	tcase_add_test(tc, ignored_signals_stay_ignored);
	tcase_add_test(tc, an_ignored_sigchld_loses_nothing);
	tcase_add_test(tc, ticks_while_it_runs);
	tcase_add_test(tc, no_file_grows_beyond_the_limit);
	tcase_add_test(tc, resources_are_measured);
	tcase_add_test(tc, child_dies_with_the_runner);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	remove(out);
	remove(errors);
	remove(dir);
	free(out);
	free(errors);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
