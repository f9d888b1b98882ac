#include "launch.h"
#include "matrix.cuh"
#include "attn.cuh"

/* Grouped-query attention over the cache (docs/model.md, 3.4).  Positions are taken in splits of 64, which are merged in
 * ascending order by `merge`, in the same arithmetic whether one block takes them all (many rows) or one block each (few
 * rows).  So a row's result depends on its position alone.  Under compute: bf16 both products run on tensor cores
 * (attention_tiles; attention_splits in a fused decode step), under fp32 in plain fp32 (attention_rows). */

#define WIDE 2                /* head channels of a thread: head_dim up to THREADS * WIDE */

/* Takes a softmax over further positions (largest score m, sum l of exp(score - m), sums o of exp(score - m) v) into one
 * over earlier positions.  From M = -inf, L = O = 0 it copies. */
template <int N>
__device__ static inline void merge(float *M, float *L, float O[N], float m, float l, const float o[N])
{
	float top = fmaxf(*M, m), a = expf(*M - top), b = expf(m - top);
	*M = top;
	*L = *L * a + l * b;
	for (int i = 0; i < N; i++)
		O[i] = O[i] * a + o[i] * b;
}

/* Channel c of row t of the result. */
__device__ static inline void put(const struct attn_args &a, int t, int c, float v)
{
	if (a.y)
		a.y[(int64_t)t * a.heads * a.head_dim + c] = rounded(v, a.bf16);
	if (a.y_bf16)
		a.y_bf16[(int64_t)t * a.ld + c] = bf16_bits(v);
}

/* Rows of k and v at their positions.  A block owns 256 channels of a row. */
__global__ void kv_append_rows(struct attn_args a)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x, width = a.kv_heads * a.head_dim, t = blockIdx.y;
	grid_release();
	grid_wait();
	if (c >= width)
		return;
	int64_t at = (int64_t)a.pos[t] * width + c;
	float k = a.k[(int64_t)t * width + c], v = a.v[(int64_t)t * width + c];
	store_from_float(a.k_cache, a.slots[t] * a.k_stride + at, a.kind == KIND_FP8 ? k / a.k_scale : k, a.kind);
	store_from_float(a.v_cache, a.slots[t] * a.v_stride + at, a.kind == KIND_FP8 ? v / a.v_scale : v, a.kind);
}

struct tile_shared {
	float score[ATTN_HEADS][TILE];
	float m[ATTN_HEADS], l[ATTN_HEADS], factor[ATTN_HEADS];
};

/* The scores of `count` positions, then their weights against the running maximum.  Warp w serves heads 2w, 2w + 1. */
__device__ static void tile_scores(struct tile_shared *sh, const float *q, const float *k, int heads, int hd, int count)
{
	int j = threadIdx.x % TILE, h0 = threadIdx.x / TILE * (ATTN_HEADS / 2);
	float sum[ATTN_HEADS / 2] = {};
	for (int d = 0; d < hd; d++) {
		float kd = k[j * (hd + 1) + d];
#pragma unroll
		for (int i = 0; i < ATTN_HEADS / 2; i++)
			sum[i] = fmaf(q[(h0 + i) * hd + d], kd, sum[i]);
	}
	for (int i = 0; i < ATTN_HEADS / 2; i++)
		sh->score[h0 + i][j] = j < count ? sum[i] * (1.0f / sqrtf((float)hd)) : -INFINITY;
	__syncthreads();
	int lane = threadIdx.x % WARP;
	for (int h = threadIdx.x / WARP * 2; h < min(threadIdx.x / WARP * 2 + 2, heads); h++) {
		float s0 = sh->score[h][lane], s1 = sh->score[h][lane + WARP], old = sh->m[h];
		float top = fmaxf(old, warp_max(fmaxf(s0, s1)));
		float p0 = expf(s0 - top), p1 = expf(s1 - top), sum = warp_sum(p0 + p1);
		sh->score[h][lane] = p0;
		sh->score[h][lane + WARP] = p1;
		__syncwarp();                 /* every lane has read m */
		if (lane == 0) {
			sh->factor[h] = expf(old - top);
			sh->l[h] = sh->l[h] * expf(old - top) + sum;
			sh->m[h] = top;
		}
		__syncwarp();
	}
	__syncthreads();
}

