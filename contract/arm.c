#include "arm.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"

#define LAYER_LIMIT 1000000

struct factor_info {
	const char *name, *says;
	const char *def;       /* the id of a value, a number, or UNSET */
	bool is_number, per_layer;
	int min;               /* of a number */
};

static const struct factor_info factors[N_FACTORS] = {
#define CHOICE(id, name, def, layer, says) { name, says, #def, false, layer, 0 },
#define NUMBER(id, name, def, min, says) { name, says, #def, true, false, min },
#define VALUE(id, value, name, says)
#include "factors.def"
#undef CHOICE
#undef NUMBER
#undef VALUE
};

static const struct { enum factor factor; const char *id, *name, *says; } values[N_FACTOR_VALUES] = {
#define CHOICE(id, name, def, layer, says)
#define NUMBER(id, name, def, min, says)
#define VALUE(id, value, name, says) { FACTOR_##id, #value, name, says },
#include "factors.def"
#undef CHOICE
#undef NUMBER
#undef VALUE
};

static const struct factor_info *info(enum factor f)
{
	BUG_ON((unsigned)f >= N_FACTORS);
	return &factors[f];
}

const char *factor_name(enum factor f)
{
	return info(f)->name;
}

const char *factor_says(enum factor f)
{
	return info(f)->says;
}

bool factor_is_number(enum factor f)
{
	return info(f)->is_number;
}

bool factor_per_layer(enum factor f)
{
	return info(f)->per_layer;
}

int factor_find(const char *name)
{
	for (int f = 0; f < N_FACTORS; f++)
		if (strcmp(name, factors[f].name) == 0)
			return f;
	return -1;
}

void factor_values(enum factor f, int *first, int *n)
{
	int v = 0;

	while (v < N_FACTOR_VALUES && values[v].factor != f)
		v++;
	*first = v;
	while (v < N_FACTOR_VALUES && values[v].factor == f)
		v++;
	*n = v - *first;
}

int factor_value_find(enum factor f, const char *name)
{
	int first, n;

	factor_values(f, &first, &n);
	for (int v = first; v < first + n; v++)
		if (strcmp(name, values[v].name) == 0)
			return v;
	return -1;
}

const char *factor_value_name(int value)
{
	BUG_ON((unsigned)value >= N_FACTOR_VALUES);
	return values[value].name;
}

const char *factor_value_says(int value)
{
	BUG_ON((unsigned)value >= N_FACTOR_VALUES);
	return values[value].says;
}

int factor_default(enum factor f)
{
	const char *def = info(f)->def;
	int first, n;

	if (strcmp(def, "UNSET") == 0)
		return ARM_UNSET;
	if (factors[f].is_number)
		return atoi(def);
	factor_values(f, &first, &n);
	for (int v = first; v < first + n; v++)
		if (strcmp(def, values[v].id) == 0)
			return v;
	BUG("%s: no value %s", factors[f].name, def);
}

void arm_init(struct arm *arm)
{
	for (int f = 0; f < N_FACTORS; f++)
		arm->value[f] = ARM_UNSET;
}

void arm_overlay(struct arm *arm, const struct arm *over)
{
	for (int f = 0; f < N_FACTORS; f++)
		if (over->value[f] != ARM_UNSET)
			arm->value[f] = over->value[f];
}

void arm_defaults(struct arm *arm)
{
	for (int f = 0; f < N_FACTORS; f++)
		if (arm->value[f] == ARM_UNSET)
			arm->value[f] = factor_default(f);
}

bool arm_equal(const struct arm *a, const struct arm *b)
{
	return memcmp(a->value, b->value, sizeof(a->value)) == 0;
}

const char *arm_text(const struct arm *arm, enum factor f, char *buf, size_t size)
{
	int value = arm->value[f];

	if (value == ARM_UNSET)
		snprintf(buf, size, "-");
	else if (value == ARM_ALL)
		snprintf(buf, size, "all");
	else if (info(f)->is_number)
		snprintf(buf, size, "%d", value);
	else
		snprintf(buf, size, "%s", factor_value_name(value));
	return buf;
}

char *arm_words(const struct arm *arm)
{
	char *words = NULL, value[64];

	for (int f = 0; f < N_FACTORS; f++) {
		if (arm->value[f] == ARM_UNSET)
			continue;
		char *longer = xasprintf("%s%s%s=%s", words ? words : "", words ? "," : "", factor_name((enum factor)f),
					 arm_text(arm, (enum factor)f, value, sizeof(value)));

		free(words);
		words = longer;
	}
	return words;
}

/* ---- text ---- */

/* "w8a8, w8a8-lt, w8a16 or native", "an integer of at least 1, or all": what a factor takes. */
static void say_values(enum factor f, char *buf, size_t size)
{
	int first, n;
	size_t at = 0;

	if (factors[f].is_number) {
		snprintf(buf, size, "an integer of at least %d%s", factors[f].min, f == FACTOR_BATCH ? ", or all" : "");
		return;
	}
	factor_values(f, &first, &n);
	for (int v = first; v < first + n && at < size; v++)
		at += (size_t)snprintf(buf + at, size - at, "%s%s", v == first ? "" : v == first + n - 1 ? " or " : ", ",
				       values[v].name);
}

