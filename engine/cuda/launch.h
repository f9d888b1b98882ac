/* Launchers of the CUDA backend: plain pointers to device memory, integers, a stream.
 *
 * The only header of the kernel files and the only way from C into them.  Each launcher starts exactly one kernel
 * (backend.c counts it beside the call) and returns cudaGetLastError().  Activations are float: under compute: bf16
 * they hold bf16 values (`bf16` = 1 rounds every result), so one kernel serves both precisions and matrix products
 * read bf16 operands that `launch_act` made without loss.
 *
 * Shapes as in backend.h.  Row-major; `ld` counts elements.  No reduction order depends on the number of rows.
 */
#ifndef ASSAY_ENGINE_CUDA_LAUNCH_H
#define ASSAY_ENGINE_CUDA_LAUNCH_H

#include <stdint.h>
#include <cuda_runtime_api.h>

#define CONV_TOKENS 16        /* tokens of one block of the sequence convolution; at least kernel - 1 */
#define ROUTE_THREADS 256     /* of one router logit */
#define TILE_ROWS 16          /* output rows of a packed tile */
#define TILE_STEP 64          /* columns of a packed step */
#define SLICES 8              /* warps that share the columns of a product: warp s takes steps s, s + 8, ... */
#define ATTN_SPLIT 64         /* positions of one partial softmax */
#define ATTN_HEADS 8          /* query heads of one block */
#define TOP_N 20
#define HEAD_SLICE 2048       /* logits of one block of the first selection stage */
#define HEAD_PARTS 192        /* most slices of a vocabulary */

/* Element types of states and caches. */
enum { KIND_F32, KIND_BF16, KIND_F16, KIND_FP8 };
/* Weight formats: values of enum weight_format. */
enum { FORMAT_BF16, FORMAT_F16, FORMAT_F32, FORMAT_FP8, FORMAT_NVFP4, N_FORMATS };
/* Products differ by more than the format: e4m3 weights with e4m3 activations meet as fp16, all others as bf16. */
enum { PRODUCT_W8A8 = N_FORMATS, N_PRODUCTS };
/* What an activation goes through before a product (docs/model.md, 4.2 and 4.5). */
enum { ACT_NONE, ACT_FP8, ACT_NVFP4 };

/* A matrix as stored: [out, in], read by element (embedding, fp32 compute, formats without a packed form). */
struct raw_matrix {
	const void *weight;
	const uint8_t *block_scale;
	const float *bias;            /* [out] or NULL */
	float scale;                  /* of the accumulator, the activation's scale included */
	float input_scale;            /* of the activation; 0: kept */
	int format, act, out, in;
};

/* The same in tiles for tensor cores: [out / 16][in / 64] records of 16 x 64 values, padded with zeros; see tiles.cuh. */
struct packed_matrix {
	const char *weight;
	const float *bias;
	float scale, input_scale;
	int format, act, out, in, tiles, steps;
};

#ifdef __CUDACC__
__host__ __device__
#endif
static inline int product_of(int format, int act) { return format == FORMAT_FP8 && act == ACT_FP8 ? PRODUCT_W8A8 : format; }

/* Where column c of a row lies in the operand of a wide product: every run of 32 columns is 4 x 4 pairs, transposed. */
#ifdef __CUDACC__
__host__ __device__
#endif
static inline int wide_column(int c) { return (c & ~31) | (c >> 1 & 3) << 3 | (c >> 3 & 3) << 1 | (c & 1); }

/* The residual stream h[T, H] and what is still to be added to it: y, or the parts of a MoE block, or nothing. */
struct residual {
	float *h;
	const float *y;               /* NULL: none */
	const float *down, *weight;   /* routed experts: [T * k, H] and [T, k]; NULL: none */
	const float *shared;          /* shared expert [T, H], or NULL */
	int k, H, bf16, wide;         /* wide: h is not rounded */
};

struct route_args {
	const float *logits, *bias;   /* [T, E], [E] */
	int E, k, n_group, topk_group, norm;
	float scaling;
};

/* A run of token rows that one expert serves together. */
struct expert_tile { int expert, first, count; };

/* The routed rows of a step, grouped by expert: written by launch_group, read by the grouped products. */
struct expert_plan {
	const struct expert_tile *tile;
	const int *n_tiles;
	const int32_t *entry;         /* entry = token * per_token + slot, in the order of the tiles */
	int max_tiles, width;         /* width: most rows of a tile: 8, 16, 32, 64 or 128 */
};

