#include "launch.h"

/* Grouped-query attention over the cache (docs/model.md, 3.4).  Positions are taken in splits of ATTN_SPLIT, each in tiles
 * of 64 with a running maximum; the splits are merged in ascending order by `merge`, in the same arithmetic whether
 * one block takes them all (many rows) or one block each (few rows).  So a row's result depends on its position alone. */

#define TILE 64
#define THREADS 128
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
				a.y[((int64_t)b.t * a.heads + b.h0 + h) * hd + d] = rounded(O[h][w] / L[h], a.bf16);
				continue;
			}
			float *to = a.part + (((int64_t)b.t * a.splits + first) * a.heads + b.h0 + h) * (hd + 2);
			to[d] = O[h][w];
			if (d == 0)
				to[hd] = M[h], to[hd + 1] = L[h];
		}
}

/* The splits of one row and head, in ascending order.  A thread owns one channel. */
__global__ void attention_merge_heads(struct attn_args a)
{
	int h = blockIdx.x, t = blockIdx.y, hd = a.head_dim;
	grid_release();
	grid_wait();
	int n = a.pos[t] + 1;
	for (int d = threadIdx.x; d < hd; d += blockDim.x) {
		float M = -INFINITY, L = 0, O = 0;
		for (int s = 0; s < a.splits && s * ATTN_SPLIT < n; s++) {
			const float *from = a.part + (((int64_t)t * a.splits + s) * a.heads + h) * (hd + 2);
			merge<1>(&M, &L, &O, from[hd], from[hd + 1], from + d);
		}
		a.y[((int64_t)t * a.heads + h) * hd + d] = rounded(O / L, a.bf16);
	}
}

/* ---- launchers ---- */
cudaError_t launch_kv_append(struct attn_args a, int T, cudaStream_t s)
{
	return launch(kv_append_rows, dim3((a.kv_heads * a.head_dim + 255) / 256, T), 256, 0, s, a);
}

cudaError_t launch_attention(struct attn_args a, int T, cudaStream_t s)
{
	int rep = a.heads / a.kv_heads, groups = (rep + ATTN_HEADS - 1) / ATTN_HEADS;
	size_t shared = ((size_t)ATTN_HEADS * a.head_dim + TILE * (a.head_dim + 1)) * sizeof(float);
	if (shared > 40 << 10)
		cudaFuncSetAttribute(attention_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
	return launch(attention_rows, dim3(T, a.kv_heads * groups, a.part ? a.splits : 1), THREADS, shared, s, a);
}

cudaError_t launch_attention_merge(struct attn_args a, int T, cudaStream_t s)
{
	return launch(attention_merge_heads, dim3(a.heads, T), 128, 0, s, a);
}
