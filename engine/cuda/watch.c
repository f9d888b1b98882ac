/* How busy the device was while decoding, and what a report says about it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "contract/err.h"
#include "contract/report.h"
#include "engine/nvml.h"
#include "ops.h"
#include "trace.h"

/* The bus id of the device that is used; "": none. */
static const char *bus_of(char bus[32])
{
	int id = 0;

	bus[0] = '\0';
	cudaGetDevice(&id);
	if (cudaDeviceGetPCIBusId(bus, 32, id) != cudaSuccess)
		bus[0] = '\0';
	return bus;
}

/* Without NVML there is no watch, and report.busy stays null; the feature cell nvml says why. */
void watch_open(struct device *dev)
{
	const char *why;
	char bus[32];

	if (*bus_of(bus))
		dev->nvml = nvml_open(NVML_LIBRARY, bus, NVML_HZ, &why);
	cudaGetLastError();
}

void watch_close(struct device *dev)
{
	nvml_close(dev->nvml);
	dev->nvml = NULL;
}

void cuda_watch(struct device *dev, bool on)
{
	trace_window(dev, on);
	if (on)
		nvml_clear(dev->nvml);
}

void cuda_window(struct device *dev, bool open)
{
	nvml_window(dev->nvml, open);
}

/* ---- the report ---- */

static void cell(struct report_cell **cells, int *n, const char *name, const char *value)
{
	*cells = xrealloc(*cells, *n + 1, sizeof(**cells));
	(*cells)[(*n)++] = (struct report_cell){ xstrdup(name), xstrdup(value) };
}

/* The library's algorithms, one cell for each shape. */
static void describe_plans(const struct device *dev, struct report *r)
{
	const char *text;

	for (int i = 0; dev->blas && (text = blas_plan_text(dev->blas, i)); i++) {
		char name[32];

		snprintf(name, sizeof(name), "cublaslt_plan_%d", i);
		cell(&r->engine.features, &r->engine.n_features, name, text);
	}
}

void cuda_describe(struct device *dev, struct report *r)
{
	describe_plans(dev, r);
	r->host.gpu = xstrdup(dev->gpu);
	r->host.arch = xstrdup(dev->arch);
	r->host.driver = xstrdup(dev->driver);
	r->host.cuda = xstrdup(dev->runtime);
	r->busy = nvml_busy(dev->nvml);
	r->peak_device_bytes = (int64_t)dev->peak_bytes;
}

/* Is the library there?  Asked without opening a device. */
static const char *found(void *library, const char *missing)
{
	if (!library)
		return missing;
	dlclose(library);
	return "enabled";
}

void cuda_features(struct report_cell **cells, int *n)
{
	struct cudaDeviceProp p;
	int id = 0, ptx, binary;
	cudaError_t e = cudaGetDevice(&id);
	const char *reason, *no_nvml;
	char bus[32];
	int cc;

	if (e == cudaSuccess)
		e = cudaGetDeviceProperties(&p, id);
	reason = e == cudaSuccess ? NULL : cudaGetErrorString(e);
	cc = reason ? 0 : p.major * 10 + p.minor;
	if (!reason && launch_check(&ptx, &binary) != cudaSuccess)
		reason = "this build holds no code for this device";
	cudaGetLastError();
	cell(cells, n, "cuda", reason ? reason : "enabled");
	cell(cells, n, "cuda_archs", ASSAY_CUDA_ARCHS);
	cell(cells, n, "graphs", reason ? reason : "enabled");
	cell(cells, n, "cublaslt_fp8", reason ? reason : cc < 89 ? "the device has no FP8 tensor cores (sm_89)" :
	     found(blas_library(), "cuBLASLt was not found"));
	cell(cells, n, "nvfp4_mma", reason ? reason : cc < 100 ? "the device has no FP4 tensor cores (sm_100): w4a4 is emulated" :
	     "not built: w4a4 is emulated");
	cell(cells, n, "cupti", reason ? reason : found(audit_library(), "CUPTI was not found"));
	no_nvml = reason ? reason : nvml_missing(NVML_LIBRARY, bus_of(bus));
	cell(cells, n, "nvml", no_nvml ? no_nvml : "enabled");
}
