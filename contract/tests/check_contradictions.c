/* Reports that contradict themselves: each edit of a sound step is refused at its place, and what may be printed coarsely, left out or
 * rounded is not.  Expected by hand: e^8.5 + e^7 = e^8.7014. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "contract/report.h"

#define MINIMAL "contract/tests/data/report/minimal.json"

static struct report r;
static struct err err;

static void start(void)
{
	r = (struct report){0};
	err = (struct err){0};
}

static void stop(void)
{
	report_release(&r);
}

/* The minimal report with other rows in mode forced, and perhaps a mode free before it. */
static int load_with(const char *rows, const char *free_rows)
{
	size_t size;
	char *text = file_read(MINIMAL, 1 << 20, &size, &err), *at, *behind;

	ck_assert_ptr_nonnull(text);
	at = strstr(text, "\"forced\":{\"prompts\":[");
	behind = strstr(text, "],\n\"counters_total\"");
	ck_assert(at && behind);
	char *free_mode = free_rows ? xasprintf("\"free\":{\"prompts\":[%s],\"counters_total\":{},\"trace\":[]},", free_rows) : xstrdup("");
	char *all = xasprintf("%.*s%s\"forced\":{\"prompts\":[%s%s", (int)(at - text), text, free_mode, rows, behind);
	int status = report_load_bytes(&r, all, strlen(all), "r.json", &err);

	free(all);
	free(free_mode);
	free(text);
	return status;
}

static int load_step(const char *step)
{
	char *row = xasprintf("{\"id\":\"p0\",\"prompt_ids\":[1],\"ids\":[5],\"steps\":[{\"id\":5,%s}]}", step);
	int status = load_with(row, NULL);

	free(row);
	return status;
}

#define TOP "\"top\":[[5,8.5],[6,7]]"
#define SOUND "\"margin\":1.5,\"lse\":9," TOP

static const char *const sound[] = {
	SOUND, SOUND ",\"given\":[6,7,2]", SOUND ",\"given\":[7,6.5,3]", SOUND ",\"given\":[7,-80,4000]",
	/* a few words are enough */
	"\"given\":[6,7,2]", "\"margin\":3,\"lse\":9,\"top\":[[5,8.5]]", "\"logits_xxh64\":\"00000000000000ff\"",
	/* printed with three decimals, and with fewer digits than they were taken from */
	"\"margin\":1.501,\"lse\":9," TOP, "\"margin\":1.499,\"lse\":8.701," TOP, SOUND ",\"given\":[6,7.001,2]",
	/* a difference taken in bf16: 8.5 - -3.84375 = 12.34375, whose neighbours are 12.3125 and 12.375 */
	"\"margin\":12.375,\"lse\":9,\"top\":[[5,8.5],[6,-3.84375]]",
	/* logits of thousands in fp32 */
	"\"margin\":1.5005,\"lse\":60002,\"top\":[[5,60001.5],[6,60000]]",
	/* log-probabilities of a server: what they sum to is right to its own rounding */
	"\"margin\":1.38629,\"lse\":0,\"top\":[[5,-0.22314],[6,-1.60944]]",
	/* ties: the order of ranks is the engine's own */
	"\"margin\":0,\"lse\":10,\"top\":[[4,8.5],[5,8.5]],\"given\":[5,8.5,1]",
	"\"margin\":0,\"lse\":10,\"top\":[[4,8.5],[5,8.5]],\"given\":[5,8.5,2]",
	"\"margin\":0,\"lse\":10,\"top\":[[4,8.5],[5,8.5]],\"given\":[6,8.5,3]",
	/* for the judge: a token that is not its own best, numbers that are not finite */
	"\"margin\":-1.5,\"lse\":9,\"top\":[[6,8.5],[5,7]]", "\"margin\":4,\"lse\":9,\"top\":[[6,8.5],[5,7]]",
	"\"margin\":4,\"lse\":9,\"top\":[[6,8.5],[7,7]]",
	"\"margin\":\"nan\",\"lse\":\"inf\"," TOP, "\"margin\":4,\"lse\":1,\"top\":[[5,\"inf\"],[6,7]]",
	SOUND ",\"given\":[6,\"nan\",2]",
};

START_TEST(is_read)
{
	ck_assert_msg(load_step(sound[_i]) == 0, "%s", err.text);
	ck_assert_int_eq(r.modes[MODE_FORCED].n_rows, 1);
}
END_TEST

