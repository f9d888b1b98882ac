#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any model has; keeps a damaged file from asking for gigabytes of bookkeeping. */
enum { LAYERS_MAX = 10000, EXPERTS_MAX = 65536 };

/* Where a value is looked for: the spellings of one field, the winning one first. */
#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

struct reader {
	const json_t *config;
	const char *file;
	struct err *err;
};

static const char *describe(const json_t *v, char buf[64])
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:  return "an object";
	case JSON_ARRAY:   return "a list";
	case JSON_TRUE:    return "true";
	case JSON_FALSE:   return "false";
	case JSON_NULL:    return "null";
	case JSON_STRING:  snprintf(buf, 64, "\"%.50s\"", json_string_value(v)); return buf;
	case JSON_INTEGER: snprintf(buf, 64, "%lld", (long long)json_integer_value(v)); return buf;
	case JSON_REAL:    snprintf(buf, 64, "%.17g", json_real_value(v)); return buf;
	}
	return "?";
}

static int refuse(const struct reader *r, const char *key, const char *expected, const json_t *found)
{
	char buf[64];
	return err_set(r->err, ERR_INPUT, "%s: %s: expected %s, found %s", r->file, key, expected,
		       found ? describe(found, buf) : "nothing");
}

/* The first spelling that is there and not null; *key is the one that was taken. */
static const json_t *field(const struct reader *r, const char *const *keys, const char **key)
{
	for (int i = 0; keys[i]; i++) {
		const json_t *v = json_object_get(r->config, keys[i]);
		*key = keys[i];
		if (v && !json_is_null(v))
			return v;
	}
	*key = keys[0];
	return NULL;
}

static int as_size(const struct reader *r, const char *key, const json_t *v, int *out)
{
	if (!json_is_integer(v) || json_integer_value(v) <= 0 || json_integer_value(v) > INT32_MAX)
		return refuse(r, key, "an integer from 1 to 2147483647", v);
	*out = (int)json_integer_value(v);
	return 0;
}

static int get_size(const struct reader *r, int *out, int def, const char *const *keys)
{
	const char *key;
	const json_t *v = field(r, keys, &key);

	*out = def;
	return v ? as_size(r, key, v, out) : 0;
}

/* Absent, null or 0 mean that the model has no such part. */
static int get_optional_size(const struct reader *r, int *out, const char *const *keys)
{
	const char *key;
	const json_t *v = field(r, keys, &key);

	*out = 0;
	if (!v || (json_is_integer(v) && !json_integer_value(v)))
		return 0;
	return as_size(r, key, v, out);
}

static int get_bool(const struct reader *r, bool *out, bool def, const char *const *keys)
{
	const char *key;
	const json_t *v = field(r, keys, &key);

	if (v && !json_is_boolean(v))
		return refuse(r, key, "true or false", v);
	*out = v ? json_is_true(v) : def;
	return 0;
}

/* A number; the literal Infinity of config.json arrives as the string "inf", and newer transformers
 * write {"__float__": "Infinity"}. */
static bool as_number(const json_t *v, double *out)
{
	const char *s;

	if (json_is_number(v)) {
		*out = json_number_value(v);
		return true;
	}
	if (json_is_object(v))
		v = json_object_get(v, "__float__");
	s = json_string_value(v);
	if (!s)
		return false;
	if (!strcmp(s, "inf") || !strcmp(s, "Infinity"))
		*out = INFINITY;
	else if (!strcmp(s, "-inf") || !strcmp(s, "-Infinity"))
		*out = -INFINITY;
	else
		return false;
	return true;
}

static int get_number(const struct reader *r, double *out, double def, const char *const *keys)
{
	const char *key;
	const json_t *v = field(r, keys, &key);

	*out = def;
	if (v && (!as_number(v, out) || !isfinite(*out) || *out < 0))
		return refuse(r, key, "a finite number of at least 0", v);
	return 0;
}

