#include "safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "arena.h"
#include "contract/file.h"
#include "contract/json.h"

#define INDEX "model.safetensors.index.json"
enum { HEADER_MAX = 100000000, TENSORS_MAX = 10000000 };

static const struct { const char *name; size_t size; } dtypes[N_ST] = {
	[ST_F64] = { "F64", 8 }, [ST_I64] = { "I64", 8 }, [ST_F32] = { "F32", 4 }, [ST_I32] = { "I32", 4 },
	[ST_BF16] = { "BF16", 2 }, [ST_F16] = { "F16", 2 }, [ST_F8_E4M3] = { "F8_E4M3", 1 },
	[ST_F8_E5M2] = { "F8_E5M2", 1 }, [ST_U8] = { "U8", 1 }, [ST_I8] = { "I8", 1 }, [ST_I16] = { "I16", 2 },
	[ST_BOOL] = { "BOOL", 1 },
};

const char *st_dtype_name(enum st_dtype d)
{
	return dtypes[d].name;
}

size_t st_dtype_size(enum st_dtype d)
{
	return dtypes[d].size;
}

const char *st_shape_text(const int64_t *shape, int rank, char *buf, size_t size)
{
	size_t n = 0;

	for (int i = 0; i < rank && n < size; i++)
		n += snprintf(buf + n, size - n, "%s%lld", i ? ", " : "[", (long long)shape[i]);
	if (n < size)
		snprintf(buf + n, size - n, rank ? "]" : "[]");
	return buf;
}