static void say_factors(bool per_layer, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int f = 0; f < N_FACTORS && at < size; f++)
		if (!per_layer || factors[f].per_layer)
			at += (size_t)snprintf(buf + at, size - at, "%s%s", at == 0 ? "" : ", ", factors[f].name);
}

static int unknown_factor(const char *name, struct err *err)
{
	char known[512];

	say_factors(false, known, sizeof(known));
	return err_set(err, ERR_INPUT, "unknown factor \"%.100s\"; known: %s", name, known);
}

int arm_set(struct arm *arm, const char *name, const char *value, struct err *err)
{
	int f = factor_find(name);
	char known[256], *end;
	long n;

	if (f < 0)
		return unknown_factor(name, err);
	say_values(f, known, sizeof(known));
	if (!factors[f].is_number) {
		int v = factor_value_find(f, value);

		if (v < 0)
			return err_set(err, ERR_INPUT, "%s: expected %s, found \"%.100s\"", name, known, value);
		arm->value[f] = v;
		return 0;
	}
	if (f == FACTOR_BATCH && strcmp(value, "all") == 0) {
		arm->value[f] = ARM_ALL;
		return 0;
	}
	errno = 0;
	n = strtol(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || n > INT32_MAX || n < factors[f].min)
		return err_set(err, ERR_INPUT, "%s: expected %s, found \"%.100s\"", name, known, value);
	arm->value[f] = (int)n;
	return 0;
}

int arm_parse(struct arm *arm, const char *text, struct err *err)
{
	char *copy = xstrdup(text), *rest = copy, *item;
	struct arm given;
	int status = 0;

	arm_init(&given);
	while (status == 0 && (item = strsep(&rest, ",")) != NULL) {
		char *value = strchr(item, '=');
		int f;

		if (value == NULL || value == item) {
			status = err_set(err, ERR_INPUT, "expected factor=value, found \"%.100s\"", item);
			break;
		}
		*value++ = '\0';
		f = factor_find(item);
		if (f >= 0 && given.value[f] != ARM_UNSET)
			status = err_set(err, ERR_INPUT, "%s is given twice in \"%.200s\"", item, text);
		else
			status = arm_set(&given, item, value, err);
	}
	free(copy);
	if (status == 0)
		arm_overlay(arm, &given);
	return status;
}

/* ---- layers ---- */

/* One number of a layer list; -1 if there is none at *text. */
static long layer_number(const char **text)
{
	long n = 0;

	if (**text < '0' || **text > '9')
		return -1;
	while (**text >= '0' && **text <= '9' && n < LAYER_LIMIT)
		n = 10 * n + (*(*text)++ - '0');
	return n < LAYER_LIMIT ? n : -1;
}

int arm_layers_hold(const char *layers, int layer, struct err *err)
{
	const char *p = layers;
	int hold = 0;

	for (;;) {
		long first = layer_number(&p), last = first;

		if (first >= 0 && *p == '-') {
			p++;
			last = layer_number(&p);
		}
		if (first < 0 || last < first || (*p != ',' && *p != '\0'))
			return err_set(err, ERR_INPUT, "expected layers like 0-11,30, found \"%.100s\"", layers);
		hold |= layer >= first && layer <= last;
		if (*p++ == '\0')
			return hold;
	}
}

/* Appends; takes over nothing. */
static void at_append(struct arm_at_list *at, const char *layers, const struct arm *arm)
{
	at->item = xrealloc(at->item, (size_t)at->n + 1, sizeof(*at->item));
	at->item[at->n++] = (struct arm_at){ .layers = xstrdup(layers), .arm = *arm };
}

static int check_per_layer(const struct arm *arm, struct err *err)
{
	char known[512];

	for (int f = 0; f < N_FACTORS; f++) {
		if (arm->value[f] == ARM_UNSET || factors[f].per_layer)
			continue;
		say_factors(true, known, sizeof(known));
		return err_set(err, ERR_INPUT, "%s cannot differ from layer to layer; those that can: %s",
			       factors[f].name, known);
	}
	return 0;
}

int arm_at_parse(struct arm_at_list *at, const char *text, struct err *err)
{
	const char *colon = strchr(text, ':');
	struct arm arm;
	char *layers;
	int status;

	if (colon == NULL)
		return err_set(err, ERR_INPUT, "expected LAYERS:factor=value, found \"%.100s\"", text);
	layers = xasprintf("%.*s", (int)(colon - text), text);
	arm_init(&arm);
	status = arm_layers_hold(layers, 0, err) < 0 || arm_parse(&arm, colon + 1, err) ||
		 check_per_layer(&arm, err) ? -1 : 0;
	if (status == 0)
		at_append(at, layers, &arm);
	free(layers);
	return status;
}

bool arm_at_equal(const struct arm_at_list *a, const struct arm_at_list *b)
{
	if (a->n != b->n)
		return false;
	for (int i = 0; i < a->n; i++)
		if (strcmp(a->item[i].layers, b->item[i].layers) != 0 || !arm_equal(&a->item[i].arm, &b->item[i].arm))
			return false;
	return true;
}

