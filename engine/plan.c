/* Opening and closing a forward pass: devices, buffers, and the plan that an arm makes for each layer. */
#include <stdlib.h>
#include "contract/err.h"
#include "faults.h"
#include "forward.h"

/* ---- the plan ---- */

static const enum factor place_of[N_BLOCKS] = {
	[BLOCK_MAMBA] = FACTOR_PLACE_MAMBA, [BLOCK_ATTN] = FACTOR_PLACE_ATTN, [BLOCK_MOE] = FACTOR_PLACE_MOE,
	[BLOCK_MLP] = FACTOR_PLACE_MLP,
};

static const int host_of[N_BLOCKS] = {
	[BLOCK_MAMBA] = PLACE_MAMBA_HOST, [BLOCK_ATTN] = PLACE_ATTN_HOST, [BLOCK_MOE] = PLACE_MOE_HOST,
	[BLOCK_MLP] = PLACE_MLP_HOST,
};

static bool lacks(const struct backend *b, enum block block)
{
	switch (block) {
	case BLOCK_MAMBA:
		return !b->conv_step || !b->conv_scan || !b->ssm_step || !b->ssm_scan || !b->gated_norm || !b->linear;
	case BLOCK_ATTN:
		return !b->attention || !b->linear;
	case BLOCK_MOE:
		return !b->route || !b->experts || !b->combine || !b->relu2 || !b->linear;
	case BLOCK_MLP:
		return !b->relu2 || !b->linear;
	case N_BLOCKS:
		break;
	}
	BUG("block %d", block);
}

static struct rule rule_of(const struct arm *arm)
{
	return (struct rule){
		.fp8 = arm->value[FACTOR_MAMBA_PROJ] == MAMBA_PROJ_W8A8 ? NUMERICS_W8A8 :
		       arm->value[FACTOR_MAMBA_PROJ] == MAMBA_PROJ_W8A8_LT ? NUMERICS_W8A8_LT : NUMERICS_W8A16,
		.nvfp4 = arm->value[FACTOR_MOE_EXPERTS] == MOE_EXPERTS_W4A4 ? NUMERICS_W4A4 : NUMERICS_W4A16,
	};
}

/* The experts of a layer are counted without looking at who was chosen, so they must run alike. */
static int check_experts(const struct moe *w, const struct rule rule, int experts, struct err *err)
{
	for (int e = 1; e < experts; e++)
		if (linear_numerics(&w->experts[e].up_proj, rule) != linear_numerics(&w->experts[0].up_proj, rule) ||
		    linear_numerics(&w->experts[e].down_proj, rule) != linear_numerics(&w->experts[0].down_proj, rule))
			return err_set(err, ERR_INPUT, "%s: its numerics differ from those of expert 0 of the layer",
				       w->experts[e].up_proj.name);
	return 0;
}

/* Faults of the path: another one, and counted as the one that was asked (counter-*). */
static void plant(struct plan *p)
{
	bool other = (FAULT(COUNTER_ONLY) && p->asked_chunk) || (FAULT(COUNTER_STEP) && !p->asked_chunk);

	p->decode_chunk ^= other;
	p->lies = !p->host && (other || FAULT(COUNTER_HOST));
	p->host |= FAULT(HOST_SERVED) || FAULT(COUNTER_HOST);
}

static int make_plan(struct forward *f, const struct backend *b, const struct arm *layer_arm, struct err *err)
{
	const struct config *c = &f->model->config;

	f->plan = xcalloc(c->num_hidden_layers, sizeof(*f->plan));
	for (int i = 0; i < c->num_hidden_layers; i++) {
		const struct layer *layer = &f->model->layers[i];
		const struct arm *arm = &layer_arm[i];
		struct plan *p = &f->plan[i];

		p->rule = rule_of(arm);
		p->host = arm->value[place_of[layer->block]] == host_of[layer->block];
		if (!p->host && lacks(b, layer->block))
			p->host = p->missing = true;
		p->asked_chunk = arm->value[FACTOR_MAMBA_DECODE] == MAMBA_DECODE_CHUNK;
		p->decode_chunk = p->asked_chunk != FAULT(WRONG_PATH);
		if (FAULT_ANY && layer->block == BLOCK_MAMBA)
			plant(p);
		p->prefill_step = arm->value[FACTOR_MAMBA_PREFILL] == MAMBA_PREFILL_STEP;
		if (layer->block == BLOCK_MOE && check_experts(&layer->moe, p->rule, c->n_routed_experts, err))
			return -1;
	}
	return 0;
}

