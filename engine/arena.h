/* Memory that is given back all at once: names, expanded vectors, lists of modules. */
#ifndef ASSAY_ENGINE_ARENA_H
#define ASSAY_ENGINE_ARENA_H

#include <stddef.h>

/* `*arena` starts as NULL and is owned by the caller, who ends with arena_free.  The memory is aligned to 64
 * bytes and not cleared; asking for 0 bytes is allowed. */
void *arena_alloc(void **arena, size_t n, size_t size);
/* The same for text: not aligned. */
char *arena_bytes(void **arena, size_t bytes);
/* A copy of a string. */
char *arena_strdup(void **arena, const char *s);
void arena_free(void **arena);

#endif
