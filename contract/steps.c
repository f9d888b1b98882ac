#include "steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"

static bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* ---- cutting ---- */

/* Behind the string whose opening quote is at p. */
static const char *skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p < end ? p + 1 : end;
}

/* Behind the bracket that closes the array at p; NULL if there is none. */
static const char *skip_array(const char *p, const char *end)
{
	int depth = 0;

	while (p < end) {
		if (*p == '"') {
			p = skip_string(p, end);
			continue;
		}
		depth += (*p == '[') - (*p == ']');
		p++;
		if (depth == 0)
			return p;
	}
	return NULL;
}

#define DEEPEST 5   /* { OUTER * { prompts [ { steps */

/* The containers that are open at some byte of a document. */
struct nesting {
	int depth;
	char open[DEEPEST + 1];                                  /* '{' or '[' */
	struct { const char *p; size_t n; } key[DEEPEST + 1];    /* the last string in each */
};

static bool key_is(const struct nesting *at, int depth, const char *word)
{
	return at->key[depth].n == strlen(word) && memcmp(at->key[depth].p, word, at->key[depth].n) == 0;
}

static bool at_steps(const struct nesting *at, const char *outer)
{
	return at->depth == DEEPEST && key_is(at, 5, "steps") && at->open[5] == '{' && at->open[4] == '[' &&
	       key_is(at, 3, "prompts") && at->open[3] == '{' && key_is(at, 1, outer) && at->open[1] == '{';
}

static bool at_trace(const struct nesting *at)
{
	return at->depth == 3 && key_is(at, 3, "trace") && at->open[3] == '{' && at->open[2] == '{' &&
	       key_is(at, 1, "modes") && at->open[1] == '{';
}

static void add_span(struct steps_doc *d, size_t begin, size_t end, bool trace)
{
	if ((d->n & (d->n - 1)) == 0)
		d->spans = xrealloc(d->spans, d->n ? 2 * (size_t)d->n : 1, sizeof(*d->spans));
	d->spans[d->n++] = (struct steps_span){ .begin = begin, .end = end, .trace = trace };
}

/* Fills d->spans and writes the text without them to `out`; returns its size.  Damaged text is passed on, to be
 * refused by the parser. */
static size_t cut(struct steps_doc *d, const char *outer, char *out)
{
	const char *p = d->bytes, *end = d->bytes + d->size, *from = p;
	bool modes = strcmp(outer, "modes") == 0, trace;
	struct nesting at = { 0 };
	size_t n = 0;

	while (p < end) {
		const char *start = p, *stop;

		if (*p == '"') {
			p = skip_string(p, end);
			if (at.depth >= 1 && at.depth <= DEEPEST) {
				at.key[at.depth].p = start + 1;
				at.key[at.depth].n = p - start >= 2 ? (size_t)(p - start - 2) : 0;
			}
			while (p < end && is_space(*p))
				p++;
			trace = modes && at_trace(&at);
			if (p == end || *p != ':' || !(trace || at_steps(&at, outer)))
				continue;
			for (p++; p < end && is_space(*p); p++)
				;
			stop = p < end && *p == '[' ? skip_array(p, end) : NULL;
			if (stop == NULL)
				continue;
			add_span(d, (size_t)(p - d->bytes), (size_t)(stop - d->bytes), trace);
			memcpy(out + n, from, (size_t)(p - from));
			n += (size_t)(p - from);
			out[n++] = '0';
			from = p = stop;
			continue;
		}
		if (*p == '{' || *p == '[') {
			if (++at.depth <= DEEPEST) {
				at.open[at.depth] = *p;
				at.key[at.depth].n = 0;
			}
		} else if (*p == '}' || *p == ']') {
			at.depth -= at.depth > 0;
		}
		p++;
	}
	memcpy(out + n, from, (size_t)(end - from));
	return n + (size_t)(end - from);
}

static struct steps_span *next_span(struct steps_doc *d, bool trace)
{
	int *next = trace ? &d->next_trace : &d->next_steps;

	while (*next < d->n && d->spans[*next].trace != trace)
		++*next;
	return *next < d->n ? &d->spans[(*next)++] : NULL;
}

int steps_close(struct steps_doc *d, struct err *err)
{
	/* can only be a key spelled with an escape beside a plain one */
	if (err->kind == ERR_NONE && (next_span(d, false) != NULL || next_span(d, true) != NULL))
		err_set(err, ERR_INPUT, "%s: expected the keys \"steps\" and \"trace\" without escapes", d->file);
	json_decref(d->json);
	free(d->spans);
	*d = (struct steps_doc){ 0 };
	return err->kind == ERR_NONE ? 0 : -1;
}