const char *canonical_name(const char *name)
{
	static const char *const prefixes[] = { "language_model.", "backbone.", "model." };

	for (int i = 0; i < 3; i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			name += strlen(prefixes[i]);
	return strcmp(name, "embedding.weight") ? name : "embeddings.weight";
}

/* ---- one shard ---- */

static int map_file(struct shard *s, struct err *err)
{
	struct stat st;
	int fd = open(s->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, ERR_INPUT, "%s: %s", s->path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(err, ERR_INPUT, "%s: expected a regular file", s->path);
	}
	s->size = (size_t)st.st_size;
	if (s->size < 8) {
		close(fd);
		return err_set(err, ERR_INPUT, "%s: expected at least the 8 bytes of the header length, found %zu",
			       s->path, s->size);
	}
	s->map = mmap(NULL, s->size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (s->map == MAP_FAILED) {
		s->map = NULL;
		return err_set(err, ERR_INPUT, "%s: cannot map: %s", s->path, strerror(errno));
	}
	return 0;
}

static int read_dtype(struct st_tensor *t, const json_t *v, struct err *err)
{
	const char *s = json_string_value(v);

	for (int d = 0; s && d < N_ST; d++) {
		if (!strcmp(s, dtypes[d].name)) {
			t->dtype = d;
			return 0;
		}
	}
	return err_set(err, ERR_INPUT, "%s: %s: unknown dtype %s", t->file, t->name, s ? s : "(not a string)");
}

static int read_shape(struct st_tensor *t, const json_t *v, struct err *err)
{
	if (!json_is_array(v) || json_array_size(v) > ST_RANK)
		return err_set(err, ERR_INPUT, "%s: %s: expected a shape of at most %d dimensions", t->file, t->name, ST_RANK);
	t->rank = (int)json_array_size(v);
	for (int i = 0; i < t->rank; i++) {
		const json_t *n = json_array_get(v, i);

		if (!json_is_integer(n) || json_integer_value(n) < 0)
			return err_set(err, ERR_INPUT, "%s: %s: shape[%d] is not an integer of at least 0", t->file, t->name, i);
		t->shape[i] = json_integer_value(n);
	}
	return 0;
}

static int read_offsets(struct st_tensor *t, const json_t *v, size_t *begin, size_t total, struct err *err)
{
	const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
	json_int_t from = json_integer_value(a), to = json_integer_value(b);
	size_t bytes = dtypes[t->dtype].size;
	bool overflow = false;
	char shape[200];

	if (json_array_size(v) != 2 || !json_is_integer(a) || !json_is_integer(b))
		return err_set(err, ERR_INPUT, "%s: %s: expected two data_offsets", t->file, t->name);
	if (from < 0 || to < from || (size_t)to > total)
		return err_set(err, ERR_INPUT, "%s: %s: data_offsets [%lld, %lld] do not lie in the %zu bytes of data",
			       t->file, t->name, (long long)from, (long long)to, total);
	for (int i = 0; i < t->rank; i++)
		overflow |= __builtin_mul_overflow(bytes, (size_t)t->shape[i], &bytes);
	if (overflow || bytes != (size_t)(to - from))
		return err_set(err, ERR_INPUT, "%s: %s: %lld bytes of data for shape %s of %s", t->file, t->name,
			       (long long)(to - from), st_shape_text(t->shape, t->rank, shape, sizeof shape),
			       dtypes[t->dtype].name);
	*begin = (size_t)from;
	t->bytes = bytes;
	return 0;
}

static int by_data(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;

	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The tensors of one shard fill its data section exactly. */
static int check_spans(struct st_tensor *t, int n, const struct shard *s, const char *data, struct err *err)
{
	const char *at = data, *end = (const char *)s->map + s->size;

	qsort(t, n, sizeof *t, by_data);
	for (int i = 0; i < n; i++) {
		if ((const char *)t[i].data != at)
			return err_set(err, ERR_INPUT, "%s: %s: its data begin at byte %zu, expected %zu (%s)", s->path, t[i].name,
				       (size_t)((const char *)t[i].data - data), (size_t)(at - data),
				       (const char *)t[i].data < at ? "they overlap another tensor's" : "a hole before them");
		at += t[i].bytes;
	}
	if (at != end)
		return err_set(err, ERR_INPUT, "%s: %zu bytes after the last tensor", s->path, (size_t)(end - at));
	return 0;
}

static int read_entry(struct st_tensor *t, const json_t *entry, const char *data, size_t total, struct err *err)
{
	size_t begin = 0;

	if (!json_is_object(entry))
		return err_set(err, ERR_INPUT, "%s: %s: expected an object with dtype, shape and data_offsets", t->file, t->name);
	if (read_dtype(t, json_object_get(entry, "dtype"), err) || read_shape(t, json_object_get(entry, "shape"), err) ||
	    read_offsets(t, json_object_get(entry, "data_offsets"), &begin, total, err))
		return -1;
	t->data = data + begin;
	return 0;
}

static int read_entries(struct safetensors *all, const struct shard *s, json_t *head, const char *data, struct err *err)
{
	size_t total = s->size - (size_t)(data - (const char *)s->map);
	int first = all->n_tensors;
	const char *name;
	json_t *entry;

	if (json_object_size(head) > (size_t)(TENSORS_MAX - all->n_tensors))
		return err_set(err, ERR_INPUT, "%s: more than %d tensors", s->path, TENSORS_MAX);
	all->tensors = xrealloc(all->tensors, first + json_object_size(head), sizeof *all->tensors);
	json_object_foreach(head, name, entry) {
		struct st_tensor *t = &all->tensors[all->n_tensors];

		if (!strcmp(name, "__metadata__"))
			continue;
		*t = (struct st_tensor){ .name = arena_strdup(&all->arena, name), .file = s->path };
		if (read_entry(t, entry, data, total, err))
			return -1;
		all->n_tensors++;
	}
	return check_spans(all->tensors + first, all->n_tensors - first, s, data, err);
}

static int read_shard(struct safetensors *all, struct shard *s, struct err *err)
{
	const unsigned char *p;
	uint64_t n = 0;
	json_t *head;
	char *name;
	int rc;

	if (map_file(s, err))
		return -1;
	p = s->map;
	for (int i = 7; i >= 0; i--)
		n = n << 8 | p[i];
	if (n > s->size - 8 || n > HEADER_MAX)
		return err_set(err, ERR_INPUT, "%s: header: its length field says %llu bytes, the file has %zu", s->path,
			       (unsigned long long)n, s->size);
	name = xasprintf("%s: header", s->path);
	head = json_read_bytes((const char *)p + 8, n, name, false, err);
	free(name);
	if (!head)
		return -1;
	rc = json_is_object(head) ? read_entries(all, s, head, (const char *)p + 8 + n, err)
				  : err_set(err, ERR_INPUT, "%s: header: expected a JSON object", s->path);
	json_decref(head);
	return rc;
}

/* ---- the directory ---- */

static void add_shard(struct safetensors *s, const char *dir, const char *name)
{
	s->shards = xrealloc(s->shards, s->n_shards + 1, sizeof *s->shards);
	s->shards[s->n_shards++] = (struct shard){ .name = xstrdup(name), .path = path_join(dir, name) };
}

static int by_shard_name(const void *a, const void *b)
{
	return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

static int list_shards(struct safetensors *s, const char *dir, struct err *err)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return err_set(err, ERR_INPUT, "%s: %s", dir, strerror(errno));
	while ((e = readdir(d))) {
		size_t n = strlen(e->d_name);
		if (n > 12 && !strcmp(e->d_name + n - 12, ".safetensors"))
			add_shard(s, dir, e->d_name);
	}
	closedir(d);
	if (!s->n_shards)
		return err_set(err, ERR_INPUT, "%s: expected *.safetensors, found none", dir);
	qsort(s->shards, s->n_shards, sizeof *s->shards, by_shard_name);
	return 0;
}

static struct shard *find_shard(const struct safetensors *s, const char *name)
{
	struct shard key = { .name = (char *)name };

	return s->n_shards ? bsearch(&key, s->shards, s->n_shards, sizeof key, by_shard_name) : NULL;
}

static void drop_repeats(struct safetensors *s)
{
	int n = 0;

	qsort(s->shards, s->n_shards, sizeof *s->shards, by_shard_name);
	for (int i = 0; i < s->n_shards; i++) {
		if (n && !strcmp(s->shards[n - 1].name, s->shards[i].name)) {
			free(s->shards[i].name);
			free(s->shards[i].path);
		} else {
			s->shards[n++] = s->shards[i];
		}
	}
	s->n_shards = n;
}

/* The shards that the index names, each once; a name that is a path is refused. */
static int list_index(struct safetensors *s, const char *dir, const char *path, const json_t *map, struct err *err)
{
	const char *tensor;
	json_t *v;

	if (!json_is_object(map) || !json_object_size(map))
		return err_set(err, ERR_INPUT, "%s: weight_map: expected an object of tensors and their files", path);
	json_object_foreach((json_t *)map, tensor, v) {
		const char *name = json_string_value(v);

		if (!name || !*name || strpbrk(name, "/\\") || !strcmp(name, ".") || !strcmp(name, ".."))
			return err_set(err, ERR_INPUT, "%s: %s: expected a file name in the same directory, found %s", path,
				       tensor, name ? name : "no string");
		if (!s->n_shards || strcmp(s->shards[s->n_shards - 1].name, name))
			add_shard(s, dir, name);
	}
	drop_repeats(s);
	return 0;
}

static int by_file_and_name(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	int c = strcmp(x->file, y->file);

	return c ? c : strcmp(x->name, y->name);
}

/* Index and shards list the same tensors in the same files.  Names are still those on disk. */
static int check_index(struct safetensors *s, const char *path, const json_t *map, struct err *err)
{
	const char *tensor;
	json_t *v;

	qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_file_and_name);
	json_object_foreach((json_t *)map, tensor, v) {
		const struct shard *shard = find_shard(s, json_string_value(v));
		struct st_tensor key = { .name = tensor, .file = shard->path };

		if (!bsearch(&key, s->tensors, s->n_tensors, sizeof key, by_file_and_name))
			return err_set(err, ERR_INPUT, "%s: %s: it is not in %s", path, tensor, shard->name);
	}
	for (int i = 0; i < s->n_tensors; i++) {
		const char *name = json_string_value(json_object_get(map, s->tensors[i].name));

		if (!name || strcmp(name, path_base(s->tensors[i].file)))
			return err_set(err, ERR_INPUT, "%s: %s: the tensor is not listed in %s", s->tensors[i].file,
				       s->tensors[i].name, path);
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

int safetensors_sort(struct safetensors *s, struct err *err)
{
	qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_name);
	for (int i = 1; i < s->n_tensors; i++) {
		const struct st_tensor *a = &s->tensors[i - 1], *b = a + 1;

		if (!strcmp(a->name, b->name))
			return err_set(err, ERR_INPUT, "%s: %s: it occurs twice (also in %s, or under another prefix)", b->file,
				       b->name, a->file);
	}
	return 0;
}

static int read_shards(struct safetensors *s, struct err *err)
{
	for (int i = 0; i < s->n_shards; i++)
		if (read_shard(s, &s->shards[i], err))
			return -1;
	return 0;
}

int safetensors_open(struct safetensors *s, const char *dir, struct err *err)
{
	char *path = path_join(dir, INDEX);
	json_t *index = NULL, *map;
	int rc;

	memset(s, 0, sizeof *s);
	s->indexed = file_exists(path);
	if (s->indexed) {
		index = json_read_file(path, false, err);
		map = json_object_get(index, "weight_map");
		rc = !index || list_index(s, dir, path, map, err) || read_shards(s, err) || check_index(s, path, map, err);
	} else {
		rc = list_shards(s, dir, err) || read_shards(s, err);
	}
	json_decref(index);
	free(path);
	if (!rc) {
		for (int i = 0; i < s->n_tensors; i++)
			s->tensors[i].name = canonical_name(s->tensors[i].name);
		rc = safetensors_sort(s, err);
	}
	if (rc)
		safetensors_release(s);
	return rc ? -1 : 0;
}

void safetensors_release(struct safetensors *s)
{
	for (int i = 0; i < s->n_shards; i++) {
		if (s->shards[i].map)
			munmap(s->shards[i].map, s->shards[i].size);
		free(s->shards[i].name);
		free(s->shards[i].path);
	}
	free(s->shards);
	free(s->tensors);
	arena_free(&s->arena);
	memset(s, 0, sizeof *s);
}

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *canonical)
{
	struct st_tensor key = { .name = canonical };

	return s->n_tensors ? bsearch(&key, s->tensors, s->n_tensors, sizeof key, by_name) : NULL;
}
