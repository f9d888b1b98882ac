#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"

#define FILE_LIMIT ((size_t)1 << 30)

/* ---- reading ---- */

void json_position(const char *bytes, size_t at, int *line, int *column)
{
	*line = 1;
	*column = 1;
	for (size_t i = 0; i < at; i++) {
		if (bytes[i] == '\n') {
			++*line;
			*column = 1;
		} else if ((bytes[i] & 0xc0) != 0x80) {
			++*column;
		}
	}
}

/* The opening quote of the string whose closing quote is bytes[end - 1]. */
static size_t opening_quote(const char *bytes, size_t end)
{
	size_t start = end - 1;

	while (start > 0) {
		size_t escapes = 0;

		if (bytes[--start] != '"')
			continue;
		while (escapes < start && bytes[start - 1 - escapes] == '\\')
			escapes++;
		if (escapes % 2 == 0)
			break;
	}
	return start;
}

int json_syntax_error(const char *bytes, size_t end, const char *name, const json_error_t *e, struct err *err)
{
	size_t start;
	int line, column;

	if (json_error_code(e) == json_error_duplicate_key && end >= 2) {
		start = opening_quote(bytes, end);
		json_position(bytes, start, &line, &column);
		return err_set(err, ERR_INPUT, "%s:%d:%d: duplicate key %.*s", name, line, column,
			       (int)(end - start < 200 ? end - start : 200), bytes + start);
	}
	json_position(bytes, end, &line, &column);
	return err_set(err, ERR_INPUT, "%s:%d:%d: %s", name, line, column > 1 ? column - 1 : 1,
		       json_error_code(e) == json_error_null_character ? "\\u0000 in a string" : e->text);
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.' || c == '-' || c == '+';
}

/* Copies the text with the literals of non-finite numbers replaced by strings that are padded to the literal's
 * length: only what follows NaN on its line moves, by two columns.  Where no value may stand the string is as wrong
 * as the literal was, but for keys, which are left alone. */
static char *quote_infinity(const char *bytes, size_t size, size_t *out_size)
{
	static const struct { const char *literal, *string; } words[] = {
		{ "Infinity", "\"inf\"   " }, { "-Infinity", "\"-inf\"   " }, { "NaN", "\"nan\"" },
	};
	char *out = xmalloc(size / 3 * 5 + 8);
	size_t n = 0;

	for (size_t i = 0, end, next; i < size; i = end) {
		const char *from = bytes + i;

		end = i + 1;
		if (bytes[i] == '"') {
			while (end < size && bytes[end] != '"')
				end += bytes[end] == '\\' ? 2 : 1;
			end = end < size ? end + 1 : size;
		} else if (is_word(bytes[i])) {
			while (end < size && is_word(bytes[end]))
				end++;
		}
		for (next = end; next < size && is_space(bytes[next]); next++)
			;
		for (int w = 0; w < 3 && (next == size || bytes[next] != ':'); w++)
			if (end - i == strlen(words[w].literal) && memcmp(bytes + i, words[w].literal, end - i) == 0)
				from = words[w].string;
		if (from == bytes + i) {
			memcpy(out + n, from, end - i);
			n += end - i;
		} else {
			memcpy(out + n, from, strlen(from));
			n += strlen(from);
		}
	}
	*out_size = n;
	return out;
}

static json_t *read_text(const char *bytes, size_t size, const char *name, bool allow_infinity, size_t flags, struct err *err)
{
	char *copy = allow_infinity ? quote_infinity(bytes, size, &size) : NULL;
	const char *text = copy != NULL ? copy : bytes;
	json_error_t e;
	json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES | flags, &e);

	if (value == NULL)
		json_syntax_error(text, e.position > 0 ? (size_t)e.position : 0, name, &e, err);
	free(copy);
	return value;
}

json_t *json_read_bytes(const char *bytes, size_t size, const char *name, bool allow_infinity, struct err *err)
{
	return read_text(bytes, size, name, allow_infinity, 0, err);
}

json_t *json_read_foreign(const char *bytes, size_t size, const char *name, struct err *err)
{
	return read_text(bytes, size, name, true, JSON_ALLOW_NUL, err);
}

json_t *json_read_file(const char *path, bool allow_infinity, struct err *err)
{
	size_t size;
	char *bytes = file_read(path, FILE_LIMIT, &size, err);
	json_t *value;

	if (bytes == NULL)
		return NULL;
	value = json_read_bytes(bytes, size, path, allow_infinity, err);
	free(bytes);
	return value;
}

/* ---- messages ---- */

