/* The slot pool: conv windows, SSM states and the KV cache of every sequence.  docs/model.md, section 3.3.3. */
#ifndef ASSAY_ENGINE_STATE_H
#define ASSAY_ENGINE_STATE_H

#include "backend.h"

struct layer_state {                   /* of one layer; unused views have data == NULL */
	struct state_view conv;        /* [slot][K-1][conv_dim], oldest first, act dtype */
	struct state_view ssm;         /* [slot][heads][head_dim][state], mamba.state dtype (f64 under compute f64) */
	struct state_view k, v;        /* [slot][max_len][kv_heads * head_dim], attn.kv dtype */
};

struct state_pool {
	const struct backend *backend; /* borrowed: owns the memory */
	struct device *dev;            /* borrowed */
	struct layer_state *layers;    /* owned [num_hidden_layers] */
	struct layer_state gathered;   /* owned: room for the largest layer, `slots` rows each */
	int slots, max_len, n_layers;
};

#endif
