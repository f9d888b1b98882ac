/* What a report says about the program and the machine. */
#ifndef ASSAY_ENGINE_HOST_H
#define ASSAY_ENGINE_HOST_H

#include "contract/report.h"

/* Fills r->engine (with the sha256 of the running binary) and r->host; the device's part is backend.describe's. */
int host_describe(struct report *r, struct err *err);
/* Build and machine feature cells: name -> "enabled" or the reason why not.  The array and its strings are the
 * caller's to free. */
struct report_cell *host_features(int *n);
int64_t host_peak_rss(void);
double host_seconds(void);       /* a monotonic clock */

#endif
