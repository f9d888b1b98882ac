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
	OPEN(launch_solo_open());
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

/* ---- what the mixers' kernels take ---- */

static struct ssm_args mamba_ssm(struct device *dev, const struct mamba *w, const struct mixer_state *state)
{
	const struct config *c = &dev->model->config;
	struct ssm_shape shape = {
		.heads = c->mamba_num_heads, .head_dim = c->mamba_head_dim, .groups = c->n_groups,
		.state = c->ssm_state_size,
	};

	return ssm_args(dev, dev->mix, dev->conv_out, c->conv_dim, dev->proj + c->d_inner + c->conv_dim, w->in_proj.out,
			state->ssm, w, &shape, c->time_step_limit);
}

static struct stream_conv mamba_conv(struct device *dev, const struct mamba *w, const struct mixer_state *state)
{
	const struct config *c = &dev->model->config;

	return (struct stream_conv){
		.u = dev->conv_out, .state = state->conv.data, .w = device_vector(dev, w->conv_weight),
		.bias = device_vector(dev, w->conv_bias), .stride = (int64_t)state->conv.stride,
		.first = c->d_inner, .channels = c->conv_dim, .kernel = c->conv_kernel,
	};
}

static struct stream_kv attn_kv(const struct attn *w, const struct mixer_state *state, int kind)
{
	return (struct stream_kv){
		.k_cache = state->k.data, .v_cache = state->v.data, .k_stride = (int64_t)state->k.stride,
		.v_stride = (int64_t)state->v.stride, .pos = state->pos, .k_scale = w->k_scale,
		.v_scale = w->v_scale, .kind = kind,
	};
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

/* The norm that waits, in_proj and the convolution step. */
static void mamba_in(struct device *dev, const struct mamba *w, const struct mixer_state *state, struct rule rule, int T)
{
	int H = dev->model->config.hidden_size;
	struct stream_args a = {
		.rows = dev->rows_bf16, .T = T, .in = H, .ld = padded(H), .y = { dev->proj }, .ldy = { w->in_proj.out },
		.w = { scaled(&w->in_proj, rule) }, .segments = 1, .output = OUTPUT_CONV, .slots = state->slots,
		.conv = mamba_conv(dev, w, state),
	};

	norm_to_rows(dev, H, act_of(linear_numerics(&w->in_proj, rule)), w->in_proj.input_scale);
	stream(dev, a, kind_of_product(&a.w[0]));
}

/* ---- a single token: solo.cu ---- */

/* The residual stream with nothing pending; the norm that waits is left to the product that reads it. */
static float *settled_stream(struct device *dev)
{
	dev->norm_waits = false;
	if (dev->norm.r.y || dev->norm.r.down)
		RUN_NOW(dev, launch_residual(dev->norm.r, 1, dev->stream));
	return dev->norm.r.h;
}

/* The mixer has added its output to the stream: y stands for nothing. */
static void added(struct device *dev, const void *y)
{
	dev->parts = (struct residual){0};
	dev->parts_y = y;
}

static struct solo_input norm_input(struct device *dev, const struct linear *l, enum numerics numerics)
{
	int act = act_of(numerics);

