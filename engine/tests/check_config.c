/* config.json: aliases and their precedence, schedules, refusals, and the configs of published models. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/json.h"
#include "engine/config.h"

static struct config c;
static struct err err;

/* Parses {"hybrid_override_pattern": "M*-E", <members>}; members may replace the pattern. */
static int parse(const char *members)
{
	bool own = strstr(members, "hybrid_override_pattern") || strstr(members, "layer_types") || strstr(members, "layers_block");
	char *text = xasprintf("{%s%s%s}", own ? "" : "\"hybrid_override_pattern\":\"M*-E\"", own || !*members ? "" : ",", members);
	json_t *json;
	int rc;

	memset(&err, 0, sizeof err);
	json = json_read_bytes(text, strlen(text), "config.json", true, &err);
	ck_assert_msg(json != NULL, "%s: %s", text, err.text);
	rc = config_parse(&c, json, "config.json", &err);
	json_decref(json);
	free(text);
	return rc;
}

/* The value of one member of config_to_json, as text. */
static void taken(const char *members, const char *key, const char *value)
{
	json_t *out;
	char *text;

	ck_assert_msg(parse(members) == 0, "%s: %s", members, err.text);
	out = config_to_json(&c);
	text = json_dumps(json_object_get(out, key), JSON_COMPACT | JSON_ENCODE_ANY);
	ck_assert_msg(text && !strcmp(text, value), "%s: %s is %s, expected %s", members, key, text ? text : "absent", value);
	free(text);
	json_decref(out);
	config_release(&c);
}

