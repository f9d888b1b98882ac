/* The forward pass.  Read it beside docs/model.md, section 3: embedding, then per layer one norm and one mixer
 * (mamba, attention, mlp or moe), then the head. */
#include "forward.h"

#include <string.h>
#include "contract/err.h"
#include "faults.h"

static void count(struct forward *f, enum counter c, int64_t n)
{
	f->counters->n[c] += n;
}

static void count_linear(struct forward *f, enum numerics n, int modules)
{
	static const enum counter counter[] = {
		[NUMERICS_BF16] = COUNT_BF16_CALLS, [NUMERICS_W8A8] = COUNT_W8A8_CALLS, [NUMERICS_W8A8_LT] = COUNT_W8A8_CALLS,
		[NUMERICS_W8A16] = COUNT_W8A16_CALLS, [NUMERICS_W4A16] = COUNT_W4A16_CALLS,
		[NUMERICS_W4A4] = COUNT_W4A4_CALLS,
	};

	count(f, counter[n], modules);
}

/* An op of a block that ref serves because the backend lacks one of its ops. */
static void count_served(struct forward *f, const struct plan *plan)
{
	if (plan->missing)
		count(f, COUNT_REFERENCE_TIER, 1);
}

/* Element `n` of an activation array. */
static void *act(const struct lane *l, const void *base, size_t n)
{
	return (char *)base + n * l->act;
}

static void project(struct forward *f, struct lane *l, void *y, int ldy, const void *x, int ldx, const struct linear *w,
		    const struct plan *plan, int T)
{
	enum numerics n = linear_numerics(w, plan->rule);

	l->b->linear(l->dev, y, ldy, x, ldx, w, n, T);
	count_linear(f, n, 1);
	count_served(f, plan);
}

/* ---- Mamba-2 (3.3) ---- */

/* Where a Mamba layer's state is during one step: the pool, or a gathered copy. */
struct place {
	struct state_view conv, ssm;
	const int32_t *slots;        /* of the rows, in the lane's memory */
	int slot;                    /* of the first sequence */
};

static struct state_view fetch(struct forward *f, int layer, enum state_kind kind, int rows, size_t size)
{
	const int32_t *slots = f->main.slots;

	if (f->plan[layer].host)
		return state_gather_host(f->pool, layer, kind, slots, rows, size);
	return state_gather(f->pool, layer, kind, slots, rows, size);
}

static void put_back(struct forward *f, int layer, enum state_kind kind, int rows, size_t size)
{
	const int32_t *slots = f->main.slots;

	if (f->plan[layer].host)
		state_scatter_host(f->pool, layer, kind, slots, rows, size);
	else
		state_scatter(f->pool, layer, kind, slots, rows, size);
}

/* u = conv(xBC), y = ssm(u, dt): one token per row, the state updated in place (3.3.1). */
static void mamba_step(struct forward *f, struct lane *l, void *y, void *u, const void *xbc, const void *dt, int ld,
		       const struct place *at, const struct layer *layer, const struct plan *plan, int rows)
{
	const struct mamba *w = &layer->mamba;
	const struct config *c = &f->model->config;

	l->b->conv_step(l->dev, u, xbc, ld, at->conv, at->slots, w->conv_weight, w->conv_bias, c->conv_dim,
			c->conv_kernel, rows);
	if (FAULT(SWAP_BC))
		fault_swap_bc(f, l, u, rows);
	l->b->ssm_step(l->dev, y, u, c->conv_dim, dt, ld, at->ssm, at->slots, w, &f->ssm, f->dt_limit, rows);
	if (!plan->host) {
		count(f, COUNT_CONV_UPDATE_ROWS, rows);
		count(f, COUNT_STATE_UPDATE_ROWS, rows);
	}
}

