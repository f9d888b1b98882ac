/* Random weights: the same for a seed, finite, a forward pass that stays finite with varied routing, and a checkpoint
 * that loads as the same model. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "contract/tokenizer.h"
#include "edit.h"
#include "engine/quant.h"
#include "engine/session.h"
#include "engine/synth.h"
#include "engine/synth_tokenizer.h"
#include "contract/json.h"

static struct err err;

static const char *const fixtures[] = { "tiny-mix8", "tiny-lightning", "tiny-nvfp4", "tiny-super", "tiny-fp8", "tiny-bias", "tiny-tied" };
enum { N_FIXTURES = sizeof fixtures / sizeof *fixtures };

static void synthesise(struct model *m, const char *fixture, uint64_t seed)
{
	char *path = xasprintf("engine/tests/fixtures/%s/config.json", fixture);

	memset(&err, 0, sizeof err);
	ck_assert_msg(model_synthesise(m, path, seed, &err) == 0, "%s", err.text);
	free(path);
}

/* Same names, shapes and bytes. */
static bool same(const struct model *a, const struct model *b)
{
	if (a->tensors.n_tensors != b->tensors.n_tensors)
		return false;
	for (int i = 0; i < a->tensors.n_tensors; i++) {
		const struct st_tensor *x = &a->tensors.tensors[i], *y = &b->tensors.tensors[i];

		if (strcmp(x->disk_name, y->disk_name) || x->dtype != y->dtype || x->bytes != y->bytes ||
		    memcmp(x->data, y->data, x->bytes))
			return false;
	}
	return true;
}

START_TEST(test_seed)
{
	struct model a, b, c;

	synthesise(&a, fixtures[_i], 7);
	synthesise(&b, fixtures[_i], 7);
	synthesise(&c, fixtures[_i], 8);
	ck_assert(same(&a, &b));
	ck_assert(!same(&a, &c));
	ck_assert_msg(model_verify(&a, &err) == 0, "%s", err.text);
	model_release(&a);
	model_release(&b);
	model_release(&c);
}
END_TEST

/* Root mean square of a matrix, dequantised. */
static double rms(const struct linear *l)
{
	const unsigned char *p = l->weight;
	size_t n = (size_t)l->out * l->in;
	double sum = 0, x;
	uint16_t b;

	for (size_t i = 0; i < n; i++) {
		if (l->format == WEIGHT_NVFP4) {
			x = e2m1_table[p[i / 2] >> (i % 2 ? 4 : 0) & 15] * (double)e4m3_table[l->block_scale[i / 16]] * l->scale;
		} else if (l->format == WEIGHT_FP8) {
			x = e4m3_table[p[i]] * (double)l->scale;
		} else {
			memcpy(&b, p + 2 * i, 2);
			x = bf16_to_float(b);
		}
		sum += x * x;
	}
	return sqrt(sum / (double)n);
}

/* Every module maps unit input to about unit output: 1 / sqrt(in), down projections 1 / sqrt(1.5 in), queries and keys
 * 1.5 / sqrt(in), the head 5 / sqrt(in).  The small modules have 64 blocks of random scale: 20 %. */
static void check_spread(struct linear *l, int layer, void *ud)
{
	double gain = strstr(l->name, "down_proj") ? sqrt(1 / 1.5) : strstr(l->name, "q_proj") || strstr(l->name, "k_proj") ? 1.5 : 1;

	if (layer < 0)
		gain = l->weight == ((struct model *)ud)->embed.weight ? 0.4 * sqrt(l->in) : 5;
	ck_assert_msg(fabs(rms(l) * sqrt(l->in) / gain - 1) < 0.2, "%s: %g, expected %g", l->name, rms(l) * sqrt(l->in), gain);
	if (l->input_scale != 0)         /* inputs up to 8 do not saturate */
		ck_assert_float_eq_tol(l->input_scale * (l->format == WEIGHT_FP8 ? 448 : 6 * 448), 8, 1e-4);
}

START_TEST(test_spread)
{
	struct model m;

	synthesise(&m, fixtures[_i], 5);
	model_each_linear(&m, check_spread, &m);
	model_release(&m);
}
END_TEST

