#include "synth.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "contract/file.h"
#include "contract/json.h"
#include "layout.h"
#include "parallel.h"
#include "quant.h"
#include "synth_tokenizer.h"

enum { CHUNK = 4 << 20, ALIGN = 64 };
static const size_t shard_bytes = (size_t)4 << 30;

/* ---- random numbers: a hash of a counter, so that any part can be made on its own ---- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint64_t key_of(uint64_t seed, const char *name)
{
	for (; *name; name++)
		seed = mix(seed ^ (unsigned char)*name);
	return seed;
}

/* Uniform in (-1, 1) by the i-th 16 bits of the sequence. */
static float uniform(uint64_t key, size_t i)
{
	return ((float)(mix(key + i / 4) >> (16 * (i % 4)) & 0xffff) - 32767.5f) * (1 / 32768.f);
}

/* ---- what each tensor is filled with ---- */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

/* The standard deviation that keeps the output of a matrix near unit size; relu^2 of unit input has mean square 1.5. */
static double spread(const struct config *c, const char *name, int64_t in)
{
	if (!strcmp(name, "embeddings.weight"))
		return c->tie_word_embeddings ? 0.4 : 1;
	if (!strncmp(name, "lm_head.", 8))
		return 5 / sqrt((double)in);
	if (strstr(name, "down_proj"))
		return 1 / sqrt(1.5 * (double)in);
	return (strstr(name, "gate.weight") || strstr(name, "q_proj") || strstr(name, "k_proj") ? 1.5 : 1) / sqrt((double)in);
}

/* An element of a vector from a number in (-1, 1). */
static double vector_value(const char *name, double u)
{
	double step;

	if (ends_with(name, "norm.weight") || !strcmp(name, "norm_f.weight"))
		return 1 + 0.17 * u;
	if (ends_with(name, ".A_log"))
		return log(4.5 + 3.5 * u);
	if (ends_with(name, ".dt_bias")) {           /* the inverse of softplus at a step from 0.001 to 0.1 */
		step = exp(log(0.01) + log(10) * u);
		return step + log(-expm1(-step));
	}
	if (ends_with(name, ".D"))
		return 1 + 0.5 * u;
	return (ends_with(name, "conv1d.weight") ? 0.87 : 0.17) * u;   /* the others are biases */
}

/* Codes are random bits: FP8 of both signs with magnitudes from 2 to 30 (root mean square 13.5), NVFP4 all 16 codes
 * (2.93) under block scales from 0.5 to 1.875 (1.16).  The scales of a module bring them to its spread. */
enum { FP8_LOW = 0x40, FP8_MASK = 0x9f, BLOCK_LOW = 0x30, BLOCK_MASK = 0x0f };
static const double fp8_rms = 13.5, nvfp4_rms = 2.93 * 1.16;

/* weight_scale, weight_scale_2, input_scale, k_scale, v_scale; inputs are taken to reach 8. */
static double scale_value(const struct model *m, const struct st_tensor *t)
{
	size_t module = (size_t)(strrchr(t->name, '.') - t->name);
	char *name = xasprintf("%.*s.weight", (int)module, t->name);
	const struct st_tensor *w = safetensors_find(&m->tensors, name);
	bool fp8 = w && w->dtype == ST_F8_E4M3;
	double scale = 1;

	if (ends_with(t->name, ".input_scale"))
		scale = 8. / (fp8 ? 448 : 6 * 448);
	else if (w && fp8)
		scale = spread(&m->config, name, w->shape[1]) / fp8_rms;
	else if (w && w->dtype == ST_U8)
		scale = spread(&m->config, name, 2 * w->shape[1]) / nvfp4_rms;
	free(name);
	return scale;
}

static bool is_scale(const struct st_tensor *t)
{
	return ends_with(t->name, "_scale") || ends_with(t->name, "_scale_2");
}

static void fill_codes(unsigned char *to, size_t n, uint64_t key, unsigned char low, unsigned char mask)
{
	const uint64_t ones = 0x0101010101010101u;

	for (size_t i = 0; i < n; i += 8) {
		uint64_t r = (mix(key + i / 8) & mask * ones) + low * ones;

		memcpy(to + i, &r, n - i < 8 ? n - i : 8);
	}
}

/* Elements from `from` on of a matrix, uniform in (-a, a), in blocks that the compiler vectorises: these are most of a
 * large model.  `from` is a multiple of 4. */
