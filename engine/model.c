#include "layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "contract/file.h"
#include "contract/json.h"
#include "quant.h"

struct loader {
	struct layout layout;
	struct model *m;
	const struct quant_config *quant;
	bool *used;                  /* owned [tensors] */
	struct err *err;
};

/* ---- tensors ---- */

static const struct st_tensor *find(struct loader *ld, const char *module, const char *suffix)
{
	char name[256];

	if (snprintf(name, sizeof name, "%s%s", module, suffix) >= (int)sizeof name)
		BUG("the name %s is too long", module);
	return safetensors_find(&ld->m->tensors, name);
}

static void use(struct loader *ld, const struct st_tensor *t)
{
	bool *used = &ld->used[t - ld->m->tensors.tensors];

	if (*used)
		return;
	*used = true;
	ld->m->weight_bytes += t->bytes;
	ld->m->n_tensors++;
}

static const struct st_tensor *need(struct loader *ld, const char *module, const char *suffix)
{
	const struct st_tensor *t = find(ld, module, suffix);
	const struct safetensors *s = &ld->m->tensors;

	if (!t)
		err_set(ld->err, ERR_INPUT, "%s: %s%s: the tensor is missing", s->n_shards == 1 ? s->shards[0].path : ld->m->dir,
			module, suffix);
	else
		use(ld, t);
	return t;
}

static int check_shape(struct loader *ld, const struct st_tensor *t, int rank, const int64_t *shape)
{
	char want[128], have[200];

	if (t->rank == rank && !memcmp(t->shape, shape, (size_t)rank * sizeof *shape))
		return 0;
	return err_set(ld->err, ERR_INPUT, "%s: %s: expected shape %s, found %s", t->file, t->name,
		       st_shape_text(shape, rank, want, sizeof want), st_shape_text(t->shape, t->rank, have, sizeof have));
}

static int check_dtype(struct loader *ld, const struct st_tensor *t, enum st_dtype dtype)
{
	if (t->dtype == dtype)
		return 0;
	return err_set(ld->err, ERR_INPUT, "%s: %s: expected dtype %s, found %s", t->file, t->name, st_dtype_name(dtype),
		       st_dtype_name(t->dtype));
}

static float element(const struct st_tensor *t, int64_t i)
{
	uint16_t h;
	float x;

	if (t->dtype == ST_F32) {
		memcpy(&x, (const char *)t->data + 4 * i, 4);
		return x;
	}
	memcpy(&h, (const char *)t->data + 2 * i, 2);
	return t->dtype == ST_BF16 ? bf16_to_float(h) : fp16_to_float(h);
}

/* One loop per dtype, so that each vectorises: a large model has millions of router weights. */
static void expand_elements(float *x, const struct st_tensor *t, int64_t n)
{
	if (t->dtype == ST_F32) {
		memcpy(x, t->data, (size_t)n * sizeof *x);
		return;
	}
	for (int64_t i = 0; i < n && t->dtype == ST_BF16; i++) {
		uint16_t h;
		uint32_t u;

		memcpy(&h, (const char *)t->data + 2 * i, 2);
		u = (uint32_t)h << 16;
		memcpy(&x[i], &u, 4);
	}
	for (int64_t i = 0; i < n && t->dtype == ST_F16; i++)
		x[i] = element(t, i);
}

static bool all_finite(const float *x, int64_t n)
{
	uint32_t bad = 0;

	for (int64_t i = 0; i < n; i++) {
		uint32_t u;

		memcpy(&u, &x[i], 4);
		bad |= (u & 0x7f800000) == 0x7f800000;
	}
	return !bad;
}

/* Expands a tensor of BF16, F16 or F32. */
static int expand(struct loader *ld, const float **to, const struct st_tensor *t, int rank, const int64_t *shape)
{
	int64_t n = 1;
	float *x;

	if (t->dtype != ST_BF16 && t->dtype != ST_F32 && t->dtype != ST_F16)
		return err_set(ld->err, ERR_INPUT, "%s: %s: expected dtype BF16, F16 or F32, found %s", t->file, t->name,
			       st_dtype_name(t->dtype));
	if (check_shape(ld, t, rank, shape))
		return -1;
	for (int i = 0; i < rank; i++)
		n *= shape[i];
	ld->m->parameters += n;
	if (!t->data)
		return 0;
	x = arena_alloc(&ld->m->arena, n, sizeof *x);
	expand_elements(x, t, n);
	for (int64_t i = all_finite(x, n) ? n : 0; i < n; i++)
		if (!isfinite(x[i]))
			return err_set(ld->err, ERR_INPUT, "%s: %s: element %lld is %g", t->file, t->name, (long long)i, x[i]);
	*to = x;
	return 0;
}

