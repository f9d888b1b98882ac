/* UTF-8: as the tokenizer needs it, and what of it may be shown. */
#ifndef ASSAY_CONTRACT_UTF8_H
#define ASSAY_CONTRACT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A copy of `size` bytes in which every maximal subpart of an ill-formed sequence is one U+FFFD
 * (Unicode 16.0, section 3.9, table 3-8; Python's errors="replace" and Rust's from_utf8_lossy do the
 * same).  A final NUL is added that *out_size does not count.  Caller frees. */
char *utf8_lossy(const char *bytes, size_t size, size_t *out_size);

/* Reads or writes one character; the text must be well-formed.  They return its length in bytes, 1 to 4. */
size_t utf8_get(const char *s, uint32_t *code);
size_t utf8_put(char *s, uint32_t code);
/* Reads one character of a text that may be ill-formed and has `size` bytes: its length, or 0 where none begins. */
size_t utf8_read(const char *s, size_t size, uint32_t *code);

/* White_Space of the Unicode Character Database. */
bool unicode_is_space(uint32_t code);
/* Controls, and what turns the direction of text around, hides in it, or ends a line: never shown as it is. */
bool unicode_is_hidden(uint32_t code);

/* Replaces, in place, every character whose general category a PCRE2 of Unicode 14.0 does not know as
 * Unicode 16.0 has it (the version `tokenizers` matches with) by another of the same category and
 * the same length in bytes, so that \p{...} sees Unicode 16.0 whatever PCRE2 was built with, and every
 * offset stays.  U+180E is replaced too: PCRE2 takes it for a space, which it is not since Unicode 6.3.
 * Only patterns that name no character above ASCII may be run on the result. */
void utf8_stand_in(char *text, size_t size);

#endif