/* members, field, value taken: every spelling, and who wins (docs/model.md, section 1.1). */
static const struct { const char *members, *key, *value; } values[] = {
	/* defaults */
	{ "", "vocab_size", "131072" }, { "", "hidden_size", "4096" }, { "", "num_hidden_layers", "4" },
	{ "", "num_attention_heads", "32" }, { "", "num_key_value_heads", "8" }, { "", "head_dim", "128" },
	{ "", "attention_bias", "false" }, { "", "max_position_embeddings", "4096" }, { "", "intermediate_size", "[21504]" },
	{ "", "mlp_bias", "false" }, { "", "mamba_num_heads", "128" }, { "", "mamba_head_dim", "64" }, { "", "n_groups", "8" },
	{ "", "ssm_state_size", "128" }, { "", "conv_kernel", "4" }, { "", "chunk_size", "128" }, { "", "use_conv_bias", "true" },
	{ "", "use_bias", "false" }, { "", "time_step_limit", "[0.0,\"inf\"]" }, { "", "mamba_ssm_cache_dtype", "\"float32\"" },
	{ "", "layer_norm_epsilon", "1.0000000000000001e-5" }, { "", "residual_in_fp32", "false" }, { "", "n_routed_experts", "8" },
	{ "", "num_experts_per_tok", "2" }, { "", "moe_intermediate_size", "7688" }, { "", "shared_intermediate_size", "7688" },
	{ "", "moe_latent_size", "null" }, { "", "n_group", "1" }, { "", "topk_group", "1" }, { "", "norm_topk_prob", "true" },
	{ "", "routed_scaling_factor", "1.0" }, { "", "tie_word_embeddings", "false" }, { "", "eos_token_id", "[2]" },
	{ "", "bos_token_id", "1" }, { "", "pad_token_id", "0" },
	/* a legacy name wins over the modern one */
	{ "\"mamba_n_groups\":4", "n_groups", "4" }, { "\"mamba_num_groups\":4", "n_groups", "4" },
	{ "\"n_groups\":2,\"mamba_n_groups\":4", "n_groups", "4" }, { "\"mamba_num_groups\":4,\"n_groups\":2", "n_groups", "4" },
	{ "\"mamba_d_conv\":3", "conv_kernel", "3" }, { "\"conv_kernel\":5,\"mamba_d_conv\":3", "conv_kernel", "3" },
	{ "\"mamba_chunk_size\":64", "chunk_size", "64" }, { "\"mamba_chunk_size\":64,\"chunk_size\":256", "chunk_size", "64" },
	{ "\"mamba_conv_bias\":false", "use_conv_bias", "false" },
	{ "\"use_conv_bias\":true,\"mamba_conv_bias\":false", "use_conv_bias", "false" },
	{ "\"mamba_dt_limit\":[0.1,0.5]", "time_step_limit", "[0.10000000000000001,0.5]" },
	{ "\"time_step_limit\":[0,1],\"mamba_dt_limit\":[0.25,0.5]", "time_step_limit", "[0.25,0.5]" },
	{ "\"mamba_n_groups\":null,\"n_groups\":2", "n_groups", "2" },
	/* the others lose */
	{ "\"mamba_state_dim\":64", "ssm_state_size", "64" }, { "\"mamba_state_dim\":64,\"ssm_state_size\":32", "ssm_state_size", "32" },
	{ "\"attention_head_dim\":96", "head_dim", "96" }, { "\"attention_head_dim\":96,\"head_dim\":80", "head_dim", "80" },
	{ "\"rms_norm_eps\":0.5", "layer_norm_epsilon", "0.5" }, { "\"norm_eps\":0.25", "layer_norm_epsilon", "0.25" },
	{ "\"norm_eps\":0.25,\"rms_norm_eps\":0.5", "layer_norm_epsilon", "0.5" },
	{ "\"norm_eps\":0.25,\"rms_norm_eps\":0.5,\"layer_norm_epsilon\":0.125", "layer_norm_epsilon", "0.125" },
	/* inert */
	{ "\"expand\":7,\"mamba_expand\":9,\"mamba_num_heads\":8", "mamba_num_heads", "8" },
	{ "\"time_step_min\":0.5,\"time_step_max\":0.6,\"time_step_floor\":0.5,\"mamba_dt_min\":0.5", "time_step_limit", "[0.0,\"inf\"]" },
	{ "\"mamba_proj_bias\":true", "use_bias", "false" },
	/* schedules */
	{ "\"hybrid_override_pattern\":\"ME*-M\"", "layers_block_type", "[\"mamba\",\"moe\",\"attention\",\"mlp\",\"mamba\"]" },
	{ "\"layers_block_type\":[\"linear_attention\",\"full_attention\",\"moe\"]", "layers_block_type", "[\"mamba\",\"attention\",\"moe\"]" },
	{ "\"layer_types\":[\"mlp\",\"mamba\"]", "layers_block_type", "[\"mlp\",\"mamba\"]" },
	{ "\"layers_block_type\":[\"mlp\"],\"hybrid_override_pattern\":\"MM\",\"num_hidden_layers\":1", "layers_block_type", "[\"mlp\"]" },
	{ "\"layers_block_type\":[],\"hybrid_override_pattern\":\"MM\"", "num_hidden_layers", "2" },
	{ "\"layers_block_type\":[\"mlp\"],\"layer_types\":[\"mamba\"]", "layers_block_type", "[\"mlp\"]" },
	/* widths, shared experts, infinities, ids */
	{ "\"hybrid_override_pattern\":\"-M-\",\"intermediate_size\":[48,80]", "intermediate_size", "[48,80]" },
	{ "\"hybrid_override_pattern\":\"-M-\",\"intermediate_size\":[48]", "intermediate_size", "[48,48]" },
	{ "\"hybrid_override_pattern\":\"-M-\",\"intermediate_size\":48", "intermediate_size", "[48,48]" },
	{ "\"n_shared_experts\":3,\"moe_shared_expert_intermediate_size\":10", "shared_intermediate_size", "30" },
	{ "\"n_shared_experts\":0", "shared_intermediate_size", "0" }, { "\"n_shared_experts\":null", "shared_intermediate_size", "0" },
	{ "\"moe_latent_size\":32", "moe_latent_size", "32" }, { "\"moe_latent_size\":0", "moe_latent_size", "null" },
	{ "\"time_step_limit\":[0.0,Infinity]", "time_step_limit", "[0.0,\"inf\"]" },
	{ "\"time_step_limit\":[0.5,{\"__float__\":\"Infinity\"}]", "time_step_limit", "[0.5,\"inf\"]" },
	{ "\"mamba_ssm_cache_dtype\":\"bfloat16\"", "mamba_ssm_cache_dtype", "\"bfloat16\"" },
	{ "\"mamba_ssm_cache_dtype\":\"float16\"", "mamba_ssm_cache_dtype", "\"float16\"" },
	{ "\"eos_token_id\":[2,11,2]", "eos_token_id", "[2,11]" }, { "\"eos_token_id\":null", "eos_token_id", "[]" },
	{ "\"bos_token_id\":null", "bos_token_id", "null" }, { "\"pad_token_id\":-1", "pad_token_id", "null" },
	{ "\"residual_in_fp32\":true", "residual_in_fp32", "true" }, { "\"attention_bias\":true", "attention_bias", "true" },
	{ "\"sliding_window\":null", "vocab_size", "131072" }, { "\"model_type\":\"nemotron_h\"", "vocab_size", "131072" },
};
enum { N_VALUES = sizeof values / sizeof *values };

