/* The legs of a recipe: factors, `at`, engine, host, audit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "recipe_read.h"
#include "suggest.h"

int recipe_read_leg_name(struct recipe_reader *rd, const char *name, struct mark at, const char *what)
{
	const struct recipe *r = rd->r;
	int leg = recipe_leg_find(r, name);
	char near[600];

	if (leg >= 0)
		return leg;
	const char **known = xcalloc((size_t)r->n_legs + 1, sizeof(*known));

	for (int i = 0; i < r->n_legs; i++)
		known[i] = r->legs[i].name;
	yaml_error(&rd->y, at, rd->err, "%s: no leg is named `%.60s`%s", what, name,
		   suggest(near, sizeof(near), name, known, r->n_legs));
	free(known);
	return -1;
}

int recipe_unknown_factor(struct recipe_reader *rd, const char *name, struct mark at, const char *what)
{
	const char *known[N_FACTORS];
	char near[600];

	for (int f = 0; f < N_FACTORS; f++)
		known[f] = factor_name((enum factor)f);
	return yaml_error(&rd->y, at, rd->err, "%s: unknown factor `%.60s`%s", what, name,
			  suggest(near, sizeof(near), name, known, N_FACTORS));
}

int recipe_read_factor(struct recipe_reader *rd, struct arm *arm, const char *name, struct mark key_at,
		       const struct ynode *value)
{
	int f = factor_find(name);
	struct err inner = {0};
	int64_t number;
	char decimal[32];
	const char *word = value->text;

	if (f < 0)
		return recipe_unknown_factor(rd, name, key_at, "factor");
	bool is_number = factor_is_number((enum factor)f);

	if (is_number && ynode_is_int(value, &number)) {
		/* 0x10 is 16 here as everywhere in YAML */
		snprintf(decimal, sizeof(decimal), "%lld", (long long)number);
		word = decimal;
	} else if (yaml_want_string(&rd->y, value, name, rd->err)) {
		return -1;
	} else if (is_number && strcmp(word, "all") != 0) {
		return yaml_want_int(&rd->y, value, name, 0, INT32_MAX, &number, rd->err);
	}
	if (arm_set(arm, name, word, &inner))
		return yaml_error(&rd->y, value->at, rd->err, "%s", inner.text);
	return 0;
}

/* One item of `at`: {layers: "0-11,30", FACTOR: VALUE, ...}. */
static int read_at_item(struct recipe_reader *rd, struct arm_at_list *at, const struct ynode *item)
{
	const struct ynode *layers;
	struct err inner = {0};
	struct arm arm;
	char value[32], *text;

	if (yaml_want_map(&rd->y, item, "at", rd->err))
		return -1;
	layers = yaml_get(item, "layers");
	if (!layers || item->n < 2)
		return yaml_error(&rd->y, item->at, rd->err, "at: expected {layers: \"0-11,30\", FACTOR: VALUE}");
	if (yaml_want_string(&rd->y, layers, "layers", rd->err))
		return -1;
	if (arm_layers_hold(layers->text, 0, &inner) < 0)
		return yaml_error(&rd->y, layers->at, rd->err, "layers: %s", inner.text);
	arm_init(&arm);
	for (int i = 0; i < item->n; i++) {
		int f = factor_find(item->keys[i]);

		if (strcmp(item->keys[i], "layers") == 0)
			continue;
		if (f >= 0 && !factor_per_layer((enum factor)f))
			return yaml_error(&rd->y, item->key_at[i], rd->err, "at: `%s` cannot change from layer to layer",
					  item->keys[i]);
		if (recipe_read_factor(rd, &arm, item->keys[i], item->key_at[i], &item->items[i]))
			return -1;
	}
	text = xasprintf("%s:", layers->text);
	for (int f = 0, n = 0; f < N_FACTORS; f++)
		if (arm.value[f] != ARM_UNSET) {
			char *longer = xasprintf("%s%s%s=%s", text, n++ ? "," : "", factor_name((enum factor)f),
						 arm_text(&arm, (enum factor)f, value, sizeof(value)));

			free(text);
			text = longer;
		}
	if (arm_at_parse(at, text, &inner))
		yaml_error(&rd->y, item->at, rd->err, "at: %s", inner.text);
	free(text);
	return rd->err->kind ? -1 : 0;
}