/* The same as a scan: of T tokens of one sequence, or of one token for each of several (3.3.2). */
static void mamba_scan(struct forward *f, struct lane *l, void *y, void *u, const void *xbc, const void *dt, int ld,
		       const struct place *at, const struct layer *layer, const struct plan *plan,
		       const struct step *step)
{
	const struct mamba *w = &layer->mamba;
	const struct config *c = &f->model->config;
	int sequences = step->prefill ? 1 : step->T, T = step->prefill ? step->T : 1;

	for (int s = 0; s < sequences; s++) {
		size_t row = (size_t)s * T;

		l->b->conv_scan(l->dev, act(l, u, row * c->conv_dim), act(l, xbc, row * ld), ld, at->conv, at->slot + s,
				w->conv_weight, w->conv_bias, c->conv_dim, c->conv_kernel, T);
		if (FAULT(SWAP_BC))
			fault_swap_bc(f, l, act(l, u, row * c->conv_dim), T);
		if (FAULT(CHUNK_BOUNDARY) && step->prefill) {
			fault_scan_to_boundary(f, l, y, u, dt, ld, at->ssm, at->slot, w, T, step->pos);
			continue;
		}
		/* A scan of one token has one chunk of one token wherever it stands. */
		l->b->ssm_scan(l->dev, act(l, y, row * c->d_inner), act(l, u, row * c->conv_dim), c->conv_dim,
			       act(l, dt, row * ld), ld, at->ssm, at->slot + s, w, &f->ssm, f->dt_limit, T,
			       step->prefill ? step->pos : 0);
	}
	if (!plan->host) {
		count(f, COUNT_CONV_FWD_CALLS, 1);
		count(f, COUNT_CHUNK_SCAN_CALLS, 1);
	}
}

static void mamba(struct forward *f, struct lane *l, int index, const struct step *step)
{
	const struct config *c = &f->model->config;
	const struct layer *layer = &f->model->layers[index];
	const struct plan *plan = &f->plan[index];
	const struct mamba *w = &layer->mamba;
	const struct layer_state *state = &f->pool->layers[index];
	size_t conv = state->array[STATE_CONV].size, ssm = state->array[STATE_SSM].size;
	int ld = w->in_proj.out, T = step->T, sequences = step->prefill ? 1 : T;
	void *p = l->scratch[0], *u = l->scratch[1], *y = l->scratch[2];
	void *z = p, *xbc = act(l, p, c->d_inner), *dt = act(l, p, c->d_inner + c->conv_dim);
	bool scan = step->prefill ? !plan->prefill_step : plan->decode_chunk;
	/* The chunk arm works on gathered state wherever there is state to carry. */
	bool gathered = plan->host || (scan && plan->decode_chunk && (!step->prefill || step->pos > 0));
	struct place at = {
		.conv = state->array[STATE_CONV].view, .ssm = state->array[STATE_SSM].view,
		.slots = l->slots, .slot = step->slot,
	};

	project(f, l, p, ld, l->x, c->hidden_size, &w->in_proj, plan, T);
	if (gathered)
		at = (struct place){
			.conv = fetch(f, index, STATE_CONV, sequences, conv),
			.ssm = fetch(f, index, STATE_SSM, sequences, ssm),
			.slots = step->prefill ? l->zeros : l->rows,
		};
	if (scan)
		mamba_scan(f, l, y, u, xbc, dt, ld, &at, layer, plan, step);
	else if (!step->prefill)
		mamba_step(f, l, y, u, xbc, dt, ld, &at, layer, plan, T);
	else
		for (int t = 0; t < T; t++)
			mamba_step(f, l, act(l, y, (size_t)t * c->d_inner), act(l, u, (size_t)t * c->conv_dim),
				   act(l, xbc, (size_t)t * ld), act(l, dt, (size_t)t * ld), ld, &at, layer, plan, 1);
	count_served(f, plan);   /* conv */
	count_served(f, plan);   /* ssm */
	if (gathered) {
		put_back(f, index, STATE_CONV, sequences, conv);
		put_back(f, index, STATE_SSM, sequences, ssm);
	}
	if (FAULT(STATE_SCALED) && !step->prefill)
		fault_scale_state(f, index, T);
	if (FAULT(GATE_AFTER_NORM))
		fault_gate_after_norm(f, l, y, z, ld, w->norm, T);
	else
		l->b->gated_norm(l->dev, y, z, ld, w->norm, T, c->d_inner, c->n_groups, c->layer_norm_epsilon);
	count_served(f, plan);
	project(f, l, l->y, c->hidden_size, y, c->d_inner, &w->out_proj, plan, T);
}

/* ---- attention (3.4) ---- */

