/* Every op vector of ops.json on a CUDA device, in both precisions of `compute` that it has. */
#include <check.h>
#include <stdlib.h>
#include "cuda_test.h"
#include "engine/tests/ops_vectors.h"

static const int computes[] = { COMPUTE_FP32, COMPUTE_BF16 };

START_TEST(test_vectors)
{
	struct arm arm;

	arm_init(&arm);
	arm_defaults(&arm);
	arm.value[FACTOR_COMPUTE] = computes[_i % 2];
	ops_vectors_run(_i / 2, &cuda_backend, &arm);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ops on cuda");
	TCase *c = tcase_create("vectors");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_vectors, 0, 2 * ops_vectors_count());
	suite_add_tcase(s, c);
	return cuda_test_run(s);
}