static void fill_matrix_bf16(unsigned char *to, size_t from, size_t n, uint64_t key, float a)
{
	enum { BLOCK = 256 };
	uint64_t random[BLOCK / 4];
	uint16_t r[BLOCK], b[BLOCK];

	for (size_t i = 0; i < n; i += BLOCK) {
		size_t count = n - i < BLOCK ? n - i : BLOCK;

		for (size_t k = 0; k < BLOCK / 4; k++)
			random[k] = mix(key + (from + i) / 4 + k);
		memcpy(r, random, sizeof r);
		for (size_t k = 0; k < BLOCK; k++) {
			float x = a * (((float)r[k] - 32767.5f) * (1 / 32768.f));
			uint32_t u;

			memcpy(&u, &x, sizeof u);
			b[k] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
		}
		memcpy(to + 2 * i, b, 2 * count);
	}
}

static void store(const struct st_tensor *t, size_t i, float x)
{
	uint16_t b = bf16_from_float(x);

	if (t->dtype == ST_F32)
		memcpy((char *)t->data + 4 * i, &x, 4);
	else
		memcpy((char *)t->data + 2 * i, &b, 2);
}

/* Scales, vectors, and the router in F32. */
static void fill_numbers(const struct model *m, const struct st_tensor *t, uint64_t key, size_t from, size_t n)
{
	double scale = is_scale(t) ? scale_value(m, t) : 0;
	double a = t->rank == 2 ? sqrt(3) * spread(&m->config, t->name, t->shape[1]) : 0;

	for (size_t i = from; i < from + n; i++)
		store(t, i, (float)(scale ? scale : a ? a * uniform(key, i) : vector_value(t->name, uniform(key, i))));
}

/* ---- filling in parallel ---- */

struct piece { const struct st_tensor *tensor; size_t at, n; };  /* bytes */

struct filling {
	const struct model *m;
	uint64_t seed;
	struct piece *piece; int n;  /* owned */
};

static bool is_matrix(const struct st_tensor *t)
{
	return t->rank == 2 && t->dtype == ST_BF16;
}

static void fill_piece(int i, void *ud)
{
	const struct filling *f = ud;
	const struct piece *p = &f->piece[i];
	const struct st_tensor *t = p->tensor;
	uint64_t key = key_of(f->seed, t->name);
	size_t width = st_dtype_size(t->dtype);
	unsigned char *to = (unsigned char *)t->data + p->at;

	if (t->dtype == ST_U8)
		fill_codes(to, p->n, key + p->at / 8, 0, 0xff);
	else if (t->dtype == ST_F8_E4M3 && is_scale(t))
		fill_codes(to, p->n, key + p->at / 8, BLOCK_LOW, BLOCK_MASK);
	else if (t->dtype == ST_F8_E4M3)
		fill_codes(to, p->n, key + p->at / 8, FP8_LOW, FP8_MASK);
	else if (is_matrix(t))
		fill_matrix_bf16(to, p->at / 2, p->n / 2, key,
				 (float)(sqrt(3) * spread(&f->m->config, t->name, t->shape[1])));
	else
		fill_numbers(f->m, t, key, p->at / width, p->n / width);
}

static void fill(const struct model *m, uint64_t seed)
{
	struct filling f = { .m = m, .seed = seed };
	size_t pieces = 0;

	for (int i = 0; i < m->tensors.n_tensors; i++)
		pieces += m->tensors.tensors[i].bytes / CHUNK + 1;
	f.piece = xcalloc(pieces, sizeof *f.piece);
	for (int i = 0; i < m->tensors.n_tensors; i++) {
		const struct st_tensor *t = &m->tensors.tensors[i];

		for (size_t at = 0; at < t->bytes; at += CHUNK)
			f.piece[f.n++] = (struct piece){ t, at, t->bytes - at < CHUNK ? t->bytes - at : CHUNK };
	}
	parallel_each(f.n, parallel_cores(), fill_piece, &f);
	free(f.piece);
}

/* ---- shard images ---- */

