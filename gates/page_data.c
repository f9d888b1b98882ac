/* The document inside the page.  docs/formats.md, section 10. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "contract/version.h"
#include "page.h"

/* Distinct token ids, in the order in which they turn up: rows hold places in this table. */
struct vocabulary {
	int32_t *ids; size_t n, room;    /* owned */
	int32_t *place; size_t size;     /* owned: by id, -1: not met */
};

struct page {
	const struct findings *f;
	const struct evidence *e;
	const struct oracle *o;
	struct vocabulary words;
	uint32_t *expected;              /* owned [n_positions]: places in the table of tokens */
	int each;                        /* bytes of a place in the table of tokens */
};

static uint32_t word(struct vocabulary *v, int32_t id)
{
	size_t at = (size_t)(id < 0 ? 0 : id);

	if (at >= v->size) {
		size_t size = 2 * at + 1024;

		v->place = xrealloc(v->place, size, sizeof *v->place);
		for (size_t i = v->size; i < size; i++)
			v->place[i] = -1;
		v->size = size;
	}
	if (v->place[at] < 0) {
		if (v->n == v->room) {
			v->room = 2 * v->room + 256;
			v->ids = xrealloc(v->ids, v->room, sizeof *v->ids);
		}
		v->place[at] = (int32_t)v->n;
		v->ids[v->n++] = (int32_t)at;
	}
	return (uint32_t)v->place[at];
}

static void meet_words(struct page *p)
{
	const json_t *flip;
	size_t k;

	p->expected = xcalloc(p->o->n_positions + 1, sizeof *p->expected);
	for (int i = 0; i < p->o->n_prompts; i++) {
		const struct oracle_prompt *at = &p->o->prompts[i];

		for (int j = 0; j < at->planned; j++)
			p->expected[at->first + (size_t)j] = word(&p->words, at->base->ids[j]);
		for (int l = 0; l < p->e->n_legs; l++)
			for (int m = 0; m < N_MODES; m++) {
				const struct row_compare *c = p->e->legs[l].modes[m].asked ? &p->e->legs[l].modes[m].rows[i] : NULL;

				for (int j = 0; c && c->row && j < c->compared; j++)
					word(&p->words, c->row->ids[j]);
			}
	}
	for (int l = 0; l < p->e->n_legs; l++)
		json_array_foreach(json_object_get(findings_leg(p->f, l), "flips"), k, flip)
			word(&p->words, (int32_t)json_integer_value(json_object_get(json_object_get(flip, "got"), "id")));
	p->each = p->words.n > 65536 ? 4 : 2;
}

static json_t *number(double x)
{
	return isfinite(x) ? json_number_rounded(x, 5) : json_null();
}

static json_t *string(const char *s)
{
	return s ? json_string_lossy(s) : json_null();
}

/* ---- the oracle */

static json_t *token_text(const struct page *p, int32_t id)
{
	char *text = evidence_text(p->e, &id, 1);
	json_t *j = string(text);

	free(text);
	return j;
}

/* Written last: by then every id has been met. */
static json_t *words_of(const struct page *p)
{
	json_t *o = json_object(), *texts = json_array();

	for (size_t i = 0; p->e->tokenizer && i < p->words.n; i++)
		json_array_append_new(texts, token_text(p, p->words.ids[i]));
	json_put(o, "ids", page_integers(p->words.ids, p->words.n));
	json_put(o, "texts", p->e->tokenizer ? json_incref(texts) : json_null());
	json_put(o, "why", string(p->e->no_texts));
	json_decref(texts);
	return o;
}

static json_t *prompts_of(const struct page *p)
{
	json_t *a = json_array();

	for (int i = 0; i < p->o->n_prompts; i++) {
		const struct oracle_prompt *at = &p->o->prompts[i];
		const struct golden_prompt *g = &p->e->golden.prompts[at->prompt];
		json_t *o = json_object();

		json_put(o, "id", string(g->id));
		json_put(o, "text", g->text ? string(g->text) : string(NULL));
		json_put(o, "tokens", json_integer(g->n));
		json_put(o, "planned", json_integer(at->planned));
		json_put(o, "forks_at", at->forks_at < 0 ? json_null() : json_integer(at->forks_at));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *profiles_of(const struct golden *g)
{
	json_t *a = json_array();

	for (int i = 0; i < g->n_profiles; i++) {
		const struct golden_profile *p = &g->profiles[i];

		json_array_append_new(a, json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s}", "name", p->name, "engine", p->engine,
						   "version", p->engine_version, "device", p->device, "logits_dtype", p->logits_dtype,
						   "captured", p->captured, "command", p->command, "mode",
						   p->mode == GOLDEN_FORCED ? "forced" : "free"));
	}
	return a;
}