/* A scale: F32, one element, positive. */
static int scalar(struct loader *ld, float *to, const struct st_tensor *t)
{
	if (!t || check_dtype(ld, t, ST_F32))
		return -1;
	if (t->rank != 0 && check_shape(ld, t, 1, (int64_t[]){ 1 }))
		return -1;
	*to = t->data ? element(t, 0) : 1;
	if (!isfinite(*to) || *to <= 0)
		return err_set(ld->err, ERR_INPUT, "%s: %s: expected a positive scale, found %g", t->file, t->name, *to);
	return 0;
}

/* ---- linear modules ---- */

/* transformers 5 stacks the experts of a layer: experts.up_proj [E, out, in].  Finds module's slice. */
static int load_stacked(struct loader *ld, struct linear *l, bool *found)
{
	const char *at = strstr(l->name, ".experts.");
	const struct st_tensor *t;
	char name[256];
	char *tail;
	long expert;

	*found = false;
	if (!at)
		return 0;
	expert = strtol(at + 9, &tail, 10);
	snprintf(name, sizeof name, "%.*s.experts%s", (int)(at - l->name), l->name, tail);
	t = safetensors_find(&ld->m->tensors, name);
	if (!t)
		return 0;
	*found = true;
	if (quant_config_find(ld->quant, l->name) != QUANT_NONE)
		return err_set(ld->err, ERR_INPUT, "%s: %s: quantised stacked experts are not supported", t->file, t->name);
	if (t->dtype != ST_BF16 && t->dtype != ST_F32 && t->dtype != ST_F16)
		return err_set(ld->err, ERR_INPUT, "%s: %s: expected dtype BF16, F16 or F32, found %s", t->file, t->name,
			       st_dtype_name(t->dtype));
	if (check_shape(ld, t, 3, (int64_t[]){ ld->m->config.n_routed_experts, l->out, l->in }))
		return -1;
	use(ld, t);
	l->format = t->dtype == ST_BF16 ? WEIGHT_BF16 : t->dtype == ST_F32 ? WEIGHT_F32 : WEIGHT_F16;
	l->weight = t->data ? (const char *)t->data + (size_t)expert * l->out * l->in * st_dtype_size(t->dtype) : NULL;
	return 0;
}

/* What the metadata say and what is stored must be the same. */
static int check_declared(struct loader *ld, const struct st_tensor *t, enum quant_algo said)
{
	enum quant_algo stored = t->dtype == ST_F8_E4M3 ? QUANT_FP8 : t->dtype == ST_U8 ? QUANT_NVFP4 : QUANT_NONE;

	if (stored == (said == QUANT_W4A16_NVFP4 ? QUANT_NVFP4 : said))
		return 0;
	return err_set(ld->err, ERR_INPUT, "%s: %s: the quantization metadata say %s, the weight is %s", t->file, t->name,
		       said ? quant_algo_name(said) : "not quantised", st_dtype_name(t->dtype));
}

static int load_input_scale(struct loader *ld, struct linear *l)
{
	const struct st_tensor *t = find(ld, l->name, ".input_scale");

	if (!t)
		return 0;
	use(ld, t);
	return scalar(ld, &l->input_scale, t);
}

static int load_fp8(struct loader *ld, struct linear *l, const struct st_tensor *t)
{
	l->format = WEIGHT_FP8;
	ld->m->has_fp8 = true;
	return check_shape(ld, t, 2, (int64_t[]){ l->out, l->in }) ||
	       scalar(ld, &l->scale, need(ld, l->name, ".weight_scale")) || load_input_scale(ld, l) ? -1 : 0;
}

static int load_nvfp4(struct loader *ld, struct linear *l, const struct st_tensor *t, enum quant_algo said)
{
	const struct st_tensor *blocks;

	if (l->in % 16)
		return err_set(ld->err, ERR_INPUT, "%s: %s: NVFP4 needs a multiple of 16 inputs, found %d", t->file, t->name, l->in);
	l->format = WEIGHT_NVFP4;
	if (check_shape(ld, t, 2, (int64_t[]){ l->out, l->in / 2 }))
		return -1;
	blocks = need(ld, l->name, ".weight_scale");
	if (!blocks || check_dtype(ld, blocks, ST_F8_E4M3) ||
	    check_shape(ld, blocks, 2, (int64_t[]){ l->out, l->in / 16 }) ||
	    scalar(ld, &l->scale, need(ld, l->name, ".weight_scale_2")) || load_input_scale(ld, l))
		return -1;
	l->block_scale = blocks->data;
	l->w4a4 = said == QUANT_NVFP4 && l->input_scale != 0;
	ld->m->has_nvfp4 = true;
	ld->m->has_w4a4 |= l->w4a4;
	return 0;
}

