/* What bench asks of the device: time by kernel, and how fast it copies. */
#include <stdlib.h>
#include "contract/err.h"
#include "ops.h"
#include "trace.h"

#define COPY_MOST ((size_t)2 << 30)   /* bytes copied at a time; several times the largest cache */
#define COPY_LEAST ((size_t)256 << 20)
#define COPIES 8

/* ---- time by kernel ---- */

int cuda_profile_begin(struct device *dev, struct err *err)
{
	if (trace_begin("--profile", err))
		return -1;
	cuda_graph_drop(dev);
	trace_clear();
	trace_window(dev, true);
	return 0;
}

static int by_time(const void *a, const void *b)
{
	double x = ((const struct kernel_time *)a)->own, y = ((const struct kernel_time *)b)->own;

	return (x < y) - (x > y);
}

int cuda_profile_end(struct device *dev, const struct kernel_time **rows, int *n, struct err *err)
{
	static struct kernel_time kept[128];
	const struct tally *t;
	int64_t lost;

	trace_window(dev, false);
	t = trace_tallies(n, &lost);
	trace_end();
	if (lost)
		return err_set(err, ERR_FAILED, "--profile: CUPTI dropped %lld records", (long long)lost);
	if (*n == 0)
		return err_set(err, ERR_CANNOT_RUN, "--profile: CUPTI recorded no kernel on this machine");
	for (int i = 0; i < *n; i++)
		kept[i] = (struct kernel_time){ t[i].name, t[i].launches, t[i].seconds, t[i].own };
	qsort(kept, *n, sizeof(*kept), by_time);
	*rows = kept;
	return 0;
}

/* ---- copying ---- */

static cudaError_t timed_copies(struct device *dev, void *to, const void *from, size_t bytes, float *ms)
{
	cudaEvent_t start = NULL, stop = NULL;
	cudaError_t e = cudaEventCreate(&start);

	if (e == cudaSuccess)
		e = cudaEventCreate(&stop);
	for (int i = -1; e == cudaSuccess && i < COPIES; i++) {      /* the first is not timed */
		if (i == 0)
			e = cudaEventRecord(start, dev->stream);
		if (e == cudaSuccess)
			e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, dev->stream);
	}
	if (e == cudaSuccess)
		e = cudaEventRecord(stop, dev->stream);
	if (e == cudaSuccess)
		e = cudaEventSynchronize(stop);
	if (e == cudaSuccess)
		e = cudaEventElapsedTime(ms, start, stop);
	if (start)
		cudaEventDestroy(start);
	if (stop)
		cudaEventDestroy(stop);
	return e;
}

double cuda_copy_rate(struct device *dev, struct err *err)
{
	void *from = NULL, *to = NULL;
	size_t bytes = COPY_MOST;
	cudaError_t e;
	float ms = 0;

	while ((e = cudaMalloc(&from, 2 * bytes)) == cudaErrorMemoryAllocation && bytes > COPY_LEAST) {
		cudaGetLastError();
		bytes /= 2;
	}
	if (e == cudaSuccess) {
		to = (char *)from + bytes;
		e = cudaMemsetAsync(from, 0, 2 * bytes, dev->stream);
	}
	if (e == cudaSuccess)
		e = timed_copies(dev, to, from, bytes, &ms);
	cudaFree(from);
	if (e != cudaSuccess) {
		cuda_failed(e, "copy bandwidth(", err);
		return 0;
	}
	return 2.0 * COPIES * (double)bytes / (1e-3 * (double)ms);
}
