/* Goldens: what must be refused and where, what is read, and that writing loses nothing. */
#include <glob.h>
#include <math.h>
#include "help.h"
#include "contract/golden.h"
#include "contract/json.h"
#include "contract/steps.h"
#include "schema_check.h"

#define DATA "contract/tests/data/golden/"

static struct golden g;
static struct err err;

static void start(void)
{
	g = (struct golden){ 0 };
	err = (struct err){ 0 };
}

static void stop(void)
{
	golden_release(&g);
}

static int load(const char *path, struct err *e)
{
	return golden_load(&g, path, e);
}

START_TEST(refused)
{
	ck_assert_int_ge(help_refused("contract/tests/data/golden", load), 80);
	/* a refused golden leaves nothing to release */
	ck_assert_ptr_null(g.prompts);
}
END_TEST

START_TEST(absent_file)
{
	ck_assert_int_eq(golden_load(&g, DATA "absent.json", &err), -1);
	ck_assert_str_eq(err.text, DATA "absent.json: No such file or directory");
}
END_TEST

/* ---- what is read ---- */

START_TEST(minimal)
{
	const struct golden_profile *p;
	char sha[SHA256_HEX];

	ck_ok(load(DATA "minimal.json", &err), err);
	ck_assert_str_eq(g.name, "g");
	ck_assert_str_eq(g.model, "m");
	ck_assert_ptr_null(g.model_revision);
	ck_assert_int_eq(g.n_files, 0);
	ck_assert_str_eq(g.tokenizer_sha256, "");
	ck_assert_int_eq((int)g.max_tokens, -1);
	ck_assert_int_eq(g.ignore_eos, -1);
	ck_ok(sha256_file(DATA "minimal.json", sha, &err), err);
	ck_assert_str_eq(g.sha256, sha);
	ck_assert_int_eq(g.n_prompts, 2);
	ck_assert_ptr_null(g.prompts[0].text);
	ck_assert_str_eq(g.prompts[1].text, "two words");
	ck_assert_int_eq(golden_prompt_find(&g, "p1"), 1);
	ck_assert_int_eq(golden_prompt_find(&g, "p2"), -1);
	ck_assert_int_eq(g.n_profiles, 1);
	ck_assert_ptr_null(golden_profile_find(&g, "eager"));
	p = golden_profile_find(&g, "base");
	ck_assert_ptr_eq(p, &g.profiles[0]);
	ck_assert_ptr_null(p->engine_config);
	ck_assert_ptr_null(p->logits_dtype);
	ck_assert_int_eq(p->mode, GOLDEN_FREE);
	ck_assert_int_eq(p->repeats, 0);
	ck_assert_int_eq(p->repeats_agree, -1);
	ck_assert_int_eq(p->n_rows, 2);
	ck_assert_ptr_eq(golden_row_find(p, 1), &p->rows[1]);
	ck_assert_ptr_null(p->rows[1].steps);     /* ids only */
	ck_assert_int_eq(p->rows[1].ids[0], 7);
	ck_assert_int_eq(p->rows[0].n, 2);
	ck_assert(!p->rows[0].steps[0].has_lse);
	ck_assert_int_eq(p->rows[0].steps[1].n_top, 2);
	ck_assert_int_eq(p->rows[0].steps[1].top[1].id, 5);
	ck_assert(p->rows[0].steps[1].top[1].value == -2);
	ck_assert(p->rows[0].steps[1].has_lse && p->rows[0].steps[1].lse == 9.5);
}
END_TEST

