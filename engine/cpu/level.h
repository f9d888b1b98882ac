/* Dispatch levels: the same kernels compiled for several sets of CPU features.
 *
 * A level fixes every rounding: results are the same bits for any number of threads, any batch and any
 * run, but differ between levels in the last digits.  docs/host-speed.md has their speeds.
 */
#ifndef ASSAY_ENGINE_CPU_LEVEL_H
#define ASSAY_ENGINE_CPU_LEVEL_H

#include "engine/backend.h"

struct level {
	const char *name;                 /* "portable" "avx2" "avx512" "avx512bf16" */
	const struct backend *ops;        /* only the ops are filled */
	/* Bytes of a packed activation row of `in` columns, at most, and of a panel of four weight rows. */
	size_t (*packed_bytes)(int in);
	size_t (*panel_bytes)(int in);
};

/* The levels of this build, weakest first; NULL ends the list. */
extern const struct level *const cpu_levels[];
bool level_supported(const struct level *l);          /* by this machine */
/* What `open` uses: the best supported one, or the one forced. */
const struct level *level_current(void);
/* For tests and `bench`: opens from now on use this level; NULL ends it.  The machine must support it. */
void level_force(const struct level *l);
const struct level *level_find(const char *name);     /* NULL if this build has none of that name */
/* "enabled", or why this machine cannot run it. */
const char *level_feature(const struct level *l);

#endif
