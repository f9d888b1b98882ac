#include "launch.h"

#define MAX_EXPERTS 1024      /* 32 of each lane */

/* logits[t,e] = gate[e] . x[t] in fp32.  A warp owns one expert of one token, lane i the columns i, i + 32, ...; then
 * warp_sum: fixed. */
__global__ void __launch_bounds__(256) route_logits_warps(float *logits, const float *x, const float *gate, int E, int H)
{
	int e = blockIdx.x * 8 + threadIdx.x / WARP, lane = threadIdx.x % WARP;
	const float *xr = x + (int64_t)blockIdx.y * H, *w = gate + (int64_t)e * H;
	grid_release();
	grid_wait();
	if (e >= E)
		return;
	float sum = 0;
#pragma unroll 8
	for (int i = lane; i < H; i += WARP)
		sum = fmaf(w[i], xr[i], sum);
	sum = warp_sum(sum);
	if (lane == 0)
		logits[(int64_t)blockIdx.y * E + e] = sum;
}

struct best { float value; int index; };

/* The largest value of the warp, the lower index first among equals; -1 where a lane has none. */
__device__ static inline struct best warp_best(struct best b)
{
	for (int i = WARP / 2; i; i /= 2) {
		float v = __shfl_xor_sync(FULL, b.value, i);
		int j = __shfl_xor_sync(FULL, b.index, i);
		if (j >= 0 && (b.index < 0 || v > b.value || (v == b.value && j < b.index)))
			b.value = v, b.index = j;
	}
	return b;
}

/* The best of value[0..n) that `taken` (one bit for each of a lane's i = lane, lane + 32, ...) leaves; it becomes taken. */
__device__ static inline struct best take_best(const float *value, int n, uint32_t *taken)
{
	int lane = threadIdx.x;
	struct best b = { 0, -1 };
	for (int i = lane; i < n; i += WARP)
		if (!(*taken >> (i / WARP) & 1) && (b.index < 0 || value[i] > b.value))
			b.value = value[i], b.index = i;
	b = warp_best(b);
	if (b.index % WARP == lane)
		*taken |= 1u << (b.index / WARP);
	return b;
}

/* Choices outside the topk_group best groups become -inf; a group's score is the sum of its two best choices. */
__device__ static void limit_groups(float *choice, float *score, int E, int n_group, int topk_group)
{
	int lane = threadIdx.x, size = E / n_group;
	for (int g = lane; g < n_group; g += WARP) {
		float one = -INFINITY, two = -INFINITY;
		for (int i = g * size; i < (g + 1) * size; i++)
			if (choice[i] > one)
				two = one, one = choice[i];
			else if (choice[i] > two)
				two = choice[i];
		score[g] = size > 1 ? two + one : one;
	}
	__syncwarp();
	uint32_t kept = 0;
	for (int i = 0; i < topk_group; i++)
		take_best(score, n_group, &kept);
	__syncwarp();
	for (int g = lane; g < n_group; g += WARP)
		if (!(kept >> (g / WARP) & 1))
			for (int i = g * size; i < (g + 1) * size; i++)
				choice[i] = -INFINITY;
	__syncwarp();
}

/* s = sigmoid(logits); the k largest of s + bias, the lower index first; w = s (/ sum + 1e-20) * scaling.  A warp owns one
 * token; the sum runs over the chosen in their order: fixed. */
__global__ void __launch_bounds__(WARP) route_tokens(int32_t *expert, float *weight, const float *logits,
						      const float *bias, int E, int k, int n_group, int topk_group,
						      int norm, float scaling)
{
	extern __shared__ float shared[];
	float *s = shared, *choice = shared + E, *score = shared + 2 * E;
	int lane = threadIdx.x, t = blockIdx.x;
	grid_release();
	grid_wait();
	for (int e = lane; e < E; e += WARP) {
		s[e] = 1.0f / (1.0f + expf(-logits[(int64_t)t * E + e]));
		choice[e] = s[e] + bias[e];
	}
	__syncwarp();
	if (n_group > 1)
		limit_groups(choice, score, E, n_group, topk_group);
	uint32_t taken = 0;
	float sum = 0;
	for (int i = 0; i < k; i++) {
		struct best b = take_best(choice, E, &taken);
		sum += s[b.index];
		if (lane == 0)
			expert[(int64_t)t * k + i] = b.index;
	}
	__syncwarp();
	for (int i = lane; i < k; i += WARP) {
		float w = s[expert[(int64_t)t * k + i]];
		weight[(int64_t)t * k + i] = (norm ? w / (sum + 1e-20f) : w) * scaling;
	}
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
	return launch(route_logits_warps, dim3((E + 7) / 8, T), 256, 0, s, logits, x, gate, E, H);
}

cudaError_t launch_route(int32_t *expert, float *weight, const float *logits, const float *bias, int E, int k,
			 int n_group, int topk_group, int norm, float scaling, int T, cudaStream_t s)
{
	return launch(route_tokens, T, WARP, (2 * E + n_group) * sizeof(float), s, expert, weight, logits, bias, E, k,
		      n_group, topk_group, norm, scaling);
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