static void attention(struct forward *f, struct lane *l, int index, const struct step *step)
{
	const struct config *c = &f->model->config;
	const struct plan *plan = &f->plan[index];
	const struct attn *w = &f->model->layers[index].attn;
	int T = step->T, q_size = w->q_proj.out, kv_size = w->k_proj.out, sequences = step->prefill ? 1 : T;
	void *q = l->scratch[0], *k = l->scratch[1], *v = l->scratch[2], *y = l->scratch[3];
	struct state_view k_cache = f->pool->layers[index].array[STATE_K].view;
	struct state_view v_cache = f->pool->layers[index].array[STATE_V].view;
	const int32_t *slots = l->slots;
	size_t used = (size_t)(step->last + 1) * kv_size;

	project(f, l, q, q_size, l->x, c->hidden_size, &w->q_proj, plan, T);
	project(f, l, k, kv_size, l->x, c->hidden_size, &w->k_proj, plan, T);
	project(f, l, v, kv_size, l->x, c->hidden_size, &w->v_proj, plan, T);
	if (plan->host) {
		k_cache = fetch(f, index, STATE_K, sequences, used);
		v_cache = fetch(f, index, STATE_V, sequences, used);
		slots = step->prefill ? l->zeros : l->rows;
	}
	l->b->attention(l->dev, y, q, k, v, k_cache, v_cache, slots, l->pos, &f->attn, w->k_scale, w->v_scale, T);
	count_served(f, plan);
	if (plan->host) {
		put_back(f, index, STATE_K, sequences, used);
		put_back(f, index, STATE_V, sequences, used);
	}
	project(f, l, l->y, c->hidden_size, y, q_size, &w->o_proj, plan, T);
}

/* ---- dense MLP and MoE (3.5, 3.6) ---- */

static void mlp(struct forward *f, struct lane *l, void *y, const void *x, const struct mlp *w, const struct plan *plan,
		int T)
{
	void *up = l->scratch[0];

	project(f, l, up, w->up_proj.out, x, w->up_proj.in, &w->up_proj, plan, T);
	l->b->relu2(l->dev, up, T, w->up_proj.out);
	count_served(f, plan);
	project(f, l, y, w->down_proj.out, up, w->down_proj.in, &w->down_proj, plan, T);
}

static void moe(struct forward *f, struct lane *l, int index, const struct step *step)
{
	const struct config *c = &f->model->config;
	const struct plan *plan = &f->plan[index];
	const struct moe *w = &f->model->layers[index].moe;
	int T = step->T, H = c->hidden_size, X = c->moe_latent_size ? c->moe_latent_size : H;
	void *in = l->x, *routed = l->y, *shared = l->scratch[3];

	l->b->route(l->dev, l->expert, l->weight, l->x, w->gate, w->correction_bias, H, &f->route, T);
	if (f->routing && !step->prefill)
		routing_add(f->routing, l->b, l->dev, l->expert, index, T);
	if (FAULT(ROUTER_BIAS))
		fault_weigh_with_bias(f, l, w, T);
	count_linear(f, NUMERICS_BF16, 1);
	count_served(f, plan);
	if (c->moe_latent_size) {
		in = l->scratch[1];
		routed = l->scratch[2];
		project(f, l, in, X, l->x, H, &w->fc1_latent_proj, plan, T);
	}
	l->b->experts(l->dev, routed, in, l->expert, l->weight, w, plan->rule, c->num_experts_per_tok, X, T);
	count_linear(f, linear_numerics(&w->experts[0].up_proj, plan->rule), c->num_experts_per_tok);
	count_linear(f, linear_numerics(&w->experts[0].down_proj, plan->rule), c->num_experts_per_tok);
	count_served(f, plan);
	if (c->moe_latent_size)
		project(f, l, l->y, H, routed, X, &w->fc2_latent_proj, plan, T);
	if (!w->shared.up_proj.out)
		return;
	mlp(f, l, shared, l->x, &w->shared, plan, T);
	l->b->combine(l->dev, l->y, shared, T, H);
	count_served(f, plan);
}

/* ---- the skeleton (3.1) ---- */

static void mixer(struct forward *f, struct lane *l, int index, const struct step *step)
{
	switch (f->model->layers[index].block) {
	case BLOCK_MAMBA:
		mamba(f, l, index, step);
		return;
	case BLOCK_ATTN:
		attention(f, l, index, step);
		return;
	case BLOCK_MOE:
		moe(f, l, index, step);
		return;
	case BLOCK_MLP:
		mlp(f, l, l->y, l->x, &f->model->layers[index].mlp, &f->plan[index], step->T);
		return;
	case N_BLOCKS:
		break;
	}
	BUG("layer %d has block %d", index, f->model->layers[index].block);
}