/* A field of which only one value is implemented; absent means that value. */
static int get_only(const struct reader *r, const char *key, const char *only)
{
	const json_t *v = json_object_get(r->config, key);
	char expected[64];

	if (!v || json_is_null(v) || (json_is_string(v) && only && !strcmp(json_string_value(v), only)))
		return 0;
	snprintf(expected, sizeof expected, only ? "\"%s\" (nothing else is supported)" : "null (it is not supported)", only);
	return refuse(r, key, expected, v);
}

/* ---- schedule ---- */

static const struct { const char *name; char letter; enum block block; } block_names[] = {
	{ "mamba", 'M', BLOCK_MAMBA }, { "linear_attention", 0, BLOCK_MAMBA },
	{ "attention", '*', BLOCK_ATTN }, { "full_attention", 0, BLOCK_ATTN },
	{ "moe", 'E', BLOCK_MOE }, { "mlp", '-', BLOCK_MLP },
};

static int block_of_name(const char *name)
{
	for (size_t i = 0; name && i < sizeof block_names / sizeof *block_names; i++)
		if (!strcmp(block_names[i].name, name))
			return block_names[i].block;
	return -1;
}

static int block_of_letter(char letter)
{
	for (size_t i = 0; i < sizeof block_names / sizeof *block_names; i++)
		if (letter && block_names[i].letter == letter)
			return block_names[i].block;
	return -1;
}

static int schedule_from_list(struct config *c, const struct reader *r, const char *key, const json_t *list)
{
	if (!json_is_array(list) || json_array_size(list) > LAYERS_MAX)
		return refuse(r, key, "a list of at most 10000 block names", list);
	c->num_hidden_layers = (int)json_array_size(list);
	c->layers_block_type = xcalloc(json_array_size(list), sizeof *c->layers_block_type);
	for (int i = 0; i < c->num_hidden_layers; i++) {
		const json_t *v = json_array_get(list, i);
		int block = block_of_name(json_string_value(v));
		char item[80];

		snprintf(item, sizeof item, "%s[%d]", key, i);
		if (block < 0)
			return refuse(r, item, "mamba, attention, moe, mlp, linear_attention or full_attention", v);
		c->layers_block_type[i] = block;
	}
	return 0;
}

static int schedule_from_pattern(struct config *c, const struct reader *r, const json_t *v)
{
	const char *pattern = json_string_value(v);

	if (!pattern || !*pattern || strlen(pattern) > LAYERS_MAX)
		return refuse(r, "hybrid_override_pattern", "at most 10000 letters of M * - E, one per layer", v);
	c->num_hidden_layers = (int)strlen(pattern);
	c->layers_block_type = xcalloc(strlen(pattern), sizeof *c->layers_block_type);
	for (int i = 0; i < c->num_hidden_layers; i++) {
		int block = block_of_letter(pattern[i]);

		if (block < 0)
			return err_set(r->err, ERR_INPUT, "%s: hybrid_override_pattern: expected letters of M * - E, "
				       "found '%c' at layer %d", r->file, pattern[i], i);
		c->layers_block_type[i] = block;
	}
	return 0;
}

/* The list wins over the pattern; num_hidden_layers must agree where it is given. */
static int read_schedule(struct config *c, const struct reader *r)
{
	const char *key;
	const json_t *list = field(r, KEYS("layers_block_type", "layer_types"), &key);
	const json_t *pattern = json_object_get(r->config, "hybrid_override_pattern");
	const json_t *n = json_object_get(r->config, "num_hidden_layers");

	if (list && !(json_is_array(list) && !json_array_size(list))) {
		if (schedule_from_list(c, r, key, list))
			return -1;
	} else if (pattern && !json_is_null(pattern)) {
		key = "hybrid_override_pattern";
		if (schedule_from_pattern(c, r, pattern))
			return -1;
	} else {
		return err_set(r->err, ERR_INPUT, "%s: hybrid_override_pattern: expected it or layers_block_type, "
			       "found neither", r->file);
	}
	for (int i = 0; i < c->num_hidden_layers; i++)
		c->n_blocks[c->layers_block_type[i]]++;
	if (n && !json_is_null(n) && (!json_is_integer(n) || json_integer_value(n) != c->num_hidden_layers)) {
		char buf[64];
		return err_set(r->err, ERR_INPUT, "%s: num_hidden_layers: expected %d, the length of %s, found %s",
			       r->file, c->num_hidden_layers, key, describe(n, buf));
	}
	return 0;
}

