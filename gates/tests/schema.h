/* Holds a document to the part of JSON Schema 2020-12 that contract/schemas/ uses; for tests. */
#ifndef ASSAY_GATES_TESTS_SCHEMA_H
#define ASSAY_GATES_TESTS_SCHEMA_H

#include <jansson.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct schema_walk { const json_t *root; char *what; size_t size; };

static bool schema_node(struct schema_walk *w, const json_t *schema, const json_t *v, const char *path);

static bool schema_fail(struct schema_walk *w, const char *path, const char *why)
{
	snprintf(w->what, w->size, "%s: %s", path, why);
	return false;
}

static bool schema_is_type(const char *type, const json_t *v)
{
	return !strcmp(type, "object") ? json_is_object(v) : !strcmp(type, "array") ? json_is_array(v) :
		!strcmp(type, "string") ? json_is_string(v) : !strcmp(type, "integer") ? json_is_integer(v) :
		!strcmp(type, "number") ? json_is_number(v) : !strcmp(type, "boolean") ? json_is_boolean(v) :
		!strcmp(type, "null") && json_is_null(v);
}

static bool schema_type(const json_t *type, const json_t *v)
{
	if (json_is_string(type))
		return schema_is_type(json_string_value(type), v);
	for (size_t i = 0; i < json_array_size(type); i++)
		if (schema_is_type(json_string_value(json_array_get(type, i)), v))
			return true;
	return type == NULL;
}

static bool schema_object(struct schema_walk *w, const json_t *schema, const json_t *v, const char *path)
{
	const json_t *properties = json_object_get(schema, "properties"), *more = json_object_get(schema, "additionalProperties");
	const json_t *required = json_object_get(schema, "required");
	const char *key;
	json_t *value;
	char at[512];

	for (size_t i = 0; i < json_array_size(required); i++)
		if (!json_object_get(v, json_string_value(json_array_get(required, i))))
			return schema_fail(w, path, json_string_value(json_array_get(required, i)));
	json_object_foreach((json_t *)v, key, value) {
		const json_t *sub = json_object_get(properties, key);

		snprintf(at, sizeof at, "%s.%s", path, key);
		if (!sub && json_is_false(more))
			return schema_fail(w, at, "unknown member");
		sub = sub ? sub : json_is_object(more) ? more : NULL;
		if (sub && !schema_node(w, sub, value, at))
			return false;
	}
	return true;
}

static bool schema_array(struct schema_walk *w, const json_t *schema, const json_t *v, const char *path)
{
	const json_t *items = json_object_get(schema, "items"), *least = json_object_get(schema, "minItems");
	const json_t *most = json_object_get(schema, "maxItems");
	char at[512];

	if ((least && (json_int_t)json_array_size(v) < json_integer_value(least)) ||
	    (most && (json_int_t)json_array_size(v) > json_integer_value(most)))
		return schema_fail(w, path, "wrong length");
	for (size_t i = 0; items && i < json_array_size(v); i++) {
		snprintf(at, sizeof at, "%s[%zu]", path, i);
		if (!schema_node(w, items, json_array_get(v, i), at))
			return false;
	}
	return true;
}

static bool schema_pattern(const json_t *pattern, const json_t *v)
{
	regex_t re;

	if (!pattern || !json_is_string(v))
		return true;
	if (regcomp(&re, json_string_value(pattern), REG_EXTENDED | REG_NOSUB))
		return false;
	bool ok = regexec(&re, json_string_value(v), 0, NULL, 0) == 0;

	regfree(&re);
	return ok;
}

static bool schema_any(struct schema_walk *w, const json_t *any, const json_t *v, const char *path)
{
	for (size_t i = 0; i < json_array_size(any); i++)
		if (schema_node(w, json_array_get(any, i), v, path))
			return true;
	return false;
}

static bool schema_node(struct schema_walk *w, const json_t *schema, const json_t *v, const char *path)
{
	const char *ref = json_string_value(json_object_get(schema, "$ref"));
	const json_t *options = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
	const json_t *any = json_object_get(schema, "anyOf"), *least = json_object_get(schema, "minimum");
	const json_t *most = json_object_get(schema, "maximum");
	bool among = !options;

	if (ref)
		return schema_node(w, json_object_get(json_object_get(w->root, "$defs"), ref + strlen("#/$defs/")), v, path);
	for (size_t i = 0; i < json_array_size(options); i++)
		among = among || json_equal(json_array_get(options, i), v);
	if (!among || (only && !json_equal(only, v)))
		return schema_fail(w, path, "not one of the values");
	if (any && !schema_any(w, any, v, path))
		return false;
	if (!schema_type(json_object_get(schema, "type"), v))
		return schema_fail(w, path, "wrong type");
	if (json_is_number(v) && ((least && json_number_value(v) < json_number_value(least)) ||
				  (most && json_number_value(v) > json_number_value(most))))
		return schema_fail(w, path, "out of range");
	if (!schema_pattern(json_object_get(schema, "pattern"), v))
		return schema_fail(w, path, "does not match the pattern");
	if (json_is_object(v))
		return schema_object(w, schema, v, path);
	return !json_is_array(v) || schema_array(w, schema, v, path);
}

/* False: `what` says where and why. */
static bool schema_holds(const char *file, const json_t *v, char *what, size_t size)
{
	json_error_t error;
	json_t *root = json_load_file(file, 0, &error);
	struct schema_walk w = { .root = root, .what = what, .size = size };

	if (!root) {
		snprintf(what, size, "%s: %s", file, error.text);
		return false;
	}
	bool ok = schema_node(&w, root, v, "$");

	json_decref(root);
	return ok;
}

#endif
