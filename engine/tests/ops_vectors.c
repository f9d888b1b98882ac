#include "ops_vectors.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/quant.h"
#include "ops_rig.h"

#define FILE_NAME "engine/tests/fixtures/ops.json"
/* ---- one function per op ---- */

static void run_rms_norm(struct rig like, const json_t *in, const json_t *out)
{
	struct rig r = rig_new(&like, BLOCK_MLP);
	struct vec x = vec(in, "x");
	int T = x.dim[0], H = x.dim[1];
	float *w = floats(in, "w");

	r.layer.norm = w;
	r.model.config.hidden_size = H;
	rig_open(&r, T, 1, 8);
	void *y = rig_out(&r, x.n), *h = rig_in(&r, x.x, x.n);
	r.b->rms_norm(r.dev, y, h, w, T, H, real(in, "eps"));
	rig_check(&r, "y", y, vec(out, "y"));
	if (r.b->add_rms_norm) {
		double *zero = new(x.n, sizeof(*zero));

		y = rig_out(&r, x.n);
		r.b->add_rms_norm(r.dev, y, h, rig_in(&r, zero, x.n), w, T, H, real(in, "eps"));
		rig_check(&r, "fused y", y, vec(out, "y"));
	}
	rig_close(&r);
}

static void run_gated_norm(struct rig like, const json_t *in, const json_t *out)
{
	struct rig r = rig_new(&like, BLOCK_MAMBA);
	struct vec y = vec(in, "y"), z = vec(in, "z"), want = vec(out, "out");
	int T = y.dim[0], n = y.dim[1];
	float *w = floats(in, "w");

	r.layer.mamba.norm = w;
	r.model.config.d_inner = n;
	rig_open(&r, T, 1, 8);
	void *p = rig_out(&r, y.n);
	r.b->act_from_host(r.dev, p, y.x, y.n);
	r.b->gated_norm(r.dev, p, rig_in(&r, z.x, z.n), n, w, T, n, integer(in, "groups"), real(in, "eps"));
	rig_check(&r, "out", p, want);
	rig_close(&r);
}

/* A convolution of width 1 with weight 1 is SiLU. */
static void run_silu(struct rig like, const json_t *in, const json_t *out)
{
	struct rig r = rig_new(&like, BLOCK_MAMBA);
	struct vec x = vec(in, "x"), want = vec(out, "y");
	float *w = new(x.n, sizeof(*w));

	for (int i = 0; i < x.n; i++)
		w[i] = 1;
	r.layer.mamba.conv_weight = w;
	r.model.config.conv_dim = x.n;
	r.model.config.conv_kernel = 1;
	rig_open(&r, 1, 2, 8);
	void *u = rig_out(&r, x.n);
	struct state_view conv = rig_state(&r, r.b->act_dtype(r.dev), 1, NULL, 0);
	conv.stride = 0;
	r.b->conv_scan(r.dev, u, rig_in(&r, x.x, x.n), x.n, conv, 1, w, NULL, x.n, 1, 1);
	if (r.arm.value[FACTOR_COMPUTE] == COMPUTE_F64)
		compare_each(&r, "y", rig_read(&r, u, x.n), want.x, want.n);
	rig_check(&r, "y", u, want);
	rig_close(&r);
}

static void run_relu2(struct rig like, const json_t *in, const json_t *out)
{
	struct rig r = rig_new(&like, BLOCK_MLP);
	struct vec x = vec(in, "x");

	rig_open(&r, 1, 1, 8);
	void *p = rig_out(&r, x.n);
	r.b->act_from_host(r.dev, p, x.x, x.n);
	r.b->relu2(r.dev, p, 1, x.n);
	rig_check(&r, "y", p, vec(out, "y"));
	rig_close(&r);
}

static struct ssm_shape rig_ssm(struct rig *r, int heads, int P, int G, int N, int Q)
{
	struct config *c = &r->model.config;

