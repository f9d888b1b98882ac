/* Decode mixers of up to 8 rows in three kernels each: a streaming product with the norm (and for Mamba the convolution)
 * around it, the mixer's core, a streaming product with the gate before it.
 *
 * Two things wait so that they can join the next kernel: a norm until somebody reads its x, and the sum over experts
 * until somebody reads the mixer's y.  `settle` does them where they cannot wait.  With one or two rows every block of the
 * first product computes the norm itself, and the addition to the residual stream is made by the kernel after it, when
 * nobody reads the old values any more; with more rows the norm is a kernel. */
#include "contract/err.h"
#include "engine/state.h"
#include "ops.h"

#define OWN_NORM 2                    /* rows up to which blocks compute norms themselves */

static int padded(int n) { return (n + TILE_STEP - 1) / TILE_STEP * TILE_STEP; }

/* Of rows in shared memory: neighbours must not start in the same bank. */
static int staged(int n) { return padded(n) + 32; }

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

	if (!dev->fused)
		return 0;
	OPEN(launch_stream_open());
	if (alloc(dev, &dev->proj, rows * largest(in_proj, q), sizeof(float), err) ||
	    alloc(dev, &dev->conv_out, rows * c->conv_dim, sizeof(float), err) ||
	    alloc(dev, &dev->mix, rows * largest(c->d_inner, q), sizeof(float), err) ||
	    alloc(dev, &dev->rows_bf16, rows * padded(largest(c->hidden_size, c->d_inner)), sizeof(uint16_t), err) ||
	    alloc(dev, &dev->shared_up, rows * padded(c->shared_intermediate_size), sizeof(uint16_t), err) ||
	    alloc(dev, &dev->shared_out, rows * c->hidden_size, sizeof(float), err) ||
	    alloc(dev, &dev->step_weight[0], entries, sizeof(float), err) ||
	    alloc(dev, &dev->step_weight[1], entries, sizeof(float), err))
		return -1;
	return alloc(dev, &dev->step_expert, entries, sizeof(int32_t), err);
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
		.r = residual_of(dev, h, y, H), .x = x, .w = device_vector(dev, w), .eps = (float)eps,
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

/* Takes over the waiting norm whose x is wanted as a product's input.  Few rows: the product's blocks make the rows, and
 * *apply is the addition that a later kernel must make.  More: the norm leaves bf16 rows. */
static struct stream_input take_norm(struct device *dev, struct residual *apply, int in, int act, float input_scale,
				     uint16_t *leave)
{
	struct norm_args n = dev->norm;
	int T = dev->norm_rows, ld = padded(in);
	struct stream_input input = {
		.kind = INPUT_NORM, .T = T, .in = in, .ld = staged(in), .act = act, .staged = 1,
		.input_scale = input_scale, .eps = n.eps, .w = n.w, .r = n.r, .leave = leave, .ld_leave = ld,
	};

	dev->norm_waits = false;
	*apply = (struct residual){0};
	if (T <= OWN_NORM) {
		if (n.r.y || n.r.down)
			*apply = n.r;
		return input;
	}
	n.x = NULL;
	n.operand = dev->rows_bf16;
	n.ld = ld;
	n.act = act;
	n.input_scale = input_scale;
	RUN_NOW(dev, launch_rms_norm(n, T, dev->stream));
	input.kind = INPUT_ROWS;
	input.rows = dev->rows_bf16;
	return input;
}

static void stream(struct device *dev, struct stream_args a, int format)
{
	a.bf16 = dev->bf16;
	for (int i = 0; i < a.segments; i++)
		a.tiles += a.w[i].tiles;
	RUN_NOW(dev, launch_stream(a, format, dev->multiprocessors, dev->stream));
}

static struct packed_matrix scaled(const struct linear *l, struct rule rule)
{
	const struct matrix *m = l->prepared;
	struct packed_matrix w = m->packed;

	w.scale = scale_of(l, linear_numerics(l, rule));
	return w;
}

static bool tiles_in(const struct linear *l)
{
	return l->out && ((const struct matrix *)l->prepared)->packed.weight;
}

/* Stays with own kernels, in tiles. */
static bool streams(const struct linear *l, struct rule rule)
{
	return tiles_in(l) && linear_numerics(l, rule) != NUMERICS_W8A8_LT;
}

static bool plain_input(const struct linear *l, struct rule rule)
{
	return streams(l, rule) && act_of(linear_numerics(l, rule)) == ACT_NONE;
}

/* ---- Mamba-2 ---- */

