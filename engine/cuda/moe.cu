#include "launch.h"

#define MAX_EXPERTS 1024      /* 32 of each lane */

/* logits[t,e] = gate[e] . x[t] in fp32.  A block owns up to 8 experts of up to 8 tokens, thread i the columns i, i + 256, ...
 * in ascending order; warps are added in order: fixed.  stream.cu adds in the same order. */
#define LOGIT_EXPERTS 8
#define LOGIT_TOKENS 8
__global__ void __launch_bounds__(ROUTE_THREADS) route_logits_blocks(float *logits, const float *x, const float *gate, int E, int H, int T)
{
	__shared__ float part[LOGIT_TOKENS][LOGIT_EXPERTS][ROUTE_THREADS / WARP];
	int e0 = blockIdx.x * LOGIT_EXPERTS, t0 = blockIdx.y * LOGIT_TOKENS;
	float sum[LOGIT_TOKENS][LOGIT_EXPERTS] = {};
	grid_release();
	grid_wait();
#pragma unroll 1
	for (int i = threadIdx.x; i < H; i += ROUTE_THREADS) {
		float g[LOGIT_EXPERTS];
#pragma unroll
		for (int e = 0; e < LOGIT_EXPERTS; e++)
			g[e] = gate[(int64_t)min(e0 + e, E - 1) * H + i];
#pragma unroll
		for (int t = 0; t < LOGIT_TOKENS; t++) {
			float v = x[(int64_t)min(t0 + t, T - 1) * H + i];
#pragma unroll
			for (int e = 0; e < LOGIT_EXPERTS; e++)
				sum[t][e] = fmaf(g[e], v, sum[t][e]);
		}
	}
#pragma unroll
	for (int t = 0; t < LOGIT_TOKENS; t++)
#pragma unroll
		for (int e = 0; e < LOGIT_EXPERTS; e++) {
			float v = warp_sum(sum[t][e]);
			if (threadIdx.x % WARP == 0)
				part[t][e][threadIdx.x / WARP] = v;
		}
	__syncthreads();
	int t = threadIdx.x / LOGIT_EXPERTS, e = threadIdx.x % LOGIT_EXPERTS;
	if (t >= LOGIT_TOKENS || t0 + t >= T || e0 + e >= E)
		return;
	float v = part[t][e][0];
	for (int i = 1; i < ROUTE_THREADS / WARP; i++)
		v += part[t][e][i];
	logits[(int64_t)(t0 + t) * E + e0 + e] = v;
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
	return launch(expert_sum_rows, dim3((X + 255) / 256, T), 256, 0, s, y, x, weight, k, X, bf16);
}
