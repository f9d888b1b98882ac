/* The expected ids and texts come from the `tokenizers` package: data/make_tokenizer_cases.py. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "contract/tokenizer.h"

#define DATA "contract/tests/data/tokenizer/"
#define BOOK "oracle-goldens/models/book52-nvfp4/tokenizer.json"
#define TINY "engine/tests/fixtures/tiny-m/tokenizer.json"

static struct tokenizer *load(const char *path)
{
	struct err err = { 0 };
	struct tokenizer *t = tokenizer_load(path, &err);

	ck_assert_msg(t != NULL, "%s", err.text);
	return t;
}

static void ck_ids(const int32_t *ids, int n, const int32_t *want, int n_want, const char *what)
{
	for (int i = 0; i < n && i < n_want; i++)
		ck_assert_msg(ids[i] == want[i], "%s: id %d: got %d, expected %d", what, i, (int)ids[i], (int)want[i]);
	ck_assert_msg(n == n_want, "%s: got %d ids, expected %d", what, n, n_want);
}

/* ---- against the package ---- */

static uint32_t u32(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

struct tally { int encoded, with_special, decoded, without_special; };

/* Runs one record and returns the bytes it takes. */
static size_t run_case(const struct tokenizer *t, const unsigned char *p, int record, struct tally *tally)
{
	struct err err = { 0 };
	uint32_t n_bytes = u32(p + 1), n_ids = u32(p + 5);
	const char *bytes = (const char *)p + 9;
	const unsigned char *packed = p + 9 + n_bytes;
	int32_t *want = xcalloc(n_ids + 1, sizeof(*want)), *ids = NULL;
	char what[40], kind = (char)p[0], *text;
	size_t size = 0;

	snprintf(what, sizeof(what), "record %d (%c)", record, kind);
	for (uint32_t i = 0; i < n_ids; i++)
		want[i] = packed[2 * i] | packed[2 * i + 1] << 8;
	if (kind == 'e' || kind == 's') {
		int n = tokenizer_encode(t, &ids, bytes, n_bytes, kind == 's', &err);

		ck_assert_msg(n >= 0, "%s: %s", what, err.text);
		ck_ids(ids, n, want, (int)n_ids, what);
		free(ids);
		tally->encoded += kind == 'e';
		tally->with_special += kind == 's';
	} else {
		text = tokenizer_decode(t, want, (int)n_ids, kind == 'k', &size, &err);
		ck_assert_msg(text != NULL, "%s: %s", what, err.text);
		ck_assert_msg(size == n_bytes && memcmp(text, bytes, size) == 0, "%s: got \"%s\", expected \"%.*s\"",
			      what, text, (int)n_bytes, bytes);
		ck_assert_int_eq(text[size], '\0');
		free(text);
		tally->decoded += kind == 'd';
		tally->without_special += kind == 'k';
	}
	free(want);
	return 9 + (size_t)n_bytes + 2 * (size_t)n_ids;
}

static void run_cases(const char *tokenizer, const char *cases, struct tally want)
{
	struct err err = { 0 };
	struct tokenizer *t = load(tokenizer);
	struct tally tally = { 0 };
	size_t size, at = 0;
	char *bytes = file_read(cases, (size_t)1 << 24, &size, &err);

	ck_assert_msg(bytes != NULL, "%s", err.text);
	for (int record = 0; at < size; record++)
		at += run_case(t, (const unsigned char *)bytes + at, record, &tally);
	ck_assert_uint_eq(at, size);
	ck_assert_int_eq(tally.encoded, want.encoded);
	ck_assert_int_eq(tally.with_special, want.with_special);
	ck_assert_int_eq(tally.decoded, want.decoded);
	ck_assert_int_eq(tally.without_special, want.without_special);
	free(bytes);
	tokenizer_free(t);
}

START_TEST(test_book52)
{
	run_cases(BOOK, DATA "book52.cases", (struct tally){ 2400, 0, 601, 300 });
}
END_TEST

/* ByteLevel alone with its own split and prefix space, merges as "a b", an unk_token. */
START_TEST(test_gpt2)
{
	run_cases(DATA "gpt2.json", DATA "gpt2.cases", (struct tally){ 360, 120, 281, 140 });
}
END_TEST

/* Llama 3's expression, ignore_merges, a template within a Sequence, added tokens with every flag. */
START_TEST(test_llama3)
{
	run_cases(DATA "llama3.json", DATA "llama3.cases", (struct tally){ 360, 120, 281, 140 });
}
END_TEST

/* Two Splits with what else the dialect allows, a prefix space for each of their parts. */
START_TEST(test_splits)
{
	run_cases(DATA "splits.json", DATA "splits.cases", (struct tally){ 360, 120, 281, 140 });
}
END_TEST

/* 1 MiB that no pattern splits: quadratic work would take minutes.  Expected: printed by make_tokenizer_cases.py. */
START_TEST(test_long_word)
{
	struct err err = { 0 };
	struct tokenizer *t = load(BOOK);
	size_t size = (size_t)1 << 20, out_size;
	char *word = xmalloc(size), *text;
	uint64_t x = 1, hash = 14695981039346656037u;
	int32_t *ids;
	int n;

	for (size_t i = 0; i < size; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		word[i] = "etaoinshrdlucmfw"[x >> 60];
	}
	n = tokenizer_encode(t, &ids, word, size, false, &err);
	ck_assert_int_eq(n, 702545);
	for (int i = 0; i < n; i++)
		hash = (hash ^ (uint64_t)ids[i]) * 1099511628211u;
	ck_assert_uint_eq(hash, 0xc7bd7d82fd7d9f9eu);
	text = tokenizer_decode(t, ids, n, false, &out_size, &err);
	ck_assert_uint_eq(out_size, size);
	ck_assert_mem_eq(text, word, size);
	free(text);
	free(ids);
	free(word);
	tokenizer_free(t);
}
END_TEST

/* ---- the fixtures, and what is refused ---- */

/* One token per byte, and only bytes below 128. */
START_TEST(test_tiny)
{
	struct err err = { 0 };
	struct tokenizer *t = load(TINY);
	const char *text = "x1 \t\n\x7f~";
	const int32_t want[] = { 'x', '1', ' ', '\t', '\n', 0x7f, '~' };
	int32_t *ids;
	int n = tokenizer_encode(t, &ids, text, strlen(text), true, &err);

	ck_assert_int_eq(tokenizer_size(t), 128);
	ck_ids(ids, n, want, 7, text);
	free(ids);
	ck_assert_int_eq(tokenizer_encode(t, &ids, "a\xc3\xa9", 3, false, &err), -1);
	ck_assert_str_eq(err.text, TINY ": $.model.vocab: the text has byte 0xC3, for which there is no token");
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_ptr_null(ids);
	tokenizer_free(t);
}
END_TEST

/* Every fixture's tokenizer loads, those of the invalid models too. */
START_TEST(test_all_fixtures)
{
	struct dirent *entry;
	DIR *dir = opendir("engine/tests/fixtures");
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL) {
		char path[512];

		snprintf(path, sizeof(path), "engine/tests/fixtures/%s/tokenizer.json", entry->d_name);
		if (!file_exists(path))
			continue;
		tokenizer_free(load(path));
		n++;
	}
	closedir(dir);
	ck_assert_int_ge(n, 17);
}
END_TEST

