/* assay golden: what it finds in the bundled golden, and in ones that are damaged or poor on purpose. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/file.h"
#include "contract/json.h"
#include "gates/golden_tool.h"
#include "gates/oracle.h"

#define BUNDLED "oracle-goldens/book52-nvfp4.json"
#define MODEL "oracle-goldens/models/book52-nvfp4"
#define CASES "gates/tests/verdicts/"

static struct golden golden;
static char *said;
static size_t said_size;
static struct err err;

static void start(void)
{
	golden = (struct golden){ 0 };
	err = (struct err){ 0 };
	said = NULL;
}

static void stop(void)
{
	golden_release(&golden);
	free(said);
}

static void load(const char *path)
{
	ck_assert_msg(!golden_load(&golden, path, &err), "%s", err.text);
}

static const char *engine;         /* of check; NULL: none is compared */

static int check(const char *model)
{
	FILE *out = open_memstream(&said, &said_size);
	int found = golden_check(out, &golden, "G", model, engine, &err);

	fclose(out);
	return found;
}

static void says(const char *what)
{
	ck_assert_msg(strstr(said, what) != NULL, "`%s` is not in:\n%s", what, said);
}

static void says_not(const char *what)
{
	ck_assert_msg(strstr(said, what) == NULL, "`%s` is in:\n%s", what, said);
}

/* ---- check */

START_TEST(bundled_golden_contradicts_itself_in_p15)
{
	load(BUNDLED);
	ck_assert_int_eq(check(NULL), 0);
	says("CONTRADICTORY p15[2]");
	says("; base, repeat | batch, eager, eager-batch, prefill-score");
	ck_assert(strstr(strstr(said, "CONTRADICTORY") + 1, "CONTRADICTORY") == NULL);
	says("2 repeats agree");
	says("not compared (--model DIR)");
}
END_TEST

START_TEST(model_files_and_vocabulary)
{
	load(BUNDLED);
	ck_assert_int_eq(check(MODEL), 0);
	says("the 7 files listed are those of");
	says("below the vocabulary of 4096");
	free(said);

	golden.files[2].sha256[0] ^= 1;
	golden.prompts[3].ids[0] = 4096;
	ck_assert_int_eq(check(MODEL), 1);
	says("WRONG the sha256 differs: ");
	says(golden.files[2].name);
	says("WRONG an id is not in the model's vocabulary");
	free(said);

	free(golden.files[1].name);
	golden.files[1].name = xstrdup("no-such-file");
	ck_assert_int_eq(check(MODEL), 1);
	says("the model directory lacks no-such-file");
	free(said);
	ck_assert_int_eq(check("no/such/dir"), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "no/such/dir"));
}
END_TEST

START_TEST(profiles_answer_the_same_prompts)
{
	load(CASES "near-tie/golden.json");
	ck_assert_int_eq(check(NULL), 0);
	free(said);
	golden.profiles[2].n_rows--;
	int found = check(NULL);

	golden.profiles[2].n_rows++;
	ck_assert_int_eq(found, 1);
	says("WRONG profile eager, prompt p2: no row");
	free(said);
	golden.profiles[1].repeats_agree = 0;
	ck_assert_int_eq(check(NULL), 1);
	says("repeats disagree: batch8");
	golden.profiles[1].repeats_agree = 1;
	free(said);

	/* an expectation of nothing, and an id that --only would take for two */
	int n = golden.profiles[0].rows[1].n;

	golden.profiles[0].rows[1].n = 0;
	golden.prompts[2].id[1] = ',';
	found = check(NULL);
	golden.profiles[0].rows[1].n = n;
	ck_assert_int_eq(found, 1);
	says("WRONG the expectation has no token for prompt p1");
	says("WRONG --only cannot name a prompt with a comma in its id: p,");
}
END_TEST

START_TEST(limits_are_stated)
{
	load(CASES "seed-three-legs/golden.json");
	ck_assert_int_eq(check(NULL), 0);
	says("margins NOT MEASURED at 96 of 96 positions: capture base with the top 20 log-probabilities");
	says("one profile: the oracle's spread is NOT MEASURED");
	says("the logits' dtype is not said");
	says("3 prompts: the drift test cannot reach p 0.01");
	says_not("CONTRADICTORY");
	free(said);
	golden_release(&golden);

	load(CASES "single-profile/golden.json");
	ck_assert_int_eq(check(NULL), 0);
	says("one profile");
	says_not("margins NOT MEASURED");
	free(said);
	golden_release(&golden);

	load(BUNDLED);
	int files = golden.n_files;

	golden.n_files = 0;
	golden.profiles[0].mode = GOLDEN_FORCED;
	ck_assert_int_eq(check(NULL), 0);
	golden.n_files = files;
	says("identity is NOT MEASURED");
	says("base was scored in forced mode");
}
END_TEST