static json_t *oracle_of(struct page *p)
{
	size_t n = p->o->n_positions;
	double *margin = xcalloc(n + 1, sizeof *margin), *spread = xcalloc(n + 1, sizeof *spread);
	json_t *o = json_object();

	for (size_t i = 0; i < n; i++) {
		margin[i] = p->o->positions[i].margin;
		spread[i] = exp(p->o->positions[i].log_spread);
	}
	json_put(o, "expected", page_indices(p->expected, n, p->each));
	json_put(o, "margin", page_logarithms(margin, n));
	json_put(o, "spread", page_logarithms(spread, n));
	json_put(o, "s", number(p->o->s));
	json_put(o, "profiles", profiles_of(&p->e->golden));
	json_put(o, "name", string(p->e->golden.name));
	json_put(o, "profile", string(p->e->recipe.profile));
	free(margin);
	free(spread);
	return o;
}

/* ---- a leg's rows */

/* What it answered where that is not what was expected: `got` places in the table of tokens, `gaps` how far each stands from
 * the one before; where that is more than a byte holds, a position is named that is as expected. */
struct answers { uint32_t *gap, *got; size_t n, last, room; };

static void answer(struct answers *a, size_t position, uint32_t got, const uint32_t *expected)
{
	while (position - a->last > 255)
		answer(a, a->last + 255, expected[a->last + 255], expected);
	if (a->n == a->room) {
		a->room = 2 * a->room + 256;
		a->gap = xrealloc(a->gap, a->room, sizeof *a->gap);
		a->got = xrealloc(a->got, a->room, sizeof *a->got);
	}
	a->gap[a->n] = (uint32_t)(position - a->last);
	a->got[a->n++] = got;
	a->last = position;
}

static void answer_rows(struct page *p, struct answers *a, const struct mode_compare *c)
{
	for (int i = 0; i < p->o->n_prompts; i++) {
		const struct oracle_prompt *want = &p->o->prompts[i];
		const struct report_row *row = c->rows[i].row;

		for (int j = 0; row && j < c->rows[i].compared; j++)
			if (row->ids[j] != want->base->ids[j])
				answer(a, want->first + (size_t)j, word(&p->words, row->ids[j]), p->expected);
	}
}

static json_t *rows_of(struct page *p, const struct leg *l, enum mode m)
{
	const struct mode_compare *c = &l->modes[m];
	struct answers a = { 0 };
	int32_t *rows = xcalloc((size_t)p->o->n_prompts + 1, sizeof *rows), *forks = xcalloc((size_t)p->o->n_prompts + 1, sizeof *forks);
	json_t *o = json_object();

	for (int i = 0; i < p->o->n_prompts; i++) {
		rows[i] = c->rows[i].row ? c->rows[i].compared : 0;
		forks[i] = c->rows[i].row ? c->rows[i].first_fork : -1;
	}
	answer_rows(p, &a, c);
	json_put(o, "rows", page_integers(rows, (size_t)p->o->n_prompts));
	json_put(o, "forks", page_integers(forks, (size_t)p->o->n_prompts));
	json_put(o, "gaps", page_indices(a.gap, a.n, 1));
	json_put(o, "got", page_indices(a.got, a.n, p->each));
	json_put(o, "compared", json_integer((json_int_t)c->compared));
	json_put(o, "matched", json_integer((json_int_t)c->matched));
	free(a.gap);
	free(a.got);
	free(rows);
	free(forks);
	return o;
}

/* The leg's own margin at every position of one mode. */
static json_t *own_margins(const struct page *p, const struct leg *l, enum mode m)
{
	const struct mode_compare *c = &l->modes[m];
	double *own = xcalloc(p->o->n_positions + 1, sizeof *own);

	for (size_t i = 0; i < p->o->n_positions; i++)
		own[i] = NAN;
	for (int i = 0; i < p->o->n_prompts; i++)
		for (int j = 0; c->rows[i].row && c->rows[i].row->steps && j < c->rows[i].compared; j++) {
			const struct report_step *step = &c->rows[i].row->steps[j];

			if (step->has_logits && isfinite(step->margin))
				own[p->o->prompts[i].first + (size_t)j] = step->margin;
		}
	json_t *array = page_logarithms(own, p->o->n_positions);

	free(own);
	return array;
}