static int load_plain(struct loader *ld, struct linear *l, const struct st_tensor *t)
{
	const struct st_tensor *scale = find(ld, l->name, ".weight_scale");

	if (scale)
		return err_set(ld->err, ERR_INPUT, "%s: %s: a scale beside a weight that is not quantised", scale->file, scale->name);
	switch (t->dtype) {
	case ST_BF16: l->format = WEIGHT_BF16; break;
	case ST_F16:  l->format = WEIGHT_F16; break;
	case ST_F32:  l->format = WEIGHT_F32; break;
	default:
		return err_set(ld->err, ERR_INPUT, "%s: %s: expected dtype BF16, F16, F32, F8_E4M3 or U8, found %s", t->file,
			       t->name, st_dtype_name(t->dtype));
	}
	return check_shape(ld, t, 2, (int64_t[]){ l->out, l->in });
}

static int load_bias(struct loader *ld, struct linear *l, int flags)
{
	const struct st_tensor *t;

	if (!(flags & (LAYOUT_BIAS | LAYOUT_BIAS_IF_THERE)))
		return 0;
	if ((flags & LAYOUT_BIAS_IF_THERE) && !find(ld, l->name, ".bias"))
		return 0;
	t = need(ld, l->name, ".bias");
	return t ? expand(ld, &l->bias, t, 1, (int64_t[]){ l->out }) : -1;
}

static int load_linear(struct layout *v, struct linear *l, const char *module, int out, int in, int flags)
{
	struct loader *ld = (struct loader *)v;
	const struct st_tensor *t = find(ld, module, ".weight");
	enum quant_algo said = flags & LAYOUT_PLAIN ? QUANT_NONE : quant_config_find(ld->quant, module);
	bool stacked = false;
	int rc;

	*l = (struct linear){ .name = arena_strdup(&ld->m->arena, module), .out = out, .in = in, .scale = 1 };
	ld->m->parameters += (int64_t)out * in;
	if (!t && (load_stacked(ld, l, &stacked) || stacked))
		return stacked && !ld->err->kind ? 0 : -1;
	t = need(ld, module, ".weight");
	if (!t || check_declared(ld, t, said))
		return -1;
	l->weight = t->data;
	rc = said == QUANT_NONE ? load_plain(ld, l, t) : said == QUANT_FP8 ? load_fp8(ld, l, t) : load_nvfp4(ld, l, t, said);
	return rc || load_bias(ld, l, flags) ? -1 : 0;
}

static int load_vector(struct layout *v, const float **to, const char *name, int rank, const int64_t *shape)
{
	struct loader *ld = (struct loader *)v;
	const struct st_tensor *t = need(ld, name, "");

	return t ? expand(ld, to, t, rank, shape) : -1;
}

static int load_kv_scale(struct layout *v, float *to, const char *name)
{
	struct loader *ld = (struct loader *)v;
	const struct st_tensor *t = find(ld, name, "");

	if (!t)
		return 0;
	use(ld, t);
	return scalar(ld, to, t);
}

/* ---- whole ---- */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

/* Tensors that a text model may leave alone.  Anything else that no module took means that the config was
 * misread: a bias whose flag is off, a layer too many, an unknown kind of scale. */
static bool may_ignore(const struct model *m, const char *name)
{
	if (!strncmp(name, "mtp.", 4) || ends_with(name, "rotary_emb.inv_freq"))
		return true;
	if (m->config.tie_word_embeddings && !strcmp(name, "lm_head.weight"))
		return true;
	return m->wrapper && strncmp(name, "layers.", 7) && strncmp(name, "lm_head.", 8) &&
	       strncmp(name, "embeddings.", 11) && strncmp(name, "norm_f.", 7);
}

static int check_leftovers(struct loader *ld)
{
	const struct safetensors *s = &ld->m->tensors;

	for (int i = 0; i < s->n_tensors; i++)
		if (!ld->used[i] && !may_ignore(ld->m, s->tensors[i].name))
			return err_set(ld->err, ERR_INPUT, "%s: %s: no module of this config takes the tensor", s->tensors[i].file,
				       s->tensors[i].name);
	return 0;
}

