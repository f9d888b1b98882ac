#include "speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/busy.h"
#include "contract/file.h"
#include "contract/json.h"
#include "evidence.h"
#include "stats.h"
#include "text.h"

/* ---- one run ---- */

static int by_prompt(const void *a, const void *b)
{
	const struct report_row *const *x = a, *const *y = b;

	return strcmp((*x)->id, (*y)->id);
}

void speed_digest(char hex[SHA256_HEX], const struct report *r, enum mode mode)
{
	const struct report_mode *m = &r->modes[mode];
	const struct report_row **rows = xcalloc((size_t)m->n_rows + 1, sizeof *rows);
	int n = m->present ? m->n_rows : 0;
	struct text ids = {0};

	for (int i = 0; i < n; i++)
		rows[i] = &m->rows[i];
	qsort(rows, (size_t)n, sizeof *rows, by_prompt);
	for (int i = 0; i < n; i++) {
		text_add(&ids, "%s", rows[i]->id);
		for (int j = 0; j < rows[i]->n; j++)
			text_add(&ids, " %d", rows[i]->ids[j]);
		text_add(&ids, "\n");
	}
	sha256_bytes(text_string(&ids), ids.n, hex);
	text_release(&ids);
	free(rows);
}

void speed_take(struct speed_side *to, const struct report *r, enum mode mode)
{
	bool timed = r->timing.present && r->timing.n > 0;

	*to = (struct speed_side){.p50 = timed ? r->timing.p50 : NAN, .p90 = timed ? r->timing.p90 : NAN, .n = timed ? r->timing.n : 0,
		.busy = r->busy ? json_incref(r->busy) : NULL};
	speed_digest(to->ids_sha256, r, mode);
}

void speed_release(struct speed *s, int n)
{
	for (int i = 0; i < n; i++) {
		for (int t = 0; t < s[i].n; t++) {
			json_decref(s[i].turns[t].side[0].busy);
			json_decref(s[i].turns[t].side[1].busy);
		}
		free(s[i].turns);
		free(s[i].failed);
		free(s[i].refused);
	}
	free(s);
}

/* ---- speed.json ---- */

static json_t *side_document(const struct speed_side *s)
{
	return json_pack("{s:o, s:o, s:I, s:o, s:s}", "p50", isfinite(s->p50) ? json_real(s->p50) : json_null(), "p90",
			 isfinite(s->p90) ? json_real(s->p90) : json_null(), "n", (json_int_t)s->n, "busy",
			 s->busy ? json_incref(s->busy) : json_null(), "ids_sha256", s->ids_sha256);
}

json_t *speed_document(const struct speed *s, int n, const struct recipe *r)
{
	json_t *pairs = json_array();

	for (int i = 0; i < n; i++) {
		json_t *turns = json_array();

		for (int t = 0; t < s[i].n; t++)
			json_array_append_new(turns, json_pack("{s:s, s:o, s:o}", "first", t % 2 ? "b" : "a", "a",
							       side_document(&s[i].turns[t].side[0]), "b",
							       side_document(&s[i].turns[t].side[1])));
		json_array_append_new(pairs, json_pack("{s:s, s:s, s:o, s:s?}", "a", r->legs[s[i].leg[0]].name, "b",
						       r->legs[s[i].leg[1]].name, "turns", turns, "failed", s[i].failed));
	}
	return json_pack("{s:s, s:o}", "schema", "assay/speed/1", "pairs", pairs);
}

/* A time; NaN: null. */
static double time_or_nan(struct jobj *o, const char *key)
{
	double x;

	if (json_is_null_member(o, key))
		return NAN;
	x = json_get_number(o, key, true, 0);
	if (!(isfinite(x) && x >= 0))
		err_set(o->err, ERR_INPUT, "%s: %s.%s: expected a time or null, found %g", o->file, o->path, key, x);
	return x;
}

