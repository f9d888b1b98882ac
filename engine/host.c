#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "backend.h"
#include "contract/version.h"
#include "faults.h"

double host_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

int64_t host_peak_rss(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_SELF, &usage) ? -1 : (int64_t)usage.ru_maxrss * 1024;
}

static void add(struct report_cell **cells, int *n, const char *name, const char *value)
{
	*cells = xrealloc(*cells, *n + 1, sizeof(**cells));
	(*cells)[(*n)++] = (struct report_cell){ xstrdup(name), xstrdup(value) };
}

struct report_cell *host_features(int *n)
{
	struct report_cell *cells = NULL;

	*n = 0;
#if defined(__x86_64__)
	static const char no[] = "this CPU lacks it";

	__builtin_cpu_init();
	add(&cells, n, "avx2", __builtin_cpu_supports("avx2") ? "enabled" : no);
	add(&cells, n, "avx512", __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? "enabled" : no);
	add(&cells, n, "avx512_bf16", __builtin_cpu_supports("avx512bf16") ? "enabled" : no);
	add(&cells, n, "avx512_vnni", __builtin_cpu_supports("avx512vnni") ? "enabled" : no);
#else
	add(&cells, n, "avx2", "not an x86-64 build");
	add(&cells, n, "avx512", "not an x86-64 build");
	add(&cells, n, "avx512_bf16", "not an x86-64 build");
	add(&cells, n, "avx512_vnni", "not an x86-64 build");
#endif
#ifdef ASSAY_CUDA
	cuda_features(&cells, n);
#else
	static const char *const cuda[] = { "cuda", "cuda_archs", "graphs", "cublaslt_fp8", "nvfp4_mma", "cupti", "nvml" };

	for (size_t i = 0; i < sizeof(cuda) / sizeof(*cuda); i++)
		add(&cells, n, cuda[i], "built without CUDA");
#endif
#ifdef ASSAY_FAULTS
	add(&cells, n, "fault", fault_name());
#endif
	return cells;
}

/* "model name : ..." of the first core. */
static char *cpu_name(void)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	char line[256], *name = NULL;

	while (f && !name && fgets(line, sizeof(line), f)) {
		char *at = strchr(line, ':');

		if (strncmp(line, "model name", 10) || !at)
			continue;
		at += 1 + strspn(at + 1, " \t");
		at[strcspn(at, "\n")] = '\0';
		name = xstrdup(at);
	}
	if (f)
		fclose(f);
	return name;
}

/* Behind what the backend's describe has put there. */
static void add_features(struct report *r)
{
	int n;
	struct report_cell *cells = host_features(&n);

	r->engine.features = xrealloc(r->engine.features, r->engine.n_features + n, sizeof(*cells));
	memcpy(r->engine.features + r->engine.n_features, cells, n * sizeof(*cells));
	r->engine.n_features += n;
	free(cells);
}

int host_describe(struct report *r, struct err *err)
{
	struct utsname system;

	r->engine.name = xstrdup("assay-engine");
	r->engine.version = xstrdup(assay_version);
	r->engine.git = xstrdup(assay_git);
	r->engine.flags = xstrdup(assay_flags);
	r->engine.dirty = assay_dirty;
	add_features(r);
	if (uname(&system))
		return err_set(err, ERR_FAILED, "uname failed");
	r->host.name = xstrdup(system.nodename);
	r->host.kernel = xasprintf("%s %s", system.sysname, system.release);
	r->host.cpu = cpu_name();
	r->host.cores = sysconf(_SC_NPROCESSORS_ONLN);
	r->host.memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
	return sha256_file("/proc/self/exe", r->engine.binary_sha256, err);
}
