/* assay selftest: planted faults, and which instrument catches each.  docs/judging.md, section 12.
 *
 * The engine with planted faults (build/assay-engine-faulty, engine/faults.h) is run once as it should be and once with each
 * fault: on the bundled golden, where the judge looks at it, and on tiny models, where its logits are held against those
 * of the clean `ref` in f64. */
#ifndef ASSAY_GATES_SELFTEST_H
#define ASSAY_GATES_SELFTEST_H

#include "contract/err.h"

int selftest_main(int argc, char **argv);    /* 0: every fault is caught, and no fault without one; 1: not so; 2: it cannot run */

/* The instruments, in the order of the table.  The first five look at a golden alone. */
enum instrument { BY_CONTRACT, BY_AUDIT, BY_TOKENS, BY_DISTANCE, BY_SYSTEM, BY_F64, BY_FP32, BY_TWINS, N_INSTRUMENTS };

struct selftest {                    /* all borrowed */
	const char *engine, *golden, *model, *fixtures, *out;
	const char *backend;         /* of the golden's legs; cuda: audited, and no tiny models */
};

struct detection {
	bool caught[N_INSTRUMENTS];
	double R[2];                 /* of the two legs on the golden; NaN where the leg is VOID */
	double f64, fp32;            /* largest error of a logit over the largest logit, on the tiny models */
};

/* fault NULL: none planted.  -1 after err_set. */
int selftest_golden(struct detection *d, const struct selftest *s, const char *fault, struct err *err);
int selftest_tiny(struct detection *d, const struct selftest *s, const char *fault, struct err *err);

/* Runs the faulty engine; `more` is NULL-terminated and follows `run --model DIR --report FILE`. */
int selftest_run(const struct selftest *s, const char *fault, const char *model, const char *report, const char *const *more,
		 struct err *err);

#endif
