#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include "tokenizer_impl.h"
#include "utf8.h"

#define TEXT_LIMIT ((size_t)1 << 29)    /* bytes: the ids of a text are counted by an int */

struct tokenizer *tokenizer_load(const char *path, struct err *err)
{
	struct tokenizer *t = xcalloc(1, sizeof(*t));

	t->path = xstrdup(path);
	if (tokenizer_read(t, err)) {
		tokenizer_free(t);
		return NULL;
	}
	return t;
}

void tokenizer_free(struct tokenizer *t)
{
	if (t == NULL)
		return;
	free(t->after.v);
	free(t->before.v);
	regex_free(t->gpt2);
	for (int i = 0; i < t->n_splits; i++)
		regex_free(t->splits[i]);
	regex_free(t->word);
	free(t->special);
	for (int pass = 0; pass < 2; pass++)
		free(t->passes[pass].order);
	for (size_t i = 0; i < t->n_added; i++)
		free(t->added[i].content);
	free(t->added);
	bpe_release(&t->bpe);
	free(t->path);
	free(t);
}

int tokenizer_size(const struct tokenizer *t)
{
	return t->bpe.size;
}

/* ---- encoding ---- */

/* A stretch of the text, and the same bytes with stand-ins, on which the patterns run. */
struct stretch { const char *text, *shadow; size_t size; };

struct encoder {
	const struct tokenizer *t;
	struct regex_scan scan;
	struct bpe_work work;
	struct ids out;
	struct err *err;        /* borrowed */
};

static struct stretch part(struct stretch s, size_t from, size_t to)
{
	return (struct stretch){ s.text + from, s.shadow + from, to - from };
}

static int encode_word(struct encoder *e, struct stretch s)
{
	int missing = bpe_encode(&e->t->bpe, &e->work, &e->out, s.text, s.size);

	if (missing >= 0)
		return err_set(e->err, ERR_INPUT, "%s: $.model.vocab: the text has byte 0x%02X, for which there is no token",
			       e->t->path, missing);
	return 0;
}

/* Calls `next` for each match of the pattern and for each stretch between two of them. */
static int split(struct encoder *e, const struct regex *regex, struct stretch s, int stage,
		 int (*next)(struct encoder *, struct stretch, int))
{
	size_t at = 0, start, end;

	while (at < s.size) {
		int found = regex_next(regex, &e->scan, s.shadow, s.size, at, &start, &end, e->err);

		if (found < 0)
			return -1;
		if (found == 0)
			start = end = s.size;
		if (start > at && next(e, part(s, at, start), stage))
			return -1;
		if (end > start && next(e, part(s, start, end), stage))
			return -1;
		at = end;
	}
	return 0;
}

static int byte_level_word(struct encoder *e, struct stretch s, int stage)
{
	(void)stage;
	return encode_word(e, s);
}

static int byte_level(struct encoder *e, struct stretch s)
{
	char *text = NULL;
	int failed;

	if (e->t->add_prefix_space && s.text[0] != ' ') {
		text = xmalloc(2 * (s.size + 1));
		text[0] = text[s.size + 1] = ' ';
		memcpy(text + 1, s.text, s.size);
		memcpy(text + s.size + 2, s.shadow, s.size);
		s = (struct stretch){ text, text + s.size + 1, s.size + 1 };
	}
	failed = e->t->gpt2 != NULL ? split(e, e->t->gpt2, s, 0, byte_level_word) : encode_word(e, s);
	free(text);
	return failed;
}

static int pre_tokenize(struct encoder *e, struct stretch s, int stage)
{
	if (stage == e->t->n_splits)
		return byte_level(e, s);
	return split(e, e->t->splits[stage], s, stage + 1, pre_tokenize);
}

/* The byte of a content at `depth`; the end sorts first. */
static int byte_at(const struct added_token *a, size_t depth)
{
	return depth < a->len ? (unsigned char)a->content[depth] : -1;
}

