#include "product.h"
#include "ssm.h"

enum { STEP_HEADS = 4 /* heads of a part of ssm_step */, CB_ROWS = 32 };

struct ssm_job {
	struct device *dev;
	float *y;
	const float *u, *dt;
	struct state_view ssm;
	const int32_t *slots;
	const struct mamba *w;
	const struct ssm_shape *s;
	const double *limit;
	int ldu, lddt;
	int L;                       /* tokens of the chunk */
	bool first, last;            /* chunk of the scan */
};

ALWAYS int inner(const struct ssm_shape *s) { return s->heads * s->head_dim; }

ALWAYS vf clamp_dt(vf raw, vf bias, const double *limit)
{
	vf d = vf_softplus(raw + bias);

	return vf_min(vf_set1((float)limit[1]), vf_max(vf_set1((float)limit[0]), d));
}

/* ---- single step (3.3.1): vectors along the state ---- */

ALWAYS vf load_state(const void *p, size_t at, int n, enum dtype dtype)
{
	uint16_t half[VW] = {0};

	if (dtype == DTYPE_F32)
		return vf_load_part((const float *)p + at, n);
	memcpy(half, (const uint16_t *)p + at, (size_t)min_int(n, VW) * sizeof(*half));
	return dtype == DTYPE_BF16 ? vf_load_bf16(half) : vf_load_f16(half);
}

ALWAYS void store_state(void *p, size_t at, vf v, int n, enum dtype dtype)
{
	uint16_t half[VW];

	if (dtype == DTYPE_F32) {
		vf_store_part((float *)p + at, v, n);
		return;
	}
	if (dtype == DTYPE_BF16)
		vf_store_bf16(half, vf_round_bf16(v));
	else
		vf_store_f16(half, v);
	memcpy((uint16_t *)p + at, half, (size_t)min_int(n, VW) * sizeof(*half));
}

/* Rows [p, p + rows) of a head, one after the other as they lie: S = a S + (d B) x, y = S C, lane by row.  The output
 * uses S before it is rounded to its dtype. */
ALWAYS vf step_rows(void *S, const float *x, const float *dB, const float *C, float a, int p, int rows, int N,
		    enum dtype dtype)
{
	vf acc[VW] = {{0}};

	for (int i = 0; i < rows; i++) {
		size_t at = (size_t)(p + i) * (size_t)N;
		vf sum = {0}, xv = vf_set1(x[p + i]);

		for (int n = 0; n < N; n += VW) {
			vf s = vf_fma(vf_load_part(dB + n, N - n), xv,
				      load_state(S, at + (size_t)n, N - n, dtype) * vf_set1(a));

			sum = vf_fma(s, vf_load_part(C + n, N - n), sum);
			store_state(S, at + (size_t)n, s, N - n, dtype);
		}
		acc[i] = sum;
	}
	return vf_sum_each(acc);
}

ALWAYS void step_head(const struct ssm_job *j, int row, int h, float d, float a, float *dB, enum dtype dtype)
{
	const struct ssm_shape *s = j->s;
	int P = s->head_dim, N = s->state, Di = inner(s), g = h / (s->heads / s->groups);
	const float *u = j->u + (size_t)row * (size_t)j->ldu, *x = u + h * P;
	const float *B = u + Di + g * N, *C = B + s->groups * N;
	float *y = j->y + (size_t)row * (size_t)Di + h * P;
	size_t at = (size_t)j->slots[row] * j->ssm.stride + (size_t)h * (size_t)P * (size_t)N;
	char *S = (char *)j->ssm.data + at * (dtype == DTYPE_F32 ? 4 : 2);

	for (int n = 0; n < N; n += VW)
		vf_store_part(dB + n, vf_load_part(B + n, N - n) * vf_set1(d), N - n);
	for (int p = 0; p < P; p += VW) {
		vf v = step_rows(S, x, dB, C, a, p, min_int(VW, P - p), N, dtype);

		v = vf_fma(vf_set1(j->w->D[h]), vf_load_part(x + p, P - p), v);
		vf_store_part(y + p, vf_round(j->dev, v), P - p);
	}
}

static void step_part(void *arg, int part, int thread)
{
	struct ssm_job *j = arg;
	int H = j->s->heads, parts = (H + STEP_HEADS - 1) / STEP_HEADS;
	int row = part / parts, h0 = part % parts * STEP_HEADS, n = min_int(STEP_HEADS, H - h0);
	float d[VW] = {0}, A[VW] = {0}, a[VW], *dB = j->dev->threads[thread].row;

	for (int i = 0; i < n; i++) {
		d[i] = j->dt[(size_t)row * (size_t)j->lddt + h0 + i] + j->w->dt_bias[h0 + i];
		A[i] = (float)j->w->A[h0 + i];
	}
	vf dt = clamp_dt(vf_load(d), (vf){0}, j->limit);

	vf_store(d, dt);
	vf_store(a, vf_exp(vf_load(A) * dt));
	for (int i = 0; i < n; i++) {
		if (j->ssm.dtype == DTYPE_F32)
			step_head(j, row, h0 + i, d[i], a[i], dB, DTYPE_F32);
		else if (j->ssm.dtype == DTYPE_BF16)
			step_head(j, row, h0 + i, d[i], a[i], dB, DTYPE_BF16);
		else
			step_head(j, row, h0 + i, d[i], a[i], dB, DTYPE_F16);
	}
}

