/* A leg as a completions server: `assay openai` asks it, in a child process like every leg. */
#include <stdio.h>
#include <stdlib.h>
#include "leg.h"

#define ANSWER_S 120                 /* one answer; a leg's own timeout may be longer, for it asks many times */

static bool openai_serves(const struct recipe_leg *leg)
{
	return !leg->host && leg->engine == ENGINE_OPENAI;
}

static void set_argv(struct leg_exit *e, const struct leg_task *task)
{
	const struct recipe_leg *leg = task->leg;
	char seconds[32];

	snprintf(seconds, sizeof(seconds), "%g", task->timeout_s > 0 && task->timeout_s < ANSWER_S ? task->timeout_s : ANSWER_S);
	const char *words[] = {"/proc/self/exe", "openai", "--url", leg->url, "--model", leg->url_model, "--timeout", seconds,
			       "--report", task->report_path, leg->url_text ? "--text" : NULL, leg->url_key_env ? "--key-env" : NULL,
			       leg->url_key_env};

	e->argv = xcalloc(sizeof(words) / sizeof(words[0]) + 1, sizeof(*e->argv));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i])
			e->argv[e->argc++] = xstrdup(words[i]);
}

static int openai_run(const struct leg_task *task, struct leg_exit *e)
{
	size_t size;
	char *request = leg_request(task, &size);

	set_argv(e, task);
	int stop = leg_process(task, e, request, size);

	free(request);
	return stop;
}

const struct launcher launch_openai = {.name = "openai", .serves = openai_serves, .run = openai_run};
