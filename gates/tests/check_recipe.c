/* Recipes: everything that must be refused, with its place; and what a good one is read as. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "gates/recipe.h"

#define CASES "gates/tests/recipes/"

static struct recipe recipe;
static struct err err;

static void start(void)
{
	recipe = (struct recipe){0};
	err = (struct err){0};
}

static void stop(void)
{
	recipe_release(&recipe);
}

static int name_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the directories in `path`, sorted; the caller frees. */
static int list_cases(const char *path, char ***names)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int n = 0;

	ck_assert_msg(dir != NULL, "%s: cannot be opened (tests run from the repository root)", path);
	*names = NULL;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.' && !strchr(entry->d_name, '.')) {
			*names = xrealloc(*names, (size_t)n + 1, sizeof(**names));
			(*names)[n++] = xstrdup(entry->d_name);
		}
	closedir(dir);
	qsort(*names, (size_t)n, sizeof(**names), name_order);
	return n;
}

static char *read_case(const char *dir, const char *name, const char *file, size_t *size)
{
	struct err failed = {0};
	char *path = xasprintf("%s/%s/%s", dir, name, file);
	char *bytes = file_read(path, 1 << 20, size, &failed);

	ck_assert_msg(bytes != NULL, "%s", failed.text);
	free(path);
	return bytes;
}

START_TEST(invalid_cases_are_refused_in_their_place)
{
	char **names;
	int n = list_cases(CASES "invalid", &names), wrong = 0;

	ck_assert_int_ge(n, 90);
	for (int i = 0; i < n; i++) {
		size_t size, expected_size;
		char *bytes = read_case(CASES "invalid", names[i], "recipe.yaml", &size);
		char *expected = read_case(CASES "invalid", names[i], "error", &expected_size);

		expected[strcspn(expected, "\n")] = '\0';
		start();
		int failed = recipe_load_bytes(&recipe, bytes, size, "recipe.yaml", &err);

		if (failed != -1 || err.kind != ERR_INPUT || strcmp(err.text, expected) != 0) {
			printf("%s:\n  expected %s\n  got      %s\n", names[i], expected, failed ? err.text : "no error");
			wrong++;
		}
		recipe_release(&recipe);
		free(bytes);
		free(expected);
		free(names[i]);
	}
	free(names);
	start();
	ck_assert_int_eq(wrong, 0);
}
END_TEST

/* A recipe cut anywhere, or with any byte replaced, is read or refused, never more. */
START_TEST(damaged_recipes_do_no_harm)
{
	size_t size;
	char *bytes = read_case(CASES "valid", "all-keys", "recipe.yaml", &size);
	int refused = 0;

	for (size_t cut = 0; cut < size; cut++) {
		start();
		refused += recipe_load_bytes(&recipe, bytes, cut, "recipe.yaml", &err) != 0;
		ck_assert_int_eq(err.kind != ERR_NONE && strncmp(err.text, "recipe.yaml:", 12) != 0, 0);
		recipe_release(&recipe);
	}
	ck_assert_int_ge(refused, (int)size - 60);   /* all but some ends of the last lines, `limit` is optional */
	for (size_t at = 0; at < size; at += 3)
		for (const char *byte = "\x01:{}[]&*!|>'\"-#\xff"; *byte; byte++) {
			char kept = bytes[at];

			bytes[at] = *byte;
			start();
			recipe_load_bytes(&recipe, bytes, size, "recipe.yaml", &err);
			recipe_release(&recipe);
			bytes[at] = kept;
		}
	start();
	free(bytes);
}
END_TEST

static void load_valid(const char *name)
{
	size_t size;
	char *bytes = read_case(CASES "valid", name, "recipe.yaml", &size);

	ck_assert_msg(recipe_load_bytes(&recipe, bytes, size, "recipe.yaml", &err) == 0, "%s", err.text);
	free(bytes);
}