/* ---- blocks ---- */

static int divides(const struct reader *r, int divisor, const char *divisor_name, int n, const char *name)
{
	if (n % divisor == 0)
		return 0;
	return err_set(r->err, ERR_INPUT, "%s: %s: expected a divisor of %s %d, found %d", r->file, divisor_name,
		       name, n, divisor);
}

static int read_attention(struct config *c, const struct reader *r)
{
	if (!c->n_blocks[BLOCK_ATTN])
		return 0;
	if (get_size(r, &c->num_attention_heads, 32, KEYS("num_attention_heads")) ||
	    get_size(r, &c->num_key_value_heads, 8, KEYS("num_key_value_heads")) ||
	    get_size(r, &c->head_dim, 128, KEYS("head_dim", "attention_head_dim")) ||
	    get_bool(r, &c->attention_bias, false, KEYS("attention_bias")))
		return -1;
	return divides(r, c->num_key_value_heads, "num_key_value_heads", c->num_attention_heads, "num_attention_heads");
}

/* One width for all dense MLPs, or a list with one per MLP of the schedule. */
static int read_mlp(struct config *c, const struct reader *r)
{
	const json_t *v = json_object_get(r->config, "intermediate_size");
	int n = c->n_blocks[BLOCK_MLP], width = 21504;

	if (!n)
		return 0;
	c->intermediate_size = xcalloc(n, sizeof *c->intermediate_size);
	if (json_is_array(v) && json_array_size(v) != 1) {
		if (json_array_size(v) != (size_t)n)
			return err_set(r->err, ERR_INPUT, "%s: intermediate_size: expected %d widths, one per mlp layer, "
				       "found %zu", r->file, n, json_array_size(v));
		for (int i = 0; i < n; i++) {
			char item[40];

			snprintf(item, sizeof item, "intermediate_size[%d]", i);
			if (as_size(r, item, json_array_get(v, i), &c->intermediate_size[i]))
				return -1;
		}
		return 0;
	}
	if (json_is_array(v))
		v = json_array_get(v, 0);
	if (v && !json_is_null(v) && as_size(r, "intermediate_size", v, &width))
		return -1;
	for (int i = 0; i < n; i++)
		c->intermediate_size[i] = width;
	return 0;
}

static int read_time_step_limit(struct config *c, const struct reader *r)
{
	const char *key;
	const json_t *v = field(r, KEYS("mamba_dt_limit", "time_step_limit"), &key);

	c->time_step_limit[0] = 0;
	c->time_step_limit[1] = INFINITY;
	if (!v)
		return 0;
	if (!json_is_array(v) || json_array_size(v) != 2 || !as_number(json_array_get(v, 0), &c->time_step_limit[0]) ||
	    !as_number(json_array_get(v, 1), &c->time_step_limit[1]) || !isfinite(c->time_step_limit[0]) ||
	    !(c->time_step_limit[0] <= c->time_step_limit[1]))
		return refuse(r, key, "two numbers, the smaller first", v);
	return 0;
}

static int read_cache_dtype(struct config *c, const struct reader *r)
{
	const json_t *v = json_object_get(r->config, "mamba_ssm_cache_dtype");
	const char *s = json_string_value(v);

	c->mamba_ssm_cache_dtype = DTYPE_F32;
	if (!v || json_is_null(v) || (s && !strcmp(s, "float32")))
		return 0;
	if (s && !strcmp(s, "bfloat16"))
		c->mamba_ssm_cache_dtype = DTYPE_BF16;
	else if (s && !strcmp(s, "float16"))
		c->mamba_ssm_cache_dtype = DTYPE_F16;
	else
		return refuse(r, "mamba_ssm_cache_dtype", "float32, bfloat16 or float16", v);
	return 0;
}

