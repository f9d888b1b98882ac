/* What a leg is asked to continue: the prompts of a golden, or of a JSON list of {id, ids} or {id, text}. */
#ifndef ASSAY_ENGINE_PROMPTS_H
#define ASSAY_ENGINE_PROMPTS_H

#include "contract/golden.h"
#include "contract/tokenizer.h"
#include "model.h"

struct prompt {
	char *id;                        /* owned */
	int n;
	int32_t *ids;                    /* owned */
	const struct golden_row *row;    /* borrowed: what the profile says; NULL without a golden */
};

struct prompts {
	struct prompt *item;             /* owned */
	int n;
	struct golden golden;            /* {0} without one */
};

/* `profile`: whose rows are borrowed.  `only`: NULL or "ID,ID": these, in this order.  Refuses unknown, repeated and
 * empty prompts and ids outside the vocabulary. */
int prompts_from_golden(struct prompts *p, const char *path, const char *profile, const char *only,
			const struct model *m, struct err *err);
int prompts_from_file(struct prompts *p, const char *path, const char *only, const struct model *m, struct err *err);
void prompts_release(struct prompts *p);   /* {0} is valid */

/* The model directory's tokenizer.json; NULL after err_set. */
struct tokenizer *prompts_tokenizer(const struct model *m, struct err *err);

#endif
