/* A strict pull reader for the two large JSON texts of a checkpoint: the header of a shard and the index.
 * They hold tens of thousands of short members, and a tree of them costs ten times the reading.
 *
 * Every function skips white space first and returns 0, or -1 after err_set with "NAME:LINE:COLUMN: CONTEXT: ...". */
#ifndef ASSAY_ENGINE_JSON_SCAN_H
#define ASSAY_ENGINE_JSON_SCAN_H

#include <stdint.h>
#include "contract/err.h"

struct json_scan {
	const char *name;             /* borrowed: of the text, for messages */
	const char *context;          /* borrowed: the member being read; may be NULL */
	const char *begin, *at, *end; /* borrowed: the text */
	void **arena;                 /* strings are copied there (arena.h) */
	struct err *err;
};

/* The next character must be c, which is consumed. */
int json_scan_char(struct json_scan *s, char c);
/* A string without NUL, valid UTF-8, escapes resolved. */
int json_scan_string(struct json_scan *s, const char **string);
/* An integer from 0 to 2^63 - 1. */
int json_scan_size(struct json_scan *s, int64_t *n);
/* Inside an object or array whose opening bracket was read: 1 if a member (its key and colon are consumed) or an
 * item follows, 0 if the closing bracket was consumed, -1.  `first` starts as true. */
int json_scan_member(struct json_scan *s, bool *first, const char **key);
int json_scan_item(struct json_scan *s, bool *first);
/* Any value, checked by the strict reader of contract/json.h and dropped. */
int json_scan_skip(struct json_scan *s);
/* Nothing but white space may be left. */
int json_scan_end(struct json_scan *s);
/* Sets the error with the present position; always -1. */
int json_scan_fail(struct json_scan *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
