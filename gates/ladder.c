/* The verdict ladder of a leg and of the run.  docs/judging.md, section 8; exit codes: docs/formats.md, section 1. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "evidence.h"
#include "golden_tool.h"
#include "until.h"

#define SMALL_P 0.01        /* of the direction and drift tests, after Holm */
#define LIKELY_P 0.05       /* below it a count of flips is not what benign noise leaves */

/* ---- the verdict */

static void set(struct leg *l, enum leg_verdict v)
{
	l->verdict = v;
}

static const char *last_line(const struct leg *l)
{
	return l->has_exit && l->exit.n_tail ? l->exit.tail[l->exit.n_tail - 1] : "";
}

/* Did the process end as it should?  Says why not. */
static bool process_ended_well(struct leg *l)
{
	const struct leg_exit *x = &l->exit;
	const char *tail = last_line(l);

	if (l->has_exit && x->timed_out)
		text_add(&l->reason, "timed out");
	else if (l->has_exit && x->signal[0])
		text_add(&l->reason, "killed by %s", x->signal);
	else if (l->has_exit && x->exit_code < 0)
		text_add(&l->reason, "did not end");
	else if (l->has_exit && x->exit_code != 0)
		text_add(&l->reason, x->exit_code == 77 ? "cannot run here" : "exit code %d", x->exit_code);
	else if (l->load_error)
		text_add(&l->reason, "%s", l->load_error);
	else if (!l->has_report)
		text_add(&l->reason, l->has_exit ? "left no report" : "was not run");
	else
		return true;
	if (tail[0])
		text_add(&l->reason, ": %s", tail);
	return false;
}

void ladder_verdict(struct evidence *e, struct leg *l)
{
	size_t planned = 0, compared = 0, matched = 0;

	for (int m = 0; m < N_MODES; m++) {
		planned += l->modes[m].planned;
		compared += l->modes[m].compared;
		matched += l->modes[m].matched;
	}
	if (!process_ended_well(l)) {
		bool cannot = l->has_exit && !l->exit.timed_out && !l->exit.signal[0] && l->exit.exit_code == 77;

		set(l, cannot ? LEG_NOT_MEASURED : LEG_ERROR);
	} else if (l->voids.n) {
		set(l, LEG_VOID);
		text_add(&l->reason, "%s", l->voids.s);
	} else if (compared == 0) {
		set(l, LEG_NOT_MEASURED);
		text_add(&l->reason, planned ? "no position came back" : "no position was planned");
	} else if (compared < planned) {
		set(l, LEG_SHORT);
		for (int m = 0; m < N_MODES; m++)
			if (l->modes[m].asked && l->modes[m].compared < l->modes[m].planned)
				text_also(&l->reason, "%s: %zu of %zu positions came back", mode_name(m), l->modes[m].compared,
					  l->modes[m].planned);
	} else {
		set(l, matched == compared && l->n_suspects == 0 ? LEG_STRICT_PASS : LEG_DIVERGENCE);
	}
	if (l->verdict == LEG_NOT_MEASURED || l->verdict == LEG_SHORT || l->n_suspects == 0)
		return;
	text_also(&l->reason, "%s %s[%d]: %s (%zu such positions)", mode_name(l->suspect.mode),
		  evidence_prompt(e, l->suspect.prompt), l->suspect.step,
		  l->suspect.not_finite ? "a number is not finite" : "the token is not the best of its own logits", l->n_suspects);
}

/* ---- the adjudication, and what it rests on */

static void say_tokens(const struct evidence *e, struct leg *l)
{
	for (int m = 0; m < N_MODES; m++) {
		const struct mode_compare *c = &l->modes[m];

		if (c->asked)
			text_also(&l->reason, "%zu/%zu tokens equal in mode %s", c->matched, c->compared, mode_name(m));
	}
	if (e->recipe.n_steps < 2)
		return;
	const struct mode_compare *c = &l->modes[headline_mode(&e->recipe)];

	for (int i = 0; i < e->recipe.n_steps; i++) {
		int equal = 0;

		for (int p = 0; p < e->oracle.n_prompts; p++)
			equal += c->rows[p].first_fork < 0 || c->rows[p].first_fork >= e->recipe.steps[i];
		text_also(&l->reason, "up to step %d: %d of %d prompts without a fork", e->recipe.steps[i], equal, e->oracle.n_prompts);
	}
}

static void say_distance(struct leg *l)
{
	const struct distance *d = &l->noise.distance;

	if (!d->present || isnan(d->R))
		return;
	text_also(&l->reason, "R %.3g", d->R);
	if (!isnan(d->lower))
		text_add(&l->reason, " [%.3g, %.3g]", d->lower, d->upper);
	text_add(&l->reason, " over %d prompts, %zu positions", d->prompts, d->positions);
}

