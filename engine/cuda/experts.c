/* The routed experts of a step: entries (token, slot) grouped by expert, two grouped products, a weighted sum. */
#include "contract/err.h"
#include "ops.h"

/* Rows of a tile: wide enough that most experts fill one, so that weights are unpacked once. */
static int tile_width(const struct device *dev, int entries, int experts, bool packed)
{
	int share = entries / experts;

	(void)dev;
	return !packed || share < 6 ? 8 : share < 12 ? 16 : share < 24 ? 32 : share < 40 ? 64 : 128;
}

/* Operand rows of a projection: one for each entry if the input is quantised by its expert, else one for each source row. */
static void operand(struct device *dev, struct product *p, const struct expert_table *t, const float *x, int div,
		    const int32_t *expert, int entries)
{
	bool packed = t->packed != NULL;
	int rows = t->act ? entries : entries / div;

	p->x = x;
	p->ldx = t->in;
	p->x_div = t->act ? 1 : div;
	if (!packed && !t->act)
		return;
	p->x = dev->operand;
	p->ldx = packed ? (t->in + TILE_STEP - 1) / TILE_STEP * TILE_STEP : t->in;
	RUN(dev, launch_act(dev->operand, p->ldx, packed && product_is_wide(p->plan.width) ? 2 : packed, x, t->in, t->act ? div : 1, t->in, ACT_NONE, 0,
			    t->act ? t->packed : NULL, t->act ? t->raw : NULL, expert, rows, dev->stream));
}

static void grouped(struct device *dev, struct product p, const struct expert_table *t)
{
	if (!t->packed) {
		RUN(dev, launch_product_raw_grouped(p, t->raw, t->out, dev->stream));
		return;
	}
	for (int k = 0; k < N_PRODUCTS; k++)
		if (t->kind[k])
			RUN(dev, launch_product_grouped(p, t->packed, k, t->tiles, dev->stream));
}

void cuda_experts(struct device *dev, void *y, const void *x, const int32_t *expert, const void *weight,
		  const struct moe *w, struct rule rule, int per_token, int X, int T)
{
	const struct config *c = &dev->model->config;
	const struct matrix *first = w->experts[0].up_proj.prepared;
	int which = (rule.fp8 != NUMERICS_W8A16) + 2 * (rule.nvfp4 == NUMERICS_W4A4), entries = T * per_token;
	const struct expert_table *up = &first->experts->up[which], *down = &first->experts->down[which];
	bool direct = up->packed && down->packed && !down->act;
	struct product p = { .T = entries, .bf16 = dev->bf16, .relu2 = 1 };

	p.plan = (struct expert_plan){
		.tile = dev->tile, .n_tiles = dev->n_tiles, .entry = dev->entry,
		.width = tile_width(dev, entries, c->n_routed_experts, up->packed && down->packed),
	};
	p.plan.max_tiles = (entries < c->n_routed_experts ? entries : c->n_routed_experts) + entries / p.plan.width;
	RUN(dev, launch_group(dev->tile, dev->n_tiles, dev->entry, expert, c->n_routed_experts, entries, p.plan.width,
			      dev->stream));
	operand(dev, &p, up, x, per_token, expert, entries);
	p.y = direct ? NULL : dev->up;
	p.ldy = up->out;
	p.y_bf16 = direct ? dev->up_bf16 : NULL;
	p.ldy_bf16 = (up->out + TILE_STEP - 1) / TILE_STEP * TILE_STEP;
	grouped(dev, p, up);
	if (direct) {
		p.x = dev->up_bf16;
		p.ldx = p.ldy_bf16;
		p.x_div = 1;
	} else {
		operand(dev, &p, down, dev->up, 1, expert, entries);
	}
	p.y = dev->down;
	p.ldy = X;
	p.y_bf16 = NULL;
	p.relu2 = 0;
	grouped(dev, p, down);
	RUN(dev, launch_expert_sum(y, dev->down, weight, per_token, X, T, dev->bf16, dev->stream));
}
