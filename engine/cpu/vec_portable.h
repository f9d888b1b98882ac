/* Vectors of the portable level: four floats in GCC's vector types, which every target has.  No fused
 * multiply-add: vf_fma rounds twice. */
#ifndef ASSAY_ENGINE_CPU_VEC_LEVEL_H
#define ASSAY_ENGINE_CPU_VEC_LEVEL_H

#include <stdint.h>
#include <string.h>
#include "engine/quant.h"

#define VW 4
#define TILE_TOKENS 2   /* of a GEMM tile of four rows */
#define WIDE 2          /* vectors of a row, in a tile of four rows that stays in registers */

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

static inline vf vf_load(const float *p) { vf v; memcpy(&v, p, sizeof(v)); return v; }
static inline void vf_store(float *p, vf v) { memcpy(p, &v, sizeof(v)); }
static inline vf vf_load_n(const float *p, int n) { vf v = {0}; memcpy(&v, p, (size_t)n * sizeof(float)); return v; }
static inline void vf_store_n(float *p, vf v, int n) { memcpy(p, &v, (size_t)n * sizeof(float)); }

static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }

static inline vf vf_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
/* Both return b where either is NaN. */
static inline vf vf_min(vf a, vf b) { return vf_select(a < b, a, b); }
static inline vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }

static inline float vf_sum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
/* Lane i is vf_sum(a[i]), bit for bit. */
static inline vf vf_sum_each(const vf *a)
{
	return (vf){vf_sum(a[0]), vf_sum(a[1]), vf_sum(a[2]), vf_sum(a[3])};
}

/* Lanes 4j .. 4j + 3 to y + j ld, for n groups of four: here one. */
static inline void vf_store_fours(float *y, size_t ld, vf v, int n)
{
	(void)ld;
	(void)n;
	vf_store(y, v);
}

/* VW times four values in a row -> four vectors. */
static inline void vf_load_fours(vf out[4], const float *p)
{
	for (int k = 0; k < 4; k++)
		out[k] = (vf){p[k], p[k + 4], p[k + 8], p[k + 12]};
}

static inline vi vi_load_u8(const uint8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }

static inline vf vf_load_f16(const uint16_t *p)
{
	return (vf){fp16_to_float(p[0]), fp16_to_float(p[1]), fp16_to_float(p[2]), fp16_to_float(p[3])};
}

static inline void vf_store_f16(uint16_t *p, vf v)
{
	for (int i = 0; i < VW; i++)
		p[i] = fp16_from_float(v[i]);
}

/* bf16 values as 16-bit words, to and from memory. */
static inline vf vf_load_bf16(const uint16_t *p)
{
	return (vf)((vi){p[0], p[1], p[2], p[3]} << 16);
}

static inline void vf_store_bf16(uint16_t *p, vf rounded)
{
	for (int i = 0; i < VW; i++)
		p[i] = (uint16_t)((uint32_t)((vi)rounded)[i] >> 16);
}

#endif