static const struct { const char *step, *says; } edited[] = {
	{"\"margin\":1.6,\"lse\":9," TOP, "margin is 1.6, but the first two of top differ by 1.5"},
	{"\"margin\":1.49,\"lse\":9," TOP, "margin is 1.49, but the first two of top differ by 1.5"},
	{"\"margin\":-1.5,\"lse\":9," TOP, "margin is -1.5, but the first two of top differ by 1.5"},
	{"\"margin\":0.01,\"lse\":9,\"top\":[[4,7],[5,7]]", "margin is 0.01, but the first two of top differ by 0"},
	{"\"margin\":1.5,\"lse\":8.5," TOP, "lse is 8.5, with which the probabilities of top sum to 1.22313"},
	{"\"margin\":1.5,\"lse\":8.68," TOP, "lse is 8.68, with which the probabilities of top sum to 1.02164"},
	{"\"margin\":1.5,\"lse\":0," TOP, "lse is 0, with which the probabilities of top sum to 6011.4"},
	{SOUND ",\"given\":[6,7.5,2]", "given has the logit 7.5, top has 7 for the same id"},
	{SOUND ",\"given\":[5,8.49,1]", "given has the logit 8.49, top has 8.5 for the same id"},
	{SOUND ",\"given\":[7,7.5,3]", "given has the logit 7.5 and is not in top, which goes down to 7"},
	{SOUND ",\"given\":[6,7,1]", "given has the rank 1, but 1 of top are better"},
	{SOUND ",\"given\":[5,8.5,2]", "given has the rank 2, but 0 of top are better and no more"},
	{SOUND ",\"given\":[7,6,2]", "given has the rank 2, but 2 of top are better"},
};

START_TEST(is_refused)
{
	char *want = xasprintf("r.json: $.modes.forced.prompts[0].steps[0]: %s", edited[_i].says);

	ck_assert_int_eq(load_step(edited[_i].step), -1);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_str_eq(err.text, want);
	ck_assert_ptr_null(r.leg);
	free(want);
}
END_TEST

#define ROW(steps) "{\"id\":\"p0\",\"prompt_ids\":[1],\"ids\":[5,5],\"steps\":[" steps "]}"
#define STEP(more) "{\"id\":5," SOUND more "}"

/* Either the engine hashes its logits or it does not. */
START_TEST(hashes_of_a_row)
{
	ck_assert_int_eq(load_with(ROW(STEP(",\"logits_xxh64\":\"00000000000000ff\"") "," STEP("")), NULL), -1);
	ck_assert_str_eq(err.text, "r.json: $.modes.forced.prompts[0].steps[1]: expected logits_xxh64 at every step that has logits, or at none");
	err = (struct err){0};
	ck_assert_int_eq(load_with(ROW(STEP("") "," STEP(",\"logits_xxh64\":\"00000000000000ff\"")), NULL), -1);
	ck_assert_str_eq(err.text, "r.json: $.modes.forced.prompts[0].steps[1]: expected logits_xxh64 at every step that has logits, or at none");
	err = (struct err){0};
	ck_assert_msg(load_with(ROW("{\"id\":5}," STEP(",\"logits_xxh64\":\"00000000000000ff\"")), NULL) == 0, "%s", err.text);
	report_release(&r);
	ck_assert_msg(load_with(ROW(STEP("") "," STEP("")), NULL) == 0, "%s", err.text);
}
END_TEST

#define A ",\"logits_xxh64\":\"00000000000000aa\""
#define B ",\"logits_xxh64\":\"00000000000000bb\""
#define OTHER(more) "{\"id\":5,\"margin\":1.25,\"lse\":9,\"top\":[[5,8.25],[6,7]]" more "}"

/* Equal hashes of all logits are equal logits; other hashes say nothing. */
START_TEST(hashes_of_two_modes)
{
	ck_assert_msg(load_with(ROW(STEP(A) "," STEP(B)), ROW(STEP(A) "," STEP(B))) == 0, "%s", err.text);
	report_release(&r);
	ck_assert_msg(load_with(ROW(STEP(A) "," OTHER(B)), ROW(STEP(A) "," STEP(A))) == 0, "%s", err.text);
	report_release(&r);
	ck_assert_int_eq(load_with(ROW(STEP(A) "," OTHER(B)), ROW(STEP(A) "," STEP(B))), -1);
	ck_assert_str_eq(err.text, "r.json: $.modes.free.prompts[0].steps[1]: the logits_xxh64 of mode forced, and other logits in top");
	err = (struct err){0};
	ck_assert_int_eq(load_with(ROW(STEP(A) "," "{\"id\":5,\"margin\":1.5,\"lse\":9,\"top\":[[5,8.5],[7,7]]" B "}"),
				   ROW(STEP(A) "," STEP(B))), -1);
}
END_TEST

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int main(void)
{
	Suite *suite = suite_create("contradictions");
	TCase *tc = tcase_create("reports");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_add_loop_test(tc, is_read, 0, COUNT(sound));
	tcase_add_loop_test(tc, is_refused, 0, COUNT(edited));
	tcase_add_test(tc, hashes_of_a_row);
	tcase_add_test(tc, hashes_of_two_modes);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	return failed != 0;
}
