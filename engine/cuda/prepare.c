/* Weights on the device: vectors as they are, matrices in the forms that the arm can need.
 *
 *   compute: bf16   BF16, FP8 and NVFP4 matrices are packed in tiles; F16 and F32 ones stay as stored
 *   compute: fp32   every matrix stays as stored
 *   the library     FP8 matrices with an input_scale, rows and columns padded
 *   the embedding   as stored
 *
 * All matrices share one allocation, measured in a first pass. */
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "ops.h"

/* ---- vectors ---- */

struct source { const void *host; size_t n; bool f64; };

struct sources { struct source *item; int n, room; };

static void add(struct sources *s, const void *host, size_t n, bool f64)
{
	if (!host)
		return;
	if (s->n == s->room) {
		s->room = s->room ? 2 * s->room : 256;
		s->item = xrealloc(s->item, s->room, sizeof(*s->item));
	}
	s->item[s->n++] = (struct source){ host, n, f64 };
}

static void add_bias(struct linear *l, int layer, void *ud)
{
	(void)layer;
	if (l->out)
		add(ud, l->bias, l->out, false);
}

static void add_layer(struct sources *s, const struct layer *l, const struct config *c)
{
	add(s, l->norm, c->hidden_size, false);
	if (l->block == BLOCK_MAMBA) {
		add(s, l->mamba.conv_weight, (size_t)c->conv_dim * c->conv_kernel, false);
		add(s, l->mamba.conv_bias, c->conv_dim, false);
		add(s, l->mamba.A, c->mamba_num_heads, true);
		add(s, l->mamba.D, c->mamba_num_heads, false);
		add(s, l->mamba.dt_bias, c->mamba_num_heads, false);
		add(s, l->mamba.norm, c->d_inner, false);
	} else if (l->block == BLOCK_MOE) {
		add(s, l->moe.gate, (size_t)c->n_routed_experts * c->hidden_size, false);
		add(s, l->moe.correction_bias, c->n_routed_experts, false);
	}
}

static int by_address(const void *a, const void *b)
{
	const char *x = ((const struct vector *)a)->host, *y = ((const struct vector *)b)->host;

	return (x > y) - (x < y);
}

/* Each vector starts at a multiple of 64 floats. */
static size_t place(size_t n) { return (n + 63) / 64 * 64; }

int prepare_vectors(struct device *dev, struct err *err)
{
	const struct model *m = dev->model;
	struct sources s = {0};
	size_t total = 0, at = 0;
	float *host, *to;
	cudaError_t e;

	for (int i = 0; i < m->config.num_hidden_layers; i++)
		add_layer(&s, &m->layers[i], &m->config);
	add(&s, m->norm_f, m->config.hidden_size, false);
	model_each_linear((struct model *)m, add_bias, &s);
	for (int i = 0; i < s.n; i++)
		total += place(s.item[i].n);
	host = xcalloc(total + 1, sizeof(*host));
	to = device_alloc(dev, total * sizeof(*to), err);
	dev->vectors = xcalloc(s.n + 1, sizeof(*dev->vectors));
	for (int i = 0; i < s.n; i++) {
		for (size_t j = 0; j < s.item[i].n; j++)
			host[at + j] = s.item[i].f64 ? (float)((const double *)s.item[i].host)[j] :
						       ((const float *)s.item[i].host)[j];
		dev->vectors[dev->n_vectors++] = (struct vector){ s.item[i].host, to + at };
		at += place(s.item[i].n);
	}
	qsort(dev->vectors, dev->n_vectors, sizeof(*dev->vectors), by_address);
	/* On the stream that cleared the memory: another would not wait for it. */
	e = to ? cudaMemcpyAsync(to, host, total * sizeof(*to), cudaMemcpyHostToDevice, dev->stream) : cudaSuccess;
	if (to && e == cudaSuccess)
		e = cudaStreamSynchronize(dev->stream);
	free(host);
	free(s.item);
	if (!to)
		return -1;
	return e == cudaSuccess ? 0 : cuda_failed(e, "cudaMemcpyAsync(", err);
}

