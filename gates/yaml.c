#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>
#include "suggest.h"
#include "yaml.h"

#define MAX_BYTES (1 << 20)
#define MAX_DEPTH 32

struct reader {
	struct yaml *y;
	yaml_parser_t parser;
	yaml_event_t event;          /* the one being looked at */
	bool has_event;
	struct err *err;
};

int yaml_error(const struct yaml *y, struct mark at, struct err *err, const char *fmt, ...)
{
	char text[900];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(err, ERR_INPUT, "%s:%d:%d: %s", y->file, at.line, at.column, text);
}

/* ---- bytes ---- */

/* The length of the UTF-8 sequence at s, 0 if it is not one (overlong, surrogate, cut). */
static int utf8_length(const unsigned char *s, size_t left, uint32_t *code)
{
	static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
	int n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 && s[0] < 0xf8 ? 4 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
		: s[0] >= 0xc0 && s[0] < 0xe0 ? 2 : 0;
	uint32_t c = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));

	if (n == 0 || (size_t)n > left)
		return 0;
	for (int i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	*code = c;
	return n;
}

/* libyaml says neither line nor column of a byte that it cannot read, so the bytes are checked first. */
static int check_bytes(const struct yaml *y, const unsigned char *s, size_t size, struct err *err)
{
	struct mark at = {1, 1};

	for (size_t i = 0; i < size;) {
		uint32_t code = 0;
		int n = utf8_length(s + i, size - i, &code);

		if (n == 0)
			return yaml_error(y, at, err, "invalid UTF-8 (byte 0x%02x)", s[i]);
		if ((code < 0x20 && code != '\t' && code != '\n' && code != '\r') || code == 0x7f
		    || (code >= 0x80 && code < 0xa0 && code != 0x85))
			return yaml_error(y, at, err, "control character U+%04X", code);
		i += (size_t)n;
		if (code == '\n') {
			at.line++;
			at.column = 1;
		} else {
			at.column++;
		}
	}
	return 0;
}

/* ---- events ---- */

static struct mark mark_of(yaml_mark_t m)
{
	return (struct mark){(int)m.line + 1, (int)m.column + 1};
}

static void drop_event(struct reader *r)
{
	if (r->has_event)
		yaml_event_delete(&r->event);
	r->has_event = false;
}

static int next_event(struct reader *r)
{
	drop_event(r);
	if (yaml_parser_parse(&r->parser, &r->event)) {
		r->has_event = true;
		return 0;
	}
	const char *problem = r->parser.problem ? r->parser.problem : "cannot be read";
	const char *context = r->parser.context;

	return yaml_error(r->y, mark_of(r->parser.problem_mark), r->err, "%s%s%s", context ? context : "",
			  context ? ": " : "", problem);
}

static int refuse_decoration(struct reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	struct mark at = mark_of(r->event.start_mark);

	if (anchor)
		return yaml_error(r->y, at, r->err, "anchor `&%s`: a recipe has no anchors", (const char *)anchor);
	if (tag)
		return yaml_error(r->y, at, r->err, "tag `%s`: a recipe has no tags", (const char *)tag);
	return 0;
}

static int read_node(struct reader *r, struct ynode *to, int depth);

static int read_scalar(struct reader *r, char **text, bool *plain)
{
	if (r->event.type == YAML_ALIAS_EVENT)
		return yaml_error(r->y, mark_of(r->event.start_mark), r->err, "alias `*%s`: a recipe has no aliases",
				  (const char *)r->event.data.alias.anchor);
	const char *value = (const char *)r->event.data.scalar.value;
	size_t length = r->event.data.scalar.length;

	if (refuse_decoration(r, r->event.data.scalar.anchor, r->event.data.scalar.tag))
		return -1;
	if (memchr(value, 0, length))
		return yaml_error(r->y, mark_of(r->event.start_mark), r->err, "a string that holds a NUL");
	*text = xstrdup(value);
	*plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	return 0;
}

static int read_list(struct reader *r, struct ynode *to, int depth)
{
	if (refuse_decoration(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag))
		return -1;
	to->kind = YNODE_LIST;
	for (;;) {
		if (next_event(r))
			return -1;
		if (r->event.type == YAML_SEQUENCE_END_EVENT)
			return 0;
		to->items = xrealloc(to->items, (size_t)to->n + 1, sizeof(*to->items));
		to->items[to->n++] = (struct ynode){0};
		if (read_node(r, &to->items[to->n - 1], depth))
			return -1;
	}
}

