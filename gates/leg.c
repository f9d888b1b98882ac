#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "contract/file.h"
#include "contract/json.h"
#include "leg.h"
#include "proc.h"

#define TAIL_BYTES 65536
#define TAIL_LINE 400
#define TICK_S 0.1

static const struct launcher *const launchers[] = {&launch_local, &launch_openai};

void leg_task_open(struct leg_task *task, const char *run_dir)
{
	const char *name = task->leg->name;

	task->golden_path = path_join(run_dir, "golden.json");
	task->report_path = xasprintf("%s/legs/%s.json", run_dir, name);
	task->exit_path = xasprintf("%s/legs/%s.exit.json", run_dir, name);
	task->out_path = xasprintf("%s/legs/%s.stdout", run_dir, name);
	task->err_path = xasprintf("%s/legs/%s.stderr", run_dir, name);
}

void leg_task_release(struct leg_task *task)
{
	free(task->golden_path);
	free(task->report_path);
	free(task->exit_path);
	free(task->out_path);
	free(task->err_path);
	*task = (struct leg_task){0};
}

bool leg_is_done(const struct leg_task *task)
{
	struct leg_exit e = {0};
	struct err err = {0};
	bool done = file_exists(task->exit_path) && leg_exit_load(&e, task->exit_path, &err) == 0;

	leg_exit_release(&e);
	return done;
}

/* ---- how it ended ---- */

static void utc_now(char to[40])
{
	struct timespec t;
	struct tm utc;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &t);
	gmtime_r(&t.tv_sec, &utc);
	n = strftime(to, 40, "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(to + n, 40 - n, ".%03ldZ", t.tv_nsec / 1000000);
}

/* One line of what a leg said, made printable. */
static void add_tail(struct leg_exit *e, const char *line, size_t length)
{
	struct err clean = {0};

	/* The trace would push out what matters. */
	if (length == 0 || strncmp(line, "ARM step", 8) == 0)
		return;
	if (length > TAIL_LINE)
		length = TAIL_LINE;
	err_set(&clean, ERR_INPUT, "%.*s", (int)length, line);
	if (e->n_tail == EXIT_TAIL) {
		free(e->tail[0]);
		memmove(e->tail, e->tail + 1, (EXIT_TAIL - 1) * sizeof(e->tail[0]));
		e->n_tail--;
	}
	e->tail[e->n_tail++] = xstrdup(clean.text);
}

static void read_tail(struct leg_exit *e, const char *path)
{
	FILE *f = fopen(path, "re");
	char *bytes = xmalloc(TAIL_BYTES + 1), *line, *next;
	size_t n = 0;

	if (f) {
		if (fseek(f, -TAIL_BYTES, SEEK_END) != 0)
			rewind(f);
		n = fread(bytes, 1, TAIL_BYTES, f);
		fclose(f);
	}
	bytes[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (!bytes[i])
			bytes[i] = '?';
	for (line = bytes; line && *line; line = next) {
		size_t length = strcspn(line, "\r\n");

		next = line[length] ? line + length + 1 : NULL;
		add_tail(e, line, length);
	}
	free(bytes);
}

void leg_refuse(struct leg_exit *e, int exit_code, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	e->exit_code = exit_code;
	add_tail(e, text, strlen(text));
}

/* ---- run ---- */

int leg_process(const struct leg_task *task, struct leg_exit *e, const char *input, size_t size)
{
	struct proc p = {.argv = e->argv, .input = input, .input_size = size, .out_path = task->out_path, .err_path = task->err_path,
			 .timeout_s = task->timeout_s, .max_file_bytes = LEG_FILE_BYTES, .tick = task->tick, .ud = task->ud,
			 .tick_s = TICK_S};
	struct proc_end end;
	struct err err = {0};

	if (proc_run(&p, &end, &err)) {
		leg_refuse(e, PROC_NOT_STARTED, "%s", err.text);
		return end.interrupted;
	}
	e->exit_code = end.exit_code;
	e->timed_out = end.timed_out;
	if (end.signal)
		proc_signal_name(end.signal, e->signal, sizeof(e->signal));
	return end.interrupted;
}

static const struct launcher *find_launcher(const struct recipe_leg *leg)
{
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (launchers[i]->serves(leg))
			return launchers[i];
	return NULL;
}

static void refuse_unserved(const struct recipe_leg *leg, struct leg_exit *e)
{
	leg_refuse(e, LEG_CANNOT_RUN, "host %s: this build has no launcher for other machines", leg->host);
}

int leg_run(const struct leg_task *task, struct leg_exit *e, struct err *err)
{
	const struct launcher *launcher = find_launcher(task->leg);
	int stopped = 0;

	*e = (struct leg_exit){.leg = xstrdup(task->leg->name), .exit_code = -1};
	/* A resumed run must not take an earlier attempt's files for this one's. */
	unlink(task->report_path);
	unlink(task->exit_path);
	utc_now(e->started);
	if (launcher)
		stopped = launcher->run(task, e);
	else
		refuse_unserved(task->leg, e);
	utc_now(e->ended);
	if (stopped)
		return stopped;
	/* A leg that was refused has its reason already. */
	if (e->n_tail == 0)
		read_tail(e, task->err_path);
	leg_exit_save(e, task->exit_path, err);
	return 0;
}
