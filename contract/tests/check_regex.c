/* Matches were found by hand from the definition of each construct. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/regex.h"
#include "contract/utf8.h"

/* ---- matching ---- */

static const struct { const char *pattern, *text; int start, end; } matching[] = {
	{ "b+", "abbc", 1, 3 },
	{ "[^a-c]", "abcd", 3, 4 },
	{ "[a\\-c]+", "b-ca", 1, 4 },
	{ "[-a]+", "b-a", 1, 3 },
	{ "[a-]+", "b-a", 1, 3 },
	{ "\\.\\*\\[", "a.*[", 1, 4 },
	{ "a{2}", "aaa", 0, 2 },
	{ "a{2,}", "baaa", 1, 4 },
	{ "a{1,2}", "aaa", 0, 2 },
	{ "a+?", "aaa", 0, 1 },
	{ "a++a|b", "aab", 2, 3 },
	{ "a(?=b)", "aab", 1, 2 },
	{ "a(?!b)", "abaa", 2, 3 },
	{ "(?>a+)b", "aab", 0, 3 },
	{ "(?:ab)+|(c)", "ababc", 0, 4 },
	{ "\\d+", "x\xd9\xa1\xd9\xa2", 1, 5 },                  /* Arabic digits are Nd */
	{ "\\S", "\xc2\xa0\xe3\x80\x80x", 5, 6 },               /* no-break and ideographic space */
	{ "\\s", "x\xc2\x85", 1, 3 },                           /* NEL */
	{ "\\s", "x\xe1\xa0\x8e ", 4, 5 },                      /* U+180E is none */
	{ "\\p{Lu}", "\xc3\xa9\xc3\x89", 2, 4 },
	{ "\\P{L}", "\xe6\xbc\xa2!", 3, 4 },
	{ "\\p{Lo}", "!\xf0\xb1\x8d\x90", 1, 5 },               /* U+31350, of Unicode 15.0 */
	{ "\\p{Mc}", "\xf0\x91\x9c\x9e", 0, 4 },                /* U+1171E, Mn until Unicode 15.0 */
	{ "\\p{Nd}", "!\xf0\x90\xb5\x80", 1, 5 },               /* U+10D40, of Unicode 16.0 */
	{ "(?i:'s|'t|'re|'ve|'m|'ll|'d)", "x'LL", 1, 4 },
	{ "(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'\xc5\xbf", 0, 3 },  /* long s folds to s */
	{ "a\\r?\\n\\t", "a\n\t", 0, 3 },
	{ "z", "abc", -1, -1 },
};

START_TEST(test_matching)
{
	struct err err = { 0 };
	struct regex_scan scan = { 0 };
	struct regex *r = regex_compile(matching[_i].pattern, "F: $.p", &err);
	char text[32];
	size_t size = strlen(matching[_i].text), start = 99, end = 99;
	int found;

	ck_assert_msg(r != NULL, "%s", err.text);
	memcpy(text, matching[_i].text, size + 1);
	utf8_stand_in(text, size);
	regex_scan_open(&scan, size);
	found = regex_next(r, &scan, text, size, 0, &start, &end, &err);
	ck_assert_int_eq(found, matching[_i].start >= 0);
	if (found) {
		ck_assert_uint_eq(start, (size_t)matching[_i].start);
		ck_assert_uint_eq(end, (size_t)matching[_i].end);
	}
	regex_scan_release(&scan);
	regex_free(r);
}
END_TEST

/* ---- refusing ---- */

