/* Byte-level byte-pair encoding: a vocabulary, its merges, and the encoding of one pre-token.
 * docs/model.md, section 5; Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword
 * Units"; the byte alphabet is GPT-2's.
 *
 * A token's text is written in the byte alphabet, in which each of the 256 bytes is one printable
 * character.  Its bytes are what it decodes to; for a text that is not wholly in the alphabet (added
 * tokens may be so) they are the text itself.
 */
#ifndef ASSAY_CONTRACT_BPE_H
#define ASSAY_CONTRACT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPE_MAX_ID ((1 << 22) - 1)  /* far above every vocabulary there is; bounds the table of tokens */

struct bpe_token { uint32_t text, text_len, bytes, bytes_len; };   /* places in the arena */
struct bpe_merge { int32_t left, right, merged; uint32_t rank; };  /* merged -1: an empty slot */

struct bpe {
	int size;                   /* highest id + 1 */
	struct bpe_token *tokens;   /* owned [size]; text UINT32_MAX: no such id */
	int tokens_cap;
	char *arena;                /* owned: texts and bytes */
	size_t arena_size, arena_cap;
	int32_t *texts;             /* owned [texts_mask + 1]: ids by the hash of the text, -1: empty */
	size_t n_texts, texts_mask;
	struct bpe_merge *merges;   /* owned [merges_mask + 1]: by the hash of the pair */
	size_t n_merges, merges_mask;
	int32_t byte_id[256];       /* the token of a single byte, -1: there is none */
	bool ignore_merges;         /* a pre-token that is a token as a whole is not merged */
};

/* Room for so many tokens and merges. */
void bpe_open(struct bpe *b, size_t n_tokens, size_t n_merges);
/* {0} is valid. */
void bpe_release(struct bpe *b);

/* `id` is 0 to BPE_MAX_ID.  -1 if the id or the text is there already. */
int bpe_add_token(struct bpe *b, const char *text, size_t len, int32_t id);
/* Gives an id a text that no merge leads to: an added token outside the vocabulary.  -1 if the id is there already. */
int bpe_name_id(struct bpe *b, const char *text, size_t len, int32_t id);
/* The id of a text of the vocabulary, -1 if there is none. */
int32_t bpe_find(const struct bpe *b, const char *text, size_t len);
/* The bytes of a token, NULL if there is no such id; not terminated. */
const char *bpe_bytes(const struct bpe *b, int32_t id, size_t *len);
/* Ranks ascend from 0 in the order of the calls.  -1 if the pair is there already. */
int bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t merged);

struct ids { int32_t *v; size_t n, cap; };     /* v: owned */
void ids_add(struct ids *ids, int32_t id);

struct bpe_work {                              /* scratch, reused from word to word; {0} is valid */
	struct bpe_symbol *symbols;            /* owned */
	size_t symbols_cap;
	struct bpe_candidate *heap;            /* owned */
	size_t n_heap, heap_cap;
	char *text;                            /* owned */
	size_t text_cap;
};
void bpe_work_release(struct bpe_work *w);

/* Appends the ids of one pre-token: the pair of lowest rank is merged first, the leftmost of equal ones,
 * until none is left; n log n in its length.  Returns -1, or the first byte that has no token. */
int bpe_encode(const struct bpe *b, struct bpe_work *w, struct ids *out, const char *word, size_t size);

#endif
