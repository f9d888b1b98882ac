/* Shared by the tests that need a device. */
#ifndef ASSAY_ENGINE_TESTS_CUDA_TEST_H
#define ASSAY_ENGINE_TESTS_CUDA_TEST_H

#include <check.h>
#include "engine/backend.h"

/* Runs the suite in this process (one CUDA context); without a usable device it prints why and returns 77: skipped. */
int cuda_test_run(Suite *s);

#endif
