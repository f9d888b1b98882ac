/* safetensors shards, mapped read-only; nothing is copied.  docs/model.md, section 2. */
#ifndef ASSAY_ENGINE_SAFETENSORS_H
#define ASSAY_ENGINE_SAFETENSORS_H

#include <stdint.h>
#include "contract/err.h"

enum st_dtype { ST_F64, ST_I64, ST_F32, ST_I32, ST_BF16, ST_F16, ST_F8_E4M3, ST_F8_E5M2, ST_U8, ST_I8, ST_I16, ST_BOOL, N_ST };

struct st_tensor {
	const char *name;        /* canonical: without language_model. / backbone. / model. ; owned by the checkpoint */
	const char *file;        /* shard's file name, for messages */
	enum st_dtype dtype;
	int rank;
	int64_t shape[4];
	const void *data;        /* borrowed: the mapping.  Alignment: only that of the file (1) */
	size_t bytes;
};

struct shard { char *name; void *map; size_t size; };

struct safetensors {
	struct shard *shards; int n_shards;
	struct st_tensor *tensors; int n_tensors;   /* sorted by canonical name */
};

/* Opens DIR's shards (through model.safetensors.index.json if it is there) and checks all that the format
 * promises: header length, UTF-8, unique names, known dtypes, shapes against offsets without overflow, no
 * overlap, no hole, nothing after the last tensor, no path that leaves DIR, index and shards agree. */
int safetensors_open(struct safetensors *s, const char *dir, struct err *err);
void safetensors_release(struct safetensors *s);
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *canonical);
const char *st_dtype_name(enum st_dtype d);

#endif
