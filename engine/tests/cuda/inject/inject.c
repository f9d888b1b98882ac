#include "inject.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KINDS(K) K(NOTHING) K(MEMORY) K(PINNED) K(STREAM) K(EVENT) K(GRAPH) K(EXEC) K(HANDLE) K(DESC) K(LAYOUT) K(PREFERENCE)
#define KIND(k) k,
enum kind { KINDS(KIND) N_KINDS };
#undef KIND

static struct inject asked;
static long calls;
static char failed[64];
static cudaError_t last;             /* what cudaGetLastError owes for a failure that was injected */
static int left[N_KINDS];

void inject_start(struct inject what) { asked = what; }

void inject_account(char *text, size_t size)
{
#define KIND(k) #k,
	static const char *const names[] = { KINDS(KIND) };
#undef KIND
	int all = 0, n;

	for (int k = 0; k < N_KINDS; k++)
		all += abs(left[k]);
	n = snprintf(text, size, "calls %ld, failed %s, left: %d", calls, failed[0] ? failed : "nothing", all);
	for (int k = 0; k < N_KINDS; k++)
		if (left[k])
			n += snprintf(text + n, size - n, " %s %d", names[k], left[k]);
}

static bool fails(const char *name)
{
	bool now;

	calls++;
	now = asked.name ? strcmp(asked.name, name) == 0 : asked.at && (calls == asked.at || (asked.from_there_on && calls > asked.at));
	if (now && !failed[0])
		snprintf(failed, sizeof(failed), "%s", name);
	return now;
}

/* ---- a device that is not there ---- */

static cudaError_t fake_properties(struct cudaDeviceProp *p, int id)
{
	(void)id;
	*p = (struct cudaDeviceProp){ .major = asked.major };
	snprintf(p->name, sizeof(p->name), "no device");
	return cudaSuccess;
}

static cudaError_t fake_attributes(struct cudaFuncAttributes *a, const void *f)
{
	(void)f;
	*a = (struct cudaFuncAttributes){ .ptxVersion = 90, .binaryVersion = 90 };
	return cudaSuccess;
}

static cudaError_t fake_alloc(void **p, size_t n)
{
	*p = calloc(1, n);
	return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t fake_copy(void *to, const void *from, size_t n)
{
	memcpy(to, from, n);
	return cudaSuccess;
}

static cudaError_t fake_copy_rows(void *to, size_t ldt, const void *from, size_t ldf, size_t w, size_t h)
{
	for (size_t i = 0; i < h; i++)
		memcpy((char *)to + i * ldt, (const char *)from + i * ldf, w);
	return cudaSuccess;
}

static cudaError_t fake_heuristic(cublasLtMatmulHeuristicResult_t *r, int *n)
{
	*r = (cublasLtMatmulHeuristicResult_t){ .state = CUBLAS_STATUS_SUCCESS };
	*n = 1;
	return cudaSuccess;
}

/* ---- the runtime ---- */

cudaError_t __real_cudaGetLastError(void);
cudaError_t __wrap_cudaGetLastError(void);

/* A failing call is told of twice, as the runtime does. */
cudaError_t __wrap_cudaGetLastError(void)
{
	cudaError_t e = last;

	if (fails("cudaGetLastError"))
		return (cudaError_t)asked.error;
	last = cudaSuccess;
	return e != cudaSuccess || asked.fake ? e : __real_cudaGetLastError();
}

#define CALL(name, params, args, fake_form, kind, delta, condition) \
	cudaError_t __real_##name params; \
	cudaError_t __wrap_##name params; \
	cudaError_t __wrap_##name params \
	{ \
		cudaError_t result; \
		if ((delta) < 0 && (condition)) \
			left[kind]--; \
		if (fails(#name)) { \
			if (asked.fake && (delta) < 0) \
				(void)(fake_form);   /* nobody is to find it left behind */ \
			return last = (cudaError_t)asked.error; \
		} \
		result = asked.fake ? (fake_form) : __real_##name args; \
		if ((delta) > 0 && result == cudaSuccess) \
			left[kind]++; \
		return result; \
	}
#define LT(...)
#include "calls.def"
#undef CALL
#undef LT

/* ---- cuBLASLt ---- */

#define CALL(...)
#define LT(name, params, args, fake_form, kind, delta, condition) \
	static cublasStatus_t (*real_##name) params; \
	static cublasStatus_t counted_##name params \
	{ \
		cublasStatus_t result; \
		if ((delta) < 0 && (condition)) \
			left[kind]--; \
		if (fails(#name)) { \
			if (asked.fake && (delta) < 0) \
				(void)(fake_form); \
			return CUBLAS_STATUS_INTERNAL_ERROR; \
		} \
		result = asked.fake ? (cublasStatus_t)(fake_form) : real_##name args; \
		if ((delta) > 0 && result == CUBLAS_STATUS_SUCCESS) \
			left[kind]++; \
		return result; \
	}
#include "calls.def"
#undef LT

static size_t fake_version(void) { return 0; }

static char fake_library;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
int __real_dlclose(void *library);
int __wrap_dlclose(void *library);

/* CUPTI, asked whether it is there and closed again, would leave memory behind. */
void *__wrap_dlopen(const char *name, int flags)
{
	if (asked.fake && name && strstr(name, "cupti"))
		return NULL;
	return asked.fake && name && strstr(name, "cublasLt") ? &fake_library : __real_dlopen(name, flags);
}

int __wrap_dlclose(void *library) { return library == &fake_library ? 0 : __real_dlclose(library); }

void *__wrap_dlsym(void *library, const char *name)
{
	static const struct { const char *name; void *real, *counted; } table[] = {
#define LT(name, ...) { #name, &real_##name, &counted_##name },
#include "calls.def"
#undef LT
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (strcmp(table[i].name, name) == 0) {
			if (library != &fake_library)
				*(void **)table[i].real = __real_dlsym(library, name);
			return table[i].counted;
		}
	return library == &fake_library ? (void *)&fake_version : __real_dlsym(library, name);
}
