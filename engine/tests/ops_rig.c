#include "ops_rig.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include "contract/err.h"
#include "engine/quant.h"

/* ---- memory of one run, freed at its end ---- */

static void **kept;
static int n_kept;

static void *keep(void *p)
{
	kept = xrealloc(kept, n_kept + 1, sizeof(*kept));
	return kept[n_kept++] = p;
}

void *new(size_t n, size_t size)
{
	return keep(xcalloc(n, size));
}

void free_kept(void)
{
	while (n_kept > 0)
		free(kept[--n_kept]);
	free(kept);
	kept = NULL;
}

/* ---- reading ---- */

static double number(const json_t *v)
{
	if (json_is_string(v))
		return strtod(json_string_value(v), NULL);   /* "NaN", "Infinity", "-Infinity" */
	ck_assert_msg(json_is_number(v), "ops.json: a number expected");
	return json_number_value(v);
}

static void flatten(struct vec *to, const json_t *v, int depth)
{
	if (!json_is_array(v)) {
		to->x = xrealloc(to->x, to->n + 1, sizeof(*to->x));
		to->x[to->n++] = number(v);
		return;
	}
	to->dim[depth] = (int)json_array_size(v);
	if (to->rank < depth + 1)
		to->rank = depth + 1;
	for (size_t i = 0; i < json_array_size(v); i++)
		flatten(to, json_array_get(v, i), depth + 1);
}

struct vec vec(const json_t *in, const char *key)
{
	struct vec v = {0};

	ck_assert_msg(json_object_get(in, key) != NULL, "ops.json: no %s", key);
	flatten(&v, json_object_get(in, key), 0);
	keep(v.x);
	return v;
}

int integer(const json_t *in, const char *key)
{
	return (int)json_integer_value(json_object_get(in, key));
}

double real(const json_t *in, const char *key)
{
	return number(json_object_get(in, key));
}

float *floats(const json_t *in, const char *key)
{
	struct vec v = vec(in, key);
	float *f = new(v.n, sizeof(*f));

	for (int i = 0; i < v.n; i++)
		f[i] = (float)v.x[i];
	return f;
}

uint8_t *bytes(const json_t *in, const char *key)
{
	struct vec v = vec(in, key);
	uint8_t *b = new(v.n, 1);

	for (int i = 0; i < v.n; i++)
		b[i] = (uint8_t)v.x[i];
	return b;
}

/* ---- a backend around one fake layer ---- */

struct rig rig_new(const struct rig *like, enum block block)
{
	struct rig r = *like;

	r.model = (struct model){ .dir = (char *)"fake", .name = (char *)"fake" };
	r.layer = (struct layer){ .block = block };
	r.block = block;
	r.model.config = (struct config){
		.vocab_size = 16, .hidden_size = 16, .num_hidden_layers = 1, .num_attention_heads = 2,
		.num_key_value_heads = 1, .head_dim = 8, .mamba_num_heads = 2, .mamba_head_dim = 8, .n_groups = 1,
		.ssm_state_size = 8, .conv_kernel = 4, .chunk_size = 4, .d_inner = 16, .conv_dim = 32,
		.n_routed_experts = 2, .num_experts_per_tok = 1, .moe_intermediate_size = 8, .n_group = 1,
		.topk_group = 1, .routed_scaling_factor = 1, .layer_norm_epsilon = 1e-5,
	};
	r.model.config.n_blocks[block] = 1;
	return r;
}

void rig_open(struct rig *r, int rows, int slots, int len)
{
	struct err err = {0};
	struct limits limits = { .rows = rows, .slots = slots, .len = len };

	r->model.config.layers_block_type = &r->block;
	if (r->block == BLOCK_MLP && !r->model.config.intermediate_size)
		r->model.config.intermediate_size = &r->model.config.hidden_size;
	r->model.layers = &r->layer;
	ck_assert_msg(r->b->open(&r->dev, &r->model, &r->arm, &limits, &r->counters, &err) == 0, "%s: %s", r->op,
		      err.text);
}

void *rig_alloc(struct rig *r, size_t size)
{
	ck_assert_int_lt(r->n_owned, 32);
	return r->owned[r->n_owned++] = r->b->alloc(r->dev, size);
}

void rig_close(struct rig *r)
{
	while (r->n_owned > 0)
		r->b->free(r->dev, r->owned[--r->n_owned]);
	r->b->close(r->dev);
}

void *rig_bytes(struct rig *r, const void *from, size_t size)
{
	void *p = rig_alloc(r, size);

	r->b->upload(r->dev, p, from, size);
	return p;
}

void *rig_in(struct rig *r, const double *x, int n)
{
	void *p = rig_alloc(r, n * dtype_size(r->b->act_dtype(r->dev)));

	r->b->act_from_host(r->dev, p, x, n);
	return p;
}

void *rig_out(struct rig *r, int n)
{
	double *x = new(n + GUARDS, sizeof(*x));
	void *p;

	for (int i = 0; i < n + GUARDS; i++)
		x[i] = i < n ? NAN : GUARD;
	p = rig_in(r, x, n + GUARDS);
	return p;
}

