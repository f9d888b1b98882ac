#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "attn.h"
#include "contract/err.h"
#include "device.h"
#include "engine/quant.h"
#include "profile.h"
#include "ssm.h"

enum { ALIGN = 64 };

static size_t max_size(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* ---- scratch: one arena, cut twice: first only counted, then handed out ---- */

struct cutter { char *base; size_t used; };

static void *cut(struct cutter *c, size_t bytes)
{
	size_t at = c->used;

	c->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
	return c->base ? c->base + at : NULL;
}

static void *cut_floats(struct cutter *c, size_t rows, size_t each)
{
	return cut(c, rows * each * sizeof(float));
}

/* The longest operand row of any product: linear modules, and those of the chunk scan and attention. */
static int widest_row(const struct config *c)
{
	size_t n = max_size((size_t)c->hidden_size, (size_t)c->d_inner);

	n = max_size(n, (size_t)c->num_attention_heads * (size_t)c->head_dim);
	for (int i = 0; i < c->n_blocks[BLOCK_MLP]; i++)
		n = max_size(n, (size_t)c->intermediate_size[i]);
	n = max_size(n, max_size((size_t)c->moe_intermediate_size, (size_t)c->shared_intermediate_size));
	n = max_size(n, max_size((size_t)c->moe_latent_size, (size_t)c->ssm_state_size));
	return (int)n;
}

static void cut_moe(struct device *dev, struct cutter *a)
{
	const struct config *c = dev->config;
	size_t slots = (size_t)dev->block_rows * (size_t)c->num_experts_per_tok, E = (size_t)c->n_routed_experts;
	int X = c->moe_latent_size ? c->moe_latent_size : c->hidden_size;

	dev->expert_stride = max_size(dev->level->packed_bytes(X), dev->level->packed_bytes(c->moe_intermediate_size));
	dev->slot_token = cut(a, slots * sizeof(int32_t));
	dev->slot_expert = cut(a, slots * sizeof(int32_t));
	dev->slot_at = cut(a, slots * sizeof(int32_t));
	dev->expert_start = cut(a, (E + 1) * sizeof(int32_t));
	dev->active = cut(a, E * sizeof(int32_t));
	dev->router = cut_floats(a, (size_t)dev->block_rows, E);
	dev->expert_mid = cut_floats(a, slots, (size_t)c->moe_intermediate_size);
	dev->expert_out = cut_floats(a, slots, (size_t)X);
	dev->expert_packed = cut(a, slots * dev->expert_stride);
}

static void cut_thread(const struct device *dev, struct thread_scratch *t, struct cutter *a)
{
	const struct config *c = dev->config;
	struct ssm_shape ssm = {c->mamba_num_heads, c->mamba_head_dim, c->n_groups, c->ssm_state_size, c->conv_kernel,
				c->chunk_size};
	struct attn_shape attn = {c->num_attention_heads, c->num_key_value_heads, c->head_dim};
	struct thread_scratch s = {0};
	int widest = widest_row(c);

	s.panel = cut(a, dev->level->panel_bytes(widest));
	s.row = cut_floats(a, 1, (size_t)widest);
	if (c->n_blocks[BLOCK_MOE])
		s.choice = cut_floats(a, 1, (size_t)c->n_routed_experts + (size_t)c->n_group + 16);
	if (c->n_blocks[BLOCK_MAMBA])
		s.ssm = cut_floats(a, 1, chunk_scratch_layout(NULL, &ssm).floats);
	if (c->n_blocks[BLOCK_ATTN])
		s.attn = cut_floats(a, 1, attn_scratch_layout(NULL, &attn).floats);
	if (a->base)
		*t = s;
}

static void cut_arena(struct device *dev, struct cutter *a, const struct limits *limits)
{
	const struct config *c = dev->config;
	size_t threads = (size_t)pool_threads(dev->pool);
	struct ssm_shape ssm = {c->mamba_num_heads, c->mamba_head_dim, c->n_groups, c->ssm_state_size, c->conv_kernel,
				c->chunk_size};

	dev->threads = cut(a, threads * sizeof(*dev->threads));
	dev->packed = cut(a, (size_t)dev->block_rows * dev->level->packed_bytes(widest_row(c)));
	dev->logits = cut_floats(a, (size_t)limits->slots, (size_t)c->vocab_size);
	dev->result = cut(a, (size_t)limits->slots * sizeof(*dev->result));
	if (c->n_blocks[BLOCK_MOE])
		cut_moe(dev, a);
	if (c->n_blocks[BLOCK_MAMBA])
		dev->ssm_shared = cut(a, chunk_shared_layout(NULL, &ssm).bytes);
	for (size_t i = 0; i < threads; i++)
		cut_thread(dev, dev->threads + (a->base ? i : 0), a);
}

/* ---- life ---- */

static void cpu_close(struct device *dev)
{
	pool_release(dev->pool);
	host_free(dev, dev->arena);
	free(dev);
}

static int cpu_open(struct device **out, struct model *m, const struct arm *arm, const struct limits *limits,
		    struct counters *counters, struct err *err)
{
	int threads = arm->value[FACTOR_THREADS];
	size_t rows = max_size((size_t)limits->rows, (size_t)limits->slots);
	struct device *dev;
	struct cutter a = {0};

	(void)counters;
	if (arm->value[FACTOR_COMPUTE] == COMPUTE_F64)
		return err_set(err, ERR_INPUT, "compute: f64 is for backend ref alone");
	if (m->config.n_blocks[BLOCK_MAMBA] && m->config.conv_kernel > MAX_KERNEL)
		return err_set(err, ERR_CANNOT_RUN, "backend cpu: conv_kernel %d, built for at most %d", m->config.conv_kernel,
			       MAX_KERNEL);
	dev = xcalloc(1, sizeof(*dev));
	dev->level = level_current();
	dev->config = &m->config;
	dev->bf16 = arm->value[FACTOR_COMPUTE] == COMPUTE_BF16;
	dev->block_rows = rows < BLOCK_ROWS ? (int)rows : BLOCK_ROWS;
	if (pool_open(&dev->pool, threads > 0 ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN), err)) {
		free(dev);
		return -1;
	}
	cut_arena(dev, &a, limits);
	dev->arena = host_alloc(dev, a.used);
	cut_arena(dev, &(struct cutter){.base = dev->arena}, limits);
	*out = dev;
	return 0;
}