START_TEST(test_values)
{
	taken(values[_i].members, values[_i].key, values[_i].value);
}
END_TEST

static const struct { const char *members, *says; } bad[] = {
	{ "\"model_type\":\"llama\"", "model_type: expected \"nemotron_h\", found \"llama\"" },
	{ "\"hybrid_override_pattern\":null", "hybrid_override_pattern: expected it or layers_block_type, found neither" },
	{ "\"hybrid_override_pattern\":\"\"", "hybrid_override_pattern: expected at most 10000 letters of M * - E, one per layer, found \"\"" },
	{ "\"hybrid_override_pattern\":\"Mm\"", "hybrid_override_pattern: expected letters of M * - E, found 'm' at layer 1" },
	{ "\"layers_block_type\":[\"mamba\",\"conv\"]",
	  "layers_block_type[1]: expected mamba, attention, moe, mlp, linear_attention or full_attention, found \"conv\"" },
	{ "\"layer_types\":[3]", "layer_types[0]: expected mamba, attention, moe, mlp, linear_attention or full_attention, found 3" },
	{ "\"layer_types\":\"M\"", "layer_types: expected a list of at most 10000 block names, found \"M\"" },
	{ "\"hybrid_override_pattern\":\"M\",\"num_hidden_layers\":2", "num_hidden_layers: expected 1, the length of hybrid_override_pattern, found 2" },
	{ "\"layer_types\":[\"moe\"],\"num_hidden_layers\":2", "num_hidden_layers: expected 1, the length of layer_types, found 2" },
	{ "\"vocab_size\":0", "vocab_size: expected an integer from 1 to 2147483647, found 0" },
	{ "\"vocab_size\":2147483648", "vocab_size: expected an integer from 1 to 2147483647, found 2147483648" },
	{ "\"hidden_size\":\"64\"", "hidden_size: expected an integer from 1 to 2147483647, found \"64\"" },
	{ "\"hidden_size\":64.5", "hidden_size: expected an integer from 1 to 2147483647, found 64.5" },
	{ "\"hidden_size\":true", "hidden_size: expected an integer from 1 to 2147483647, found true" },
	{ "\"mamba_n_groups\":0,\"n_groups\":2", "mamba_n_groups: expected an integer from 1 to 2147483647, found 0" },
	{ "\"n_groups\":3", "n_groups: expected a divisor of mamba_num_heads 128, found 3" },
	{ "\"num_key_value_heads\":5", "num_key_value_heads: expected a divisor of num_attention_heads 32, found 5" },
	{ "\"n_group\":3", "n_group: expected a divisor of n_routed_experts 8, found 3" },
	{ "\"n_group\":4,\"topk_group\":5", "topk_group: expected at most n_group 4, found 5" },
	{ "\"n_group\":4,\"topk_group\":1,\"num_experts_per_tok\":3",
	  "num_experts_per_tok: expected at most 2, the experts that can be chosen from, found 3" },
	{ "\"n_routed_experts\":70000", "n_routed_experts: expected at most 65536, found 70000" },
	{ "\"sliding_window\":4096", "sliding_window: expected null (it is not supported), found 4096" },
	{ "\"sliding_window\":false", "sliding_window: expected null (it is not supported), found false" },
	{ "\"mlp_hidden_act\":\"silu\"", "mlp_hidden_act: expected \"relu2\" (nothing else is supported), found \"silu\"" },
	{ "\"mamba_hidden_act\":\"gelu\"", "mamba_hidden_act: expected \"silu\" (nothing else is supported), found \"gelu\"" },
	{ "\"intermediate_size\":[8,8]", "intermediate_size: expected 1 widths, one per mlp layer, found 2" },
	{ "\"hybrid_override_pattern\":\"--\",\"intermediate_size\":[8,0]", "intermediate_size[1]: expected an integer from 1 to 2147483647, found 0" },
	{ "\"intermediate_size\":[]", "intermediate_size: expected 1 widths, one per mlp layer, found 0" },
	{ "\"time_step_limit\":[1,0.5]", "time_step_limit: expected two numbers, the smaller first, found a list" },
	{ "\"time_step_limit\":[0]", "time_step_limit: expected two numbers, the smaller first, found a list" },
	{ "\"mamba_dt_limit\":[0,NaN]", "mamba_dt_limit: expected two numbers, the smaller first, found a list" },
	{ "\"layer_norm_epsilon\":-1,\"hybrid_override_pattern\":\"M\"", "layer_norm_epsilon: expected a finite number of at least 0, found -1" },
	{ "\"use_bias\":1", "use_bias: expected true or false, found 1" },
	{ "\"mamba_ssm_cache_dtype\":\"int8\"", "mamba_ssm_cache_dtype: expected float32, bfloat16 or float16, found \"int8\"" },
	{ "\"eos_token_id\":\"</s>\"", "eos_token_id: expected a token id, found \"</s>\"" },
	{ "\"eos_token_id\":[1,2,3,4,5,6,7,8,9]", "eos_token_id: expected at most 8 ids, found more" },
	{ "\"n_shared_experts\":-1", "n_shared_experts: expected an integer from 1 to 2147483647, found -1" },
	{ "\"n_shared_experts\":1000000", "n_shared_experts: expected a shared width below 2^31, found 1000000 * 7688" },
	{ "\"vocab_size\":2000000000,\"hidden_size\":2000000000", "vocab_size * hidden_size: the size 2000000000 x 2000000000 x 1 is beyond 64-bit arithmetic" },
	{ "\"mamba_num_heads\":65536,\"mamba_head_dim\":65536", "mamba_num_heads * mamba_head_dim: expected a width below 2^31, found 4294967296" },
	{ "\"num_attention_heads\":65536,\"head_dim\":65536", "num_attention_heads * head_dim: expected a width below 2^31, found 4294967296" },
	{ "\"ssm_state_size\":2000000000", "n_groups * ssm_state_size: expected a width below 2^31, found 16000000000" },
	{ "\"chunk_size\":2147483647",
	  "n_groups * chunk_size * chunk_size: the size 8 x 2147483647 x 2147483647 is beyond 64-bit arithmetic" },
	{ "\"mamba_num_heads\":16384,\"mamba_head_dim\":65536", "in_proj rows: expected a width below 2^31, found 2147502080" },
	{ "\"n_routed_experts\":65536,\"moe_intermediate_size\":2000000000,\"hidden_size\":100000",
	  "experts: the size 65536 x 2000000000 x 100000 is beyond 64-bit arithmetic" },
};
enum { N_BAD = sizeof bad / sizeof *bad };

