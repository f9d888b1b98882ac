/* The judge against canned run directories: every value of every expected.json, with its tolerance. */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract/file.h"
#include "contract/json.h"
#include "contract/tests/schema_check.h"
#include "gates/verdict.h"

#define CASES "gates/tests/verdicts"
#define VALUES_AT_LEAST 6500     /* in all cases together */

static char **cases;
static int n_cases;

static int name_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void find_cases(void)
{
	DIR *dir = opendir(CASES);
	struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		char *recipe = xasprintf("%s/%s/recipe.yaml", CASES, entry->d_name);

		if (entry->d_name[0] != '.' && file_exists(recipe)) {
			cases = xrealloc(cases, (size_t)n_cases + 1, sizeof *cases);
			cases[n_cases++] = xstrdup(entry->d_name);
		}
		free(recipe);
	}
	closedir(dir);
	qsort(cases, (size_t)n_cases, sizeof *cases, name_order);
}

static json_t *judge_dir(const char *dir)
{
	struct err err = { 0 };
	json_t *v = verdict_judge(dir, &err);

	ck_assert_msg(v != NULL, "%s: %s", dir, err.text);
	return v;
}

static json_t *judge_case(const char *name)
{
	char *dir = xasprintf("%s/%s", CASES, name);
	json_t *v = judge_dir(dir);

	free(dir);
	return v;
}

/* ---- following a path */

static bool has_members(const json_t *item, const json_t *members)
{
	const char *key;
	const json_t *value;

	json_object_foreach((json_t *)members, key, value) {
		const json_t *got = json_object_get(item, key);

		if (!got || !json_equal(got, value))
			return false;
	}
	return true;
}

static const json_t *follow_one(const json_t *at, const json_t *step)
{
	size_t i;
	json_t *item;

	if (json_is_string(step))
		return json_object_get(at, json_string_value(step));
	if (json_is_integer(step))
		return json_array_get(at, (size_t)json_integer_value(step));
	json_array_foreach((json_t *)at, i, item)
		if (has_members(item, step))
			return item;
	return NULL;
}

static const json_t *follow(const json_t *verdict, const json_t *path)
{
	const json_t *at = verdict;
	size_t i;
	json_t *step;

	json_array_foreach((json_t *)path, i, step)
		at = at ? follow_one(at, step) : NULL;
	return at;
}

/* Numbers within the tolerance at any depth, everything else equal. */
static bool agrees(const json_t *got, const json_t *want, double tolerance)
{
	const char *key;
	json_t *value;
	size_t i;

	if (!got)
		return false;
	if (json_is_number(got) && json_is_number(want))
		return fabs(json_number_value(got) - json_number_value(want)) <= tolerance;
	if (json_is_array(got) && json_is_array(want)) {
		if (json_array_size(got) != json_array_size(want))
			return false;
		json_array_foreach((json_t *)want, i, value)
			if (!agrees(json_array_get(got, i), value, tolerance))
				return false;
		return true;
	}
	if (json_is_object(got) && json_is_object(want)) {
		if (json_object_size(got) != json_object_size(want))
			return false;
		json_object_foreach((json_t *)want, key, value)
			if (!agrees(json_object_get(got, key), value, tolerance))
				return false;
		return true;
	}
	return json_equal(got, want);
}

/* Compares one case; returns the number of values compared and adds the misses to *misses. */
static size_t compare_case(const char *name, size_t *misses)
{
	char *file = xasprintf("%s/%s/expected.json", CASES, name);
	struct err err = { 0 };
	json_t *expected = json_read_file(file, false, &err), *v = judge_case(name), *item;
	const json_t *values = json_object_get(expected, "values");
	size_t i, n = 0;

	ck_assert_msg(json_array_size(values) > 0, "%s: no expectations (%s)", file, err.text);
	if (json_integer_value(json_object_get(expected, "exit_code")) != verdict_exit_code(v)) {
		printf("%s: exit code %d\n", name, verdict_exit_code(v));
		++*misses;
	}
	json_array_foreach((json_t *)values, i, item) {
		const json_t *path = json_object_get(item, "path"), *want = json_object_get(item, "value");
		const json_t *got = follow(v, path);

		n++;
		if (agrees(got, want, json_number_value(json_object_get(item, "tolerance"))))
			continue;
		char *p = json_dumps(path, JSON_COMPACT), *w = json_dumps(want, JSON_ENCODE_ANY | JSON_COMPACT);
		char *g = got ? json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

		printf("%s: %s: want %s, got %s\n", name, p, w, g ? g : "nothing");
		free(p);
		free(w);
		free(g);
		++*misses;
	}
	json_decref(expected);
	json_decref(v);
	free(file);
	return n;
}

START_TEST(every_value_of_a_case)
{
	size_t misses = 0, n = compare_case(cases[_i], &misses);

	ck_assert_msg(misses == 0, "%s: %zu of %zu values differ", cases[_i], misses, n);
}
END_TEST

START_TEST(a_case_conforms_to_the_schema)
{
	json_t *v = judge_case(cases[_i]);
	struct err err = { 0 };

	ck_assert_msg(schema_check("verdict", NULL, v, &err), "%s: %s", cases[_i], err.text);
	json_decref(v);
}
END_TEST

START_TEST(there_are_thousands_of_values)
{
	size_t misses = 0, n = 0;

	for (int i = 0; i < n_cases; i++)
		n += compare_case(cases[i], &misses);
	ck_assert_int_ge(n_cases, 26);
	ck_assert_uint_ge(n, VALUES_AT_LEAST);
	printf("%zu values of %d cases compared\n", n, n_cases);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verdicts");
	TCase *canned = tcase_create("canned");

	find_cases();
	tcase_add_loop_test(canned, every_value_of_a_case, 0, n_cases);
	tcase_add_loop_test(canned, a_case_conforms_to_the_schema, 0, n_cases);
	tcase_add_test(canned, there_are_thousands_of_values);
	suite_add_tcase(s, canned);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	for (int i = 0; i < n_cases; i++)
		free(cases[i]);
	free(cases);
	return failed != 0;
}
