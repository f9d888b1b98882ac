#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract/err.h"

static void add(struct text *t, const char *fmt, va_list args)
{
	va_list again;

	va_copy(again, args);
	int n = vsnprintf(NULL, 0, fmt, args);

	BUG_ON(n < 0);
	if (t->n + (size_t)n + 1 > t->room) {
		t->room = 2 * t->room + (size_t)n + 1;
		t->s = xrealloc(t->s, t->room, 1);
	}
	vsnprintf(t->s + t->n, (size_t)n + 1, fmt, again);
	va_end(again);
	t->n += (size_t)n;
}

void text_add(struct text *t, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	add(t, fmt, args);
	va_end(args);
}

void text_also(struct text *t, const char *fmt, ...)
{
	va_list args;

	if (t->n)
		text_add(t, "; ");
	va_start(args, fmt);
	add(t, fmt, args);
	va_end(args);
}

const char *text_string(const struct text *t)
{
	return t->s ? t->s : "";
}

void text_release(struct text *t)
{
	free(t->s);
	*t = (struct text){ 0 };
}

bool text_same(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}
