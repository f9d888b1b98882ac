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

#endif
