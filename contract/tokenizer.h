/* tokenizer.json: byte-level BPE.  docs/model.md, section 5.
 *
 * The pre-tokenizer's regular expressions come from the file and are run by PCRE2 with Unicode
 * properties (contract/regex.h says which constructs).  Supported: model BPE (merges as "a b" or ["a","b"],
 * ignore_merges, byte_fallback false), pre_tokenizer ByteLevel or a Sequence of Split(Regex, Isolated) and
 * ByteLevel, added_tokens with their flags, post_processor ByteLevel / TemplateProcessing (single sequence) /
 * Sequence of them, decoder ByteLevel, normalizer null (NFC and others are refused by name).  Anything else is
 * refused, naming file and member: ERR_INPUT, as are all errors here.
 *
 * The ids equal those of the `tokenizers` package, with two differences: a byte for which the vocabulary
 * has no token is an error (the package drops it), and so is decoding an unknown id.
 */
#ifndef ASSAY_CONTRACT_TOKENIZER_H
#define ASSAY_CONTRACT_TOKENIZER_H

#include <stdint.h>
#include "err.h"

struct tokenizer;                   /* opaque */

/* NULL after err_set; the caller frees with tokenizer_free. */
struct tokenizer *tokenizer_load(const char *path, struct err *err);
void tokenizer_free(struct tokenizer *t);
int tokenizer_size(const struct tokenizer *t);      /* highest id + 1 */

/* Text of `size` bytes -> ids.  Invalid UTF-8 is replaced by U+FFFD as a lossy decoder does (maximal
 * subparts).  add_special: run the post-processor's template.  Returns the count; *ids is the caller's to free
 * (NULL if there are none).  -1: the text is above 512 MiB, has a byte without a token, or a pattern met its
 * match limit. */
int tokenizer_encode(const struct tokenizer *t, int32_t **ids, const char *text, size_t size,
		     bool add_special, struct err *err);
/* Ids -> bytes with a final NUL (not counted in *size); invalid UTF-8 in the result is replaced by
 * U+FFFD.  Unknown ids are refused.  skip_special drops tokens that are marked special. */
char *tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int n, bool skip_special,
		       size_t *size, struct err *err);

#endif