/* One block's share of an attention: a token row, some query heads of one kv head. */
struct share { int n, t, h0, heads, hd, width; int64_t k0, v0; float *q, *k; };

/* One split: sh.m, sh.l and the thread's channels of every head in o. */
__device__ static void attend_split(float o[ATTN_HEADS][WIDE], struct tile_shared *sh, const struct attn_args &a,
				    const struct share &b, int split)
{
	float ks = a.kind == KIND_FP8 ? a.k_scale : 1.0f, vs = a.kind == KIND_FP8 ? a.v_scale : 1.0f;
	__syncthreads();
	if (threadIdx.x < ATTN_HEADS)
		sh->m[threadIdx.x] = -INFINITY, sh->l[threadIdx.x] = 0;
	for (int h = 0; h < ATTN_HEADS; h++)
		for (int w = 0; w < WIDE; w++)
			o[h][w] = 0;
	for (int base = split * ATTN_SPLIT; base < min(b.n, (split + 1) * ATTN_SPLIT); base += TILE) {
		int count = min(TILE, b.n - base);
		__syncthreads();
		for (int i = threadIdx.x; i < TILE * b.hd; i += THREADS) {
			int j = i / b.hd, d = i % b.hd;
			b.k[j * (b.hd + 1) + d] = j < count ?
				load_as_float(a.k_cache, b.k0 + (int64_t)(base + j) * b.width + d, a.kind) * ks : 0.0f;
		}
		__syncthreads();
		tile_scores(sh, b.q, b.k, b.heads, b.hd, count);
#pragma unroll
		for (int w = 0; w < WIDE; w++) {
			int d = threadIdx.x + w * THREADS;
			if (d >= b.hd)
				break;
#pragma unroll
			for (int h = 0; h < ATTN_HEADS; h++)
				o[h][w] *= sh->factor[h];
#pragma unroll 4
			for (int j = 0; j < count; j++) {
				float v = load_as_float(a.v_cache, b.v0 + (int64_t)(base + j) * b.width + d, a.kind) * vs;
#pragma unroll
				for (int h = 0; h < ATTN_HEADS; h++)
					o[h][w] = fmaf(sh->score[h][j], v, o[h][w]);
			}
		}
	}
	__syncthreads();
}

/* A block owns one token row, up to 8 query heads of one kv head, and one split or all of them; a thread owns head
 * channels d = thread, thread + 128.  Inner sums ascend: fixed. */
__global__ void __launch_bounds__(THREADS) attention_rows(struct attn_args a)
{
	extern __shared__ float shared[];
	__shared__ struct tile_shared sh;
	int rep = a.heads / a.kv_heads, groups = (rep + ATTN_HEADS - 1) / ATTN_HEADS, kv = blockIdx.y / groups, hd = a.head_dim;
	struct share b = { 0, (int)blockIdx.x, kv * rep + (int)blockIdx.y % groups * ATTN_HEADS, 0, hd, a.kv_heads * hd };
	b.heads = min(ATTN_HEADS, (kv + 1) * rep - b.h0);
	b.q = shared, b.k = shared + ATTN_HEADS * hd;
	grid_release();
	grid_wait();
	b.n = a.pos[b.t] + 1;
	int first = a.part ? blockIdx.z : 0, last = a.part ? first + 1 : a.splits;
	if (first * ATTN_SPLIT >= b.n)
		return;
	b.k0 = a.slots[b.t] * a.k_stride + kv * hd, b.v0 = a.slots[b.t] * a.v_stride + kv * hd;
	for (int i = threadIdx.x; i < ATTN_HEADS * hd; i += THREADS)
		b.q[i] = i < b.heads * hd ? a.q[((int64_t)b.t * a.heads + b.h0) * hd + i] : 0.0f;
	float M[ATTN_HEADS], L[ATTN_HEADS] = {}, O[ATTN_HEADS][WIDE] = {}, o[ATTN_HEADS][WIDE];
#pragma unroll
	for (int h = 0; h < ATTN_HEADS; h++)
		M[h] = -INFINITY;
	for (int s = first; s < last && s * ATTN_SPLIT < b.n; s++) {
		attend_split(o, &sh, a, b, s);
#pragma unroll
		for (int h = 0; h < ATTN_HEADS; h++)
			merge<WIDE>(&M[h], &L[h], O[h], sh.m[h], sh.l[h], o[h]);
	}
#pragma unroll
	for (int h = 0; h < ATTN_HEADS; h++)
#pragma unroll
		for (int w = 0; w < WIDE; w++) {
			int d = threadIdx.x + w * THREADS;
			if (h >= b.heads || d >= hd)
				continue;
			if (!a.part) {
				put(a, b.t, (b.h0 + h) * hd + d, O[h][w] / L[h]);
				continue;
			}
			float *to = a.part + (((int64_t)b.t * a.splits + first) * a.heads + b.h0 + h) * (hd + 2);
			to[d] = O[h][w];
			if (d == 0)
				to[hd] = M[h], to[hd + 1] = L[h];
		}
}

