/* The judge's statistics against values worked out by hand or taken from printed tables. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/err.h"
#include "gates/oracle.h"
#include "gates/stats.h"

static void near_to(double got, double want, double relative)
{
	ck_assert_msg(fabs(got - want) <= relative * fabs(want), "got %.17g, want %.17g", got, want);
}

/* ---- order statistics */

START_TEST(percentiles_interpolate)
{
	double x[] = { 4, 1, 3, 2 }, y[] = { 7 }, z[] = { 1, 2, 3, 4 };

	near_to(stats_median(x, 4), 2.5, 0);
	near_to(stats_percentile(z, 4, 0.95), 3.85, 1e-15);
	near_to(stats_percentile_sorted(z, 4, 0.95), 3.85, 1e-15);
	near_to(stats_percentile_sorted(z, 4, 1), 4, 0);
	near_to(stats_median(y, 1), 7, 0);
	ck_assert(isnan(stats_median(NULL, 0)));
	ck_assert(isnan(stats_percentile_sorted(NULL, 0, 0.5)));
	near_to(stats_mean(z, 4), 2.5, 0);
	near_to(stats_sd(z, 4), sqrt(5.0 / 3), 1e-15);
	ck_assert(isnan(stats_sd(y, 1)));
}
END_TEST

/* Selection against qsort: long arrays take the sampling path; values repeat. */
START_TEST(selection_is_what_sorting_finds)
{
	enum { N = 20001 };
	double *x = xcalloc(N, sizeof *x), *sorted = xcalloc(N, sizeof *sorted);
	uint64_t seed = 88172645463325252u;

	for (int i = 0; i < N; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		sorted[i] = x[i] = (double)(seed % 5000);
	}
	stats_sort(sorted, N);
	for (int i = 1; i < N; i++)
		ck_assert(sorted[i - 1] <= sorted[i]);
	static const double at[] = { 0, 0.001, 0.25, 0.5, 0.77777, 0.99, 1 };

	for (size_t i = 0; i < sizeof at / sizeof *at; i++)
		near_to(stats_percentile(x, N, at[i]), stats_percentile_sorted(sorted, N, at[i]), 0);
	free(x);
	free(sorted);
}
END_TEST

/* ---- Student's t: printed tables */

