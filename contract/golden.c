#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "steps.h"

#define FILE_LIMIT ((size_t)4 << 30)
#define PROBABILITY_SLACK 1e-4   /* twenty log-probabilities rounded to five digits stay well inside */

static const char *const modes[] = { "free", "forced", NULL };
static const char *const dtypes[] = { "bf16", "fp16", "fp32", "f64", NULL };

/* What the readers below share. */
struct reading {
	struct golden *g;
	struct steps_doc *doc;
	const char *file;
	struct err *err;
};

static int refuse(struct reading *r, const char *path, const char *what, const char *name)
{
	return err_set(r->err, ERR_INPUT, "%s: %s: %s \"%.100s\"", r->file, path, what, name);
}

/* ---- the head ---- */

static int read_files(struct reading *r, const json_t *files)
{
	const char *name, *sha;
	json_t *value;
	char path[300];

	if (files == NULL)
		return -1;
	r->g->files = xcalloc(json_object_size(files), sizeof(*r->g->files));
	json_object_foreach((json_t *)files, name, value) {
		struct golden_file *f = &r->g->files[r->g->n_files];

		sha = json_string_value(value);
		if (sha == NULL || !json_is_sha256(sha)) {
			json_path(path, sizeof(path), "$.model.files", name);
			return json_expected(value, "64 hexadecimal digits", r->file, path, r->err);
		}
		f->name = xstrdup(name);
		memcpy(f->sha256, sha, SHA256_HEX);
		r->g->n_files++;
	}
	return 0;
}

static int read_model(struct reading *r, const json_t *value)
{
	struct jobj o;

	if (json_begin(&o, value, r->file, "$.model", r->err))
		return -1;
	r->g->model = json_get_owned(&o, "name", true, false);
	r->g->model_revision = json_get_owned(&o, "revision", false, false);
	return read_files(r, json_get_object(&o, "files", true)) || json_end(&o) ? -1 : 0;
}

static int read_sampling(struct reading *r, const json_t *value)
{
	struct jobj o;

	r->g->max_tokens = -1;
	r->g->ignore_eos = -1;
	if (value == NULL)
		return 0;
	if (json_begin(&o, value, r->file, "$.sampling", r->err))
		return -1;
	if (json_get_number(&o, "temperature", true, 0) != 0)
		err_set(r->err, ERR_INPUT, "%s: $.sampling.temperature: expected 0: a golden is greedy", r->file);
	r->g->max_tokens = json_get_int(&o, "max_tokens", false, 0, -1);
	if (json_get(&o, "ignore_eos", false) != NULL)
		r->g->ignore_eos = json_get_bool(&o, "ignore_eos", false, false);
	return json_end(&o);
}

static int read_prompt(struct reading *r, const json_t *value, size_t i)
{
	struct golden_prompt *p = &r->g->prompts[r->g->n_prompts];
	char path[64], ids_path[80];
	struct jobj o;

	snprintf(path, sizeof(path), "$.prompts[%zu]", i);
	snprintf(ids_path, sizeof(ids_path), "%s.ids", path);
	if (json_begin(&o, value, r->file, path, r->err))
		return -1;
	r->g->n_prompts++;
	p->id = json_get_owned(&o, "id", true, false);
	p->text = json_get_owned(&o, "text", false, false);
	if (json_as_ids(json_get(&o, "ids", true), &p->ids, &p->n, r->file, ids_path, r->err) || json_end(&o))
		return -1;
	if (p->id[0] == '\0' || p->n == 0)
		return err_set(r->err, ERR_INPUT, "%s: %s: expected an id and at least one token", r->file, path);
	if (golden_prompt_find(r->g, p->id) != (int)i)
		return refuse(r, path, "a second prompt", p->id);
	return 0;
}