/* A contradiction is more than 5 times the 99th percentile of the others, and needs 20 values elsewhere. */
START_TEST(what_counts_as_a_contradiction)
{
	struct oracle o;
	int all[3] = { 0, 1, 2 };

	load(CASES "near-tie/golden.json");
	oracle_measure(&o, &golden, &golden.profiles[0], all, 3, INT32_MAX);
	ck_assert_int_eq(o.n_contradictions, 0);
	ck_assert_uint_eq(o.n_d, 204);
	oracle_release(&o);
	/* Profile eager moves its margin in p1[3] until the largest |d| there is so many times the others' percentile. */
	int others[2] = { 0, 2 };

	oracle_measure(&o, &golden, &golden.profiles[0], others, 2, INT32_MAX);
	double p99 = stats_percentile_sorted(o.d, o.n_d, 0.99), least = INFINITY, margin[4];

	oracle_release(&o);
	const struct golden_step *base = &golden.profiles[0].rows[1].steps[3];

	for (int k = 0; k < 4; k++) {
		const struct golden_step *s = &golden.profiles[k].rows[1].steps[3];

		margin[k] = top_value(s->top, s->n_top, base->top[0].id) - top_value(s->top, s->n_top, base->top[1].id);
		least = k != 2 ? fmin(least, margin[k]) : least;
	}
	struct top *moved = golden.profiles[2].rows[1].steps[3].top;

	ck_assert_int_eq(moved[0].id, base->top[0].id);
	double before = moved[0].value;

	moved[0].value = before + 4.9 * p99 - (margin[2] - least);
	oracle_measure(&o, &golden, &golden.profiles[0], all, 3, INT32_MAX);
	ck_assert_int_eq(o.n_contradictions, 0);
	oracle_release(&o);
	moved[0].value = before + 5.1 * p99 - (margin[2] - least);
	oracle_measure(&o, &golden, &golden.profiles[0], all, 3, INT32_MAX);
	ck_assert_int_eq(o.n_contradictions, 1);
	ck_assert(fabs(o.contradictions[0].d - 5.1 * p99) < 1e-9);
	ck_assert_int_eq(o.contradictions[0].prompt, 1);
	ck_assert_int_eq(o.contradictions[0].step, 3);
	for (int k = 0; k < 4; k++)
		ck_assert_int_eq(o.contradictions[0].side[k], k == 2);
	oracle_release(&o);
	/* asked alone it is still found: the others are the golden's, not the recipe's */
	oracle_measure(&o, &golden, &golden.profiles[0], &all[1], 1, INT32_MAX);
	ck_assert_int_eq(o.n_contradictions, 1);
	oracle_release(&o);
	oracle_measure(&o, &golden, &golden.profiles[0], &all[2], 1, INT32_MAX);
	ck_assert_int_eq(o.n_contradictions, 0);
	oracle_release(&o);
}
END_TEST

START_TEST(check_says_what_moved)
{
	load(BUNDLED);
	golden.tokenizer_sha256[0] ^= 1;
	ck_assert_int_eq(check(MODEL), 1);
	says("WRONG the tokenizer has moved: " MODEL "/tokenizer.json");
	free(said);
	golden.tokenizer_sha256[0] ^= 1;
	engine = "LICENSE";
	ck_assert_int_eq(check(NULL), 0);
	says("limit: no profile names the sha256 of its engine: LICENSE cannot be compared");
	free(said);
	json_object_set_new(golden.profiles[2].engine_config, "binary_sha256", json_string(golden.files[0].sha256));
	free(golden.profiles[1].engine_version);
	golden.profiles[1].engine_version = xstrdup("0.27.0");
	ck_assert_int_eq(check(NULL), 1);
	says("WRONG captured from another engine than the expectation: repeat");
	says("WRONG the engine has moved since it was captured: batch");
	engine = NULL;
}
END_TEST

/* ---- show, diff */

