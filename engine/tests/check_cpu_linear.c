/* Products on cpu: shapes off every vector width and every weight format against plain sums in double, and the
 * quantisers value for value, at every dispatch level. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "cpu_rig.h"
#include "engine/quant.h"

enum { MAX_T = 19 };

/* ---- linear: every format, numerics and shape ---- */

static const int widths[] = { 1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 112, 127, 128, 129, 144, 192, 320 };
static const int heights[] = { 1, 3, 4, 5, 15, 16, 17, 33 };
static const int rows[] = { 1, 2, 3, 4, 5, 8, MAX_T };
enum { N_WIDTHS = sizeof(widths) / sizeof(*widths), N_HEIGHTS = sizeof(heights) / sizeof(*heights),
	N_ROWS = sizeof(rows) / sizeof(*rows) };

static double weight_at(const struct linear *l, int r, int c)
{
	size_t at = (size_t)r * (size_t)l->in + (size_t)c;
	const uint8_t *w = l->weight;
	uint16_t h;
	float f;

	switch (l->format) {
	case WEIGHT_F32:
		memcpy(&f, w + 4 * at, 4);
		return f;
	case WEIGHT_FP8:
		return e4m3_table[w[at]];
	case WEIGHT_NVFP4:
		return e2m1_table[c % 2 ? w[at / 2] >> 4 : w[at / 2] & 15] * e4m3_table[l->block_scale[at / 16]];
	default:
		memcpy(&h, w + 2 * at, 2);
		return l->format == WEIGHT_F16 ? fp16_to_float(h) : bf16_to_float(h);
	}
}

/* A row as the product sees it: by the definitions of quant.h. */
static void quantised(double *to, const float *x, const struct linear *l, enum numerics n)
{
	double *wide = xcalloc((size_t)l->in, sizeof(*wide)), *scale = xcalloc((size_t)l->in / 16 + 1, sizeof(*scale));
	uint8_t *codes = xmalloc((size_t)l->in);

	for (int i = 0; i < l->in; i++)
		to[i] = wide[i] = x[i];
	if (n == NUMERICS_W8A8) {
		fp8_act(codes, wide, l->in, l->input_scale, false);
		for (int i = 0; i < l->in; i++)
			to[i] = e4m3_table[codes[i]];
	} else if (n == NUMERICS_W4A4) {
		nvfp4_act(to, scale, wide, l->in, l->input_scale, false);
		for (int i = 0; i < l->in; i++)
			to[i] *= scale[i / 16];
	}
	free(wide);
	free(scale);
	free(codes);
}

/* The error of a sum of n products in fp32, in any order: n 2^-24 of the sum of their magnitudes; 2^-9 of the
 * result for the final rounding to bf16. */
static void check_linear(const float *y, const float *x, const struct linear *l, enum numerics n, int compute, int T,
			 int ldx, int ldy)
{
	double *q = xcalloc((size_t)l->in, sizeof(*q));
	double scale = n == NUMERICS_W8A8 || n == NUMERICS_W4A4 ? l->scale * l->input_scale : l->scale;

	for (int t = 0; t < T; t++) {
		quantised(q, x + (size_t)t * (size_t)ldx, l, n);
		for (int r = 0; r < l->out; r++) {
			double sum = 0, size = 0, got = y[(size_t)t * (size_t)ldy + (size_t)r];

			for (int c = 0; c < l->in; c++) {
				sum += q[c] * weight_at(l, r, c);
				size += fabs(q[c] * weight_at(l, r, c));
			}
			sum = sum * scale + (l->bias ? l->bias[r] : 0);
			size = size * scale * (l->in + 4) * 0x1p-24 + fabs(sum) * (compute == COMPUTE_BF16 ? 0x1p-8 : 0x1p-23);
			ck_assert_msg(fabs(got - sum) <= size, "%s numerics %d, %s, out %d in %d T %d: y[%d][%d] = %.9g, "
				      "expected %.9g", weight_format_name(l->format), n,
				      level_current()->name, l->out, l->in, T, t, r, got, sum);
		}
	}
	free(q);
}

