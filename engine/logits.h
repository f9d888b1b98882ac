/* A row of logits -> what a report keeps of it.  Shared by the host backends as the definition. */
#ifndef ASSAY_ENGINE_LOGITS_H
#define ASSAY_ENGINE_LOGITS_H

#include "backend.h"

/* `given` < 0: no rank is asked.  NaN sorts behind every number.  logits_row_f64 hashes doubles if `f64`, else the
 * same values as fp32. */
void logits_row_f64(struct logits_row *out, const double *logits, int n, int32_t given, bool f64);
void logits_row_f32(struct logits_row *out, const float *logits, int n, int32_t given);

#endif
