#include "regex.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* A pattern that needs more is a runaway: 10 million is PCRE2's own default, the texts of a prompt need thousands. */
#define MATCH_LIMIT 10000000u
#define HEAP_LIMIT_KIB (64u * 1024)

struct regex {
	pcre2_code *code;       /* owned */
	char *place;            /* owned */
};

/* ---- the dialect ---- */

struct dialect {
	const char *pattern;
	size_t at;              /* the byte that is looked at */
	const char *place;
	struct err *err;        /* borrowed */
};

static int refuse(const struct dialect *d, size_t at, size_t len, const char *why)
{
	return err_set(d->err, ERR_INPUT, "%s: offset %zu: \"%.*s\" is not supported%s", d->place, at, (int)len,
		       d->pattern + at, why);
}

static bool is_punctuation(char c)
{
	return c != '\0' && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c) != NULL;
}

static int check_property(struct dialect *d)
{
	static const char categories[] = " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po "
					 "S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn ";
	const char *p = d->pattern + d->at;     /* at the backslash */
	size_t len = strcspn(p, "}");
	char name[8];

	if (p[2] != '{' || p[len] != '}' || len - 3 < 1 || len - 3 > 2)
		return refuse(d, d->at, p[len] == '}' ? len + 1 : 2, " (general categories as in \\p{Lu} are)");
	snprintf(name, sizeof(name), " %.*s ", (int)(len - 3), p + 3);
	if (strstr(categories, name) == NULL)
		return refuse(d, d->at, len + 1, " (general categories as in \\p{Lu} are)");
	d->at += len + 1;
	return 0;
}

/* An escape; *single: it stands for one character, so that it may bound a range. */
static int check_escape(struct dialect *d, bool *single)
{
	char c = d->pattern[d->at + 1];

	*single = is_punctuation(c) || (c != '\0' && strchr("rnt", c) != NULL);
	if (c == 'p' || c == 'P')
		return check_property(d);
	if (!*single && (c == '\0' || strchr("sSdD", c) == NULL))
		return refuse(d, d->at, c != '\0' ? 2 : 1, "");
	d->at += 2;
	return 0;
}

static int check_class(struct dialect *d)
{
	size_t open = d->at++, first;
	bool single = false, range = false;     /* the last item; it was the upper bound of a range */

	if (d->pattern[d->at] == '^')
		d->at++;
	for (first = d->at; d->pattern[d->at] != ']' || d->at == first; ) {
		bool was = single, bound = d->pattern[d->at] == '-' && d->at != first &&
					   d->pattern[d->at + 1] != ']' && d->pattern[d->at + 1] != '\0';
		const char *p = d->pattern + d->at + bound;

		if (p[0] == '\0')
			return refuse(d, open, 1, " without its ]");
		if (p[0] == '[' || p[0] == ']' || (p[0] == '&' && p[1] == '&'))
			return refuse(d, d->at + bound, p[0] == '&' ? 2 : 1, " in a class");
		if (bound && (!was || range))
			return refuse(d, d->at, 1, " after a set or a range");
		d->at += bound;
		single = true;
		if (p[0] != '\\')
			d->at++;
		else if (check_escape(d, &single))
			return -1;
		if (bound && !single)
			return refuse(d, open, d->at - open, " (a range ends in a set)");
		range = bound;
	}
	d->at++;
	return 0;
}

