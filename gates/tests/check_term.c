/* Text for terminals: harmless, cut and wrapped to the width; and the progress bar. */
#include <check.h>
#include <fcntl.h>
#include <locale.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "contract/file.h"
#include "gates/progress.h"
#include "gates/show.h"
#include "gates/term.h"
#include "gates/verdict.h"

static struct term term;
static char *printed;
static size_t n_printed;

static void start(void)
{
	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
	term = (struct term){.out = open_memstream(&printed, &n_printed), .utf8 = true, .width = 40};
}

static void stop(void)
{
	fclose(term.out);
	free(printed);
}

static void check_printed(const char *expected)
{
	fflush(term.out);
	ck_assert_str_eq(printed, expected);
}

static void check_text(const char *text, bool quote, int columns, const char *expected)
{
	char *shown = term_text(&term, text, quote, columns);

	ck_assert_str_eq(shown, expected);
	if (columns)
		ck_assert_int_le(term_columns(shown), columns);
	free(shown);
}

START_TEST(text_is_harmless)
{
	check_text(" the", true, 0, "\" the\"");
	check_text("a\"b\\c", true, 0, "\"a\\\"b\\\\c\"");
	check_text("a\"b\\c", false, 0, "a\"b\\c");
	check_text("\x1b[31mred\x07\x7f", false, 0, "\\x1b[31mred\\x07\\x7f");
	check_text("\n\r\t", false, 0, "\\n\\r\\t");
	check_text("\xc2\x9b" "31m", false, 0, "\\x9b31m");                          /* CSI in one character */
	check_text("\xe2\x80\xae" "evil", false, 0, "\\u202eevil");                  /* right-to-left override */
	check_text("a\xe2\x80\x8b" "b\xef\xbb\xbf", false, 0, "a\\u200bb\\ufeff");   /* what cannot be seen */
	check_text("caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80", false, 0, "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80");
	check_text("\xff\xc3", false, 0, "\xef\xbf\xbd\xef\xbf\xbd");                /* no UTF-8 */
}
END_TEST

START_TEST(without_utf8_text_is_ascii)
{
	term.utf8 = false;
	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C"));
	check_text("caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80", false, 0, "caf\\xe9 \\u65e5 \\U01f600");
	check_text("a long text", false, 8, "a lon...");
}
END_TEST

START_TEST(text_is_cut_by_columns)
{
	check_text("a long text", false, 6, "a lon\xe2\x80\xa6");
	check_text("a long", false, 6, "a long");
	check_text("a long text", true, 8, "\"a lon\xe2\x80\xa6\"");
	check_text("\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xa7", false, 6, "\xe6\x97\xa5\xe6\x9c\xac\xe2\x80\xa6");   /* two columns each */
	check_text("\x01\x02\x03", false, 9, "\\x01\\x02\xe2\x80\xa6");               /* no half of an escape */
}
END_TEST

START_TEST(lines_are_broken_at_spaces)
{
	term_say(&term, TINT_NONE, 2, "%s", "one two three four five six seven eight nine ten");
	check_printed("one two three four five six seven eight\n  nine ten\n");
	ck_assert_int_eq(term.lines, 2);
}
END_TEST

START_TEST(a_word_that_is_too_long_is_not_broken)
{
	term_say(&term, TINT_NONE, 2, "at %s now", "/a/path/that/is/longer/than/the/width/of/the/terminal");
	check_printed("at\n  /a/path/that/is/longer/than/the/width/of/the/terminal\n  now\n");
}
END_TEST

START_TEST(color_only_where_there_is_color)
{
	term_say(&term, TINT_BAD, 0, "no");
	term.color = true;
	term_say(&term, TINT_BAD, 0, "no");
	term_say(&term, TINT_NONE, 0, "no");
	check_printed("no\n\x1b[31mno\x1b[0m\nno\n");
}
END_TEST

START_TEST(tables_line_up)
{
	struct table t = {.term = &term, .columns = 3};

	table_add(&t, TINT_NONE, "a");
	table_add_right(&t, TINT_NONE, "1");
	table_add(&t, TINT_NONE, "x");
	table_add(&t, TINT_NONE, "\xe6\x97\xa5\xe6\x9c\xac");
	table_add_right(&t, TINT_NONE, "100");
	table_add(&t, TINT_NONE, "%s", "");
	ck_assert_int_eq(table_rows(&t), 2);
	table_print(&t, &term, 0, 2, "  ");
	check_printed("  a       1  x\n  \xe6\x97\xa5\xe6\x9c\xac  100\n");
	table_release(&t);
}
END_TEST

START_TEST(narrow_tables_break_in_one_place)
{
	struct table t = {.term = &term, .columns = 3};

	term.width = 20;
	for (int row = 0; row < 2; row++) {
		table_add(&t, TINT_NONE, "first");
		table_add(&t, TINT_NONE, row ? "second" : "2nd");
		table_add(&t, TINT_NONE, row ? "third" : "the third");
	}
	table_print(&t, &term, 0, 2, "");
	check_printed("first  2nd\n    the third\nfirst  second\n    third\n");
	table_release(&t);
}
END_TEST

/* ---- the bar ---- */

static const char *const prompts[] = {"p0", "p1"};
static const int planned[] = {10, 30};

static struct progress bar(void)
{
	struct progress p = {.name = "host", .leg = 1, .n_legs = 3, .prompts = prompts, .planned = planned, .n_prompts = 2,
			     .modes = {"free", "forced"}, .n_modes = 2, .begun = 0, .leg_begun = 10, .legs_run = 1};