static int read_prompts(struct reading *r, const json_t *array)
{
	const json_t *item;
	size_t i;

	if (array == NULL)
		return -1;
	if (json_array_size(array) == 0)
		return err_set(r->err, ERR_INPUT, "%s: $.prompts: expected at least one prompt, found none", r->file);
	r->g->prompts = xcalloc(json_array_size(array), sizeof(*r->g->prompts));
	json_array_foreach(array, i, item)
		if (read_prompt(r, item, i))
			return -1;
	return 0;
}

/* ---- profiles ---- */

/* The emitted id has the highest listed value; in an exact tie it may be any of the best. */
static int check_step(struct steps_reader *in, const struct step *s, int32_t id)
{
	double sum = 0;
	bool best = s->n_top == 0;
	char what[120];

	if (s->id != id) {
		snprintf(what, sizeof(what), "expected id %d as in ids, found %d", id, s->id);
		return steps_refuse(in, what);
	}
	for (int i = 0; i < s->n_top; i++) {
		sum += exp(s->top[i].value);
		best = best || (s->top[i].id == id && s->top[i].value == s->top[0].value);
	}
	if (!best) {
		snprintf(what, sizeof(what), "expected the emitted id %d to have the highest log-probability, found id %d", id,
			 s->top[0].id);
		return steps_refuse(in, what);
	}
	if (sum > 1 + PROBABILITY_SLACK) {
		snprintf(what, sizeof(what), "expected probabilities that sum to at most 1, found %.6g", sum);
		return steps_refuse(in, what);
	}
	return 0;
}

static int read_steps(struct reading *r, struct golden_row *row, const json_t *marker, const char *path)
{
	struct steps_reader in;
	struct step s;
	int more = -1;

	if (steps_begin(&in, r->doc, marker, path, STEPS_GOLDEN, r->err))
		return -1;
	row->steps = xcalloc((size_t)row->n, sizeof(*row->steps));
	while (in.n <= row->n && (more = steps_next(&in, &s)) > 0) {
		struct golden_step *to = &row->steps[in.n - 1];

		if (in.n > row->n)
			break;
		if (check_step(&in, &s, row->ids[in.n - 1]))
			return -1;
		*to = (struct golden_step){ .id = s.id, .n_top = s.n_top, .has_lse = s.has_lse };
		if (s.has_lse)
			to->lse = s.lse;
		to->top = tops_alloc(&r->g->arena, (size_t)s.n_top);
		memcpy(to->top, s.top, (size_t)s.n_top * sizeof(s.top[0]));
	}
	if (more < 0)
		return -1;
	if (in.n != row->n)
		return err_set(r->err, ERR_INPUT, "%s: %s: expected %d steps, one for each of ids, found %s %d", r->file, path,
			       row->n, more ? "more than" : "only", more ? row->n : in.n);
	return 0;
}

static int read_row(struct reading *r, struct golden_profile *p, const json_t *value, const char *path)
{
	struct golden_row *row = &p->rows[p->n_rows];
	char inner[160];
	const char *id;
	const json_t *steps;
	struct jobj o;

	if (json_begin(&o, value, r->file, path, r->err))
		return -1;
	p->n_rows++;
	row->prompt = -1;
	id = json_get_string(&o, "id", true);
	row->text = json_get_owned(&o, "text", false, false);
	snprintf(inner, sizeof(inner), "%s.ids", path);
	if (json_as_ids(json_get(&o, "ids", true), &row->ids, &row->n, r->file, inner, r->err))
		return -1;
	steps = json_get(&o, "steps", false);
	snprintf(inner, sizeof(inner), "%s.steps", path);
	if (json_end(&o) || (steps != NULL && read_steps(r, row, steps, inner)))
		return -1;
	row->prompt = golden_prompt_find(r->g, id);
	if (row->prompt < 0)
		return refuse(r, path, "not among $.prompts:", id);
	if (golden_row_find(p, row->prompt) != row)
		return refuse(r, path, "a second entry for prompt", id);
	return 0;
}

