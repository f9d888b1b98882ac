#include "launch.h"

#define SSM_ROWS 16           /* state rows (head channels) of a block: 4 warps of 4 */

/* S = exp(A d) S + (d B) x, y = S C + D x, for one token of each row.  A block owns 16 channels of a head of one row, a warp
 * four of them, lane i the state columns 4i .. 4i + 3 of every 128; y is added per lane in ascending order, then by
 * warp_sum: fixed.  y comes from the fp32 state before it is rounded to the cache's type. */
__global__ void __launch_bounds__(128) ssm_step_rows(struct ssm_args a, const int32_t *slots)
{
	int tiles = (a.head_dim + SSM_ROWS - 1) / SSM_ROWS, h = blockIdx.x / tiles, row = blockIdx.y, lane = threadIdx.x % WARP;
	int p0 = blockIdx.x % tiles * SSM_ROWS + threadIdx.x / WARP * 4, N = a.state_size;
	grid_release();
	grid_wait();
	const float *u = a.u + (int64_t)row * a.ldu;
	const float *B = u + a.heads * a.head_dim + h / (a.heads / a.groups) * N, *C = B + a.groups * N;
	float d = fminf(fmaxf(softplus(a.dt[(int64_t)row * a.lddt + h] + a.dt_bias[h]), a.lo), a.hi), decay = expf(a.A[h] * d);
	for (int p = p0; p < min(p0 + 4, a.head_dim); p++) {
		float x = u[h * a.head_dim + p], sum = 0;
		int64_t at = slots[row] * a.stride + (int64_t)(h * a.head_dim + p) * N;
		for (int n0 = lane * 4; n0 < N; n0 += 4 * WARP)
			for (int n = n0; n < min(n0 + 4, N); n++) {
				float S = fmaf(d * B[n], x, decay * load_as_float(a.state, at + n, a.kind));
				sum = fmaf(S, C[n], sum);
				store_from_float(a.state, at + n, S, a.kind);
			}
		sum = warp_sum(sum);
		if (lane == 0)
			a.y[((int64_t)row * a.heads + h) * a.head_dim + p] = rounded(fmaf(a.D[h], x, sum), a.bf16);
	}
}

/* The same where the state is fp32 and N a multiple of 128 columns: bit-equal, with 16-byte accesses. */
__global__ void __launch_bounds__(128) ssm_step_rows_wide(struct ssm_args a, const int32_t *slots)
{
	int tiles = (a.head_dim + SSM_ROWS - 1) / SSM_ROWS, h = blockIdx.x / tiles, row = blockIdx.y, lane = threadIdx.x % WARP;
	int p0 = blockIdx.x % tiles * SSM_ROWS + threadIdx.x / WARP * 4, N = a.state_size;
	grid_release();
	grid_wait();
	const float *u = a.u + (int64_t)row * a.ldu;
	const float *B = u + a.heads * a.head_dim + h / (a.heads / a.groups) * N, *C = B + a.groups * N;
	float d = fminf(fmaxf(softplus(a.dt[(int64_t)row * a.lddt + h] + a.dt_bias[h]), a.lo), a.hi), decay = expf(a.A[h] * d);
	float sum[4] = {};
	float *state = (float *)a.state + slots[row] * a.stride + (int64_t)(h * a.head_dim + p0) * N;
	for (int n = lane * 4; n < N; n += 4 * WARP) {
		float4 S[4];
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (p0 + i < a.head_dim)
				S[i] = *(const float4 *)(state + (int64_t)i * N + n);
		float4 b = { d * B[n], d * B[n + 1], d * B[n + 2], d * B[n + 3] }, c = { C[n], C[n + 1], C[n + 2], C[n + 3] };
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (p0 + i >= a.head_dim)
				break;
			float x = u[h * a.head_dim + p0 + i];
			S[i].x = fmaf(b.x, x, decay * S[i].x), S[i].y = fmaf(b.y, x, decay * S[i].y);
			S[i].z = fmaf(b.z, x, decay * S[i].z), S[i].w = fmaf(b.w, x, decay * S[i].w);
			sum[i] = fmaf(S[i].w, c.w, fmaf(S[i].z, c.z, fmaf(S[i].y, c.y, fmaf(S[i].x, c.x, sum[i]))));
			*(float4 *)(state + (int64_t)i * N + n) = S[i];
		}
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		float total = warp_sum(sum[i]);
		if (lane == 0 && p0 + i < a.head_dim)
			a.y[((int64_t)row * a.heads + h) * a.head_dim + p0 + i] =
				rounded(fmaf(a.D[h], u[h * a.head_dim + p0 + i], total), a.bf16);
	}
}

cudaError_t launch_ssm_step(struct ssm_args a, const int32_t *slots, int rows, cudaStream_t s)
{
	dim3 grid((unsigned)(a.heads * ((a.head_dim + SSM_ROWS - 1) / SSM_ROWS)), rows);
	if (a.kind == KIND_F32 && a.state_size % (4 * WARP) == 0 && a.stride % 4 == 0)
		return launch(ssm_step_rows_wide, grid, 128, 0, s, a, slots);
	return launch(ssm_step_rows, grid, 128, 0, s, a, slots);
}
