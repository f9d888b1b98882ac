/* The requests of one leg: every prompt prefilled and continued, in one mode, into a report. */
#ifndef ASSAY_ENGINE_LEG_H
#define ASSAY_ENGINE_LEG_H

#include "contract/report.h"
#include "prompts.h"
#include "session.h"

/* The sequences that are decoded together, and one step's inputs and results. */
struct leg_batch {
	int first, n;                    /* prompts */
	int32_t *slots, *ids, *given;    /* [n] */
	int *prompt;                     /* [n] of each row of the step */
	struct logits_row *rows;         /* [n] */
	uint64_t *hash, **hash_to;       /* [n]: hashes of the step before, and where they go */
	int hashes;
	double *started;                 /* [n] */
};

struct leg {
	struct session *session;         /* borrowed, open */
	const struct prompts *prompts;   /* borrowed */
	int steps;                       /* tokens asked for; a golden's row may be shorter */
	bool trace;                      /* ARM lines on stderr */
	/* written by leg_prepare and leg_run; start as zeros */
	double prefill_s, decode_s;
	double *decode_ms;               /* owned [max_decode]: wall time of each decode step of the run */
	int n_decode, max_decode;
	struct leg_batch batch;          /* owned arrays */
};

/* Storage for everything that a mode will write, so that nothing allocates while it runs. */
void leg_prepare(struct leg *leg, struct report *r, enum mode mode, const struct arm *arm);
void leg_run(struct leg *leg, struct report *r, enum mode mode);
/* The tokens that a prompt is continued by. */
int leg_planned(const struct leg *leg, const struct prompt *p);
/* Fills report.timing's per-token percentiles, sorting decode_ms. */
void leg_timing(struct leg *leg, struct report *r);
void leg_release(struct leg *leg);

#endif
