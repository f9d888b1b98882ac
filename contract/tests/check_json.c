/* Strict reading with places, the walk over objects, and writing. */
#include <math.h>
#include "help.h"
#include "contract/json.h"

static struct err err;
static json_t *json;

static void start(void)
{
	err = (struct err){ 0 };
	json = NULL;
}

static void stop(void)
{
	json_decref(json);
}

static json_t *read_text(const char *text)
{
	return json_read_bytes(text, strlen(text), "f.json", false, &err);
}

static void expect_error(const char *text)
{
	ck_assert_str_eq(err.text, text);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	err = (struct err){ 0 };
}

/* ---- reading ---- */

START_TEST(places_of_syntax_errors)
{
	/* the wording behind the place is jansson's */
	static const struct { const char *text, *place; } cases[] = {
		{ "", "f.json:1:1: " },
		{ "5", "f.json:1:1: " },
		{ "\"x\"", "f.json:1:3: " },
		{ "{\"a\":1,\n  \"b\" 2}", "f.json:2:7: " },
		{ "{\"a\":1 x}", "f.json:1:8: " },
		{ "[1,]", "f.json:1:4: " },
		{ "[1,2", "f.json:1:4: " },
		{ "{\"a\":1}\n\n 5", "f.json:3:2: " },
		{ "[\"\xc3\xa9\xe2\x82\xac\", x]", "f.json:1:8: " },
		{ "[1]\n]", "f.json:2:1: " },
		{ "[NaN]", "f.json:1:4: " },
		{ "\xef\xbb\xbf[1]", "f.json:1:1: " },
		{ "[1e999]", "f.json:1:6: " },
		{ "[99999999999999999999]", "f.json:1:21: " },
		{ "[01]", "f.json:1:2: " },
		{ "[\"\\ud800\"]", "f.json:1:9: " },
		{ "[\"\\u0000\"]", "f.json:1:9: \\u0000 in " },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_msg(read_text(cases[i].text) == NULL, "%s was accepted", cases[i].text);
		ck_assert_msg(strncmp(err.text, cases[i].place, strlen(cases[i].place)) == 0, "%s: expected %s, found %s",
			      cases[i].text, cases[i].place, err.text);
		ck_assert_uint_gt(strlen(err.text), strlen(cases[i].place));
		ck_assert_int_eq(err.kind, ERR_INPUT);
		err = (struct err){ 0 };
	}
}
END_TEST

