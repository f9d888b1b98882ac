/* Merging quantization metadata, and which modules a list excludes (docs/model.md, section 2.8). */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "contract/json.h"
#include "engine/quant_config.h"

static struct quant_config q;
static struct err err;

static int add(const char *text, const char *file)
{
	json_t *json = json_read_bytes(text, strlen(text), file, false, &err);
	int rc;

	ck_assert_msg(json != NULL, "%s", err.text);
	rc = quant_config_add(&q, json, file, &err);
	json_decref(json);
	return rc;
}

static void setup(void)
{
	memset(&err, 0, sizeof err);
	memset(&q, 0, sizeof q);
}

static void teardown(void)
{
	quant_config_release(&q);
}

static void is(const char *module, const char *algorithm)
{
	ck_assert_msg(!strcmp(quant_algo_name(quant_config_find(&q, module)), algorithm), "%s is %s, expected %s", module,
		      quant_algo_name(quant_config_find(&q, module)), algorithm);
}

START_TEST(test_nothing)
{
	ck_assert_int_eq(quant_config_add(&q, NULL, "config.json", &err), 0);
	ck_assert_int_eq(add("{}", "config.json"), 0);
	ck_assert_ptr_null(q.file);
	is("lm_head", "none");
}
END_TEST

/* Full names, parts of names and wildcards; with and without the prefix of the file. */
START_TEST(test_excludes)
{
	ck_assert_int_eq(add("{\"quant_algo\":\"NVFP4\",\"group_size\":16,\"kv_cache_quant_algo\":\"FP8\",\"exclude_modules\":"
			     "[\"lm_head\",\"backbone.layers.4.mixer.in_proj\",\"shared_experts\",\"mtp*\",\"*.7.*up_proj\",\"model.layers.[89].mixer*\",\"\"]}",
			     "hf_quant_config.json"), 0);
	is("lm_head", "none");
	is("layers.4.mixer.in_proj", "none");
	is("layers.14.mixer.in_proj", "NVFP4");
	is("layers.4.mixer.out_proj", "NVFP4");
	is("layers.1.mixer.shared_experts.up_proj", "none");
	is("layers.1.mixer.experts.0.up_proj", "NVFP4");
	is("layers.1.mixer.experts.7.up_proj", "none");
	is("layers.1.mixer.experts.7.down_proj", "NVFP4");
	is("layers.8.mixer.in_proj", "none");
	is("layers.18.mixer.in_proj", "NVFP4");
	is("layers.10.mixer.in_proj", "NVFP4");
	is("mtp.layers.0.eh_proj", "none");
	ck_assert(q.kv_fp8);
}
END_TEST

START_TEST(test_mixed)
{
	ck_assert_int_eq(add("{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"ignore\":[],\"kv_cache_scheme\":"
			     "{\"num_bits\":8,\"type\":\"float\",\"dynamic\":false},\"quantized_layers\":{\"backbone.layers.0.mixer.in_proj\":"
			     "{\"quant_algo\":\"FP8\"},\"lm_head\":{\"quant_algo\":\"W4A16_NVFP4\",\"group_size\":16}}}", "config.json"), 0);
	ck_assert_int_eq(add("{\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"backbone.layers.0.mixer.in_proj\":{\"quant_algo\":\"FP8\"},"
			     "\"backbone.layers.1.mixer.fc1_latent_proj\":{\"quant_algo\":\"NVFP4\"}}}", "hf_quant_config.json"), 0);
	ck_assert_int_eq(q.n_layers, 3);
	is("layers.0.mixer.in_proj", "FP8");
	is("lm_head", "W4A16_NVFP4");
	is("layers.1.mixer.fc1_latent_proj", "NVFP4");
	is("layers.0.mixer.out_proj", "none");
	ck_assert(q.kv_fp8);
}
END_TEST

/* An entry of its own beats the list, and the whole. */
START_TEST(test_entry_wins)
{
	ck_assert_int_eq(add("{\"quantization\":{\"quant_algo\":\"FP8\",\"exclude_modules\":[\"layers.2\"],\"quantized_layers\":"
			     "{\"layers.2.mixer.up_proj\":{\"quant_algo\":\"NVFP4\"},\"layers.3.mixer.up_proj\":{\"quant_algo\":\"NVFP4\"}}}}", "config.json"), 0);
	is("layers.2.mixer.up_proj", "NVFP4");
	is("layers.3.mixer.up_proj", "NVFP4");
	is("layers.2.mixer.down_proj", "none");
	is("layers.3.mixer.down_proj", "FP8");
	ck_assert(!q.kv_fp8);
}
END_TEST

static const struct { const char *first, *second, *says; } bad[] = {
	{ "{}", "[]", "b: quantization: expected an object" },
	{ "{\"quant_algo\":\"FP8\"}", "{\"quant_algo\":\"NVFP4\"}", "b: quantization: quant_algo is NVFP4, but a says FP8" },
	{ "{}", "{\"quant_algo\":\"FP8_PB_WO\"}",
	  "b: quantization: quant_algo: expected FP8, NVFP4, W4A16_NVFP4 or MIXED_PRECISION, found FP8_PB_WO" },
	{ "{}", "{\"quant_algo\":8}", "b: quantization: quant_algo: expected FP8, NVFP4, W4A16_NVFP4 or MIXED_PRECISION, found no string" },
	{ "{}", "{\"quant_algo\":\"NVFP4\",\"group_size\":32}", "b: quantization: group_size: expected 16, found 32" },
	{ "{}", "{\"quantized_layers\":{\"x\":{\"quant_algo\":\"NVFP4\",\"group_size\":8}}}", "b: x: group_size: expected 16, found 8" },
	{ "{}", "{\"quantized_layers\":{\"x\":{}}}", "b: x: quant_algo: expected FP8, NVFP4, W4A16_NVFP4 or MIXED_PRECISION, found no string" },
	{ "{}", "{\"quantized_layers\":{\"x\":{\"quant_algo\":\"MIXED_PRECISION\"}}}", "b: x: quant_algo: MIXED_PRECISION is not the numerics of a module" },
	{ "{}", "{\"quantized_layers\":[]}", "b: quantization: quantized_layers: expected an object" },
	{ "{}", "{\"ignore\":\"x\"}", "b: quantization: ignore: expected a list of module names" },
	{ "{}", "{\"exclude_modules\":[1]}", "b: quantization: exclude_modules[0]: expected a string" },
	{ "{}", "{\"quant_method\":\"awq\"}", "b: quantization: quant_method: expected \"modelopt\", found \"awq\"" },
	{ "{\"quantized_layers\":{\"backbone.x\":{\"quant_algo\":\"FP8\"}}}", "{\"quantized_layers\":{\"model.x\":{\"quant_algo\":\"NVFP4\"}}}",
	  "b: quantized_layers: x is NVFP4, but a says FP8" },
};

START_TEST(test_refuses)
{
	ck_assert_msg(add(bad[_i].first, "a") == 0, "%s", err.text);
	ck_assert_int_eq(add(bad[_i].second, "b"), -1);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_str_eq(err.text, bad[_i].says);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("quantization metadata");
	TCase *c = tcase_create("merging");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, test_nothing);
	tcase_add_test(c, test_excludes);
	tcase_add_test(c, test_mixed);
	tcase_add_test(c, test_entry_wins);
	tcase_add_loop_test(c, test_refuses, 0, sizeof bad / sizeof *bad);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
