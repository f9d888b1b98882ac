/* safetensors files written here byte by byte, and damaged in many ways: the reader accepts what the format allows,
 * refuses the rest with one line, and never crashes (run it under ASan too: make asan). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "contract/file.h"
#include "engine/safetensors.h"

static char dir[64];

static void setup(void)
{
	snprintf(dir, sizeof dir, "/tmp/check_safetensors.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	static const char *const names[] = { "model.safetensors", "a.safetensors", "b.safetensors", "model.safetensors.index.json" };

	for (int i = 0; i < 4; i++) {
		char *path = path_join(dir, names[i]);

		unlink(path);
		free(path);
	}
	ck_assert_int_eq(rmdir(dir), 0);
}

static void put(const char *name, const char *bytes, size_t size)
{
	char *path = path_join(dir, name);
	FILE *f;

	unlink(path);       /* truncating a file makes some file systems wait for the disk */
	f = fopen(path, "wb");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, size, f), size);
	ck_assert_int_eq(fclose(f), 0);
	free(path);
}

/* Length field, header, `data` bytes counting up from 0. */
static void put_shard(const char *name, const char *header, size_t data)
{
	size_t n = strlen(header);
	char *bytes = xmalloc(8 + n + data);

	for (int i = 0; i < 8; i++)
		bytes[i] = (char)(n >> (8 * i));
	memcpy(bytes + 8, header, n);
	for (size_t i = 0; i < data; i++)
		bytes[8 + n + i] = (char)i;
	put(name, bytes, 8 + n + data);
	free(bytes);
}

static struct safetensors st;
static struct err err;

static int open_dir(void)
{
	memset(&err, 0, sizeof err);
	return safetensors_open(&st, dir, &err);
}

/* Opening fails with this message (after the directory). */
static void refused(const char *says)
{
	ck_assert_int_eq(open_dir(), -1);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_msg(!strncmp(err.text, dir, strlen(dir)), "%s", err.text);
	ck_assert_str_eq(err.text + strlen(dir) + 1, says);
	ck_assert_ptr_null(st.tensors);
}

START_TEST(test_reads)
{
	const struct st_tensor *t;

	put_shard("model.safetensors", "{\"__metadata__\":{\"format\":\"pt\"},\n"
		  " \"backbone.b\" : {\"shape\":[2, 3],\"dtype\":\"BF16\",\"data_offsets\":[5,17]},"
		  "\"language_model.model.a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]},"
		  "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[17,17]},"
		  "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[17,21]}}   ", 21);
	ck_assert_msg(open_dir() == 0, "%s", err.text);
	ck_assert_int_eq(st.n_tensors, 4);
	ck_assert(!st.indexed);
	t = safetensors_find(&st, "b");
	ck_assert_ptr_nonnull(t);
	ck_assert_str_eq(t->disk_name, "backbone.b");
	ck_assert_int_eq(t->dtype, ST_BF16);
	ck_assert_int_eq(t->rank, 2);
	ck_assert_int_eq(t->shape[0], 2);
	ck_assert_int_eq(t->shape[1], 3);
	ck_assert_uint_eq(t->bytes, 12);
	ck_assert_int_eq(*(const unsigned char *)t->data, 5);
	t = safetensors_find(&st, "a");
	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(*(const unsigned char *)t->data, 0);
	ck_assert_uint_eq(safetensors_find(&st, "empty")->bytes, 0);
	ck_assert_int_eq(safetensors_find(&st, "scalar")->rank, 0);
	ck_assert_ptr_null(safetensors_find(&st, "backbone.b"));
	safetensors_release(&st);
}
END_TEST

START_TEST(test_names)
{
	ck_assert_str_eq(canonical_name("backbone.layers.0.norm.weight"), "layers.0.norm.weight");
	ck_assert_str_eq(canonical_name("model.layers.0.norm.weight"), "layers.0.norm.weight");
	ck_assert_str_eq(canonical_name("language_model.backbone.norm_f.weight"), "norm_f.weight");
	ck_assert_str_eq(canonical_name("language_model.lm_head.weight"), "lm_head.weight");
	ck_assert_str_eq(canonical_name("backbone.embedding.weight"), "embeddings.weight");
	ck_assert_str_eq(canonical_name("backbone.embeddings.weight"), "embeddings.weight");
	ck_assert_str_eq(canonical_name("mtp.layers.0.norm.weight"), "mtp.layers.0.norm.weight");
}
END_TEST