static void say_flips(const struct evidence *e, struct leg *l, enum adjudication a)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n_flips; i++) {
		const struct flip *f = &l->flips[i];

		if (f->adjudication != a || n++ > 0)
			continue;
		text_also(&l->reason, "%s %s[%d] %s", mode_name(f->mode), evidence_prompt(e, f->prompt), f->step, adjudication_name(a));
		if (!isnan(f->tau) && !isnan(f->subject_tau))
			text_add(&l->reason, " at %s%.3g noise scales", f->margin_bound || f->subject_bound ? "least " : "",
				 fmax(f->tau, f->subject_tau));
		if (!isnan(f->p))
			text_add(&l->reason, ", p %.3g", f->p);
	}
	if (n > 1)
		text_add(&l->reason, " and %zu more", n - 1);
}

/* Names what was not measured, and what would measure it. */
static void say_missing(const struct evidence *e, struct leg *l)
{
	const struct oracle *o = &e->oracle;
	bool lists = false, logits = false;

	for (int p = 0; p < o->n_prompts; p++) {
		const struct golden_row *base = o->prompts[p].base;

		for (int t = 0; base->steps && t < o->prompts[p].planned && !lists; t++)
			lists = base->steps[t].n_top > 0;
		for (int m = 0; m < N_MODES; m++)
			logits = logits || (l->modes[m].asked && l->modes[m].rows[p].row && l->modes[m].rows[p].row->steps);
	}
	if (!lists)
		text_also(&l->reason, "margins NOT MEASURED: profile `%s` holds ids only; capture it again with the top %d "
			  "log-probabilities of every step", o->base->name, TOP_MAX);
	if (o->n_d == 0)
		text_also(&l->reason, "the oracle's spread NOT MEASURED: capture another benign profile (batch, eager, chunked) "
			  "with log-probabilities");
	else if (!o->law.measured)
		text_also(&l->reason, "flip chances NOT MEASURED: %zu values of d%s", o->n_d, o->n_d < FLIP_LAW_MIN ?
			  ", 20 are needed: more prompts or profiles" : ", and the profiles hardly move a margin");
	if (!logits)
		text_also(&l->reason, "the leg gives no logits");
	if (!e->recipe.modes[MODE_FORCED])
		text_also(&l->reason, "distance NOT MEASURED: ask mode forced");
}

static void say_open(const struct evidence *e, struct leg *l)
{
	const struct noise *n = &l->noise;

	if (n->distance.class == DISTANCE_INCONCLUSIVE) {
		text_also(&l->reason, "R INCONCLUSIVE against c %.3g", n->distance.c);
		if (n->distance.more_positions > 0)
			text_add(&l->reason, ": about %lld more positions would decide", (long long)n->distance.more_positions);
		else if (n->distance.prompts < 2)
			text_add(&l->reason, ": one prompt has no interval, ask more");
	}
	if (n->flips.present && n->flips.p < LIKELY_P)
		text_also(&l->reason, "%zu flips where %.3g are usual, p %.3g", n->flips.count, n->flips.sum_q, n->flips.p);
	if (!e->recipe.modes[MODE_FORCED] && n->forks.p < LIKELY_P)
		text_also(&l->reason, "%zu of %zu prompts fork, p %.3g", n->forks.count, n->forks.positions, n->forks.p);
	say_flips(e, l, ADJ_SUSPICIOUS);
	say_flips(e, l, ADJ_NOT_MEASURED);
}

static void say_stop(const struct evidence *e, struct leg *l)
{
	int *order = xcalloc((size_t)e->oracle.n_prompts + 1, sizeof *order);

	for (int i = 0; i < e->oracle.n_prompts; i++)      /* already in the order in which they ran */
		order[i] = i;
	text_also(&l->reason, "stopped early after %d of %d prompts (%s): the others were not compared", e->oracle.n_prompts,
		  e->prompts_asked, until_by_name(until_leg(e, l, order)));
	free(order);
}

