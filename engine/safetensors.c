#include "safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "arena.h"
#include "contract/file.h"
#include "json_scan.h"

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
	int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);   /* a pipe is refused, not waited for */

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
	/* What is not yet in the page cache is then read into huge pages, where the file system has them: decode
	 * streams all of this, and every page is a walk of the page table.  Only advice; a kernel may refuse. */
	madvise(s->map, s->size, MADV_HUGEPAGE);
	return 0;
}

static int read_dtype(struct st_tensor *t, struct json_scan *scan)
{
	const char *s;

	if (json_scan_string(scan, &s))
		return -1;
	for (int d = 0; d < N_ST; d++) {
		if (!strcmp(s, dtypes[d].name)) {
			t->dtype = d;
			return 0;
		}
	}
	return err_set(scan->err, ERR_INPUT, "%s: %s: unknown dtype %s", t->file, t->name, s);
}

/* A list of at most `max` integers. */
static int read_sizes(int64_t *to, int *n, int max, const char *what, struct json_scan *scan)
{
	bool first = true;
	int more;

	*n = 0;
	if (json_scan_char(scan, '['))
		return -1;
	while ((more = json_scan_item(scan, &first)) > 0) {
		if (*n == max)
			return json_scan_fail(scan, "%s: expected at most %d numbers", what, max);
		if (json_scan_size(scan, &to[(*n)++]))
			return -1;
	}
	return more;
}