const char *json_says(const json_t *v)
{
	if (v == NULL)
		return "nothing";
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a number";
	case JSON_TRUE: return "true";
	case JSON_FALSE: return "false";
	case JSON_NULL: return "null";
	}
	return "nothing";
}

const char *json_path(char *buf, size_t size, const char *path, const char *key)
{
	bool plain = key[0] != '\0' && !(key[0] >= '0' && key[0] <= '9');

	for (const char *p = key; *p != '\0'; p++)
		plain = plain && is_word(*p) && *p != '.' && *p != '+';
	snprintf(buf, size, plain ? "%s.%s" : "%s[\"%s\"]", path, key);
	return buf;
}

int json_expected(const json_t *found, const char *what, const char *file, const char *path, struct err *err)
{
	return err_set(err, ERR_INPUT, "%s: %s: expected %s, found %s", file, path, what, json_says(found));
}

/* ---- walking an object ---- */

int json_begin(struct jobj *o, const json_t *value, const char *file, const char *path, struct err *err)
{
	*o = (struct jobj){ .file = file, .path = path, .err = err };
	if (err->kind != ERR_NONE)
		return -1;
	BUG_ON(value == NULL);
	if (!json_is_object(value))
		return json_expected(value, "an object", file, path, err);
	if (json_object_size(value) > JOBJ_MEMBERS)
		return err_set(err, ERR_INPUT, "%s: %s: expected at most %d members, found %zu", file, path,
			       JOBJ_MEMBERS, json_object_size(value));
	o->object = value;
	return 0;
}

int json_end(struct jobj *o)
{
	const char *key;
	json_t *value;
	size_t i = 0;

	if (o->err->kind != ERR_NONE)
		return -1;
	json_object_foreach((json_t *)o->object, key, value) {
		if (!(o->seen[i / 64] >> i % 64 & 1))
			return err_set(o->err, ERR_INPUT, "%s: %s: unknown key \"%.200s\"", o->file, o->path, key);
		i++;
	}
	return 0;
}

/* The member, marked as seen; NULL if it is absent or the walk has failed. */
static const json_t *member(struct jobj *o, const char *key)
{
	const char *name;
	json_t *value;
	size_t i = 0;

	if (o->err->kind != ERR_NONE || o->object == NULL)
		return NULL;
	json_object_foreach((json_t *)o->object, name, value) {
		if (strcmp(name, key) == 0) {
			o->seen[i / 64] |= (uint64_t)1 << i % 64;
			return value;
		}
		i++;
	}
	return NULL;
}

const json_t *json_get(struct jobj *o, const char *key, bool need)
{
	const json_t *value = member(o, key);

	if (value == NULL && need && o->err->kind == ERR_NONE)
		err_set(o->err, ERR_INPUT, "%s: %s: the key \"%s\" is missing", o->file, o->path, key);
	return value;
}

bool json_is_null_member(struct jobj *o, const char *key)
{
	if (o->err->kind != ERR_NONE || !json_is_null(json_object_get(o->object, key)))
		return false;
	member(o, key);
	return true;
}

static void wrong(struct jobj *o, const char *key, const json_t *found, const char *what)
{
	char path[512];

	json_expected(found, what, o->file, json_path(path, sizeof(path), o->path, key), o->err);
}

const char *json_get_string(struct jobj *o, const char *key, bool need)
{
	const json_t *value = json_get(o, key, need);

	if (value == NULL || (json_is_null(value) && !need))
		return NULL;
	if (!json_is_string(value)) {
		wrong(o, key, value, "a string");
		return NULL;
	}
	return json_string_value(value);
}

int64_t json_get_int(struct jobj *o, const char *key, bool need, int64_t min, int64_t def)
{
	const json_t *value = json_get(o, key, need);
	int64_t n = def;
	char path[512];

	if (value != NULL)
		json_as_int(value, min, &n, o->file, json_path(path, sizeof(path), o->path, key), o->err);
	return n;
}

double json_get_number(struct jobj *o, const char *key, bool need, double def)
{
	const json_t *value = json_get(o, key, need);
	double x = def;
	char path[512];

	if (value != NULL)
		json_as_number(value, &x, o->file, json_path(path, sizeof(path), o->path, key), o->err);
	return x;
}

bool json_get_bool(struct jobj *o, const char *key, bool need, bool def)
{
	const json_t *value = json_get(o, key, need);

	if (value == NULL)
		return def;
	if (!json_is_boolean(value)) {
		wrong(o, key, value, "true or false");
		return def;
	}
	return json_is_true(value);
}