/* The largest first: matrices whose sizes are multiples of 64 bytes are then aligned to 64. */
static int by_size(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

static char *header_text(const struct st_tensor *t, int n, size_t *size)
{
	char shape[200], *text;
	size_t at = 0;
	FILE *f = open_memstream(&text, size);

	if (!f)
		BUG("open_memstream failed");
	fprintf(f, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (int i = 0; i < n; at += t[i++].bytes)
		fprintf(f, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", t[i].disk_name,
			st_dtype_name(t[i].dtype), st_shape_text(t[i].shape, t[i].rank, shape, sizeof shape), at, at + t[i].bytes);
	fprintf(f, "}");
	fflush(f);
	while ((8 + *size) % ALIGN) {
		fputc(' ', f);
		fflush(f);
	}
	fclose(f);
	return text;
}

/* One shard for n tensors: length field, header, room for the data. */
static int make_shard(struct shard *s, struct st_tensor *t, int n, struct err *err)
{
	size_t header, data = 0;
	char *text = header_text(t, n, &header), *at;

	for (int i = 0; i < n; i++)
		data += t[i].bytes;
	s->size = 8 + header + data;
	s->map = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->map == MAP_FAILED) {
		s->map = NULL;
		free(text);
		return err_set(err, ERR_FAILED, "%s: no memory for %zu bytes of weights", t->file, s->size);
	}
	madvise(s->map, s->size, MADV_HUGEPAGE);
	at = s->map;
	for (int i = 0; i < 8; i++)
		*at++ = (char)(header >> (8 * i));
	memcpy(at, text, header);
	at += header;
	for (int i = 0; i < n; at += t[i++].bytes)
		t[i].data = at;
	free(text);
	return 0;
}

static int count_shards(const struct safetensors *s)
{
	size_t bytes = 0;
	int n = 1;

	for (int i = 0; i < s->n_tensors; i++) {
		if (bytes && bytes + s->tensors[i].bytes > shard_bytes) {
			bytes = 0;
			n++;
		}
		bytes += s->tensors[i].bytes;
	}
	return n;
}

static int make_shards(struct safetensors *s, struct err *err)
{
	int total, from = 0;

	qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_size);
	total = count_shards(s);
	s->shards = xcalloc(total, sizeof *s->shards);
	for (s->n_shards = 0; s->n_shards < total;) {
		struct shard *shard = &s->shards[s->n_shards++];
		size_t bytes = 0;
		int to = from;

		shard->name = total == 1 ? xstrdup("model.safetensors") :
			      xasprintf("model-%05d-of-%05d.safetensors", s->n_shards, total);
		shard->path = xstrdup(shard->name);
		while (to < s->n_tensors && (to == from || bytes + s->tensors[to].bytes <= shard_bytes))
			bytes += s->tensors[to++].bytes;
		if (make_shard(shard, s->tensors + from, to - from, err))
			return -1;
		for (; from < to; from++)
			s->tensors[from].file = shard->path;
	}
	s->indexed = total > 1;
	return 0;
}

int model_synthesise(struct model *m, const char *config_path, uint64_t seed, struct err *err)
{
	struct quant_config q = {0};
	int rc;

	rc = model_list_tensors(m, &q, config_path, err) || make_shards(&m->tensors, err) || safetensors_sort(&m->tensors, err) ? -1 : 0;
	if (!rc) {
		fill(m, seed);
		rc = model_build(m, &q, err);
	}
	quant_config_release(&q);
	if (rc)
		model_release(m);
	return rc;
}

/* ---- saving ---- */

static int save_index(const struct model *m, const char *dir, struct err *err)
{
	json_t *map = json_object(), *index;
	char *path = path_join(dir, "model.safetensors.index.json");
	size_t total = 0;
	int rc;

	for (int i = 0; i < m->tensors.n_tensors; i++) {
		const struct st_tensor *t = &m->tensors.tensors[i];

		json_object_set_new(map, t->disk_name, json_string(t->file));
		total += t->bytes;
	}
	index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
	rc = json_write_file(index, path, JSON_INDENT(1), err);
	json_decref(index);
	free(path);
	return rc;
}

static int save_tokenizer(int vocab_size, const char *dir, struct err *err)
{
	json_t *tokenizer = synth_tokenizer(vocab_size);
	char *path = path_join(dir, "tokenizer.json");
	int rc = json_write_file(tokenizer, path, JSON_COMPACT, err);

	json_decref(tokenizer);
	free(path);
	return rc;
}

static int copy_if_there(const char *from, const char *dir, const char *name, struct err *err)
{
	char *to = path_join(dir, name);
	int rc = file_exists(from) ? file_copy(from, to, err) : 0;

	free(to);
	return rc;
}

int model_save_synthetic(const struct model *m, const char *config_path, const char *dir, struct err *err)
{
	char *hf = model_beside_config(config_path, "hf_quant_config.json");
	int rc = file_mkdirs(dir, err);

	for (int i = 0; i < m->tensors.n_shards && !rc; i++) {
		char *path = path_join(dir, m->tensors.shards[i].name);

		rc = file_write(path, m->tensors.shards[i].map, m->tensors.shards[i].size, err);
		free(path);
	}
	rc = rc || (m->tensors.indexed && save_index(m, dir, err)) || save_tokenizer(m->config.vocab_size, dir, err) ||
	     copy_if_there(hf, dir, "hf_quant_config.json", err) || copy_if_there(config_path, dir, "config.json", err) ? -1 : 0;
	free(hf);
	return rc;
}
