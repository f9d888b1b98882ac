#include "layout.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME_MAX_BYTES = 160 };

/* layers.L.mixer.TAIL; the buffer holds any name of this file. */
static const char *mixer(char buf[NAME_MAX_BYTES], int layer, const char *tail)
{
	snprintf(buf, NAME_MAX_BYTES, "layers.%d.mixer.%s", layer, tail);
	return buf;
}

static int visit_linear(struct layout *v, struct linear *l, int layer, const char *tail, int out, int in, int flags)
{
	char name[NAME_MAX_BYTES];

	return v->linear(v, l, mixer(name, layer, tail), out, in, flags);
}

static int visit_vector(struct layout *v, const float **to, int layer, const char *tail, int n)
{
	char name[NAME_MAX_BYTES];

	return v->vector(v, to, mixer(name, layer, tail), 1, (int64_t[]){ n });
}

static int visit_mamba(struct layout *v, struct mamba *m, const struct config *c, int layer)
{
	int rows = c->d_inner + c->conv_dim + c->mamba_num_heads, bias = c->use_bias ? LAYOUT_BIAS : 0;
	char name[NAME_MAX_BYTES];

	if (visit_linear(v, &m->in_proj, layer, "in_proj", rows, c->hidden_size, bias) ||
	    v->vector(v, &m->conv_weight, mixer(name, layer, "conv1d.weight"), 3, (int64_t[]){ c->conv_dim, 1, c->conv_kernel }) ||
	    (c->use_conv_bias && visit_vector(v, &m->conv_bias, layer, "conv1d.bias", c->conv_dim)))
		return -1;
	return visit_vector(v, &m->A_log, layer, "A_log", c->mamba_num_heads) ||
	       visit_vector(v, &m->D, layer, "D", c->mamba_num_heads) ||
	       visit_vector(v, &m->dt_bias, layer, "dt_bias", c->mamba_num_heads) ||
	       visit_vector(v, &m->norm, layer, "norm.weight", c->d_inner) ||
	       visit_linear(v, &m->out_proj, layer, "out_proj", c->hidden_size, c->d_inner, bias) ? -1 : 0;
}

static int visit_attention(struct layout *v, struct attn *a, const struct config *c, int layer)
{
	int q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
	int H = c->hidden_size, bias = c->attention_bias ? LAYOUT_BIAS : 0;
	char name[NAME_MAX_BYTES];

	return visit_linear(v, &a->q_proj, layer, "q_proj", q, H, bias) ||
	       visit_linear(v, &a->k_proj, layer, "k_proj", kv, H, bias) ||
	       visit_linear(v, &a->v_proj, layer, "v_proj", kv, H, bias) ||
	       visit_linear(v, &a->o_proj, layer, "o_proj", H, q, bias) ||
	       v->kv_scale(v, &a->k_scale, mixer(name, layer, "k_proj.k_scale")) ||
	       v->kv_scale(v, &a->v_scale, mixer(name, layer, "v_proj.v_scale")) ? -1 : 0;
}

static int visit_mlp(struct layout *v, struct mlp *m, int layer, const char *prefix, int width, int in, int flags)
{
	char tail[64];

	snprintf(tail, sizeof tail, "%sup_proj", prefix);
	if (visit_linear(v, &m->up_proj, layer, tail, width, in, flags))
		return -1;
	snprintf(tail, sizeof tail, "%sdown_proj", prefix);
	return visit_linear(v, &m->down_proj, layer, tail, in, width, flags);
}

static int visit_moe(struct layout *v, struct moe *m, const struct config *c, int layer)
{
	int H = c->hidden_size, X = c->moe_latent_size ? c->moe_latent_size : H, bias = c->mlp_bias ? LAYOUT_BIAS : 0;
	char name[NAME_MAX_BYTES], prefix[32];

	if (v->vector(v, &m->gate, mixer(name, layer, "gate.weight"), 2, (int64_t[]){ c->n_routed_experts, H }) ||
	    visit_vector(v, &m->correction_bias, layer, "gate.e_score_correction_bias", c->n_routed_experts))
		return -1;
	if (c->moe_latent_size && (visit_linear(v, &m->fc1_latent_proj, layer, "fc1_latent_proj", X, H, bias) ||
				   visit_linear(v, &m->fc2_latent_proj, layer, "fc2_latent_proj", H, X, bias)))
		return -1;
	m->experts = xcalloc(c->n_routed_experts, sizeof *m->experts);
	for (int e = 0; e < c->n_routed_experts; e++) {
		snprintf(prefix, sizeof prefix, "experts.%d.", e);
		if (visit_mlp(v, &m->experts[e], layer, prefix, c->moe_intermediate_size, X, 0))
			return -1;
	}
	if (!c->shared_intermediate_size)
		return 0;
	return visit_mlp(v, &m->shared, layer, "shared_experts.", c->shared_intermediate_size, H, LAYOUT_BIAS_IF_THERE);
}

