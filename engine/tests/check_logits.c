/* A row of logits -> top 20, log-sum-exp, rank and hash. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "engine/logits.h"

/* Ties go to the lower id; rank counts those ahead. */
START_TEST(test_order)
{
	float row[25];
	double wide[25];
	struct logits_row a, b;

	for (int i = 0; i < 25; i++)
		wide[i] = row[i] = (float)(i % 5);   /* 4 at 4, 9, 14, 19, 24; then 3 at 3, 8, ... */
	logits_row_f32(&a, row, 25, 8);
	logits_row_f64(&b, wide, 25, 8, false);
	ck_assert_int_eq(a.n_top, 20);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(a.top_id[i], i % 5 * 5 + 4 - i / 5);
		ck_assert(a.top_logit[i] == 4 - i / 5);
	}
	ck_assert_int_eq(a.given_rank, 7);
	ck_assert(a.given_logit == 3);
	/* ln(5 (e^0 + e^1 + e^2 + e^3 + e^4)) */
	ck_assert_double_eq_tol(a.lse, 6.061352308371694, 1e-14);
	/* The same row as doubles, hashed as fp32. */
	ck_assert(a.xxh64 == XXH64(row, sizeof(row), 0));
	ck_assert(a.xxh64 == b.xxh64 && a.lse == b.lse);
	ck_assert_mem_eq(a.top_id, b.top_id, sizeof(a.top_id));
	logits_row_f64(&b, wide, 25, -1, true);
	ck_assert(b.xxh64 == XXH64(wide, sizeof(wide), 0));
	ck_assert_int_eq(b.given_rank, 0);
}
END_TEST

/* Every logit equal, and descending and ascending rows longer than the list. */
START_TEST(test_long)
{
	enum { N = 1000 };
	float row[N];
	struct logits_row got;

	for (int i = 0; i < N; i++)
		row[i] = 1;
	logits_row_f32(&got, row, N, N - 1);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(got.top_id[i], i);
	ck_assert_int_eq(got.given_rank, N);
	ck_assert_double_eq_tol(got.lse, 1 + log(N), 1e-12);
	for (int up = 0; up < 2; up++) {
		for (int i = 0; i < N; i++)
			row[i] = (float)(up ? i : -i);
		logits_row_f32(&got, row, N, 500);
		for (int i = 0; i < 20; i++)
			ck_assert_int_eq(got.top_id[i], up ? N - 1 - i : i);
		ck_assert_int_eq(got.given_rank, up ? N - 500 : 501);
	}
}
END_TEST

/* Fewer ids than the list holds. */
START_TEST(test_short)
{
	float row[3] = { -1, 2, 0 };
	struct logits_row got;

	logits_row_f32(&got, row, 3, 0);
	ck_assert_int_eq(got.n_top, 3);
	ck_assert(got.top_id[0] == 1 && got.top_id[1] == 2 && got.top_id[2] == 0);
	ck_assert_int_eq(got.given_rank, 3);
}
END_TEST

/* A row that is not finite keeps an order: numbers first, NaN behind them all, and a log-sum-exp that shows it. */
START_TEST(test_not_finite)
{
	float row[30];
	struct logits_row got;

	for (int i = 0; i < 30; i++)
		row[i] = i % 2 ? NAN : (float)i;
	row[4] = INFINITY;
	row[6] = -INFINITY;
	logits_row_f32(&got, row, 30, 1);
	ck_assert_int_eq(got.top_id[0], 4);
	ck_assert_int_eq(got.top_id[1], 28);
	ck_assert_int_eq(got.top_id[14], 6);    /* the last of 15 numbers */
	ck_assert_int_eq(got.top_id[15], 1);
	ck_assert_int_eq(got.top_id[19], 9);
	ck_assert_int_eq(got.given_rank, 16);
	ck_assert(isnan(got.lse));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("logits");
	TCase *c = tcase_create("row");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_test(c, test_order);
	tcase_add_test(c, test_long);
	tcase_add_test(c, test_short);
	tcase_add_test(c, test_not_finite);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