/* The first in [low, high) of the order whose byte at `depth` is at least `byte`. */
static size_t lower_bound(const struct added_set *set, size_t low, size_t high, size_t depth, int byte)
{
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (byte_at(set->order[mid], depth) < byte)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The longest added token that the text starts with, or NULL. */
static const struct added_token *longest(const struct added_set *set, const char *text, size_t size)
{
	const struct added_token *best = NULL;
	size_t low = 0, high = set->n;

	if (!set->starts[(unsigned char)text[0]])
		return NULL;
	for (size_t depth = 0; depth < size && low < high; depth++) {
		int byte = (unsigned char)text[depth];

		low = lower_bound(set, low, high, depth, byte);
		high = lower_bound(set, low, high, depth, byte + 1);
		if (low < high && set->order[low]->len == depth + 1)
			best = set->order[low];
	}
	return best;
}

static size_t before(const char *text, size_t at)
{
	do
		at--;
	while (at > 0 && (text[at] & 0xc0) == 0x80);
	return at;
}

/* Whether a word character stands at `at`, the start of a character or the end. */
static bool word_at(struct encoder *e, struct stretch s, size_t at)
{
	size_t start, end;
	uint32_t code;

	return at < s.size && regex_next(e->t->word, &e->scan, s.shadow + at, utf8_get(s.text + at, &code), 0,
					 &start, &end, e->err) > 0;
}

/* Whether the token at [*from, *to) counts; takes in the white space that it strips. */
static bool accept(struct encoder *e, const struct added_token *a, struct stretch s, size_t done, size_t *from,
		   size_t *to)
{
	uint32_t code;

	if (a->single_word && ((*from > 0 && word_at(e, s, before(s.text, *from))) || word_at(e, s, *to)))
		return false;
	while (a->lstrip && *from > done) {
		size_t at = before(s.text, *from);

		utf8_get(s.text + at, &code);
		if (!unicode_is_space(code))
			break;
		*from = at;
	}
	while (a->rstrip && *to < s.size) {
		size_t n = utf8_get(s.text + *to, &code);

		if (!unicode_is_space(code))
			break;
		*to += n;
	}
	return true;
}

/* Finds the added tokens of one pass; what lies between them goes to the next pass, then to the model.  The
 * search goes on behind a token's content, not behind the space it stripped. */
static int encode_pass(struct encoder *e, struct stretch s, int pass)
{
	const struct added_set *set = &e->t->passes[pass];
	size_t done = 0;

	if (s.size == 0)
		return 0;
	if (pass == 2)
		return pre_tokenize(e, s, 0);
	for (size_t at = 0; at < s.size; ) {
		const struct added_token *a = longest(set, s.text + at, s.size - at);
		size_t from = at, to;

		if (a == NULL) {
			at++;
			continue;
		}
		to = at += a->len;
		if (!accept(e, a, s, done, &from, &to))
			continue;
		if (from > done && encode_pass(e, part(s, done, from), pass + 1))
			return -1;
		ids_add(&e->out, a->id);
		done = to;
	}
	return done < s.size ? encode_pass(e, part(s, done, s.size), pass + 1) : 0;
}

static int encode(struct encoder *e, const char *text, size_t size, bool add_special)
{
	const struct ids *before_ids = &e->t->before, *after_ids = &e->t->after;
	char *shadow = xmalloc(size + 1);
	int failed;

	memcpy(shadow, text, size + 1);
	utf8_stand_in(shadow, size);
	for (size_t i = 0; add_special && i < before_ids->n; i++)
		ids_add(&e->out, before_ids->v[i]);
	regex_scan_open(&e->scan, size);
	failed = encode_pass(e, (struct stretch){ text, shadow, size }, 0);
	for (size_t i = 0; add_special && i < after_ids->n; i++)
		ids_add(&e->out, after_ids->v[i]);
	regex_scan_release(&e->scan);
	bpe_work_release(&e->work);
	free(shadow);
	return failed;
}

int tokenizer_encode(const struct tokenizer *t, int32_t **ids, const char *text, size_t size, bool add_special,
		     struct err *err)
{
	struct encoder e = { .t = t, .err = err };
	size_t clean_size = size;
	char *clean = NULL;
	int failed = -1;

	*ids = NULL;
	if (size <= TEXT_LIMIT)
		clean = utf8_lossy(text, size, &clean_size);
	if (clean_size > TEXT_LIMIT)
		err_set(err, ERR_INPUT, "%s: a text of %zu bytes is too long (at most %zu)", t->path, clean_size,
			TEXT_LIMIT);
	else
		failed = encode(&e, clean, clean_size, add_special);
	free(clean);
	if (failed) {
		free(e.out.v);
		return -1;
	}
	*ids = e.out.v;
	return (int)e.out.n;
}

/* ---- decoding ---- */

char *tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int n, bool skip_special, size_t *size,
		       struct err *err)
{
	size_t len, total = 0;
	char *bytes, *text;

	for (int i = 0; i < n; i++) {
		if (bpe_bytes(&t->bpe, ids[i], &len) == NULL) {
			err_set(err, ERR_INPUT, "%s: there is no token %d", t->path, (int)ids[i]);
			return NULL;
		}
		total += len;
	}
	bytes = xmalloc(total + 1);
	total = 0;
	for (int i = 0; i < n; i++) {
		const char *token = bpe_bytes(&t->bpe, ids[i], &len);

		if (skip_special && t->special[ids[i]])
			continue;
		memcpy(bytes + total, token, len);
		total += len;
	}
	text = utf8_lossy(bytes, total, size);
	free(bytes);
	return text;
}
