/* `assay-engine bench`: prefill and decode of one model under one arm, timed.  docs/formats.md, sections 1 and 8. */
#ifndef ASSAY_ENGINE_BENCH_H
#define ASSAY_ENGINE_BENCH_H

int bench_main(int argc, char **argv);   /* argv[0] is "bench"; returns the exit code */

#endif
