/* A pool of threads for short jobs.
 *
 * A job is cut into parts; every part computes its own outputs, so who runs a part, and how many threads
 * there are, never changes a bit.  Parts are claimed one by one: a thread that the system has put aside
 * holds up the part it is in, not its share of the job.  Waiting spins for a short while, then sleeps.
 */
#ifndef ASSAY_ENGINE_CPU_THREADS_H
#define ASSAY_ENGINE_CPU_THREADS_H

#include "contract/err.h"

struct pool;

/* part: 0..parts-1; thread: 0..threads-1, for scratch that a thread owns. */
typedef void part_fn(void *arg, int part, int thread);

/* threads >= 1 counts the caller; threads - 1 are started. */
int pool_open(struct pool **pool, int threads, struct err *err);
void pool_release(struct pool *pool);        /* NULL is fine */
int pool_threads(const struct pool *pool);
/* Runs all parts and returns when the last is done.  One caller at a time, never from inside a part. */
void pool_run(struct pool *pool, part_fn *fn, void *arg, int parts);

#endif
