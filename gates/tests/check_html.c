/* The page's contents, decoded here as its program decodes them; what a reader sees of them is check_page.py's. */
#include <math.h>
#include "reported.h"

static json_t *data_of(const char *page)
{
	static const char head[] = "<script type=\"application/json\" id=\"data\">";
	const char *at = strstr(page, head), *ends;

	ck_assert_ptr_nonnull(at);
	at += strlen(head);
	ends = strstr(at, "</script>");
	json_t *data = json_read_bytes(at, (size_t)(ends - at), "page", false, &err);

	ck_assert_msg(data != NULL, "%s", err.text);
	return data;
}

static unsigned char *bytes_of(const json_t *text, size_t *n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *s = json_string_value(text);
	size_t length = strlen(s);
	unsigned char *to = xmalloc(length + 4);

	*n = 0;
	for (size_t i = 0; i + 3 < length; i += 4) {
		unsigned v = 0;

		for (int k = 0; k < 4; k++)
			v = v << 6 | (s[i + (size_t)k] == '=' ? 0 : (unsigned)(strchr(digits, s[i + (size_t)k]) - digits));
		for (int k = 0; k < 3 && (k == 0 || s[i + (size_t)k + 1] != '='); k++)
			to[(*n)++] = (unsigned char)(v >> (16 - 8 * k));
	}
	return to;
}

/* 12 bits each */
static double number_at(const json_t *text, size_t i)
{
	size_t n;
	unsigned char *b = bytes_of(text, &n);
	unsigned pair = b[i / 2 * 3] | (unsigned)b[i / 2 * 3 + 1] << 8 | (unsigned)b[i / 2 * 3 + 2] << 16, v = i % 2 ? pair >> 12 : pair & 4095;

	ck_assert_uint_lt(i / 2 * 3 + 2, n);
	free(b);
	return v == 4095 ? NAN : v == 0 ? 0 : exp2((v - 1) / 157.0 - 20);
}

START_TEST(logarithms_by_hand)
{
	/* 2^-20 is code 1, 1 is code 3141, 64 is code 4083; beyond the range they stay at its ends */
	const double x[] = { 0, NAN, 9.5367431640625e-7, 1, 64, 1e-9, 1e9 };
	json_t *text = page_logarithms(x, 7);

	ck_assert_double_eq(number_at(text, 0), 0);
	ck_assert(isnan(number_at(text, 1)));
	ck_assert_double_eq(number_at(text, 2), 9.5367431640625e-7);
	ck_assert_double_eq(number_at(text, 3), 1);
	ck_assert_double_eq(number_at(text, 4), 64);
	ck_assert_double_eq(number_at(text, 5), 9.5367431640625e-7);
	ck_assert_double_gt(number_at(text, 6), 64);
	/* 1/157 of an octave: half a step is 0.22 % */
	for (double y = 1e-6; y < 60; y *= 1.37) {
		json_t *one = page_logarithms(&y, 1);

		ck_assert_double_le(fabs(number_at(one, 0) / y - 1), 0.0023);
		json_decref(one);
	}
	json_decref(text);
}
END_TEST

START_TEST(integers_by_hand)
{
	const int32_t x[] = { 1, -1, 65536 };
	const uint32_t y[] = { 1, 258 };
	json_t *a = page_integers(x, 3), *b = page_indices(y, 2, 2), *c = page_indices(y, 1, 1);

	ck_assert_str_eq(json_string_value(a), "AQAAAP////8AAAEA");
	ck_assert_str_eq(json_string_value(b), "AQACAQ==");
	ck_assert_str_eq(json_string_value(c), "AQ==");
	json_decref(a);
	json_decref(b);
	json_decref(c);
}
END_TEST

