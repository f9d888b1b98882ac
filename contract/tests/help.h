/* What the tests of contract/ share. */
#ifndef ASSAY_CONTRACT_TESTS_HELP_H
#define ASSAY_CONTRACT_TESTS_HELP_H

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "contract/file.h"

#define ck_ok(status, err) ck_assert_msg((status) == 0 && (err).kind == ERR_NONE, "%s", (err).text)

/* Runs the suite and returns main's exit status. */
static inline int help_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* An empty directory; the caller removes it with help_remove. */
static inline char *help_directory(void)
{
	const char *tmp = getenv("TMPDIR");
	char *path = xasprintf("%s/assay-check-XXXXXX", tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");

	ck_assert_ptr_nonnull(mkdtemp(path));
	return path;
}

/* Names in a directory, . and .. aside. */
static inline int help_count(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	ck_assert_ptr_nonnull(d);
	for (struct dirent *e; (e = readdir(d)) != NULL; )
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}

/* Removes a directory of files, and frees its name. */
static inline void help_remove(char *dir)
{
	DIR *d = opendir(dir);

	for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
		char *path = path_join(dir, e->d_name);

		unlink(path);
		free(path);
	}
	if (d != NULL)
		closedir(d);
	rmdir(dir);
	free(dir);
}

static inline char *help_slurp(const char *path, size_t *size)
{
	struct err err = { 0 };
	char *bytes = file_read(path, 64 << 20, size, &err);

	ck_assert_msg(bytes != NULL, "%s (tests run from the repository root)", err.text);
	return bytes;
}

/* Equal texts; complains about the first line that differs. */
static inline void help_same_text(const char *found, const char *expected)
{
	for (int line = 1; strcmp(found, expected) != 0; line++) {
		size_t n = strcspn(found, "\n"), m = strcspn(expected, "\n");

		ck_assert_msg(n == m && memcmp(found, expected, n) == 0, "line %d: expected %.*s, found %.*s", line,
			      (int)(m < 300 ? m : 300), expected, (int)(n < 300 ? n : 300), found);
		ck_assert_msg(found[n] == expected[m], "line %d: one of the texts ends here", line);
		found += n + 1;
		expected += m + 1;
	}
}

static int help_by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every NAME.json that has a NAME.error beside it is loaded, and must be refused with that text behind the path.
 * Returns how many there are. */
static inline int help_refused(const char *dir, int (*load)(const char *path, struct err *err))
{
	DIR *d = opendir(dir);
	char **names = NULL;
	size_t size;
	int n = 0;

	ck_assert_msg(d != NULL, "%s cannot be opened (tests run from the repository root)", dir);
	for (struct dirent *e; (e = readdir(d)) != NULL; ) {
		char *dot = strstr(e->d_name, ".error");

		if (dot == NULL || strlen(dot) != 6)
			continue;
		names = xrealloc(names, (size_t)n + 1, sizeof(*names));
		names[n++] = xasprintf("%s/%.*s", dir, (int)(dot - e->d_name), e->d_name);
	}
	closedir(d);
	qsort(names, (size_t)n, sizeof(*names), help_by_name);
	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s.json", names[i]), *error = xasprintf("%s.error", names[i]);
		char *expected = help_slurp(error, &size), *whole;
		struct err err = { 0 };

		expected[strcspn(expected, "\n")] = '\0';
		whole = xasprintf("%s:%s", path, expected);
		ck_assert_msg(load(path, &err) == -1, "%s was accepted", path);
		ck_assert_str_eq(err.text, whole);
		ck_assert_int_eq(err.kind, ERR_INPUT);
		free(whole);
		free(expected);
		free(error);
		free(path);
		free(names[i]);
	}
	free(names);
	return n;
}

#endif