static struct stream_input gated_input(struct device *dev, const struct mamba *w, struct rule rule, int T)
{
	const struct config *c = &dev->model->config;
	int act = act_of(linear_numerics(&w->out_proj, rule)), ld = w->in_proj.out, n = c->d_inner;
	struct stream_input input = {
		.kind = INPUT_GATED, .T = T, .in = n, .ld = staged(n), .act = act, .groups = c->n_groups, .ldz = ld,
		.staged = 1, .input_scale = w->out_proj.input_scale, .eps = (float)c->layer_norm_epsilon, .x = dev->mix,
		.z = dev->proj, .w = device_vector(dev, w->norm), .ld_leave = padded(n),
	};

	if (T <= OWN_NORM)
		return input;
	RUN_NOW(dev, launch_gated_norm(dev->mix, dev->proj, ld, input.w, T, n, c->n_groups, input.eps, dev->bf16, dev->stream));
	RUN_NOW(dev, launch_act(dev->rows_bf16, input.ld_leave, 1, dev->mix, n, 1, n, act, input.input_scale, NULL, NULL, NULL,
				T, dev->stream));
	input.kind = INPUT_ROWS;
	input.rows = dev->rows_bf16;
	return input;
}

static bool mamba_step(struct device *dev, float *y, const struct mamba *w, const struct mixer_state *state,
		       struct rule rule, int T)
{
	const struct config *c = &dev->model->config;
	struct ssm_shape shape = {
		.heads = c->mamba_num_heads, .head_dim = c->mamba_head_dim, .groups = c->n_groups,
		.state = c->ssm_state_size,
	};
	struct residual apply;
	struct stream_args in = {0}, out = {0};
	int dt = c->d_inner + c->conv_dim, act = act_of(linear_numerics(&w->in_proj, rule));

	if (!streams(&w->in_proj, rule) || !streams(&w->out_proj, rule))
		return false;
	in.input = take_norm(dev, &apply, c->hidden_size, act, w->in_proj.input_scale, NULL);
	in.w[0] = scaled(&w->in_proj, rule);
	in.y[0] = dev->proj;
	in.ldy[0] = w->in_proj.out;
	in.segments = 1;
	in.output = OUTPUT_CONV;
	in.conv = (struct stream_conv){
		.u = dev->conv_out, .state = state->conv.data, .w = device_vector(dev, w->conv_weight),
		.bias = device_vector(dev, w->conv_bias), .slots = state->slots, .stride = (int64_t)state->conv.stride,
		.first = c->d_inner, .channels = c->conv_dim, .kernel = c->conv_kernel,
	};
	stream(dev, in, in.w[0].format);
	RUN_NOW(dev, launch_ssm_step(ssm_args(dev, dev->mix, dev->conv_out, c->conv_dim, dev->proj + dt, w->in_proj.out,
					      state->ssm, w, &shape, c->time_step_limit), apply, state->slots, T, dev->stream));
	out.input = gated_input(dev, w, rule, T);
	out.w[0] = scaled(&w->out_proj, rule);
	out.y[0] = y;
	out.ldy[0] = c->hidden_size;
	out.segments = 1;
	stream(dev, out, out.w[0].format);
	return true;
}

/* ---- attention ---- */

static bool attn_step(struct device *dev, float *y, const struct attn *w, const struct mixer_state *state,
		      struct rule rule, int T)
{
	const struct config *c = &dev->model->config;
	const struct linear *l[] = { &w->q_proj, &w->k_proj, &w->v_proj };
	struct attn_shape shape = { c->num_attention_heads, c->num_key_value_heads, c->head_dim };
	struct residual apply;
	struct stream_args in = {0}, out = {0};
	int q = w->q_proj.out;

	for (int i = 0; i < 3; i++)
		if (!plain_input(l[i], rule) || l[i]->format != w->q_proj.format)
			return false;
	if (!streams(&w->o_proj, rule))
		return false;
	in.input = take_norm(dev, &apply, c->hidden_size, ACT_NONE, 0, NULL);
	for (int i = 0; i < 3; i++)
		in.w[i] = scaled(l[i], rule);
	in.y[0] = dev->proj;
	in.ldy[0] = q;
	in.segments = 3;
	in.output = OUTPUT_KV;
	in.kv = (struct stream_kv){
		.k_cache = state->k.data, .v_cache = state->v.data, .k_stride = (int64_t)state->k.stride,
		.v_stride = (int64_t)state->v.stride, .slots = state->slots, .pos = state->pos, .k_scale = w->k_scale,
		.v_scale = w->v_scale, .kind = kind_of(state->k.dtype),
	};
	stream(dev, in, in.w[0].format);
	attend(dev, attn_args(dev->mix, dev->proj, NULL, NULL, state->k, state->v, state->slots, state->pos, &shape,
			      w->k_scale, w->v_scale), apply, T);
	out.input = (struct stream_input){
		.kind = INPUT_FLOAT, .T = T, .in = q, .ld = staged(q), .staged = 1, .x = dev->mix,
		.act = act_of(linear_numerics(&w->o_proj, rule)), .input_scale = w->o_proj.input_scale,
	};
	out.w[0] = scaled(&w->o_proj, rule);
	out.y[0] = y;
	out.ldy[0] = c->hidden_size;
	out.segments = 1;
	stream(dev, out, out.w[0].format);
	return true;
}

