/* A leg as a completions server: `assay openai` asks it, in a child process like every leg. */
#include <stdio.h>
#include <stdlib.h>
#include "leg.h"
#include "proc.h"

#define MAX_FILE_BYTES (4LL << 30)
#define TICK_S 0.1
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
	struct proc p = {.out_path = task->out_path, .err_path = task->err_path, .timeout_s = task->timeout_s,
			 .max_file_bytes = MAX_FILE_BYTES, .tick = task->tick, .ud = task->ud, .tick_s = TICK_S};
	struct proc_end end;
	struct err err = {0};
	char *request = leg_request(task, &p.input_size);

	set_argv(e, task);
	p.input = request;
	p.argv = e->argv;
	if (proc_run(&p, &end, &err)) {
		leg_refuse(e, PROC_NOT_STARTED, "%s", err.text);
	} else {
		e->exit_code = end.exit_code;
		e->timed_out = end.timed_out;
		if (end.signal)
			proc_signal_name(end.signal, e->signal, sizeof(e->signal));
	}
	free(request);
	return end.interrupted;
}

const struct launcher launch_openai = {.name = "openai", .serves = openai_serves, .run = openai_run};