static int read_at(struct recipe_reader *rd, struct arm_at_list *at, const struct ynode *list)
{
	if (yaml_want_list(&rd->y, list, "at", rd->err))
		return -1;
	for (int i = 0; i < list->n; i++)
		if (read_at_item(rd, at, &list->items[i]))
			return -1;
	return 0;
}

/* ---- legs ---- */

/* What may be said of a server beside its URL and model. */
static int read_server(struct recipe_reader *rd, struct recipe_leg *leg, const struct ynode *engine)
{
	const struct ynode *prompts = yaml_get(engine, "prompts"), *key = yaml_get(engine, "key_env");

	if ((prompts && yaml_want_string(&rd->y, prompts, "prompts", rd->err)) || (key && yaml_want_string(&rd->y, key, "key_env", rd->err)))
		return -1;
	leg->url_text = prompts && strcmp(prompts->text, "text") == 0;
	if (prompts && !leg->url_text && strcmp(prompts->text, "ids") != 0)
		return yaml_error(&rd->y, prompts->at, rd->err, "prompts: expected `ids` or `text`, found `%.60s`", prompts->text);
	leg->url_key_env = key ? xstrdup(key->text) : NULL;
	return 0;
}

static int read_engine(struct recipe_reader *rd, struct recipe_leg *leg, const struct ynode *engine)
{
	static const char *const known[] = {"argv", "openai", "model", "prompts", "key_env"};
	const struct ynode *argv, *url, *model;

	if (yaml_want_keys(&rd->y, engine, "engine", known, 5, rd->err))
		return -1;
	argv = yaml_get(engine, "argv");
	url = yaml_get(engine, "openai");
	model = yaml_get(engine, "model");
	if (argv && engine->n == 1) {
		if (yaml_want_list(&rd->y, argv, "argv", rd->err))
			return -1;
		if (argv->n == 0)
			return yaml_error(&rd->y, argv->at, rd->err, "argv: no program in it");
		leg->engine = ENGINE_ARGV;
		leg->argv = xcalloc((size_t)argv->n + 1, sizeof(*leg->argv));
		for (; leg->argc < argv->n; leg->argc++) {
			const struct ynode *word = &argv->items[leg->argc];

			if (word->kind != YNODE_SCALAR)
				return yaml_want_string(&rd->y, word, "argv", rd->err);
			leg->argv[leg->argc] = xstrdup(word->text);
		}
		return 0;
	}
	if (!url || !model || argv)
		return yaml_error(&rd->y, engine->at, rd->err, "engine: expected {argv: [PROGRAM, ...]} or {openai: URL, "
				  "model: NAME}");
	if (yaml_want_string(&rd->y, url, "openai", rd->err) || yaml_want_string(&rd->y, model, "model", rd->err))
		return -1;
	leg->engine = ENGINE_OPENAI;
	leg->url = xstrdup(url->text);
	leg->url_model = xstrdup(model->text);
	return read_server(rd, leg, engine);
}

static int read_audit(struct recipe_reader *rd, struct recipe_leg *leg, const struct ynode *value)
{
	if (yaml_want_string(&rd->y, value, "audit", rd->err))
		return -1;
	leg->audit = strcmp(value->text, "on") == 0;
	if (!leg->audit && strcmp(value->text, "off") != 0)
		return yaml_error(&rd->y, value->at, rd->err, "audit: expected `on` or `off`, found `%.60s`", value->text);
	return 0;
}