static int read_side(struct speed_side *to, const json_t *v, const char *file, const char *path, struct err *err)
{
	struct jobj o;

	if (json_begin(&o, v, file, path, err))
		return -1;
	to->p50 = time_or_nan(&o, "p50");
	to->p90 = time_or_nan(&o, "p90");
	to->n = json_get_int(&o, "n", true, 0, 0);
	json_get_sha256(&o, "ids_sha256", true, false, to->ids_sha256);
	if (!json_is_null_member(&o, "busy")) {
		const json_t *busy = json_get(&o, "busy", true);
		char at[160];

		if (!busy || busy_check(busy, file, json_path(at, sizeof at, path, "busy"), err))
			return -1;
		to->busy = json_incref((json_t *)busy);
	}
	return json_end(&o);
}

/* b begins every second turn. */
static int read_turn(struct speed_turn *to, bool b_begins, const json_t *v, const char *file, const char *path, struct err *err)
{
	static const char *const a_first[] = {"a", NULL}, *const b_first[] = {"b", NULL};
	char a[120], b[120];
	struct jobj o;

	if (json_begin(&o, v, file, path, err))
		return -1;
	json_get_word(&o, "first", true, b_begins ? b_first : a_first, 0);
	if (read_side(&to->side[0], json_get(&o, "a", true), file, json_path(a, sizeof a, path, "a"), err)
	    || read_side(&to->side[1], json_get(&o, "b", true), file, json_path(b, sizeof b, path, "b"), err))
		return -1;
	return json_end(&o);
}

static bool is_paired(const struct recipe *r, const int leg[2])
{
	for (int i = 0; i < r->n_speed; i++)
		if (r->speed[i].a == leg[0] && r->speed[i].b == leg[1])
			return true;
	return false;
}

static int read_pair(struct speed *s, const struct recipe *r, const json_t *v, const char *file, const char *path, struct err *err)
{
	static const char *const sides[] = {"a", "b"};
	const json_t *turns, *turn;
	struct jobj o;
	size_t i;

	if (json_begin(&o, v, file, path, err))
		return -1;
	for (int k = 0; k < 2; k++) {
		const char *name = json_get_string(&o, sides[k], true);

		s->leg[k] = name ? recipe_leg_find(r, name) : -1;
		if (s->leg[k] < 0 && !err->kind)
			return err_set(err, ERR_INPUT, "%s: %s.%s: the recipe has no leg `%s`", file, path, sides[k], name);
	}
	if (!err->kind && !is_paired(r, s->leg))
		return err_set(err, ERR_INPUT, "%s: %s: the recipe's `speed` does not pair `%s` and `%s`", file, path, r->legs[s->leg[0]].name,
			       r->legs[s->leg[1]].name);
	turns = json_get_array(&o, "turns", true);
	s->failed = json_get_owned(&o, "failed", true, true);
	s->turns = xcalloc(json_array_size(turns) + 1, sizeof *s->turns);
	json_array_foreach(turns, i, turn) {
		char inside[100];

		snprintf(inside, sizeof inside, "%s.turns[%zu]", path, i);
		s->n++;
		if (read_turn(&s->turns[i], i % 2 != 0, turn, file, inside, err))
			return -1;
	}
	return json_end(&o);
}

/* Is the last of n pairs another than those before it? */
static int check_once(const struct speed *s, int n, const struct recipe *r, const char *file, struct err *err)
{
	const struct speed *last = &s[n - 1];

	for (int i = 0; i < n - 1; i++)
		if (s[i].leg[0] == last->leg[0] && s[i].leg[1] == last->leg[1])
			return err_set(err, ERR_INPUT, "%s: $.pairs[%d]: `%s` and `%s` are there twice", file, n - 1, r->legs[last->leg[0]].name,
				       r->legs[last->leg[1]].name);
	return 0;
}