static int visit_layer(struct layout *v, struct layer *l, const struct config *c, int i, int *dense)
{
	char name[NAME_MAX_BYTES];

	l->block = c->layers_block_type[i];
	l->attn.k_scale = l->attn.v_scale = 1;
	snprintf(name, sizeof name, "layers.%d.norm.weight", i);
	if (v->vector(v, &l->norm, name, 1, (int64_t[]){ c->hidden_size }))
		return -1;
	switch (l->block) {
	case BLOCK_MAMBA:
		return visit_mamba(v, &l->mamba, c, i);
	case BLOCK_ATTN:
		return visit_attention(v, &l->attn, c, i);
	case BLOCK_MOE:
		return visit_moe(v, &l->moe, c, i);
	default:
		return visit_mlp(v, &l->mlp, i, "", c->intermediate_size[(*dense)++], c->hidden_size,
				 c->mlp_bias ? LAYOUT_BIAS : 0);
	}
}

void layout_release(struct model *m)
{
	for (int i = 0; m->layers && i < m->config.num_hidden_layers; i++)
		free(m->layers[i].moe.experts);
	free(m->layers);
	m->layers = NULL;
}

int layout_visit(struct layout *v, struct model *m)
{
	const struct config *c = &m->config;
	int dense = 0;

	layout_release(m);
	m->layers = xcalloc(c->num_hidden_layers, sizeof *m->layers);
	if (v->linear(v, &m->embed, "embeddings", c->vocab_size, c->hidden_size, LAYOUT_PLAIN))
		return -1;
	for (int i = 0; i < c->num_hidden_layers; i++)
		if (visit_layer(v, &m->layers[i], c, i, &dense))
			return -1;
	if (v->vector(v, &m->norm_f, "norm_f.weight", 1, (int64_t[]){ c->hidden_size }))
		return -1;
	return c->tie_word_embeddings ? 0 : v->linear(v, &m->lm_head, "lm_head", c->vocab_size, c->hidden_size, 0);
}

/* ---- what all modules have in common ---- */

static void each_mlp(struct mlp *m, int layer, void (*fn)(struct linear *l, int layer, void *ud), void *ud)
{
	fn(&m->up_proj, layer, ud);
	fn(&m->down_proj, layer, ud);
}

static void each_in_moe(struct moe *m, int experts, int layer, void (*fn)(struct linear *l, int layer, void *ud), void *ud)
{
	if (m->fc1_latent_proj.out) {
		fn(&m->fc1_latent_proj, layer, ud);
		fn(&m->fc2_latent_proj, layer, ud);
	}
	for (int e = 0; e < experts; e++)
		each_mlp(&m->experts[e], layer, fn, ud);
	if (m->shared.up_proj.out)
		each_mlp(&m->shared, layer, fn, ud);
}

void model_each_linear(struct model *m, void (*fn)(struct linear *l, int layer, void *ud), void *ud)
{
	for (int i = 0; i < m->config.num_hidden_layers; i++) {
		struct layer *l = &m->layers[i];

		switch (l->block) {
		case BLOCK_MAMBA:
			fn(&l->mamba.in_proj, i, ud);
			fn(&l->mamba.out_proj, i, ud);
			break;
		case BLOCK_ATTN:
			fn(&l->attn.q_proj, i, ud);
			fn(&l->attn.k_proj, i, ud);
			fn(&l->attn.v_proj, i, ud);
			fn(&l->attn.o_proj, i, ud);
			break;
		case BLOCK_MOE:
			each_in_moe(&l->moe, m->config.n_routed_experts, i, fn, ud);
			break;
		default:
			each_mlp(&l->mlp, i, fn, ud);
		}
	}
	fn(&m->lm_head, -1, ud);
}

const char *weight_format_name(enum weight_format f)
{
	static const char *const names[N_WEIGHT_FORMATS] = {
		[WEIGHT_BF16] = "BF16", [WEIGHT_F16] = "F16", [WEIGHT_F32] = "F32", [WEIGHT_FP8] = "FP8",
		[WEIGHT_NVFP4] = "NVFP4",
	};
	return names[f];
}

size_t linear_bytes(const struct linear *l)
{
	size_t n = (size_t)l->out * l->in, scales = l->input_scale != 0 ? 8 : 4;

	switch (l->format) {
	case WEIGHT_F32:   return 4 * n;
	case WEIGHT_FP8:   return n + scales;
	case WEIGHT_NVFP4: return n / 2 + n / 16 + scales;
	default:           return 2 * n;
	}
}