/* expand and time_step_min, _max, _floor are inert: docs/model.md, section 1.1. */
static int read_mamba(struct config *c, const struct reader *r)
{
	if (read_cache_dtype(c, r))
		return -1;
	if (!c->n_blocks[BLOCK_MAMBA])
		return 0;
	if (get_size(r, &c->mamba_num_heads, 128, KEYS("mamba_num_heads")) ||
	    get_size(r, &c->mamba_head_dim, 64, KEYS("mamba_head_dim")) ||
	    get_size(r, &c->n_groups, 8, KEYS("mamba_n_groups", "mamba_num_groups", "n_groups")) ||
	    get_size(r, &c->ssm_state_size, 128, KEYS("ssm_state_size", "mamba_state_dim")) ||
	    get_size(r, &c->conv_kernel, 4, KEYS("mamba_d_conv", "conv_kernel")) ||
	    get_size(r, &c->chunk_size, 128, KEYS("mamba_chunk_size", "chunk_size")) ||
	    get_bool(r, &c->use_conv_bias, true, KEYS("mamba_conv_bias", "use_conv_bias")) ||
	    get_bool(r, &c->use_bias, false, KEYS("use_bias")) ||
	    read_time_step_limit(c, r))
		return -1;
	return divides(r, c->n_groups, "n_groups", c->mamba_num_heads, "mamba_num_heads");
}

/* shared width = moe_shared_expert_intermediate_size * n_shared_experts; a count of 0 or null: none. */
static int read_shared_expert(struct config *c, const struct reader *r)
{
	const json_t *v = json_object_get(r->config, "n_shared_experts");
	int count = 1, width;

	if (v && get_optional_size(r, &count, KEYS("n_shared_experts")))
		return -1;
	if (get_size(r, &width, 7688, KEYS("moe_shared_expert_intermediate_size")))
		return -1;
	if (__builtin_mul_overflow(width, count, &c->shared_intermediate_size))
		return err_set(r->err, ERR_INPUT, "%s: n_shared_experts: expected a shared width below 2^31, found %d * %d",
			       r->file, count, width);
	return 0;
}

static int read_moe(struct config *c, const struct reader *r)
{
	int64_t open;

	if (!c->n_blocks[BLOCK_MOE])
		return 0;
	if (get_size(r, &c->n_routed_experts, 8, KEYS("n_routed_experts")) ||
	    get_size(r, &c->num_experts_per_tok, 2, KEYS("num_experts_per_tok")) ||
	    get_size(r, &c->moe_intermediate_size, 7688, KEYS("moe_intermediate_size")) ||
	    read_shared_expert(c, r) ||
	    get_optional_size(r, &c->moe_latent_size, KEYS("moe_latent_size")) ||
	    get_size(r, &c->n_group, 1, KEYS("n_group")) ||
	    get_size(r, &c->topk_group, 1, KEYS("topk_group")) ||
	    get_bool(r, &c->norm_topk_prob, true, KEYS("norm_topk_prob")) ||
	    get_number(r, &c->routed_scaling_factor, 1.0, KEYS("routed_scaling_factor")) ||
	    divides(r, c->n_group, "n_group", c->n_routed_experts, "n_routed_experts"))
		return -1;
	if (c->n_routed_experts > EXPERTS_MAX)
		return err_set(r->err, ERR_INPUT, "%s: n_routed_experts: expected at most %d, found %d", r->file, EXPERTS_MAX,
			       c->n_routed_experts);
	if (c->topk_group > c->n_group)
		return err_set(r->err, ERR_INPUT, "%s: topk_group: expected at most n_group %d, found %d", r->file,
			       c->n_group, c->topk_group);
	open = (int64_t)c->n_routed_experts / c->n_group * c->topk_group;
	if (c->num_experts_per_tok > open)
		return err_set(r->err, ERR_INPUT, "%s: num_experts_per_tok: expected at most %lld, the experts that can be "
			       "chosen from, found %d", r->file, (long long)open, c->num_experts_per_tok);
	return 0;
}

