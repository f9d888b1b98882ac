/* The same bits however a step is run: alone or in a batch of any size, twice, with and without graph replay, fused or
 * op by op; a prompt's attention row by row or split by split.  Compared by the hash of every row of logits. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "cuda_test.h"
#include "engine/cuda/device.h"
#include "engine/synth.h"
#include "engine/tests/edit.h"
#include "engine/tests/tiny.h"

enum { SLOTS = 20, STEPS = 6, LONGEST = 40 };

/* The widths of the 30B shape, which kernels of their own serve, with few layers, experts and ids; random weights. */
#define SHAPE "engine/tests/fixtures/configs/lightning-30b-a3b-shape.config.json"
#define WIDE "the 30B shape"
enum { WIDE_LAYERS = 6, WIDE_EXPERTS = 24, WIDE_VOCAB = 3000 };

static const char *const models[] = {
	"oracle-goldens/models/book52-nvfp4", "engine/tests/fixtures/tiny-mix8", "engine/tests/fixtures/tiny-lightning",
	"engine/tests/fixtures/tiny-odd", "engine/tests/fixtures/tiny-fp8", "engine/tests/fixtures/tiny-super",
	"engine/tests/fixtures/tiny-group", "engine/tests/fixtures/tiny-latent", WIDE,
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

/* "backbone.layers.5.mixer.experts.7.up_proj": is it left? */
static bool is_left(const char *module)
{
	int layer = -1, expert = -1;

	sscanf(module, "backbone.layers.%d.mixer.experts.%d", &layer, &expert);
	return layer < WIDE_LAYERS && expert < WIDE_EXPERTS;
}

static void open_wide(struct model *m)
{
	char *dir = edit_dir(), *path = xasprintf("%s/config.json", dir);
	json_t *config = json_load_file(SHAPE, 0, NULL), *types, *quantised, *format;
	const char *module;
	struct err err = {0};
	void *next;

	ck_assert_ptr_nonnull(config);
	types = json_object_get(config, "layers_block_type");
	while (json_array_size(types) > WIDE_LAYERS)
		json_array_remove(types, WIDE_LAYERS);
	json_object_set_new(config, "num_hidden_layers", json_integer(WIDE_LAYERS));
	json_object_set_new(config, "n_routed_experts", json_integer(WIDE_EXPERTS));
	json_object_set_new(config, "vocab_size", json_integer(WIDE_VOCAB));
	quantised = json_object_get(json_object_get(config, "quantization_config"), "quantized_layers");
	json_object_foreach_safe(quantised, next, module, format)
		if (!is_left(module))
			json_object_del(quantised, module);
	ck_assert_int_eq(json_dump_file(config, path, 0), 0);
	ck_assert_msg(model_synthesise(m, path, 1, &err) == 0, "%s", err.text);
	json_decref(config);
	free(path);
	edit_remove(dir);
}

static struct hashes run(const char *dir, const char *arm_text, int batch, bool unfused)
{
	struct model m = {0};
	struct session s = {0};
	struct arm arm = tiny_arm(arm_text);
	struct hashes h;

	memset(&h, 0, sizeof(h));
	cuda_unfused = unfused;
	if (strcmp(dir, WIDE) == 0)
		open_wide(&m);
	else
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

/* A prompt of `count` ids in a session of `slots`: whether its rows or their splits go to blocks depends on the latter. */
static uint64_t prefill_hash(int count, int slots, bool unfused)
{
	struct model m = {0};
	struct session s = {0};
	struct arm arm = tiny_arm("backend=cuda");
	struct logits_row row;
	int32_t *ids = calloc((size_t)count, sizeof(*ids));

	for (int i = 0; i < count; i++)
		ids[i] = (i * 37 + i * i) % WIDE_VOCAB;
	cuda_unfused = unfused;
	open_wide(&m);
	tiny_open(&s, &m, &arm, &(struct limits){ .rows = count, .slots = slots, .len = count + 8 });
	session_prefill(&s, &row, 0, ids, count, -1);
	session_release(&s);
	model_release(&m);
	cuda_unfused = false;
	free(ids);
	return row.xxh64;
}

START_TEST(test_long)
{
	static const int counts[] = { 63, 130, 309 };
	int count = counts[_i];
	uint64_t rows = prefill_hash(count, 1, false), again = prefill_hash(count, 1, true), splits = prefill_hash(count, count + 1, false);

	ck_assert_msg(rows == again, "prompt of %d: other bits the second time", count);
	ck_assert_msg(rows == splits, "prompt of %d: other bits where splits go to blocks", count);
}
END_TEST

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
	TCase *c = tcase_create("equal"), *prompts = tcase_create("long prompts");

	tcase_add_loop_test(c, test_bits, 0, N_MODELS);
	tcase_add_loop_test(c, test_fp32, 0, N_MODELS);
	tcase_add_loop_test(prompts, test_long, 0, 3);
	suite_add_tcase(s, c);
	suite_add_tcase(s, prompts);
	return cuda_test_run(s);
}