/* ---- one matrix ---- */

struct pass {
	struct device *dev;
	struct err *err;
	bool measure, failed, embedding;
	size_t staging_size;
	char *staging;                    /* device: a matrix as stored, on its way into tiles */
};

static size_t weight_bytes(const struct linear *l)
{
	size_t n = (size_t)l->out * l->in;

	switch (l->format) {
	case WEIGHT_F32: return 4 * n;
	case WEIGHT_BF16: case WEIGHT_F16: return 2 * n;
	case WEIGHT_FP8: return n;
	case WEIGHT_NVFP4: return n / 2;
	case N_WEIGHT_FORMATS: break;
	}
	BUG("weight format %d", l->format);
}

static size_t scale_bytes(const struct linear *l)
{
	return l->format == WEIGHT_NVFP4 ? (size_t)l->out * (l->in / 16) : 0;
}

static size_t align(size_t n) { return (n + 255) / 256 * 256; }

static bool has_tiles(const struct linear *l)
{
	return l->format == WEIGHT_BF16 || l->format == WEIGHT_FP8 || l->format == WEIGHT_NVFP4;
}

/* Bytes of a record of 16 x 64 values (tiles.cuh). */
size_t record_bytes(enum weight_format f)
{
	return f == WEIGHT_BF16 ? 2048 : f == WEIGHT_FP8 ? 1024 : 576;
}

int64_t packed_bytes(const struct packed_matrix *m)
{
	return (int64_t)m->tiles * m->steps * (int64_t)record_bytes((enum weight_format)m->format);
}

/* Takes bytes of the arena; NULL while measuring. */
static void *take(struct pass *p, size_t bytes)
{
	struct device *dev = p->dev;
	void *at = p->measure ? NULL : dev->arena + dev->arena_used;

	dev->arena_used += align(bytes);
	BUG_ON(!p->measure && dev->arena_used > dev->arena_size);
	return at;
}

static int copy_in(struct pass *p, void *to, const void *from, size_t bytes)
{
	struct err *err = p->err;

	if (bytes)
		OPEN(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, p->dev->stream));
	return 0;
}

static struct raw_matrix raw_of(const struct device *dev, const struct linear *l)
{
	return (struct raw_matrix){
		.bias = device_vector(dev, l->bias), .scale = l->scale, .input_scale = l->input_scale,
		.format = (int)l->format, .act = ACT_NONE, .out = l->out, .in = l->in,
	};
}

static int keep_raw(struct pass *p, struct matrix *m, const struct linear *l)
{
	char *weight = take(p, weight_bytes(l)), *scale = take(p, scale_bytes(l));

	if (p->measure)
		return 0;
	m->raw.weight = weight;
	m->raw.block_scale = (uint8_t *)scale;
	return copy_in(p, weight, l->weight, weight_bytes(l)) || copy_in(p, scale, l->block_scale, scale_bytes(l)) ? -1 : 0;
}

static int keep_packed(struct pass *p, struct matrix *m, const struct linear *l)
{
	struct raw_matrix from = m->raw;
	struct err *err = p->err;
	int tiles = (l->out + TILE_ROWS - 1) / TILE_ROWS, steps = (l->in + TILE_STEP - 1) / TILE_STEP;
	size_t n = (size_t)tiles * steps, scales = align(weight_bytes(l));
	char *weight = take(p, n * record_bytes(l->format));

	if (p->measure) {
		if (scales + scale_bytes(l) > p->staging_size)
			p->staging_size = scales + scale_bytes(l);
		return 0;
	}
	if (copy_in(p, p->staging, l->weight, weight_bytes(l)) ||
	    copy_in(p, p->staging + scales, l->block_scale, scale_bytes(l)))
		return -1;
	from.weight = p->staging;
	from.block_scale = (uint8_t *)p->staging + scales;
	OPEN(launch_pack(weight, from, tiles, steps, p->dev->stream));
	m->packed = (struct packed_matrix){
		.weight = weight, .bias = from.bias, .scale = l->scale,
		.input_scale = l->input_scale, .format = from.format, .act = ACT_NONE, .out = l->out, .in = l->in,
		.tiles = tiles, .steps = steps,
	};
	return 0;
}