void cpu_ssm_step(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt, struct state_view ssm,
		  const int32_t *slots, const struct mamba *w, const struct ssm_shape *shape, const double limit[2], int rows)
{
	struct ssm_job j = {.dev = dev, .y = y, .u = u, .dt = dt, .ssm = ssm, .slots = slots, .w = w, .s = shape,
			    .limit = limit, .ldu = ldu, .lddt = lddt};

	pool_run(dev->pool, step_part, &j, rows * ((shape->heads + STEP_HEADS - 1) / STEP_HEADS));
}

/* ---- chunk scan (3.3.2) ----
 *
 * Per chunk: C B^T once per group, then each head alone.  C B^T and C S^T are dot products along the state
 * (product.h); the sums over tokens, W x and x^T B, run token by token with vectors along head_dim and state. */

ALWAYS struct chunk_shared shared_of(const struct ssm_job *j)
{
	return chunk_shared_layout(j->dev->ssm_shared, j->s);
}

/* Operands of product_dense: bf16 words or floats. */
ALWAYS void store_dense(void *to, size_t at, vf v, int n, bool half)
{
	uint16_t words[VW];

	if (!half) {
		vf_store_part((float *)to + at, v, n);
		return;
	}
	vf_store_bf16(words, v);
	memcpy((uint16_t *)to + at, words, (size_t)min_int(n, VW) * sizeof(*words));
}

static void dense_part(void *arg, int part, int thread)
{
	struct ssm_job *j = arg;
	struct chunk_shared sh = shared_of(j);
	int g = part, N = j->s->state, Di = inner(j->s);
	bool half = product_dense_half(j->dev);

	(void)thread;
	for (int i = 0; i < j->L; i++) {
		const float *B = j->u + (size_t)i * (size_t)j->ldu + Di + g * N, *C = B + j->s->groups * N;

		for (int n = 0; n < N; n += VW) {
			store_dense(sh.B + g * sh.group, (size_t)i * (size_t)N + (size_t)n, vf_load_part(B + n, N - n),
				    N - n, half);
			store_dense(sh.C + g * sh.group, (size_t)i * sh.row + (size_t)n, vf_load_part(C + n, N - n),
				    N - n, half);
		}
		for (int n = N; n < (int)sh.row; n++)
			store_dense(sh.C + g * sh.group, (size_t)i * sh.row + (size_t)n, (vf){0}, 1, half);
	}
}

/* M[i][j] = C_i B_j for j <= i, and what else of the rows comes along. */
static void cb_part(void *arg, int part, int thread)
{
	struct ssm_job *j = arg;
	struct chunk_shared sh = shared_of(j);
	int g = part % j->s->groups, i = part / j->s->groups * CB_ROWS, end = min_int(i + CB_ROWS, j->L);
	struct linear B;
	struct product p;

	product_dense(&p, &B, j->dev, sh.B + g * sh.group, j->L, j->s->state);
	p.x = sh.C + g * sh.group;
	p.ldx = sh.row * (product_dense_half(j->dev) ? 2 : 4);
	p.y = sh.CB + (size_t)g * (size_t)j->s->chunk_size * (size_t)j->s->chunk_size;
	p.ldy = j->s->chunk_size;
	product_block(&p, 0, end, i, end, j->dev->threads[thread].panel);
}

/* d_i, and cs_i = sum of A d up to i. */
static void chunk_decay(const struct ssm_job *j, const struct chunk_scratch *c, int h)
{
	float A = (float)j->w->A[h], sum = 0;

	for (int i = 0; i < j->L; i++)
		c->d[i] = j->dt[(size_t)i * (size_t)j->lddt + h];
	for (int i = 0; i < j->L; i += VW)
		vf_store_part(c->d + i, clamp_dt(vf_load_part(c->d + i, j->L - i), vf_set1(j->w->dt_bias[h]), j->limit),
			      j->L - i);
	for (int i = 0; i < j->L; i++)
		c->cs[i] = sum += A * c->d[i];
}

