/* The op table of backend: cuda.  Each op is one or two launches; forward.c counts what they mean, RUN how many. */
#include <math.h>
#include <string.h>
#include <xxhash.h>
#include "contract/err.h"
#include "ops.h"

_Static_assert((int)FORMAT_BF16 == WEIGHT_BF16 && (int)FORMAT_F16 == WEIGHT_F16 && (int)FORMAT_F32 == WEIGHT_F32 &&
	       (int)FORMAT_FP8 == WEIGHT_FP8 && (int)FORMAT_NVFP4 == WEIGHT_NVFP4 && (int)N_FORMATS == N_WEIGHT_FORMATS,
	       "launch.h repeats enum weight_format");

int kind_of(enum dtype d)
{
	switch (d) {
	case DTYPE_F32: return KIND_F32;
	case DTYPE_BF16: return KIND_BF16;
	case DTYPE_F16: return KIND_F16;
	case DTYPE_FP8: return KIND_FP8;
	case DTYPE_F64: break;
	}
	BUG("dtype %d on a cuda device", d);
}

/* ---- norms and elementwise ---- */

static void cuda_embed(struct device *dev, void *h, const int32_t *ids, const struct linear *table, int T)
{
	const struct matrix *m = table->prepared;

	keep_logits(dev);

	RUN(dev, launch_embed(h, ids, m->raw, T, table->in, dev->bf16, dev->stream));
}

static void cuda_rms_norm(struct device *dev, void *x, const void *h, const float *w, int T, int H, double eps)
{
	norm_later(dev, x, (void *)h, NULL, w, T, H, eps);
}

static void cuda_add_rms_norm(struct device *dev, void *x, void *h, const void *y, const float *w, int T, int H, double eps)
{
	norm_later(dev, x, h, y, w, T, H, eps);
}

static void cuda_add(struct device *dev, void *h, const void *y, int T, int H)
{
	struct residual r = residual_of(dev, h, y, H);

	if (r.y || r.down)                            /* else the mixer has added its output */
		RUN(dev, launch_residual(r, T, dev->stream));
}

static void cuda_combine(struct device *dev, void *y, const void *x, int T, int n)
{
	RUN(dev, launch_add(y, x, (int64_t)T * n, dev->bf16, dev->stream));
}

static void cuda_gated_norm(struct device *dev, void *y, const void *z, int ldz, const float *w, int T, int channels,
			    int groups, double eps)
{
	struct gated_args a = {
		.y = y, .z = z, .w = device_vector(dev, w), .ldz = ldz, .channels = channels, .groups = groups,
		.bf16 = dev->bf16, .eps = (float)eps, .input_scale = 1,
	};

	RUN(dev, launch_gated_norm(a, T, dev->stream));
}

static void cuda_relu2(struct device *dev, void *x, int T, int n)
{
	RUN(dev, launch_relu2(x, (int64_t)T * n, dev->bf16, dev->stream));
}

/* ---- Mamba-2 ---- */

static void cuda_conv_step(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv,
			   const int32_t *slots, const float *w, const float *bias, int channels, int kernel, int rows)
{
	RUN(dev, launch_conv_step(u, xbc, ldx, conv.data, (int64_t)conv.stride, slots, device_vector(dev, w),
				  device_vector(dev, bias), channels, kernel, rows, dev->bf16, dev->stream));
}

static void cuda_conv_scan(struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, int slot,
			   const float *w, const float *bias, int channels, int kernel, int T)
{
	RUN(dev, launch_conv_scan(u, xbc, ldx, (float *)conv.data + slot * conv.stride, device_vector(dev, w),
				  device_vector(dev, bias), channels, kernel, T, dev->bf16, dev->stream));
}

struct ssm_args ssm_args(const struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt,
				struct state_view ssm, const struct mamba *w, const struct ssm_shape *shape,
				const double limit[2])
{
	return (struct ssm_args){
		.y = y, .u = u, .dt = dt, .ldu = ldu, .lddt = lddt, .state = ssm.data, .stride = (int64_t)ssm.stride,
		.A = device_vector(dev, w->A), .D = device_vector(dev, w->D), .dt_bias = device_vector(dev, w->dt_bias),
		.lo = (float)limit[0], .hi = (float)limit[1], .heads = shape->heads, .head_dim = shape->head_dim,
		.groups = shape->groups, .state_size = shape->state, .kind = kind_of(ssm.dtype), .bf16 = dev->bf16,
	};
}

static void cuda_ssm_step(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt,
			  struct state_view ssm, const int32_t *slots, const struct mamba *w,
			  const struct ssm_shape *shape, const double limit[2], int rows)
{
	RUN(dev, launch_ssm_step(ssm_args(dev, y, u, ldu, dt, lddt, ssm, w, shape, limit), slots, rows, dev->stream));
}

