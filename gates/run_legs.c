/* The legs of a run, one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include "contract/file.h"
#include "proc.h"
#include "run.h"

static void tell_end(struct progress *p, const struct leg_exit *e)
{
	char how[64];

	if (e->timed_out)
		snprintf(how, sizeof(how), "timed out");
	else if (e->signal[0])
		snprintf(how, sizeof(how), "killed by %s", e->signal);
	else if (e->exit_code == LEG_CANNOT_RUN)
		snprintf(how, sizeof(how), "cannot run here");
	else if (e->exit_code)
		snprintf(how, sizeof(how), "exit code %d", e->exit_code);
	else
		snprintf(how, sizeof(how), "done");
	progress_leg_done(p, how);
}

void run_leg_task(struct leg_task *task, const struct run *r, const struct run_options *o, const struct recipe *recipe, int leg,
		  struct progress *p)
{
	*task = (struct leg_task){.recipe = recipe, .leg = &recipe->legs[leg], .golden = &r->golden, .profile = r->profile,
		.engine = r->engine, .model_dir = r->model_dir, .trace = p->bar, .tick = p->bar ? progress_tick : NULL, .ud = p,
		.timeout_s = o->timeout_s > 0 ? o->timeout_s : recipe->timeout_s};
	leg_task_open(task, r->dir);
}

void run_progress(struct progress *p, const struct run *r, const struct recipe *recipe, const char ***ids, int **planned)
{
	int *prompts;

	p->n_prompts = leg_prompts(recipe, &r->golden, r->profile, &prompts);
	*ids = xcalloc((size_t)p->n_prompts + 1, sizeof(**ids));
	*planned = xcalloc((size_t)p->n_prompts + 1, sizeof(**planned));
	for (int i = 0; i < p->n_prompts; i++) {
		(*ids)[i] = r->golden.prompts[prompts[i]].id;
		(*planned)[i] = leg_planned(recipe, r->profile, prompts[i]);
	}
	p->prompts = *ids;
	p->planned = *planned;
	p->n_modes = 0;
	for (int m = 0; m < N_MODES; m++)
		if (recipe->modes[m])
			p->modes[p->n_modes++] = mode_name((enum mode)m);
	free(prompts);
}

static void run_one(struct run *r, const struct run_options *o, struct progress *p, int leg)
{
	struct leg_exit e = {0};
	struct leg_task task;

	run_leg_task(&task, r, o, &r->recipe, leg, p);
	if (leg_is_done(&task)) {
		progress_kept(p, task.leg->name);
		r->n_kept++;
	} else {
		progress_leg(p, leg, task.leg->name, task.err_path);
		r->stopped = leg_run(&task, &e, &r->trouble);
		if (r->stopped)
			progress_close(p);
		else
			tell_end(p, &e);
	}
	leg_exit_release(&e);
	leg_task_release(&task);
}

void run_legs(struct run *r, const struct run_options *o)
{
	struct progress p = {0};
	const char **ids;
	int *planned;
	sigset_t old;

	run_progress(&p, r, &r->recipe, &ids, &planned);
	progress_open(&p, r->recipe.n_legs, o->quiet);
	proc_hold_signals(&old);
	for (int leg = 0; leg < r->recipe.n_legs && !r->stopped; leg++) {
		run_one(r, o, &p, leg);
		if (!r->stopped)
			r->stopped = proc_pending_signal();
	}
	proc_release_signals(&old);
	progress_close(&p);
	free(planned);
	free(ids);
}
