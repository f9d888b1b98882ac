/* Products with one matrix: own kernels, or the library's FP8 product. */
#include "contract/err.h"
#include "ops.h"

int act_of(enum numerics n)
{
	return n == NUMERICS_W8A8 || n == NUMERICS_W8A8_LT ? ACT_FP8 : n == NUMERICS_W4A4 ? ACT_NVFP4 : ACT_NONE;
}

float scale_of(const struct linear *l, enum numerics n)
{
	return act_of(n) == ACT_NONE ? l->scale : l->scale * l->input_scale;
}

/* e4m3 codes x e4m3 rows on the library's kernels (4.2). */
static void library(struct device *dev, float *y, int ldy, const float *x, int ldx, const struct linear *w, int bf16, int T)
{
	const struct matrix *m = w->prepared;
	int out = blas_padded(w->out), in = blas_padded(w->in), rows = blas_padded(T);

	RUN(dev, launch_codes(dev->codes, in, x, ldx, w->in, w->input_scale, T, rows, dev->stream));
	blas_product(dev->blas, dev, dev->library_out, dev->codes, m->library, out, in, rows, scale_of(w, NUMERICS_W8A8));
	RUN(dev, launch_finish(y, ldy, dev->library_out, out, m->raw.bias, w->out, T, bf16, dev->stream));
}

void cuda_product(struct device *dev, float *y, int ldy, const float *x, int ldx, const struct linear *w,
		  enum numerics numerics, int bf16, int T)
{
	const struct matrix *m = w->prepared;
	struct product p = { .y = y, .ldy = ldy, .x = x, .ldx = ldx, .T = T, .bf16 = bf16 };
	int act = act_of(numerics), packed = m->packed.weight != NULL;

	if (numerics == NUMERICS_W8A8_LT) {
		library(dev, y, ldy, x, ldx, w, bf16, T);
		return;
	}
	if (packed || act != ACT_NONE) {
		p.x = dev->operand;
		p.ldx = packed ? m->packed.steps * TILE_STEP : w->in;
		RUN(dev, launch_act(dev->operand, p.ldx, packed && product_is_wide(T) ? 2 : packed, x, ldx, 1, w->in, act, w->input_scale, NULL, NULL, NULL, T,
				    dev->stream));
	}
	if (packed) {
		struct packed_matrix a = m->packed;

		a.scale = scale_of(w, numerics);
		a.act = act;
		if (dev->fused && T <= STREAM_ROWS)
			RUN(dev, launch_stream((struct stream_args){
				.rows = dev->operand, .T = T, .in = w->in, .ld = p.ldx, .w = { a }, .y = { y }, .ldy = { ldy },
				.segments = 1, .tiles = a.tiles, .bf16 = bf16,
			}, product_of(a.format, act), dev->stream));
		else
			RUN(dev, launch_product(p, a, dev->stream));
	} else {
		struct raw_matrix a = m->raw;

		a.scale = scale_of(w, numerics);
		RUN(dev, launch_product_raw(p, a, dev->stream));
	}
}

/* A head whose norm waits: the norm leaves the product's rows. */
static bool product_of_norm(struct device *dev, float *y, int ldy, const float *x, const struct linear *w,
			    enum numerics numerics, int bf16, int T)
{
	const struct matrix *m = w->prepared;
	struct packed_matrix a = m->packed;

	if (!dev->fused || T > STREAM_ROWS || !a.weight || numerics == NUMERICS_W8A8_LT || !norm_waits_for(dev, x, T))
		return false;
	if (T == 1 && ldy == w->out && solo_product(dev, y, w, numerics, bf16))
		return true;
	norm_to_rows(dev, w->in, act_of(numerics), w->input_scale);
	a.scale = scale_of(w, numerics);
	a.act = act_of(numerics);
	RUN(dev, launch_stream((struct stream_args){
		.rows = dev->rows_bf16, .T = T, .in = w->in, .ld = a.steps * TILE_STEP, .w = { a }, .y = { y }, .ldy = { ldy },
		.segments = 1, .tiles = a.tiles, .bf16 = bf16,
	}, product_of(a.format, a.act), dev->stream));
	return true;
}

void cuda_logits_product(struct device *dev, float *y, const float *x, const struct linear *w, enum numerics numerics,
			 int bf16, int T)
{
	if (!product_of_norm(dev, y, w->out, x, w, numerics, bf16, T))
		cuda_product(dev, y, w->out, x, w->in, w, numerics, bf16, T);
}

void cuda_linear(struct device *dev, void *y, int ldy, const void *x, int ldx, const struct linear *w,
		 enum numerics numerics, int T)
{
	cuda_product(dev, y, ldy, x, ldx, w, numerics, dev->bf16, T);
}
