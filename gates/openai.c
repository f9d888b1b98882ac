#include "openai.h"

#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "contract/utf8.h"
#include "suggest.h"

#define WORDS_OF_ERROR 200
#define WHOLE_LIST 131072    /* ids; servers that list fewer have fewer */

int openai_open(struct openai *o, const char *url, const char *model, double timeout_s, const char *key, struct err *err)
{
	size_t n = strlen(url);

	*o = (struct openai){.model = model, .shape = "none", .seek = -1};
	while (n > 0 && url[n - 1] == '/')
		n--;
	o->url = xasprintf("%.*s", (int)n, url);
	return http_check_url(url, &o->authority, err) || http_open(&o->http, timeout_s, key, err) ? -1 : 0;
}

void openai_release(struct openai *o)
{
	http_release(&o->http);
	token_names_free(o->names);
	free(o->url);
	free(o->authority);
	free(o->server);
	free(o->version);
	*o = (struct openai){0};
}

void openai_answer_release(struct openai_answer *a)
{
	free(a->steps);
	free(a->text);
	*a = (struct openai_answer){0};
}

/* ---- exchanges ---- */

/* What a server says of an error: {"error": {"message": ...}}, {"message": ...}, or its first words. */
static const char *complaint(const json_t *doc, const struct http_answer *a)
{
	const json_t *error = json_object_get(doc, "error");
	const char *text = json_string_value(json_object_get(json_is_object(error) ? error : doc, "message"));

	return text ? text : json_is_string(error) ? json_string_value(error) : a->bytes;
}

/* A JSON answer of status 200; NULL after err_set, with o->status. */
static json_t *exchange(struct openai *o, const char *path, const json_t *body, struct err *err)
{
	char *url = xasprintf("%s/%s", o->url, path);
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	struct http_answer a = {0};
	struct err why = {0};
	json_t *doc = NULL;

	o->status = 0;
	if (!http_exchange(&o->http, url, text, &a, err)) {
		o->status = a.status;
		doc = json_read_foreign(a.bytes, a.size, url, &why);
		if (a.status != 200)
			err_set(err, ERR_FAILED, "%s: status %ld: %.*s", url, a.status, WORDS_OF_ERROR, complaint(doc, &a));
		else if (!doc)
			err_set(err, ERR_FAILED, "%s (the server's answer is no JSON)", why.text);
		if (err->kind) {
			json_decref(doc);
			doc = NULL;
		}
	}
	free(a.bytes);
	free(text);
	free(url);
	return doc;
}

/* ---- the model ---- */

static void note(char **to, const json_t *from)
{
	if (!*to && json_is_string(from) && *json_string_value(from))
		*to = xstrdup(json_string_value(from));
}

int openai_check_model(struct openai *o, struct err *err)
{
	struct err why = {0};
	json_t *doc = exchange(o, "models", NULL, &why);
	const json_t *list = json_object_get(doc, "data"), *item;
	size_t i, n = json_array_size(list);
	const char **known = xcalloc(n + 1, sizeof(*known));
	char near[400];
	bool found = n == 0;

	/* A server that does not answer at all would not answer the first question either. */
	if (!doc && !o->status)
		err_set(err, ERR_FAILED, "%s", why.text);
	json_array_foreach(list, i, item) {
		const char *id = json_string_value(json_object_get(item, "id"));

		known[i] = id ? id : "";
		found = found || strcmp(known[i], o->model) == 0;
		if (strcmp(known[i], o->model) == 0)
			note(&o->server, json_object_get(item, "owned_by"));
	}
	if (!found && !err->kind)
		err_set(err, ERR_FAILED, "%s: the server has no model `%s`%s", o->url, o->model,
			suggest(near, sizeof(near), o->model, known, (int)n));
	free(known);
	json_decref(doc);
	return err->kind ? -1 : 0;
}

/* ---- questions ---- */

/* Greedy, whatever the server's defaults are; members that it does not know it ignores. */
static json_t *question(const struct openai *o, json_t *prompt, int max_tokens, int logprobs)
{
	json_t *q = json_pack("{s:s, s:o, s:i, s:i, s:i, s:b, s:i, s:i}", "model", o->model, "prompt", prompt, "max_tokens", max_tokens,
			      "temperature", 0, "logprobs", logprobs, "stream", 0, "n", 1, "seed", 0);

	BUG_ON(!q);
	json_put(q, "ignore_eos", json_true());
	json_put(q, "repeat_penalty", json_real(1));              /* llama.cpp's Python server penalises by default */
	json_put(q, "cache_prompt", json_false());                /* llama-server would answer from an earlier prompt's state */
	json_put(q, "return_tokens_as_token_ids", json_true());   /* vLLM */
	json_put(q, "return_token_ids", json_true());
	return q;
}

