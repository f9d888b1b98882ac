/* Which path each arm takes, as its counters tell: docs/formats.md, section 3. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "tiny.h"

#define BOOK52 "oracle-goldens/models/book52-nvfp4"
#define M 23        /* its Mamba layers; 23 MoE, 6 attention */
#define PROMPT 9

static const char *backends[3];
static int n_backends;

/* state_update_rows, chunk_scan_calls, conv_update_rows, conv_fwd_calls, gathers, scatters */
enum { PATH = 6 };
static const enum counter path[PATH] = {
	COUNT_STATE_UPDATE_ROWS, COUNT_CHUNK_SCAN_CALLS, COUNT_CONV_UPDATE_ROWS, COUNT_CONV_FWD_CALLS, COUNT_GATHERS,
	COUNT_SCATTERS,
};

static void expect(const struct counters *got, const int64_t want[PATH], const char *arm, const char *what)
{
	for (int i = 0; i < PATH; i++)
		ck_assert_msg(got->n[path[i]] == want[i], "%s, %s: %s is %lld, expected %lld", arm, what,
			      counter_name(path[i]), (long long)got->n[path[i]], (long long)want[i]);
}

static const struct arm_case {
	const char *arm, *at;
	int64_t prefill[PATH], carried[PATH], decode[PATH];   /* carried: a prefill piece with state before it */
} arms[] = {
	{ "mamba.decode=step", NULL, { 0, M, 0, M, 0, 0 }, { 0, M, 0, M, 0, 0 }, { M, 0, M, 0, 0, 0 } },
	{ "mamba.decode=chunk", NULL, { 0, M, 0, M, 0, 0 }, { 0, M, 0, M, 2 * M, 2 * M },
	  { 0, M, 0, M, 2 * M, 2 * M } },
	{ "place.mamba=host", NULL, { 0, 0, 0, 0, 2 * M, 2 * M }, { 0, 0, 0, 0, 2 * M, 2 * M },
	  { 0, 0, 0, 0, 2 * M, 2 * M } },
	{ "place.mamba=host,mamba.decode=chunk,mamba.proj=w8a16", NULL, { 0, 0, 0, 0, 2 * M, 2 * M },
	  { 0, 0, 0, 0, 2 * M, 2 * M }, { 0, 0, 0, 0, 2 * M, 2 * M } },
	{ "mamba.prefill=step", NULL, { M * PROMPT, 0, M * PROMPT, 0, 0, 0 }, { M * PROMPT, 0, M * PROMPT, 0, 0, 0 },
	  { M, 0, M, 0, 0, 0 } },
	{ "place.attn=host,place.moe=host", NULL, { 0, M, 0, M, 12, 12 }, { 0, M, 0, M, 12, 12 },
	  { M, 0, M, 0, 12, 12 } },
	/* Layers 0, 2, 4, 7 and 9 are Mamba. */
	{ "mamba.decode=step", "0-9:mamba.decode=chunk", { 0, M, 0, M, 0, 0 }, { 0, M, 0, M, 10, 10 },
	  { M - 5, 5, M - 5, 5, 10, 10 } },
};
enum { N_ARMS = sizeof(arms) / sizeof(*arms) };

static void open_arm(struct session *s, struct model *m, const struct arm_case *c, const char *backend)
{
	char *text = xasprintf("backend=%s,%s", backend, c->arm);
	struct arm arm = tiny_arm(text);
	struct arm_at_list at = {0};
	struct err err = {0};

	tiny_open_model(m, BOOK52);
	if (c->at)
		ck_assert_int_eq(arm_at_parse(&at, c->at, &err), 0);
	ck_assert_msg(arm_resolve(&arm, &at, m, &err) == 0, "%s", err.text);
	ck_assert_msg(session_open(s, m, &arm, &at, &(struct limits){ PROMPT, 3, 3 * PROMPT }, &err) == 0, "%s", err.text);
	arm_at_release(&at);
	free(text);
}

/* Modules of one step, by hand: 23 in_proj and 23 out_proj in FP8; 23 layers of 4 experts and a shared one, up and
 * down, and the head in NVFP4; q, k, v, o of 6 layers and 23 routers in bf16. */
static void expect_linears(const struct counters *got, const struct arm_case *c, bool head)
{
	bool w8a16 = strstr(c->arm, "w8a16") != NULL;

	ck_assert_int_eq(got->n[COUNT_W8A8_CALLS], w8a16 ? 0 : 46);
	ck_assert_int_eq(got->n[COUNT_W8A16_CALLS], w8a16 ? 46 : 0);
	ck_assert_int_eq(got->n[COUNT_W4A16_CALLS], 23 * (4 + 4 + 2) + head);
	ck_assert_int_eq(got->n[COUNT_W4A4_CALLS], 0);
	ck_assert_int_eq(got->n[COUNT_BF16_CALLS], 6 * 4 + 23);
	ck_assert_int_eq(got->n[COUNT_REFERENCE_TIER], 0);
	ck_assert_int_eq(got->n[COUNT_ALLOCS_AFTER_OPEN], 0);
}

