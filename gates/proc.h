/* A child process: argv without a shell, its own process group, files for its output, a timeout.
 *
 * One thread, no polling: the runner sleeps in sigtimedwait until the child ends, the time is up, a tick is
 * due, or it is told to stop itself.  However a child ends, what is left of its group is killed, and it dies
 * with the runner (a group that a child makes for itself is its own). */
#ifndef ASSAY_GATES_PROC_H
#define ASSAY_GATES_PROC_H

#include <signal.h>
#include <stdint.h>
#include "contract/err.h"

#define PROC_NOT_STARTED 127     /* exit_code of a program that could not be started, as in a shell */

struct proc {
	char *const *argv;           /* borrowed, ends in NULL; a name without a slash is looked up in PATH */
	const void *input;           /* borrowed: what it reads on stdin; NULL: /dev/null */
	size_t input_size;
	const char *out_path;        /* borrowed: files for stdout and stderr, made or emptied; NULL: /dev/null */
	const char *err_path;
	double timeout_s;            /* then SIGTERM to the group, and SIGKILL after grace_s; 0: none */
	double grace_s;              /* 0: 2 s */
	int64_t max_file_bytes;      /* no file of the child may grow beyond this (RLIMIT_FSIZE); 0: no limit */
	void (*tick)(void *ud);      /* called about every tick_s while it runs; NULL: never */
	void *ud;
	double tick_s;
};

struct proc_end {
	int exit_code;               /* -1: it died of a signal */
	int signal;                  /* 0: it exited */
	bool timed_out;              /* the time was up; exit_code or signal say how it took that */
	int interrupted;             /* the SIGINT, SIGTERM or SIGHUP that told the runner to stop; 0: none */
	double wall_s, user_s, system_s;
	int64_t max_rss_bytes;       /* of the child or the runner when it forked, whichever is larger (getrusage(2)) */
};

/* Runs a child to its end.  -1: it could not be started (err says what and why; end->exit_code is
 * PROC_NOT_STARTED); a child that fails is no error. */
int proc_run(const struct proc *p, struct proc_end *end, struct err *err);
/* "SIGKILL" */
const char *proc_signal_name(int signal, char *buf, size_t size);

/* Holds SIGINT, SIGTERM and SIGHUP back, so that they arrive only where the runner looks for them, until
 * proc_release_signals.  Those that the runner was started with ignored stay ignored. */
void proc_hold_signals(sigset_t *old);
void proc_release_signals(const sigset_t *old);
/* A held signal that has arrived, taken; 0: none. */
int proc_pending_signal(void);

#endif
