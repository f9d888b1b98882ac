/* What `bench` measured, for people and as JSON lines (assay/bench/1). */
#ifndef ASSAY_ENGINE_BENCH_OUTPUT_H
#define ASSAY_ENGINE_BENCH_OUTPUT_H

#include "contract/err.h"
#include "contract/report.h"

/* One quantity, and every value of it that was measured: of all decode steps of all runs, or one of each run. */
struct series {
	const char *name, *unit;
	bool larger_is_better;
	bool of_steps;               /* else of runs */
	bool of_window;              /* timed while the device was watched: busy share and clocks are said of it */
	double *value;               /* owned [n] */
	int n;
};

struct bench_shape { int prompt, decode, batch; };

void series_add(struct series *s, double value);
void series_release(struct series *s);
/* The smallest value that a share q of all do not exceed; 0: the least, 1: the most. */
double series_share(const struct series *s, double q);

/* A line each: median, least, p90, most, and of how many steps or runs; then what was seen of the device.  `about`: what
 * host_describe and backend.describe say. */
void bench_print(const struct series *s, int n, const struct report *about);
/* One record per series, a line each; `leg` says which arm. */
int bench_write(const char *path, const struct series *s, int n, const char *model, const char *leg,
		const struct bench_shape *shape, const struct report *about, struct err *err);

#endif