static enum dtype cpu_dtype(struct device *dev)
{
	(void)dev;
	return DTYPE_F32;
}

static void cpu_copy(struct device *dev, void *to, const void *from, size_t bytes)
{
	(void)dev;
	memcpy(to, from, bytes);
}

static void cpu_act_to_host(struct device *dev, double *to, const void *from, size_t n)
{
	(void)dev;
	for (size_t i = 0; i < n; i++)
		to[i] = ((const float *)from)[i];
}

static void cpu_act_from_host(struct device *dev, void *to, const double *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((float *)to)[i] = dev->bf16 ? bf16_round((float)from[i]) : (float)from[i];
}

/* ---- state ---- */

static char *slot_row(struct state_view v, size_t row)
{
	return (char *)v.data + row * v.stride * dtype_size(v.dtype);
}

static void cpu_state_clear(struct device *dev, struct state_view v, int slot, size_t n)
{
	(void)dev;
	memset(slot_row(v, (size_t)slot), 0, n * dtype_size(v.dtype));
}

static void cpu_gather(struct device *dev, struct state_view to, struct state_view from, const int32_t *slots, size_t n,
		       int rows)
{
	(void)dev;
	for (int r = 0; r < rows; r++)
		memcpy(slot_row(to, (size_t)r), slot_row(from, (size_t)slots[r]), n * dtype_size(from.dtype));
}

static void cpu_scatter(struct device *dev, struct state_view to, struct state_view from, const int32_t *slots, size_t n,
			int rows)
{
	(void)dev;
	for (int r = 0; r < rows; r++)
		memcpy(slot_row(to, (size_t)slots[r]), slot_row(from, (size_t)r), n * dtype_size(from.dtype));
}

static void cpu_logits(struct device *dev, struct logits_row *out, int rows)
{
	memcpy(out, dev->result, (size_t)rows * sizeof(*out));
}

static void cpu_logits_all(struct device *dev, double *out, int row)
{
	size_t n = (size_t)dev->config->vocab_size;

	cpu_act_to_host(dev, out, dev->logits + (size_t)row * n, n);
}

/* ---- ops: those of the level that `open` chose ---- */

#define FORWARD(op, params, args) static void cpu_##op params TIMED(op, args, NULL)
#define TIMED(op, args, module) {			\
	double start = profile_start();			\
							\
	dev->level->ops->op args;			\
	profile_stop(start, #op, module);		\
}
FORWARD(embed, (struct device *dev, void *h, const int32_t *ids, const struct linear *table, int T), (dev, h, ids, table, T))
FORWARD(rms_norm, (struct device *dev, void *x, const void *h, const float *w, int T, int H, double eps),
	(dev, x, h, w, T, H, eps))