int model_build(struct model *m, const struct quant_config *q, struct err *err)
{
	struct loader ld = { { load_linear, load_vector, load_kv_scale }, m, q, xcalloc(m->tensors.n_tensors, 1), err };
	int heads = m->config.mamba_num_heads, rc;

	m->kv_fp8_declared = q->kv_fp8;
	rc = layout_visit(&ld.layout, m) || check_leftovers(&ld) ? -1 : 0;
	free(ld.used);
	if (rc)
		return -1;
	if (m->config.tie_word_embeddings) {
		m->lm_head = m->embed;
		m->lm_head.name = "lm_head";
	}
	for (int i = 0; i < m->config.num_hidden_layers; i++) {
		struct mamba *w = &m->layers[i].mamba;
		double *A;

		if (m->layers[i].block != BLOCK_MAMBA || !w->A_log)
			continue;
		w->A = A = arena_alloc(&m->arena, heads, sizeof *A);
		for (int h = 0; h < heads; h++)
			A[h] = -exp((double)w->A_log[h]);
	}
	return 0;
}

static void add_file(struct model *m, const char *name)
{
	m->files = xrealloc(m->files, m->n_files + 1, sizeof *m->files);
	m->files[m->n_files++] = (struct model_file){ .name = xstrdup(name) };
}

static int by_file_name(const void *a, const void *b)
{
	return strcmp(((const struct model_file *)a)->name, ((const struct model_file *)b)->name);
}

/* *json stays NULL if the file is not there. */
static int read_optional(json_t **json, const char *path, struct err *err)
{
	*json = file_exists(path) ? json_read_file(path, true, err) : NULL;
	return !*json && err->kind ? -1 : 0;
}

static int read_config(struct model *m, struct quant_config *q, const char *path, struct err *err)
{
	json_t *json = json_read_file(path, true, err);
	const json_t *text = config_text(json);
	int rc;

	m->wrapper = text != json;
	rc = !json || config_parse(&m->config, json, path, err) ||
	     quant_config_add(q, json_object_get(text, "quantization_config"), path, err) ||
	     (m->wrapper && quant_config_add(q, json_object_get(json, "quantization_config"), path, err)) ? -1 : 0;
	json_decref(json);
	return rc;
}

char *model_beside_config(const char *config_path, const char *name)
{
	size_t n = strlen(config_path), k = strlen("config.json");

	if (n < k || strcmp(config_path + n - k, "config.json"))
		return xasprintf("%s.%s", config_path, name);
	return xasprintf("%.*s%s", (int)(n - k), config_path, name);
}

int model_read_configs(struct model *m, struct quant_config *q, const char *config_path, struct err *err)
{
	char *hf = model_beside_config(config_path, "hf_quant_config.json"), *generation = model_beside_config(config_path, "generation_config.json");
	json_t *hf_json = NULL, *generation_json = NULL;
	int rc;

	rc = read_config(m, q, config_path, err) || read_optional(&hf_json, hf, err) ||
	     quant_config_add(q, json_object_get(hf_json, "quantization"), hf, err) ||
	     read_optional(&generation_json, generation, err) ||
	     config_add_eos(&m->config, json_object_get(generation_json, "eos_token_id"), generation, err) ? -1 : 0;
	json_decref(hf_json);
	json_decref(generation_json);
	free(hf);
	free(generation);
	return rc;
}

/* The files of a checkpoint, whether they were read here or not, and its shards. */
static void list_files(struct model *m)
{
	static const char *const names[] = { "config.json", "generation_config.json", "hf_quant_config.json", "tokenizer.json" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char *path = path_join(m->dir, names[i]);

		if (file_exists(path))
			add_file(m, names[i]);
		free(path);
	}
	if (m->tensors.indexed)
		add_file(m, "model.safetensors.index.json");
	for (int i = 0; i < m->tensors.n_shards; i++)
		add_file(m, m->tensors.shards[i].name);
	qsort(m->files, m->n_files, sizeof *m->files, by_file_name);
}

int model_open(struct model *m, const char *dir, struct err *err)
{
	struct quant_config q = {0};
	size_t n = strlen(dir);
	char *config;
	int rc;

	memset(m, 0, sizeof *m);
	while (n > 1 && dir[n - 1] == '/')
		n--;
	m->dir = xasprintf("%.*s", (int)n, dir);
	m->name = xstrdup(path_base(m->dir));
	config = path_join(m->dir, "config.json");
	rc = model_read_configs(m, &q, config, err) || safetensors_open(&m->tensors, m->dir, err) || model_build(m, &q, err) ? -1 : 0;
	if (!rc)
		list_files(m);
	quant_config_release(&q);
	free(config);
	if (rc)
		model_release(m);
	return rc;
}

void model_release(struct model *m)
{
	layout_release(m);
	for (int i = 0; i < m->n_files; i++)
		free(m->files[i].name);
	free(m->files);
	free(m->dir);
	free(m->name);
	arena_free(&m->arena);
	safetensors_release(&m->tensors);
	config_release(&m->config);
	memset(m, 0, sizeof *m);
}