START_TEST(test_unknown_ids)
{
	struct err err = { 0 };
	struct tokenizer *t = load(BOOK);
	size_t size;

	ck_assert_int_eq(tokenizer_size(t), 4096);
	ck_assert_ptr_null(tokenizer_decode(t, (int32_t[]){ 5, 4096 }, 2, false, &size, &err));
	ck_assert_str_eq(err.text, BOOK ": there is no token 4096");
	err = (struct err){ 0 };
	ck_assert_ptr_null(tokenizer_decode(t, (int32_t[]){ -1 }, 1, true, &size, &err));
	ck_assert_str_eq(err.text, BOOK ": there is no token -1");
	tokenizer_free(t);
}
END_TEST

START_TEST(test_too_long)
{
	struct err err = { 0 };
	struct tokenizer *t = load(BOOK);
	int32_t *ids;

	ck_assert_int_eq(tokenizer_encode(t, &ids, "a", ((size_t)1 << 29) + 1, false, &err), -1);
	ck_assert_str_eq(err.text, BOOK ": a text of 536870913 bytes is too long (at most 536870912)");
	tokenizer_free(t);
}
END_TEST

/* (?:a+)+b takes 2^n steps to see that n letters a have no b behind them; without any b it need not start. */
START_TEST(test_runaway)
{
	struct err err = { 0 };
	struct tokenizer *t = load(DATA "runaway.json");
	char text[60];
	int32_t *ids;

	memset(text, 'a', 58);
	text[58] = ' ';
	text[59] = 'b';
	ck_assert_int_eq(tokenizer_encode(t, &ids, text, 60, false, &err), -1);
	ck_assert_str_eq(err.text, DATA "runaway.json: $.pre_tokenizer.pretokenizers[0].pattern.Regex: cannot match at "
			 "byte 0 of 60: match limit exceeded");
	ck_assert_ptr_null(ids);
	tokenizer_free(t);
}
END_TEST

