/* YAML with positions: what is read, what a plain scalar means, and that damage does no harm.  What is refused, with its
 * place, is in check_recipe.c. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "gates/yaml.h"

static struct yaml y;
static struct err err;

static void start(void)
{
	y = (struct yaml){0};
	err = (struct err){0};
}

static void stop(void)
{
	yaml_release(&y);
}

static int load(const char *text)
{
	yaml_release(&y);
	err = (struct err){0};
	return yaml_load_bytes(&y, text, strlen(text), "f.yaml", &err);
}

START_TEST(structure_and_places)
{
	ck_assert_msg(load("a: 1\nlist:\n  - x\n  - {k: v}\n\xc3\xa9t\xc3\xa9: \"q\"\n") == 0, "%s", err.text);
	const struct ynode *list = yaml_get(&y.root, "list"), *summer = yaml_get(&y.root, "\xc3\xa9t\xc3\xa9");

	ck_assert_int_eq(y.root.kind, YNODE_MAP);
	ck_assert_int_eq(y.root.n, 3);
	ck_assert_int_eq(list->kind, YNODE_LIST);
	ck_assert_int_eq(list->n, 2);
	ck_assert_int_eq(list->items[0].at.line, 3);
	ck_assert_int_eq(list->items[0].at.column, 5);
	ck_assert_int_eq(list->items[1].kind, YNODE_MAP);
	ck_assert_int_eq(list->items[1].key_at[0].column, 6);
	ck_assert_str_eq(list->items[1].items[0].text, "v");
	ck_assert_int_eq(summer->at.column, 6);             /* characters, not bytes */
	ck_assert(!summer->plain);
	ck_assert_ptr_null(yaml_get(&y.root, "b"));
}
END_TEST

/* YAML 1.2's core schema decides what looks like a number. */
static const struct { const char *text; bool number, integer; int64_t value; } scalars[] = {
	{"0", true, true, 0}, {"-17", true, true, -17}, {"+5", true, true, 5}, {"007", true, true, 7}, {"0x1f", true, true, 31},
	{"0o17", true, true, 15}, {"9223372036854775807", true, true, INT64_MAX}, {"9223372036854775808", true, false, 0},
	{"1.5", true, false, 0}, {".5", true, false, 0}, {"1.", true, false, 0}, {"1e3", true, false, 0}, {"-1.5E-3", true, false, 0},
	{".inf", true, false, 0}, {"-.INF", true, false, 0}, {".nan", true, false, 0},
	{"on", false, false, 0}, {"off", false, false, 0}, {"no", false, false, 0}, {"true", false, false, 0}, {"null", false, false, 0},
	{"~", false, false, 0}, {"1_000", false, false, 0}, {"0b11", false, false, 0}, {"1:30", false, false, 0}, {".", false, false, 0},
	{"-", false, false, 0}, {"1e", false, false, 0}, {"e3", false, false, 0}, {"0x", false, false, 0}, {"0xg", false, false, 0},
	{"0o8", false, false, 0}, {"1.5.2", false, false, 0}, {"+", false, false, 0}, {"2*mamba", false, false, 0},
};

START_TEST(plain_scalars)
{
	struct ynode n = {.kind = YNODE_SCALAR, .text = (char *)scalars[_i].text, .plain = true};
	int64_t value = 0;

	ck_assert_msg(ynode_is_number(&n) == scalars[_i].number, "%s", n.text);
	ck_assert_msg(ynode_is_int(&n, &value) == scalars[_i].integer, "%s", n.text);
	if (scalars[_i].integer)
		ck_assert_int_eq(value, scalars[_i].value);
	n.plain = false;                                    /* quoted: a string whatever it looks like */
	ck_assert(!ynode_is_number(&n) && !ynode_is_int(&n, &value));
}
END_TEST