static int check_group(struct dialect *d)
{
	static const char contractions[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
	const char *p = d->pattern + d->at;

	if (strncmp(p, contractions, sizeof(contractions) - 1) == 0) {
		d->at += sizeof(contractions) - 1;
		return 0;
	}
	if (p[1] != '?') {
		if (p[1] == '*')
			return refuse(d, d->at, 2, "");
		d->at++;
		return 0;
	}
	if (p[2] == '\0' || strchr(":=!>", p[2]) == NULL)
		return refuse(d, d->at, 2 + (p[2] != '\0'), "");
	d->at += 3;
	return 0;
}

/* {n} {n,} {n,m}; Oniguruma reads a following ? or + in another way. */
static int check_count(struct dialect *d)
{
	const char *p = d->pattern + d->at;
	size_t digits = strspn(p + 1, "0123456789"), len = 1 + digits;

	if (p[len] == ',')
		len += 1 + strspn(p + len + 1, "0123456789");
	if (digits == 0 || p[len] != '}')
		return refuse(d, d->at, 1, " but as {n}, {n,} or {n,m}");
	len++;
	if (p[len] != '\0' && strchr("?+*{", p[len]) != NULL)
		return refuse(d, d->at, len + 1, "");
	d->at += len;
	return 0;
}

static int check_dialect(struct dialect *d)
{
	while (d->pattern[d->at] != '\0') {
		char c = d->pattern[d->at];
		bool single;

		if (c == '\\') {
			if (check_escape(d, &single))
				return -1;
		} else if (c == '[') {
			if (check_class(d))
				return -1;
		} else if (c == '(') {
			if (check_group(d))
				return -1;
		} else if (c == '{') {
			if (check_count(d))
				return -1;
		} else if (strchr(".^$]}", c) != NULL) {
			return refuse(d, d->at, 1, " here");
		} else {
			d->at++;
		}
	}
	return 0;
}

static int check_ascii(const struct dialect *d)
{
	for (size_t i = 0; d->pattern[i] != '\0'; i++)
		if (d->pattern[i] < ' ' || d->pattern[i] > '~')
			return err_set(d->err, ERR_INPUT, "%s: offset %zu: a character that is not printable ASCII is "
				       "not supported", d->place, i);
	return 0;
}

/* ---- compile and match ---- */

static struct regex *compile(const char *pattern, const char *place, struct err *err)
{
	struct regex *r;
	PCRE2_UCHAR why[128];
	PCRE2_SIZE at;
	int e;
	pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &e, &at, NULL);

	if (code == NULL) {
		pcre2_get_error_message(e, why, sizeof(why));
		err_set(err, ERR_INPUT, "%s: offset %zu: %s", place, (size_t)at, (const char *)why);
		return NULL;
	}
	r = xmalloc(sizeof(*r));
	*r = (struct regex){ .code = code, .place = xstrdup(place) };
	return r;
}

struct regex *regex_compile(const char *pattern, const char *place, struct err *err)
{
	struct dialect d = { .pattern = pattern, .place = place, .err = err };
	struct regex *r;
	uint32_t matches_empty = 0;

	if (check_ascii(&d) || check_dialect(&d))
		return NULL;
	r = compile(pattern, place, err);
	if (r == NULL)
		return NULL;
	pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
	if (matches_empty != 0) {
		regex_free(r);
		err_set(err, ERR_INPUT, "%s: a pattern that matches the empty string is not supported", place);
		return NULL;
	}
	return r;
}

struct regex *regex_word_character(void)
{
	struct err err = { 0 };
	/* the ranges are the Alphabetic symbols (So); all other Alphabetic characters are L, Nl or M */
	struct regex *r = compile("[\\p{L}\\p{Nl}\\p{M}\\p{Nd}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"
				  "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}\\x{200c}\\x{200d}]", "word", &err);

	if (r == NULL)
		BUG("%s", err.text);
	return r;
}

void regex_free(struct regex *r)
{
	if (r == NULL)
		return;
	pcre2_code_free(r->code);
	free(r->place);
	free(r);
}

static void *allocate(size_t size, void *unused)
{
	(void)unused;
	return xmalloc(size);
}

static void release(void *p, void *unused)
{
	(void)unused;
	free(p);
}

void regex_scan_open(struct regex_scan *s, size_t size)
{
	size_t limit = MATCH_LIMIT + 16 * size;
	pcre2_general_context *general = pcre2_general_context_create(allocate, release, NULL);

	s->data = pcre2_match_data_create(1, general);
	s->context = pcre2_match_context_create(general);
	pcre2_general_context_free(general);
	pcre2_set_match_limit(s->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
	pcre2_set_heap_limit(s->context, HEAP_LIMIT_KIB);
}

void regex_scan_release(struct regex_scan *s)
{
	pcre2_match_context_free(s->context);
	pcre2_match_data_free(s->data);
	*s = (struct regex_scan){ 0 };
}

int regex_next(const struct regex *r, struct regex_scan *s, const char *text, size_t size, size_t at,
	       size_t *start, size_t *end, struct err *err)
{
	PCRE2_UCHAR why[128];
	int found;

	/* the text is known to be well-formed: checking it again for every match would be quadratic */
	found = pcre2_match(r->code, (PCRE2_SPTR)text, size, at, PCRE2_NO_UTF_CHECK, s->data, s->context);
	if (found == PCRE2_ERROR_NOMATCH)
		return 0;
	if (found < 0) {
		pcre2_get_error_message(found, why, sizeof(why));
		return err_set(err, ERR_INPUT, "%s: cannot match at byte %zu of %zu: %s", r->place, at, size,
			       (const char *)why);
	}
	*start = pcre2_get_ovector_pointer(s->data)[0];
	*end = pcre2_get_ovector_pointer(s->data)[1];
	return 1;
}