/* ---- token ids ---- */

static int as_id(const struct reader *r, const char *key, const json_t *v, int *out)
{
	if (!json_is_integer(v) || json_integer_value(v) < -1 || json_integer_value(v) > INT32_MAX)
		return refuse(r, key, "a token id", v);
	*out = (int)json_integer_value(v);
	return 0;
}

static int get_id(const struct reader *r, int *out, int def, const char *key)
{
	const json_t *v = json_object_get(r->config, key);

	*out = v ? -1 : def;
	return v && !json_is_null(v) ? as_id(r, key, v, out) : 0;
}

int config_add_eos(struct config *c, const json_t *v, const char *file, struct err *err)
{
	const struct reader r = { NULL, file, err };
	size_t n = json_is_array(v) ? json_array_size(v) : 1;

	if (!v || json_is_null(v))
		return 0;
	for (size_t i = 0; i < n; i++) {
		int id = -1, j = 0;

		if (as_id(&r, "eos_token_id", json_is_array(v) ? json_array_get(v, i) : v, &id))
			return -1;
		while (j < c->n_eos && c->eos_token_id[j] != id)
			j++;
		if (id < 0 || j < c->n_eos)
			continue;
		if (c->n_eos == (int)(sizeof c->eos_token_id / sizeof *c->eos_token_id))
			return err_set(err, ERR_INPUT, "%s: eos_token_id: expected at most %d ids, found more", file, c->n_eos);
		c->eos_token_id[c->n_eos++] = id;
	}
	return 0;
}

static int read_ids(struct config *c, const struct reader *r)
{
	const json_t *eos = json_object_get(r->config, "eos_token_id");

	if (!eos) {
		c->eos_token_id[c->n_eos++] = 2;
	} else if (config_add_eos(c, eos, r->file, r->err)) {
		return -1;
	}
	return get_id(r, &c->bos_token_id, 1, "bos_token_id") || get_id(r, &c->pad_token_id, 0, "pad_token_id") ? -1 : 0;
}

/* ---- products ---- */

/* 8 * a * b * c must fit 63 bits: the largest element is a double. */
static int fits(const struct reader *r, const char *what, int64_t a, int64_t b, int64_t c)
{
	int64_t n;

	if (!__builtin_mul_overflow(a, b, &n) && !__builtin_mul_overflow(n, c, &n) && !__builtin_mul_overflow(n, 8, &n))
		return 0;
	return err_set(r->err, ERR_INPUT, "%s: %s: the size %lld x %lld x %lld is beyond 64-bit arithmetic", r->file,
		       what, (long long)a, (long long)b, (long long)c);
}

static int narrow(const struct reader *r, const char *what, int64_t n, int *out)
{
	if (n > INT32_MAX)
		return err_set(r->err, ERR_INPUT, "%s: %s: expected a width below 2^31, found %lld", r->file, what,
			       (long long)n);
	if (out)
		*out = (int)n;
	return 0;
}

static int check_mamba_products(struct config *c, const struct reader *r)
{
	int64_t inner = (int64_t)c->mamba_num_heads * c->mamba_head_dim;
	int64_t bc = (int64_t)c->n_groups * c->ssm_state_size;

	if (!c->n_blocks[BLOCK_MAMBA])
		return 0;
	return narrow(r, "mamba_num_heads * mamba_head_dim", inner, &c->d_inner) ||
	       narrow(r, "n_groups * ssm_state_size", bc, NULL) ||
	       narrow(r, "conv channels", inner + 2 * bc, &c->conv_dim) ||
	       narrow(r, "in_proj rows", 2 * inner + 2 * bc + c->mamba_num_heads, NULL) ||
	       fits(r, "in_proj", 2 * inner + 2 * bc + c->mamba_num_heads, c->hidden_size, 1) ||
	       fits(r, "conv1d", inner + 2 * bc, c->conv_kernel, 1) ||
	       fits(r, "n_groups * chunk_size * chunk_size", c->n_groups, c->chunk_size, c->chunk_size) ||
	       fits(r, "SSM state", inner, c->ssm_state_size, 1) ? -1 : 0;
}

