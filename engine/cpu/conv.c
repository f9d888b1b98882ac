#include "ops.h"

enum { CONV_CHANNELS = 256 };

struct conv_job {
	struct device *dev;
	float *u;
	const float *xbc, *w, *bias;
	struct state_view state;
	const int32_t *slots;
	int ldx, channels, kernel, rows;
};

static float *window(const struct conv_job *j, int slot)
{
	return (float *)j->state.data + (size_t)slot * j->state.stride;
}

/* Tap k of channels c .. c + VW - 1: w is [channels][kernel]. */
ALWAYS vf load_tap(const float *w, int kernel, int c, int k, int n)
{
	float tap[VW] = {0};

	for (int i = 0; i < min_int(n, VW); i++)
		tap[i] = w[(c + i) * kernel + k];
	return vf_load(tap);
}

/* Advances VW channels by `rows` tokens: bias first, then taps from the oldest on (3.3 step 2). */
ALWAYS void conv_channels(const struct conv_job *j, float *state, const float *x, float *u, int kernel, int rows, int c)
{
	int n = j->channels - c;
	vf tap[MAX_KERNEL], seen[MAX_KERNEL], bias = j->bias ? vf_load_part(j->bias + c, n) : (vf){0};

	if (kernel == 4 && n >= VW)
		vf_load_fours(tap, j->w + (size_t)c * 4);
	else
		for (int k = 0; k < kernel; k++)
			tap[k] = load_tap(j->w, kernel, c, k, n);
	for (int k = 0; k + 1 < kernel; k++)
		seen[k] = vf_load_part(state + k * j->channels + c, n);
	for (int t = 0; t < rows; t++) {
		vf sum = bias;

		seen[kernel - 1] = vf_load_part(x + (size_t)t * (size_t)j->ldx + c, n);
		for (int k = 0; k < kernel; k++)
			sum = vf_fma(tap[k], seen[k], sum);
		vf_store_part(u + (size_t)t * (size_t)j->channels + c, vf_round(j->dev, vf_silu(sum)), n);
		for (int k = 0; k + 1 < kernel; k++)
			seen[k] = seen[k + 1];
	}
	for (int k = 0; k + 1 < kernel; k++)
		vf_store_part(state + k * j->channels + c, seen[k], n);
}

static void conv_range(const struct conv_job *j, float *state, const float *x, float *u, int rows, int c0, int c1)
{
	for (int c = c0; c < c1; c += VW) {
		if (j->kernel == 4)
			conv_channels(j, state, x, u, 4, rows, c);
		else
			conv_channels(j, state, x, u, j->kernel, rows, c);
	}
}

static void step_part(void *arg, int part, int thread)
{
	struct conv_job *j = arg;

	(void)thread;
	conv_range(j, window(j, j->slots[part]), j->xbc + (size_t)part * (size_t)j->ldx,
		   j->u + (size_t)part * (size_t)j->channels, 1, 0, j->channels);
}

static void scan_part(void *arg, int part, int thread)
{
	struct conv_job *j = arg;

	(void)thread;
	conv_range(j, window(j, j->slots[0]), j->xbc, j->u, j->rows, part * CONV_CHANNELS,
		   min_int((part + 1) * CONV_CHANNELS, j->channels));
}

void cpu_conv_step(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, const int32_t *slots,
		   const float *w, const float *bias, int channels, int kernel, int rows)
{
	struct conv_job j = {dev, u, xbc, w, bias, conv, slots, ldx, channels, kernel, rows};

	BUG_ON(kernel > MAX_KERNEL);
	pool_run(dev->pool, step_part, &j, rows);
}

void cpu_conv_scan(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, int slot,
		   const float *w, const float *bias, int channels, int kernel, int T)
{
	struct conv_job j = {dev, u, xbc, w, bias, conv, &(int32_t){slot}, ldx, channels, kernel, T};

	BUG_ON(kernel > MAX_KERNEL);
	pool_run(dev->pool, scan_part, &j, (channels + CONV_CHANNELS - 1) / CONV_CHANNELS);
}
