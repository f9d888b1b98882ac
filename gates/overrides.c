/* What --set, --leg and --until-decided changed: <run>/overrides.json, applied to the recipe by the runner and by the judge. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/file.h"
#include "contract/json.h"
#include "recipe.h"
#include "suggest.h"

static int load_set(struct overrides *o, const json_t *set, const char *path, struct err *err)
{
	const char *name;
	const json_t *value;
	char number[32];

	json_object_foreach((json_t *)set, name, value) {
		struct err inner = {0};

		if (!json_is_string(value) && !json_is_integer(value))
			return err_set(err, ERR_INPUT, "%s: $.set.%s: expected a string or an integer", path, name);
		if (json_is_integer(value))
			snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
		if (arm_set(&o->set, name, json_is_string(value) ? json_string_value(value) : number, &inner))
			return err_set(err, ERR_INPUT, "%s: $.set: %s", path, inner.text);
	}
	return 0;
}

static int load_names(char ***names, int *n, const json_t *array, const char *key, const char *path, struct err *err)
{
	*names = xcalloc(json_array_size(array) + 1, sizeof(**names));
	for (size_t i = 0; i < json_array_size(array); i++) {
		const json_t *name = json_array_get(array, i);

		if (!json_is_string(name))
			return err_set(err, ERR_INPUT, "%s: $.%s[%zu]: expected a string", path, key, i);
		(*names)[(*n)++] = xstrdup(json_string_value(name));
	}
	return 0;
}

int overrides_load(struct overrides *o, const char *path, struct err *err)
{
	struct jobj top;
	json_t *json;
	int failed;

	*o = (struct overrides){0};
	arm_init(&o->set);
	if (!file_exists(path))
		return 0;
	json = json_read_file(path, false, err);
	if (!json)
		return -1;
	failed = json_begin(&top, json, path, "$", err);
	if (!failed) {
		const json_t *set = json_get_object(&top, "set", false);
		const json_t *legs = json_get_array(&top, "legs", false);
		const json_t *prompts = json_get_array(&top, "prompts", false);

		failed = json_end(&top) || (set && load_set(o, set, path, err))
			 || (legs && load_names(&o->legs, &o->n_legs, legs, "legs", path, err))
			 || (prompts && load_names(&o->prompts, &o->n_prompts, prompts, "prompts", path, err));
	}
	json_decref(json);
	return failed ? -1 : 0;
}

static void save_names(json_t *json, const char *key, char *const *names, int n)
{
	json_t *array = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(array, json_string(names[i]));
	if (n)
		json_object_set(json, key, array);
	json_decref(array);
}

int overrides_save(const struct overrides *o, const char *path, struct err *err)
{
	json_t *json = json_object(), *set = json_object();
	char value[32];
	int failed;

	for (int f = 0; f < N_FACTORS; f++) {
		int v = o->set.value[f];
		const char *name = factor_name((enum factor)f);

		if (v == ARM_UNSET)
			continue;
		json_object_set_new(set, name, factor_is_number((enum factor)f) && v >= 0 ? json_integer(v)
				    : json_string(arm_text(&o->set, (enum factor)f, value, sizeof(value))));
	}
	if (json_object_size(set))
		json_object_set(json, "set", set);
	save_names(json, "legs", o->legs, o->n_legs);
	save_names(json, "prompts", o->prompts, o->n_prompts);
	failed = json_write_file(json, path, JSON_INDENT(1), err);
	json_decref(set);
	json_decref(json);
	return failed;
}

void overrides_release(struct overrides *o)
{
	for (int i = 0; i < o->n_legs; i++)
		free(o->legs[i]);
	free(o->legs);
	for (int i = 0; i < o->n_prompts; i++)
		free(o->prompts[i]);
	free(o->prompts);
	*o = (struct overrides){0};
}

/* ---- applied to a recipe ---- */

static void drop_predictions(struct hypothesis *h, const int *moved)
{
	int kept = 0;

	for (int i = 0; i < h->n; i++) {
		if (moved[h->predicts[i].leg] < 0) {
			free(h->predicts[i].text);
			continue;
		}
		h->predicts[kept] = h->predicts[i];
		h->predicts[kept].leg = moved[h->predicts[i].leg];
		kept++;
	}
	h->n = kept;
}