FORWARD(add, (struct device *dev, void *h, const void *y, int T, int H), (dev, h, y, T, H))
FORWARD(add_rms_norm, (struct device *dev, void *x, void *h, const void *y, const float *w, int T, int H, double eps),
	(dev, x, h, y, w, T, H, eps))
static void cpu_linear(struct device *dev, void *y, int ldy, const void *x, int ldx, const struct linear *w,
		       enum numerics numerics, int T)
TIMED(linear, (dev, y, ldy, x, ldx, w, numerics, T), w->name)
FORWARD(conv_step, (struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, const int32_t *slots,
		    const float *w, const float *bias, int channels, int kernel, int rows),
	(dev, u, xbc, ldx, conv, slots, w, bias, channels, kernel, rows))
FORWARD(conv_scan, (struct device *dev, void *u, const void *xbc, int ldx, struct state_view conv, int slot, const float *w,
		    const float *bias, int channels, int kernel, int T),
	(dev, u, xbc, ldx, conv, slot, w, bias, channels, kernel, T))
FORWARD(ssm_step, (struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt, struct state_view ssm,
		   const int32_t *slots, const struct mamba *w, const struct ssm_shape *shape, const double limit[2], int rows),
	(dev, y, u, ldu, dt, lddt, ssm, slots, w, shape, limit, rows))
FORWARD(ssm_scan, (struct device *dev, void *y, const void *u, int ldu, const void *dt, int lddt, struct state_view ssm,
		   int slot, const struct mamba *w, const struct ssm_shape *shape, const double limit[2], int T, int64_t pos),
	(dev, y, u, ldu, dt, lddt, ssm, slot, w, shape, limit, T, pos))
FORWARD(gated_norm, (struct device *dev, void *y, const void *z, int ldz, const float *w, int T, int channels, int groups,
		     double eps), (dev, y, z, ldz, w, T, channels, groups, eps))
FORWARD(attention, (struct device *dev, void *y, const void *q, const void *k, const void *v, struct state_view k_cache,
		    struct state_view v_cache, const int32_t *slots, const int32_t *pos, const struct attn_shape *shape,
		    float k_scale, float v_scale, int T),
	(dev, y, q, k, v, k_cache, v_cache, slots, pos, shape, k_scale, v_scale, T))
FORWARD(relu2, (struct device *dev, void *x, int T, int n), (dev, x, T, n))
FORWARD(route, (struct device *dev, int32_t *expert, void *weight, const void *x, const float *gate, const float *bias, int H,
		const struct route_shape *shape, int T), (dev, expert, weight, x, gate, bias, H, shape, T))
FORWARD(experts, (struct device *dev, void *y, const void *x, const int32_t *expert, const void *weight, const struct moe *w,
		  struct rule rule, int per_token, int X, int T), (dev, y, x, expert, weight, w, rule, per_token, X, T))
FORWARD(combine, (struct device *dev, void *y, const void *x, int T, int n), (dev, y, x, T, n))
FORWARD(head, (struct device *dev, int32_t *next, const void *x, const struct linear *w, enum numerics numerics,
	       const int32_t *given, bool head_bf16, int rows), (dev, next, x, w, numerics, given, head_bf16, rows))

const struct backend cpu_backend = {
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	.alloc = host_alloc,
	.free = host_free,
	.act_dtype = cpu_dtype,
	.residual_dtype = cpu_dtype,
	.upload = cpu_copy,
	.download = cpu_copy,
	.act_to_host = cpu_act_to_host,
	.act_from_host = cpu_act_from_host,
	.embed = cpu_embed,
	.rms_norm = cpu_rms_norm,
	.add = cpu_add,
	.add_rms_norm = cpu_add_rms_norm,
	.linear = cpu_linear,
	.conv_step = cpu_conv_step,
	.conv_scan = cpu_conv_scan,
	.ssm_step = cpu_ssm_step,
	.ssm_scan = cpu_ssm_scan,
	.gated_norm = cpu_gated_norm,
	.attention = cpu_attention,
	.relu2 = cpu_relu2,
	.route = cpu_route,
	.experts = cpu_experts,
	.combine = cpu_combine,
	.head = cpu_head,
	.logits = cpu_logits,
	.logits_all = cpu_logits_all,
	.state_clear = cpu_state_clear,
	.gather = cpu_gather,
	.scatter = cpu_scatter,
};
