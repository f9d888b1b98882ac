/* A leg as a child process on this machine: the built assay-engine, or a foreign program that reads a request on
 * stdin and prints its report on stdout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "leg.h"

/* ---- argv ---- */

static void add(struct leg_exit *e, const char *word)
{
	e->argv = xrealloc(e->argv, (size_t)e->argc + 2, sizeof(*e->argv));
	e->argv[e->argc++] = xstrdup(word);
	e->argv[e->argc] = NULL;
}

static void add_pair(struct leg_exit *e, const char *option, const char *value)
{
	add(e, option);
	add(e, value);
}

static void add_arm(struct leg_exit *e, const struct recipe_leg *leg)
{
	char *words = arm_words(&leg->arm);

	if (words)
		add_pair(e, "--arm", words);
	free(words);
	for (int i = 0; i < leg->at.n; i++) {
		words = arm_at_words(&leg->at.item[i]);
		add_pair(e, "--at", words);
		free(words);
	}
}

static void add_prompts(struct leg_exit *e, const struct recipe *r)
{
	char *ids = NULL;

	for (int i = 0; i < r->n_prompts; i++) {
		char *longer = xasprintf("%s%s%s", ids ? ids : "", ids ? "," : "", r->prompts[i]);

		free(ids);
		ids = longer;
	}
	if (ids)
		add_pair(e, "--only", ids);
	free(ids);
}

static void engine_argv(const struct leg_task *task, struct leg_exit *e)
{
	const struct recipe *r = task->recipe;
	char steps[16];

	snprintf(steps, sizeof(steps), "%d", r->max_steps);
	add(e, task->engine);
	add(e, "run");
	add_pair(e, "--leg", task->leg->name);
	add_pair(e, "--model", task->model_dir);
	add_pair(e, "--golden", task->golden_path);
	add_pair(e, "--profile", r->profile);
	add_prompts(e, r);
	add_arm(e, task->leg);
	add_pair(e, "--steps", steps);
	add_pair(e, "--mode", !r->modes[MODE_FORCED] ? "free" : !r->modes[MODE_FREE] ? "forced" : "free,forced");
	add_pair(e, "--report", task->report_path);
	if (task->trace)
		add(e, "--trace");
	if (task->leg->audit)
		add(e, "--audit");
}

/* ---- run ---- */

static bool local_serves(const struct recipe_leg *leg)
{
	return !leg->host && leg->engine != ENGINE_OPENAI;
}

/* What a foreign engine printed is its report, whatever it is: the judge says what is wrong with it. */
static void take_report(const struct leg_task *task, struct leg_exit *e)
{
	struct err err = {0};
	size_t size = 0;
	char *bytes = file_read(task->out_path, LEG_FILE_BYTES, &size, &err);

	if (bytes && size && file_write(task->report_path, bytes, size, &err) == 0) {
		free(bytes);
		return;
	}
	free(bytes);
	if (err.kind)
		leg_refuse(e, 1, "the report cannot be kept: %s", err.text);
}

static int local_run(const struct leg_task *task, struct leg_exit *e)
{
	bool foreign = task->leg->engine == ENGINE_ARGV;
	char *request = NULL;
	size_t size = 0;

	if (foreign) {
		for (int i = 0; i < task->leg->argc; i++)
			add(e, task->leg->argv[i]);
		request = leg_request(task, &size);
	} else {
		engine_argv(task, e);
	}
	int stop = leg_process(task, e, request, size);

	if (foreign && e->exit_code == 0 && !stop && !e->timed_out)
		take_report(task, e);
	free(request);
	return stop;
}

const struct launcher launch_local = {.name = "local", .serves = local_serves, .run = local_run};
