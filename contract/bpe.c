#include "bpe.h"

#include <stdlib.h>
#include <string.h>
#include "err.h"
#include "utf8.h"

#define NO_TEXT UINT32_MAX
#define NO_SYMBOL UINT32_MAX

/* ---- the byte alphabet ---- */

/* Bytes that are printable in Latin-1 stand for themselves; the n-th of the others for U+0100 + n. */
static bool byte_is_itself(uint32_t c)
{
	return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

static uint32_t byte_to_char(unsigned char byte)
{
	if (byte_is_itself(byte))
		return byte;
	return byte <= 0x20 ? 0x100u + byte : byte <= 0xa0 ? 0x121u + (byte - 0x7fu) : 0x143u;
}

/* -1 if the character is not in the alphabet. */
static int char_to_byte(uint32_t code)
{
	if (byte_is_itself(code))
		return (int)code;
	if (code < 0x100 || code > 0x143)
		return -1;
	return code <= 0x120 ? (int)(code - 0x100) : code <= 0x142 ? (int)(code - 0x121 + 0x7f) : 0xad;
}

/* ---- tables ---- */

static size_t power_of_two(size_t n)
{
	size_t p = 16;

	while (p < n)
		p *= 2;
	return p;
}

static size_t text_hash(const char *text, size_t len)
{
	uint64_t h = 14695981039346656037u;     /* FNV-1a */

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)text[i]) * 1099511628211u;
	return (size_t)(h ^ h >> 32);
}

static size_t pair_hash(int32_t left, int32_t right)
{
	uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;

	return (size_t)(h ^ h >> 32);
}

void bpe_open(struct bpe *b, size_t n_tokens, size_t n_merges)
{
	/* at most half full, so that a probe is short and always ends */
	b->texts_mask = power_of_two(2 * n_tokens) - 1;
	b->texts = xmalloc((b->texts_mask + 1) * sizeof(*b->texts));
	memset(b->texts, 0xff, (b->texts_mask + 1) * sizeof(*b->texts));
	b->merges_mask = power_of_two(2 * n_merges) - 1;
	b->merges = xmalloc((b->merges_mask + 1) * sizeof(*b->merges));
	memset(b->merges, 0xff, (b->merges_mask + 1) * sizeof(*b->merges));
	memset(b->byte_id, 0xff, sizeof(b->byte_id));
}

void bpe_release(struct bpe *b)
{
	free(b->merges);
	free(b->texts);
	free(b->arena);
	free(b->tokens);
	*b = (struct bpe){ 0 };
}

static uint32_t arena_add(struct bpe *b, const char *bytes, size_t len)
{
	size_t at = b->arena_size;

	if (b->arena_size + len >= b->arena_cap) {
		b->arena_cap = 2 * (b->arena_size + len) + 4096;
		b->arena = xrealloc(b->arena, b->arena_cap, 1);
	}
	BUG_ON(at + len >= UINT32_MAX);
	memcpy(b->arena + at, bytes, len);
	b->arena_size += len;
	return (uint32_t)at;
}

/* The slot of the text, or the empty one where it would go. */
static size_t text_slot(const struct bpe *b, const char *text, size_t len)
{
	size_t slot = text_hash(text, len) & b->texts_mask;

	while (b->texts[slot] >= 0) {
		const struct bpe_token *token = &b->tokens[b->texts[slot]];

		if (token->text_len == len && memcmp(b->arena + token->text, text, len) == 0)
			break;
		slot = (slot + 1) & b->texts_mask;
	}
	return slot;
}

int32_t bpe_find(const struct bpe *b, const char *text, size_t len)
{
	return b->texts[text_slot(b, text, len)];
}

/* The token's bytes: its text through the alphabet. */
static void add_bytes(struct bpe *b, struct bpe_token *token, const char *text, size_t len)
{
	char *bytes = xmalloc(len + 1);
	size_t n = 0;
	int byte = 0;

	for (size_t i = 0; i < len && byte >= 0; ) {
		uint32_t code;

		i += utf8_get(text + i, &code);
		byte = char_to_byte(code);
		bytes[n++] = (char)byte;
	}
	token->bytes = byte >= 0 ? arena_add(b, bytes, n) : token->text;
	token->bytes_len = byte >= 0 ? (uint32_t)n : token->text_len;
	free(bytes);
}

int bpe_name_id(struct bpe *b, const char *text, size_t len, int32_t id)
{
	BUG_ON(id < 0 || id > BPE_MAX_ID);
	if (id < b->size && b->tokens[id].text != NO_TEXT)
		return -1;
	if (id >= b->tokens_cap) {
		b->tokens_cap = id + id / 2 + 1024;
		b->tokens = xrealloc(b->tokens, (size_t)b->tokens_cap, sizeof(*b->tokens));
	}
	for (; b->size <= id; b->size++)
		b->tokens[b->size].text = NO_TEXT;
	b->tokens[id].text = arena_add(b, text, len);
	b->tokens[id].text_len = (uint32_t)len;
	add_bytes(b, &b->tokens[id], text, len);
	return 0;
}

int bpe_add_token(struct bpe *b, const char *text, size_t len, int32_t id)
{
	size_t slot = text_slot(b, text, len);
	const struct bpe_token *token;

	BUG_ON(2 * b->n_texts > b->texts_mask);
	if (b->texts[slot] >= 0 || bpe_name_id(b, text, len, id))
		return -1;
	b->texts[slot] = id;
	b->n_texts++;
	token = &b->tokens[id];
	if (token->bytes != token->text && token->bytes_len == 1)
		b->byte_id[(unsigned char)b->arena[token->bytes]] = id;
	return 0;
}