START_TEST(test_arm)
{
	const struct arm_case *c = &arms[_i % N_ARMS];
	const char *backend = _i / N_ARMS < n_backends ? backends[_i / N_ARMS] : NULL;
	static const int32_t ids[PROMPT] = { 1085, 320, 261, 1108, 283, 5, 6, 7, 8 };
	struct session s = {0};
	struct model m = {0};
	struct logits_row rows[3];
	struct counters n;
	int64_t many[PATH];

	if (!backend)
		return;
	open_arm(&s, &m, c, backend);
	for (int slot = 0; slot < 3; slot++) {
		session_reset(&s, slot);
		session_prefill(&s, rows, slot, ids, PROMPT, -1);
		n = session_take_counters(&s);
		expect(&n, c->prefill, c->arm, "prefill");
		expect_linears(&n, c, true);
		ck_assert_int_eq(n.n[COUNT_STATE_RESETS], 1);
	}
	session_prefill(&s, NULL, 2, ids, PROMPT, -1);
	n = session_take_counters(&s);
	expect(&n, c->carried, c->arm, "a further piece of a prompt");
	expect_linears(&n, c, false);
	ck_assert_int_eq(n.n[COUNT_STATE_RESETS], 0);
	for (int step = 0; step < 3; step++) {
		session_step(&s, rows, &(int32_t){ 1 }, ids, 1, NULL);
		n = session_take_counters(&s);
		expect(&n, c->decode, c->arm, "decode of one sequence");
		expect_linears(&n, c, true);
	}
	/* Rows count sequences; calls and copied arrays do not. */
	memcpy(many, c->decode, sizeof(many));
	many[0] *= 3;
	many[2] *= 3;
	for (int step = 0; step < 3; step++) {
		session_step(&s, rows, (int32_t[]){ 2, 0, 1 }, ids, 3, NULL);
		n = session_take_counters(&s);
		expect(&n, many, c->arm, "decode of three sequences");
		expect_linears(&n, c, true);
	}
	session_release(&s);
	model_release(&m);
}
END_TEST

/* A backend that lacks an op of a block: ref serves the block, every op of it is counted, the numbers are ref's. */
START_TEST(test_missing_op)
{
	struct backend partial = ref_backend;
	struct arm arm = tiny_arm("backend=ref");
	struct arm_at_list none = {0};
	struct err err = {0};
	struct model m = {0};
	struct limits limits = { 4, 1, 8 };
	struct session whole = {0}, lacking = {0};
	struct logits_row want, got;
	static const int32_t ids[4] = { 1, 2, 3, 4 };

	partial.gated_norm = NULL;
	tiny_open_model(&m, "engine/tests/fixtures/tiny-mix8");   /* M E * M - E M *: three Mamba layers */
	ck_assert_int_eq(arm_resolve(&arm, &none, &m, &err), 0);
	ck_assert_int_eq(session_open(&whole, &m, &arm, &none, &limits, &err), 0);
	ck_assert_int_eq(session_open_on(&lacking, &partial, &m, &arm, &none, &limits, &err), 0);
	session_prefill(&whole, &want, 0, ids, 4, -1);
	session_prefill(&lacking, &got, 0, ids, 4, -1);
	ck_assert(want.xxh64 == got.xxh64);
	ck_assert_int_eq(session_take_counters(&whole).n[COUNT_REFERENCE_TIER], 0);
	/* in_proj, conv, ssm, norm, out_proj of each */
	ck_assert_int_eq(session_take_counters(&lacking).n[COUNT_REFERENCE_TIER], 3 * 5);
	session_release(&whole);
	session_release(&lacking);
	model_release(&m);
}
END_TEST

/* The warm-up of dirty slots leaves no counts. */
START_TEST(test_dirty_untraced)
{
	struct arm arm = tiny_arm("backend=ref,slots=dirty");
	struct session s = {0};
	struct model m = {0};
	struct counters n;

	tiny_open_model(&m, "engine/tests/fixtures/tiny-mix8");
	tiny_open(&s, &m, &arm, &(struct limits){ 4, 2, 8 });
	n = session_take_counters(&s);
	for (int c = 0; c < N_COUNTERS; c++)
		ck_assert_int_eq(n.n[c], 0);
	ck_assert_int_gt(s.length[0], 0);
	ck_assert_int_gt(s.length[1], 0);
	session_release(&s);
	model_release(&m);
}
END_TEST

