/* The verdict as a document.  contract/schemas/verdict.schema.json. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "contract/json.h"
#include "evidence.h"

static void put(json_t *o, const char *key, json_t *value)
{
	json_object_set_new(o, key, value);
}

static json_t *number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static json_t *count(size_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *string(const char *s)
{
	return s ? json_string(s) : json_null();
}

/* -1: null */
static json_t *index_or_null(int64_t i)
{
	return i < 0 ? json_null() : json_integer(i);
}

static json_t *owned_text(char *s)
{
	json_t *j = string(s);

	free(s);
	return j;
}

static json_t *ids_of(const int32_t *ids, int n)
{
	json_t *a = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(a, json_integer(ids[i]));
	return a;
}

/* ---- a leg */

static json_t *tokens_of(const struct evidence *e, const struct leg *l)
{
	enum mode m = headline_mode(&e->recipe);
	const struct mode_compare *c = &l->modes[m];
	json_t *o = json_object();

	put(o, "mode", json_string(mode_name(m)));
	put(o, "matched", count(c->matched));
	put(o, "compared", count(c->compared));
	put(o, "planned", count(c->planned));
	put(o, "full_rows", json_integer(c->full_rows));
	put(o, "short_rows", json_integer(c->short_rows));
	return o;
}

static json_t *prompts_of(const struct evidence *e, const struct leg *l)
{
	const struct mode_compare *c = &l->modes[headline_mode(&e->recipe)];
	json_t *a = json_array();

	for (int p = 0; l->has_report && p < e->oracle.n_prompts; p++) {
		const struct oracle_prompt *want = &e->oracle.prompts[p];
		const struct report_row *row = c->rows[p].row;
		int n = row ? row->n : 0;
		json_t *o = json_object();

		put(o, "id", json_string(evidence_prompt(e, p)));
		put(o, "prompt_tokens", json_integer(e->golden.prompts[want->prompt].n));
		put(o, "compared", json_integer(c->rows[p].compared));
		put(o, "matched", json_integer(c->rows[p].matched));
		put(o, "first_fork", index_or_null(c->rows[p].first_fork));
		put(o, "got", ids_of(row ? row->ids : NULL, n));
		put(o, "exp", ids_of(want->base->ids, want->planned));
		put(o, "got_text", row ? owned_text(evidence_text(e, row->ids, n)) : json_null());
		put(o, "exp_text", owned_text(evidence_text(e, want->base->ids, want->planned)));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *side_of(const struct evidence *e, int32_t id, int rank, double logprob, double subject)
{
	json_t *o = json_object();

	put(o, "id", json_integer(id));
	put(o, "text", owned_text(evidence_text(e, &id, 1)));
	put(o, "rank", index_or_null(rank > 0 ? rank : -1));
	put(o, "logprob", number(logprob));
	put(o, "subject_logprob", number(subject));
	return o;
}

static json_t *bound_of(double margin, bool bound)
{
	return isnan(margin) ? json_null() : json_boolean(bound);
}

static json_t *flips_of(const struct evidence *e, const struct leg *l)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n_flips; i++) {
		const struct flip *f = &l->flips[i];
		json_t *o = json_object();

		put(o, "mode", json_string(mode_name(f->mode)));
		put(o, "prompt", json_string(evidence_prompt(e, f->prompt)));
		put(o, "step", json_integer(f->step));
		put(o, "got", side_of(e, f->got, f->got_rank, f->got_logprob, f->got_subject));
		put(o, "exp", side_of(e, f->exp, f->exp_rank, f->exp_logprob, f->exp_subject));
		put(o, "oracle_margin", number(f->margin));
		put(o, "oracle_margin_bound", bound_of(f->margin, f->margin_bound));
		put(o, "subject_margin", number(f->subject_margin));
		put(o, "subject_margin_bound", bound_of(f->subject_margin, f->subject_bound));
		put(o, "ulps", number(f->ulps));
		put(o, "logits_dtype", string(e->oracle.base->logits_dtype));
		put(o, "tau", number(f->tau));
		put(o, "subject_tau", number(f->subject_tau));
		put(o, "p", number(f->p));
		put(o, "oracle_forks_at", index_or_null(f->forks_at));
		put(o, "oracle_unstable", json_boolean(f->unstable));
		put(o, "adjudication", json_string(adjudication_name(f->adjudication)));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *contract_of(const struct leg *l)
{
	json_t *a = json_array();

	for (int i = 0; i < l->n_contract; i++) {
		const struct contract_line *c = &l->contract[i];
		json_t *o = json_object();
		char range[64];

		put(o, "mode", json_string(mode_name(c->mode)));
		put(o, "scope", json_string(scope_name(c->want->scope)));
		put(o, "counter", json_string(counter_name(c->want->counter)));
		put(o, "want", c->want->is_int ? json_integer(c->want->n) : json_string(c->want->text));
		snprintf(range, sizeof range, "%" PRId64 "..%" PRId64, c->min, c->max);
		put(o, "got", c->absent ? json_null() : c->min == c->max ? json_integer(c->min) : json_string(range));
		put(o, "ok", json_boolean(c->ok));
		put(o, "rows", json_integer(c->rows));
		put(o, "bad_rows", json_integer(c->bad_rows));
		put(o, "row", index_or_null(c->bad_row));
		json_array_append_new(a, o);
	}
	return a;
}

/* ---- noise */

static json_t *flip_test_of(const struct flip_test *t, bool forced)
{
	json_t *o = json_object();

	if (!t->present) {
		json_decref(o);
		return json_null();
	}
	put(o, forced ? "positions" : "prompts", count(t->positions));
	if (!forced)
		put(o, "forked", count(t->count));
	put(o, forced ? "sum_q" : "sum_h", number(t->sum_q));
	if (forced)
		put(o, "S", count(t->count));
	put(o, "p", number(t->p));
	put(o, "test", json_string(t->exact ? forced ? "Poisson-binomial over positions, P(X >= S)" :
				   "Poisson-binomial over prompts, P(X >= forked)" :
				   "Poisson-binomial, saddlepoint approximation"));
	return o;
}

static json_t *distance_of(const struct evidence *e, const struct distance *d)
{
	if (!d->present)
		return json_null();
	json_t *o = json_object(), *largest = json_null();

	put(o, "R", number(d->R));
	put(o, "lower", number(d->lower));
	put(o, "upper", number(d->upper));
	put(o, "c", json_real(d->c));
	put(o, "class", json_string(distance_class_name(d->class)));
	put(o, "noisier", json_boolean(d->noisier));
	put(o, "prompts", json_integer(d->prompts));
	put(o, "positions", count(d->positions));
	put(o, "sd", number(d->sd));
	put(o, "bit_equal_subject", count(d->bit_equal_subject));
	put(o, "bit_equal_oracle", count(d->bit_equal_oracle));
	if (d->has_largest) {
		largest = json_object();
		put(largest, "prompt", json_string(evidence_prompt(e, d->largest_prompt)));
		put(largest, "step", json_integer(d->largest_step));
		put(largest, "B", json_real(d->largest));
	}
	put(o, "largest", largest);
	put(o, "above_max_A", number(d->above_max));
	put(o, "more_positions", index_or_null(d->more_positions));
	return o;
}

static json_t *kl_of(const struct divergence *d)
{
	if (!d->n)
		return json_null();
	json_t *o = json_object();

	put(o, "n", count(d->n));
	put(o, "mean", json_number(d->mean));
	put(o, "p99", json_number(d->p99));
	put(o, "max", json_number(d->max));
	return o;
}

static json_t *direction_of(const struct direction *d)
{
	if (!d->measured)
		return json_null();
	json_t *o = json_object();

	put(o, "mean", json_real(d->mean));
	put(o, "n", count(d->n));
	put(o, "positive", count(d->positive));
	put(o, "p", json_real(d->p));
	put(o, "p_holm", json_real(d->p_holm));
	put(o, "test", json_string("two-sided sign test over positions, Holm over the run"));
	return o;
}

static json_t *drift_of(const struct drift *d)
{
	if (!d->measured)
		return json_null();
	json_t *o = json_object();

	put(o, "median_slope", json_real(d->median_slope));
	put(o, "prompts", json_integer(d->prompts));
	put(o, "rising", json_integer(d->rising));
	put(o, "p", json_real(d->p));
	put(o, "p_holm", json_real(d->p_holm));
	put(o, "test", json_string("Theil-Sen slopes, one-sided sign test over prompts, Holm over the run"));
	return o;
}

static json_t *arbiter_of(const struct evidence *e, const struct noise *n)
{
	if (n->arbiter.leg < 0)
		return json_null();
	json_t *o = json_object();
	double gap = n->arbiter.subject - n->arbiter.oracle;

	put(o, "leg", json_string(e->legs[n->arbiter.leg].want->name));
	put(o, "n", count(n->arbiter.n));
	put(o, "subject", json_real(n->arbiter.subject));
	put(o, "oracle", json_real(n->arbiter.oracle));
	put(o, "nearer", json_string(fabs(gap) < SAME ? "equal" : gap < 0 ? "subject" : "oracle"));
	return o;
}

static json_t *power_of(const struct power *p)
{
	if (!p->present)
		return json_null();
	json_t *o = json_object(), *for_ = json_null();

	put(o, "excess_R", number(p->excess_R));
	put(o, "noisier_R", number(p->noisier_R));
	if (!isnan(p->noisier_R)) {
		for_ = json_object();
		put(for_, "1.25", index_or_null(p->positions_for[0]));
		put(for_, "1.5", index_or_null(p->positions_for[1]));
		put(for_, "2", index_or_null(p->positions_for[2]));
	}
	put(o, "positions_for", for_);
	put(o, "flips_at_2x", number(p->flips_at_2x));
	return o;
}

static json_t *noise_of(const struct evidence *e, const struct noise *n)
{
	if (!n->present)
		return json_null();
	json_t *o = json_object();

	put(o, "s", number(e->oracle.s));
	put(o, "d_n", count(e->oracle.n_d));
	put(o, "profiles", json_integer(e->golden.n_profiles));
	put(o, "flips", flip_test_of(&n->flips, true));
	put(o, "forks", flip_test_of(&n->forks, false));
	put(o, "flip_rate_upper", number(n->flip_rate_upper));
	put(o, "distance", distance_of(e, &n->distance));
	put(o, "kl", kl_of(&n->kl));
	put(o, "same_top1", number(n->same_top1));
	put(o, "direction", direction_of(&n->direction));
	put(o, "drift", drift_of(&n->drift));
	put(o, "arbiter", arbiter_of(e, n));
	put(o, "power", power_of(&n->power));
	return o;
}

static json_t *timing_of(const struct leg *l)
{
	if (!l->has_report || !l->report.timing.present)
		return json_null();
	json_t *o = json_object(), *per = json_object();

	put(o, "load_s", json_number(l->report.timing.load_s));
	put(o, "prefill_s", json_number(l->report.timing.prefill_s));
	put(o, "decode_s", json_number(l->report.timing.decode_s));
	if (l->report.timing.verify_s >= 0)
		put(o, "verify_s", json_number(l->report.timing.verify_s));
	put(per, "p50", json_number(l->report.timing.p50));
	put(per, "p90", json_number(l->report.timing.p90));
	put(per, "p99", json_number(l->report.timing.p99));
	put(per, "n", json_integer(l->report.timing.n));
	put(o, "per_token_ms", per);
	return o;
}

/* Of the device's own record; a leg that was not audited has none. */
static json_t *audit_of(const struct report *r)
{
	json_t *o = json_object(), *mismatches = json_array();

	put(o, "source", r->audit.source ? json_string_lossy(r->audit.source) : json_null());
	put(o, "agrees", json_boolean(r->audit.agrees));
	for (int i = 0; i < r->audit.n_mismatches; i++)
		json_array_append_new(mismatches, json_string_lossy(r->audit.mismatches[i]));
	put(o, "mismatches", mismatches);
	put(o, "kernels", r->audit.kernels ? json_deep_copy(r->audit.kernels) : json_array());
	return o;
}

static json_t *leg_of(const struct evidence *e, const struct leg *l)
{
	json_t *o = json_object();

	put(o, "verdict", json_string(leg_verdict_name(l->verdict)));
	put(o, "reason", json_string(text_string(&l->reason)));
	put(o, "adjudication", l->adjudication == ADJ_NONE ? json_null() : json_string(adjudication_name(l->adjudication)));
	put(o, "tokens", l->has_report ? tokens_of(e, l) : json_null());
	put(o, "prompts", prompts_of(e, l));
	put(o, "flips", flips_of(e, l));
	put(o, "contract", contract_of(l));
	put(o, "noise", noise_of(e, &l->noise));
	put(o, "timing", timing_of(l));
	put(o, "busy", l->has_report && l->report.busy ? json_deep_copy(l->report.busy) : json_null());
	if (l->has_report && l->report.audit.present)
		put(o, "audit", audit_of(&l->report));
	return o;
}

/* ---- the run */

static json_t *run_of(const struct evidence *e)
{
	json_t *o = json_object(), *argv = json_null();

	if (e->run.has_argv) {
		argv = json_array();
		for (int i = 0; i < e->run.argc; i++)
			json_array_append_new(argv, string(e->run.argv[i]));
	}
	put(o, "id", json_string(e->run.id ? e->run.id : path_base(e->dir)));
	put(o, "started", string(e->run.started));
	put(o, "ended", string(e->run.ended));
	put(o, "argv", argv);
	if (e->overridden) {
		char *path = path_join(e->dir, "overrides.json");
		struct err err = { 0 };
		json_t *over = json_read_file(path, false, &err);

		if (over)
			put(o, "overrides", over);
		free(path);
	}
	return o;
}

static json_t *golden_of(const struct evidence *e)
{
	json_t *o = json_object(), *a = json_array();

	for (int i = 0; i < e->oracle.n_contradictions; i++) {
		const struct contradiction *c = &e->oracle.contradictions[i];
		json_t *item = json_object(), *sides = json_array();

		for (int side = 0; side < 2; side++) {
			json_t *names = json_array();

			for (int k = 0; k < e->golden.n_profiles; k++)
				if (c->side[k] == side)
					json_array_append_new(names, json_string(e->golden.profiles[k].name));
			json_array_append_new(sides, names);
		}
		put(item, "prompt", json_string(e->golden.prompts[c->prompt].id));
		put(item, "step", json_integer(c->step));
		put(item, "d", json_real(c->d));
		put(item, "sides", sides);
		json_array_append_new(a, item);
	}
	put(o, "contradictory", a);
	return o;
}

static json_t *pairs_of(const struct evidence *e)
{
	json_t *a = json_array();

	for (int i = 0; i < e->n_pairs; i++) {
		const struct pair *p = &e->pairs[i];
		json_t *o = json_object(), *differ = json_array(), *fork = json_null();

		for (int c = 0; c < N_COLUMNS; c++)
			if (p->differ[c])
				json_array_append_new(differ, json_string(column_name(c)));
		if (p->fork_step >= 0) {
			fork = json_object();
			put(fork, "prompt", json_string(evidence_prompt(e, p->fork_prompt)));
			put(fork, "step", json_integer(p->fork_step));
		}
		put(o, "a", json_string(e->legs[p->a].want->name));
		put(o, "b", json_string(e->legs[p->b].want->name));
		put(o, "differ_in", differ);
		put(o, "ids_equal", p->ids_equal < 0 ? json_null() : json_boolean(p->ids_equal));
		put(o, "logits_bit_equal", p->bit_equal < 0 ? json_null() : json_boolean(p->bit_equal));
		put(o, "first_fork", fork);
		put(o, "distance", number(p->distance));
		put(o, "R", number(p->spread.R));
		put(o, "lower", number(p->spread.lower));
		put(o, "upper", number(p->spread.upper));
		put(o, "class", json_string(distance_class_name(p->spread.class)));
		json_array_append_new(a, o);
	}
	return a;
}

json_t *design_document(const struct design *d)
{
	json_t *o = json_object(), *factors = json_object(), *varied = json_array(), *constant = json_object();
	json_t *separable = json_array(), *aliased = json_array();

	for (int c = 0; c < N_COLUMNS; c++) {
		if (!d->varied[c] && d->n_rows)
			put(constant, column_name(c), row_value(&d->rows[0], c));
		if (d->varied[c])
			json_array_append_new(varied, json_string(column_name(c)));
		if (d->separable[c][0] >= 0)
			json_array_append_new(separable, json_pack("{s:s, s:[s, s]}", "factor", column_name(c), "legs",
				d->rows[d->separable[c][0]].name, d->rows[d->separable[c][1]].name));
		json_t *same = json_array();

		for (int b = c; b < N_COLUMNS; b++)
			if (d->varied[b] && d->alias[b] == c)
				json_array_append_new(same, json_string(column_name(b)));
		if (json_array_size(same) > 1)
			json_array_append(aliased, same);
		json_decref(same);
	}
	for (int i = 0; i < d->n_rows; i++) {
		json_t *row = json_object();

		for (int c = 0; c < N_COLUMNS; c++)
			if (d->varied[c])
				put(row, column_name(c), row_value(&d->rows[i], c));
		put(factors, d->rows[i].name, row);
	}
	put(o, "factors", factors);
	put(o, "varied", varied);
	put(o, "constant", constant);
	put(o, "separable", separable);
	put(o, "aliased", aliased);
	return o;
}

static json_t *hypotheses_of(const struct evidence *e)
{
	static const char *const names[] = { "survives", "eliminated", "untested" };
	json_t *o = json_object();

	for (int i = 0; i < e->recipe.n_hypotheses; i++) {
		json_t *h = json_object(), *by = json_array();

		for (int k = 0; k < e->hypotheses[i].n_by; k++)
			json_array_append_new(by, json_string(e->legs[e->hypotheses[i].by[k]].want->name));
		put(h, "status", json_string(names[e->hypotheses[i].status]));
		put(h, "by", by);
		put(o, e->recipe.hypotheses[i].name, h);
	}
	return o;
}

static json_t *claims_of(const struct evidence *e)
{
	static const char *const names[] = { "supported", "consistent", "exonerated", "refused", "withdrawn" };
	json_t *a = json_array();

	for (int i = 0; i < e->n_claims; i++) {
		const struct claim *c = &e->claims[i];
		json_t *o = json_object(), *legs = json_array();

		for (int k = 0; k < c->n_legs; k++)
			json_array_append_new(legs, json_string(e->legs[c->legs[k]].want->name));
		put(o, "name", string(c->name));
		put(o, "says", string(c->says));
		put(o, "about", json_string(c->about));
		put(o, "legs", legs);
		put(o, "status", json_string(names[c->status]));
		put(o, "needs", c->needs[0] ? json_pack("[s, s]", c->needs[0], c->needs[1]) : json_null());
		json_array_append_new(a, o);
	}
	return a;
}

json_t *next_legs_document(const struct design *d, const struct recipe *r)
{
	json_t *a = json_array();

	for (int i = 0; i < d->n_next; i++) {
		const struct candidate *c = &d->candidates[i];
		struct design_row row = d->rows[c->row];
		json_t *o = json_object(), *factors = json_object(), *separates = json_object(), *h = json_array(), *f = json_array();

		row.arm = c->arm;
		for (int k = 0; k < N_COLUMNS; k++)
			if (d->varied[k] || k == c->factor)
				put(factors, column_name(k), row_value(&row, k));
		for (int k = 0; k < c->n_pairs; k++)
			json_array_append_new(h, json_pack("[s, s]", r->hypotheses[c->pairs[k][0]].name, r->hypotheses[c->pairs[k][1]].name));
		for (int k = 0; k < c->n_gained; k++)
			json_array_append_new(f, json_string(column_name(c->gained[k])));
		put(separates, "hypotheses", h);
		put(separates, "factors", f);
		put(o, "leg", owned_text(candidate_name(d, c)));
		put(o, "factors", factors);
		put(o, "separates", separates);
		put(o, "minutes", number(c->minutes));
		json_array_append_new(a, o);
	}
	return a;
}

json_t *verdict_document(const struct evidence *e)
{
	json_t *o = json_object(), *legs = json_object();

	for (int i = 0; i < e->n_legs; i++)
		put(legs, e->legs[i].want->name, leg_of(e, &e->legs[i]));
	put(o, "schema", json_string("assay/verdict/1"));
	put(o, "recipe", json_pack("{s:s, s:s}", "name", e->recipe.name, "sha256", e->recipe.sha256));
	put(o, "run", run_of(e));
	put(o, "overall", json_pack("{s:s, s:i, s:s}", "verdict", e->overall.verdict, "exit_code", e->overall.exit_code,
				    "reason", text_string(&e->overall.reason)));
	put(o, "golden", golden_of(e));
	put(o, "legs", legs);
	put(o, "pairs", pairs_of(e));
	if (e->n_speed)
		put(o, "speed", speed_findings(e));
	put(o, "design", design_document(&e->design));
	put(o, "hypotheses", hypotheses_of(e));
	put(o, "claims", claims_of(e));
	put(o, "next_legs", next_legs_document(&e->design, &e->recipe));
	return o;
}
