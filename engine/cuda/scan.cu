#include "launch.h"
#include "scan.cuh"

/* Chunked SSD (docs/model.md, 3.3.2) in three kernels: what each chunk adds to the state, the states between chunks, the
 * outputs.  All products run over tiles of 64 x 64 with fp32 sums in ascending order of the inner index: fixed.  Under compute:
 * bf16 the first and the last are ssd.cu's where the shapes allow. */

#define SIDE 64               /* of an output tile */
#define DEEP 16               /* inner indices staged together */
#define THREADS 256           /* each owns 4 x 4 outputs */

/* d[i] = clamp(softplus(dt + bias)) and cs[i] = sum of A d up to i, for the chunk's tokens of head h; ends in a barrier. */
__device__ static void chunk_decay(float *d, float *cs, const struct ssm_args &a, struct chunk k, int h)
{
	for (int i = threadIdx.x; i < k.length; i += THREADS)
		d[i] = time_step(a, k, i, h);
	__syncthreads();
	if (threadIdx.x == 0) {
		float sum = 0;
		for (int i = 0; i < k.length; i++)
			cs[i] = sum += a.A[h] * d[i];
	}
	__syncthreads();
}

/* acc[4][4] += sum_k A(i, k) B(k, j) over a 64 x 64 tile; thread t owns rows 4 (t / 16) .. + 3, columns 4 (t % 16) .. + 3.
 * A and B are called with indices that may lie outside their ranges and return 0 there.  ROWS_A, ROWS_B: neighbours in memory
 * differ in the outer index, else in k. */
#define LD (SIDE + 4)
template <bool ROWS_A, bool ROWS_B, typename FA, typename FB>
__device__ static inline void tile_product(float acc[4][4], float (*sa)[LD], float (*sb)[LD], int K, FA A, FB B)
{
	int i0 = threadIdx.x / 16 * 4, j0 = threadIdx.x % 16 * 4;
	for (int k0 = 0; k0 < K; k0 += DEEP) {
		float a[SIDE * DEEP / THREADS], b[SIDE * DEEP / THREADS];
#pragma unroll
		for (int e = 0; e < SIDE * DEEP / THREADS; e++) {
			int at = threadIdx.x + e * THREADS, ka = k0 + (ROWS_A ? at / SIDE : at % DEEP), kb = k0 + (ROWS_B ? at / SIDE : at % DEEP);
			a[e] = ka < K ? A(ROWS_A ? at % SIDE : at / DEEP, ka) : 0.0f;
			b[e] = kb < K ? B(kb, ROWS_B ? at % SIDE : at / DEEP) : 0.0f;
		}
		__syncthreads();
#pragma unroll
		for (int e = 0; e < SIDE * DEEP / THREADS; e++) {
			int at = threadIdx.x + e * THREADS;
			(ROWS_A ? sa[at / SIDE][at % SIDE] : sa[at % DEEP][at / DEEP]) = a[e];
			(ROWS_B ? sb[at / SIDE][at % SIDE] : sb[at % DEEP][at / DEEP]) = b[e];
		}
		__syncthreads();
#pragma unroll
		for (int k = 0; k < DEEP; k++) {
			float4 x = *(const float4 *)&sa[k][i0], y = *(const float4 *)&sb[k][j0];
			const float xs[4] = { x.x, x.y, x.z, x.w }, ys[4] = { y.x, y.y, y.z, y.w };
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 4; j++)
					acc[i][j] = fmaf(xs[i], ys[j], acc[i][j]);
		}
	}
}

/* states[c][h][p][n] = sum_i x_i[p] * rounded(B_i[n] * exp(min(cs_last - cs_i, 0)) * d_i); sums[c][h] = cs_last.
 * A block owns 64 x 64 of one head's state for one chunk. */
__global__ void __launch_bounds__(THREADS, 3) ssm_chunk_states(struct ssm_args a, struct scan_args c)
{
	extern __shared__ float shared[];
	__shared__ __align__(16) float sa[DEEP][LD], sb[DEEP][LD];
	float *d = shared, *cs = shared + c.Q, acc[4][4] = {};
	int P = a.head_dim, N = a.state_size, tiles = (N + SIDE - 1) / SIDE, h = blockIdx.x;
	int p0 = blockIdx.z / tiles * SIDE, n0 = blockIdx.z % tiles * SIDE;
	struct chunk k = chunk_at(c, blockIdx.y);
	grid_release();
	grid_wait();
	chunk_decay(d, cs, a, k, h);
	const float *x = a.u + (int64_t)k.start * a.ldu + h * P;
	const float *B = a.u + (int64_t)k.start * a.ldu + a.heads * P + h / (a.heads / a.groups) * N;
	float last = cs[k.length - 1];
	for (int i = threadIdx.x; i < k.length; i += THREADS)        /* each thread's own: d is its decayed weight from here on */
		d[i] = expf(fminf(last - cs[i], 0.0f)) * d[i];
	__syncthreads();
	tile_product<true, true>(acc, sa, sb, k.length,
		     [&](int p, int i) { return p0 + p < P ? x[(int64_t)i * a.ldu + p0 + p] : 0.0f; },
		     [&](int i, int n) {
			     return n0 + n < N ? rounded(B[(int64_t)i * a.ldu + n0 + n] * d[i], a.bf16) : 0.0f;
		     });
	float *to = c.states + ((int64_t)blockIdx.y * a.heads + h) * P * N;
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			int p = p0 + threadIdx.x / 16 * 4 + i, n = n0 + threadIdx.x % 16 * 4 + j;
			if (p < P && n < N)
				to[(int64_t)p * N + n] = acc[i][j];
		}
	if (threadIdx.x == 0 && blockIdx.z == 0)
		c.sums[(int64_t)blockIdx.y * a.heads + h] = last;
}

