/* Decode mixers of up to 8 rows in few kernels: a norm that leaves a product's bf16 rows, a streaming product with the
 * convolution, the cache or relu^2 behind it, the mixer's core, a second streaming product.
 *
 * Two things wait so that they can join a later kernel: a norm until somebody reads its x, and the sum over experts until
 * somebody reads the mixer's y (the next norm forms it).  `settle` does the first where it cannot wait. */
#include "contract/err.h"
#include "engine/state.h"
#include "ops.h"

static int padded(int n) { return (n + TILE_STEP - 1) / TILE_STEP * TILE_STEP; }

static int largest(int a, int b) { return a > b ? a : b; }

static int alloc(struct device *dev, void *p, size_t n, size_t size, struct err *err)
{
	void **to = p;

	*to = device_alloc(dev, n * size, err);
	return *to ? 0 : -1;
}

int fused_open(struct device *dev, struct err *err)
{
	const struct config *c = &dev->model->config;
	int q = c->num_attention_heads * c->head_dim, in_proj = 2 * c->d_inner + c->conv_dim + c->mamba_num_heads;
	size_t entries = (size_t)STREAM_ROWS * c->num_experts_per_tok, rows = STREAM_ROWS;

	dev->fused &= norm_makes_operands(c->hidden_size);
	if (!dev->fused)
		return 0;
	OPEN(launch_stream_open());
	if (alloc(dev, &dev->proj, rows * largest(in_proj, q), sizeof(float), err) ||
	    alloc(dev, &dev->conv_out, rows * c->conv_dim, sizeof(float), err) ||
	    alloc(dev, &dev->mix, rows * c->d_inner, sizeof(float), err) ||
	    alloc(dev, &dev->rows_bf16, rows * padded(largest(c->hidden_size, largest(c->d_inner, q))), sizeof(uint16_t), err) ||
	    alloc(dev, &dev->shared_up, rows * padded(c->shared_intermediate_size), sizeof(uint16_t), err) ||
	    alloc(dev, &dev->shared_out, rows * c->hidden_size, sizeof(float), err) ||
	    alloc(dev, &dev->plan, 1, sizeof(struct stream_plan), err) ||
	    alloc(dev, &dev->step_weight, entries, sizeof(float), err))
		return -1;
	return alloc(dev, &dev->arrived, 1, sizeof(int), err);
}

/* ---- what waits ---- */

struct residual residual_of(struct device *dev, void *h, const void *y, int H)
{
	struct residual r = { .y = y };

	if (y && y == dev->parts_y) {
		r = dev->parts;
		dev->parts_y = NULL;
	}
	r.h = h;
	r.H = H;
	r.bf16 = dev->bf16;
	r.wide = dev->wide;
	return r;
}

void norm_later(struct device *dev, void *x, void *h, const void *y, const float *w, int T, int H, double eps)
{
	settle(dev);
	dev->norm = (struct norm_args){
		.r = residual_of(dev, h, y, H), .x = x, .w = device_vector(dev, w), .eps = (float)eps, .input_scale = 1,
	};
	dev->norm_rows = T;
	dev->norm_waits = true;
	if (!dev->fused || T > STREAM_ROWS)
		settle(dev);
}

void settle(struct device *dev)
{
	if (!dev->norm_waits)
		return;
	dev->norm_waits = false;
	RUN_NOW(dev, launch_rms_norm(dev->norm, dev->norm_rows, dev->stream));
}

bool norm_waits_for(const struct device *dev, const void *x, int T)
{
	return dev->norm_waits && dev->norm.x == x && dev->norm_rows == T;
}

void norm_to_rows(struct device *dev, int in, int act, float input_scale)
{
	dev->norm_waits = false;
	dev->norm.x = NULL;
	dev->norm.operand = dev->rows_bf16;
	dev->norm.ld = padded(in);
	dev->norm.act = act;
	dev->norm.input_scale = act == ACT_NONE ? 1 : input_scale;
	RUN_NOW(dev, launch_rms_norm(dev->norm, dev->norm_rows, dev->stream));
}

static void stream(struct device *dev, struct stream_args a, int kind)
{
	a.bf16 = dev->bf16;
	for (int i = 0; i < a.segments; i++)
		a.tiles += a.w[i].tiles;
	RUN_NOW(dev, launch_stream(a, kind, dev->stream));
}

