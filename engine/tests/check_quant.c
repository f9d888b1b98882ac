/* The number formats against ops.json and ops_extra.json (made by the NumPy reference): exactly equal. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/json.h"
#include "engine/quant.h"

#define FIXTURES "engine/tests/fixtures/"
enum { MAX = 4096 };

static json_t *read_json(const char *path)
{
	struct err err = {0};
	json_t *j = json_read_file(path, false, &err);

	ck_assert_msg(j != NULL, "%s", err.text);
	return j;
}

static double number(const json_t *v)
{
	const char *s = json_string_value(v);

	if (!s)
		return json_number_value(v);
	return !strcmp(s, "NaN") ? NAN : !strcmp(s, "Infinity") ? INFINITY : -INFINITY;
}

/* All numbers of nested arrays, in order. */
static int flatten(double *to, int n, const json_t *v)
{
	if (!json_is_array(v)) {
		ck_assert_msg(v != NULL && n < MAX, "a member is missing or too long");
		to[n] = number(v);
		return n + 1;
	}
	for (size_t i = 0; i < json_array_size(v); i++)
		n = flatten(to, n, json_array_get(v, i));
	return n;
}

static int numbers(double *to, const json_t *object, const char *part, const char *key)
{
	const json_t *o = part ? json_object_get(object, part) : object;

	for (int i = 0; i < MAX; i++)
		to[i] = NAN;
	return flatten(to, 0, json_object_get(o, key));
}

