/* JUnit XML: what is an error, a failure, skipped; and that nothing in it is markup. */
#include "reported.h"

static char *xml;

static void make(const char *name)
{
	size_t size;

	use(name);
	load();
	xml = show_junit(&found, &size);
	ck_assert_uint_eq(size, strlen(xml));
	ck_assert_int_eq(count_of(xml, "<testsuite "), found.evidence.n_legs + 1);
}

/* The root's sums are those of what is in it. */
static void sums(int tests, int failures, int errors, int skipped)
{
	char *root = xasprintf("tests=\"%d\" failures=\"%d\" errors=\"%d\" time=", tests, failures, errors);

	has(xml, root);
	ck_assert_int_eq(count_of(xml, "<testcase "), tests);
	ck_assert_int_eq(count_of(xml, "<failure "), failures);
	ck_assert_int_eq(count_of(xml, "<error "), errors);
	ck_assert_int_eq(count_of(xml, "<skipped "), skipped);
	free(root);
}

static void adds_up(void)
{
	sums(count_of(xml, "<testcase "), count_of(xml, "<failure "), count_of(xml, "<error "), count_of(xml, "<skipped "));
}

static int contract_lines(void)
{
	int n = 0;

	for (int l = 0; l < found.evidence.n_legs; l++)
		n += (int)json_array_size(json_object_get(findings_leg(&found, l), "contract"));
	return n;
}

START_TEST(a_pass_is_green)
{
	make("noisy-pass");
	int lines = contract_lines(), legs = found.evidence.n_legs, prompts = found.evidence.oracle.n_prompts;

	ck_assert_int_gt(lines, 0);
	sums(lines + legs * (1 + prompts) + 1, 0, 0, 0);
	has(xml, "<testcase classname=\"noisy-pass\" name=\"verdict\"");
	free(xml);
}
END_TEST

START_TEST(divergence_of_a_gate_fails_its_prompt)
{
	make("near-tie");
	/* two prompts lost a token (its README), and the verdict says so */
	sums(contract_lines() + 1 + found.evidence.oracle.n_prompts + 1, 2 + 1, 0, 0);
	has(xml, "<failure type=\"DIVERGENCE\" message=\"free step ");
	has(xml, "NEAR-TIE");
	free(xml);
}
END_TEST

START_TEST(divergence_of_an_experiment_is_data)
{
	make("seed-three-legs");
	ck_assert_int_eq(found.evidence.recipe.kind, RECIPE_DISCRIMINATE);
	/* what is left undecided is the verdict's failure, and no prompt's */
	lacks(xml, "type=\"DIVERGENCE\"");
	ck_assert_int_eq(count_of(xml, "<failure "), verdict_exit_code(found.verdict) != 0);
	ck_assert_int_gt(count_of(xml, "<system-out>free step "), 0);
	free(xml);
}
END_TEST

START_TEST(void_and_error_are_errors)
{
	make("void-contract");
	/* six lines in one mode are not met (its README), and the leg and the verdict say so */
	ck_assert_int_eq(count_of(xml, "<error type=\"VOID\""), 6 + 1 + 1);
	ck_assert_int_eq(count_of(xml, "classname=\"void-contract.chunk\" name=\"prompt"), 0);
	adds_up();
	free(xml);
	end();
	make("crashed");
	ck_assert_int_eq(count_of(xml, "<error type=\"ERROR\""), 2);
	adds_up();
	free(xml);
}
END_TEST

START_TEST(short_rows_fail)
{
	make("short");
	has(xml, "<failure type=\"SHORT\" message=\"");
	has(xml, "<failure type=\"SHORT\" message=\"SHORT: ");
	lacks(xml, "<error ");
	free(xml);
}
END_TEST

START_TEST(nothing_in_it_is_markup)
{
	size_t size;
	char *plain = text_xml(NASTY "\x01\xff");

	ck_assert_str_eq(plain, "&lt;/script&gt;&lt;b&gt;x&lt;/b&gt; \\u{202e}]]&gt; | `c` [l](u) @all\\n::error::%0A\\u{1}\xef\xbf\xbd");
	free(plain);
	use("near-tie");
	load();
	json_object_set_new(json_object_get(found.verdict, "overall"), "reason", json_string(NASTY));
	xml = show_junit(&found, &size);
	has(xml, "&lt;/script&gt;&lt;b&gt;x");
	lacks(xml, "<b>");
	lacks(xml, "\xe2\x80\xae");
	free(xml);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("junit");

	tcase_add_test(c, a_pass_is_green);
	tcase_add_test(c, divergence_of_a_gate_fails_its_prompt);
	tcase_add_test(c, divergence_of_an_experiment_is_data);
	tcase_add_test(c, void_and_error_are_errors);
	tcase_add_test(c, short_rows_fail);
	tcase_add_test(c, nothing_in_it_is_markup);
	return run_suite("junit", c);
}