	c->mamba_num_heads = heads;
	c->mamba_head_dim = P;
	c->n_groups = G;
	c->ssm_state_size = N;
	c->chunk_size = Q;
	c->d_inner = heads * P;
	c->conv_dim = heads * P + 2 * G * N;
	return (struct ssm_shape){ .heads = heads, .head_dim = P, .groups = G, .state = N, .conv_kernel = 4,
				   .chunk_size = Q };
}

/* With S = 0, A = D = 0 and x = B = C = 1 the step's y is dt itself, one head per value. */
static void run_dt_softplus(struct rig like, const json_t *in, const json_t *out)
{
	struct rig r = rig_new(&like, BLOCK_MAMBA);
	struct vec raw = vec(in, "raw"), want = vec(out, "dt");
	int n = raw.n, width = n + 2;
	struct ssm_shape shape = rig_ssm(&r, n, 1, 1, 1, 4);
	double *A = new(n, sizeof(*A)), *u = new(width, sizeof(*u));
	double limit[2] = { real(in, "lo"), real(in, "hi") }, *zero = new(n, sizeof(*zero));
	float *D = new(n, sizeof(*D)), *bias = new(n, sizeof(*bias));

	for (int i = 0; i < n; i++)
		bias[i] = (float)real(in, "bias");
	for (int i = 0; i < width; i++)
		u[i] = 1;
	r.layer.mamba = (struct mamba){ .A = A, .D = D, .dt_bias = bias };
	memcpy(r.model.config.time_step_limit, limit, sizeof(limit));
	rig_open(&r, 1, 2, 8);
	void *y = rig_out(&r, n);
	struct state_view ssm = rig_state(&r, state_dtype(&r), n, zero, n);
	r.b->ssm_step(r.dev, y, rig_in(&r, u, width), width, rig_in(&r, raw.x, n), n, ssm, rig_ints(&r, 1, 1, 0),
		      &r.layer.mamba, &shape, limit, 1);
	if (r.arm.value[FACTOR_COMPUTE] == COMPUTE_F64)
		compare_each(&r, "dt", rig_read(&r, y, n), want.x, want.n);
	rig_check(&r, "dt", y, want);
	rig_close(&r);
}

static void run_causal_conv(struct rig like, const json_t *in, const json_t *out)
{
	struct vec x = vec(in, "x"), state = vec(in, "state"), w = vec(in, "w");
	int T = x.dim[0], n = x.dim[1], K = w.dim[1];
	float *weight = floats(in, "w"), *bias = json_is_null(json_object_get(in, "bias")) ? NULL : floats(in, "bias");

	for (int by_step = 0; by_step < 2; by_step++) {
		struct rig r = rig_new(&like, BLOCK_MAMBA);

		r.layer.mamba.conv_weight = weight;
		r.layer.mamba.conv_bias = bias;
		r.model.config.conv_dim = n;
		r.model.config.conv_kernel = K;
		r.model.config.use_conv_bias = bias != NULL;
		rig_open(&r, T, 2, 8);
		size_t element = dtype_size(r.b->act_dtype(r.dev));
		char *u = rig_out(&r, x.n), *from = rig_in(&r, x.x, x.n);
		struct state_view conv = rig_state(&r, r.b->act_dtype(r.dev), state.n, state.x, state.n);
		int32_t *slots = rig_ints(&r, 1, 1, 0);

		if (!by_step)
			r.b->conv_scan(r.dev, u, from, n, conv, 1, weight, bias, n, K, T);
		for (int t = 0; by_step && t < T; t++)
			r.b->conv_step(r.dev, u + t * n * element, from + t * n * element, n, conv, slots, weight, bias,
				       n, K, 1);
		rig_check(&r, by_step ? "y by steps" : "y", u, vec(out, "y"));
		rig_state_check(&r, "state", conv, vec(out, "state"));
		rig_close(&r);
	}
}

/* x | B | C in one row, and the raw dt whose softplus is the vector's dt.  A state of 16 bits is rounded when it is
 * stored (once per scan, once per step), after y was formed: 2^-9 or 2^-12 of each value, here of the largest. */