START_TEST(places_of_duplicate_keys)
{
	static const struct { const char *text, *error; } cases[] = {
		{ "{\"a\":1,\"a\":2}", "f.json:1:8: duplicate key \"a\"" },
		{ "{\"a\":1,\n \"b\":{\"x\":1},\n  \"a\":2}", "f.json:3:3: duplicate key \"a\"" },
		{ "{\"o\":{\"\xc3\xa9\":1,\n\"\xc3\xa9\":2}}", "f.json:2:1: duplicate key \"\xc3\xa9\"" },
		{ "[\"\xe2\x82\xac\",{\"k\":1,\"k\":2}]", "f.json:1:13: duplicate key \"k\"" },
		/* the same key, spelled twice; quotes and backslashes inside */
		{ "{\"a\":1, \"\\u0061\":2}", "f.json:1:9: duplicate key \"\\u0061\"" },
		{ "{\"q\\\"\":1, \"q\\\"\":2}", "f.json:1:11: duplicate key \"q\\\"\"" },
		{ "{\"b\\\\\":1, \"b\\\\\":2}", "f.json:1:11: duplicate key \"b\\\\\"" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_msg(read_text(cases[i].text) == NULL, "%s was accepted", cases[i].text);
		expect_error(cases[i].error);
	}
}
END_TEST

START_TEST(bytes_that_are_no_text)
{
	static const struct { const char *bytes; size_t size; } cases[] = {
		{ "[\"\xff\"]", 5 }, { "[\"\xc0\xaf\"]", 6 }, { "[\"\xed\xa0\x80\"]", 7 }, { "[\"\xf4\x90\x80\x80\"]", 8 },
		{ "[\"\xe2\x82\"]", 6 }, { "[1]\0", 4 }, { "[\"a\0b\"]", 7 }, { "[\"a\nb\"]", 7 }, { "[\"a\x01\"]", 6 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_ptr_null(json_read_bytes(cases[i].bytes, cases[i].size, "f.json", false, &err));
		ck_assert_int_eq(strncmp(err.text, "f.json:1:", 9), 0);
		err = (struct err){ 0 };
	}
}
END_TEST

static char *nested(int depth)
{
	char *text = xmalloc(2 * (size_t)depth + 1);

	memset(text, '[', (size_t)depth);
	memset(text + depth, ']', (size_t)depth);
	text[2 * depth] = '\0';
	return text;
}

START_TEST(nesting)
{
	char *text = nested(2047);

	json = read_text(text);
	ck_assert_msg(json != NULL, "%s", err.text);
	free(text);
	text = nested(5000);
	ck_assert_ptr_null(read_text(text));
	ck_assert_int_eq(strncmp(err.text, "f.json:1:20", 11), 0);
	err = (struct err){ 0 };
	free(text);
	ck_assert_ptr_null(json_read_file("engine/tests/fixtures/bad-config-nesting/config.json", true, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "bad-config-nesting/config.json:1:"));
}
END_TEST

START_TEST(files)
{
	ck_assert_ptr_null(json_read_file("contract/tests/data/absent.json", false, &err));
	expect_error("contract/tests/data/absent.json: No such file or directory");
	ck_assert_ptr_null(json_read_file("engine/tests/fixtures/bad-config-duplicate/config.json", false, &err));
	/* line 2 of that file repeats hidden_size behind six other members */
	ck_assert_ptr_nonnull(strstr(err.text, "config.json:2:"));
	ck_assert_ptr_nonnull(strstr(err.text, ": duplicate key \"hidden_size\""));
}
END_TEST

START_TEST(infinity)
{
	const char *text = "{\"a\": Infinity, \"b\": [-Infinity,NaN ,\"NaN\"],\n \"Infinity\": \"\\\"NaN, Infinity\", \"c\":NaN}";
	json_t *b;

	json = json_read_bytes(text, strlen(text), "f.json", true, &err);
	ck_assert_msg(json != NULL, "%s", err.text);
	ck_assert_str_eq(json_string_value(json_object_get(json, "a")), "inf");
	b = json_object_get(json, "b");
	ck_assert_str_eq(json_string_value(json_array_get(b, 0)), "-inf");
	ck_assert_str_eq(json_string_value(json_array_get(b, 1)), "nan");
	ck_assert_str_eq(json_string_value(json_array_get(b, 2)), "NaN");
	ck_assert_str_eq(json_string_value(json_object_get(json, "Infinity")), "\"NaN, Infinity");
	ck_assert_str_eq(json_string_value(json_object_get(json, "c")), "nan");
	ck_assert_ptr_null(read_text(text));
}
END_TEST

/* The text of a token may be NUL; our own files have none. */
START_TEST(foreign_text)
{
	static const char text[] = "{\"token\":\"\\u0000\",\"logprob\":-Infinity,\"id\":3}";

	ck_assert_ptr_null(json_read_bytes(text, strlen(text), "f.json", true, &err));
	err = (struct err){ 0 };
	json = json_read_foreign(text, strlen(text), "f.json", &err);
	ck_assert_msg(json != NULL, "%s", err.text);
	ck_assert_uint_eq(json_string_length(json_object_get(json, "token")), 1);
	ck_assert_str_eq(json_string_value(json_object_get(json, "logprob")), "-inf");
	ck_assert_int_eq((int)json_integer_value(json_object_get(json, "id")), 3);
	json_decref(json);
	json = json_read_foreign("{\"a\":1,\"a\":2}", 13, "f.json", &err);
	ck_assert_ptr_null(json);
	ck_assert_ptr_nonnull(strstr(err.text, "f.json:1:8: duplicate key \"a\""));
}
END_TEST

START_TEST(infinity_only_as_a_value)
{
	static const char *const bad[] = {
		"{Infinity: 1}", "{\"a\":1,NaN : 1}", "{\"a\":1,Infinity:1}", "{\"a\": Infinity: 1}", "Infinity", "[+Infinity]", "[-NaN]", "[Infinity2]", "[aNaN]", "[NaN.5]",
		"[1 NaN]", "[infinity]", "[nan]", "{\"a\" NaN}", "[\"x\"NaN]", "[NaN",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(json_read_bytes(bad[i], strlen(bad[i]), "f.json", true, &err) == NULL, "%s was accepted", bad[i]);
		err = (struct err){ 0 };
	}
}
END_TEST

/* what follows a literal keeps its place; NaN moves the rest of its line by two columns and no other */
START_TEST(infinity_keeps_places)
{
	static const struct { const char *text, *place; } cases[] = {
		{ "[Infinity, x]", "f.json:1:12: " }, { "[-Infinity, x]", "f.json:1:13: " }, { "[NaN,\n x]", "f.json:2:2: " },
		{ "[NaN, x]", "f.json:1:9: " },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_ptr_null(json_read_bytes(cases[i].text, strlen(cases[i].text), "f.json", true, &err));
		ck_assert_msg(strncmp(err.text, cases[i].place, strlen(cases[i].place)) == 0, "%s: %s", cases[i].text, err.text);
		err = (struct err){ 0 };
	}
}
END_TEST

/* ---- walking ---- */

#define OBJECT "{\"i\":5,\"neg\":-1,\"x\":0.5,\"s\":\"t\",\"b\":true,\"n\":null,\"a\":[1],\"o\":{},\"nan\":\"nan\"," \
	"\"inf\":\"inf\",\"minf\":\"-inf\",\"a.b\":1}"

START_TEST(getters)
{
	struct jobj o;
	char *s;

	json = read_text(OBJECT);
	ck_ok(json_begin(&o, json, "f.json", "$", &err), err);
	ck_assert_int_eq(json_get_int(&o, "i", true, 5, 9), 5);
	ck_assert_int_eq(json_get_int(&o, "absent", false, 0, 9), 9);
	ck_assert_int_eq(json_get_int(&o, "neg", true, -1, 9), -1);
	ck_assert(json_get_number(&o, "x", true, 9) == 0.5);
	ck_assert(json_get_number(&o, "i", true, 9) == 5);
	ck_assert(isnan(json_get_number(&o, "nan", true, 9)));
	ck_assert(json_get_number(&o, "inf", true, 9) == INFINITY);
	ck_assert(json_get_number(&o, "minf", true, 9) == -INFINITY);
	ck_assert(json_get_number(&o, "absent", false, 9) == 9);
	ck_assert_str_eq(json_get_string(&o, "s", true), "t");
	ck_assert_ptr_null(json_get_string(&o, "absent", false));
	ck_assert_ptr_null(json_get_string(&o, "n", false));
	ck_assert(json_get_bool(&o, "b", true, false));
	ck_assert(json_get_bool(&o, "absent", false, true));
	ck_assert(json_is_null_member(&o, "n"));
	ck_assert(!json_is_null_member(&o, "s"));
	ck_assert(!json_is_null_member(&o, "absent"));
	ck_assert_uint_eq(json_array_size(json_get_array(&o, "a", true)), 1);
	ck_assert(json_is_object(json_get_object(&o, "o", true)));
	ck_assert_ptr_null(json_get_owned(&o, "n", true, true));
	s = json_get_owned(&o, "s", true, false);
	ck_assert_str_eq(s, "t");
	free(s);
	ck_assert_ptr_nonnull(json_get(&o, "a.b", true));
	ck_ok(json_end(&o), err);
}
END_TEST

enum getter { INT, NUMBER, STRING, BOOL, ARRAY, OBJ, OWNED, SHA, WORD };

static void call(struct jobj *o, enum getter g, const char *key)
{
	static const char *const words[] = { "free", "forced", NULL };
	char hex[65];

	switch (g) {
	case INT: json_get_int(o, key, true, 0, 0); break;
	case NUMBER: json_get_number(o, key, true, 0); break;
	case STRING: json_get_string(o, key, true); break;
	case BOOL: json_get_bool(o, key, true, false); break;
	case ARRAY: json_get_array(o, key, true); break;
	case OBJ: json_get_object(o, key, true); break;
	case OWNED: free(json_get_owned(o, key, true, true)); break;
	case SHA: json_get_sha256(o, key, true, false, hex); break;
	case WORD: json_get_word(o, key, true, words, 0); break;
	}
}

START_TEST(getters_refuse)
{
	static const struct { enum getter getter; const char *key, *error; } cases[] = {
		{ INT, "absent", "f.json: $.legs: the key \"absent\" is missing" },
		{ INT, "s", "f.json: $.legs.s: expected an integer, found a string" },
		{ INT, "x", "f.json: $.legs.x: expected an integer, found a number" },
		{ INT, "n", "f.json: $.legs.n: expected an integer, found null" },
		{ INT, "neg", "f.json: $.legs.neg: expected an integer of at least 0, found -1" },
		{ NUMBER, "s", "f.json: $.legs.s: expected a number, found a string" },
		{ NUMBER, "b", "f.json: $.legs.b: expected a number, found true" },
		{ STRING, "i", "f.json: $.legs.i: expected a string, found an integer" },
		{ STRING, "n", "f.json: $.legs.n: expected a string, found null" },
		{ BOOL, "i", "f.json: $.legs.i: expected true or false, found an integer" },
		{ ARRAY, "o", "f.json: $.legs.o: expected an array, found an object" },
		{ OBJ, "a", "f.json: $.legs.a: expected an object, found an array" },
		{ OBJ, "a.b", "f.json: $.legs[\"a.b\"]: expected an object, found an integer" },
		{ OWNED, "i", "f.json: $.legs.i: expected a string or null, found an integer" },
		{ SHA, "s", "f.json: $.legs.s: expected 64 hexadecimal digits, found a string" },
		{ WORD, "s", "f.json: $.legs.s: expected \"free\" or \"forced\", found \"t\"" },
		{ WORD, "i", "f.json: $.legs.i: expected \"free\" or \"forced\", found an integer" },
	};
	struct jobj o;

	json = read_text(OBJECT);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_ok(json_begin(&o, json, "f.json", "$.legs", &err), err);
		call(&o, cases[i].getter, cases[i].key);
		ck_assert_int_eq(json_end(&o), -1);
		expect_error(cases[i].error);
	}
}
END_TEST

START_TEST(unknown_keys_and_first_error)
{
	struct jobj o;

	json = read_text("{\"known\":1,\"unknwon\":2}");
	ck_ok(json_begin(&o, json, "f.json", "$", &err), err);
	json_get_int(&o, "known", true, 0, 0);
	ck_assert_int_eq(json_end(&o), -1);
	expect_error("f.json: $: unknown key \"unknwon\"");
	ck_ok(json_begin(&o, json, "f.json", "$", &err), err);
	ck_assert_ptr_null(json_get_array(&o, "known", true));
	ck_assert_int_eq(json_get_int(&o, "known", true, 0, 7), 7);   /* nothing is read behind an error */
	ck_assert_int_eq(json_end(&o), -1);
	ck_assert_int_eq(json_begin(&o, NULL, "f.json", "$.x", &err), -1);
	expect_error("f.json: $.known: expected an array, found an integer");
	json_decref(json);
	json = read_text("[]");
	ck_assert_int_eq(json_begin(&o, json, "f.json", "$", &err), -1);
	expect_error("f.json: $: expected an object, found an array");
}
END_TEST

START_TEST(most_members)
{
	struct jobj o;
	char key[16];

	json = json_object();
	for (int i = 0; i < JOBJ_MEMBERS; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		json_object_set_new(json, key, json_integer(i));
	}
	ck_ok(json_begin(&o, json, "f.json", "$", &err), err);
	for (int i = 0; i < JOBJ_MEMBERS - 1; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		ck_assert_int_eq(json_get_int(&o, key, true, 0, -1), i);
	}
	ck_assert_int_eq(json_end(&o), -1);
	expect_error("f.json: $: unknown key \"k511\"");
	json_object_set_new(json, "one more", json_null());
	ck_assert_int_eq(json_begin(&o, json, "f.json", "$", &err), -1);
	expect_error("f.json: $: expected at most 512 members, found 513");
}
END_TEST

START_TEST(ids)
{
	static const struct { const char *text, *error; } bad[] = {
		{ "[[1,-1]]", "f.json: $.ids[1]: expected a token id, found an integer" },
		{ "[[2147483648]]", "f.json: $.ids[0]: expected a token id, found an integer" },
		{ "[[1,2,\"3\"]]", "f.json: $.ids[2]: expected a token id, found a string" },
		{ "[{}]", "f.json: $.ids: expected an array, found an object" },
	};
	int32_t *list = NULL;
	int n = 0;

	json = read_text("[[0,2147483647]]");
	ck_ok(json_as_ids(json_array_get(json, 0), &list, &n, "f.json", "$.ids", &err), err);
	ck_assert_int_eq(n, 2);
	ck_assert_int_eq(list[0], 0);
	ck_assert_int_eq(list[1], 2147483647);
	free(list);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		json_decref(json);
		json = read_text(bad[i].text);
		ck_assert_int_eq(json_as_ids(json_array_get(json, 0), &list, &n, "f.json", "$.ids", &err), -1);
		ck_assert_ptr_null(list);
		expect_error(bad[i].error);
	}
}
END_TEST

