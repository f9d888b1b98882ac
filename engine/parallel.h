/* A loop over independent items on several threads, for work outside the forward pass (verifying, filling). */
#ifndef ASSAY_ENGINE_PARALLEL_H
#define ASSAY_ENGINE_PARALLEL_H

/* Calls fn(i, ud) once for every i in [0, n), in no fixed order, on at most `threads` threads (the caller's is one). */
void parallel_each(int n, int threads, void (*fn)(int i, void *ud), void *ud);
/* The cores that this process may use, at most 64. */
int parallel_cores(void);

#endif
