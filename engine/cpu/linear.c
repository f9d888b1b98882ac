#include "product.h"

enum {
	GEMV_BYTES = 16384,          /* of weights, at least, in a part of a GEMV */
	GEMM_ROWS = 32,              /* weight rows, at most, in a part of a GEMM */
	GEMM_TOKENS = 128,           /* token rows in a part of a GEMM: their packed rows stay in L2 */
	PACK_TOKENS = 16,
	PARTS_PER_THREAD = 4,
};

struct product_job {
	struct device *dev;
	struct product *p;
	const float *x;
	int ldx;
	enum numerics numerics;
	int T, row_step, row_parts;
};

static void pack_part(void *arg, int part, int thread)
{
	struct product_job *j = arg;

	pack_rows(j->p, (void *)j->p->x, j->x, j->ldx, j->numerics, part * PACK_TOKENS,
		  min_int((part + 1) * PACK_TOKENS, j->T), j->dev->threads[thread].row);
}

static void product_part(void *arg, int part, int thread)
{
	struct product_job *j = arg;
	int r = part % j->row_parts * j->row_step, t = part / j->row_parts * GEMM_TOKENS;

	product_block(j->p, r, min_int(r + j->row_step, j->p->w->out), t, min_int(t + GEMM_TOKENS, j->T),
		      j->dev->threads[thread].panel);
}

/* Weight rows of a part, a multiple of VW: few parts where the work is small, several for each thread where it
 * is not, so that the threads end together. */
static int row_step(const struct device *dev, const struct linear *w, int T)
{
	int threads = pool_threads(dev->pool), step = GEMM_ROWS;

	if (T == 1) {
		size_t row = linear_bytes(w) / (size_t)w->out + 1;
		int least = (int)(GEMV_BYTES / row) + 1;

		step = w->out / (threads * PARTS_PER_THREAD) + 1;
		step = threads == 1 ? w->out : step > least ? step : least;
	}
	return (step + VW - 1) / VW * VW;
}

void product_run(struct device *dev, struct product *p, const float *x, int ldx, enum numerics numerics, int T)
{
	struct product_job j = {dev, p, x, ldx, numerics, T, row_step(dev, p->w, T), 0};

	p->x = dev->packed;
	p->ldx = ((size_t)p->w->in + (size_t)p->kernel->unit - 1) / (size_t)p->kernel->unit * p->kernel->unit_bytes;
	j.row_parts = (p->w->out + j.row_step - 1) / j.row_step;
	pool_run(dev->pool, pack_part, &j, (T + PACK_TOKENS - 1) / PACK_TOKENS);
	pool_run(dev->pool, product_part, &j, j.row_parts * ((T + GEMM_TOKENS - 1) / GEMM_TOKENS));
}

void cpu_linear(struct device *dev, void *y, int ldy, const void *x, int ldx, const struct linear *w,
		enum numerics numerics, int T)
{
	struct product p;

	product_pick(&p, dev, w, numerics);
	p.ldy = ldy;
	for (int t = 0; t < T; t += dev->block_rows) {
		p.y = (float *)y + (size_t)t * (size_t)ldy;
		product_run(dev, &p, (const float *)x + (size_t)t * (size_t)ldx, ldx, numerics,
			    min_int(dev->block_rows, T - t));
	}
}
