/* Merged reports, foreign engines, inputs that do not fit, full disks. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "contract/file.h"
#include "gates/report_merge.h"
#include "run_rig.h"

static void write_report(const char *name, const char *engine_name, const char *rest)
{
	char *path = in_dir(name);
	char *text = xasprintf("{\"schema\":\"assay/report/1\",\"leg\":\"on\",\"engine\":{\"name\":\"%s\"},%s}", engine_name, rest);

	ck_assert_int_eq(file_write(path, text, strlen(text), &err), 0);
	free(text);
	free(path);
}

START_TEST(reports_are_merged)
{
	char *whole = in_dir("whole.json"), *part = in_dir("part.json");

	write_report("part.json", "e", "\"modes\":{\"free\":{\"prompts\":[1],\"counters_total\":{\"gathers\":2},\"trace\":[{\"step\":0,"
		     "\"gathers\":2}]}},\"timing\":{\"per_token_ms\":{\"p50\":1,\"n\":3}},\"busy\":null,\"peak_rss_bytes\":9,"
		     "\"audit\":{\"agrees\":true}");
	ck_assert_int_eq(report_merge(whole, part, &err), 0);        /* the first is the whole */
	ck_assert(!there("part.json"));
	write_report("part.json", "e", "\"modes\":{\"free\":{\"prompts\":[2,3],\"counters_total\":{\"gathers\":5},\"trace\":[{\"step\":0,"
		     "\"gathers\":1},{\"step\":1,\"gathers\":4}]}},\"timing\":{\"per_token_ms\":{\"p50\":2,\"n\":5}},\"busy\":{\"hz\":10},"
		     "\"peak_rss_bytes\":7,\"audit\":{\"agrees\":false}");
	ck_assert_msg(report_merge(whole, part, &err) == 0, "%s", err.text);
	json_t *merged = load_json("whole.json");
	json_t *expected = json_loads("{\"schema\":\"assay/report/1\",\"leg\":\"on\",\"engine\":{\"name\":\"e\"},\"modes\":{\"free\":"
		"{\"prompts\":[1,2,3],\"counters_total\":{\"gathers\":7},\"trace\":[{\"step\":0,\"gathers\":2},{\"step\":1,\"gathers\":1},"
		"{\"step\":2,\"gathers\":4}]}},\"timing\":{\"per_token_ms\":{\"p50\":2,\"n\":5}},\"busy\":{\"hz\":10},"
		"\"peak_rss_bytes\":9,\"audit\":{\"agrees\":false}}", 0, NULL);

	ck_assert_ptr_nonnull(expected);
	ck_assert(json_equal(merged, expected));
	write_report("part.json", "another", "\"modes\":{}");
	ck_assert_int_eq(report_merge(whole, part, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "part.json: $.engine: is not that of the prompts before"));
	json_decref(merged);
	json_decref(expected);
	free(whole);
	free(part);
}
END_TEST

/* ---- foreign engines ---- */

