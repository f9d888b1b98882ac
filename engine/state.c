#include "state.h"

#include <stdlib.h>
#include "faults.h"

static enum dtype ssm_dtype(const struct arm *arm)
{
	if (arm->value[FACTOR_COMPUTE] == COMPUTE_F64)
		return DTYPE_F64;
	switch (arm->value[FACTOR_MAMBA_STATE]) {
	case MAMBA_STATE_FP32:
		return DTYPE_F32;
	case MAMBA_STATE_BF16:
		return DTYPE_BF16;
	case MAMBA_STATE_FP16:
		return DTYPE_F16;
	}
	BUG("mamba.state %d", arm->value[FACTOR_MAMBA_STATE]);
}

static enum dtype kv_dtype(const struct arm *arm)
{
	if (arm->value[FACTOR_COMPUTE] == COMPUTE_F64)
		return DTYPE_F64;
	switch (arm->value[FACTOR_ATTN_KV]) {
	case ATTN_KV_BF16:
		return DTYPE_BF16;
	case ATTN_KV_FP8:
		return DTYPE_FP8;
	case ATTN_KV_FP32:
		return DTYPE_F32;
	}
	BUG("attn.kv %d", arm->value[FACTOR_ATTN_KV]);
}

static void add_array(struct state_pool *p, struct state_array *a, enum dtype dtype, size_t size)
{
	size_t bytes = size * p->slots * dtype_size(dtype);

	*a = (struct state_array){
		.view = { .data = p->backend->alloc(p->dev, bytes), .dtype = dtype, .stride = size },
		.size = size,
	};
	p->bytes += bytes;
}

/* One set of rows is enough: layers run one after another. */
static void add_gathered(struct state_pool *p, bool host)
{
	for (int kind = 0; kind < N_STATES; kind++) {
		size_t bytes = 0;

		for (int l = 0; l < p->n_layers; l++) {
			const struct state_array *a = &p->layers[l].array[kind];

			if (a->size * dtype_size(a->view.dtype) > bytes)
				bytes = a->size * dtype_size(a->view.dtype);
		}
		if (bytes == 0)
			continue;
		p->gathered[kind].data = p->backend->alloc(p->dev, bytes * p->slots);
		if (host)
			p->host[kind].data = ref_backend.alloc(NULL, bytes * p->slots);
	}
}

void state_open(struct state_pool *p, const struct backend *backend, struct device *dev, const struct model *m,
		const struct arm *layer_arm, const struct state_needs *needs, struct counters *counters)
{
	const struct config *c = &m->config;
	size_t kv = (size_t)c->num_key_value_heads * c->head_dim * needs->max_len;

	*p = (struct state_pool){
		.backend = backend, .dev = dev, .counters = counters, .slots = needs->slots,
		.max_len = needs->max_len, .n_layers = c->num_hidden_layers,
	};
	p->layers = xcalloc(p->n_layers, sizeof(*p->layers));
	for (int l = 0; l < p->n_layers; l++) {
		struct state_array *a = p->layers[l].array;

		if (m->layers[l].block == BLOCK_MAMBA) {
			add_array(p, &a[STATE_CONV], backend->act_dtype(dev),
				  (size_t)(c->conv_kernel - 1) * c->conv_dim);
			add_array(p, &a[STATE_SSM], ssm_dtype(&layer_arm[l]), (size_t)c->d_inner * c->ssm_state_size);
		} else if (m->layers[l].block == BLOCK_ATTN) {
			add_array(p, &a[STATE_K], kv_dtype(&layer_arm[l]), kv);
			add_array(p, &a[STATE_V], kv_dtype(&layer_arm[l]), kv);
		}
	}
	if (needs->gathered || needs->host)
		add_gathered(p, needs->host);
	p->rows = xcalloc(p->slots, sizeof(*p->rows));
	for (int i = 0; i < p->slots; i++)
		p->rows[i] = i;
}

void state_release(struct state_pool *p)
{
	for (int l = 0; l < p->n_layers && p->layers; l++)
		for (int kind = 0; kind < N_STATES; kind++)
			if (p->layers[l].array[kind].size)
				p->backend->free(p->dev, p->layers[l].array[kind].view.data);
	for (int kind = 0; kind < N_STATES; kind++) {
		if (p->gathered[kind].data)
			p->backend->free(p->dev, p->gathered[kind].data);
		ref_backend.free(NULL, p->host[kind].data);
	}
	free(p->layers);
	free(p->rows);
	*p = (struct state_pool){0};
}

/* The KV cache needs no clearing: only positions below the slot's length are ever read. */
void state_reset(struct state_pool *p, int slot)
{
	p->counters->n[COUNT_STATE_RESETS]++;
	if (FAULT(STATE_LEFT))
		return;
	for (int l = 0; l < p->n_layers; l++)
		for (int kind = STATE_CONV; kind <= STATE_SSM; kind++) {
			const struct state_array *a = &p->layers[l].array[kind];

			if (a->size)
				p->backend->state_clear(p->dev, a->view, slot, a->size);
		}
}

struct state_view state_gather(struct state_pool *p, int layer, enum state_kind kind, const int32_t *slots, int rows,
			       size_t size)
{
	struct state_view from = p->layers[layer].array[kind].view;
	struct state_view to = { .data = p->gathered[kind].data, .dtype = from.dtype, .stride = size };

	p->backend->gather(p->dev, to, from, slots, size, rows);
	p->counters->n[COUNT_GATHERS]++;
	return to;
}

void state_scatter(struct state_pool *p, int layer, enum state_kind kind, const int32_t *slots, int rows, size_t size)
{
	struct state_view to = p->layers[layer].array[kind].view;
	struct state_view from = { .data = p->gathered[kind].data, .dtype = to.dtype, .stride = size };

	p->backend->scatter(p->dev, to, from, slots, size, rows);
	p->counters->n[COUNT_SCATTERS]++;
}

struct state_view state_gather_host(struct state_pool *p, int layer, enum state_kind kind, const int32_t *slots,
				    int rows, size_t size)
{
	struct state_view v = state_gather(p, layer, kind, slots, rows, size);
	void *gathered = v.data;

	v.data = p->host[kind].data;
	p->backend->download(p->dev, v.data, gathered, rows * size * dtype_size(v.dtype));
	return v;
}

void state_scatter_host(struct state_pool *p, int layer, enum state_kind kind, const int32_t *slots, int rows,
			size_t size)
{
	size_t bytes = rows * size * dtype_size(p->layers[layer].array[kind].view.dtype);

	p->backend->upload(p->dev, p->gathered[kind].data, p->host[kind].data, bytes);
	state_scatter(p, layer, kind, slots, rows, size);
}