const char *bpe_bytes(const struct bpe *b, int32_t id, size_t *len)
{
	if (id < 0 || id >= b->size || b->tokens[id].text == NO_TEXT)
		return NULL;
	*len = b->tokens[id].bytes_len;
	return b->arena + b->tokens[id].bytes;
}

static struct bpe_merge *merge_slot(const struct bpe *b, int32_t left, int32_t right)
{
	size_t slot = pair_hash(left, right) & b->merges_mask;

	while (b->merges[slot].merged >= 0 && (b->merges[slot].left != left || b->merges[slot].right != right))
		slot = (slot + 1) & b->merges_mask;
	return &b->merges[slot];
}

int bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t merged)
{
	struct bpe_merge *merge = merge_slot(b, left, right);

	BUG_ON(2 * b->n_merges > b->merges_mask);
	if (merge->merged >= 0)
		return -1;
	*merge = (struct bpe_merge){ .left = left, .right = right, .merged = merged, .rank = (uint32_t)b->n_merges++ };
	return 0;
}

void ids_add(struct ids *ids, int32_t id)
{
	if (ids->n == ids->cap) {
		ids->cap = 2 * ids->cap + 64;
		ids->v = xrealloc(ids->v, ids->cap, sizeof(*ids->v));
	}
	ids->v[ids->n++] = id;
}

/* ---- encoding ---- */

struct bpe_symbol { int32_t id; uint32_t before, after; };   /* a linked list; id -1: merged into the one before */
/* A merge that was possible when it was pushed: it still is if left and right are still neighbours at `at`. */
struct bpe_candidate { uint32_t rank, at; int32_t left, right, merged; };

void bpe_work_release(struct bpe_work *w)
{
	free(w->text);
	free(w->heap);
	free(w->symbols);
	*w = (struct bpe_work){ 0 };
}

static bool comes_first(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct bpe_work *w, struct bpe_candidate c)
{
	size_t i = w->n_heap++;

	if (i == w->heap_cap) {
		w->heap_cap = 2 * w->heap_cap + 64;
		w->heap = xrealloc(w->heap, w->heap_cap, sizeof(*w->heap));
	}
	for (; i > 0 && comes_first(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = c;
}

static struct bpe_candidate heap_pop(struct bpe_work *w)
{
	struct bpe_candidate top = w->heap[0], last = w->heap[--w->n_heap];
	size_t i = 0;

	for (size_t child = 1; child < w->n_heap; child = 2 * i + 1) {
		if (child + 1 < w->n_heap && comes_first(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (!comes_first(&w->heap[child], &last))
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = last;
	return top;
}

/* Pushes the merge of the symbol at `at` with the one after it, if there is such a merge. */
static void push_pair(const struct bpe *b, struct bpe_work *w, uint32_t at)
{
	const struct bpe_symbol *s = &w->symbols[at];
	const struct bpe_merge *merge;

	if (s->after == NO_SYMBOL)
		return;
	merge = merge_slot(b, s->id, w->symbols[s->after].id);
	if (merge->merged >= 0)
		heap_push(w, (struct bpe_candidate){ .rank = merge->rank, .at = at, .left = merge->left,
						     .right = merge->right, .merged = merge->merged });
}

static void merge_all(const struct bpe *b, struct bpe_work *w, size_t n)
{
	for (uint32_t i = 0; i < n; i++)
		push_pair(b, w, i);
	while (w->n_heap > 0) {
		struct bpe_candidate c = heap_pop(w);
		struct bpe_symbol *left = &w->symbols[c.at], *right;

		if (left->id != c.left || left->after == NO_SYMBOL || w->symbols[left->after].id != c.right)
			continue;
		right = &w->symbols[left->after];
		left->id = c.merged;
		left->after = right->after;
		right->id = -1;
		if (left->after != NO_SYMBOL)
			w->symbols[left->after].before = c.at;
		if (left->before != NO_SYMBOL)
			push_pair(b, w, left->before);
		push_pair(b, w, c.at);
	}
}

static int32_t find_whole(const struct bpe *b, struct bpe_work *w, const char *word, size_t size)
{
	size_t n = 0;

	if (2 * size > w->text_cap) {
		w->text_cap = 4 * size + 64;
		w->text = xrealloc(w->text, w->text_cap, 1);
	}
	for (size_t i = 0; i < size; i++)
		n += utf8_put(w->text + n, byte_to_char((unsigned char)word[i]));
	return bpe_find(b, w->text, n);
}

int bpe_encode(const struct bpe *b, struct bpe_work *w, struct ids *out, const char *word, size_t size)
{
	BUG_ON(size >= NO_SYMBOL);
	if (b->ignore_merges && size > 0) {
		int32_t id = find_whole(b, w, word, size);

		if (id >= 0) {
			ids_add(out, id);
			return -1;
		}
	}
	if (size > w->symbols_cap) {
		w->symbols_cap = 2 * size + 64;
		w->symbols = xrealloc(w->symbols, w->symbols_cap, sizeof(*w->symbols));
	}
	for (size_t i = 0; i < size; i++) {
		int32_t id = b->byte_id[(unsigned char)word[i]];

		if (id < 0)
			return (unsigned char)word[i];
		w->symbols[i] = (struct bpe_symbol){ .id = id, .before = (uint32_t)i - 1, .after = (uint32_t)i + 1 };
	}
	if (size == 0)
		return -1;
	w->symbols[size - 1].after = NO_SYMBOL;
	merge_all(b, w, size);
	for (uint32_t i = 0; i != NO_SYMBOL; i = w->symbols[i].after)
		ids_add(out, w->symbols[i].id);
	return -1;
}
