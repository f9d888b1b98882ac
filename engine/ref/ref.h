/* The reference backend: plain loops, one sequence of operations, no threads; the reading copy of the mathematics.
 *
 * Activations are double.  `compute` says how the result of an op is rounded: bf16, fp32, or not at all (f64, the
 * arbiter).  Sums are in double in the order of the loops, so a result depends neither on the batch nor on the
 * prefill split beyond what docs/model.md 3.3.2 rounds per chunk.  Weights are expanded row by row from their
 * stored codes.
 *
 * Internal to engine/ref. */
#ifndef ASSAY_ENGINE_REF_H
#define ASSAY_ENGINE_REF_H

#include "engine/backend.h"

struct device {
	const struct config *config;   /* borrowed */
	int compute;                   /* COMPUTE_BF16, COMPUTE_FP32, COMPUTE_F64 */
	struct limits limits;
	int widest;                    /* the longest input row of any linear module */
	int product_rows;              /* the most rows of one product */
	double e4m3[256], e2m1[16];    /* the tables of quant.h as doubles: one load per weight */
	/* scratch; all owned */
	double *weight_row;            /* [widest] */
	double *quantised;             /* [product_rows, widest]: activations as W8A8 and W4A4 see them */
	uint8_t *codes;                /* [widest] */
	double *block_scales;          /* [widest / 16 + 1] */
	double *window;                /* [conv_kernel]: one channel's inputs */
	double *state;                 /* [heads, head_dim, state]: S of one sequence */
	double *chunk_state;           /* the same, as the chunk's tensor-core product sees it */
	double *dt, *decay;            /* [chunk, heads]: dt, and the inclusive sum of A dt */
	double *pair;                  /* [chunk]: C_i . B_j */
	double *b_row;                 /* [state] */
	double *scores;                /* [heads / kv_heads, limits.len] */
	double *kv_row;                /* [head_dim] */
	double *choice;                /* [2 * n_routed_experts + n_group] */
	/* Rows are limits.rows * num_experts_per_tok: an expert serves a token once, but NaN scores can choose it again. */
	double *expert_in, *expert_up, *expert_out;  /* [rows, X], [rows, I], [rows, X] */
	int32_t *expert_rows;          /* [rows] */
	double *logits;                /* [limits.slots, vocab_size] */
	struct logits_row *result;     /* [limits.slots] */
};

/* Rounds in place: to bf16, to fp32, or not at all. */
void ref_round(const struct device *dev, double *x, size_t n);
double ref_bf16(double x);             /* RNE from double, one rounding */
/* Elements [at, at + n) of a state array, from and to its dtype. */
void ref_load(double *to, struct state_view v, size_t at, size_t n);
void ref_store(struct state_view v, size_t at, const double *from, size_t n);
/* A row of a matrix: the stored codes as numbers, without linear.scale. */
void ref_weight_row(const struct device *dev, double *to, const struct linear *w, int row);

/* The ops.  backend.h says what each does. */
void ref_embed(struct device *dev, void *h, const int32_t *ids, const struct linear *table, int T);
void ref_rms_norm(struct device *dev, void *x, const void *h, const float *w, int T, int H, double eps);
void ref_add(struct device *dev, void *h, const void *y, int T, int H);
void ref_linear(struct device *dev, void *y, int ldy, const void *x, int ldx, const struct linear *w,
		enum numerics numerics, int T);
void ref_conv_step(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, const int32_t *slots,
		   const float *w, const float *bias, int channels, int kernel, int rows);
void ref_conv_scan(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, int slot,
		   const float *w, const float *bias, int channels, int kernel, int T);
void ref_ssm_step(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt, struct state_view ssm,
		  const int32_t *slots, const struct mamba *w, const struct ssm_shape *shape, const double limit[2],
		  int rows);
void ref_ssm_scan(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt, struct state_view ssm,
		  int slot, const struct mamba *w, const struct ssm_shape *shape, const double limit[2], int T,
		  int64_t pos);
void ref_gated_norm(struct device *dev, void *y, const void *z, int ldz, const float *w, int T, int channels,
		    int groups, double eps);
void ref_attention(struct device *dev, void *y, const void *q, const void *k, const void *v, struct state_view k_cache,
		   struct state_view v_cache, const int32_t *slots, const int32_t *pos, const struct attn_shape *shape,
		   float k_scale, float v_scale, int T);
void ref_relu2(struct device *dev, void *x, int T, int n);
void ref_route(struct device *dev, int32_t *expert, void *weight, const void *x, const float *gate, const float *bias,
	       int H, const struct route_shape *shape, int T);
void ref_experts(struct device *dev, void *y, const void *x, const int32_t *expert, const void *weight,
		 const struct moe *w, struct rule rule, int per_token, int X, int T);
void ref_combine(struct device *dev, void *y, const void *x, int T, int n);
void ref_head(struct device *dev, int32_t *next, const void *x, const struct linear *w, enum numerics numerics,
	      const int32_t *given, bool head_bf16, int rows);
void ref_logits(struct device *dev, struct logits_row *out, int rows);
void ref_logits_all(struct device *dev, double *out, int row);

#endif