static int check_told(struct openai *o, const json_t *doc, struct err *err)
{
	const char *model = json_string_value(json_object_get(doc, "model"));

	note(&o->version, json_object_get(doc, "system_fingerprint"));
	if (model && strcmp(model, o->model) != 0)
		return err_set(err, ERR_FAILED, "%s: the server answered as model `%s`, asked was `%s`", o->url, model, o->model);
	return 0;
}

static json_t *ask(struct openai *o, json_t *q, struct err *err)
{
	json_t *doc = exchange(o, "completions", q, err);

	json_decref(q);
	if (doc && check_told(o, doc, err)) {
		json_decref(doc);
		doc = NULL;
	}
	return doc;
}

int openai_complete(struct openai *o, struct openai_answer *a, const int32_t *ids, int n_ids, const char *text, int max_tokens,
		    struct err *err)
{
	json_t *doc = ask(o, question(o, text ? json_string(text) : json_from_ids(ids, n_ids), max_tokens, TOP_MAX), err);
	int failed = !doc || openai_read_answer(o, a, doc, o->url, n_ids, max_tokens, err);

	json_decref(doc);
	return failed ? -1 : 0;
}

static json_t *joined(const int32_t *ids, int n, const int32_t *more, int n_more)
{
	json_t *list = json_from_ids(ids, n);

	for (int i = 0; i < n_more; i++)
		json_array_append_new(list, json_integer(more[i]));
	return list;
}

/* One token after ids and given[0..j). */
static int score_one(struct openai *o, struct openai_step *to, const int32_t *ids, int n_ids, const int32_t *given, int j, int logprobs,
		     struct err *err)
{
	struct openai_answer one = {0};

	o->seek = given[j];
	json_t *doc = ask(o, question(o, joined(ids, n_ids, given, j), 1, logprobs), err);
	int failed = !doc || openai_read_answer(o, &one, doc, o->url, n_ids + j, 1, err);

	json_decref(doc);
	if (!failed && one.n == 0)
		err_set(err, ERR_FAILED, "%s: no token came back for position %d", o->url, j);
	else if (!failed && one.steps[0].n_top == 0)
		err_set(err, ERR_FAILED, "%s: the answer has no log-probabilities, and mode forced is about nothing else", o->url);
	if (!err->kind)
		*to = one.steps[0];
	o->seek = -1;
	openai_answer_release(&one);
	return err->kind ? -1 : 0;
}

/* The same position with the whole vocabulary listed, for a fed id that is none of the best.  A server may refuse such a list, or answer
 * what cannot be read: then the step stays as it is. */
static int score_whole(struct openai *o, struct openai_step *to, const int32_t *ids, int n_ids, const int32_t *given, int j, struct err *err)
{
	struct err why = {0};

	if (o->narrow || !score_one(o, to, ids, n_ids, given, j, WHOLE_LIST, &why))
		return 0;
	if (o->status == 0 || o->status > 499)
		return err_set(err, why.kind, "%s", why.text);
	o->narrow = true;
	return 0;
}

int openai_score(struct openai *o, struct openai_answer *a, const int32_t *ids, int n_ids, const int32_t *given, int n_given,
		 bool *at_once, struct err *err)
{
	json_t *q = question(o, joined(ids, n_ids, given, n_given), 1, TOP_MAX), *doc;

	json_put(q, "prompt_logprobs", json_integer(TOP_MAX));
	doc = ask(o, q, err);
	if (!doc)
		return -1;
	int read = openai_read_prompt(a, doc, o->url, n_ids, given, n_given, err);

	json_decref(doc);
	*at_once = read > 0;
	if (read)
		return read < 0 ? -1 : 0;
	a->steps = xcalloc((size_t)n_given + 1, sizeof(*a->steps));
	for (; a->n < n_given; a->n++)
		if (score_one(o, &a->steps[a->n], ids, n_ids, given, a->n, TOP_MAX, err)
		    || (!a->steps[a->n].has_given && score_whole(o, &a->steps[a->n], ids, n_ids, given, a->n, err)))
			return -1;
		else if (!a->steps[a->n].has_given)
			break;
	return 0;
}