static int check_products(struct config *c, const struct reader *r)
{
	int64_t q = (int64_t)c->num_attention_heads * c->head_dim;
	int64_t X = c->moe_latent_size ? c->moe_latent_size : c->hidden_size;

	return fits(r, "vocab_size * hidden_size", c->vocab_size, c->hidden_size, 1) ||
	       narrow(r, "num_attention_heads * head_dim", q, NULL) ||
	       fits(r, "q_proj", q, c->hidden_size, 1) ||
	       fits(r, "experts", c->n_routed_experts, c->moe_intermediate_size, X) ||
	       check_mamba_products(c, r) ? -1 : 0;
}

/* ---- whole ---- */

const json_t *config_text(const json_t *json)
{
	static const char *const keys[] = { "text_config", "llm_config" };

	for (int i = 0; i < 2; i++) {
		const json_t *inner = json_object_get(json, keys[i]);
		if (json_is_object(inner) && json_object_size(inner))
			return inner;
	}
	return json;
}

static int read_model_type(const struct reader *r)
{
	const json_t *v = json_object_get(r->config, "model_type");

	if (!v || json_is_null(v) || (json_is_string(v) && !strncmp(json_string_value(v), "nemotron_h", 10)))
		return 0;
	return refuse(r, "model_type", "\"nemotron_h\"", v);
}

int config_parse(struct config *c, const json_t *json, const char *file, struct err *err)
{
	struct reader r = { config_text(json), file, err };

	memset(c, 0, sizeof *c);
	if (!json_is_object(r.config))
		return err_set(err, ERR_INPUT, "%s: expected a JSON object", file);
	if (read_model_type(&r) || read_schedule(c, &r) ||
	    get_size(&r, &c->vocab_size, 131072, KEYS("vocab_size")) ||
	    get_size(&r, &c->hidden_size, 4096, KEYS("hidden_size")) ||
	    get_size(&r, &c->max_position_embeddings, 4096, KEYS("max_position_embeddings")) ||
	    get_number(&r, &c->layer_norm_epsilon, 1e-5, KEYS("layer_norm_epsilon", "rms_norm_eps", "norm_eps")) ||
	    get_bool(&r, &c->residual_in_fp32, false, KEYS("residual_in_fp32")) ||
	    get_bool(&r, &c->tie_word_embeddings, false, KEYS("tie_word_embeddings")) ||
	    get_bool(&r, &c->mlp_bias, false, KEYS("mlp_bias")) ||
	    get_only(&r, "sliding_window", NULL) ||
	    get_only(&r, "mlp_hidden_act", "relu2") ||
	    get_only(&r, "mamba_hidden_act", "silu") ||
	    read_attention(c, &r) || read_mlp(c, &r) || read_mamba(c, &r) || read_moe(c, &r) || read_ids(c, &r) ||
	    check_products(c, &r)) {
		config_release(c);
		return -1;
	}
	return 0;
}

void config_release(struct config *c)
{
	free(c->layers_block_type);
	free(c->intermediate_size);
	memset(c, 0, sizeof *c);
}

const char *block_name(enum block b)
{
	static const char *const names[N_BLOCKS] = {
		[BLOCK_MAMBA] = "mamba", [BLOCK_ATTN] = "attn", [BLOCK_MOE] = "moe", [BLOCK_MLP] = "mlp",
	};
	return names[b];
}
