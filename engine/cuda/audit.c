/* The device's own record of launches, taken by CUPTI activity tracing, against the counters.
 *
 * Kernels are recorded by name with their grid, those of a replayed graph one by one.  The y dimension of a grid is the
 * number of rows (launch.h), so row counters are compared as rows, call counters as launches. */
#include <cupti.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "contract/report.h"
#include "ops.h"

#define BUFFER ((size_t)4 << 20)
#define MAX_KERNELS 128

struct tally { char name[64]; int64_t launches, rows; };

/* CUPTI calls back without a context of ours: one audit a process. */
static struct {
	void *library;
	CUptiResult (*enable)(CUpti_ActivityKind), (*flush)(uint32_t), (*next)(uint8_t *, size_t, CUpti_Activity **);
	CUptiResult (*callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
	CUptiResult (*dropped)(CUcontext, uint32_t, size_t *);
	struct tally kernel[MAX_KERNELS];
	int n;
	int64_t lost;
	bool on, open;              /* tracing; between the marks */
} audit;

void *audit_library(void)
{
	static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", "libcupti.so" };
	void *library = NULL;

	for (size_t i = 0; !library && i < sizeof(names) / sizeof(*names); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return library;
}

/* ---- tracing ---- */

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

static void tally(const char *name, int rows)
{
	char plain[sizeof(audit.kernel[0].name)];
	int i = 0;

	plain_name(plain, sizeof(plain), name);
	while (i < audit.n && strcmp(audit.kernel[i].name, plain))
		i++;
	if (i == MAX_KERNELS) {
		audit.lost++;
		return;
	}
	if (i == audit.n)
		snprintf(audit.kernel[audit.n++].name, sizeof(plain), "%s", plain);
	audit.kernel[i].launches++;
	audit.kernel[i].rows += rows;
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
	while (audit.open && audit.next(buffer, valid, &a) == CUPTI_SUCCESS)
		if (a->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || a->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
			const CUpti_ActivityKernel10 *k = (const CUpti_ActivityKernel10 *)a;

			tally(k->name ? k->name : "?", k->gridY);
		}
	if (audit.dropped(context, stream, &dropped) == CUPTI_SUCCESS)
		audit.lost += (int64_t)dropped;
	free(buffer);
}

int cuda_audit_begin(struct err *err)
{
	audit.library = audit_library();
	if (!audit.library)
		return err_set(err, ERR_CANNOT_RUN, "--audit: CUPTI was not found");
	*(void **)&audit.enable = dlsym(audit.library, "cuptiActivityEnable");
	*(void **)&audit.flush = dlsym(audit.library, "cuptiActivityFlushAll");
	*(void **)&audit.next = dlsym(audit.library, "cuptiActivityGetNextRecord");
	*(void **)&audit.callbacks = dlsym(audit.library, "cuptiActivityRegisterCallbacks");
	*(void **)&audit.dropped = dlsym(audit.library, "cuptiActivityGetNumDroppedRecords");
	if (!audit.enable || !audit.flush || !audit.next || !audit.callbacks || !audit.dropped)
		return err_set(err, ERR_CANNOT_RUN, "--audit: this CUPTI lacks the activity interface");
	if (audit.callbacks(request, complete) != CUPTI_SUCCESS ||
	    audit.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS)
		return err_set(err, ERR_CANNOT_RUN, "--audit: CUPTI refuses to trace kernels on this machine");
	audit.on = true;
	return 0;
}

/* The window of the counters: what happened at open is dropped. */
void audit_mark(struct device *dev, bool start)
{
	if (!audit.on)
		return;
	TRY(dev, cudaStreamSynchronize(dev->stream));
	audit.flush(1);
	audit.open = start;
}

/* ---- comparing ---- */

static int64_t traced(const char *name, bool rows)
{
	int64_t sum = 0;

	for (int i = 0; i < audit.n; i++)
		if (strncmp(audit.kernel[i].name, name, strlen(name)) == 0)
			sum += rows ? audit.kernel[i].rows : audit.kernel[i].launches;
	return sum;
}

static int64_t counted(const struct report *r, enum counter c)
{
	int64_t sum = 0;

	for (int m = 0; m < N_MODES; m++)
		if (r->modes[m].present)
			sum += r->modes[m].total.n[c];
	return sum;
}

/* A call counter counts one for all rows of a step; the device ran one launch for each sequence. */
static int64_t sequences(const struct report *r, enum counter c)
{
	int64_t sum = 0;

	for (int m = 0; m < N_MODES; m++)
		for (int i = 0; r->modes[m].present && i < r->modes[m].n_trace; i++) {
			const struct report_trace *t = &r->modes[m].trace[i];

			sum += t->counters.n[c] * (t->nd > 0 ? t->nd : 1);
		}
	return sum;
}

static void expect(struct report *r, const char *what, int64_t counters, int64_t device)
{
	if (counters == device)
		return;
	r->audit.agrees = false;
	r->audit.mismatches = xrealloc(r->audit.mismatches, r->audit.n_mismatches + 1, sizeof(*r->audit.mismatches));
	r->audit.mismatches[r->audit.n_mismatches++] = xasprintf("%s: the counters say %lld, the device %lld", what,
								 (long long)counters, (long long)device);
}

int cuda_audit_end(struct report *r, struct err *err)
{
	int64_t all = 0;

	if (audit.lost)
		return err_set(err, ERR_FAILED, "--audit: CUPTI dropped %lld records", (long long)audit.lost);
	if (audit.n == 0)
		return err_set(err, ERR_CANNOT_RUN, "--audit: CUPTI recorded no kernel on this machine");
	r->audit.present = r->audit.agrees = true;
	r->audit.source = xstrdup("cupti");
	r->audit.kernels = json_array();
	for (int i = 0; i < audit.n; i++) {
		all += audit.kernel[i].launches;
		json_array_append_new(r->audit.kernels, json_pack("{s:s, s:I}", "name", audit.kernel[i].name, "launches",
								  (json_int_t)audit.kernel[i].launches));
	}
	expect(r, "kernel_launches", counted(r, COUNT_KERNEL_LAUNCHES), all);
	expect(r, "state_update_rows", counted(r, COUNT_STATE_UPDATE_ROWS), traced("ssm_step_rows", true));
	/* A fused step convolves in the kernel of in_proj, whose grid has no rows; each is followed by a state update. */
	expect(r, "launches of the convolution step against the state update",
	       traced("conv_step_rows", false) + traced("stream_conv_tiles", false), traced("ssm_step_rows", false));
	expect(r, "conv_update_rows", counted(r, COUNT_CONV_UPDATE_ROWS), traced("ssm_step_rows", true));
	expect(r, "chunk_scan_calls", sequences(r, COUNT_CHUNK_SCAN_CALLS), traced("ssm_chunk_out", false));
	expect(r, "conv_fwd_calls", sequences(r, COUNT_CONV_FWD_CALLS), traced("conv_scan_tokens", false));
	expect(r, "gathers + scatters", counted(r, COUNT_GATHERS) + counted(r, COUNT_SCATTERS), traced("copy_row", false));
	return 0;
}
