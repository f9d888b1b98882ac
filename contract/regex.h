/* Regular expressions of a tokenizer.json, run by PCRE2.
 *
 * They are written for Oniguruma.  Only constructs that mean the same in both dialects are accepted,
 * everything else is refused by name, so that a pattern is never silently read in another way:
 *   ASCII literals, \r \n \t, escaped punctuation, \s \S \d \D, \p{..} \P{..} with a general category,
 *   classes without nesting or &&, groups (..) (?:..) (?=..) (?!..) (?>..), alternation, the quantifiers
 *   ? * + (also lazy or possessive) and {n} {n,} {n,m} (greedy), and the contractions
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d).
 * A pattern that matches the empty string is refused too.
 */
#ifndef ASSAY_CONTRACT_REGEX_H
#define ASSAY_CONTRACT_REGEX_H

#include "err.h"

struct regex;                           /* opaque */

/* `place` ("FILE: $.pre_tokenizer.pattern.Regex") begins every message about this pattern.  NULL after err_set. */
struct regex *regex_compile(const char *pattern, const char *place, struct err *err);
/* One character of a word as Rust's \w has it: Alphabetic, M, Nd, Pc, Join_Control. */
struct regex *regex_word_character(void);
void regex_free(struct regex *r);       /* NULL is allowed */

struct regex_scan {                     /* what one thread needs to match; {0} is valid to release */
	struct pcre2_real_match_data_8 *data;       /* owned */
	struct pcre2_real_match_context_8 *context; /* owned */
};
/* Limits grow with the longest text, `size`, that will be scanned: backtracking once through it is legitimate. */
void regex_scan_open(struct regex_scan *s, size_t size);
void regex_scan_release(struct regex_scan *s);

/* The first match at or after `at` in well-formed UTF-8 that went through utf8_stand_in: 1 and its bounds, 0 if
 * there is none, -1 after err_set if a limit was met. */
int regex_next(const struct regex *r, struct regex_scan *s, const char *text, size_t size, size_t at,
	       size_t *start, size_t *end, struct err *err);

#endif