START_TEST(student_quantiles)
{
	static const struct { double p, df, t; } table[] = {
		{ 0.975, 1, 12.706204736432095 }, { 0.975, 2, 4.302652729911275 }, { 0.975, 3, 3.182446305284263 },
		{ 0.975, 11, 2.200985160082949 }, { 0.975, 29, 2.045229642132703 }, { 0.975, 1000, 1.962339080792188 },
		{ 0.8, 1, 1.376381920471173 }, { 0.8, 2, 1.060660171779821 }, { 0.8, 11, 0.875529978 },
		{ 0.995, 5, 4.032142983557536 }, { 0.025, 2, -4.302652729911275 },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		near_to(stats_student_quantile(table[i].p, table[i].df), table[i].t, 1e-9);
	near_to(stats_student_cdf(0, 7), 0.5, 1e-15);
	near_to(stats_student_cdf(1, 1), 0.75, 1e-14);      /* 1/2 + atan(1)/pi */
	ck_assert(isnan(stats_student_quantile(0, 3)));
	ck_assert(isnan(stats_student_quantile(0.9, 0)));
}
END_TEST

/* ---- sign tests and Holm */

START_TEST(sign_tests)
{
	near_to(stats_sign_upper(12, 12), 1.0 / 4096, 1e-12);
	near_to(stats_sign_upper(2, 3), 0.5, 1e-14);
	near_to(stats_sign_upper(3, 3), 0.125, 1e-14);
	near_to(stats_sign_upper(1, 3), 0.875, 1e-14);
	near_to(stats_sign_upper(0, 3), 1, 0);
	near_to(stats_sign_upper(4, 3), 0, 0);
	near_to(stats_sign_two_sided(5, 6), 14.0 / 64, 1e-14);
	near_to(stats_sign_two_sided(1, 6), 14.0 / 64, 1e-14);
	near_to(stats_sign_two_sided(3, 6), 1, 0);
	near_to(stats_sign_two_sided(0, 0), 1, 0);
	/* n = 1,000,000: k = mean + 3 sd; Phi(-2.999) with the continuity correction */
	near_to(stats_sign_upper(501500, 1000000), 0.5 * erfc(2.999 / sqrt(2)), 1e-4);
}
END_TEST

START_TEST(holm_steps_down)
{
	double p[] = { 0.01, 0.04, 0.03 }, q[] = { 0.6, 0.7 }, one[] = { 0.2 };

	stats_holm(p, 3);
	near_to(p[0], 0.03, 1e-15);
	near_to(p[1], 0.06, 1e-15);
	near_to(p[2], 0.06, 1e-15);
	stats_holm(q, 2);
	near_to(q[0], 1, 0);
	near_to(q[1], 1, 0);
	stats_holm(one, 1);
	near_to(one[0], 0.2, 0);
	stats_holm(NULL, 0);
}
END_TEST

/* ---- Poisson-binomial */

START_TEST(poisson_binomial_by_hand)
{
	double q[] = { 0.1, 0.2, 0.3 };      /* P(0..3) = .504 .398 .092 .006 */
	bool exact = false;

	near_to(stats_poisson_binomial_upper(q, 3, 0, &exact), 1, 0);
	near_to(stats_poisson_binomial_upper(q, 3, 1, &exact), 0.496, 1e-14);
	near_to(stats_poisson_binomial_upper(q, 3, 2, &exact), 0.098, 1e-14);
	near_to(stats_poisson_binomial_upper(q, 3, 3, &exact), 0.006, 1e-14);
	near_to(stats_poisson_binomial_upper(q, 3, 4, &exact), 0, 0);
	ck_assert(exact);
	/* a tail far below one keeps its precision: q^8 */
	double small[8];

	for (int i = 0; i < 8; i++)
		small[i] = 1e-5;
	near_to(stats_poisson_binomial_upper(small, 8, 8, NULL), 1e-40, 1e-12);
}
END_TEST

/* Where the recursion would take too long: Binomial(200000, 0.1), whose tails were summed term by term. */
START_TEST(poisson_binomial_saddlepoint)
{
	enum { N = 200000 };
	double *q = xcalloc(N, sizeof *q);
	bool exact = true;

	for (int i = 0; i < N; i++)
		q[i] = 0.1;
	near_to(stats_poisson_binomial_upper(q, N, 20300, &exact), 0.012926551940, 1e-3);
	ck_assert(!exact);
	near_to(stats_poisson_binomial_upper(q, N, 21000, &exact), 6.974139635e-14, 1e-3);
	near_to(stats_poisson_binomial_upper(q, N, 20000, &exact), 0.5010902977, 2e-3);
	free(q);
}
END_TEST

/* ---- Theil and Sen */

START_TEST(theil_sen_by_hand)
{
	/* slopes 2, 3/2, 10/3, 1, 4, 7: their median is between 2 and 10/3 */
	double x[] = { 0, 1, 2, 3 }, y[] = { 0, 2, 3, 10 }, same[] = { 1, 1, 1, 1 };

	near_to(stats_theil_sen(x, y, 4), (2 + 10.0 / 3) / 2, 1e-15);
	ck_assert(isnan(stats_theil_sen(same, y, 4)));
	ck_assert(isnan(stats_theil_sen(x, y, 1)));
}
END_TEST

/* ---- benign flips */

START_TEST(flip_law_light_tail)
{
	double d[20];
	struct flip_law law;

	for (int i = 0; i < 20; i++)
		d[i] = 0.01 * (i + 1);
	flip_law_fit(&law, d, 20);
	ck_assert(law.measured);
	near_to(law.v, 0.1905, 1e-12);       /* at 18.05 of 0..19 */
	near_to(law.a, 4, 0);                /* 1/ln(0.2/0.1905) is 20, so 4 */
	near_to(law.at_v, 1.0 / 40, 1e-14);
	near_to(flip_law_q1(&law, 0), 0.5, 1e-14);
	near_to(flip_law_q1(&law, 0.1), 10.5 / 40, 1e-14);          /* ten above, one equal */
	near_to(flip_law_q1(&law, 0.100009), 10.5 / 40, 1e-14);     /* closer than 1e-5 is equal */
	near_to(flip_law_q1(&law, 0.105), 10.0 / 40, 1e-14);
	near_to(flip_law_q1(&law, 0.381), 1.0 / 40 / 16, 1e-12);
	ck_assert(isnan(flip_law_q1(&law, NAN)));
}
END_TEST

START_TEST(flip_law_heavy_tail)
{
	double d[40];
	struct flip_law law;

	for (int i = 0; i < 40; i++)
		d[i] = i < 38 ? 0.01 : 1;
	flip_law_fit(&law, d, 40);
	near_to(law.v, 0.0595, 1e-12);                       /* 0.01 + 0.05 * 0.99 */
	near_to(law.a, 1 / log(1 / 0.0595), 1e-12);
	near_to(flip_law_q1(&law, 1), 2.0 / 80 * exp(-1), 1e-12);
}
END_TEST

START_TEST(flip_law_not_measured)
{
	double few[19] = { 0 }, zeros[100] = { 0 };
	struct flip_law law;

	for (int i = 0; i < 19; i++)
		few[i] = i + 1;
	flip_law_fit(&law, few, 19);
	ck_assert(!law.measured && isnan(flip_law_q1(&law, 1)));
	flip_law_fit(&law, zeros, 100);
	ck_assert(!law.measured);
	flip_law_fit(&law, NULL, 0);
	ck_assert(!law.measured);
}
END_TEST

/* ---- the e-process: ln 1.4 a rise, ln 0.6 a fall, decided at ln 100 */

START_TEST(eprocess_counts_signs)
{
	struct eprocess e = { 0 };

	for (int i = 0; i < 13; i++)
		eprocess_add(&e, 0.1);
	near_to(e.log_e, 13 * log(1.4), 1e-14);
	ck_assert(!eprocess_decided(&e));
	eprocess_add(&e, 0);
	eprocess_add(&e, NAN);
	ck_assert_int_eq(e.n, 13);
	eprocess_add(&e, 2);
	ck_assert(eprocess_decided(&e));
	eprocess_add(&e, -2);
	near_to(e.log_e, 14 * log(1.4) + log(0.6), 1e-14);
	ck_assert(!eprocess_decided(&e));
	ck_assert_int_eq(e.positive, 14);
}
END_TEST

/* ---- lists of the best ids */

START_TEST(distance_of_lists)
{
	double a[] = { 0, -1, -2, NAN }, b[] = { 0.1, -1.1, -1.9, 3 }, c[] = { 5, 4, 3, 1 }, one[] = { 1, NAN, NAN, NAN };

	near_to(top_distance(a, b, 4), sqrt(0.08 / 9), 1e-12);       /* differences -.1 .1 -.1 about their mean */
	near_to(top_distance(a, c, 4), 0, 0);                        /* a shift is no distance */
	ck_assert(isnan(top_distance(a, one, 4)));
	b[0] = a[0] + 1e-6;
	b[1] = a[1];
	ck_assert(top_distance(a, b, 2) == 0);
}
END_TEST

START_TEST(lists_are_aligned_by_id)
{
	struct top base[] = { { 7, -0.1 }, { 3, -1 }, { 9, -2 }, { 4, -3 } };
	struct top other[] = { { 3, -0.5 }, { 7, -0.6 }, { 1, -0.7 }, { 4, -0.8 }, { 2, -0.9 } };
	double v[4] = { NAN, NAN, NAN, NAN };

	top_align(v, base, 4, other, 5);
	near_to(v[0], -0.6, 0);
	near_to(v[1], -0.5, 0);
	ck_assert(isnan(v[2]));
	near_to(v[3], -0.8, 0);
	near_to(top_value(other, 5, 2), -0.9, 0);
	ck_assert(isnan(top_value(other, 0, 2)));
}
END_TEST

START_TEST(ulps_of_dtypes)
{
	near_to(ulp_of(20.25, "bf16"), 0.125, 0);
	near_to(ulp_of(-20.25, "bf16"), 0.125, 0);
	near_to(ulp_of(16, "bf16"), 0.125, 0);
	near_to(ulp_of(15.9, "bf16"), 0.0625, 0);
	near_to(ulp_of(46.875, "fp16"), 0.03125, 0);
	near_to(ulp_of(1, "fp32"), ldexp(1, -23), 0);
	ck_assert(isnan(ulp_of(0, "bf16")) && isnan(ulp_of(1, "int8")) && isnan(ulp_of(1, NULL)) && isnan(ulp_of(NAN, "bf16")));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stats");
	TCase *c = tcase_create("by hand");

	tcase_add_test(c, percentiles_interpolate);
	tcase_add_test(c, selection_is_what_sorting_finds);
	tcase_add_test(c, student_quantiles);
	tcase_add_test(c, sign_tests);
	tcase_add_test(c, holm_steps_down);
	tcase_add_test(c, poisson_binomial_by_hand);
	tcase_add_test(c, poisson_binomial_saddlepoint);
	tcase_add_test(c, theil_sen_by_hand);
	tcase_add_test(c, flip_law_light_tail);
	tcase_add_test(c, flip_law_heavy_tail);
	tcase_add_test(c, flip_law_not_measured);
	tcase_add_test(c, eprocess_counts_signs);
	tcase_add_test(c, distance_of_lists);
	tcase_add_test(c, lists_are_aligned_by_id);
	tcase_add_test(c, ulps_of_dtypes);
	suite_add_tcase(s, c);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	return failed != 0;
}
