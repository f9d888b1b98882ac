/* A canned run directory that a test may change, and what the judge says of it. */
#ifndef ASSAY_GATES_TESTS_RUN_DIR_H
#define ASSAY_GATES_TESTS_RUN_DIR_H

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/file.h"
#include "contract/json.h"
#include "contract/tests/schema_check.h"
#include "gates/verdict.h"

#define CASES "gates/tests/verdicts/"

static char run[64];
static json_t *golden, *verdict;
static struct err err;

static char *in_run(const char *name)
{
	return path_join(run, name);
}

static void copy_files(const char *from, const char *to)
{
	DIR *dir = opendir(from);
	struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		char *a = path_join(from, entry->d_name), *b = path_join(to, entry->d_name);

		if (strchr(entry->d_name, '.') && entry->d_name[0] != '.')
			ck_assert_msg(!file_copy(a, b, &err), "%s", err.text);
		free(a);
		free(b);
	}
	closedir(dir);
}

static json_t *read_json(const char *name)
{
	char *path = in_run(name);
	json_t *j = json_read_file(path, false, &err);

	ck_assert_msg(j != NULL, "%s", err.text);
	free(path);
	return j;
}

static void write_json(const char *name, const json_t *j)
{
	char *path = in_run(name);

	ck_assert_msg(!json_write_file(j, path, JSON_COMPACT, &err), "%s", err.text);
	free(path);
}

static inline void write_text(const char *name, const char *text)
{
	char *path = in_run(name);

	ck_assert(!file_write(path, text, strlen(text), &err));
	free(path);
}

static inline void remove_file(const char *name)
{
	char *path = in_run(name);

	ck_assert_int_eq(unlink(path), 0);
	free(path);
}

/* Starts from a canned case. */
static inline void use(const char *name)
{
	char *from = xasprintf(CASES "%s", name), *legs = path_join(from, "legs"), *to;

	err = (struct err){ 0 };
	strcpy(run, "/tmp/assay-judge-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(run));
	to = in_run("legs");
	ck_assert(!file_mkdirs(to, &err));
	copy_files(from, run);
	copy_files(legs, to);
	golden = read_json("golden.json");
	free(from);
	free(legs);
	free(to);
}

static void remove_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char *inside = path_join(path, entry->d_name);

		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && unlink(inside))
			remove_tree(inside);
		free(inside);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static void stop(void)
{
	json_decref(golden);
	json_decref(verdict);
	golden = verdict = NULL;
	if (run[0])
		remove_tree(run);
	run[0] = '\0';
}

static inline void judge(void)
{
	json_decref(verdict);
	verdict = verdict_judge(run, &err);
	ck_assert_msg(verdict != NULL, "%s", err.text);
	ck_assert_msg(schema_check("verdict", NULL, verdict, &err), "%s", err.text);
}

static const char *leg_says(const char *leg, const char *key)
{
	const json_t *v = json_object_get(json_object_get(json_object_get(verdict, "legs"), leg), key);

	return json_is_string(v) ? json_string_value(v) : "null";
}

static inline void leg_is(const char *leg, const char *want, const char *adjudication, const char *reason)
{
	ck_assert_msg(!strcmp(leg_says(leg, "verdict"), want), "%s is %s: %s", leg, leg_says(leg, "verdict"), leg_says(leg, "reason"));
	ck_assert_str_eq(leg_says(leg, "adjudication"), adjudication);
	ck_assert_msg(strstr(leg_says(leg, "reason"), reason) != NULL, "`%s` is not in `%s`", reason, leg_says(leg, "reason"));
}

static inline const char *overall(void)
{
	return json_string_value(json_object_get(json_object_get(verdict, "overall"), "verdict"));
}

/* Judges with a report that was changed by a jansson path: "modes free prompts 0 ids 3", value NULL: deleted. */
static json_t *walk(json_t *at, const char *path, char last[64])
{
	char *copy = xstrdup(path), *save = NULL, *word = strtok_r(copy, " ", &save), *next;

	for (; (next = strtok_r(NULL, " ", &save)); word = next)
		at = json_is_array(at) ? json_array_get(at, (size_t)atoi(word)) : json_object_get(at, word);
	snprintf(last, 64, "%s", word);
	free(copy);
	ck_assert_msg(at != NULL, "no %s", path);
	return at;
}

static void change(json_t *doc, const char *path, json_t *value)
{
	char last[64];
	json_t *at = walk(doc, path, last);

	if (json_is_array(at) && !value)
		ck_assert(!json_array_remove(at, (size_t)atoi(last)));
	else if (json_is_array(at))
		ck_assert(!json_array_set_new(at, (size_t)atoi(last), value));
	else if (!value)
		ck_assert(!json_object_del(at, last));
	else
		ck_assert(!json_object_set_new(at, last, value));
}

static inline void change_report(const char *leg, const char *path, json_t *value)
{
	char *name = xasprintf("legs/%s.json", leg);
	json_t *r = read_json(name);

	change(r, path, value);
	write_json(name, r);
	json_decref(r);
	free(name);
}

/* The golden of the run, and the reports say that they saw it. */
static inline void rewrite_golden(const char *leg)
{
	char *path = in_run("golden.json"), hex[SHA256_HEX];

	write_json("golden.json", golden);
	ck_assert(!sha256_file(path, hex, &err));
	change_report(leg, "golden_sha256", json_string(hex));
	free(path);
}

static inline void rewrite_recipe(const char *from, const char *to)
{
	char *path = in_run("recipe.yaml"), *old, *at, *new;
	size_t size;

	old = file_read(path, 1 << 20, &size, &err);
	at = strstr(old, from);
	ck_assert_msg(at != NULL, "`%s` is not in the recipe", from);
	new = xasprintf("%.*s%s%s", (int)(at - old), old, to, at + strlen(from));
	write_text("recipe.yaml", new);
	free(new);
	free(old);
	free(path);
}

#endif
