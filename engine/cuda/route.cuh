/* The router's choice for one token (docs/model.md, 3.6 steps 2 to 7), by one warp; launch.h brings it in. */
#ifndef ASSAY_ENGINE_CUDA_ROUTE_CUH
#define ASSAY_ENGINE_CUDA_ROUTE_CUH

/* A float as an integer of the same order; 0 for none.  NaN comes last. */
__device__ inline uint32_t order_of(float x)
{
	uint32_t u = __float_as_uint(x + 0.0f);
	return x != x ? 1 : u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* Takes the largest of order[0..n) in shared memory, the lower index first among equals; it becomes 0. */
__device__ inline int take_best(uint32_t *order, int n)
{
	int lane = threadIdx.x % WARP, at = 0;
	uint32_t best = 0;
#pragma unroll 1
	for (int i = lane; i < n; i += WARP)
		if (order[i] > best)
			best = order[i], at = i;
	uint32_t top = __reduce_max_sync(FULL, best);
	int index = (int)__reduce_min_sync(FULL, best == top ? (uint32_t)at : 0xffffffffu);
	if (lane == 0)
		order[index] = 0;
	__syncwarp();
	return index;
}

/* Choices outside the topk_group best groups become -inf; a group's score is the sum of its two best choices. */
__device__ inline void limit_groups(float *choice, uint32_t *score, const struct route_args &a)
{
	int lane = threadIdx.x % WARP, size = a.E / a.n_group;
	uint32_t kept = 0;
	for (int g = lane; g < a.n_group; g += WARP) {
		float one = -INFINITY, two = -INFINITY;
		for (int i = g * size; i < (g + 1) * size; i++)
			if (choice[i] > one)
				two = one, one = choice[i];
			else if (choice[i] > two)
				two = choice[i];
		score[g] = order_of(size > 1 ? two + one : one);
	}
	__syncwarp();
	for (int i = 0; i < a.topk_group; i++) {
		int g = take_best(score, a.n_group);
		kept |= g % WARP == lane ? 1u << g / WARP : 0;
	}
	for (int g = lane; g < a.n_group; g += WARP)
		if (!(kept >> (g / WARP) & 1))
			for (int i = g * size; i < (g + 1) * size; i++)
				choice[i] = -INFINITY;
	__syncwarp();
}

/* Floats of shared memory that a token needs. */
__device__ __host__ inline int route_floats(const struct route_args &a) { return 2 * a.E + a.n_group; }

/* s = sigmoid(logits); the k largest of s + bias, the lower index first; w = s (/ sum + 1e-20) * scaling.  The sum runs over
 * the chosen in their order: fixed.  Both results may lie in any memory that the warp sees. */
__device__ inline void route_row(int32_t *expert, float *weight, float *shared, const struct route_args &a, int t)
{
	float *s = shared, *choice = shared + a.E, sum = 0;
	uint32_t *order = (uint32_t *)choice;
	int lane = threadIdx.x % WARP;
#pragma unroll 1
	for (int e = lane; e < a.E; e += 4 * WARP) {
		float logit[4], bias[4];
#pragma unroll
		for (int j = 0; j < 4; j++) {
			bool is = e + j * WARP < a.E;
			logit[j] = is ? __ldcg(a.logits + (int64_t)t * a.E + e + j * WARP) : 0.0f;
			bias[j] = is ? __ldg(a.bias + e + j * WARP) : 0.0f;
		}
#pragma unroll
		for (int j = 0; j < 4; j++)
			if (e + j * WARP < a.E) {
				s[e + j * WARP] = 1.0f / (1.0f + expf(-logit[j]));
				choice[e + j * WARP] = s[e + j * WARP] + bias[j];
			}
	}
	__syncwarp();
	if (a.n_group > 1)
		limit_groups(choice, (uint32_t *)shared + 2 * a.E, a);
#pragma unroll 1
	for (int e = lane; e < a.E; e += WARP)
		order[e] = order_of(choice[e]);
	__syncwarp();
#pragma unroll 1
	for (int i = 0; i < a.k; i++) {
		int e = take_best(order, a.E);
		sum += s[e];
		if (lane == 0)
			expert[i] = e;
	}
	__syncwarp();
	for (int i = lane; i < a.k; i += WARP) {
		float w = s[expert[i]];
		weight[i] = (a.norm ? w / (sum + 1e-20f) : w) * a.scaling;
	}
	__syncwarp();
}

#endif