static void drop_claim_legs(struct recipe_claim *c, const int *moved)
{
	int kept = 0;

	for (int i = 0; i < c->n_legs; i++)
		if (moved[c->legs[i]] >= 0)
			c->legs[kept++] = moved[c->legs[i]];
	c->n_legs = kept;
}

static void drop_speed(struct recipe *r, const int *moved)
{
	int kept = 0;

	for (int i = 0; i < r->n_speed; i++)
		if (moved[r->speed[i].a] >= 0 && moved[r->speed[i].b] >= 0)
			r->speed[kept++] = (struct speed_pair){moved[r->speed[i].a], moved[r->speed[i].b]};
	r->n_speed = kept;
}

/* The legs that stay keep their order; moved[] says where each went, -1: left out. */
static void keep_legs(struct recipe *r, const bool *keep)
{
	int *moved = xcalloc((size_t)r->n_legs, sizeof(*moved));
	struct recipe_leg *left = xcalloc((size_t)r->n_legs, sizeof(*left));
	int kept = 0, out = 0, n = r->n_legs;

	for (int i = 0; i < n; i++) {
		moved[i] = keep[i] ? kept++ : -1;
		if (!keep[i])
			left[out++] = r->legs[i];
	}
	for (int i = 0; i < n; i++)
		if (moved[i] >= 0)
			r->legs[moved[i]] = r->legs[i];
	memcpy(r->legs + kept, left, (size_t)out * sizeof(*left));
	recipe_drop_legs(r, kept);
	for (int i = 0; i < r->n_hypotheses; i++)
		drop_predictions(&r->hypotheses[i], moved);
	for (int i = 0; i < r->n_claims; i++)
		drop_claim_legs(&r->claims[i], moved);
	drop_speed(r, moved);
	free(left);
	free(moved);
}

static int select_legs(struct recipe *r, const struct overrides *o, struct err *err)
{
	bool *keep = xcalloc((size_t)r->n_legs, sizeof(*keep));
	const char **known = xcalloc((size_t)r->n_legs, sizeof(*known));
	char near[400];

	for (int i = 0; i < r->n_legs; i++)
		known[i] = r->legs[i].name;
	for (int i = 0; i < o->n_legs && !err->kind; i++) {
		int leg = recipe_leg_find(r, o->legs[i]);

		if (leg < 0)
			err_set(err, ERR_INPUT, "--leg %s: %s has no such leg%s", o->legs[i], r->file,
				suggest(near, sizeof(near), o->legs[i], known, r->n_legs));
		else
			keep[leg] = true;
	}
	if (!err->kind)
		keep_legs(r, keep);
	free(known);
	free(keep);
	return err->kind ? -1 : 0;
}

static void replace_prompts(struct recipe *r, const struct overrides *o)
{
	for (int i = 0; i < r->n_prompts; i++)
		free(r->prompts[i]);
	free(r->prompts);
	free(r->place.prompts);
	r->n_prompts = o->n_prompts;
	r->prompts = xcalloc((size_t)o->n_prompts + 1, sizeof(*r->prompts));
	r->place.prompts = xcalloc((size_t)o->n_prompts + 1, sizeof(*r->place.prompts));
	for (int i = 0; i < o->n_prompts; i++)
		r->prompts[i] = xstrdup(o->prompts[i]);
}

int recipe_override(struct recipe *r, const struct overrides *o, struct err *err)
{
	int first, second;

	if (o->n_legs && select_legs(r, o, err))
		return -1;
	for (int i = 0; i < r->n_legs; i++)
		arm_overlay(&r->legs[i].arm, &o->set);
	if (o->n_prompts)
		replace_prompts(r, o);
	if (recipe_same_legs(r, &first, &second))
		return err_set(err, ERR_INPUT, "%s: with the overrides, legs `%s` and `%s` have the same factors, engine and host",
			       r->file, r->legs[first].name, r->legs[second].name);
	return 0;
}
