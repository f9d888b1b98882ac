/* What the golden says about itself: margins, the spread of its profiles, how often benign noise flips a
 * token, and where it contradicts itself.  docs/judging.md, sections 3 to 5; nothing here knows a leg.
 *
 * A position is a step of a prompt that was asked for; positions are numbered prompt after prompt.  Everything is
 * in nats.  NaN: not measured. */
#ifndef ASSAY_GATES_ORACLE_H
#define ASSAY_GATES_ORACLE_H

#include "contract/golden.h"
#include "stats.h"

struct oracle_prompt {
	int prompt;                      /* index into golden.prompts */
	const struct golden_row *base;   /* borrowed: the expectation's row */
	int planned;                     /* steps to compare: what the recipe asks for and the golden holds */
	size_t first;                    /* number of its first position */
	int forks_at;                    /* the first step at which another profile forks from base; -1: none does */
};

struct oracle_position {
	double margin;         /* l[y1] - l[y2], y2 the best other id */
	int32_t second;        /* y2; -1: not known */
	double log_spread;     /* median ln A_kl over the profile pairs that are not bit-equal */
	double max_spread;     /* largest A_kl, 0 where all are bit-equal */
	int bit_equal;         /* pairs with A_kl = 0 */
	double others;         /* median margin of the other profiles that are not bit-equal to base */
	double q, q_halved;    /* chance of a benign flip; with every margin halved (twice the noise) */
};

struct contradiction {
	int prompt, step;      /* golden prompt; where |d| is largest */
	double d;              /* that |d| */
	int pair[2];           /* the two profiles */
	signed char *side;     /* owned [golden.n_profiles]: 0 (base's) or 1, the nearer; -1: cannot be said */
};

struct oracle {
	const struct golden *golden;             /* borrowed */
	const struct golden_profile *base;       /* borrowed: the expectation */
	int n_prompts;
	struct oracle_prompt *prompts;           /* owned; in the order asked */
	size_t n_positions;
	struct oracle_position *positions;       /* owned */
	double *d; size_t n_d;                   /* owned: |d| over the prompts asked, sorted */
	double s;                                /* noise scale; NaN: unknown */
	struct flip_law law;                     /* over d */
	int n_contradictions;
	struct contradiction *contradictions;    /* owned; among the prompts asked */
};

/* `prompts` are indices into golden.prompts, each with a row in `base`; max_steps bounds the planned steps. */
void oracle_measure(struct oracle *o, const struct golden *g, const struct golden_profile *base,
		    const int *prompts, int n_prompts, int max_steps);
void oracle_release(struct oracle *o);

/* The value of an id in a list; NaN if it is not listed. */
double top_value(const struct top *top, int n, int32_t id);
/* values[i] of base id i in another list, NaN where it is not listed. */
void top_align(double *values, const struct top *base, int n, const struct top *other, int n_other);
/* Root mean square of a - b after subtracting the mean difference, over the ids present in both (at least two); below
 * SAME it is 0, bit-equal.  NaN: fewer ids. */
double top_distance(const double *a, const double *b, int n);
/* The first step at which a profile's row differs from base's; -1: nowhere in what both hold. */
int row_fork(const struct golden_row *row, const struct golden_row *base);

/* The spacing of a dtype's values at magnitude m: 2^(floor(log2 m) - b), b = 7 bf16, 10 fp16, 23 fp32; NaN if the dtype is
 * unknown or m is 0. */
double ulp_of(double m, const char *dtype);

#endif
