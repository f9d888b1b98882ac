/* YAML with positions: the subset that a recipe may use, read with libyaml's events.
 *
 * One document of mappings, lists and scalars.  Refused: duplicate keys, anchors, aliases, tags, tag
 * directives, keys that are not scalars, a second document, invalid UTF-8 and control characters, more
 * than 1 MiB, more than 32 levels.  Every message is "FILE:LINE:COLUMN: what"; lines and columns count
 * from 1, columns in characters.
 *
 * A plain scalar is a number if it looks like one in YAML 1.2's core schema, else a string: `on`, `off`,
 * `no` and `true` are strings.  A quoted scalar is a string whatever it looks like. */
#ifndef ASSAY_GATES_YAML_H
#define ASSAY_GATES_YAML_H

#include <stdint.h>
#include "contract/err.h"

struct mark { int line, column; };

enum ynode_kind { YNODE_SCALAR, YNODE_LIST, YNODE_MAP };

struct ynode {
	enum ynode_kind kind;
	struct mark at;              /* where the value starts */
	char *text;                  /* owned; scalar: its text */
	bool plain;                  /* scalar: written without quotes */
	int n;
	struct ynode *items;         /* owned [n]; list and map */
	char **keys;                 /* owned [n]; map */
	struct mark *key_at;         /* owned [n]; map */
};

struct yaml {
	char *file;                  /* owned; the name in messages */
	struct ynode root;
};

int yaml_load_bytes(struct yaml *y, const char *bytes, size_t size, const char *name, struct err *err);
void yaml_release(struct yaml *y);   /* {0} is valid */

/* Records "FILE:LINE:COLUMN: ..." as ERR_INPUT; always -1. */
int yaml_error(const struct yaml *y, struct mark at, struct err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The value of a key; NULL if the map has none. */
const struct ynode *yaml_get(const struct ynode *map, const char *key);
/* What a value is, for messages: "a list", "the number 5", "the string `on`", "nothing". */
const char *yaml_describe(const struct ynode *n, char *buf, size_t size);

/* Each refuses a value of another kind; `what` names it in the message. */
int yaml_want_map(const struct yaml *y, const struct ynode *n, const char *what, struct err *err);
int yaml_want_list(const struct yaml *y, const struct ynode *n, const char *what, struct err *err);
int yaml_want_string(const struct yaml *y, const struct ynode *n, const char *what, struct err *err);
int yaml_want_int(const struct yaml *y, const struct ynode *n, const char *what, int64_t min, int64_t max,
		  int64_t *out, struct err *err);
int yaml_want_number(const struct yaml *y, const struct ynode *n, const char *what, double *out, struct err *err);
/* A map whose keys are all among `known`. */
int yaml_want_keys(const struct yaml *y, const struct ynode *n, const char *what, const char *const *known,
		   int n_known, struct err *err);

bool ynode_is_number(const struct ynode *n);
/* A decimal, 0o or 0x integer that fits. */
bool ynode_is_int(const struct ynode *n, int64_t *out);

#endif