/* T rows at once against single rows: the same bits. */
static void check_singles(struct cpu_rig *r, const float *y, const float *x, const struct linear *l, enum numerics n, int T,
			  int ldx, int ldy)
{
	float *one = cpu_rig_guarded((size_t)l->out);

	for (int t = 0; t < T; t++) {
		cpu_backend.linear(r->dev, one, l->out, x + (size_t)t * (size_t)ldx, ldx, l, n, 1);
		cpu_rig_check(one, (size_t)l->out, "one row");
		ck_assert_msg(memcmp(one, y + (size_t)t * (size_t)ldy, (size_t)l->out * sizeof(*one)) == 0,
			      "%s numerics %d, %s, out %d in %d: row %d of %d differs from the row alone",
			      weight_format_name(l->format), n, level_current()->name, l->out, l->in, t, T);
	}
	free(one);
}

static void linear_shapes(int compute, int threads, enum weight_format format, enum numerics numerics)
{
	for (int i = 0; i < N_WIDTHS; i++)
		for (int k = 0; k < N_HEIGHTS; k++) {
			int in = widths[i], out = heights[k], T = rows[(i + k) % N_ROWS], ldx = in + 3, ldy = out;
			struct cpu_rig r = {0};

			if (format == WEIGHT_NVFP4 && in % 16)
				continue;
			struct linear l = cpu_rig_linear(out, in, format, (i + k) % 2);
			float *x = xcalloc((size_t)T * (size_t)ldx, sizeof(*x)), *y = cpu_rig_guarded((size_t)T * (size_t)ldy);

			for (int j = 0; j < T * ldx; j++)
				x[j] = j % ldx < in ? compute == COMPUTE_BF16 ? cpu_rig_bf16() : cpu_rig_bf16() * 1.0001f : GUARD;
			cpu_rig_open(&r, BLOCK_MLP, (struct config){ .hidden_size = in, .vocab_size = 4 }, compute, threads, T);
			cpu_backend.linear(r.dev, y, ldy, x, ldx, &l, numerics, T);
			cpu_rig_check(y, (size_t)T * (size_t)ldy, "linear");
			check_linear(y, x, &l, numerics, compute, T, ldx, ldy);
			check_singles(&r, y, x, &l, numerics, T, ldx, ldy);
			cpu_rig_close(&r);
			cpu_rig_free(&l);
			free(x);
			free(y);
		}
}

static const struct { enum weight_format format; enum numerics numerics; } kinds[] = {
	{ WEIGHT_BF16, NUMERICS_BF16 }, { WEIGHT_F16, NUMERICS_BF16 }, { WEIGHT_F32, NUMERICS_BF16 },
	{ WEIGHT_FP8, NUMERICS_W8A16 }, { WEIGHT_FP8, NUMERICS_W8A8 }, { WEIGHT_NVFP4, NUMERICS_W4A16 },
	{ WEIGHT_NVFP4, NUMERICS_W4A4 },
};
enum { N_KINDS = sizeof(kinds) / sizeof(*kinds) };

START_TEST(test_linear)
{
	if (!cpu_rig_level(_i / N_KINDS))
		return;
	cpu_rig_seed = 1;
	linear_shapes(COMPUTE_BF16, 1, kinds[_i % N_KINDS].format, kinds[_i % N_KINDS].numerics);
	linear_shapes(COMPUTE_FP32, 2, kinds[_i % N_KINDS].format, kinds[_i % N_KINDS].numerics);
}
END_TEST

/* Through the identity a quantised product shows the codes themselves: all 65,536 bf16 numbers but NaN and infinity,
 * against quant.h.  The scale is a power of two, so nothing else rounds. */
