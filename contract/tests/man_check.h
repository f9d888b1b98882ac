/* Holds a man page against --help: each names the options that the other names. */
#ifndef ASSAY_CONTRACT_TESTS_MAN_CHECK_H
#define ASSAY_CONTRACT_TESTS_MAN_CHECK_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"

#define MAN_LETTERS "abcdefghijklmnopqrstuvwxyz-"

/* A page with the hyphens that troff writes as \-.  Caller frees. */
static inline char *man_page(const char *path)
{
	struct err err = {0};
	size_t size;
	char *page = file_read(path, 1 << 20, &size, &err), *to = page;

	ck_assert_msg(page != NULL, "%s", err.text);
	for (const char *p = page; *p; p++)
		if (p[0] != '\\' || p[1] != '-')
			*to++ = *p;
	*to = '\0';
	return page;
}

static inline bool man_has(const char *text, const char *option, size_t n)
{
	for (const char *p = text; (p = strstr(p, "--")); p += 2 + strspn(p + 2, MAN_LETTERS))
		if (strspn(p, MAN_LETTERS) == n && strncmp(p, option, n) == 0)
			return true;
	return false;
}

/* Every --option of `text` stands in `other`. */
static inline void man_covers(const char *other, const char *text)
{
	size_t n;

	for (const char *p = text; (p = strstr(p, "--")); p += n) {
		n = strspn(p, MAN_LETTERS);
		if (n > 2)
			ck_assert_msg(man_has(other, p, n), "%.*s is missing", (int)n, p);
	}
}

#endif
