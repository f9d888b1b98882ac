#include "synth_tokenizer.h"

#include <stdbool.h>
#include <string.h>

/* The expression of the published tokenizers. */
static const char split[] =
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
	"\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 onwards; order[] lists the bytes in
 * the order of their characters. */
struct alphabet { char text[256][4]; unsigned char order[256]; };

static void put_utf8(char *to, unsigned code)
{
	if (code < 0x80) {
		*to++ = (char)code;
	} else {
		*to++ = (char)(0xc0 | code >> 6);
		*to++ = (char)(0x80 | (code & 63));
	}
	*to = '\0';
}

static void fill_alphabet(struct alphabet *a)
{
	unsigned extra = 256, n = 0, plain = 0;

	for (unsigned b = 0; b < 256; b++)
		plain += (b > 32 && b < 127) || (b > 160 && b != 173);
	for (unsigned b = 0; b < 256; b++) {
		bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);

		put_utf8(a->text[b], printable ? b : extra++);
		a->order[printable ? n++ : plain++] = (unsigned char)b;
	}
}

static json_t *byte_level(bool use_regex)
{
	return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", use_regex);
}

static json_t *special(int id, const char *content)
{
	return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", content, "single_word", 0, "lstrip", 0,
			 "rstrip", 0, "normalized", 0, "special", 1);
}

/* Adds the token left + right and the merge that makes it. */
static void add_merge(json_t *vocab, json_t *merges, const char *left, const char *right, int id)
{
	char token[16];

	strcpy(token, left);
	strcat(token, right);
	json_object_set_new(vocab, token, json_integer(id));
	json_array_append_new(merges, json_pack("[s, s]", left, right));
}

/* All pairs (a, b) in order, then triples (a b, c) with a before b: "a b" ranks before "b c", so BPE merges it first. */
static void add_merges(json_t *vocab, json_t *merges, const struct alphabet *a, int id, int vocab_size)
{
	char pair[16];

	for (int i = 0; i < 256 * 256 && id < vocab_size; i++)
		add_merge(vocab, merges, a->text[a->order[i / 256]], a->text[a->order[i % 256]], id++);
	for (int i = 0; i < 256 && id < vocab_size; i++) {
		for (int k = i + 1; k < 256 && id < vocab_size; k++) {
			strcpy(pair, a->text[a->order[i]]);
			strcat(pair, a->text[a->order[k]]);
			for (int c = 0; c < 256 && id < vocab_size; c++)
				add_merge(vocab, merges, pair, a->text[a->order[c]], id++);
		}
	}
}

json_t *synth_tokenizer(int vocab_size)
{
	static const char *const specials[] = { "<unk>", "<s>", "</s>" };
	json_t *vocab = json_object(), *merges = json_array(), *added = json_array();
	struct alphabet a;
	int id = 0;

	fill_alphabet(&a);
	if (vocab_size >= 259) {
		for (; id < 3; id++) {
			json_object_set_new(vocab, specials[id], json_integer(id));
			json_array_append_new(added, special(id, specials[id]));
		}
		for (int i = 0; i < 256; i++)
			json_object_set_new(vocab, a.text[a.order[i]], json_integer(id++));
		add_merges(vocab, merges, &a, id, vocab_size);
	} else {
		for (; id < vocab_size && id < 256; id++)
			json_object_set_new(vocab, a.text[id], json_integer(id));
	}
	return json_pack("{s:s, s:n, s:n, s:o, s:n, s:{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}, s:n, s:o,"
			 " s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}}",
			 "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
			 "pre_tokenizer", "type", "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex", split,
			 "behavior", "Isolated", "invert", 0, byte_level(false), "post_processor", "decoder", byte_level(true),
			 "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
			 "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges", merges);
}