static int read_engine(struct reading *r, struct golden_profile *p, const json_t *value, const char *path)
{
	const json_t *config;
	struct jobj o;

	if (json_begin(&o, value, r->file, path, r->err))
		return -1;
	p->engine = json_get_owned(&o, "name", true, false);
	p->engine_version = json_get_owned(&o, "version", true, false);
	config = json_get_object(&o, "config", false);
	p->engine_config = json_incref((json_t *)config);
	return json_end(&o);
}

static int read_profile(struct reading *r, const json_t *value, size_t i)
{
	struct golden_profile *p = &r->g->profiles[r->g->n_profiles];
	char path[64], inner[128];
	const json_t *rows, *item;
	struct jobj o;
	size_t j;
	int dtype;

	snprintf(path, sizeof(path), "$.profiles[%zu]", i);
	if (json_begin(&o, value, r->file, path, r->err))
		return -1;
	r->g->n_profiles++;
	p->name = json_get_owned(&o, "name", true, false);
	snprintf(inner, sizeof(inner), "%s.engine", path);
	if (read_engine(r, p, json_get_object(&o, "engine", true), inner))
		return -1;
	p->device = json_get_owned(&o, "device", false, false);
	dtype = json_get_word(&o, "logits_dtype", false, dtypes, -1);
	p->logits_dtype = dtype < 0 ? NULL : xstrdup(dtypes[dtype]);
	p->captured = json_get_owned(&o, "captured", false, false);
	p->command = json_get_owned(&o, "command", false, false);
	p->repeats = (int)json_get_int(&o, "repeats", false, 0, 0);
	p->repeats_agree = json_get(&o, "repeats_agree", false) ? json_get_bool(&o, "repeats_agree", false, false) : -1;
	p->mode = json_get_word(&o, "mode", false, modes, GOLDEN_FREE);
	rows = json_get_array(&o, "prompts", true);
	if (json_end(&o))
		return -1;
	if (!json_is_name(p->name))
		return refuse(r, path, "expected a name of letters, digits, _ and -, found", p->name);
	if (golden_profile_find(r->g, p->name) != p)
		return refuse(r, path, "a second profile", p->name);
	if (json_array_size(rows) == 0)
		return err_set(r->err, ERR_INPUT, "%s: %s.prompts: expected at least one prompt, found none", r->file, path);
	p->rows = xcalloc(json_array_size(rows), sizeof(*p->rows));
	json_array_foreach(rows, j, item) {
		snprintf(inner, sizeof(inner), "%s.prompts[%zu]", path, j);
		if (read_row(r, p, item, inner))
			return -1;
	}
	return 0;
}

static int read_profiles(struct reading *r, const json_t *array)
{
	const json_t *item;
	size_t i;

	if (array == NULL)
		return -1;
	if (json_array_size(array) == 0)
		return err_set(r->err, ERR_INPUT, "%s: $.profiles: expected at least one profile, found none", r->file);
	r->g->profiles = xcalloc(json_array_size(array), sizeof(*r->g->profiles));
	json_array_foreach(array, i, item)
		if (read_profile(r, item, i))
			return -1;
	return 0;
}

static int read_golden(struct reading *r)
{
	static const char *const schema[] = { "assay/golden/1", NULL };
	const json_t *prompts, *profiles;
	struct jobj o;

	if (json_object_get(r->doc->json, "schema") == NULL && json_object_get(r->doc->json, "golden") != NULL)
		return err_set(r->err, ERR_INPUT, "%s: a golden of the older single-profile form: convert it with "
			       "`assay golden import`", r->file);
	if (json_begin(&o, r->doc->json, r->file, "$", r->err))
		return -1;
	json_get_word(&o, "schema", true, schema, 0);
	r->g->name = json_get_owned(&o, "name", true, false);
	json_get_sha256(&o, "tokenizer_sha256", false, false, r->g->tokenizer_sha256);
	if (read_model(r, json_get(&o, "model", true)) || read_sampling(r, json_get(&o, "sampling", false)))
		return -1;
	prompts = json_get_array(&o, "prompts", true);
	profiles = json_get_array(&o, "profiles", true);
	return json_end(&o) || read_prompts(r, prompts) || read_profiles(r, profiles) ? -1 : 0;
}