static void check_smallest(const char *name)
{
	load_valid(name);
	ck_assert_str_eq(recipe.name, "case");
	ck_assert_int_eq(recipe.kind, RECIPE_GATE);
	ck_assert_ptr_null(recipe.question);
	ck_assert_str_eq(recipe.model, "models/tiny");
	ck_assert_str_eq(recipe.golden, "goldens/tiny.json");
	ck_assert_str_eq(recipe.profile, "base");
	ck_assert_int_eq(recipe.n_prompts, 0);
	ck_assert_int_eq(recipe.n_steps, 1);
	ck_assert_int_eq(recipe.max_steps, 8);
	ck_assert(recipe.modes[MODE_FREE] && !recipe.modes[MODE_FORCED]);
	ck_assert_double_eq(recipe.timeout_s, 600);
	ck_assert_double_eq(recipe.limit, 2);
	ck_assert_int_eq(recipe.n_legs, 2);
	ck_assert_str_eq(recipe.legs[0].name, "on");
	ck_assert_int_eq(recipe.legs[0].arm.value[FACTOR_BACKEND], BACKEND_CPU);
	ck_assert_int_eq(recipe.legs[0].arm.value[FACTOR_MAMBA_DECODE], ARM_UNSET);
	ck_assert_int_eq(recipe.legs[1].arm.value[FACTOR_MAMBA_DECODE], MAMBA_DECODE_CHUNK);
	ck_assert_int_eq(recipe.legs[1].own.value[FACTOR_BACKEND], ARM_UNSET);
	ck_assert_int_eq(recipe.legs[1].contract.n, 1);
	ck_assert_int_eq(recipe.legs[1].contract.wants[0].counter, COUNT_GATHERS);
	ck_assert_int_eq(recipe.legs[1].contract.wants[0].n, 2);
	ck_assert_int_eq(recipe.legs[1].contract.wants[0].blocks, WANT_MAMBA);
	ck_assert_int_eq(recipe.place.steps.line, 6);
	ck_assert_int_eq(recipe.place.steps.column, 8);
}

START_TEST(defaults)
{
	check_smallest("smallest");
}
END_TEST

START_TEST(byte_order_mark)
{
	check_smallest("yaml-bom");
}
END_TEST

START_TEST(carriage_returns)
{
	check_smallest("crlf");
}
END_TEST

START_TEST(all_keys_run)
{
	load_valid("all-keys");
	ck_assert_int_eq(recipe.kind, RECIPE_DISCRIMINATE);
	ck_assert_str_eq(recipe.question, "Which one, and why?");
	ck_assert_str_eq(recipe.model, "/models/tiny");
	ck_assert_str_eq(recipe.profile, "eager");
	ck_assert_int_eq(recipe.n_prompts, 3);
	ck_assert_str_eq(recipe.prompts[1], "1");
	ck_assert_str_eq(recipe.prompts[2], "on");
	ck_assert_int_eq(recipe.place.prompts[2].column, 20);
	ck_assert_int_eq(recipe.n_steps, 3);
	ck_assert_int_eq(recipe.steps[2], 16);
	ck_assert_int_eq(recipe.max_steps, 32);
	ck_assert(!recipe.modes[MODE_FREE] && recipe.modes[MODE_FORCED]);
	ck_assert_double_eq(recipe.timeout_s, 1.5);
	ck_assert_double_eq(recipe.limit, 3);
	ck_assert_str_eq(recipe.limit_why, "three is enough");
	ck_assert_int_eq(recipe.n_features, 1);
	ck_assert_str_eq(recipe.features[0].name, "cublaslt_fp8");
	ck_assert_str_eq(recipe.features[0].value, "enabled");
	ck_assert_int_eq(recipe.n_pins, 1);
	ck_assert_str_eq(recipe.pins[0].file, "config.json");
	ck_assert_int_eq(recipe.pins[0].sha256[63], '1');
	ck_assert_int_eq(recipe.pin_golden[63], 'b');
	ck_assert_int_eq(recipe.pin_engine[63], 'd');
	ck_assert_int_eq(recipe.n_speed, 2);
	ck_assert_int_eq(recipe.speed_runs, 7);
	ck_assert(recipe.speed[1].a == 3 && recipe.speed[1].b == 0);
}
END_TEST

