#include "launch.h"

#define THREADS 1024

/* Larger key: larger logit, then lower id.  -0 counts as +0; NaN comes last, before the empty key 0. */
__device__ static inline uint64_t key_of(float x, int id)
{
	uint32_t u = __float_as_uint(x + 0.0f);
	u = x != x ? 1 : u & 0x80000000u ? ~u : u | 0x80000000u;
	return (uint64_t)u << 32 | (0xffffffffu - (uint32_t)id);
}
__device__ static inline int id_of(uint64_t key) { return (int)(0xffffffffu - (uint32_t)key); }

/* Sorts n keys (a power of two) in shared memory, largest first: bitonic. */
__device__ static void sort_keys(uint64_t *key, int n)
{
	for (int k = 2; k <= n; k *= 2)
		for (int j = k / 2; j; j /= 2) {
			__syncthreads();
			for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
				int a = 2 * i - (i & (j - 1)), b = a + j;
				uint64_t x = key[a], y = key[b];
				if ((x < y) == ((a & k) == 0))
					key[a] = y, key[b] = x;
			}
		}
	__syncthreads();
}

/* Sum over the block: a tree over threads, fixed. */
__device__ static double block_sum_double(double x, double *part)
{
	part[threadIdx.x] = x;
	for (int i = THREADS / 2; i; i /= 2) {
		__syncthreads();
		if (threadIdx.x < i)
			part[threadIdx.x] += part[threadIdx.x + i];
	}
	__syncthreads();
	return part[0];
}

/* The best 20 of a slice, its largest logit and the sum of exp(logit - largest) in double, and how many ids rank before the
 * given one.  A block owns one slice of one row, a thread the ids i and i + 1024. */
__global__ void __launch_bounds__(THREADS) head_slices(struct head_part *part, const float *logits, const int32_t *given, int V)
{
	__shared__ uint64_t key[HEAD_SLICE];
	__shared__ double sums[THREADS];
	int row = blockIdx.y, first = blockIdx.x * HEAD_SLICE, above = 0;
	const float *x = logits + (int64_t)row * V;
	struct head_part *out = part + (int64_t)row * gridDim.x + blockIdx.x;
	grid_wait();
	grid_release();
	int asked = given ? given[row] : -1;
	uint64_t bar = asked >= 0 ? key_of(x[asked], asked) : ~0ull;
	for (int i = threadIdx.x; i < HEAD_SLICE; i += THREADS) {
		key[i] = first + i < V ? key_of(x[first + i], first + i) : 0;
		above += key[i] > bar;
	}
	sort_keys(key, HEAD_SLICE);
	double max = x[id_of(key[0])], sum = 0;
	for (int i = threadIdx.x; i < HEAD_SLICE && first + i < V; i += THREADS)
		sum += exp(x[first + i] - max);
	sum = block_sum_double(sum, sums);
	int total = __syncthreads_count(above >= 1) + __syncthreads_count(above >= 2);
	if (threadIdx.x < TOP_N)
		out->key[threadIdx.x] = key[threadIdx.x];
	if (threadIdx.x == 0)
		out->max = max, out->sum = sum, out->above = total;
}

/* The slices of one row together: a block owns a row; partial sums are added in the order of the slices. */
__global__ void __launch_bounds__(THREADS) head_merge_rows(struct head_row *out, int32_t *next, const struct head_part *part,
							    const float *logits, const int32_t *given, int V, int parts,
							    int n)
{
	extern __shared__ uint64_t keys[];
	int row = blockIdx.x;
	grid_wait();
	grid_release();
	part += (int64_t)row * parts;
	for (int i = threadIdx.x; i < n; i += THREADS)
		keys[i] = i < parts * TOP_N ? part[i / TOP_N].key[i % TOP_N] : 0;
	sort_keys(keys, n);
	const float *x = logits + (int64_t)row * V;
	if (threadIdx.x < TOP_N && threadIdx.x < V) {
		out[row].top_id[threadIdx.x] = id_of(keys[threadIdx.x]);
		out[row].top_logit[threadIdx.x] = x[id_of(keys[threadIdx.x])];
	}
	if (threadIdx.x)
		return;
	double max = x[id_of(keys[0])], sum = 0;
	int above = 0;
	for (int i = 0; i < parts; i++) {
		sum += part[i].sum * exp(part[i].max - max);
		above += part[i].above;
	}
	int asked = given ? given[row] : -1;
	out[row].lse = max + log(sum);
	out[row].given_rank = asked >= 0 ? above + 1 : 0;
	out[row].given_logit = asked >= 0 ? x[asked] : 0.0f;
	next[row] = id_of(keys[0]);
}

/* ---- launchers ---- */
cudaError_t launch_head_slice(struct head_part *part, const float *logits, const int32_t *given, int V, int rows,
			      cudaStream_t s)
{
	return launch(head_slices, dim3((V + HEAD_SLICE - 1) / HEAD_SLICE, rows), THREADS, 0, s, part, logits, given, V);
}

/* At most 4,096 candidates: vocabularies up to 204 slices. */
cudaError_t launch_head_merge(struct head_row *out, int32_t *next, const struct head_part *part, const float *logits,
			      const int32_t *given, int V, int rows, cudaStream_t s)
{
	int parts = (V + HEAD_SLICE - 1) / HEAD_SLICE, n = 32;
	while (n < parts * TOP_N)
		n *= 2;
	return launch(head_merge_rows, rows, THREADS, n * sizeof(uint64_t), s, out, next, part, logits, given, V, parts, n);
}