void compare(const struct rig *r, const char *what, const double *got, const double *want, int n)
{
	double top = 0;

	for (int i = 0; i < n; i++)
		if (fabs(want[i]) > top)
			top = fabs(want[i]);
	for (int i = 0; i < n; i++)
		ck_assert_msg(!isnan(got[i]), "%s on %s, \"%s\": %s[%d] is NaN", r->op, r->b->name, r->note, what, i);
	for (int i = 0; i < n; i++)
		ck_assert_msg(fabs(got[i] - want[i]) <= r->bound * (top > 0 ? top : 1),
			      "%s on %s, \"%s\": %s[%d] = %.17g, expected %.17g (bound %g of %g)", r->op, r->b->name,
			      r->note, what, i, got[i], want[i], r->bound, top);
}

/* Every element by itself: for functions whose small values matter. */
void compare_each(const struct rig *r, const char *what, const double *got, const double *want, int n)
{
	for (int i = 0; i < n; i++)
		ck_assert_msg(fabs(got[i] - want[i]) <= r->bound * fabs(want[i]),
			      "%s on %s, \"%s\": %s[%d] = %.17g, expected %.17g (bound %g, relative)", r->op,
			      r->b->name, r->note, what, i, got[i], want[i], r->bound);
}

double *rig_read(struct rig *r, const void *p, int n)
{
	double *x = new(n + GUARDS, sizeof(*x));

	r->b->act_to_host(r->dev, x, p, n + GUARDS);
	for (int i = n; i < n + GUARDS; i++)
		ck_assert_msg(x[i] == GUARD, "%s on %s, \"%s\": wrote %d past the end", r->op, r->b->name, r->note,
			      i - n);
	return x;
}

void rig_check(struct rig *r, const char *what, const void *p, struct vec want)
{
	double *got = rig_read(r, p, want.n);

	compare(r, what, got, want.x, want.n);
}

/* ---- state arrays of two slots; the case lives in slot 1, slot 0 must not change ---- */

void encode(void *to, enum dtype dtype, const double *from, int n)
{
	for (int i = 0; i < n; i++)
		switch (dtype) {
		case DTYPE_F64:
			((double *)to)[i] = from[i];
			break;
		case DTYPE_F32:
			((float *)to)[i] = (float)from[i];
			break;
		case DTYPE_BF16:
			((uint16_t *)to)[i] = bf16_from_float((float)from[i]);
			break;
		case DTYPE_F16:
			((uint16_t *)to)[i] = fp16_from_float((float)from[i]);
			break;
		case DTYPE_FP8:
			((uint8_t *)to)[i] = e4m3_encode(from[i]);
			break;
		}
}

void decode(double *to, enum dtype dtype, const void *from, int n)
{
	for (int i = 0; i < n; i++)
		switch (dtype) {
		case DTYPE_F64:
			to[i] = ((const double *)from)[i];
			break;
		case DTYPE_F32:
			to[i] = ((const float *)from)[i];
			break;
		case DTYPE_BF16:
			to[i] = bf16_to_float(((const uint16_t *)from)[i]);
			break;
		case DTYPE_F16:
			to[i] = fp16_to_float(((const uint16_t *)from)[i]);
			break;
		case DTYPE_FP8:
			to[i] = e4m3_table[((const uint8_t *)from)[i]];
			break;
		}
}

/* e4m3 ends at 448. */
static double guard_of(enum dtype dtype)
{
	return dtype == DTYPE_FP8 ? 416 : GUARD;
}

struct state_view rig_state(struct rig *r, enum dtype dtype, int size, const double *x, int n)
{
	struct state_view v = { .dtype = dtype, .stride = size };
	double *all = new(2 * size, sizeof(*all));
	void *raw = new(2 * size, sizeof(*all));

	for (int i = 0; i < 2 * size; i++)
		all[i] = i >= size && i < size + n ? x[i - size] : guard_of(dtype);
	encode(raw, dtype, all, 2 * size);
	v.data = rig_bytes(r, raw, 2 * size * dtype_size(dtype));
	return v;
}

void rig_state_check(struct rig *r, const char *what, struct state_view v, struct vec want)
{
	int n = 2 * (int)v.stride;
	double *all = new(n, sizeof(*all));
	void *raw = new(n, sizeof(*all));

	r->b->download(r->dev, raw, v.data, n * dtype_size(v.dtype));
	decode(all, v.dtype, raw, n);
	for (int i = 0; i < (int)v.stride; i++)
		ck_assert_msg(all[i] == guard_of(v.dtype), "%s on %s, \"%s\": %s of another slot changed", r->op, r->b->name,
			      r->note, what);
	compare(r, what, all + v.stride, want.x, want.n);
}

enum dtype state_dtype(const struct rig *r)
{
	return r->arm.value[FACTOR_COMPUTE] == COMPUTE_F64 ? DTYPE_F64 : DTYPE_F32;
}

int32_t *rig_ints(struct rig *r, int32_t value, int n, int step)
{
	int32_t *x = new(n, sizeof(*x)), *p;

	for (int i = 0; i < n; i++)
		x[i] = value + i * step;
	p = rig_bytes(r, x, n * sizeof(*x));
	return p;
}
