/* assay golden import: the older single-profile form.  docs/formats.md, section 5. */
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "golden_tool.h"

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

static int read_ids(int32_t **ids, int *n, const json_t *array, const char *file, const char *path, struct err *err)
{
	*ids = xcalloc(json_array_size(array) + 1, sizeof **ids);
	for (size_t i = 0; i < json_array_size(array); i++) {
		int64_t id;
		char at[200];

		snprintf(at, sizeof at, "%s[%zu]", path, i);
		if (json_as_int(json_array_get(array, i), 0, &id, file, at, err))
			return -1;
		if (id > INT32_MAX)
			return err_set(err, ERR_INPUT, "%s: %s: no token id is that large", file, at);
		(*ids)[(*n)++] = (int32_t)id;
	}
	return 0;
}

static int read_item(struct golden *g, const json_t *item, const char *file, struct err *err)
{
	struct golden_prompt *p = &g->prompts[g->n_prompts];
	struct golden_row *row = &g->profiles[0].rows[g->n_prompts];
	char path[64], at[96];
	struct jobj o;

	snprintf(path, sizeof path, "$.golden[%d]", g->n_prompts);
	if (json_begin(&o, item, file, path, err))
		return -1;
	p->id = xasprintf("p%d", g->n_prompts);
	row->prompt = g->n_prompts++;
	g->profiles[0].n_rows = g->n_prompts;
	p->text = copy(json_get_string(&o, "prompt", false));
	row->text = copy(json_get_string(&o, "text", false));
	const json_t *prompt_ids = json_get_array(&o, "prompt_token_ids", true), *ids = json_get_array(&o, "token_ids", true);

	if (json_end(&o))
		return -1;
	snprintf(at, sizeof at, "%s.prompt_token_ids", path);
	if (read_ids(&p->ids, &p->n, prompt_ids, file, at, err))
		return -1;
	snprintf(at, sizeof at, "%s.token_ids", path);
	return read_ids(&row->ids, &row->n, ids, file, at, err);
}

/* {temperature, max_tokens, ignore_eos, ...}: what a golden keeps of it; a sampled one is none. */
static int read_sampling(struct golden *g, const json_t *sampling, const char *file, struct err *err)
{
	const json_t *t = json_object_get(sampling, "temperature"), *n = json_object_get(sampling, "max_tokens");
	const json_t *eos = json_object_get(sampling, "ignore_eos");

	if (json_is_number(t) && json_number_value(t) != 0)
		return err_set(err, ERR_INPUT, "%s: $.sampling.temperature: expected 0: a golden is greedy", file);
	g->max_tokens = json_is_integer(n) && json_integer_value(n) >= 0 ? json_integer_value(n) : -1;
	g->ignore_eos = json_is_boolean(eos) ? json_is_true(eos) : -1;
	return 0;
}

static int read_old(struct golden *g, const json_t *json, const char *file, struct err *err)
{
	struct golden_profile *p = &g->profiles[0];
	struct jobj o;

	if (json_begin(&o, json, file, "$", err))
		return -1;
	g->model = copy(json_get_string(&o, "model", true));
	g->name = copy(g->model ? path_base(g->model) : NULL);
	g->model_revision = copy(json_get_string(&o, "revision", false));
	p->engine_version = copy(json_get_string(&o, "vllm", true));
	p->engine = xstrdup("vllm");
	p->engine_config = json_object();
	for (int i = 0; i < 2; i++) {
		const char *key = i ? "flashinfer" : "transformers", *version = json_get_string(&o, key, false);

		if (version)
			json_object_set_new(p->engine_config, key, json_string(version));
	}
	const json_t *sampling = json_get_object(&o, "sampling", false), *items = json_get_array(&o, "golden", true);

	if (json_end(&o) || read_sampling(g, sampling, file, err))
		return -1;
	g->prompts = xcalloc(json_array_size(items) + 1, sizeof *g->prompts);
	p->rows = xcalloc(json_array_size(items) + 1, sizeof *p->rows);
	for (size_t i = 0; i < json_array_size(items); i++)
		if (read_item(g, json_array_get(items, i), file, err))
			return -1;
	return 0;
}

int golden_import(struct golden *g, const char *path, struct err *err)
{
	json_t *json = json_read_file(path, false, err);

	if (!json)
		return -1;
	*g = (struct golden){ .max_tokens = -1, .ignore_eos = -1, .n_profiles = 1 };
	g->profiles = xcalloc(1, sizeof *g->profiles);
	g->profiles[0].name = xstrdup("base");
	g->profiles[0].repeats_agree = -1;
	int failed = read_old(g, json, path, err);

	json_decref(json);
	return failed;
}
