/* Strict JSON reading over jansson, and atomic writing.
 *
 * Readers walk an object with struct jobj, which knows file and JSON path, so that every complaint
 * reads "FILE: $.legs.on.tokens: expected an integer, found a string".  Syntax errors and duplicate
 * keys give line and column: "FILE:2:3: duplicate key "legs"" (columns count characters from 1; that of
 * a duplicate key is its opening quote, that of a syntax error the last character that was read).
 * Every member must be asked for: json_end refuses unknown keys.
 */
#ifndef ASSAY_CONTRACT_JSON_H
#define ASSAY_CONTRACT_JSON_H

#include <jansson.h>
#include <stdint.h>
#include "err.h"

/* Reads a whole file whose top is an object or an array, at most 2048 containers deep; refuses duplicate
 * keys, invalid UTF-8, NUL characters and trailing bytes.  `allow_infinity` accepts the literals Infinity,
 * -Infinity and NaN as values (config.json of some checkpoints): they are read as the strings
 * "inf", "-inf", "nan".  NULL after err_set. */
json_t *json_read_file(const char *path, bool allow_infinity, struct err *err);
json_t *json_read_bytes(const char *bytes, size_t size, const char *name, bool allow_infinity,
			struct err *err);
/* What another program answered: with infinities, and with NUL in values (a vocabulary has a token of that text), at which
 * the string ends for who reads it as C does. */
json_t *json_read_foreign(const char *bytes, size_t size, const char *name, struct err *err);

#define JOBJ_MEMBERS 512

struct jobj {
	const char *file;
	const char *path;       /* "$.legs.on"; borrowed for the life of the walk */
	const json_t *object;   /* borrowed; NULL if it is no object */
	uint64_t seen[JOBJ_MEMBERS / 64];   /* bit i: the i-th member was asked for */
	struct err *err;        /* borrowed; getters return defaults once it is set */
};

/* Starts a walk; `value` must be an object of at most JOBJ_MEMBERS members (objects that may hold more are
 * iterated by hand).  NULL is allowed if err is set, as a getter leaves it. */
int json_begin(struct jobj *o, const json_t *value, const char *file, const char *path, struct err *err);
/* Refuses members that nobody asked for.  0, or -1 if anything of the walk failed. */
int json_end(struct jobj *o);

/* Getters.  `need`: absent is an error.  They return NULL, 0 or the default when absent or in error.
 * null is refused but by json_get and json_get_string; where it is legal, ask json_is_null_member first:
 * it marks the member as seen if it is there and null. */
const json_t *json_get(struct jobj *o, const char *key, bool need);
bool json_is_null_member(struct jobj *o, const char *key);
const char *json_get_string(struct jobj *o, const char *key, bool need);       /* borrowed; null reads as absent */
int64_t json_get_int(struct jobj *o, const char *key, bool need, int64_t min, int64_t def);
double json_get_number(struct jobj *o, const char *key, bool need, double def); /* accepts "nan", "inf", "-inf" */
bool json_get_bool(struct jobj *o, const char *key, bool need, bool def);
const json_t *json_get_array(struct jobj *o, const char *key, bool need);
const json_t *json_get_object(struct jobj *o, const char *key, bool need);
/* The same for a bare value (array items). */
int json_as_int(const json_t *v, int64_t min, int64_t *out, const char *file, const char *path, struct err *err);
int json_as_number(const json_t *v, double *out, const char *file, const char *path, struct err *err);

/* A string of its own (caller frees); null is NULL if `null_ok`, else refused. */
char *json_get_owned(struct jobj *o, const char *key, bool need, bool null_ok);
/* One of the words of a NULL-terminated list: its index; `def` if absent or in error. */
int json_get_word(struct jobj *o, const char *key, bool need, const char *const *words, int def);
/* 64 hexadecimal digits in lower case; "" if absent or null (refused unless null_ok). */
void json_get_sha256(struct jobj *o, const char *key, bool need, bool null_ok, char hex[65]);
bool json_is_sha256(const char *s);
/* ^[A-Za-z0-9][A-Za-z0-9_-]*$: names of legs and profiles. */
bool json_is_name(const char *s);
/* An array of token ids; *ids is the caller's to free.  v may be NULL if err is set. */
int json_as_ids(const json_t *v, int32_t **ids, int *n, const char *file, const char *path, struct err *err);
json_t *json_from_ids(const int32_t *ids, int n);

/* What jansson refused, as a message with the place; bytes [0, end) had been read. */
int json_syntax_error(const char *bytes, size_t end, const char *name, const json_error_t *e, struct err *err);
/* Line and column of a byte, both from 1; columns count characters. */
void json_position(const char *bytes, size_t at, int *line, int *column);

/* "PATH.key", or PATH["key"] if the key is no plain word, in buf (cut off if it does not fit); returns buf. */
const char *json_path(char *buf, size_t size, const char *path, const char *key);
/* "an integer", "a string", ...: for messages. */
const char *json_says(const json_t *v);
/* Records "FILE: PATH: expected WHAT, found a string"; returns -1. */
int json_expected(const json_t *found, const char *what, const char *file, const char *path, struct err *err);

/* Sets a member and takes over the reference.  A value that could not be made is a bug: nothing is left out. */
void json_put(json_t *object, const char *key, json_t *value);
/* json_string after utf8_lossy: what other programs wrote, file names.  New reference; NULL gives NULL. */
json_t *json_string_lossy(const char *s);
/* A number that may be non-finite: "nan", "inf", "-inf" as formats.md says.  New reference. */
json_t *json_number(double x);
/* json_number rounded to `digits` significant decimal digits, so that files stay small. */
json_t *json_number_rounded(double x, int digits);

/* With JSON_INDENT: a container that holds no object is written on one line. */
#define JSON_FLAT ((size_t)1 << 24)

/* The text with a final newline.  flags: JSON_INDENT(n), JSON_COMPACT, JSON_SORT_KEYS of jansson, JSON_FLAT.  A
 * number is written with the fewest digits (9, 15, 16 or 17) that read back as the same double.  Caller frees. */
char *json_text(const json_t *value, size_t flags, size_t *size);
/* json_text through file_write. */
int json_write_file(const json_t *value, const char *path, size_t flags, struct err *err);

#endif