static bool same(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static double in[MAX], want[MAX], got[MAX];

START_TEST(test_tables)
{
	json_t *ops = read_json(FIXTURES "ops.json");
	json_t *e4m3 = json_array_get(json_object_get(ops, "e4m3_decode"), 0);
	json_t *e2m1 = json_array_get(json_object_get(ops, "e2m1_decode"), 0);

	ck_assert_int_eq(numbers(want, e4m3, "out", "values"), 256);
	for (int i = 0; i < 256; i++)
		ck_assert_msg(same(e4m3_table[i], want[i]), "e4m3 0x%02x: %g, expected %g", i, e4m3_table[i], want[i]);
	ck_assert_int_eq(numbers(want, e2m1, "out", "values"), 16);
	for (int i = 0; i < 16; i++)
		ck_assert_msg(same(e2m1_table[i], want[i]), "e2m1 %d: %g, expected %g", i, e2m1_table[i], want[i]);
	json_decref(ops);
}
END_TEST

/* op, the function as a double of a double. */
static double code_e4m3(double x) { return e4m3_encode(x); }
static double code_e2m1(double x) { return e2m1_encode(x); }
static double round_bf16(double x) { return bf16_round((float)x); }
static double round_e4m3(double x) { return e4m3_encode(e4m3_round(x)); }
static double round_e2m1(double x) { return e2m1_encode(e2m1_round(x)); }

static const struct { const char *op, *out; double (*f)(double); } casts[] = {
	{ "e4m3_encode", "codes", code_e4m3 }, { "e2m1_encode", "codes", code_e2m1 }, { "bf16_round", "y", round_bf16 },
	{ "e4m3_encode", "codes", round_e4m3 }, { "e2m1_encode", "codes", round_e2m1 },
};

START_TEST(test_casts)
{
	json_t *ops = read_json(FIXTURES "ops.json");
	json_t *c = json_array_get(json_object_get(ops, casts[_i].op), 0);
	int n = numbers(in, c, "in", "x");

	ck_assert_int_eq(numbers(want, c, "out", casts[_i].out), n);
	ck_assert_int_gt(n, 0);
	for (int i = 0; i < n; i++)
		ck_assert_msg(same(casts[_i].f(in[i]), want[i]), "%s of %.17g: %.17g, expected %.17g", casts[_i].op, in[i],
			      casts[_i].f(in[i]), want[i]);
	json_decref(ops);
}
END_TEST

/* Every finite code survives a round trip; NaN codes give the positive NaN. */
START_TEST(test_round_trips)
{
	for (int c = 0; c < 256; c++)
		ck_assert_int_eq(e4m3_encode(e4m3_table[c]), (c & 0x7f) == 0x7f ? 0x7f : c);
	for (int c = 0; c < 16; c++)
		ck_assert_int_eq(e2m1_encode(e2m1_table[c]), c);
	for (int c = 0; c < 65536; c++) {
		float b = bf16_to_float((uint16_t)c), h = fp16_to_float((uint16_t)c);

		if (isnan(b))
			ck_assert(isnan(bf16_to_float(bf16_from_float(b))));
		else
			ck_assert_int_eq(bf16_from_float(b), c);
		if (isnan(h))
			ck_assert(isnan(fp16_to_float(fp16_from_float(h))));
		else
			ck_assert_int_eq(fp16_from_float(h), c);
	}
}
END_TEST

/* A NaN whose payload is in the lower half must not become an infinity. */
START_TEST(test_bf16_nan)
{
	uint32_t u = 0x7f800001;
	float x;

	memcpy(&x, &u, 4);
	ck_assert(isnan(bf16_round(x)));
	ck_assert(isnan(bf16_round(-x)));
	ck_assert(isinf(bf16_round(3.4e38f)));
}
END_TEST

START_TEST(test_float_casts)
{
	static const char *const formats[] = { "bf16", "fp16" };
	json_t *extra = read_json(FIXTURES "ops_extra.json");
	json_t *c = json_object_get(extra, formats[_i]);
	int n = numbers(in, c, NULL, "bits");

	ck_assert_int_gt(n, 100);
	ck_assert_int_eq(numbers(want, c, NULL, "codes"), n);
	for (int i = 0; i < n; i++) {
		uint32_t u = (uint32_t)in[i];
		float x;
		int code;

		memcpy(&x, &u, 4);
		code = _i ? fp16_from_float(x) : bf16_from_float(x);
		ck_assert_msg(code == (int)want[i], "%s of %a: 0x%04x, expected 0x%04x", formats[_i], x, code, (int)want[i]);
	}
	json_decref(extra);
}
END_TEST

/* Values by hand: format limits from IEEE 754. */
START_TEST(test_fp16_by_hand)
{
	ck_assert_float_eq(fp16_to_float(0x7bff), 65504.f);
	ck_assert_float_eq(fp16_to_float(0x0001), 0x1p-24f);
	ck_assert_float_eq(fp16_to_float(0x0400), 0x1p-14f);
	ck_assert_float_eq(fp16_to_float(0xbc00), -1.f);
	ck_assert_int_eq(fp16_from_float(65519.f), 0x7bff);
	ck_assert_int_eq(fp16_from_float(65520.f), 0x7c00);
	ck_assert_int_eq(fp16_from_float(-0x1p-25f), 0x8000);      /* a tie: to even, zero */
	ck_assert_int_eq(fp16_from_float(0x1.8p-24f), 0x0002);     /* a tie: to even */
	ck_assert_int_eq(fp16_from_float(0x1.ffep-15f), 0x0400);   /* the largest subnormal's neighbour rounds up */
}
END_TEST

static uint8_t codes[MAX + 8];

static void check_fp8(const json_t *c, const char *part, bool f64)
{
	float scale = (float)json_number_value(json_object_get(json_object_get(c, "in"), "input_scale"));
	int n = numbers(in, c, "in", "x");

	ck_assert_int_eq(part ? numbers(want, c, NULL, part) : numbers(want, c, "out", "codes"), n);
	memset(codes, 0xa5, sizeof codes);
	fp8_act(codes, in, n, scale, f64);
	for (int i = 0; i < n; i++)
		ck_assert_msg(codes[i] == want[i], "fp8_act(%g / %g): 0x%02x, expected 0x%02x", in[i], scale, codes[i], (int)want[i]);
	for (int i = n; i < n + 8; i++)
		ck_assert_msg(codes[i] == 0xa5, "fp8_act wrote behind its output");
}

START_TEST(test_fp8_act)
{
	json_t *ops = read_json(FIXTURES "ops.json"), *extra = read_json(FIXTURES "ops_extra.json"), *c;
	size_t i;

	json_array_foreach(json_object_get(ops, "fp8_act"), i, c) {
		check_fp8(c, NULL, true);
		check_fp8(c, NULL, false);
	}
	json_array_foreach(json_object_get(extra, "fp8_act"), i, c) {
		check_fp8(c, "f64", true);
		check_fp8(c, "fp32", false);
	}
	json_decref(ops);
	json_decref(extra);
}
END_TEST

/* One case, row by row, as codes (elements) and scale codes. */
static void check_nvfp4(const json_t *c, const double *element, const double *block, bool f64)
{
	const json_t *x = json_object_get(json_object_get(c, "in"), "x");
	float scale = (float)json_number_value(json_object_get(json_object_get(c, "in"), "input_scale"));
	int width = (int)json_array_size(json_array_get(x, 0));
	double sf[MAX / 16 + 1];

	for (size_t row = 0; row < json_array_size(x); row++) {
		for (int i = 0; i < MAX; i++)
			got[i] = NAN;
		for (int i = 0; i < MAX / 16 + 1; i++)
			sf[i] = NAN;
		flatten(in, 0, json_array_get(x, row));
		nvfp4_act(got, sf, in, width, scale, f64);
		for (int i = 0; i < width; i++)
			ck_assert_msg(!isnan(got[i]) && e2m1_table[(int)element[row * width + i]] == got[i], "row %zu, %d: %g / %g gives %g, "
				      "expected code %g", row, i, in[i], scale, got[i], element[row * width + i]);
		for (int b = 0; b < width / 16; b++)
			ck_assert_msg(e4m3_encode(sf[b]) == block[row * width / 16 + b] && e4m3_round(sf[b]) == sf[b],
				      "row %zu, block %d: scale %g", row, b, sf[b]);
		ck_assert(isnan(got[width]) && isnan(sf[width / 16]));
	}
}

START_TEST(test_nvfp4_act)
{
	json_t *ops = read_json(FIXTURES "ops.json"), *extra = read_json(FIXTURES "ops_extra.json"), *c;
	double nibble[MAX];
	size_t i;

	json_array_foreach(json_object_get(ops, "nvfp4_act"), i, c) {
		int n = numbers(want, c, "out", "bytes");

		for (int b = 0; b < n; b++) {
			nibble[2 * b] = (int)want[b] & 15;
			nibble[2 * b + 1] = (int)want[b] >> 4;
		}
		numbers(want, c, "out", "scale_codes");
		check_nvfp4(c, nibble, want, true);
		check_nvfp4(c, nibble, want, false);
	}
	json_array_foreach(json_object_get(extra, "nvfp4_act"), i, c) {
		for (int f64 = 0; f64 < 2; f64++) {
			numbers(nibble, c, f64 ? "f64" : "fp32", "codes");
			numbers(want, c, f64 ? "f64" : "fp32", "scale_codes");
			check_nvfp4(c, nibble, want, f64);
		}
	}
	json_decref(ops);
	json_decref(extra);
}
END_TEST

/* Weights: nibble order, block scale and global scale. */
START_TEST(test_nvfp4_dequant)
{
	json_t *ops = read_json(FIXTURES "ops.json");
	json_t *c = json_array_get(json_object_get(ops, "nvfp4_dequant"), 0);
	double bytes[MAX], blocks[MAX];
	float scale = (float)json_number_value(json_object_get(json_object_get(c, "in"), "weight_scale_2"));
	int n = 2 * numbers(bytes, c, "in", "bytes");

	numbers(blocks, c, "in", "scale_codes");
	ck_assert_int_eq(numbers(want, c, "out", "w"), n);
	for (int i = 0; i < n; i++) {
		int code = (int)bytes[i / 2] >> (i % 2 ? 4 : 0) & 15;
		double w = (double)e2m1_table[code] * (double)e4m3_table[(int)blocks[i / 16]] * (double)scale;

		ck_assert_msg(same(w, want[i]), "element %d: %.17g, expected %.17g", i, w, want[i]);
	}
	json_decref(ops);
}
END_TEST

START_TEST(test_scale_swizzle)
{
	json_t *ops = read_json(FIXTURES "ops.json");
	json_t *c = json_array_get(json_object_get(ops, "scale_swizzle"), 0);
	int64_t cols = json_integer_value(json_object_get(json_object_get(c, "in"), "cols"));
	int n = numbers(want, c, "out", "where");

	ck_assert_int_gt(n, 300);
	for (int i = 0; i < n; i += 3)
		ck_assert_int_eq(scale_swizzle((int64_t)want[i], (int64_t)want[i + 1], cols), (int64_t)want[i + 2]);
	json_decref(ops);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("quant");
	TCase *c = tcase_create("formats");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_test(c, test_tables);
	tcase_add_loop_test(c, test_casts, 0, sizeof casts / sizeof *casts);
	tcase_add_test(c, test_round_trips);
	tcase_add_test(c, test_bf16_nan);
	tcase_add_loop_test(c, test_float_casts, 0, 2);
	tcase_add_test(c, test_fp16_by_hand);
	tcase_add_test(c, test_fp8_act);
	tcase_add_test(c, test_nvfp4_act);
	tcase_add_test(c, test_nvfp4_dequant);
	tcase_add_test(c, test_scale_swizzle);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