/* S_c = exp(cs_last) S_{c-1} + T_c in fp32 from the carried state; states[c] becomes S_{c-1}, the last S the new state.  A
 * thread owns one element of the state through all chunks, PASSED of which it loads together. */
#define PASSED 8
__global__ void ssm_chunk_pass(struct ssm_args a, struct scan_args c)
{
	int64_t size = (int64_t)a.heads * a.head_dim * a.state_size, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	grid_release();
	grid_wait();
	if (i >= size)
		return;
	int h = (int)(i / (a.head_dim * a.state_size));
	float S = load_as_float(a.state, i, a.kind);
	for (int k0 = 0; k0 < c.chunks; k0 += PASSED) {
		float add[PASSED], sum[PASSED];
#pragma unroll
		for (int k = 0; k < PASSED; k++)
			if (k0 + k < c.chunks)
				add[k] = c.states[(k0 + k) * size + i], sum[k] = c.sums[(k0 + k) * a.heads + h];
#pragma unroll
		for (int k = 0; k < PASSED; k++)
			if (k0 + k < c.chunks) {
				c.states[(k0 + k) * size + i] = S;
				S = fmaf(expf(sum[k]), S, add[k]);
			}
	}
	store_from_float(a.state, i, S, a.kind);
}

/* y_i = (C_i . rounded(S_prev)) exp(cs_i) + sum_{j <= i} rounded(C_i . B_j exp(min(cs_i - cs_j, 0)) d_j) x_j + D x_i.
 * A block owns 64 tokens of a chunk and 64 channels of a head. */
__global__ void __launch_bounds__(THREADS, 2) ssm_chunk_out(struct ssm_args a, struct scan_args c)
{
	extern __shared__ float shared[];
	__shared__ __align__(16) float sa[DEEP][LD], sb[DEEP][LD], W[SIDE][SIDE + 1];
	float *d = shared, *cs = shared + c.Q, acc[4][4] = {};
	int P = a.head_dim, N = a.state_size, tiles = (P + SIDE - 1) / SIDE, h = blockIdx.x, ldu = a.ldu;
	int i0 = blockIdx.z / tiles * SIDE, p0 = blockIdx.z % tiles * SIDE, ti = threadIdx.x / 16 * 4, tj = threadIdx.x % 16 * 4;
	struct chunk k = chunk_at(c, blockIdx.y);
	grid_release();
	grid_wait();
	if (i0 >= k.length)
		return;
	chunk_decay(d, cs, a, k, h);
	const float *x = a.u + (int64_t)k.start * ldu + h * P;
	const float *B = a.u + (int64_t)k.start * ldu + a.heads * P + h / (a.heads / a.groups) * N, *C = B + a.groups * N;
	const float *S = c.states + ((int64_t)blockIdx.y * a.heads + h) * P * N;
	auto Ci = [&](int i, int n) { return i0 + i < k.length ? C[(int64_t)(i0 + i) * ldu + n] : 0.0f; };
	tile_product<false, false>(acc, sa, sb, N, Ci, [&](int n, int p) {
		return p0 + p < P ? rounded(S[(int64_t)(p0 + p) * N + n], a.bf16) : 0.0f; });
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++)
			acc[i][j] *= i0 + ti + i < k.length ? expf(cs[i0 + ti + i]) : 0.0f;
	for (int j0 = 0; j0 <= i0; j0 += SIDE) {
		float cb[4][4] = {};
		tile_product<false, false>(cb, sa, sb, N, Ci, [&](int n, int j) {
			return j0 + j < k.length ? B[(int64_t)(j0 + j) * ldu + n] : 0.0f; });
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++) {
				int t = i0 + ti + i, s = j0 + tj + j;
				W[ti + i][tj + j] = t < k.length && s <= t ?
					rounded(cb[i][j] * (expf(fminf(cs[t] - cs[s], 0.0f)) * d[s]), a.bf16) : 0.0f;
			}
		__syncthreads();
		tile_product<false, true>(acc, sa, sb, min(SIDE, k.length - j0), [&](int i, int j) { return W[i][j]; },
			     [&](int j, int p) { return p0 + p < P ? x[(int64_t)(j0 + j) * ldu + p0 + p] : 0.0f; });
	}
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			int t = i0 + ti + i, p = p0 + tj + j;
			if (t < k.length && p < P)
				a.y[((int64_t)(k.start + t) * a.heads + h) * P + p] =
					rounded(fmaf(a.D[h], x[(int64_t)t * ldu + p], acc[i][j]), a.bf16);
		}
}

