#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"

enum { BLOCK_BYTES = 256 << 10, ALIGN = 64 };

struct block {
	struct block *next;
	char *at, *end;
};

static void *take(void **arena, size_t bytes, size_t align)
{
	struct block *b = *arena;
	char *at = b ? (char *)(((uintptr_t)b->at + align - 1) & ~(uintptr_t)(align - 1)) : NULL;

	if (!b || at > b->end || (size_t)(b->end - at) < bytes) {
		size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;

		if (size > SIZE_MAX / 2)
			BUG("arena: %zu bytes asked for", bytes);
		b = xmalloc(sizeof *b + ALIGN + size);
		b->next = *arena;
		b->at = (char *)(b + 1);
		b->end = b->at + ALIGN + size;
		*arena = b;
		at = (char *)(((uintptr_t)b->at + align - 1) & ~(uintptr_t)(align - 1));
	}
	b->at = at + bytes;
	return at;
}

void *arena_alloc(void **arena, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		BUG("arena: %zu * %zu bytes asked for", n, size);
	return take(arena, bytes, ALIGN);
}

char *arena_bytes(void **arena, size_t bytes)
{
	return take(arena, bytes, 1);
}

char *arena_strdup(void **arena, const char *s)
{
	size_t n = strlen(s) + 1;

	return memcpy(arena_bytes(arena, n), s, n);
}

void arena_free(void **arena)
{
	for (struct block *b = *arena, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	*arena = NULL;
}
