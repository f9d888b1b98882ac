/* What the recipe says of its legs: hypotheses {NAME: {says, predicts}}, claims {NAME: {says, about, legs}}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "recipe_read.h"
#include "suggest.h"

static const char *const prediction_names[] = {"pass", "diverge", "clean", "excess"};
enum { N_PREDICTIONS = sizeof(prediction_names) / sizeof(prediction_names[0]) };

/* A value that must be there. */
static const struct ynode *need(struct recipe_reader *rd, const struct ynode *map, const char *key, const char *what)
{
	const struct ynode *value = yaml_get(map, key);

	if (!value)
		yaml_error(&rd->y, map->at, rd->err, "%s: missing key `%s`", what, key);
	return value;
}

static int read_says(struct recipe_reader *rd, char **says, const struct ynode *map, const char *what)
{
	const struct ynode *text = need(rd, map, "says", what);

	if (!text || yaml_want_string(&rd->y, text, "says", rd->err))
		return -1;
	*says = xstrdup(text->text);
	return 0;
}

/* The "factor=value" of a leg not run yet. */
static int read_change(struct recipe_reader *rd, struct predict *p, const char *change, struct mark at)
{
	const char *equals = strchr(change, '=');
	struct err inner = {0};
	struct arm arm;

	if (!equals)
		return yaml_error(&rd->y, at, rd->err, "prediction `%.80s`: expected LEG+FACTOR=VALUE", p->text);
	char *name = xstrdup(change);

	name[equals - change] = '\0';
	p->factor = factor_find(name);
	arm_init(&arm);
	if (p->factor < 0)
		recipe_unknown_factor(rd, name, at, "prediction");
	else if (arm_set(&arm, name, equals + 1, &inner))
		yaml_error(&rd->y, at, rd->err, "prediction `%.80s`: %s", p->text, inner.text);
	else
		p->value = arm.value[p->factor];
	free(name);
	if (rd->err->kind)
		return -1;
	if (rd->r->legs[p->leg].arm.value[p->factor] == p->value)
		return yaml_error(&rd->y, at, rd->err, "prediction `%.80s` changes nothing: leg `%s` has that value", p->text,
				  rd->r->legs[p->leg].name);
	return 0;
}

static int read_predict(struct recipe_reader *rd, struct predict *p, const char *key, struct mark at,
			const struct ynode *value)
{
	const char *plus = strchr(key, '+');
	char near[100];
	int says = 0;

	*p = (struct predict){.text = xstrdup(key), .factor = -1};
	char *leg = xstrdup(key);

	if (plus)
		leg[plus - key] = '\0';
	p->leg = recipe_read_leg_name(rd, leg, at, "prediction");
	free(leg);
	if (p->leg < 0 || (plus && read_change(rd, p, plus + 1, at)) || yaml_want_string(&rd->y, value, key, rd->err))
		return -1;
	while (says < N_PREDICTIONS && strcmp(value->text, prediction_names[says]) != 0)
		says++;
	if (says == N_PREDICTIONS)
		return yaml_error(&rd->y, value->at, rd->err, "prediction `%.80s`: unknown outcome `%.60s`%s", key, value->text,
				  suggest(near, sizeof(near), value->text, prediction_names, N_PREDICTIONS));
	p->says = (enum prediction)says;
	return 0;
}

static int read_hypothesis(struct recipe_reader *rd, struct hypothesis *h, const char *name, const struct ynode *map)
{
	static const char *const known[] = {"says", "predicts"};
	char what[120];

	*h = (struct hypothesis){.name = xstrdup(name)};
	snprintf(what, sizeof(what), "hypothesis `%.80s`", name);
	if (yaml_want_keys(&rd->y, map, what, known, 2, rd->err) || read_says(rd, &h->says, map, what))
		return -1;
	const struct ynode *predicts = need(rd, map, "predicts", what);

	if (!predicts || yaml_want_map(&rd->y, predicts, "predicts", rd->err))
		return -1;
	if (predicts->n == 0)
		return yaml_error(&rd->y, predicts->at, rd->err, "%s predicts nothing", what);
	h->predicts = xcalloc((size_t)predicts->n, sizeof(*h->predicts));
	for (; h->n < predicts->n; h->n++)
		if (read_predict(rd, &h->predicts[h->n], predicts->keys[h->n], predicts->key_at[h->n],
				 &predicts->items[h->n])) {
			h->n++;
			return -1;
		}
	return 0;
}