/* A prompt in which the oracle contradicts itself; the f64 arbiter says with which side it computes. */
static void say_contradictions(const struct evidence *e, struct leg *l)
{
	const struct report_row **rows = xcalloc((size_t)e->oracle.n_prompts + 1, sizeof *rows);
	struct subject s = leg_subject(e, l, rows);

	for (int i = 0; i < e->oracle.n_contradictions; i++) {
		const struct contradiction *c = &e->oracle.contradictions[i];
		double d[2];

		text_also(&l->reason, "the oracle contradicts itself in prompt %s: leave it out or capture it again",
			  e->golden.prompts[c->prompt].id);
		if (!leg_is_arbiter(l) || distance_to_sides(d, &s, c) == 0)
			continue;
		int nearer = d[1] < d[0];

		text_add(&l->reason, "; there this f64 leg sides with");
		for (int k = 0, n = 0; k < e->golden.n_profiles; k++)
			if (c->side[k] == nearer)
				text_add(&l->reason, "%s%s", n++ ? ", " : " ", e->golden.profiles[k].name);
		text_add(&l->reason, " (median D %.3g against %.3g)", d[nearer], d[!nearer]);
	}
	free(rows);
}

/* Where the expectation was captured in another way than the leg ran, and no profile shows what that alone does. */
static void say_regime(const struct evidence *e, struct leg *l)
{
	const struct golden_profile *base = e->oracle.base;
	int batch = l->report.effective.value[FACTOR_BATCH];
	bool shown = false, scored = false;

	for (int k = 0; k < e->golden.n_profiles; k++) {
		shown = shown || profile_batch(&e->golden.profiles[k]) == 2;
		scored = scored || e->golden.profiles[k].mode == GOLDEN_FORCED;
	}
	if (batch != 1 && batch != ARM_UNSET && profile_batch(base) == 1 && !shown)
		text_also(&l->reason, "the leg decodes several sequences together, the golden was captured one at a time: capture a "
			  "batched profile");
	for (int i = 0; i < l->report.engine.n_features && e->recipe.modes[MODE_FORCED]; i++)
		if (!strcmp(l->report.engine.features[i].name, "forced") && base->mode == GOLDEN_FREE)
			text_also(&l->reason, "mode forced was computed by %s, the golden by decoding%s", l->report.engine.features[i].value,
				  scored ? "" : ": capture a profile in mode forced");
	if (base->mode == GOLDEN_FORCED)
		text_also(&l->reason, "profile `%s` was scored in forced mode: its ids are no free run", base->name);
}

static void say_notes(const struct evidence *e, struct leg *l)
{
	const struct noise *n = &l->noise;

	if (e->overrides.n_prompts)
		say_stop(e, l);
	if (n->arbiter.leg >= 0) {
		const struct leg *a = &e->legs[n->arbiter.leg];
		static const int numerics[] = { FACTOR_MAMBA_PROJ, FACTOR_MOE_EXPERTS };

		for (int i = 0; i < 2; i++)
			if (a->report.effective.value[numerics[i]] != l->report.effective.value[numerics[i]])
				text_also(&l->reason, "its arbiter %s differs in %s", a->want->name, factor_name((enum factor)numerics[i]));
	}
	say_contradictions(e, l);
	say_regime(e, l);
	if (l->unproven.n)
		text_also(&l->reason, "unproven: %s", l->unproven.s);
	if (e->golden.n_files == 0)
		text_also(&l->reason, "identity of the model NOT MEASURED: the golden lists no files");
}

static void say_power(struct leg *l)
{
	if (l->noise.power.present && !isnan(l->noise.power.excess_R))
		text_also(&l->reason, "a leg with R above %.3g would have been called EXCESS with probability 0.8",
			  l->noise.power.excess_R);
}

static bool any_flip(const struct leg *l, enum adjudication a)
{
	for (size_t i = 0; i < l->n_flips; i++)
		if (l->flips[i].adjudication == a)
			return true;
	return false;
}

/* Every flip is what noise leaves: near, or suspicious at a p that is common. */
static bool flips_benign(const struct leg *l)
{
	for (size_t i = 0; i < l->n_flips; i++) {
		const struct flip *f = &l->flips[i];

		if (f->adjudication == ADJ_NEAR_TIE || f->adjudication == ADJ_EXACT_TIE)
			continue;
		if (f->adjudication != ADJ_SUSPICIOUS || f->margin_bound || f->subject_bound || !(f->p >= LIKELY_P))
			return false;
	}
	return true;
}

static enum adjudication climb(const struct evidence *e, const struct leg *l)
{
	const struct noise *n = &l->noise;
	bool equivalent = n->distance.class == DISTANCE_EQUIVALENT;

	if (l->n_suspects || any_flip(l, ADJ_EXCESS) || n->distance.class == DISTANCE_EXCESS)
		return ADJ_EXCESS;
	if ((n->direction.measured && n->direction.p_holm < SMALL_P) || (n->drift.measured && n->drift.p_holm < SMALL_P))
		return ADJ_SYSTEMATIC;
	if (l->verdict == LEG_STRICT_PASS)
		return equivalent ? ADJ_EQUIVALENT : ADJ_UNPROVEN;
	double p = e->recipe.modes[MODE_FORCED] ? n->flips.present ? n->flips.p : NAN : n->forks.p;

