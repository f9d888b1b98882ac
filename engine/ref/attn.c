/* Grouped-query attention over the KV cache; no position encoding.  docs/model.md, 3.4. */
#include <math.h>
#include "engine/quant.h"
#include "ref.h"

/* Appends one token's row; an FP8 cache holds e4m3(x / scale). */
static void append(struct device *dev, struct state_view cache, size_t at, const double *row, int n, float scale)
{
	if (cache.dtype != DTYPE_FP8) {
		ref_store(cache, at, row, n);
		return;
	}
	for (int i = 0; i < n; i++) {
		dev->kv_row[0] = (float)row[i] / scale;
		ref_store(cache, at + i, dev->kv_row, 1);
	}
}

static void read_row(struct device *dev, struct state_view cache, size_t at, int n, float scale)
{
	ref_load(dev->kv_row, cache, at, n);
	for (int i = 0; i < n && cache.dtype == DTYPE_FP8; i++)
		dev->kv_row[i] *= scale;
}

/* The query heads that share one kv head: softmax(q k^T / sqrt(d)) v over positions 0..last. */
static void attend(struct device *dev, double *y, const double *q, struct state_view k_cache, struct state_view v_cache,
		   size_t k_at, size_t v_at, int row_size, int last, int heads, int d, float k_scale, float v_scale)
{
	int n = last + 1;

	for (int j = 0; j < n; j++) {
		read_row(dev, k_cache, k_at + (size_t)j * row_size, d, k_scale);
		for (int h = 0; h < heads; h++) {
			double sum = 0;

			for (int i = 0; i < d; i++)
				sum += q[h * d + i] * dev->kv_row[i];
			dev->scores[(size_t)h * n + j] = sum / sqrt(d);
		}
	}
	for (int h = 0; h < heads; h++) {
		double *p = dev->scores + (size_t)h * n, top = p[0], sum = 0;

		for (int j = 1; j < n; j++)
			top = fmax(top, p[j]);
		for (int j = 0; j < n; j++)
			sum += p[j] = exp(p[j] - top);
		for (int j = 0; j < n; j++)
			p[j] /= sum;
	}
	for (int i = 0; i < heads * d; i++)
		y[i] = 0;
	for (int j = 0; j < n; j++) {
		read_row(dev, v_cache, v_at + (size_t)j * row_size, d, v_scale);
		for (int h = 0; h < heads; h++)
			for (int i = 0; i < d; i++)
				y[h * d + i] += dev->scores[(size_t)h * n + j] * dev->kv_row[i];
	}
}

void ref_attention(struct device *dev, void *y, const void *q, const void *k, const void *v, struct state_view k_cache,
		   struct state_view v_cache, const int32_t *slots, const int32_t *pos, const struct attn_shape *shape,
		   float k_scale, float v_scale, int T)
{
	int d = shape->head_dim, row_size = shape->kv_heads * d, per = shape->heads / shape->kv_heads;

	for (int t = 0; t < T; t++) {
		size_t k_at = slots[t] * k_cache.stride, v_at = slots[t] * v_cache.stride;
		size_t here = (size_t)pos[t] * row_size, row = (size_t)t * shape->heads * d;

		append(dev, k_cache, k_at + here, (const double *)k + (size_t)t * row_size, row_size, k_scale);
		append(dev, v_cache, v_at + here, (const double *)v + (size_t)t * row_size, row_size, v_scale);
		for (int g = 0; g < shape->kv_heads; g++)
			attend(dev, (double *)y + row + g * per * d, (const double *)q + row + g * per * d, k_cache,
			       v_cache, k_at + g * d, v_at + g * d, row_size, pos[t], per, d, k_scale, v_scale);
	}
	ref_round(dev, y, (size_t)T * shape->heads * d);
}