static void count_mlp(struct forward *f, const struct mlp *w, struct rule rule, int modules)
{
	count_linear(f, linear_numerics(&w->up_proj, rule), modules);
	count_linear(f, linear_numerics(&w->down_proj, rule), modules);
}

/* What a fused mixer did, counted as its ops are. */
static void count_mixer(struct forward *f, const struct layer *w, struct rule rule, int rows)
{
	switch (w->block) {
	case BLOCK_MAMBA:
		count(f, COUNT_CONV_UPDATE_ROWS, rows);
		count(f, COUNT_STATE_UPDATE_ROWS, rows);
		count_linear(f, linear_numerics(&w->mamba.in_proj, rule), 1);
		count_linear(f, linear_numerics(&w->mamba.out_proj, rule), 1);
		return;
	case BLOCK_ATTN:
		count_linear(f, linear_numerics(&w->attn.q_proj, rule), 1);
		count_linear(f, linear_numerics(&w->attn.k_proj, rule), 1);
		count_linear(f, linear_numerics(&w->attn.v_proj, rule), 1);
		count_linear(f, linear_numerics(&w->attn.o_proj, rule), 1);
		return;
	case BLOCK_MOE:
		count_linear(f, NUMERICS_BF16, 1);
		count_mlp(f, &w->moe.experts[0], rule, f->model->config.num_experts_per_tok);
		if (w->moe.shared.up_proj.out)
			count_mlp(f, &w->moe.shared, rule, 1);
		return;
	case BLOCK_MLP:
		count_mlp(f, &w->mlp, rule, 1);
		return;
	case N_BLOCKS:
		break;
	}
	BUG("block %d", w->block);
}

/* One call for the mixer of a decode step, where the backend has one for this layer. */
static bool mixer_fused(struct forward *f, int index, const struct step *step)
{
	struct lane *l = &f->main;
	const struct layer *layer = &f->model->layers[index];
	const struct plan *plan = &f->plan[index];
	const struct state_array *a = f->pool->layers[index].array;
	struct mixer_state state = {
		.conv = a[STATE_CONV].view, .ssm = a[STATE_SSM].view, .k = a[STATE_K].view, .v = a[STATE_V].view,
		.slots = l->slots, .pos = l->pos,
	};

	if (step->prefill || plan->host || plan->decode_chunk || !l->b->mixer_step || f->routing || FAULT_ANY ||
	    !l->b->mixer_step(l->dev, l->y, l->x, layer, &state, plan->rule, step->T))
		return false;
	count_mixer(f, layer, plan->rule, step->T);
	return true;
}

/* The block's input goes to ref and its output comes back; the residual stream stays where it is. */
static void mixer_on_host(struct forward *f, int index, const struct step *step)
{
	struct lane *m = &f->main, *r = &f->ref;
	size_t n = (size_t)step->T * f->model->config.hidden_size;

	m->b->act_to_host(m->dev, r->x, m->x, n);
	mixer(f, r, index, step);
	m->b->act_from_host(m->dev, m->y, r->y, n);
}

/* h += y, and the next norm's x of it. */
static void add_norm(struct forward *f, const float *norm, int T)
{
	struct lane *l = &f->main;
	int H = f->model->config.hidden_size;
	double eps = f->model->config.layer_norm_epsilon;

	if (l->b->add_rms_norm) {
		l->b->add_rms_norm(l->dev, l->x, l->h, l->y, norm, T, H, eps);
		return;
	}
	l->b->add(l->dev, l->h, l->y, T, H);
	l->b->rms_norm(l->dev, l->x, l->h, norm, T, H, eps);
}

/* Of a prefill only the last row is asked for. */
static void head(struct forward *f, const struct step *step)
{
	const struct model *m = f->model;
	struct lane *l = &f->main;
	int H = m->config.hidden_size, rows = step->prefill ? 1 : step->T;
	size_t skipped = (size_t)(step->T - rows) * H * dtype_size(l->b->residual_dtype(l->dev));
	enum numerics n = linear_numerics(&m->lm_head, f->rule);

	l->b->rms_norm(l->dev, l->x, (char *)l->h + skipped, m->norm_f, rows, H, m->config.layer_norm_epsilon);
	l->b->head(l->dev, l->ids, l->x, &m->lm_head, n, l->given, f->head_bf16, rows);
	count_linear(f, n, 1);
}

