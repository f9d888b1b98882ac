/* safetensors shards, mapped read-only; nothing is copied.  docs/model.md, section 2. */
#ifndef ASSAY_ENGINE_SAFETENSORS_H
#define ASSAY_ENGINE_SAFETENSORS_H

#include <stdint.h>
#include "contract/err.h"

enum st_dtype { ST_F64, ST_I64, ST_F32, ST_I32, ST_BF16, ST_F16, ST_F8_E4M3, ST_F8_E5M2, ST_U8, ST_I8, ST_I16, ST_BOOL, N_ST };

#define ST_RANK 8

struct st_tensor {
	const char *name;        /* canonical: without language_model. / backbone. / model. ; owned by the checkpoint */
	const char *disk_name;   /* as the file spells it */
	const char *file;        /* path of the shard, for messages */
	enum st_dtype dtype;
	int rank;
	int64_t shape[ST_RANK];
	const void *data;        /* borrowed: the mapping.  Alignment: only that of the file (1) */
	size_t bytes;
};

struct shard { char *name; char *path; void *map; size_t size; };  /* name: the file's name in DIR */

struct safetensors {
	struct shard *shards; int n_shards;         /* owned; sorted by name */
	struct st_tensor *tensors; int n_tensors;   /* owned; sorted by canonical name */
	bool indexed;                               /* model.safetensors.index.json was read */
	void *arena;                                /* owned: the tensors' names */
};

/* Opens DIR's shards (through model.safetensors.index.json if it is there, else every *.safetensors) and checks
 * all that the format promises: header length, UTF-8, unique names (also after the prefixes are dropped), known
 * dtypes, shapes against offsets without overflow, no overlap, no hole, nothing after the last tensor, no path
 * that leaves DIR, index and shards agree on every tensor. */
int safetensors_open(struct safetensors *s, const char *dir, struct err *err);
void safetensors_release(struct safetensors *s);
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *canonical);
const char *st_dtype_name(enum st_dtype d);
size_t st_dtype_size(enum st_dtype d);
/* The name without its prefixes; points into `name`, or to a constant for the old singular embedding. */
const char *canonical_name(const char *name);
/* Sorts the tensors by name (a checkpoint made in memory) and refuses a name that occurs twice. */
int safetensors_sort(struct safetensors *s, struct err *err);
/* "[3, 4]" */
const char *st_shape_text(const int64_t *shape, int rank, char *buf, size_t size);

#endif
