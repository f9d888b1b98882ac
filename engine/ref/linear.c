/* Linear modules in every stored format, the embedding and the head.  docs/model.md, section 4. */
#include <string.h>
#include "contract/err.h"
#include "engine/logits.h"
#include "engine/quant.h"
#include "ref.h"

/* Weights have no alignment beyond one byte. */
static float float_at(const uint8_t *p)
{
	float x;

	memcpy(&x, p, sizeof(x));
	return x;
}

static uint16_t half_at(const uint8_t *p)
{
	uint16_t x;

	memcpy(&x, p, sizeof(x));
	return x;
}

/* value = e2m1 * e4m3 block scale; column 2i is the low nibble of byte i (2.7) */
static void nvfp4_row(const struct device *dev, double *to, const struct linear *w, int row)
{
	const uint8_t *bytes = (const uint8_t *)w->weight + (size_t)row * (w->in / 2);
	const uint8_t *scales = w->block_scale + (size_t)row * (w->in / 16);

	for (int b = 0; b < w->in / 16; b++) {
		double scale = dev->e4m3[scales[b]];

		for (int i = 0; i < 8; i++) {
			uint8_t pair = bytes[b * 8 + i];

			to[b * 16 + 2 * i] = dev->e2m1[pair & 15] * scale;
			to[b * 16 + 2 * i + 1] = dev->e2m1[pair >> 4] * scale;
		}
	}
}

void ref_weight_row(const struct device *dev, double *to, const struct linear *w, int row)
{
	const uint8_t *from = w->weight;
	int n = w->in;

	switch (w->format) {
	case WEIGHT_BF16:
		from += (size_t)row * n * 2;
		for (int i = 0; i < n; i++)
			to[i] = bf16_to_float(half_at(from + 2 * i));
		return;
	case WEIGHT_F16:
		from += (size_t)row * n * 2;
		for (int i = 0; i < n; i++)
			to[i] = fp16_to_float(half_at(from + 2 * i));
		return;
	case WEIGHT_F32:
		from += (size_t)row * n * 4;
		for (int i = 0; i < n; i++)
			to[i] = float_at(from + 4 * i);
		return;
	case WEIGHT_FP8:
		from += (size_t)row * n;
		for (int i = 0; i < n; i++)
			to[i] = dev->e4m3[from[i]];
		return;
	case WEIGHT_NVFP4:
		nvfp4_row(dev, to, w, row);
		return;
	case N_WEIGHT_FORMATS:
		break;
	}
	BUG("weight format %d", w->format);
}

/* Four running sums, so that the additions do not wait for each other; their order is fixed. */
static double dot(const double *a, const double *b, int n)
{
	double sum[4] = {0};
	int i = 0;

	for (; i + 4 <= n; i += 4)
		for (int j = 0; j < 4; j++)
			sum[j] += a[i + j] * b[i + j];
	for (; i < n; i++)
		sum[0] += a[i] * b[i];
	return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The activations as the quantised product sees them, without input_scale (4.2, 4.5). */
static void quantise_rows(struct device *dev, const double *x, int ldx, const struct linear *w, enum numerics numerics,
			  int T)
{
	bool f64 = dev->compute == COMPUTE_F64;

	for (int t = 0; t < T; t++) {
		double *to = dev->quantised + (size_t)t * w->in;
		const double *from = x + (size_t)t * ldx;

		if (numerics == NUMERICS_W8A8) {
			fp8_act(dev->codes, from, w->in, w->input_scale, f64);
			for (int i = 0; i < w->in; i++)
				to[i] = dev->e4m3[dev->codes[i]];
		} else {
			nvfp4_act(to, dev->block_scales, from, w->in, w->input_scale, f64);
			for (int i = 0; i < w->in; i++)
				to[i] *= dev->block_scales[i / 16];
		}
	}
}

/* y = (x W^T) * scale + bias, not yet rounded */
static void product(struct device *dev, double *y, int ldy, const double *x, int ldx, const struct linear *w,
		    enum numerics numerics, int T)
{
	double scale = w->scale;

	BUG_ON(w->in > dev->widest || T > dev->product_rows);
	if (numerics == NUMERICS_W8A8 || numerics == NUMERICS_W4A4) {
		quantise_rows(dev, x, ldx, w, numerics, T);
		x = dev->quantised;
		ldx = w->in;
		if (dev->compute == COMPUTE_F64)
			scale *= w->input_scale;
		else
			scale = w->scale * w->input_scale;   /* in fp32, as one epilogue factor */
	}
	for (int o = 0; o < w->out; o++) {
		ref_weight_row(dev, dev->weight_row, w, o);
		for (int t = 0; t < T; t++)
			y[(size_t)t * ldy + o] = dot(dev->weight_row, x + (size_t)t * ldx, w->in) * scale +
				(w->bias ? w->bias[o] : 0);
	}
}

void ref_linear(struct device *dev, void *y, int ldy, const void *x, int ldx, const struct linear *w,
		enum numerics numerics, int T)
{
	product(dev, y, ldy, x, ldx, w, numerics, T);
	for (int t = 0; t < T; t++)
		ref_round(dev, (double *)y + (size_t)t * ldy, w->out);
}

void ref_embed(struct device *dev, void *h, const int32_t *ids, const struct linear *table, int T)
{
	for (int t = 0; t < T; t++) {
		double *row = (double *)h + (size_t)t * table->in;

		ref_weight_row(dev, row, table, ids[t]);
		if (table->scale != 1)
			for (int i = 0; i < table->in; i++)
				row[i] *= table->scale;
		ref_round(dev, row, table->in);
	}
}

/* The logits keep the accumulator's precision (3.1), unless head_bf16 asks for vLLM's rounding. */
void ref_head(struct device *dev, int32_t *next, const void *x, const struct linear *w, enum numerics numerics,
	      const int32_t *given, bool head_bf16, int rows)
{
	double *logits = dev->logits;
	size_t n = (size_t)rows * w->out;

	BUG_ON(rows > dev->limits.slots);
	product(dev, logits, w->out, x, w->in, w, numerics, rows);
	for (size_t i = 0; i < n && dev->compute != COMPUTE_F64; i++)
		logits[i] = head_bf16 ? ref_bf16(logits[i]) : (float)logits[i];
	for (int r = 0; r < rows; r++) {
		logits_row_f64(&dev->result[r], logits + (size_t)r * w->out, w->out, given[r],
			       dev->compute == COMPUTE_F64);
		next[r] = dev->result[r].top_id[0];
	}
}

void ref_logits(struct device *dev, struct logits_row *out, int rows)
{
	memcpy(out, dev->result, rows * sizeof(*out));
}

void ref_logits_all(struct device *dev, double *out, int row)
{
	memcpy(out, dev->logits + (size_t)row * dev->config->vocab_size, dev->config->vocab_size * sizeof(*out));
}
