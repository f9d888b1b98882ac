/* A string that grows: reasons and other prose of a verdict. */
#ifndef ASSAY_GATES_TEXT_H
#define ASSAY_GATES_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text { char *s; size_t n, room; };    /* {0} is empty and valid; s NULL until something is added */

void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* As text_add, with "; " before it unless the text is empty. */
void text_also(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *text_string(const struct text *t);   /* "" if empty */
void text_release(struct text *t);

/* Two strings of which either may be absent; absent and empty are the same. */
bool text_same(const char *a, const char *b);

#endif
