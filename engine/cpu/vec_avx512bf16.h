/* The AVX-512 level with BF16 and VBMI (Zen 4, Sapphire Rapids and later): products of bf16 pairs.
 *
 * VDPBF16PS adds two products to a float lane, odd element first; it takes subnormal inputs as zero and
 * flushes subnormal sums, always rounds to nearest even.  Such values are below 1.2e-38, far under every
 * tolerance here. */
#ifndef ASSAY_ENGINE_CPU_VEC_BF16_H
#define ASSAY_ENGINE_CPU_VEC_BF16_H

#include "vec_avx512.h"

#define HAVE_BF16_DOT 1

/* 32 bf16 values. */
typedef uint16_t vh __attribute__((vector_size(64)));

static inline vf vh_dot(vf acc, vh a, vh b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }

/* Floats that are bf16 values already: lo in words 0..15, hi in 16..31. */
static inline vh vh_pack(vf lo, vf hi) { return (vh)_mm512_cvtne2ps_pbh(hi, lo); }

#endif