/* ---- tensor cores ---- */
/* The up to 16 query heads of a block, from *h0 on, which share kv head *kv: how many. */
__device__ static inline int heads_of_block(int *kv, int *h0, const struct attn_args &a)
{
	int rep = a.heads / a.kv_heads, groups = (rep + Q_HEADS - 1) / Q_HEADS;
	*kv = blockIdx.y / groups, *h0 = *kv * rep + blockIdx.y % groups * Q_HEADS;
	return min(Q_HEADS, (*kv + 1) * rep - *h0);
}

/* Of q k^T; an fp8 cache's scale of keys is in it. */
__device__ static inline float score_scale(const struct attn_args &a, int head_dim)
{
	return (a.kind == KIND_FP8 ? a.k_scale : 1.0f) * (1.0f / sqrtf((float)head_dim));
}

/* A block owns one token row, up to 16 query heads of one kv head, and one split or all of them.  All sums in a fixed order. */
template <int N>
__global__ void __launch_bounds__(THREADS) attention_tiles(struct attn_args a)
{
	extern __shared__ __align__(16) uint16_t pool[];
	__shared__ float score[Q_HEADS * (TILE + 4)], tile_m[Q_HEADS], tile_l[Q_HEADS];
	__shared__ __align__(16) uint16_t weights[2][Q_HEADS * (TILE + PAD)];
	int hd = a.head_dim, width = (hd + 31) / 32 * 32, ld = width + PAD, t = blockIdx.z, g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
	int kv, h0, heads = heads_of_block(&kv, &h0, a);
	struct half_tile s = { pool, pool + Q_HEADS * ld, pool + (Q_HEADS + TILE) * ld, weights[0], weights[1], score, tile_m,
			       tile_l, width };
	grid_release();
	grid_wait();
	int n = a.pos[t] + 1, first = a.part ? blockIdx.x : 0, last = a.part ? first + 1 : a.splits;
	if (first * ATTN_SPLIT >= n)
		return;
	int64_t k0 = a.slots[t] * a.k_stride + kv * hd, v0 = a.slots[t] * a.v_stride + kv * hd;
	float scale = score_scale(a, hd);
#pragma unroll 1
	for (int i = threadIdx.x; i < Q_HEADS * width / 4; i += THREADS) {
		int h = i / (width / 4), d = i % (width / 4) * 4;
		const float *from = a.q + ((int64_t)t * a.heads + h0 + h) * hd + d;
		for (int k = 0; k < 4; k++)
			s.q[h * ld + d + k] = h < heads && d + k < hd ? bf16_bits(from[k]) : 0;
	}
	float M[2] = { -INFINITY, -INFINITY }, L[2] = {}, O[N][4] = {};
#pragma unroll 1
	for (int split = first; split < last && split * TILE < n; split++) {
		float o[N][4];
		int count = min(TILE, n - split * TILE);
		__syncthreads();
		load_rows(s, a, k0, v0, split * TILE, count, 0, TILE);
		wait_copies();
		__syncthreads();
		tile_products(s, scale, count);
		__syncthreads();
		tile_weights(s);
		__syncthreads();
		tile_output<N>(o, s);
		float m[2] = { tile_m[g], tile_m[g + 8] }, l[2] = { tile_l[g], tile_l[g + 8] };
		merge_rows<N>(M, L, O, m, l, o);
	}
	float vs = a.kind == KIND_FP8 ? a.v_scale : 1.0f;
#pragma unroll
	for (int r = 0; r < N * 4; r++) {
		int i = r % 4 / 2, h = g + i * 8, c = r / 4 * 8 + q * 2 + r % 2, d = threadIdx.x / WARP * (width / 4) + c;
		if (h >= heads || c >= width / 4 || d >= hd)
			continue;
		float *to = a.part + (((int64_t)t * a.splits + first) * a.heads + h0 + h) * (hd + 2);
		if (a.part)
			to[d] = O[r / 4][r % 4];
		else
			put(a, t, (h0 + h) * hd + d, O[r / 4][r % 4] * vs / L[i]);
		if (a.part && d == 0)
			to[hd] = M[i], to[hd + 1] = L[i];
	}
}