START_TEST(a_foreign_engine_gets_a_request_and_prints_a_report)
{
	char *legs = xasprintf("  other: {mamba.decode: step, at: [{layers: \"1\", mamba.proj: w8a16}], engine: {argv: [%s, foreign, %s]}}\n",
			       engine, canned);

	write_recipe(legs, "  other: " CONTRACT "\n");
	run_here();
	json_t *request = load_json("run/legs/other.stderr"), *prompt, *requested;
	char *golden = path_join(canned, "golden.json"), sha[SHA256_HEX];

	ck_assert_int_eq(sha256_file(golden, sha, &err), 0);
	ck_assert_str_eq(json_string_value(json_object_get(request, "schema")), "assay/request/1");
	ck_assert_str_eq(json_string_value(json_object_get(request, "leg")), "other");
	ck_assert_str_eq(json_string_value(json_object_get(request, "model")), canned);
	ck_assert_str_eq(json_string_value(json_object_get(request, "golden_sha256")), sha);
	ck_assert_int_eq(json_integer_value(json_object_get(request, "steps")), 12);
	ck_assert_int_eq(json_array_size(json_object_get(request, "modes")), 2);
	ck_assert_int_eq(json_array_size(json_object_get(request, "prompts")), 3);
	prompt = json_array_get(json_object_get(request, "prompts"), 2);
	ck_assert_str_eq(json_string_value(json_object_get(prompt, "id")), "p2");
	ck_assert_int_eq(json_array_size(json_object_get(prompt, "ids")), 11);
	ck_assert_int_eq(json_array_size(json_object_get(prompt, "given")), 12);
	requested = json_object_get(request, "requested");
	ck_assert_str_eq(json_string_value(json_object_get(requested, "mamba.decode")), "step");
	ck_assert(json_is_null(json_object_get(requested, "graph")));
	ck_assert_int_eq(json_array_size(json_object_get(requested, "at")), 1);
	ck_assert(there("run/legs/other.json"));
	check_exit("other", 0, "", false, NULL);
	json_decref(request);
	free(golden);
	free(legs);
}
END_TEST

START_TEST(a_foreign_engine_that_prints_no_report)
{
	char *legs = xasprintf("  nothing: {engine: {argv: [/bin/true]}}\n  words: {engine: {argv: [%s, sign, hello]}}\n"
			       "  failed: {engine: {argv: [/bin/false]}}\n  far: {host: elsewhere}\n", engine);

	write_recipe(legs, "  nothing: " CONTRACT "\n  words: " CONTRACT "\n  failed: " CONTRACT "\n  far: " CONTRACT "\n");
	ck_assert_int_eq(run_here(), 2);
	json_t *verdict = load_json("run/verdict.json");

	check_leg(verdict, "nothing", "ERROR", "report");
	check_leg(verdict, "words", "ERROR", "words.json");
	check_leg(verdict, "failed", "ERROR", "1");
	check_leg(verdict, "far", "NOT MEASURED", "no launcher for other machines");
	json_decref(verdict);
	free(legs);
}
END_TEST

/* ---- inputs that do not fit ---- */

static void check_input(const char *old, const char *new, const char *text)
{
	char *recipe, *at, *changed, *path = in_dir("recipe.yaml"), *out = run_dir_option();

	write_two_good_legs();
	recipe = read_in("recipe.yaml");
	at = strstr(recipe, old);
	ck_assert_ptr_nonnull(at);
	*at = '\0';
	changed = xasprintf("%s%s%s", recipe, new, at + strlen(old));
	ck_assert_int_eq(file_write(path, changed, strlen(changed), &err), 0);
	ck_assert_int_eq(run_assay("--out", out), 2);
	check_holds("err.txt", text);
	ck_assert(!there("run"));
	free(changed);
	free(recipe);
	free(path);
	free(out);
}

START_TEST(inputs_are_checked_before_anything_is_written)
{
	check_input("steps: 12", "steps: 12\nprompts: [p0, p9]", "recipe.yaml:8:15: the golden has no prompt `p9`; did you mean `p0`?");
	check_input("steps: 12", "steps: 12\nprofile: eagre", "recipe.yaml:8:10: the golden has no profile `eagre`; did you mean `eager`?");
	check_input("/golden.json", "/gold.json", "recipe.yaml:6:9: golden `");
	check_input("strict-pass-equivalent\ng", "nothing-there\ng", "recipe.yaml:5:8: model `");
	check_input("model: ", "model: relative", "neither beside the recipe nor in any directory above it");
	check_input("/golden.json", "/recipe.yaml", "recipe.yaml:1:");
	check_input("kind: gate", "kind: gates", "recipe.yaml:3:7: kind: unknown kind `gates`; did you mean `gate`?");
}
END_TEST

/* ---- full disks ---- */

