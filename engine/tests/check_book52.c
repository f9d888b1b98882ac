/* ref in f64 on the bundled checkpoint against the reference program (fixtures/make_book52.py). */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include "contract/err.h"
#include "tiny.h"

#define NUMBERS "engine/tests/fixtures/book52-reference-f64.json"
#define BOUND 1e-9   /* of the largest logit */

static const struct { const char *variant, *arm; } variants[] = {
	{ "w8a8", "backend=ref,compute=f64,mamba.proj=w8a8" },
	{ "w8a16", "backend=ref,compute=f64,mamba.proj=w8a16" },
	{ "w8a8-chunk", "backend=ref,compute=f64,mamba.proj=w8a8,mamba.decode=chunk" },
};

static void check_row(const char *prompt, int step, const struct logits_row *got, const json_t *want)
{
	double top = fabs(json_number_value(json_array_get(json_array_get(want, 0), 1)));

	ck_assert_int_eq(json_array_size(want), 20);
	for (int i = 0; i < 20; i++) {
		json_t *pair = json_array_get(want, i);
		double logit = json_number_value(json_array_get(pair, 1));

		ck_assert_msg(got->top_id[i] == json_integer_value(json_array_get(pair, 0)) &&
			      fabs(got->top_logit[i] - logit) <= BOUND * top,
			      "prompt %s, step %d, rank %d: id %d at %.13g, expected %d at %.13g", prompt, step, i + 1,
			      got->top_id[i], got->top_logit[i], (int)json_integer_value(json_array_get(pair, 0)), logit);
	}
}

START_TEST(test_variant)
{
	json_error_t error;
	json_t *file = json_load_file(NUMBERS, 0, &error), *rows, *row;
	struct arm arm = tiny_arm(variants[_i].arm);
	struct session s = {0};
	struct model m = {0};
	size_t r, steps;

	ck_assert_msg(file != NULL, "%s: %s", NUMBERS, error.text);
	rows = json_object_get(json_object_get(file, "variants"), variants[_i].variant);
	ck_assert_int_eq(json_array_size(rows), 16);
	tiny_open_model(&m, json_string_value(json_object_get(file, "model")));
	tiny_open(&s, &m, &arm, &(struct limits){ 64, 1, 80 });
	json_array_foreach(rows, r, row) {
		json_t *ids = json_object_get(row, "ids"), *want = json_object_get(row, "steps");
		int32_t prompt[64];
		struct logits_row got;

		for (size_t i = 0; i < json_array_size(ids); i++)
			prompt[i] = (int32_t)json_integer_value(json_array_get(ids, i));
		session_reset(&s, 0);
		session_prefill(&s, &got, 0, prompt, (int)json_array_size(ids), -1);
		steps = json_array_size(want);
		ck_assert_int_gt(steps, 0);
		for (size_t i = 0; i < steps; i++) {
			check_row(json_string_value(json_object_get(row, "id")), (int)i, &got, json_array_get(want, i));
			if (i + 1 < steps)
				session_step(&s, &got, &(int32_t){ 0 }, &got.top_id[0], 1, NULL);
		}
	}
	session_release(&s);
	model_release(&m);
	json_decref(file);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("book52 against the reference program");
	TCase *c = tcase_create("f64");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, test_variant, 0, sizeof(variants) / sizeof(*variants));
	suite_add_tcase(suite, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