	progress_open(&p, 3, true);
	p.begun = 0;
	return p;
}

START_TEST(trace_lines_are_counted)
{
	ck_assert_int_eq(progress_line_tokens("ARM step T=1 nd=1 np=0 state_update_rows=23"), 1);
	ck_assert_int_eq(progress_line_tokens("ARM step T=13 nd=2 np=1 state_update_rows=23"), 3);
	ck_assert_int_eq(progress_line_tokens("loading ARM step T=1 nd=1"), 0);
	ck_assert_int_eq(progress_line_tokens("ARM step nothing"), 0);
}
END_TEST

START_TEST(the_bar_says_where_and_how_long)
{
	struct progress p = bar();
	char text[256];

	ck_assert_int_eq(p.per_leg, 80);
	p.done = 60;             /* 40 of free, 10 of p0 and 10 of p1 forced */
	/* 20 of 27 s of this leg are over; the third takes the mean of 10 and 26.7 s */
	ck_assert_str_eq(progress_text(&p, 30, 80, text, sizeof(text)),
			 "host 2/3 [########################        ]  75 % forced p1 10/30, 25 s left");
	p.done = 0;
	ck_assert_str_eq(progress_text(&p, 11, 80, text, sizeof(text)),
			 "host 2/3 [                                ]   0 % free p0 0/10");
}
END_TEST

START_TEST(the_bar_fits)
{
	struct progress p = bar();
	char text[256];

	p.done = 60;
	for (int width = 10; width < 120; width++)
		ck_assert_int_lt((int)strlen(progress_text(&p, 30, width, text, sizeof(text))), width);
}
END_TEST

/* On a terminal of its own: a bar that is taken away again, colour, and no colour where it is not wanted. */
static char *on_terminal(const char *no_color)
{
	char *text = calloc(1, 1 << 16);
	size_t n = 0;
	ssize_t got;
	int master;
	pid_t pid = forkpty(&master, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = 60});

	if (pid == 0) {
		struct progress p = {.prompts = prompts, .planned = planned, .n_prompts = 2, .modes = {"free"}, .n_modes = 1};
		struct term t;

		if (no_color)
			setenv("NO_COLOR", no_color, 1);
		else
			unsetenv("NO_COLOR");
		progress_open(&p, 1, false);
		progress_leg(&p, 0, "host", "/dev/null");
		progress_tick(&p);
		progress_leg_done(&p, "done");
		term_open(&t, stdout);
		term_say(&t, TINT_GOOD, 0, "width %d", t.width);
		fflush(stdout);
		_exit(0);
	}
	while (n < (1 << 16) - 1 && (got = read(master, text + n, (1 << 16) - 1 - n)) > 0)
		n += (size_t)got;
	waitpid(pid, NULL, 0);
	close(master);
	return text;
}

START_TEST(a_terminal_gets_a_bar_and_color)
{
	char *text = on_terminal(NULL);

	ck_assert_ptr_nonnull(strstr(text, "\r\x1b[Khost 1/1 ["));
	ck_assert_ptr_nonnull(strstr(text, "\r\x1b[Khost: done after 0.0 s"));
	ck_assert_ptr_nonnull(strstr(text, "\x1b[32mwidth 60\x1b[0m"));
	free(text);
	text = on_terminal("1");
	ck_assert_ptr_null(strstr(text, "\x1b[32m"));
	ck_assert_ptr_nonnull(strstr(text, "width 60"));
	free(text);
	text = on_terminal("");              /* set but empty means nothing */
	ck_assert_ptr_nonnull(strstr(text, "\x1b[32mwidth 60\x1b[0m"));
	free(text);
}
END_TEST

/* On 80 columns a leg's verdict and adjudication do not part, and no line is wider. */
START_TEST(heads_stay_together)
{
	struct show_options o = {0};
	struct err err = {0};
	json_t *verdict = verdict_load("gates/tests/show/seed-three-legs/verdict.json", &err);

	ck_assert_msg(verdict != NULL, "%s", err.text);
	term.width = 80;
	show_verdict(&term, verdict, &o);
	fflush(term.out);
	ck_assert_msg(strncmp(printed, "TOKEN MATCH ", 12) == 0 && strstr(printed, " mode=free\n    on    DIVERGENCE  "), "%.300s", printed);
	for (char *line = printed; *line; line = strchr(line, '\n') + 1)
		ck_assert_msg(strchrnul(line, '\n') - line <= 80, "wider than 80: %.100s", line);
	json_decref(verdict);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("term");
	TCase *tc = tcase_create("term");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, text_is_harmless);
	tcase_add_test(tc, without_utf8_text_is_ascii);
	tcase_add_test(tc, text_is_cut_by_columns);
	tcase_add_test(tc, lines_are_broken_at_spaces);
	tcase_add_test(tc, a_word_that_is_too_long_is_not_broken);
	tcase_add_test(tc, color_only_where_there_is_color);
	tcase_add_test(tc, tables_line_up);
	tcase_add_test(tc, narrow_tables_break_in_one_place);
	tcase_add_test(tc, trace_lines_are_counted);
	tcase_add_test(tc, the_bar_says_where_and_how_long);
	tcase_add_test(tc, the_bar_fits);
	tcase_add_test(tc, a_terminal_gets_a_bar_and_color);
	tcase_add_test(tc, heads_stay_together);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
