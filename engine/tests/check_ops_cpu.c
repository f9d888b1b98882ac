/* Every op vector of ops.json on cpu: at each dispatch level of this machine, in fp32 and bf16, with one thread and
 * two.  The bounds are those of ops_vectors.c. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include "engine/cpu/level.h"
#include "ops_vectors.h"

static const int computes[] = { COMPUTE_FP32, COMPUTE_BF16 };

/* 4 variants of each op of each level. */
START_TEST(test_vectors)
{
	const struct level *level = cpu_levels[_i / 4 / ops_vectors_count()];
	struct arm arm;

	if (!level_supported(level)) {
		if (_i % (4 * ops_vectors_count()) == 0)
			printf("skipped: level %s: this CPU lacks it\n", level->name);
		return;
	}
	level_force(level);
	arm_init(&arm);
	arm_defaults(&arm);
	arm.value[FACTOR_COMPUTE] = computes[_i % 2];
	arm.value[FACTOR_THREADS] = 1 + _i / 2 % 2;
	ops_vectors_run(_i / 4 % ops_vectors_count(), &cpu_backend, &arm);
}
END_TEST

START_TEST(test_residual)
{
	if (!level_supported(cpu_levels[_i]))
		return;      /* test_vectors has said so */
	level_force(cpu_levels[_i]);
	ops_residual_run(&cpu_backend);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ops on cpu");
	TCase *c = tcase_create("vectors");
	SRunner *runner = srunner_create(s);
	int failed, levels = 0;

	while (cpu_levels[levels])
		levels++;
	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_vectors, 0, 4 * levels * ops_vectors_count());
	tcase_add_loop_test(c, test_residual, 0, levels);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