	return flips_benign(l) && p >= LIKELY_P && equivalent ? ADJ_NEAR_TIE : ADJ_UNDETERMINED;
}

void ladder_adjudicate(struct evidence *e, struct leg *l)
{
	if (l->verdict != LEG_STRICT_PASS && l->verdict != LEG_DIVERGENCE)
		return;
	l->adjudication = climb(e, l);
	say_tokens(e, l);
	say_distance(l);
	switch (l->adjudication) {
	case ADJ_EXCESS:
		say_flips(e, l, ADJ_EXCESS);
		if (l->noise.distance.class == DISTANCE_EXCESS)
			text_also(&l->reason, "further from the oracle than c %.3g allows", l->noise.distance.c);
		break;
	case ADJ_SYSTEMATIC:
		if (l->noise.direction.p_holm < SMALL_P && l->noise.direction.measured)
			text_also(&l->reason, "direction: %zu of %zu margins moved to the oracle's token, p %.3g after Holm",
				  l->noise.direction.positive, l->noise.direction.n, l->noise.direction.p_holm);
		if (l->noise.drift.p_holm < SMALL_P && l->noise.drift.measured)
			text_also(&l->reason, "drift: the distance grows with the step in %d of %d prompts, p %.3g after Holm",
				  l->noise.drift.rising, l->noise.drift.prompts, l->noise.drift.p_holm);
		break;
	case ADJ_UNDETERMINED:
	case ADJ_UNPROVEN:
		say_open(e, l);
		say_missing(e, l);
		break;
	default:
		break;
	}
	if (l->verdict == LEG_STRICT_PASS)
		say_power(l);
	say_notes(e, l);
}

/* ---- the run */

static void say_legs(struct evidence *e)
{
	struct text *t = &e->overall.reason;

	for (int v = LEG_ERROR; v >= LEG_STRICT_PASS; v--) {
		bool first = true;

		for (int i = 0; i < e->n_legs; i++) {
			if (e->legs[i].verdict != (enum leg_verdict)v)
				continue;
			if (first)
				text_also(t, "%s: %s", leg_verdict_name((enum leg_verdict)v), e->legs[i].want->name);
			else
				text_add(t, ", %s", e->legs[i].want->name);
			first = false;
		}
	}
}

static void decide_hypotheses(struct evidence *e)
{
	struct text *t = &e->overall.reason;
	int eliminated = 0, left = 0, tested = 0;

	for (int i = 0; i < e->recipe.n_hypotheses; i++) {
		enum hypothesis_status s = e->hypotheses[i].status;

		eliminated += s == HYPOTHESIS_ELIMINATED;
		left += s != HYPOTHESIS_ELIMINATED;
		tested += s == HYPOTHESIS_SURVIVES;
	}
	bool decided = eliminated > 0 && left == 1 && tested == 1;

	e->overall.verdict = decided ? "DECIDED" : "UNDECIDED";
	e->overall.exit_code = decided ? 0 : 4;
	if (left == 0)
		text_add(t, "none of the hypotheses stated is left");
	for (int i = 0, n = 0; i < e->recipe.n_hypotheses; i++)
		if (e->hypotheses[i].status != HYPOTHESIS_ELIMINATED)
			text_add(t, "%s%s%s", n++ ? ", " : "", e->recipe.hypotheses[i].name,
				 e->hypotheses[i].status == HYPOTHESIS_UNTESTED ? " (untested)" : "");
	if (left)
		text_add(t, left == 1 ? " is left" : " are left");
	for (int i = 0; !decided && i < e->design.n_next; i++) {
		char *name = candidate_name(&e->design, &e->design.candidates[i]);

		text_add(t, "%s%s", i ? " or " : "; next leg: ", name);
		free(name);
	}
}

void overall_decide(struct evidence *e)
{
	static const int codes[] = { 0, 1, 4, 4, 3, 2 };
	enum leg_verdict worst = LEG_STRICT_PASS;

	for (int i = 0; i < e->n_legs; i++)
		worst = e->legs[i].verdict > worst ? e->legs[i].verdict : worst;
	if (e->recipe.kind == RECIPE_DISCRIMINATE && worst <= LEG_DIVERGENCE) {
		decide_hypotheses(e);
	} else {
		e->overall.verdict = leg_verdict_name(worst);
		e->overall.exit_code = codes[worst];
	}
	say_legs(e);
	if (e->no_texts)
		text_also(&e->overall.reason, "no texts: %s", e->no_texts);
}
