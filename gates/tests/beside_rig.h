/* Programs that are built beside a test. */
#ifndef ASSAY_GATES_TESTS_BESIDE_RIG_H
#define ASSAY_GATES_TESTS_BESIDE_RIG_H

/* Path of `name`, relative to the directory of the running program, BUILD/gates/tests; the caller frees. */
char *beside_test(const char *name);

#define BUILT_ASSAY "../../assay"

#endif