void speed_add_absent(struct speed **s, int *n, const struct recipe *r)
{
	int there = *n;

	*s = xrealloc(*s, (size_t)(there + r->n_speed) + 1, sizeof **s);
	for (int i = 0; i < r->n_speed; i++) {
		int k = 0;

		while (k < there && ((*s)[k].leg[0] != r->speed[i].a || (*s)[k].leg[1] != r->speed[i].b))
			k++;
		if (k == there)
			(*s)[(*n)++] = (struct speed){.leg = {r->speed[i].a, r->speed[i].b}, .failed = xstrdup("speed.json does not hold this pair")};
	}
}

int speed_load(struct speed **s, int *n, const struct recipe *r, const char *path, struct err *err)
{
	static const char *const schema[] = {"assay/speed/1", NULL};
	json_t *json = json_read_file(path, false, err);
	const json_t *pairs, *pair;
	struct jobj o;
	size_t i;
	int failed = !json || json_begin(&o, json, path, "$", err);

	*s = NULL;
	*n = 0;
	if (!failed) {
		json_get_word(&o, "schema", true, schema, 0);
		pairs = json_get_array(&o, "pairs", true);
		*s = xcalloc(json_array_size(pairs) + 1, sizeof **s);
		json_array_foreach(pairs, i, pair) {
			char inside[40];

			snprintf(inside, sizeof inside, "$.pairs[%zu]", i);
			++*n;
			if ((failed = read_pair(&(*s)[i], r, pair, path, inside, err) || check_once(*s, *n, r, path, err)))
				break;
		}
		failed = failed || json_end(&o);
	}
	json_decref(json);
	return failed ? -1 : 0;
}

/* ---- judging ---- */

json_t *speed_busy(const struct speed *s, int side)
{
	const json_t **busy = xcalloc((size_t)s->n + 1, sizeof *busy);
	json_t *joined;

	for (int t = 0; t < s->n; t++)
		busy[t] = s->turns[t].side[side].busy;
	joined = busy_join(busy, s->n);
	free(busy);
	return joined;
}

/* Was this leg's device one whose clocks and load can be asked? */
static bool on_device(const struct report *r)
{
	return r->host.gpu && r->effective.value[FACTOR_BACKEND] != BACKEND_CPU && r->effective.value[FACTOR_BACKEND] != BACKEND_REF;
}

static char *refuse_leg(const struct leg *l)
{
	if (l->verdict == LEG_VOID || l->verdict == LEG_ERROR)
		return xasprintf("%s is %s", l->want->name, leg_verdict_name(l->verdict));
	if (!l->has_report)
		return xasprintf("%s did not run", l->want->name);
	return NULL;
}

/* What is wrong with the turns of one side. */
static char *refuse_side(const struct speed *s, int side, const struct leg *l, enum mode mode)
{
	char judged[SHA256_HEX], *why, *named = NULL;
	json_t *busy;

	speed_digest(judged, &l->report, mode);
	for (int t = 0; t < s->n; t++) {
		const struct speed_side *at = &s->turns[t].side[side];

		if (at->n < SPEED_TOKENS_LEAST)
			return xasprintf("%s: %lld tokens were timed, fewer than %d", l->want->name, (long long)at->n, SPEED_TOKENS_LEAST);
		if (!(at->p50 > 0))
			return xasprintf("%s: no time per token in turn %d", l->want->name, t + 1);
		if (strcmp(at->ids_sha256, judged))
			return xasprintf("%s gave other tokens in turn %d than those that were judged", l->want->name, t + 1);
	}
	if (!on_device(&l->report))
		return NULL;
	busy = speed_busy(s, side);
	why = busy_refuse(busy);
	if (why)
		named = xasprintf("%s: %s", l->want->name, why);
	free(why);
	json_decref(busy);
	return named;
}