START_TEST(test_refuses)
{
	ck_assert_msg(parse(bad[_i].members) == -1, "%s was taken", bad[_i].members);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_msg(!strncmp(err.text, "config.json: ", 13), "%s", err.text);
	ck_assert_str_eq(err.text + 13, bad[_i].says);
	ck_assert_ptr_null(c.layers_block_type);
}
END_TEST

/* Derived sizes by hand: Di = nh P, Cd = Di + 2 G N. */
START_TEST(test_derived)
{
	ck_assert_int_eq(parse("\"hybrid_override_pattern\":\"MM*\",\"mamba_num_heads\":6,\"mamba_head_dim\":12,\"n_groups\":3,\"ssm_state_size\":20"), 0);
	ck_assert_int_eq(c.d_inner, 72);
	ck_assert_int_eq(c.conv_dim, 192);
	ck_assert_int_eq(c.n_blocks[BLOCK_MAMBA], 2);
	ck_assert_int_eq(c.n_blocks[BLOCK_ATTN], 1);
	ck_assert_int_eq(c.n_blocks[BLOCK_MOE], 0);
	ck_assert_int_eq(c.n_routed_experts, 0);
	ck_assert(isinf(c.time_step_limit[1]) && c.time_step_limit[1] > 0);
	config_release(&c);
}
END_TEST

