/* The main instrument: how far the leg's log-probabilities stand from the oracle's, measured in the oracle's own spread.
 * docs/judging.md, sections 5 and 6.  Forced mode only.
 *
 * Arrays run over the oracle's positions; NaN: not measured there. */
#ifndef ASSAY_GATES_DISTANCE_H
#define ASSAY_GATES_DISTANCE_H

#include "contract/report.h"
#include "oracle.h"

enum distance_class { DISTANCE_NOT_MEASURED, DISTANCE_EQUIVALENT, DISTANCE_EXCESS, DISTANCE_INCONCLUSIVE };
const char *distance_class_name(enum distance_class c);

struct distance {
	bool present;                   /* forced mode was asked and came back */
	double R, lower, upper;         /* NaN: none */
	double c;
	enum distance_class class;
	bool noisier;                   /* lower > 1 */
	int prompts;                    /* with a median w */
	size_t positions;               /* with a w */
	double sd;                      /* of the prompt medians */
	size_t bit_equal_subject, bit_equal_oracle;
	bool has_largest;
	int largest_prompt, largest_step;   /* prompt: place in oracle.prompts */
	double largest;
	double above_max;               /* share of positions with B > max A */
	int64_t more_positions;         /* that would decide; -1: decided, unknown or hopeless */
};

struct divergence { size_t n; double mean, p99, max; };         /* KL(base || subject); n 0: none */
struct direction { bool measured; double mean; size_t n, positive; double p, p_holm; };
struct drift { bool measured; double median_slope; int prompts, rising; double p, p_holm; };

struct power {
	bool present;
	double excess_R, noisier_R;
	int64_t positions_for[3];       /* 1.25, 1.5, 2; -1: hopeless or unknown */
	double flips_at_2x;
};

/* What one leg answered at the positions, in forced mode; row[i] belongs to oracle.prompts[i] (NULL: none).  A step
 * with a number that is not finite is not measured. */
struct subject { const struct oracle *oracle; const struct report_row **row; };

/* B, and KL where `kl` is not NULL. */
void distance_fill(double *B, double *kl, const struct subject *s);
/* w and everything that follows from it; w[n] is written. */
void distance_measure(struct distance *d, double *w, const struct oracle *o, const double *B, double c);
void divergence_measure(struct divergence *d, const double *kl, size_t n);
/* x = how much more than the other profiles the leg favours the oracle's token over its best other. */
void direction_fill(double *x, const struct subject *s);
void direction_measure(struct direction *d, const double *x, size_t n);
void drift_measure(struct drift *d, const struct oracle *o, const double *w);
/* What a gate of this noise and size could have seen.  flips_at_2x is a sum over the positions with B. */
void power_measure(struct power *p, const struct distance *d, const struct oracle *o, const double *B);

/* Median D between two legs over base's listed ids, and the number of positions behind it; NaN if none.  *d: the same in
 * the oracle's own spread, as distance_measure has it, with the other leg in the place of the expectation. */
double distance_between(struct distance *d, size_t *n, const struct subject *a, const struct subject *b, double c);
/* Median D of the oracle's base and of the leg to an arbiter, over the positions that all three have. */
size_t distance_to_arbiter(double *subject, double *oracle, const struct subject *s, const struct subject *arbiter);

/* Median D of a leg to the profiles on either side of a contradiction, over the steps of that prompt that both sides
 * answer under base's prefix.  The number of such steps; 0 if the prompt is not asked. */
size_t distance_to_sides(double median[2], const struct subject *s, const struct contradiction *c);

/* The step of an asked position; NULL if it did not come back or holds no finite logits. */
const struct report_step *subject_step(const struct subject *s, int prompt, int step);
/* The raw logit of an id at a step: from the list, or the given one; NaN if neither holds it. */
double step_logit(const struct report_step *s, int32_t id);
bool step_finite(const struct report_step *s);

#endif