static void run_ssm_in(struct rig like, const json_t *in, const json_t *out, bool scan, enum dtype dtype)
{
	struct rig r = rig_new(&like, BLOCK_MAMBA);
	struct vec S = vec(in, "S"), x = vec(in, "x"), dt = vec(in, "dt"), B = vec(in, "B"), C = vec(in, "C");
	struct vec A = vec(in, "A");
	int T = x.dim[0], heads = x.dim[1], P = x.dim[2], G = B.dim[1], N = B.dim[2];
	int inner = heads * P, width = inner + 2 * G * N;
	struct ssm_shape shape = rig_ssm(&r, heads, P, G, N, scan ? integer(in, "Q") : 4);
	double *u = new((size_t)T * width, sizeof(*u)), limit[2] = { 0, INFINITY };
	float *zero = new(heads, sizeof(*zero));

	for (int t = 0; t < T; t++) {
		memcpy(u + t * width, x.x + t * inner, inner * sizeof(*u));
		memcpy(u + t * width + inner, B.x + t * G * N, G * N * sizeof(*u));
		memcpy(u + t * width + inner + G * N, C.x + t * G * N, G * N * sizeof(*u));
	}
	for (int i = 0; i < dt.n; i++)
		dt.x[i] = dt.x[i] > 20 ? dt.x[i] : log(expm1(dt.x[i]));
	r.layer.mamba = (struct mamba){ .A = A.x, .D = floats(in, "D"), .dt_bias = zero };
	memcpy(r.model.config.time_step_limit, limit, sizeof(limit));
	rig_open(&r, T, 2, 8);
	size_t element = dtype_size(r.b->act_dtype(r.dev));
	char *y = rig_out(&r, x.n), *from = rig_in(&r, u, T * width), *raw = rig_in(&r, dt.x, dt.n);
	struct state_view ssm = rig_state(&r, dtype, S.n, S.x, S.n);
	int32_t *slots = rig_ints(&r, 1, 1, 0);
	double stored = dtype == DTYPE_BF16 ? 0x1p-8 : dtype == DTYPE_F16 ? 0x1p-11 : 0;

	if (scan)
		r.b->ssm_scan(r.dev, y, from, width, raw, heads, ssm, 1, &r.layer.mamba, &shape, limit, T,
			      integer(in, "pos"));
	for (int t = 0; !scan && t < T; t++)
		r.b->ssm_step(r.dev, y + t * inner * element, from + t * width * element, width,
			      raw + t * heads * element, heads, ssm, slots, &r.layer.mamba, &shape, limit, 1);
	if (!scan && T > 1)
		r.bound += (T - 1) * stored;
	rig_check(&r, "y", y, vec(out, "y"));
	r.bound += stored;
	rig_state_check(&r, "S", ssm, vec(out, "S"));
	rig_close(&r);
}

static void run_ssm(struct rig like, const json_t *in, const json_t *out, bool scan)
{
	like.arm.value[FACTOR_MAMBA_STATE] = MAMBA_STATE_FP32;
	run_ssm_in(like, in, out, scan, state_dtype(&like));
	if (like.arm.value[FACTOR_COMPUTE] == COMPUTE_F64)
		return;
	like.arm.value[FACTOR_MAMBA_STATE] = MAMBA_STATE_BF16;
	run_ssm_in(like, in, out, scan, DTYPE_BF16);
	like.arm.value[FACTOR_MAMBA_STATE] = MAMBA_STATE_FP16;
	run_ssm_in(like, in, out, scan, DTYPE_F16);
}

static void run_ssm_steps(struct rig like, const json_t *in, const json_t *out)
{
	run_ssm(like, in, out, false);
}

static void run_ssm_chunks(struct rig like, const json_t *in, const json_t *out)
{
	run_ssm(like, in, out, true);
}