START_TEST(full)
{
	const struct golden_profile *p;

	ck_ok(load(DATA "full.json", &err), err);
	ck_assert_str_eq(g.model_revision, "a1b2");
	ck_assert_int_eq(g.n_files, 2);
	ck_assert_str_eq(g.files[0].name, "config.json");
	ck_assert_str_eq(g.files[1].sha256, "c05915dc9bd0bf527a6ee2d6c6237d74687d9c1ff9387ada311f3feffca7ebfb");
	ck_assert_str_eq(g.tokenizer_sha256, g.files[1].sha256);
	ck_assert_int_eq((int)g.max_tokens, 32);
	ck_assert_int_eq(g.ignore_eos, 1);
	ck_assert_str_eq(g.prompts[0].text, "\xe2\x80\x9cIt\xe2\x80\x9d was\n");
	ck_assert_int_eq(g.prompts[0].ids[1], 2147483647);
	p = &g.profiles[0];
	ck_assert_str_eq(p->engine, "vllm");
	ck_assert_str_eq(p->engine_version, "0.26.0");
	ck_assert_str_eq(json_string_value(json_object_get(p->engine_config, "attention_backend")), "TRITON_ATTN");
	ck_assert_str_eq(p->device, "NVIDIA H200");
	ck_assert_str_eq(p->logits_dtype, "bf16");
	ck_assert_str_eq(p->captured, "2026-12-01");
	ck_assert_str_eq(p->command, "capture --model m");
	ck_assert_int_eq(p->repeats, 2);
	ck_assert_int_eq(p->repeats_agree, 1);
	ck_assert_str_eq(p->rows[0].text, " stormy");
	ck_assert_int_eq(p->rows[0].steps[0].n_top, 4);
	ck_assert(p->rows[0].steps[0].top[3].value == -31.000000000000004);
	ck_assert_int_eq(p->rows[0].steps[1].n_top, 0);
	ck_assert_int_eq(p->rows[0].steps[1].id, 8);
	ck_assert_int_eq(p->rows[1].n, 0);
	ck_assert_int_eq(g.profiles[1].mode, GOLDEN_FORCED);
	ck_assert_int_eq(g.profiles[1].repeats_agree, 0);
	ck_assert(g.profiles[1].rows[0].steps[0].top[0].value == -0.6931471805599453);
}
END_TEST

START_TEST(legal_oddities)
{
	ck_ok(load(DATA "tie-emitted-second.json", &err), err);   /* an exact tie may have gone either way */
	ck_assert_int_eq(g.profiles[0].rows[0].steps[0].top[1].id, 6);
	golden_release(&g);
	ck_ok(load(DATA "spaces.json", &err), err);
	ck_assert_int_eq(g.profiles[0].rows[0].steps[0].id, 5);
	ck_assert(g.profiles[0].rows[0].steps[0].top[0].value == -0.5);
	ck_assert(g.profiles[0].rows[0].steps[0].top[1].value == -1.5);
	golden_release(&g);
	/* `steps` elsewhere are nobody's steps */
	ck_ok(load(DATA "steps-in-config.json", &err), err);
	ck_assert(json_is_array(json_object_get(g.profiles[0].engine_config, "steps")));
	ck_assert_int_eq(g.profiles[0].rows[0].steps[1].id, 6);
}
END_TEST

/* ---- against another parser, for everything that is shipped ---- */

/* Equal as documents; 1 and 1.0 are one number. */
static void expect_same(const json_t *a, const json_t *b, const char *path)
{
	const char *key;
	char inner[512];
	json_t *value;
	size_t i;

	if (json_is_number(a) && json_is_number(b)) {
		ck_assert_msg(json_number_value(a) == json_number_value(b), "%s: %.17g, %.17g", path, json_number_value(a),
			      json_number_value(b));
		return;
	}
	ck_assert_msg(a != NULL && b != NULL && json_typeof(a) == json_typeof(b), "%s: %s, %s", path, json_says(a), json_says(b));
	if (json_is_object(a)) {
		ck_assert_msg(json_object_size(a) == json_object_size(b), "%s: members", path);
		json_object_foreach((json_t *)a, key, value)
			expect_same(value, json_object_get(b, key), json_path(inner, sizeof(inner), path, key));
	} else if (json_is_array(a)) {
		ck_assert_msg(json_array_size(a) == json_array_size(b), "%s: items", path);
		json_array_foreach(a, i, value) {
			snprintf(inner, sizeof(inner), "%s[%zu]", path, i);
			expect_same(value, json_array_get(b, i), inner);
		}
	} else {
		ck_assert_msg(json_equal(a, b), "%s", path);
	}
}

