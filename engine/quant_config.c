#include "quant_config.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "safetensors.h"

static const char *const algo_names[N_QUANT_ALGOS] = {
	[QUANT_NONE] = "none", [QUANT_FP8] = "FP8", [QUANT_NVFP4] = "NVFP4", [QUANT_W4A16_NVFP4] = "W4A16_NVFP4",
	[QUANT_MIXED_PRECISION] = "MIXED_PRECISION",
};

const char *quant_algo_name(enum quant_algo a)
{
	return algo_names[a];
}

static int read_algo(enum quant_algo *algo, const json_t *v, const char *file, const char *where, struct err *err)
{
	const char *s = json_string_value(v);

	for (int i = QUANT_NONE + 1; s && i < N_QUANT_ALGOS; i++) {
		if (!strcmp(s, algo_names[i])) {
			*algo = i;
			return 0;
		}
	}
	return err_set(err, ERR_INPUT, "%s: %s: quant_algo: expected FP8, NVFP4, W4A16_NVFP4 or MIXED_PRECISION, found %s",
		       file, where, s ? s : "no string");
}

static int read_group_size(const json_t *object, const char *file, const char *where, struct err *err)
{
	const json_t *v = json_object_get(object, "group_size");

	if (!v || json_is_null(v) || (json_is_integer(v) && json_integer_value(v) == 16))
		return 0;
	return err_set(err, ERR_INPUT, "%s: %s: group_size: expected 16, found %lld", file, where,
		       (long long)json_integer_value(v));
}

static int add_whole(struct quant_config *q, const json_t *o, const char *file, struct err *err)
{
	const json_t *v = json_object_get(o, "quant_algo");
	enum quant_algo algo = QUANT_NONE;

	if (!v || json_is_null(v))
		return 0;
	if (read_algo(&algo, v, file, "quantization", err))
		return -1;
	if ((algo == QUANT_NVFP4 || algo == QUANT_W4A16_NVFP4) && read_group_size(o, file, "quantization", err))
		return -1;
	if (q->file && q->algo != algo)
		return err_set(err, ERR_INPUT, "%s: quantization: quant_algo is %s, but %s says %s", file, algo_names[algo],
			       q->file, algo_names[q->algo]);
	q->algo = algo;
	q->file = arena_strdup(&q->arena, file);
	return 0;
}

static int add_excludes(struct quant_config *q, const json_t *o, const char *key, const char *file, struct err *err)
{
	const json_t *list = json_object_get(o, key);

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list))
		return err_set(err, ERR_INPUT, "%s: quantization: %s: expected a list of module names", file, key);
	q->exclude = xrealloc(q->exclude, q->n_exclude + json_array_size(list), sizeof *q->exclude);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (!s)
			return err_set(err, ERR_INPUT, "%s: quantization: %s[%zu]: expected a string", file, key, i);
		if (*canonical_name(s))
			q->exclude[q->n_exclude++] = arena_strdup(&q->arena, canonical_name(s));
	}
	return 0;
}

static int by_module(const void *a, const void *b)
{
	return strcmp(((const struct quantized_layer *)a)->module, ((const struct quantized_layer *)b)->module);
}

/* Sorts the map; the same module may come from both files if they agree. */
static int sort_layers(struct quant_config *q, struct err *err)
{
	int n = 0;

	qsort(q->layers, q->n_layers, sizeof *q->layers, by_module);
	for (int i = 0; i < q->n_layers; i++) {
		struct quantized_layer *a = n ? &q->layers[n - 1] : NULL, *b = &q->layers[i];

		if (!a || strcmp(a->module, b->module))
			q->layers[n++] = *b;
		else if (a->algo != b->algo)
			return err_set(err, ERR_INPUT, "%s: quantized_layers: %s is %s, but %s says %s", b->file, b->module,
				       algo_names[b->algo], a->file, algo_names[a->algo]);
	}
	q->n_layers = n;
	return 0;
}

static int add_layers(struct quant_config *q, const json_t *o, const char *file, struct err *err)
{
	json_t *map = json_object_get(o, "quantized_layers"), *v;
	const char *module;

	if (!map || json_is_null(map))
		return 0;
	if (!json_is_object(map))
		return err_set(err, ERR_INPUT, "%s: quantization: quantized_layers: expected an object", file);
	file = arena_strdup(&q->arena, file);
	q->layers = xrealloc(q->layers, q->n_layers + json_object_size(map), sizeof *q->layers);
	json_object_foreach(map, module, v) {
		struct quantized_layer *l = &q->layers[q->n_layers];

		*l = (struct quantized_layer){ .module = arena_strdup(&q->arena, canonical_name(module)), .file = file };
		if (read_algo(&l->algo, json_object_get(v, "quant_algo"), file, module, err))
			return -1;
		if (l->algo == QUANT_MIXED_PRECISION)
			return err_set(err, ERR_INPUT, "%s: %s: quant_algo: MIXED_PRECISION is not the numerics of a module", file, module);
		if (l->algo != QUANT_FP8 && read_group_size(v, file, module, err))
			return -1;
		q->n_layers++;
	}
	return sort_layers(q, err);
}

static void add_kv_cache(struct quant_config *q, const json_t *o)
{
	const char *algo = json_string_value(json_object_get(o, "kv_cache_quant_algo"));
	const json_t *scheme = json_object_get(o, "kv_cache_scheme");
	const char *type = json_string_value(json_object_get(scheme, "type"));

	if ((algo && !strcmp(algo, "FP8")) ||
	    (type && !strcmp(type, "float") && json_integer_value(json_object_get(scheme, "num_bits")) == 8))
		q->kv_fp8 = true;
}

int quant_config_add(struct quant_config *q, const json_t *quantization, const char *file, struct err *err)
{
	const json_t *inner = json_object_get(quantization, "quantization");
	const char *method = json_string_value(json_object_get(quantization, "quant_method"));

	if (!quantization || json_is_null(quantization))
		return 0;
	if (!json_is_object(quantization))
		return err_set(err, ERR_INPUT, "%s: quantization: expected an object", file);
	if (method && strncmp(method, "modelopt", 8))
		return err_set(err, ERR_INPUT, "%s: quantization: quant_method: expected \"modelopt\", found \"%s\"", file, method);
	if (inner && quant_config_add(q, inner, file, err))
		return -1;
	add_kv_cache(q, quantization);
	return add_whole(q, quantization, file, err) || add_excludes(q, quantization, "ignore", file, err) ||
	       add_excludes(q, quantization, "exclude_modules", file, err) || add_layers(q, quantization, file, err) ? -1 : 0;
}

static bool excluded(const struct quant_config *q, const char *module)
{
	for (int i = 0; i < q->n_exclude; i++)
		if (strstr(module, q->exclude[i]) ||
		    (strpbrk(q->exclude[i], "*?[") && !fnmatch(q->exclude[i], module, FNM_NOESCAPE)))
			return true;
	return false;
}

enum quant_algo quant_config_find(const struct quant_config *q, const char *module)
{
	const struct quantized_layer key = { .module = module };
	const struct quantized_layer *l = q->n_layers ?
		bsearch(&key, q->layers, q->n_layers, sizeof key, by_module) : NULL;

	if (l)
		return l->algo;
	if (q->algo == QUANT_MIXED_PRECISION || excluded(q, module))
		return QUANT_NONE;
	return q->algo;
}

void quant_config_release(struct quant_config *q)
{
	free(q->layers);
	free(q->exclude);
	arena_free(&q->arena);
	memset(q, 0, sizeof *q);
}
