/* The shapes of an answer.  docs/foreign-engines.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "openai.h"

/* ---- texts of tokens ---- */

struct token_names { int n; struct token_name { char *text; int32_t id; } *of; };

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct token_name *)a)->text, ((const struct token_name *)b)->text);
}

static struct token_names *names_make(const struct tokenizer *t)
{
	struct token_names *names = xcalloc(1, sizeof(*names));
	int size = tokenizer_size(t);

	names->of = xcalloc((size_t)size + 1, sizeof(*names->of));
	for (int32_t id = 0; id < size; id++) {
		struct err ignored = {0};
		size_t length;
		char *text = tokenizer_decode(t, &id, 1, false, &length, &ignored);

		if (text)
			names->of[names->n++] = (struct token_name){text, id};
	}
	qsort(names->of, (size_t)names->n, sizeof(*names->of), by_text);
	return names;
}

void token_names_free(struct token_names *names)
{
	if (!names)
		return;
	for (int i = 0; i < names->n; i++)
		free(names->of[i].text);
	free(names->of);
	free(names);
}

/* The one token of that text; -1: none, or several (parts of characters all read as U+FFFD). */
static int32_t name_find(const struct token_names *names, const char *text)
{
	struct token_name key = {.text = (char *)text}, *at;

	at = bsearch(&key, names->of, (size_t)names->n, sizeof(*names->of), by_text);
	if (!at || (at > names->of && by_text(at, at - 1) == 0) || (at < names->of + names->n - 1 && by_text(at, at + 1) == 0))
		return -1;
	return at->id;
}

/* An id as JSON; -1: it is none. */
static int32_t id_of(const json_t *v)
{
	json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;

	return id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
}

/* Decimal digits alone; -1: they are no id. */
static int32_t id_of_digits(const char *text)
{
	size_t n = strlen(text);
	long long id = n > 0 && n < 12 && strspn(text, "0123456789") == n ? strtoll(text, NULL, 10) : -1;

	return id <= INT32_MAX ? (int32_t)id : -1;
}

/* "token_id:N", or a text of the vocabulary; -1 if it is neither. */
static int32_t id_of_text(struct openai *o, const char *text)
{
	static const char prefix[] = "token_id:";
	int32_t id = strncmp(text, prefix, strlen(prefix)) ? -1 : id_of_digits(text + strlen(prefix));

	if (id >= 0) {
		o->shape = "token ids";
		return id;
	}
	if (!o->names && o->tokenizer)
		o->names = names_make(o->tokenizer);
	return o->names ? name_find(o->names, text) : -1;
}

/* ---- a list of candidates ---- */

static int by_value(const void *a, const void *b)
{
	const struct top *x = a, *y = b;

	if (x->value != y->value)
		return x->value < y->value ? 1 : -1;
	return (x->id > y->id) - (x->id < y->id);
}

/* Sorts what was listed and keeps the best, and where `seek` stands; an id that is there twice is a lie. */
static int keep_best(struct openai_step *s, struct top *all, size_t n, int32_t seek, const char *where, struct err *err)
{
	qsort(all, n, sizeof(*all), by_value);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i && i < 2 * TOP_MAX; k++)
			if (all[k].id == all[i].id)
				return err_set(err, ERR_FAILED, "%s: token %d is listed twice", where, all[i].id);
	for (size_t i = 0; i < n && seek >= 0; i++)
		if (all[i].id == seek) {
			s->has_given = true;
			s->given_logprob = all[i].value;
			s->given_rank = (int)i + 1;
		}
	s->n_top = n < TOP_MAX ? (int)n : TOP_MAX;
	memcpy(s->top, all, (size_t)s->n_top * sizeof(*all));
	return 0;
}

static int as_logprob(const json_t *v, double *to, const char *where, struct err *err)
{
	*to = json_number_value(v);
	if (!json_is_number(v) || !isfinite(*to) || *to > 1e-3)
		return err_set(err, ERR_FAILED, "%s: a log-probability is %s", where, json_is_number(v) ? "above 0" : json_says(v));
	return 0;
}

/* Candidates are absent, null, or what the shape says; anything else would read as none. */
static int are_candidates(const json_t *v, json_type type, const char *where, struct err *err)
{
	if (!v || json_is_null(v) || json_typeof(v) == type)
		return 0;
	return err_set(err, ERR_FAILED, "%s: top_logprobs: expected %s, found %s", where, type == JSON_ARRAY ? "a list" : "an object",
		       json_says(v));
}

/* ---- content: llama-server ---- */

