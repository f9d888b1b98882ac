/* JSON Schema for tests: the keywords that contract/schemas use, and no others (an unknown one fails).
 * Documents are checked against the schema that users are given, by other code than what wrote them. */
#ifndef ASSAY_CONTRACT_TESTS_SCHEMA_CHECK_H
#define ASSAY_CONTRACT_TESTS_SCHEMA_CHECK_H

#include <jansson.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/json.h"
#include "contract/schemas.h"

static bool schema_valid(const json_t *root, const json_t *schema, const json_t *v, const char *path, struct err *err);

static bool schema_says(struct err *err, const char *path, const char *what, const json_t *v)
{
	char *text = v != NULL ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

	err_set(err, ERR_INPUT, "%s: %s: %.200s", path, what, text ? text : "");
	free(text);
	return false;
}

static const json_t *schema_ref(const json_t *root, const json_t *schema)
{
	const char *ref = json_string_value(json_object_get(schema, "$ref"));

	if (ref == NULL)
		return NULL;
	if (strcmp(ref, "#") == 0)
		return root;
	BUG_ON(strncmp(ref, "#/$defs/", 8) != 0);
	return json_object_get(json_object_get(root, "$defs"), ref + 8);
}

static bool schema_type(const char *type, const json_t *v)
{
	return (strcmp(type, "object") == 0 && json_is_object(v)) || (strcmp(type, "array") == 0 && json_is_array(v)) ||
	       (strcmp(type, "string") == 0 && json_is_string(v)) || (strcmp(type, "null") == 0 && json_is_null(v)) ||
	       (strcmp(type, "integer") == 0 && json_is_integer(v)) || (strcmp(type, "number") == 0 && json_is_number(v)) ||
	       (strcmp(type, "boolean") == 0 && json_is_boolean(v));
}

static bool schema_equal(const json_t *a, const json_t *b)
{
	return json_equal(a, b) || (json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b));
}

static int schema_any(const json_t *root, const json_t *list, const json_t *v, const char *path)
{
	const json_t *s;
	size_t i;
	int n = 0;

	json_array_foreach(list, i, s) {
		struct err quiet = { 0 };

		n += schema_valid(root, s, v, path, &quiet);
	}
	return n;
}

static bool schema_object(const json_t *root, const json_t *schema, const json_t *v, const char *path, struct err *err)
{
	const json_t *props = json_object_get(schema, "properties"), *extra = json_object_get(schema, "additionalProperties");
	const json_t *names = json_object_get(schema, "propertyNames"), *item, *ref = schema_ref(root, schema);
	const char *key;
	char inner[512];
	json_t *value;
	size_t i;

	if (json_object_size(v) < (size_t)json_integer_value(json_object_get(schema, "minProperties")))
		return schema_says(err, path, "too few members", v);
	json_array_foreach(json_object_get(schema, "required"), i, item)
		if (json_object_get(v, json_string_value(item)) == NULL)
			return schema_says(err, path, "missing", item);
	json_object_foreach((json_t *)v, key, value) {
		const json_t *s = json_object_get(props, key);
		json_t *name = json_string(key);
		bool named = names == NULL || schema_valid(root, names, name, path, err);

		json_decref(name);
		if (!named)
			return false;
		json_path(inner, sizeof(inner), path, key);
		if (s != NULL) {
			if (!schema_valid(root, s, value, inner, err))
				return false;
		} else if (json_is_false(extra)) {
			return schema_says(err, inner, "unknown", value);
		} else if (json_is_object(extra) && !schema_valid(root, extra, value, inner, err)) {
			return false;
		} else if (json_is_false(json_object_get(schema, "unevaluatedProperties")) &&
			   json_object_get(json_object_get(ref, "properties"), key) == NULL) {
			return schema_says(err, inner, "unknown", value);
		}
	}
	return true;
}

static bool schema_array(const json_t *root, const json_t *schema, const json_t *v, const char *path, struct err *err)
{
	const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items"), *item;
	const json_t *most = json_object_get(schema, "maxItems");
	char inner[512];
	size_t i;

	if (json_array_size(v) < (size_t)json_integer_value(json_object_get(schema, "minItems")) ||
	    (most != NULL && json_array_size(v) > (size_t)json_integer_value(most)))
		return schema_says(err, path, "number of items", v);
	json_array_foreach(v, i, item) {
		const json_t *s = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;

		snprintf(inner, sizeof(inner), "%s[%zu]", path, i);
		if (json_is_false(s))
			return schema_says(err, inner, "one item too many", item);
		if (s != NULL && !schema_valid(root, s, item, inner, err))
			return false;
		for (size_t j = 0; j < i && json_is_true(json_object_get(schema, "uniqueItems")); j++)
			if (schema_equal(json_array_get(v, j), item))
				return schema_says(err, inner, "twice", item);
	}
	return true;
}