const json_t *json_get_array(struct jobj *o, const char *key, bool need)
{
	const json_t *value = json_get(o, key, need);

	if (value != NULL && !json_is_array(value)) {
		wrong(o, key, value, "an array");
		return NULL;
	}
	return value;
}

const json_t *json_get_object(struct jobj *o, const char *key, bool need)
{
	const json_t *value = json_get(o, key, need);

	if (value != NULL && !json_is_object(value)) {
		wrong(o, key, value, "an object");
		return NULL;
	}
	return value;
}

int json_as_int(const json_t *v, int64_t min, int64_t *out, const char *file, const char *path, struct err *err)
{
	if (!json_is_integer(v))
		return json_expected(v, "an integer", file, path, err);
	if (json_integer_value(v) < min)
		return err_set(err, ERR_INPUT, "%s: %s: expected an integer of at least %" PRId64 ", found %" PRId64,
			       file, path, min, (int64_t)json_integer_value(v));
	*out = json_integer_value(v);
	return 0;
}

int json_as_number(const json_t *v, double *out, const char *file, const char *path, struct err *err)
{
	const char *s = json_string_value(v);

	if (json_is_number(v))
		*out = json_number_value(v);
	else if (s != NULL && strcmp(s, "nan") == 0)
		*out = NAN;
	else if (s != NULL && strcmp(s, "inf") == 0)
		*out = INFINITY;
	else if (s != NULL && strcmp(s, "-inf") == 0)
		*out = -INFINITY;
	else
		return json_expected(v, "a number", file, path, err);
	return 0;
}

char *json_get_owned(struct jobj *o, const char *key, bool need, bool null_ok)
{
	const json_t *value = json_get(o, key, need);

	if (value == NULL || (json_is_null(value) && null_ok))
		return NULL;
	if (!json_is_string(value)) {
		wrong(o, key, value, null_ok ? "a string or null" : "a string");
		return NULL;
	}
	return xstrdup(json_string_value(value));
}

int json_get_word(struct jobj *o, const char *key, bool need, const char *const *words, int def)
{
	const json_t *value = json_get(o, key, need);
	const char *text = json_string_value(value);
	char known[256], path[512];
	size_t at = 0;

	if (value == NULL)
		return def;
	for (int i = 0; text != NULL && words[i] != NULL; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	for (int i = 0; words[i] != NULL && at < sizeof(known); i++)
		at += (size_t)snprintf(known + at, sizeof(known) - at, "%s\"%s\"",
				       i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ", words[i]);
	if (text == NULL)
		wrong(o, key, value, known);
	else
		err_set(o->err, ERR_INPUT, "%s: %s: expected %s, found \"%.100s\"", o->file,
			json_path(path, sizeof(path), o->path, key), known, text);
	return def;
}

bool json_is_sha256(const char *s)
{
	return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

bool json_is_name(const char *s)
{
	static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

	return s[0] != '\0' && s[0] != '_' && s[0] != '-' && s[strspn(s, word)] == '\0';
}

void json_get_sha256(struct jobj *o, const char *key, bool need, bool null_ok, char hex[65])
{
	const json_t *value = json_get(o, key, need);
	const char *text = json_string_value(value);

	hex[0] = '\0';
	if (value == NULL || (json_is_null(value) && null_ok))
		return;
	if (text != NULL && json_is_sha256(text))
		memcpy(hex, text, 65);
	else
		wrong(o, key, value, null_ok ? "64 hexadecimal digits or null" : "64 hexadecimal digits");
}

int json_as_ids(const json_t *v, int32_t **ids, int *n, const char *file, const char *path, struct err *err)
{
	const json_t *item;
	size_t i, size = json_array_size(v);

	*ids = NULL;
	*n = 0;
	if (err->kind != ERR_NONE)
		return -1;
	if (!json_is_array(v))
		return json_expected(v, "an array", file, path, err);
	*ids = xcalloc(size, sizeof(**ids));
	json_array_foreach(v, i, item) {
		json_int_t id = json_integer_value(item);

		if (!json_is_integer(item) || id < 0 || id > INT32_MAX) {
			err_set(err, ERR_INPUT, "%s: %s[%zu]: expected a token id, found %s", file, path, i, json_says(item));
			free(*ids);
			*ids = NULL;
			return -1;
		}
		(*ids)[i] = (int32_t)id;
	}
	*n = (int)size;
	return 0;
}

json_t *json_from_ids(const int32_t *ids, int n)
{
	json_t *array = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(array, json_integer(ids[i]));
	return array;
}