	return (struct solo_input){
		.kind = SOLO_NORM, .in = l->in, .ld = padded(l->in), .x = settled_stream(dev), .w = dev->norm.w,
		.threads = solo_norm_threads(padded(l->in)), .act = act, .wide = dev->wide, .eps = dev->norm.eps,
		.input_scale = act == ACT_NONE ? 1 : l->input_scale,
	};
}

static void solo(struct device *dev, struct solo_args a, int output, int kind)
{
	for (int i = 0; i < a.segments; i++)
		a.units += a.w[i].tiles;
	RUN_NOW(dev, launch_solo(a, output, kind, dev->stream));
}

/* The stream += rows W^T: the end of a mixer. */
static void solo_out(struct device *dev, const struct linear *l, struct rule rule, struct solo_input input)
{
	struct solo_args a = {
		.input = input, .w = { scaled(l, rule) }, .segments = 1, .h = dev->norm.r.h, .bf16 = 1,
	};

	a.input.wide = dev->wide;
	solo(dev, a, SOLO_ADD, kind_of_product(&a.w[0]));
}

static void solo_out_rows(struct device *dev, const struct linear *l, struct rule rule)
{
	solo_out(dev, l, rule, (struct solo_input){
		.kind = SOLO_ROWS, .in = l->in, .ld = padded(l->in), .rows = dev->rows_bf16, .input_scale = 1,
	});
}

/* Where every multiprocessor has many tiles, a norm by every block is dear and plain streaming has the better of it. */
static bool few_tiles(const struct device *dev, int tiles) { return tiles <= 2 * dev->multiprocessors; }

static bool solo_mamba(struct device *dev, const struct layer *layer, const struct mixer_state *state, struct rule rule)
{
	const struct mamba *w = &layer->mamba;
	const struct config *c = &dev->model->config;
	enum numerics in = linear_numerics(&w->in_proj, rule), out = linear_numerics(&w->out_proj, rule);
	struct ssm_args ssm = mamba_ssm(dev, w, state);
	struct solo_args a = {
		.w = { scaled(&w->in_proj, rule) }, .segments = 1, .y = dev->proj, .slots = state->slots, .bf16 = 1,
		.conv = mamba_conv(dev, w, state),
	};

	if (!ssm_step_mixes(ssm) || c->hidden_size > SOLO_INPUT || c->d_inner > SOLO_INPUT)
		return false;
	if (few_tiles(dev, a.w[0].tiles)) {
		a.input = norm_input(dev, &w->in_proj, in);
		solo(dev, a, SOLO_CONV, kind_of_product(&a.w[0]));
	} else {
		mamba_in(dev, w, state, rule, 1);
	}
	RUN_NOW(dev, launch_ssm_step_gate(ssm, dev->proj, state->slots, dev->stream));
	solo_out(dev, &w->out_proj, rule, (struct solo_input){
		.kind = SOLO_GATED, .in = c->d_inner, .ld = padded(c->d_inner), .x = dev->mix, .w = device_vector(dev, w->norm),
		.groups = c->n_groups, .act = act_of(out), .eps = (float)c->layer_norm_epsilon,
		.input_scale = act_of(out) == ACT_NONE ? 1 : w->out_proj.input_scale,
	});
	return true;
}

static bool solo_attn(struct device *dev, const struct layer *layer, const struct mixer_state *state, struct rule rule)
{
	const struct attn *w = &layer->attn;
	const struct config *c = &dev->model->config;
	struct attn_shape shape = { c->num_attention_heads, c->num_key_value_heads, c->head_dim };
	struct attn_args attn = attn_args(NULL, dev->proj, NULL, NULL, state->k, state->v, state->slots, state->pos, &shape,
					  w->k_scale, w->v_scale);
	struct solo_args a = {
		.w = { scaled(&w->q_proj, rule), scaled(&w->k_proj, rule), scaled(&w->v_proj, rule) }, .segments = 3,
		.y = dev->proj, .slots = state->slots, .bf16 = 1, .kv = attn_kv(w, state, attn.kind),
	};

	if (c->hidden_size > SOLO_INPUT || !few_tiles(dev, a.w[0].tiles + a.w[1].tiles + a.w[2].tiles))
		return false;
	a.input = norm_input(dev, &w->q_proj, NUMERICS_BF16);
	solo(dev, a, SOLO_KV, kind_of_product(&a.w[0]));
	attn.apart = 1;
	attn.y_bf16 = dev->rows_bf16;
	attn.ld = padded(w->o_proj.in);
	attend(dev, attn, 1);
	solo_out_rows(dev, &w->o_proj, rule);
	return true;
}

static struct solo_experts solo_table(const struct expert_table *t, struct route_args route)
{
	return (struct solo_experts){
		.route = route, .base = t->base, .stride = t->stride, .scale = t->scale, .tiles = t->tiles, .steps = t->steps, .out = t->out,
	};
}

/* The router with the shared expert's up projection; the choice, the chosen experts' up projections and the shared one's
 * down projection; the chosen experts' down projections with the sum and the addition. */
static bool solo_moe(struct device *dev, const struct moe *w, const struct expert_table *up, const struct expert_table *down,
		     struct rule rule)
{
	const struct config *c = &dev->model->config;
	struct route_args route = route_of(dev, w);
	struct solo_experts u = solo_table(up, route), d = solo_table(down, route);
	bool shared = w->shared.up_proj.out;
	struct linear input = { .in = c->hidden_size };
	struct solo_args a = {
		.y_bf16 = dev->shared_up, .gate = device_vector(dev, w->gate), .logits = dev->route_logits, .E = route.E, .bf16 = 1,
	};