/* The runner itself may write no more than a few kilobytes: the verdict cannot be kept, but it is shown. */
START_TEST(a_file_that_cannot_be_written_is_an_error_and_the_verdict_is_shown)
{
	char *out = run_dir_option();
	const char *words[] = {"--out", out, NULL};
	struct stat golden;
	char *path = path_join(canned, "golden.json");

	ck_assert_int_eq(stat(path, &golden), 0);
	write_recipe("  good: {}\n", "  good: " CONTRACT "\n");
	/* Too little for a verdict is too little for the golden: take a run up to its verdict, then shrink. */
	ck_assert_int_eq(run_here(), 0);
	char *verdict = in_dir("run/verdict.json");

	unlink(verdict);
	signal(SIGXFSZ, SIG_IGN);
	struct rlimit old, small;

	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){600, old.rlim_max};
	setrlimit(RLIMIT_FSIZE, &small);
	pid_t pid = start_run(words);

	setrlimit(RLIMIT_FSIZE, &old);
	ck_assert_int_eq(end_run(pid), 2);
	ck_assert(!there("run/verdict.json"));
	check_holds("err.txt", "verdict.json");
	check_holds("err.txt", "File too large");
	free(verdict);
	free(path);
	free(out);
}
END_TEST

/* A file system of its own with this much room at <dir>/run; false where none can be mounted. */
static bool mount_small(const char *test, long bytes)
{
	char *at = in_dir("run"), *size = xasprintf("size=%ldk", bytes / 1024);
	bool mounted;

	ck_assert_int_eq(mkdir(at, 0700), 0);
	mounted = unshare(CLONE_NEWNS) == 0 && mount("", "/", "", MS_REC | MS_PRIVATE, "") == 0
		  && mount("tmpfs", at, "tmpfs", 0, size) == 0;
	if (!mounted)
		printf("%s: skipped: no file system can be mounted here: %s\n", test, strerror(errno));
	free(at);
	free(size);
	return mounted;
}

static long size_of(const char *name)
{
	char *path = path_join(canned, name);
	struct stat s;

	ck_assert_int_eq(stat(path, &s), 0);
	free(path);
	return (long)s.st_size;
}

static void umount_small(void)
{
	char *at = in_dir("run");

	umount(at);
	free(at);
}

START_TEST(a_disk_without_room_for_the_inputs)
{
	if (!mount_small("a_disk_without_room_for_the_inputs", size_of("golden.json") - 8192))
		return;
	write_two_good_legs();
	ck_assert_int_eq(run_here(), 2);
	check_holds("err.txt", "golden.json: cannot write: No space left on device");
	ck_assert(!there("run/run.json"));
	umount_small();
}
END_TEST

/* Room for the inputs and one report: the second leg fails, the first counts, the table is printed all the same. */
START_TEST(a_disk_that_is_full_after_the_first_leg)
{
	if (!mount_small("a_disk_that_is_full_after_the_first_leg",
			 size_of("golden.json") + size_of("legs/step.json") + 48 * 1024))
		return;
	write_two_good_legs();
	ck_assert_int_eq(run_here(), 2);
	check_holds("out.txt", "mode=free  good    STRICT PASS");
	check_holds("out.txt", "better.json: cannot write: No space");
	ck_assert(there("run/legs/good.json") && !there("run/legs/better.json"));
	umount_small();
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, reports_are_merged);
	tcase_add_test(tc, a_foreign_engine_gets_a_request_and_prints_a_report);
	tcase_add_test(tc, a_foreign_engine_that_prints_no_report);
	tcase_add_test(tc, inputs_are_checked_before_anything_is_written);
	tcase_add_test(tc, a_file_that_cannot_be_written_is_an_error_and_the_verdict_is_shown);
	tcase_add_test(tc, a_disk_without_room_for_the_inputs);
	tcase_add_test(tc, a_disk_that_is_full_after_the_first_leg);
}

int main(void)
{
	return run_rig_main("inputs of runs", add);
}
