/* Planted faults for `assay selftest`: build/assay-engine-faulty is compiled with -DASSAY_FAULTS in an object
 * directory of its own, and its option `--fault NAME`, before the command, switches one on.  In the shipped engine
 * FAULT() is the constant 0 and the option does not exist.  docs/judging.md, section 9.
 *
 * A fault is planted beside the code that it damages, on every backend alike; decode runs op by op, not fused.  None but
 * counter-* changes a counter: they do something wrong, and count truthfully what they do. */
#ifndef ASSAY_ENGINE_FAULTS_H
#define ASSAY_ENGINE_FAULTS_H

/* FAULT_ENTRY(ID, "name", "what is wrong") */
#define FAULTS(FAULT_ENTRY) \
	FAULT_ENTRY(STATE_SCALED, "state-scaled", "the SSM state is scaled by 1 + 2^-8 in every decode step") \
	FAULT_ENTRY(STATE_LEFT, "state-left", "the previous request's state is left in the slot") \
	FAULT_ENTRY(CHUNK_BOUNDARY, "chunk-boundary", "the chunk boundary is off by one: the last token of a chunk " \
		    "is missing from the state that the next one gets") \
	FAULT_ENTRY(PAD_TOKEN, "pad-token", "a pad token before the prompt advances the state") \
	FAULT_ENTRY(INPUT_SCALE, "input-scale", "input_scale is missing: activations are quantised as if it were 1") \
	FAULT_ENTRY(SWAP_BC, "swap-bc", "B and C are swapped") \
	FAULT_ENTRY(GATE_AFTER_NORM, "gate-after-norm", "the gate is applied after the group norm") \
	FAULT_ENTRY(DT_CLAMP, "dt-clamp", "dt is clamped from below at 0.001") \
	FAULT_ENTRY(ROUTER_BIAS, "router-bias", "router weights are taken after the correction bias") \
	FAULT_ENTRY(RANK_SWAP, "rank-swap", "rank 1 and 2 are swapped at one of a hundred steps") \
	FAULT_ENTRY(WRONG_PATH, "wrong-path", "decode takes chunk where step was asked, and step where chunk was") \
	FAULT_ENTRY(HOST_SERVED, "host-served", "Mamba blocks asked of the backend are served by ref on the host") \
	FAULT_ENTRY(COUNTER_ONLY, "counter-only", "chunk was asked: its counters are bumped, the step is called") \
	FAULT_ENTRY(COUNTER_STEP, "counter-step", "step was asked: its counters are bumped, the chunk scan is called") \
	FAULT_ENTRY(COUNTER_HOST, "counter-host", "Mamba blocks are served by ref on the host, and counted as the backend's")

enum fault {
	FAULT_NONE,
#define FAULT_ENTRY(id, name, says) FAULT_##id,
	FAULTS(FAULT_ENTRY)
#undef FAULT_ENTRY
};

#ifdef ASSAY_FAULTS
extern enum fault fault_planted;
#define FAULT(id) (fault_planted == FAULT_##id)
#define FAULT_ANY (fault_planted != FAULT_NONE)
#else
#define FAULT(id) 0
#define FAULT_ANY 0
#endif

#include "forward.h"

/* Consumes `--fault NAME` in front of argv[1..]; an exit code, or -1 to go on.  `--fault list` prints them all. */
int fault_option(int *argc, char ***argv);
const char *fault_name(void);    /* of the planted one; "none" */

void fault_drop_input_scales(struct model *m);
void fault_scale_state(struct forward *f, int layer, int rows);
void fault_scan_to_boundary(struct forward *f, struct lane *l, void *y, const void *u, const void *dt, int ld,
			    struct state_view ssm, int slot, const struct mamba *w, int T, int64_t pos);
void fault_swap_bc(struct forward *f, struct lane *l, void *u, int T);
void fault_gate_after_norm(struct forward *f, struct lane *l, void *y, const void *z, int ldz, const float *w, int T);
void fault_weigh_with_bias(struct forward *f, struct lane *l, const struct moe *w, int T);
/* counter-*: since `before`, layer `index` ran another path than its arm; the counters are made to say it did not. */
void fault_count_as_asked(struct forward *f, int index, const struct step *step, const struct counters *before);
void fault_swap_ranks(struct logits_row *rows, int n);

#endif
