#include "gates/bench_array.h"

#include <stdlib.h>
#include <string.h>

#include "contract/busy.h"
#include "contract/json.h"
#include "gates/show.h"

#define TOKENS_LEAST 5

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

/* ---- refusals */

static bool same(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

/* What is wrong with the window in which a leg was timed; NULL: nothing.  The caller frees. */
static char *refuse_window(const struct leg *l)
{
	const char *name = l->want->name;

	if (l->report.timing.n < TOKENS_LEAST)
		return xasprintf("%s: %lld tokens were timed, fewer than %d", name, (long long)l->report.timing.n, TOKENS_LEAST);
	if (!l->report.host.gpu || l->report.effective.value[FACTOR_BACKEND] == BACKEND_CPU || l->report.effective.value[FACTOR_BACKEND] == BACKEND_REF)
		return NULL;
	char *why = busy_refuse(l->report.busy), *named = why ? xasprintf("%s: %s", name, why) : NULL;

	free(why);
	return named;
}

char *bench_refuse(const struct findings *f, int leg, int peer)
{
	const struct leg *both[2] = { &f->evidence.legs[leg], &f->evidence.legs[peer] };

	for (int i = 0; i < 2; i++) {
		int at = i ? peer : leg;

		if (unproven(f, at))
			return xasprintf("%s is %s", both[i]->want->name, unproven(f, at));
		if (!timed(f, at))
			return xasprintf("%s was not timed", both[i]->want->name);
	}
	if (!same(both[0]->report.host.name, both[1]->report.host.name) || !same(both[0]->report.host.cpu, both[1]->report.host.cpu) ||
	    !same(both[0]->report.host.gpu, both[1]->report.host.gpu))
		return xasprintf("%s and %s ran on different boxes", both[0]->want->name, both[1]->want->name);
	for (int i = 0; i < 2; i++) {
		char *why = refuse_window(both[i]);

		if (why)
			return why;
	}
	return NULL;
}

/* A leg of another engine in the same run; -1: none. */
static int peer_of(const struct findings *f, int leg)
{
	const struct leg *mine = &f->evidence.legs[leg];

	for (int i = 0; i < f->evidence.n_legs; i++)
		if (i != leg && timed(f, i) && !same(f->evidence.legs[i].report.engine.name, mine->report.engine.name))
			return i;
	return -1;
}

/* ---- lines of assay/bench/1 */

static json_t *string(const char *s)
{
	return s ? json_string_lossy(s) : json_null();
}

static json_t *against_of(const struct findings *f, int leg, int peer)
{
	const struct report *mine = &f->evidence.legs[leg].report, *other = &f->evidence.legs[peer].report;
	char *why = bench_refuse(f, leg, peer);
	json_t *o = json_object();

	json_put(o, "peer", string(other->engine.name));
	if (why) {
		json_put(o, "refused", string(why));
	} else {
		json_put(o, "version", string(other->engine.version ? other->engine.version : ""));
		json_put(o, "same_box", json_true());
		json_put(o, "value", json_number_rounded(other->timing.p50, 4));
		json_put(o, "ratio", json_number_rounded(mine->timing.p50 / other->timing.p50, 4));
	}
	free(why);
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

static json_t *record_of(const struct findings *f, int leg, const char *when)
{
	const struct leg *l = &f->evidence.legs[leg];
	const struct report *r = &l->report;
	const json_t *busy = r->busy, *clock = show_get(busy, "sm_clock");
	json_t *o = json_object(), *metric = json_object();
	int peer = peer_of(f, leg);

	json_put(metric, "name", json_string("decode, time per token"));
	json_put(metric, "unit", json_string("ms"));
	json_put(metric, "value", json_number_rounded(r->timing.p50, 4));
	json_put(metric, "p50", json_number_rounded(r->timing.p50, 4));
	json_put(metric, "p90", json_number_rounded(r->timing.p90, 4));
	json_put(metric, "n", json_integer(r->timing.n));
	json_put(metric, "better", json_string("smaller"));
	json_put(o, "schema", json_string("assay/bench/1"));
	json_put(o, "when", string(when));
	json_put(o, "recipe", string(f->evidence.recipe.name));
	json_put(o, "leg", string(l->want->name));
	json_put(o, "verdict", json_incref(json_object_get(findings_leg(f, leg), "verdict")));
	json_put(o, "model", string(r->model.name ? r->model.name : f->evidence.golden.model));
	json_put(o, "shape", shape_of(f, l));
	json_put(o, "box", json_pack("{s:s?, s:s?, s:s?, s:s}", "gpu", r->host.gpu, "arch", r->host.arch, "driver", r->host.driver, "cpu",
				     r->host.cpu ? r->host.cpu : ""));
	json_put(o, "git", string(r->engine.git ? r->engine.git : ""));
	json_put(o, "metric", metric);
	json_put(o, "busy", json_is_number(show_get(busy, "busy_share")) ? json_incref(json_object_get(busy, "busy_share")) : json_null());
	json_put(o, "clocks", clock ? json_copy((json_t *)clock) : json_null());
	if (peer >= 0)
		json_put(o, "against", against_of(f, leg, peer));
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