START_TEST(path_of_a_key)
{
	static const struct { const char *key, *path; } cases[] = {
		{ "on", "$.legs.on" }, { "host-w8a8", "$.legs.host-w8a8" }, { "mamba.proj", "$.legs[\"mamba.proj\"]" },
		{ "", "$.legs[\"\"]" }, { "1", "$.legs[\"1\"]" }, { "a b", "$.legs[\"a b\"]" }, { "_x2", "$.legs._x2" },
	};
	char buf[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_str_eq(json_path(buf, sizeof(buf), "$.legs", cases[i].key), cases[i].path);
}
END_TEST

/* ---- writing ---- */

static void expect_text(json_t *value, size_t flags, const char *text)
{
	size_t size;
	char *bytes = json_text(value, flags, &size);

	ck_assert_str_eq(bytes, text);
	ck_assert_uint_eq(size, strlen(text));
	free(bytes);
	json_decref(value);
}

START_TEST(numbers)
{
	static const struct { double x; const char *text; } cases[] = {
		{ 0.1, "[0.1]\n" }, { -0.0, "[-0.0]\n" }, { 5, "[5.0]\n" }, { 1e300, "[1e+300]\n" }, { 5e-324, "[4.94065646e-324]\n" },
		{ 1.0 / 3, "[0.3333333333333333]\n" }, { 0.1 + 0.2, "[0.30000000000000004]\n" },
		{ (double)0.1f, "[0.10000000149011612]\n" }, { 123456789012345680.0, "[1.2345678901234568e+17]\n" },
		{ NAN, "[\"nan\"]\n" }, { INFINITY, "[\"inf\"]\n" }, { -INFINITY, "[\"-inf\"]\n" },
	};
	static const struct { double x; int digits; const char *text; } rounded[] = {
		{ (double)0.1f, 9, "[0.100000001]\n" }, { 22.761346817016602, 9, "[22.7613468]\n" }, { 1e-7 / 3, 3, "[3.33e-08]\n" },
		{ 2.0 / 3, 17, "[0.6666666666666666]\n" }, { NAN, 9, "[\"nan\"]\n" }, { 1.7976931348623157e308, 3,
		  "[1.7976931348623157e+308]\n" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_text(json_pack("[o]", json_number(cases[i].x)), JSON_COMPACT, cases[i].text);
	for (size_t i = 0; i < sizeof(rounded) / sizeof(rounded[0]); i++)
		expect_text(json_pack("[o]", json_number_rounded(rounded[i].x, rounded[i].digits)), 0, rounded[i].text);
}
END_TEST

/* every float survives nine digits */
START_TEST(floats_survive)
{
	uint32_t bits = 1;

	for (int i = 0; i < 20000; i++) {
		float x, back;
		json_t *v;

		bits = bits * 1664525u + 1013904223u;
		memcpy(&x, &bits, sizeof(x));
		if (!isfinite(x))
			continue;
		v = json_number_rounded((double)x, 9);
		back = (float)json_real_value(v);
		ck_assert_msg(memcmp(&x, &back, sizeof(x)) == 0, "%a", (double)x);
		json_decref(v);
	}
}
END_TEST

START_TEST(strings)
{
	json = json_pack("[s]", "q\" b\\ n\n t\t \x01 \x7f \xe2\x82\xac /");
	expect_text(json_incref(json), 0, "[\"q\\\" b\\\\ n\\n t\\t \\u0001 \\u007f \xe2\x82\xac /\"]\n");
	expect_text(json_pack("[o]", json_string_lossy("a\xff\xc3\xa9\xe2\x82z")), 0,
		    "[\"a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbdz\"]\n");
}
END_TEST

START_TEST(layout)
{
	json_t *v = read_text("{\"b\":{\"x\":[[1,2],[]],\"y\":{}},\"a\":[{\"z\":null},true],\"c\":[]}");

	expect_text(json_incref(v), 0, "{\"b\": {\"x\": [[1, 2], []], \"y\": {}}, \"a\": [{\"z\": null}, true], \"c\": []}\n");
	expect_text(json_incref(v), JSON_COMPACT | JSON_SORT_KEYS,
		    "{\"a\":[{\"z\":null},true],\"b\":{\"x\":[[1,2],[]],\"y\":{}},\"c\":[]}\n");
	expect_text(json_incref(v), JSON_INDENT(2) | JSON_FLAT,
		    "{\n  \"b\": {\n    \"x\": [[1, 2], []],\n    \"y\": {}\n  },\n  \"a\": [\n    {\"z\": null},\n    true\n  ],\n"
		    "  \"c\": []\n}\n");
	expect_text(v, JSON_INDENT(1), "{\n \"b\": {\n  \"x\": [\n   [\n    1,\n    2\n   ],\n   []\n  ],\n  \"y\": {}\n },\n"
		    " \"a\": [\n  {\n   \"z\": null\n  },\n  true\n ],\n \"c\": []\n}\n");
}
END_TEST

START_TEST(write_and_read)
{
	char *dir = help_directory(), *path = path_join(dir, "f.json");
	json_t *v = read_text(OBJECT);

	ck_ok(json_write_file(v, path, JSON_INDENT(1), &err), err);
	json = json_read_file(path, false, &err);
	ck_assert(json_equal(v, json));
	ck_assert_int_eq(help_count(dir), 1);
	json_decref(v);
	free(path);
	help_remove(dir);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("json");
	TCase *tc = tcase_create("json");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_add_test(tc, places_of_syntax_errors);
	tcase_add_test(tc, places_of_duplicate_keys);
	tcase_add_test(tc, bytes_that_are_no_text);
	tcase_add_test(tc, nesting);
	tcase_add_test(tc, files);
	tcase_add_test(tc, infinity);
	tcase_add_test(tc, foreign_text);
	tcase_add_test(tc, infinity_only_as_a_value);
	tcase_add_test(tc, infinity_keeps_places);
	tcase_add_test(tc, getters);
	tcase_add_test(tc, getters_refuse);
	tcase_add_test(tc, unknown_keys_and_first_error);
	tcase_add_test(tc, most_members);
	tcase_add_test(tc, ids);
	tcase_add_test(tc, path_of_a_key);
	tcase_add_test(tc, numbers);
	tcase_add_test(tc, floats_survive);
	tcase_add_test(tc, strings);
	tcase_add_test(tc, layout);
	tcase_add_test(tc, write_and_read);
	suite_add_tcase(suite, tc);
	return help_run(suite);
}