static int read_key(struct reader *r, struct ynode *to)
{
	struct mark at = mark_of(r->event.start_mark);
	char *key = NULL;
	bool plain;

	if (r->event.type == YAML_SEQUENCE_START_EVENT || r->event.type == YAML_MAPPING_START_EVENT)
		return yaml_error(r->y, at, r->err, "a key must be a name");
	if (read_scalar(r, &key, &plain))
		return -1;
	for (int i = 0; i < to->n; i++)
		if (strcmp(to->keys[i], key) == 0) {
			yaml_error(r->y, at, r->err, "duplicate key `%s` (first on line %d)", key, to->key_at[i].line);
			free(key);
			return -1;
		}
	to->items = xrealloc(to->items, (size_t)to->n + 1, sizeof(*to->items));
	to->keys = xrealloc(to->keys, (size_t)to->n + 1, sizeof(*to->keys));
	to->key_at = xrealloc(to->key_at, (size_t)to->n + 1, sizeof(*to->key_at));
	to->items[to->n] = (struct ynode){0};
	to->keys[to->n] = key;
	to->key_at[to->n++] = at;
	return 0;
}

static int read_map(struct reader *r, struct ynode *to, int depth)
{
	if (refuse_decoration(r, r->event.data.mapping_start.anchor, r->event.data.mapping_start.tag))
		return -1;
	to->kind = YNODE_MAP;
	for (;;) {
		if (next_event(r))
			return -1;
		if (r->event.type == YAML_MAPPING_END_EVENT)
			return 0;
		if (read_key(r, to) || next_event(r) || read_node(r, &to->items[to->n - 1], depth))
			return -1;
	}
}

/* Reads the node whose first event is at hand. */
static int read_node(struct reader *r, struct ynode *to, int depth)
{
	to->at = mark_of(r->event.start_mark);
	if (depth >= MAX_DEPTH)
		return yaml_error(r->y, to->at, r->err, "more than %d levels deep", MAX_DEPTH);
	if (r->event.type == YAML_SEQUENCE_START_EVENT)
		return read_list(r, to, depth + 1);
	if (r->event.type == YAML_MAPPING_START_EVENT)
		return read_map(r, to, depth + 1);
	to->kind = YNODE_SCALAR;
	return read_scalar(r, &to->text, &to->plain);
}

static int read_document(struct reader *r)
{
	if (next_event(r) || next_event(r))    /* the stream's start */
		return -1;
	if (r->event.type == YAML_STREAM_END_EVENT)
		return yaml_error(r->y, (struct mark){1, 1}, r->err, "an empty file");
	if (r->event.data.document_start.tag_directives.start != r->event.data.document_start.tag_directives.end)
		return yaml_error(r->y, mark_of(r->event.start_mark), r->err, "a %%TAG directive: a recipe has no tags");
	if (next_event(r) || read_node(r, &r->y->root, 0) || next_event(r) || next_event(r))
		return -1;
	if (r->event.type != YAML_STREAM_END_EVENT)
		return yaml_error(r->y, mark_of(r->event.start_mark), r->err, "a second document: a recipe is one");
	return 0;
}

int yaml_load_bytes(struct yaml *y, const char *bytes, size_t size, const char *name, struct err *err)
{
	static const char bom[] = "\xef\xbb\xbf";
	struct reader r = {.y = y, .err = err};
	int failed;

	*y = (struct yaml){.file = xstrdup(name)};
	if (size > MAX_BYTES)
		return yaml_error(y, (struct mark){1, 1}, err, "%zu bytes, more than %d", size, MAX_BYTES);
	if (size >= 3 && memcmp(bytes, bom, 3) == 0) {
		bytes += 3;
		size -= 3;
	}
	if (check_bytes(y, (const unsigned char *)bytes, size, err))
		return -1;
	BUG_ON(!yaml_parser_initialize(&r.parser));
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, size);
	failed = read_document(&r);
	drop_event(&r);
	yaml_parser_delete(&r.parser);
	return failed;
}

static void ynode_release(struct ynode *n)
{
	for (int i = 0; i < n->n; i++) {
		ynode_release(&n->items[i]);
		if (n->keys)
			free(n->keys[i]);
	}
	free(n->items);
	free(n->keys);
	free(n->key_at);
	free(n->text);
}

void yaml_release(struct yaml *y)
{
	ynode_release(&y->root);
	free(y->file);
	*y = (struct yaml){0};
}

/* ---- values ---- */

const struct ynode *yaml_get(const struct ynode *map, const char *key)
{
	for (int i = 0; i < map->n; i++)
		if (strcmp(map->keys[i], key) == 0)
			return &map->items[i];
	return NULL;
}

static const char *skip_digits(const char *s, const char *digits)
{
	return s + strspn(s, digits);
}

#define DECIMAL "0123456789"

/* [-+]? digits, or 0o and 0x forms. */
static bool looks_int(const char *s)
{
	if (s[0] == '0' && s[1] == 'o')
		return s[2] && !*skip_digits(s + 2, "01234567");
	if (s[0] == '0' && s[1] == 'x')
		return s[2] && !*skip_digits(s + 2, DECIMAL "abcdefABCDEF");
	s += *s == '-' || *s == '+';
	return *s && !*skip_digits(s, DECIMAL);
}

