/* Stopping early: assay run --until-decided.  docs/judging.md, "Stopping early".
 *
 * Prompts run in a fixed shuffled order, and after each batch of them the runner asks whether more would change what
 * is known about every leg's distance.  The strict comparison is not concerned: whatever was run is compared token by token. */
#ifndef ASSAY_GATES_UNTIL_H
#define ASSAY_GATES_UNTIL_H

#include "contract/file.h"
#include "contract/err.h"

/* order[n]: the places 0..n-1 of the recipe's prompts in the order to run them; a function of the recipe's bytes alone. */
void until_order(int *order, int n, const char recipe_sha256[SHA256_HEX]);

enum until_by {
	UNTIL_OPEN,          /* not decided */
	UNTIL_EXCESS,        /* the interval of R lies above c */
	UNTIL_EQUIVALENT,    /* the interval of R lies below c, or every position is bit-equal */
	UNTIL_NOISIER,       /* the e-process on sign(w): more often above the oracle's spread than below it */
	UNTIL_NOTHING,       /* the leg measures no distance and never will: VOID, ERROR, no logits, one profile */
};
const char *until_by_name(enum until_by by);

struct evidence;
struct leg;
/* The state of one leg, whose tokens are compared and whose contract is checked; `order` over the prompts asked. */
enum until_by until_leg(const struct evidence *e, const struct leg *l, const int *order);

/* Is every leg of a run directory decided on the prompts that came back?  1 yes, 0 no, -1 after err_set.  `by` may be NULL;
 * else one entry per leg of the recipe (with its overrides), in order. */
int until_decided(const char *run_dir, enum until_by *by, int n_legs, struct err *err);

#endif
