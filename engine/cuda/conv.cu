#include "launch.h"

/* One token of each row.  A block owns 256 channels of one row, a thread one channel; j ascending: fixed order. */
__global__ void conv_step_rows(float *u, const float *xbc, int ldx, float *state, int64_t stride, const int32_t *slots,
			       const float *w, const float *bias, int channels, int kernel, int bf16)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
	grid_release();
	grid_wait();
	if (c >= channels)
		return;
	float *window = state + slots[row] * stride + c;
	const float *x = xbc + (int64_t)row * ldx + c;
	float v = conv_at(x, ldx, window, w + c * kernel, bias ? bias[c] : 0.0f, channels, kernel, 0);
	u[(int64_t)row * channels + c] = rounded(v, bf16);
	conv_shift(window, x, ldx, channels, kernel, 1);
}

/* T tokens of one sequence.  A block owns 256 channels of CONV_TOKENS tokens, a thread one channel; only the blocks of
 * the first tokens touch the carried window, so they also replace it.  Fixed order as above. */
__global__ void conv_scan_tokens(float *u, const float *xbc, int ldx, float *state, const float *w, const float *bias,
				 int channels, int kernel, int T, int bf16)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x, t0 = blockIdx.y * CONV_TOKENS;
	grid_release();
	grid_wait();
	if (c >= channels)
		return;
	for (int t = t0; t < min(t0 + CONV_TOKENS, T); t++) {
		float v = conv_at(xbc + c, ldx, state + c, w + c * kernel, bias ? bias[c] : 0.0f, channels, kernel, t);
		u[(int64_t)t * channels + c] = rounded(v, bf16);
	}
	if (t0 == 0)
		conv_shift(state + c, xbc + c, ldx, channels, kernel, T);
}

/* The same for a kernel of four and channels that come in fours.  A thread owns four channels and keeps the three columns
 * before a token in registers. */
#define TAPS 4
#define QUAD_TOKENS 16
__global__ void __launch_bounds__(128) conv_scan_quads(float *u, const float *xbc, int ldx, float *state, const float *w, const float *bias,
							int channels, int T, int bf16)
{
	int c = (blockIdx.x * blockDim.x + threadIdx.x) * 4, t0 = blockIdx.y * QUAD_TOKENS;
	grid_release();
	grid_wait();
	if (c >= channels)
		return;
	const float4 b = bias ? make_float4(bias[c], bias[c + 1], bias[c + 2], bias[c + 3]) : make_float4(0, 0, 0, 0);
	float4 tap[4], x[TAPS];               /* of channel c + i: its weights, oldest first; columns t - 3 .. t */
#pragma unroll
	for (int i = 0; i < 4; i++)
		tap[i] = *(const float4 *)(w + (c + i) * TAPS);
#pragma unroll
	for (int j = 0; j < TAPS - 1; j++) {
		int t = t0 - (TAPS - 1) + j;
		x[j] = *(const float4 *)(t >= 0 ? xbc + (int64_t)t * ldx + c : state + (int64_t)(TAPS - 1 + t) * channels + c);
	}
#pragma unroll 8
	for (int t = t0; t < min(t0 + QUAD_TOKENS, T); t++) {
		x[3] = *(const float4 *)(xbc + (int64_t)t * ldx + c);
		float4 v = b;
#pragma unroll
		for (int j = 0; j < TAPS; j++) {
			v.x = fmaf(((const float *)&tap[0])[j], x[j].x, v.x);
			v.y = fmaf(((const float *)&tap[1])[j], x[j].y, v.y);
			v.z = fmaf(((const float *)&tap[2])[j], x[j].z, v.z);
			v.w = fmaf(((const float *)&tap[3])[j], x[j].w, v.w);
		}
		*(float4 *)(u + (int64_t)t * channels + c) = rounded_quad(make_float4(silu(v.x), silu(v.y), silu(v.z), silu(v.w)), bf16);
		x[0] = x[1], x[1] = x[2], x[2] = x[3];
	}
	if (t0 == 0)
		for (int i = 0; i < 4; i++)
			conv_shift(state + c + i, xbc + c + i, ldx, channels, TAPS, T);
}

cudaError_t launch_conv_step(float *u, const float *xbc, int ldx, float *state, int64_t stride, const int32_t *slots,
			     const float *w, const float *bias, int channels, int kernel, int rows, int bf16,
			     cudaStream_t s)
{
	return launch(conv_step_rows, dim3((channels + 255) / 256, rows), 256, 0, s, u, xbc, ldx, state, stride, slots, w,
		      bias, channels, kernel, bf16);
}

/* CONV_TOKENS is at least K - 1, which the caller has checked. */
cudaError_t launch_conv_scan(float *u, const float *xbc, int ldx, float *state, const float *w, const float *bias,
			     int channels, int kernel, int T, int bf16, cudaStream_t s)
{
	if (kernel == TAPS && channels % 4 == 0 && ldx % 4 == 0 && ((uintptr_t)xbc | (uintptr_t)state) % 16 == 0)
		return launch(conv_scan_quads, dim3((channels / 4 + 127) / 128, (T + QUAD_TOKENS - 1) / QUAD_TOKENS), 128, 0, s, u, xbc, ldx,
			      state, w, bias, channels, T, bf16);
	return launch(conv_scan_tokens, dim3((channels + 255) / 256, (T + CONV_TOKENS - 1) / CONV_TOKENS), 256, 0, s, u,
		      xbc, ldx, state, w, bias, channels, kernel, T, bf16);
}
