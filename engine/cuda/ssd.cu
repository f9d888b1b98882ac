#include "launch.h"
#include "matrix.cuh"
#include "scan.cuh"

/* Chunked SSD under compute: bf16 (docs/model.md, 3.3.2): every operand of its products is a bf16 number, so they run on
 * tensor cores with fp32 sums, 16 inner indices an mma, ascending: fixed.  Chunks of up to 128 tokens, states of up to 128
 * columns; the rest is scan.cu's. */

#define TOKENS 128            /* of a block */
#define CHANNELS 64           /* of a block */
#define COLUMNS 128           /* of a state */
#define THREADS 256
#define LDP (CHANNELS + 8)    /* elements of a row of channels in shared memory, against bank conflicts */
#define LDN (COLUMNS + 8)     /* of a row of state columns */

struct decay { float d[TOKENS], cs[TOKENS], step[TOKENS]; };

/* d and cs[i] = sum of A d up to i for the chunk's tokens, 0 behind them.  By the whole block; ends in a barrier. */
__device__ static void chunk_decay(struct decay *s, const struct ssm_args &a, struct chunk k, int h)
{
	if (threadIdx.x < TOKENS) {
		int i = threadIdx.x;
		s->d[i] = i < k.length ? time_step(a, k, i, h) : 0.0f;
		s->step[i] = a.A[h] * s->d[i];
		s->cs[i] = 0;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		float sum = 0;
#pragma unroll 1
		for (int i = 0; i < k.length; i += 16) {
			float v[16];
#pragma unroll
			for (int j = 0; j < 16; j++)
				v[j] = s->step[i + j];
#pragma unroll
			for (int j = 0; j < 16; j++)
				v[j] = sum += v[j];
#pragma unroll
			for (int j = 0; j < 16; j++)
				s->cs[i + j] = i + j < k.length ? v[j] : 0.0f;
		}
	}
	__syncthreads();
}

__device__ static inline void put_quad(uint16_t *to, float4 v)
{
	*(uint2 *)to = make_uint2(pair_of(v.x, v.y), pair_of(v.z, v.w));
}

/* Rows 0 .. rows - 1 of `count` columns from floats (a multiple of 4), ld apart; zeros to `width` columns and to TOKENS or
 * CHANNELS rows. */
template <int ROWS, int WIDTH>
__device__ static inline void bring_rows(uint16_t *to, const float *from, int64_t ld, int rows, int count)
{
	constexpr int QUADS = WIDTH / 4, EACH = ROWS * QUADS / THREADS, TOGETHER = EACH < 8 ? EACH : 8;
#pragma unroll 1
	for (int e0 = 0; e0 < EACH; e0 += TOGETHER) {
		float4 v[TOGETHER];
#pragma unroll
		for (int e = 0; e < TOGETHER; e++) {
			int at = threadIdx.x + (e0 + e) * THREADS, row = at / QUADS, c = at % QUADS * 4;
			v[e] = row < rows && c < count ? *(const float4 *)(from + row * ld + c) : make_float4(0, 0, 0, 0);
		}
#pragma unroll
		for (int e = 0; e < TOGETHER; e++) {
			int at = threadIdx.x + (e0 + e) * THREADS;
			put_quad(to + at / QUADS * (WIDTH + 8) + at % QUADS * 4, v[e]);
		}
	}
}

/* states[c][h][p][n] = sum_i x_i[p] * rounded(B_i[n] * exp(min(cs_last - cs_i, 0)) * d_i); sums[c][h] = cs_last.
 * A block owns 64 channels of one head's state for one chunk; a warp 16 channels of half the columns. */