/* All three for a scan of one token, bit-equal to them (to those of ssd.cu: to rounding): the state is read and written once.
 * A block owns 32 channels of a head; a warp passes on rows of the state, then each lane of the first sums one output. */
#define TOKEN_CHANNELS 32
#define TOKEN_THREADS 128
__global__ void __launch_bounds__(TOKEN_THREADS) ssm_chunk_out_token(struct ssm_args a)
{
	extern __shared__ float shared[];
	int P = a.head_dim, N = a.state_size, ld = N + 1, tiles = (P + TOKEN_CHANNELS - 1) / TOKEN_CHANNELS, h = blockIdx.x / tiles;
	int p0 = blockIdx.x % tiles * TOKEN_CHANNELS, lane = threadIdx.x % WARP, p = p0 + lane;
	float *old = shared, *B = shared + TOKEN_CHANNELS * ld, *C = B + N;
	const float *x = a.u + h * P, *from = a.u + a.heads * P + h / (a.heads / a.groups) * N;
	grid_release();
	grid_wait();
	float d = fminf(fmaxf(softplus(a.dt[h] + a.dt_bias[h]), a.lo), a.hi), cs = a.A[h] * d, decay = expf(cs);
	for (int n = threadIdx.x; n < N; n += TOKEN_THREADS)
		B[n] = from[n], C[n] = from[a.groups * N + n];
	for (int r = threadIdx.x / WARP; r < TOKEN_CHANNELS && p0 + r < P; r += TOKEN_THREADS / WARP)
#pragma unroll 4
		for (int n = lane; n < N; n += WARP) {
			int64_t at = ((int64_t)h * P + p0 + r) * N + n;
			float S = load_as_float(a.state, at, a.kind);
			old[r * ld + n] = rounded(S, a.bf16);
			store_from_float(a.state, at, fmaf(decay, S, x[p0 + r] * rounded(from[n] * d, a.bf16)), a.kind);
		}
	__syncthreads();
	if (threadIdx.x >= WARP || p >= P)
		return;
	float acc = 0, cb = 0;
#pragma unroll 8
	for (int n = 0; n < N; n++) {
		acc = fmaf(C[n], old[lane * ld + n], acc);
		cb = fmaf(C[n], B[n], cb);
	}
	acc = fmaf(rounded(cb * d, a.bf16), x[p], acc * decay);
	a.y[h * P + p] = rounded(fmaf(a.D[h], x[p], acc), a.bf16);
}

/* ---- launchers ---- */
static unsigned tiles_of(int n) { return (unsigned)((n + SIDE - 1) / SIDE); }

cudaError_t launch_ssm_chunk_state(struct ssm_args a, struct scan_args c, cudaStream_t s)
{
	if (ssd_fits(a, c))
		return launch_ssd_states(a, c, s);
	return launch(ssm_chunk_states, dim3(a.heads, c.chunks, tiles_of(a.head_dim) * tiles_of(a.state_size)), THREADS,
		      2 * c.Q * sizeof(float), s, a, c);
}

cudaError_t launch_ssm_chunk_pass(struct ssm_args a, struct scan_args c, cudaStream_t s)
{
	int64_t size = (int64_t)a.heads * a.head_dim * a.state_size;
	return launch(ssm_chunk_pass, (unsigned)((size + 255) / 256), 256, 0, s, a, c);
}

cudaError_t launch_ssm_chunk_out(struct ssm_args a, struct scan_args c, cudaStream_t s)
{
	int longest = c.T < c.Q ? c.T : c.Q;
	if (ssd_fits(a, c))
		return launch_ssd_out(a, c, s);
	return launch(ssm_chunk_out, dim3(a.heads, c.chunks, tiles_of(longest) * tiles_of(a.head_dim)), THREADS,
		      2 * c.Q * sizeof(float), s, a, c);
}

cudaError_t launch_ssm_chunk_token(struct ssm_args a, cudaStream_t s)
{
	unsigned tiles = (unsigned)((a.head_dim + TOKEN_CHANNELS - 1) / TOKEN_CHANNELS);
	size_t shared = (TOKEN_CHANNELS * (a.state_size + 1) + 2 * a.state_size) * sizeof(float);
	return launch(ssm_chunk_out_token, a.heads * tiles, TOKEN_THREADS, shared, s, a);
}