START_TEST(show_margins_and_forks)
{
	load(BUNDLED);
	FILE *out = open_memstream(&said, &said_size);

	golden_show(out, &golden, &golden.profiles[0], NULL);
	fclose(out);
	says("margins of base, nats, 1344 of 1344 positions: min 0");
	says("median 1.125; 19 exact ties");
	says("tight p1[16] 0 nats");
	says("560 over 1835");
	says("eager forks from base: p3[5] at 0.0625, p4[9] at 0.0625, p5[31] at 0,");
	says("12 of 16 prompts, margins up to 0.25 nats");
	says("repeat forks from base: 0 of 16 prompts");
	int tight = 0;

	for (const char *at = said; (at = strstr(at, "  tight ")); at++)
		tight++;
	ck_assert_int_eq(tight, 5);
}
END_TEST

/* Captured on two machines.  Step 84 of p11 lists 1273 and 2383 at -2.246946 in the one file, 2383 at -2.199332 and 1273 at -2.261832 in
 * the other. */
START_TEST(diff_compares_profiles_of_other_names)
{
	struct golden other = { 0 };

	load(BUNDLED);
	ck_assert(!golden_load(&other, "oracle-goldens/book52-nvfp4-vllm-fresh.json", &err));
	FILE *out = open_memstream(&said, &said_size);

	ck_assert_int_eq(golden_diff_profiles(out, &golden, &other, golden_profile_find(&golden, "base"), golden_profile_find(&other, "fresh")), 0);
	fclose(out);
	says("profile base | fresh: 16 prompts in both, ids equal; 1344 positions under a common prefix, 1344 bit-equal");
	says("no difference");
	free(said);
	out = open_memstream(&said, &said_size);
	ck_assert_int_eq(golden_diff_profiles(out, &golden, &other, golden_profile_find(&golden, "eager"),
					      golden_profile_find(&other, "fresh-eager")), 1);
	fclose(out);
	says("ids fork in 1;");
	says("  p11[84]: 1273 | 2383, preferred by 0 nats | 0.0625 nats");
	golden_release(&other);
}
END_TEST

START_TEST(diff_names_what_differs)
{
	struct golden other = { 0 };

	load(BUNDLED);
	ck_assert(!golden_load(&other, BUNDLED, &err));
	FILE *out = open_memstream(&said, &said_size);

	ck_assert_int_eq(golden_diff(out, &golden, &other), 0);
	fclose(out);
	says("no difference");
	free(said);

	other.files[0].sha256[5] ^= 1;
	other.prompts[1].ids[0]++;
	other.profiles[3].name[0] = 'E';
	other.profiles[0].rows[2].ids[7]++;
	out = open_memstream(&said, &said_size);
	ck_assert_int_eq(golden_diff(out, &golden, &other), 1);
	fclose(out);
	says("config.json: differs");
	says("prompt p1: other ids");
	says("profile eager: only in the first");
	says("profile Eager: only in the second");
	says("profile base: 16 prompts in both, ids fork in 1;");
	says("  p2[7]: ");
	golden_release(&other);
}
END_TEST

/* ---- import */

static char *write_old(const char *text)
{
	char *path = xstrdup("/tmp/assay-old-XXXXXX");
	int fd = mkstemp(path);

	ck_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	return path;
}

START_TEST(import_the_older_form)
{
	char *old = write_old("{\"vllm\":\"0.23.1\",\"transformers\":\"5.1\",\"flashinfer\":\"0.6\",\"model\":\"/ckpt/Nemotron\",\"revision\":\"abc\","
			      "\"sampling\":{\"temperature\":0,\"max_tokens\":3},\"golden\":["
			      "{\"prompt\":\"a b\",\"prompt_token_ids\":[1,2],\"token_ids\":[7,8,9],\"text\":\" c\"},"
			      "{\"prompt\":\"d\",\"prompt_token_ids\":[3],\"token_ids\":[4,5,6],\"text\":\"\"}]}");
	struct golden again = { 0 };
	char path[] = "/tmp/assay-new-XXXXXX";

	close(mkstemp(path));
	ck_assert_msg(!golden_import(&golden, old, &err), "%s", err.text);
	ck_assert_msg(!golden_save(&golden, path, &err) && !golden_load(&again, path, &err), "%s", err.text);
	ck_assert_str_eq(again.name, "Nemotron");
	ck_assert_str_eq(again.model_revision, "abc");
	ck_assert_int_eq(again.max_tokens, 3);
	ck_assert_int_eq(again.n_files, 0);
	ck_assert_int_eq(again.n_profiles, 1);
	ck_assert_str_eq(again.profiles[0].engine, "vllm");
	ck_assert_str_eq(again.profiles[0].engine_version, "0.23.1");
	ck_assert_str_eq(json_string_value(json_object_get(again.profiles[0].engine_config, "flashinfer")), "0.6");
	ck_assert_int_eq(again.n_prompts, 2);
	ck_assert_str_eq(again.prompts[1].id, "p1");
	ck_assert_str_eq(again.prompts[0].text, "a b");
	ck_assert_int_eq(again.profiles[0].rows[0].ids[2], 9);
	ck_assert_str_eq(again.profiles[0].rows[0].text, " c");
	golden_release(&again);
	unlink(path);
	unlink(old);
	free(old);
}
END_TEST

