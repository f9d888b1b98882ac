/* Every kernel of the sources is in kernels.def, so that the audit knows it.  Needs no device. */
#include <check.h>
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "contract/file.h"
#include "engine/cuda/device.h"

/* The name in "__global__ void __launch_bounds__(...) name(...)": the last word before the parameters. */
static bool next_kernel(char **at, char *name, size_t size)
{
	char *p = strstr(*at, "__global__"), *open;

	if (!p)
		return false;
	p += strlen("__global__");
	open = strchr(p, '(');
	if (open && strstr(p, "__launch_bounds__") && strstr(p, "__launch_bounds__") < open) {
		for (int depth = 0; *open; open++) {
			depth += (*open == '(') - (*open == ')');
			if (depth == 0)
				break;
		}
		open = strchr(open, '(');
	}
	ck_assert_ptr_nonnull(open);
	*at = open;
	while (isspace((unsigned char)open[-1]))
		open--;
	for (p = open; isalnum((unsigned char)p[-1]) || p[-1] == '_'; p--)
		;
	snprintf(name, size, "%.*s", (int)(open - p), p);
	return true;
}

START_TEST(test_every_kernel_is_known)
{
	glob_t found;
	int kernels = 0;

	ck_assert_int_eq(glob("engine/cuda/*.cu", 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct err err = {0};
		size_t size;
		char *text = file_read(found.gl_pathv[i], 1 << 20, &size, &err), *at = text, name[128];

		ck_assert_msg(text != NULL, "%s", err.text);
		while (next_kernel(&at, name, sizeof(name))) {
			ck_assert_msg(cuda_kernel_known(name), "%s: kernel %s is not in engine/cuda/kernels.def",
				      found.gl_pathv[i], name);
			kernels++;
		}
		free(text);
	}
	globfree(&found);
	ck_assert_int_gt(kernels, 30);
}
END_TEST

START_TEST(test_others_are_not)
{
	ck_assert(!cuda_kernel_known("nvjet_qqtst_64x16_64x12_2x4_h_bz_TNT"));
	ck_assert(!cuda_kernel_known("ssm_step"));
	ck_assert(!cuda_kernel_known("ssm_step_rows_"));
	ck_assert(cuda_kernel_known("ssm_step_rows"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("audit of cuda");
	TCase *c = tcase_create("names");
	SRunner *runner;
	int failed;

	tcase_add_test(c, test_every_kernel_is_known);
	tcase_add_test(c, test_others_are_not);
	suite_add_tcase(s, c);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
