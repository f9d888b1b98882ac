#include "cuda_test.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Asked in a child: a process that has touched the driver cannot fork tests that use it. */
static bool have_device(void)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		int n = 0;
		cudaError_t e = cudaGetDeviceCount(&n);

		if (e != cudaSuccess || n == 0)
			printf("skipped: no NVIDIA device: %s\n", cudaGetErrorString(e));
		fflush(stdout);
		_exit(e != cudaSuccess || n == 0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int cuda_test_run(Suite *s)
{
	SRunner *runner = srunner_create(s);
	int failed;

	if (!have_device()) {
		srunner_free(runner);
		return 77;
	}
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
