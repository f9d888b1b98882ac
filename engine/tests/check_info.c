/* What a config describes, against the counts published for the models (docs/model.md, sections 1.2 and 2.9). */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "edit.h"
#include "engine/info.h"
#include "engine/synth.h"

static struct err err;

static json_t *describe(const char *path)
{
	struct model m;
	json_t *info;

	memset(&err, 0, sizeof err);
	ck_assert_msg(model_describe(&m, path, &err) == 0, "%s", err.text);
	info = info_json(&m);
	model_release(&m);
	return info;
}

/* The integer at a path like "state/ssm_bytes"; -1 if there is none. */
static json_int_t at(const json_t *v, const char *path)
{
	char *copy = xstrdup(path), *rest = copy, *part;

	while ((part = strsep(&rest, "/")))
		v = json_object_get(v, part);
	free(copy);
	return json_is_integer(v) ? json_integer_value(v) : -1;
}

struct want { const char *path; json_int_t value; };

static void check(const json_t *info, const struct want *want)
{
	for (; want->path; want++)
		ck_assert_msg(at(info, want->path) == want->value, "%s is %lld, expected %lld", want->path,
			      (long long)at(info, want->path), (long long)want->value);
}

/* ---- the config files ---- */

#define NANO_SIZES { "parameters", 31577940288 }, { "blocks/mamba", 23 }, { "blocks/attn", 6 }, { "blocks/moe", 23 }, \
	{ "blocks/mlp", 0 }, { "blocks/layers", 52 }, { "state/ssm_bytes", 46 << 20 }, { "state/conv_bytes", 828 << 10 }, \
	{ "state/kv_bytes_per_token", 6144 }

static const struct want nano_bf16[] = { NANO_SIZES, { "tensors", 6243 }, { "numerics/BF16/modules", 23 * 2 + 6 * 4 + 23 * 129 * 2 + 1 },
	{ "numerics/FP8/modules", -1 }, { "weight_bytes", 2 * 31577940288 + 23552 / 2 }, { NULL, 0 } };
static const struct want nano_nvfp4[] = { NANO_SIZES, { "tensors", 24147 }, { "numerics/NVFP4/modules", 17 * 2 + 23 * 129 * 2 },
	{ "numerics/BF16/modules", 6 * 2 + 6 * 4 + 1 }, { "numerics/FP8/modules", -1 }, { "numerics/W4A16_NVFP4/modules", -1 },
	{ "modules/mixer.in_proj/BF16", 6 }, { "modules/mixer.in_proj/NVFP4", 17 }, { "modules/mixer.q_proj/BF16", 6 }, { NULL, 0 } };
static const struct want lightning[] = { NANO_SIZES, { "tensors", 18217 }, { "numerics/W4A16_NVFP4/modules", 5935 },
	{ "numerics/FP8/modules", 46 }, { "numerics/BF16/modules", 24 }, { "modules/lm_head/W4A16_NVFP4", 1 },
	{ "modules/mixer.experts.up_proj/W4A16_NVFP4", 23 * 128 }, { "modules/mixer.out_proj/FP8", 23 }, { NULL, 0 } };
static const struct want wide[] = { { "blocks/layers", 52 }, { "numerics/BF16/modules", 23 * 2 + 6 * 4 + 23 * 33 * 2 + 1 },
	/* by hand: embedding and head 2 x 32768 x 960; mamba 5152 x 960 + 3072 x 5 + 3 x 32 + 2048 + 960 x 2048 per layer;
	 * attention 960 x (1024 + 128 + 128 + 1024); moe 32 x 961 and 2 x 960 x (32 x 512 + 1024); 53 norms of 960 */
	{ "parameters", 2 * 32768LL * 960 + 23 * (5152LL * 960 + 3072 * 5 + 3 * 32 + 2048 + 960 * 2048) + 6 * 960LL * 2304 +
			23 * (32 * 961LL + 2 * 960LL * (32 * 512 + 1024)) + 53 * 960 }, { NULL, 0 } };

static const struct { const char *name; const struct want *want; bool kv_fp8; } files[] = {
	{ "nemotron-3-nano-30b-a3b-bf16", nano_bf16, false }, { "nemotron-3-nano-30b-a3b-nvfp4", nano_nvfp4, true },
	{ "lightning-30b-a3b-shape", lightning, true }, { "book52-wide-shape", wide, false },
};

START_TEST(test_files)
{
	char *path = xasprintf("engine/tests/fixtures/configs/%s.config.json", files[_i].name);
	json_t *info = describe(path);

	check(info, files[_i].want);
	ck_assert_str_eq(json_string_value(json_object_get(info, "name")), files[_i].name);
	ck_assert_str_eq(json_string_value(json_object_get(info, "schedule")), "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME");
	ck_assert(json_is_true(json_object_get(info, "kv_cache_fp8_declared")) == files[_i].kv_fp8);
	json_decref(info);
	free(path);
}
END_TEST