/* y0[i][p] = C_i S^T with S rounded (the state before this chunk). */
static void chunk_from_state(const struct ssm_job *j, const struct chunk_scratch *c, const float *S, int h, void *panel)
{
	struct chunk_shared sh = shared_of(j);
	int P = j->s->head_dim, N = j->s->state, n = P * N, g = h / (j->s->heads / j->s->groups);
	bool half = product_dense_half(j->dev);
	struct linear state;
	struct product p;

	for (int i = 0; i < n; i += VW)
		store_dense(c->S, (size_t)i, vf_round(j->dev, vf_load_part(S + i, n - i)), n - i, half);
	product_dense(&p, &state, j->dev, c->S, P, N);
	p.x = sh.C + g * sh.group;
	p.ldx = sh.row * (half ? 2 : 4);
	p.y = c->y0;
	p.ldy = P;
	product_block(&p, 0, P, 0, j->L, panel);
}

/* W[i][.] = CB[i][.] exp(min(cs_i - cs_j, 0)) d_j for j <= i, rounded; zeros up to `end`. */
ALWAYS void chunk_weights(const struct ssm_job *j, const struct chunk_scratch *c, float *W, const float *CB, int i, int end)
{
	for (int k = 0; k < end; k += VW) {
		vf decay = vf_exp(vf_min(vf_set1(0), vf_set1(c->cs[i]) - vf_load_part(c->cs + k, j->L - k)));
		vf v = vf_load_part(CB + k, j->s->chunk_size - k) * decay * vf_load_part(c->d + k, j->L - k);

		vf_store(W + k, vf_round(j->dev, v));
	}
	for (int k = i + 1; k < end; k++)
		W[k] = 0;
}

/* Four tokens i..i+3, nv vectors of channels from p on: y = y0 exp(cs) + W x + D x. */
ALWAYS void chunk_outputs(const struct ssm_job *j, const struct chunk_scratch *c, int h, int i, int p, int nv)
{
	int P = j->s->head_dim, n = P - p, m = min_int(4, j->L - i), ldw = c->ldw;
	const float *x = j->u + h * P + p;
	vf y[4][WIDE];

#pragma GCC unroll 4
	for (int k = 0; k < 4; k++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++)
			y[k][v] = vf_load_part(c->y0 + (size_t)min_int(i + k, j->L - 1) * (size_t)P + p + v * VW, n - v * VW) *
				  vf_set1(c->ecs[i + k]);
	for (int t = 0; t < i + m; t++) {
		vf w[4];

#pragma GCC unroll 4
		for (int k = 0; k < 4; k++)
			w[k] = vf_set1(c->W[k * ldw + t]);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			vf xv = vf_load_part(x + (size_t)t * (size_t)j->ldu + v * VW, n - v * VW);

#pragma GCC unroll 4
			for (int k = 0; k < 4; k++)
				y[k][v] = vf_fma(w[k], xv, y[k][v]);
		}
	}
	for (int k = 0; k < m; k++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			vf xv = vf_load_part(x + (size_t)(i + k) * (size_t)j->ldu + v * VW, n - v * VW);

			vf_store_part(j->y + (size_t)(i + k) * (size_t)inner(j->s) + h * P + p + v * VW,
				      vf_round(j->dev, vf_fma(vf_set1(j->w->D[h]), xv, y[k][v])), n - v * VW);
		}
}

static void chunk_output(const struct ssm_job *j, const struct chunk_scratch *c, int h)
{
	struct chunk_shared sh = shared_of(j);
	int Q = j->s->chunk_size, g = h / (j->s->heads / j->s->groups);

	for (int i = 0; i < j->L; i += VW)
		vf_store(c->ecs + i, vf_exp(vf_load_part(c->cs + i, j->L - i)));
	for (int i = 0; i < j->L; i += 4) {
		int end = min_int(i + 4, j->L);

		if (end < i + 4)
			memset(c->W, 0, 4 * (size_t)c->ldw * sizeof(float));
		for (int k = i; k < end; k++)
			chunk_weights(j, c, c->W + (k - i) * c->ldw, sh.CB + ((size_t)g * (size_t)Q + (size_t)k) * (size_t)Q,
				      k, end);
		int p = 0;

		for (; p + WIDE * VW <= j->s->head_dim; p += WIDE * VW)
			chunk_outputs(j, c, h, i, p, WIDE);
		for (; p + 2 * VW <= j->s->head_dim; p += 2 * VW)
			chunk_outputs(j, c, h, i, p, 2);
		for (; p < j->s->head_dim; p += VW)
			chunk_outputs(j, c, h, i, p, 1);
	}
}

