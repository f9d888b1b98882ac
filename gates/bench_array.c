#include "bench_array.h"

#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "show.h"
#include "speed.h"
#include "stats.h"
#include "text.h"

/* VOID and ERROR: what it ran, and so what was timed, is not known. */
static const char *unproven(const struct findings *f, int leg)
{
	const char *verdict = show_string(json_object_get(findings_leg(f, leg), "verdict"));

	return strcmp(verdict, "VOID") == 0 || strcmp(verdict, "ERROR") == 0 ? verdict : NULL;
}

static bool timed(const struct findings *f, int leg)
{
	const struct leg *l = &f->evidence.legs[leg];

	return l->has_report && l->report.timing.present && l->report.timing.n > 0;
}

/* ---- pairs that were timed in turns */

/* What the verdict says of the speed of these two; NULL: the recipe does not pair them. */
static const json_t *turns_of(const struct findings *f, int leg, int peer)
{
	const json_t *found;
	size_t i;

	json_array_foreach(json_object_get(f->verdict, "speed"), i, found)
		if (text_same(show_string(json_object_get(found, "a")), f->evidence.legs[leg].want->name) &&
		    text_same(show_string(json_object_get(found, "b")), f->evidence.legs[peer].want->name))
			return found;
	return NULL;
}

/* What was measured in the turns of this leg, of whichever pair it began; NULL: it ran for its tokens alone. */
static const struct speed *timed_of(const struct findings *f, int leg)
{
	for (int i = 0; i < f->evidence.n_speed; i++) {
		const struct speed *s = &f->evidence.speed[i];
		int timed = 0;

		while (timed < s->n && s->turns[timed].side[0].n > 0)
			timed++;
		if (s->leg[0] == leg && s->n > 0 && timed == s->n)
			return s;
	}
	return NULL;
}

/* The second leg of the pair that this leg begins, else one of another engine; -1: none. */
static int peer_of(const struct findings *f, int leg)
{
	const struct evidence *e = &f->evidence;

	for (int i = 0; i < e->n_speed; i++)
		if (e->speed[i].leg[0] == leg)
			return e->speed[i].leg[1];
	for (int i = 0; i < e->n_legs; i++)
		if (i != leg && timed(f, i) && !text_same(e->legs[i].report.engine.name, e->legs[leg].report.engine.name))
			return i;
	return -1;
}

/* ---- lines of assay/bench/1 */

static json_t *string(const char *s)
{
	return s ? json_string_lossy(s) : json_null();
}

/* The peer of another engine goes by the engine's name, one of the same engine by its leg's. */
static json_t *against_of(const struct findings *f, int leg, int peer)
{
	const struct leg *mine = &f->evidence.legs[leg], *other = &f->evidence.legs[peer];
	const json_t *found = turns_of(f, leg, peer);
	bool same_engine = text_same(mine->report.engine.name, other->report.engine.name);
	json_t *o = json_object();

	json_put(o, "peer", string(same_engine ? other->want->name : other->report.engine.name));
	if (!found) {
		char *why = xasprintf("%s and %s did not run in turns: the recipe's `speed` does not pair them", mine->want->name, other->want->name);

		json_put(o, "refused", string(why));
		free(why);
	} else if (show_get(found, "refused")) {
		json_put(o, "refused", json_incref(json_object_get(found, "refused")));
	} else {
		json_put(o, "version", string(other->report.engine.version ? other->report.engine.version : ""));
		json_put(o, "same_box", json_true());
		json_put(o, "value", json_incref(json_array_get(json_object_get(found, "ms"), 1)));
		json_put(o, "ratio", json_incref(json_object_get(found, "ratio")));
		json_put(o, "lower", json_incref(json_object_get(found, "lower")));
		json_put(o, "upper", json_incref(json_object_get(found, "upper")));
		json_put(o, "turns", json_incref(json_object_get(found, "turns")));
	}
	return o;
}

static json_t *shape_of(const struct findings *f, const struct leg *l)
{
	const struct evidence *e = &f->evidence;
	int longest = 0, batch = l->report.effective.value[FACTOR_BATCH];

	for (int p = 0; p < e->oracle.n_prompts; p++) {
		int n = e->golden.prompts[e->oracle.prompts[p].prompt].n;

		longest = n > longest ? n : longest;
	}
	return json_pack("{s:i, s:i, s:i}", "prompt", longest, "decode", e->recipe.max_steps, "batch", batch > 0 ? batch : e->oracle.n_prompts);
}

