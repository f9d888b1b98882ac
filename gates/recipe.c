#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "recipe_read.h"
#include "suggest.h"

#define SCHEMA "assay/recipe/1"
#define RECIPE_BYTES (1 << 20)
#define NAME_MAX_LENGTH 64
#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int recipe_error(const struct recipe *r, struct mark at, struct err *err, const char *fmt, ...)
{
	char text[900];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(err, ERR_INPUT, "%s:%d:%d: %s", r->file, at.line, at.column, text);
}

int recipe_leg_find(const struct recipe *r, const char *name)
{
	for (int i = 0; i < r->n_legs; i++)
		if (strcmp(r->legs[i].name, name) == 0)
			return i;
	return -1;
}

/* [A-Za-z0-9][A-Za-z0-9_-]*, short enough for a file name */
static bool name_ok(const char *s)
{
	static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	static const char more[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

	return strspn(s, first) > 0 && strspn(s, more) == strlen(s) && strlen(s) <= NAME_MAX_LENGTH;
}

int recipe_check_name(struct recipe_reader *rd, const char *name, struct mark at, const char *what)
{
	if (name_ok(name))
		return 0;
	return yaml_error(&rd->y, at, rd->err, "%s `%.80s`: a name is up to %d letters, digits, - and _, and starts with "
			  "a letter or digit", what, name, NAME_MAX_LENGTH);
}

/* ---- what is run ---- */

static int read_kind(struct recipe_reader *rd, const struct ynode *kind)
{
	static const char *const kinds[] = {"gate", "discriminate"};
	char near[100];

	if (yaml_want_string(&rd->y, kind, "kind", rd->err))
		return -1;
	for (int k = 0; k < COUNT(kinds); k++)
		if (strcmp(kind->text, kinds[k]) == 0) {
			rd->r->kind = (enum recipe_kind)k;
			return 0;
		}
	return yaml_error(&rd->y, kind->at, rd->err, "kind: unknown kind `%.60s`%s", kind->text,
			  suggest(near, sizeof(near), kind->text, kinds, COUNT(kinds)));
}

static int read_prompts(struct recipe_reader *rd, const struct ynode *prompts)
{
	struct recipe *r = rd->r;

	if (prompts->kind == YNODE_SCALAR && strcmp(prompts->text, "all") == 0)
		return 0;
	if (prompts->kind != YNODE_LIST || prompts->n == 0) {
		char found[100];

		return yaml_error(&rd->y, prompts->at, rd->err, "prompts: expected `all` or a list of ids, found %s",
				  prompts->kind == YNODE_LIST ? "an empty list" : yaml_describe(prompts, found, sizeof(found)));
	}
	r->prompts = xcalloc((size_t)prompts->n, sizeof(*r->prompts));
	r->place.prompts = xcalloc((size_t)prompts->n, sizeof(*r->place.prompts));
	for (int i = 0; i < prompts->n; i++) {
		const struct ynode *id = &prompts->items[i];

		if (yaml_want_string(&rd->y, id, "prompts", rd->err))
			return -1;
		for (int k = 0; k < i; k++)
			if (strcmp(r->prompts[k], id->text) == 0)
				return yaml_error(&rd->y, id->at, rd->err, "prompts: `%.60s` is there twice", id->text);
		r->prompts[i] = xstrdup(id->text);
		r->place.prompts[i] = id->at;
		r->n_prompts++;
	}
	return 0;
}

static int read_steps(struct recipe_reader *rd, const struct ynode *steps)
{
	struct recipe *r = rd->r;
	const struct ynode *items = steps->kind == YNODE_LIST ? steps->items : steps;
	int n = steps->kind == YNODE_LIST ? steps->n : 1;

	if (n == 0)
		return yaml_error(&rd->y, steps->at, rd->err, "steps: an empty list");
	r->steps = xcalloc((size_t)n, sizeof(*r->steps));
	for (int i = 0; i < n; i++) {
		int64_t length;

		if (yaml_want_int(&rd->y, &items[i], "steps", 1, 1 << 24, &length, rd->err))
			return -1;
		for (int k = 0; k < i; k++)
			if (r->steps[k] == length)
				return yaml_error(&rd->y, items[i].at, rd->err, "steps: %d is there twice", r->steps[k]);
		r->steps[r->n_steps++] = (int)length;
		if (length > r->max_steps)
			r->max_steps = (int)length;
	}
	return 0;
}

static int read_modes(struct recipe_reader *rd, const struct ynode *modes)
{
	struct recipe *r = rd->r;
	const char *const known[] = {mode_name(MODE_FREE), mode_name(MODE_FORCED)};
	char near[100];

	if (yaml_want_list(&rd->y, modes, "modes", rd->err))
		return -1;
	if (modes->n == 0)
		return yaml_error(&rd->y, modes->at, rd->err, "modes: an empty list");
	for (int i = 0; i < modes->n; i++) {
		const struct ynode *item = &modes->items[i];
		int m = 0;

		if (yaml_want_string(&rd->y, item, "modes", rd->err))
			return -1;
		while (m < N_MODES && strcmp(item->text, known[m]) != 0)
			m++;
		if (m == N_MODES)
			return yaml_error(&rd->y, item->at, rd->err, "modes: unknown mode `%.60s`%s", item->text,
					  suggest(near, sizeof(near), item->text, known, N_MODES));
		if (r->modes[m])
			return yaml_error(&rd->y, item->at, rd->err, "modes: `%s` is there twice", item->text);
		r->modes[m] = true;
	}
	return 0;
}

/* ---- what it must be ---- */

static int read_features(struct recipe_reader *rd, const struct ynode *features)
{
	struct recipe *r = rd->r;

	if (yaml_want_map(&rd->y, features, "features", rd->err))
		return -1;
	r->features = xcalloc((size_t)features->n + 1, sizeof(*r->features));
	for (int i = 0; i < features->n; i++) {
		if (yaml_want_string(&rd->y, &features->items[i], features->keys[i], rd->err))
			return -1;
		r->features[i] = (struct report_cell){xstrdup(features->keys[i]), xstrdup(features->items[i].text)};
		r->n_features++;
	}
	return 0;
}

static int read_sha256(struct recipe_reader *rd, char to[SHA256_HEX], const char *what, const struct ynode *hash)
{
	/* Sixty-four decimal digits are a hash too. */
	if (hash->kind != YNODE_SCALAR || strlen(hash->text) != SHA256_HEX - 1
	    || strspn(hash->text, "0123456789abcdef") != SHA256_HEX - 1)
		return yaml_error(&rd->y, hash->at, rd->err, "%s: expected a sha256 of 64 lower-case hex digits", what);
	memcpy(to, hash->text, SHA256_HEX);
	return 0;
}

static int read_pins(struct recipe_reader *rd, const struct ynode *pins)
{
	static const char *const known[] = {"model", "golden", "engine"};
	struct recipe *r = rd->r;
	const struct ynode *model, *golden, *engine;

	if (yaml_want_keys(&rd->y, pins, "sha256", known, COUNT(known), rd->err))
		return -1;
	if (pins->n == 0)
		return yaml_error(&rd->y, pins->at, rd->err, "sha256: nothing is pinned");
	model = yaml_get(pins, "model");
	golden = yaml_get(pins, "golden");
	engine = yaml_get(pins, "engine");
	if ((golden && read_sha256(rd, r->pin_golden, "golden", golden))
	    || (engine && read_sha256(rd, r->pin_engine, "engine", engine))
	    || (model && yaml_want_map(&rd->y, model, "model", rd->err)))
		return -1;
	if (!model)
		return 0;
	r->pins = xcalloc((size_t)model->n + 1, sizeof(*r->pins));
	for (int i = 0; i < model->n; i++) {
		r->pins[r->n_pins++].file = xstrdup(model->keys[i]);
		if (read_sha256(rd, r->pins[i].sha256, model->keys[i], &model->items[i]))
			return -1;
	}
	return 0;
}

static int read_limit(struct recipe_reader *rd, const struct ynode *limit)
{
	static const char *const known[] = {"c", "why"};
	const struct ynode *c, *why;

	if (yaml_want_keys(&rd->y, limit, "limit", known, COUNT(known), rd->err))
		return -1;
	c = yaml_get(limit, "c");
	why = yaml_get(limit, "why");
	if (!c)
		return yaml_error(&rd->y, limit->at, rd->err, "limit: missing key `c`");
	if (!why)
		return yaml_error(&rd->y, limit->at, rd->err, "limit: missing key `why`: every tolerance says why");
	if (yaml_want_number(&rd->y, c, "c", &rd->r->limit, rd->err) || yaml_want_string(&rd->y, why, "why", rd->err))
		return -1;
	if (rd->r->limit <= 1)
		return yaml_error(&rd->y, c->at, rd->err, "c: %s is not more than 1", c->text);
	rd->r->limit_why = xstrdup(why->text);
	return 0;
}

/* ---- the document ---- */

static int read_text(struct recipe_reader *rd, char **to, struct mark *place, const struct ynode *root, const char *key)
{
	const struct ynode *text = yaml_get(root, key);

	if (!text)
		return 0;
	if (yaml_want_string(&rd->y, text, key, rd->err))
		return -1;
	free(*to);
	*to = xstrdup(text->text);
	if (place)
		*place = text->at;
	return 0;
}

static int read_outline(struct recipe_reader *rd)
{
	static const char *const known[] = {"schema", "name", "kind", "question", "model", "golden", "profile", "prompts",
		"steps", "modes", "timeout_s", "base", "legs", "require", "features", "sha256", "hypotheses", "claims", "limit", "speed"};
	static const char *const needed[] = {"schema", "name", "kind", "model", "golden", "steps", "legs"};
	const struct ynode *root = &rd->y.root, *schema;

	if (yaml_want_map(&rd->y, root, "recipe", rd->err))
		return -1;
	schema = yaml_get(root, "schema");
	if (schema && (schema->kind != YNODE_SCALAR || strcmp(schema->text, SCHEMA) != 0)) {
		char found[100];

		return yaml_error(&rd->y, schema->at, rd->err, "schema: expected `%s`, found %s", SCHEMA,
				  yaml_describe(schema, found, sizeof(found)));
	}
	if (yaml_want_keys(&rd->y, root, "recipe", known, COUNT(known), rd->err))
		return -1;
	for (int i = 0; i < COUNT(needed); i++)
		if (!yaml_get(root, needed[i]))
			return yaml_error(&rd->y, root->at, rd->err, "recipe: missing key `%s`", needed[i]);
	return 0;
}

typedef int read_part(struct recipe_reader *rd, const struct ynode *value);

static int read_timeout(struct recipe_reader *rd, const struct ynode *timeout)
{
	if (yaml_want_number(&rd->y, timeout, "timeout_s", &rd->r->timeout_s, rd->err))
		return -1;
	if (rd->r->timeout_s <= 0)
		return yaml_error(&rd->y, timeout->at, rd->err, "timeout_s: %s is not more than 0", timeout->text);
	return 0;
}

/* Rules that take more than one key to see. */
static int check_whole(struct recipe_reader *rd)
{
	const struct recipe *r = rd->r;
	const struct ynode *root = &rd->y.root, *legs = yaml_get(root, "legs");

	/* A foreign engine has no counters of ours: what the recipe does not require of it is listed as unproven. */
	for (int i = 0; i < r->n_legs; i++)
		if (r->legs[i].contract.n == 0 && r->legs[i].engine == ENGINE_BUILT)
			return yaml_error(&rd->y, legs->key_at[i], rd->err, "leg `%s` has no contract: `require` has no `%s`, and "
					  "`all` does not replace it", r->legs[i].name, r->legs[i].name);
	if (r->kind == RECIPE_DISCRIMINATE && !r->n_hypotheses)
		return yaml_error(&rd->y, yaml_get(root, "kind")->at, rd->err, "kind: discriminate needs `hypotheses`");
	return 0;
}

static int read_recipe(struct recipe_reader *rd)
{
	static const struct { const char *key; read_part *read; } parts[] = {
		{"kind", read_kind}, {"prompts", read_prompts}, {"steps", read_steps}, {"modes", read_modes},
		{"timeout_s", read_timeout}, {"base", recipe_read_base}, {"legs", recipe_read_legs}, {"require", recipe_read_require},
		{"features", read_features}, {"sha256", read_pins}, {"hypotheses", recipe_read_hypotheses},
		{"claims", recipe_read_claims}, {"limit", read_limit}, {"speed", recipe_read_speed},
	};
	struct recipe *r = rd->r;
	const struct ynode *root = &rd->y.root;
	struct mark name = {0};

	r->modes[MODE_FREE] = !yaml_get(root, "modes");
	r->timeout_s = 600;
	r->limit = 2;
	r->profile = xstrdup("base");
	arm_init(&r->base);
	if (read_text(rd, &r->name, &name, root, "name") || recipe_check_name(rd, r->name, name, "name")
	    || read_text(rd, &r->question, NULL, root, "question")
	    || read_text(rd, &r->model, &r->place.model, root, "model")
	    || read_text(rd, &r->golden, &r->place.golden, root, "golden")
	    || read_text(rd, &r->profile, &r->place.profile, root, "profile"))
		return -1;
	r->place.steps = yaml_get(root, "steps")->at;
	for (int i = 0; i < COUNT(parts); i++) {
		const struct ynode *value = yaml_get(root, parts[i].key);

		if (value && parts[i].read(rd, value))
			return -1;
	}
	return check_whole(rd);
}

int recipe_load_bytes(struct recipe *r, const char *bytes, size_t size, const char *name, struct err *err)
{
	struct recipe_reader rd = {.r = r, .err = err};
	int failed;

	*r = (struct recipe){.file = xstrdup(name)};
	sha256_bytes(bytes, size, r->sha256);
	failed = yaml_load_bytes(&rd.y, bytes, size, name, err) || read_outline(&rd) || read_recipe(&rd);
	yaml_release(&rd.y);
	return failed ? -1 : 0;
}

int recipe_load(struct recipe *r, const char *path, struct err *err)
{
	size_t size = 0;
	char *bytes = file_read(path, RECIPE_BYTES, &size, err);
	int failed;

	if (!bytes) {
		*r = (struct recipe){0};
		return -1;
	}
	failed = recipe_load_bytes(r, bytes, size, path, err);
	free(bytes);
	return failed;
}

static void contract_release(struct contract *c)
{
	for (int i = 0; i < c->n; i++)
		free(c->wants[i].text);
	free(c->wants);
}

static void leg_release(struct recipe_leg *leg)
{
	for (int i = 0; i < leg->argc; i++)
		free(leg->argv[i]);
	free(leg->argv);
	free(leg->name);
	free(leg->url);
	free(leg->url_model);
	free(leg->url_key_env);
	free(leg->host);
	arm_at_release(&leg->own_at);
	arm_at_release(&leg->at);
	contract_release(&leg->contract);
}

static void hypothesis_release(struct hypothesis *h)
{
	for (int i = 0; i < h->n; i++)
		free(h->predicts[i].text);
	free(h->predicts);
	free(h->name);
	free(h->says);
}

void recipe_drop_legs(struct recipe *r, int kept)
{
	while (r->n_legs > kept)
		leg_release(&r->legs[--r->n_legs]);
}

void recipe_release(struct recipe *r)
{
	recipe_drop_legs(r, 0);
	for (int i = 0; i < r->n_hypotheses; i++)
		hypothesis_release(&r->hypotheses[i]);
	for (int i = 0; i < r->n_claims; i++) {
		free(r->claims[i].name);
		free(r->claims[i].says);
		free(r->claims[i].about);
		free(r->claims[i].legs);
	}
	for (int i = 0; i < r->n_prompts; i++)
		free(r->prompts[i]);
	for (int i = 0; i < r->n_features; i++) {
		free(r->features[i].name);
		free(r->features[i].value);
	}
	for (int i = 0; i < r->n_pins; i++)
		free(r->pins[i].file);
	contract_release(&r->all);
	arm_at_release(&r->base_at);
	void *owned[] = {r->legs, r->hypotheses, r->claims, r->prompts, r->place.prompts, r->features, r->pins, r->name,
		r->question, r->model, r->golden, r->profile, r->steps, r->limit_why, r->speed, r->file};

	for (int i = 0; i < COUNT(owned); i++)
		free(owned[i]);
	*r = (struct recipe){0};
}
