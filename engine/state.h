/* The slot pool: conv windows, SSM states and the KV cache of every sequence.  docs/model.md, section 3.3.3. */
#ifndef ASSAY_ENGINE_STATE_H
#define ASSAY_ENGINE_STATE_H

#include "backend.h"

enum state_kind { STATE_CONV, STATE_SSM, STATE_K, STATE_V, N_STATES };

/* One array of one layer: `size` elements per slot; size 0: this layer has none. */
struct state_array {
	struct state_view view;
	size_t size;
};

/* CONV  [slot][K-1][conv_dim], oldest first, act dtype
 * SSM   [slot][heads][head_dim][state], mamba.state dtype (f64 under compute: f64)
 * K, V  [slot][max_len][kv_heads * head_dim], attn.kv dtype (f64 under compute: f64) */
struct layer_state { struct state_array array[N_STATES]; };

struct state_pool {
	const struct backend *backend;     /* borrowed: owns the memory */
	struct device *dev;                /* borrowed */
	struct counters *counters;         /* borrowed: gathers, scatters, state_resets */
	struct layer_state *layers;        /* owned [n_layers] */
	struct state_view gathered[N_STATES];  /* owned, in backend memory: `slots` rows of the largest layer */
	struct state_view host[N_STATES];      /* owned, in host memory: the same rows for a block that runs on ref */
	int32_t *rows;                     /* owned, in host memory: 0, 1, 2, ...: the slots of a gathered copy */
	int slots, max_len, n_layers;
	size_t bytes;                      /* of the pool proper */
};

/* `gathered`, `host`: room for gathered rows in backend memory, and for the same in host memory. */
struct state_needs { int slots, max_len; bool gathered, host; };

/* dtypes follow each layer's arm.  {0} is valid to release. */
void state_open(struct state_pool *p, const struct backend *backend, struct device *dev, const struct model *m,
		const struct arm *layer_arm, const struct state_needs *needs, struct counters *counters);
void state_release(struct state_pool *p);
/* Zeros every array of a slot; counted once. */
void state_reset(struct state_pool *p, int slot);
/* Copies rows[i] of one array out of the pool into row i of pool->gathered[kind], and back; each counted once.
 * `slots` lies in backend memory; rows are limited to the first `size` elements of each slot (KV: the positions
 * in use).  The view that is returned starts at row 0. */
struct state_view state_gather(struct state_pool *p, int layer, enum state_kind kind, const int32_t *slots, int rows,
			       size_t size);
void state_scatter(struct state_pool *p, int layer, enum state_kind kind, const int32_t *slots, int rows, size_t size);
/* The same through host memory, for ref: gather and download; upload and scatter. */
struct state_view state_gather_host(struct state_pool *p, int layer, enum state_kind kind, const int32_t *slots,
				    int rows, size_t size);
void state_scatter_host(struct state_pool *p, int layer, enum state_kind kind, const int32_t *slots, int rows,
			size_t size);

#endif