bool forward_hosts(const struct forward *f)
{
	for (int i = 0; i < f->model->config.num_hidden_layers; i++)
		if (f->plan[i].host)
			return true;
	return false;
}

bool forward_gathers(const struct forward *f)
{
	for (int i = 0; i < f->model->config.num_hidden_layers; i++)
		if (f->plan[i].host || f->plan[i].decode_chunk)
			return true;
	return false;
}

/* ---- lanes ---- */

static size_t largest(const size_t *n, int count)
{
	size_t top = 0;

	for (int i = 0; i < count; i++)
		if (n[i] > top)
			top = n[i];
	return top;
}

/* Widths of the scratch buffers: what each block of forward.c keeps in which. */
static void scratch_widths(size_t width[N_SCRATCH], const struct model *m)
{
	const struct config *c = &m->config;
	size_t in_proj = 0, dense = 0, q = (size_t)c->num_attention_heads * c->head_dim;
	size_t kv = (size_t)c->num_key_value_heads * c->head_dim;

	for (int i = 0; i < c->num_hidden_layers; i++)
		if (m->layers[i].block == BLOCK_MAMBA)
			in_proj = m->layers[i].mamba.in_proj.out;
	for (int j = 0; j < c->n_blocks[BLOCK_MLP]; j++)
		if ((size_t)c->intermediate_size[j] > dense)
			dense = c->intermediate_size[j];
	width[0] = largest((size_t[]){ in_proj, q, dense, c->shared_intermediate_size }, 4);
	width[1] = largest((size_t[]){ c->conv_dim, kv, c->moe_latent_size }, 3);
	width[2] = largest((size_t[]){ c->d_inner, kv, c->moe_latent_size }, 3);
	width[3] = largest((size_t[]){ q, c->n_blocks[BLOCK_MOE] ? c->hidden_size : 0 }, 2);
}

static int lane_open(struct lane *l, const struct backend *b, struct model *m, const struct arm *arm,
		     const struct limits *limits, struct counters *counters, struct err *err)
{
	const struct config *c = &m->config;
	size_t rows = limits->rows > limits->slots ? limits->rows : limits->slots, width[N_SCRATCH] = {0};
	int32_t *iota;

	l->b = b;
	if (b->open(&l->dev, m, arm, limits, counters, err))
		return -1;
	l->open = true;
	l->act = dtype_size(b->act_dtype(l->dev));
	l->h = b->alloc(l->dev, rows * c->hidden_size * dtype_size(b->residual_dtype(l->dev)));
	l->x = b->alloc(l->dev, rows * c->hidden_size * l->act);
	l->y = b->alloc(l->dev, rows * c->hidden_size * l->act);
	scratch_widths(width, m);
	for (int i = 0; i < N_SCRATCH; i++)
		l->scratch[i] = b->alloc(l->dev, rows * width[i] * l->act);
	l->expert = b->alloc(l->dev, (rows * c->num_experts_per_tok + 1) * sizeof(int32_t));
	l->weight = b->alloc(l->dev, (rows * c->num_experts_per_tok + 1) * sizeof(double));
	l->ids = b->alloc(l->dev, rows * sizeof(int32_t));
	l->slots = b->alloc(l->dev, rows * sizeof(int32_t));
	l->pos = b->alloc(l->dev, rows * sizeof(int32_t));
	l->given = b->alloc(l->dev, rows * sizeof(int32_t));
	l->zeros = b->alloc(l->dev, rows * sizeof(int32_t));
	l->rows = b->alloc(l->dev, rows * sizeof(int32_t));
	iota = xcalloc(rows, sizeof(*iota));
	for (size_t i = 0; i < rows; i++)
		iota[i] = (int32_t)i;
	b->upload(l->dev, l->rows, iota, rows * sizeof(*iota));
	free(iota);
	return 0;
}

