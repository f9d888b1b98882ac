/* `assay run --until-decided`. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "run_rig.h"

/* A leg's report holds the prompts that overrides.json names, in the order in which they ran. */
static void check_plan(const json_t *over, const char *mode)
{
	const json_t *plan = json_object_get(over, "prompts");
	json_t *report = load_json("run/legs/step.json");
	const json_t *m = json_object_get(json_object_get(report, "modes"), mode), *rows = json_object_get(m, "prompts"), *row;
	size_t i;

	ck_assert_uint_eq(json_array_size(rows), json_array_size(plan));
	json_array_foreach(rows, i, row)
		ck_assert(json_equal(json_object_get(row, "id"), json_array_get(plan, i)));
	json_array_foreach(json_object_get(m, "trace"), i, row)
		ck_assert_int_eq(json_integer_value(json_object_get(row, "step")), (long)i);
	json_decref(report);
}

START_TEST(until_decided_stops_and_says_so)
{
	char *out = run_dir_option();

	write_case_recipe("drift");
	ck_assert_int_eq(run_assay("--out", out, "--until-decided"), 0);
	json_t *over = load_json("run/overrides.json"), *verdict = load_json("run/verdict.json");
	size_t n = json_array_size(json_object_get(over, "prompts"));

	ck_assert(n >= 2 && n < 12 && n % 2 == 0);
	check_plan(over, "forced");
	check_holds("err.txt", "2 of 12 prompts: step ");
	check_exit("step", 0, "", false, NULL);
	check_leg(verdict, "step", "STRICT PASS", "stopped early after ");
	check_holds("out.txt", "stopped early by --until-decided, after ");
	ck_assert(!there("run/legs/step.part") && !there("run/legs/step.part.exit"));
	json_decref(over);
	json_decref(verdict);
	free(out);
}
END_TEST

/* Nothing to decide by: every prompt runs, in an order of its own, and the verdict is that of the whole recipe. */
START_TEST(until_decided_without_a_distance_runs_everything)
{
	char *out = run_dir_option();

	write_case_recipe("single-profile");
	ck_assert_int_eq(run_assay("--out", out, "--until-decided"), expected_code("single-profile"));
	ck_assert(!there("run/overrides.json"));
	check_holds("err.txt", "3 of 3 prompts: step no distance to decide by");
	check_holds("out.txt", "TOKEN MATCH 22/24 full rows=3 short rows=0 mode=free  step  DIVERGENCE");
	free(out);
}
END_TEST

START_TEST(until_decided_ends_a_leg_that_fails)
{
	char *out = run_dir_option();

	write_recipe("  good: {}\n  killed: {threads: 3}\n", "  good: " CONTRACT "\n  killed: " CONTRACT "\n");
	ck_assert_int_eq(run_assay("--out", out, "--until-decided"), 2);
	json_t *verdict = load_json("run/verdict.json");

	check_leg(verdict, "good", "STRICT PASS", NULL);
	check_leg(verdict, "killed", "ERROR", "SIGKILL");
	check_exit("killed", -1, "SIGKILL", false, NULL);
	json_decref(verdict);
	free(out);
}
END_TEST

START_TEST(until_decided_needs_a_distance)
{
	char *out = run_dir_option();

	write_case_recipe("free-hazard");
	ck_assert_int_eq(run_assay("--out", out, "--until-decided"), 2);
	check_holds("err.txt", "does not ask mode `forced`: there is no distance to decide by");
	ck_assert(!there("run"));
	free(out);
}
END_TEST

START_TEST(until_decided_starts_over)
{
	char *out = run_dir_option();

	write_recipe("  good: {}\n  hanging: {threads: 3}\n", "  good: " CONTRACT "\n  hanging: " CONTRACT "\n");
	pid_t pid = start_run((const char *const[]){"--out", out, "--until-decided", NULL});

	wait_for_file("run/legs/hanging.stderr");
	kill(pid, SIGTERM);
	ck_assert_int_eq(end_run(pid), 143);
	ck_assert(!there("run/legs/good.exit.json") && !there("run/verdict.json"));
	ck_assert_int_eq(run_assay("--out", out, "--until-decided", "--timeout", LEG_LIMIT), 2);
	check_exit("hanging", -1, "SIGTERM", true, "loading");
	check_exit("good", 0, "", false, NULL);
	free(out);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, until_decided_stops_and_says_so);
	tcase_add_test(tc, until_decided_without_a_distance_runs_everything);
	tcase_add_test(tc, until_decided_ends_a_leg_that_fails);
	tcase_add_test(tc, until_decided_needs_a_distance);
	tcase_add_test(tc, until_decided_starts_over);
}

int main(void)
{
	return run_rig_main("until decided", add);
}
