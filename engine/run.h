/* `assay-engine run`: one model, one arm, one process; leaves a report.  docs/formats.md, sections 1, 3 and 6. */
#ifndef ASSAY_ENGINE_RUN_H
#define ASSAY_ENGINE_RUN_H

int run_main(int argc, char **argv);   /* argv[0] is "run"; returns the exit code */

#endif
