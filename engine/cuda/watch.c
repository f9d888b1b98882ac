/* How busy the device was while decoding (NVML, opened at run time), and what a report says about it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "contract/err.h"
#include "contract/report.h"
#include "ops.h"

#define HZ 50
#define MAX_SAMPLES 100000

/* The part of NVML's interface that is used. */
struct utilization { unsigned gpu, memory; };
enum { NVML_CLOCK_SM = 1 };

struct watch {
	void *library;
	void *handle;                                 /* nvmlDevice_t */
	int (*shutdown)(void);
	int (*utilization)(void *, struct utilization *);
	int (*clock)(void *, int, unsigned *);
	pthread_t thread;
	bool running;
	atomic_bool stop;
	unsigned *busy, *sm_clock;                    /* owned [MAX_SAMPLES] */
	int n;
};

/* ---- sampling ---- */

static void *sample(void *ud)
{
	struct watch *w = ud;
	struct timespec pause = { 0, 1000000000 / HZ };

	while (!atomic_load(&w->stop) && w->n < MAX_SAMPLES) {
		struct utilization u;
		unsigned clock;

		if (w->utilization(w->handle, &u) == 0 && w->clock(w->handle, NVML_CLOCK_SM, &clock) == 0) {
			w->busy[w->n] = u.gpu;
			w->sm_clock[w->n++] = clock;
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static bool open_nvml(struct watch *w, const char *bus)
{
	int (*init)(void), (*by_bus)(const char *, void **);

	w->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!w->library)
		return false;
	*(void **)&init = dlsym(w->library, "nvmlInit_v2");
	*(void **)&by_bus = dlsym(w->library, "nvmlDeviceGetHandleByPciBusId_v2");
	*(void **)&w->shutdown = dlsym(w->library, "nvmlShutdown");
	*(void **)&w->utilization = dlsym(w->library, "nvmlDeviceGetUtilizationRates");
	*(void **)&w->clock = dlsym(w->library, "nvmlDeviceGetClockInfo");
	if (!init || !by_bus || !w->shutdown || !w->utilization || !w->clock || init())
		return false;
	return by_bus(bus, &w->handle) == 0;
}

/* Without NVML there is no watch, and report.busy stays null. */
void watch_open(struct device *dev)
{
	struct watch *w = xcalloc(1, sizeof(*w));
	char bus[32] = "";
	int id = 0;

	cudaGetDevice(&id);
	if (cudaDeviceGetPCIBusId(bus, sizeof(bus), id) != cudaSuccess || !open_nvml(w, bus)) {
		cudaGetLastError();
		if (w->library)
			dlclose(w->library);
		free(w);
		return;
	}
	w->busy = xcalloc(MAX_SAMPLES, sizeof(*w->busy));
	w->sm_clock = xcalloc(MAX_SAMPLES, sizeof(*w->sm_clock));
	dev->watch = w;
}

static void stop(struct watch *w)
{
	if (!w->running)
		return;
	atomic_store(&w->stop, true);
	pthread_join(w->thread, NULL);
	w->running = false;
}

void watch_close(struct device *dev)
{
	struct watch *w = dev->watch;

	if (!w)
		return;
	stop(w);
	w->shutdown();
	dlclose(w->library);
	free(w->busy);
	free(w->sm_clock);
	free(w);
	dev->watch = NULL;
}

void cuda_watch(struct device *dev, bool on)
{
	struct watch *w = dev->watch;

	audit_mark(dev, on);
	if (!w)
		return;
	stop(w);
	if (!on)
		return;
	w->n = 0;
	atomic_store(&w->stop, false);
	w->running = pthread_create(&w->thread, NULL, sample, w) == 0;
}

/* ---- the report ---- */

static int ascending(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return (x > y) - (x < y);
}

static json_t *busy(const struct watch *w)
{
	double sum = 0;

	if (!w || w->n == 0)
		return NULL;
	for (int i = 0; i < w->n; i++)
		sum += w->busy[i];
	qsort(w->sm_clock, w->n, sizeof(*w->sm_clock), ascending);
	return json_pack("{s:i, s:i, s:f, s:{s:i, s:i, s:i}, s:s}", "hz", HZ, "samples", w->n, "busy_share",
			 sum / w->n / 100, "sm_clock", "min", w->sm_clock[0], "p50", w->sm_clock[w->n / 2], "max",
			 w->sm_clock[w->n - 1], "window", "decode");
}

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
	r->busy = busy(dev->watch);
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
	const char *reason;
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
}
