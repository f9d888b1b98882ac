/* Strict JSON reading over jansson, and atomic writing.
 *
 * Readers walk an object with struct jobj, which knows file and JSON path, so that every complaint
 * reads "FILE: $.legs.on.tokens: expected an integer, found a string".  Syntax errors and duplicate
 * keys give line and column.  Every member must be asked for: json_end refuses unknown keys.
 */
#ifndef ASSAY_CONTRACT_JSON_H
#define ASSAY_CONTRACT_JSON_H

#include <jansson.h>
#include "err.h"

/* Reads a whole file, at most `max_depth` deep (jansson's own limit is the backstop); refuses
 * duplicate keys, invalid UTF-8, and trailing bytes.  `allow_infinity` accepts the literals Infinity,
 * -Infinity and NaN outside strings (config.json of some checkpoints): they are read as the strings
 * "inf", "-inf", "nan".  NULL after err_set. */
json_t *json_read_file(const char *path, bool allow_infinity, struct err *err);
json_t *json_read_bytes(const char *bytes, size_t size, const char *name, bool allow_infinity,
			struct err *err);

struct jobj {
	const char *file;
	const char *path;       /* "$.legs.on"; borrowed for the life of the walk */
	const json_t *object;   /* borrowed */
	unsigned long seen[8];  /* bit i: the i-th member was asked for; objects up to 512 members */
	struct err *err;        /* borrowed; getters return defaults once it is set */
};

/* Starts a walk; `value` must be an object. */
int json_begin(struct jobj *o, const json_t *value, const char *file, const char *path, struct err *err);
/* Refuses members that nobody asked for.  0, or -1 if anything of the walk failed. */
int json_end(struct jobj *o);

/* Getters.  `need`: absent is an error.  They return NULL, 0 or the default when absent or in error. */
const json_t *json_get(struct jobj *o, const char *key, bool need);
const char *json_get_string(struct jobj *o, const char *key, bool need);       /* borrowed; null reads as absent */
int64_t json_get_int(struct jobj *o, const char *key, bool need, int64_t min, int64_t def);
double json_get_number(struct jobj *o, const char *key, bool need, double def); /* accepts "nan", "inf", "-inf" */
bool json_get_bool(struct jobj *o, const char *key, bool need, bool def);
const json_t *json_get_array(struct jobj *o, const char *key, bool need);
const json_t *json_get_object(struct jobj *o, const char *key, bool need);
/* The same for a bare value (array items). */
int json_as_int(const json_t *v, int64_t min, int64_t *out, const char *file, const char *path, struct err *err);
int json_as_number(const json_t *v, double *out, const char *file, const char *path, struct err *err);

/* A number that may be non-finite: "nan", "inf", "-inf" as formats.md says.  New reference. */
json_t *json_number(double x);
/* json_number rounded to `digits` significant decimal digits, so that files stay small. */
json_t *json_number_rounded(double x, int digits);

/* Writes to a temporary name beside `path`, fsyncs, renames.  flags as json_dumpf. */
int json_write_file(const json_t *value, const char *path, size_t flags, struct err *err);

#endif
