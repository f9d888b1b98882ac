/* What fake_nvml.so says; the test finds fake_nvml_set in the library that the code under test has opened. */
#ifndef ASSAY_ENGINE_TESTS_FAKE_NVML_H
#define ASSAY_ENGINE_TESTS_FAKE_NVML_H

struct fake_nvml {
	unsigned busy[2], clock[2];          /* per cent, MHz: even samples, odd samples */
	unsigned processes;                  /* on the device, the asking one with them */
	int fails_to_start;
	unsigned calls;                      /* so far */
	int open;                            /* inits less shutdowns; fake_nvml_set leaves it */
};
void fake_nvml_set(const struct fake_nvml *to);
int fake_nvml_open(void);

#endif
