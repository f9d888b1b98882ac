/* The causal depthwise convolution over x, B and C, with SiLU.  docs/model.md, 3.3 step 2. */
#include <math.h>
#include "ref.h"

/* One channel over T tokens: u[t] = silu(bias + sum_j w[j] * xBC[t - (K-1) + j]).  The window holds the K-1 raw
 * inputs before the current one, oldest first, and is carried from token to token. */
static void convolve(double *u, int ldu, const double *xbc, int ldx, double *window, const float *w, double bias,
		     int kernel, int T)
{
	for (int t = 0; t < T; t++) {
		double sum = bias;

		window[kernel - 1] = xbc[(size_t)t * ldx];
		for (int j = 0; j < kernel; j++)
			sum += w[j] * window[j];
		u[(size_t)t * ldu] = sum / (1 + exp(-sum));
		for (int j = 0; j + 1 < kernel; j++)
			window[j] = window[j + 1];
	}
}

void ref_conv_scan(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, int slot,
		   const float *w, const float *bias, int channels, int kernel, int T)
{
	size_t first = (size_t)slot * conv.stride;

	for (int c = 0; c < channels; c++) {
		for (int j = 0; j + 1 < kernel; j++)
			ref_load(&dev->window[j], conv, first + (size_t)j * channels + c, 1);
		convolve((double *)u + c, channels, (const double *)xbc + c, ldx, dev->window, w + (size_t)c * kernel,
			 bias ? bias[c] : 0, kernel, T);
		for (int j = 0; j + 1 < kernel; j++)
			ref_store(conv, first + (size_t)j * channels + c, &dev->window[j], 1);
	}
	ref_round(dev, u, (size_t)T * channels);
}

void ref_conv_step(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, const int32_t *slots,
		   const float *w, const float *bias, int channels, int kernel, int rows)
{
	for (int r = 0; r < rows; r++)
		ref_conv_scan(dev, (double *)u + (size_t)r * channels, (const double *)xbc + (size_t)r * ldx, ldx, conv,
			      slots[r], w, bias, channels, kernel, 1);
}