static bool schema_string(const json_t *schema, const json_t *v, const char *path, struct err *err)
{
	const char *pattern = json_string_value(json_object_get(schema, "pattern"));
	regex_t regex;
	bool match;

	if (json_string_length(v) < (size_t)json_integer_value(json_object_get(schema, "minLength")))
		return schema_says(err, path, "too short", v);
	if (pattern == NULL)
		return true;
	BUG_ON(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0);
	match = regexec(&regex, json_string_value(v), 0, NULL, 0) == 0;
	regfree(&regex);
	return match || schema_says(err, path, "does not match the pattern", v);
}

static bool schema_number(const json_t *schema, const json_t *v, const char *path, struct err *err)
{
	const json_t *min = json_object_get(schema, "minimum"), *max = json_object_get(schema, "maximum");
	const json_t *above = json_object_get(schema, "exclusiveMinimum");
	double x = json_number_value(v);

	if ((min != NULL && x < json_number_value(min)) || (max != NULL && x > json_number_value(max)) ||
	    (above != NULL && x <= json_number_value(above)))
		return schema_says(err, path, "out of range", v);
	return true;
}

/* type, enum, const and the combinations of schemas */
static bool schema_combined(const json_t *root, const json_t *schema, const json_t *v, const char *path, struct err *err)
{
	const json_t *type = json_object_get(schema, "type"), *list, *item;
	struct err quiet = { 0 };
	bool ok = false;
	size_t i;

	if (json_is_string(type) && !schema_type(json_string_value(type), v))
		return schema_says(err, path, json_string_value(type), v);
	json_array_foreach(type, i, item)
		ok = ok || schema_type(json_string_value(item), v);
	if (json_is_array(type) && !ok)
		return schema_says(err, path, "wrong type", v);
	list = json_object_get(schema, "enum");
	ok = list == NULL;
	json_array_foreach(list, i, item)
		ok = ok || schema_equal(item, v);
	if (!ok || ((item = json_object_get(schema, "const")) != NULL && !schema_equal(item, v)))
		return schema_says(err, path, "not one of the values", v);
	if ((list = json_object_get(schema, "anyOf")) != NULL && schema_any(root, list, v, path) == 0)
		return schema_says(err, path, "none of anyOf", v);
	if ((list = json_object_get(schema, "oneOf")) != NULL && schema_any(root, list, v, path) != 1)
		return schema_says(err, path, "not exactly one of oneOf", v);
	if ((item = json_object_get(schema, "not")) != NULL && schema_valid(root, item, v, path, &quiet))
		return schema_says(err, path, "matches what it must not", v);
	quiet = (struct err){ 0 };
	if ((item = json_object_get(schema, "if")) != NULL && schema_valid(root, item, v, path, &quiet))
		return schema_valid(root, json_object_get(schema, "then"), v, path, err);
	return true;
}

static bool schema_valid(const json_t *root, const json_t *schema, const json_t *v, const char *path, struct err *err)
{
	static const char known[] = " $schema $id title description $defs default $ref type properties required enum const "
		"additionalProperties propertyNames minProperties unevaluatedProperties items prefixItems minItems maxItems "
		"uniqueItems pattern minLength minimum maximum exclusiveMinimum anyOf oneOf not if then ";
	const json_t *ref = schema_ref(root, schema);
	const char *key;
	char word[64];
	json_t *value;

	json_object_foreach((json_t *)schema, key, value) {
		snprintf(word, sizeof(word), " %s ", key);
		if (strstr(known, word) == NULL)
			BUG("schema_check.h does not know the keyword %s", key);
	}
	if (ref != NULL && !schema_valid(root, ref, v, path, err))
		return false;
	return schema_combined(root, schema, v, path, err) &&
	       (!json_is_object(v) || schema_object(root, schema, v, path, err)) &&
	       (!json_is_array(v) || schema_array(root, schema, v, path, err)) &&
	       (!json_is_string(v) || schema_string(schema, v, path, err)) &&
	       (!json_is_number(v) || schema_number(schema, v, path, err));
}

/* Is the document valid under the schema NAME, or under NAME's $defs/DEF?  err says where not. */
static inline bool schema_check(const char *name, const char *def, const json_t *document, struct err *err)
{
	const char *text = schema_text(name);
	json_t *root = text != NULL ? json_loads(text, 0, NULL) : NULL;
	bool ok;

	BUG_ON(root == NULL);
	ok = schema_valid(root, def ? json_object_get(json_object_get(root, "$defs"), def) : root, document, "$", err);
	json_decref(root);
	return ok;
}

#endif