__global__ void __launch_bounds__(THREADS, 2) ssm_chunk_states_mma(struct ssm_args a, struct scan_args c)
{
	extern __shared__ __align__(16) uint16_t pool[];
	__shared__ struct decay s;
	constexpr int QUADS = COLUMNS / 4, EACH = TOKENS * QUADS / THREADS;
	uint16_t *X = pool, *W = pool + TOKENS * LDP;
	int P = a.head_dim, N = a.state_size, h = blockIdx.x, p0 = blockIdx.z * CHANNELS, lane = threadIdx.x % WARP;
	int warp = threadIdx.x / WARP, m0 = warp % 4 * 16, n0 = warp / 4 * (COLUMNS / 2);
	struct chunk k = chunk_at(c, blockIdx.y);
	grid_release();
	grid_wait();
	const float *x = a.u + (int64_t)k.start * a.ldu + h * P + p0;
	const float *B = a.u + (int64_t)k.start * a.ldu + a.heads * P + h / (a.heads / a.groups) * N;
	float4 b[EACH];
#pragma unroll
	for (int e = 0; e < EACH; e++) {
		int at = threadIdx.x + e * THREADS, i = at / QUADS, n = at % QUADS * 4;
		b[e] = i < k.length && n < N ? *(const float4 *)(B + (int64_t)i * a.ldu + n) : make_float4(0, 0, 0, 0);
	}
	bring_rows<TOKENS, CHANNELS>(X, x, a.ldu, k.length, P - p0);
	chunk_decay(&s, a, k, h);
	float last = s.cs[k.length - 1];
#pragma unroll
	for (int e = 0; e < EACH; e++) {
		int at = threadIdx.x + e * THREADS, i = at / QUADS;
		float w = expf(fminf(last - s.cs[i], 0.0f)) * s.d[i];
		put_quad(W + i * LDN + at % QUADS * 4, make_float4(b[e].x * w, b[e].y * w, b[e].z * w, b[e].w * w));
	}
	__syncthreads();
	float acc[8][4] = {};
#pragma unroll 2
	for (int i = 0; i < k.length; i += 16) {
		uint32_t f[4], g[4];
		matrices<true>(f, X + i * LDP + m0 + lane_at<true>(LDP));
#pragma unroll
		for (int n = 0; n < 8; n += 2) {
			matrices<true>(g, W + i * LDN + n0 + n * 8 + lane_at<false>(LDN));
			mma(acc[n], f[0], f[1], f[2], f[3], g[0], g[1]);
			mma(acc[n + 1], f[0], f[1], f[2], f[3], g[2], g[3]);
		}
	}
	float *to = c.states + ((int64_t)blockIdx.y * a.heads + h) * P * N;
#pragma unroll
	for (int n = 0; n < 8; n++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			int p = p0 + m0 + lane / 4 + i * 8, col = n0 + n * 8 + lane % 4 * 2;
			if (p < P && col < N)
				*(float2 *)(to + (int64_t)p * N + col) = make_float2(acc[n][2 * i], acc[n][2 * i + 1]);
		}
	if (threadIdx.x == 0 && blockIdx.z == 0)
		c.sums[(int64_t)blockIdx.y * a.heads + h] = last;
}

/* W = rounded(C_i . B_j exp(min(cs_i - cs_j, 0)) d_j) for j <= i as the rows of an mma, from cb: 16 tokens from i0, 16 from j0. */
__device__ static inline void decayed(uint32_t w[4], const float cb[2][4], const struct decay *s, int i0, int j0, int length)
{
	int g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			float v[2];
			int i = i0 + g + r * 8;
#pragma unroll
			for (int e = 0; e < 2; e++) {
				int j = j0 + n * 8 + q * 2 + e;
				v[e] = i < length && j <= i ?
					cb[n][2 * r + e] * (expf(fminf(s->cs[i] - s->cs[j], 0.0f)) * s->d[j]) : 0.0f;
			}
			w[2 * n + r] = pair_of(v[0], v[1]);
		}
}

/* acc = C_i . S of a warp's 16 tokens; f: their C as the rows of mma. */
__device__ static inline void state_product(float acc[8][4], uint32_t f[COLUMNS / 16][4], const uint16_t *C, const uint16_t *S)
{
#pragma unroll
	for (int n = 0; n < COLUMNS / 16; n++) {
		uint32_t b[4];
		matrices<false>(f[n], C + n * 16 + lane_at<false>(LDN));
#pragma unroll
		for (int p = 0; p < 8; p += 2) {
			matrices<false>(b, S + p * 8 * LDN + n * 16 + lane_at<true>(LDN));
			mma(acc[p], f[n][0], f[n][1], f[n][2], f[n][3], b[0], b[1]);
			mma(acc[p + 1], f[n][0], f[n][1], f[n][2], f[n][3], b[2], b[3]);
		}
	}
}

/* y = rounded(acc + D x) of a warp's 16 tokens. */
__device__ static inline void store_tokens(const struct ssm_args &a, const float acc[8][4], const uint16_t *X, struct chunk k, int h, int p0,
					   int i0)
{
	int g = threadIdx.x % WARP / 4, q = threadIdx.x % 4, P = a.head_dim;
#pragma unroll
	for (int p = 0; p < 8; p++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			int t = i0 + g + r * 8, col = p * 8 + q * 2;
			if (t >= k.length || p0 + col >= P)
				continue;
			float v[2];
#pragma unroll
			for (int e = 0; e < 2; e++)
				v[e] = rounded(fmaf(a.D[h], bf16_value(X[t * LDP + col + e]), acc[p][2 * r + e]), 1);
			*(float2 *)(a.y + ((int64_t)(k.start + t) * a.heads + h) * P + p0 + col) = make_float2(v[0], v[1]);
		}
}

