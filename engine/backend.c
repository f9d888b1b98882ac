#include "backend.h"

#include <stdlib.h>
#include <string.h>

const struct backend *backend_find(int backend_value, struct err *err)
{
	(void)err;   /* a build with all backends refuses none */
	switch (backend_value) {
	case BACKEND_REF:
		return &ref_backend;
	case BACKEND_CPU:
		return &cpu_backend;
	case BACKEND_CUDA:
#ifdef ASSAY_CUDA
		return &cuda_backend;
#else
		err_set(err, ERR_CANNOT_RUN, "backend cuda: this build has no CUDA (make CUDA=1)");
		return NULL;
#endif
	}
	BUG("backend value %d", backend_value);
}

enum numerics linear_numerics(const struct linear *l, struct rule rule)
{
	switch (l->format) {
	case WEIGHT_FP8:
		return rule.fp8 != NUMERICS_W8A16 && l->input_scale > 0 ? rule.fp8 : NUMERICS_W8A16;
	case WEIGHT_NVFP4:
		return rule.nvfp4 == NUMERICS_W4A4 && l->w4a4 && l->input_scale > 0 ? NUMERICS_W4A4 : NUMERICS_W4A16;
	default:
		return NUMERICS_BF16;
	}
}

size_t dtype_size(enum dtype d)
{
	switch (d) {
	case DTYPE_F64:
		return 8;
	case DTYPE_F32:
		return 4;
	case DTYPE_BF16:
	case DTYPE_F16:
		return 2;
	case DTYPE_FP8:
		return 1;
	}
	BUG("dtype %d", d);
}

enum { ALIGN = 64 };

/* What xcalloc returned is kept in the word before. */
void *host_alloc(struct device *dev, size_t bytes)
{
	(void)dev;
	BUG_ON(bytes > SIZE_MAX - ALIGN - sizeof(void *));
	char *base = xcalloc(1, bytes + ALIGN + sizeof(void *));
	char *p = base + sizeof(void *);

	p += (ALIGN - (uintptr_t)p % ALIGN) % ALIGN;
	memcpy(p - sizeof(base), &base, sizeof(base));
	return p;
}

void host_free(struct device *dev, void *p)
{
	void *base;

	(void)dev;
	if (!p)
		return;
	memcpy(&base, (char *)p - sizeof(base), sizeof(base));
	free(base);
}
