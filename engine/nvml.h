/* How busy a device is while it decodes: NVML, opened at run time, sampled by a thread of its own.
 *
 * A sample is kept only if it was taken whole inside a window.  Windows add up: a leg decodes one batch of prompts after
 * the other, and what lies between them (prefill, resets) is not decode.  NVML's own share of busy time looks back over a
 * sixth of a second to a second, so a window that is shorter says little; contract/busy.h wants 30 samples. */
#ifndef ASSAY_ENGINE_NVML_H
#define ASSAY_ENGINE_NVML_H

#include <jansson.h>
#include <stdbool.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"
#define NVML_HZ 10

struct nvml;

/* `library`: a name or path for dlopen; `bus`: the device's PCI bus id.  NULL where library, function or device is missing,
 * and *why (static) says which.  All memory is allocated here, and the thread begins. */
struct nvml *nvml_open(const char *library, const char *bus, int hz, const char **why);
/* Why there would be none, without keeping it open (static); NULL: it would open. */
const char *nvml_missing(const char *library, const char *bus);
void nvml_window(struct nvml *w, bool open);     /* costs a store; NULL: nothing happens */
void nvml_clear(struct nvml *w);                 /* forgets the samples, as when a run that is not counted is over */
/* report.busy: {hz, samples, busy_share, sm_clock, other_processes?, window}.  A new reference; NULL: nothing was sampled. */
json_t *nvml_busy(struct nvml *w);
void nvml_close(struct nvml *w);

#endif