/* With the identity as gate the logits are the input. */
static void run_moe_route(struct rig like, const json_t *in, const json_t *out)
{
	struct rig r = rig_new(&like, BLOCK_MOE);
	struct vec x = vec(in, "logits"), want_expert = vec(out, "experts"), want_weight = vec(out, "weights");
	int T = x.dim[0], E = x.dim[1], k = integer(in, "k"), n = T * k;
	float *gate = new((size_t)E * E, sizeof(*gate)), *bias = floats(in, "bias");
	struct route_shape shape = {
		.experts = E, .per_token = k, .n_group = integer(in, "n_group"),
		.topk_group = integer(in, "topk_group"),
		.norm_topk_prob = json_is_true(json_object_get(in, "norm")), .scaling = real(in, "scaling"),
	};
	struct config *c = &r.model.config;

	for (int e = 0; e < E; e++)
		gate[e * E + e] = 1;
	c->hidden_size = c->n_routed_experts = E;
	c->num_experts_per_tok = k;
	c->n_group = shape.n_group;
	c->topk_group = shape.topk_group;
	r.layer.moe = (struct moe){ .gate = gate, .correction_bias = bias,
				    .experts = new(E, sizeof(*r.layer.moe.experts)) };
	rig_open(&r, T, 1, 8);
	bool wide = dtype_size(r.b->act_dtype(r.dev)) == sizeof(double);
	int32_t *expert = rig_ints(&r, -1, n, 0), got_expert[32];
	char *weight = rig_alloc(&r, n * sizeof(double)), got_weight[32 * sizeof(double)];
	double w[32];

	ck_assert_int_le(n, 32);
	r.b->route(r.dev, expert, weight, rig_in(&r, x.x, x.n), gate, bias, E, &shape, T);
	r.b->download(r.dev, got_expert, expert, n * sizeof(*expert));
	r.b->download(r.dev, got_weight, weight, n * (wide ? sizeof(double) : sizeof(float)));
	decode(w, wide ? DTYPE_F64 : DTYPE_F32, got_weight, n);
	for (int i = 0; i < n; i++)
		ck_assert_msg(got_expert[i] == want_expert.x[i], "%s on %s, \"%s\": expert[%d] = %d, expected %g", r.op,
			      r.b->name, r.note, i, got_expert[i], want_expert.x[i]);
	compare(&r, "weight", w, want_weight.x, n);
	rig_close(&r);
}

/* softmax(q k^T / sqrt(d)) v by hand, for caches whose stored numbers are not the vector's. */
static void attend(double *y, const double *q, const double *k, const double *v, const struct attn_shape *s, int T,
		   int past)
{
	int d = s->head_dim, row = s->kv_heads * d;

	for (int t = 0; t < T; t++)
		for (int h = 0; h < s->heads; h++) {
			int at = h / (s->heads / s->kv_heads) * d;
			const double *qh = q + (t * s->heads + h) * d;
			double *yh = y + (t * s->heads + h) * d, sum = 0;

			for (int j = 0; j <= past + t; j++) {
				double dot = 0, weight;

				for (int i = 0; i < d; i++)
					dot += qh[i] * k[j * row + at + i];
				weight = exp(dot / sqrt(d));
				sum += weight;
				for (int i = 0; i < d; i++)
					yh[i] += weight * v[j * row + at + i];
			}
			for (int i = 0; i < d; i++)
				yh[i] /= sum;
		}
}

/* What a cache holds of x: codes of x / scale, read back times scale. */
static struct vec stored_as(struct vec x, enum dtype dtype, float scale)
{
	struct vec to = x;
	uint64_t code = 0;

	to.x = new(x.n, sizeof(*to.x));
	for (int i = 0; i < x.n; i++) {
		double scaled = dtype == DTYPE_FP8 ? (float)x.x[i] / scale : x.x[i];

		encode(&code, dtype, &scaled, 1);
		decode(&to.x[i], dtype, &code, 1);
	}
	return to;
}

static struct vec times(struct vec x, double scale)
{
	struct vec to = x;

	to.x = new(x.n, sizeof(*to.x));
	for (int i = 0; i < x.n; i++)
		to.x[i] = x.x[i] * scale;
	return to;
}