static int kind_of_product(const struct packed_matrix *w) { return product_of(w->format, w->act); }

/* ---- weights of later kernels ---- */

static void ahead(struct stream_args *a, const void *p, int64_t bytes)
{
	int i = 0;

	while (i < STREAM_AHEAD && a->ahead[i].p)
		i++;
	if (i < STREAM_AHEAD && p) {
		a->ahead[i].p = p;
		a->ahead[i].bytes = bytes / 16 * 16;
	}
}

static void ahead_matrix(struct stream_args *a, const struct linear *l)
{
	const struct matrix *m = l->out ? l->prepared : NULL;

	if (m && m->packed.weight)
		ahead(a, m->packed.weight, packed_bytes(&m->packed));
}

/* What the layer after this one reads first; behind the last layer the beginning of the head. */
static void ahead_next(const struct device *dev, struct stream_args *a, const struct layer *layer)
{
	const struct model *m = dev->model;
	const struct layer *next = layer + 1;

	if (next == m->layers + m->config.num_hidden_layers) {
		const struct matrix *head = m->lm_head.prepared;

		if (head && head->packed.weight)
			ahead(a, head->packed.weight, 24 << 20);
		return;
	}
	switch (next->block) {
	case BLOCK_MAMBA:
		ahead_matrix(a, &next->mamba.in_proj);
		return;
	case BLOCK_ATTN:
		ahead_matrix(a, &next->attn.q_proj);
		ahead_matrix(a, &next->attn.k_proj);
		ahead_matrix(a, &next->attn.v_proj);
		return;
	case BLOCK_MOE:
		ahead(a, device_vector(dev, next->moe.gate),
		      (int64_t)m->config.n_routed_experts * m->config.hidden_size * (int64_t)sizeof(float));
		ahead_matrix(a, &next->moe.shared.up_proj);
		ahead_matrix(a, &next->moe.shared.down_proj);
		return;
	default:
		return;
	}
}

static struct packed_matrix scaled(const struct linear *l, struct rule rule)
{
	const struct matrix *m = l->prepared;
	struct packed_matrix w = m->packed;

	w.scale = scale_of(l, linear_numerics(l, rule));
	w.act = act_of(linear_numerics(l, rule));
	return w;
}

/* Stays with own kernels, in tiles. */
static bool streams(const struct linear *l, struct rule rule)
{
	return l->out && ((const struct matrix *)l->prepared)->packed.weight &&
	       linear_numerics(l, rule) != NUMERICS_W8A8_LT;
}

static bool plain_input(const struct linear *l, struct rule rule)
{
	return streams(l, rule) && act_of(linear_numerics(l, rule)) == ACT_NONE;
}

/* y = rows_bf16 W^T, the last product of a mixer. */
static void out_product(struct device *dev, float *y, const struct linear *l, struct rule rule, int T)
{
	struct stream_args a = {
		.rows = dev->rows_bf16, .T = T, .in = l->in, .ld = padded(l->in), .w = { scaled(l, rule) }, .y = { y },
		.ldy = { l->out }, .segments = 1,
	};

	stream(dev, a, kind_of_product(&a.w[0]));
}

/* ---- Mamba-2 ---- */

static void gate(struct device *dev, const struct mamba *w, struct rule rule, int T)
{
	const struct config *c = &dev->model->config;
	int act = act_of(linear_numerics(&w->out_proj, rule));
	struct gated_args g = {
		.y = dev->mix, .z = dev->proj, .w = device_vector(dev, w->norm), .operand = dev->rows_bf16,
		.ldz = w->in_proj.out, .channels = c->d_inner, .groups = c->n_groups, .ld = padded(c->d_inner), .act = act,
		.bf16 = dev->bf16, .eps = (float)c->layer_norm_epsilon,
		.input_scale = act == ACT_NONE ? 1 : w->out_proj.input_scale,
	};

	RUN_NOW(dev, launch_gated_norm(g, T, dev->stream));
}

