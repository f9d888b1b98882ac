#include "ask.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "contract/json.h"

#define REQUEST_BYTES ((size_t)1 << 30)

/* ---- the request ---- */

static int read_prompt(struct ask *a, struct ask_prompt *p, const json_t *value, const char *file, const char *path, struct err *err)
{
	char inner[120];
	struct jobj o;

	if (json_begin(&o, value, file, path, err))
		return -1;
	p->id = json_get_owned(&o, "id", true, false);
	p->text = json_get_owned(&o, "text", false, true);
	snprintf(inner, sizeof(inner), "%s.ids", path);
	if (json_as_ids(json_get(&o, "ids", true), &p->ids, &p->n, file, inner, err))
		return -1;
	p->wanted = (int)json_get_int(&o, "tokens", false, 1, a->steps);
	snprintf(inner, sizeof(inner), "%s.given", path);
	if (!json_is_null_member(&o, "given")
	    && json_as_ids(json_get(&o, "given", true), &p->given, &p->wanted, file, inner, err))
		return -1;
	return json_end(&o);
}

static int read_modes(struct ask *a, const json_t *modes, const char *file, struct err *err)
{
	const json_t *word;
	size_t i;

	json_array_foreach(modes, i, word) {
		int m = 0;

		while (m < N_MODES && (!json_is_string(word) || strcmp(json_string_value(word), mode_name((enum mode)m))))
			m++;
		if (m == N_MODES)
			return json_expected(word, "free or forced", file, "$.modes", err);
		a->modes[m] = true;
	}
	return 0;
}

static int read_request(struct ask *a, const json_t *json, const char *file, struct err *err)
{
	static const char *const schema[] = {"assay/request/1", NULL};
	const json_t *prompts, *item;
	char path[64];
	struct jobj o;
	size_t i;

	if (json_begin(&o, json, file, "$", err))
		return -1;
	json_get_word(&o, "schema", true, schema, 0);
	a->leg = json_get_owned(&o, "leg", true, false);
	a->model = json_get_owned(&o, "model", true, false);
	json_get_sha256(&o, "golden_sha256", true, true, a->golden_sha256);
	a->steps = (int)json_get_int(&o, "steps", true, 1, 1);
	const json_t *requested = json_get_object(&o, "requested", true);

	if (err->kind || arm_from_json(&a->requested, &a->at, requested, file, "$.requested", true, err)
	    || read_modes(a, json_get_array(&o, "modes", true), file, err))
		return -1;
	prompts = json_get_array(&o, "prompts", true);
	a->prompts = xcalloc(json_array_size(prompts) + 1, sizeof(*a->prompts));
	json_array_foreach(prompts, i, item) {
		snprintf(path, sizeof(path), "$.prompts[%zu]", i);
		if (read_prompt(a, &a->prompts[a->n_prompts++], item, file, path, err))
			return -1;
	}
	return json_end(&o);
}

int ask_load_bytes(struct ask *a, const char *bytes, size_t size, const char *name, struct err *err)
{
	json_t *json = json_read_bytes(bytes, size, name, false, err);

	*a = (struct ask){0};
	arm_init(&a->requested);
	int failed = !json || read_request(a, json, name, err);

	json_decref(json);
	return failed ? -1 : 0;
}

void ask_release(struct ask *a)
{
	for (int i = 0; i < a->n_prompts; i++) {
		free(a->prompts[i].id);
		free(a->prompts[i].text);
		free(a->prompts[i].ids);
		free(a->prompts[i].given);
	}
	free(a->prompts);
	free(a->leg);
	free(a->model);
	arm_at_release(&a->at);
	*a = (struct ask){0};
}

/* ---- the report ---- */

/* Log-probabilities are logits whose log-sum-exp is 0. */
static void take_step(struct report *r, struct report_step *to, const struct openai_step *from)
{
	*to = (struct report_step){.id = from->id, .has_logits = from->n_top > 1, .n_top = from->n_top};
	if (!to->has_logits) {
		to->n_top = 0;
		return;
	}
	to->margin = from->top[0].value - from->top[1].value;
	to->top = report_tops(r, (size_t)from->n_top);
	memcpy(to->top, from->top, (size_t)from->n_top * sizeof(*to->top));
}

