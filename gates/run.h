/* A run: a recipe's legs, one after the other, into a run directory.
 *
 *   recipe.yaml golden.json    the bytes that are used      overrides.json   what --set and --leg changed
 *   tokenizer.json             the model's, for texts       run.json         {id, started, ended, argv}
 *   legs/<leg>.json .exit.json .stdout .stderr              speed.json       what pairs of legs took, in turns
 *   verdict.json               written last: the run is complete
 *
 * A directory without a verdict is an interrupted run; running the same recipe into it again keeps the legs that
 * ran to an end (with --until-decided all legs start over).  A complete run is never overwritten. */
#ifndef ASSAY_GATES_RUN_H
#define ASSAY_GATES_RUN_H

#include "leg.h"
#include "progress.h"

struct run_options {                 /* all borrowed */
	const char *recipe;
	const char *out;             /* NULL: build/runs/<recipe>-<UTC> */
	const char *engine;          /* NULL: assay-engine beside this program */
	double timeout_s;            /* per leg, over the recipe's; 0: the recipe's */
	bool quiet, until_decided;
	char **argv; int argc;       /* for run.json */
};

struct run {
	struct recipe recipe;
	struct overrides overrides;
	struct golden golden;
	const struct golden_profile *profile;    /* borrowed: golden */
	char *recipe_bytes, *golden_bytes;       /* owned */
	size_t recipe_size, golden_size;
	char *model_dir, *engine;                /* owned */
	char *dir, *id, started[40];             /* owned */
	int lock;                                /* of the directory, while it is used; -1 */
	int stopped;                             /* the signal that ended it early; 0 */
	int n_kept;                              /* legs that an earlier run of this directory had done */
	struct err trouble;                      /* a file that could not be written: the run goes on, its verdict is ERROR */
};

/* In this order.  Each says what is wrong in err; run_release in any case. */
int run_read(struct run *r, const struct run_options *o, struct err *err);   /* recipe, with r->overrides applied */
int run_find(struct run *r, const struct run_options *o, struct err *err);   /* model, golden, engine; checks that they fit */
int run_open(struct run *r, const struct run_options *o, struct err *err);   /* the directory and what it holds before legs run */
void run_legs(struct run *r, const struct run_options *o);                   /* what goes wrong is a leg's, or r->trouble */
void run_until_decided(struct run *r, const struct run_options *o);          /* the same, prompt by prompt; run_until.c */
void run_speed(struct run *r, const struct run_options *o);                  /* then the pairs of `speed`; run_speed.c */
void run_close(struct run *r, const struct run_options *o);                  /* run.json says when it ended */
void run_release(struct run *r);

/* <run>/overrides.json, if there is anything to say in it. */
int run_save_overrides(const struct run *r, struct err *err);
/* The task of one leg, its files named; `recipe` asks for the prompts of it.  leg_task_release in any case. */
void run_leg_task(struct leg_task *task, const struct run *r, const struct run_options *o, const struct recipe *recipe, int leg,
		  struct progress *p);
/* The prompts of a recipe for the bar; the arrays are the caller's. */
void run_progress(struct progress *p, const struct run *r, const struct recipe *recipe, const char ***ids, int **planned);

/* The nearest directory at or above that of the recipe that holds `path` (absolute paths stand for themselves);
 * NULL if none does.  The caller frees. */
char *run_resolve(const char *recipe, const char *path);
/* assay-engine in the directory of this program; the caller frees. */
char *run_engine_beside(void);

#endif
