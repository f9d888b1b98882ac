/* Scratch of attention (attn.c), of one thread. */
#ifndef ASSAY_ENGINE_CPU_ATTN_H
#define ASSAY_ENGINE_CPU_ATTN_H

#include "device.h"

struct attn_scratch {
	float *scores;               /* [queries][KEY_BLOCK], then weights */
	float *out;                  /* [queries][pad] */
	float *values;               /* [KEY_BLOCK][pad] */
	float *top, *sum, *keep;     /* [queries] */
	float *row;                  /* [pad] */
	void *queries;               /* [queries][pad], bf16 words or floats */
	void *keys;                  /* [KEY_BLOCK][head_dim], likewise */
	int pad;                     /* head_dim, zero-padded */
	size_t floats;               /* of all */
};

/* base NULL: only the size is wanted. */
static inline struct attn_scratch attn_scratch_layout(float *base, const struct attn_shape *s)
{
	size_t queries = (size_t)(QUERY_BLOCK * (s->heads / s->kv_heads)), pad = ((size_t)s->head_dim + 31) / 32 * 32;
	size_t each = (queries + 15) / 16 * 16;
	struct attn_scratch c = {.pad = (int)pad};

	c.floats = queries * KEY_BLOCK + 2 * queries * pad + 2 * KEY_BLOCK * pad + 3 * each + pad;
	if (!base)
		return c;
	c.scores = base;
	c.out = c.scores + queries * KEY_BLOCK;
	c.values = c.out + queries * pad;
	c.queries = c.values + KEY_BLOCK * pad;
	c.keys = (float *)c.queries + queries * pad;
	c.row = (float *)c.keys + KEY_BLOCK * pad;
	c.top = c.row + pad;
	c.sum = c.top + each;
	c.keep = c.sum + each;
	return c;
}

#endif
