/* Errors injected into the calls of the CUDA runtime and of cuBLASLt.  The linker puts these in place of the real ones
 * (--wrap).  They count the calls, fail the one that was asked for, and account for what is made and given back.  Where the
 * machine has no device the calls do nothing but succeed, so that every path of an error can be walked there too. */
#ifndef ASSAY_ENGINE_TESTS_CUDA_INJECT_H
#define ASSAY_ENGINE_TESTS_CUDA_INJECT_H

#include <stdbool.h>
#include <stddef.h>

struct inject {
	bool fake;                   /* no device: calls only seem to work */
	long at;                     /* the call that fails, from 1; 0: none */
	bool from_there_on;          /* and all after it, as when the device is lost */
	const char *name;            /* instead of `at`: each call of this name; NULL */
	int error;                   /* a cudaError_t */
	int major;                   /* compute capability of the fake device */
};

void inject_start(struct inject what);
/* "calls 231, failed cudaMalloc, left: 0"; the last number counts what was made and not given back, the kinds follow. */
void inject_account(char *text, size_t size);

#endif
