/* Read bandwidth of this machine, to hold decode against: several threads sum a buffer that no cache holds. */
#ifndef ASSAY_ENGINE_BANDWIDTH_H
#define ASSAY_ENGINE_BANDWIDTH_H

#include "contract/err.h"

struct bandwidth;

/* A buffer of at least four times the last-level cache, in huge pages where the system grants them. */
int bandwidth_open(struct bandwidth **b, int threads, struct err *err);
void bandwidth_release(struct bandwidth *b);             /* NULL is fine */
/* One pass over the buffer: bytes per second. */
double bandwidth_read(struct bandwidth *b);

#endif
