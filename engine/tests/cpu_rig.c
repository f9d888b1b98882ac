#include "cpu_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "engine/quant.h"

enum { GUARDS = 16 };

bool cpu_rig_level(int i)
{
	const struct level *level = cpu_levels[i];

	if (!level_supported(level)) {
		printf("skipped: level %s: this CPU lacks it\n", level->name);
		return false;
	}
	level_force(level);
	return true;
}

int cpu_rig_levels(void)
{
	int n = 0;

	while (cpu_levels[n])
		n++;
	return n;
}

uint32_t cpu_rig_seed = 1;

uint32_t cpu_rig_random(void)
{
	cpu_rig_seed = cpu_rig_seed * 1664525u + 1013904223u;
	return cpu_rig_seed >> 8;
}

float cpu_rig_bf16(void)
{
	return bf16_round(((float)(cpu_rig_random() % 4096) - 2048) / 1024);
}

void cpu_rig_open(struct cpu_rig *r, enum block block, struct config config, int compute, int threads, int rows)
{
	struct err err = {0};
	struct limits limits = { .rows = rows, .slots = rows, .len = 300 };
	struct arm arm;

	r->model.config = config;
	r->block = block;
	r->width = config.hidden_size;
	r->model.config.layers_block_type = &r->block;
	r->model.config.num_hidden_layers = 1;
	r->model.config.n_blocks[block] = 1;
	r->model.config.intermediate_size = &r->width;
	r->model.layers = &r->layer;
	arm_init(&arm);
	arm_defaults(&arm);
	arm.value[FACTOR_COMPUTE] = compute;
	arm.value[FACTOR_THREADS] = threads;
	ck_assert_msg(cpu_backend.open(&r->dev, &r->model, &arm, &limits, &r->counters, &err) == 0, "%s", err.text);
}

void cpu_rig_close(struct cpu_rig *r)
{
	cpu_backend.close(r->dev);
}

float *cpu_rig_guarded(size_t n)
{
	float *x = xcalloc(n + GUARDS, sizeof(*x));

	for (size_t i = 0; i < n + GUARDS; i++)
		x[i] = i < n ? NAN : GUARD;
	return x;
}

void cpu_rig_check(const float *x, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(!isnan(x[i]), "%s: [%zu] was not written, or is NaN", what, i);
	for (size_t i = n; i < n + GUARDS; i++)
		ck_assert_msg(x[i] == GUARD, "%s: wrote %zu past the end", what, i - n);
}

struct linear cpu_rig_linear(int out, int in, enum weight_format format, bool bias)
{
	static const int bits[N_WEIGHT_FORMATS] = { 16, 16, 32, 8, 4 };
	size_t bytes = (size_t)out * (size_t)in * (size_t)bits[format] / 8;
	uint8_t *w = (uint8_t *)xmalloc(bytes + 1) + 1, *s = xmalloc((size_t)out * (size_t)in / 16 + 1);
	float *b = bias ? xcalloc((size_t)out, sizeof(*b)) : NULL;

	for (size_t i = 0; i < (size_t)out * (size_t)in; i++) {
		float f = cpu_rig_bf16();
		uint16_t h = format == WEIGHT_F16 ? fp16_from_float(f) : bf16_from_float(f);

		if (format == WEIGHT_F32) {
			f += ldexpf((float)(cpu_rig_random() % 64), -20);
			memcpy(w + 4 * i, &f, 4);
		} else if (format == WEIGHT_F16 || format == WEIGHT_BF16) {
			memcpy(w + 2 * i, &h, 2);
		} else if (format == WEIGHT_FP8) {
			w[i] = (uint8_t)cpu_rig_random();
			w[i] = (w[i] & 0x7f) == 0x7f ? 0x01 : w[i];     /* no NaN; subnormals occur */
		} else if (i % 2 == 0) {
			w[i / 2] = (uint8_t)cpu_rig_random();
		}
	}
	for (size_t i = 0; i < (size_t)out * (size_t)in / 16; i++)
		s[i] = (uint8_t)(cpu_rig_random() % 0x7f);                         /* never negative; subnormals occur */
	for (int i = 0; bias && i < out; i++)
		b[i] = cpu_rig_bf16();
	if (!bias) {
		free(b);
		b = NULL;
	}
	return (struct linear){ .name = "layers.0.mixer.up_proj", .out = out, .in = in, .format = format, .weight = w,
				.block_scale = s, .scale = format == WEIGHT_FP8 ? 0.0042f :
				format == WEIGHT_NVFP4 ? 0.00037f : 1, .input_scale = 0.01f,
				.w4a4 = format == WEIGHT_NVFP4, .bias = b };
}

void cpu_rig_free(struct linear *l)
{
	free((uint8_t *)l->weight - 1);
	free((void *)l->block_scale);
	free((void *)l->bias);
}