/* The rows before `past` are in the cache; the others are appended by the op. */
static void run_attention_in(struct rig like, const json_t *in, const json_t *out, enum dtype dtype, float k_scale,
			     float v_scale)
{
	struct rig r = rig_new(&like, BLOCK_ATTN);
	struct vec q = vec(in, "q"), k = vec(in, "k"), v = vec(in, "v"), want = vec(out, "y");
	struct vec k_codes = stored_as(k, dtype, k_scale), v_codes = stored_as(v, dtype, v_scale);
	int T = q.dim[0], past = integer(in, "past"), row = k.dim[1] * k.dim[2];
	struct attn_shape shape = { .heads = q.dim[1], .kv_heads = k.dim[1], .head_dim = q.dim[2] };
	struct config *c = &r.model.config;

	ck_assert_int_eq(k.dim[0], past + T);
	if (dtype == DTYPE_FP8) {
		want.x = new(want.n, sizeof(*want.x));
		attend(want.x, q.x, times(k_codes, k_scale).x, times(v_codes, v_scale).x, &shape, T, past);
	}
	c->num_attention_heads = shape.heads;
	c->num_key_value_heads = shape.kv_heads;
	c->head_dim = shape.head_dim;
	r.layer.attn.k_scale = k_scale;
	r.layer.attn.v_scale = v_scale;
	rig_open(&r, T, 2, past + T);
	void *y = rig_out(&r, q.n);
	struct state_view k_cache = rig_state(&r, dtype, k.n, k_codes.x, past * row);
	struct state_view v_cache = rig_state(&r, dtype, v.n, v_codes.x, past * row);
	r.b->attention(r.dev, y, rig_in(&r, q.x, q.n), rig_in(&r, k.x + past * row, T * row),
		       rig_in(&r, v.x + past * row, T * row), k_cache, v_cache, rig_ints(&r, 1, T, 0),
		       rig_ints(&r, past, T, 1), &shape, k_scale, v_scale, T);
	rig_check(&r, "y", y, want);
	r.bound = 0;
	rig_state_check(&r, "k", k_cache, k_codes);
	rig_state_check(&r, "v", v_cache, v_codes);
	rig_close(&r);
}

/* The vectors are exact in bf16; an FP8 cache rounds them, with and without scales. */
static void run_attention(struct rig like, const json_t *in, const json_t *out)
{
	like.arm.value[FACTOR_ATTN_KV] = ATTN_KV_FP32;
	run_attention_in(like, in, out, state_dtype(&like), 1, 1);
	if (like.arm.value[FACTOR_COMPUTE] == COMPUTE_F64)
		return;
	like.arm.value[FACTOR_ATTN_KV] = ATTN_KV_BF16;
	run_attention_in(like, in, out, DTYPE_BF16, 1, 1);
	like.arm.value[FACTOR_ATTN_KV] = ATTN_KV_FP8;
	run_attention_in(like, in, out, DTYPE_FP8, 1, 1);
	run_attention_in(like, in, out, DTYPE_FP8, 0.75f, 0.015625f);
}

/* Row strides wider than the matrix, so that a backend that ignores them fails. */
static void linear_case(struct rig like, struct linear w, enum numerics numerics, struct vec x, struct vec want,
			const char *what)
{
	struct rig r = rig_new(&like, BLOCK_MLP);
	int T = x.dim[0], ldx = w.in + 3, ldy = w.out + 2;
	double *wide = new((size_t)T * ldx, sizeof(*wide)), *got, *packed = new(want.n, sizeof(*packed));

	for (int t = 0; t < T; t++)
		for (int i = 0; i < ldx; i++)
			wide[t * ldx + i] = i < w.in ? x.x[t * w.in + i] : GUARD;
	r.model.config.hidden_size = w.in;
	r.layer.mlp.up_proj = w;
	rig_open(&r, T, 1, 8);
	void *y = rig_out(&r, T * ldy);
	r.b->linear(r.dev, y, ldy, rig_in(&r, wide, T * ldx), ldx, &r.layer.mlp.up_proj, numerics, T);
	got = rig_read(&r, y, T * ldy);
	for (int t = 0; t < T; t++)
		for (int o = 0; o < ldy; o++)
			if (o < w.out)
				packed[t * w.out + o] = got[t * ldy + o];
			else
				ck_assert_msg(isnan(got[t * ldy + o]), "%s on %s: wrote between the rows", r.op,
					      r.b->name);
	compare(&r, what, packed, want.x, want.n);
	rig_close(&r);
}

