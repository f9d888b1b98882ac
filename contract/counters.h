/* The path counters of counters.def.  docs/formats.md, section 3. */
#ifndef ASSAY_CONTRACT_COUNTERS_H
#define ASSAY_CONTRACT_COUNTERS_H

#include <stdint.h>

enum counter {
#define COUNTER(id, name, says) COUNT_##id,
#include "counters.def"
#undef COUNTER
	N_COUNTERS
};

#define COUNTER_ABSENT (-1)  /* a report that lacks it: never zero */

struct counters {
	int64_t n[N_COUNTERS];
};

const char *counter_name(enum counter c);
const char *counter_says(enum counter c);
int counter_find(const char *name);  /* -1: no such counter */

#endif