static void cuda_ssm_scan(struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt,
			  struct state_view ssm, int slot, const struct mamba *w, const struct ssm_shape *shape,
			  const double limit[2], int T, int64_t pos)
{
	struct ssm_args a = ssm_args(dev, y, u, ldu, dt, lddt, ssm, w, shape, limit);
	struct scan_args c = { .T = T, .Q = shape->chunk_size, .sums = dev->scan_sums, .states = dev->scan_states };

	a.state = (char *)ssm.data + slot * ssm.stride * dtype_size(ssm.dtype);
	if (T == 1 && shape->state <= 256) {
		RUN(dev, launch_ssm_chunk_token(a, dev->stream));
		return;
	}
	c.first = c.Q - (int)(pos % c.Q);
	c.first = c.first < T ? c.first : T;
	c.chunks = 1 + (T - c.first + c.Q - 1) / c.Q;
	RUN(dev, launch_ssm_chunk_state(a, c, dev->stream));
	RUN(dev, launch_ssm_chunk_pass(a, c, dev->stream));
	RUN(dev, launch_ssm_chunk_out(a, c, dev->stream));
}

/* ---- attention ---- */

/* Few rows: a block for each split, then a merge.  Many rows: a block takes all splits; the arithmetic is the same. */
void attend(struct device *dev, struct attn_args a, int T)
{
	bool split = dev->attn_part && T <= dev->part_rows;

	a.part = split ? dev->attn_part : NULL;
	a.splits = dev->splits;
	a.bf16 = dev->bf16;
	RUN(dev, launch_attention(a, T, dev->stream));
	if (split)
		RUN(dev, launch_attention_merge(a, T, dev->stream));
}

struct attn_args attn_args(void *y, const void *q, const void *k, const void *v, struct state_view k_cache,
			   struct state_view v_cache, const int32_t *slots, const int32_t *pos,
			   const struct attn_shape *shape, float k_scale, float v_scale)
{
	return (struct attn_args){
		.y = y, .q = q, .k = k, .v = v, .k_cache = k_cache.data, .v_cache = v_cache.data,
		.k_stride = (int64_t)k_cache.stride, .v_stride = (int64_t)v_cache.stride, .slots = slots, .pos = pos,
		.k_scale = k_scale, .v_scale = v_scale, .heads = shape->heads, .kv_heads = shape->kv_heads,
		.head_dim = shape->head_dim, .kind = kind_of(k_cache.dtype),
	};
}

static void cuda_attention(struct device *dev, void *y, const void *q, const void *k, const void *v,
			   struct state_view k_cache, struct state_view v_cache, const int32_t *slots, const int32_t *pos,
			   const struct attn_shape *shape, float k_scale, float v_scale, int T)
{
	struct attn_args a = attn_args(y, q, k, v, k_cache, v_cache, slots, pos, shape, k_scale, v_scale);

	RUN(dev, launch_kv_append(a, T, dev->stream));
	attend(dev, a, T);
}

/* ---- router and head ---- */

struct route_args route_args(const struct device *dev, const float *bias, const struct route_shape *shape)
{
	return (struct route_args){
		.logits = dev->route_logits, .bias = device_vector(dev, bias), .E = shape->experts,
		.k = shape->per_token, .n_group = shape->n_group, .topk_group = shape->topk_group,
		.norm = shape->norm_topk_prob, .scaling = (float)shape->scaling,
	};
}

static void cuda_route(struct device *dev, int32_t *expert, void *weight, const void *x, const float *gate,
		       const float *bias, int H, const struct route_shape *shape, int T)
{
	RUN(dev, launch_route_logits(dev->route_logits, x, device_vector(dev, gate), shape->experts, H, T, dev->stream));
	RUN(dev, launch_route(expert, weight, route_args(dev, bias, shape), T, dev->stream));
}

static void cuda_head(struct device *dev, int32_t *next, const void *x, const struct linear *w, enum numerics numerics,
		      const int32_t *given, bool head_bf16, int rows)
{
	cuda_logits_product(dev, dev->logits, x, w, numerics, head_bf16, rows);
	RUN(dev, launch_head_slice(dev->head_part, dev->logits, given, w->out, rows, dev->stream));
	RUN(dev, launch_head_merge(dev->head_rows, next, dev->head_part, dev->logits, given, w->out, rows, dev->stream));
}

/* The rows of logits follow on a stream of their own, while the next step runs. */
static void copy_logits(struct device *dev, int rows)
{
	size_t bytes = (size_t)rows * dev->model->config.vocab_size * sizeof(float);

	TRY(dev, cudaEventRecord(dev->headed, dev->stream));
	TRY(dev, cudaStreamWaitEvent(dev->copies, dev->headed, 0));
	TRY(dev, cudaMemcpyAsync(dev->host_logits, dev->logits, bytes, cudaMemcpyDeviceToHost, dev->copies));
	TRY(dev, cudaEventRecord(dev->copied, dev->copies));
	dev->copying = true;
}