/* Saved and opened: the same tensors, the same numerics, a tokenizer that speaks. */
START_TEST(test_save)
{
	char *config = xasprintf("engine/tests/fixtures/%s/config.json", fixtures[_i]), *dir = edit_dir(), *path;
	struct model made, read;
	struct tokenizer *t;
	int32_t *ids;
	int n;

	synthesise(&made, fixtures[_i], 3);
	ck_assert_msg(model_save_synthetic(&made, config, dir, &err) == 0, "%s", err.text);
	ck_assert_msg(model_open(&read, dir, &err) == 0, "%s", err.text);
	ck_assert_msg(model_verify(&read, &err) == 0, "%s", err.text);
	ck_assert(same(&made, &read));
	ck_assert_int_eq(made.parameters, read.parameters);
	ck_assert_uint_eq(made.weight_bytes, read.weight_bytes);
	path = xasprintf("%s/tokenizer.json", dir);
	t = tokenizer_load(path, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	ck_assert_int_eq(tokenizer_size(t), read.config.vocab_size < 256 ? read.config.vocab_size : 256);
	n = tokenizer_encode(t, &ids, "a B", 3, true, &err);
	ck_assert_msg(n == 3 && ids[0] == 'a' && ids[1] == ' ' && ids[2] == 'B', "%s", err.text);
	free(ids);
	tokenizer_free(t);
	model_release(&made);
	model_release(&read);
	edit_remove(dir);
	free(path);
	free(config);
}
END_TEST

/* Every token of a larger vocabulary is rebuilt by BPE from its own text, so the text of any ids encodes again. */
START_TEST(test_tokenizer)
{
	static const int sizes[] = { 259, 4096, 70000 };
	char *dir = edit_dir(), *path = xasprintf("%s/tokenizer.json", dir);
	json_t *json = synth_tokenizer(sizes[_i]);
	struct tokenizer *t;
	int32_t *ids, id = sizes[_i] - 1;
	size_t size;
	char *text;
	int n;

	ck_assert_uint_eq(json_object_size(json_object_get(json_object_get(json, "model"), "vocab")), sizes[_i]);
	ck_assert_int_eq(json_write_file(json, path, 0, &err), 0);
	json_decref(json);
	t = tokenizer_load(path, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	ck_assert_int_eq(tokenizer_size(t), sizes[_i]);
	n = tokenizer_encode(t, &ids, "<s>!!", 5, true, &err);
	ck_assert_msg(n >= 2 && ids[0] == 1, "%s", err.text);
	/* "!!" is the first pair: one token from 260 on */
	ck_assert_int_eq(n, _i ? 2 : 3);
	if (_i)
		ck_assert_int_eq(ids[1], 259);
	free(ids);
	if (_i == 2) {                      /* the first triples: !"! is 65795, !"" and !"# follow */
		n = tokenizer_encode(t, &ids, "!\"#", 3, true, &err);
		ck_assert_msg(n == 1 && ids[0] == 65797, "%d ids, first %d", n, n ? ids[0] : -1);
		free(ids);
	}
	text = tokenizer_decode(t, &id, 1, false, &size, &err);
	ck_assert_msg(text != NULL, "%s", err.text);
	ck_assert_uint_gt(size, 0);
	free(text);
	tokenizer_free(t);
	edit_remove(dir);
	free(path);
}
END_TEST

/* Twenty steps on ref: finite logits that are neither flat nor one-sided. */
START_TEST(test_forward)
{
	struct model m;
	struct session s;
	struct arm arm;
	struct arm_at_list at = {0};
	struct logits_row row;
	struct limits limits = { 1, 1, 64 };
	int32_t id = 5, slot = 0, seen[20];
	int distinct = 0;

	synthesise(&m, fixtures[_i], 11);
	arm_init(&arm);
	arm.value[FACTOR_BACKEND] = BACKEND_REF;
	ck_assert_msg(arm_resolve(&arm, &at, &m, &err) == 0, "%s", err.text);
	ck_assert_msg(session_open(&s, &m, &arm, &at, &limits, &err) == 0, "%s", err.text);
	session_reset(&s, 0);
	for (int i = 0; i < 20; i++) {
		bool old = false;

		session_step(&s, &row, &slot, &id, 1, NULL);
		ck_assert(isfinite(row.lse) && isfinite(row.top_logit[0]));
		ck_assert_msg(row.top_logit[0] > 2 && row.top_logit[0] < 60, "step %d: top logit %g", i, row.top_logit[0]);
		id = seen[i] = row.top_id[0];
		for (int k = 0; k < i; k++)
			old |= seen[k] == id;
		distinct += !old;
	}
	ck_assert_msg(distinct > 1, "the model says one token for ever");
	session_release(&s);
	model_release(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("random weights");
	TCase *c = tcase_create("synth");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, test_seed, 0, N_FIXTURES);
	tcase_add_loop_test(c, test_spread, 0, N_FIXTURES);
	tcase_add_loop_test(c, test_save, 0, N_FIXTURES);
	tcase_add_loop_test(c, test_tokenizer, 0, 3);
	tcase_add_loop_test(c, test_forward, 0, N_FIXTURES);
	tcase_set_timeout(c, 60);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
