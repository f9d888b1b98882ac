#include "json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "contract/json.h"

int json_scan_fail(struct json_scan *s, const char *fmt, ...)
{
	char text[512];
	int line = 1;
	const char *start = s->begin;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	for (const char *p = s->begin; p < s->at; p++) {
		if (*p == '\n') {
			line++;
			start = p + 1;
		}
	}
	return err_set(s->err, ERR_INPUT, "%s:%d:%td: %s%s%s", s->name, line, s->at - start + 1,
		       s->context ? s->context : "", s->context ? ": " : "", text);
}

static void skip_space(struct json_scan *s)
{
	while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
		s->at++;
}

static bool peek(struct json_scan *s, char c)
{
	skip_space(s);
	return s->at < s->end && *s->at == c;
}

/* What stands at the present position, for messages. */
static const char *found(const struct json_scan *s, char buf[16])
{
	if (s->at >= s->end)
		return "the end";
	if (*s->at >= ' ' && *s->at < 127)
		snprintf(buf, 16, "'%c'", *s->at);
	else
		snprintf(buf, 16, "byte 0x%02x", (unsigned char)*s->at);
	return buf;
}

int json_scan_char(struct json_scan *s, char c)
{
	char buf[16];

	if (!peek(s, c))
		return json_scan_fail(s, "expected '%c', found %s", c, found(s, buf));
	s->at++;
	return 0;
}

/* ---- strings ---- */

/* Length of the valid UTF-8 sequence at p (Unicode, table 3-7), 0 if there is none. */
static int utf8_length(const unsigned char *p, const unsigned char *end)
{
	int n = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
	unsigned char low = *p == 0xe0 ? 0xa0 : *p == 0xf0 ? 0x90 : 0x80;
	unsigned char high = *p == 0xed ? 0x9f : *p == 0xf4 ? 0x8f : 0xbf;

	if (*p < 0xc2 || *p > 0xf4 || end - p < n || p[1] < low || p[1] > high)
		return 0;
	for (int i = 2; i < n; i++)
		if (p[i] < 0x80 || p[i] > 0xbf)
			return 0;
	return n;
}

static int hex4(struct json_scan *s, unsigned *code)
{
	*code = 0;
	for (int i = 0; i < 4; i++, s->at++) {
		char c = s->at < s->end ? *s->at : 0;
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

		if (digit < 0)
			return json_scan_fail(s, "expected four hexadecimal digits after \\u");
		*code = *code << 4 | (unsigned)digit;
	}
	return 0;
}

