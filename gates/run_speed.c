/* The pairs of `speed`: after the legs, each pair in turns, in the mode of the headline alone and without a trace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/file.h"
#include "contract/json.h"
#include "evidence.h"
#include "proc.h"
#include "run.h"
#include "speed.h"

struct racing {
	struct run *r;
	const struct run_options *o;
	struct recipe recipe;        /* as it ran, in one mode */
	enum mode mode;
	bool bar;
};

/* Did the leg leave a report when it was run for its tokens? */
static bool has_report(const struct racing *g, int leg)
{
	char *path = xasprintf("%s/legs/%s.json", g->r->dir, g->recipe.legs[leg].name);
	bool there = file_exists(path);

	free(path);
	return there;
}

/* Files of a run that is timed, under names that no leg can have. */
static void name_files(struct leg_task *task, const struct racing *g)
{
	char **paths[] = {&task->report_path, &task->exit_path, &task->out_path, &task->err_path};
	static const char *const ends[] = {"report", "exit", "stdout", "stderr"};

	for (int i = 0; i < 4; i++) {
		free(*paths[i]);
		*paths[i] = xasprintf("%s/legs/%s.speed.%s", g->r->dir, task->leg->name, ends[i]);
	}
}

/* One run of one leg; false: it failed, and *failed says how, unless the run was stopped. */
static bool run_side(struct racing *g, struct speed_side *to, int leg, int turn, char **failed)
{
	struct progress none = {0};
	struct report report = {0};
	struct leg_exit e = {0};
	struct leg_task task;
	struct err err = {0};
	bool done = false;

	run_leg_task(&task, g->r, g->o, &g->recipe, leg, &none);
	name_files(&task, g);
	g->r->stopped = leg_run(&task, &e, &g->r->trouble);
	if (!g->r->stopped) {
		done = e.exit_code == 0 && !e.timed_out && report_load(&report, task.report_path, &err) == 0;
		if (done)
			speed_take(to, &report, g->mode);
		else if (err.kind)
			*failed = xasprintf("turn %d of %s: %s", turn + 1, task.leg->name, err.text);
		else
			*failed = xasprintf("turn %d of %s %s%s%s", turn + 1, task.leg->name, e.timed_out ? "timed out" : "ended badly",
					    e.n_tail ? ": " : "", e.n_tail ? e.tail[e.n_tail - 1] : "");
	}
	unlink(task.report_path);
	unlink(task.exit_path);
	if (done || g->r->stopped) {
		unlink(task.out_path);
		unlink(task.err_path);
	}
	report_release(&report);
	leg_exit_release(&e);
	leg_task_release(&task);
	return done;
}

/* a b, b a, a b, ... */
static void run_pair(struct racing *g, struct speed *s)
{
	for (int i = 0; i < 2 && !s->failed; i++)
		if (!has_report(g, s->leg[i]))
			s->failed = xasprintf("%s did not run", g->recipe.legs[s->leg[i]].name);
	while (s->n < g->recipe.speed_runs && !s->failed && !g->r->stopped) {
		struct speed_turn *turn = &s->turns[s->n];

		for (int i = 0; i < 2 && !s->failed && !g->r->stopped; i++) {
			int side = (s->n + i) % 2;

			if (g->bar)
				fprintf(stderr, "\r\x1b[Kspeed of %s and %s: turn %d/%d", g->recipe.legs[s->leg[0]].name,
					g->recipe.legs[s->leg[1]].name, s->n + 1, g->recipe.speed_runs);
			if (run_side(g, &turn->side[side], s->leg[side], s->n, &s->failed) && i == 1)
				s->n++;
			if (!g->r->stopped)
				g->r->stopped = proc_pending_signal();
		}
	}
}

static int open_recipe(struct racing *g)
{
	struct run *r = g->r;

	if (recipe_load_bytes(&g->recipe, r->recipe_bytes, r->recipe_size, r->recipe.file, &r->trouble)
	    || recipe_override(&g->recipe, &r->overrides, &r->trouble))
		return -1;
	g->mode = headline_mode(&g->recipe);
	for (int m = 0; m < N_MODES; m++)
		g->recipe.modes[m] = m == (int)g->mode;
	return 0;
}

static void run_pairs(struct racing *g)
{
	struct recipe *recipe = &g->recipe;
	struct speed *all = xcalloc((size_t)recipe->n_speed, sizeof(*all));
	char *path = path_join(g->r->dir, "speed.json");

	for (int i = 0; i < recipe->n_speed && !g->r->stopped; i++) {
		all[i] = (struct speed){.leg = {recipe->speed[i].a, recipe->speed[i].b}};
		all[i].turns = xcalloc((size_t)recipe->speed_runs, sizeof(*all[i].turns));
		run_pair(g, &all[i]);
		if (g->bar)
			fputs("\r\x1b[K", stderr);
		if (!g->o->quiet && !g->r->stopped)
			fprintf(stderr, "speed of %s and %s: %s\n", recipe->legs[all[i].leg[0]].name, recipe->legs[all[i].leg[1]].name,
				all[i].failed ? all[i].failed : "done");
	}
	if (!g->r->stopped) {
		json_t *document = speed_document(all, recipe->n_speed, recipe);

		json_write_file(document, path, JSON_INDENT(1) | JSON_FLAT, &g->r->trouble);
		json_decref(document);
	}
	speed_release(all, recipe->n_speed);
	free(path);
}

void run_speed(struct run *r, const struct run_options *o)
{
	struct racing g = {.r = r, .o = o, .bar = !o->quiet && isatty(STDERR_FILENO)};
	sigset_t old;

	if (r->recipe.n_speed == 0)
		return;
	proc_hold_signals(&old);
	if (open_recipe(&g) == 0)
		run_pairs(&g);
	proc_release_signals(&old);
	recipe_release(&g.recipe);
}
