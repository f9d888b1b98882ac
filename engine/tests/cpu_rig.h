/* A cpu device around one fake layer, at a chosen dispatch level, and random inputs with guards after them. */
#ifndef ASSAY_ENGINE_TESTS_CPU_RIG_H
#define ASSAY_ENGINE_TESTS_CPU_RIG_H

#include "engine/cpu/level.h"

#define GUARD 1232.0f

struct cpu_rig {
	struct model model;
	struct layer layer;
	enum block block;
	struct device *dev;
	struct counters counters;
	int width;
};

int cpu_rig_levels(void);                /* of this build */
/* Devices that open from now on use this level.  False, and a line that says so, if this machine lacks it. */
bool cpu_rig_level(int i);

void cpu_rig_open(struct cpu_rig *r, enum block block, struct config config, int compute, int threads, int rows);
void cpu_rig_close(struct cpu_rig *r);

extern uint32_t cpu_rig_seed;            /* of the two below */
uint32_t cpu_rig_random(void);           /* 24 bits */
float cpu_rig_bf16(void);                /* about unit size, a bf16 number */

/* n NaNs, then guards; the caller frees. */
float *cpu_rig_guarded(size_t n);
/* Fails if any of the n was not written, or anything after them was. */
void cpu_rig_check(const float *x, size_t n, const char *what);

/* Weights end where their buffer ends, so that a sanitizer sees a read past the last row; they start off alignment.
 * Subnormal codes and scales occur. */
struct linear cpu_rig_linear(int out, int in, enum weight_format format, bool bias);
void cpu_rig_free(struct linear *l);

#endif
