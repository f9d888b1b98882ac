/* Factors, layers and counters: text, JSON, and agreement with the schema that users are given. */
#include "help.h"
#include "contract/arm.h"
#include "contract/counters.h"
#include "contract/json.h"
#include "contract/schemas.h"

#define KNOWN "backend, place.mamba, place.attn, place.moe, place.mlp, mamba.decode, mamba.prefill, mamba.proj, " \
	"mamba.state, moe.experts, attn.kv, compute, head, batch, prefill_chunk, slots, graph, threads"
#define PER_LAYER "place.mamba, place.attn, place.moe, place.mlp, mamba.decode, mamba.prefill, mamba.proj, " \
	"mamba.state, moe.experts, attn.kv"

static struct arm arm;
static struct arm_at_list at;
static struct err err;

static void start(void)
{
	arm_init(&arm);
	at = (struct arm_at_list){ 0 };
	err = (struct err){ 0 };
}

static void stop(void)
{
	arm_at_release(&at);
}

static void expect_error(const char *text)
{
	ck_assert_str_eq(err.text, text);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	err = (struct err){ 0 };
}

/* ---- the tables ---- */

static json_t *schema_part(const char *name, const char *def)
{
	json_t *root = json_loads(schema_text(name), 0, NULL), *part;

	ck_assert_ptr_nonnull(root);
	part = json_incref(json_object_get(json_object_get(json_object_get(root, "$defs"), def), "properties"));
	ck_assert_ptr_nonnull(part);
	json_decref(root);
	return part;
}

/* The report's schema lists every factor in order, and for each choice its values in order, then null. */
START_TEST(factors_agree_with_the_schema)
{
	json_t *props = schema_part("report", "factors"), *value;
	const char *key;
	int f = 0;

	json_object_foreach(props, key, value) {
		json_t *list = json_object_get(value, "enum"), *item;
		int first, n;
		size_t i;

		if (strcmp(key, "at") == 0)
			continue;
		ck_assert_int_lt(f, N_FACTORS);
		ck_assert_str_eq(key, factor_name(f));
		ck_assert_int_eq(factor_find(key), f);
		ck_assert_int_eq(factor_is_number(f), list == NULL);
		if (list != NULL) {
			factor_values(f, &first, &n);
			ck_assert_int_eq((int)json_array_size(list), n + 1);
			json_array_foreach(list, i, item) {
				if (i == (size_t)n) {
					ck_assert(json_is_null(item));
					continue;
				}
				/* the same set; the order of the table is the order in which they are printed */
				ck_assert_int_ge(factor_value_find(f, json_string_value(item)), first);
			}
		}
		f++;
	}
	ck_assert_int_eq(f, N_FACTORS);
	json_decref(props);
}
END_TEST

START_TEST(counters_agree_with_the_schema)
{
	json_t *props = schema_part("report", "mode"), *total = json_object_get(json_object_get(props, "counters_total"),
										"properties"), *value;
	const char *key;
	int n = 0;

	json_object_foreach(total, key, value) {
		int c = counter_find(key);

		ck_assert_msg(c >= 0, "no counter %s", key);
		ck_assert_str_eq(counter_name(c), key);
		ck_assert_int_gt(strlen(counter_says(c)), 0);
		n++;
	}
	ck_assert_int_eq(n, N_COUNTERS);
	ck_assert_int_eq(counter_find("state_update_row"), -1);
	json_decref(props);
}
END_TEST

/* docs/formats.md, section 2 */
START_TEST(defaults)
{
	static const struct { enum factor factor; int value; } expected[] = {
		{ FACTOR_BACKEND, BACKEND_CPU }, { FACTOR_PLACE_MAMBA, PLACE_MAMBA_BACKEND },
		{ FACTOR_PLACE_ATTN, PLACE_ATTN_BACKEND }, { FACTOR_PLACE_MOE, PLACE_MOE_BACKEND },
		{ FACTOR_PLACE_MLP, PLACE_MLP_BACKEND }, { FACTOR_MAMBA_DECODE, MAMBA_DECODE_STEP },
		{ FACTOR_MAMBA_PREFILL, MAMBA_PREFILL_CHUNK }, { FACTOR_MAMBA_PROJ, ARM_UNSET },
		{ FACTOR_MAMBA_STATE, ARM_UNSET }, { FACTOR_MOE_EXPERTS, ARM_UNSET }, { FACTOR_ATTN_KV, ARM_UNSET },
		{ FACTOR_COMPUTE, COMPUTE_BF16 }, { FACTOR_HEAD, HEAD_FP32 }, { FACTOR_BATCH, 1 },
		{ FACTOR_PREFILL_CHUNK, 0 }, { FACTOR_SLOTS, SLOTS_CLEAN }, { FACTOR_GRAPH, ARM_UNSET },
		{ FACTOR_THREADS, ARM_UNSET },
	};

	ck_assert_int_eq((int)(sizeof(expected) / sizeof(expected[0])), N_FACTORS);
	arm.value[FACTOR_COMPUTE] = COMPUTE_FP32;
	arm_defaults(&arm);
	for (int f = 0; f < N_FACTORS; f++)
		if (f == FACTOR_COMPUTE)
			ck_assert_int_eq(arm.value[f], COMPUTE_FP32);
		else
			ck_assert_int_eq(arm.value[expected[f].factor], expected[f].value);
}
END_TEST

