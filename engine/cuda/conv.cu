#include "launch.h"

/* Column t of one channel: a token of x, or (t < 0) the carried window, whose newest column is -1. */
__device__ static inline float column(const float *x, int ldx, const float *window, int channels, int kernel, int t)
{
	return t >= 0 ? x[(int64_t)t * ldx] : window[(int64_t)(kernel - 1 + t) * channels];
}

/* silu(bias + sum_j w[j] * column(t - (K-1) + j)), oldest first. */
__device__ static inline float conv_at(const float *x, int ldx, const float *window, const float *w, float bias,
				       int channels, int kernel, int t)
{
	float sum = bias;
	for (int j = 0; j < kernel; j++)
		sum = fmaf(w[j], column(x, ldx, window, channels, kernel, t - (kernel - 1) + j), sum);
	return silu(sum);
}

/* The window after T tokens: its last K-1 columns.  Row j comes from a row at or above it: ascending order is safe. */
__device__ static inline void shift(float *window, const float *x, int ldx, int channels, int kernel, int T)
{
	for (int j = 0; j < kernel - 1; j++)
		window[(int64_t)j * channels] = column(x, ldx, window, channels, kernel, T - (kernel - 1) + j);
}

/* One token of each row.  A block owns 256 channels of one row, a thread one channel; j ascending: fixed order. */
__global__ void conv_step_rows(float *u, const float *xbc, int ldx, float *state, int64_t stride, const int32_t *slots,
			       const float *w, const float *bias, int channels, int kernel, int bf16)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
	grid_wait();
	grid_release();
	if (c >= channels)
		return;
	float *window = state + slots[row] * stride + c;
	const float *x = xbc + (int64_t)row * ldx + c;
	float v = conv_at(x, ldx, window, w + c * kernel, bias ? bias[c] : 0.0f, channels, kernel, 0);
	u[(int64_t)row * channels + c] = rounded(v, bf16);
	shift(window, x, ldx, channels, kernel, 1);
}

/* T tokens of one sequence.  A block owns 256 channels of CONV_TOKENS tokens, a thread one channel; only the blocks of
 * the first tokens touch the carried window, so they also replace it.  Fixed order as above. */
__global__ void conv_scan_tokens(float *u, const float *xbc, int ldx, float *state, const float *w, const float *bias,
				 int channels, int kernel, int T, int bf16)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x, t0 = blockIdx.y * CONV_TOKENS;
	grid_wait();
	grid_release();
	if (c >= channels)
		return;
	for (int t = t0; t < min(t0 + CONV_TOKENS, T); t++) {
		float v = conv_at(xbc + c, ldx, state + c, w + c * kernel, bias ? bias[c] : 0.0f, channels, kernel, t);
		u[(int64_t)t * channels + c] = rounded(v, bf16);
	}
	if (t0 == 0)
		shift(state + c, xbc + c, ldx, channels, kernel, T);
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
	return launch(conv_scan_tokens, dim3((channels + 255) / 256, (T + CONV_TOKENS - 1) / CONV_TOKENS), 256, 0, s, u,
		      xbc, ldx, state, w, bias, channels, kernel, T, bf16);
}
