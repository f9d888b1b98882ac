/* The device's own record of launches (trace.c) against the counters.
 *
 * The y dimension of a grid is the number of rows (launch.h), so row counters are compared as rows, call counters as
 * launches.  A kernel that is neither in kernels.def nor accounted for as the library's contradicts the counters. */
#include <stdio.h>
#include <string.h>
#include "contract/err.h"
#include "contract/report.h"
#include "trace.h"

enum role { OTHER, FORWARD, STEP, CONV_STEP, SCAN, SCAN_TOKEN, SCAN_PART, SCAN_PASS, CONV_SCAN, COPY, UNKNOWN };

static const struct { const char *name; enum role role; } kernels[] = {
#define KERNEL(name, role) { #name, role },
#include "kernels.def"
#undef KERNEL
};

static enum role role_of(const char *name)
{
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (strcmp(kernels[i].name, name) == 0)
			return kernels[i].role;
	return UNKNOWN;
}

bool cuda_kernel_known(const char *name) { return role_of(name) != UNKNOWN; }

int cuda_audit_begin(struct err *err)
{
	int n = 0;

	OPEN(cudaGetDeviceCount(&n));        /* without a device CUPTI's refusal would be the reason */
	return trace_begin("--audit", err);
}

/* ---- what the counters say ---- */

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

/* Forward passes: one for the decoded sequences of a step together, one for each prefilled piece. */
static int64_t passes(const struct report *r)
{
	int64_t sum = 0;

	for (int m = 0; m < N_MODES; m++)
		for (int i = 0; r->modes[m].present && i < r->modes[m].n_trace; i++)
			sum += (r->modes[m].trace[i].nd > 0) + r->modes[m].trace[i].np;
	return sum;
}

/* Does some layer use the library's FP8 product, whose kernels have names of their own? */
static bool uses_library(const struct report *r)
{
	bool any = r->effective.value[FACTOR_MAMBA_PROJ] == MAMBA_PROJ_W8A8_LT;

	for (int i = 0; i < r->effective_at.n; i++)
		any |= r->effective_at.item[i].arm.value[FACTOR_MAMBA_PROJ] == MAMBA_PROJ_W8A8_LT;
	return any;
}

/* ---- comparing ---- */

static void mismatch(struct report *r, char *text)
{
	r->audit.agrees = false;
	r->audit.mismatches = xrealloc(r->audit.mismatches, r->audit.n_mismatches + 1, sizeof(*r->audit.mismatches));
	r->audit.mismatches[r->audit.n_mismatches++] = text;
}

static void expect(struct report *r, const char *what, int64_t counters, int64_t device)
{
	if (counters != device)
		mismatch(r, xasprintf("%s: the counters say %lld, the device %lld", what, (long long)counters,
				      (long long)device));
}

static void look_at_names(struct report *r, const struct tally *t, int n)
{
	int64_t library = 0;

	r->audit.kernels = json_array();
	for (int i = 0; i < n; i++) {
		json_array_append_new(r->audit.kernels, json_pack("{s:s, s:I}", "name", t[i].name, "launches",
								  (json_int_t)t[i].launches));
		if (cuda_kernel_known(t[i].name))
			continue;
		if (uses_library(r))
			library += t[i].launches;
		else
			mismatch(r, xasprintf("%lld launches of %s, which is no kernel of this backend", (long long)t[i].launches,
					      t[i].name));
	}
	if (library > counted(r, COUNT_W8A8_CALLS))
		mismatch(r, xasprintf("%lld launches of kernels that are not of this backend, but %lld W8A8 products",
				      (long long)library, (long long)counted(r, COUNT_W8A8_CALLS)));
}

void audit_compare(struct report *r, const struct tally *t, int n)
{
	int64_t all = 0, launches[UNKNOWN + 1] = {0}, rows[UNKNOWN + 1] = {0};

	for (int i = 0; i < n; i++) {
		all += t[i].launches;
		launches[role_of(t[i].name)] += t[i].launches;
		rows[role_of(t[i].name)] += t[i].rows;
	}
	r->audit.present = r->audit.agrees = true;
	r->audit.source = xstrdup("cupti");
	look_at_names(r, t, n);
	expect(r, "kernel_launches", counted(r, COUNT_KERNEL_LAUNCHES), all);
	expect(r, "forward passes", passes(r), launches[FORWARD]);
	expect(r, "state_update_rows", counted(r, COUNT_STATE_UPDATE_ROWS), rows[STEP]);
	/* A fused step convolves in the kernel of in_proj, whose grid has no rows; each is followed by a state update. */
	expect(r, "conv_update_rows", counted(r, COUNT_CONV_UPDATE_ROWS), rows[STEP]);
	expect(r, "chunk_scan_calls", sequences(r, COUNT_CHUNK_SCAN_CALLS), launches[SCAN] + launches[SCAN_TOKEN]);
	expect(r, "conv_fwd_calls", sequences(r, COUNT_CONV_FWD_CALLS), launches[CONV_SCAN]);
	expect(r, "gathers + scatters", counted(r, COUNT_GATHERS) + counted(r, COUNT_SCATTERS), launches[COPY]);
	if (launches[CONV_STEP] != launches[STEP])
		mismatch(r, xasprintf("the device ran %lld convolution steps and %lld state updates", (long long)launches[CONV_STEP],
				      (long long)launches[STEP]));
	if (launches[SCAN_PART] != launches[SCAN] || launches[SCAN_PASS] != launches[SCAN])
		mismatch(r, xasprintf("the device ran %lld, %lld and %lld parts of a chunk scan", (long long)launches[SCAN_PART],
				      (long long)launches[SCAN_PASS], (long long)launches[SCAN]));
}

int cuda_audit_end(struct report *r, struct err *err)
{
	int64_t lost;
	int n;
	const struct tally *t = trace_tallies(&n, &lost);

	trace_end();
	if (lost)
		return err_set(err, ERR_FAILED, "--audit: CUPTI dropped %lld records", (long long)lost);
	if (n == 0)
		return err_set(err, ERR_CANNOT_RUN, "--audit: CUPTI recorded no kernel on this machine");
	audit_compare(r, t, n);
	return 0;
}
