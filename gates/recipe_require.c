/* The path contract: require: {all | LEG: {decode_step | prefill_step | total: {COUNTER: COUNT}}}. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "recipe_read.h"
#include "suggest.h"

#define COUNT_MAX 1000000000000LL

static const char *const scope_names[N_SCOPES] = {"decode_step", "prefill_step", "total"};
static const char *const block_names[] = {"mamba", "attn", "moe", "mlp", "layers"};
enum { N_BLOCK_NAMES = sizeof(block_names) / sizeof(block_names[0]) };

const char *scope_name(enum scope s)
{
	return scope_names[s];
}

/* Digits at *s, moved past them; false if there are none or too many. */
static bool take_number(const char **s, int64_t *n)
{
	char *end;

	if (**s < '0' || **s > '9')
		return false;
	errno = 0;
	*n = strtoll(*s, &end, 10);
	*s = end;
	return errno == 0 && *n <= COUNT_MAX;
}

static bool take_word(const char **s, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*s, word, n) != 0)
		return false;
	*s += n;
	return true;
}

/* ">N", ">=N", "[N*]blocks[*nd|*T]" */
static bool parse_want(struct want *w, const char *s)
{
	if (*s == '>') {
		w->op = take_word(&s, ">=") ? WANT_AT_LEAST : WANT_GREATER;
		s += w->op == WANT_GREATER;
		return take_number(&s, &w->n) && !*s;
	}
	w->op = WANT_EQUAL;
	w->n = 1;
	if (*s >= '0' && *s <= '9' && (!take_number(&s, &w->n) || *s++ != '*'))
		return false;
	int b = 0;

	while (b < N_BLOCK_NAMES && !take_word(&s, block_names[b]))
		b++;
	if (b == N_BLOCK_NAMES)
		return false;
	w->blocks = WANT_MAMBA + (enum want_blocks)b;
	if (take_word(&s, "*nd"))
		w->rows = WANT_ND;
	else if (take_word(&s, "*T"))
		w->rows = WANT_T;
	return !*s;
}

static int read_want(struct recipe_reader *rd, struct want *w, const char *counter, const struct ynode *value)
{
	if (ynode_is_int(value, &w->n)) {
		w->is_int = true;
		w->text = xstrdup(value->text);
		return yaml_want_int(&rd->y, value, counter, 0, COUNT_MAX, &w->n, rd->err);
	}
	if (yaml_want_string(&rd->y, value, counter, rd->err))
		return -1;
	w->text = xstrdup(value->text);
	if (!parse_want(w, value->text))
		return yaml_error(&rd->y, value->at, rd->err, "%s: `%.60s` is not a count: an integer, "
				  "[N*](mamba|attn|moe|mlp|layers)[*nd|*T], \">N\" or \">=N\"", counter, value->text);
	if (w->scope == SCOPE_TOTAL && w->rows != WANT_ONCE)
		return yaml_error(&rd->y, value->at, rd->err, "%s: `%.60s`: a total has neither nd nor T", counter,
				  value->text);
	return 0;
}

static int read_counter(struct recipe_reader *rd, enum counter *counter, const char *name, struct mark at)
{
	const char *known[N_COUNTERS];
	char near[600];
	int found = counter_find(name);

	for (int c = 0; c < N_COUNTERS; c++)
		known[c] = counter_name((enum counter)c);
	if (found < 0)
		return yaml_error(&rd->y, at, rd->err, "unknown counter `%.60s`%s", name,
				  suggest(near, sizeof(near), name, known, N_COUNTERS));
	*counter = (enum counter)found;
	return 0;
}

static int read_scope(struct recipe_reader *rd, struct contract *c, enum scope scope, const struct ynode *counters)
{
	if (yaml_want_map(&rd->y, counters, scope_names[scope], rd->err))
		return -1;
	if (counters->n == 0)
		return yaml_error(&rd->y, counters->at, rd->err, "%s: no counter in it", scope_names[scope]);
	for (int i = 0; i < counters->n; i++) {
		c->wants = xrealloc(c->wants, (size_t)c->n + 1, sizeof(*c->wants));
		struct want *w = &c->wants[c->n++];

		*w = (struct want){.scope = scope};
		if (read_counter(rd, &w->counter, counters->keys[i], counters->key_at[i])
		    || read_want(rd, w, counters->keys[i], &counters->items[i]))
			return -1;
	}
	return 0;
}

static int read_contract(struct recipe_reader *rd, struct contract *c, const char *leg, const struct ynode *scopes)
{
	char what[160];

	snprintf(what, sizeof(what), "require.%.100s", leg);
	if (yaml_want_keys(&rd->y, scopes, what, scope_names, N_SCOPES, rd->err))
		return -1;
	if (scopes->n == 0)
		return yaml_error(&rd->y, scopes->at, rd->err, "%s: an empty contract proves nothing", what);
	for (int i = 0; i < scopes->n; i++)
		for (int s = 0; s < N_SCOPES; s++)
			if (strcmp(scopes->keys[i], scope_names[s]) == 0
			    && read_scope(rd, c, (enum scope)s, &scopes->items[i]))
				return -1;
	return 0;
}

int recipe_read_require(struct recipe_reader *rd, const struct ynode *require)
{
	if (yaml_want_map(&rd->y, require, "require", rd->err))
		return -1;
	for (int i = 0; i < require->n; i++) {
		struct contract *c = &rd->r->all;

		if (strcmp(require->keys[i], "all") != 0) {
			int leg = recipe_read_leg_name(rd, require->keys[i], require->key_at[i], "require");

			if (leg < 0)
				return -1;
			c = &rd->r->legs[leg].contract;
		}
		if (read_contract(rd, c, require->keys[i], &require->items[i]))
			return -1;
	}
	return 0;
}
