/* What the metadata say about each Linear: config.json's quantization_config and hf_quant_config.json, merged.
 * docs/model.md, section 2.8. */
#ifndef ASSAY_ENGINE_QUANT_CONFIG_H
#define ASSAY_ENGINE_QUANT_CONFIG_H

#include <jansson.h>
#include "contract/err.h"

enum quant_algo { QUANT_NONE, QUANT_FP8, QUANT_NVFP4, QUANT_W4A16_NVFP4, QUANT_MIXED_PRECISION, N_QUANT_ALGOS };

struct quantized_layer {
	const char *module;        /* canonical name */
	enum quant_algo algo;
	const char *file;          /* that says so */
};

struct quant_config {
	enum quant_algo algo;      /* quant_algo of the whole checkpoint */
	const char *file;          /* that says so; NULL: no metadata */
	struct quantized_layer *layers; int n_layers;   /* sorted by module; owned */
	const char **exclude; int n_exclude;            /* canonical names, parts of names, wildcards; owned */
	bool kv_fp8;               /* kv_cache_quant_algo FP8, or an 8-bit float kv_cache_scheme */
	void *arena;               /* owned: the strings */
};

/* Adds what one file declares.  `quantization` is the value of config.json's quantization_config (with or without
 * an inner "quantization") or of hf_quant_config.json's "quantization"; NULL or null adds nothing.  Refused: an algorithm
 * that is not supported, a group size other than 16, and anything that contradicts an earlier file. */
int quant_config_add(struct quant_config *q, const json_t *quantization, const char *file, struct err *err);
/* The algorithm of a module: its entry in quantized_layers, else none if it is excluded (full name, substring
 * or shell wildcard), else the algorithm of the whole; under MIXED_PRECISION a module without entry has none. */
enum quant_algo quant_config_find(const struct quant_config *q, const char *module);
void quant_config_release(struct quant_config *q);
const char *quant_algo_name(enum quant_algo a);   /* "none" for QUANT_NONE */

#endif