static int read_leg(struct recipe_reader *rd, struct recipe_leg *leg, const struct ynode *map, bool *own_at)
{
	char what[120];

	arm_init(&leg->own);
	snprintf(what, sizeof(what), "leg `%s`", leg->name);
	if (yaml_want_map(&rd->y, map, what, rd->err))
		return -1;
	for (int i = 0; i < map->n; i++) {
		const struct ynode *value = &map->items[i];
		int failed;

		if (strcmp(map->keys[i], "engine") == 0) {
			failed = read_engine(rd, leg, value);
		} else if (strcmp(map->keys[i], "host") == 0) {
			failed = yaml_want_string(&rd->y, value, "host", rd->err);
			leg->host = failed ? NULL : xstrdup(value->text);
		} else if (strcmp(map->keys[i], "audit") == 0) {
			failed = read_audit(rd, leg, value);
		} else if (strcmp(map->keys[i], "at") == 0) {
			failed = read_at(rd, &leg->own_at, value);
			*own_at = true;
		} else {
			failed = recipe_read_factor(rd, &leg->own, map->keys[i], map->key_at[i], value);
		}
		if (failed)
			return -1;
	}
	if (leg->audit && (leg->engine != ENGINE_BUILT || leg->host))
		return yaml_error(&rd->y, map->at, rd->err, "%s: audit is of assay-engine on this machine", what);
	return 0;
}

static bool same_words(const struct recipe_leg *a, const struct recipe_leg *b)
{
	if (a->argc != b->argc)
		return false;
	for (int i = 0; i < a->argc; i++)
		if (strcmp(a->argv[i], b->argv[i]) != 0)
			return false;
	return true;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_leg(const struct recipe_leg *a, const struct recipe_leg *b)
{
	struct arm x = a->arm, y = b->arm;

	arm_defaults(&x);
	arm_defaults(&y);
	return arm_equal(&x, &y) && arm_at_equal(&a->at, &b->at) && a->engine == b->engine && same_words(a, b)
	       && a->url_text == b->url_text && same_text(a->url, b->url) && same_text(a->url_model, b->url_model) && same_text(a->host, b->host);
}

bool recipe_same_legs(const struct recipe *r, int *first, int *second)
{
	for (*second = 1; *second < r->n_legs; ++*second)
		for (*first = 0; *first < *second; ++*first)
			if (same_leg(&r->legs[*first], &r->legs[*second]))
				return true;
	return false;
}

int recipe_read_legs(struct recipe_reader *rd, const struct ynode *legs)
{
	struct recipe *r = rd->r;
	int first, second;

	if (yaml_want_map(&rd->y, legs, "legs", rd->err))
		return -1;
	if (legs->n == 0)
		return yaml_error(&rd->y, legs->at, rd->err, "legs: none in it");
	r->legs = xcalloc((size_t)legs->n, sizeof(*r->legs));
	for (int i = 0; i < legs->n; i++) {
		struct recipe_leg *leg = &r->legs[i];
		bool own_at = false;

		if (recipe_check_name(rd, legs->keys[i], legs->key_at[i], "leg"))
			return -1;
		if (strcmp(legs->keys[i], "all") == 0)
			return yaml_error(&rd->y, legs->key_at[i], rd->err, "a leg cannot be named `all`: `require` means every leg by it");
		leg->name = xstrdup(legs->keys[i]);
		r->n_legs++;
		if (read_leg(rd, leg, &legs->items[i], &own_at))
			return -1;
		leg->arm = r->base;
		arm_overlay(&leg->arm, &leg->own);
		arm_at_copy(&leg->at, own_at ? &leg->own_at : &r->base_at);
	}
	if (recipe_same_legs(r, &first, &second))
		return yaml_error(&rd->y, legs->key_at[second], rd->err, "legs `%s` and `%s` have the same factors, engine and host",
				  r->legs[first].name, r->legs[second].name);
	return 0;
}

int recipe_read_base(struct recipe_reader *rd, const struct ynode *base)
{
	if (yaml_want_map(&rd->y, base, "base", rd->err))
		return -1;
	for (int i = 0; i < base->n; i++)
		if (strcmp(base->keys[i], "at") == 0 ? read_at(rd, &rd->r->base_at, &base->items[i])
		    : recipe_read_factor(rd, &rd->r->base, base->keys[i], base->key_at[i], &base->items[i]))
			return -1;
	return 0;
}