static void lane_close(struct lane *l)
{
	if (!l->open)
		return;
	void *owned[] = { l->h, l->x, l->y, l->expert, l->weight, l->ids, l->slots, l->pos, l->given, l->zeros, l->rows };

	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		l->b->free(l->dev, owned[i]);
	for (int i = 0; i < N_SCRATCH; i++)
		l->b->free(l->dev, l->scratch[i]);
	l->b->close(l->dev);
	*l = (struct lane){0};
}

static void shapes(struct forward *f)
{
	const struct config *c = &f->model->config;

	f->ssm = (struct ssm_shape){
		.heads = c->mamba_num_heads, .head_dim = c->mamba_head_dim, .groups = c->n_groups,
		.state = c->ssm_state_size, .conv_kernel = c->conv_kernel, .chunk_size = c->chunk_size,
	};
	f->attn = (struct attn_shape){
		.heads = c->num_attention_heads, .kv_heads = c->num_key_value_heads, .head_dim = c->head_dim,
	};
	f->route = (struct route_shape){
		.experts = c->n_routed_experts, .per_token = c->num_experts_per_tok, .n_group = c->n_group,
		.topk_group = c->topk_group, .norm_topk_prob = c->norm_topk_prob,
		.scaling = c->routed_scaling_factor,
	};
	f->dt_limit[0] = c->time_step_limit[0];
	f->dt_limit[1] = c->time_step_limit[1];
	if (FAULT(DT_CLAMP) && f->dt_limit[0] < 0.001)
		f->dt_limit[0] = 0.001;
}

int forward_open(struct forward *f, const struct backend *b, struct model *m, const struct arm *arm,
		 const struct arm *layer_arm, const struct limits *limits, struct counters *counters, struct err *err)
{
	size_t rows = limits->rows > limits->slots ? limits->rows : limits->slots;

	*f = (struct forward){ .model = m, .counters = counters, .limits = *limits, .rule = rule_of(arm) };
	if (make_plan(f, b, layer_arm, err))
		return -1;
	if (!b->embed || !b->rms_norm || !b->add || !b->head || !b->logits)
		return err_set(err, ERR_CANNOT_RUN, "backend %s: embedding, norm or head is not built", b->name);
	f->compute = arm->value[FACTOR_COMPUTE];
	f->head_bf16 = arm->value[FACTOR_HEAD] == HEAD_BF16 && arm->value[FACTOR_COMPUTE] != COMPUTE_F64;
	f->graph = arm->value[FACTOR_GRAPH] == GRAPH_ON && b->graph_replay;
	if (arm->value[FACTOR_GRAPH] == GRAPH_ON && !b->graph_replay)
		return err_set(err, ERR_CANNOT_RUN, "graph: on is not built for backend %s", b->name);
	shapes(f);
	if (FAULT(INPUT_SCALE))
		fault_drop_input_scales(m);
	f->staging = xcalloc(rows, sizeof(*f->staging));
	f->slots = xcalloc(limits->slots, sizeof(*f->slots));
	f->given = xcalloc(limits->slots, sizeof(*f->given));
	f->captured = xcalloc(limits->slots + 1, sizeof(*f->captured));
	if (lane_open(&f->main, b, m, arm, limits, counters, err))
		return -1;
	if (forward_hosts(f) && lane_open(&f->ref, &ref_backend, m, arm, limits, counters, err))
		return -1;
	return 0;
}

void forward_release(struct forward *f)
{
	lane_close(&f->ref);
	lane_close(&f->main);
	free(f->plan);
	free(f->staging);
	free(f->slots);
	free(f->given);
	free(f->captured);
	*f = (struct forward){0};
}
