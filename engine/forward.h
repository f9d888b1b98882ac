/* The forward pass, written once over the op table.  docs/model.md, section 3.
 *
 * A step is one prefill of one sequence, or one token each for several sequences.  forward.c is the only caller of the
 * ops and bumps every path counter beside the call it counts. */
#ifndef ASSAY_ENGINE_FORWARD_H
#define ASSAY_ENGINE_FORWARD_H

#include "backend.h"
#include "routing.h"
#include "state.h"

enum { N_SCRATCH = 4 };

/* A backend with the buffers of one step, all in its own memory. */
struct lane {
	const struct backend *b;
	struct device *dev;
	bool open;
	size_t act;                  /* bytes of an activation */
	void *h;                     /* [rows, H] residual stream */
	void *x, *y;                 /* [rows, H] input and output of a mixer */
	void *scratch[N_SCRATCH];    /* the mixer's own activations, [rows, widest use of each] */
	int32_t *expert;             /* [rows, k] */
	void *weight;                /* [rows, k] */
	int32_t *ids, *slots, *pos;  /* [rows] */
	int32_t *given;              /* [slots] */
	int32_t *rows;               /* 0, 1, 2, ...: the slots of a gathered copy */
	int32_t *zeros;              /* the same for several tokens of one sequence */
};

/* How one layer runs: its arm, digested. */
struct plan {
	bool host;                   /* on ref, through gather and scatter: place.*, or an op is missing */
	bool missing;                /* the backend lacks an op of this block: reference_tier counts */
	bool decode_chunk, prefill_step;
	bool asked_chunk, lies;      /* planted faults counter-*: the arm's mamba.decode; another path runs than is counted */
	struct rule rule;
};

struct step {
	bool prefill;
	int T;                       /* token rows */
	int slot;                    /* prefill: whose */
	int64_t pos;                 /* prefill: absolute position of the first token */
	int last;                    /* highest position of any row */
	bool head;                   /* are logits wanted? */
	int32_t given;               /* prefill: rank asked for, or -1 */
};

struct forward {
	struct model *model;         /* borrowed */
	struct state_pool *pool;     /* borrowed */
	struct counters *counters;   /* borrowed */
	struct lane main, ref;       /* ref is open only if some layer needs it */
	struct plan *plan;           /* owned [layers] */
	struct rule rule;            /* of embedding and head */
	struct ssm_shape ssm;
	struct attn_shape attn;
	struct route_shape route;
	double dt_limit[2];
	int compute;                 /* COMPUTE_* */
	bool head_bf16, graph;
	struct limits limits;
	int32_t *staging;            /* owned [rows]: integers on their way to the backend */
	int32_t *slots, *given;      /* owned [slots]: those of the last decode step, which the backend still has */
	int there;                   /* how many */
	struct routing *routing;     /* borrowed; not NULL: decode steps run op by op and leave their experts there */
	struct counters *captured;   /* owned [slots + 1]: counts of the captured step of each size */
};

/* Opens the devices and makes the plan.  {0} is valid to release. */
int forward_open(struct forward *f, const struct backend *b, struct model *m, const struct arm *arm,
		 const struct arm *layer_arm, const struct limits *limits, struct counters *counters, struct err *err);
/* Does any layer copy its state out of the pool, and into host memory? */
bool forward_gathers(const struct forward *f);
bool forward_hosts(const struct forward *f);
void forward_release(struct forward *f);
/* n tokens of one sequence from position pos on.  Logits of the last are computed if `head`. */
void forward_prefill(struct forward *f, int slot, const int32_t *ids, int n, int64_t pos, bool head, int32_t given);
/* One token each.  ids == NULL: the previous step's own choices.  given may be NULL. */
void forward_decode(struct forward *f, const int32_t *ids, const int32_t *slots, const int32_t *pos,
		    const int32_t *given, int n);
/* Waits for the logits of the last step. */
void forward_logits(struct forward *f, struct logits_row *out, int rows);

#endif