START_TEST(overlay_and_text)
{
	struct arm over;
	char buf[32];

	ck_ok(arm_parse(&arm, "mamba.proj=w8a8,batch=all,threads=3", &err), err);
	arm_init(&over);
	ck_ok(arm_parse(&over, "mamba.proj=w8a16", &err), err);
	ck_assert(!arm_equal(&arm, &over));
	arm_overlay(&arm, &over);
	ck_assert_str_eq(arm_text(&arm, FACTOR_MAMBA_PROJ, buf, sizeof(buf)), "w8a16");
	ck_assert_str_eq(arm_text(&arm, FACTOR_BATCH, buf, sizeof(buf)), "all");
	ck_assert_str_eq(arm_text(&arm, FACTOR_THREADS, buf, sizeof(buf)), "3");
	ck_assert_str_eq(arm_text(&arm, FACTOR_GRAPH, buf, sizeof(buf)), "-");
	over = arm;
	ck_assert(arm_equal(&arm, &over));
	char *words = arm_words(&arm);

	ck_assert_str_eq(words, "mamba.proj=w8a16,batch=all,threads=3");
	free(words);
	words = arm_at_words(&(struct arm_at){ .layers = (char *)"0-1,7", .arm = arm });
	ck_assert_str_eq(words, "0-1,7:mamba.proj=w8a16,batch=all,threads=3");
	free(words);
	arm_init(&over);
	ck_assert_ptr_null(arm_words(&over));
}
END_TEST

/* ---- text ---- */