static const struct { const char *pattern, *message; } refused[] = {
	{ "a.b", "offset 1: \".\" is not supported here" },
	{ "^a", "offset 0: \"^\" is not supported here" },
	{ "a$", "offset 1: \"$\" is not supported here" },
	{ "a]", "offset 1: \"]\" is not supported here" },
	{ "a}", "offset 1: \"}\" is not supported here" },
	{ "\\w", "offset 0: \"\\w\" is not supported" },
	{ "a\\b", "offset 1: \"\\b\" is not supported" },
	{ "\\h", "offset 0: \"\\h\" is not supported" },
	{ "(a)\\1", "offset 3: \"\\1\" is not supported" },
	{ "\\x{41}", "offset 0: \"\\x\" is not supported" },
	{ "a\\", "offset 1: \"\\\" is not supported" },
	{ "\\p{Han}", "offset 0: \"\\p{Han}\" is not supported (general categories as in \\p{Lu} are)" },
	{ "\\p{^L}", "offset 0: \"\\p{^L}\" is not supported (general categories as in \\p{Lu} are)" },
	{ "\\p{}", "offset 0: \"\\p{}\" is not supported (general categories as in \\p{Lu} are)" },
	{ "\\pL", "offset 0: \"\\p\" is not supported (general categories as in \\p{Lu} are)" },
	{ "[a[b]]", "offset 2: \"[\" is not supported in a class" },
	{ "[[:alpha:]]", "offset 1: \"[\" is not supported in a class" },
	{ "[a-[b]]", "offset 3: \"[\" is not supported in a class" },
	{ "[]a]", "offset 1: \"]\" is not supported in a class" },
	{ "[a&&b]", "offset 2: \"&&\" is not supported in a class" },
	{ "[\\s-a]", "offset 3: \"-\" is not supported after a set or a range" },
	{ "[a-c-e]", "offset 4: \"-\" is not supported after a set or a range" },
	{ "[a-\\d]", "offset 0: \"[a-\\d\" is not supported (a range ends in a set)" },
	{ "[ab", "offset 0: \"[\" is not supported without its ]" },
	{ "[a-", "offset 0: \"[\" is not supported without its ]" },
	{ "[a\\", "offset 2: \"\\\" is not supported" },
	{ "(?i:a)", "offset 0: \"(?i\" is not supported" },
	{ "(?<=a)b", "offset 0: \"(?<\" is not supported" },
	{ "(?", "offset 0: \"(?\" is not supported" },
	{ "(*UCP)a", "offset 0: \"(*\" is not supported" },
	{ "a{,3}", "offset 1: \"{\" is not supported but as {n}, {n,} or {n,m}" },
	{ "a{2", "offset 1: \"{\" is not supported but as {n}, {n,} or {n,m}" },
	{ "a{2}+", "offset 1: \"{2}+\" is not supported" },
	{ "a{2,3}?", "offset 1: \"{2,3}?\" is not supported" },
	{ "a\xc3\xa9", "offset 1: a character that is not printable ASCII is not supported" },
	{ "a\n", "offset 1: a character that is not printable ASCII is not supported" },
	{ "a*", "a pattern that matches the empty string is not supported" },
	{ "a|", "a pattern that matches the empty string is not supported" },
	{ "(?=a)", "a pattern that matches the empty string is not supported" },
	{ "(a", "offset 2: missing closing parenthesis" },
	{ "a)", "offset 1: unmatched closing parenthesis" },
	{ "+a", "offset 0: quantifier does not follow a repeatable item" },
};

START_TEST(test_refused)
{
	struct err err = { 0 };
	char want[256];

	snprintf(want, sizeof(want), "F: $.p: %s", refused[_i].message);
	ck_assert_ptr_null(regex_compile(refused[_i].pattern, "F: $.p", &err));
	ck_assert_str_eq(err.text, want);
	ck_assert_int_eq(err.kind, ERR_INPUT);
}
END_TEST

