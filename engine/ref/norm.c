/* RMSNorm, the gated group norm and the sums of the residual stream.  docs/model.md, 3.1, 3.2, 3.3 step 6. */
#include <math.h>
#include "ref.h"

/* h += y; the residual stream keeps fp32 where the config asks for it. */
void ref_add(struct device *dev, void *h, const void *y, int T, int H)
{
	double *sum = h;
	const double *term = y;
	size_t n = (size_t)T * H;

	for (size_t i = 0; i < n; i++)
		sum[i] += term[i];
	if (!dev->config->residual_in_fp32)
		ref_round(dev, sum, n);
	else if (dev->compute != COMPUTE_F64)
		for (size_t i = 0; i < n; i++)
			sum[i] = (float)sum[i];
}

/* y += x */
void ref_combine(struct device *dev, void *y, const void *x, int T, int n)
{
	double *sum = y;
	const double *term = x;

	for (size_t i = 0; i < (size_t)T * n; i++)
		sum[i] += term[i];
	ref_round(dev, sum, (size_t)T * n);
}

/* x = h / sqrt(mean(h^2) + eps) * w */
void ref_rms_norm(struct device *dev, void *x, const void *h, const float *w, int T, int H, double eps)
{
	for (int t = 0; t < T; t++) {
		const double *from = (const double *)h + (size_t)t * H;
		double *to = (double *)x + (size_t)t * H;
		double squares = 0;

		for (int i = 0; i < H; i++)
			to[i] = from[i];
		if (dev->config->residual_in_fp32)
			ref_round(dev, to, H);
		for (int i = 0; i < H; i++)
			squares += to[i] * to[i];
		double norm = sqrt(squares / H + eps);
		for (int i = 0; i < H; i++)
			to[i] = to[i] / norm * w[i];
		ref_round(dev, to, H);
	}
}

static double silu(double x)
{
	return x / (1 + exp(-x));
}

/* q = y * silu(z), then per group of channels: y = q / sqrt(mean(q^2) + eps) * w */
void ref_gated_norm(struct device *dev, void *y, const void *z, int ldz, const float *w, int T, int channels,
		    int groups, double eps)
{
	int size = channels / groups;

	for (int t = 0; t < T; t++) {
		double *row = (double *)y + (size_t)t * channels;
		const double *gate = (const double *)z + (size_t)t * ldz;

		for (int g = 0; g < groups; g++) {
			int first = g * size;
			double squares = 0;

			for (int c = first; c < first + size; c++) {
				row[c] *= silu(gate[c]);
				squares += row[c] * row[c];
			}
			double norm = sqrt(squares / size + eps);
			for (int c = first; c < first + size; c++)
				row[c] = row[c] / norm * w[c];
		}
		ref_round(dev, row, channels);
	}
}
