/* Vectors of the AVX2 level: eight floats, FMA, F16C. */
#ifndef ASSAY_ENGINE_CPU_VEC_LEVEL_H
#define ASSAY_ENGINE_CPU_VEC_LEVEL_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VW 8
#define TILE_TOKENS 2   /* of a GEMM tile of four rows */
#define WIDE 2          /* vectors of a row, in a tile of four rows that stays in registers */

typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));

static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }

static inline __m256i first_lanes(int n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_load_n(const float *p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
static inline void vf_store_n(float *p, vf v, int n) { _mm256_maskstore_ps(p, first_lanes(n), v); }

static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_select(vi mask, vf a, vf b) { return _mm256_blendv_ps(b, a, (vf)mask); }
/* Both return b where either is NaN. */
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }

static inline float vf_sum(vf a)
{
	__m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Lane i is vf_sum(a[i]), bit for bit: the same tree, eight at a time. */
static inline vf vf_sum_each(const vf *a)
{
	__m256 b[4], c[2];

	for (int k = 0; k < 4; k++)
		b[k] = _mm256_permute2f128_ps(a[k], a[k + 4], 0x20) + _mm256_permute2f128_ps(a[k], a[k + 4], 0x31);
	for (int k = 0; k < 2; k++)
		c[k] = _mm256_shuffle_ps(b[k], b[k + 2], 0x44) + _mm256_shuffle_ps(b[k], b[k + 2], 0xee);
	c[0] = _mm256_shuffle_ps(c[0], c[1], 0x88) + _mm256_shuffle_ps(c[0], c[1], 0xdd);
	return _mm256_permute_ps(c[0], 0xd8);
}

/* Lanes 4j .. 4j + 3 to y + j ld, for n groups of four. */
static inline void vf_store_fours(float *y, size_t ld, vf v, int n)
{
	_mm_storeu_ps(y, _mm256_castps256_ps128(v));
	if (n > 1)
		_mm_storeu_ps(y + ld, _mm256_extractf128_ps(v, 1));
}

/* VW times four values in a row -> four vectors. */
static inline void vf_load_fours(vf out[4], const float *p)
{
	__m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8), c = _mm256_loadu_ps(p + 16), d = _mm256_loadu_ps(p + 24);
	__m256 r0 = _mm256_permute2f128_ps(a, c, 0x20), r1 = _mm256_permute2f128_ps(a, c, 0x31);
	__m256 r2 = _mm256_permute2f128_ps(b, d, 0x20), r3 = _mm256_permute2f128_ps(b, d, 0x31);
	__m256 u = _mm256_unpacklo_ps(r0, r1), v = _mm256_unpacklo_ps(r2, r3);

	out[0] = _mm256_shuffle_ps(u, v, 0x44);
	out[1] = _mm256_shuffle_ps(u, v, 0xee);
	u = _mm256_unpackhi_ps(r0, r1);
	v = _mm256_unpackhi_ps(r2, r3);
	out[2] = _mm256_shuffle_ps(u, v, 0x44);
	out[3] = _mm256_shuffle_ps(u, v, 0xee);
}

static inline vi vi_load_u8(const uint8_t *p)
{
	return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

static inline vf vf_load_f16(const uint16_t *p)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void vf_store_f16(uint16_t *p, vf v)
{
	_mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* bf16 values as 16-bit words, to and from memory. */
static inline vf vf_load_bf16(const uint16_t *p)
{
	return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16);
}

static inline void vf_store_bf16(uint16_t *p, vf rounded)
{
	__m256i w = _mm256_srli_epi32((__m256i)rounded, 16);

	w = _mm256_permute4x64_epi64(_mm256_packus_epi32(w, w), 0x08);
	_mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(w));
}

#endif
