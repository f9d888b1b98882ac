/* The error object and the x-allocators. */
#include <signal.h>
#include "help.h"

/* so that an allocation that is too large returns NULL under a sanitizer too */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

START_TEST(first_message_wins)
{
	struct err err = { 0 };

	ck_assert_int_eq(err_set(&err, ERR_CANNOT_RUN, "no %s", "device"), -1);
	ck_assert_int_eq(err_set(&err, ERR_INPUT, "later"), -1);
	ck_assert_int_eq(err.kind, ERR_CANNOT_RUN);
	ck_assert_str_eq(err.text, "no device");
}
END_TEST

START_TEST(message_is_one_printable_line)
{
	struct err err = { 0 };

	/* newline, escape, DEL, C1 (CSI as U+009B), a lone byte, an overlong slash, a surrogate, and good UTF-8 */
	err_set(&err, ERR_INPUT, "%s", "a\nb\033[31mc\x7f\xc2\x9b" "d\xff\xc0\xaf\xed\xa0\x80 \xe2\x80\x9c\xf0\x9f\x99\x82");
	ck_assert_str_eq(err.text, "a?b?[31mc??d?????? \xe2\x80\x9c\xf0\x9f\x99\x82");
	/* U+202E turns what follows around; U+200B cannot be seen */
	err = (struct err){ 0 };
	err_set(&err, ERR_INPUT, "%s", "a\xe2\x80\xae" "b\xe2\x80\x8b" "c");
	ck_assert_str_eq(err.text, "a?b?c");
}
END_TEST

START_TEST(long_message_is_cut)
{
	struct err err = { 0 };
	char text[3000];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	/* the last character that fits is half of a letter */
	memcpy(text + sizeof(err.text) - 2, "\xc3\xa9", 2);
	err_set(&err, ERR_INPUT, "%s", text);
	ck_assert_uint_eq(strlen(err.text), sizeof(err.text) - 1);
	ck_assert_int_eq(err.text[sizeof(err.text) - 2], '?');
}
END_TEST

START_TEST(allocators_count_and_zero)
{
	unsigned long before = xalloc_count();
	unsigned char *p = xcalloc(3, 5);
	char *s = xasprintf("%d-%s", 7, "x"), *t = xstrdup(s);

	for (int i = 0; i < 15; i++)
		ck_assert_uint_eq(p[i], 0);
	ck_assert_str_eq(t, "7-x");
	ck_assert_uint_eq(xalloc_count() - before, 3);
	free(p);
	free(s);
	free(t);
	p = xmalloc(0);
	ck_assert_ptr_nonnull(p);
	free(p);
	p = xcalloc(0, 8);
	ck_assert_ptr_nonnull(p);
	free(p);
}
END_TEST

START_TEST(out_of_memory_ends_with_2)
{
	free(xmalloc((size_t)1 << 62));
}
END_TEST

START_TEST(overflow_ends_with_2)
{
	free(xrealloc(NULL, (size_t)1 << 40, (size_t)1 << 40));
}
END_TEST

START_TEST(calloc_overflow_ends_with_2)
{
	free(xcalloc((size_t)1 << 40, (size_t)1 << 40));
}
END_TEST

START_TEST(bug_aborts)
{
	BUG("on purpose: %d", 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("err");
	TCase *tc = tcase_create("err");

	tcase_add_test(tc, first_message_wins);
	tcase_add_test(tc, message_is_one_printable_line);
	tcase_add_test(tc, long_message_is_cut);
	tcase_add_test(tc, allocators_count_and_zero);
	tcase_add_exit_test(tc, out_of_memory_ends_with_2, 2);
	tcase_add_exit_test(tc, overflow_ends_with_2, 2);
	tcase_add_exit_test(tc, calloc_overflow_ends_with_2, 2);
	tcase_add_test_raise_signal(tc, bug_aborts, SIGABRT);
	suite_add_tcase(suite, tc);
	return help_run(suite);
}
