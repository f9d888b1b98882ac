/* A product's row has the same bits whatever number of rows it is computed with: the kernels for 8, 16, 32, 64 and 128 rows
 * and the streaming one add in one order, with or without wgmma.  And the sums are right: held to double precision for a row. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_test.h"
#include "engine/cuda/launch.h"
#include "engine/quant.h"

enum { ROWS = 300 };

static const struct { int out, in; } shapes[] = { { 200, 704 }, { 130, 192 }, { 1040, 512 }, { 96, 2688 } };
static const struct { int format, act; } kinds[] = {
	{ FORMAT_BF16, ACT_NONE }, { FORMAT_FP8, ACT_NONE }, { FORMAT_FP8, ACT_FP8 }, { FORMAT_NVFP4, ACT_NONE },
};
enum { N_SHAPES = sizeof(shapes) / sizeof(*shapes), N_KINDS = sizeof(kinds) / sizeof(*kinds) };

static int wide_multiprocessors(void)
{
	struct cudaDeviceProp p;

	ck_assert_int_eq(cudaGetDeviceProperties(&p, 0), cudaSuccess);
	return p.major == 9 && p.minor == 0 ? p.multiProcessorCount : 0;
}

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

/* Rows as a product of `together` rows wants them, on the device. */
static void *operand(const uint16_t *x, int rows, int ld, int together)
{
	uint16_t *to = calloc((size_t)rows * ld, sizeof(*to));

	for (int i = 0; i < rows; i++)
		for (int c = 0; c < ld; c++)
			to[(size_t)i * ld + (product_is_wide(together) ? wide_column(c) : c)] = x[(size_t)i * ld + c];
	void *on = on_device(to, (size_t)rows * ld * sizeof(*to));

	free(to);
	return on;
}

