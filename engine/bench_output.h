/* What `bench` measured, for people and as JSON lines (assay/bench/1). */
#ifndef ASSAY_ENGINE_BENCH_OUTPUT_H
#define ASSAY_ENGINE_BENCH_OUTPUT_H

#include "contract/err.h"

/* One quantity: a value per run, and where it is a time of many steps, those of all steps. */
struct series {
	const char *name, *unit;
	bool larger_is_better;
	double *run;                 /* owned [n_run] */
	double *step;                /* owned [n_step]; NULL: p50 and p90 are those of the runs */
	int n_run, n_step;
};

struct bench_shape { int prompt, decode, batch; };

void series_add(struct series *s, double value);          /* a run */
void series_add_step(struct series *s, double value);
void series_release(struct series *s);
double series_median(const struct series *s);             /* over runs; the lower middle one */
/* The smallest value that a share q of n values do not exceed; sorts v. */
double percentile(double *v, int n, double q);

/* A line each: median, p50, p90, least and most. */
void bench_print(const struct series *s, int n);
/* One record per series, a line each; `leg` says which arm. */
int bench_write(const char *path, const struct series *s, int n, const char *model, const char *leg,
		const struct bench_shape *shape, struct err *err);

#endif
