#include "edit.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "contract/file.h"
#include "contract/json.h"

#define SHARD "model.safetensors"

char *edit_dir(void)
{
	char *dir = xstrdup("/tmp/assay-edit.XXXXXX");

	ck_assert_ptr_nonnull(mkdtemp(dir));
	return dir;
}

void edit_remove(char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		char *path = path_join(dir, e->d_name);

		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			ck_assert_int_eq(unlink(path), 0);
		free(path);
	}
	closedir(d);
	ck_assert_int_eq(rmdir(dir), 0);
	free(dir);
}

void edit_write(const char *dir, const char *name, const void *bytes, size_t size)
{
	struct err err = {0};
	char *path = path_join(dir, name);

	ck_assert_msg(file_write(path, bytes, size, &err) == 0, "%s", err.text);
	free(path);
}

char *edit_copy(const char *fixture)
{
	static const char *const names[] = { "config.json", "hf_quant_config.json", "tokenizer.json", SHARD };
	char *dir = edit_dir();

	for (int i = 0; i < 4; i++) {
		char *from = xasprintf("engine/tests/fixtures/%s/%s", fixture, names[i]), *to = path_join(dir, names[i]);
		struct err err = {0};

		if (file_exists(from))
			ck_assert_msg(file_copy(from, to, &err) == 0, "%s", err.text);
		free(from);
		free(to);
	}
	return dir;
}

void edit_json(const char *dir, const char *name, const char *members)
{
	char *path = path_join(dir, name);
	struct err err = {0};
	json_t *file = json_read_file(path, true, &err), *change, *v;
	const char *key;

	ck_assert_msg(file != NULL, "%s", err.text);
	change = json_read_bytes(members, strlen(members), "members", true, &err);
	ck_assert_msg(change != NULL, "%s", err.text);
	json_object_foreach(change, key, v) {
		if (json_is_null(v))
			json_object_del(file, key);
		else
			json_object_set(file, key, v);
	}
	ck_assert_msg(json_write_file(file, path, 0, &err) == 0, "%s", err.text);
	json_decref(change);
	json_decref(file);
	free(path);
}

/* ---- the shard ---- */

struct shard_file { json_t *head; char *bytes; const char *data; };

static void read_shard(struct shard_file *s, const char *dir)
{
	char *path = path_join(dir, SHARD);
	struct err err = {0};
	size_t size = 0, n = 0;

	s->bytes = file_read(path, 64 << 20, &size, &err);
	ck_assert_msg(s->bytes != NULL, "%s", err.text);
	for (int i = 7; i >= 0; i--)
		n = n << 8 | (unsigned char)s->bytes[i];
	s->head = json_read_bytes(s->bytes + 8, n, SHARD, false, &err);
	ck_assert_msg(s->head != NULL, "%s", err.text);
	json_object_del(s->head, "__metadata__");
	s->data = s->bytes + 8 + n;
	free(path);
}

static size_t offset(const json_t *entry, int i)
{
	return (size_t)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), i));
}

/* Writes the tensors of the header one after the other; `extra` is the data of an entry whose offsets are [0, size]
 * and that has the member "extra". */
static void write_shard(struct shard_file *s, const char *dir, const void *extra)
{
	char *data = NULL, *text, *all;
	size_t at = 0, n;
	const char *name;
	json_t *entry;

	json_object_foreach(s->head, name, entry) {
		const char *from = json_object_del(entry, "extra") == 0 ? extra : s->data + offset(entry, 0);
		size_t size = offset(entry, 1) - offset(entry, 0);

		data = xrealloc(data, at + size, 1);
		memcpy(data + at, from, size);
		json_object_set_new(entry, "data_offsets", json_pack("[I, I]", (json_int_t)at, (json_int_t)(at + size)));
		at += size;
	}
	text = json_dumps(s->head, JSON_COMPACT);
	n = strlen(text);
	all = xmalloc(8 + n + at);
	for (int i = 0; i < 8; i++)
		all[i] = (char)(n >> (8 * i));
	memcpy(all + 8, text, n);
	memcpy(all + 8 + n, data, at);
	edit_write(dir, SHARD, all, 8 + n + at);
	free(all);
	free(text);
	free(data);
	json_decref(s->head);
	free(s->bytes);
}

static json_t *entry_of(const struct shard_file *s, const char *tensor)
{
	json_t *entry = json_object_get(s->head, tensor);

	ck_assert_msg(entry != NULL, "no tensor %s", tensor);
	return entry;
}

void edit_drop(const char *dir, const char *tensor)
{
	struct shard_file s;

	read_shard(&s, dir);
	entry_of(&s, tensor);
	json_object_del(s.head, tensor);
	write_shard(&s, dir, NULL);
}

void edit_add(const char *dir, const char *tensor, const char *dtype, const char *shape, const void *bytes, size_t size)
{
	struct shard_file s;
	json_t *dims = json_loads(shape, 0, NULL);

	ck_assert_ptr_nonnull(dims);
	read_shard(&s, dir);
	json_object_set_new(s.head, tensor, json_pack("{s:s, s:o, s:[i, I], s:b}", "dtype", dtype, "shape", dims, "data_offsets",
						      0, (json_int_t)size, "extra", 1));
	write_shard(&s, dir, bytes);
}

void edit_poke(const char *dir, const char *tensor, size_t at, const void *bytes, size_t size)
{
	struct shard_file s;

	read_shard(&s, dir);
	ck_assert_uint_le(offset(entry_of(&s, tensor), 0) + at + size, offset(entry_of(&s, tensor), 1));
	memcpy(s.bytes + (s.data - s.bytes) + offset(entry_of(&s, tensor), 0) + at, bytes, size);
	write_shard(&s, dir, NULL);
}

void edit_rename(const char *dir, const char *tensor, const char *to)
{
	struct shard_file s;

	read_shard(&s, dir);
	json_object_set(s.head, to, entry_of(&s, tensor));
	json_object_del(s.head, tensor);
	write_shard(&s, dir, NULL);
}

size_t edit_size(const char *dir, const char *tensor)
{
	struct shard_file s;
	size_t n;

	read_shard(&s, dir);
	n = offset(entry_of(&s, tensor), 1) - offset(entry_of(&s, tensor), 0);
	json_decref(s.head);
	free(s.bytes);
	return n;
}