static int read_content_step(const struct openai *o, struct openai_step *s, const json_t *item, const char *where, struct err *err)
{
	const json_t *list = json_object_get(item, "top_logprobs"), *one;
	struct top *all = xcalloc(json_array_size(list) + 1, sizeof(*all));
	size_t i;

	s->id = id_of(json_object_get(item, "id"));
	if (s->id < 0)
		err_set(err, ERR_FAILED, "%s: a token without an id", where);
	are_candidates(list, JSON_ARRAY, where, err);
	json_array_foreach(list, i, one) {
		all[i].id = id_of(json_object_get(one, "id"));
		if (all[i].id < 0)
			err_set(err, ERR_FAILED, "%s: a candidate without an id", where);
		as_logprob(json_object_get(one, "logprob"), &all[i].value, where, err);
	}
	if (!err->kind)
		keep_best(s, all, json_array_size(list), o->seek, where, err);
	free(all);
	return err->kind ? -1 : 0;
}

/* ---- classic: vLLM, and others by text ---- */

/* A text that is no single token ends the list: what is below it would rank too high. */
static int read_classic_top(struct openai *o, struct openai_step *s, const json_t *map, const char *where, struct err *err)
{
	size_t n = json_object_size(map), kept = 0;
	struct top *all = xcalloc(n + 1, sizeof(*all));
	double unknown = -INFINITY;
	const char *text;
	json_t *value;

	json_object_foreach((json_t *)map, text, value) {
		all[kept].id = id_of_text(o, text);
		if (as_logprob(value, &all[kept].value, where, err))
			break;
		if (all[kept].id < 0)
			unknown = fmax(unknown, all[kept].value);
		else
			kept++;
	}
	if (!err->kind)
		keep_best(s, all, kept, o->seek, where, err);
	while (s->n_top > 0 && s->top[s->n_top - 1].value <= unknown)
		s->n_top--;
	s->has_given = s->has_given && s->given_logprob > unknown;
	free(all);
	return err->kind ? -1 : 0;
}

static int read_classic(struct openai *o, struct openai_answer *a, const json_t *lp, const json_t *ids, const char *where, struct err *err)
{
	const json_t *tokens = json_object_get(lp, "tokens"), *tops = json_object_get(lp, "top_logprobs"), *token;
	size_t i;

	o->shape = "classic";
	a->steps = xcalloc(json_array_size(tokens) + 1, sizeof(*a->steps));
	if (are_candidates(tops, JSON_ARRAY, where, err))
		return -1;
	if (json_is_array(tops) && json_array_size(tops) != json_array_size(tokens))
		return err_set(err, ERR_FAILED, "%s: %zu tokens and %zu lists of candidates", where, json_array_size(tokens), json_array_size(tops));
	if (json_is_array(ids) && json_array_size(ids) != json_array_size(tokens))
		return err_set(err, ERR_FAILED, "%s: %zu tokens and %zu token_ids", where, json_array_size(tokens), json_array_size(ids));
	json_array_foreach(tokens, i, token) {
		struct openai_step *s = &a->steps[a->n++];
		const char *text = json_string_value(token);

		s->id = json_is_array(ids) ? id_of(json_array_get(ids, i)) : text ? id_of_text(o, text) : -1;
		if (s->id < 0 && json_is_array(ids))
			return err_set(err, ERR_FAILED, "%s: token_ids[%zu] is no id", where, i);
		if (s->id < 0)
			return err_set(err, ERR_FAILED, "%s: the chosen token \"%s\" is no single token of the model's vocabulary, and the server "
				       "names no ids", where, text ? text : "");
		if (tops && (are_candidates(json_array_get(tops, i), JSON_OBJECT, where, err) ||
			     read_classic_top(o, s, json_array_get(tops, i), where, err)))
			return -1;
	}
	return 0;
}

/* ---- a whole answer ---- */

/* A server that adds a token (BOS, a template) answers another question. */
static int check_count(const json_t *doc, const char *where, int n_ids, struct err *err)
{
	const json_t *n = json_object_get(json_object_get(doc, "usage"), "prompt_tokens");

	if (json_is_integer(n) && json_integer_value(n) != n_ids)
		return err_set(err, ERR_FAILED, "%s: the server counts %lld prompt tokens where %d were meant: it adds or splits tokens", where,
			       (long long)json_integer_value(n), n_ids);
	return 0;
}

static const json_t *first_choice(const json_t *doc, const char *where, struct err *err)
{
	const json_t *choices = json_object_get(doc, "choices");

	if (json_array_size(choices) != 1 || !json_is_object(json_array_get(choices, 0)))
		err_set(err, ERR_FAILED, "%s: the answer has no `choices` of one item", where);
	return json_array_get(choices, 0);
}

