/* The tiny checkpoints of engine/tests/fixtures and their expected.json, run through a session.
 * Shared by the tests of every backend. */
#ifndef ASSAY_ENGINE_TESTS_TINY_H
#define ASSAY_ENGINE_TESTS_TINY_H

#include "engine/session.h"

#define TINY_GREEDY 8

/* One variant of one fixture: "f64" is weight-only, "f64-w8a8" and so on quantise activations. */
struct tiny_case { char *fixture, *variant; };

/* All of them, in the order of names; the array lives as long as the process. */
const struct tiny_case *tiny_cases(int *n);
bool tiny_weight_only(const struct tiny_case *c);

struct tiny_check {
	double bound;        /* of a logit, as a share of the row's largest */
	bool states;         /* compare the state sums too (to 1e-9) */
	int prefill_chunk;   /* 0: whole */
	bool forced;         /* feed the expected ids and compare the logits of the expected top 5 alone: for arms whose
	                      * rounding may choose otherwise at a small margin */
};

/* Runs every prompt of the case and its greedy continuation, all in one session, and fails the current test at the
 * first difference.  `arm`'s mamba.proj and moe.experts are set to what the variant says. */
void tiny_run(const struct tiny_case *c, const struct arm *arm, const struct tiny_check *check);

/* Helpers for other tests: open fails the test with its message. */
void tiny_open_model(struct model *m, const char *dir);
void tiny_open(struct session *s, struct model *m, const struct arm *arm, const struct limits *limits);
/* The backends that this build and machine have, by name; prints why one is left out.  At most 3. */
int tiny_backends(const char *names[3]);
/* Sets factors of a default arm: tiny_arm("backend=ref,compute=f64"). */
struct arm tiny_arm(const char *text);

#endif
