/* Two reports of one leg over different prompts, as one. */
#ifndef ASSAY_GATES_REPORT_MERGE_H
#define ASSAY_GATES_REPORT_MERGE_H

#include "contract/err.h"

/* Appends the report at `part` to that at `whole` (which may not exist yet: then it is moved there) and removes `part`.
 * Prompts and trace rows follow those that are there, steps count on, totals are added.  Timing and busy share cannot be
 * added: those of the report with more tokens stay.  Refused: another engine, model, golden or arm than before. */
int report_merge(const char *whole, const char *part, struct err *err);

#endif