/* ---- MoE ---- */

static bool experts_stream(const struct expert_table *t)
{
	return t->packed && t->base && !t->act;
}

static struct stream_experts experts(struct device *dev, const struct moe *w, const struct expert_table *t, bool down)
{
	const struct config *c = &dev->model->config;
	struct route_shape shape = {
		.experts = c->n_routed_experts, .per_token = c->num_experts_per_tok, .n_group = c->n_group,
		.topk_group = c->topk_group, .norm_topk_prob = c->norm_topk_prob, .scaling = c->routed_scaling_factor,
	};

	return (struct stream_experts){
		.route = route_args(dev, w->correction_bias, &shape), .base = t->base, .stride = t->stride,
		.scale = t->scale, .tiles = t->tiles, .steps = t->steps, .out = t->out, .is_down = down,
		.ld_up = padded(c->moe_intermediate_size), .up = dev->up_bf16, .down = dev->down,
	};
}

static bool moe_streams(const struct device *dev, const struct moe *w, const struct expert_table *up,
			const struct expert_table *down, struct rule rule)
{
	const struct config *c = &dev->model->config;

	if (c->moe_latent_size || STREAM_ROWS * c->num_experts_per_tok > STREAM_ENTRIES)
		return false;
	if (w->shared.up_proj.out && (!plain_input(&w->shared.up_proj, rule) || !plain_input(&w->shared.down_proj, rule) ||
				      (int)w->shared.down_proj.format != down->only))
		return false;
	return experts_stream(up) && experts_stream(down);
}

static bool moe_step(struct device *dev, float *y, const struct moe *w, struct rule rule, int T)
{
	const struct config *c = &dev->model->config;
	const struct matrix *first = w->experts[0].up_proj.prepared;
	int which = (rule.fp8 != NUMERICS_W8A16) + 2 * (rule.nvfp4 == NUMERICS_W4A4), H = c->hidden_size;
	const struct expert_table *up = &first->experts->up[which], *down = &first->experts->down[which];
	bool shared = w->shared.up_proj.out;
	struct residual apply;
	struct stream_args a = {0}, b = {0}, d = {0};
	float *weight = dev->step_weight[dev->step_parity ^= 1];

	if (!moe_streams(dev, w, up, down, rule))
		return false;
	a.input = take_norm(dev, &apply, H, ACT_NONE, 0, dev->rows_bf16);
	a.gate = device_vector(dev, w->gate);
	a.logits = dev->route_logits;
	a.gate_rows = c->n_routed_experts;
	a.output = OUTPUT_RELU2;
	a.y_bf16 = dev->shared_up;
	a.ld_bf16 = padded(c->shared_intermediate_size);
	if (shared)
		a.w[a.segments++] = scaled(&w->shared.up_proj, rule);
	stream(dev, a, shared ? a.w[0].format : FORMAT_BF16);
	b.input = (struct stream_input){
		.kind = INPUT_ROWS, .T = T, .in = H, .ld = staged(H), .staged = 1, .rows = dev->rows_bf16, .ld_leave = padded(H),
	};
	b.experts = experts(dev, w, up, false);
	b.experts.expert = dev->step_expert;
	b.experts.weight = weight;
	b.experts.apply = apply;
	stream(dev, b, up->only);
	d.input = (struct stream_input){
		.kind = INPUT_ROWS, .T = T, .in = c->shared_intermediate_size, .ld = a.ld_bf16, .rows = dev->shared_up,
	};
	d.experts = experts(dev, w, down, true);
	if (shared)
		d.w[d.segments++] = scaled(&w->shared.down_proj, rule);
	d.y[0] = dev->shared_out;
	d.ldy[0] = H;
	stream(dev, d, down->only);
	dev->parts = (struct residual){
		.down = dev->down, .weight = weight, .shared = shared ? dev->shared_out : NULL, .k = c->num_experts_per_tok,
	};
	dev->parts_y = y;
	return true;
}

bool cuda_mixer_step(struct device *dev, void *y, const void *x, const struct layer *layer,
		     const struct mixer_state *state, struct rule rule, int T)
{
	if (!dev->fused || !dev->norm_waits || dev->norm.x != x || dev->norm_rows != T || T > STREAM_ROWS)
		return false;
	switch (layer->block) {
	case BLOCK_MAMBA: return mamba_step(dev, y, &layer->mamba, state, rule, T);
	case BLOCK_ATTN: return attn_step(dev, y, &layer->attn, state, rule, T);
	case BLOCK_MOE: return moe_step(dev, y, &layer->moe, rule, T);
	default: return false;
	}
}