/* S = exp(cs_last) S + sum_i x_i (x) Bt_i: four rows, nv vectors of columns from n on. */
ALWAYS void chunk_state_rows(const struct ssm_job *j, const struct chunk_scratch *c, float *S, int h, int p, int n, int nv)
{
	int P = j->s->head_dim, N = j->s->state, m = min_int(4, P - p);
	const float *x = j->u + h * P + p;
	vf sum[4][WIDE] = {{{0}}}, keep = vf_set1(c->ecs[j->L - 1]);

	for (int i = 0; i < j->L; i++) {
		vf xv[4];

#pragma GCC unroll 4
		for (int k = 0; k < 4; k++)
			xv[k] = vf_set1(x[(size_t)i * (size_t)j->ldu + (size_t)min_int(k, m - 1)]);
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			vf b = vf_load(c->Bt + (size_t)i * (size_t)c->ldb + n + v * VW);

#pragma GCC unroll 4
			for (int k = 0; k < 4; k++)
				sum[k][v] = vf_fma(b, xv[k], sum[k][v]);
		}
	}
	for (int k = 0; k < m; k++)
#pragma GCC unroll 4
		for (int v = 0; v < nv; v++) {
			float *to = S + (size_t)(p + k) * (size_t)N + n + v * VW;
			int left = N - n - v * VW;

			vf_store_part(to, vf_fma(keep, vf_load_part(to, left), sum[k][v]), left);
		}
}

static void chunk_state(const struct ssm_job *j, const struct chunk_scratch *c, float *S, int h)
{
	int N = j->s->state, g = h / (j->s->heads / j->s->groups);
	const float *B = j->u + inner(j->s) + g * N;

	for (int i = 0; i < j->L; i += VW) {
		vf gap = vf_min(vf_set1(0), vf_set1(c->cs[j->L - 1]) - vf_load_part(c->cs + i, j->L - i));

		vf_store(c->W + i, vf_exp(gap) * vf_load_part(c->d + i, j->L - i));
	}
	for (int i = 0; i < j->L; i++)
		for (int n = 0; n < N; n += VW)
			vf_store(c->Bt + (size_t)i * (size_t)c->ldb + n,
				 vf_round(j->dev, vf_load_part(B + (size_t)i * (size_t)j->ldu + n, N - n) * vf_set1(c->W[i])));
	for (int p = 0; p < j->s->head_dim; p += 4) {
		int n = 0;

		for (; n + WIDE * VW <= N; n += WIDE * VW)
			chunk_state_rows(j, c, S, h, p, n, WIDE);
		for (; n < N; n += VW)
			chunk_state_rows(j, c, S, h, p, n, 1);
	}
}

/* One head of one chunk.  The carry is fp32 from the first chunk to the last, whatever the dtype of the state. */
static void chunk_part(void *arg, int h, int thread)
{
	struct ssm_job *j = arg;
	struct chunk_scratch c = chunk_scratch_layout(j->dev->threads[thread].ssm, j->s);
	size_t n = (size_t)j->s->head_dim * (size_t)j->s->state, at = (size_t)j->slots[0] * j->ssm.stride + (size_t)h * n;
	enum dtype dtype = j->ssm.dtype;
	float *S = dtype == DTYPE_F32 ? (float *)j->ssm.data + at : shared_of(j).carry + (size_t)h * n;

	if (dtype != DTYPE_F32 && j->first)
		for (size_t i = 0; i < n; i += VW)
			vf_store_part(S + i, load_state(j->ssm.data, at + i, (int)(n - i), dtype), (int)(n - i));
	chunk_decay(j, &c, h);
	chunk_from_state(j, &c, S, h, j->dev->threads[thread].panel);
	chunk_output(j, &c, h);
	chunk_state(j, &c, S, h);
	if (dtype != DTYPE_F32 && j->last)
		for (size_t i = 0; i < n; i += VW)
			store_state(j->ssm.data, at + i, vf_load_part(S + i, (int)(n - i)), (int)(n - i), dtype);
}

void cpu_ssm_scan(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt, struct state_view ssm,
		  int slot, const struct mamba *w, const struct ssm_shape *shape, const double limit[2], int T, int64_t pos)
{
	struct ssm_job j = {.dev = dev, .ssm = ssm, .slots = &(int32_t){slot}, .w = w, .s = shape, .limit = limit,
			    .ldu = ldu, .lddt = lddt};
	int Q = shape->chunk_size;

	for (int t = 0; t < T; t += j.L) {
		j.L = min_int(Q - (int)((pos + t) % Q), T - t);
		j.first = t == 0;
		j.last = t + j.L == T;
		j.y = (float *)y + (size_t)t * (size_t)inner(shape);
		j.u = (const float *)u + (size_t)t * (size_t)ldu;
		j.dt = (const float *)dt + (size_t)t * (size_t)lddt;
		pool_run(dev->pool, dense_part, &j, shape->groups);
		pool_run(dev->pool, cb_part, &j, shape->groups * ((j.L + CB_ROWS - 1) / CB_ROWS));
		pool_run(dev->pool, chunk_part, &j, shape->heads);
	}
}