static double median_of(const struct speed *s, bool p90)
{
	double *x = xcalloc((size_t)s->n, sizeof *x), middle;

	for (int t = 0; t < s->n; t++)
		x[t] = p90 ? s->turns[t].side[0].p90 : s->turns[t].side[0].p50;
	middle = stats_median(x, (size_t)s->n);
	free(x);
	return middle;
}

/* Of a leg that was timed in turns: the medians over its turns. */
static json_t *metric_of(const struct report *r, const struct speed *turns)
{
	json_t *o = json_object(), *middle = json_number_rounded(turns ? median_of(turns, false) : r->timing.p50, 4);
	int64_t n = 0;

	for (int t = 0; turns && t < turns->n; t++)
		n += turns->turns[t].side[0].n;
	json_put(o, "name", json_string("decode, time per token"));
	json_put(o, "unit", json_string("ms"));
	json_put(o, "value", json_incref(middle));
	json_put(o, "p50", middle);
	json_put(o, "p90", json_number_rounded(turns ? median_of(turns, true) : r->timing.p90, 4));
	json_put(o, "n", json_integer(turns ? n : r->timing.n));
	json_put(o, "better", json_string("smaller"));
	return o;
}

static json_t *record_of(const struct findings *f, int leg, const char *when)
{
	const struct leg *l = &f->evidence.legs[leg];
	const struct report *r = &l->report;
	const struct speed *turns = timed_of(f, leg);
	json_t *busy = turns ? speed_busy(turns, 0) : json_incref(r->busy), *o = json_object();
	const json_t *clock = show_get(busy, "sm_clock"), *others = show_get(busy, "other_processes");
	int peer = peer_of(f, leg);

	json_put(o, "schema", json_string("assay/bench/1"));
	json_put(o, "when", string(when));
	json_put(o, "recipe", string(f->evidence.recipe.name));
	json_put(o, "leg", string(l->want->name));
	json_put(o, "verdict", json_incref(json_object_get(findings_leg(f, leg), "verdict")));
	json_put(o, "model", string(r->model.name ? r->model.name : f->evidence.golden.model));
	json_put(o, "shape", shape_of(f, l));
	json_put(o, "box", json_pack("{s:o, s:o, s:o, s:o}", "gpu", string(r->host.gpu), "arch", string(r->host.arch), "driver",
				     string(r->host.driver), "cpu", string(r->host.cpu ? r->host.cpu : "")));
	json_put(o, "git", string(r->engine.git ? r->engine.git : ""));
	json_put(o, "metric", metric_of(r, turns));
	json_put(o, "busy", json_is_number(show_get(busy, "busy_share")) ? json_incref(json_object_get(busy, "busy_share")) : json_null());
	json_put(o, "clocks", clock ? json_copy((json_t *)clock) : json_null());
	if (json_integer_value(others) > 0)
		json_put(o, "other_processes", json_incref((json_t *)others));
	if (peer >= 0)
		json_put(o, "against", against_of(f, leg, peer));
	json_decref(busy);
	return o;
}

json_t *bench_records(const struct findings *f, const char *when)
{
	json_t *a = json_array();

	for (int l = 0; l < f->evidence.n_legs; l++)
		if (timed(f, l))
			json_array_append_new(a, record_of(f, l, when));
	return a;
}

/* ---- the array of github-action-benchmark */

json_t *bench_array(const struct findings *f)
{
	json_t *a = json_array();

	for (int l = 0; l < f->evidence.n_legs; l++) {
		const struct leg *leg = &f->evidence.legs[l];
		const struct report *r = &leg->report;

		if (!timed(f, l) || unproven(f, l))
			continue;
		char *name = xasprintf("%s/%s: decode, time per token", f->evidence.recipe.name, leg->want->name);
		char *extra = xasprintf("p90 %.4g ms, n %lld, %s, %s, %s", r->timing.p90, (long long)r->timing.n,
					show_string(json_object_get(findings_leg(f, l), "verdict")), r->host.cpu ? r->host.cpu : "",
					r->host.gpu ? r->host.gpu : "no GPU");

		char *safe = text_plain(extra);

		json_array_append_new(a, json_pack("{s:s, s:s, s:o, s:s}", "name", name, "unit", "ms", "value",
						   json_number_rounded(r->timing.p50, 4), "extra", safe));
		free(name);
		free(extra);
		free(safe);
	}
	return a;
}