void arm_at_copy(struct arm_at_list *to, const struct arm_at_list *from)
{
	*to = (struct arm_at_list){ 0 };
	for (int i = 0; i < from->n; i++)
		at_append(to, from->item[i].layers, &from->item[i].arm);
}

char *arm_at_words(const struct arm_at *at)
{
	char *words = arm_words(&at->arm), *text = xasprintf("%s:%s", at->layers, words ? words : "");

	free(words);
	return text;
}

void arm_at_release(struct arm_at_list *at)
{
	for (int i = 0; i < at->n; i++)
		free(at->item[i].layers);
	free(at->item);
	*at = (struct arm_at_list){ 0 };
}

/* ---- JSON ---- */

static json_t *value_to_json(const struct arm *arm, enum factor f)
{
	int value = arm->value[f];

	if (value == ARM_UNSET)
		return json_null();
	if (value == ARM_ALL)
		return json_string("all");
	return factors[f].is_number ? json_integer(value) : json_string(factor_value_name(value));
}

json_t *arm_to_json(const struct arm *arm, const struct arm_at_list *at)
{
	json_t *object = json_object(), *list = json_array();

	for (int f = 0; f < N_FACTORS; f++)
		json_object_set_new(object, factors[f].name, value_to_json(arm, f));
	for (int i = 0; at != NULL && i < at->n; i++) {
		json_t *item = json_pack("{s:s}", "layers", at->item[i].layers);

		for (int f = 0; f < N_FACTORS; f++)
			if (at->item[i].arm.value[f] != ARM_UNSET)
				json_object_set_new(item, factors[f].name, value_to_json(&at->item[i].arm, f));
		json_array_append_new(list, item);
	}
	if (json_array_size(list) > 0)
		json_object_set(object, "at", list);
	else
		json_object_set_new(object, "at", json_null());
	json_decref(list);
	return object;
}

static int value_from_json(struct arm *arm, enum factor f, struct jobj *o, const json_t *value, bool null_ok)
{
	const char *text = json_string_value(value);
	char known[256], path[512];
	json_int_t n = json_integer_value(value);
	int v = -1;

	if (json_is_null(value) && null_ok)
		return 0;
	if (!factors[f].is_number && text != NULL)
		v = factor_value_find(f, text);
	else if (json_is_integer(value) && factors[f].is_number && n >= factors[f].min && n <= INT32_MAX)
		v = (int)n;
	else if (f == FACTOR_BATCH && text != NULL && strcmp(text, "all") == 0)
		v = ARM_ALL;
	if (v == -1) {
		say_values(f, known, sizeof(known));
		json_path(path, sizeof(path), o->path, factors[f].name);
		if (text != NULL)
			return err_set(o->err, ERR_INPUT, "%s: %s: expected %s, found \"%.100s\"", o->file, path, known, text);
		if (json_is_integer(value))
			return err_set(o->err, ERR_INPUT, "%s: %s: expected %s, found %" JSON_INTEGER_FORMAT, o->file, path,
				       known, n);
		return json_expected(value, known, o->file, path, o->err);
	}
	arm->value[f] = v;
	return 0;
}

static int at_from_json(struct arm_at_list *at, const json_t *item, const char *file, const char *path,
			struct err *err)
{
	struct err bad = { 0 };
	const char *layers;
	struct arm arm;
	struct jobj o;
	int n = 0;

	arm_init(&arm);
	json_begin(&o, item, file, path, err);
	layers = json_get_string(&o, "layers", true);
	for (int f = 0; f < N_FACTORS; f++) {
		const json_t *value = factors[f].per_layer ? json_get(&o, factors[f].name, false) : NULL;

		if (value != NULL && value_from_json(&arm, f, &o, value, false))
			return -1;
		n += value != NULL;
	}
	if (json_end(&o))
		return -1;
	if (arm_layers_hold(layers, 0, &bad) < 0)
		return err_set(err, ERR_INPUT, "%s: %s.layers: %s", file, path, bad.text);
	if (n == 0)
		return err_set(err, ERR_INPUT, "%s: %s: expected a factor beside \"layers\", found none", file, path);
	at_append(at, layers, &arm);
	return 0;
}

int arm_from_json(struct arm *arm, struct arm_at_list *at, const json_t *from, const char *file,
		  const char *where, bool complete, struct err *err)
{
	const json_t *list, *item;
	char path[512];
	struct jobj o;
	size_t i;

	arm_init(arm);
	if (json_begin(&o, from, file, where, err))
		return -1;
	for (int f = 0; f < N_FACTORS; f++) {
		const json_t *value = json_get(&o, factors[f].name, complete);

		if (value != NULL && value_from_json(arm, f, &o, value, true))
			return -1;
	}
	list = at == NULL || json_is_null_member(&o, "at") ? NULL : json_get_array(&o, "at", complete);
	json_array_foreach(list, i, item) {
		snprintf(path, sizeof(path), "%s.at[%zu]", where, i);
		if (at_from_json(at, item, file, path, err))
			return -1;
	}
	return json_end(&o);
}
