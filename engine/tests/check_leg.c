/* The decode window of a leg, in which its device is watched and its tokens are timed: decode steps and nothing else. */
#include <check.h>
#include <stdlib.h>
#include "contract/err.h"
#include "engine/leg.h"
#include "engine/model.h"

#define TINY "engine/tests/fixtures/tiny-lightning"

enum { PROMPTS = 3, STEPS = 4, LENGTH = 5 };

static const struct backend *plain;
static bool is_open;
static int opened, inside[LENGTH + 1], outside[LENGTH + 1];      /* embeddings of so many tokens */

static void window(struct device *dev, bool open)
{
	(void)dev;
	ck_assert(open != is_open);
	is_open = open;
	opened += open;
}

static void embed(struct device *dev, void *h, const int32_t *ids, const struct linear *table, int T)
{
	ck_assert_int_le(T, LENGTH);
	(is_open ? inside : outside)[T]++;
	plain->embed(dev, h, ids, table, T);
}

/* Three prompts of five tokens, `batch` at a time. */
static void run(int batch, struct report *r)
{
	struct err err = {0};
	struct model m = {0};
	struct session s = {0};
	struct arm_at_list none = {0};
	struct arm arm;
	int32_t ids[LENGTH] = { 5, 9, 17, 33, 65 };
	struct prompt item[PROMPTS];
	struct prompts prompts = { .item = item, .n = PROMPTS };
	struct limits limits = { .rows = LENGTH, .slots = batch, .len = LENGTH + STEPS };
	struct leg leg = { .session = &s, .prompts = &prompts, .steps = STEPS };

	for (int i = 0; i < PROMPTS; i++)
		item[i] = (struct prompt){ .id = (char *)"p", .n = LENGTH, .ids = ids };
	arm_init(&arm);
	arm.value[FACTOR_BACKEND] = BACKEND_REF;
	arm.value[FACTOR_BATCH] = batch;
	ck_assert_msg(!model_open(&m, TINY, &err) && !arm_resolve(&arm, &none, &m, &err), "%s", err.text);
	plain = backend_find(BACKEND_REF, &err);

	struct backend watched = *plain;

	watched.window = window;
	watched.embed = embed;
	ck_assert_msg(!session_open_on(&s, &watched, &m, &arm, &none, &limits, &err), "%s", err.text);
	leg_prepare(&leg, r, MODE_FREE, &arm);
	leg_run(&leg, r, MODE_FREE);
	leg_timing(&leg, r);
	leg_release(&leg);
	session_release(&s);
	model_release(&m);
}

START_TEST(the_window_holds_decode_steps_alone)
{
	struct report r = {0};

	run(1, &r);
	/* the first token comes of the prefill, the other three of a step each */
	ck_assert_int_eq(opened, PROMPTS);
	ck_assert(!is_open);
	ck_assert_int_eq(inside[1], PROMPTS * (STEPS - 1));
	ck_assert_int_eq(inside[LENGTH], 0);
	ck_assert_int_eq(outside[LENGTH], PROMPTS);
	ck_assert_int_eq(outside[1], 0);
	/* as many steps are timed */
	ck_assert_int_eq(r.timing.n, PROMPTS * (STEPS - 1));
	ck_assert(r.timing.p50 > 0 && r.timing.decode_s > 0 && r.timing.prefill_s > 0);
	report_release(&r);
}
END_TEST

START_TEST(a_window_per_batch)
{
	struct report r = {0};

	run(2, &r);
	ck_assert_int_eq(opened, 2);
	ck_assert_int_eq(inside[2], STEPS - 1);
	ck_assert_int_eq(inside[1], STEPS - 1);
	ck_assert_int_eq(outside[LENGTH], PROMPTS);
	report_release(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("leg");
	TCase *c = tcase_create("leg");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 60);
	tcase_add_test(c, the_window_holds_decode_steps_alone);
	tcase_add_test(c, a_window_per_batch);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