int steps_open(struct steps_doc *d, const char *bytes, size_t size, const char *file, const char *outer,
	       struct err *err)
{
	char *rest = xmalloc(size + 1);
	json_error_t e;
	size_t n;

	*d = (struct steps_doc){ .file = file, .bytes = bytes, .size = size };
	n = cut(d, outer, rest);
	d->json = json_loadb(rest, n, JSON_REJECT_DUPLICATES, &e);
	free(rest);
	if (d->json == NULL) {
		size_t at = e.position > 0 ? (size_t)e.position : 0;

		for (int i = 0; i < d->n && at > d->spans[i].begin; i++)
			at += d->spans[i].end - d->spans[i].begin - 1;
		json_syntax_error(bytes, at < size ? at : size, file, &e, err);
		return steps_close(d, err);
	}
	return 0;
}

/* ---- reading one array ---- */

static int fail(const struct steps_reader *r, const char *what)
{
	int line, column;

	json_position(r->doc->bytes, (size_t)(r->p - r->doc->bytes), &line, &column);
	return err_set(r->err, ERR_INPUT, "%s:%d:%d: %s[%d]: %s", r->doc->file, line, column, r->path, r->n, what);
}

/* The complaint points to where the value begins. */
static int refuse_at(struct steps_reader *r, const char *start, const char *what)
{
	r->p = start;
	return fail(r, what);
}

int steps_refuse(const struct steps_reader *r, const char *what)
{
	return err_set(r->err, ERR_INPUT, "%s: %s[%d]: %s", r->doc->file, r->path, r->n - 1, what);
}

static char look(struct steps_reader *r)
{
	while (r->p < r->end && is_space(*r->p))
		r->p++;
	return r->p < r->end ? *r->p : '\0';
}

static bool take(struct steps_reader *r, char c)
{
	if (look(r) != c)
		return false;
	r->p++;
	return true;
}

static int need(struct steps_reader *r, char c)
{
	char what[16];

	if (take(r, c))
		return 0;
	snprintf(what, sizeof(what), "expected '%c'", c);
	return fail(r, what);
}