static void take_row(struct report *r, struct report_row *row, const struct ask_prompt *p, const struct openai_answer *a, bool forced)
{
	bool logits = a->n > 0;

	*row = (struct report_row){.id = xstrdup(p->id), .n_prompt = p->n, .n = a->n, .wall_s = -1,
				   .text = a->text ? xstrdup(a->text) : NULL};
	row->prompt_ids = xcalloc((size_t)p->n + 1, sizeof(*row->prompt_ids));
	memcpy(row->prompt_ids, p->ids, (size_t)p->n * sizeof(*row->prompt_ids));
	row->ids = xcalloc((size_t)a->n + 1, sizeof(*row->ids));
	for (int i = 0; i < a->n; i++) {
		row->ids[i] = a->steps[i].id;
		logits = logits && a->steps[i].n_top > 1;
	}
	if (!logits)
		return;
	row->steps = xcalloc((size_t)a->n, sizeof(*row->steps));
	for (int i = 0; i < a->n; i++) {
		take_step(r, &row->steps[i], &a->steps[i]);
		if (forced) {
			row->steps[i].has_given = true;
			row->steps[i].given = p->given[i];
			row->steps[i].given_logit = a->steps[i].given_logprob;
			row->steps[i].given_rank = a->steps[i].given_rank;
		}
	}
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A list that ends before the id that was fed leaves the row short, with a word on stderr. */
static void trim_forced(struct openai_answer *a, const struct ask_prompt *p, const struct openai *o)
{
	int n = 0;

	while (n < a->n && a->steps[n].has_given)
		n++;
	if (n < p->wanted)
		fprintf(stderr, "prompt %s: the server does not list the id that was fed at step %d%s: the row ends there\n", p->id, n,
			o->narrow ? ", and gives no list of more than 20" : "");
	a->n = n;
}

static int ask_prompt(struct report *r, struct report_row *row, const struct ask_prompt *p, enum mode m, struct openai *o, bool text,
		      bool *at_once, struct err *err)
{
	struct openai_answer a = {0};
	double begun = seconds();
	int failed;

	if (m == MODE_FREE)
		failed = openai_complete(o, &a, p->ids, p->n, text ? p->text : NULL, p->wanted, err);
	else
		failed = openai_score(o, &a, p->ids, p->n, p->given, p->wanted, at_once, err);
	if (failed) {
		openai_answer_release(&a);
		struct err inner = *err;

		*err = (struct err){0};
		return err_set(err, inner.kind, "prompt %s, mode %s: %s", p->id, mode_name(m), inner.text);
	}
	if (m == MODE_FORCED)
		trim_forced(&a, p, o);
	take_row(r, row, p, &a, m == MODE_FORCED);
	row->wall_s = seconds() - begun;
	fprintf(stderr, "prompt %s, mode %s: %d tokens, %.2f s\n", p->id, mode_name(m), a.n, row->wall_s);
	openai_answer_release(&a);
	return 0;
}

static void add_cell(struct report *r, const char *name, const char *value)
{
	r->engine.features = xrealloc(r->engine.features, (size_t)r->engine.n_features + 1, sizeof(*r->engine.features));
	r->engine.features[r->engine.n_features++] = (struct report_cell){xstrdup(name), xstrdup(value)};
}

/* What a server does not say stays open: nothing is echoed from the request but the request. */
static void begin_report(struct report *r, const struct ask *a, const struct openai *o)
{
	*r = (struct report){.leg = xstrdup(a->leg), .requested = a->requested, .peak_rss_bytes = -1, .peak_device_bytes = -1};
	arm_init(&r->effective);
	arm_at_copy(&r->requested_at, &a->at);
	memcpy(r->golden_sha256, a->golden_sha256, SHA256_HEX);
	r->engine.dirty = -1;
	r->host.name = xstrdup(o->authority);
	r->host.cores = r->host.memory = -1;
	r->model.name = xstrdup(o->model);
	for (int m = 0; m < N_MODES; m++)
		for (int c = 0; c < N_COUNTERS; c++)
			r->modes[m].total.n[c] = COUNTER_ABSENT;
}

static void end_report(struct report *r, const struct openai *o, bool text, bool at_once)
{
	r->engine.name = xstrdup(o->server ? o->server : "openai");
	r->engine.version = xstrdup(o->version ? o->version : "unknown");
	add_cell(r, "prompts", text ? "text" : "ids");
	add_cell(r, "answers", o->shape);
	if (r->modes[MODE_FORCED].present)
		add_cell(r, "forced", at_once ? "one prefill (prompt_logprobs)" : "one prefill a position");
}

int ask_server(struct report *r, const struct ask *a, struct openai *o, bool text, struct err *err)
{
	bool at_once = false;

	begin_report(r, a, o);
	if (text && a->modes[MODE_FORCED])
		return err_set(err, ERR_CANNOT_RUN, "mode forced needs prompts as ids: a text and the ids fed after it would be cut into tokens "
			       "anew");
	for (int m = 0; m < N_MODES; m++) {
		struct report_mode *mode = &r->modes[m];

		if (!a->modes[m])
			continue;
		mode->present = true;
		mode->rows = xcalloc((size_t)a->n_prompts + 1, sizeof(*mode->rows));
		for (int i = 0; i < a->n_prompts; i++) {
			const struct ask_prompt *p = &a->prompts[i];

			if (text && !p->text)
				return err_set(err, ERR_INPUT, "prompt %s has no text", p->id);
			if (m == MODE_FORCED && !p->given)
				return err_set(err, ERR_INPUT, "prompt %s: mode forced without ids to feed", p->id);
			if (ask_prompt(r, &mode->rows[i], p, (enum mode)m, o, text, &at_once, err))
				return -1;
			mode->n_rows++;
		}
	}
	end_report(r, o, text, at_once);
	return 0;
}

/* ---- the command ---- */

struct ask_options { const char *url, *model, *key_env, *report; double timeout_s; bool text; };

static char *read_stdin(size_t *size, struct err *err)
{
	size_t room = 1 << 16;
	char *bytes = xmalloc(room);

	*size = 0;
	for (;;) {
		ssize_t n = read(STDIN_FILENO, bytes + *size, room - *size);

		if (n <= 0)
			return bytes;
		*size += (size_t)n;
		if (*size > REQUEST_BYTES) {
			err_set(err, ERR_INPUT, "stdin: a request of more than %zu bytes", REQUEST_BYTES);
			return bytes;
		}
		if (*size == room)
			bytes = xrealloc(bytes, room *= 2, 1);
	}
}

static int find_key(const char *name, const char **key, struct err *err)
{
	*key = name ? getenv(name) : NULL;      /* a secret: in an argument every user of the machine could read it */
	if (name && (!*key || !**key))
		return err_set(err, ERR_INPUT, "the environment variable %s, which key_env names, is not set", name);
	return 0;
}

static int put_request(const struct ask_options *o, const struct ask *a, struct err *err)
{
	char *path = path_join(a->model, "tokenizer.json");
	struct tokenizer *tokenizer = file_exists(path) ? tokenizer_load(path, err) : NULL;
	struct report report = {0};
	struct openai server = {0};
	const char *key;
	int failed = err->kind || find_key(o->key_env, &key, err) || openai_open(&server, o->url, o->model, o->timeout_s, key, err);

	server.tokenizer = tokenizer;
	failed = failed || openai_check_model(&server, err) || ask_server(&report, a, &server, o->text, err)
		 || report_save(&report, o->report, err);
	report_release(&report);
	openai_release(&server);
	if (tokenizer)
		tokenizer_free(tokenizer);
	free(path);
	return failed ? -1 : 0;
}

static bool is_utf8(const char *s)
{
	json_t *text = json_string(s);

	json_decref(text);
	return text != NULL;
}

static int parse(struct ask_options *o, int argc, char **argv)
{
	static const struct option options[] = {
		{"url", required_argument, NULL, 'u'}, {"model", required_argument, NULL, 'm'}, {"key-env", required_argument, NULL, 'k'},
		{"report", required_argument, NULL, 'r'}, {"timeout", required_argument, NULL, 't'}, {"text", no_argument, NULL, 'x'}, {0},
	};
	char *end = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'u': o->url = optarg; break;
		case 'm': o->model = optarg; break;
		case 'k': o->key_env = optarg; break;
		case 'r': o->report = optarg; break;
		case 'x': o->text = true; break;
		case 't':
			o->timeout_s = strtod(optarg, &end);
			if (end == optarg || *end || !(o->timeout_s > 0) || o->timeout_s > 1e6)
				return command_usage("openai", "--timeout %s: expected seconds, more than 0", optarg);
			break;
		default: return EXIT_USAGE;
		}
	}
	if (o->model && !is_utf8(o->model))
		return command_usage("openai", "--model: not UTF-8");
	return o->url && o->model && optind == argc ? 0 : command_usage("openai", "--url and --model are needed, and a request on stdin");
}

int command_openai(int argc, char **argv)
{
	struct ask_options o = {.timeout_s = 120, .report = "/dev/stdout"};
	struct ask a = {0};
	struct err err = {0};
	size_t size;
	int code = parse(&o, argc, argv);

	if (code)
		return code;
	char *bytes = read_stdin(&size, &err);

	if (err.kind || ask_load_bytes(&a, bytes, size, "stdin", &err) || put_request(&o, &a, &err)) {
		fprintf(stderr, "assay openai: %s\n", err.text);
		code = err.kind == ERR_CANNOT_RUN ? 77 : err.kind == ERR_FAILED ? 1 : EXIT_USAGE;
	}
	ask_release(&a);
	free(bytes);
	return code;
}
