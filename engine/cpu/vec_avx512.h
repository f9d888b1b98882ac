/* Vectors of the AVX-512 levels (F, BW, DQ, VL): sixteen floats. */
#ifndef ASSAY_ENGINE_CPU_VEC_LEVEL_H
#define ASSAY_ENGINE_CPU_VEC_LEVEL_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VW 16
#define TILE_TOKENS 4   /* of a GEMM tile of four rows */
#define WIDE 4          /* vectors of a row, in a tile of four rows that stays in registers */

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));

static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline __mmask16 first_lanes(int n) { return (__mmask16)((1u << n) - 1); }
static inline vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
static inline void vf_store_n(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }

static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }

static inline vf vf_select(vi mask, vf a, vf b)
{
	return _mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), b, a);
}

/* Both return b where either is NaN. */
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }

static inline float vf_sum(vf a)
{
	__m256 h = _mm512_castps512_ps256(a) + _mm512_extractf32x8_ps(a, 1);
	__m128 s = _mm256_castps256_ps128(h) + _mm256_extractf128_ps(h, 1);

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Lane i is vf_sum(a[i]), bit for bit: the same tree, sixteen at a time. */
static inline vf vf_sum_each(const vf *a)
{
	const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
	__m512 b[8];

#pragma GCC unroll 8
	for (int k = 0; k < 8; k++)      /* low half of a[k], high half of a[k + 8], and the other two */
		b[k] = _mm512_mask_blend_ps(0xff00, a[k], a[k + 8]) + _mm512_shuffle_f32x4(a[k], a[k + 8], 0x4e);
#pragma GCC unroll 4
	for (int k = 0; k < 4; k++)
		b[k] = _mm512_shuffle_f32x4(b[k], b[k + 4], 0x88) + _mm512_shuffle_f32x4(b[k], b[k + 4], 0xdd);
#pragma GCC unroll 2
	for (int k = 0; k < 2; k++)
		b[k] = _mm512_shuffle_ps(b[k], b[k + 2], 0x44) + _mm512_shuffle_ps(b[k], b[k + 2], 0xee);
	b[0] = _mm512_shuffle_ps(b[0], b[1], 0x88) + _mm512_shuffle_ps(b[0], b[1], 0xdd);
	return _mm512_permutexvar_ps(order, b[0]);
}

/* Lanes 4j .. 4j + 3 to y + j ld, for n groups of four. */
static inline void vf_store_fours(float *y, size_t ld, vf v, int n)
{
	_mm_storeu_ps(y, _mm512_castps512_ps128(v));
	if (n > 1)
		_mm_storeu_ps(y + ld, _mm512_extractf32x4_ps(v, 1));
	if (n > 2)
		_mm_storeu_ps(y + 2 * ld, _mm512_extractf32x4_ps(v, 2));
	if (n > 3)
		_mm_storeu_ps(y + 3 * ld, _mm512_extractf32x4_ps(v, 3));
}

/* VW times four values in a row -> four vectors. */
static inline void vf_load_fours(vf out[4], const float *p)
{
	const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
	const __m512i high = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
	__m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16), c = _mm512_loadu_ps(p + 32), d = _mm512_loadu_ps(p + 48);
	__m512 ab = _mm512_permutex2var_ps(a, low, b), cd = _mm512_permutex2var_ps(c, low, d);

	out[0] = _mm512_shuffle_f32x4(ab, cd, 0x44);
	out[1] = _mm512_shuffle_f32x4(ab, cd, 0xee);
	ab = _mm512_permutex2var_ps(a, high, b);
	cd = _mm512_permutex2var_ps(c, high, d);
	out[2] = _mm512_shuffle_f32x4(ab, cd, 0x44);
	out[3] = _mm512_shuffle_f32x4(ab, cd, 0xee);
}

static inline vi vi_load_u8(const uint8_t *p)
{
	return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vf vf_load_f16(const uint16_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void vf_store_f16(uint16_t *p, vf v)
{
	_mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* bf16 values as 16-bit words, to and from memory. */
static inline vf vf_load_bf16(const uint16_t *p)
{
	__m256i w = _mm256_loadu_si256((const __m256i *)(const void *)p);

	return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(w), 16);
}

static inline void vf_store_bf16(uint16_t *p, vf rounded)
{
	_mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)rounded, 16)));
}

#endif
