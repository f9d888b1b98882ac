#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "proc.h"

#define GRACE_S 2.0
#define FOREVER INFINITY

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_STOP = sizeof(stop_signals) / sizeof(stop_signals[0]) };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *proc_signal_name(int signal, char *buf, size_t size)
{
	const char *name = sigabbrev_np(signal);

	if (name)
		snprintf(buf, size, "SIG%s", name);
	else
		snprintf(buf, size, "signal %d", signal);
	return buf;
}

/* ---- signals ---- */

/* A blocked signal is kept even where it is ignored, so those that nohup and its like ignore stay out. */
static void stop_set(sigset_t *set)
{
	sigemptyset(set);
	for (int i = 0; i < N_STOP; i++) {
		struct sigaction action;

		sigaction(stop_signals[i], NULL, &action);
		if (action.sa_handler != SIG_IGN)
			sigaddset(set, stop_signals[i]);
	}
}

void proc_hold_signals(sigset_t *old)
{
	sigset_t set;

	stop_set(&set);
	sigprocmask(SIG_BLOCK, &set, old);
}

void proc_release_signals(const sigset_t *old)
{
	sigprocmask(SIG_SETMASK, old, NULL);
}

int proc_pending_signal(void)
{
	const struct timespec none = {0};
	sigset_t set;
	int signal;

	stop_set(&set);
	signal = sigtimedwait(&set, NULL, &none);
	return signal > 0 ? signal : 0;
}

/* ---- start ---- */

