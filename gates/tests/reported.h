/* A canned run as `assay report` has it in hand. */
#ifndef ASSAY_GATES_TESTS_REPORTED_H
#define ASSAY_GATES_TESTS_REPORTED_H

#include "gates/page.h"
#include "run_dir.h"

static struct findings found;

static inline void load(void)
{
	ck_assert_msg(!findings_load(&found, run, &err), "%s", err.text);
}

static inline void end(void)
{
	findings_release(&found);
	stop();
}

static inline int count_of(const char *text, const char *part)
{
	int n = 0;

	for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
		n++;
	return n;
}

#define has(text, part) ck_assert_msg(strstr(text, part) != NULL, "`%s` is not in `%.400s`", part, text)
#define lacks(text, part) ck_assert_msg(strstr(text, part) == NULL, "`%s` is in it", part)

/* Markup, a direction mark, a fence of every format; JSON has no NUL and no invalid UTF-8, tokens have (check_page.py). */
#define NASTY "</script><b>x</b> \xe2\x80\xae]]> | `c` [l](u) @all\n::error::%0A"

static inline void nasty_question(void)
{
	char *quoted = xasprintf("kind: gate\nquestion: \"%s\"", "</script><b>x</b> \\u202e]]> | `c` [l](u) @all \\n::error::%0A");

	rewrite_recipe("kind: gate", quoted);
	free(quoted);
}

/* `more`: cases with fixtures of their own; NULL: none. */
static inline int run_suites(const char *name, TCase *c, TCase *more)
{
	Suite *s = suite_create(name);

	tcase_set_timeout(c, 120);
	tcase_add_checked_fixture(c, NULL, end);
	suite_add_tcase(s, c);
	if (more)
		suite_add_tcase(s, more);
	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	return failed != 0;
}

static inline int run_suite(const char *name, TCase *c)
{
	return run_suites(name, c, NULL);
}

#endif
