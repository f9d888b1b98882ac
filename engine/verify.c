#include "model.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "parallel.h"
#include "quant.h"

enum { MAX_THREADS = 8 };
static const size_t serial_below = 64 << 20;  /* bytes: starting threads is not worth it */

/* ---- scans: true if the array holds a code that is not allowed ---- */

/* Exponent bits all ones. */
static bool scan16(const unsigned char *p, size_t n, uint16_t exponent)
{
	unsigned bad = 0;

	for (size_t i = 0; i < n; i++) {
		uint16_t h;

		memcpy(&h, p + 2 * i, 2);
		bad |= (h & exponent) == exponent;
	}
	return bad;
}

static bool scan32(const unsigned char *p, size_t n)
{
	unsigned bad = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t u;

		memcpy(&u, p + 4 * i, 4);
		bad |= (u & 0x7f800000) == 0x7f800000;
	}
	return bad;
}

/* e4m3: NaN is 0x7f and 0xff. */
static bool scan_e4m3(const unsigned char *p, size_t n)
{
	unsigned char bad = 0;

	for (size_t i = 0; i < n; i++)
		bad |= (p[i] & 0x7f) == 0x7f;
	return bad;
}

/* Block scales: neither sign bit (-0 is a number) nor NaN. */
static bool scan_block_scale(const unsigned char *p, size_t n)
{
	unsigned char bad = 0;

	for (size_t i = 0; i < n; i++)
		bad |= p[i] > 0x80 || p[i] == 0x7f;
	return bad;
}

/* ---- one module ---- */

static double element(const struct linear *l, size_t i)
{
	const unsigned char *p = l->weight;
	uint16_t h;
	float x;

	switch (l->format) {
	case WEIGHT_NVFP4: return e4m3_table[l->block_scale[i]];
	case WEIGHT_FP8:   return e4m3_table[p[i]];
	case WEIGHT_F32:   memcpy(&x, p + 4 * i, 4); return x;
	default:           memcpy(&h, p + 2 * i, 2); return l->format == WEIGHT_BF16 ? bf16_to_float(h) : fp16_to_float(h);
	}
}

/* The file that holds these bytes (stacked experts have no tensor of their own name). */
static const char *file_of(const struct model *m, const void *data)
{
	for (int i = 0; i < m->tensors.n_tensors; i++) {
		const struct st_tensor *t = &m->tensors.tensors[i];

		if ((const char *)data >= (const char *)t->data && (const char *)data < (const char *)t->data + t->bytes)
			return t->file;
	}
	return m->dir;
}

/* The fast scan found something: says where. */
static int complain(const struct model *m, const struct linear *l, size_t n, int columns, struct err *err)
{
	bool scale = l->format == WEIGHT_NVFP4;
	size_t i = 0;

	while (i < n && isfinite(element(l, i)) && !(scale && element(l, i) < 0))
		i++;
	BUG_ON(i == n);
	return err_set(err, ERR_INPUT, "%s: %s%s: row %zu, column %zu is %g, expected a %s number",
		       file_of(m, scale ? l->block_scale : l->weight), l->name, scale ? ".weight_scale" : ".weight",
		       i / columns, i % columns, element(l, i), scale ? "positive" : "finite");
}

static int verify_linear(const struct model *m, const struct linear *l, struct err *err)
{
	size_t n = (size_t)l->out * l->in;
	bool bad = false;

	switch (l->format) {
	case WEIGHT_BF16: bad = scan16(l->weight, n, 0x7f80); break;
	case WEIGHT_F16:  bad = scan16(l->weight, n, 0x7c00); break;
	case WEIGHT_F32:  bad = scan32(l->weight, n); break;
	case WEIGHT_FP8:  bad = scan_e4m3(l->weight, n); break;
	default:
		if (scan_block_scale(l->block_scale, n / 16))
			return complain(m, l, n / 16, l->in / 16, err);
	}
	return bad ? complain(m, l, n, l->in, err) : 0;
}

/* A tied checkpoint may repeat the embedding as lm_head.weight; other values would be a second model. */
static int verify_tied(const struct model *m, struct err *err)
{
	const struct st_tensor *head = safetensors_find(&m->tensors, "lm_head.weight");
	const struct st_tensor *embed = safetensors_find(&m->tensors, "embeddings.weight");

	if (!m->config.tie_word_embeddings || !head)
		return 0;
	if (head->dtype == embed->dtype && head->bytes == embed->bytes && !memcmp(head->data, embed->data, head->bytes))
		return 0;
	return err_set(err, ERR_INPUT, "%s: lm_head.weight: tie_word_embeddings is true, but it differs from embeddings.weight",
		       head->file);
}

/* ---- the work list: files first (they are the longest items), then modules ---- */

struct work {
	struct model *m;
	const struct linear **linears;  /* owned */
	int n_linears;
	pthread_mutex_t lock;
	int failed;                     /* lowest item that failed, so that the message does not depend on threads */
	struct err *err;
};

static void add_linear(struct linear *l, int layer, void *ud)
{
	struct work *w = ud;

	(void)layer;
	w->linears[w->n_linears++] = l;
}

static void count_linear(struct linear *l, int layer, void *ud)
{
	(void)l;
	(void)layer;
	++*(int *)ud;
}

static int verify_file(struct model *m, struct model_file *f, struct err *err)
{
	char *path;
	int rc;

	for (int i = 0; i < m->tensors.n_shards; i++) {
		const struct shard *s = &m->tensors.shards[i];

		if (!strcmp(s->name, f->name)) {
			sha256_bytes(s->map, s->size, f->sha256);
			return 0;
		}
	}
	path = path_join(m->dir, f->name);
	rc = sha256_file(path, f->sha256, err);
	free(path);
	return rc;
}

static int verify_item(struct work *w, int i, struct err *err)
{
	if (i < w->m->n_files)
		return verify_file(w->m, &w->m->files[i], err);
	return verify_linear(w->m, w->linears[i - w->m->n_files], err);
}

static void verify_item_locked(int i, void *ud)
{
	struct work *w = ud;
	struct err err = {0};

	if (!verify_item(w, i, &err))
		return;
	pthread_mutex_lock(&w->lock);
	if (i < w->failed) {
		w->failed = i;
		*w->err = err;
	}
	pthread_mutex_unlock(&w->lock);
}

int model_verify(struct model *m, struct err *err)
{
	struct work w = { .m = m, .failed = INT32_MAX, .err = err };
	int n = 1, threads = m->weight_bytes < serial_below ? 1 : parallel_cores();

	model_each_linear(m, count_linear, &n);
	w.linears = xcalloc(n, sizeof *w.linears);
	w.linears[w.n_linears++] = &m->embed;
	model_each_linear(m, add_linear, &w);
	pthread_mutex_init(&w.lock, NULL);
	parallel_each(m->n_files + w.n_linears, threads < MAX_THREADS ? threads : MAX_THREADS, verify_item_locked, &w);
	pthread_mutex_destroy(&w.lock);
	free(w.linears);
	return w.failed < INT32_MAX || verify_tied(m, err) ? -1 : 0;
}