static int expect_steps(const struct golden_row *row, const json_t *steps)
{
	int pairs = 0;

	ck_assert_int_eq((int)json_array_size(steps), row->n);
	for (int i = 0; i < row->n; i++) {
		const struct golden_step *s = &row->steps[i];
		const json_t *step = json_array_get(steps, (size_t)i), *top = json_object_get(step, "top");
		const json_t *lse = json_object_get(step, "lse");

		ck_assert_int_eq(s->id, (int)json_integer_value(json_object_get(step, "id")));
		ck_assert_int_eq(s->n_top, (int)json_array_size(top));
		ck_assert_int_eq(s->has_lse, lse != NULL);
		ck_assert(lse == NULL || s->lse == json_number_value(lse));
		for (int j = 0; j < s->n_top; j++, pairs++) {
			const json_t *pair = json_array_get(top, (size_t)j);

			ck_assert_int_eq(s->top[j].id, (int)json_integer_value(json_array_get(pair, 0)));
			ck_assert(s->top[j].value == json_number_value(json_array_get(pair, 1)));
		}
	}
	return pairs;
}

/* Loads a golden and compares every value with jansson's tree of the same file; returns the pairs compared. */
static int expect_as_jansson(const char *path)
{
	json_t *tree = json_load_file(path, 0, NULL);
	const json_t *profile, *row;
	int pairs = 0;
	size_t p, r;

	ck_assert_ptr_nonnull(tree);
	ck_assert_msg(schema_check("golden", NULL, tree, &err), "%s: %s", path, err.text);
	ck_ok(load(path, &err), err);
	ck_assert_int_eq(g.n_prompts, (int)json_array_size(json_object_get(tree, "prompts")));
	ck_assert_int_eq(g.n_profiles, (int)json_array_size(json_object_get(tree, "profiles")));
	json_array_foreach(json_object_get(tree, "profiles"), p, profile) {
		const json_t *rows = json_object_get(profile, "prompts");

		ck_assert_int_eq(g.profiles[p].n_rows, (int)json_array_size(rows));
		json_array_foreach(rows, r, row) {
			const struct golden_row *mine = &g.profiles[p].rows[r];

			ck_assert_str_eq(g.prompts[mine->prompt].id, json_string_value(json_object_get(row, "id")));
			ck_assert_int_eq(mine->n, (int)json_array_size(json_object_get(row, "ids")));
			ck_assert_int_eq(mine->steps != NULL, json_object_get(row, "steps") != NULL);
			if (mine->steps != NULL)
				pairs += expect_steps(mine, json_object_get(row, "steps"));
		}
	}
	json_decref(tree);
	return pairs;
}

