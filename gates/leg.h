/* A leg of a run: one process that leaves a report, wherever it runs.
 *
 * Files of a leg in the run directory: legs/<leg>.json (the report), .stdout, .stderr, and .exit.json, which
 * the runner writes for every leg that it started, however that ended.  docs/formats.md, section 6. */
#ifndef ASSAY_GATES_LEG_H
#define ASSAY_GATES_LEG_H

#include "contract/golden.h"
#include "contract/report.h"
#include "recipe.h"

#define LEG_CANNOT_RUN 77            /* exit code: NOT MEASURED */
/* No leg may fill the disk; a report of 1,000 prompts of 512 steps has about 0.6 GB. */
#define LEG_FILE_BYTES (4LL << 30)

struct leg_task {
	const struct recipe *recipe;         /* all borrowed but the paths below */
	const struct recipe_leg *leg;
	const struct golden *golden;
	const struct golden_profile *profile;
	const char *engine;                  /* the built assay-engine */
	const char *model_dir;
	char *golden_path, *report_path, *exit_path, *out_path, *err_path;   /* owned */
	double timeout_s;
	bool trace;                          /* ask for ARM lines on stderr: something reads them */
	void (*tick)(void *ud);              /* called while it runs; NULL: never */
	void *ud;
};

/* Where and how a leg runs.  run() fills argv, exit_code, signal and timed_out of *e, and leaves the report at
 * report_path, the leg's words at out_path and err_path.  It returns the signal that told the runner to stop, or
 * 0.  A leg that cannot be run at all is a leg that ended: leg_refuse. */
struct launcher {
	const char *name;
	bool (*serves)(const struct recipe_leg *leg);
	int (*run)(const struct leg_task *task, struct leg_exit *e);
};

extern const struct launcher launch_local;      /* launch_local.c: a child process here */
extern const struct launcher launch_openai;     /* launch_openai.c: a completions server */

void leg_task_open(struct leg_task *task, const char *run_dir);   /* names the files; the rest is the caller's */
void leg_task_release(struct leg_task *task);
/* Runs the leg by the launcher that serves it, and writes exit.json.  The signal that told the runner to stop
 * (then there is no exit.json: the leg is not done), or 0; err is set if a file could not be written. */
int leg_run(const struct leg_task *task, struct leg_exit *e, struct err *err);
/* For launchers: runs e->argv here as the process of the leg, with `input` on its stdin (NULL: none), and fills exit_code,
 * signal and timed_out.  The signal that told the runner to stop, or 0. */
int leg_process(const struct leg_task *task, struct leg_exit *e, const char *input, size_t size);
/* Ends a leg that was never started, with its one line of reason. */
void leg_refuse(struct leg_exit *e, int exit_code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Has the leg run to an end in an earlier run of this directory? */
bool leg_is_done(const struct leg_task *task);

/* What a foreign engine is asked (assay/request/1), as bytes for its stdin; the caller frees.
 * docs/formats.md, section 9. */
char *leg_request(const struct leg_task *task, size_t *size);
/* The prompts that the recipe asks for, as indices into the golden: *prompts is the caller's; the count. */
int leg_prompts(const struct recipe *r, const struct golden *g, const struct golden_profile *profile, int **prompts);
/* Tokens of this prompt that are compared in one mode: the longest of `steps`, or all that the profile has. */
int leg_planned(const struct recipe *r, const struct golden_profile *profile, int prompt);

#endif
