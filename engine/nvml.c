#include "nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "contract/err.h"

#define MAX_SAMPLES 100000          /* almost three hours at 10 Hz; later ones are not kept */
#define MAX_PROCESSES 256

/* The part of NVML's interface that is used. */
struct utilization { unsigned gpu, memory; };
struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
enum { CLOCK_SM = 1, INSUFFICIENT_SIZE = 7 };

struct nvml {
	void *library;
	void *device;                                 /* nvmlDevice_t */
	int (*shutdown)(void);
	int (*utilization)(void *, struct utilization *);
	int (*clock)(void *, int, unsigned *);
	int (*processes)(void *, unsigned *, struct process *);   /* NULL: this driver has none */
	pthread_t thread;
	int hz;
	atomic_bool stop, open;
	atomic_uint opened;                           /* windows so far: one that closed and opened again is another */
	pthread_mutex_t lock;                         /* of what follows */
	unsigned *busy, *sm_clock, *scratch;          /* owned [MAX_SAMPLES] */
	struct process *list;                         /* owned [MAX_PROCESSES]; the thread's */
	int n;
	long others;                                  /* the most that were seen; -1: not known */
};

/* ---- sampling ---- */

/* This process holds a context on the device, so a list that is not empty has it, though in a container perhaps
 * under another id; an empty one is of a container that may not see processes at all. */
static long other_processes(struct nvml *w)
{
	unsigned n = MAX_PROCESSES;
	int status = w->processes ? w->processes(w->device, &n, w->list) : -1;

	if ((status != 0 && status != INSUFFICIENT_SIZE) || n == 0)
		return -1;
	return (long)n - 1;
}

static void take(struct nvml *w)
{
	unsigned window = atomic_load(&w->opened), clock;
	struct utilization u;
	long others;

	if (!atomic_load(&w->open) || w->utilization(w->device, &u) != 0 || w->clock(w->device, CLOCK_SM, &clock) != 0)
		return;
	others = other_processes(w);
	pthread_mutex_lock(&w->lock);
	if (atomic_load(&w->open) && atomic_load(&w->opened) == window && w->n < MAX_SAMPLES) {
		w->busy[w->n] = u.gpu;
		w->sm_clock[w->n++] = clock;
		w->others = others > w->others ? others : w->others;
	}
	pthread_mutex_unlock(&w->lock);
}

/* By absolute times: what a sample itself takes does not slow the rate. */
static void *sample(void *ud)
{
	struct nvml *w = ud;
	struct timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	while (!atomic_load(&w->stop)) {
		take(w);
		next.tv_nsec += 1000000000 / w->hz;
		next.tv_sec += next.tv_nsec / 1000000000;
		next.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	return NULL;
}

void nvml_window(struct nvml *w, bool open)
{
	if (!w)
		return;
	if (open)
		atomic_fetch_add(&w->opened, 1);
	atomic_store(&w->open, open);
}

void nvml_clear(struct nvml *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->n = 0;
	w->others = -1;
	pthread_mutex_unlock(&w->lock);
}

/* ---- opening ---- */

static const char *load(struct nvml *w, const char *library, const char *bus)
{
	int (*init)(void), (*by_bus)(const char *, void **);

	w->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!w->library)
		return "NVML was not found";
	*(void **)&init = dlsym(w->library, "nvmlInit_v2");
	*(void **)&by_bus = dlsym(w->library, "nvmlDeviceGetHandleByPciBusId_v2");
	*(void **)&w->shutdown = dlsym(w->library, "nvmlShutdown");
	*(void **)&w->utilization = dlsym(w->library, "nvmlDeviceGetUtilizationRates");
	*(void **)&w->clock = dlsym(w->library, "nvmlDeviceGetClockInfo");
	*(void **)&w->processes = dlsym(w->library, "nvmlDeviceGetComputeRunningProcesses_v3");
	if (!init || !by_bus || !w->shutdown || !w->utilization || !w->clock)
		return "NVML lacks a function";
	if (init())
		return "NVML does not start";
	if (by_bus(bus, &w->device) == 0)
		return NULL;
	w->shutdown();
	return "NVML does not know the device";
}

static void release(struct nvml *w)
{
	if (w->library)
		dlclose(w->library);
	pthread_mutex_destroy(&w->lock);
	free(w->busy);
	free(w->sm_clock);
	free(w->scratch);
	free(w->list);
	free(w);
}

struct nvml *nvml_open(const char *library, const char *bus, int hz, const char **why)
{
	struct nvml *w = xcalloc(1, sizeof(*w));

	w->hz = hz;
	w->others = -1;
	pthread_mutex_init(&w->lock, NULL);
	*why = load(w, library, bus);
	if (*why) {
		release(w);
		return NULL;
	}
	w->busy = xcalloc(MAX_SAMPLES, sizeof(*w->busy));
	w->sm_clock = xcalloc(MAX_SAMPLES, sizeof(*w->sm_clock));
	w->scratch = xcalloc(MAX_SAMPLES, sizeof(*w->scratch));
	w->list = xcalloc(MAX_PROCESSES, sizeof(*w->list));
	if (pthread_create(&w->thread, NULL, sample, w) == 0)
		return w;
	*why = "no thread to sample with";
	w->shutdown();
	release(w);
	return NULL;
}

const char *nvml_missing(const char *library, const char *bus)
{
	struct nvml *w = xcalloc(1, sizeof(*w));
	const char *why = load(w, library, bus);

	pthread_mutex_init(&w->lock, NULL);
	if (!why)
		w->shutdown();
	release(w);
	return why;
}

void nvml_close(struct nvml *w)
{
	if (!w)
		return;
	atomic_store(&w->stop, true);
	pthread_join(w->thread, NULL);
	w->shutdown();
	release(w);
}

/* ---- the report ---- */

static int ascending(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return (x > y) - (x < y);
}

json_t *nvml_busy(struct nvml *w)
{
	json_t *o = NULL;
	double sum = 0;

	if (!w)
		return NULL;
	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < w->n; i++)
		sum += w->busy[i];
	if (w->n > 0) {
		memcpy(w->scratch, w->sm_clock, (size_t)w->n * sizeof(*w->scratch));
		qsort(w->scratch, (size_t)w->n, sizeof(*w->scratch), ascending);
		o = json_pack("{s:i, s:i, s:f, s:{s:i, s:i, s:i}, s:s}", "hz", w->hz, "samples", w->n, "busy_share", sum / w->n / 100,
			      "sm_clock", "min", (int)w->scratch[0], "p50", (int)w->scratch[w->n / 2], "max",
			      (int)w->scratch[w->n - 1], "window", "decode");
	}
	if (o && w->others >= 0)
		json_object_set_new(o, "other_processes", json_integer(w->others));
	pthread_mutex_unlock(&w->lock);
	return o;
}