void keep_logits(struct device *dev)
{
	if (dev->copying)
		TRY(dev, cudaStreamWaitEvent(dev->stream, dev->copied, 0));
	dev->copying = false;
}

static void cuda_hashes(struct device *dev, uint64_t *out, int rows)
{
	size_t V = dev->model->config.vocab_size;

	TRY(dev, cudaEventSynchronize(dev->copied));
	for (int r = 0; r < rows; r++)
		out[r] = XXH64(dev->host_logits + r * V, V * sizeof(float), 0);
}

static void cuda_logits(struct device *dev, struct logits_row *out, int rows)
{
	int V = dev->model->config.vocab_size;

	TRY(dev, cudaMemcpyAsync(dev->host_rows, dev->head_rows, rows * sizeof(*dev->host_rows), cudaMemcpyDeviceToHost,
				 dev->stream));
	copy_logits(dev, rows);
	TRY(dev, cudaStreamSynchronize(dev->stream));
	dev->ring_at = 0;
	for (int r = 0; r < rows; r++) {
		const struct head_row *h = &dev->host_rows[r];

		out[r] = (struct logits_row){
			.n_top = V < TOP_N ? V : TOP_N, .lse = h->lse, .given_rank = h->given_rank,
			.given_logit = h->given_logit,
		};
		for (int i = 0; i < out[r].n_top; i++) {
			out[r].top_id[i] = h->top_id[i];
			out[r].top_logit[i] = h->top_logit[i];
		}
	}
}

static void cuda_logits_all(struct device *dev, double *out, int row)
{
	int V = dev->model->config.vocab_size;

	TRY(dev, cudaEventSynchronize(dev->copied));
	for (int i = 0; i < V; i++)
		out[i] = dev->host_logits[(size_t)row * V + i];
}

/* ---- state ---- */

static void cuda_state_clear(struct device *dev, struct state_view v, int slot, size_t n)
{
	size_t size = dtype_size(v.dtype);

	TRY(dev, cudaMemsetAsync((char *)v.data + slot * v.stride * size, 0, n * size, dev->stream));
}

static void copy_rows(struct device *dev, struct state_view to, const int32_t *slot_to, struct state_view from,
		      const int32_t *slot_from, size_t n, int rows)
{
	int64_t size = (int64_t)dtype_size(from.dtype);

	RUN(dev, launch_copy_rows(to.data, (int64_t)to.stride * size, slot_to, from.data, (int64_t)from.stride * size,
				  slot_from, (int64_t)n * size, rows, dev->stream));
}

static void cuda_gather(struct device *dev, struct state_view to, struct state_view from, const int32_t *slots, size_t n,
			int rows)
{
	copy_rows(dev, to, NULL, from, slots, n, rows);
}

static void cuda_scatter(struct device *dev, struct state_view to, struct state_view from, const int32_t *slots, size_t n,
			 int rows)
{
	copy_rows(dev, to, slots, from, NULL, n, rows);
}

const struct backend cuda_backend = {
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.alloc = cuda_alloc,
	.free = device_free,
	.act_dtype = cuda_act_dtype,
	.residual_dtype = cuda_act_dtype,
	.upload = cuda_upload,
	.download = cuda_download,
	.act_to_host = cuda_act_to_host,
	.act_from_host = cuda_act_from_host,
	.embed = cuda_embed,
	.rms_norm = cuda_rms_norm,
	.add = cuda_add,
	.add_rms_norm = cuda_add_rms_norm,
	.mixer_step = cuda_mixer_step,
	.linear = cuda_linear,
	.conv_step = cuda_conv_step,
	.conv_scan = cuda_conv_scan,
	.ssm_step = cuda_ssm_step,
	.ssm_scan = cuda_ssm_scan,
	.gated_norm = cuda_gated_norm,
	.attention = cuda_attention,
	.relu2 = cuda_relu2,
	.route = cuda_route,
	.experts = cuda_experts,
	.combine = cuda_combine,
	.head = cuda_head,
	.logits = cuda_logits,
	.hashes = cuda_hashes,
	.logits_all = cuda_logits_all,
	.state_clear = cuda_state_clear,
	.gather = cuda_gather,
	.scatter = cuda_scatter,
	.graph_replay = cuda_graph_replay,
	.graph_begin = cuda_graph_begin,
	.graph_end = cuda_graph_end,
	.watch = cuda_watch,
	.window = cuda_window,
	.describe = cuda_describe,
	.audit_begin = cuda_audit_begin,
	.audit_end = cuda_audit_end,
	.profile_begin = cuda_profile_begin,
	.profile_end = cuda_profile_end,
	.copy_rate = cuda_copy_rate,
};