/* The escape after a backslash; *to is advanced by at most 4 bytes, fewer than the escape took. */
static int escape(struct json_scan *s, char **to)
{
	static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
	const char *p = s->at < s->end && *s->at ? strchr(from, *s->at) : NULL;
	unsigned code, low;

	if (p) {
		s->at++;
		*(*to)++ = into[p - from];
		return 0;
	}
	if (s->at >= s->end || *s->at != 'u')
		return json_scan_fail(s, "unknown escape in a string");
	s->at++;
	if (hex4(s, &code))
		return -1;
	if (code >= 0xd800 && code < 0xdc00 && s->end - s->at >= 2 && s->at[0] == '\\' && s->at[1] == 'u') {
		s->at += 2;
		if (hex4(s, &low))
			return -1;
		if (low < 0xdc00 || low > 0xdfff)
			return json_scan_fail(s, "a lone surrogate in a string");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	if (!code || (code >= 0xd800 && code < 0xe000))
		return json_scan_fail(s, code ? "a lone surrogate in a string" : "a NUL in a string");
	if (code < 0x80) {
		*(*to)++ = (char)code;
	} else if (code < 0x800) {
		*(*to)++ = (char)(0xc0 | code >> 6);
		*(*to)++ = (char)(0x80 | (code & 63));
	} else {
		if (code < 0x10000) {
			*(*to)++ = (char)(0xe0 | code >> 12);
		} else {
			*(*to)++ = (char)(0xf0 | code >> 18);
			*(*to)++ = (char)(0x80 | (code >> 12 & 63));
		}
		*(*to)++ = (char)(0x80 | (code >> 6 & 63));
		*(*to)++ = (char)(0x80 | (code & 63));
	}
	return 0;
}

/* The part of a string after its opening quote, for strings that hold more than plain ASCII.  `to` has room. */
static int slow_string(struct json_scan *s, char *to)
{
	while (s->at < s->end && *s->at != '"') {
		unsigned char c = (unsigned char)*s->at;
		int n = 1;

		if (c == '\\') {
			s->at++;
			if (escape(s, &to))
				return -1;
			continue;
		}
		if (c < ' ')
			return json_scan_fail(s, "control character 0x%02x in a string", c);
		if (c >= 0x80)
			n = utf8_length((const unsigned char *)s->at, (const unsigned char *)s->end);
		if (!n)
			return json_scan_fail(s, "byte 0x%02x is not UTF-8", c);
		memcpy(to, s->at, n);
		to += n;
		s->at += n;
	}
	if (s->at >= s->end)
		return json_scan_fail(s, "the string does not end");
	s->at++;
	*to = '\0';
	return 0;
}

int json_scan_string(struct json_scan *s, const char **string)
{
	const char *start, *p;
	char *to;

	if (json_scan_char(s, '"'))
		return -1;
	start = p = s->at;
	while (p < s->end && *p >= ' ' && *p != '"' && *p != '\\' && *p < 127)
		p++;
	if (p < s->end && *p == '"') {
		to = arena_bytes(s->arena, (size_t)(p - start) + 1);
		memcpy(to, start, (size_t)(p - start));
		to[p - start] = '\0';
		s->at = p + 1;
		*string = to;
		return 0;
	}
	while (p < s->end && *p != '"')      /* escapes only shrink: this is room enough */
		p += *p == '\\' && s->end - p > 1 ? 2 : 1;
	*string = to = arena_bytes(s->arena, (size_t)(p - start) + 1);
	return slow_string(s, to);
}

/* ---- values ---- */

int json_scan_size(struct json_scan *s, int64_t *n)
{
	const char *start;
	char buf[16];

	skip_space(s);
	start = s->at;
	*n = 0;
	for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
		if (__builtin_mul_overflow(*n, 10, n) || __builtin_add_overflow(*n, *s->at - '0', n))
			return json_scan_fail(s, "expected an integer below 2^63");
	if (s->at == start || (*start == '0' && s->at - start > 1) ||
	    (s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E')))
		return json_scan_fail(s, "expected an integer of at least 0, found %s", found(s, buf));
	return 0;
}

/* After a member or item: a comma, or the closing bracket. */
static int next(struct json_scan *s, bool *first, char close)
{
	char buf[16];

	if (peek(s, close)) {
		s->at++;
		return 0;
	}
	if (!*first) {
		if (!peek(s, ','))
			return json_scan_fail(s, "expected ',' or '%c', found %s", close, found(s, buf));
		s->at++;
	}
	*first = false;
	return 1;
}

int json_scan_member(struct json_scan *s, bool *first, const char **key)
{
	int more = next(s, first, '}');

	if (more == 1 && (json_scan_string(s, key) || json_scan_char(s, ':')))
		return -1;
	return more;
}

int json_scan_item(struct json_scan *s, bool *first)
{
	return next(s, first, ']');
}

/* The end of the value that starts at p, by brackets and quotes alone. */
static const char *value_end(const char *p, const char *end)
{
	long depth = 0;
	bool quoted = false;

	for (; p < end; p++) {
		if (quoted) {
			p += *p == '\\';
			quoted = p < end && *p != '"';
		} else if (*p == '"') {
			quoted = true;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if (*p == '}' || *p == ']' || *p == ',') {
			if (!depth)
				return p;
			depth -= *p != ',';
		}
	}
	return end;
}

int json_scan_skip(struct json_scan *s)
{
	struct err inner = {0};
	const char *close;
	json_t *value;
	char *text;

	skip_space(s);
	close = value_end(s->at, s->end);
	text = xmalloc((size_t)(close - s->at) + 3);
	text[0] = '[';
	memcpy(text + 1, s->at, (size_t)(close - s->at));
	text[close - s->at + 1] = ']';
	value = json_read_bytes(text, (size_t)(close - s->at) + 2, "value", false, &inner);
	free(text);
	if (!value)
		return json_scan_fail(s, "%s", inner.text);
	if (json_array_size(value) != 1) {
		json_decref(value);
		return json_scan_fail(s, "expected a value");
	}
	json_decref(value);
	s->at = close;
	return 0;
}

int json_scan_end(struct json_scan *s)
{
	char buf[16];

	skip_space(s);
	return s->at < s->end ? json_scan_fail(s, "expected the end, found %s", found(s, buf)) : 0;
}