START_TEST(test_missing)
{
	struct err err = { 0 };

	ck_assert_ptr_null(tokenizer_load(DATA "none.json", &err));
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_msg(strncmp(err.text, DATA "none.json: ", strlen(DATA "none.json: ")) == 0, "%s", err.text);
}
END_TEST

/* Each file is small.json, which loads, with one thing changed; what follows the file's name. */
static const struct { const char *name, *message; } refused[] = {
	{ "bad-empty", ":1:1: '[' or '{' expected near end of file" },
	{ "bad-syntax", ":85:14: unexpected token near ','" },
	{ "bad-duplicate-key", ":82:4: duplicate key \"a\"" },
	{ "bad-version", ": $.version: 2.0 is not supported (1.0 is)" },
	{ "bad-key", ": $: unknown key \"comment\"" },
	{ "bad-truncation", ": $.truncation: an object is not supported (null is)" },
	{ "bad-padding", ": $.padding: an object is not supported (null is)" },
	{ "bad-normalizer", ": $.normalizer: NFC is not supported (null is)" },
	{ "bad-no-model", ": $: the key \"model\" is missing" },
	{ "bad-added-id", ": $.added_tokens[0].id: expected 3 (the first after all others), found 4" },
	{ "bad-added-id-vocab", ": $.added_tokens[0].id: expected 2 (its id in the vocabulary), found 3" },
	{ "bad-added-taken", ": $.added_tokens[0].id: the vocabulary has another token of this id" },
	{ "bad-added-twice", ": $.added_tokens[1].content: this token is added already" },
	{ "bad-added-empty", ": $.added_tokens[0].content: expected at least one character" },
	{ "bad-added-flag", ": $.added_tokens[0]: the key \"special\" is missing" },
	{ "bad-added-type", ": $.added_tokens[0].lstrip: expected true or false, found an integer" },
	{ "bad-added-list", ": $.added_tokens: expected an array, found an object" },
	{ "bad-pre-null", ": $.pre_tokenizer: expected an object, found null" },
	{ "bad-pre-type", ": $.pre_tokenizer.type: Metaspace is not supported (ByteLevel, or a Sequence of Split and "
	  "ByteLevel, is)" },
	{ "bad-pre-nested", ": $.pre_tokenizer.pretokenizers[0].type: Sequence is not supported (ByteLevel, or a Sequence "
	  "of Split and ByteLevel, is)" },
	{ "bad-pre-order", ": $.pre_tokenizer.pretokenizers[1]: expected ByteLevel to be the last of the Sequence" },
	{ "bad-pre-no-bytes", ": $.pre_tokenizer: expected a ByteLevel" },
	{ "bad-pre-many", ": $.pre_tokenizer.pretokenizers[8]: more than 8 splits are not supported" },
	{ "bad-pre-key", ": $.pre_tokenizer.pretokenizers[1]: unknown key \"prefix\"" },
	{ "bad-split-behavior", ": $.pre_tokenizer.pretokenizers[0].behavior: Removed is not supported (Isolated is)" },
	{ "bad-split-invert", ": $.pre_tokenizer.pretokenizers[0].invert: an inverted split is not supported" },
	{ "bad-split-string", ": $.pre_tokenizer.pretokenizers[0].pattern.String: a plain string is not supported (Regex is)" },
	{ "bad-split-regex", ": $.pre_tokenizer.pretokenizers[0].pattern.Regex: offset 2: \"(?<\" is not supported" },
	{ "bad-split-empty", ": $.pre_tokenizer.pretokenizers[0].pattern.Regex: a pattern that matches the empty string is "
	  "not supported" },
	{ "bad-decoder-null", ": $.decoder: expected an object, found null" },
	{ "bad-decoder-type", ": $.decoder.type: ByteFallback is not supported (ByteLevel is)" },
	{ "bad-model-type", ": $.model.type: Unigram is not supported (BPE is)" },
	{ "bad-model-dropout", ": $.model.dropout: dropout is not supported" },
	{ "bad-model-prefix", ": $.model.continuing_subword_prefix: an affix is not supported" },
	{ "bad-model-suffix", ": $.model.end_of_word_suffix: an affix is not supported" },
	{ "bad-model-fallback", ": $.model.byte_fallback: byte fallback is not supported" },
	{ "bad-model-unk", ": $.model.unk_token: not supported in a vocabulary that has no token for byte 0x00" },
	{ "bad-vocab-list", ": $.model.vocab: expected an object, found an array" },
	{ "bad-vocab-id", ": $.model.vocab.b: expected an integer, found a string" },
	{ "bad-vocab-negative", ": $.model.vocab.b: expected an integer of at least 0, found -1" },
	{ "bad-vocab-huge", ": $.model.vocab.b: expected an id of at most 4194303, found 4194304" },
	{ "bad-vocab-twice", ": $.model.vocab.b: the id 0 is given twice" },
	{ "bad-merge-form", ": $.model.merges[1]: expected \"a b\" or [\"a\", \"b\"]" },
	{ "bad-merge-pair", ": $.model.merges[0]: expected \"a b\" or [\"a\", \"b\"]" },
	{ "bad-merge-version", ": $.model.merges[0]: expected \"a b\" or [\"a\", \"b\"]" },
	{ "bad-merge-left", ": $.model.merges[0]: the left side is not in the vocabulary" },
	{ "bad-merge-right", ": $.model.merges[0]: the right side is not in the vocabulary" },
	{ "bad-merge-merged", ": $.model.merges[0]: the merged token is not in the vocabulary" },
	{ "bad-merge-twice", ": $.model.merges[1]: this merge is there already" },
	{ "bad-post-type", ": $.post_processor.type: BertProcessing is not supported (ByteLevel, TemplateProcessing, or a "
	  "Sequence of them, is)" },
	{ "bad-post-nested", ": $.post_processor.processors[0].type: Sequence is not supported (ByteLevel, "
	  "TemplateProcessing, or a Sequence of them, is)" },
	{ "bad-post-second", ": $.post_processor.processors[1]: a second template is not supported" },
	{ "bad-post-part", ": $.post_processor.single[0]: expected one of SpecialToken and Sequence" },
	{ "bad-post-no-text", ": $.post_processor.single: expected the sequence A, once" },
	{ "bad-post-two-texts", ": $.post_processor.single[1].Sequence.id: expected the sequence A, once" },
	{ "bad-post-pair", ": $.post_processor.single[1].Sequence.id: expected the sequence A, once" },
	{ "bad-post-special", ": $.post_processor.special_tokens: \"<s>\", which the template names, is missing" },
	{ "bad-post-special-id", ": $.post_processor.special_tokens[\"<s>\"].ids[0]: there is no token 4" },
};
#define N_REFUSED ((int)(sizeof(refused) / sizeof(refused[0])))

