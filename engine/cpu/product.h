/* Matrix products of one level: y[t][r] = scale * sum_k x[t][k] W[r][k] + bias[r].
 *
 * Each output is a dot product with one fixed order: VW partial sums, lane by lane over the columns, then the
 * tree of vf_sum.  The kernel for one token row (GEMV, weights expanded in registers) and that for several
 * (GEMM, four weight rows expanded once into a panel in L1) share it, so that an output does not depend on how
 * many rows there are, which rows they are, or how they are cut among threads.
 *
 * Activations are packed first, in the order in which the weight format expands.  Where activations are bf16
 * values (compute: bf16, or quantised ones) and the level has products of bf16 pairs, both operands are bf16:
 * e4m3 and e2m1 are exact in it.  Block scales of NVFP4 multiply the sum of their 16 columns, in fp32.
 */
#ifndef ASSAY_ENGINE_CPU_PRODUCT_H
#define ASSAY_ENGINE_CPU_PRODUCT_H

#include "ops.h"

/* Order of a packed row.  FLAT, PAIRS: floats; PAIRS has the even columns of every 2 VW, then the odd ones.
 * The others are bf16, as engine/cpu/product.c expands the weights of their formats. */
enum packing { PACKED_FLAT, PACKED_PAIRS, PACKED_HALF, PACKED_HALF_FP8, PACKED_HALF_NVFP4 };

struct product;

/* One weight format with one kind of activation. */
struct product_kernel {
	enum packing packing;
	int unit;                    /* columns of a step */
	size_t unit_bytes;           /* what they take in a packed row */
	float sum_scale;             /* of its sums; product_pick puts it into product.scale */
	/* Rows [r0, r1) of W for one token row; for several, with a panel as scratch. */
	void (*gemv)(const struct product *p, int r0, int r1, int t);
	void (*gemm)(const struct product *p, int r0, int r1, int t0, int t1, void *panel);
};

struct product {
	const struct linear *w;
	const struct product_kernel *kernel;
	const void *x;               /* packed rows */
	size_t ldx;                  /* bytes */
	const int32_t *index;        /* packed row of each token row; NULL: the same */
	float *y;
	int ldy;
	float scale;
	bool round;                  /* to bf16 */
};

#define product_pick LEVEL_NAME(product_pick)
#define product_block LEVEL_NAME(product_block)
#define pack_rows LEVEL_NAME(pack_rows)
#define packed_bytes LEVEL_NAME(packed_bytes)
#define panel_bytes LEVEL_NAME(panel_bytes)
#define product_run LEVEL_NAME(product_run)
#define product_dense LEVEL_NAME(product_dense)

/* Fills w, kernel and scale. */
void product_pick(struct product *p, const struct device *dev, const struct linear *w, enum numerics numerics);
/* Products of two activations: W is [out][in] of dense elements, x rows of them, zero-padded to 32; both in
 * natural order.  An element is a bf16 word if product_dense_half, else a float.  Fills w with `linear`. */
void product_dense(struct product *p, struct linear *linear, const struct device *dev, const void *weight, int out, int in);
ALWAYS bool product_dense_half(const struct device *dev) { return HAVE_BF16_DOT && dev->bf16; }
/* Rows [r0, r1) of W for token rows [t0, t1). */
void product_block(const struct product *p, int r0, int r1, int t0, int t1, void *panel);
/* Packs rows [t0, t1) of x (row stride ldx) to the same rows of `to`; quantises first where the numerics say so.
 * `row`: scratch of w->in floats. */
void pack_rows(const struct product *p, void *to, const float *x, int ldx, enum numerics numerics, int t0, int t1,
	       float *row);
/* The whole of rows [0, T): packs x to dev->packed, cuts the outputs into parts, runs them.  T <= block_rows. */
void product_run(struct device *dev, struct product *p, const float *x, int ldx, enum numerics numerics, int T);
size_t packed_bytes(int in);
size_t panel_bytes(int in);

#endif
