/* What the Makefile compiles in: the schemas and which build this is. */
#include "help.h"
#include "contract/schemas.h"
#include "contract/version.h"
#include "schema_check.h"

START_TEST(schemas)
{
	static const char *const names[] = { "recipe", "golden", "report", "verdict", "bench", "capture" };

	for (int i = 0; i < 6; i++) {
		char *path = xasprintf("contract/schemas/%s.schema.json", names[i]), *file, id[32];
		json_t *schema;
		size_t size;

		ck_assert_str_eq(schema_names[i], names[i]);
		file = help_slurp(path, &size);
		help_same_text(schema_text(names[i]), file);
		schema = json_loads(file, JSON_REJECT_DUPLICATES, NULL);
		snprintf(id, sizeof(id), "assay/%s/1", names[i]);
		ck_assert_str_eq(json_string_value(json_object_get(schema, "$id")), id);
		json_decref(schema);
		free(file);
		free(path);
	}
	ck_assert_ptr_null(schema_names[6]);
	ck_assert_ptr_null(schema_text("exit"));
	ck_assert_ptr_null(schema_text(""));
}
END_TEST

/* The schema checker itself must see what is wrong, or the tests that lean on it prove nothing. */
START_TEST(schema_check_sees)
{
	static const struct { const char *schema, *def, *text, *error; } bad[] = {
		{ "golden", "step", "{}", "$: missing: \"id\"" },
		{ "golden", "step", "{\"id\":-1}", "$.id: out of range: -1" },
		{ "golden", "step", "{\"id\":1.5}", "$.id: integer: 1.5" },
		{ "golden", "step", "{\"id\":1,\"x\":2}", "$.x: unknown: 2" },
		{ "golden", "step", "{\"id\":1,\"top\":[]}", "$.top: number of items: []" },
		{ "golden", "step", "{\"id\":1,\"top\":[[1]]}", "$.top[0]: number of items: [1]" },
		{ "golden", "step", "{\"id\":1,\"top\":[[1,2,3]]}", "$.top[0][2]: one item too many: 3" },
		{ "golden", "step", "{\"id\":1,\"top\":[[1,\"2\"]]}", "$.top[0][1]: number: \"2\"" },
		{ "report", "number", "[\"NaN\"]", "$: none of anyOf: [\"NaN\"]" },
		{ "report", "step", "{\"id\":1,\"logits_xxh64\":\"F\"}", "$.logits_xxh64: does not match the pattern: \"F\"" },
		{ "report", "exit", "{\"schema\":\"assay/exit/2\"}", "$: missing: \"leg\"" },
		{ "report", "values", "{\"backend\":\"gpu\"}", "$.backend: not one of the values: \"gpu\"" },
	};
	struct err err = { 0 };
	json_t *ok = json_loads("{\"id\":1,\"top\":[[1,-0.5]],\"lse\":3}", 0, NULL);

	ck_assert_msg(schema_check("golden", "step", ok, &err), "%s", err.text);
	json_decref(ok);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		json_t *v = json_loads(bad[i].text, 0, NULL);

		err = (struct err){ 0 };
		ck_assert_ptr_nonnull(v);
		ck_assert_msg(!schema_check(bad[i].schema, bad[i].def, v, &err), "%s was accepted", bad[i].text);
		ck_assert_str_eq(err.text, bad[i].error);
		json_decref(v);
	}
}
END_TEST

START_TEST(version)
{
	size_t n = strlen(assay_git);

	ck_assert_str_eq(assay_version, "0.1.0");
	ck_assert(strcmp(assay_git, "unknown") == 0 || (n == 40 && strspn(assay_git, "0123456789abcdef") == n));
	ck_assert_int_eq(assay_dirty == -1, strcmp(assay_git, "unknown") == 0);
	ck_assert_ptr_nonnull(strstr(assay_flags, "-ffp-contract=off"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("build");
	TCase *tc = tcase_create("build");

	tcase_add_test(tc, schemas);
	tcase_add_test(tc, schema_check_sees);
	tcase_add_test(tc, version);
	suite_add_tcase(suite, tc);
	return help_run(suite);
}