static void run(float *y, const uint16_t *rows, struct packed_matrix w, int T)
{
	int ld = w.steps * TILE_STEP;
	void *few = operand(rows, ROWS, ld, 1), *many = operand(rows, ROWS, ld, T);
	float *out = on_device(NULL, (size_t)ROWS * w.out * sizeof(float));
	struct product p = { .y = out, .ldy = w.out, .ldx = ld, .bf16 = 0 };

	for (int first = 0; first < ROWS; first += T) {
		p.T = ROWS - first < T ? ROWS - first : T;
		p.x = (const uint16_t *)(product_is_wide(p.T) ? many : few) + (size_t)first * ld;
		p.y = out + (size_t)first * w.out;
		ck_assert_int_eq(launch_product(p, w, 0), cudaSuccess);
	}
	ck_assert_int_eq(cudaMemcpy(y, out, (size_t)ROWS * w.out * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
	cudaFree(out);
	cudaFree(few);
	cudaFree(many);
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
	static const int together[] = { 8, 16, 32, 64, 100, 128, 200, ROWS };
	enum { N_TOGETHER = sizeof(together) / sizeof(*together) };
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
	struct packed_matrix w = {
		.weight = packed, .scale = raw.scale, .input_scale = 1, .format = format, .act = act, .out = out, .in = in, .tiles = tiles,
		.steps = steps,
	};

	ck_assert_int_eq(launch_pack(packed, on, tiles, steps, 0), cudaSuccess);
	run(one, rows, w, 1);
	check_row(one, x, &raw, weight, scale);
	for (size_t k = 0; k < 2 * N_TOGETHER; k++) {
		if (k % N_TOGETHER == 0)
			ck_assert_int_eq(launch_product_wide_open(k != 0 ? wide_multiprocessors() : 0), cudaSuccess);
		run(other, rows, w, together[k % N_TOGETHER]);
		for (size_t i = 0; i < size; i++)
			ck_assert_msg(memcmp(one + i, other + i, sizeof(float)) == 0, "format %d, act %d, %d x %d, %d rows together%s: "
				      "row %zu, output %zu: %.9g, alone %.9g", format, act, out, in, together[k % N_TOGETHER],
				      k < N_TOGETHER ? "" : ", wgmma", i / out, i % out,
				      other[i], one[i]);
	}
	cudaFree((void *)(uintptr_t)on.weight);
	cudaFree((void *)(uintptr_t)on.block_scale);
	cudaFree(packed);
	free(weight);
	free(scale);
	free(rows);
	free(x);
	free(one);
	free(other);
}
END_TEST

/* ---- rows grouped by expert, in any order and of any number ---- */

enum { EXPERTS = 5, SLOTS = 3, OUT = 200, IN = 704, STEPS = IN / TILE_STEP, TILES = (OUT + 15) / 16, WIDTH = 128, Y = ROWS * OUT };
static const int rows_of[EXPERTS] = { 41, 0, 129, 3, 127 };

struct grouped {
	struct packed_matrix w[EXPERTS];
	struct expert_tile tile[EXPERTS + ROWS / WIDTH];
	int n_tiles;
	int32_t entry[ROWS];                  /* of x row entry / SLOTS */
	uint16_t x[ROWS * IN];
	float want[Y], got[Y];
};

static struct packed_matrix random_expert(int format, int act)
{
	uint8_t *weight = calloc((size_t)OUT * IN, 2), *scale = calloc((size_t)OUT * IN / 16, 1);
	struct raw_matrix on = random_matrix(format, OUT, IN, weight, scale);
	char *packed = on_device(NULL, TILES * STEPS * (format == FORMAT_BF16 ? 2048 : format == FORMAT_FP8 ? 1024 : 576));

	on.weight = on_device(weight, (size_t)OUT * IN * (format == FORMAT_BF16 ? 2 : 1));
	on.block_scale = on_device(scale, (size_t)OUT * IN / 16);
	ck_assert_int_eq(launch_pack(packed, on, TILES, STEPS, 0), cudaSuccess);
	ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
	cudaFree((void *)(uintptr_t)on.weight);
	cudaFree((void *)(uintptr_t)on.block_scale);
	free(weight);
	free(scale);
	return (struct packed_matrix){
		.weight = packed, .scale = 0.01f, .input_scale = 1, .format = format, .act = act, .out = OUT, .in = IN, .tiles = TILES,
		.steps = STEPS,
	};
}

static struct grouped *random_grouped(int format, int act)
{
	struct grouped *g = calloc(1, sizeof(*g));

	for (int i = 0; i < ROWS * IN; i++) {
		float v = (float)((int)(next_random() % 31) - 15) / 2;

		g->x[i] = act == ACT_FP8 ? fp16_from_float(v) : bf16_from_float(v);
	}
	for (int i = 0; i < ROWS; i++)
		g->entry[i] = i * 7 % ROWS;
	for (int e = 0, at = 0; e < EXPERTS; at += rows_of[e++]) {
		g->w[e] = random_expert(format, act);
		for (int i = 0; i < rows_of[e]; i += WIDTH)
			g->tile[g->n_tiles++] = (struct expert_tile){ e, at + i, rows_of[e] - i < WIDTH ? rows_of[e] - i : WIDTH };
	}
	return g;
}

/* Row i of g->want: entry i, alone. */
static void each_alone(struct grouped *g)
{
	float *y = on_device(NULL, Y * sizeof(*y));
	void *x = on_device(g->x, sizeof(g->x));

	for (int e = 0, i = 0; e < EXPERTS; e++)
		for (int end = i + rows_of[e]; i < end; i++) {
			struct product p = { .y = y + (size_t)i * OUT, .ldy = OUT, .ldx = IN, .T = 1 };

			p.x = (uint16_t *)x + (size_t)(g->entry[i] / SLOTS) * IN;
			ck_assert_int_eq(launch_product(p, g->w[e], 0), cudaSuccess);
		}
	ck_assert_int_eq(cudaMemcpy(g->want, y, sizeof(g->want), cudaMemcpyDeviceToHost), cudaSuccess);
	cudaFree(y);
	cudaFree(x);
}

/* Row e of g->got: entry e. */
static void all_together(struct grouped *g, int kind)
{
	void *y = on_device(NULL, sizeof(g->got)), *x = operand(g->x, ROWS, IN, WIDTH), *tile = on_device(g->tile, sizeof(g->tile));
	void *n_tiles = on_device(&g->n_tiles, sizeof(g->n_tiles)), *entry = on_device(g->entry, sizeof(g->entry));
	void *table = on_device(g->w, sizeof(g->w));
	struct product p = {
		.y = y, .ldy = OUT, .x = x, .ldx = IN, .T = ROWS, .x_div = SLOTS, .plan = {
			.tile = tile, .n_tiles = n_tiles, .entry = entry, .max_tiles = EXPERTS + ROWS / WIDTH, .width = WIDTH,
		},
	};

	ck_assert_int_eq(launch_product_grouped(p, table, kind, TILES, 0), cudaSuccess);
	ck_assert_int_eq(cudaMemcpy(g->got, y, sizeof(g->got), cudaMemcpyDeviceToHost), cudaSuccess);
	cudaFree(y);
	cudaFree(x);
	cudaFree(tile);
	cudaFree(n_tiles);
	cudaFree(entry);
	cudaFree(table);
}

START_TEST(test_grouped)
{
	int format = kinds[_i / 2].format, act = kinds[_i / 2].act;

	seed = 77 + (uint32_t)_i;
	ck_assert_int_eq(launch_product_wide_open(_i % 2 ? wide_multiprocessors() : 0), cudaSuccess);
	struct grouped *g = random_grouped(format, act);
	each_alone(g);
	all_together(g, product_of(format, act));
	for (int i = 0; i < Y; i++) {
		float together = g->got[(size_t)g->entry[i / OUT] * OUT + i % OUT];

		ck_assert_msg(memcmp(&g->want[i], &together, sizeof(together)) == 0, "format %d, act %d%s: row %d, output %d: %.9g, alone "
			      "%.9g", format, act, _i % 2 ? ", wgmma" : "", i / OUT, i % OUT, together, g->want[i]);
	}
	for (int e = 0; e < EXPERTS; e++)
		cudaFree((void *)(uintptr_t)g->w[e].weight);
	free(g);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("products on cuda");
	TCase *c = tcase_create("rows"), *grouped = tcase_create("grouped");

	tcase_add_loop_test(c, test_rows, 0, N_SHAPES * N_KINDS);
	tcase_add_loop_test(grouped, test_grouped, 0, 2 * N_KINDS);
	suite_add_tcase(s, c);
	suite_add_tcase(s, grouped);
	return cuda_test_run(s);
}
