/* What a misspelt name could have been. */
#ifndef ASSAY_GATES_SUGGEST_H
#define ASSAY_GATES_SUGGEST_H

#include <stddef.h>

/* Writes "; did you mean `near`?" if one of the known names is close (Damerau-Levenshtein, at most a third
 * of the word), else "; known: a, b, c".  Returns buf. */
const char *suggest(char *buf, size_t size, const char *word, const char *const *known, int n);

#endif