/* Rows as the page puts them together again: expected, with what differed laid over it. */
START_TEST(rows_come_back)
{
	size_t n_ids, n_expected, n_gaps, n_got, matched = 0;

	use("suspicious");
	load();
	json_t *data = page_data(&found), *leg = json_array_get(json_object_get(data, "legs"), 0);
	json_t *mode = json_object_get(json_object_get(leg, "modes"), "free");
	unsigned char *ids = bytes_of(json_object_get(json_object_get(data, "tokens"), "ids"), &n_ids);
	unsigned char *row = bytes_of(json_object_get(json_object_get(data, "oracle"), "expected"), &n_expected);
	unsigned char *gaps = bytes_of(json_object_get(mode, "gaps"), &n_gaps), *got = bytes_of(json_object_get(mode, "got"), &n_got);
	unsigned char *want = xmalloc(n_expected);

	memcpy(want, row, n_expected);
	ck_assert_uint_eq(n_got, 2 * n_gaps);
	for (size_t i = 0, at = 0; i < n_gaps; i++) {
		at += gaps[i];
		row[2 * at] = got[2 * i];
		row[2 * at + 1] = got[2 * i + 1];
	}
	const json_t *prompts = json_object_get(findings_leg(&found, 0), "prompts"), *prompt;
	size_t p, at = 0;

	json_array_foreach(prompts, p, prompt)
		for (size_t j = 0; j < json_array_size(json_object_get(prompt, "got")); j++, at++) {
			unsigned place = row[2 * at] | (unsigned)row[2 * at + 1] << 8;
			json_int_t id = ids[4 * place] | ids[4 * place + 1] << 8 | ids[4 * place + 2] << 16;

			ck_assert_int_eq(id, json_integer_value(json_array_get(json_object_get(prompt, "got"), j)));
			matched += memcmp(row + 2 * at, want + 2 * at, 2) == 0;
		}
	ck_assert_uint_eq(2 * at, n_expected);
	ck_assert_int_eq((json_int_t)matched, json_integer_value(json_object_get(json_object_get(findings_leg(&found, 0), "tokens"), "matched")));
	ck_assert_uint_gt(n_gaps, 0);
	free(ids);
	free(row);
	free(want);
	free(gaps);
	free(got);
	json_decref(data);
}
END_TEST

/* The largest distance that the verdict names stands at its position. */
START_TEST(distances_are_the_judges)
{
	use("excess");
	load();
	json_t *data = page_data(&found), *leg = json_array_get(json_object_get(data, "legs"), 0);
	const json_t *d = json_object_get(json_object_get(findings_leg(&found, 0), "noise"), "distance"), *largest = json_object_get(d, "largest");
	size_t first = 0;

	for (int p = 0; p < found.evidence.oracle.n_prompts; p++)
		if (strcmp(evidence_prompt(&found.evidence, p), json_string_value(json_object_get(largest, "prompt"))) == 0)
			first = found.evidence.oracle.prompts[p].first;
	double B = json_real_value(json_object_get(largest, "B"));
	double shown = number_at(json_object_get(leg, "distance"), first + (size_t)json_integer_value(json_object_get(largest, "step")));

	ck_assert_double_gt(B, 0);
	ck_assert_double_le(fabs(shown / B - 1), 0.0023);
	json_decref(data);
}
END_TEST

START_TEST(texts_are_escaped)
{
	size_t size;

	use("near-tie");
	nasty_question();
	json_object_set_new(json_array_get(json_object_get(golden, "prompts"), 0), "text", json_string(NASTY));
	rewrite_golden("step");
	load();
	char *page = show_html(&found, "/* </script> */", &size);
	const char *body = strstr(page, "<body>");
	json_t *data = data_of(page);

	ck_assert_uint_eq(size, strlen(page));
	/* one element of data, one of Chart.js, one of the page's own program */
	ck_assert_int_eq(count_of(page, "</script"), 3);
	lacks(page, "<b>x</b>");
	lacks(page, "\"</");
	ck_assert_int_eq(count_of(body, "&lt;/script&gt;&lt;b&gt;x&lt;/b&gt; \\u{202e}"), 1);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(data, "prompts"), 0), "text")), NASTY);
	lacks(page, "http-equiv=\"refresh\"");
	lacks(page, "src=\"http");
	json_decref(data);
	free(page);
}
END_TEST

START_TEST(trace_is_told_by_runs)
{
	use("void-contract");
	load();
	json_t *data = page_data(&found), *leg, *runs;
	size_t l, i;

	json_array_foreach(json_object_get(data, "legs"), l, leg) {
		json_int_t rows = 0;

		runs = json_object_get(json_object_get(json_object_get(leg, "trace"), "forced"), "runs");
		for (i = 0; i < json_array_size(runs); i++)
			rows += json_integer_value(json_array_get(json_array_get(runs, i), 1));
		ck_assert_int_eq(rows, found.evidence.legs[l].report.modes[MODE_FORCED].n_trace);
		ck_assert_int_lt((int)json_array_size(runs), (int)rows);
	}
	json_decref(data);
}
END_TEST

START_TEST(a_verdict_of_another_recipe_is_refused)
{
	use("near-tie");
	judge();
	json_object_set_new(json_object_get(verdict, "recipe"), "sha256",
			    json_string("0000000000000000000000000000000000000000000000000000000000000000"));
	write_json("verdict.json", verdict);
	ck_assert(findings_load(&found, run, &err));
	has(err.text, "verdict.json: is not of the recipe.yaml beside it");
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("html");

	tcase_add_test(c, logarithms_by_hand);
	tcase_add_test(c, integers_by_hand);
	tcase_add_test(c, rows_come_back);
	tcase_add_test(c, distances_are_the_judges);
	tcase_add_test(c, texts_are_escaped);
	tcase_add_test(c, trace_is_told_by_runs);
	tcase_add_test(c, a_verdict_of_another_recipe_is_refused);
	return run_suite("html", c);
}
