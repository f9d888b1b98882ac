/* What `bench --profile` prints: time by op on the cpu, by kernel on a device, and the experts that decode chooses. */
#ifndef ASSAY_ENGINE_BENCH_PROFILE_H
#define ASSAY_ENGINE_BENCH_PROFILE_H

#include "backend.h"
#include "routing.h"

struct profile { const struct backend *b; struct device *dev; };

bool profile_possible(const struct backend *b);
int profile_begin(struct profile *p, struct err *err);
/* Ends it; `wall` is the time of all steps. */
int profile_print(struct profile *p, const char *what, int steps, double wall, struct err *err);
void routing_print(const struct routing *r);

#endif
