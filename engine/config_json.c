#include "config.h"
#include "contract/json.h"

static json_t *ints(const int *v, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_integer(v[i]));
	return list;
}

static json_t *schedule(const struct config *c)
{
	static const char *const names[N_BLOCKS] = {
		[BLOCK_MAMBA] = "mamba", [BLOCK_ATTN] = "attention", [BLOCK_MOE] = "moe", [BLOCK_MLP] = "mlp",
	};
	json_t *list = json_array();

	for (int i = 0; i < c->num_hidden_layers; i++)
		json_array_append_new(list, json_string(names[c->layers_block_type[i]]));
	return list;
}

static json_t *limit(const struct config *c)
{
	json_t *list = json_array();

	for (int i = 0; i < 2; i++)
		json_array_append_new(list, json_number(c->time_step_limit[i]));
	return list;
}

static const char *dtype_name(enum dtype d)
{
	static const char *const names[] = {
		[DTYPE_F64] = "float64", [DTYPE_F32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_F16] = "float16",
		[DTYPE_FP8] = "float8_e4m3",
	};
	return names[d];
}

static void set_int(json_t *o, const char *key, int v)
{
	json_object_set_new(o, key, json_integer(v));
}

static void set_bool(json_t *o, const char *key, bool v)
{
	json_object_set_new(o, key, json_boolean(v));
}

static void show_attention(json_t *o, const struct config *c)
{
	set_int(o, "num_attention_heads", c->num_attention_heads);
	set_int(o, "num_key_value_heads", c->num_key_value_heads);
	set_int(o, "head_dim", c->head_dim);
	set_bool(o, "attention_bias", c->attention_bias);
}

static void show_mamba(json_t *o, const struct config *c)
{
	set_int(o, "mamba_num_heads", c->mamba_num_heads);
	set_int(o, "mamba_head_dim", c->mamba_head_dim);
	set_int(o, "n_groups", c->n_groups);
	set_int(o, "ssm_state_size", c->ssm_state_size);
	set_int(o, "conv_kernel", c->conv_kernel);
	set_int(o, "chunk_size", c->chunk_size);
	set_bool(o, "use_conv_bias", c->use_conv_bias);
	set_bool(o, "use_bias", c->use_bias);
	json_object_set_new(o, "time_step_limit", limit(c));
	json_object_set_new(o, "mamba_ssm_cache_dtype", json_string(dtype_name(c->mamba_ssm_cache_dtype)));
}

static void show_moe(json_t *o, const struct config *c)
{
	set_int(o, "n_routed_experts", c->n_routed_experts);
	set_int(o, "num_experts_per_tok", c->num_experts_per_tok);
	set_int(o, "moe_intermediate_size", c->moe_intermediate_size);
	set_int(o, "shared_intermediate_size", c->shared_intermediate_size);
	json_object_set_new(o, "moe_latent_size", c->moe_latent_size ? json_integer(c->moe_latent_size) : json_null());
	set_int(o, "n_group", c->n_group);
	set_int(o, "topk_group", c->topk_group);
	set_bool(o, "norm_topk_prob", c->norm_topk_prob);
	json_object_set_new(o, "routed_scaling_factor", json_real(c->routed_scaling_factor));
}

json_t *config_to_json(const struct config *c)
{
	json_t *o = json_object();

	set_int(o, "vocab_size", c->vocab_size);
	set_int(o, "hidden_size", c->hidden_size);
	set_int(o, "num_hidden_layers", c->num_hidden_layers);
	json_object_set_new(o, "layers_block_type", schedule(c));
	set_int(o, "max_position_embeddings", c->max_position_embeddings);
	json_object_set_new(o, "layer_norm_epsilon", json_real(c->layer_norm_epsilon));
	set_bool(o, "residual_in_fp32", c->residual_in_fp32);
	set_bool(o, "tie_word_embeddings", c->tie_word_embeddings);
	set_bool(o, "mlp_bias", c->mlp_bias);
	if (c->n_blocks[BLOCK_ATTN])
		show_attention(o, c);
	if (c->n_blocks[BLOCK_MLP])
		json_object_set_new(o, "intermediate_size", ints(c->intermediate_size, c->n_blocks[BLOCK_MLP]));
	if (c->n_blocks[BLOCK_MAMBA])
		show_mamba(o, c);
	if (c->n_blocks[BLOCK_MOE])
		show_moe(o, c);
	json_object_set_new(o, "eos_token_id", ints(c->eos_token_id, c->n_eos));
	json_object_set_new(o, "bos_token_id", c->bos_token_id < 0 ? json_null() : json_integer(c->bos_token_id));
	json_object_set_new(o, "pad_token_id", c->pad_token_id < 0 ? json_null() : json_integer(c->pad_token_id));
	return o;
}