START_TEST(numbers)
{
	double x = 0;

	ck_assert_int_eq(load("[1.5, 0x10, .inf, .nan, x]"), 0);
	ck_assert_int_eq(yaml_want_number(&y, &y.root.items[0], "n", &x, &err), 0);
	ck_assert_double_eq(x, 1.5);
	ck_assert_int_eq(yaml_want_number(&y, &y.root.items[1], "n", &x, &err), 0);
	ck_assert_double_eq(x, 16);
	ck_assert_int_eq(yaml_want_number(&y, &y.root.items[2], "n", &x, &err), -1);
	ck_assert_str_eq(err.text, "f.yaml:1:13: n: expected a finite number, found the number `.inf`");
	err = (struct err){0};
	ck_assert_int_eq(yaml_want_number(&y, &y.root.items[3], "n", &x, &err), -1);
	err = (struct err){0};
	ck_assert_int_eq(yaml_want_number(&y, &y.root.items[4], "n", &x, &err), -1);
	ck_assert_str_eq(err.text, "f.yaml:1:25: n: expected a number, found the string `x`");
}
END_TEST

START_TEST(strings_keep_what_was_written)
{
	ck_assert_int_eq(load("a: 'it''s'\nb: \"tab\\t\\u00e9\"\nc: |\n  two\n  lines\nd: folded\n   on\n"), 0);
	ck_assert_str_eq(yaml_get(&y.root, "a")->text, "it's");
	ck_assert_str_eq(yaml_get(&y.root, "b")->text, "tab\t\xc3\xa9");
	ck_assert_str_eq(yaml_get(&y.root, "c")->text, "two\nlines\n");
	ck_assert_str_eq(yaml_get(&y.root, "d")->text, "folded on");
}
END_TEST

START_TEST(depth_and_size_have_limits)
{
	char deep[200], *large = malloc((1 << 20) + 2);

	memset(deep, '[', 32);
	memset(deep + 32, ']', 32);
	deep[64] = '\0';
	ck_assert_int_eq(load(deep), 0);
	memset(deep, '[', 33);
	memset(deep + 33, ']', 33);
	deep[66] = '\0';
	ck_assert_int_eq(load(deep), -1);
	ck_assert_str_eq(err.text, "f.yaml:1:33: more than 32 levels deep");
	memset(large, 'x', (1 << 20) + 1);
	large[(1 << 20) + 1] = '\0';
	ck_assert_int_eq(load(large), -1);
	ck_assert_str_eq(err.text, "f.yaml:1:1: 1048577 bytes, more than 1048576");
	large[1 << 20] = '\0';
	ck_assert_int_eq(load(large), 0);
	free(large);
}
END_TEST

/* A megabyte of brackets must not become a megabyte of stack. */
START_TEST(deep_input_is_refused_early)
{
	size_t n = 1 << 20;
	char *brackets = malloc(n + 1);

	memset(brackets, '[', n);
	brackets[n] = '\0';
	ck_assert_int_eq(load(brackets), -1);
	memset(brackets, '{', n);
	ck_assert_int_eq(load(brackets), -1);
	for (size_t i = 0; i + 1 < n; i += 2)
		memcpy(brackets + i, "- ", 2);
	ck_assert_int_eq(load(brackets), -1);
	free(brackets);
}
END_TEST

START_TEST(unknown_keys_name_the_nearest)
{
	static const char *const known[] = {"alpha", "beta"};

	ck_assert_int_eq(load("alpha: 1\nbata: 2\n"), 0);
	ck_assert_int_eq(yaml_want_keys(&y, &y.root, "top", known, 2, &err), -1);
	ck_assert_str_eq(err.text, "f.yaml:2:1: top: unknown key `bata`; did you mean `beta`?");
	err = (struct err){0};
	ck_assert_int_eq(load("alpha: 1\nzzz: 2\n"), 0);
	ck_assert_int_eq(yaml_want_keys(&y, &y.root, "top", known, 2, &err), -1);
	ck_assert_str_eq(err.text, "f.yaml:2:1: top: unknown key `zzz`; known: alpha, beta");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("yaml");
	TCase *tc = tcase_create("yaml");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, structure_and_places);
	tcase_add_loop_test(tc, plain_scalars, 0, sizeof(scalars) / sizeof(scalars[0]));
	tcase_add_test(tc, numbers);
	tcase_add_test(tc, strings_keep_what_was_written);
	tcase_add_test(tc, depth_and_size_have_limits);
	tcase_add_test(tc, deep_input_is_refused_early);
	tcase_add_test(tc, unknown_keys_name_the_nearest);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