/* e4m3 rows with the library's padding; the arena is zero. */
static int keep_library(struct pass *p, struct matrix *m, const struct linear *l)
{
	int out = blas_padded(l->out), in = blas_padded(l->in);
	char *to = take(p, (size_t)out * in);
	struct err *err = p->err;

	if (p->measure)
		return 0;
	OPEN(cudaMemcpy2DAsync(to, in, l->weight, l->in, l->in, l->out, cudaMemcpyHostToDevice, p->dev->stream));
	m->library = to;
	return blas_plan(p->dev->blas, out, in, err);
}

static void keep(struct linear *l, int layer, void *ud)
{
	struct pass *p = ud;
	struct device *dev = p->dev;
	struct matrix scratch = {0}, *m = &scratch;
	bool tiles = dev->bf16 && has_tiles(l) && !p->embedding;

	(void)layer;
	if (p->failed || !l->out)
		return;
	if (p->measure) {
		dev->n_matrices++;
	} else {
		m = &dev->matrices[dev->n_matrices++];
		m->raw = raw_of(dev, l);
		l->prepared = m;
	}
	p->failed = (tiles ? keep_packed(p, m, l) : keep_raw(p, m, l)) ||
		    (tiles && dev->blas && l->format == WEIGHT_FP8 && l->input_scale > 0 && keep_library(p, m, l));
}

static void keep_all(struct pass *p, struct model *m)
{
	p->dev->n_matrices = 0;
	p->dev->arena_used = 0;
	p->embedding = true;
	keep(&m->embed, -1, p);
	p->embedding = false;
	model_each_linear(m, keep, p);
}

/* ---- tables of routed experts ---- */

static int to_device(struct device *dev, void *to, const void *from, size_t bytes, struct err *err)
{
	void *p = device_alloc(dev, bytes, err);

	if (!p)
		return -1;
	OPEN(cudaMemcpyAsync(p, from, bytes, cudaMemcpyHostToDevice, dev->stream));
	OPEN(cudaStreamSynchronize(dev->stream));
	memcpy(to, &p, sizeof(p));
	return 0;
}

static const struct linear *projection(const struct moe *w, int e, bool down)
{
	return down ? &w->experts[e].down_proj : &w->experts[e].up_proj;
}

/* Packed matrices of one shape and format at equal distances can be addressed without a table. */
static void find_stride(struct expert_table *t, const struct packed_matrix *m, int n)
{
	t->stride = n > 1 && m[0].weight && m[1].weight ? m[1].weight - m[0].weight : 0;
	t->base = m[0].weight;
	t->only = m[0].format;
	t->steps = m[0].steps;
	for (int e = 0; e < n && t->base; e++)
		if (!m[e].weight || m[e].weight != m[0].weight + e * t->stride || m[e].format != m[0].format ||
		    m[e].out != m[0].out || m[e].in != m[0].in || m[e].bias)
			t->base = NULL;
}

static int keep_scales(struct device *dev, struct expert_table *t, const struct packed_matrix *m, int n, struct err *err)
{
	float *scale = xcalloc(n, sizeof(*scale));
	int failed;

	for (int e = 0; e < n; e++)
		scale[e] = m[e].scale;
	failed = to_device(dev, &t->scale, scale, n * sizeof(*scale), err);
	free(scale);
	return failed;
}

static int fill_table(struct device *dev, struct expert_table *t, const struct moe *w, bool down, struct rule rule,
		      struct err *err)
{
	int n = dev->model->config.n_routed_experts, failed;
	struct packed_matrix *packed = xcalloc(n, sizeof(*packed));
	struct raw_matrix *raw = xcalloc(n, sizeof(*raw));
	bool tiles = true, mixed = false;