/* Saves what is loaded; the document that results must be the one that was read. */
static void expect_saved_as(const char *path)
{
	char *dir = help_directory(), *copy = path_join(dir, "copy.json");
	json_t *tree = json_load_file(path, 0, NULL), *saved;

	ck_ok(golden_save(&g, copy, &err), err);
	saved = json_load_file(copy, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(saved);
	ck_assert_msg(schema_check("golden", NULL, saved, &err), "%s: %s", path, err.text);
	/* what a golden need not say, and a saved one always does */
	if (json_object_get(tree, "sampling") == NULL)
		json_object_set_new(tree, "sampling", json_pack("{s:i}", "temperature", 0));
	for (size_t i = 0; i < json_array_size(json_object_get(tree, "profiles")); i++) {
		json_t *profile = json_array_get(json_object_get(tree, "profiles"), i);

		if (json_object_get(profile, "mode") == NULL)
			json_object_set_new(profile, "mode", json_string("free"));
	}
	expect_same(tree, saved, "$");
	json_decref(saved);
	json_decref(tree);
	free(copy);
	help_remove(dir);
}

START_TEST(bundled_golden)
{
	/* 6 profiles, 16 prompts: three of 32 steps, thirteen of 96; 20 pairs a step */
	ck_assert_int_eq(expect_as_jansson("oracle-goldens/book52-nvfp4.json"), 6 * (3 * 32 + 13 * 96) * 20);
	expect_saved_as("oracle-goldens/book52-nvfp4.json");
}
END_TEST

START_TEST(canned_goldens)
{
	glob_t found;
	int pairs = 0;

	ck_assert_int_eq(glob("gates/tests/verdicts/*/golden.json", 0, NULL, &found), 0);
	ck_assert_uint_ge(found.gl_pathc, 26);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		pairs += expect_as_jansson(found.gl_pathv[i]);
		expect_saved_as(found.gl_pathv[i]);
		golden_release(&g);
	}
	ck_assert_int_ge(pairs, 50000);
	globfree(&found);
}
END_TEST

/* Text for text: the layout is part of what a reviewer reads. */
START_TEST(saved_text)
{
	char *dir = help_directory(), *copy = path_join(dir, "copy.json"), *saved, *expected;
	size_t n, size;

	ck_ok(load(DATA "full.json", &err), err);
	ck_ok(golden_save(&g, copy, &err), err);
	saved = help_slurp(copy, &n);
	expected = help_slurp(DATA "full.json", &size);
	help_same_text(saved, expected);
	ck_assert_int_eq(help_count(dir), 1);
	free(expected);
	free(saved);
	free(copy);
	help_remove(dir);
}
END_TEST

/* ---- damage ---- */

static void load_damaged(const char *bytes, size_t size, bool must_fail)
{
	char *exact = xmalloc(size);     /* no byte behind it, so that a sanitizer sees a read too far */
	int status;

	memcpy(exact, bytes, size);
	status = golden_load_bytes(&g, exact, size, "f", &err);
	ck_assert(!must_fail || status == -1);
	ck_assert_int_eq(status == -1, err.kind == ERR_INPUT);
	ck_assert(status == 0 || strchr(err.text, '\n') == NULL);
	golden_release(&g);
	err = (struct err){ 0 };
	free(exact);
}

START_TEST(truncated_everywhere)
{
	size_t size;
	char *bytes = help_slurp(DATA "minimal.json", &size);

	for (size_t n = 0; n + 1 < size; n++)     /* the last byte is a newline */
		load_damaged(bytes, n, true);
	free(bytes);
}
END_TEST

START_TEST(damaged_everywhere)
{
	static const char with[] = "\"\\{}[],:0-.e\0 \xff\n";
	size_t size;
	char *bytes = help_slurp(DATA "full.json", &size);

	for (size_t i = 0; i < size; i++) {
		char old = bytes[i];

		for (size_t j = 0; j < sizeof(with) - 1; j++) {
			bytes[i] = with[j];
			load_damaged(bytes, size, false);
		}
		bytes[i] = old;
		/* and with the byte left out */
		memmove(bytes + i, bytes + i + 1, size - i - 1);
		load_damaged(bytes, size - 1, false);
		memmove(bytes + i + 1, bytes + i, size - i - 1);
		bytes[i] = old;
	}
	free(bytes);
}
END_TEST