/* An escape in a name is resolved, so that it cannot hide a second tensor of that name. */
START_TEST(test_escapes)
{
	put_shard("model.safetensors", "{\"\\u0061\\u00e9\\ud83d\\ude00\\/\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
	ck_assert_msg(open_dir() == 0, "%s", err.text);
	ck_assert_ptr_nonnull(safetensors_find(&st, "a\xc3\xa9\xf0\x9f\x98\x80/"));
	safetensors_release(&st);
	put_shard("model.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
		  "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2);
	refused("model.safetensors: a: it occurs twice, as a in model.safetensors too");
}
END_TEST

#define ENTRY(dtype, shape, offsets) "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct { const char *header; size_t data; const char *says; } bad[] = {
	{ ENTRY("\"U8\"", "[2]", "[1,3]"), 3, "a: its data begin at byte 1, expected 0 (a hole before them)" },
	{ ENTRY("\"U8\"", "[2]", "[0,2]"), 3, "1 bytes after the last tensor" },
	{ ENTRY("\"U8\"", "[2]", "[0,3]"), 3, "a: 3 bytes of data for shape [2] of U8" },
	{ ENTRY("\"U8\"", "[3]", "[0,4]"), 3, "a: data_offsets [0, 4] do not lie in the 3 bytes of data" },
	{ ENTRY("\"U8\"", "[3]", "[0]"), 3, "a: expected two data_offsets, found 1" },
	{ ENTRY("\"U8\"", "[3]", "[0,3,3]"), 3, "header:1:52: a: data_offsets: expected at most 2 numbers" },
	{ ENTRY("\"U8\"", "[1,1,1,1,1,1,1,1,3]", "[0,3]"), 3, "header:1:45: a: shape: expected at most 8 numbers" },
	{ ENTRY("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, "a: 0 bytes of data for shape [4611686018427387904, 4] of F32" },
	{ ENTRY("\"U8\"", "[9223372036854775808]", "[0,3]"), 3, "header:1:47: a: expected an integer below 2^63" },
	{ ENTRY("\"U8\"", "[3.0]", "[0,3]"), 3, "header:1:30: a: expected an integer of at least 0, found '.'" },
	{ ENTRY("\"U8\"", "[3e0]", "[0,3]"), 3, "header:1:30: a: expected an integer of at least 0, found 'e'" },
	{ ENTRY("\"U8\"", "[03]", "[0,3]"), 3, "header:1:31: a: expected an integer of at least 0, found ']'" },
	{ ENTRY("\"U8\"", "[true]", "[0,3]"), 3, "header:1:29: a: expected an integer of at least 0, found 't'" },
	{ ENTRY("\"U8\"", "[3,]", "[0,3]"), 3, "header:1:31: a: expected an integer of at least 0, found ']'" },
	{ ENTRY("\"U8\"", "null", "[0,3]"), 3, "header:1:28: a: expected '[', found 'n'" },
	{ ENTRY("8", "[3]", "[0,3]"), 3, "header:1:15: a: expected '\"', found '8'" },
	{ ENTRY("\"u8\"", "[3]", "[0,3]"), 3, "a: unknown dtype u8" },
	{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[3]}}", 3, "a: expected dtype, shape and data_offsets" },
	{ "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3, "header:1:28: a: dtype: it occurs twice" },
	{ "{\"a\":{\"dtype\":\"U8\",\"layout\":1,\"shape\":[3],\"data_offsets\":[0,3]}}", 3, "header:1:29: a: layout: unknown member" },
	{ "{\"a\":[1]}", 3, "header:1:6: a: expected '{', found '['" },
	{ "[1]", 3, "header:1:1: expected '{', found '['" },
	{ "", 3, "header:1:1: expected '{', found the end" },
	{ "{,}", 0, "header:1:2: expected '\"', found ','" },
	{ "{}x", 0, "header:1:3: expected the end, found 'x'" },
	{ "{\"a", 0, "header:1:4: the string does not end" },
	{ "{\"a\\", 0, "header:1:5: unknown escape in a string" },
	{ "{\"a\\x\":1}", 0, "header:1:5: unknown escape in a string" },
	{ "{\"a\\u00g0\":1}", 0, "header:1:8: expected four hexadecimal digits after \\u" },
	{ "{\"a\\u0000\":1}", 0, "header:1:10: a NUL in a string" },
	{ "{\"a\\ud800\":1}", 0, "header:1:10: a lone surrogate in a string" },
	{ "{\"a\\ud800\\u0041\":1}", 0, "header:1:16: a lone surrogate in a string" },
	{ "{\"a\nb\":1}", 0, "header:1:4: control character 0x0a in a string" },
	{ "{\"\xc0\xaf\":1}", 0, "header:1:3: byte 0xc0 is not UTF-8" },
	{ "{\"\xed\xa0\x80\":1}", 0, "header:1:3: byte 0xed is not UTF-8" },
	{ "{\"\xf4\x90\x80\x80\":1}", 0, "header:1:3: byte 0xf4 is not UTF-8" },
	{ "{\"__metadata__\":{\"a\":1,\"a\":2}}", 0, "header:1:17: value:1:9: duplicate key \"a\"" },
	{ "{\"__metadata__\":}", 0, "header:1:17: expected a value" },
};
enum { N_BAD = sizeof bad / sizeof *bad };

START_TEST(test_refuses)
{
	char says[300];

	put_shard("model.safetensors", bad[_i].header, bad[_i].data);
	snprintf(says, sizeof says, "model.safetensors: %s", bad[_i].says);
	refused(says);
}
END_TEST

#define A "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
#define B "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
#define INDEX "model.safetensors.index.json"

static void put_index(const char *text)
{
	put(INDEX, text, strlen(text));
}

START_TEST(test_index)
{
	put_shard("a.safetensors", A, 1);
	put_shard("b.safetensors", B, 1);
	put_index("{\"metadata\":{\"total_size\":2},\"weight_map\":{\"b\":\"b.safetensors\",\"a\":\"a.safetensors\"}}\n");
	ck_assert_msg(open_dir() == 0, "%s", err.text);
	ck_assert_int_eq(st.n_shards, 2);
	ck_assert_str_eq(st.shards[0].name, "a.safetensors");
	ck_assert(st.indexed);
	safetensors_release(&st);
	put_index("{\"weight_map\":{\"a\":\"a.safetensors\"}}");      /* b.safetensors is not part of the checkpoint */
	ck_assert_msg(open_dir() == 0, "%s", err.text);
	ck_assert_int_eq(st.n_tensors, 1);
	safetensors_release(&st);
	put_index("{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"a.safetensors\"}}");
	refused(INDEX ": b: it is not in a.safetensors");
	put_index("{\"weight_map\":{\"a\":\"a.safetensors\",\"model.b\":\"b.safetensors\"}}");
	refused(INDEX ": model.b: it is not in b.safetensors");
	put_index("{\"weight_map\":{\"a\":\"a.safetensors\",\"a\":\"a.safetensors\"}}");
	refused(INDEX ": a: it is listed twice");
	put_index("{\"weight_map\":{\"a\":\"..\"}}");
	refused(INDEX ": a: expected a file name in the same directory, found ..");
	put_index("{\"weight_map\":{\"a\":\"x\\\\a.safetensors\"}}");
	refused(INDEX ": a: expected a file name in the same directory, found x\\a.safetensors");
	put_index("{\"weight_map\":{}}");
	refused(INDEX ": weight_map: expected tensors and their files, found none");
	put_index("{\"weight_map\":{\"a\":1}}");
	refused(INDEX ":1:20: a: expected '\"', found '1'");
	put_index("[]");
	refused(INDEX ":1:1: expected '{', found '['");
}
END_TEST

START_TEST(test_unlisted)
{
	put_shard("a.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
		  "\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2);
	put_index("{\"weight_map\":{\"a\":\"a.safetensors\"}}");
	ck_assert_int_eq(open_dir(), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "a.safetensors: c: the tensor is not listed in "));
}
END_TEST

START_TEST(test_nothing)
{
	ck_assert_int_eq(open_dir(), -1);
	ck_assert_ptr_nonnull(strstr(err.text, ": expected *.safetensors, found none"));
}
END_TEST

/* Nobody writes this pipe: to wait for its first byte would be for ever. */
START_TEST(test_no_file)
{
	char *path = path_join(dir, "model.safetensors");

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	refused("model.safetensors: expected a regular file");
	free(path);
}
END_TEST

/* ---- every small damage of a real header ---- */

static uint32_t state = 1;

static uint32_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

static char *bytes;
static size_t size;

static void read_fixture(const char *name)
{
	char *path = xasprintf("engine/tests/fixtures/%s/model.safetensors", name);

	bytes = file_read(path, 1 << 20, &size, &err);
	ck_assert_msg(bytes != NULL, "%s", err.text);
	free(path);
}

/* Opens what was written; touches every byte that the tensors claim. */
static void survive(void)
{
	unsigned sum = 0;

	if (open_dir()) {
		ck_assert_int_eq(err.kind, ERR_INPUT);
		ck_assert_msg(err.text[0] && !strchr(err.text, '\n'), "%s", err.text);
		ck_assert_ptr_nonnull(strstr(err.text, "model.safetensors"));
		return;
	}
	for (int i = 0; i < st.n_tensors; i++)
		for (size_t b = 0; b < st.tensors[i].bytes; b++)
			sum += ((const unsigned char *)st.tensors[i].data)[b];
	ck_assert_uint_ge(sum, 0);
	safetensors_release(&st);
}

enum { ROUNDS = 400 };   /* per kind of damage; SAFETENSORS_ROUNDS at build time asks for more */
#ifndef SAFETENSORS_ROUNDS
#define SAFETENSORS_ROUNDS ROUNDS
#endif

/* Kinds: flip bits, other digits, cut the file, delete a byte, double a byte, swap a punctuation, huge number. */
static size_t damage(char *to, int kind)
{
	static const char punctuation[] = "{}[]\",:\\0-9.";
	size_t at, n = size, header = 8 + (size_t)(unsigned char)bytes[0] + ((size_t)(unsigned char)bytes[1] << 8);

	memcpy(to, bytes, size);
	at = rnd() % header;
	switch (kind) {
	case 0: to[at] ^= (char)(1 << rnd() % 8); break;
	case 1: to[rnd() % 8] = (char)rnd(); break;
	case 2: n = rnd() % size; break;
	case 3: memmove(to + at, to + at + 1, --n - at); break;
	case 4: memmove(to + at + 1, to + at, n - at); n++; break;
	case 5: to[8 + rnd() % (header - 8)] = punctuation[rnd() % (sizeof punctuation - 1)]; break;
	default:
		while (to[at] < '0' || to[at] > '9')
			at = 8 + rnd() % (header - 8);
		for (int i = 0; i < 1 + (int)(rnd() % 20) && at + i < header; i++)
			to[at + i] = (char)('0' + rnd() % 10);
	}
	return n;
}

START_TEST(test_damage)
{
	char *copy;

	state = 12345u + (uint32_t)_i;
	read_fixture(_i % 2 ? "good-micro-mix" : "good-micro");
	copy = xmalloc(size + 1);
	for (int i = 0; i < SAFETENSORS_ROUNDS; i++) {
		put("model.safetensors", copy, damage(copy, _i / 2));
		survive();
	}
	free(copy);
	free(bytes);
}
END_TEST

/* Every single byte of the header replaced by a quote, a brace and 0xff. */
START_TEST(test_every_byte)
{
	static const char values[] = { '"', '}', (char)0xff, '9' };
	size_t header;

	read_fixture("good-micro");
	header = 8 + (size_t)(unsigned char)bytes[0] + ((size_t)(unsigned char)bytes[1] << 8);
	for (size_t i = 0; i < header; i++) {
		char old = bytes[i];

		bytes[i] = values[_i];
		put("model.safetensors", bytes, size);
		survive();
		bytes[i] = old;
	}
	free(bytes);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("safetensors");
	TCase *c = tcase_create("format"), *d = tcase_create("damage");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, test_reads);
	tcase_add_test(c, test_names);
	tcase_add_test(c, test_escapes);
	tcase_add_loop_test(c, test_refuses, 0, N_BAD);
	tcase_add_test(c, test_index);
	tcase_add_test(c, test_unlisted);
	tcase_add_test(c, test_nothing);
	tcase_add_test(c, test_no_file);
	tcase_add_checked_fixture(d, setup, teardown);
	tcase_set_timeout(d, 120);
	tcase_add_loop_test(d, test_damage, 0, 14);
	tcase_add_loop_test(d, test_every_byte, 0, 4);
	suite_add_tcase(s, c);
	suite_add_tcase(s, d);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
