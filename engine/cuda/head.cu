#include "launch.h"

#define THREADS 256
#define WARPS (THREADS / WARP)

/* The best candidate of the warp; order 0: none. */
__device__ static inline struct candidate warp_best_of(struct candidate c)
{
	struct candidate best;
	best.order = __reduce_max_sync(FULL, c.order);
	best.id = __reduce_min_sync(FULL, c.order == best.order ? c.id : 0xffffffffu);
	return best;
}

/* The best TOP_N of the warp's 32 N logits, best first, to out.  order[j] of a lane has id first + j * stride. */
template <int N>
__device__ static void warp_top(struct candidate *out, uint32_t order[N], uint32_t first, uint32_t stride)
{
#pragma unroll 1
	for (int i = 0; i < TOP_N; i++) {
		struct candidate c = { 0, 0 };
#pragma unroll
		for (int j = 0; j < N; j++)
			if (order[j] > c.order)
				c.order = order[j], c.id = first + j * stride;
		struct candidate best = warp_best_of(c);
#pragma unroll
		for (int j = 0; j < N; j++)
			if (first + j * stride == best.id)
				order[j] = 0;
		if (threadIdx.x % WARP == 0)
			out[i] = best;
	}
}

/* The best TOP_N of n lists of TOP_N, each best first; by one warp, a lane has the lists lane, lane + 32, ... */
__device__ static void merge_lists(struct candidate *out, const struct candidate *list, int n)
{
	constexpr int EACH = (HEAD_PARTS + WARP - 1) / WARP;
	uint8_t at[EACH] = {};
#pragma unroll 1
	for (int i = 0; i < TOP_N; i++) {
		struct candidate c = { 0, 0 };
		int from = 0;
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			int k = j * WARP + threadIdx.x;
			if (k >= n)
				break;
			struct candidate head = at[j] < TOP_N ? list[k * TOP_N + at[j]] : (struct candidate){ 0, 0 };
			if (head.order > c.order || (head.order == c.order && head.id < c.id))
				c = head, from = j;
		}
		struct candidate best = warp_best_of(c);
#pragma unroll
		for (int j = 0; j < EACH; j++)
			if (j == from && c.order && c.order == best.order && c.id == best.id)
				at[j]++;
		if (threadIdx.x == 0)
			out[i] = best;
	}
}

/* Sum over the block: a tree over threads, fixed. */
template <typename S> __device__ static S block_total(S x, S *part)
{
	part[threadIdx.x] = x;
	for (int i = THREADS / 2; i; i /= 2) {
		__syncthreads();
		if ((int)threadIdx.x < i)
			part[threadIdx.x] += part[threadIdx.x + i];
	}
	__syncthreads();
	return part[0];
}

/* The best 20 of a slice, its largest logit and the sum of exp(logit - largest) in double, and how many ids rank before the
 * given one.  A block owns one slice of one row, a thread the ids i, i + 256, ... */
__global__ void __launch_bounds__(THREADS) head_slices(struct head_part *part, const float *logits, const int32_t *given, int V)
{
	constexpr int EACH = HEAD_SLICE / THREADS;
	__shared__ struct candidate lists[WARPS * TOP_N];
	__shared__ double sums[THREADS];
	__shared__ int counts[THREADS];
	int row = blockIdx.y, first = blockIdx.x * HEAD_SLICE + threadIdx.x, above = 0;
	const float *x = logits + (int64_t)row * V;
	struct head_part *out = part + (int64_t)row * gridDim.x + blockIdx.x;
	uint32_t order[EACH];
	float v[EACH];
	grid_release();
	grid_wait();
	int asked = given ? given[row] : -1;
	uint32_t bar = asked >= 0 ? order_of(x[asked]) : 0xffffffffu;
#pragma unroll
	for (int j = 0; j < EACH; j++)
		v[j] = first + j * THREADS < V ? x[first + j * THREADS] : -INFINITY;
#pragma unroll
	for (int j = 0; j < EACH; j++) {
		order[j] = first + j * THREADS < V ? order_of(v[j]) : 0;
		above += order[j] > bar || (order[j] == bar && first + j * THREADS < asked);
	}
	warp_top<EACH>(lists + threadIdx.x / WARP * TOP_N, order, first, THREADS);
	__syncthreads();
	if (threadIdx.x < WARP)
		merge_lists(out->top, lists, WARPS);
	struct candidate best = lists[0];
	for (int w = 1; w < WARPS; w++)
		if (lists[w * TOP_N].order > best.order)
			best = lists[w * TOP_N];
	double max = x[best.id], sum = 0;
#pragma unroll
	for (int j = 0; j < EACH; j++)
		if (first + j * THREADS < V)
			sum += exp(v[j] - max);
	sum = block_total(sum, sums);
	above = block_total(above, counts);
	if (threadIdx.x == 0)
		out->max = max, out->sum = sum, out->above = above;
}

/* The slices of one row together: a block owns a row; partial sums are added in a tree over the slices: fixed. */
__global__ void __launch_bounds__(THREADS) head_merge_rows(struct head_row *out, int32_t *next, const struct head_part *part,
							    const float *logits, const int32_t *given, int V, int parts)
{
	extern __shared__ struct candidate lists[];
	__shared__ struct candidate top[TOP_N];
	__shared__ double sums[THREADS];
	__shared__ int counts[THREADS];
	int row = blockIdx.x, above = 0;
	const float *x = logits + (int64_t)row * V;
	grid_release();
	grid_wait();
	part += (int64_t)row * parts;
#pragma unroll 4
	for (int i = threadIdx.x; i < parts * TOP_N; i += THREADS)
		lists[i] = part[i / TOP_N].top[i % TOP_N];
	__syncthreads();
	if (threadIdx.x < WARP)
		merge_lists(top, lists, parts);
	__syncthreads();
	if (threadIdx.x < TOP_N && (int)threadIdx.x < V) {
		out[row].top_id[threadIdx.x] = (int32_t)top[threadIdx.x].id;
		out[row].top_logit[threadIdx.x] = x[top[threadIdx.x].id];
	}
	double max = x[top[0].id], sum = 0;
	if ((int)threadIdx.x < parts) {
		sum = part[threadIdx.x].sum * exp(part[threadIdx.x].max - max);
		above = part[threadIdx.x].above;
	}
	sum = block_total(sum, sums);
	above = block_total(above, counts);
	if (threadIdx.x)
		return;
	int asked = given ? given[row] : -1;
	out[row].lse = max + log(sum);
	out[row].given_rank = asked >= 0 ? above + 1 : 0;
	out[row].given_logit = asked >= 0 ? x[asked] : 0.0f;
	next[row] = (int32_t)top[0].id;
}

/* ---- launchers ---- */
cudaError_t launch_head_slice(struct head_part *part, const float *logits, const int32_t *given, int V, int rows,
			      cudaStream_t s)
{
	return launch(head_slices, dim3((V + HEAD_SLICE - 1) / HEAD_SLICE, rows), THREADS, 0, s, part, logits, given, V);
}

/* At most HEAD_PARTS slices. */
cudaError_t launch_head_merge(struct head_row *out, int32_t *next, const struct head_part *part, const float *logits,
			      const int32_t *given, int V, int rows, cudaStream_t s)
{
	int parts = (V + HEAD_SLICE - 1) / HEAD_SLICE;
	return launch(head_merge_rows, rows, THREADS, parts * TOP_N * sizeof(struct candidate), s, out, next, part, logits,
		      given, V, parts);
}