	for (int e = 0; e < n; e++) {
		const struct linear *l = projection(w, e, down);
		const struct matrix *m = l->prepared;
		enum numerics numerics = linear_numerics(l, rule);

		packed[e] = m->packed;
		raw[e] = m->raw;
		packed[e].act = raw[e].act = act_of(numerics);
		packed[e].scale = raw[e].scale = scale_of(l, numerics);
		t->act |= act_of(numerics) != ACT_NONE;
		t->kind[product_of((int)l->format, act_of(numerics))] = true;
		tiles &= m->packed.weight != NULL;
		if (m->packed.tiles > t->tiles)
			t->tiles = m->packed.tiles;
	}
	for (int e = 0; e < n && !tiles; e++)
		if (!raw[e].weight)
			mixed = true;
	t->out = packed[0].weight ? packed[0].out : raw[0].out;
	t->in = packed[0].weight ? packed[0].in : raw[0].in;
	find_stride(t, packed, n);
	failed = mixed ? err_set(err, ERR_CANNOT_RUN, "%s: backend cuda does not mix F16 or F32 experts with others in one layer",
				 projection(w, 0, down)->name) :
		 tiles ? to_device(dev, &t->packed, packed, n * sizeof(*packed), err) :
			 to_device(dev, &t->raw, raw, n * sizeof(*raw), err);
	if (!failed && t->base)
		failed = keep_scales(dev, t, packed, n, err);
	free(packed);
	free(raw);
	return failed;
}

static int fill_tables(struct device *dev, struct model *m, struct err *err)
{
	struct expert_tables *t;

	t = dev->tables = xcalloc(m->config.n_blocks[BLOCK_MOE] + 1, sizeof(*dev->tables));
	for (int i = 0; i < m->config.num_hidden_layers; i++) {
		const struct moe *w = &m->layers[i].moe;

		if (m->layers[i].block != BLOCK_MOE || !w->experts[0].up_proj.out)
			continue;
		for (int which = 0; which < 4; which++) {
			struct rule rule = {
				.fp8 = which & 1 ? NUMERICS_W8A8 : NUMERICS_W8A16,
				.nvfp4 = which & 2 ? NUMERICS_W4A4 : NUMERICS_W4A16,
			};

			if (fill_table(dev, &t->up[which], w, false, rule, err) ||
			    fill_table(dev, &t->down[which], w, true, rule, err))
				return -1;
		}
		((struct matrix *)w->experts[0].up_proj.prepared)->experts = t++;
	}
	return 0;
}

/* ---- all of them ---- */

int prepare_matrices(struct device *dev, struct model *m, struct err *err)
{
	struct pass p = { .dev = dev, .err = err, .measure = true };

	keep_all(&p, m);
	dev->matrices = xcalloc(dev->n_matrices + 1, sizeof(*dev->matrices));
	dev->arena_size = dev->arena_used;
	dev->arena = device_alloc(dev, dev->arena_size, err);
	p.staging = dev->arena ? device_alloc(dev, p.staging_size, err) : NULL;
	if (!p.staging)
		return -1;
	p.measure = false;
	keep_all(&p, m);
	if (p.failed || fill_tables(dev, m, err))
		return -1;
	OPEN(cudaStreamSynchronize(dev->stream));
	device_free(dev, p.staging);
	dev->bytes -= align(p.staging_size);
	return 0;
}

static void forget(struct linear *l, int layer, void *ud)
{
	(void)layer;
	(void)ud;
	l->prepared = NULL;
}

void prepare_release(struct device *dev)
{
	struct model *m = (struct model *)dev->model;

	m->embed.prepared = NULL;
	model_each_linear(m, forget, NULL);
	free(dev->vectors);
	free(dev->matrices);
	free(dev->tables);
}