START_TEST(test_refused)
{
	struct err err = { 0 };
	char path[256], want[1024];

	snprintf(path, sizeof(path), DATA "%s.json", refused[_i].name);
	snprintf(want, sizeof(want), "%s%s", path, refused[_i].message);
	ck_assert_ptr_null(tokenizer_load(path, &err));
	ck_assert_str_eq(err.text, want);
	ck_assert_int_eq(err.kind, ERR_INPUT);
}
END_TEST

START_TEST(test_small)
{
	struct err err = { 0 };
	struct tokenizer *t = load(DATA "small.json");
	int32_t *ids;
	int n = tokenizer_encode(t, &ids, "aabb<s>b", 8, true, &err);

	ck_ids(ids, n, (int32_t[]){ 3, 0, 2, 1, 3, 1 }, 6, "small");
	free(ids);
	tokenizer_free(t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tokenizer");
	TCase *package = tcase_create("package"), *rest = tcase_create("rest");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(package, 60);         /* for the sanitizers on a busy machine */
	tcase_add_test(package, test_book52);
	tcase_add_test(package, test_gpt2);
	tcase_add_test(package, test_llama3);
	tcase_add_test(package, test_splits);
	tcase_add_test(package, test_long_word);
	tcase_set_timeout(rest, 60);
	tcase_add_test(rest, test_tiny);
	tcase_add_test(rest, test_all_fixtures);
	tcase_add_test(rest, test_unknown_ids);
	tcase_add_test(rest, test_too_long);
	tcase_add_test(rest, test_runaway);
	tcase_add_test(rest, test_missing);
	tcase_add_test(rest, test_small);
	tcase_add_loop_test(rest, test_refused, 0, N_REFUSED);
	suite_add_tcase(suite, package);
	suite_add_tcase(suite, rest);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
