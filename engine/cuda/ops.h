/* The functions of cuda_backend that live outside backend.c; contracts in engine/backend.h. */
#ifndef ASSAY_ENGINE_CUDA_OPS_H
#define ASSAY_ENGINE_CUDA_OPS_H

#include "device.h"

int cuda_open(struct device **out, struct model *m, const struct arm *arm, const struct limits *limits,
	      struct counters *counters, struct err *err);
void cuda_close(struct device *dev);
void *cuda_alloc(struct device *dev, size_t bytes);
enum dtype cuda_act_dtype(struct device *dev);
void cuda_upload(struct device *dev, void *to, const void *from, size_t bytes);
void cuda_download(struct device *dev, void *to, const void *from, size_t bytes);
void cuda_act_to_host(struct device *dev, double *to, const void *from, size_t n);
void cuda_act_from_host(struct device *dev, void *to, const double *from, size_t n);

/* Arguments of launchers from those of ops. */
int kind_of(enum dtype d);
struct ssm_args ssm_args(const struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt,
			 struct state_view ssm, const struct mamba *w, const struct ssm_shape *shape,
			 const double limit[2]);
struct attn_args attn_args(void *y, const void *q, const void *k, const void *v, struct state_view k_cache,
			   struct state_view v_cache, const int32_t *slots, const int32_t *pos,
			   const struct attn_shape *shape, float k_scale, float v_scale);
struct route_args route_args(const struct device *dev, const float *bias, const struct route_shape *shape);
/* Attention over what is in the cache. */
void attend(struct device *dev, struct attn_args a, int T);

#endif
