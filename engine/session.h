/* A batch of sequences on one model under one arm: prefill, step, result rows. */
#ifndef ASSAY_ENGINE_SESSION_H
#define ASSAY_ENGINE_SESSION_H

#include "backend.h"
#include "forward.h"
#include "state.h"

struct session {
	struct model *model;             /* borrowed */
	struct arm arm;                  /* resolved: no factor is unset */
	struct arm_at_list at;           /* owned */
	struct arm *layer_arm;           /* owned [layers]: arm with `at` applied */
	struct counters counters;        /* since the last session_take_counters */
	struct state_pool pool;
	struct forward forward;
	struct limits limits;
	int *length;                     /* owned [slots]: tokens each slot has seen */
	int32_t *pos;                    /* owned [slots]: positions of a decode step */
	unsigned long allocs;            /* xalloc_count when the counters were last taken */
	uint64_t *hash;                  /* owned [slots]: of the rows of the last step, where the backend gave them */
	int unhashed;                    /* rows of the last step whose hashes nobody has taken */
};

/* Resolves the factors that were left unset against model and machine, and refuses values that the model or
 * build cannot honour (ERR_INPUT: no module takes the value, f64 off ref, ...; ERR_CANNOT_RUN: not built, no device). */
int arm_resolve(struct arm *arm, const struct arm_at_list *at, const struct model *m, struct err *err);

/* `limits`: the longest prefill piece, the slots, the longest sequence.  `arm` must be resolved.  Under slots: dirty
 * every slot serves a request first, which leaves no trace in the counters. */
int session_open(struct session *s, struct model *m, const struct arm *arm, const struct arm_at_list *at,
		 const struct limits *limits, struct err *err);
/* The same on a given op table instead of the one that the arm names: for tests of the table. */
int session_open_on(struct session *s, const struct backend *b, struct model *m, const struct arm *arm,
		    const struct arm_at_list *at, const struct limits *limits, struct err *err);
void session_release(struct session *s);     /* {0} is valid */

/* Clears a slot for a new request (counted). */
void session_reset(struct session *s, int slot);
/* Feeds n tokens to a slot as one prefill step; the logits of the last go to *out if it is not NULL, with the rank
 * of `given` if that is >= 0. */
void session_prefill(struct session *s, struct logits_row *out, int slot, const int32_t *ids, int n, int32_t given);
/* One decode step: token ids[i] to slots[i]; a row of logits each.  ids == NULL: each slot's own last choice, in the
 * order of the previous step.  given[i] >= 0 asks for that id's rank; NULL: none. */
void session_step(struct session *s, struct logits_row *out, const int32_t *slots, const int32_t *ids, int n,
		  const int32_t *given);
/* The same, but out's xxh64 is not set: a device runs on while its last step is hashed.  The next call leaves the hashes of this
 * step's rows in `before`, session_hashes does so after the last one.  No other session_ function but
 * session_take_counters comes in between. */
void session_step_late(struct session *s, struct logits_row *out, uint64_t *before, const int32_t *slots, const int32_t *ids,
		       int n, const int32_t *given);
void session_hashes(struct session *s, uint64_t *last);
/* Counts since the last call: one trace row. */
struct counters session_take_counters(struct session *s);

#endif
