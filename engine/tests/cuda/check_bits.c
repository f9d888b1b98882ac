/* The same bits however a step is run: alone or in a batch of any size, twice, with and without graph replay, fused or
 * op by op.  Compared by the hash of every row of logits. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_test.h"
#include "engine/cuda/device.h"
#include "engine/tests/tiny.h"

enum { SLOTS = 20, STEPS = 6, LONGEST = 40 };

static const char *const models[] = {
	"oracle-goldens/models/book52-nvfp4", "engine/tests/fixtures/tiny-mix8", "engine/tests/fixtures/tiny-lightning",
	"engine/tests/fixtures/tiny-odd", "engine/tests/fixtures/tiny-fp8", "engine/tests/fixtures/tiny-super",
	"engine/tests/fixtures/tiny-group", "engine/tests/fixtures/tiny-latent",
};
enum { N_MODELS = sizeof(models) / sizeof(*models) };

struct hashes { uint64_t of[SLOTS][STEPS]; int32_t id[SLOTS][STEPS]; };

static int prompt(int32_t *ids, int slot, int vocab)
{
	int n = 1 + slot * 7 % LONGEST;

	for (int i = 0; i < n; i++)
		ids[i] = (int32_t)((slot * 131 + i * 17 + i * i) % vocab);
	return n;
}

static void keep(struct hashes *h, int slot, int step, const struct logits_row *row)
{
	h->of[slot][step] = row->xxh64;
	h->id[slot][step] = row->top_id[0];
}

/* Sequences first .. first + n - 1 decoded together. */
static void decode_together(struct session *s, struct hashes *h, int first, int n)
{
	int32_t ids[LONGEST], slots[SLOTS], next[SLOTS];
	struct logits_row rows[SLOTS];

	for (int i = 0; i < n; i++) {
		int count = prompt(ids, first + i, s->model->config.vocab_size);

		slots[i] = i;
		session_reset(s, i);
		session_prefill(s, &rows[0], i, ids, count, -1);
		keep(h, first + i, 0, &rows[0]);
		next[i] = rows[0].top_id[0];
	}
	for (int step = 1; step < STEPS; step++) {
		session_step(s, rows, slots, next, n, NULL);
		for (int i = 0; i < n; i++) {
			keep(h, first + i, step, &rows[i]);
			next[i] = rows[i].top_id[0];
		}
	}
}

static struct hashes run(const char *dir, const char *arm_text, int batch, bool unfused)
{
	struct model m = {0};
	struct session s = {0};
	struct arm arm = tiny_arm(arm_text);
	struct hashes h;

	memset(&h, 0, sizeof(h));
	cuda_unfused = unfused;
	tiny_open_model(&m, dir);
	tiny_open(&s, &m, &arm, &(struct limits){ .rows = LONGEST, .slots = batch, .len = LONGEST + STEPS + 200 });
	for (int first = 0; first < SLOTS; first += batch)
		decode_together(&s, &h, first, SLOTS - first < batch ? SLOTS - first : batch);
	session_release(&s);
	model_release(&m);
	cuda_unfused = false;
	return h;
}

static void same(const char *dir, const char *what, const struct hashes *a, const struct hashes *b)
{
	for (int slot = 0; slot < SLOTS; slot++)
		for (int step = 0; step < STEPS; step++)
			ck_assert_msg(a->of[slot][step] == b->of[slot][step], "%s, %s: sequence %d, step %d: other bits (ids "
				      "%d and %d)", dir, what, slot, step, a->id[slot][step], b->id[slot][step]);
}

START_TEST(test_bits)
{
	static const int batches[] = { 2, 3, 8, 16, 20 };
	const char *dir = models[_i];
	struct hashes one = run(dir, "backend=cuda", 1, false), other;

	other = run(dir, "backend=cuda", 1, false);
	same(dir, "run twice", &one, &other);
	other = run(dir, "backend=cuda,graph=off", 1, false);
	same(dir, "without graph", &one, &other);
	other = run(dir, "backend=cuda", 1, true);
	same(dir, "op by op", &one, &other);
	other = run(dir, "backend=cuda,graph=off", 8, true);
	same(dir, "op by op, batch 8", &one, &other);
	for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++) {
		char what[32];

		snprintf(what, sizeof(what), "batch %d", batches[i]);
		other = run(dir, "backend=cuda", batches[i], false);
		same(dir, what, &one, &other);
	}
}
END_TEST

START_TEST(test_fp32)
{
	const char *dir = models[_i];
	struct hashes one = run(dir, "backend=cuda,compute=fp32", 1, false);
	struct hashes other = run(dir, "backend=cuda,compute=fp32", 20, false);

	same(dir, "fp32, batch 20", &one, &other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bits on cuda");
	TCase *c = tcase_create("equal");

	tcase_add_loop_test(c, test_bits, 0, N_MODELS);
	tcase_add_loop_test(c, test_fp32, 0, N_MODELS);
	suite_add_tcase(s, c);
	return cuda_test_run(s);
}