/* [-+]? ( .digits | digits[.digits*] ) ( [eE][-+]?digits )?, .inf, .nan */
static bool looks_real(const char *s)
{
	const char *whole, *part, *end;

	if (!strcmp(s, ".nan") || !strcmp(s, ".NaN") || !strcmp(s, ".NAN"))
		return true;
	s += *s == '-' || *s == '+';
	if (!strcmp(s, ".inf") || !strcmp(s, ".Inf") || !strcmp(s, ".INF"))
		return true;
	whole = skip_digits(s, DECIMAL);
	part = *whole == '.' ? skip_digits(whole + 1, DECIMAL) : whole;
	if (whole == s && part <= whole + 1)
		return false;
	if (*part != 'e' && *part != 'E')
		return !*part;
	part++;
	part += *part == '-' || *part == '+';
	end = skip_digits(part, DECIMAL);
	return end > part && !*end;
}

bool ynode_is_number(const struct ynode *n)
{
	return n->kind == YNODE_SCALAR && n->plain && (looks_int(n->text) || looks_real(n->text));
}

bool ynode_is_int(const struct ynode *n, int64_t *out)
{
	int base = 10, skip = 0;

	if (n->kind != YNODE_SCALAR || !n->plain || !looks_int(n->text))
		return false;
	if (n->text[0] == '0' && (n->text[1] == 'o' || n->text[1] == 'x')) {
		base = n->text[1] == 'o' ? 8 : 16;
		skip = 2;
	}
	errno = 0;
	*out = strtoll(n->text + skip, NULL, base);
	return errno == 0;
}

const char *yaml_describe(const struct ynode *n, char *buf, size_t size)
{
	if (n->kind == YNODE_MAP)
		return "a mapping";
	if (n->kind == YNODE_LIST)
		return "a list";
	if (n->plain && !n->text[0])
		return "nothing";
	snprintf(buf, size, "the %s `%.60s`", ynode_is_number(n) ? "number" : "string", n->text);
	return buf;
}

static int refuse(const struct yaml *y, const struct ynode *n, const char *what, const char *wanted, struct err *err)
{
	char found[100];

	return yaml_error(y, n->at, err, "%s: expected %s, found %s", what, wanted,
			  yaml_describe(n, found, sizeof(found)));
}

int yaml_want_map(const struct yaml *y, const struct ynode *n, const char *what, struct err *err)
{
	return n->kind == YNODE_MAP ? 0 : refuse(y, n, what, "a mapping", err);
}

int yaml_want_list(const struct yaml *y, const struct ynode *n, const char *what, struct err *err)
{
	return n->kind == YNODE_LIST ? 0 : refuse(y, n, what, "a list", err);
}

int yaml_want_string(const struct yaml *y, const struct ynode *n, const char *what, struct err *err)
{
	if (ynode_is_number(n))
		return yaml_error(y, n->at, err, "%s: expected a string, found the number `%.60s` (quote it)", what, n->text);
	if (n->kind != YNODE_SCALAR || !n->text[0])
		return refuse(y, n, what, "a string", err);
	return 0;
}

int yaml_want_int(const struct yaml *y, const struct ynode *n, const char *what, int64_t min, int64_t max,
		  int64_t *out, struct err *err)
{
	if (!ynode_is_int(n, out))
		return refuse(y, n, what, "an integer", err);
	if (*out < min)
		return yaml_error(y, n->at, err, "%s: %s is less than %lld", what, n->text, (long long)min);
	if (*out > max)
		return yaml_error(y, n->at, err, "%s: %s is more than %lld", what, n->text, (long long)max);
	return 0;
}

int yaml_want_number(const struct yaml *y, const struct ynode *n, const char *what, double *out, struct err *err)
{
	int64_t integer;

	if (!ynode_is_number(n))
		return refuse(y, n, what, "a number", err);
	*out = ynode_is_int(n, &integer) ? (double)integer : strtod(n->text, NULL);
	if (!looks_int(n->text) && strpbrk(n->text, "iInN"))
		*out = NAN;
	return isfinite(*out) ? 0 : refuse(y, n, what, "a finite number", err);
}

int yaml_want_keys(const struct yaml *y, const struct ynode *n, const char *what, const char *const *known,
		   int n_known, struct err *err)
{
	char near[400];

	if (yaml_want_map(y, n, what, err))
		return -1;
	for (int i = 0; i < n->n; i++) {
		int k = 0;

		while (k < n_known && strcmp(known[k], n->keys[i]) != 0)
			k++;
		if (k == n_known)
			return yaml_error(y, n->key_at[i], err, "%s: unknown key `%.60s`%s", what, n->keys[i],
					  suggest(near, sizeof(near), n->keys[i], known, n_known));
	}
	return 0;
}
