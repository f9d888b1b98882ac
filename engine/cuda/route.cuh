/* The router's choice for one token (docs/model.md, 3.6 steps 2 to 7), by one warp; launch.h brings it in. */
#ifndef ASSAY_ENGINE_CUDA_ROUTE_CUH
#define ASSAY_ENGINE_CUDA_ROUTE_CUH

struct best { float value; int index; };

/* The largest value of the warp, the lower index first among equals; -1 where a lane has none. */
__device__ inline struct best warp_best(struct best b)
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
__device__ inline struct best take_best(const float *value, int n, uint32_t *taken)
{
	int lane = threadIdx.x % WARP;
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
__device__ inline void limit_groups(float *choice, float *score, const struct route_args &a)
{
	int lane = threadIdx.x % WARP, size = a.E / a.n_group;
	for (int g = lane; g < a.n_group; g += WARP) {
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
	for (int i = 0; i < a.topk_group; i++)
		take_best(score, a.n_group, &kept);
	__syncwarp();
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
	float *s = shared, *choice = shared + a.E, *score = shared + 2 * a.E;
	int lane = threadIdx.x % WARP;
	for (int e = lane; e < a.E; e += WARP) {
		s[e] = 1.0f / (1.0f + expf(-__ldcg(a.logits + (int64_t)t * a.E + e)));
		choice[e] = s[e] + a.bias[e];
	}
	__syncwarp();
	if (a.n_group > 1)
		limit_groups(choice, score, a);
	uint32_t taken = 0;
	float sum = 0;
	for (int i = 0; i < a.k; i++) {
		struct best b = take_best(choice, a.E, &taken);
		sum += s[b.index];
		if (lane == 0)
			expert[i] = b.index;
	}
	__syncwarp();
	for (int i = lane; i < a.k; i += WARP) {
		float w = s[expert[i]];
		weight[i] = (a.norm ? w / (sum + 1e-20f) : w) * a.scaling;
	}
	__syncwarp();
}

#endif
