/* The cpu backend's device: thread pool, level, scratch.  Private to engine/cpu. */
#ifndef ASSAY_ENGINE_CPU_DEVICE_H
#define ASSAY_ENGINE_CPU_DEVICE_H

#include "level.h"
#include "threads.h"

enum {
	BLOCK_ROWS = 256,   /* token rows that an op packs at once: bounds the scratch */
	KEY_BLOCK = 64,     /* cached positions that attention takes at once */
	QUERY_BLOCK = 16,   /* token rows of a sequence that share them */
	MAX_KERNEL = 8,     /* taps of the convolution */
};

/* What one thread alone uses. */
struct thread_scratch {
	void *panel;                 /* four rows of a weight, expanded (product.h) */
	float *row;                  /* the widest operand row: an activation row, quantised; B of a step */
	float *choice;               /* [experts + n_group + VW] */
	float *ssm;                  /* one head of a chunk scan (ssm.h) */
	float *attn;                 /* attn.h */
};

struct device {
	const struct level *level;
	const struct config *config;     /* borrowed */
	struct pool *pool;               /* owned */
	bool bf16;                       /* compute: bf16, else fp32 */
	int block_rows;                  /* most token rows that are worked on at once */

	void *packed;                    /* [block_rows] activation rows, packed (product.h) */
	struct thread_scratch *threads;  /* [threads] */

	/* MoE.  slots: block_rows * num_experts_per_tok */
	int32_t *slot_token, *slot_expert;   /* [slots] by expert: token and expert of each */
	int32_t *slot_at;                /* [block_rows][per_token]: where a choice was sorted to */
	int32_t *expert_start;           /* [experts + 1] */
	int32_t *active;                 /* [experts] that were chosen */
	float *router;                   /* [block_rows][experts]: logits, then sigmoids */
	float *expert_mid, *expert_out;  /* [slots][Im], [slots][X] */
	void *expert_packed;             /* [slots] packed rows */
	size_t expert_stride;            /* bytes of one */

	void *ssm_shared;                /* a chunk's part of the chunk scan (ssm.h) */
	float *logits;                   /* [slots][vocab] */
	struct logits_row *result;       /* [slots] */
	char *arena;                     /* owned: all of the above but pool */
};

#endif