START_TEST(all_keys_legs)
{
	load_valid("all-keys");
	const struct recipe_leg *on = &recipe.legs[0], *off = &recipe.legs[1], *other = &recipe.legs[2];

	ck_assert_int_eq(recipe.n_legs, 5);
	ck_assert_int_eq(on->arm.value[FACTOR_BATCH], ARM_ALL);
	ck_assert_int_eq(on->at.n, 1);
	ck_assert_str_eq(on->at.item[0].layers, "0-3,7");
	ck_assert_int_eq(on->at.item[0].arm.value[FACTOR_MAMBA_PROJ], MAMBA_PROJ_W8A16);
	ck_assert_int_eq(on->at.item[0].arm.value[FACTOR_MAMBA_DECODE], MAMBA_DECODE_CHUNK);
	ck_assert_int_eq(off->at.n, 1);          /* a leg's own `at` replaces that of base */
	ck_assert_str_eq(off->at.item[0].layers, "5");
	ck_assert_int_eq(off->arm.value[FACTOR_BATCH], 2);
	ck_assert_int_eq(off->arm.value[FACTOR_THREADS], 16);
	ck_assert_int_eq(other->engine, ENGINE_ARGV);
	ck_assert_int_eq(other->argc, 4);
	ck_assert_str_eq(other->argv[3], "3");
	ck_assert_ptr_null(other->argv[4]);
	ck_assert_str_eq(recipe.legs[3].host, "box2");
	ck_assert_int_eq(recipe.legs[3].arm.value[FACTOR_GRAPH], GRAPH_ON);   /* `on` is a string */
	ck_assert_int_eq(recipe.legs[4].engine, ENGINE_OPENAI);
	ck_assert_str_eq(recipe.legs[4].url, "http://127.0.0.1:8000/v1");
	ck_assert_str_eq(recipe.legs[4].url_model, "tiny");
}
END_TEST

static void check_want(const struct want *w, enum scope scope, enum counter counter, enum want_op op, int64_t n,
		       enum want_blocks blocks, enum want_rows rows, const char *text, bool is_int)
{
	ck_assert_int_eq(w->scope, scope);
	ck_assert_int_eq(w->counter, counter);
	ck_assert_int_eq(w->op, op);
	ck_assert_int_eq(w->n, n);
	ck_assert_int_eq(w->blocks, blocks);
	ck_assert_int_eq(w->rows, rows);
	ck_assert_str_eq(w->text, text);
	ck_assert_int_eq(w->is_int, is_int);
}

START_TEST(all_keys_contract)
{
	load_valid("all-keys");
	const struct want *all = recipe.all.wants, *on = recipe.legs[0].contract.wants;

	ck_assert_int_eq(recipe.all.n, 2);
	check_want(&all[0], SCOPE_TOTAL, COUNT_ALLOCS_AFTER_OPEN, WANT_EQUAL, 0, WANT_NUMBER, WANT_ONCE, "0", true);
	check_want(&all[1], SCOPE_TOTAL, COUNT_REFERENCE_TIER, WANT_EQUAL, 1, WANT_LAYERS, WANT_ONCE, "layers", false);
	ck_assert_int_eq(recipe.legs[0].contract.n, 5);
	check_want(&on[0], SCOPE_PREFILL_STEP, COUNT_CONV_FWD_CALLS, WANT_EQUAL, 1, WANT_MAMBA, WANT_ONCE, "mamba", false);
	check_want(&on[1], SCOPE_PREFILL_STEP, COUNT_W8A8_CALLS, WANT_GREATER, 0, WANT_NUMBER, WANT_ONCE, ">0", false);
	check_want(&on[2], SCOPE_DECODE_STEP, COUNT_STATE_UPDATE_ROWS, WANT_EQUAL, 1, WANT_MAMBA, WANT_ND, "mamba*nd", false);
	check_want(&on[3], SCOPE_DECODE_STEP, COUNT_BF16_CALLS, WANT_EQUAL, 3, WANT_LAYERS, WANT_T, "3*layers*T", false);
	check_want(&on[4], SCOPE_TOTAL, COUNT_KERNEL_LAUNCHES, WANT_AT_LEAST, 17, WANT_NUMBER, WANT_ONCE, ">=17", false);
}
END_TEST