/* y_i = (C_i . rounded(S_prev)) exp(cs_i) + sum_{j <= i} rounded(C_i . B_j exp(min(cs_i - cs_j, 0)) d_j) x_j + D x_i.
 * A block owns a chunk of 64 channels of a head; a warp 16 tokens. */
__global__ void __launch_bounds__(THREADS, 2) ssm_chunk_out_mma(struct ssm_args a, struct scan_args c)
{
	extern __shared__ __align__(16) uint16_t pool[];
	__shared__ struct decay s;
	uint16_t *C = pool, *B = C + TOKENS * LDN, *S = B + TOKENS * LDN, *X = S + CHANNELS * LDN;
	int P = a.head_dim, N = a.state_size, h = blockIdx.x, p0 = blockIdx.z * CHANNELS;
	int i0 = threadIdx.x / WARP * 16, g = threadIdx.x % WARP / 4;
	struct chunk k = chunk_at(c, blockIdx.y);
	grid_release();
	grid_wait();
	const float *x = a.u + (int64_t)k.start * a.ldu + h * P + p0;
	const float *in = a.u + (int64_t)k.start * a.ldu + a.heads * P + h / (a.heads / a.groups) * N;
	bring_rows<TOKENS, COLUMNS>(B, in, a.ldu, k.length, N);
	bring_rows<TOKENS, COLUMNS>(C, in + a.groups * N, a.ldu, k.length, N);
	bring_rows<CHANNELS, COLUMNS>(S, c.states + (((int64_t)blockIdx.y * a.heads + h) * P + p0) * N, N, P - p0, N);
	bring_rows<TOKENS, CHANNELS>(X, x, a.ldu, k.length, P - p0);
	chunk_decay(&s, a, k, h);
	if (i0 >= k.length)
		return;
	uint32_t f[COLUMNS / 16][4];                  /* C of the warp's tokens */
	float acc[8][4] = {};
	state_product(acc, f, C + i0 * LDN, S);
	const float grown[2] = { expf(s.cs[i0 + g]), expf(s.cs[i0 + g + 8]) };
#pragma unroll
	for (int p = 0; p < 8; p++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			acc[p][e] *= grown[e / 2];
#pragma unroll 1
	for (int j0 = 0; j0 <= i0; j0 += 16) {
		float cb[2][4] = {};
		uint32_t w[4], b[4];
#pragma unroll
		for (int n = 0; n < COLUMNS / 16; n++) {
			matrices<false>(b, B + j0 * LDN + n * 16 + lane_at<true>(LDN));
			mma(cb[0], f[n][0], f[n][1], f[n][2], f[n][3], b[0], b[1]);
			mma(cb[1], f[n][0], f[n][1], f[n][2], f[n][3], b[2], b[3]);
		}
		decayed(w, cb, &s, i0, j0, k.length);
#pragma unroll
		for (int p = 0; p < 8; p += 2) {
			matrices<true>(b, X + j0 * LDP + p * 8 + lane_at<false>(LDP));
			mma(acc[p], w[0], w[1], w[2], w[3], b[0], b[1]);
			mma(acc[p + 1], w[0], w[1], w[2], w[3], b[2], b[3]);
		}
	}
	store_tokens(a, acc, X, k, h, p0, i0);
}

/* ---- launchers ---- */
int ssd_fits(struct ssm_args a, struct scan_args c)
{
	return a.bf16 && c.Q <= TOKENS && a.state_size <= COLUMNS && a.state_size % 4 == 0 && a.head_dim % 4 == 0 && a.ldu % 4 == 0;
}

static cudaError_t launch_chunks(void (*kernel)(struct ssm_args, struct scan_args), int elements, struct ssm_args a, struct scan_args c,
				 cudaStream_t s)
{
	size_t shared = elements * sizeof(uint16_t);
	cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
	return e != cudaSuccess ? e : launch(kernel, dim3(a.heads, c.chunks, (a.head_dim + CHANNELS - 1) / CHANNELS), THREADS, shared, s, a, c);
}

cudaError_t launch_ssd_states(struct ssm_args a, struct scan_args c, cudaStream_t s)
{
	return launch_chunks(ssm_chunk_states_mma, TOKENS * (LDP + LDN), a, c, s);
}

cudaError_t launch_ssd_out(struct ssm_args a, struct scan_args c, cudaStream_t s)
{
	return launch_chunks(ssm_chunk_out_mma, 2 * TOKENS * LDN + CHANNELS * LDN + TOKENS * LDP, a, c, s);
}
