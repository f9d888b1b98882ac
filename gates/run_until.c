/* assay run --until-decided: a few prompts of every leg at a time, in a shuffled order that the recipe's bytes fix, until
 * what is known of every leg's distance would not change.  docs/judging.md, section 9.
 *
 * A leg's reports are merged into legs/<leg>.json as they come; its exit.json is written when it is over.  The prompts that
 * ran become the plan: overrides.json names them, unless all did. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "contract/file.h"
#include "proc.h"
#include "report_merge.h"
#include "run.h"
#include "until.h"

#define ROUNDS 8                  /* about; a round has at least two prompts, or there is no interval */

struct until {
	struct run *r;
	const struct run_options *o;
	char **ids; int n;        /* owned: all prompts, in the order in which they run */
	bool *over;               /* owned [n_legs]: it has ended badly, nothing more of it is run */
	struct leg_exit *ends;    /* owned [n_legs]: how its last round ended */
	char (*begun)[40];        /* owned [n_legs]: when its first round did */
};

static void until_open(struct until *u, struct run *r, const struct run_options *o)
{
	int *prompts, *order, n_legs = r->recipe.n_legs;

	*u = (struct until){.r = r, .o = o};
	u->n = leg_prompts(&r->recipe, &r->golden, r->profile, &prompts);
	order = xcalloc((size_t)u->n + 1, sizeof(*order));
	u->ids = xcalloc((size_t)u->n + 1, sizeof(*u->ids));
	until_order(order, u->n, r->recipe.sha256);
	for (int i = 0; i < u->n; i++)
		u->ids[i] = xstrdup(r->golden.prompts[prompts[order[i]]].id);
	u->over = xcalloc((size_t)n_legs, sizeof(*u->over));
	u->ends = xcalloc((size_t)n_legs, sizeof(*u->ends));
	u->begun = xcalloc((size_t)n_legs, sizeof(*u->begun));
	free(order);
	free(prompts);
}

static void until_release(struct until *u)
{
	for (int i = 0; i < u->n; i++)
		free(u->ids[i]);
	for (int i = 0; i < u->r->recipe.n_legs; i++)
		leg_exit_release(&u->ends[i]);
	free(u->ids);
	free(u->over);
	free(u->ends);
	free(u->begun);
}

/* The recipe as it would be with these prompts alone. */
static int recipe_of_round(struct recipe *recipe, const struct until *u, int first, int last, struct err *err)
{
	struct overrides o = u->r->overrides;

	o.prompts = u->ids + first;
	o.n_prompts = last - first;
	return recipe_load_bytes(recipe, u->r->recipe_bytes, u->r->recipe_size, u->r->recipe.file, err)
	       || recipe_override(recipe, &o, err) ? -1 : 0;
}

/* Files of an earlier attempt: a run that stops when it knows enough starts over. */
static void forget(const struct until *u)
{
	char *overrides = path_join(u->r->dir, "overrides.json");

	unlink(overrides);
	free(overrides);
	run_save_overrides(u->r, &u->r->trouble);
	for (int leg = 0; leg < u->r->recipe.n_legs; leg++) {
		char *report = xasprintf("%s/legs/%s.json", u->r->dir, u->r->recipe.legs[leg].name);
		char *exit = xasprintf("%s/legs/%s.exit.json", u->r->dir, u->r->recipe.legs[leg].name);

		unlink(report);
		unlink(exit);
		free(report);
		free(exit);
	}
}

