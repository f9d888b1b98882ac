#include "version.h"

#include "version_info.h"

const char assay_version[] = ASSAY_VERSION;
const char assay_git[] = ASSAY_GIT;
const int assay_dirty = ASSAY_DIRTY;
const char assay_flags[] = ASSAY_FLAGS;