	if (!few_tiles(dev, route.k * u.tiles) || !few_tiles(dev, d.tiles) || c->hidden_size > SOLO_INPUT ||
	    route.n_group > 1 || route.E > SOLO_RANKED || route.k > SOLO_EXPERTS)
		return false;
	a.input = norm_input(dev, &input, NUMERICS_BF16);
	a.input.keep = dev->rows_bf16;
	if (shared)
		a.w[a.segments++] = scaled(&w->shared.up_proj, rule);
	solo(dev, a, SOLO_RELU2, shared ? kind_of_product(&a.w[0]) : FORMAT_BF16);
	u.rows = dev->rows_bf16;
	u.ld = a.input.ld;
	u.up = dev->up_bf16;
	u.ld_up = padded(c->moe_intermediate_size);
	if (shared) {
		u.shared = scaled(&w->shared.down_proj, rule);
		u.shared_rows = dev->shared_up;
		u.ld_shared = padded(c->shared_intermediate_size);
		u.shared_out = dev->shared_out;
	}
	RUN_NOW(dev, launch_solo_experts(u, 0, up->only, dev->stream));
	d.rows = dev->up_bf16;
	d.ld = u.ld_up;
	d.shared_out = u.shared_out;
	d.h = dev->norm.r.h;
	d.wide = dev->wide;
	RUN_NOW(dev, launch_solo_experts(d, 1, down->only, dev->stream));
	return true;
}

bool solo_product(struct device *dev, float *y, const struct linear *l, enum numerics numerics, int bf16)
{
	struct solo_args a = { .w = { ((const struct matrix *)l->prepared)->packed }, .segments = 1, .y = y, .bf16 = bf16 };

	if (l->in > SOLO_INPUT || !few_tiles(dev, a.w[0].tiles))
		return false;
	a.w[0].scale = scale_of(l, numerics);
	a.w[0].act = act_of(numerics);
	a.input = norm_input(dev, l, numerics);
	solo(dev, a, SOLO_FLOAT, kind_of_product(&a.w[0]));
	return true;
}

/* ---- Mamba-2 ---- */

/* The state update of u, then the gated norm: one kernel if the shapes allow. */
static void ssm_and_gate(struct device *dev, const struct mamba *w, const struct mixer_state *state, struct rule rule, int T)
{
	const struct config *c = &dev->model->config;
	struct ssm_args a = mamba_ssm(dev, w, state);
	int act = act_of(linear_numerics(&w->out_proj, rule));
	struct gated_args g = {
		.y = dev->mix, .z = dev->proj, .w = device_vector(dev, w->norm), .operand = dev->rows_bf16,
		.ldz = w->in_proj.out, .channels = c->d_inner, .groups = c->n_groups, .ld = padded(c->d_inner), .act = act,
		.bf16 = dev->bf16, .eps = (float)c->layer_norm_epsilon,
		.input_scale = act == ACT_NONE ? 1 : w->out_proj.input_scale,
	};

	if (T <= 2 && ssm_step_gates(a, g)) {         /* many rows fill the device without it */
		RUN_NOW(dev, launch_ssm_step_gated(a, g, state->slots, T, dev->stream));
		return;
	}
	RUN_NOW(dev, launch_ssm_step(a, state->slots, T, dev->stream));
	RUN_NOW(dev, launch_gated_norm(g, T, dev->stream));
}

static bool mamba_step(struct device *dev, float *y, const struct layer *layer, const struct mixer_state *state,
		       struct rule rule, int T)
{
	const struct mamba *w = &layer->mamba;
	const struct config *c = &dev->model->config;

	if (!streams(&w->in_proj, rule) || !streams(&w->out_proj, rule) ||
	    !gated_makes_operands(c->d_inner, c->n_groups, w->in_proj.out))
		return false;
	if (T == 1 && solo_mamba(dev, layer, state, rule)) {
		added(dev, y);
		return true;
	}
	mamba_in(dev, w, state, rule, T);
	ssm_and_gate(dev, w, state, rule, T);
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
		.kv = attn_kv(w, state, attn.kind),
	};

	if (!attn_streams(w, rule))
		return false;
	if (T == 1 && solo_attn(dev, layer, state, rule)) {
		added(dev, y);
		return true;
	}
	norm_to_rows(dev, c->hidden_size, ACT_NONE, 0);
	a.w[0] = scaled(&w->q_proj, rule);
	a.w[1] = scaled(&w->k_proj, rule);
	a.w[2] = scaled(&w->v_proj, rule);
	stream(dev, a, kind_of_product(&a.w[0]));
	attn.apart = 1;
	attn.y_bf16 = dev->rows_bf16;
	attn.ld = padded(w->o_proj.in);
	attend(dev, attn, T);
	if (T == 1) {
		solo_out_rows(dev, &w->o_proj, rule);
		added(dev, y);
	} else {
		out_product(dev, y, &w->o_proj, rule, T);
	}
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

/* The router with the shared expert's up projection; the chosen experts' up projections with the shared expert's down
 * projection, whose weights arrive while the choice is made; the chosen experts' down projections. */
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
	if (T == 1 && solo_moe(dev, w, up, down, rule)) {
		added(dev, y);
		return true;
	}
	norm_to_rows(dev, H, ACT_NONE, 0);
	a.gate = device_vector(dev, w->gate);
	a.output = OUTPUT_RELU2;
	a.y_bf16 = dev->shared_up;
	a.ld_bf16 = padded(c->shared_intermediate_size);
	if (shared)
		a.w[a.segments++] = scaled(&w->shared.up_proj, rule);
	stream(dev, a, shared ? kind_of_product(&a.w[0]) : FORMAT_BF16);
	b.rows = dev->shared_up;
	b.in = c->shared_intermediate_size;
	b.ld = a.ld_bf16;
	b.y[0] = dev->shared_out;
	b.ldy[0] = H;
	b.experts = experts(dev, up, false);
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
