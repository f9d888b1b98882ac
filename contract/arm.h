/* An arm: one value for every factor of factors.def.  docs/formats.md, section 2. */
#ifndef ASSAY_CONTRACT_ARM_H
#define ASSAY_CONTRACT_ARM_H

#include <jansson.h>
#include "err.h"

enum factor {
#define CHOICE(id, name, def, layer, says) FACTOR_##id,
#define NUMBER(id, name, def, min, says) FACTOR_##id,
#define VALUE(id, value, name, says)
#include "factors.def"
#undef CHOICE
#undef NUMBER
#undef VALUE
	N_FACTORS
};

/* Values of all choices, unique over all factors: arm.value[FACTOR_BACKEND] == BACKEND_CPU. */
enum factor_value {
#define CHOICE(id, name, def, layer, says)
#define NUMBER(id, name, def, min, says)
#define VALUE(id, value, name, says) id##_##value,
#include "factors.def"
#undef CHOICE
#undef NUMBER
#undef VALUE
	N_FACTOR_VALUES
};

#define ARM_UNSET (-1)  /* not given; in a report: this engine has no such factor */
#define ARM_ALL (-2)    /* batch: all */

struct arm {
	int value[N_FACTORS];  /* an enum factor_value for a choice, the number for a number */
};

/* An item of `at`: overrides for some layers. */
struct arm_at {
	char *layers;          /* owned; as written: "0-11,30" */
	struct arm arm;        /* only per-layer factors are ever set */
};

struct arm_at_list {
	struct arm_at *item;   /* owned */
	int n;
};

const char *factor_name(enum factor f);
const char *factor_says(enum factor f);
bool factor_is_number(enum factor f);
bool factor_per_layer(enum factor f);
/* -1 if there is none of that name. */
int factor_find(const char *name);
/* The id of a value by its name; -1 if the factor has no such value. */
int factor_value_find(enum factor f, const char *name);
const char *factor_value_name(int value);
const char *factor_value_says(int value);
/* The enum factor_value ids of a choice are [first, first + n). */
void factor_values(enum factor f, int *first, int *n);
int factor_default(enum factor f);  /* ARM_UNSET where it is resolved later */

void arm_init(struct arm *arm);     /* every factor unset */
/* Sets one factor from text ("mamba.proj", "w8a16"); refuses unknown names and values, listing the known ones. */
int arm_set(struct arm *arm, const char *name, const char *value, struct err *err);
/* "k=v,k=v" of the command line. */
int arm_parse(struct arm *arm, const char *text, struct err *err);
/* Values that are set in `over` replace those of `arm`. */
void arm_overlay(struct arm *arm, const struct arm *over);
/* Unset factors take their defaults of factors.def (those that resolve later stay unset). */
void arm_defaults(struct arm *arm);
bool arm_equal(const struct arm *a, const struct arm *b);
/* The value of one factor as text in buf ("-" if unset). */
const char *arm_text(const struct arm *arm, enum factor f, char *buf, size_t size);
/* "k=v,k=v" of what is set, as arm_parse reads it; NULL if nothing is.  The caller frees. */
char *arm_words(const struct arm *arm);

/* "LAYERS:k=v[,k=v]" of the command line; appended to the list. */
int arm_at_parse(struct arm_at_list *at, const char *text, struct err *err);
/* Does "0-11,30" hold this layer?  Parses with checks; -1 on bad text. */
int arm_layers_hold(const char *layers, int layer, struct err *err);
bool arm_at_equal(const struct arm_at_list *a, const struct arm_at_list *b);
void arm_at_copy(struct arm_at_list *to, const struct arm_at_list *from);
/* "LAYERS:k=v,k=v", as arm_at_parse reads it.  The caller frees. */
char *arm_at_words(const struct arm_at *at);
void arm_at_release(struct arm_at_list *at);

/* The JSON object of report.requested and report.effective: all factors, null where unset, then `at`
 * (null if the list is empty).  The result is a new reference. */
json_t *arm_to_json(const struct arm *arm, const struct arm_at_list *at);
/* The reverse; `where` is the JSON path for messages.  Members that are absent are refused when `complete`.
 * Items are appended to `at`, which the caller releases even after an error; NULL: `at` is an unknown key. */
int arm_from_json(struct arm *arm, struct arm_at_list *at, const json_t *from, const char *file,
		  const char *where, bool complete, struct err *err);

#endif
