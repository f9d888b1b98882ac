/* The vectors of engine/tests/fixtures/ops.json, run through a backend's op table.
 *
 * Outputs are prefilled with NaN and followed by guard elements; a NaN or a changed guard fails before any distance
 * is taken.  Bounds stand beside each op in ops_vectors.c. */
#ifndef ASSAY_ENGINE_TESTS_OPS_VECTORS_H
#define ASSAY_ENGINE_TESTS_OPS_VECTORS_H

#include "engine/backend.h"

/* Number of ops (names of ops.json that are ops of a backend). */
int ops_vectors_count(void);
const char *ops_vectors_name(int op);
/* Runs every case of one op under `arm` (compute and threads are read) and fails the current libcheck test at the
 * first case that is out of bounds. */
void ops_vectors_run(int op, const struct backend *backend, const struct arm *arm);
/* What compute bf16 does with a residual stream in fp32 and in bf16 (ops.json has no case of either); by hand. */
void ops_residual_run(const struct backend *backend);
/* Fails if ops.json holds a name that is neither run here nor a number format (check_quant runs those). */
void ops_vectors_complete(void);

#endif
