/* The Mamba-2 state: the single-step recurrence (docs/model.md 3.3.1) and the chunked SSD scan (3.3.2).
 *
 * Both read u as the convolution left it, x [heads, head_dim] | B [groups, state] | C [groups, state]; head h
 * belongs to group h / (heads / groups).  S is [heads, head_dim, state]. */
#include <math.h>
#include "ref.h"

/* d = softplus(raw + bias), linear above 20, clamped to time_step_limit (3.3 step 4); never rounded. */
static double softplus_dt(double raw, double bias, const double limit[2])
{
	double d = raw + bias;

	if (d <= 20)
		d = log1p(exp(d));
	return d < limit[0] ? limit[0] : d > limit[1] ? limit[1] : d;
}

static double dot(const double *a, const double *b, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* One head, one token: S = exp(A d) S + (d B) x^T;  y = S C + D x */
static void step_head(double *y, double *S, const double *x, const double *B, const double *C, double d, double A,
		      double D, int head_dim, int state)
{
	double decay = exp(A * d);

	for (int p = 0; p < head_dim; p++) {
		double *row = S + (size_t)p * state;

		for (int n = 0; n < state; n++)
			row[n] = decay * row[n] + d * B[n] * x[p];
		y[p] = dot(row, C, state) + D * x[p];
	}
}

void ref_ssm_step(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt, struct state_view ssm,
		  const int32_t *slots, const struct mamba *w, const struct ssm_shape *shape, const double limit[2],
		  int rows)
{
	int P = shape->head_dim, N = shape->state, inner = shape->heads * P;

	for (int r = 0; r < rows; r++) {
		const double *x = (const double *)u + (size_t)r * ldu;
		const double *raw = (const double *)dt + (size_t)r * lddt;
		double *out = (double *)y + (size_t)r * inner;

		for (int h = 0; h < shape->heads; h++) {
			const double *B = x + inner + h / (shape->heads / shape->groups) * N;
			const double *C = B + shape->groups * N;
			size_t at = slots[r] * ssm.stride + (size_t)h * P * N;

			ref_load(dev->state, ssm, at, (size_t)P * N);
			step_head(out + h * P, dev->state, x + h * P, B, C, softplus_dt(raw[h], w->dt_bias[h], limit),
				  w->A[h], w->D[h], P, N);
			ref_store(ssm, at, dev->state, (size_t)P * N);
		}
		ref_round(dev, out, inner);
	}
}

/* The tensor-core operands of the scan are rounded to bf16 in a bf16 model and to nothing else (3.3.2). */
static double operand(const struct device *dev, double x)
{
	return dev->compute == COMPUTE_BF16 ? ref_bf16(x) : x;
}

struct chunk {
	const double *u;       /* first token's row */
	int ldu, L;            /* tokens of the chunk */
	const double *dt;      /* [L, heads] */
	const double *sum;     /* [L, heads]: inclusive sum of A dt */
};

/* y_i = exp(sum_i) C_i . S  +  sum over j <= i of ((C_i . B_j) exp(sum_i - sum_j) dt_j) x_j  +  D x_i,
 * for the heads of one group; S is the state before the chunk. */
static void chunk_output(struct device *dev, double *y, const struct chunk *c, int i, int group, const struct mamba *w,
			 const struct ssm_shape *shape)
{
	int P = shape->head_dim, N = shape->state, H = shape->heads, inner = H * P, per = H / shape->groups;
	const double *u = c->u + (size_t)i * c->ldu, *C = u + inner + (shape->groups + group) * N;

	for (int j = 0; j <= i; j++)
		dev->pair[j] = dot(C, c->u + (size_t)j * c->ldu + inner + group * N, N);
	for (int h = group * per; h < (group + 1) * per; h++) {
		double *out = y + h * P, carried = exp(c->sum[i * H + h]);
		const double *S = dev->chunk_state + (size_t)h * P * N;

		for (int p = 0; p < P; p++)
			out[p] = dot(C, S + (size_t)p * N, N) * carried + w->D[h] * u[h * P + p];
		for (int j = 0; j <= i; j++) {
			double decay = exp(fmin(c->sum[i * H + h] - c->sum[j * H + h], 0));
			double weight = operand(dev, dev->pair[j] * decay * c->dt[j * H + h]);
			const double *x = c->u + (size_t)j * c->ldu + h * P;

			for (int p = 0; p < P; p++)
				out[p] += weight * x[p];
		}
	}
}

/* S = exp(sum_L) S + sum over i of x_i (B_i exp(sum_L - sum_i) dt_i)^T.  What is carried on is fp32, so that a
 * prefill that is split at a chunk boundary gives the same bits. */
static void chunk_state(struct device *dev, const struct chunk *c, int h, const struct ssm_shape *shape)
{
	int P = shape->head_dim, N = shape->state, H = shape->heads;
	size_t B_at = H * P + h / (H / shape->groups) * N;
	double *S = dev->state + (size_t)h * P * N, last = c->sum[(c->L - 1) * H + h], decay = exp(last);

	for (size_t i = 0; i < (size_t)P * N; i++)
		S[i] *= decay;
	for (int i = 0; i < c->L; i++) {
		const double *u = c->u + (size_t)i * c->ldu, *x = u + h * P;
		double factor = exp(fmin(last - c->sum[i * H + h], 0)) * c->dt[i * H + h];

		for (int n = 0; n < N; n++)
			dev->b_row[n] = operand(dev, u[B_at + n] * factor);
		for (int p = 0; p < P; p++)
			for (int n = 0; n < N; n++)
				S[(size_t)p * N + n] += x[p] * dev->b_row[n];
	}
	for (size_t i = 0; i < (size_t)P * N && dev->compute != COMPUTE_F64; i++)
		S[i] = (float)S[i];
}

static void scan_chunk(struct device *dev, double *y, const struct chunk *c, const struct mamba *w,
		       const struct ssm_shape *shape)
{
	int inner = shape->heads * shape->head_dim;
	size_t size = (size_t)inner * shape->state;

	for (size_t i = 0; i < size; i++)
		dev->chunk_state[i] = operand(dev, dev->state[i]);
	for (int g = 0; g < shape->groups; g++)
		for (int i = 0; i < c->L; i++)
			chunk_output(dev, y + (size_t)i * inner, c, i, g, w, shape);
	for (int h = 0; h < shape->heads; h++)
		chunk_state(dev, c, h, shape);
}

void ref_ssm_scan(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt, struct state_view ssm,
		  int slot, const struct mamba *w, const struct ssm_shape *shape, const double limit[2], int T,
		  int64_t pos)
{
	int H = shape->heads, Q = shape->chunk_size, inner = H * shape->head_dim;
	size_t size = (size_t)inner * shape->state, at = slot * ssm.stride;

	ref_load(dev->state, ssm, at, size);
	for (int t = 0, L; t < T; t += L) {
		L = Q - (pos + t) % Q;   /* boundaries lie at absolute multiples of Q */
		if (L > T - t)
			L = T - t;
		for (int i = 0; i < L; i++)
			for (int h = 0; h < H; h++) {
				double d = softplus_dt(((const double *)dt)[(size_t)(t + i) * lddt + h],
						       w->dt_bias[h], limit);

				dev->dt[i * H + h] = d;
				dev->decay[i * H + h] = w->A[h] * d + (i ? dev->decay[(i - 1) * H + h] : 0);
			}
		struct chunk c = {
			.u = (const double *)u + (size_t)t * ldu, .ldu = ldu, .L = L,
			.dt = dev->dt, .sum = dev->decay,
		};
		scan_chunk(dev, (double *)y + (size_t)t * inner, &c, w, shape);
	}
	ref_store(ssm, at, dev->state, size);
	ref_round(dev, y, (size_t)T * inner);
}
