/* ref's device: scratch for one step, rounding, and state arrays of any dtype in host memory. */
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "engine/quant.h"
#include "ref.h"

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

/* The longest input row of any linear module. */
static int widest_row(const struct config *c)
{
	int n = max_int(c->hidden_size, c->d_inner);

	n = max_int(n, c->num_attention_heads * c->head_dim);
	for (int i = 0; i < c->n_blocks[BLOCK_MLP]; i++)
		n = max_int(n, c->intermediate_size[i]);
	n = max_int(n, max_int(c->moe_intermediate_size, c->shared_intermediate_size));
	return max_int(n, c->moe_latent_size);
}

static double *doubles(size_t n, size_t each)
{
	return xcalloc(n ? n : 1, each * sizeof(double));
}

static int ref_open(struct device **out, struct model *m, const struct arm *arm, const struct limits *limits,
		    struct counters *counters, struct err *err)
{
	struct device *dev = xcalloc(1, sizeof(*dev));
	const struct config *c = &m->config;
	int chunk = c->chunk_size < limits->rows ? c->chunk_size : limits->rows;
	int per_kv = c->num_key_value_heads ? c->num_attention_heads / c->num_key_value_heads : 0;
	int X = c->moe_latent_size ? c->moe_latent_size : c->hidden_size;
	size_t rows = c->n_routed_experts ? (size_t)limits->rows * c->num_experts_per_tok : 0;
	size_t state = (size_t)c->d_inner * c->ssm_state_size;

	(void)counters;
	(void)err;
	dev->config = c;
	dev->compute = arm->value[FACTOR_COMPUTE];
	dev->limits = *limits;
	dev->widest = widest_row(c);
	dev->product_rows = max_int(max_int(limits->rows, limits->slots), (int)rows);
	for (int i = 0; i < 256; i++)
		dev->e4m3[i] = e4m3_table[i];
	for (int i = 0; i < 16; i++)
		dev->e2m1[i] = e2m1_table[i];
	dev->weight_row = doubles(dev->widest, 1);
	dev->quantised = doubles(dev->product_rows, dev->widest);
	dev->codes = xcalloc(dev->widest, 1);
	dev->block_scales = doubles(dev->widest / 16 + 1, 1);
	dev->window = doubles(c->conv_kernel, 1);
	dev->state = doubles(state, 1);
	dev->chunk_state = doubles(state, 1);
	dev->dt = doubles(chunk, c->mamba_num_heads);
	dev->decay = doubles(chunk, c->mamba_num_heads);
	dev->pair = doubles(chunk, 1);
	dev->b_row = doubles(c->ssm_state_size, 1);
	dev->scores = doubles(per_kv, limits->len);
	dev->kv_row = doubles(c->head_dim, 1);
	dev->choice = doubles(2 * (size_t)c->n_routed_experts + c->n_group, 1);
	dev->expert_in = doubles(rows, X);
	dev->expert_up = doubles(rows, c->moe_intermediate_size);
	dev->expert_out = doubles(rows, X);
	dev->expert_rows = xcalloc(rows + 1, sizeof(*dev->expert_rows));
	dev->logits = doubles(limits->slots, c->vocab_size);
	dev->result = xcalloc(limits->slots, sizeof(*dev->result));
	*out = dev;
	return 0;
}

static void ref_close(struct device *dev)
{
	double *owned[] = {
		dev->weight_row, dev->quantised, dev->block_scales, dev->window, dev->state, dev->chunk_state, dev->dt,
		dev->decay, dev->pair, dev->b_row, dev->scores, dev->kv_row, dev->choice, dev->expert_in,
		dev->expert_up, dev->expert_out, dev->logits,
	};

	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		free(owned[i]);
	free(dev->codes);
	free(dev->expert_rows);
	free(dev->result);
	free(dev);
}

static enum dtype ref_dtype(struct device *dev)
{
	(void)dev;
	return DTYPE_F64;
}

static void ref_copy(struct device *dev, void *to, const void *from, size_t bytes)
{
	(void)dev;
	memcpy(to, from, bytes);
}

static void ref_act_to_host(struct device *dev, double *to, const void *from, size_t n)
{
	ref_copy(dev, to, from, n * sizeof(*to));
}

static void ref_act_from_host(struct device *dev, void *to, const double *from, size_t n)
{
	ref_copy(dev, to, from, n * sizeof(*from));
}

static void *element(struct state_view v, size_t at)
{
	return (char *)v.data + at * dtype_size(v.dtype);
}

static void ref_state_clear(struct device *dev, struct state_view v, int slot, size_t n)
{
	(void)dev;
	memset(element(v, slot * v.stride), 0, n * dtype_size(v.dtype));
}

