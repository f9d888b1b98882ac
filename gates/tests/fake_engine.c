/* An engine that behaves as its leg is named; the runner's tests run it instead of assay-engine.
 *
 *   fake_engine run ... --leg NAME --model CASE --report R    writes the canned report CASE/legs/NAME.json; if the case has
 *                                                             none of that name, CASE/legs/step.json with the factors that
 *                                                             were asked, unless NAME begins with one of the words below
 *   fake_engine foreign CASE      reads a request on stdin, repeats it on stderr, prints CASE/legs/step.json
 *   fake_engine sign NAME         foreign, and prints NAME instead of a report
 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "contract/arm.h"
#include "contract/file.h"
#include "contract/json.h"

static const char *leg, *model, *report, *arm_text_given, *only;

static bool leg_is(const char *word)
{
	return strncmp(leg, word, strlen(word)) == 0;
}

static int complain(const char *text)
{
	fprintf(stderr, "assay-engine: %s\n", text);
	return 1;
}

/* The report says that it did what it was asked. */
static void set_factors(json_t *canned)
{
	struct arm arm;
	struct err err = {0};
	json_t *asked;
	const char *name;
	json_t *value;

	arm_init(&arm);
	if (arm_text_given)
		arm_parse(&arm, arm_text_given, &err);
	asked = arm_to_json(&arm, &(struct arm_at_list){0});
	json_object_foreach(asked, name, value)
		if (!json_is_null(value)) {
			json_object_set(json_object_get(canned, "requested"), name, value);
			json_object_set(json_object_get(canned, "effective"), name, value);
		}
	json_decref(asked);
}

/* The trace rows of the n-th prompt: the canned legs ran one prompt after the other. */
static void take_rows(json_t *to, const json_t *trace, int n)
{
	int prompt = -1;
	json_t *row;
	size_t i;

	json_array_foreach(trace, i, row) {
		prompt += json_integer_value(json_object_get(row, "np")) > 0;
		if (prompt != n)
			continue;
		json_object_set_new(row, "step", json_integer((json_int_t)json_array_size(to)));
		json_array_append(to, row);
	}
}

static void add_up(json_t *totals, const json_t *trace)
{
	const char *name;
	json_t *count, *row;
	size_t i;

	json_object_foreach(totals, name, count) {
		json_integer_set(count, 0);
		json_array_foreach(trace, i, row)
			json_integer_set(count, json_integer_value(count) + json_integer_value(json_object_get(row, name)));
	}
}

/* The prompts that were asked, in the order in which they were. */
static void cut_mode(json_t *mode)
{
	const json_t *prompts = json_object_get(mode, "prompts");
	json_t *kept = json_array(), *rows = json_array(), *row;
	char *list = xstrdup(only), *rest = list, *id;
	size_t i;

	while ((id = strsep(&rest, ",")))
		json_array_foreach(prompts, i, row)
			if (strcmp(json_string_value(json_object_get(row, "id")), id) == 0) {
				json_array_append(kept, row);
				take_rows(rows, json_object_get(mode, "trace"), (int)i);
			}
	add_up(json_object_get(mode, "counters_total"), rows);
	json_object_set_new(mode, "prompts", kept);
	json_object_set_new(mode, "trace", rows);
	free(list);
}

static void cut(json_t *canned)
{
	const char *name;
	json_t *mode;

	if (only)
		json_object_foreach(json_object_get(canned, "modes"), name, mode)
			cut_mode(mode);
}

/* The case has a report of this leg: it is taken as it is.  A case that has only its end has a leg that died. */
static int replay(void)
{
	char *from = xasprintf("%s/legs/%s.json", model, leg), *end = xasprintf("%s/legs/%s.exit.json", model, leg);
	struct err err = {0};
	int code = -1;

	if (file_exists(from)) {
		json_t *canned = json_load_file(from, 0, NULL);

		cut(canned);
		code = json_write_file(canned, report, JSON_COMPACT, &err) ? complain(err.text) : 0;
		json_decref(canned);
	} else if (file_exists(end))
		raise(SIGKILL);
	free(from);
	free(end);
	return code;
}

/* The canned report of another leg, under the name of this one. */
static int write_report(const char *dir, const char *name, const char *to)
{
	char *from = xasprintf("%s/legs/step.json", dir);
	json_t *canned = json_load_file(from, 0, NULL);
	struct err err = {0};
	int failed;

	free(from);
	if (!canned)
		return complain("no canned report");
	json_object_set_new(canned, "leg", json_string(name));
	set_factors(canned);
	cut(canned);
	failed = to ? json_write_file(canned, to, JSON_COMPACT, &err) : json_dumpf(canned, stdout, JSON_COMPACT);
	json_decref(canned);
	return failed ? complain(err.text) : 0;
}

static int fill_disk(void)
{
	struct rlimit small = {1000, 1000};
	char *bytes = calloc(1, 100000);
	struct err err = {0};

	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	int failed = file_write(report, bytes, 100000, &err);

	free(bytes);
	return failed ? complain(err.text) : 0;
}

static void trace(int steps)
{
	const struct timespec pause_between = {0, 20000000};

	for (int i = 0; i < steps; i++) {
		fprintf(stderr, "ARM step T=1 nd=1 np=0 state_update_rows=23 chunk_scan_calls=0\n");
		nanosleep(&pause_between, NULL);
	}
}

static int misbehave(void)
{
	FILE *f;

	if (leg_is("killed"))
		raise(SIGKILL);
	if (leg_is("hanging")) {
		fprintf(stderr, "loading\n");
		for (;;)
			pause();
	}
	if (leg_is("silent"))
		return 0;
	if (leg_is("garbage")) {
		f = fopen(report, "w");
		fprintf(f, "{\"schema\": \"assay/report/1\", \"leg\": ");
		return fclose(f);
	}
	if (leg_is("full"))
		return fill_disk();
	if (leg_is("cannot")) {
		complain("backend=cuda: this build has no CUDA");
		return 77;
	}
	if (leg_is("wordy")) {
		for (int i = 0; i < 100; i++)
			fprintf(stderr, "line %d\x1b[31m\xff\n", i);
		trace(30);
		return 1;
	}
	return -1;
}

static int foreign(const char *dir)
{
	json_t *request = json_loadf(stdin, 0, NULL);
	const char *name = json_string_value(json_object_get(request, "leg"));
	int code;

	if (!name)
		return complain("no request");
	json_dumpf(request, stderr, JSON_COMPACT);
	fputc('\n', stderr);
	code = write_report(dir, name, NULL);
	json_decref(request);
	return code;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "foreign") == 0)
		return foreign(argv[2]);
	if (argc == 3 && strcmp(argv[1], "sign") == 0)
		return puts(argv[2]) < 0;
	for (int i = 2; i + 1 < argc; i++) {
		if (strcmp(argv[i], "--leg") == 0)
			leg = argv[i + 1];
		if (strcmp(argv[i], "--only") == 0)
			only = argv[i + 1];
		if (strcmp(argv[i], "--arm") == 0)
			arm_text_given = argv[i + 1];
		if (strcmp(argv[i], "--model") == 0)
			model = argv[i + 1];
		if (strcmp(argv[i], "--report") == 0)
			report = argv[i + 1];
	}
	if (!leg || !model || !report)
		return complain("usage") + 1;
	int code = misbehave();

	if (code < 0)
		code = replay();
	return code >= 0 ? code : write_report(model, leg, report);
}
