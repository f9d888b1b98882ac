/* Every op vector of ops.json on ref, in the three precisions of `compute`. */
#include <check.h>
#include <stdlib.h>
#include "ops_vectors.h"

static const int computes[] = { COMPUTE_F64, COMPUTE_FP32, COMPUTE_BF16 };

START_TEST(test_vectors)
{
	struct arm arm;

	arm_init(&arm);
	arm_defaults(&arm);
	arm.value[FACTOR_COMPUTE] = computes[_i % 3];
	ops_vectors_run(_i / 3, &ref_backend, &arm);
}
END_TEST

START_TEST(test_residual)
{
	ops_residual_run(&ref_backend);
}
END_TEST

START_TEST(test_complete)
{
	ops_vectors_complete();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ops on ref");
	TCase *c = tcase_create("vectors");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, test_vectors, 0, 3 * ops_vectors_count());
	tcase_add_test(c, test_residual);
	tcase_add_test(c, test_complete);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
