/* A library with NVML's names that says what a test told it to say; check_nvml.c opens it by its path. */
#include "fake_nvml.h"

struct utilization { unsigned gpu, memory; };
struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };

static struct fake_nvml says;
static int device;

void fake_nvml_set(const struct fake_nvml *to)
{
	int open = says.open;

	says = *to;
	says.open = open;
}

int fake_nvml_open(void)
{
	return says.open;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
	says.open += !says.fails_to_start;
	return says.fails_to_start ? 9 : 0;
}

int nvmlShutdown(void);
int nvmlShutdown(void)
{
	says.open--;
	return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **to);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **to)
{
	*to = &device;
	return bus[0] == '0' ? 0 : 6;
}

int nvmlDeviceGetUtilizationRates(void *at, struct utilization *u);
int nvmlDeviceGetUtilizationRates(void *at, struct utilization *u)
{
	u->gpu = says.busy[says.calls++ % 2];
	u->memory = 1;
	return at == &device ? 0 : 2;
}

int nvmlDeviceGetClockInfo(void *at, int kind, unsigned *mhz);
int nvmlDeviceGetClockInfo(void *at, int kind, unsigned *mhz)
{
	*mhz = says.clock[says.calls % 2];
	return at == &device && kind == 1 ? 0 : 2;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *at, unsigned *n, struct process *list);
int nvmlDeviceGetComputeRunningProcesses_v3(void *at, unsigned *n, struct process *list)
{
	for (unsigned i = 0; i < says.processes && i < *n; i++)
		list[i] = (struct process){ .pid = 100 + i };
	*n = says.processes;
	return at == &device ? 0 : 2;
}
