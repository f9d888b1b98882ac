/* CUPTI activity tracing, opened at run time: kernels by name with their grids and times, those of a replayed graph one by one. */
#include <cupti.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "ops.h"
#include "trace.h"

#define BUFFER ((size_t)4 << 20)
#define MAX_KERNELS 128

/* CUPTI calls back without a context of ours. */
static struct {
	void *library;
	CUptiResult (*enable)(CUpti_ActivityKind), (*disable)(CUpti_ActivityKind), (*flush)(uint32_t);
	CUptiResult (*next)(uint8_t *, size_t, CUpti_Activity **);
	CUptiResult (*callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
	CUptiResult (*dropped)(CUcontext, uint32_t, size_t *);
	struct tally kernel[MAX_KERNELS];
	int n;
	int64_t lost;
	uint64_t busy_until;        /* the end of what ran so far */
	bool on, open;              /* tracing; in the window */
} trace;

void *audit_library(void)
{
	static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "libcupti.so" };
	void *library = NULL;

	for (size_t i = 0; !library && i < sizeof(names) / sizeof(*names); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return library;
}

/* "_Z13ssm_step_rows8ssm_argsPKi" -> "ssm_step_rows"; other names stay as they are. */
static void plain_name(char *to, size_t size, const char *name)
{
	char *end;
	long n = strncmp(name, "_Z", 2) == 0 ? strtol(name + 2, &end, 10) : 0;

	if (n > 0 && n < (long)size && strlen(end) >= (size_t)n)
		snprintf(to, size, "%.*s", (int)n, end);
	else
		snprintf(to, size, "%s", name);
}

static void tally(const CUpti_ActivityKernel10 *k)
{
	char plain[sizeof(trace.kernel[0].name)];
	int i = 0;

	plain_name(plain, sizeof(plain), k->name ? k->name : "?");
	while (i < trace.n && strcmp(trace.kernel[i].name, plain))
		i++;
	if (i == MAX_KERNELS) {
		trace.lost++;
		return;
	}
	if (i == trace.n) {
		trace.kernel[trace.n++] = (struct tally){0};
		snprintf(trace.kernel[i].name, sizeof(plain), "%s", plain);
	}
	trace.kernel[i].launches++;
	trace.kernel[i].rows += k->gridY;
	trace.kernel[i].seconds += 1e-9 * (double)(k->end - k->start);
	if (k->end > trace.busy_until) {
		uint64_t from = k->start > trace.busy_until ? k->start : trace.busy_until;

		trace.kernel[i].own += 1e-9 * (double)(k->end - from);
		trace.busy_until = k->end;
	}
}

static void CUPTIAPI request(uint8_t **buffer, size_t *size, size_t *max_records)
{
	*buffer = aligned_alloc(8, BUFFER);
	*size = *buffer ? BUFFER : 0;
	*max_records = 0;
}

static void CUPTIAPI complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	CUpti_Activity *a = NULL;
	size_t dropped = 0;

	(void)size;
	while (trace.open && trace.next(buffer, valid, &a) == CUPTI_SUCCESS)
		if (a->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || a->kind == CUPTI_ACTIVITY_KIND_KERNEL)
			tally((const CUpti_ActivityKernel10 *)a);
	if (trace.dropped(context, stream, &dropped) == CUPTI_SUCCESS)
		trace.lost += (int64_t)dropped;
	free(buffer);
}

static bool symbols(void)
{
	const struct { void *to; const char *name; } wanted[] = {
		{ &trace.enable, "cuptiActivityEnable" }, { &trace.disable, "cuptiActivityDisable" },
		{ &trace.flush, "cuptiActivityFlushAll" }, { &trace.next, "cuptiActivityGetNextRecord" },
		{ &trace.callbacks, "cuptiActivityRegisterCallbacks" },
		{ &trace.dropped, "cuptiActivityGetNumDroppedRecords" },
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		if (!(*(void **)wanted[i].to = dlsym(trace.library, wanted[i].name)))
			return false;
	return true;
}

int trace_begin(const char *option, struct err *err)
{
	if (!trace.library)
		trace.library = audit_library();
	if (!trace.library)
		return err_set(err, ERR_CANNOT_RUN, "%s: CUPTI was not found", option);
	if (!symbols())
		return err_set(err, ERR_CANNOT_RUN, "%s: this CUPTI lacks the activity interface", option);
	if (trace.callbacks(request, complete) != CUPTI_SUCCESS ||
	    trace.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS)
		return err_set(err, ERR_CANNOT_RUN, "%s: CUPTI refuses to trace kernels on this machine", option);
	trace.on = true;
	return 0;
}

void trace_window(struct device *dev, bool open)
{
	if (!trace.on)
		return;
	settle(dev);
	TRY(dev, cudaStreamSynchronize(dev->stream));
	trace.flush(1);
	trace.open = open;
}

void trace_clear(void)
{
	trace.n = 0;
	trace.lost = 0;
	trace.busy_until = 0;
}

const struct tally *trace_tallies(int *n, int64_t *lost)
{
	*n = trace.n;
	*lost = trace.lost;
	return trace.kernel;
}

bool trace_is_on(void) { return trace.on; }

void trace_end(void)
{
	if (trace.on)
		trace.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
	trace.on = trace.open = false;
}
