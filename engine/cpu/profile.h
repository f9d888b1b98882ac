/* Wall time by op, for `bench --profile`.  Off it costs a test per op. */
#ifndef ASSAY_ENGINE_CPU_PROFILE_H
#define ASSAY_ENGINE_CPU_PROFILE_H

#include <stdbool.h>

struct profile_row {
	const char *op;              /* name in the op table */
	char module[32];             /* of a linear op: the last part of its name; else "" */
	double seconds;
	long calls;
};

extern bool profile_enabled;         /* set it before a device opens */

void profile_clear(void);
const struct profile_row *profile_rows(int *n);
/* Around an op.  `module` may be NULL. */
double profile_start(void);
void profile_stop(double start, const char *op, const char *module);

#endif