struct product {                      /* y[T, out] = x[T, in] W^T * scale + bias */
	float *y;                     /* or NULL */
	uint16_t *y_bf16;             /* or NULL: the result as the operand of another product of as many rows */
	const void *x;                /* operand rows [T, steps * 64] for packed, float for raw matrices */
	int ldy, ldy_bf16, ldx, T;
	int bf16, relu2;              /* round the result; square its positive part (rounded again) */
	struct expert_plan plan;      /* tile == NULL: one matrix; else row e of y is entry e, of x row e / x_div */
	int x_div;
};

#ifdef __cplusplus
extern "C" {
#endif

/* 1 after open on devices of compute capability 9.0 and later: kernels are launched with programmatic dependent launch. */
extern int launch_overlap;
/* cudaErrorNoKernelImageForDevice if the build holds no code for the current device. */
cudaError_t launch_check(int *ptx_version, int *binary_version);

/* norm.cu */
cudaError_t launch_embed(float *h, const int32_t *ids, struct raw_matrix w, int T, int H, int bf16, cudaStream_t s);
/* x = norm of h after the addition, which is made; operand (or NULL): the same as a product's operand [T, ld]. */
struct norm_args {
	struct residual r;
	float *x;                     /* or NULL */
	uint16_t *operand;            /* or NULL */
	const float *w;
	int ld, act;
	float eps, input_scale;
};
cudaError_t launch_rms_norm(struct norm_args a, int T, cudaStream_t s);
int norm_makes_operands(int H);       /* can it leave `operand`? */
/* h += what is pending. */
cudaError_t launch_residual(struct residual r, int T, cudaStream_t s);
/* y[T, channels] = rms_norm per group of y * silu(z[T, ldz]), in place, or into operand (bf16 [T, ld], quantised). */
struct gated_args {
	float *y;
	const float *z, *w;
	uint16_t *operand;            /* or NULL */
	int ldz, channels, groups, ld, act, bf16;
	float eps, input_scale;
};
cudaError_t launch_gated_norm(struct gated_args a, int T, cudaStream_t s);
int gated_makes_operands(int channels, int groups, int ldz);
cudaError_t launch_add(float *a, const float *b, int64_t n, int bf16, cudaStream_t s);
cudaError_t launch_relu2(float *x, int64_t n, int bf16, cudaStream_t s);

/* linear.cu */
/* Stored matrix -> packed tiles; both on the device. */
cudaError_t launch_pack(char *to, struct raw_matrix from, int tiles, int steps, cudaStream_t s);
/* Operand rows for a product: row e from x row e / div, quantised as `act` says.  table[expert[e]] gives act and
 * input_scale where table is not NULL.  packed: bf16, or fp16 for ACT_FP8, whose values it holds as well (ld a multiple
 * of 64, zeros behind `in`; 2: in the order of wide_column); else float. */
cudaError_t launch_act(void *to, int ld, int packed, const float *x, int ldx, int div, int in, int act, float input_scale,
		       const struct packed_matrix *table, const struct raw_matrix *raw_table, const int32_t *expert,
		       int rows, cudaStream_t s);
cudaError_t launch_product(struct product p, struct packed_matrix w, cudaStream_t s);
cudaError_t launch_product_raw(struct product p, struct raw_matrix w, cudaStream_t s);
/* Grouped: matrices of one kind of product in the device table; blocks of others do nothing. */
cudaError_t launch_product_grouped(struct product p, const struct packed_matrix *table, int kind, int tiles,
				   cudaStream_t s);
cudaError_t launch_product_raw_grouped(struct product p, const struct raw_matrix *table, int out, cudaStream_t s);
/* e4m3 codes of x / input_scale: [rows padded with zeros][ld]. */
cudaError_t launch_codes(uint8_t *to, int ld, const float *x, int ldx, int in, float input_scale, int rows,
			 int padded_rows, cudaStream_t s);
/* y = d (+ bias), rounded: the epilogue of a library product. */
cudaError_t launch_finish(float *y, int ldy, const float *d, int ldd, const float *bias, int out, int T, int bf16,
			  cudaStream_t s);

/* wide.cu: products of many token rows on wgmma (sm_90), in the order of linear.cu, which calls them; runs of 128 rows. */
/* Is a product of runs of up to `rows` rows, or of that many rows, of this kind?  Then its operand is one of columns in the
 * order of wide_column. */
int product_is_wide(int rows);
cudaError_t launch_product_wide(struct product p, struct packed_matrix w, const struct packed_matrix *table, int kind, int tiles,
				int runs, cudaStream_t s);
/* Once per device, whose multiprocessors are of sm_90.  0 of them, or never called: there are no wide products. */
cudaError_t launch_product_wide_open(int multiprocessors);

/* stream.cu: products of at most 8 token rows that keep the memory busy across kernels (sm_90 and later) */
enum { OUTPUT_FLOAT, OUTPUT_CONV, OUTPUT_KV, OUTPUT_RELU2 };
#define STREAM_ROWS 8
#define STREAM_SEGMENTS 3
#define STREAM_ENTRIES 256            /* STREAM_ROWS * per_token at most */

/* A convolution step on columns first .. first + channels - 1 of the output; the others are stored. */
struct stream_conv {
	float *u, *state;
	const float *w, *bias;
	int64_t stride;
	int first, channels, kernel;
};

/* Segments 1 and 2 are keys and values: appended to the cache as launch_kv_append does. */
struct stream_kv {
	void *k_cache, *v_cache;
	int64_t k_stride, v_stride;
	const int32_t *pos;
	float k_scale, v_scale;
	int kind;
};

/* The experts that some row has chosen, and the rows of each, tokens ascending.  One token: `expert` alone, its k choices. */
struct stream_plan {
	int active;
	int expert[STREAM_ENTRIES], count[STREAM_ENTRIES];
	int16_t entry[STREAM_ENTRIES][STREAM_ROWS];   /* token << 8 | slot */
};

/* Routed experts behind the segments, as `plan` says: matrices of one shape, `stride` bytes apart.  Up: input rows are the
 * tokens', the output goes to up[entry] as bf16.  Down: rows are up[entry], the output goes to down[entry]. */
struct stream_experts {
	const uint16_t *rows;         /* the tokens' [T, ld]; the segments have rows of their own */
	int ld;
	const char *base;
	int64_t stride;
	const float *scale;           /* [E]; NULL: no experts */
	int tiles, steps, out, is_down, ld_up;
	uint16_t *up;
	float *down;
};

struct stream_args {
	const uint16_t *rows;         /* operand rows [T, ld]: in columns, then zeros to a multiple of 64 */
	int T, in, ld;
	struct packed_matrix w[STREAM_SEGMENTS];
	float *y[STREAM_SEGMENTS];
	int ldy[STREAM_SEGMENTS];
	int segments, tiles, output, bf16;   /* tiles: of all segments */
	uint16_t *y_bf16;             /* OUTPUT_RELU2 */
	int ld_bf16;
	struct stream_conv conv;
	struct stream_kv kv;
	const int32_t *slots;         /* of the rows, for OUTPUT_CONV and OUTPUT_KV */
	const float *gate;            /* [E, in]: also make router logits and choose experts; NULL: no */
	float *logits, *weight;       /* [T, E]; [T, k], the chosen ones' */
	int *arrived;                 /* 0: logits that are done */
	struct route_args route;
	struct stream_plan *plan;     /* the choice: made with `gate`, read by `experts` */
	struct stream_experts experts;
	/* Chosen by launch_stream; segments beside experts may have fewer slots; row_bytes 0: rows stay where they are. */
	int slots_of_ring, slots_of_segments, ring_bytes, row_bytes;
};
cudaError_t launch_stream(struct stream_args a, int kind, cudaStream_t s);   /* kind: product_of all its matrices */
/* Once per device: raises the limit of shared memory. */
cudaError_t launch_stream_open(void);

/* solo.cu: decode of a single token, one block on every multiprocessor (sm_90 and later) */
#define SOLO_EXPERTS 16               /* most experts of a token */
#define SOLO_RANKED 512               /* most experts to choose from */
#define SOLO_INPUT 4096               /* most columns of a row that is normed */

/* The row before a product: given; the norm of the residual stream; the gated norm of gated values. */
enum { SOLO_ROWS, SOLO_NORM, SOLO_GATED };
struct solo_input {
	int kind, in, ld;             /* ld: `in` rounded up to a step */
	const uint16_t *rows;         /* SOLO_ROWS: [ld] */
	const float *x, *w;           /* [in]; the norm's weights */
	int threads, groups;          /* those of launch_rms_norm; of the gated norm */
	int act, wide;
	float eps, input_scale;
	uint16_t *keep;               /* the row is left here as well; NULL: no */
};

/* What becomes of the product.  SOLO_ADD: h += y. */
enum { SOLO_FLOAT, SOLO_CONV, SOLO_KV, SOLO_RELU2, SOLO_ADD };
struct solo_args {
	struct solo_input input;
	struct packed_matrix w[STREAM_SEGMENTS];
	int segments, units, bf16;    /* units: tiles of all segments */
	float *y, *h;
	uint16_t *y_bf16;
	struct stream_conv conv;
	struct stream_kv kv;
	const int32_t *slots;
	const float *gate;            /* SOLO_RELU2: [E, in], router logits beside the product; E 0: none */
	float *logits;
	int E;
};
cudaError_t launch_solo(struct solo_args a, int output, int kind, cudaStream_t s);   /* kind: product_of all matrices */
int solo_norm_threads(int ld);        /* of struct solo_input */

/* The chosen experts: up (rows [ld] -> up [k, ld_up], and the shared expert's down projection), then down (rows [k, ld] ->
 * h += the weighted sum and the shared expert). */
struct solo_experts {
	struct route_args route;
	const char *base;
	int64_t stride;
	const float *scale;           /* [E] */
	int tiles, steps, out;
	const uint16_t *rows, *shared_rows;
	int ld, ld_shared, ld_up;
	struct packed_matrix shared;  /* tiles 0: no shared expert */
	uint16_t *up;
	float *shared_out;            /* down: or NULL */
	float *h;
	int wide;
};
cudaError_t launch_solo_experts(struct solo_experts x, int down, int kind, cudaStream_t s);
cudaError_t launch_solo_open(void);

/* conv.cu */
cudaError_t launch_conv_step(float *u, const float *xbc, int ldx, float *state, int64_t stride, const int32_t *slots,
			     const float *w, const float *bias, int channels, int kernel, int rows, int bf16,
			     cudaStream_t s);
cudaError_t launch_conv_scan(float *u, const float *xbc, int ldx, float *state, const float *w, const float *bias,
			     int channels, int kernel, int T, int bf16, cudaStream_t s);

/* ssm.cu, scan.cu */
struct ssm_args {
	float *y;                     /* [T, heads * head_dim] */
	const float *u, *dt;          /* u: x | B | C of each token; dt: raw, [T, heads] */
	int ldu, lddt;
	void *state;                  /* [slot][heads][head_dim][state] */
	int64_t stride;
	const float *A, *D, *dt_bias; /* [heads] */
	float lo, hi;                 /* clamp of dt */
	int heads, head_dim, groups, state_size, kind, bf16;
};
cudaError_t launch_ssm_step(struct ssm_args a, const int32_t *slots, int rows, cudaStream_t s);
/* mix = y * silu(z) of a single token, where ssm_step_mixes: fp32 state of at most 128 columns (sm_90 and later). */
int ssm_step_mixes(struct ssm_args a);
cudaError_t launch_ssm_step_gate(struct ssm_args a, const float *z, const int32_t *slots, cudaStream_t s);
/* With the gated norm of its output behind it, where ssm_step_gates (sm_90 and later); g.y is not used. */
int ssm_step_gates(struct ssm_args a, struct gated_args g);
cudaError_t launch_ssm_step_gated(struct ssm_args a, struct gated_args g, const int32_t *slots, int rows, cudaStream_t s);
/* Chunks of Q positions, the first of `first` tokens.  a.state points at the slot.  sums[chunks][heads] and
 * states[chunks][heads][head_dim][state] are scratch. */
struct scan_args { int T, Q, first, chunks; float *sums, *states; };
cudaError_t launch_ssm_chunk_state(struct ssm_args a, struct scan_args c, cudaStream_t s);
cudaError_t launch_ssm_chunk_pass(struct ssm_args a, struct scan_args c, cudaStream_t s);
cudaError_t launch_ssm_chunk_out(struct ssm_args a, struct scan_args c, cudaStream_t s);
/* All three for one chunk of one token: the same in plain fp32 sums. */
cudaError_t launch_ssm_chunk_token(struct ssm_args a, cudaStream_t s);

/* attn.cu */
struct attn_args {
	float *y;                     /* [T, heads * head_dim], or NULL */
	uint16_t *y_bf16;             /* the same as a product's input, bf16 [T, ld], or NULL */
	const float *q, *k, *v;
	void *k_cache, *v_cache;      /* [slot][position][kv_heads * head_dim] */
	int64_t k_stride, v_stride;   /* elements from slot to slot */
	const int32_t *slots, *pos;   /* [T] */
	float *part;                  /* scratch [T][splits][heads][head_dim + 2]; NULL: one block takes all splits */
	float k_scale, v_scale;
	int heads, kv_heads, head_dim, kind, splits, bf16, ld;
	int apart;                    /* rows belong to different sequences: what the cache holds below pos is of earlier steps */
};
cudaError_t launch_kv_append(struct attn_args a, int T, cudaStream_t s);
cudaError_t launch_attention(struct attn_args a, int T, cudaStream_t s);
cudaError_t launch_attention_merge(struct attn_args a, int T, cudaStream_t s);

/* moe.cu */
cudaError_t launch_route_logits(float *logits, const float *x, const float *gate, int E, int H, int T, cudaStream_t s);
cudaError_t launch_route(int32_t *expert, float *weight, struct route_args a, int T, cudaStream_t s);
/* Groups entries by expert into tiles of at most `width` rows; the order inside a tile is free: no result depends on it. */
cudaError_t launch_group(struct expert_tile *tile, int *n_tiles, int32_t *entry, const int32_t *expert, int E,
			 int entries, int width, cudaStream_t s);
/* y[t] = sum_slot weight[t, slot] * x[t * k + slot], slots in order, rounded once. */
cudaError_t launch_expert_sum(float *y, const float *x, const float *weight, int k, int X, int T, int bf16,
			      cudaStream_t s);

/* head.cu */
struct head_row {                     /* what the head leaves for the host */
	int32_t top_id[TOP_N];
	float top_logit[TOP_N];
	double lse;
	float given_logit;
	int32_t given_rank;
};
struct candidate { uint32_t order, id; };   /* a logit as an integer of the same order; larger first, then lower id */
struct head_part {                    /* of one slice of the vocabulary */
	struct candidate top[TOP_N];
	double max, sum;
	int32_t above;                /* ids that rank before the given one */
};
cudaError_t launch_head_slice(struct head_part *part, const float *logits, const int32_t *given, int V, int rows,
			      cudaStream_t s);
cudaError_t launch_head_merge(struct head_row *out, int32_t *next, const struct head_part *part, const float *logits,
			      const int32_t *given, int V, int rows, cudaStream_t s);

/* state.cu: sizes and strides in bytes; slot_* choose rows (NULL: row r) */
cudaError_t launch_copy_rows(void *to, int64_t to_stride, const int32_t *slot_to, const void *from,
			     int64_t from_stride, const int32_t *slot_from, int64_t bytes, int rows, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#include "num.cuh"
#include "tiles.cuh"
#include "route.cuh"

/* Element (row, col) of a stored matrix without its outer scale. */
__device__ inline float raw_value(const struct raw_matrix &w, int64_t row, int col)
{
	int64_t i = row * w.in + col;
	switch (w.format) {
	case FORMAT_BF16: return bf16_value(((const uint16_t *)w.weight)[i]);
	case FORMAT_F16: return fp16_value(((const uint16_t *)w.weight)[i]);
	case FORMAT_F32: return ((const float *)w.weight)[i];
	case FORMAT_FP8: return e4m3_value(((const uint8_t *)w.weight)[i]);
	default:
		return e2m1_value(((const uint8_t *)w.weight)[i / 2] >> (col % 2 * 4)) *
		       e4m3_value(w.block_scale[row * (w.in / 16) + col / 16]);
	}
}

/* All kernels ask for the same division of a multiprocessor's memory, or it would drain between them. */
static inline void divide(const void *kernel)
{
	static const void *seen[32];
	int i = 0;
	while (i < 32 && seen[i] && seen[i] != kernel)
		i++;
	if (i == 32 || seen[i] == kernel)
		return;
	seen[i] = kernel;
	cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

template <typename... P, typename... A>
static cudaError_t launch_cluster(void (*kernel)(P...), dim3 grid, unsigned block, size_t smem, unsigned cluster, cudaStream_t s,
				  A... args)
{
	divide((const void *)kernel);
	cudaLaunchAttribute attrs[2] = {};
	attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attrs[0].val.programmaticStreamSerializationAllowed = launch_overlap;
	attrs[1].id = cudaLaunchAttributeClusterDimension;
	attrs[1].val.clusterDim.x = cluster;
	attrs[1].val.clusterDim.y = attrs[1].val.clusterDim.z = 1;
	cudaLaunchConfig_t config = {};
	config.gridDim = grid;
	config.blockDim = dim3(block);
	config.dynamicSmemBytes = smem;
	config.stream = s;
	config.attrs = launch_overlap ? attrs : attrs + 1;
	config.numAttrs = (launch_overlap ? 1 : 0) + (cluster ? 1 : 0);
	cudaLaunchKernelEx(&config, kernel, P(args)...);
	return cudaGetLastError();
}

template <typename... P, typename... A>
static cudaError_t launch(void (*kernel)(P...), dim3 grid, unsigned block, size_t smem, cudaStream_t s, A... args)
{
	return launch_cluster(kernel, grid, block, smem, 0, s, args...);
}
#endif

#endif