static bool mamba_step(struct device *dev, float *y, const struct layer *layer, const struct mixer_state *state,
		       struct rule rule, int T)
{
	const struct mamba *w = &layer->mamba;
	const struct config *c = &dev->model->config;
	struct ssm_shape shape = {
		.heads = c->mamba_num_heads, .head_dim = c->mamba_head_dim, .groups = c->n_groups,
		.state = c->ssm_state_size,
	};
	const float *dt = dev->proj + c->d_inner + c->conv_dim;
	struct stream_args a = {
		.rows = dev->rows_bf16, .T = T, .in = c->hidden_size, .ld = padded(c->hidden_size), .y = { dev->proj },
		.ldy = { w->in_proj.out }, .segments = 1, .output = OUTPUT_CONV, .slots = state->slots,
		.conv = {
			.u = dev->conv_out, .state = state->conv.data, .w = device_vector(dev, w->conv_weight),
			.bias = device_vector(dev, w->conv_bias), .stride = (int64_t)state->conv.stride,
			.first = c->d_inner, .channels = c->conv_dim, .kernel = c->conv_kernel,
		},
	};

	if (!streams(&w->in_proj, rule) || !streams(&w->out_proj, rule) ||
	    !gated_makes_operands(c->d_inner, c->n_groups, w->in_proj.out))
		return false;
	norm_to_rows(dev, c->hidden_size, act_of(linear_numerics(&w->in_proj, rule)), w->in_proj.input_scale);
	a.w[0] = scaled(&w->in_proj, rule);
	ahead_matrix(&a, &w->out_proj);
	ahead_next(dev, &a, layer);
	stream(dev, a, kind_of_product(&a.w[0]));
	RUN_NOW(dev, launch_ssm_step(ssm_args(dev, dev->mix, dev->conv_out, c->conv_dim, dt, w->in_proj.out, state->ssm, w,
					      &shape, c->time_step_limit), state->slots, T, dev->stream));
	gate(dev, w, rule, T);
	out_product(dev, y, &w->out_proj, rule, T);
	return true;
}

/* ---- attention ---- */

static bool attn_streams(const struct attn *w, struct rule rule)
{
	const struct linear *l[] = { &w->q_proj, &w->k_proj, &w->v_proj, &w->o_proj };

	for (int i = 0; i < 4; i++)
		if (!plain_input(l[i], rule) || (i < 3 && l[i]->format != w->q_proj.format))
			return false;
	return true;
}

static bool attn_step(struct device *dev, float *y, const struct layer *layer, const struct mixer_state *state,
		      struct rule rule, int T)
{
	const struct attn *w = &layer->attn;
	const struct config *c = &dev->model->config;
	struct attn_shape shape = { c->num_attention_heads, c->num_key_value_heads, c->head_dim };
	struct attn_args attn = attn_args(NULL, dev->proj, NULL, NULL, state->k, state->v, state->slots, state->pos, &shape,
					  w->k_scale, w->v_scale);
	struct stream_args a = {
		.rows = dev->rows_bf16, .T = T, .in = c->hidden_size, .ld = padded(c->hidden_size), .y = { dev->proj },
		.ldy = { w->q_proj.out }, .segments = 3, .output = OUTPUT_KV, .slots = state->slots,
		.kv = {
			.k_cache = state->k.data, .v_cache = state->v.data, .k_stride = (int64_t)state->k.stride,
			.v_stride = (int64_t)state->v.stride, .pos = state->pos, .k_scale = w->k_scale,
			.v_scale = w->v_scale, .kind = attn.kind,
		},
	};

	if (!attn_streams(w, rule))
		return false;
	norm_to_rows(dev, c->hidden_size, ACT_NONE, 0);
	a.w[0] = scaled(&w->q_proj, rule);
	a.w[1] = scaled(&w->k_proj, rule);
	a.w[2] = scaled(&w->v_proj, rule);
	ahead_matrix(&a, &w->o_proj);
	ahead_next(dev, &a, layer);
	stream(dev, a, kind_of_product(&a.w[0]));
	attn.y_bf16 = dev->rows_bf16;
	attn.ld = padded(w->o_proj.in);
	attend(dev, attn, T);
	out_product(dev, y, &w->o_proj, rule, T);
	return true;
}

/* ---- MoE ---- */

static struct stream_experts experts(struct device *dev, const struct expert_table *t, bool down)
{
	return (struct stream_experts){
		.base = t->base, .stride = t->stride, .scale = t->scale, .tiles = t->tiles, .steps = t->steps, .out = t->out,
		.is_down = down, .ld_up = padded(dev->model->config.moe_intermediate_size), .up = dev->up_bf16,
		.down = dev->down, .rows = dev->rows_bf16, .ld = padded(dev->model->config.hidden_size),
	};
}

