/* config.json of a NemotronH checkpoint with every alias.  docs/model.md, section 1.
 *
 * Members have the names of transformers' NemotronHConfig; where a file uses another spelling, the
 * precedence of section 1.1 applies (legacy alias before the modern name, list before pattern string).
 */
#ifndef ASSAY_ENGINE_CONFIG_H
#define ASSAY_ENGINE_CONFIG_H

#include <jansson.h>
#include "contract/err.h"

enum block { BLOCK_MAMBA, BLOCK_ATTN, BLOCK_MOE, BLOCK_MLP, N_BLOCKS };

enum dtype { DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_FP8 /* e4m3 */ };

struct config {
	int vocab_size, hidden_size, num_hidden_layers;
	enum block *layers_block_type;       /* owned [num_hidden_layers] */
	int n_blocks[N_BLOCKS];
	int max_position_embeddings;
	double layer_norm_epsilon;
	bool residual_in_fp32, tie_word_embeddings;

	int num_attention_heads, num_key_value_heads, head_dim;   /* 0 without attention layers */
	bool attention_bias;

	int *intermediate_size;              /* owned [n_blocks[BLOCK_MLP]]: width of the j-th dense MLP */
	bool mlp_bias;

	int mamba_num_heads, mamba_head_dim, n_groups, ssm_state_size, conv_kernel, chunk_size;
	bool use_conv_bias, use_bias;
	double time_step_limit[2];
	enum dtype mamba_ssm_cache_dtype;
	int d_inner;                         /* mamba_num_heads * mamba_head_dim */
	int conv_dim;                        /* d_inner + 2 * n_groups * ssm_state_size */

	int n_routed_experts, num_experts_per_tok, moe_intermediate_size;
	int shared_intermediate_size;        /* moe_shared_expert_intermediate_size * n_shared_experts; 0: none */
	int moe_latent_size;                 /* 0: routed experts work at hidden_size */
	int n_group, topk_group;
	bool norm_topk_prob;
	double routed_scaling_factor;

	int eos_token_id[8]; int n_eos;      /* config.json; model_open adds those of generation_config.json */
	int bos_token_id, pad_token_id;      /* -1: none */
};

/* Reads the parsed config.json (a text_config or llm_config inside is followed).  A field that is absent or
 * null has the default of section 1.1; the schedule has none.  Every size is checked against overflow in the
 * products that allocations use.  Refused: an unknown block or activation, sliding_window, sizes that do not
 * divide, num_hidden_layers that is not the schedule's length. */
int config_parse(struct config *c, const json_t *json, const char *file, struct err *err);
/* The object that describes the language model: text_config or llm_config where there is one, else `json`. */
const json_t *config_text(const json_t *json);
/* Adds an eos_token_id (an id or a list of ids; NULL and null add nothing) to those that are there. */
int config_add_eos(struct config *c, const json_t *eos, const char *file, struct err *err);
void config_release(struct config *c);
/* The values taken, for report.model.config and `assay-engine info`.  New reference. */
json_t *config_to_json(const struct config *c);
const char *block_name(enum block b);  /* "mamba" "attn" "moe" "mlp" */

#endif
