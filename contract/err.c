#include "err.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "utf8.h"

static atomic_ulong allocations;

static void make_printable(char *text)
{
	const char *from = text, *end = text + strlen(text);
	char *to = text;

	while (from < end) {
		uint32_t code = 0;
		size_t n = utf8_read(from, (size_t)(end - from), &code);

		if (n == 0 || unicode_is_hidden(code)) {
			*to++ = '?';
			from += n == 0 ? 1 : n;
			continue;
		}
		memmove(to, from, n);
		to += n;
		from += n;
	}
	*to = '\0';
}

int err_set(struct err *err, enum err_kind kind, const char *fmt, ...)
{
	va_list ap;

	if (err->kind != ERR_NONE)
		return -1;
	err->kind = kind;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	make_printable(err->text);
	return -1;
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "BUG: %s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

_Noreturn static void out_of_memory(size_t n, size_t size)
{
	fprintf(stderr, "error: out of memory (%zu * %zu bytes)\n", n, size);
	exit(2);
}

void *xrealloc(void *old, size_t n, size_t size)
{
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes))
		out_of_memory(n, size);
	p = realloc(old, bytes ? bytes : 1);
	if (p == NULL)
		out_of_memory(n, size);
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return p;
}

void *xmalloc(size_t size)
{
	return xrealloc(NULL, 1, size);
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size ? size : 1);

	if (p == NULL)
		out_of_memory(n, size);
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return p;
}

char *xstrdup(const char *s)
{
	size_t size = strlen(s) + 1;

	return memcpy(xmalloc(size), s, size);
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		BUG("bad format \"%s\"", fmt);
	text = xmalloc((size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(text, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return text;
}

unsigned long xalloc_count(void)
{
	return atomic_load_explicit(&allocations, memory_order_relaxed);
}
