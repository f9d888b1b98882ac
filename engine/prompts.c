#include "prompts.h"

#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "contract/json.h"

struct tokenizer *prompts_tokenizer(const struct model *m, struct err *err)
{
	char *path = path_join(m->dir, "tokenizer.json");
	struct tokenizer *t = tokenizer_load(path, err);

	free(path);
	return t;
}

static struct prompt *add(struct prompts *p, const char *id)
{
	p->item = xrealloc(p->item, p->n + 1, sizeof(*p->item));
	p->item[p->n] = (struct prompt){ .id = xstrdup(id) };
	return &p->item[p->n++];
}

static int check(const struct prompts *p, const char *path, const struct model *m, struct err *err)
{
	if (p->n == 0)
		return err_set(err, ERR_INPUT, "%s: no prompts", path);
	for (int i = 0; i < p->n; i++) {
		const struct prompt *q = &p->item[i];

		for (int j = 0; j < i; j++)
			if (strcmp(p->item[j].id, q->id) == 0)
				return err_set(err, ERR_INPUT, "%s: prompt %s occurs twice", path, q->id);
		if (q->n == 0)
			return err_set(err, ERR_INPUT, "%s: prompt %s has no tokens", path, q->id);
		for (int j = 0; j < q->n; j++)
			if (q->ids[j] < 0 || q->ids[j] >= m->config.vocab_size)
				return err_set(err, ERR_INPUT, "%s: prompt %s: id %d is outside the vocabulary of %d",
					       path, q->id, q->ids[j], m->config.vocab_size);
		for (int j = 0; q->row && j < q->row->n; j++)
			if (q->row->ids[j] < 0 || q->row->ids[j] >= m->config.vocab_size)
				return err_set(err, ERR_INPUT, "%s: prompt %s: id %d is outside the vocabulary of %d",
					       path, q->id, q->row->ids[j], m->config.vocab_size);
	}
	return 0;
}

/* Keeps the prompts that `only` lists, in its order. */
static int select_only(struct prompts *p, const char *path, const char *only, struct err *err)
{
	struct prompts kept = {0};
	char *list = xstrdup(only), *rest = list, *id;
	int status = 0;

	while (!status && (id = strsep(&rest, ","))) {
		int at = 0;

		while (at < p->n && (!p->item[at].id || strcmp(p->item[at].id, id)))
			at++;
		if (at == p->n) {
			status = err_set(err, ERR_INPUT, "--only: %s has no prompt %s, or it is asked twice", path, id);
			break;
		}
		kept.item = xrealloc(kept.item, kept.n + 1, sizeof(*kept.item));
		kept.item[kept.n++] = p->item[at];
		p->item[at] = (struct prompt){0};
	}
	for (int i = 0; i < p->n; i++) {
		free(p->item[i].id);
		free(p->item[i].ids);
	}
	free(p->item);
	free(list);
	p->item = kept.item;
	p->n = kept.n;
	return status;
}

int prompts_from_golden(struct prompts *p, const char *path, const char *profile, const char *only,
			const struct model *m, struct err *err)
{
	const struct golden_profile *of;

	if (golden_load(&p->golden, path, err))
		return -1;
	of = golden_profile_find(&p->golden, profile);
	if (!of)
		return err_set(err, ERR_INPUT, "%s: no profile %s", path, profile);
	for (int i = 0; i < p->golden.n_prompts; i++) {
		const struct golden_prompt *from = &p->golden.prompts[i];
		struct prompt *q = add(p, from->id);

		q->n = from->n;
		q->ids = xcalloc(from->n + 1, sizeof(*q->ids));
		memcpy(q->ids, from->ids, from->n * sizeof(*q->ids));
		q->row = golden_row_find(of, i);
	}
	if (only && select_only(p, path, only, err))
		return -1;
	return check(p, path, m, err);
}

static int read_ids(struct prompt *q, const json_t *ids, const char *path, const char *where, struct err *err)
{
	q->n = (int)json_array_size(ids);
	q->ids = xcalloc(q->n + 1, sizeof(*q->ids));
	for (int i = 0; i < q->n; i++) {
		int64_t id;

		if (json_as_int(json_array_get(ids, i), 0, &id, path, where, err))
			return -1;
		q->ids[i] = id > INT32_MAX ? INT32_MAX : (int32_t)id;
	}
	return 0;
}

/* One {id, ids} or {id, text}; the tokenizer is loaded when the first text is met. */
static int read_prompt(struct prompts *p, struct tokenizer **tokenizer, const json_t *json, const char *path,
		       const char *where, const struct model *m, struct err *err)
{
	struct jobj o;
	const char *id, *text;
	const json_t *ids;
	struct prompt *q;

	if (json_begin(&o, json, path, where, err))
		return -1;
	id = json_get_string(&o, "id", true);
	text = json_get_string(&o, "text", false);
	ids = json_get_array(&o, "ids", false);
	if (json_end(&o))
		return -1;
	if (!text == !ids)
		return err_set(err, ERR_INPUT, "%s: %s: expected either ids or text", path, where);
	q = add(p, id);
	if (ids)
		return read_ids(q, ids, path, where, err);
	if (!*tokenizer)
		*tokenizer = prompts_tokenizer(m, err);
	if (!*tokenizer)
		return -1;
	q->n = tokenizer_encode(*tokenizer, &q->ids, text, strlen(text), true, err);
	return q->n < 0 ? -1 : 0;
}

int prompts_from_file(struct prompts *p, const char *path, const char *only, const struct model *m, struct err *err)
{
	struct tokenizer *tokenizer = NULL;
	json_t *json = json_read_file(path, false, err);
	int status = 0;

	if (!json)
		return -1;
	if (!json_is_array(json))
		status = err_set(err, ERR_INPUT, "%s: $: expected a list of {id, ids} or {id, text}", path);
	for (size_t i = 0; !status && i < json_array_size(json); i++) {
		char where[32];

		snprintf(where, sizeof(where), "$[%zu]", i);
		status = read_prompt(p, &tokenizer, json_array_get(json, i), path, where, m, err);
	}
	if (!status && only)
		status = select_only(p, path, only, err);
	if (!status)
		status = check(p, path, m, err);
	if (tokenizer)
		tokenizer_free(tokenizer);
	json_decref(json);
	return status;
}

void prompts_release(struct prompts *p)
{
	for (int i = 0; i < p->n; i++) {
		free(p->item[i].id);
		free(p->item[i].ids);
	}
	free(p->item);
	golden_release(&p->golden);
	*p = (struct prompts){0};
}
