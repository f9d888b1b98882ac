/* A product's row has the same bits whatever number of rows it is computed with: the kernels for 8, 16, 32, 64 and 128 rows
 * and the streaming one add in one order.  And the sums are right: held to double precision for a row. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_test.h"
#include "engine/cuda/launch.h"
#include "engine/quant.h"

enum { ROWS = 300 };

static const struct { int out, in; } shapes[] = { { 200, 704 }, { 130, 192 }, { 1040, 512 } };
static const struct { int format, act; } kinds[] = {
	{ FORMAT_BF16, ACT_NONE }, { FORMAT_FP8, ACT_NONE }, { FORMAT_FP8, ACT_FP8 }, { FORMAT_NVFP4, ACT_NONE },
};
enum { N_SHAPES = sizeof(shapes) / sizeof(*shapes), N_KINDS = sizeof(kinds) / sizeof(*kinds) };

static uint32_t seed;

static uint32_t next_random(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static void *on_device(const void *from, size_t bytes)
{
	void *p = NULL;

	ck_assert_int_eq(cudaMalloc(&p, bytes), cudaSuccess);
	if (from)
		ck_assert_int_eq(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
	else
		ck_assert_int_eq(cudaMemset(p, 0xff, bytes), cudaSuccess);
	return p;
}

/* Random finite weights of a format: no e4m3 or bf16 NaN. */
static struct raw_matrix random_matrix(int format, int out, int in, uint8_t *weight, uint8_t *scale)
{
	size_t n = (size_t)out * in;

	for (size_t i = 0; i < n; i++) {
		uint32_t r = next_random();

		if (format == FORMAT_BF16)
			((uint16_t *)weight)[i] = (uint16_t)(0x3c00 + (r & 0x83ff));
		else if (format == FORMAT_FP8)
			weight[i] = (uint8_t)(r % 0x7f | (r >> 8 & 0x80));
		else if (i % 2 == 0)
			weight[i / 2] = (uint8_t)r;
	}
	for (size_t i = 0; i < n / 16; i++)
		scale[i] = (uint8_t)(next_random() % 0x70);
	return (struct raw_matrix){ .scale = 0.01f, .input_scale = 1, .format = format, .out = out, .in = in };
}

static double weight_at(const struct raw_matrix *w, const uint8_t *weight, const uint8_t *scale, int o, int c)
{
	size_t i = (size_t)o * w->in + c;

	if (w->format == FORMAT_BF16)
		return bf16_to_float(((const uint16_t *)weight)[i]);
	if (w->format == FORMAT_FP8)
		return e4m3_table[weight[i]];
	return (double)e2m1_table[weight[i / 2] >> (i % 2 * 4) & 15] * e4m3_table[scale[i / 16]];
}

static void run(float *y, const void *x, struct packed_matrix w, int T)
{
	int ld = w.steps * TILE_STEP;
	float *out = on_device(NULL, (size_t)ROWS * w.out * sizeof(float));
	struct product p = { .y = out, .ldy = w.out, .x = x, .ldx = ld, .bf16 = 0 };

	for (int first = 0; first < ROWS; first += T) {
		p.T = ROWS - first < T ? ROWS - first : T;
		p.x = (const uint16_t *)x + (size_t)first * ld;
		p.y = out + (size_t)first * w.out;
		ck_assert_int_eq(launch_product(p, w, 0), cudaSuccess);
	}
	ck_assert_int_eq(cudaMemcpy(y, out, (size_t)ROWS * w.out * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
	cudaFree(out);
}

/* Row 0 against the sum in double: sums of `in` exact products, each step within 2^-22 since tensor cores cut off, not round. */
static void check_row(const float *y, const float *x, const struct raw_matrix *w, const uint8_t *weight, const uint8_t *scale)
{
	for (int o = 0; o < w->out; o++) {
		double sum = 0, magnitude = 0;

		for (int c = 0; c < w->in; c++) {
			double v = weight_at(w, weight, scale, o, c) * x[c] * w->scale;

			sum += v;
			magnitude += fabs(v);
		}
		ck_assert_msg(fabs(y[o] - sum) <= magnitude * w->in * 0x1p-22, "format %d, output %d: %g, expected %g", w->format, o,
			      y[o], sum);
	}
}

START_TEST(test_rows)
{
	static const int together[] = { 8, 16, 32, 64, 128, 200, ROWS };
	int out = shapes[_i / N_KINDS].out, in = shapes[_i / N_KINDS].in, format = kinds[_i % N_KINDS].format;
	int act = kinds[_i % N_KINDS].act, tiles = (out + 15) / 16, steps = (in + 63) / 64, ld = steps * 64;
	size_t size = (size_t)ROWS * out, n = (size_t)ROWS * ld;
	uint8_t *weight = calloc((size_t)out * in, 2), *scale = calloc((size_t)out * in / 16, 1);
	uint16_t *rows = calloc(n, sizeof(*rows));
	float *x = calloc((size_t)in, sizeof(*x)), *one = calloc(size, sizeof(*one)), *other = calloc(size, sizeof(*other));

	seed = (uint32_t)_i + 1;
	struct raw_matrix raw = random_matrix(format, out, in, weight, scale), on = raw;
	for (size_t i = 0; i < n; i++) {      /* small integers and halves: exact in bf16, fp16 and e4m3 */
		float v = (int)(i % ld) < in ? (float)((int)(next_random() % 31) - 15) / 2 : 0;

		rows[i] = act == ACT_FP8 ? fp16_from_float(v) : bf16_from_float(v);
		if (i < (size_t)in)
			x[i] = v;
	}
	on.weight = on_device(weight, (size_t)out * in * (format == FORMAT_BF16 ? 2 : 1));
	on.block_scale = on_device(scale, (size_t)out * in / 16);
	size_t record = format == FORMAT_BF16 ? 2048 : format == FORMAT_FP8 ? 1024 : 576;
	char *packed = on_device(NULL, tiles * steps * record);
	void *input = on_device(rows, n * sizeof(*rows));
	struct packed_matrix w = {
		.weight = packed, .scale = raw.scale, .input_scale = 1, .format = format, .act = act, .out = out, .in = in, .tiles = tiles,
		.steps = steps,
	};

	ck_assert_int_eq(launch_pack(packed, on, tiles, steps, 0), cudaSuccess);
	run(one, input, w, 1);
	check_row(one, x, &raw, weight, scale);
	for (size_t k = 0; k < sizeof(together) / sizeof(*together); k++) {
		run(other, input, w, together[k]);
		for (size_t i = 0; i < size; i++)
			ck_assert_msg(memcmp(one + i, other + i, sizeof(float)) == 0, "format %d, act %d, %d x %d, %d rows together: row "
				      "%zu, output %zu: %.9g, alone %.9g", format, act, out, in, together[k], i / out, i % out,
				      other[i], one[i]);
	}
	cudaFree((void *)(uintptr_t)on.weight);
	cudaFree((void *)(uintptr_t)on.block_scale);
	cudaFree(packed);
	cudaFree(input);
	free(weight);
	free(scale);
	free(rows);
	free(x);
	free(one);
	free(other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("products on cuda");
	TCase *c = tcase_create("rows");

	tcase_add_loop_test(c, test_rows, 0, N_SHAPES * N_KINDS);
	suite_add_tcase(s, c);
	return cuda_test_run(s);
}
