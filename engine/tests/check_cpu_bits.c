/* What must hold bit for bit on cpu at every dispatch level - threads, pieces of a prompt, a row alone - and whole
 * models against the numbers of the reference. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "cpu_rig.h"
#include "engine/quant.h"
#include "tiny.h"

/* ---- threads: the same bits from one, two and three ---- */

/* Runs `op` with that many threads; the result is n floats that the caller frees. */
typedef float *threads_fn(int threads, size_t *n);

static float *experts_with(int threads, size_t *n)
{
	enum { E = 5, K = 2, X = 48, IM = 33, T = 21 };
	struct config config = { .hidden_size = X, .vocab_size = 4, .n_routed_experts = E, .num_experts_per_tok = K,
				 .moe_intermediate_size = IM, .n_group = 1, .topk_group = 1 };
	struct rule rule = { NUMERICS_W8A16, NUMERICS_W4A16 };
	struct mlp experts[E];
	struct moe moe = { .experts = experts };
	int32_t expert[T * K];
	float weight[T * K], x[T * X], *y = cpu_rig_guarded(T * X);
	struct cpu_rig r = {0};

	cpu_rig_seed = 9;
	for (int e = 0; e < E; e++)
		experts[e] = (struct mlp){ cpu_rig_linear(IM, X, WEIGHT_BF16, false), cpu_rig_linear(X, IM, WEIGHT_BF16, false) };
	for (int i = 0; i < T * K; i++) {
		expert[i] = i % K ? (expert[i - 1] + 1 + (int)(cpu_rig_random() % (E - 1))) % E : (int)(cpu_rig_random() % E);
		weight[i] = (float)(cpu_rig_random() % 100) / 64;
	}
	for (int i = 0; i < T * X; i++)
		x[i] = cpu_rig_bf16();
	cpu_rig_open(&r, BLOCK_MOE, config, COMPUTE_BF16, threads, T);
	cpu_backend.experts(r.dev, y, x, expert, weight, &moe, rule, K, X, T);
	cpu_rig_check(y, T * X, "experts");
	/* a token alone: the same bits */
	for (int t = 0; t < T; t++) {
		float *one = cpu_rig_guarded(X);

		cpu_backend.experts(r.dev, one, x + t * X, expert + t * K, weight + t * K, &moe, rule, K, X, 1);
		ck_assert_msg(memcmp(one, y + t * X, X * sizeof(*one)) == 0, "experts: token %d of %d differs from it alone",
			      t, T);
		free(one);
	}
	cpu_rig_close(&r);
	for (int e = 0; e < E; e++) {
		cpu_rig_free(&experts[e].up_proj);
		cpu_rig_free(&experts[e].down_proj);
	}
	*n = T * X;
	return y;
}

enum { HEADS = 6, P = 20, G = 2, N = 36, Q = 16, D_INNER = HEADS * P, CHANNELS = D_INNER + 2 * G * N };

static const struct ssm_shape shape = { .heads = HEADS, .head_dim = P, .groups = G, .state = N, .conv_kernel = 4,
					.chunk_size = Q };

/* T tokens from position pos, by chunk scans that begin a new call after every `piece` of them (0: by single steps),
 * then 3 single steps: outputs and the state.  y [T + 3][D_INNER] | S. */
static float *ssm_run(int threads, int T, int pos, enum dtype dtype, int compute, int piece, size_t *n)
{
	struct config config = { .hidden_size = D_INNER, .vocab_size = 4, .mamba_num_heads = HEADS, .mamba_head_dim = P,
				 .n_groups = G, .ssm_state_size = N, .conv_kernel = 4, .chunk_size = Q, .d_inner = D_INNER,
				 .conv_dim = CHANNELS };
	double A[HEADS], limit[2] = { 0, INFINITY };
	float D[HEADS], bias[HEADS], *u = xcalloc((size_t)(T + 3) * CHANNELS, sizeof(*u));
	float *dt = xcalloc((size_t)(T + 3) * HEADS, sizeof(*dt)), *y;
	size_t size = (size_t)D_INNER * N, out = (size_t)(T + 3) * D_INNER;
	struct mamba w = { .A = A, .D = D, .dt_bias = bias };
	struct state_view S = { .dtype = dtype, .stride = size };
	struct cpu_rig r = {0};

	cpu_rig_seed = 77;
	for (int h = 0; h < HEADS; h++) {
		A[h] = -0.25 - h;
		D[h] = cpu_rig_bf16();
		bias[h] = cpu_rig_bf16() - 2;
	}
	for (int i = 0; i < (T + 3) * CHANNELS; i++)
		u[i] = cpu_rig_bf16() / 4;
	for (int i = 0; i < (T + 3) * HEADS; i++)
		dt[i] = cpu_rig_bf16();
	cpu_rig_open(&r, BLOCK_MAMBA, config, compute, threads, T + 3);
	S.data = cpu_backend.alloc(r.dev, 2 * size * sizeof(float));
	y = cpu_rig_guarded(out + size);
	for (int t = 0; piece && t < T; t += piece)
		cpu_backend.ssm_scan(r.dev, y + t * D_INNER, u + t * CHANNELS, CHANNELS, dt + t * HEADS, HEADS, S, 1, &w,
				     &shape, limit, t + piece < T ? piece : T - t, pos + t);
	for (int t = piece ? T : 0; t < T + 3; t++)
		cpu_backend.ssm_step(r.dev, y + t * D_INNER, u + t * CHANNELS, CHANNELS, dt + t * HEADS, HEADS, S,
				     &(int32_t){ 1 }, &w, &shape, limit, 1);
	for (size_t i = 0; i < size; i++)
		y[out + i] = dtype == DTYPE_F32 ? ((float *)S.data)[size + i] : dtype == DTYPE_BF16 ?
			bf16_to_float(((uint16_t *)S.data)[size + i]) : fp16_to_float(((uint16_t *)S.data)[size + i]);
	cpu_rig_check(y, out + size, "ssm");
	cpu_backend.free(r.dev, S.data);
	cpu_rig_close(&r);
	free(u);
	free(dt);
	*n = out + size;
	return y;
}

