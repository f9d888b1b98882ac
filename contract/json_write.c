#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"
#include "utf8.h"

void json_put(json_t *object, const char *key, json_t *value)
{
	if (value == NULL || json_object_set_new(object, key, value) != 0)
		BUG("no value for \"%s\"", key);
}

json_t *json_string_lossy(const char *s)
{
	json_t *string = json_string(s);
	char *text;
	size_t size;

	if (string != NULL || s == NULL)
		return string;
	text = utf8_lossy(s, strlen(s), &size);
	string = json_string(text);
	free(text);
	return string;
}

json_t *json_number(double x)
{
	if (isnan(x))
		return json_string("nan");
	if (isinf(x))
		return json_string(x > 0 ? "inf" : "-inf");
	return json_real(x);
}

json_t *json_number_rounded(double x, int digits)
{
	char text[40];

	snprintf(text, sizeof(text), "%.*g", digits, x);
	/* rounding up may leave the range of a double */
	return json_number(isfinite(x) && isfinite(strtod(text, NULL)) ? strtod(text, NULL) : x);
}

struct text {
	char *bytes;   /* owned */
	size_t n, room;
	size_t flags;
};

static void put(struct text *t, const char *bytes, size_t n)
{
	if (t->room - t->n <= n) {
		t->room = 2 * t->room + n + 1;
		t->bytes = xrealloc(t->bytes, 1, t->room);
	}
	memcpy(t->bytes + t->n, bytes, n);
	t->n += n;
}

static void put_string(struct text *t, const char *s)
{
	put(t, "\"", 1);
	while (*s != '\0') {
		size_t n = strcspn(s, "\"\\\x01\x02\x03\x04\x05\x06\x07\b\t\n\x0b\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16"
				   "\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f");
		char escape[8];

		put(t, s, n);
		s += n;
		if (*s == '\0')
			break;
		if (*s == '"' || *s == '\\')
			put(t, escape, (size_t)snprintf(escape, sizeof(escape), "\\%c", *s));
		else if (*s == '\n')
			put(t, "\\n", 2);
		else if (*s == '\t')
			put(t, "\\t", 2);
		else
			put(t, escape, (size_t)snprintf(escape, sizeof(escape), "\\u%04x", *s));
		s++;
	}
	put(t, "\"", 1);
}

static void put_real(struct text *t, double x)
{
	static const int digits[] = { 9, 15, 16, 17 };
	char text[40];
	int n = 0;

	for (int i = 0; i < 4; i++) {
		n = snprintf(text, sizeof(text), "%.*g", digits[i], x);
		if (strtod(text, NULL) == x)
			break;
	}
	if (strcspn(text, ".e") == (size_t)n)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ".0");
	put(t, text, (size_t)n);
}

static bool holds_object(const json_t *v)
{
	const char *key;
	json_t *item;
	size_t i;

	json_array_foreach(v, i, item)
		if (json_is_object(item) || holds_object(item))
			return true;
	json_object_foreach((json_t *)v, key, item)
		if (json_is_object(item) || holds_object(item))
			return true;
	return false;
}

/* Is this container written on one line? */
static bool is_flat(const struct text *t, const json_t *v)
{
	return (t->flags & JSON_MAX_INDENT) == 0 || ((t->flags & JSON_FLAT) && !holds_object(v));
}

static void put_line(struct text *t, int depth)
{
	put(t, "\n", 1);
	for (size_t i = (size_t)depth * (t->flags & JSON_MAX_INDENT); i > 0; i--)
		put(t, " ", 1);
}

/* What stands before the i-th member of a container. */
static void put_break(struct text *t, size_t i, bool flat, int depth)
{
	if (i > 0)
		put(t, ",", 1);
	if (!flat)
		put_line(t, depth + 1);
	else if (i > 0 && !(t->flags & JSON_COMPACT))
		put(t, " ", 1);
}

static void put_value(struct text *t, const json_t *v, int depth);

static void put_array(struct text *t, const json_t *v, int depth)
{
	bool flat = json_array_size(v) == 0 || is_flat(t, v);
	json_t *item;
	size_t i;

	put(t, "[", 1);
	json_array_foreach(v, i, item) {
		put_break(t, i, flat, depth);
		put_value(t, item, depth + 1);
	}
	if (!flat)
		put_line(t, depth);
	put(t, "]", 1);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_object(struct text *t, const json_t *v, int depth)
{
	size_t n = json_object_size(v), i = 0;
	bool flat = n == 0 || is_flat(t, v);
	const char **keys = xcalloc(n, sizeof(*keys));
	const char *key;
	json_t *item;

	json_object_foreach((json_t *)v, key, item)
		keys[i++] = key;
	if (t->flags & JSON_SORT_KEYS)
		qsort(keys, n, sizeof(*keys), by_name);
	put(t, "{", 1);
	for (i = 0; i < n; i++) {
		put_break(t, i, flat, depth);
		put_string(t, keys[i]);
		put(t, ": ", t->flags & JSON_COMPACT ? 1 : 2);
		put_value(t, json_object_get(v, keys[i]), depth + 1);
	}
	if (!flat)
		put_line(t, depth);
	put(t, "}", 1);
	free(keys);
}

static void put_value(struct text *t, const json_t *v, int depth)
{
	char text[24];

	switch (json_typeof(v)) {
	case JSON_OBJECT: put_object(t, v, depth); break;
	case JSON_ARRAY: put_array(t, v, depth); break;
	case JSON_STRING: put_string(t, json_string_value(v)); break;
	case JSON_INTEGER:
		put(t, text, (size_t)snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(v)));
		break;
	case JSON_REAL: put_real(t, json_real_value(v)); break;
	case JSON_TRUE: put(t, "true", 4); break;
	case JSON_FALSE: put(t, "false", 5); break;
	case JSON_NULL: put(t, "null", 4); break;
	}
}

char *json_text(const json_t *value, size_t flags, size_t *size)
{
	struct text t = { .flags = flags };

	BUG_ON(value == NULL);
	BUG_ON(flags & ~(JSON_MAX_INDENT | JSON_COMPACT | JSON_SORT_KEYS | JSON_PRESERVE_ORDER | JSON_FLAT));
	put_value(&t, value, 0);
	put(&t, "\n", 1);
	t.bytes[t.n] = '\0';
	*size = t.n;
	return t.bytes;
}

int json_write_file(const json_t *value, const char *path, size_t flags, struct err *err)
{
	size_t size;
	char *text = json_text(value, flags, &size);
	int status = file_write(path, text, size, err);

	free(text);
	return status;
}
