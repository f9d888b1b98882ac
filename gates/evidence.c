#include "evidence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"

const char *leg_verdict_name(enum leg_verdict v)
{
	static const char *const names[] = { "STRICT PASS", "DIVERGENCE", "SHORT", "NOT MEASURED", "VOID", "ERROR" };

	return names[v];
}

const char *adjudication_name(enum adjudication a)
{
	switch (a) {
	case ADJ_EQUIVALENT: return "EQUIVALENT";
	case ADJ_UNPROVEN: return "UNPROVEN";
	case ADJ_NEAR_TIE: return "NEAR-TIE";
	case ADJ_UNDETERMINED: return "UNDETERMINED";
	case ADJ_SYSTEMATIC: return "SYSTEMATIC";
	case ADJ_EXCESS: return "EXCESS";
	case ADJ_EXACT_TIE: return "EXACT TIE";
	case ADJ_SUSPICIOUS: return "SUSPICIOUS";
	default: return "NOT MEASURED";
	}
}

/* ---- loading */

static char *copy_or_null(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

/* <run>/run.json; a run directory made by hand has none. */
static int load_run(struct evidence *e, struct err *err)
{
	char *path = path_join(e->dir, "run.json");
	int failed = 0;

	if (file_exists(path)) {
		json_t *json = json_read_file(path, false, err);
		struct jobj o;

		failed = !json || json_begin(&o, json, path, "$", err);
		if (!failed) {
			const json_t *argv = json_is_null_member(&o, "argv") ? NULL : json_get_array(&o, "argv", false);

			e->run.id = copy_or_null(json_get_string(&o, "id", true));
			e->run.started = copy_or_null(json_get_string(&o, "started", false));
			e->run.ended = copy_or_null(json_get_string(&o, "ended", false));
			e->run.has_argv = argv != NULL;
			e->run.argv = xcalloc(json_array_size(argv) + 1, sizeof *e->run.argv);
			for (size_t i = 0; i < json_array_size(argv); i++) {
				const char *arg = json_string_value(json_array_get(argv, i));

				e->run.argv[e->run.argc++] = xstrdup(arg ? arg : "");
			}
			failed = json_end(&o);
		}
		json_decref(json);
	}
	free(path);
	return failed;
}

static int load_recipe(struct evidence *e, struct err *err)
{
	char *recipe = path_join(e->dir, "recipe.yaml"), *over = path_join(e->dir, "overrides.json");
	int failed = recipe_load(&e->recipe, recipe, err) || overrides_load(&e->overrides, over, err);

	e->overridden = file_exists(over);
	e->prompts_asked = e->recipe.n_prompts;
	if (!failed && e->overridden)
		failed = recipe_override(&e->recipe, &e->overrides, err);
	free(recipe);
	free(over);
	return failed;
}

/* The prompts that the recipe asks for, as indices into the golden's. */
static int ask_prompts(struct evidence *e, struct err *err)
{
	const struct recipe *r = &e->recipe;
	const struct golden *g = &e->golden;
	const struct golden_profile *base = golden_profile_find(g, r->profile);
	int *asked = xcalloc((size_t)(g->n_prompts + r->n_prompts) + 1, sizeof *asked), n = 0, failed = 0;

	if (!base)
		failed = recipe_error(r, r->place.profile, err, "the golden has no profile `%s`", r->profile);
	for (int i = 0; base && r->n_prompts == 0 && i < g->n_prompts; i++)
		if (golden_row_find(base, i))
			asked[n++] = i;
	for (int i = 0; base && !failed && i < r->n_prompts; i++) {
		int p = golden_prompt_find(g, r->prompts[i]);

		if (p < 0 || !golden_row_find(base, p))
			failed = recipe_error(r, r->place.prompts[i], err, p < 0 ? "the golden has no prompt `%s`" :
					      "the expected profile has no row for prompt `%s`", r->prompts[i]);
		for (int j = 0; j < n && !failed; j++)
			if (asked[j] == p)
				failed = recipe_error(r, r->place.prompts[i], err, "prompt `%s` is asked twice", r->prompts[i]);
		asked[n++] = p;
	}
	if (!failed && e->prompts_asked == 0)
		for (int i = 0; i < g->n_prompts; i++)
			e->prompts_asked += golden_row_find(base, i) != NULL;
	if (!failed)
		oracle_measure(&e->oracle, g, base, asked, n, r->max_steps);
	free(asked);
	return failed;
}

static void load_leg(struct evidence *e, struct leg *l)
{
	char *name = xasprintf("legs/%s.json", l->want->name), *report = path_join(e->dir, name);
	char *exit_name = xasprintf("legs/%s.exit.json", l->want->name), *ended = path_join(e->dir, exit_name);
	struct err err = { 0 };

	if (file_exists(report)) {
		l->has_report = !report_load(&l->report, report, &err);
		if (!l->has_report)
			l->load_error = xstrdup(err.text);
	}
	err = (struct err){ 0 };
	if (file_exists(ended)) {
		l->has_exit = !leg_exit_load(&l->exit, ended, &err);
		if (!l->has_exit && !l->load_error)
			l->load_error = xstrdup(err.text);
		if (l->has_exit && strcmp(l->exit.leg, l->want->name) && !l->load_error)
			l->load_error = xasprintf("%s: is of leg `%s`", exit_name, l->exit.leg);
	}
	if (l->has_report) {
		const struct report *r = &l->report;

		l->engine = r->engine.binary_sha256[0] ? xstrdup(r->engine.binary_sha256) :
			xasprintf("%s %s", r->engine.name ? r->engine.name : "", r->engine.version ? r->engine.version : "");
	}
	free(name);
	free(report);
	free(exit_name);
	free(ended);
}

/* <run>/speed.json; a recipe that asks for no speed has none. */
static int load_speed(struct evidence *e, struct err *err)
{
	char *path = path_join(e->dir, "speed.json");
	int failed = file_exists(path) ? speed_load(&e->speed, &e->n_speed, &e->recipe, path, err) : 0;

	if (!failed && e->recipe.n_speed)
		speed_add_absent(&e->speed, &e->n_speed, &e->recipe);
	free(path);
	return failed;
}

/* A machine is its name and GPU.  A leg that uses no GPU does not say which one stands there: it is that of the other legs of
 * this name, if they agree. */
static const char *gpu_of(const struct evidence *e, const struct leg *l)
{
	const char *name = l->report.host.name ? l->report.host.name : "", *gpu = l->report.host.gpu;

	for (int i = 0; i < e->n_legs && !l->report.host.gpu; i++) {
		const struct leg *other = &e->legs[i];
		const char *theirs = other->has_report ? other->report.host.gpu : NULL;

		if (!theirs || !text_same(other->report.host.name, name))
			continue;
		if (gpu && strcmp(gpu, theirs) != 0)
			return NULL;
		gpu = theirs;
	}
	return gpu;
}

static void name_hosts(struct evidence *e)
{
	for (int i = 0; i < e->n_legs; i++) {
		struct leg *l = &e->legs[i];
		const char *gpu = l->has_report ? gpu_of(e, l) : NULL, *name = l->report.host.name ? l->report.host.name : "";

		if (l->has_report)
			l->host = gpu ? xasprintf("%s/%s", name, gpu) : xstrdup(name);
	}
}

static int load_golden(struct evidence *e, struct golden *at_hand, struct err *err)
{
	char *path = path_join(e->dir, "golden.json");
	int failed = 0;

	if (at_hand) {
		e->golden = *at_hand;
		*at_hand = (struct golden){ 0 };
	} else {
		failed = golden_load(&e->golden, path, err);
	}
	free(path);
	return failed;
}

int evidence_load(struct evidence *e, const char *run_dir, struct golden *golden, struct err *err)
{
	*e = (struct evidence){ .dir = xstrdup(run_dir) };
	char *tokenizer = path_join(run_dir, "tokenizer.json");
	int failed = load_recipe(e, err) || load_golden(e, golden, err) || load_run(e, err) || ask_prompts(e, err) ||
		load_speed(e, err);

	if (!failed && file_exists(tokenizer)) {
		struct err why = { 0 };

		/* texts are for people: a judgement of ids does not wait for them */
		e->tokenizer = tokenizer_load(tokenizer, &why);
		if (!e->tokenizer)
			e->no_texts = xstrdup(why.text);
	}
	if (!failed) {
		e->n_legs = e->recipe.n_legs;
		e->legs = xcalloc((size_t)e->n_legs + 1, sizeof *e->legs);
		for (int i = 0; i < e->n_legs; i++) {
			e->legs[i].want = &e->recipe.legs[i];
			load_leg(e, &e->legs[i]);
		}
		name_hosts(e);
	}
	free(tokenizer);
	return failed ? -1 : 0;
}

/* ---- releasing */

static void leg_release(struct leg *l)
{
	if (l->has_report)
		report_release(&l->report);
	if (l->has_exit)
		leg_exit_release(&l->exit);
	free(l->load_error);
	free(l->engine);
	free(l->host);
	text_release(&l->reason);
	text_release(&l->voids);
	text_release(&l->unproven);
	for (int m = 0; m < N_MODES; m++)
		free(l->modes[m].rows);
	free(l->flips);
	free(l->contract);
}

void evidence_release(struct evidence *e)
{
	for (int i = 0; i < e->n_claims; i++) {
		free(e->claims[i].legs);
		free(e->claims[i].needs[0]);
		free(e->claims[i].needs[1]);
	}
	free(e->claims);
	speed_release(e->speed, e->n_speed);
	for (int i = 0; e->hypotheses && i < e->recipe.n_hypotheses; i++)
		free(e->hypotheses[i].by);
	free(e->hypotheses);
	design_release(&e->design);
	free(e->pairs);
	text_release(&e->overall.reason);
	for (int i = 0; i < e->n_legs; i++)
		leg_release(&e->legs[i]);
	free(e->legs);
	oracle_release(&e->oracle);
	for (int i = 0; i < e->run.argc; i++)
		free(e->run.argv[i]);
	free(e->run.argv);
	free(e->run.id);
	free(e->run.started);
	free(e->run.ended);
	if (e->tokenizer)
		tokenizer_free(e->tokenizer);
	free(e->no_texts);
	golden_release(&e->golden);
	overrides_release(&e->overrides);
	recipe_release(&e->recipe);
	free(e->dir);
	*e = (struct evidence){ 0 };
}

/* ---- small questions */

const char *evidence_prompt(const struct evidence *e, int prompt)
{
	return e->golden.prompts[e->oracle.prompts[prompt].prompt].id;
}

char *evidence_text(const struct evidence *e, const int32_t *ids, int n)
{
	struct err err = { 0 };
	struct text shown = { 0 };
	size_t size = 0;
	char *text = e->tokenizer ? tokenizer_decode(e->tokenizer, ids, n, false, &size, &err) : NULL;

	if (!text || strlen(text) == size)
		return text;
	for (size_t i = 0; i < size; i++)
		text_add(&shown, text[i] ? "%c" : "\xe2\x90\x80", text[i]);
	free(text);
	return shown.s;
}

struct subject leg_subject(const struct evidence *e, const struct leg *l, const struct report_row **rows)
{
	for (int p = 0; p < e->oracle.n_prompts; p++)
		rows[p] = l->modes[MODE_FORCED].asked ? l->modes[MODE_FORCED].rows[p].row : NULL;
	return (struct subject){ .oracle = &e->oracle, .row = rows };
}

bool leg_counts(const struct leg *l)
{
	return l->has_report && l->verdict != LEG_VOID && l->verdict != LEG_ERROR;
}

enum mode headline_mode(const struct recipe *r)
{
	return r->modes[MODE_FREE] ? MODE_FREE : MODE_FORCED;
}
