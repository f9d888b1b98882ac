/* report.busy: may what was timed in this window stand against a peer?  docs/formats.md, section 11. */
#ifndef ASSAY_CONTRACT_BUSY_H
#define ASSAY_CONTRACT_BUSY_H

#include <jansson.h>

#define BUSY_SAMPLES_LEAST 30
#define BUSY_CLOCK_SPREAD_MOST 0.05      /* (most - least) / median */

struct err;

/* Is it an object as contract/schemas/report.schema.json has it, with a share of at most 1 and clocks in order?  ERR_INPUT,
 * "FILE: PATH.key: ...". */
int busy_check(const json_t *busy, const char *file, const char *path, struct err *err);
/* Why no ratio may be made of it, for the caller to free; NULL: nothing speaks against it.  `busy`: a report's, NULL or
 * null: the device was not watched. */
char *busy_refuse(const json_t *busy);
/* The same watch over several processes: samples add up, clocks span all, the share is weighted by samples, of other
 * processes the most that were seen.  A new reference; null if any of them is. */
json_t *busy_join(const json_t *const *busy, int n);

#endif