int recipe_read_hypotheses(struct recipe_reader *rd, const struct ynode *hypotheses)
{
	struct recipe *r = rd->r;

	if (yaml_want_map(&rd->y, hypotheses, "hypotheses", rd->err))
		return -1;
	if (hypotheses->n == 0)
		return yaml_error(&rd->y, hypotheses->at, rd->err, "hypotheses: none in it");
	r->hypotheses = xcalloc((size_t)hypotheses->n, sizeof(*r->hypotheses));
	for (int i = 0; i < hypotheses->n; i++) {
		r->n_hypotheses++;
		if (read_hypothesis(rd, &r->hypotheses[i], hypotheses->keys[i], &hypotheses->items[i]))
			return -1;
	}
	return 0;
}

static int read_claim_legs(struct recipe_reader *rd, struct recipe_claim *c, const struct ynode *legs)
{
	if (yaml_want_list(&rd->y, legs, "legs", rd->err))
		return -1;
	if (legs->n == 0)
		return yaml_error(&rd->y, legs->at, rd->err, "legs: a claim rests on at least one leg");
	c->legs = xcalloc((size_t)legs->n, sizeof(*c->legs));
	for (int i = 0; i < legs->n; i++) {
		const struct ynode *item = &legs->items[i];

		if (yaml_want_string(&rd->y, item, "legs", rd->err))
			return -1;
		int leg = recipe_read_leg_name(rd, item->text, item->at, "claim");

		if (leg < 0)
			return -1;
		for (int k = 0; k < c->n_legs; k++)
			if (c->legs[k] == leg)
				return yaml_error(&rd->y, item->at, rd->err, "legs: `%s` is there twice", item->text);
		c->legs[c->n_legs++] = leg;
	}
	return 0;
}

static int read_claim(struct recipe_reader *rd, struct recipe_claim *c, const char *name, const struct ynode *map)
{
	static const char *const known[] = {"says", "about", "legs"};
	char what[120];

	*c = (struct recipe_claim){.name = xstrdup(name)};
	snprintf(what, sizeof(what), "claim `%.80s`", name);
	if (yaml_want_keys(&rd->y, map, what, known, 3, rd->err) || read_says(rd, &c->says, map, what))
		return -1;
	const struct ynode *about = need(rd, map, "about", what), *legs = need(rd, map, "legs", what);

	if (!about || !legs || yaml_want_string(&rd->y, about, "about", rd->err))
		return -1;
	/* The columns of the design: every factor, and what else a leg may differ in. */
	if (factor_find(about->text) < 0 && strcmp(about->text, "at") != 0 && strcmp(about->text, "engine") != 0
	    && strcmp(about->text, "host") != 0)
		return recipe_unknown_factor(rd, about->text, about->at, "about");
	c->about = xstrdup(about->text);
	return read_claim_legs(rd, c, legs);
}

int recipe_read_claims(struct recipe_reader *rd, const struct ynode *claims)
{
	struct recipe *r = rd->r;

	if (yaml_want_map(&rd->y, claims, "claims", rd->err))
		return -1;
	r->claims = xcalloc((size_t)claims->n + 1, sizeof(*r->claims));
	for (int i = 0; i < claims->n; i++) {
		r->n_claims++;
		if (read_claim(rd, &r->claims[i], claims->keys[i], &claims->items[i]))
			return -1;
	}
	return 0;
}