/* What a model or a build cannot honour is refused by name, with the kind that becomes the exit code. */
static const struct refusal { const char *model, *arm, *at; enum err_kind kind; const char *says; } refusals[] = {
	{ BOOK52, "backend=cpu,compute=f64", NULL, ERR_INPUT, "compute: f64" },
	{ BOOK52, "backend=ref,mamba.proj=native", NULL, ERR_INPUT, "mamba.proj: native" },
	{ BOOK52, "backend=ref,moe.experts=w4a4", NULL, ERR_INPUT, "moe.experts: w4a4" },
	{ BOOK52, "backend=ref,moe.experts=native", NULL, ERR_INPUT, "moe.experts: native" },
	{ BOOK52, "backend=ref,graph=on", NULL, ERR_INPUT, "graph: on" },
	{ BOOK52, "backend=ref", "52:mamba.decode=chunk", ERR_INPUT, "layers 0 to 51" },
	{ BOOK52, "backend=ref", "5:mamba.proj=w8a8", ERR_INPUT, "mamba.proj: w8a8" },
	{ "engine/tests/fixtures/tiny-m", "backend=ref,mamba.proj=w8a8", NULL, ERR_INPUT, "no FP8 module" },
	{ "engine/tests/fixtures/tiny-m", "backend=ref,moe.experts=w4a16", NULL, ERR_INPUT, "no NVFP4 module" },
#ifndef ASSAY_CUDA
	{ BOOK52, "backend=cuda", NULL, ERR_CANNOT_RUN, "backend cuda" },
#endif
};

START_TEST(test_refused)
{
	const struct refusal *r = &refusals[_i];
	struct arm arm = tiny_arm(r->arm);
	struct arm_at_list at = {0};
	struct err err = {0}, ok = {0};
	struct model m = {0};

	tiny_open_model(&m, r->model);
	if (r->at)
		ck_assert_int_eq(arm_at_parse(&at, r->at, &ok), 0);
	ck_assert_int_eq(arm_resolve(&arm, &at, &m, &err), -1);
	ck_assert_int_eq(err.kind, r->kind);
	ck_assert_msg(strstr(err.text, r->says) != NULL, "\"%s\" does not say \"%s\"", err.text, r->says);
	arm_at_release(&at);
	model_release(&m);
}
END_TEST

/* What open factors become: docs/formats.md, section 2. */
static const struct { const char *model, *arm; enum factor factor; int value; } defaults[] = {
	{ BOOK52, "backend=ref", FACTOR_MAMBA_PROJ, MAMBA_PROJ_W8A8 },
	{ BOOK52, "backend=ref", FACTOR_MOE_EXPERTS, MOE_EXPERTS_W4A16 },
	{ BOOK52, "backend=ref", FACTOR_MAMBA_STATE, MAMBA_STATE_FP32 },
	{ BOOK52, "backend=ref", FACTOR_ATTN_KV, ATTN_KV_BF16 },
	{ BOOK52, "backend=ref", FACTOR_GRAPH, GRAPH_OFF },
	{ BOOK52, "backend=ref", FACTOR_HEAD, HEAD_FP32 },
	{ BOOK52, "backend=ref,compute=fp32", FACTOR_ATTN_KV, ATTN_KV_FP32 },
	{ BOOK52, "backend=ref,compute=f64", FACTOR_ATTN_KV, ATTN_KV_FP32 },
	{ BOOK52, "backend=ref,compute=fp32,attn.kv=bf16", FACTOR_ATTN_KV, ATTN_KV_BF16 },
	{ "engine/tests/fixtures/tiny-nvfp4", "backend=ref", FACTOR_MOE_EXPERTS, MOE_EXPERTS_W4A4 },
	{ "engine/tests/fixtures/tiny-nvfp4", "backend=ref", FACTOR_MAMBA_PROJ, MAMBA_PROJ_NATIVE },
	{ "engine/tests/fixtures/tiny-m", "backend=ref", FACTOR_MOE_EXPERTS, MOE_EXPERTS_NATIVE },
};

START_TEST(test_default)
{
	struct arm arm = tiny_arm(defaults[_i].arm);
	struct arm_at_list none = {0};
	struct err err = {0};
	struct model m = {0};

	tiny_open_model(&m, defaults[_i].model);
	ck_assert_msg(arm_resolve(&arm, &none, &m, &err) == 0, "%s", err.text);
	ck_assert_int_eq(arm.value[defaults[_i].factor], defaults[_i].value);
	for (int f = 0; f < N_FACTORS; f++)
		ck_assert_int_ne(arm.value[f], ARM_UNSET);
	ck_assert_int_ge(arm.value[FACTOR_THREADS], 1);
	model_release(&m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("paths");
	TCase *c = tcase_create("counters"), *factors = tcase_create("factors");
	SRunner *runner = srunner_create(suite);
	int failed;

	n_backends = tiny_backends(backends);
	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_arm, 0, 3 * N_ARMS);
	tcase_add_test(c, test_missing_op);
	tcase_add_test(c, test_dirty_untraced);
	suite_add_tcase(suite, c);
	tcase_add_loop_test(factors, test_refused, 0, sizeof(refusals) / sizeof(*refusals));
	tcase_add_loop_test(factors, test_default, 0, sizeof(defaults) / sizeof(*defaults));
	suite_add_tcase(suite, factors);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