START_TEST(test_word_character)
{
	static const struct { const char *text; bool is_word; } words[] = {
		{ "a", true }, { "_", true }, { "7", true }, { "\xcc\x81", true },      /* U+0301, Mn */
		{ "\xe2\x93\x90", true },                                               /* circled a: So, Alphabetic */
		{ "\xe2\x80\x8d", true },                                               /* zero width joiner */
		{ "-", false }, { " ", false }, { "\xc2\xb2", false },                  /* superscript two: No */
	};
	struct err err = { 0 };
	struct regex *r = regex_word_character();
	struct regex_scan scan = { 0 };
	size_t start, end;

	regex_scan_open(&scan, 4);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		ck_assert_int_eq(regex_next(r, &scan, words[i].text, strlen(words[i].text), 0, &start, &end, &err),
				 words[i].is_word);
	regex_scan_release(&scan);
	regex_free(r);
}
END_TEST

/* ---- UTF-8 ---- */

/* The examples of the Unicode Standard, tables 3-8 to 3-11, and the borders of each length. */
START_TEST(test_lossy)
{
	static const struct { const char *bytes, *want; } texts[] = {
		{ "", "" },
		{ "a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80", "a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80" },
		{ "\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "????????A" },
		{ "\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", "????????A" },
		{ "\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", "?????A??B" },
		{ "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "????A" },
		{ "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
		  "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf" },
		{ "\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80" },
		{ "\xf5\xf8\xfe", "???" }, { "x\xf0\x9f\x98", "x?" }, { "\xc3", "?" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char want[64] = "", *to = want, *got;
		size_t size;

		for (const char *p = texts[i].want; *p != '\0'; p++) {     /* ? stands for U+FFFD */
			strcpy(to, "\xef\xbf\xbd");
			if (*p != '?')
				to[0] = *p;
			to += *p == '?' ? 3 : 1;
		}
		*to = '\0';
		got = utf8_lossy(texts[i].bytes, strlen(texts[i].bytes), &size);
		ck_assert_str_eq(got, want);
		ck_assert_uint_eq(size, strlen(want));
		free(got);
	}
}
END_TEST

START_TEST(test_lossy_nul)
{
	size_t size;
	char *got = utf8_lossy("a\0\xffz", 4, &size);

	ck_assert_uint_eq(size, 6);
	ck_assert_mem_eq(got, "a\0\xef\xbf\xbdz", 7);
	free(got);
}
END_TEST

/* Every character is read back as written, and a stand-in keeps the length and leaves what comes after alone. */
START_TEST(test_every_character)
{
	int replaced = 0, spaces = 0;
	uint32_t wrong = 0;     /* the last; an assertion a character would take a minute */

	for (uint32_t code = 0; code < 0x110000; code++) {
		char text[8] = "\x55\x55\x55\x55\x55\x55\x55";
		uint32_t back = 0;
		size_t n;

		if (code >= 0xd800 && code < 0xe000)
			continue;
		n = utf8_put(text, code);
		if (utf8_get(text, &back) != n || back != code || text[n] != 0x55)
			wrong = code;
		utf8_stand_in(text, n);
		if (utf8_get(text, &back) != n || text[n] != 0x55)
			wrong = code;
		replaced += back != code;
		spaces += unicode_is_space(code);
	}
	ck_assert_msg(wrong == 0, "U+%04X", (unsigned)wrong);
	/* Unicode 14.0 assigns 144,697 characters, 16.0 154,998; and U+1171E and U+180E */
	ck_assert_int_eq(replaced, 154998 - 144697 + 2);
	ck_assert_int_eq(spaces, 25);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("regex");
	TCase *regex = tcase_create("regex"), *utf8 = tcase_create("utf8");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_loop_test(regex, test_matching, 0, sizeof(matching) / sizeof(matching[0]));
	tcase_add_loop_test(regex, test_refused, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(regex, test_word_character);
	tcase_set_timeout(utf8, 60);            /* for the sanitizers on a busy machine */
	tcase_add_test(utf8, test_lossy);
	tcase_add_test(utf8, test_lossy_nul);
	tcase_add_test(utf8, test_every_character);
	suite_add_tcase(suite, regex);
	suite_add_tcase(suite, utf8);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
