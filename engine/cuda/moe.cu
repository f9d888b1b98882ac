#include "launch.h"

#define MAX_EXPERTS 1024      /* 32 of each lane */

/* N sums over a warp at once, each with the bits of warp_sum: in every round a lane passes half of its values to its partner
 * and keeps the other half.  Lane's value i is then sum sum_of_lane(i). */
template <int N, int MASK = WARP / 2> __device__ static inline void warp_sums(float *v)
{
	bool high = threadIdx.x & MASK;
#pragma unroll
	for (int i = 0; i < N / 2; i++) {
		float keep = high ? v[i + N / 2] : v[i], give = high ? v[i] : v[i + N / 2];
		v[i] = keep + __shfl_xor_sync(FULL, give, MASK);
	}
	if constexpr (MASK > 1)
		warp_sums<N / 2, MASK / 2>(v);
}
template <int N> __device__ static inline int sum_of_lane(int i) { return threadIdx.x % WARP * (N / WARP) + i; }

/* logits[t,e] = gate[e] . x[t] in fp32.  A block owns up to 8 experts of up to 8 tokens, thread i the columns i, i + 256, ...
 * in ascending order; warps are added in order: fixed.  stream.cu adds in the same order. */
#define LOGIT_EXPERTS 8
#define LOGIT_TOKENS 8
__global__ void __launch_bounds__(ROUTE_THREADS, 2) route_logits_blocks(float *logits, const float *x, const float *gate, int E, int H, int T)
{
	constexpr int SUMS = LOGIT_TOKENS * LOGIT_EXPERTS;
	__shared__ float part[SUMS][ROUTE_THREADS / WARP];
	int e0 = blockIdx.x * LOGIT_EXPERTS, t0 = blockIdx.y * LOGIT_TOKENS;
	float sum[SUMS] = {}, g[LOGIT_EXPERTS], v[LOGIT_TOKENS];
	auto load = [&](int i) {
#pragma unroll
		for (int e = 0; e < LOGIT_EXPERTS; e++)
			g[e] = gate[(int64_t)min(e0 + e, E - 1) * H + i];
#pragma unroll
		for (int t = 0; t < LOGIT_TOKENS; t++)
			v[t] = x[(int64_t)min(t0 + t, T - 1) * H + i];
	};
	grid_release();
	grid_wait();
	if ((int)threadIdx.x < H)
		load(threadIdx.x);
#pragma unroll 1
	for (int i = threadIdx.x; i < H; i += ROUTE_THREADS) {
		float a[LOGIT_EXPERTS], b[LOGIT_TOKENS];
#pragma unroll
		for (int e = 0; e < LOGIT_EXPERTS; e++)
			a[e] = g[e];
#pragma unroll
		for (int t = 0; t < LOGIT_TOKENS; t++)
			b[t] = v[t];
		if (i + ROUTE_THREADS < H)
			load(i + ROUTE_THREADS);
#pragma unroll
		for (int k = 0; k < SUMS; k++)
			sum[k] = fmaf(a[k % LOGIT_EXPERTS], b[k / LOGIT_EXPERTS], sum[k]);
	}
	warp_sums<SUMS>(sum);
#pragma unroll
	for (int i = 0; i < SUMS / WARP; i++)
		part[sum_of_lane<SUMS>(i)][threadIdx.x / WARP] = sum[i];
	__syncthreads();
	int t = threadIdx.x / LOGIT_EXPERTS, e = threadIdx.x % LOGIT_EXPERTS;
	if (t >= LOGIT_TOKENS || t0 + t >= T || e0 + e >= E)
		return;
	float total = part[threadIdx.x][0];
	for (int i = 1; i < ROUTE_THREADS / WARP; i++)
		total += part[threadIdx.x][i];
	logits[(int64_t)(t0 + t) * E + e0 + e] = total;
}

/* The k experts of a token and their weights: see route_row.  A warp owns one token. */
__global__ void __launch_bounds__(WARP) route_tokens(int32_t *expert, float *weight, struct route_args a)
{
	extern __shared__ float shared[];
	grid_release();
	grid_wait();
	route_row(expert + (int64_t)blockIdx.x * a.k, weight + (int64_t)blockIdx.x * a.k, shared, a, blockIdx.x);
}