START_TEST(all_keys_hypotheses)
{
	load_valid("all-keys");
	const struct hypothesis *h = &recipe.hypotheses[0];

	ck_assert_int_eq(recipe.n_hypotheses, 1);
	ck_assert_str_eq(h->says, "the kernel");
	ck_assert_int_eq(h->n, 4);
	ck_assert_int_eq(h->predicts[0].says, PREDICT_DIVERGE);
	ck_assert_int_eq(h->predicts[0].factor, -1);
	ck_assert_str_eq(h->predicts[2].text, "on+mamba.proj=w8a16");
	ck_assert_int_eq(h->predicts[2].leg, 0);
	ck_assert_int_eq(h->predicts[2].factor, FACTOR_MAMBA_PROJ);
	ck_assert_int_eq(h->predicts[2].value, MAMBA_PROJ_W8A16);
	ck_assert_int_eq(h->predicts[2].says, PREDICT_CLEAN);
	ck_assert_int_eq(h->predicts[3].leg, 3);
	ck_assert_int_eq(h->predicts[3].value, 3);
	ck_assert_int_eq(recipe.n_claims, 1);
	ck_assert_str_eq(recipe.claims[0].about, "batch");
	ck_assert_int_eq(recipe.claims[0].legs[0], 1);
	ck_assert_int_eq(recipe.claims[0].legs[1], 0);
}
END_TEST

/* Every recipe of the canned run directories and every one that is shipped; recipes/capture-*.yaml are of
 * assay/capture/1 and read by check_capture. */
START_TEST(shipped_recipes_load)
{
	static const char *const dirs[] = {"gates/tests/verdicts", "recipes"};
	int n_loaded = 0;

	for (int d = 0; d < 2; d++) {
		DIR *dir = opendir(dirs[d]);
		struct dirent *entry;

		ck_assert_ptr_nonnull(dir);
		while ((entry = readdir(dir))) {
			char *path = xasprintf(d ? "%s/%s" : "%s/%s/recipe.yaml", dirs[d], entry->d_name);

			if (entry->d_name[0] != '.' && file_exists(path) && strstr(path, ".yaml") &&
			    strncmp(entry->d_name, "capture-", 8) != 0) {
				start();
				ck_assert_msg(recipe_load(&recipe, path, &err) == 0, "%s", err.text);
				ck_assert_ptr_nonnull(strstr(path, recipe.name));   /* named as its file or directory */
				recipe_release(&recipe);
				n_loaded++;
			}
			free(path);
		}
		closedir(dir);
	}
	start();
	ck_assert_int_ge(n_loaded, 26 + 4);
}
END_TEST

START_TEST(missing_file_is_named)
{
	ck_assert_int_eq(recipe_load(&recipe, "recipes/no-such.yaml", &err), -1);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_ptr_nonnull(strstr(err.text, "recipes/no-such.yaml"));
}
END_TEST

/* ---- overrides ---- */

static struct overrides over;

static void override(const char *set, const char *leg)
{
	arm_init(&over.set);
	if (set)
		ck_assert_int_eq(arm_parse(&over.set, set, &err), 0);
	if (leg) {
		over.legs = xcalloc(1, sizeof(*over.legs));
		over.legs[0] = xstrdup(leg);
		over.n_legs = 1;
	}
}

START_TEST(set_goes_over_every_leg)
{
	load_valid("all-keys");
	override("mamba.proj=w8a16,batch=4", NULL);
	ck_assert_int_eq(recipe_override(&recipe, &over, &err), 0);
	for (int i = 0; i < recipe.n_legs; i++) {
		ck_assert_int_eq(recipe.legs[i].arm.value[FACTOR_MAMBA_PROJ], MAMBA_PROJ_W8A16);
		ck_assert_int_eq(recipe.legs[i].arm.value[FACTOR_BATCH], 4);
	}
	ck_assert_int_eq(recipe.legs[1].arm.value[FACTOR_THREADS], 16);
	overrides_release(&over);
}
END_TEST

START_TEST(set_that_makes_two_legs_one_is_refused)
{
	load_valid("smallest");
	override("mamba.decode=chunk", NULL);
	ck_assert_int_eq(recipe_override(&recipe, &over, &err), -1);
	ck_assert_str_eq(err.text, "recipe.yaml: with the overrides, legs `on` and `off` have the same factors, engine and host");
	overrides_release(&over);
}
END_TEST