/* ---- many rows ---- */
#define TOKENS 4              /* token rows of a block, a warp each */
#define CHANNELS 128          /* most channels of a head */
#define LDC (CHANNELS + PAD)
enum { Q_ELEMENTS = TOKENS * Q_HEADS * LDC, TILE_ELEMENTS = TILE * LDC, MANY_ELEMENTS = Q_ELEMENTS + 4 * TILE_ELEMENTS };

/* p = weights of a tile's scores against its own maximum, in place; m and l of rows g and g + 8.  Sums in tile_weights' order. */
__device__ static inline void row_weights(float p[TILE / 8][4], float m[2], float l[2])
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float top = -INFINITY, z[2];
#pragma unroll
		for (int n = 0; n < TILE / 8; n++)
			top = fmaxf(top, fmaxf(p[n][2 * r], p[n][2 * r + 1]));
		top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
		top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
#pragma unroll
		for (int n = 0; n < TILE / 8; n++)
#pragma unroll
			for (int e = 2 * r; e < 2 * r + 2; e++)
				p[n][e] = expf(p[n][e] - top);
#pragma unroll
		for (int e = 0; e < 2; e++) {         /* the tree of warp_sum: position bits 5, 4, 3, 2, 1, 0 */
			float u[4];
#pragma unroll
			for (int n = 0; n < 4; n++)
				u[n] = p[n][2 * r + e] + p[n + 4][2 * r + e];
			z[e] = (u[0] + u[2]) + (u[1] + u[3]);
			z[e] += __shfl_xor_sync(FULL, z[e], 2);
			z[e] += __shfl_xor_sync(FULL, z[e], 1);
		}
		m[r] = top, l[r] = z[0] + z[1];
	}
}