START_TEST(escaped_key_is_refused)
{
	static const char *const keys[] = { "\"st\\u0065ps\":[{\"id\":5}]", "\"st\\u0065ps\":0" };

	for (int i = 0; i < 2; i++) {
		char *text = xasprintf("{\"schema\":\"assay/golden/1\",\"name\":\"g\",\"model\":{\"name\":\"m\",\"files\":{}},"
				       "\"prompts\":[{\"id\":\"p0\",\"ids\":[1]},{\"id\":\"p1\",\"ids\":[1]}],\"profiles\":[{\"name\":"
				       "\"base\",\"engine\":{\"name\":\"e\",\"version\":\"1\"},\"prompts\":[{\"id\":\"p0\",\"ids\":[5],%s},"
				       "{\"id\":\"p1\",\"ids\":[5],\"steps\":[{\"id\":5}]}]}]}", keys[i]);

		ck_assert_int_eq(golden_load_bytes(&g, text, strlen(text), "f", &err), -1);
		ck_assert_int_eq(err.kind, ERR_INPUT);
		err = (struct err){ 0 };
		free(text);
	}
}
END_TEST

/* numbers in every spelling, against strtod */
START_TEST(numbers)
{
	static const char *const spellings[] = {
		"-0.1", "-1e-3", "-1E+0", "-12345678901234567890", "-0.12345678901234567890123", "-1.7976931348623157e308", "-5e-324",
		"-2.2250738585072011e-308", "-9007199254740993", "-9007199254740992.5", "-0", "-0.0e5", "-1e22", "-1e23", "-1e-22",
		"-1e-23", "-123456789e-30", "-1e-400", "-0.000000000000000000000000000001", "-8.41", "-0.30000000000000004",
		/* the next wraps to 1 in 64 bits; the others come out differently if digits are rounded before the division */
		"-18446744073709551617", "-1120117523947245031e-16", "-722554765817554266e-9", "-2365483152373712794e-1",
	};

	for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
		char *text = xasprintf("{\"schema\":\"assay/golden/1\",\"name\":\"g\",\"model\":{\"name\":\"m\",\"files\":{}},"
				       "\"prompts\":[{\"id\":\"p0\",\"ids\":[1]}],\"profiles\":[{\"name\":\"base\",\"engine\":"
				       "{\"name\":\"e\",\"version\":\"1\"},\"prompts\":[{\"id\":\"p0\",\"ids\":[5],\"steps\":[{\"id\":5,"
				       "\"top\":[[5,%s]]}]}]}]}", spellings[i]);
		double expected = strtod(spellings[i], NULL);

		ck_ok(golden_load_bytes(&g, text, strlen(text), "f", &err), err);
		ck_assert_msg(memcmp(&g.profiles[0].rows[0].steps[0].top[0].value, &expected, sizeof(expected)) == 0, "%s: %.17g",
			      spellings[i], g.profiles[0].rows[0].steps[0].top[0].value);
		golden_release(&g);
		free(text);
	}
}
END_TEST

START_TEST(arena)
{
	void *a = NULL;
	struct top *first = tops_alloc(&a, 3), *big = tops_alloc(&a, 100000), *next = tops_alloc(&a, 4000);

	for (int i = 0; i < 3; i++)
		first[i].id = 1;
	for (int i = 0; i < 100000; i++)
		big[i].id = 2;
	for (int i = 0; i < 4000; i++)
		next[i].id = 3;
	ck_assert_int_eq(first[2].id, 1);
	ck_assert_int_eq(big[99999].id, 2);
	tops_free(&a);
	ck_assert_ptr_null(a);
	tops_free(&a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("golden");
	TCase *tc = tcase_create("golden");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, start, stop);
	tcase_add_test(tc, refused);
	tcase_add_test(tc, absent_file);
	tcase_add_test(tc, minimal);
	tcase_add_test(tc, full);
	tcase_add_test(tc, legal_oddities);
	tcase_add_test(tc, bundled_golden);
	tcase_add_test(tc, canned_goldens);
	tcase_add_test(tc, saved_text);
	tcase_add_test(tc, truncated_everywhere);
	tcase_add_test(tc, damaged_everywhere);
	tcase_add_test(tc, escaped_key_is_refused);
	tcase_add_test(tc, numbers);
	tcase_add_test(tc, arena);
	suite_add_tcase(suite, tc);
	return help_run(suite);
}
