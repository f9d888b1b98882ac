/* Every tensor that a checkpoint of a config holds, written once: names, shapes and which struct member each
 * fills.  Loading, counting and making random weights are visitors.  docs/model.md, sections 2.1 and 2.2. */
#ifndef ASSAY_ENGINE_LAYOUT_H
#define ASSAY_ENGINE_LAYOUT_H

#include "model.h"
#include "quant_config.h"

enum layout_flag {
	LAYOUT_BIAS = 1,          /* module.bias belongs to it */
	LAYOUT_BIAS_IF_THERE = 2, /* ... if the checkpoint has it */
	LAYOUT_PLAIN = 4,         /* never quantised: the embedding */
};

/* Callbacks return 0, or -1 to end the visit. */
struct layout {
	int (*linear)(struct layout *v, struct linear *l, const char *module, int out, int in, int flags);
	/* A tensor that is held as floats. */
	int (*vector)(struct layout *v, const float **to, const char *name, int rank, const int64_t *shape);
	/* Optional scalar of an FP8 KV cache. */
	int (*kv_scale)(struct layout *v, float *to, const char *name);
};

/* Allocates m->layers for m->config (again, if they are there) and visits: embedding, layers in order, norm_f,
 * lm_head (not if tied). */
int layout_visit(struct layout *v, struct model *m);
void layout_release(struct model *m);

/* The path of a file beside config.json: DIR/config.json or DIR/X.config.json, with `name` for the last part.
 * Caller frees. */
char *model_beside_config(const char *config_path, const char *name);
/* Reads config.json, and hf_quant_config.json and generation_config.json beside it (X.config.json: X.hf_quant_config.json). */
int model_read_configs(struct model *m, struct quant_config *q, const char *config_path, struct err *err);
/* Fills layers, embed, lm_head, norm_f and the counts from m->tensors, which may come from files or from memory.  Of
 * tensors without data (NULL) only the counts, names, shapes and formats are taken. */
int model_build(struct model *m, const struct quant_config *q, struct err *err);
/* Reads the configs of a model without checkpoint and lists its tensors, without data and unsorted, in m->tensors. */
int model_list_tensors(struct model *m, struct quant_config *q, const char *config_path, struct err *err);

#endif