/* The longest schedule, and one layer more. */
START_TEST(test_long)
{
	char *text = xmalloc(10100), *to = text;

	to += sprintf(to, "\"hybrid_override_pattern\":\"");
	memset(to, '-', 10000 + _i);
	strcpy(to + 10000 + _i, "\"");
	ck_assert_int_eq(parse(text), -_i);
	if (_i)
		ck_assert_ptr_nonnull(strstr(err.text, "hybrid_override_pattern: expected at most 10000 letters"));
	else
		ck_assert_int_eq(c.num_hidden_layers, 10000);
	config_release(&c);
	free(text);
}
END_TEST

START_TEST(test_wrapper)
{
	static const char *const keys[] = { "text_config", "llm_config" };
	char members[200];

	snprintf(members, sizeof members, "\"hidden_size\":1,\"model_type\":\"wrapper\",\"%s\":{\"hidden_size\":96,"
		 "\"hybrid_override_pattern\":\"M\"}", keys[_i]);
	taken(members, "hidden_size", "96");
}
END_TEST

static void parse_file(const char *name)
{
	char *path = xasprintf("engine/tests/fixtures/configs/%s", name);
	json_t *json;

	memset(&err, 0, sizeof err);
	json = json_read_file(path, true, &err);
	ck_assert_msg(json != NULL, "%s", err.text);
	ck_assert_msg(config_parse(&c, json, path, &err) == 0, "%s", err.text);
	json_decref(json);
	free(path);
}

/* The schedule of Nemotron-3-Nano (docs/model.md, section 1.2), by pattern and by list. */
START_TEST(test_published)
{
	static const char *const names[] = {
		"nemotron-3-nano-30b-a3b-bf16.config.json", "nemotron-3-nano-30b-a3b-nvfp4.config.json",
		"lightning-30b-a3b-shape.config.json", "book52-wide-shape.config.json",
	};
	static const int attention[] = { 5, 12, 19, 26, 33, 42 };
	static const int mamba[] = { 0, 2, 4, 7, 9, 11, 14, 16, 18, 21, 23, 25, 28, 30, 32, 35, 37, 39, 41, 44, 46, 48, 50 };
	enum block want[52];

	for (int i = 0; i < 52; i++)
		want[i] = BLOCK_MOE;
	for (int i = 0; i < 6; i++)
		want[attention[i]] = BLOCK_ATTN;
	for (int i = 0; i < 23; i++)
		want[mamba[i]] = BLOCK_MAMBA;
	parse_file(names[_i]);
	ck_assert_int_eq(c.num_hidden_layers, 52);
	for (int i = 0; i < 52; i++)
		ck_assert_msg(c.layers_block_type[i] == want[i], "layer %d is %s", i, block_name(c.layers_block_type[i]));
	ck_assert_int_eq(c.n_blocks[BLOCK_MAMBA], 23);
	ck_assert_int_eq(c.n_blocks[BLOCK_MOE], 23);
	ck_assert_int_eq(c.n_blocks[BLOCK_ATTN], 6);
	if (_i < 3) {
		ck_assert_int_eq(c.hidden_size, 2688);
		ck_assert_int_eq(c.d_inner, 4096);
		ck_assert_int_eq(c.conv_dim, 6144);
		ck_assert_int_eq(c.num_attention_heads * c.head_dim, 4096);
		ck_assert_int_eq(c.num_key_value_heads, 2);
		ck_assert_int_eq(c.n_routed_experts, 128);
		ck_assert_int_eq(c.num_experts_per_tok, 6);
		ck_assert_int_eq(c.moe_intermediate_size, 1856);
		ck_assert_int_eq(c.shared_intermediate_size, 3712);
		ck_assert_double_eq(c.routed_scaling_factor, 2.5);
		ck_assert_int_eq(c.max_position_embeddings, _i == 2 ? 1048576 : 262144);
	} else {
		ck_assert_int_eq(c.hidden_size, 960);
		ck_assert_int_eq(c.n_routed_experts, 32);
	}
	config_release(&c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("config.json");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, test_values, 0, N_VALUES);
	tcase_add_loop_test(t, test_refuses, 0, N_BAD);
	tcase_add_test(t, test_derived);
	tcase_add_loop_test(t, test_long, 0, 2);
	tcase_add_loop_test(t, test_wrapper, 0, 2);
	tcase_add_loop_test(t, test_published, 0, 4);
	suite_add_tcase(s, t);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