static void run(struct forward *f, const struct step *step)
{
	const struct model *m = f->model;
	struct lane *l = &f->main;
	int layers = m->config.num_hidden_layers, H = m->config.hidden_size, T = step->T;

	l->b->embed(l->dev, l->h, l->ids, &m->embed, T);
	l->b->rms_norm(l->dev, l->x, l->h, m->layers[0].norm, T, H, m->config.layer_norm_epsilon);
	for (int i = 0; i < layers; i++) {
		struct counters before = *f->counters;

		if (f->plan[i].host)
			mixer_on_host(f, i, step);
		else if (!mixer_fused(f, i, step))
			mixer(f, l, i, step);
		if (FAULT_ANY && f->plan[i].lies)
			fault_count_as_asked(f, i, step, &before);
		if (i + 1 < layers)
			add_norm(f, m->layers[i + 1].norm, T);
		else
			l->b->add(l->dev, l->h, l->y, T, H);
	}
	if (step->head)
		head(f, step);
}

static void upload(struct lane *l, int32_t *to, const int32_t *from, int n)
{
	l->b->upload(l->dev, to, from, n * sizeof(*from));
}

/* n integers from `first` on, `by` apart. */
static void upload_range(struct forward *f, struct lane *l, int32_t *to, int first, int by, int n)
{
	for (int i = 0; i < n; i++)
		f->staging[i] = first + i * by;
	upload(l, to, f->staging, n);
}

/* What a batch keeps from step to step: only if it is not there. */
static void upload_changed(struct forward *f, int32_t *to, int32_t *there, const int32_t *from, int n)
{
	if (n == f->there && memcmp(there, from, n * sizeof(*from)) == 0)
		return;
	upload(&f->main, to, from, n);
	memcpy(there, from, n * sizeof(*from));
}

void forward_prefill(struct forward *f, int slot, const int32_t *ids, int n, int64_t pos, bool want_logits,
		     int32_t given)
{
	struct step step = {
		.prefill = true, .T = n, .slot = slot, .pos = pos, .last = (int)pos + n - 1, .head = want_logits,
	};

	f->there = 0;
	upload(&f->main, f->main.ids, ids, n);
	upload_range(f, &f->main, f->main.slots, slot, 0, n);
	upload_range(f, &f->main, f->main.pos, (int)pos, 1, n);
	upload(&f->main, f->main.given, &given, 1);
	if (f->ref.open)
		upload_range(f, &f->ref, f->ref.pos, (int)pos, 1, n);
	run(f, &step);
}

void forward_decode(struct forward *f, const int32_t *ids, const int32_t *slots, const int32_t *pos,
		    const int32_t *given, int n)
{
	struct lane *l = &f->main;
	struct step step = { .T = n, .head = true };
	struct counters before;
	bool graph = f->graph && !f->routing;

	for (int i = 0; i < n; i++)
		if (pos[i] > step.last)
			step.last = pos[i];
	if (ids)
		upload(l, l->ids, ids, n);
	upload(l, l->pos, pos, n);
	upload_changed(f, l->slots, f->slots, slots, n);
	if (!given)
		for (int i = 0; i < n; i++)
			f->staging[i] = -1;
	upload_changed(f, l->given, f->given, given ? given : f->staging, n);
	f->there = n;
	if (f->ref.open)
		upload(&f->ref, f->ref.pos, pos, n);
	if (graph && l->b->graph_replay(l->dev, n)) {
		for (int c = 0; c < N_COUNTERS; c++)
			count(f, c, f->captured[n].n[c]);
		return;
	}
	before = *f->counters;
	if (graph)
		l->b->graph_begin(l->dev, n);
	run(f, &step);
	if (!graph)
		return;
	l->b->graph_end(l->dev, n);
	for (int c = 0; c < N_COUNTERS; c++)
		f->captured[n].n[c] = f->counters->n[c] - before.n[c];
}

void forward_logits(struct forward *f, struct logits_row *out, int rows)
{
	f->main.b->logits(f->main.dev, out, rows);
	if (FAULT(RANK_SWAP))
		fault_swap_ranks(out, rows);
}