/* Entries by expert.  One block; integer atomics only: they order rows inside a tile, which no result depends on. */
__global__ void __launch_bounds__(1024) group_entries(struct expert_tile *tile, int *n_tiles, int32_t *entry,
						       const int32_t *expert, int E, int entries, int width)
{
	__shared__ int count[MAX_EXPERTS], next[MAX_EXPERTS];
	grid_release();
	grid_wait();
	for (int e = threadIdx.x; e < E; e += blockDim.x)
		count[e] = 0;
	__syncthreads();
	for (int i = threadIdx.x; i < entries; i += blockDim.x)
		atomicAdd(&count[expert[i]], 1);
	__syncthreads();
	if (threadIdx.x == 0) {
		int at = 0, n = 0;
		for (int e = 0; e < E; e++) {
			next[e] = at;
			for (int i = 0; i < count[e]; i += width)
				tile[n++] = { e, at + i, min(width, count[e] - i) };
			at += count[e];
		}
		*n_tiles = n;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < entries; i += blockDim.x)
		entry[atomicAdd(&next[expert[i]], 1)] = i;
}

/* y[t,c] = sum_i weight[t,i] x[t k + i, c], i ascending.  A thread owns one element. */
__global__ void expert_sum_rows(float *y, const float *x, const float *weight, int k, int X, int bf16)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x;
	int64_t t = blockIdx.y;
	grid_release();
	grid_wait();
	if (c >= X)
		return;
	float sum = 0;
	for (int i = 0; i < k; i++)
		sum = fmaf(weight[t * k + i], x[(t * k + i) * X + c], sum);
	y[t * X + c] = rounded(sum, bf16);
}

/* The same for columns that come in fours, of which a thread owns four. */
__global__ void expert_sum_quads(float4 *y, const float4 *x, const float *weight, int k, int X, int bf16)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x;
	int64_t t = blockIdx.y;
	grid_release();
	grid_wait();
	if (c >= X / 4)
		return;
	float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 6
	for (int i = 0; i < k; i++) {
		float w = weight[t * k + i];
		float4 v = x[(t * k + i) * (X / 4) + c];
		sum = make_float4(fmaf(w, v.x, sum.x), fmaf(w, v.y, sum.y), fmaf(w, v.z, sum.z), fmaf(w, v.w, sum.w));
	}
	y[t * (X / 4) + c] = rounded_quad(sum, bf16);
}

/* ---- launchers ---- */
cudaError_t launch_route_logits(float *logits, const float *x, const float *gate, int E, int H, int T, cudaStream_t s)
{
	return launch(route_logits_blocks, dim3((E + LOGIT_EXPERTS - 1) / LOGIT_EXPERTS, (T + LOGIT_TOKENS - 1) / LOGIT_TOKENS), ROUTE_THREADS, 0, s,
		      logits, x, gate, E, H, T);
}

cudaError_t launch_route(int32_t *expert, float *weight, struct route_args a, int T, cudaStream_t s)
{
	return launch(route_tokens, T, WARP, route_floats(a) * sizeof(float), s, expert, weight, a);
}

cudaError_t launch_group(struct expert_tile *tile, int *n_tiles, int32_t *entry, const int32_t *expert, int E,
			 int entries, int width, cudaStream_t s)
{
	return launch(group_entries, 1, 1024, 0, s, tile, n_tiles, entry, expert, E, entries, width);
}

cudaError_t launch_expert_sum(float *y, const float *x, const float *weight, int k, int X, int T, int bf16,
			      cudaStream_t s)
{
	if (X % 4 == 0)
		return launch(expert_sum_quads, dim3((X / 4 + 127) / 128, T), 128, 0, s, (float4 *)y, (const float4 *)x, weight, k, X, bf16);
	return launch(expert_sum_rows, dim3((X + 255) / 256, T), 256, 0, s, y, x, weight, k, X, bf16);
}