START_TEST(parse_refuses)
{
	static const struct { const char *text, *error; } cases[] = {
		{ "mamba=step", "unknown factor \"mamba\"; known: " KNOWN },
		{ "", "expected factor=value, found \"\"" },
		{ "graph", "expected factor=value, found \"graph\"" },
		{ "graph=on,", "expected factor=value, found \"\"" },
		{ "=on", "expected factor=value, found \"=on\"" },
		{ "graph=on,graph=off", "graph is given twice in \"graph=on,graph=off\"" },
		{ "graph=yes", "graph: expected off or on, found \"yes\"" },
		{ "graph=", "graph: expected off or on, found \"\"" },
		{ "mamba.proj=W8A8", "mamba.proj: expected w8a8, w8a8-lt, w8a16 or native, found \"W8A8\"" },
		{ "batch=0", "batch: expected an integer of at least 1, or all, found \"0\"" },
		{ "batch=-1", "batch: expected an integer of at least 1, or all, found \"-1\"" },
		{ "batch= 1", "batch: expected an integer of at least 1, or all, found \" 1\"" },
		{ "batch=1x", "batch: expected an integer of at least 1, or all, found \"1x\"" },
		{ "threads=all", "threads: expected an integer of at least 1, found \"all\"" },
		{ "threads=2147483648", "threads: expected an integer of at least 1, found \"2147483648\"" },
		{ "threads=99999999999999999999", "threads: expected an integer of at least 1, found \"99999999999999999999\"" },
		{ "prefill_chunk=", "prefill_chunk: expected an integer of at least 0, found \"\"" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arm unset;

		ck_assert_int_eq(arm_parse(&arm, cases[i].text, &err), -1);
		expect_error(cases[i].error);
		/* what stood before the mistake is not taken either */
		arm_init(&unset);
		ck_assert(arm_equal(&arm, &unset));
	}
}
END_TEST

START_TEST(numbers_at_their_limits)
{
	ck_ok(arm_parse(&arm, "threads=2147483647,batch=1,prefill_chunk=0", &err), err);
	ck_assert_int_eq(arm.value[FACTOR_THREADS], 2147483647);
	ck_assert_int_eq(arm.value[FACTOR_BATCH], 1);
	ck_assert_int_eq(arm.value[FACTOR_PREFILL_CHUNK], 0);
}
END_TEST

START_TEST(layers)
{
	static const struct { const char *layers; int layer, hold; } cases[] = {
		{ "0-11,30", 0, 1 }, { "0-11,30", 11, 1 }, { "0-11,30", 12, 0 }, { "0-11,30", 30, 1 }, { "0-11,30", 31, 0 },
		{ "7", 7, 1 }, { "7", 6, 0 }, { "3-3", 3, 1 }, { "5,1,5", 1, 1 }, { "999999", 999999, 1 },
	};
	static const char *const bad[] = {
		"", ",", "1,", ",1", "1-", "-1", "3-2", "a", "1 2", "1,,2", "1-2-3", "1000000", "99999999999999999999", "1;2",
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_int_eq(arm_layers_hold(cases[i].layers, cases[i].layer, &err), cases[i].hold);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *text = xasprintf("expected layers like 0-11,30, found \"%s\"", bad[i]);

		ck_assert_int_eq(arm_layers_hold(bad[i], 0, &err), -1);
		expect_error(text);
		free(text);
	}
}
END_TEST

START_TEST(at_parse)
{
	struct arm_at_list copy;

	ck_ok(arm_at_parse(&at, "0-11,30:mamba.decode=chunk,place.moe=host", &err), err);
	ck_ok(arm_at_parse(&at, "5:mamba.state=bf16", &err), err);
	ck_assert_int_eq(at.n, 2);
	ck_assert_str_eq(at.item[0].layers, "0-11,30");
	ck_assert_int_eq(at.item[0].arm.value[FACTOR_MAMBA_DECODE], MAMBA_DECODE_CHUNK);
	ck_assert_int_eq(at.item[0].arm.value[FACTOR_PLACE_MOE], PLACE_MOE_HOST);
	ck_assert_int_eq(at.item[0].arm.value[FACTOR_MAMBA_STATE], ARM_UNSET);
	ck_assert_int_eq(at.item[1].arm.value[FACTOR_MAMBA_STATE], MAMBA_STATE_BF16);
	arm_at_copy(&copy, &at);
	ck_assert(arm_at_equal(&copy, &at));
	copy.item[1].arm.value[FACTOR_MAMBA_STATE] = MAMBA_STATE_FP16;
	ck_assert(!arm_at_equal(&copy, &at));
	arm_at_release(&copy);
	ck_assert(!arm_at_equal(&copy, &at));
}
END_TEST

START_TEST(at_parse_refuses)
{
	static const struct { const char *text, *error; } cases[] = {
		{ "mamba.decode=chunk", "expected LAYERS:factor=value, found \"mamba.decode=chunk\"" },
		{ "x:mamba.decode=chunk", "expected layers like 0-11,30, found \"x\"" },
		{ ":mamba.decode=chunk", "expected layers like 0-11,30, found \"\"" },
		{ "1:", "expected factor=value, found \"\"" },
		{ "1:threads=2", "threads cannot differ from layer to layer; those that can: " PER_LAYER },
		{ "1:backend=ref", "backend cannot differ from layer to layer; those that can: " PER_LAYER },
		{ "1:mamba=2", "unknown factor \"mamba\"; known: " KNOWN },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(arm_at_parse(&at, cases[i].text, &err), -1);
		expect_error(cases[i].error);
		ck_assert_int_eq(at.n, 0);
	}
}
END_TEST

/* ---- JSON ---- */

static int load(const char *text, bool complete)
{
	json_t *json = json_loads(text, 0, NULL);
	int status;

	ck_assert_ptr_nonnull(json);
	status = arm_from_json(&arm, &at, json, "f.json", "$.base", complete, &err);
	json_decref(json);
	return status;
}

START_TEST(json_there_and_back)
{
	const char *text = "{\"backend\":\"ref\",\"place.mamba\":\"host\",\"place.attn\":\"backend\",\"place.moe\":null,"
		"\"place.mlp\":null,\"mamba.decode\":\"chunk\",\"mamba.prefill\":\"step\",\"mamba.proj\":\"native\","
		"\"mamba.state\":\"fp16\",\"moe.experts\":\"w4a4\",\"attn.kv\":\"fp8\",\"compute\":\"f64\",\"head\":\"bf16\","
		"\"batch\":\"all\",\"prefill_chunk\":0,\"slots\":\"dirty\",\"graph\":\"off\",\"threads\":8,"
		"\"at\":[{\"layers\":\"0-3\",\"mamba.decode\":\"step\"}]}";
	json_t *json;
	char *back;

	ck_ok(load(text, true), err);
	ck_assert_int_eq(arm.value[FACTOR_PLACE_MOE], ARM_UNSET);
	ck_assert_int_eq(arm.value[FACTOR_BATCH], ARM_ALL);
	ck_assert_int_eq(arm.value[FACTOR_THREADS], 8);
	ck_assert_int_eq(arm.value[FACTOR_HEAD], HEAD_BF16);
	ck_assert_int_eq(at.n, 1);
	json = arm_to_json(&arm, &at);
	back = json_dumps(json, JSON_COMPACT);
	ck_assert_str_eq(back, text);
	free(back);
	json_decref(json);
	/* no layers: null */
	json = arm_to_json(&arm, NULL);
	ck_assert(json_is_null(json_object_get(json, "at")));
	json_decref(json);
}
END_TEST

START_TEST(json_refuses)
{
	static const struct { bool complete; const char *text, *error; } cases[] = {
		{ false, "[]", "f.json: $.base: expected an object, found an array" },
		{ true, "{}", "f.json: $.base: the key \"backend\" is missing" },
		{ false, "{\"backnd\":\"ref\"}", "f.json: $.base: unknown key \"backnd\"" },
		{ false, "{\"backend\":\"gpu\"}", "f.json: $.base.backend: expected ref, cpu or cuda, found \"gpu\"" },
		{ false, "{\"mamba.proj\":8}", "f.json: $.base[\"mamba.proj\"]: expected w8a8, w8a8-lt, w8a16 or native, found 8" },
		{ false, "{\"graph\":true}", "f.json: $.base.graph: expected off or on, found true" },
		{ false, "{\"batch\":0}", "f.json: $.base.batch: expected an integer of at least 1, or all, found 0" },
		{ false, "{\"batch\":1.0}", "f.json: $.base.batch: expected an integer of at least 1, or all, found a number" },
		{ false, "{\"threads\":\"all\"}", "f.json: $.base.threads: expected an integer of at least 1, found \"all\"" },
		{ false, "{\"threads\":2147483648}",
		  "f.json: $.base.threads: expected an integer of at least 1, found 2147483648" },
		{ false, "{\"at\":{}}", "f.json: $.base.at: expected an array, found an object" },
		{ false, "{\"at\":[7]}", "f.json: $.base.at[0]: expected an object, found an integer" },
		{ false, "{\"at\":[{\"graph\":\"on\",\"layers\":\"1\"}]}", "f.json: $.base.at[0]: unknown key \"graph\"" },
		{ false, "{\"at\":[{\"place.moe\":\"host\"}]}", "f.json: $.base.at[0]: the key \"layers\" is missing" },
		{ false, "{\"at\":[{\"layers\":\"1\"}]}",
		  "f.json: $.base.at[0]: expected a factor beside \"layers\", found none" },
		{ false, "{\"at\":[{\"layers\":\"2-1\",\"place.moe\":\"host\"}]}",
		  "f.json: $.base.at[0].layers: expected layers like 0-11,30, found \"2-1\"" },
		{ false, "{\"at\":[{\"layers\":\"1\",\"place.moe\":null}]}",
		  "f.json: $.base.at[0][\"place.moe\"]: expected backend or host, found null" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(load(cases[i].text, cases[i].complete), -1);
		expect_error(cases[i].error);
		arm_at_release(&at);
	}
	ck_ok(load("{}", false), err);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arm");
	TCase *tc = tcase_create("arm");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_add_test(tc, factors_agree_with_the_schema);
	tcase_add_test(tc, counters_agree_with_the_schema);
	tcase_add_test(tc, defaults);
	tcase_add_test(tc, overlay_and_text);
	tcase_add_test(tc, parse_refuses);
	tcase_add_test(tc, numbers_at_their_limits);
	tcase_add_test(tc, layers);
	tcase_add_test(tc, at_parse);
	tcase_add_test(tc, at_parse_refuses);
	tcase_add_test(tc, json_there_and_back);
	tcase_add_test(tc, json_refuses);
	suite_add_tcase(suite, tc);
	return help_run(suite);
}