START_TEST(test_fp8_codes)
{
	enum { N = 64 };
	struct linear l = { .name = "identity", .out = N, .in = N, .format = WEIGHT_FP8, .scale = 1, .input_scale = 0.25f };
	uint8_t *w, codes[N];
	float x[N], y[N];
	double wide[N];
	struct cpu_rig r = {0};

	if (!cpu_rig_level(_i))
		return;
	w = xcalloc(N * N, 1);
	for (int i = 0; i < N; i++)
		w[i * N + i] = 0x38;                                    /* 1 */
	l.weight = w;
	cpu_rig_open(&r, BLOCK_MLP, (struct config){ .hidden_size = N, .vocab_size = 4 }, COMPUTE_FP32, 1, 1);
	for (uint32_t b = 0; b < 65536; b += N) {
		for (uint32_t i = 0; i < N; i++)
			wide[i] = x[i] = (b + i) % 0x8000 < 0x7f80 ? bf16_to_float((uint16_t)(b + i)) : 0;
		cpu_backend.linear(r.dev, y, N, x, N, &l, NUMERICS_W8A8, 1);
		fp8_act(codes, wide, N, l.input_scale, false);
		for (int i = 0; i < N; i++)
			ck_assert_msg(y[i] == e4m3_table[codes[i]] * 0.25f, "%s: %a quantises to %g, expected %g",
				      level_current()->name, x[i], y[i] / 0.25f, e4m3_table[codes[i]]);
	}
	cpu_rig_close(&r);
	free(w);
}
END_TEST

/* The same for blocks of 16 with ties, zeros, tiny and huge values. */
START_TEST(test_nvfp4_codes)
{
	enum { N = 128, ROUNDS = 500 };
	struct linear l = { .name = "identity", .out = N, .in = N, .format = WEIGHT_NVFP4, .scale = 1, .w4a4 = true };
	uint8_t *w, *s;
	float x[N], y[N];
	double wide[N], value[N], scale[N / 16];
	struct cpu_rig r = {0};

	if (!cpu_rig_level(_i))
		return;
	w = xcalloc(N * N / 2, 1);
	s = xmalloc(N * N / 16);
	for (int i = 0; i < N; i++)
		w[(i * N + i) / 2] |= i % 2 ? 0x20 : 0x02;              /* 1 */
	memset(s, 0x38, N * N / 16);                                    /* 1 */
	l.weight = w;
	l.block_scale = s;
	cpu_rig_seed = 5;
	cpu_rig_open(&r, BLOCK_MLP, (struct config){ .hidden_size = N, .vocab_size = 4 }, COMPUTE_FP32, 1, 1);
	for (int round = 0; round < ROUNDS; round++) {
		l.input_scale = ldexpf(1, (int)(cpu_rig_random() % 20) - 14);
		for (int i = 0; i < N; i++) {
			int block = round + i / 16;

			wide[i] = x[i] = block % 7 == 0 ? 0 : bf16_round(ldexpf(cpu_rig_bf16(), block % 30 - 15));
		}
		cpu_backend.linear(r.dev, y, N, x, N, &l, NUMERICS_W4A4, 1);
		nvfp4_act(value, scale, wide, N, l.input_scale, false);
		for (int i = 0; i < N; i++)
			ck_assert_msg(y[i] == (float)(value[i] * scale[i / 16]) * l.input_scale,
				      "%s: %a in a block of scale %g quantises to %g, expected %g", level_current()->name,
				      x[i], scale[i / 16], y[i] / l.input_scale, value[i] * scale[i / 16]);
	}
	cpu_rig_close(&r);
	free(w);
	free(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("products on cpu");
	TCase *c = tcase_create("levels");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_set_timeout(c, 300);
	tcase_add_loop_test(c, test_linear, 0, cpu_rig_levels() * N_KINDS);
	tcase_add_loop_test(c, test_fp8_codes, 0, cpu_rig_levels());
	tcase_add_loop_test(c, test_nvfp4_codes, 0, cpu_rig_levels());
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