/* The median of w over the prompts, by step. */
static json_t *medians_by_step(const struct page *p, const double *w)
{
	double *at_step = xcalloc((size_t)p->o->n_prompts + 1, sizeof *at_step);
	json_t *a = json_array();

	for (int j = 0; j < p->e->recipe.max_steps; j++) {
		size_t n = 0;

		for (int i = 0; i < p->o->n_prompts; i++)
			if (j < p->o->prompts[i].planned && !isnan(w[p->o->prompts[i].first + (size_t)j]))
				at_step[n++] = w[p->o->prompts[i].first + (size_t)j];
		json_array_append_new(a, number(stats_median(at_step, n)));
	}
	free(at_step);
	return a;
}

static void put_distances(const struct page *p, const struct leg *l, json_t *to)
{
	const struct report_row **rows = xcalloc((size_t)p->o->n_prompts + 1, sizeof *rows);
	double *B = xcalloc(p->o->n_positions + 1, sizeof *B), *w = xcalloc(p->o->n_positions + 1, sizeof *w);
	struct subject s = leg_subject(p->e, l, rows);
	struct distance d;

	distance_fill(B, NULL, &s);
	distance_measure(&d, w, p->o, B, p->e->recipe.limit);
	json_put(to, "distance", page_logarithms(B, p->o->n_positions));
	json_put(to, "drift", medians_by_step(p, w));
	free(rows);
	free(B);
	free(w);
}

/* ---- a leg's counters */

static bool same_counts(const struct report_trace *a, const struct report_trace *b)
{
	return a->T == b->T && a->nd == b->nd && a->np == b->np && memcmp(&a->counters, &b->counters, sizeof a->counters) == 0;
}

static json_t *counts_of(const struct report_trace *t)
{
	json_t *a = json_pack("[I, I, I]", (json_int_t)t->T, (json_int_t)t->nd, (json_int_t)t->np);

	for (int i = 0; i < N_COUNTERS; i++)
		json_array_append_new(a, t->counters.n[i] == COUNTER_ABSENT ? json_null() : json_integer(t->counters.n[i]));
	return a;
}

/* Steps of a run are alike: a table of distinct rows, and pairs [row, how many in succession]. */
static json_t *trace_of(const struct report_mode *m)
{
	json_t *table = json_array(), *runs = json_array();
	int *known = xcalloc((size_t)m->n_trace + 1, sizeof *known), n = 0;

	for (int i = 0, length; i < m->n_trace; i += length) {
		int k = 0;

		for (length = 1; i + length < m->n_trace && same_counts(&m->trace[i], &m->trace[i + length]);)
			length++;
		/* a trace whose rows all differ is not searched to its end */
		while (k < n && k < 512 && !same_counts(&m->trace[known[k]], &m->trace[i]))
			k++;
		if (k == n || k == 512) {
			k = n;
			known[n++] = i;
			json_array_append_new(table, counts_of(&m->trace[i]));
		}
		json_array_append_new(runs, json_pack("[i, i]", k, length));
	}
	free(known);
	return json_pack("{s:o, s:o}", "table", table, "runs", runs);
}

/* ---- a leg's flips, as columns */

static json_t *flips_of(struct page *p, const json_t *flips)
{
	static const char *const kept[] = { "mode", "prompt", "step", "oracle_margin", "oracle_margin_bound", "subject_margin",
		"subject_margin_bound", "ulps", "tau", "subject_tau", "p", "oracle_unstable", "adjudication" };
	enum { N_KEPT = sizeof kept / sizeof *kept };
	json_t *a = json_array(), *flip;
	size_t i;

	json_array_foreach(flips, i, flip) {
		json_t *row = json_array(), *got = json_object_get(flip, "got");

		for (int k = 0; k < N_KEPT; k++) {
			json_t *value = json_object_get(flip, kept[k]);

			json_array_append_new(row, json_is_real(value) ? number(json_real_value(value)) :
					      json_is_boolean(value) ? json_integer(json_is_true(value)) : json_incref(value));
		}
		json_array_append_new(row, json_integer(word(&p->words, (int32_t)json_integer_value(json_object_get(got, "id")))));
		json_array_append(row, json_object_get(got, "rank"));
		json_array_append_new(a, row);
	}
	return a;
}

/* ---- a leg */

