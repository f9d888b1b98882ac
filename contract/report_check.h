/* What a report says twice must agree.  docs/formats.md, section 6. */
#ifndef ASSAY_CONTRACT_REPORT_CHECK_H
#define ASSAY_CONTRACT_REPORT_CHECK_H

#include "report.h"

/* The blocks against the number of layers, and against `layers_block_type` of the model's config where that is a list of their
 * names: contracts count in blocks.  0, or -1 and the complaint in what. */
int report_check_blocks(const struct report *r, char *what, size_t size);
/* Margin, lse, top and given of one step against each other, as far as they are there and finite, and by more than three printed
 * decimals and a subtraction in bf16 explain.  0, or -1 and the complaint in what.  Whether the id is the best of its own list is for
 * the judge to find. */
int report_check_step(const struct report_step *s, char *what, size_t size);
/* The first step with logits that has a hash where an earlier one of the row has none, or the other way round; -1: there is none. */
int report_check_hashes(const struct report_row *row);
/* The first step at which two rows of a prompt have the same hash of all logits and other best logits; -1: there is none. */
int report_check_modes(const struct report_row *a, const struct report_row *b);

#endif
