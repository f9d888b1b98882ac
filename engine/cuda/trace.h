/* Kernels that the device ran, as CUPTI activity tracing saw them.  Private to engine/cuda. */
#ifndef ASSAY_ENGINE_CUDA_TRACE_H
#define ASSAY_ENGINE_CUDA_TRACE_H

#include "device.h"

/* All launches of one kernel: its plain name, without parameters; rows: the y dimensions of the grids, summed; own: seconds
 * without those in which the kernels before it still ran. */
struct tally { char name[64]; int64_t launches, rows; double seconds, own; };

/* Tracing is of the process, not of a device: one user at a time.  What runs before trace_window(true) is dropped. */
int trace_begin(const char *option, struct err *err);
void trace_window(struct device *dev, bool open);
void trace_clear(void);
/* The tallies, in order of appearance; *lost: records that CUPTI dropped. */
const struct tally *trace_tallies(int *n, int64_t *lost);
bool trace_is_on(void);
void trace_end(void);

/* audit.c: fills report.audit from what the device launched; effective factors, modes and traces are read. */
void audit_compare(struct report *r, const struct tally *t, int n);

#endif