static bool moe_streams(const struct device *dev, const struct moe *w, const struct expert_table *up,
			const struct expert_table *down, struct rule rule)
{
	const struct config *c = &dev->model->config;

	if (c->moe_latent_size || STREAM_ROWS * c->num_experts_per_tok > STREAM_ENTRIES)
		return false;
	if (w->shared.up_proj.out && (!plain_input(&w->shared.up_proj, rule) || !plain_input(&w->shared.down_proj, rule) ||
				      (int)w->shared.down_proj.format != up->only))
		return false;
	return up->packed && up->base && !up->act && down->packed && down->base && !down->act && up->stride == down->stride;
}

static struct route_args route_of(const struct device *dev, const struct moe *w)
{
	const struct config *c = &dev->model->config;
	struct route_shape shape = {
		.experts = c->n_routed_experts, .per_token = c->num_experts_per_tok, .n_group = c->n_group,
		.topk_group = c->topk_group, .norm_topk_prob = c->norm_topk_prob, .scaling = c->routed_scaling_factor,
	};

	return route_args(dev, w->correction_bias, &shape);
}

/* The router with the shared expert's up projection; the chosen experts' up projections with the shared expert's down
 * projection; the chosen experts' down projections. */
static bool moe_step(struct device *dev, float *y, const struct layer *layer, struct rule rule, int T)
{
	const struct config *c = &dev->model->config;
	const struct moe *w = &layer->moe;
	const struct expert_tables *t = ((const struct matrix *)w->experts[0].up_proj.prepared)->experts;
	int which = (rule.fp8 != NUMERICS_W8A16) + 2 * (rule.nvfp4 == NUMERICS_W4A4), H = c->hidden_size;
	const struct expert_table *up = &t->up[which], *down = &t->down[which];
	bool shared = w->shared.up_proj.out;
	struct stream_args a = {
		.rows = dev->rows_bf16, .T = T, .in = H, .ld = padded(H), .route = route_of(dev, w), .plan = dev->plan,
		.weight = dev->step_weight, .logits = dev->route_logits, .arrived = dev->arrived,
	}, b = a, d = a;

	if (!moe_streams(dev, w, up, down, rule))
		return false;
	norm_to_rows(dev, H, ACT_NONE, 0);
	a.gate = device_vector(dev, w->gate);
	a.output = OUTPUT_RELU2;
	a.y_bf16 = dev->shared_up;
	a.ld_bf16 = padded(c->shared_intermediate_size);
	if (shared)
		a.w[a.segments++] = scaled(&w->shared.up_proj, rule);
	ahead_next(dev, &a, layer);
	stream(dev, a, shared ? kind_of_product(&a.w[0]) : FORMAT_BF16);
	b.rows = dev->shared_up;
	b.in = c->shared_intermediate_size;
	b.ld = a.ld_bf16;
	b.y[0] = dev->shared_out;
	b.ldy[0] = H;
	b.experts = experts(dev, up, false);
	b.experts.next = down->base;
	b.experts.next_bytes = (int64_t)down->tiles * down->steps * (int64_t)record_bytes((enum weight_format)down->only);
	if (shared)
		b.w[b.segments++] = scaled(&w->shared.down_proj, rule);
	stream(dev, b, up->only);
	d.experts = experts(dev, down, true);
	stream(dev, d, down->only);
	dev->parts = (struct residual){
		.down = dev->down, .weight = dev->step_weight, .k = c->num_experts_per_tok,
		.shared = shared ? dev->shared_out : NULL,
	};
	dev->parts_y = y;
	return true;
}

bool cuda_mixer_step(struct device *dev, void *y, const void *x, const struct layer *layer,
		     const struct mixer_state *state, struct rule rule, int T)
{
	if (!dev->fused || T > STREAM_ROWS || !norm_waits_for(dev, x, T))
		return false;
	switch (layer->block) {
	case BLOCK_MAMBA: return mamba_step(dev, y, layer, state, rule, T);
	case BLOCK_ATTN: return attn_step(dev, y, layer, state, rule, T);
	case BLOCK_MOE: return moe_step(dev, y, layer, rule, T);
	default: return false;
	}
}