int golden_load_bytes(struct golden *g, const char *bytes, size_t size, const char *name, struct err *err)
{
	struct steps_doc doc;
	struct reading r = { .g = g, .doc = &doc, .file = name, .err = err };

	*g = (struct golden){ 0 };
	if (steps_open(&doc, bytes, size, name, "profiles", err))
		return -1;
	read_golden(&r);
	if (steps_close(&doc, err)) {
		golden_release(g);
		return -1;
	}
	sha256_bytes(bytes, size, g->sha256);
	return 0;
}

int golden_load(struct golden *g, const char *path, struct err *err)
{
	size_t size;
	char *bytes;
	int status;

	*g = (struct golden){ 0 };
	bytes = file_read(path, FILE_LIMIT, &size, err);
	if (bytes == NULL)
		return -1;
	status = golden_load_bytes(g, bytes, size, path, err);
	free(bytes);
	return status;
}

/* ---- writing ---- */

static void put_string(json_t *object, const char *key, const char *value)
{
	if (value != NULL && value[0] != '\0')
		json_put(object, key, json_string(value));
}

static json_t *steps_to_json(const struct golden_row *row)
{
	json_t *steps = json_array();

	for (int i = 0; i < row->n; i++) {
		const struct golden_step *s = &row->steps[i];
		json_t *step = json_object(), *top = json_array();

		json_put(step, "id", json_integer(s->id));
		for (int j = 0; j < s->n_top; j++) {
			json_t *pair = json_array();

			json_array_append_new(pair, json_integer(s->top[j].id));
			json_array_append_new(pair, json_number(s->top[j].value));
			json_array_append_new(top, pair);
		}
		if (s->n_top > 0)
			json_put(step, "top", json_incref(top));
		json_decref(top);
		if (s->has_lse)
			json_put(step, "lse", json_number(s->lse));
		json_array_append_new(steps, step);
	}
	return steps;
}

static json_t *row_to_json(const struct golden *g, const struct golden_row *row)
{
	json_t *out = json_object();

	json_put(out, "id", json_string(g->prompts[row->prompt].id));
	json_put(out, "ids", json_from_ids(row->ids, row->n));
	if (row->text != NULL)
		json_put(out, "text", json_string(row->text));
	if (row->steps != NULL)
		json_put(out, "steps", steps_to_json(row));
	return out;
}

static json_t *profile_to_json(const struct golden *g, const struct golden_profile *p)
{
	json_t *engine = json_object(), *out = json_object(), *rows = json_array();

	json_put(engine, "name", json_string(p->engine));
	json_put(engine, "version", json_string(p->engine_version));
	if (p->engine_config != NULL)
		json_put(engine, "config", json_incref(p->engine_config));
	json_put(out, "name", json_string(p->name));
	json_put(out, "engine", engine);
	put_string(out, "device", p->device);
	put_string(out, "logits_dtype", p->logits_dtype);
	put_string(out, "captured", p->captured);
	put_string(out, "command", p->command);
	if (p->repeats > 0)
		json_put(out, "repeats", json_integer(p->repeats));
	if (p->repeats_agree >= 0)
		json_put(out, "repeats_agree", json_boolean(p->repeats_agree));
	json_put(out, "mode", json_string(modes[p->mode]));
	for (int i = 0; i < p->n_rows; i++)
		json_array_append_new(rows, row_to_json(g, &p->rows[i]));
	json_put(out, "prompts", rows);
	return out;
}