static int check_offsets(struct st_tensor *t, const int64_t *offset, int n, size_t total, struct err *err)
{
	size_t bytes = dtypes[t->dtype].size;
	bool overflow = false;
	char shape[200];

	if (n != 2)
		return err_set(err, ERR_INPUT, "%s: %s: expected two data_offsets, found %d", t->file, t->name, n);
	if (offset[1] < offset[0] || (size_t)offset[1] > total)
		return err_set(err, ERR_INPUT, "%s: %s: data_offsets [%lld, %lld] do not lie in the %zu bytes of data", t->file,
			       t->name, (long long)offset[0], (long long)offset[1], total);
	for (int i = 0; i < t->rank; i++)
		overflow |= __builtin_mul_overflow(bytes, (size_t)t->shape[i], &bytes);
	if (overflow || bytes != (size_t)(offset[1] - offset[0]))
		return err_set(err, ERR_INPUT, "%s: %s: %lld bytes of data for shape %s of %s", t->file, t->name,
			       (long long)(offset[1] - offset[0]), st_shape_text(t->shape, t->rank, shape, sizeof shape),
			       dtypes[t->dtype].name);
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

	for (int i = 1; i < n; i++) {
		if (by_data(&t[i - 1], &t[i]) > 0) {   /* most files list their tensors in the order of the data */
			qsort(t, n, sizeof *t, by_data);
			break;
		}
	}
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

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, each once. */
static int read_entry(struct st_tensor *t, const char *data, size_t total, struct json_scan *scan)
{
	enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
	int64_t offset[2] = { 0, 0 };
	int more, seen = 0, is, n = 0;
	bool first = true;
	const char *key = NULL;

	if (json_scan_char(scan, '{'))
		return -1;
	while ((more = json_scan_member(scan, &first, &key)) > 0) {
		is = !strcmp(key, "dtype") ? DTYPE : !strcmp(key, "shape") ? SHAPE : !strcmp(key, "data_offsets") ? OFFSETS : 0;
		if (!is || (seen & is))
			return json_scan_fail(scan, is ? "%s: it occurs twice" : "%s: unknown member", key);
		seen |= is;
		if (is == DTYPE ? read_dtype(t, scan) :
		    is == SHAPE ? read_sizes(t->shape, &t->rank, ST_RANK, "shape", scan) :
				  read_sizes(offset, &n, 2, "data_offsets", scan))
			return -1;
	}
	if (more < 0)
		return -1;
	if (seen != (DTYPE | SHAPE | OFFSETS))
		return err_set(scan->err, ERR_INPUT, "%s: %s: expected dtype, shape and data_offsets", t->file, t->name);
	if (check_offsets(t, offset, n, total, scan->err))
		return -1;
	t->data = data + offset[0];
	return 0;
}

static struct st_tensor *add_tensor(struct safetensors *s, int *room)
{
	if (s->n_tensors == *room) {
		*room = *room ? 2 * *room : 256;
		s->tensors = xrealloc(s->tensors, *room, sizeof *s->tensors);
	}
	return &s->tensors[s->n_tensors++];
}

static int read_header(struct safetensors *s, int *room, const struct shard *shard, const char *data, struct json_scan *scan)
{
	size_t total = shard->size - (size_t)(data - (const char *)shard->map);
	bool first = true;
	const char *name = NULL;
	int more, from = s->n_tensors;

	if (json_scan_char(scan, '{'))
		return -1;
	while ((more = json_scan_member(scan, &first, &name)) > 0) {
		struct st_tensor *t;
		int rc;

		if (!strcmp(name, "__metadata__")) {
			if (json_scan_skip(scan))
				return -1;
			continue;
		}
		if (s->n_tensors == TENSORS_MAX)
			return json_scan_fail(scan, "more than %d tensors", TENSORS_MAX);
		t = add_tensor(s, room);
		*t = (struct st_tensor){ .name = name, .disk_name = name, .file = shard->path };
		scan->context = name;
		rc = read_entry(t, data, total, scan);
		scan->context = NULL;
		if (rc)
			return -1;
	}
	return more || json_scan_end(scan) ? -1 : check_spans(s->tensors + from, s->n_tensors - from, shard, data, scan->err);
}

static int read_shard(struct safetensors *s, int *room, struct shard *shard, struct err *err)
{
	struct json_scan scan = { .arena = &s->arena, .err = err };
	const unsigned char *p;
	uint64_t n = 0;
	char *name;
	int rc;

	if (map_file(shard, err))
		return -1;
	p = shard->map;
	for (int i = 7; i >= 0; i--)
		n = n << 8 | p[i];
	if (n > shard->size - 8 || n > HEADER_MAX)
		return err_set(err, ERR_INPUT, "%s: header: its length field says %llu bytes, the file has %zu", shard->path,
			       (unsigned long long)n, shard->size);
	scan.name = name = xasprintf("%s: header", shard->path);
	scan.begin = scan.at = (const char *)p + 8;
	scan.end = scan.begin + n;
	rc = read_header(s, room, shard, scan.end, &scan);
	free(name);
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

/* ---- the index ---- */

struct listed { const char *tensor, *file; };

struct index {
	char *path, *text;           /* owned */
	struct listed *entry; int n; /* owned */
	void *arena;                 /* owned: the names */
};

static int read_weight_map(struct index *x, struct json_scan *scan)
{
	bool first = true;
	int more, room = 0;
	const char *tensor = NULL, *file = NULL;

	if (json_scan_char(scan, '{'))
		return -1;
	while ((more = json_scan_member(scan, &first, &tensor)) > 0) {
		scan->context = tensor;
		if (json_scan_string(scan, &file))
			return -1;
		if (!*file || strpbrk(file, "/\\") || !strcmp(file, ".") || !strcmp(file, ".."))
			return err_set(scan->err, ERR_INPUT, "%s: %s: expected a file name in the same directory, found %s", x->path,
				       tensor, file);
		scan->context = NULL;
		if (x->n == TENSORS_MAX)
			return json_scan_fail(scan, "more than %d tensors", TENSORS_MAX);
		if (x->n == room) {
			room = room ? 2 * room : 256;
			x->entry = xrealloc(x->entry, room, sizeof *x->entry);
		}
		x->entry[x->n++] = (struct listed){ tensor, file };
	}
	return more;
}

static int index_read(struct index *x, struct err *err)
{
	struct json_scan scan = { .name = x->path, .arena = &x->arena, .err = err };
	bool first = true, seen = false;
	const char *key = NULL;
	size_t size = 0;
	int more;

	x->text = file_read(x->path, HEADER_MAX, &size, err);
	if (!x->text)
		return -1;
	scan.begin = scan.at = x->text;
	scan.end = scan.begin + size;
	if (json_scan_char(&scan, '{'))
		return -1;
	while ((more = json_scan_member(&scan, &first, &key)) > 0) {
		if (strcmp(key, "weight_map") ? json_scan_skip(&scan) :
		    seen ? json_scan_fail(&scan, "weight_map occurs twice") : read_weight_map(x, &scan))
			return -1;
		seen |= !strcmp(key, "weight_map");
	}
	if (more || json_scan_end(&scan))
		return -1;
	return x->n ? 0 : err_set(err, ERR_INPUT, "%s: weight_map: expected tensors and their files, found none", x->path);
}

static void index_release(struct index *x)
{
	free(x->path);
	free(x->text);
	free(x->entry);
	arena_free(&x->arena);
}

/* The shards that the index names, each once. */
static void list_index(struct safetensors *s, const char *dir, const struct index *x)
{
	for (int i = 0; i < x->n; i++)
		if (!s->n_shards || strcmp(s->shards[s->n_shards - 1].name, x->entry[i].file))
			add_shard(s, dir, x->entry[i].file);
	drop_repeats(s);
}

/* Index and shards list the same tensors in the same files. */
static int check_index(struct safetensors *s, const struct index *x, struct err *err)
{
	bool *listed = xcalloc(s->n_tensors, sizeof *listed);
	int rc = 0;

	for (int i = 0; i < x->n && !rc; i++) {
		const struct listed *e = &x->entry[i];
		const struct st_tensor *t = safetensors_find(s, canonical_name(e->tensor));

		if (!t || strcmp(t->disk_name, e->tensor) || strcmp(path_base(t->file), e->file))
			rc = err_set(err, ERR_INPUT, "%s: %s: it is not in %s", x->path, e->tensor, e->file);
		else if (listed[t - s->tensors])
			rc = err_set(err, ERR_INPUT, "%s: %s: it is listed twice", x->path, e->tensor);
		else
			listed[t - s->tensors] = true;
	}
	for (int i = 0; i < s->n_tensors && !rc; i++)
		if (!listed[i])
			rc = err_set(err, ERR_INPUT, "%s: %s: the tensor is not listed in %s", s->tensors[i].file,
				     s->tensors[i].disk_name, x->path);
	free(listed);
	return rc;
}

/* ---- whole ---- */

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
			return err_set(err, ERR_INPUT, "%s: %s: it occurs twice, as %s in %s too", b->file, b->disk_name, a->disk_name,
				       path_base(a->file));
	}
	return 0;
}

static int read_shards(struct safetensors *s, struct err *err)
{
	int room = 0;

	for (int i = 0; i < s->n_shards; i++)
		if (read_shard(s, &room, &s->shards[i], err))
			return -1;
	for (int i = 0; i < s->n_tensors; i++)
		s->tensors[i].name = canonical_name(s->tensors[i].disk_name);
	return safetensors_sort(s, err);
}

int safetensors_open(struct safetensors *s, const char *dir, struct err *err)
{
	struct index x = { .path = path_join(dir, INDEX) };
	int rc;

	memset(s, 0, sizeof *s);
	s->indexed = file_exists(x.path);
	if (s->indexed) {
		rc = index_read(&x, err);
		if (!rc)
			list_index(s, dir, &x);
		rc = rc || read_shards(s, err) || check_index(s, &x, err);
	} else {
		rc = list_shards(s, dir, err) || read_shards(s, err);
	}
	index_release(&x);
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