static void run_fp8_linear(struct rig like, const json_t *in, const json_t *out)
{
	struct vec x = vec(in, "x"), codes = vec(in, "codes");
	struct linear w = {
		.name = "layers.0.mixer.up_proj", .out = codes.dim[0], .in = codes.dim[1], .format = WEIGHT_FP8,
		.weight = bytes(in, "codes"), .scale = (float)real(in, "weight_scale"),
		.input_scale = (float)real(in, "input_scale"),
	};

	linear_case(like, w, NUMERICS_W8A16, x, vec(out, "w8a16"), "w8a16");
	linear_case(like, w, NUMERICS_W8A8, x, vec(out, "w8a8"), "w8a8");
}

static struct linear nvfp4(const json_t *in)
{
	struct vec codes = vec(in, "bytes");

	return (struct linear){
		.name = "layers.0.mixer.up_proj", .out = codes.dim[0], .in = codes.dim[1] * 2, .format = WEIGHT_NVFP4,
		.weight = bytes(in, "bytes"), .block_scale = bytes(in, "scale_codes"),
		.scale = (float)real(in, "weight_scale_2"),
	};
}

/* The vector's w4a4 is real arithmetic.  The fp32 operation order of the kernels (4.5) takes another code where a
 * value lies on a boundary, so there the expectation is built from the definition in quant.h. */
static struct vec w4a4_fp32(const struct linear *w, struct vec x, struct vec f64)
{
	struct vec want = { .n = f64.n, .x = new(f64.n, sizeof(double)) };
	double *value = new(w->in, sizeof(*value)), *scale = new(w->in / 16, sizeof(*scale));

	for (int i = 0; i < want.n; i++) {
		const uint8_t *codes = (const uint8_t *)w->weight + i % w->out * w->in / 2;
		const uint8_t *blocks = w->block_scale + i % w->out * w->in / 16;

		nvfp4_act(value, scale, x.x + i / w->out * w->in, w->in, w->input_scale, false);
		for (int c = 0; c < w->in; c++) {
			int code = c % 2 ? codes[c / 2] >> 4 : codes[c / 2] & 15;

			want.x[i] += value[c] * scale[c / 16] * e2m1_table[code] * e4m3_table[blocks[c / 16]];
		}
		want.x[i] *= (double)w->scale * w->input_scale;
	}
	return want;
}

static void run_nvfp4_linear(struct rig like, const json_t *in, const json_t *out)
{
	struct linear w = nvfp4(in);
	struct vec x = vec(in, "x"), want = vec(out, "w4a4");

	w.input_scale = (float)real(in, "input_scale");
	w.w4a4 = true;
	if (like.arm.value[FACTOR_COMPUTE] != COMPUTE_F64)
		want = w4a4_fp32(&w, x, want);
	linear_case(like, w, NUMERICS_W4A16, x, vec(out, "w4a16"), "w4a16");
	linear_case(like, w, NUMERICS_W4A4, x, want, "w4a4");
}

/* Times the identity the product is the dequantised matrix, transposed. */
static void run_nvfp4_dequant(struct rig like, const json_t *in, const json_t *out)
{
	struct linear w = nvfp4(in);
	struct vec dense = vec(out, "w"), want = { .n = dense.n, .x = new(dense.n, sizeof(double)) };
	struct vec x = { .x = new((size_t)w.in * w.in, sizeof(double)), .dim = { w.in, w.in } };

	for (int i = 0; i < w.in; i++) {
		x.x[i * w.in + i] = 1;
		for (int o = 0; o < w.out; o++)
			want.x[i * w.out + o] = dense.x[o * w.in + i];
	}
	linear_case(like, w, NUMERICS_W4A16, x, want, "w");
}