static json_t *model_to_json(const struct golden *g)
{
	json_t *out = json_object(), *files = json_object();

	for (int i = 0; i < g->n_files; i++)
		json_put(files, g->files[i].name, json_string(g->files[i].sha256));
	json_put(out, "name", json_string(g->model));
	json_put(out, "files", files);
	put_string(out, "revision", g->model_revision);
	return out;
}

static json_t *prompt_to_json(const struct golden_prompt *p)
{
	json_t *out = json_object();

	json_put(out, "id", json_string(p->id));
	if (p->text != NULL)
		json_put(out, "text", json_string(p->text));
	json_put(out, "ids", json_from_ids(p->ids, p->n));
	return out;
}

static json_t *golden_to_json(const struct golden *g)
{
	json_t *out = json_object(), *sampling = json_object(), *prompts = json_array(), *profiles = json_array();

	json_put(sampling, "temperature", json_integer(0));
	if (g->max_tokens >= 0)
		json_put(sampling, "max_tokens", json_integer(g->max_tokens));
	if (g->ignore_eos >= 0)
		json_put(sampling, "ignore_eos", json_boolean(g->ignore_eos));
	for (int i = 0; i < g->n_prompts; i++)
		json_array_append_new(prompts, prompt_to_json(&g->prompts[i]));
	for (int i = 0; i < g->n_profiles; i++)
		json_array_append_new(profiles, profile_to_json(g, &g->profiles[i]));
	json_put(out, "schema", json_string("assay/golden/1"));
	json_put(out, "name", json_string(g->name));
	json_put(out, "model", model_to_json(g));
	put_string(out, "tokenizer_sha256", g->tokenizer_sha256);
	json_put(out, "sampling", sampling);
	json_put(out, "prompts", prompts);
	json_put(out, "profiles", profiles);
	return out;
}

int golden_save(const struct golden *g, const char *path, struct err *err)
{
	json_t *out = golden_to_json(g);
	int status = json_write_file(out, path, JSON_INDENT(1) | JSON_COMPACT | JSON_FLAT, err);

	json_decref(out);
	return status;
}

/* ---- life and lookup ---- */

static void release_profile(struct golden_profile *p)
{
	for (int i = 0; i < p->n_rows; i++) {
		free(p->rows[i].ids);
		free(p->rows[i].text);
		free(p->rows[i].steps);
	}
	free(p->rows);
	free(p->name);
	free(p->engine);
	free(p->engine_version);
	json_decref(p->engine_config);
	free(p->device);
	free(p->logits_dtype);
	free(p->captured);
	free(p->command);
}

void golden_release(struct golden *g)
{
	for (int i = 0; i < g->n_profiles; i++)
		release_profile(&g->profiles[i]);
	free(g->profiles);
	for (int i = 0; i < g->n_prompts; i++) {
		free(g->prompts[i].id);
		free(g->prompts[i].text);
		free(g->prompts[i].ids);
	}
	free(g->prompts);
	for (int i = 0; i < g->n_files; i++)
		free(g->files[i].name);
	free(g->files);
	free(g->name);
	free(g->model);
	free(g->model_revision);
	tops_free(&g->arena);
	*g = (struct golden){ 0 };
}

int golden_prompt_find(const struct golden *g, const char *id)
{
	for (int i = 0; i < g->n_prompts; i++)
		if (strcmp(g->prompts[i].id, id) == 0)
			return i;
	return -1;
}

const struct golden_profile *golden_profile_find(const struct golden *g, const char *name)
{
	for (int i = 0; i < g->n_profiles; i++)
		if (strcmp(g->profiles[i].name, name) == 0)
			return &g->profiles[i];
	return NULL;
}

const struct golden_row *golden_row_find(const struct golden_profile *p, int prompt)
{
	for (int i = 0; i < p->n_rows; i++)
		if (p->rows[i].prompt == prompt)
			return &p->rows[i];
	return NULL;
}