static float *ssm_f32(int threads, size_t *n)
{
	return ssm_run(threads, 41, 5, DTYPE_F32, COMPUTE_BF16, 41, n);
}

static float *ssm_f16(int threads, size_t *n)
{
	return ssm_run(threads, 41, 0, DTYPE_F16, COMPUTE_FP32, 41, n);
}

enum { NQ = 6, NKV = 2, HD = 24, LEN = 200 };

/* Positions [0, T) of slot 1, in pieces of `piece` tokens. */
static float *attention_run(int threads, int T, int piece, enum dtype dtype, int compute, size_t *n)
{
	struct config config = { .hidden_size = NQ * HD, .vocab_size = 4, .num_attention_heads = NQ,
				 .num_key_value_heads = NKV, .head_dim = HD };
	struct attn_shape s = { NQ, NKV, HD };
	struct state_view k = { .dtype = dtype, .stride = LEN * NKV * HD }, v = k;
	float *q = xcalloc((size_t)T * NQ * HD, sizeof(*q)), *kv = xcalloc((size_t)T * 2 * NKV * HD, sizeof(*kv));
	float *y = cpu_rig_guarded((size_t)T * NQ * HD);
	int32_t *slots = xcalloc((size_t)T, sizeof(*slots)), *pos = xcalloc((size_t)T, sizeof(*pos));
	struct cpu_rig r = {0};

	cpu_rig_seed = 4;
	for (int i = 0; i < T * NQ * HD; i++)
		q[i] = cpu_rig_bf16();
	for (int i = 0; i < T * 2 * NKV * HD; i++)
		kv[i] = cpu_rig_bf16();
	for (int t = 0; t < T; t++) {
		slots[t] = 1;
		pos[t] = t;
	}
	cpu_rig_open(&r, BLOCK_ATTN, config, compute, threads, T);
	k.data = cpu_backend.alloc(r.dev, 2 * k.stride * sizeof(float));
	v.data = cpu_backend.alloc(r.dev, 2 * v.stride * sizeof(float));
	for (int t = 0; t < T; t += piece)
		cpu_backend.attention(r.dev, y + t * NQ * HD, q + t * NQ * HD, kv + t * NKV * HD,
				      kv + (T + t) * NKV * HD, k, v, slots + t, pos + t, &s, 0.5f, 2,
				      t + piece < T ? piece : T - t);
	cpu_rig_check(y, (size_t)T * NQ * HD, "attention");
	cpu_backend.free(r.dev, k.data);
	cpu_backend.free(r.dev, v.data);
	cpu_rig_close(&r);
	free(q);
	free(kv);
	free(slots);
	free(pos);
	*n = (size_t)T * NQ * HD;
	return y;
}

static float *attention_bf16(int threads, size_t *n)
{
	return attention_run(threads, 150, 150, DTYPE_BF16, COMPUTE_BF16, n);
}

static float *attention_fp8(int threads, size_t *n)
{
	return attention_run(threads, 70, 33, DTYPE_FP8, COMPUTE_BF16, n);
}

static threads_fn *const threaded[] = { experts_with, ssm_f32, ssm_f16, attention_bf16, attention_fp8 };
enum { N_THREADED = sizeof(threaded) / sizeof(*threaded) };

static void same_bits(const float *a, const float *b, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(memcmp(a + i, b + i, sizeof(*a)) == 0, "%s, %s: [%zu] is %.9g and %.9g", what,
			      level_current()->name, i, a[i], b[i]);
}

START_TEST(test_threads)
{
	size_t n, m;

	if (!cpu_rig_level(_i / N_THREADED))
		return;
	float *one = threaded[_i % N_THREADED](1, &n);

	for (int threads = 2; threads <= 3; threads++) {
		float *more = threaded[_i % N_THREADED](threads, &m);

		ck_assert_uint_eq(n, m);
		same_bits(one, more, n, "threads");
		free(more);
	}
	free(one);
}
END_TEST

