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
