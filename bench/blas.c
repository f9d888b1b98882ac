/* Would a BLAS be faster at prefill?  Times the product of the host engine against OpenBLAS's sgemm on the shapes of
 * bench/shapes/book52-wide.json, 512 token rows, turn by turn.
 *
 * Each takes the weights as it likes them best: the engine the bf16 of the checkpoint, sgemm the same numbers expanded to
 * fp32 beforehand, which is not timed (it would double the weights in memory).  The engine's time includes packing the
 * activations and rounding the result to bf16.
 */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "contract/err.h"
#include "engine/cpu/level.h"
#include "engine/quant.h"

enum { T = 512, RUNS = 7 };

struct shape { const char *what; int out, in; };

static const struct shape shapes[] = {
	{ "mamba in_proj", 5152, 960 }, { "mamba out_proj", 960, 2048 }, { "shared_experts up", 1024, 960 },
	{ "lm_head", 32768, 960 },
};
enum { N_SHAPES = sizeof(shapes) / sizeof(*shapes) };

struct bench {
	struct device *dev;
	struct linear w;
	float *wide, *x, *y, *z;         /* weights in fp32; activations [T,in]; results [T,out] of engine and BLAS */
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static float noise(void)
{
	static uint32_t seed = 1;

	seed = seed * 1664525u + 1013904223u;
	return bf16_round(((float)(seed >> 20) - 2048) / 2048);
}

static void fill(struct bench *b, const struct shape *s)
{
	size_t n = (size_t)s->out * (size_t)s->in;
	uint16_t *w = xmalloc(n * sizeof(*w));

	b->w = (struct linear){ .out = s->out, .in = s->in, .format = WEIGHT_BF16, .scale = 1, .weight = w };
	b->wide = xmalloc(n * sizeof(float));
	for (size_t i = 0; i < n; i++) {
		b->wide[i] = noise();
		w[i] = bf16_from_float(b->wide[i]);
	}
	b->x = xmalloc(T * (size_t)s->in * sizeof(float));
	for (size_t i = 0; i < T * (size_t)s->in; i++)
		b->x[i] = noise();
	b->y = xcalloc(T * (size_t)s->out, sizeof(float));
	b->z = xcalloc(T * (size_t)s->out, sizeof(float));
}

static void clear(struct bench *b)
{
	free((void *)b->w.weight);
	free(b->wide);
	free(b->x);
	free(b->y);
	free(b->z);
}

static double engine(struct bench *b)
{
	double start = now();

	cpu_backend.linear(b->dev, b->y, b->w.out, b->x, b->w.in, &b->w, NUMERICS_BF16, T);
	return now() - start;
}

static double blas(struct bench *b)
{
	double start = now();

	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, T, b->w.out, b->w.in, 1, b->x, b->w.in, b->wide, b->w.in, 0, b->z,
		    b->w.out);
	return now() - start;
}

/* Both must have computed the same product: bf16 rounds by 2^-9 of a result, sums in fp32 by less than 2^-12 of `in`. */
static bool agree(const struct bench *b)
{
	for (size_t i = 0; i < T * (size_t)b->w.out; i++)
		if (!(fabsf(b->y[i] - b->z[i]) <= fabsf(b->z[i]) * 0x1p-8f + (float)b->w.in * 0x1p-12f))
			return false;
	return true;
}

static int time_shape(struct bench *b, const struct shape *s, int threads)
{
	double ours[RUNS], theirs[RUNS], flop = 2.0 * T * s->out * s->in;

	fill(b, s);
	engine(b);
	blas(b);
	for (int i = 0; i < RUNS; i++) {
		if (i % 2)
			theirs[i] = blas(b);
		ours[i] = engine(b);
		if (i % 2 == 0)
			theirs[i] = blas(b);
	}
	qsort(ours, RUNS, sizeof(*ours), ascending);
	qsort(theirs, RUNS, sizeof(*theirs), ascending);
	printf("| %s | %d x %d | %d | %.0f [%.0f, %.0f] | %.0f [%.0f, %.0f] | %.2f |\n", s->what, s->out, s->in, threads,
	       1e-9 * flop / ours[RUNS / 2], 1e-9 * flop / ours[RUNS - 1], 1e-9 * flop / ours[0],
	       1e-9 * flop / theirs[RUNS / 2], 1e-9 * flop / theirs[RUNS - 1], 1e-9 * flop / theirs[0],
	       theirs[RUNS / 2] / ours[RUNS / 2]);
	if (!agree(b)) {
		fprintf(stderr, "blas: %s: the two products differ\n", s->what);
		clear(b);
		return 1;
	}
	clear(b);
	return 0;
}

int main(int argc, char **argv)
{
	struct err err = {0};
	enum block block = BLOCK_MAMBA;
	int width = 2048, failed = 0, threads = argc > 1 ? atoi(argv[1]) : 1;
	struct layer layer = {0};
	struct model model = { .layers = &layer, .config = { .hidden_size = width, .num_hidden_layers = 1,
		.layers_block_type = &block, .intermediate_size = &width, .vocab_size = 16, .mamba_num_heads = 32,
		.mamba_head_dim = 64, .n_groups = 4, .ssm_state_size = 128, .conv_kernel = 4, .chunk_size = 128 } };
	struct limits limits = { .rows = T, .slots = 1, .len = T };
	struct counters counters = {0};
	struct bench b = {0};
	struct arm arm;

	model.config.n_blocks[block] = 1;
	arm_init(&arm);
	arm_defaults(&arm);
	arm.value[FACTOR_THREADS] = threads;
	if (cpu_backend.open(&b.dev, &model, &arm, &limits, &counters, &err)) {
		fprintf(stderr, "blas: %s\n", err.text);
		return 1;
	}
	openblas_set_num_threads(threads);
	printf("| product | out x in | threads | assay-engine (%s), GFLOP/s | OpenBLAS sgemm (%s), GFLOP/s | ratio of speeds |\n"
	       "|---|---|---|---|---|---|\n", level_current()->name, openblas_get_corename());
	for (int i = 0; i < N_SHAPES && !failed; i++)
		failed = time_shape(&b, shapes + i, threads);
	cpu_backend.close(b.dev);
	return failed;
}