/* Attention by pieces, one token at a time included: the same bits as at once. */
START_TEST(test_attention_pieces)
{
	static const int pieces[] = { 1, 7, 16, 64, 65 };
	size_t n, m;

	if (!cpu_rig_level(_i))
		return;
	for (int dtype = DTYPE_F32; dtype <= DTYPE_FP8; dtype++) {
		if (dtype == DTYPE_F16)
			continue;
		float *whole = attention_run(1, 130, 130, (enum dtype)dtype, COMPUTE_BF16, &n);

		for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
			float *cut = attention_run(2, 130, pieces[i], (enum dtype)dtype, COMPUTE_BF16, &m);

			same_bits(whole, cut, n, "attention in pieces");
			free(cut);
		}
		free(whole);
	}
}
END_TEST

/* Chunk scan against single steps, at lengths around the chunk size and off its boundaries.  In fp32 they are the same
 * sums in another order: 1e-5 of the largest value covers 60 tokens; the state dtypes round once more at the end of a
 * scan and after every step. */
START_TEST(test_scan_and_steps)
{
	static const int lengths[] = { 0, 1, 2, Q - 1, Q, Q + 1, 2 * Q, 60 };
	static const int starts[] = { 0, 1, Q - 1, Q };

	if (!cpu_rig_level(_i))
		return;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		for (size_t k = 0; k < sizeof(starts) / sizeof(*starts); k++) {
			size_t n, m;
			float *scan = ssm_run(2, lengths[i], starts[k], DTYPE_F32, COMPUTE_FP32, 60, &n);
			float *steps = ssm_run(1, lengths[i], starts[k], DTYPE_F32, COMPUTE_FP32, 0, &m);
			float top = 0;

			for (size_t j = 0; j < n; j++)
				top = fmaxf(top, fabsf(steps[j]));
			for (size_t j = 0; j < n; j++)
				ck_assert_msg(fabsf(scan[j] - steps[j]) <= 1e-5f * top, "%s, %d tokens from %d: [%zu] is %.9g by the "
					      "scan, %.9g by steps", level_current()->name, lengths[i], starts[k], j, scan[j],
					      steps[j]);
			free(scan);
			free(steps);
		}
}
END_TEST

/* Chunk boundaries are absolute, so a scan that is cut at them carries the same fp32 state on and gives the same
 * bits; cut elsewhere, under bf16, it cannot. */
START_TEST(test_scan_pieces)
{
	size_t n, m;

	if (!cpu_rig_level(_i))
		return;
	float *whole = ssm_run(2, 3 * Q, Q, DTYPE_F32, COMPUTE_BF16, 3 * Q, &n);
	float *cut = ssm_run(2, 3 * Q, Q, DTYPE_F32, COMPUTE_BF16, Q, &m), *off;

	same_bits(whole, cut, n, "a scan in chunks");
	free(cut);
	cut = ssm_run(1, 3 * Q, Q + 5, DTYPE_F32, COMPUTE_BF16, Q - 5 + Q, &m);
	off = ssm_run(1, 3 * Q, Q + 5, DTYPE_F32, COMPUTE_BF16, 3 * Q, &m);
	same_bits(off, cut, n, "a scan that begins inside a chunk");
	free(cut);
	cut = ssm_run(1, 3 * Q, Q + 5, DTYPE_F32, COMPUTE_BF16, Q, &m);
	ck_assert_msg(memcmp(off, cut, n * sizeof(*off)) != 0, "a cut inside a chunk changed nothing");
	free(whole);
	free(cut);
	free(off);
}
END_TEST

/* ---- whole models ---- */

static const char *const paths[] = { "", "mamba.decode=chunk", "mamba.prefill=step" };
enum { N_PATHS = sizeof(paths) / sizeof(*paths) };

/* fp32 on weight-only variants: the reference's own fp32 mode is within 2e-5 of its float64; sums in another order
 * may be as far again. */
START_TEST(test_tiny)
{
	int n;
	const struct tiny_case *c = &tiny_cases(&n)[_i / (N_PATHS * cpu_rig_levels())];
	struct arm arm = tiny_arm("backend=cpu,compute=fp32,threads=2"), path;

	if (!tiny_weight_only(c) || !cpu_rig_level(_i / N_PATHS % cpu_rig_levels()))
		return;
	if (*paths[_i % N_PATHS]) {
		path = tiny_arm(paths[_i % N_PATHS]);
		arm_overlay(&arm, &path);
	}
	tiny_run(c, &arm, &(struct tiny_check){ .bound = 5e-5 });
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bits on cpu");
	TCase *c = tcase_create("levels");
	SRunner *runner = srunner_create(s);
	int n, failed;

	tcase_set_timeout(c, 300);
	tiny_cases(&n);
	tcase_add_loop_test(c, test_threads, 0, cpu_rig_levels() * N_THREADED);
	tcase_add_loop_test(c, test_attention_pieces, 0, cpu_rig_levels());
	tcase_add_loop_test(c, test_scan_and_steps, 0, cpu_rig_levels());
	tcase_add_loop_test(c, test_scan_pieces, 0, cpu_rig_levels());
	tcase_add_loop_test(c, test_tiny, 0, n * cpu_rig_levels() * N_PATHS);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