static json_t *identity_of(const struct leg *l)
{
	const struct report *r = &l->report;
	json_t *o = json_object(), *features = json_object();

	for (int i = 0; i < r->engine.n_features; i++)
		json_put(features, r->engine.features[i].name, string(r->engine.features[i].value));
	json_put(o, "engine", json_pack("{s:s?, s:s?, s:s?, s:o, s:s, s:s?, s:o}", "name", r->engine.name, "version", r->engine.version,
					"git", r->engine.git, "dirty", r->engine.dirty < 0 ? json_null() : json_boolean(r->engine.dirty),
					"binary_sha256", r->engine.binary_sha256, "flags", r->engine.flags, "features", features));
	json_put(o, "host", json_pack("{s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:I}", "name", r->host.name, "cpu", r->host.cpu, "kernel",
				      r->host.kernel, "gpu", r->host.gpu, "arch", r->host.arch, "driver", r->host.driver, "cuda",
				      r->host.cuda, "cores", (json_int_t)r->host.cores));
	json_put(o, "model", json_pack("{s:s?, s:i, s:i, s:i, s:i, s:i, s:i}", "name", r->model.name, "files", r->model.n_files, "mamba",
				       r->model.mamba, "attn", r->model.attn, "moe", r->model.moe, "mlp", r->model.mlp, "layers",
				       r->model.layers));
	json_put(o, "effective", arm_to_json(&r->effective, &r->effective_at));
	return o;
}

static json_t *leg_of(struct page *p, const struct leg *l, const json_t *judged)
{
	json_t *o = json_object(), *modes = json_object(), *trace = json_object();
	enum mode own = l->modes[MODE_FORCED].asked && l->modes[MODE_FORCED].compared ? MODE_FORCED : MODE_FREE;

	json_put(o, "name", string(l->want->name));
	json_put(o, "flips", flips_of(p, json_object_get(judged, "flips")));
	json_put(o, "modes", modes);
	if (!l->has_report)
		return o;
	for (int m = 0; m < N_MODES; m++) {
		if (!l->modes[m].asked)
			continue;
		json_put(modes, mode_name((enum mode)m), rows_of(p, l, (enum mode)m));
		json_put(trace, mode_name((enum mode)m), trace_of(&l->report.modes[m]));
	}
	json_put(o, "trace", trace);
	json_put(o, "own_mode", string(mode_name(own)));
	if (l->modes[own].asked)
		json_put(o, "own", own_margins(p, l, own));
	if (l->modes[MODE_FORCED].asked && l->modes[MODE_FORCED].compared)
		put_distances(p, l, o);
	json_put(o, "identity", identity_of(l));
	return o;
}

/* ---- all of it */

/* The verdict without the rows, which are above, and the flips, which are columns. */
static json_t *verdict_outline(const json_t *verdict)
{
	json_t *v = json_copy((json_t *)verdict), *legs = json_object(), *leg;
	const char *name;

	json_object_foreach(json_object_get((json_t *)verdict, "legs"), name, leg) {
		json_t *outline = json_copy(leg);

		json_object_del(outline, "prompts");
		json_object_del(outline, "flips");
		json_put(legs, name, outline);
	}
	json_put(v, "legs", legs);
	return v;
}

static json_t *recipe_of(const struct evidence *e)
{
	const struct recipe *r = &e->recipe;
	json_t *says = json_object();

	for (int i = 0; i < r->n_hypotheses; i++)
		json_put(says, r->hypotheses[i].name, string(r->hypotheses[i].says ? r->hypotheses[i].says : ""));
	return json_pack("{s:s, s:s?, s:s, s:s, s:s, s:i, s:f, s:s?, s:s, s:s, s:o}", "name", r->name, "question", r->question, "kind",
			 r->kind == RECIPE_DISCRIMINATE ? "discriminate" : "gate", "model", r->model, "golden", r->golden, "steps",
			 r->max_steps, "limit", r->limit, "limit_why", r->limit_why, "sha256", r->sha256, "golden_sha256",
			 e->golden.sha256, "says", says);
}

json_t *page_data(const struct findings *f)
{
	struct page p = { .f = f, .e = &f->evidence, .o = &f->evidence.oracle };
	json_t *doc = json_object(), *legs = json_array(), *names = json_array();

	for (int i = 0; i < N_COUNTERS; i++)
		json_array_append_new(names, string(counter_name((enum counter)i)));
	meet_words(&p);
	json_put(doc, "assay", json_pack("{s:s, s:s}", "version", assay_version, "git", assay_git));
	json_put(doc, "recipe", recipe_of(p.e));
	json_put(doc, "verdict", verdict_outline(f->verdict));
	json_put(doc, "prompts", prompts_of(&p));
	json_put(doc, "oracle", oracle_of(&p));
	json_put(doc, "counters", names);
	for (int i = 0; i < p.e->n_legs; i++)
		json_array_append_new(legs, leg_of(&p, &p.e->legs[i], findings_leg(f, i)));
	json_put(doc, "legs", legs);
	json_put(doc, "tokens", words_of(&p));
	free(p.expected);
	free(p.words.ids);
	free(p.words.place);
	return doc;
}