/* Times the identity the head's logits are its input. */
static void run_rank(struct rig like, const json_t *in, const json_t *out)
{
	struct rig r = rig_new(&like, BLOCK_MLP);
	struct vec x = vec(in, "logits"), ids = vec(out, "ids"), logprobs = vec(out, "logprobs");
	float *identity = new((size_t)x.n * x.n, sizeof(*identity));
	struct logits_row got;
	double seen[20];

	for (int i = 0; i < x.n; i++)
		identity[i * x.n + i] = 1;
	r.model.config.hidden_size = r.model.config.vocab_size = x.n;
	r.model.lm_head = (struct linear){ .name = "lm_head", .out = x.n, .in = x.n, .format = WEIGHT_F32,
					   .weight = identity, .scale = 1 };
	rig_open(&r, 1, 1, 8);
	int32_t *next = rig_ints(&r, -1, 1, 0), first;

	r.b->head(r.dev, next, rig_in(&r, x.x, x.n), &r.model.lm_head, NUMERICS_BF16, rig_ints(&r, (int)ids.x[2], 1, 0),
		  false, 1);
	r.b->logits(r.dev, &got, 1);
	r.b->download(r.dev, &first, next, sizeof(first));
	ck_assert_int_eq(first, (int)ids.x[0]);
	ck_assert_int_eq(got.n_top, x.n < 20 ? x.n : 20);
	ck_assert_int_eq(got.given_rank, 3);
	for (int i = 0; i < ids.n; i++) {
		ck_assert_int_eq(got.top_id[i], (int)ids.x[i]);
		seen[i] = got.top_logit[i] - got.lse;
	}
	compare(&r, "logprob", seen, logprobs.x, ids.n);
	rig_close(&r);
}

/* ---- the table: bounds are shares of the largest |expected| ----
 *
 * f64: sums in another order only.  fp32: 24-bit sums over at most 32 terms, and exp and log of the platform.  bf16:
 * one final rounding is 2^-9 = 2e-3; ops whose inside is rounded too (3.3.2), or whose raw dt is no bf16 number and is
 * rounded on upload, get several of them; the router's weights are never rounded. */
static const struct op {
	const char *name;
	void (*run)(struct rig like, const json_t *in, const json_t *out);
	double f64, fp32, bf16;
} ops[] = {
	{ "rms_norm", run_rms_norm, 1e-12, 1e-6, 4e-3 },
	{ "gated_group_norm", run_gated_norm, 1e-12, 2e-6, 4e-3 },
	{ "silu", run_silu, 1e-12, 1e-6, 4e-3 },
	{ "relu2", run_relu2, 1e-12, 1e-6, 4e-3 },
	{ "dt_softplus", run_dt_softplus, 1e-12, 1e-6, 4e-3 },
	{ "causal_conv", run_causal_conv, 1e-12, 1e-6, 4e-3 },
	{ "ssm_steps", run_ssm_steps, 1e-12, 4e-6, 1e-2 },
	{ "ssm_chunks", run_ssm_chunks, 1e-12, 4e-6, 2e-2 },
	{ "moe_route", run_moe_route, 1e-12, 2e-6, 2e-6 },
	{ "attention", run_attention, 1e-12, 2e-6, 8e-3 },
	{ "fp8_linear", run_fp8_linear, 1e-12, 2e-6, 4e-3 },
	{ "nvfp4_linear", run_nvfp4_linear, 1e-12, 2e-6, 4e-3 },
	{ "nvfp4_dequant", run_nvfp4_dequant, 1e-12, 1e-6, 4e-3 },
	{ "rank", run_rank, 1e-12, 1e-6, 1e-6 },
};

/* Not ops of a backend: the definitions of engine/quant.h. */
static const char *const formats[] = {
	"e4m3_decode", "e4m3_encode", "bf16_round", "e2m1_decode", "e2m1_encode", "e2m1_unpack", "nvfp4_act", "fp8_act",
	"scale_swizzle",
};