static int read_ids_alone(struct openai_answer *a, const json_t *ids, const char *where, struct err *err)
{
	const json_t *id;
	size_t i;

	a->steps = xcalloc(json_array_size(ids) + 1, sizeof(*a->steps));
	json_array_foreach(ids, i, id) {
		if (id_of(id) < 0)
			return err_set(err, ERR_FAILED, "%s: token_ids[%zu] is no id", where, i);
		a->steps[a->n++].id = id_of(id);
	}
	return 0;
}

static int read_content(struct openai *o, struct openai_answer *a, const json_t *content, const char *where, struct err *err)
{
	const json_t *item;
	size_t i;

	o->shape = "content";
	a->steps = xcalloc(json_array_size(content) + 1, sizeof(*a->steps));
	json_array_foreach(content, i, item)
		if (read_content_step(o, &a->steps[a->n++], item, where, err))
			return -1;
	return 0;
}

int openai_read_answer(struct openai *o, struct openai_answer *a, const json_t *doc, const char *where, int n_ids, int max_tokens,
		       struct err *err)
{
	const json_t *choice, *lp, *ids, *text;
	int failed;

	*a = (struct openai_answer){0};
	if (check_count(doc, where, n_ids, err) || !(choice = first_choice(doc, where, err)) || err->kind)
		return -1;
	lp = json_object_get(choice, "logprobs");
	ids = json_object_get(choice, "token_ids");
	if (json_is_array(json_object_get(lp, "content")))
		failed = read_content(o, a, json_object_get(lp, "content"), where, err);
	else if (json_is_array(json_object_get(lp, "tokens")))
		failed = read_classic(o, a, lp, ids, where, err);
	else if (json_is_array(ids))
		failed = read_ids_alone(a, ids, where, err);
	else
		failed = err_set(err, ERR_FAILED, "%s: the answer has no log-probabilities and no token ids: which tokens were chosen is not "
				 "known", where);
	if (failed)
		return -1;
	if (a->n > max_tokens)
		return err_set(err, ERR_FAILED, "%s: %d tokens came back, %d were asked", where, a->n, max_tokens);
	text = json_object_get(choice, "text");
	a->text = json_is_string(text) ? xstrdup(json_string_value(text)) : NULL;
	return 0;
}

/* ---- prompt_logprobs: vLLM ---- */

static int read_prompt_step(struct openai_step *s, const json_t *map, int32_t given, const char *where, struct err *err)
{
	struct top *all = xcalloc(json_object_size(map) + 1, sizeof(*all));
	const char *key;
	json_t *value;
	size_t n = 0;

	json_object_foreach((json_t *)map, key, value) {
		int32_t id = id_of_digits(key);
		const json_t *rank = json_object_get(value, "rank");
		double logprob;

		if (id < 0)
			err_set(err, ERR_FAILED, "%s: prompt_logprobs names a token \"%s\"", where, key);
		if (err->kind || as_logprob(json_object_get(value, "logprob"), &logprob, where, err))
			break;
		if (id == given && json_is_integer(rank) && json_integer_value(rank) > 0) {
			s->has_given = true;
			s->given_logprob = logprob;
			s->given_rank = (int)json_integer_value(rank);
		}
		/* The fed token is listed whatever its rank. */
		if (!json_is_integer(rank) || json_integer_value(rank) <= TOP_MAX)
			all[n++] = (struct top){id, logprob};
	}
	if (!err->kind && n == 0)
		err_set(err, ERR_FAILED, "%s: prompt_logprobs lists nothing", where);
	if (!err->kind && !keep_best(s, all, n, -1, where, err))
		s->id = s->top[0].id;
	free(all);
	return err->kind ? -1 : 0;
}

int openai_read_prompt(struct openai_answer *a, const json_t *doc, const char *where, int n_ids, const int32_t *given, int n_given,
		       struct err *err)
{
	const json_t *choice, *list;

	*a = (struct openai_answer){0};
	if (check_count(doc, where, n_ids + n_given, err) || !(choice = first_choice(doc, where, err)) || err->kind)
		return -1;
	list = json_object_get(choice, "prompt_logprobs");
	if (!json_is_array(list))
		return 0;
	if (json_array_size(list) != (size_t)n_ids + (size_t)n_given)
		return err_set(err, ERR_FAILED, "%s: prompt_logprobs has %zu positions, the prompt %d", where, json_array_size(list),
			       n_ids + n_given);
	a->steps = xcalloc((size_t)n_given + 1, sizeof(*a->steps));
	for (; a->n < n_given; a->n++)
		if (read_prompt_step(&a->steps[a->n], json_array_get(list, (size_t)n_ids + (size_t)a->n), given[a->n], where, err))
			return -1;
	return 1;
}