/* One tile of positions against one token's 16 query heads, by a warp: what tile_products, tile_weights and tile_output do. */
__device__ static inline void row_tile(float o[CHANNELS / 8][4], float m[2], float l[2], const uint16_t *q, const uint16_t *k,
				       const uint16_t *v, float scale, int count)
{
	float p[TILE / 8][4] = {};
#pragma unroll
	for (int d = 0; d < CHANNELS; d += 16) {
		uint32_t a[4], b[4];
		matrices<false>(a, q + d + lane_at<false>(LDC));
#pragma unroll
		for (int n = 0; n < TILE / 8; n += 2) {
			matrices<false>(b, k + n * 8 * LDC + d + lane_at<true>(LDC));
			mma(p[n], a[0], a[1], a[2], a[3], b[0], b[1]);
			mma(p[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
		}
	}
#pragma unroll
	for (int n = 0; n < TILE / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			p[n][e] = n * 8 + (int)threadIdx.x % 4 * 2 + e % 2 < count ? p[n][e] * scale : -INFINITY;
	row_weights(p, m, l);
#pragma unroll
	for (int n = 0; n < CHANNELS / 8; n++)
		o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll
	for (int j = 0; j < TILE; j += 16) {
		uint32_t high[4], low[4], b[4];
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float x = p[j / 8 + i / 2][i % 2 * 2], y = p[j / 8 + i / 2][i % 2 * 2 + 1];
			high[i] = pair_of(x, y);
			low[i] = pair_of(x - __uint_as_float(high[i] << 16), y - __uint_as_float(high[i] & 0xffff0000u));
		}
#pragma unroll
		for (int n = 0; n < CHANNELS / 8; n += 2) {
			matrices<true>(b, v + j * LDC + n * 8 + lane_at<false>(LDC));
			mma(o[n], low[0], low[1], low[2], low[3], b[0], b[1]);
			mma(o[n], high[0], high[1], high[2], high[3], b[0], b[1]);
			mma(o[n + 1], low[0], low[1], low[2], low[3], b[2], b[3]);
			mma(o[n + 1], high[0], high[1], high[2], high[3], b[2], b[3]);
		}
	}
}

/* Queries of four token rows as bf16; zeros for heads that are none. */
__device__ static inline void bring_queries(uint16_t *to, const struct attn_args &a, int t0, int T, int h0, int heads)
{
#pragma unroll 2
	for (int i = threadIdx.x; i < TOKENS * Q_HEADS * CHANNELS / 4; i += THREADS) {
		int t = min(t0 + i / (Q_HEADS * CHANNELS / 4), T - 1), h = i / (CHANNELS / 4) % Q_HEADS, d = i % (CHANNELS / 4) * 4;
		float4 v = h < heads ? *(const float4 *)(a.q + ((int64_t)t * a.heads + h0 + h) * CHANNELS + d) : make_float4(0, 0, 0, 0);
		*(uint2 *)(to + i / (CHANNELS / 4) * LDC + d) = make_uint2(pair_of(v.x, v.y), pair_of(v.z, v.w));
	}
}

/* The bits of attention_tiles with all splits, for heads of CHANNELS channels.  A block owns four token rows, which share the
 * tiles of keys and values where their slots are the same, and up to 16 query heads of one kv head; a warp owns a row. */
__global__ void __launch_bounds__(THREADS, 2) attention_many_tiles(struct attn_args a, int T)
{
	extern __shared__ __align__(16) uint16_t pool[];
	int kv, h0, heads = heads_of_block(&kv, &h0, a), warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	int t0 = ((int)gridDim.x - 1 - (int)blockIdx.x) * TOKENS, t = min(t0 + warp, T - 1);   /* long rows first */
	uint16_t *const tiles = pool + Q_ELEMENTS;
	grid_release();
	grid_wait();
	int slot = a.slots[t], n = a.pos[t] + 1;
	float scale = score_scale(a, CHANNELS);
	bring_queries(pool, a, t0, T, h0, heads);
	float M[2] = { -INFINITY, -INFINITY }, L[2] = {}, O[CHANNELS / 8][4] = {};
#pragma unroll 1
	for (int lead = 0; lead < TOKENS && t0 + lead < T; lead++) {
		int same = a.slots[t0 + lead], longest = 0;
		bool done = false;
		for (int u = 0; u < TOKENS && t0 + u < T; u++)
			if (a.slots[t0 + u] == same)
				done |= u < lead, longest = max(longest, a.pos[t0 + u] + 1);
		if (done)
			continue;
		int64_t k0 = same * a.k_stride + kv * CHANNELS, v0 = same * a.v_stride + kv * CHANNELS;
		struct half_tile s = { .width = CHANNELS };
		auto load = [&](int split) {
			s.k = tiles + split % 2 * 2 * TILE_ELEMENTS, s.v = s.k + TILE_ELEMENTS;
			load_rows(s, a, k0, v0, split * TILE, min(TILE, longest - split * TILE), 0, TILE);
		};
		__syncthreads();
		load(0);
#pragma unroll 1
		for (int split = 0; split * TILE < longest; split++) {
			wait_copies();
			__syncthreads();
			if ((split + 1) * TILE < longest)
				load(split + 1);
			if (slot != same || split * TILE >= n)
				continue;
			const uint16_t *k = tiles + split % 2 * 2 * TILE_ELEMENTS;
			float o[CHANNELS / 8][4], m[2], l[2];
			row_tile(o, m, l, pool + warp * Q_HEADS * LDC, k, k + TILE_ELEMENTS, scale, min(TILE, n - split * TILE));
			merge_rows<CHANNELS / 8>(M, L, O, m, l, o);
		}
	}
	float vs = a.kind == KIND_FP8 ? a.v_scale : 1.0f;
	if (t0 + warp >= T)
		return;
#pragma unroll
	for (int r = 0; r < CHANNELS / 2; r++) {
		int i = r % 4 / 2, h = lane / 4 + i * 8, d = r / 4 * 8 + lane % 4 * 2 + r % 2;
		if (h < heads)
			put(a, t, (h0 + h) * CHANNELS + d, O[r / 4][r % 4] * vs / L[i]);
	}
}

/* The query heads h0 .. h0 + heads - 1 of row t as bf16, zeros behind them.  head_dim a multiple of 4. */
__device__ static void load_queries(const struct half_tile &s, const struct attn_args &a, int t, int h0, int heads)
{
	int quads = s.width / 4, ld = s.width + PAD;
#pragma unroll 4
	for (int i = threadIdx.x; i < Q_HEADS * quads; i += THREADS) {
		int h = i / quads, d = i % quads * 4;
		float4 v = make_float4(0, 0, 0, 0);
		if (h < heads && d < a.head_dim)
			v = __ldcg((const float4 *)(a.q + ((int64_t)t * a.heads + h0 + h) * a.head_dim + d));
		*(ushort4 *)(s.q + h * ld + d) = make_ushort4(bf16_bits(v.x), bf16_bits(v.y), bf16_bits(v.z), bf16_bits(v.w));
	}
}

/* One split of attention_tiles, bit by bit, for few rows of different sequences.  What the cache holds of earlier steps
 * comes in while the kernel before runs; only the row's own position waits for that.  So does the code: the block rehearses
 * once without queries, and stores nothing. */
template <int N>
__global__ void __launch_bounds__(THREADS) attention_splits(struct attn_args a)
{
	extern __shared__ __align__(16) uint16_t pool[];
	__shared__ float score[Q_HEADS * (TILE + 4)], tile_m[Q_HEADS], tile_l[Q_HEADS];
	__shared__ __align__(16) uint16_t weights[2][Q_HEADS * (TILE + PAD)];
	int hd = a.head_dim, width = (hd + 31) / 32 * 32, ld = width + PAD, t = blockIdx.z, g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
	int kv, h0, heads = heads_of_block(&kv, &h0, a);
	struct half_tile s = { pool, pool + Q_HEADS * ld, pool + (Q_HEADS + TILE) * ld, weights[0], weights[1], score, tile_m,
			       tile_l, width };
	int split = blockIdx.x, base = split * TILE, pos = a.pos[t], count = min(TILE, pos + 1 - base), own = pos - base;
	int64_t k0 = a.slots[t] * a.k_stride + kv * hd, v0 = a.slots[t] * a.v_stride + kv * hd;
	float scale = score_scale(a, hd), o[N][4];
	grid_release();
	if (count > 0) {
		load_rows(s, a, k0, v0, base, count, 0, min(own, TILE));
		load_rows(s, a, k0, v0, base, count, min(own + 1, TILE), TILE);
	}
	if (count <= 0) {
		grid_wait();
		return;
	}
#pragma unroll 1
	for (int pass = 0; pass < 2; pass++) {
		if (pass) {
			grid_wait();
			if (own < TILE)
				load_rows(s, a, k0, v0, base, count, own, own + 1);
		}
		load_queries(s, a, t, h0, pass ? heads : 0);
		wait_copies();
		__syncthreads();
		tile_products(s, scale, count);
		__syncthreads();
		tile_weights(s);
		__syncthreads();
		tile_output<N>(o, s);
		__syncthreads();
	}
#pragma unroll
	for (int r = 0; r < N * 4; r++) {
		int i = r % 4 / 2, h = g + i * 8, c = r / 4 * 8 + q * 2 + r % 2, d = threadIdx.x / WARP * (width / 4) + c;
		if (h >= heads || c >= width / 4 || d >= hd)
			continue;
		float *to = a.part + (((int64_t)t * a.splits + split) * a.heads + h0 + h) * (hd + 2);
		to[d] = 0.0f + o[r / 4][r % 4];       /* merged into nothing */
		if (d == 0)
			to[hd] = tile_m[h], to[hd + 1] = tile_l[h];
	}
}

/* The splits of one row and head, in ascending order.  A thread owns one channel. */
__global__ void attention_merge_heads(struct attn_args a)
{
	int h = blockIdx.x, t = blockIdx.y, hd = a.head_dim, splits = (a.pos[t] + ATTN_SPLIT) / ATTN_SPLIT;
	grid_release();
	grid_wait();
	for (int d = threadIdx.x; d < hd; d += blockDim.x) {
		float M = -INFINITY, L = 0, O = 0;
#pragma unroll 8
		for (int s = 0; s < splits; s++) {
			const float *from = a.part + (((int64_t)t * a.splits + s) * a.heads + h) * (hd + 2);
			float m = from[hd], l = from[hd + 1], o = from[d];
			merge<1>(&M, &L, &O, m, l, &o);
		}
		float vs = a.bf16 && a.kind == KIND_FP8 ? a.v_scale : 1.0f;
		put(a, t, h * hd + d, O * vs / L);
	}
}

/* ---- launchers ---- */
cudaError_t launch_kv_append(struct attn_args a, int T, cudaStream_t s)
{
	return launch(kv_append_rows, dim3((a.kv_heads * a.head_dim + 255) / 256, T), 256, 0, s, a);
}

static cudaError_t launch_rows(struct attn_args a, int T, cudaStream_t s)
{
	int rep = a.heads / a.kv_heads, groups = (rep + ATTN_HEADS - 1) / ATTN_HEADS;
	size_t shared = ((size_t)ATTN_HEADS * a.head_dim + TILE * (a.head_dim + 1)) * sizeof(float);
	if (shared > 40 << 10)
		cudaFuncSetAttribute(attention_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
	return launch(attention_rows, dim3(T, a.kv_heads * groups, a.part ? a.splits : 1), THREADS, shared, s, a);
}

template <int N>
static cudaError_t launch_tiles(struct attn_args a, int T, cudaStream_t s)
{
	int rep = a.heads / a.kv_heads, groups = (rep + Q_HEADS - 1) / Q_HEADS, width = (a.head_dim + 31) / 32 * 32;
	size_t shared = (size_t)(Q_HEADS + 2 * TILE) * (width + PAD) * sizeof(uint16_t);
	void (*kernel)(struct attn_args) = a.part && a.apart && a.head_dim % 4 == 0 ? attention_splits<N> : attention_tiles<N>;
	if (shared > 32 << 10)
		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
	return launch(kernel, dim3(a.part ? a.splits : 1, a.kv_heads * groups, T), THREADS, shared, s, a);
}

static cudaError_t launch_many(struct attn_args a, int T, cudaStream_t s)
{
	int rep = a.heads / a.kv_heads, groups = (rep + Q_HEADS - 1) / Q_HEADS, shared = MANY_ELEMENTS * (int)sizeof(uint16_t);
	cudaError_t e = cudaFuncSetAttribute(attention_many_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
	return e != cudaSuccess ? e : launch(attention_many_tiles, dim3((T + TOKENS - 1) / TOKENS, a.kv_heads * groups), THREADS, shared, s, a, T);
}

cudaError_t launch_attention(struct attn_args a, int T, cudaStream_t s)
{
	if (!a.bf16)
		return launch_rows(a, T, s);
	if (!a.part && a.head_dim == CHANNELS && (uintptr_t)a.q % 16 == 0)
		return launch_many(a, T, s);
	return a.head_dim <= 128 ? launch_tiles<4>(a, T, s) : launch_tiles<8>(a, T, s);
}

cudaError_t launch_attention_merge(struct attn_args a, int T, cudaStream_t s)
{
	return launch(attention_merge_heads, dim3(a.heads, T), 128, 0, s, a);
}
