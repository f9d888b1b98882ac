/* A backend around one fake layer, for the op vectors: inputs and outputs in its memory, guarded and checked. */
#ifndef ASSAY_ENGINE_TESTS_OPS_RIG_H
#define ASSAY_ENGINE_TESTS_OPS_RIG_H

#include <jansson.h>
#include "engine/backend.h"

#define GUARDS 8
#define GUARD 1232.0    /* exact in every element type but e4m3 */

/* Zeroed; lives until free_kept. */
void *new(size_t n, size_t size);
void free_kept(void);

/* ---- reading ops.json; arrays are flattened and live until free_kept ---- */

struct vec { double *x; int n, dim[4], rank; };

struct vec vec(const json_t *in, const char *key);
float *floats(const json_t *in, const char *key);
uint8_t *bytes(const json_t *in, const char *key);
int integer(const json_t *in, const char *key);
double real(const json_t *in, const char *key);

/* ---- the rig ---- */

struct rig {
	const struct backend *b;
	struct arm arm;
	struct model model;
	struct layer layer;
	enum block block;
	struct device *dev;
	struct counters counters;
	double bound;
	const char *op, *note;
	void *owned[32];             /* in the backend's memory */
	int n_owned;
};

/* `like` gives backend, arm, bound and names; config and layer are filled by the caller before rig_open. */
struct rig rig_new(const struct rig *like, enum block block);
void rig_open(struct rig *r, int rows, int slots, int len);
void rig_close(struct rig *r);
void *rig_alloc(struct rig *r, size_t size);
void *rig_bytes(struct rig *r, const void *from, size_t size);
void *rig_in(struct rig *r, const double *x, int n);        /* activations */
void *rig_out(struct rig *r, int n);                        /* n NaNs, then the guards */
int32_t *rig_ints(struct rig *r, int32_t value, int n, int step);
double *rig_read(struct rig *r, const void *p, int n);      /* of a rig_out; checks its guards */
void rig_check(struct rig *r, const char *what, const void *p, struct vec want);
/* NaN first, then |got - want| <= bound * the largest |want|; _each: of each |want|. */
void compare(const struct rig *r, const char *what, const double *got, const double *want, int n);
void compare_each(const struct rig *r, const char *what, const double *got, const double *want, int n);

/* ---- state arrays of two slots; the case lives in slot 1, slot 0 must not change ---- */

/* `size` elements per slot; slot 1 begins with the n of x, all others hold a guard. */
struct state_view rig_state(struct rig *r, enum dtype dtype, int size, const double *x, int n);
void rig_state_check(struct rig *r, const char *what, struct state_view v, struct vec want);
enum dtype state_dtype(const struct rig *r);                /* F64 under compute: f64, else F32 */
void encode(void *to, enum dtype dtype, const double *from, int n);
void decode(double *to, enum dtype dtype, const void *from, int n);

#endif