/* A file that holds the input: a pipe would block on a child that does not read. */
static int input_file(const struct proc *p, struct err *err)
{
	const char *bytes = p->input;
	size_t left = p->input_size;
	int fd = p->input ? memfd_create("stdin", MFD_CLOEXEC) : open("/dev/null", O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && p->input && left) {
		ssize_t n = write(fd, bytes, left);

		if (n < 0 && errno != EINTR) {
			close(fd);
			fd = -1;
		} else if (n > 0) {
			bytes += n;
			left -= (size_t)n;
		}
	}
	if (fd < 0)
		return err_set(err, ERR_FAILED, "%s: stdin cannot be prepared: %s", p->argv[0], strerror(errno));
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static int output_file(const char *path, struct err *err)
{
	int fd = open(path ? path : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0)
		err_set(err, ERR_FAILED, "%s: cannot be written: %s", path, strerror(errno));
	return fd;
}

/* In the child, between fork and exec: async-signal-safe calls only. */
static _Noreturn void become(const struct proc *p, const int fds[3], int report, pid_t parent)
{
	static const int to_default[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE};
	const struct rlimit limit = {(rlim_t)p->max_file_bytes, (rlim_t)p->max_file_bytes};
	sigset_t none;
	int failed;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(PROC_NOT_STARTED);
	for (size_t i = 0; i < sizeof(to_default) / sizeof(to_default[0]); i++)
		signal(to_default[i], SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);    /* also what the runner itself was given */
	if (dup2(fds[0], 0) >= 0 && dup2(fds[1], 1) >= 0 && dup2(fds[2], 2) >= 0
	    && (p->max_file_bytes == 0 || setrlimit(RLIMIT_FSIZE, &limit) == 0))
		execvp(p->argv[0], p->argv);
	failed = errno;
	while (write(report, &failed, sizeof(failed)) < 0 && errno == EINTR)
		;
	_exit(PROC_NOT_STARTED);
}

/* Forks and waits until exec has worked or failed.  The pid, or -1. */
static pid_t start(const struct proc *p, const int fds[3], struct err *err)
{
	int report[2], failed = 0;
	pid_t parent = getpid(), pid;
	ssize_t n;

	if (pipe2(report, O_CLOEXEC))
		return err_set(err, ERR_FAILED, "%s: cannot be started: %s", p->argv[0], strerror(errno));
	pid = fork();
	if (pid == 0)
		become(p, fds, report[1], parent);
	failed = pid < 0 ? errno : 0;
	close(report[1]);
	if (pid > 0) {
		setpgid(pid, pid);       /* also here: it must be true before the first kill */
		do
			n = read(report[0], &failed, sizeof(failed));
		while (n < 0 && errno == EINTR);
	}
	close(report[0]);
	if (!failed)
		return pid;
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return err_set(err, ERR_FAILED, "%s: cannot be started: %s", p->argv[0], strerror(failed));
}

/* ---- wait ---- */

struct wait {
	const struct proc *p;
	pid_t pid;
	struct proc_end *end;
	double deadline, next_tick;
	int asked;                       /* 0: runs; 1: SIGTERM sent; 2: SIGKILL sent */
};

static void ask_to_end(struct wait *w)
{
	double grace = w->p->grace_s > 0 ? w->p->grace_s : GRACE_S;

	kill(-w->pid, w->asked ? SIGKILL : SIGTERM);
	kill(-w->pid, SIGCONT);          /* a stopped one must be able to hear it */
	w->deadline = w->asked++ ? FOREVER : now() + grace;
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	/* WNOWAIT: until it is reaped its group cannot be another's */
	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

static void wait_once(struct wait *w, const sigset_t *set)
{
	double t = now(), until = fmin(w->deadline, w->next_tick), left = fmin(fmax(until - t, 0), 1e6);
	const struct timespec patience = {(time_t)left, (long)((left - floor(left)) * 1e9)};
	int signal = sigtimedwait(set, NULL, &patience);

	if (signal > 0 && signal != SIGCHLD) {
		if (!w->end->interrupted)
			w->end->interrupted = signal;
		ask_to_end(w);
		return;
	}
	t = now();
	if (t >= w->next_tick) {
		w->p->tick(w->p->ud);
		w->next_tick = now() + w->p->tick_s;
	}
	if (t >= w->deadline && !has_ended(w->pid)) {
		w->end->timed_out |= w->asked == 0;
		ask_to_end(w);
	}
}

static void reap(struct wait *w)
{
	struct rusage used;
	int status;

	kill(-w->pid, SIGKILL);
	while (wait4(w->pid, &status, 0, &used) < 0 && errno == EINTR)
		;
	w->end->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	w->end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	w->end->user_s = (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec;
	w->end->system_s = (double)used.ru_stime.tv_sec + 1e-6 * (double)used.ru_stime.tv_usec;
	w->end->max_rss_bytes = (int64_t)used.ru_maxrss * 1024;
}

static void wait_for(const struct proc *p, pid_t pid, struct proc_end *end, const sigset_t *set)
{
	double begun = now();
	struct wait w = {.p = p, .pid = pid, .end = end,
			 .deadline = p->timeout_s > 0 ? begun + p->timeout_s : FOREVER,
			 .next_tick = p->tick ? begun : FOREVER};

	while (!has_ended(pid))
		wait_once(&w, set);
	reap(&w);
	if (p->tick)
		p->tick(p->ud);
	end->wall_s = now() - begun;
}

int proc_run(const struct proc *p, struct proc_end *end, struct err *err)
{
	struct sigaction child = {.sa_handler = SIG_DFL}, old_child;
	sigset_t set, old;
	int fds[3] = {-1, -1, -1};
	pid_t pid = -1;

	*end = (struct proc_end){.exit_code = PROC_NOT_STARTED};
	/* A runner that was started with SIGCHLD ignored would lose its children. */
	sigaction(SIGCHLD, &child, &old_child);
	stop_set(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &old);
	if ((fds[0] = input_file(p, err)) >= 0 && (fds[1] = output_file(p->out_path, err)) >= 0
	    && (fds[2] = output_file(p->err_path, err)) >= 0)
		pid = start(p, fds, err);
	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (pid > 0)
		wait_for(p, pid, end, &set);
	sigprocmask(SIG_SETMASK, &old, NULL);
	sigaction(SIGCHLD, &old_child, NULL);
	return pid > 0 ? 0 : -1;
}