static char *refuse(const struct speed *s, const struct evidence *e)
{
	const struct leg *a = &e->legs[s->leg[0]], *b = &e->legs[s->leg[1]];
	char *why = refuse_leg(a);

	why = why ? why : refuse_leg(b);
	if (why)
		return why;
	if (!text_same(a->report.host.name, b->report.host.name) || !text_same(a->report.host.cpu, b->report.host.cpu)
	    || (on_device(&a->report) && on_device(&b->report) && !text_same(a->report.host.gpu, b->report.host.gpu)))
		return xasprintf("%s and %s ran on different boxes", a->want->name, b->want->name);
	if (s->failed)
		return xstrdup(s->failed);
	if (s->n < SPEED_RUNS_LEAST)
		return xasprintf("%d turns, fewer than %d", s->n, SPEED_RUNS_LEAST);
	why = refuse_side(s, 0, a, headline_mode(&e->recipe));
	return why ? why : refuse_side(s, 1, b, headline_mode(&e->recipe));
}

/* Times are compared by their logarithms: a ratio and its inverse are one finding. */
void speed_judge(struct speed *s, const struct evidence *e)
{
	double *d, *at, mean, half;

	free(s->refused);
	s->refused = refuse(s, e);
	if (s->refused)
		return;
	d = xcalloc((size_t)s->n, sizeof *d);
	at = xcalloc((size_t)s->n, sizeof *at);
	for (int side = 0; side < 2; side++) {
		for (int t = 0; t < s->n; t++)
			at[t] = s->turns[t].side[side].p50;
		s->ms[side] = stats_median(at, (size_t)s->n);
	}
	for (int t = 0; t < s->n; t++)
		d[t] = log(s->turns[t].side[0].p50 / s->turns[t].side[1].p50);
	mean = stats_mean(d, (size_t)s->n);
	half = stats_student_quantile(0.975, s->n - 1) * stats_sd(d, (size_t)s->n) / sqrt(s->n);
	s->ratio = exp(mean);
	s->lower = exp(mean - half);
	s->upper = exp(mean + half);
	free(d);
	free(at);
}

json_t *speed_findings(const struct evidence *e)
{
	json_t *a = json_array();

	for (int i = 0; i < e->n_speed; i++) {
		const struct speed *s = &e->speed[i];
		json_t *o = json_pack("{s:s, s:s, s:i}", "a", e->legs[s->leg[0]].want->name, "b", e->legs[s->leg[1]].want->name, "turns", s->n);

		if (s->refused) {
			json_put(o, "refused", json_string_lossy(s->refused));
		} else {
			json_put(o, "ms", json_pack("[o, o]", json_number_rounded(s->ms[0], 4), json_number_rounded(s->ms[1], 4)));
			json_put(o, "ratio", json_number_rounded(s->ratio, 4));
			json_put(o, "lower", json_number_rounded(s->lower, 4));
			json_put(o, "upper", json_number_rounded(s->upper, 4));
		}
		json_array_append_new(a, o);
	}
	return a;
}

char *speed_sentence(const json_t *found)
{
	const char *a = json_string_value(json_object_get(found, "a")), *b = json_string_value(json_object_get(found, "b"));
	const char *refused = json_string_value(json_object_get(found, "refused"));
	const json_t *ms = json_object_get(found, "ms");

	if (!a || !b)
		return xstrdup("");
	if (refused)
		return xasprintf("%s and %s: no ratio of their speed: %s", a, b, refused);
	if (!ms)
		return xasprintf("%s against %s, %lld turns", a, b, (long long)json_integer_value(json_object_get(found, "turns")));
	return xasprintf("%s takes %.3g [%.3g, %.3g] times as long as %s: %.3g and %.3g ms/token, %lld turns", a,
			 json_number_value(json_object_get(found, "ratio")), json_number_value(json_object_get(found, "lower")),
			 json_number_value(json_object_get(found, "upper")), b, json_number_value(json_array_get(ms, 0)),
			 json_number_value(json_array_get(ms, 1)), (long long)json_integer_value(json_object_get(found, "turns")));
}