START_TEST(leg_leaves_the_others_out)
{
	load_valid("all-keys");
	override(NULL, "off");
	ck_assert_int_eq(recipe_override(&recipe, &over, &err), 0);
	ck_assert_int_eq(recipe.n_legs, 1);
	ck_assert_str_eq(recipe.legs[0].name, "off");
	ck_assert_int_eq(recipe.legs[0].contract.n, 1);
	ck_assert_int_eq(recipe.all.n, 2);
	ck_assert_int_eq(recipe.hypotheses[0].n, 1);      /* predictions about legs that were left out test nothing */
	ck_assert_int_eq(recipe.hypotheses[0].predicts[0].leg, 0);
	ck_assert_int_eq(recipe.hypotheses[0].predicts[0].says, PREDICT_PASS);
	ck_assert_int_eq(recipe.claims[0].n_legs, 1);
	ck_assert_int_eq(recipe.claims[0].legs[0], 0);
	overrides_release(&over);
}
END_TEST

START_TEST(leg_must_be_there)
{
	load_valid("smallest");
	override(NULL, "onn");
	ck_assert_int_eq(recipe_override(&recipe, &over, &err), -1);
	ck_assert_str_eq(err.text, "--leg onn: recipe.yaml has no such leg; did you mean `on`?");
	ck_assert_int_eq(recipe.n_legs, 2);
	overrides_release(&over);
}
END_TEST

START_TEST(overrides_survive_their_file)
{
	char path[] = "/tmp/check_recipe.XXXXXX";
	struct overrides back;

	ck_assert_ptr_nonnull(mkdtemp(path));
	char *file = path_join(path, "overrides.json");

	override("mamba.proj=w8a16,batch=all,threads=2", "off");
	ck_assert_msg(overrides_save(&over, file, &err) == 0, "%s", err.text);
	ck_assert_msg(overrides_load(&back, file, &err) == 0, "%s", err.text);
	ck_assert(arm_equal(&back.set, &over.set));
	ck_assert_int_eq(back.n_legs, 1);
	ck_assert_str_eq(back.legs[0], "off");
	overrides_release(&back);
	overrides_release(&over);
	remove(file);
	ck_assert_int_eq(overrides_load(&back, file, &err), 0);      /* an absent file: none */
	ck_assert_int_eq(back.n_legs, 0);
	ck_assert_int_eq(back.set.value[FACTOR_MAMBA_PROJ], ARM_UNSET);
	overrides_release(&back);
	remove(path);
	free(file);
}
END_TEST

START_TEST(overrides_refuse_what_they_do_not_know)
{
	static const char *const bad[] = {"{\"sets\":{}}", "{\"set\":{\"kernel\":\"x\"}}", "{\"set\":{\"backend\":1.5}}",
		"{\"legs\":[1]}", "{\"legs\":\"on\"}", "[]"};
	char path[] = "/tmp/check_recipe.XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct overrides o;

		start();
		ck_assert_int_eq(file_write(path, bad[i], strlen(bad[i]), &err), 0);
		ck_assert_msg(overrides_load(&o, path, &err) == -1, "%s was read", bad[i]);
		ck_assert_int_eq(strncmp(err.text, path, strlen(path)), 0);
		overrides_release(&o);
	}
	remove(path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("recipe");
	TCase *tc = tcase_create("recipe");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, invalid_cases_are_refused_in_their_place);
	tcase_add_test(tc, damaged_recipes_do_no_harm);
	tcase_add_test(tc, defaults);
	tcase_add_test(tc, byte_order_mark);
	tcase_add_test(tc, carriage_returns);
	tcase_add_test(tc, all_keys_run);
	tcase_add_test(tc, all_keys_legs);
	tcase_add_test(tc, all_keys_contract);
	tcase_add_test(tc, all_keys_hypotheses);
	tcase_add_test(tc, shipped_recipes_load);
	tcase_add_test(tc, missing_file_is_named);
	tcase_add_test(tc, set_goes_over_every_leg);
	tcase_add_test(tc, set_that_makes_two_legs_one_is_refused);
	tcase_add_test(tc, leg_leaves_the_others_out);
	tcase_add_test(tc, leg_must_be_there);
	tcase_add_test(tc, overrides_survive_their_file);
	tcase_add_test(tc, overrides_refuse_what_they_do_not_know);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
