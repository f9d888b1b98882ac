#include "verdict.h"

#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "evidence.h"

static void judge(struct evidence *e)
{
	for (int i = 0; i < e->n_legs; i++) {
		tokens_compare(e, &e->legs[i]);
		require_check(e, &e->legs[i]);
	}
	require_same_runs(e);
	for (int i = 0; i < e->n_legs; i++) {
		struct leg *l = &e->legs[i];

		ladder_verdict(e, l);
		if (l->has_report)
			margins_adjudicate(e, l);
		if (leg_counts(l))
			noise_measure(e, l);
	}
	noise_across(e);
	for (int i = 0; i < e->n_legs; i++)
		ladder_adjudicate(e, &e->legs[i]);
	pairs_compare(e);
	design_of_run(e);
	hypotheses_test(e);
	next_legs(e);
	claims_draw(e);
	for (int i = 0; i < e->n_speed; i++)
		speed_judge(&e->speed[i], e);
	overall_decide(e);
}

json_t *verdict_judge(const char *run_dir, struct err *err)
{
	return verdict_judge_loaded(run_dir, NULL, err);
}

json_t *verdict_judge_loaded(const char *run_dir, struct golden *golden, struct err *err)
{
	struct evidence e;
	json_t *verdict = NULL;

	if (!evidence_load(&e, run_dir, golden, err)) {
		judge(&e);
		verdict = verdict_document(&e);
	}
	evidence_release(&e);
	return verdict;
}

int verdict_exit_code(const json_t *verdict)
{
	const json_t *code = json_object_get(json_object_get(verdict, "overall"), "exit_code");

	return json_is_integer(code) ? (int)json_integer_value(code) : 2;
}

json_t *verdict_load(const char *path, struct err *err)
{
	char *inside = path_join(path, "verdict.json");
	const char *file = file_exists(inside) ? inside : path;
	json_t *v = json_read_file(file, false, err);
	const char *schema = json_string_value(json_object_get(v, "schema"));
	static const struct { const char *key; json_type type; } members[] = {
		{ "run", JSON_OBJECT }, { "overall", JSON_OBJECT }, { "legs", JSON_OBJECT }, { "pairs", JSON_ARRAY },
		{ "hypotheses", JSON_OBJECT }, { "claims", JSON_ARRAY }, { "next_legs", JSON_ARRAY },
	};

	if (v && (!schema || strcmp(schema, "assay/verdict/1") != 0))
		err_set(err, ERR_INPUT, "%s: $.schema: expected assay/verdict/1, found %s", file, schema ? schema : "nothing");
	for (size_t i = 0; v && !err->kind && i < sizeof members / sizeof *members; i++) {
		const json_t *m = json_object_get(v, members[i].key);

		if (!m || json_typeof(m) != members[i].type)
			err_set(err, ERR_INPUT, "%s: $.%s: expected %s", file, members[i].key,
				members[i].type == JSON_ARRAY ? "an array" : "an object");
	}
	if (v && err->kind) {
		json_decref(v);
		v = NULL;
	}
	free(inside);
	return v;
}

json_t *verdict_explain_recipe(const struct recipe *r, struct err *err)
{
	struct design d;
	json_t *o = json_object(), *claims = json_array();

	(void)err;
	design_of_recipe(&d, r);
	candidates_rank(&d, r, NULL, 0);
	for (int c = 0; c < N_COLUMNS; c++) {
		const struct candidate *best;
		int row = -1;

		if (!d.varied[c])
			continue;
		json_t *claim = json_pack("{s:s, s:[]}", "about", column_name(c), "legs"), *legs = json_object_get(claim, "legs");
		bool separable = d.separable[c][0] >= 0;

		for (int i = 0; separable && i < 2; i++)
			json_array_append_new(legs, json_string(d.rows[d.separable[c][i]].name));
		json_object_set_new(claim, "status", json_string(separable ? "supportable" : "refused"));
		json_object_set_new(claim, "needs", json_null());
		if (!separable && candidate_pair(&d, c, &row, &best)) {
			char *name = candidate_name(&d, best);

			json_object_set_new(claim, "needs", json_pack("[s, s]", d.rows[row].name, name));
			free(name);
		}
		json_array_append_new(claims, claim);
	}
	json_object_set_new(o, "design", design_document(&d));
	json_object_set_new(o, "claims", claims);
	json_object_set_new(o, "next_legs", next_legs_document(&d, r));
	if (r->n_speed) {
		json_t *speed = json_array();

		for (int i = 0; i < r->n_speed; i++)
			json_array_append_new(speed, json_pack("{s:s, s:s, s:i}", "a", r->legs[r->speed[i].a].name, "b",
							       r->legs[r->speed[i].b].name, "turns", r->speed_runs));
		json_object_set_new(o, "speed", speed);
	}
	json_object_set_new(o, "tokens_per_leg", r->n_prompts ? json_integer((json_int_t)r->n_prompts * r->max_steps *
			    (r->modes[MODE_FREE] + r->modes[MODE_FORCED])) : json_null());
	design_release(&d);
	return o;
}