/* A string of plain characters, which is all that steps hold; others are cut short and so are not known. */
static int read_word(struct steps_reader *r, char *word, size_t size)
{
	size_t n = 0;

	if (look(r) != '"')
		return fail(r, "expected a string");
	for (r->p++; r->p < r->end && *r->p != '"'; r->p++) {
		if ((unsigned char)*r->p < 0x20 || *r->p == '\\' || (*r->p & 0x80) || n + 1 == size)
			return fail(r, "expected a known word");
		word[n++] = *r->p;
	}
	word[n] = '\0';
	return need(r, '"');
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?: its end, or NULL.  *digits and *exponent describe it as
 * digits * 10^exponent, unless it has more than 19 digits (*digits = UINT64_MAX). */
static const char *scan_number(const char *p, uint64_t *digits, int *exponent, bool *integer)
{
	const char *start;
	int n = 0, e = 0;
	bool negative;

	*digits = 0;
	*exponent = 0;
	p += *p == '-';
	start = p;
	for (; *p >= '0' && *p <= '9'; p++, n++)
		*digits = 10 * *digits + (uint64_t)(*p - '0');
	if (n == 0 || (*start == '0' && n > 1))
		return NULL;
	*integer = *p != '.' && *p != 'e' && *p != 'E';
	if (*p == '.') {
		for (start = ++p; *p >= '0' && *p <= '9'; p++, n++)
			*digits = 10 * *digits + (uint64_t)(*p - '0');
		*exponent = (int)(start - p);
		if (p == start)
			return NULL;
	}
	if (*p == 'e' || *p == 'E') {
		p++;
		negative = *p == '-';
		p += *p == '-' || *p == '+';
		for (start = p; *p >= '0' && *p <= '9'; p++)
			e = e < 100000 ? 10 * e + (*p - '0') : e;
		if (p == start)
			return NULL;
		*exponent += negative ? -e : e;
	}
	if (n > 19)
		*digits = UINT64_MAX;
	return p;
}

static int read_int(struct steps_reader *r, int64_t max, int64_t *n)
{
	const char *stop = NULL;
	uint64_t digits;
	int exponent;
	bool integer;
	char what[64];

	if (look(r) != '-' && r->p < r->end)
		stop = scan_number(r->p, &digits, &exponent, &integer);
	if (stop == NULL || !integer || digits > (uint64_t)max) {
		snprintf(what, sizeof(what), "expected an integer from 0 to %lld", (long long)max);
		return fail(r, what);
	}
	*n = (int64_t)digits;
	r->p = stop;
	return 0;
}

static int read_id(struct steps_reader *r, int32_t *id)
{
	int64_t n = 0;

	if (read_int(r, INT32_MAX, &n))
		return -1;
	*id = (int32_t)n;
	return 0;
}

static int read_number(struct steps_reader *r, double *x)
{
	/* powers of ten that a double holds exactly: one rounding makes quotient and product correct */
	static const double ten[23] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13,
					1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
	uint64_t digits;
	int exponent;
	bool integer;
	char c = look(r);
	const char *start = r->p, *stop;
	char word[8];

	if (c == '"' && r->kind == STEPS_REPORT) {
		if (read_word(r, word, sizeof(word)))
			return -1;
		*x = strcmp(word, "inf") == 0 ? INFINITY : strcmp(word, "-inf") == 0 ? -INFINITY : NAN;
		if (!isnan(*x) || strcmp(word, "nan") == 0)
			return 0;
		r->p = start;
	}
	stop = c == '-' || (c >= '0' && c <= '9') ? scan_number(start, &digits, &exponent, &integer) : NULL;
	if (stop == NULL)
		return fail(r, "expected a number");
	if (digits <= (uint64_t)1 << 53 && exponent >= -22 && exponent <= 22) {
		*x = exponent < 0 ? (double)digits / ten[-exponent] : (double)digits * ten[exponent];
		*x = c == '-' ? -*x : *x;
	} else {
		*x = strtod(start, NULL);
	}
	if (isinf(*x))
		return fail(r, "expected a number in the range of a double");
	r->p = stop;
	return 0;
}

/* Is b in its place behind a?  Nothing is in order with NaN or out of it. */
static bool in_order(const struct top *a, const struct top *b)
{
	return !(a->value < b->value) && !(a->value == b->value && a->id > b->id);
}

static int read_top(struct steps_reader *r, struct step *s)
{
	if (need(r, '['))
		return -1;
	do {
		struct top *t = &s->top[s->n_top];
		const char *pair;

		look(r);
		pair = r->p;
		if (s->n_top == TOP_MAX)
			return refuse_at(r, pair, "expected at most 20 pairs in top");
		if (need(r, '[') || read_id(r, &t->id) || need(r, ',') || read_number(r, &t->value) || need(r, ']'))
			return -1;
		for (int i = 0; i < s->n_top; i++)
			if (s->top[i].id == t->id)
				return refuse_at(r, pair, "expected each id once in top");
		if (s->n_top > 0 && !in_order(t - 1, t))
			return refuse_at(r, pair, "expected top best first, ties by lower id");
		s->n_top++;
	} while (take(r, ','));
	return need(r, ']');
}

static int read_given(struct steps_reader *r, struct step *s)
{
	s->has_given = true;
	if (need(r, '[') || read_id(r, &s->given) || need(r, ',') || read_number(r, &s->given_logit) || need(r, ',') ||
	    read_id(r, &s->given_rank))
		return -1;
	return s->given_rank < 1 ? fail(r, "expected a rank of at least 1 in given") : need(r, ']');
}

static int read_hash(struct steps_reader *r, struct step *s)
{
	const char *start;
	char word[17];

	s->has_hash = true;
	look(r);
	start = r->p;
	if (read_word(r, word, sizeof(word)))
		return -1;
	if (strlen(word) != 16 || strspn(word, "0123456789abcdef") != 16)
		return refuse_at(r, start, "expected 16 hexadecimal digits in logits_xxh64");
	s->hash = strtoull(word, NULL, 16);
	return 0;
}

#define KEY_SIZE 32

/* The key has been read; the message points to its start. */
static int refuse_key(struct steps_reader *r, const char *key, bool twice)
{
	char what[64];

	r->p -= strlen(key) + 2;
	snprintf(what, sizeof(what), "%s key \"%s\"", twice ? "duplicate" : "unknown", key);
	return fail(r, what);
}

enum { SEEN_ID = 1, SEEN_TOP = 2, SEEN_LSE = 4, SEEN_MARGIN = 8, SEEN_GIVEN = 16, SEEN_HASH = 32 };

static int read_member(struct steps_reader *r, struct step *s, unsigned *seen)
{
	static const struct { const char *name; unsigned bit; } keys[] = {
		{ "id", SEEN_ID }, { "top", SEEN_TOP }, { "lse", SEEN_LSE },
		{ "margin", SEEN_MARGIN }, { "given", SEEN_GIVEN }, { "logits_xxh64", SEEN_HASH },
	};
	unsigned bit = 0;
	char key[KEY_SIZE];

	if (read_word(r, key, sizeof(key)))
		return -1;
	for (int i = 0; i < (r->kind == STEPS_REPORT ? 6 : 3); i++)
		if (strcmp(key, keys[i].name) == 0)
			bit = keys[i].bit;
	if (bit == 0 || (*seen & bit))
		return refuse_key(r, key, bit != 0);
	*seen |= bit;
	if (need(r, ':'))
		return -1;
	switch (bit) {
	case SEEN_ID: return read_id(r, &s->id);
	case SEEN_TOP: return read_top(r, s);
	case SEEN_LSE: s->has_lse = true; return read_number(r, &s->lse);
	case SEEN_MARGIN: s->has_margin = true; return read_number(r, &s->margin);
	case SEEN_GIVEN: return read_given(r, s);
	default: return read_hash(r, s);
	}
}

int steps_begin(struct steps_reader *r, struct steps_doc *d, const json_t *marker, const char *path,
		enum steps_kind kind, struct err *err)
{
	struct steps_span *span;

	*r = (struct steps_reader){ .doc = d, .path = path, .kind = kind, .err = err };
	if (!json_is_integer(marker))
		return json_expected(marker, "an array", d->file, path, err);
	span = next_span(d, kind == STEPS_TRACE);
	if (span == NULL)
		return json_expected(marker, "an array", d->file, path, err);
	r->p = d->bytes + span->begin + 1;
	r->end = d->bytes + span->end;
	return 0;
}

/* To the next item: 1 behind its opening brace, 0 behind the end of the array. */
static int next_item(struct steps_reader *r)
{
	if (r->n == 0 ? take(r, ']') : !take(r, ','))
		return r->n == 0 ? 0 : need(r, ']');
	return need(r, '{') ? -1 : 1;
}

int steps_next(struct steps_reader *r, struct step *s)
{
	unsigned seen = 0;
	int more = next_item(r);

	if (more <= 0)
		return more;
	s->n_top = 0;
	s->has_lse = s->has_margin = s->has_given = s->has_hash = false;
	if (look(r) != '}') {
		do
			if (read_member(r, s, &seen))
				return -1;
		while (take(r, ','));
	}
	if (need(r, '}'))
		return -1;
	r->n++;
	return seen & SEEN_ID ? 1 : steps_refuse(r, "the key \"id\" is missing");
}

int steps_next_trace(struct steps_reader *r, struct report_trace *row)
{
	static const char *const head[] = { "step", "T", "nd", "np" };
	int64_t *const to[] = { &row->step, &row->T, &row->nd, &row->np };
	int more = next_item(r), next = 0;
	char key[KEY_SIZE];

	if (more <= 0)
		return more;
	row->step = row->T = row->nd = row->np = -1;
	for (int c = 0; c < N_COUNTERS; c++)
		row->counters.n[c] = COUNTER_ABSENT;
	if (look(r) != '}') {
		do {
			int64_t *n = NULL;

			if (read_word(r, key, sizeof(key)))
				return -1;
			for (int i = 0; i < 4; i++)
				if (strcmp(key, head[i]) == 0)
					n = to[i];
			if (n == NULL) {
				/* mostly they come in the order of the table */
				int c = strcmp(key, counter_name(next)) == 0 ? next : counter_find(key);

				if (c < 0)
					return refuse_key(r, key, false);
				n = &row->counters.n[c];
				next = (c + 1) % N_COUNTERS;
			}
			if (*n >= 0)
				return refuse_key(r, key, true);
			if (need(r, ':') || read_int(r, INT64_MAX, n))
				return -1;
		} while (take(r, ','));
	}
	if (need(r, '}'))
		return -1;
	r->n++;
	if (row->step < 0 || row->T < 0 || row->nd < 0 || row->np < 0)
		return steps_refuse(r, "expected step, T, nd and np, found fewer");
	return 1;
}

/* ---- the arena of tops ---- */

#define BLOCK 4096

struct block {
	struct block *older;
	size_t n, used;
	struct top top[];
};

struct top *tops_alloc(void **arena, size_t n)
{
	struct block *b = *arena;

	if (b == NULL || b->n - b->used < n) {
		size_t size = n > BLOCK ? n : BLOCK;

		b = xmalloc(sizeof(*b) + size * sizeof(b->top[0]));
		*b = (struct block){ .older = *arena, .n = size };
		*arena = b;
	}
	b->used += n;
	return b->top + b->used - n;
}

void tops_free(void **arena)
{
	struct block *b = *arena;

	while (b != NULL) {
		struct block *older = b->older;

		free(b);
		b = older;
	}
	*arena = NULL;
}
