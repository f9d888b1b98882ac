/* One tile of positions against the query heads of a kv head, on tensor cores: what the kernels of attn.cu are made of. */
#ifndef ASSAY_ENGINE_CUDA_ATTN_CUH
#define ASSAY_ENGINE_CUDA_ATTN_CUH

#include "launch.h"

#define TILE ATTN_SPLIT
#define THREADS 128           /* of a block */
#define Q_HEADS 16            /* query heads of a block: the 16-row side of an mma */
#define PAD 8                 /* elements behind a row of shared memory, against bank conflicts */

struct half_tile { uint16_t *q, *k, *v, *high, *low; float *score, *m, *l; int width; };   /* width: padded head_dim */

__device__ static inline uint32_t pair_at(const uint16_t *p) { return *(const uint32_t *)p; }

/* bf16 bits of up to eight cached elements; codes of an fp8 cache stand for themselves, its scale comes in later. */
__device__ static inline void load_eight(uint16_t *to, const void *cache, int64_t at, int kind, int n)
{
	if (kind == KIND_BF16 && n == 8 && at % 8 == 0) {
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
			     :: "r"((uint32_t)__cvta_generic_to_shared(to)), "l"((const uint16_t *)cache + at) : "memory");
		return;
	}
	for (int i = 0; i < 8; i++)
		to[i] = i < n ? bf16_bits(load_as_float(cache, at + i, kind)) : 0;
}

/* Rows j0 .. j1 - 1 of the tile, which begins at position base of one kv head; those from count on are zero.  Its copies are to be
 * waited for. */
__device__ static void load_rows(const struct half_tile &s, const struct attn_args &a, int64_t k0, int64_t v0, int base, int count,
				 int j0, int j1)
{
	int hd = a.head_dim, row = a.kv_heads * hd, runs = s.width / 8, j = j0 + threadIdx.x / runs, d = threadIdx.x % runs * 8;
#pragma unroll 2
	for (int i = j0 * runs + threadIdx.x; i < j1 * runs; i += THREADS) {
		int n = j < count ? max(min(8, hd - d), 0) : 0;
		int64_t at = (int64_t)(base + j) * row + d;
		load_eight(s.k + j * (s.width + PAD) + d, a.k_cache, k0 + at, a.kind, n);
		load_eight(s.v + j * (s.width + PAD) + d, a.v_cache, v0 + at, a.kind, n);
		if (THREADS % runs == 0)
			j += THREADS / runs;
		else
			j = (i + THREADS) / runs, d = (i + THREADS) % runs * 8;
	}
}

__device__ static inline void wait_copies(void) { asm volatile("cp.async.wait_all;" ::: "memory"); }

/* score[16][64] = q k^T * scale; warp w owns positions 16 w .. 16 w + 15, a lane rows g and g + 8. */
__device__ static void tile_products(const struct half_tile &s, float scale, int count)
{
	int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, q = threadIdx.x % 4, ld = s.width + PAD;
	float c[2][4] = {};
#pragma unroll 2
	for (int d = 2 * q; d < s.width; d += 16) {
		uint32_t a0 = pair_at(s.q + g * ld + d), a1 = pair_at(s.q + (g + 8) * ld + d);
		uint32_t a2 = pair_at(s.q + g * ld + d + 8), a3 = pair_at(s.q + (g + 8) * ld + d + 8);
#pragma unroll
		for (int n = 0; n < 2; n++) {
			const uint16_t *k = s.k + (warp * 16 + n * 8 + g) * ld + d;
			mma(c[n], a0, a1, a2, a3, pair_at(k), pair_at(k + 8));
		}
	}
	for (int n = 0; n < 2; n++)
		for (int i = 0; i < 4; i++) {
			int j = warp * 16 + n * 8 + q * 2 + i % 2;
			s.score[(g + i / 2 * 8) * (TILE + 4) + j] = j < count ? c[n][i] * scale : -INFINITY;
		}
}

/* Weights of a tile against its own maximum, as the sum of two bf16 numbers; m and l of each head.  A warp owns four heads. */
__device__ static void tile_weights(const struct half_tile &s)
{
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
	for (int h = warp * 4; h < warp * 4 + 4; h++) {
		float s0 = s.score[h * (TILE + 4) + lane], s1 = s.score[h * (TILE + 4) + lane + WARP];
		float top = warp_max(fmaxf(s0, s1)), p0 = expf(s0 - top), p1 = expf(s1 - top), sum = warp_sum(p0 + p1);
		uint16_t h0 = bf16_bits(p0), h1 = bf16_bits(p1);
		s.high[h * (TILE + PAD) + lane] = h0;
		s.high[h * (TILE + PAD) + lane + WARP] = h1;
		s.low[h * (TILE + PAD) + lane] = bf16_bits(p0 - bf16_value(h0));
		s.low[h * (TILE + PAD) + lane + WARP] = bf16_bits(p1 - bf16_value(h1));
		if (lane == 0)
			s.m[h] = top, s.l[h] = sum;
	}
}

/* o[16][width] = weights v; warp w owns a quarter of the channels in N runs of 8. */
template <int N>
__device__ static inline void tile_output(float o[N][4], const struct half_tile &s)
{
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, q = lane % 4, quarter = s.width / 4;
#pragma unroll
	for (int n = 0; n < N; n++)
		o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll 1
	for (int j = 0; j < TILE; j += 16) {
		uint32_t a[2][4];
		for (int part = 0; part < 2; part++) {
			const uint16_t *p = (part ? s.low : s.high) + g * (TILE + PAD) + j + 2 * q;
			a[part][0] = pair_at(p), a[part][1] = pair_at(p + 8 * (TILE + PAD));
			a[part][2] = pair_at(p + 8), a[part][3] = pair_at(p + 8 * (TILE + PAD) + 8);
		}
#pragma unroll
		for (int n = 0; n < N; n++) {
			if (n * 8 >= quarter)
				break;
			uint32_t b0, b1, at = (uint32_t)__cvta_generic_to_shared(
				s.v + (j + lane % 16) * (s.width + PAD) + warp * quarter + n * 8);
			asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
				     : "=r"(b0), "=r"(b1) : "r"(at));
			mma(o[n], a[1][0], a[1][1], a[1][2], a[1][3], b0, b1);
			mma(o[n], a[0][0], a[0][1], a[0][2], a[0][3], b0, b1);
		}
	}
}

/* Takes one softmax into another: rows g and g + 8 of a lane. */
template <int N>
__device__ static inline void merge_rows(float M[2], float L[2], float O[N][4], const float m[2], const float l[2],
					  const float o[N][4])
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float top = fmaxf(M[i], m[i]), x = expf(M[i] - top), y = expf(m[i] - top);
		M[i] = top;
		L[i] = L[i] * x + l[i] * y;
#pragma unroll
		for (int n = 0; n < N; n++)
			for (int k = 2 * i; k < 2 * i + 2; k++)
				O[n][k] = O[n][k] * x + o[n][k] * y;
	}
}
#endif
