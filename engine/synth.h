/* A model without a checkpoint: what a config describes, random weights in memory, and a checkpoint of them. */
#ifndef ASSAY_ENGINE_SYNTH_H
#define ASSAY_ENGINE_SYNTH_H

#include "model.h"

/* Everything but the data: m->tensors lists what a checkpoint of this config holds (numerics from its quantization
 * metadata, dtypes as in the published repositories, canonical order), all pointers to weights are NULL. */
int model_describe(struct model *m, const char *config_path, struct err *err);

/* Random weights from `seed`, the same on every machine and for any number of threads: activations keep about
 * unit size through the layers, the router's logits spread by about 1.5, and every quantised module has scales that fit.
 * The tensors lie in images of safetensors shards (anonymous memory). */
int model_synthesise(struct model *m, const char *config_path, uint64_t seed, struct err *err);

/* Writes a synthesised model as a checkpoint into DIR (made if it is not there): shards with their index, config.json
 * and hf_quant_config.json as they are beside config_path, and a byte-level tokenizer.json of vocab_size tokens. */
int model_save_synthetic(const struct model *m, const char *config_path, const char *dir, struct err *err);

#endif
