/* The judge's statistics: pure functions of arrays.  docs/judging.md, sections 3 to 6.
 *
 * Medians and percentiles interpolate at (n-1)p.  Nothing here knows about prompts, legs or files, and
 * nothing fails: what cannot be computed is NaN. */
#ifndef ASSAY_GATES_STATS_H
#define ASSAY_GATES_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Both reorder x[n]; NaN when n is 0.  x must hold no NaN. */
double stats_median(double *x, size_t n);
double stats_percentile(double *x, size_t n, double p);
void stats_sort(double *x, size_t n);
/* The percentile of an array that is sorted already. */
double stats_percentile_sorted(const double *x, size_t n, double p);
double stats_mean(const double *x, size_t n);
double stats_sd(const double *x, size_t n);          /* n-1 in the denominator; NaN below two values */

/* Student's t with df >= 1 degrees of freedom: the distribution function and its inverse (0 < p < 1). */
double stats_student_cdf(double t, double df);
double stats_student_quantile(double p, double df);

/* P(X >= k) for X ~ Binomial(n, 1/2): the one-sided sign test for k rises among n. */
double stats_sign_upper(int64_t k, int64_t n);
/* The two-sided sign test for k positive among n: 2 P(X >= max(k, n-k)), at most 1. */
double stats_sign_two_sided(int64_t k, int64_t n);

/* P(X >= s) for X the number of successes among independent trials with probabilities q[n].  Exact recursion over
 * the counts below s and one absorbing count, so a small tail keeps its relative precision.  Where that would
 * take more than about 2e9 operations, Lugannani and Rice's saddlepoint formula is used and *exact is false. */
double stats_poisson_binomial_upper(const double *q, size_t n, size_t s, bool *exact);

/* Holm's step-down adjustment of p[n], in place and in the given order. */
void stats_holm(double *p, size_t n);

/* Theil and Sen: the median of the slopes of all pairs with different x.  NaN if there is none. */
double stats_theil_sen(const double *x, const double *y, size_t n);

/* P(|d| symmetrised < -x): how often benign noise moves a margin by more than x against a token.  judging.md, section 4.
 * A Pareto tail beyond the 95th percentile v: q1(v) (x/v)^-a. */
struct flip_law {
	const double *d;       /* borrowed: |d|, sorted ascending */
	size_t n;
	bool measured;         /* 20 values or more, and v > 0 */
	double v, at_v, a;
};

#define FLIP_LAW_MIN 20
#define SAME 1e-5              /* files hold six decimals: values closer than this are equal */

void flip_law_fit(struct flip_law *law, const double *sorted, size_t n);
double flip_law_q1(const struct flip_law *law, double x);     /* x >= 0; NaN if not measured */

/* The e-process of --until-decided on the signs of w: the likelihood ratio of Bernoulli(0.7) over
 * Bernoulli(1/2) for w > 0.  It may be looked at after every value: P(ever >= 1/alpha) <= alpha when w has median 0. */
struct eprocess { double log_e; int64_t n, positive; };

#define EPROCESS_ALTERNATIVE 0.7
#define EPROCESS_ALPHA 0.01

void eprocess_add(struct eprocess *e, double w);              /* w = 0 or NaN adds nothing */
bool eprocess_decided(const struct eprocess *e);

#endif
