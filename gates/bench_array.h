/* Speed as other tools and the records read it.  docs/formats.md, section 8. */
#ifndef ASSAY_GATES_BENCH_ARRAY_H
#define ASSAY_GATES_BENCH_ARRAY_H

#include "page.h"

/* The array of github-action-benchmark: smaller is better.  A new reference.  Legs that are VOID or in ERROR are left out:
 * what they timed is not known. */
json_t *bench_array(const struct findings *f);
/* Lines of assay/bench/1, one per leg that was timed.  `when`: ISO 8601, UTC.  A new reference to an array. */
json_t *bench_records(const struct findings *f, const char *when);

#endif