static void ref_gather(struct device *dev, struct state_view to, struct state_view from, const int32_t *slots, size_t n,
		       int rows)
{
	for (int r = 0; r < rows; r++)
		ref_copy(dev, element(to, r * to.stride), element(from, slots[r] * from.stride),
			 n * dtype_size(from.dtype));
}

static void ref_scatter(struct device *dev, struct state_view to, struct state_view from, const int32_t *slots, size_t n,
			int rows)
{
	for (int r = 0; r < rows; r++)
		ref_copy(dev, element(to, slots[r] * to.stride), element(from, r * from.stride),
			 n * dtype_size(from.dtype));
}

/* One rounding from double: adds just under half of the last place kept (and its own bit, for ties to even). */
double ref_bf16(double x)
{
	uint64_t u;
	const uint64_t half = (uint64_t)1 << 44;

	memcpy(&u, &x, sizeof(u));
	uint64_t exponent = u >> 52 & 0x7ff;
	if (exponent < 1023 - 126 || exponent >= 1023 + 127)   /* subnormal in bf16, near overflow, not finite */
		return bf16_round((float)x);
	u += half - 1 + (u >> 45 & 1);
	u &= ~(2 * half - 1);
	memcpy(&x, &u, sizeof(x));
	return x;
}

void ref_round(const struct device *dev, double *x, size_t n)
{
	if (dev->compute == COMPUTE_BF16)
		for (size_t i = 0; i < n; i++)
			x[i] = ref_bf16(x[i]);
	else if (dev->compute == COMPUTE_FP32)
		for (size_t i = 0; i < n; i++)
			x[i] = (float)x[i];
}

void ref_load(double *to, struct state_view v, size_t at, size_t n)
{
	const void *from = element(v, at);

	switch (v.dtype) {
	case DTYPE_F64:
		memcpy(to, from, n * sizeof(*to));
		return;
	case DTYPE_F32:
		for (size_t i = 0; i < n; i++)
			to[i] = ((const float *)from)[i];
		return;
	case DTYPE_BF16:
		for (size_t i = 0; i < n; i++)
			to[i] = bf16_to_float(((const uint16_t *)from)[i]);
		return;
	case DTYPE_F16:
		for (size_t i = 0; i < n; i++)
			to[i] = fp16_to_float(((const uint16_t *)from)[i]);
		return;
	case DTYPE_FP8:
		for (size_t i = 0; i < n; i++)
			to[i] = e4m3_table[((const uint8_t *)from)[i]];
		return;
	}
	BUG("dtype %d", v.dtype);
}

void ref_store(struct state_view v, size_t at, const double *from, size_t n)
{
	void *to = element(v, at);

	switch (v.dtype) {
	case DTYPE_F64:
		memcpy(to, from, n * sizeof(*from));
		return;
	case DTYPE_F32:
		for (size_t i = 0; i < n; i++)
			((float *)to)[i] = (float)from[i];
		return;
	case DTYPE_BF16:
		for (size_t i = 0; i < n; i++)
			((uint16_t *)to)[i] = bf16_from_float((float)ref_bf16(from[i]));
		return;
	case DTYPE_F16:
		for (size_t i = 0; i < n; i++)
			((uint16_t *)to)[i] = fp16_from_float((float)from[i]);
		return;
	case DTYPE_FP8:
		for (size_t i = 0; i < n; i++)
			((uint8_t *)to)[i] = e4m3_encode(from[i]);
		return;
	}
	BUG("dtype %d", v.dtype);
}

const struct backend ref_backend = {
	.name = "ref",
	.open = ref_open,
	.close = ref_close,
	.alloc = host_alloc,
	.free = host_free,
	.act_dtype = ref_dtype,
	.residual_dtype = ref_dtype,
	.upload = ref_copy,
	.download = ref_copy,
	.act_to_host = ref_act_to_host,
	.act_from_host = ref_act_from_host,
	.embed = ref_embed,
	.rms_norm = ref_rms_norm,
	.add = ref_add,
	.linear = ref_linear,
	.conv_step = ref_conv_step,
	.conv_scan = ref_conv_scan,
	.ssm_step = ref_ssm_step,
	.ssm_scan = ref_ssm_scan,
	.gated_norm = ref_gated_norm,
	.attention = ref_attention,
	.relu2 = ref_relu2,
	.route = ref_route,
	.experts = ref_experts,
	.combine = ref_combine,
	.head = ref_head,
	.logits = ref_logits,
	.logits_all = ref_logits_all,
	.state_clear = ref_state_clear,
	.gather = ref_gather,
	.scatter = ref_scatter,
};
