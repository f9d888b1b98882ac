/* Planted faults for `assay selftest`: build/assay-engine-faulty is compiled with -DASSAY_FAULTS in an object
 * directory of its own, and its option --fault NAME switches one on.  In the shipped engine FAULT() is the constant 0
 * and the option does not exist.  docs/judging.md, section 9. */
#ifndef ASSAY_ENGINE_FAULTS_H
#define ASSAY_ENGINE_FAULTS_H

/* FAULT_ENTRY(ID, "name", "what is wrong") */
#define FAULTS(FAULT_ENTRY) \
	FAULT_ENTRY(STATE_SCALED, "state-scaled", "the SSM state is scaled by 1 + 2^-8 per step") \
	FAULT_ENTRY(STATE_LEFT, "state-left", "the previous request's state is left in the slot") \
	FAULT_ENTRY(CHUNK_BOUNDARY, "chunk-boundary", "the chunk boundary is off by one") \
	FAULT_ENTRY(PAD_TOKEN, "pad-token", "a pad token advances the state") \
	FAULT_ENTRY(INPUT_SCALE, "input-scale", "input_scale is missing") \
	FAULT_ENTRY(SWAP_BC, "swap-bc", "B and C are swapped") \
	FAULT_ENTRY(GATE_AFTER_NORM, "gate-after-norm", "the gate comes after the norm") \
	FAULT_ENTRY(DT_CLAMP, "dt-clamp", "dt is clamped at 0.001") \
	FAULT_ENTRY(ROUTER_BIAS, "router-bias", "router weights are taken after the correction bias") \
	FAULT_ENTRY(RANK_SWAP, "rank-swap", "rank 1 and 2 are swapped at 1 % of the steps") \
	FAULT_ENTRY(WRONG_PATH, "wrong-path", "step and chunk are silently taken for each other in decode") \
	FAULT_ENTRY(COUNTER_ONLY, "counter-only", "a counter is bumped without the call")

enum fault {
	FAULT_NONE,
#define FAULT_ENTRY(id, name, says) FAULT_##id,
	FAULTS(FAULT_ENTRY)
#undef FAULT_ENTRY
};

#ifdef ASSAY_FAULTS
extern enum fault fault_planted;
#define FAULT(id) (fault_planted == FAULT_##id)
#else
#define FAULT(id) 0
#endif

#endif
