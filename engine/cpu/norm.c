#include "ops.h"

enum { NORM_ROWS = 16 };     /* token rows of a part */

struct norm_job {
	struct device *dev;
	float *y, *h;
	const float *x, *w, *z;
	int ldz, T, H, groups;
	double eps;
	bool round;
};

/* Sum of squares in VW lanes, then the tree. */
ALWAYS float sum_squares(const float *x, int n)
{
	vf sum = {0};

	for (int i = 0; i < n; i += VW) {
		vf v = vf_load_part(x + i, n - i);

		sum = vf_fma(v, v, sum);
	}
	return vf_sum(sum);
}

static void norm_row(const struct device *dev, float *y, const float *x, const float *w, int n, double eps)
{
	vf r = vf_set1(1 / __builtin_sqrtf(sum_squares(x, n) / (float)n + (float)eps));

	for (int i = 0; i < n; i += VW)
		vf_store_part(y + i, vf_round(dev, vf_load_part(x + i, n - i) * r * vf_load_part(w + i, n - i)), n - i);
}

static void add_row(const struct device *dev, float *h, const float *y, int n, bool round)
{
	for (int i = 0; i < n; i += VW) {
		vf sum = vf_load_part(h + i, n - i) + vf_load_part(y + i, n - i);

		vf_store_part(h + i, round ? vf_round(dev, sum) : sum, n - i);
	}
}

static void run_rows(struct norm_job *j, part_fn *fn)
{
	pool_run(j->dev->pool, fn, j, (j->T + NORM_ROWS - 1) / NORM_ROWS);
}

/* The norm of the residual stream; where that is fp32, of its values rounded as activations are (3.1). */
static void norm_residual(const struct device *dev, float *y, const float *h, const float *w, int n, double eps)
{
	if (!dev->config->residual_in_fp32) {
		norm_row(dev, y, h, w, n, eps);
		return;
	}
	for (int i = 0; i < n; i += VW)
		vf_store_part(y + i, vf_round(dev, vf_load_part(h + i, n - i)), n - i);
	norm_row(dev, y, y, w, n, eps);
}

static void norm_part(void *arg, int part, int thread)
{
	struct norm_job *j = arg;

	(void)thread;
	for (int t = part * NORM_ROWS; t < min_int((part + 1) * NORM_ROWS, j->T); t++) {
		size_t at = (size_t)t * (size_t)j->H;

		if (j->h) {
			add_row(j->dev, j->h + at, j->x + at, j->H, !j->dev->config->residual_in_fp32);
			norm_residual(j->dev, j->y + at, j->h + at, j->w, j->H, j->eps);
		} else {
			norm_residual(j->dev, j->y + at, j->x + at, j->w, j->H, j->eps);
		}
	}
}

void cpu_rms_norm(struct device *dev, void *y, const void *x, const float *w, int T, int H, double eps)
{
	run_rows(&(struct norm_job){.dev = dev, .y = y, .x = x, .w = w, .T = T, .H = H, .eps = eps}, norm_part);
}

void cpu_add_rms_norm(struct device *dev, void *x, void *h, const void *y, const float *w, int T, int H, double eps)
{
	run_rows(&(struct norm_job){.dev = dev, .y = x, .h = h, .x = y, .w = w, .T = T, .H = H, .eps = eps}, norm_part);
}

static void add_part(void *arg, int part, int thread)
{
	struct norm_job *j = arg;
	int t = part * NORM_ROWS, n = min_int(NORM_ROWS, j->T - t);
	size_t at = (size_t)t * (size_t)j->H;

	(void)thread;
	add_row(j->dev, j->h + at, j->x + at, n * j->H, j->round);
}

void cpu_add(struct device *dev, void *h, const void *y, int T, int H)
{
	run_rows(&(struct norm_job){.dev = dev, .h = h, .x = y, .T = T, .H = H, .round = !dev->config->residual_in_fp32},
		 add_part);
}

void cpu_combine(struct device *dev, void *y, const void *x, int T, int n)
{
	run_rows(&(struct norm_job){.dev = dev, .h = y, .x = x, .T = T, .H = n, .round = true}, add_part);
}

static void gated_part(void *arg, int part, int thread)
{
	struct norm_job *j = arg;
	int n = j->H / j->groups;

	(void)thread;
	for (int t = part * NORM_ROWS; t < min_int((part + 1) * NORM_ROWS, j->T); t++) {
		float *y = j->y + (size_t)t * (size_t)j->H;
		const float *z = j->z + (size_t)t * (size_t)j->ldz;

		for (int i = 0; i < j->H; i += VW)
			vf_store_part(y + i, vf_load_part(y + i, j->H - i) * vf_silu(vf_load_part(z + i, j->H - i)),
				      j->H - i);
		for (int g = 0; g < j->groups; g++)
			norm_row(j->dev, y + g * n, y + g * n, j->w + g * n, n, j->eps);
	}
}

void cpu_gated_norm(struct device *dev, void *y, const void *z, int ldz, const float *w, int T, int channels,
		    int groups, double eps)
{
	run_rows(&(struct norm_job){.dev = dev, .y = y, .z = z, .ldz = ldz, .w = w, .T = T, .H = channels,
				    .groups = groups, .eps = eps}, gated_part);
}

static void relu2_part(void *arg, int part, int thread)
{
	struct norm_job *j = arg;
	int t = part * NORM_ROWS, n = min_int(NORM_ROWS, j->T - t) * j->H;
	float *x = j->y + (size_t)t * (size_t)j->H;

	(void)thread;
	for (int i = 0; i < n; i += VW) {
		vf v = vf_max(vf_set1(0), vf_load_part(x + i, n - i));

		vf_store_part(x + i, vf_round(j->dev, v * v), n - i);
	}
}

void cpu_relu2(struct device *dev, void *x, int T, int n)
{
	run_rows(&(struct norm_job){.dev = dev, .y = x, .T = T, .H = n}, relu2_part);
}