/* ---- other published shapes: the table of section 1.2, to its digits ---- */

static const struct {
	const char *config;
	double billions;             /* parameters, three decimals */
	json_int_t tensors, ssm, conv, kv;
} shapes[] = {
	{ "\"hybrid_override_pattern\":\"M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-\",\"hidden_size\":4096,"
	  "\"attention_head_dim\":128,\"num_attention_heads\":32,\"num_key_value_heads\":8,\"mamba_num_heads\":128,\"mamba_head_dim\":64,"
	  "\"n_groups\":8,\"ssm_state_size\":128,\"intermediate_size\":21504,\"rms_norm_eps\":1e-5",
	  8.101, 311, 96 << 20, 1440 << 10, 16384 },
	{ "\"hybrid_override_pattern\":\"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-\",\"hidden_size\":4480,"
	  "\"num_attention_heads\":40,\"num_key_value_heads\":8,\"head_dim\":128,\"mamba_num_heads\":128,\"mamba_head_dim\":80,"
	  "\"mamba_num_groups\":8,\"mamba_state_dim\":128,\"intermediate_size\":15680",
	  8.888, 341, 135 << 20, 1944 << 10, 16384 },
	{ "\"hybrid_override_pattern\":\"M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-\",\"hidden_size\":5120,"
	  "\"num_attention_heads\":40,\"num_key_value_heads\":8,\"mamba_num_heads\":128,\"mamba_head_dim\":80,\"intermediate_size\":20480",
	  12.310, 369, 140 << 20, 2016 << 10, 24576 },
	{ "\"hybrid_override_pattern\":\"MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME\","
	  "\"hidden_size\":4096,\"num_attention_heads\":32,\"num_key_value_heads\":2,\"mamba_num_heads\":128,\"mamba_head_dim\":64,"
	  "\"n_routed_experts\":512,\"num_experts_per_tok\":22,\"moe_intermediate_size\":2688,\"moe_shared_expert_intermediate_size\":5376,"
	  "\"moe_latent_size\":1024,\"routed_scaling_factor\":5.0",
	  120.67, 41643, 160 << 20, 2400 << 10, 8192 },
};

START_TEST(test_shapes)
{
	char *dir = edit_dir(), *text = xasprintf("{\"vocab_size\":131072,%s}", shapes[_i].config), *path = xasprintf("%s/config.json", dir);
	json_t *info;
	double digits = _i == 3 ? 0.005 : 0.0005;

	edit_write(dir, "config.json", text, strlen(text));
	info = describe(path);
	ck_assert_double_eq_tol((double)at(info, "parameters") * 1e-9, shapes[_i].billions, digits);
	check(info, (struct want[]){ { "tensors", shapes[_i].tensors }, { "state/ssm_bytes", shapes[_i].ssm },
				     { "state/conv_bytes", shapes[_i].conv }, { "state/kv_bytes_per_token", shapes[_i].kv }, { NULL, 0 } });
	json_decref(info);
	edit_remove(dir);
	free(path);
	free(text);
}
END_TEST

/* A description and the checkpoint itself count the same. */
START_TEST(test_same_counts)
{
	static const char *const names[] = { "tiny-mix8", "tiny-lightning", "tiny-nvfp4", "tiny-latent", "tiny-attn-bias", "tiny-tied" };
	char *dir = xasprintf("engine/tests/fixtures/%s", names[_i]), *path = xasprintf("%s/config.json", dir);
	json_t *info = describe(path);
	struct model m;

	ck_assert_msg(model_open(&m, dir, &err) == 0, "%s", err.text);
	ck_assert_int_eq(at(info, "parameters"), m.parameters);
	ck_assert_int_eq(at(info, "tensors"), m.n_tensors);
	model_release(&m);
	json_decref(info);
	free(path);
	free(dir);
}
END_TEST

START_TEST(test_refuses)
{
	static const char text[] = "{\"hybrid_override_pattern\":\"M\",\"n_groups\":3}";
	char *dir = edit_dir(), *path = xasprintf("%s/config.json", dir);
	struct model m;

	edit_write(dir, "config.json", text, sizeof text - 1);
	memset(&err, 0, sizeof err);
	ck_assert_int_eq(model_describe(&m, path, &err), -1);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_ptr_nonnull(strstr(err.text, "config.json: n_groups: expected a divisor of mamba_num_heads 128, found 3"));
	edit_remove(dir);
	free(path);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("info");
	TCase *c = tcase_create("counts");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, test_files, 0, 4);
	tcase_add_loop_test(c, test_shapes, 0, 4);
	tcase_add_loop_test(c, test_same_counts, 0, 6);
	tcase_add_test(c, test_refuses);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