/* One leg, the prompts of one round. */
static void run_part(struct until *u, const struct recipe *recipe, int leg, struct progress *p)
{
	struct run *r = u->r;
	struct leg_exit *e = &u->ends[leg];
	struct err err = {0};
	struct leg_task task;

	run_leg_task(&task, r, u->o, recipe, leg, p);
	char *whole = task.report_path, *exit = task.exit_path;

	/* Names that no leg can have. */
	task.report_path = xasprintf("%s/legs/%s.part", r->dir, task.leg->name);
	task.exit_path = xasprintf("%s/legs/%s.part.exit", r->dir, task.leg->name);
	progress_leg(p, leg, task.leg->name, task.err_path);
	leg_exit_release(e);
	r->stopped = leg_run(&task, e, &r->trouble);
	unlink(task.exit_path);
	if (!u->begun[leg][0])
		memcpy(u->begun[leg], e->started, sizeof(u->begun[leg]));
	memcpy(e->started, u->begun[leg], sizeof(e->started));
	if (!r->stopped && e->exit_code == 0 && !e->timed_out && file_exists(task.report_path)
	    && report_merge(whole, task.report_path, &err))
		leg_refuse(e, 1, "%s", err.text);
	u->over[leg] = e->exit_code != 0 || e->timed_out || !file_exists(whole);
	if (!r->stopped && u->over[leg])
		leg_exit_save(e, exit, &r->trouble);
	unlink(task.report_path);
	free(whole);
	free(exit);
	leg_task_release(&task);
}

static void run_round(struct until *u, int first, int last)
{
	struct recipe recipe = {0};
	struct progress p = {0};
	const char **ids = NULL;
	int *planned = NULL;

	if (recipe_of_round(&recipe, u, first, last, &u->r->trouble) == 0) {
		run_progress(&p, u->r, &recipe, &ids, &planned);
		progress_open(&p, recipe.n_legs, u->o->quiet);
		for (int leg = 0; leg < recipe.n_legs && !u->r->stopped; leg++) {
			if (!u->over[leg])
				run_part(u, &recipe, leg, &p);
			if (!u->r->stopped)
				u->r->stopped = proc_pending_signal();
		}
		progress_close(&p);
		free(planned);
		free(ids);
	}
	recipe_release(&recipe);
}

/* Says where every leg stands.  Legs that measure no distance do not hold the others up, but if there are only such legs
 * all prompts are run. */
static bool is_decided(struct until *u, int ran)
{
	int n_legs = u->r->recipe.n_legs;
	bool measured = false;
	enum until_by *by = xcalloc((size_t)n_legs, sizeof(*by));
	int decided = until_decided(u->r->dir, by, n_legs, &u->r->trouble);

	if (!u->o->quiet && decided >= 0) {
		fprintf(stderr, "%d of %d prompts: ", ran, u->n);
		for (int leg = 0; leg < n_legs; leg++)
			fprintf(stderr, "%s%s %s", leg ? ", " : "", u->r->recipe.legs[leg].name, until_by_name(by[leg]));
		fputc('\n', stderr);
	}
	for (int leg = 0; leg < n_legs; leg++)
		measured |= by[leg] != UNTIL_NOTHING;
	free(by);
	return decided < 0 || (decided && measured);
}

/* The prompts that ran are the plan, unless all ran. */
static void write_plan(struct until *u, int ran)
{
	struct overrides *o = &u->r->overrides;

	for (int i = 0; i < ran && ran < u->n; i++) {
		o->prompts = xrealloc(o->prompts, (size_t)i + 1, sizeof(*o->prompts));
		o->prompts[o->n_prompts++] = xstrdup(u->ids[i]);
	}
	run_save_overrides(u->r, &u->r->trouble);
	for (int leg = 0; leg < u->r->recipe.n_legs; leg++) {
		char *path = xasprintf("%s/legs/%s.exit.json", u->r->dir, u->r->recipe.legs[leg].name);

		if (!u->over[leg])
			leg_exit_save(&u->ends[leg], path, &u->r->trouble);
		free(path);
	}
}

void run_until_decided(struct run *r, const struct run_options *o)
{
	struct until u;
	sigset_t old;
	int ran = 0, round;
	bool decided = false;

	until_open(&u, r, o);
	forget(&u);
	round = u.n / ROUNDS > 2 ? u.n / ROUNDS : 2;
	proc_hold_signals(&old);
	while (ran < u.n && !decided && !r->stopped && !r->trouble.kind) {
		int last = ran + round < u.n ? ran + round : u.n;

		run_round(&u, ran, last);
		ran = last;
		decided = !r->stopped && is_decided(&u, ran);
	}
	if (!r->stopped)
		write_plan(&u, ran);
	proc_release_signals(&old);
	until_release(&u);
}
