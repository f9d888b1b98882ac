/* The array that github-action-benchmark reads; check_speed.c has the records and when a ratio is refused. */
#include "gates/bench_array.h"
#include "reported.h"

START_TEST(the_array_of_the_action)
{
	use("void-contract");
	load();
	json_t *array = bench_array(&found), *item = json_array_get(array, 0);
	json_t *schema = json_loads(schema_text("bench"), 0, NULL);

	ck_assert_msg(schema_valid(schema, json_object_get(json_object_get(schema, "$defs"), "action_array"), array, "$", &err), "%s", err.text);
	/* the leg that is VOID is not in it */
	ck_assert_uint_eq(json_array_size(array), 1);
	ck_assert_str_eq(json_string_value(json_object_get(item, "name")), "void-contract/step: decode, time per token");
	ck_assert_str_eq(json_string_value(json_object_get(item, "unit")), "ms");
	ck_assert_double_eq(json_number_value(json_object_get(item, "value")), 8.0);
	json_decref(array);
	json_decref(schema);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("bench");

	tcase_add_test(c, the_array_of_the_action);
	return run_suite("bench", c);
}