/* 1 + 2^-12 is a residual in fp32 and 1 in bf16.  The norm reads the residual rounded to bf16: 1 + 31 x 2^-13 is 1 there,
 * all eight are, their norm is 1, and so w[0] = 1 + 31 x 2^-13 alone rounds to 1; unrounded, the two reach the next
 * number. */
void ops_residual_run(const struct backend *backend)
{
	enum { H = 8 };
	struct arm arm;
	float w[H] = { 1 + 31 * 0x1p-13f, 1, 1, 1, 1, 1, 1, 1 };
	double one[H] = { 1, 1, 1, 1, 1, 1, 1, 1 }, near[H] = { 1 + 31 * 0x1p-13, 1, 1, 1, 1, 1, 1, 1 }, small[H], sum[H];

	arm_init(&arm);
	arm_defaults(&arm);
	arm.value[FACTOR_COMPUTE] = COMPUTE_BF16;
	for (int i = 0; i < H; i++)
		small[i] = 0x1p-12;
	for (int wide = 0; wide < 2; wide++) {
		struct rig like = { .b = backend, .arm = arm, .op = "residual", .note = wide ? "fp32" : "bf16" };
		struct rig r = rig_new(&like, BLOCK_MLP);
		char bytes[H * sizeof(double)];
		void *h, *x;

		r.model.config.residual_in_fp32 = wide;
		r.model.config.hidden_size = H;
		r.layer.norm = w;
		rig_open(&r, 1, 1, 8);
		enum dtype dtype = r.b->residual_dtype(r.dev);

		encode(bytes, dtype, one, H);
		h = rig_bytes(&r, bytes, H * dtype_size(dtype));
		r.b->add(r.dev, h, rig_in(&r, small, H), 1, H);
		decode(sum, dtype, h, H);
		for (int i = 0; i < H; i++)
			ck_assert_msg(sum[i] == (wide ? 1 + 0x1p-12 : 1), "%s, residual in %s: 1 + 2^-12 is %.9g", backend->name,
				      r.note, sum[i]);
		if (wide) {
			encode(bytes, dtype, near, H);
			x = rig_out(&r, H);
			r.b->rms_norm(r.dev, x, rig_bytes(&r, bytes, H * dtype_size(dtype)), w, 1, H, 0);
			rig_check(&r, "x", x, (struct vec){ .x = one, .n = H });
		}
		rig_close(&r);
	}
	free_kept();
}

static json_t *load(void)
{
	json_error_t error;
	json_t *all = json_load_file(FILE_NAME, 0, &error);

	ck_assert_msg(all != NULL, "%s: %s", FILE_NAME, error.text);
	return all;
}

int ops_vectors_count(void)
{
	return sizeof(ops) / sizeof(*ops);
}

const char *ops_vectors_name(int op)
{
	return ops[op].name;
}

void ops_vectors_run(int op, const struct backend *backend, const struct arm *arm)
{
	json_t *all = load(), *cases = json_object_get(all, ops[op].name);
	int compute = arm->value[FACTOR_COMPUTE];
	struct rig like = { .b = backend, .arm = *arm, .op = ops[op].name };

	ck_assert_msg(json_array_size(cases) > 0, "ops.json: no case of %s", ops[op].name);
	like.bound = compute == COMPUTE_F64 ? ops[op].f64 : compute == COMPUTE_FP32 ? ops[op].fp32 : ops[op].bf16;
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *c = json_array_get(cases, i);

		like.note = json_string_value(json_object_get(c, "note"));
		ops[op].run(like, json_object_get(c, "in"), json_object_get(c, "out"));
	}
	json_decref(all);
	free_kept();
}

void ops_vectors_complete(void)
{
	json_t *all = load(), *cases;
	const char *name;

	json_object_foreach(all, name, cases) {
		bool known = false;

		for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
			known |= strcmp(name, ops[i].name) == 0;
		for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
			known |= strcmp(name, formats[i]) == 0;
		ck_assert_msg(known, "ops.json: %s is run by no test", name);
	}
	json_decref(all);
}
