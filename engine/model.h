/* A checkpoint as the forward pass wants it: every tensor found, its shape and numerics checked.
 * docs/model.md, section 2.  Matrices stay in the mapping in their stored format; vectors (norms, conv
 * weights, biases, router) are expanded into an arena. */
#ifndef ASSAY_ENGINE_MODEL_H
#define ASSAY_ENGINE_MODEL_H

#include "config.h"
#include "safetensors.h"

enum weight_format { WEIGHT_BF16, WEIGHT_F16, WEIGHT_F32, WEIGHT_FP8, WEIGHT_NVFP4, N_WEIGHT_FORMATS };

/* The numerics a linear module is executed with; each has its counter. */
enum numerics { NUMERICS_BF16, NUMERICS_W8A8, NUMERICS_W8A8_LT /* by cuBLASLt */, NUMERICS_W8A16, NUMERICS_W4A16, NUMERICS_W4A4 };

/* y[out] = W[out, in] x[in] + bias.  Scales multiply the accumulator (4.2 to 4.5). */
struct linear {
	const char *name;            /* canonical module name: "layers.0.mixer.in_proj"; owned by the model */
	int out, in;                 /* 0, 0: this layer has no such module */
	enum weight_format format;
	const void *weight;          /* borrowed, row-major [out, in]; FP8: e4m3 codes; NVFP4: [out, in / 2] bytes,
	                              * column 2i in the low nibble of byte i.  No alignment beyond 1 is promised */
	const uint8_t *block_scale;  /* NVFP4: e4m3 [out, in / 16]; borrowed */
	float scale;                 /* FP8 weight_scale, NVFP4 weight_scale_2; else 1 */
	float input_scale;           /* 0: the checkpoint has none (weight-only) */
	bool w4a4;                   /* NVFP4 declared with quantised activations */
	const float *bias;           /* [out] or NULL; owned by the model */
	void *prepared;              /* the backend's own form of it (device pointers, repacked); owned by the backend */
};

struct mamba {
	struct linear in_proj;       /* rows: z [d_inner], x [d_inner], B [n_groups * N], C [n_groups * N], dt [heads] */
	struct linear out_proj;
	const float *conv_weight;    /* [conv_dim, conv_kernel] */
	const float *conv_bias;      /* [conv_dim] or NULL */
	const float *A_log;          /* [heads] as stored */
	const double *A;             /* [heads] = -exp(A_log), in double; backends round to fp32 */
	const float *D, *dt_bias;    /* [heads] */
	const float *norm;           /* [d_inner] */
};

struct attn {
	struct linear q_proj, k_proj, v_proj, o_proj;
	float k_scale, v_scale;      /* of an FP8 KV cache; 1 if absent */
};

struct mlp { struct linear up_proj, down_proj; };

struct moe {
	const float *gate;           /* [n_routed_experts, hidden_size] */
	const float *correction_bias;/* e_score_correction_bias [n_routed_experts] */
	struct mlp *experts;         /* owned [n_routed_experts]; stacked tensors are views into them */
	struct mlp shared;           /* out = 0: none */
	struct linear fc1_latent_proj, fc2_latent_proj;   /* out = 0: no latent width */
};

struct layer {
	enum block block;
	const float *norm;           /* [hidden_size] */
	struct mamba mamba;          /* the one that `block` names is filled */
	struct attn attn;
	struct mlp mlp;
	struct moe moe;
};

struct model_file { char *name; char sha256[65]; };

struct model {
	char *dir, *name;            /* name: the directory's last component */
	bool wrapper;                /* config.json holds the config of the language model inside */
	struct config config;
	struct safetensors tensors;
	struct layer *layers;        /* owned [num_hidden_layers] */
	struct linear embed;         /* embeddings.weight as [vocab_size, hidden_size] */
	struct linear lm_head;       /* the embedding if tied */
	const float *norm_f;         /* [hidden_size] */
	bool has_fp8, has_nvfp4, has_w4a4;   /* any such module, for the factor defaults */
	bool kv_fp8_declared;        /* kv_cache_quant_algo FP8 or an 8-bit float kv_cache_scheme */
	struct model_file *files;    /* every file of it, tokenizer.json too, by name; sha256 filled by model_verify */
	int n_files;
	void *arena;                 /* owned: vectors and names */
	size_t weight_bytes;         /* stored bytes of all tensors used, scales included */
	int64_t parameters;          /* elements of all weights and biases, scales not included */
	int n_tensors;               /* tensors used */
};

/* Opens a checkpoint directory, resolves numerics per module from config.json and hf_quant_config.json
 * (both are read and merged; contradictions and weights that contradict them are refused).  Vectors and scales are
 * checked for values that are not finite here, matrices in model_verify.  A tensor that no module takes is
 * refused, unless it is one of mtp.*, an inv_freq of a rotary embedding, or a part beside the language model of
 * a wrapper config. */
int model_open(struct model *m, const char *dir, struct err *err);
/* sha256 of every file and the scan for NaN, infinities, negative scales in matrices; may run in a
 * thread beside the first tokens (large checkpoints), must be done before a report is written. */
int model_verify(struct model *m, struct err *err);
void model_release(struct model *m);
/* Calls fn for every linear module: those of each layer in order, then lm_head (tied or not) with layer -1; not
 * the embedding. */
void model_each_linear(struct model *m, void (*fn)(struct linear *l, int layer, void *ud), void *ud);
/* Bytes of the matrix as stored, with scales. */
size_t linear_bytes(const struct linear *l);
const char *weight_format_name(enum weight_format f);

#endif