START_TEST(import_refuses_with_the_place)
{
	static const struct { const char *text, *says; } bad[] = {
		{ "{\"vllm\":\"1\",\"model\":\"m\",\"golden\":[{\"prompt_token_ids\":[1],\"token_ids\":[\"x\"]}]}", "$.golden[0].token_ids[0]" },
		{ "{\"vllm\":\"1\",\"model\":\"m\",\"golden\":[{\"prompt_token_ids\":[1]}]}", "token_ids" },
		{ "{\"vllm\":\"1\",\"model\":\"m\",\"golden\":[{\"prompt_token_ids\":[-1],\"token_ids\":[]}]}", "prompt_token_ids[0]" },
		{ "{\"vllm\":\"1\",\"model\":\"m\",\"golden\":[{\"prompt_token_ids\":[3000000000],\"token_ids\":[]}]}", "prompt_token_ids[0]" },
		{ "{\"vllm\":\"1\",\"model\":\"m\",\"sampling\":{\"temperature\":0.7},\"golden\":[]}", "$.sampling.temperature" },
		{ "{\"vllm\":\"1\",\"model\":\"m\",\"golden\":[],\"more\":1}", "more" },
		{ "{\"vllm\":\"1\",\"golden\":[]}", "model" },
		{ "[]", "$" },
		{ "{\"vllm\":", ":1:" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char *path = write_old(bad[i].text);

		err = (struct err){ 0 };
		ck_assert_int_ne(golden_import(&golden, path, &err), 0);
		ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "`%s` is not in `%s`", bad[i].says, err.text);
		golden_release(&golden);
		unlink(path);
		free(path);
	}
}
END_TEST

/* ---- the command */

static int command(const char *a, const char *b, const char *c)
{
	char *argv[] = { "golden", (char *)a, (char *)b, (char *)c, NULL };

	return golden_main(c ? 4 : b ? 3 : a ? 2 : 1, argv);
}

START_TEST(exit_codes)
{
	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
	ck_assert_int_eq(command("check", BUNDLED, NULL), 0);
	ck_assert_int_eq(command("show", BUNDLED, NULL), 0);
	ck_assert_int_eq(command("diff", BUNDLED, BUNDLED), 0);
	ck_assert_int_eq(command("diff", BUNDLED, CASES "near-tie/golden.json"), 1);
	ck_assert_int_eq(command("check", "no-such-file", NULL), 2);
	ck_assert_int_eq(command("check", CASES "near-tie/expected.json", NULL), 2);
	ck_assert_int_eq(command("show", "--profile=nobody", BUNDLED), 2);
	ck_assert_int_eq(command("frob", BUNDLED, NULL), 2);
	ck_assert_int_eq(command("diff", BUNDLED, NULL), 2);
	ck_assert_int_eq(command("check", NULL, NULL), 2);
	ck_assert_int_eq(command(NULL, NULL, NULL), 2);
	ck_assert_int_eq(command("--help", NULL, NULL), 0);
	ck_assert_int_eq(command("import", CASES "near-tie/golden.json", NULL), 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("golden tool");
	TCase *c = tcase_create("golden");

	tcase_add_checked_fixture(c, start, stop);
	tcase_add_test(c, bundled_golden_contradicts_itself_in_p15);
	tcase_add_test(c, model_files_and_vocabulary);
	tcase_add_test(c, profiles_answer_the_same_prompts);
	tcase_add_test(c, limits_are_stated);
	tcase_add_test(c, what_counts_as_a_contradiction);
	tcase_add_test(c, show_margins_and_forks);
	tcase_add_test(c, check_says_what_moved);
	tcase_add_test(c, diff_names_what_differs);
	tcase_add_test(c, diff_compares_profiles_of_other_names);
	tcase_add_test(c, import_the_older_form);
	tcase_add_test(c, import_refuses_with_the_place);
	tcase_add_test(c, exit_codes);
	suite_add_tcase(s, c);

	SRunner *r = srunner_create(s);

	srunner_run_all(r, CK_NORMAL);
	int failed = srunner_ntests_failed(r);

	srunner_free(r);
	return failed != 0;
}
