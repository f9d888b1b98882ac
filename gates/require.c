/* Can the leg prove what it ran?  Every reason why not is added to its `voids`.  docs/judging.md, section 1. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "evidence.h"

/* ---- the path contract */

static int64_t blocks_of(const struct report *r, enum want_blocks b)
{
	switch (b) {
	case WANT_MAMBA: return r->model.mamba;
	case WANT_ATTN: return r->model.attn;
	case WANT_MOE: return r->model.moe;
	case WANT_MLP: return r->model.mlp;
	case WANT_LAYERS: return r->model.layers;
	default: return 1;
	}
}

static bool want_met(const struct want *w, const struct report *r, const struct report_trace *row, int64_t got)
{
	int64_t want, times = !row || w->rows == WANT_ONCE ? 1 : w->rows == WANT_ND ? row->nd : row->T;

	/* `mamba*nd` of a model whose blocks are not known would ask for nothing */
	if (got == COUNTER_ABSENT || (w->blocks != WANT_NUMBER && r->model.layers == 0))
		return false;
	if (__builtin_mul_overflow(w->n, blocks_of(r, w->blocks), &want) || __builtin_mul_overflow(want, times, &want))
		return false;
	return w->op == WANT_GREATER ? got > want : w->op == WANT_AT_LEAST ? got >= want : got == want;
}

static void line_take(struct contract_line *line, bool met, int64_t got, int row)
{
	line->rows++;
	if (!met && line->bad_rows++ == 0) {
		line->ok = false;
		line->bad_row = row;
		line->min = line->max = got;
	} else if (met && line->ok) {
		line->min = line->rows == 1 || got < line->min ? got : line->min;
		line->max = line->rows == 1 || got > line->max ? got : line->max;
	}
}

static void check_want(struct leg *l, enum mode m, const struct want *w)
{
	const struct report_mode *rm = &l->report.modes[m];
	struct contract_line *line = &l->contract[l->n_contract++];

	*line = (struct contract_line){ .mode = m, .want = w, .ok = true, .bad_row = -1 };
	if (w->scope == SCOPE_TOTAL) {
		int64_t got = rm->total.n[w->counter];

		line_take(line, want_met(w, &l->report, NULL, got), got, 0);
		line->bad_row = -1;        /* a total has no row */
	} else {
		for (int i = 0; i < rm->n_trace; i++) {
			const struct report_trace *row = &rm->trace[i];
			bool decode = row->np == 0 && row->nd > 0;

			if (w->scope == SCOPE_DECODE_STEP ? !decode : row->np == 0)
				continue;
			int64_t got = row->counters.n[w->counter];

			line_take(line, want_met(w, &l->report, row, got), got, i);
		}
	}
	line->absent = line->rows == 0 || line->min == COUNTER_ABSENT;
	if (!line->ok) {
		char got[32] = "absent";

		if (!line->absent)
			snprintf(got, sizeof got, "%" PRId64, line->min);
		text_also(&l->voids, "%s %s %s: want %s, got %s", mode_name(m), scope_name(w->scope), counter_name(w->counter),
			  w->text, got);
		if (line->bad_row >= 0)
			text_add(&l->voids, " in row %d (%d of %d rows)", line->bad_row, line->bad_rows, line->rows);
	}
}

static void check_contract(struct evidence *e, struct leg *l)
{
	const struct contract *both[2] = { &e->recipe.all, &l->want->contract };

	l->contract = xcalloc((size_t)(both[0]->n + both[1]->n) * N_MODES + 1, sizeof *l->contract);
	for (int m = 0; m < N_MODES; m++) {
		if (!e->recipe.modes[m] || !l->report.modes[m].present)
			continue;
		for (int k = 0; k < 2; k++)
			for (int i = 0; i < both[k]->n; i++)
				check_want(l, (enum mode)m, &both[k]->wants[i]);
	}
}

/* ---- what was asked for, what was run */

static bool factor_met(const struct leg *l, int f, int want, int got)
{
	if (want == got)
		return true;
	/* `all` may come back as the number of prompts it became */
	if (f == FACTOR_BATCH && want == ARM_ALL)
		for (int m = 0; m < N_MODES; m++)
			if (l->report.modes[m].present && got >= l->report.modes[m].n_rows)
				return true;
	return false;
}

static void check_factors(struct leg *l)
{
	const struct report *r = &l->report;
	struct arm asked = l->want->arm;
	char a[64], b[64];

	for (int f = 0; f < N_FACTORS; f++) {
		if (asked.value[f] != ARM_UNSET && !factor_met(l, f, asked.value[f], r->requested.value[f]))
			text_also(&l->voids, "the recipe asks for %s=%s, the report says %s was requested", factor_name(f),
				  arm_text(&asked, f, a, sizeof a), arm_text(&r->requested, f, b, sizeof b));
		if (!factor_met(l, f, r->requested.value[f], r->effective.value[f]))
			text_also(&l->voids, "%s=%s was requested and %s was run", factor_name(f),
				  arm_text(&r->requested, f, a, sizeof a), arm_text(&r->effective, f, b, sizeof b));
	}
	if (!arm_at_equal(&l->want->at, &r->requested_at))
		text_also(&l->voids, "the recipe's `at` is not what the report says was requested");
	if (!arm_at_equal(&r->requested_at, &r->effective_at))
		text_also(&l->voids, "`at` was not run as requested");
}

static const char *cell_find(const struct report_cell *cells, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(cells[i].name, name))
			return cells[i].value;
	return NULL;
}

/* Files that decide the numbers: a report that does not name them has not shown what it ran.  Others (the tokenizer, the
 * index) an engine that is fed ids need not read. */
static bool decides_numbers(const char *file)
{
	size_t n = strlen(file);

	return !strcmp(file, "config.json") || !strcmp(file, "hf_quant_config.json") ||
		(n > 12 && !strcmp(file + n - 12, ".safetensors"));
}

static void check_identity(const struct evidence *e, struct leg *l)
{
	const struct report *r = &l->report;
	const struct recipe *want = &e->recipe;
	bool foreign = l->want->engine != ENGINE_BUILT;
	int unnamed = 0;

	for (int i = 0; i < e->golden.n_files; i++) {
		const struct golden_file *f = &e->golden.files[i];
		const char *got = cell_find(r->model.files, r->model.n_files, f->name);

		if (!got && foreign)
			unnamed += decides_numbers(f->name);
		else if (got ? strcmp(got, f->sha256) != 0 : decides_numbers(f->name))
			text_also(&l->voids, "model file %s is %s", f->name, got ? "not the golden's" : "not named by the report");
	}
	if (unnamed)
		text_add(&l->unproven, "%sthe model (%d of its files are not named)", l->unproven.n ? ", " : "", unnamed);
	for (int i = 0; i < want->n_pins; i++) {
		const char *got = cell_find(r->model.files, r->model.n_files, want->pins[i].file);

		if (!got || strcmp(got, want->pins[i].sha256) != 0)
			text_also(&l->voids, "model file %s is not the pinned one", want->pins[i].file);
	}
	if (want->pin_engine[0] && strcmp(want->pin_engine, r->engine.binary_sha256) != 0)
		text_also(&l->voids, "the engine is not the pinned one");
	if (want->pin_golden[0] && strcmp(want->pin_golden, e->golden.sha256) != 0)
		text_also(&l->voids, "the golden is not the pinned one");
	if (strcmp(r->golden_sha256, e->golden.sha256) != 0)
		text_also(&l->voids, r->golden_sha256[0] ? "the report was made with another golden" :
			  "the report was made without the golden");
	for (int i = 0; i < want->n_features; i++) {
		const char *got = cell_find(r->engine.features, r->engine.n_features, want->features[i].name);

		if (!got || strcmp(got, want->features[i].value) != 0)
			text_also(&l->voids, "feature %s: want %s, got %s", want->features[i].name, want->features[i].value,
				  got ? got : "no such cell");
	}
	if (l->want->audit && !r->audit.present)
		text_also(&l->voids, "the device audit was asked, and the report has none");
	if (r->audit.present && !r->audit.agrees)
		text_also(&l->voids, "the device audit (%s) contradicts the counters%s%s", r->audit.source ? r->audit.source : "-",
			  r->audit.n_mismatches ? ": " : "", r->audit.n_mismatches ? r->audit.mismatches[0] : "");
}

/* ---- what came back */

static void check_rows(const struct evidence *e, struct leg *l, enum mode m)
{
	for (int p = 0; p < e->oracle.n_prompts; p++) {
		const struct oracle_prompt *want = &e->oracle.prompts[p];
		const struct golden_prompt *prompt = &e->golden.prompts[want->prompt];
		const struct report_row *row = l->modes[m].rows[p].row;

		if (!row)
			continue;
		if (row->n_prompt != prompt->n ||
		    (prompt->n && memcmp(row->prompt_ids, prompt->ids, (size_t)prompt->n * sizeof *prompt->ids) != 0))
			text_also(&l->voids, "%s %s: the prompt ids are not the golden's", mode_name(m), row->id);
		if (row->n > e->recipe.max_steps)
			text_also(&l->voids, "%s %s: %d tokens came back, %d were planned", mode_name(m), row->id, row->n,
				  e->recipe.max_steps);
		if (m != MODE_FORCED)
			continue;
		int n = row->n < want->base->n ? row->n : want->base->n;

		for (int t = 0; t < n; t++) {
			const struct report_step *s = row->steps ? &row->steps[t] : NULL;

			if (s && s->has_logits && s->has_given && s->given == want->base->ids[t])
				continue;
			text_also(&l->voids, "forced %s[%d]: %s", row->id, t,
				  !s || !s->has_logits ? "no logits" : !s->has_given ? "the report does not say which id was fed" :
				  "the id that was fed is not the golden's");
			break;
		}
	}
}

/* The trace must hold a row for every token that came back, and add up to the totals. */
static void check_trace(struct leg *l, enum mode m)
{
	const struct report_mode *rm = &l->report.modes[m];
	int64_t chunk = l->report.effective.value[FACTOR_PREFILL_CHUNK], np = 0, nd = 0;
	int64_t least = 0, most = 0, decoded = 0;
	struct counters sum = { 0 };

	for (int i = 0; i < rm->n_rows; i++) {
		const struct report_row *row = &rm->rows[i];
		int64_t chunks = chunk > 0 && row->n_prompt > chunk ? (row->n_prompt + chunk - 1) / chunk : 1;

		least += row->n > 0 ? chunks : 0;
		most += chunks;
		decoded += row->n > 0 ? row->n - 1 : 0;
	}
	for (int i = 0; i < rm->n_trace; i++) {
		np += rm->trace[i].np;
		nd += rm->trace[i].nd;
		for (int c = 0; c < N_COUNTERS; c++)
			if (rm->trace[i].counters.n[c] == COUNTER_ABSENT || sum.n[c] == COUNTER_ABSENT)
				sum.n[c] = COUNTER_ABSENT;
			else
				sum.n[c] += rm->trace[i].counters.n[c];
	}
	if (np < least || np > most)
		text_also(&l->voids, "%s: the trace prefills %" PRId64 " sequences or chunks, the prompts need %" PRId64,
			  mode_name(m), np, least);
	if (nd != decoded)
		text_also(&l->voids, "%s: the trace decodes %" PRId64 " tokens, the returned tokens need %" PRId64, mode_name(m),
			  nd, decoded);
	for (int c = 0; c < N_COUNTERS; c++)
		if (rm->n_trace && sum.n[c] != rm->total.n[c]) {
			text_also(&l->voids, "%s: the trace rows of %s do not add up to its total", mode_name(m), counter_name(c));
			break;
		}
}

/* Counters and hashes that a foreign engine leaves out: VOID where the recipe asks for them (check_contract), else named. */
static bool is_traced(struct leg *l, enum mode m)
{
	return l->want->engine == ENGINE_BUILT || l->report.modes[m].n_trace > 0;
}

static void say_unproven(const struct evidence *e, struct leg *l)
{
	bool traced = true, hashed = true;

	for (int m = 0; m < N_MODES; m++) {
		const struct report_mode *rm = &l->report.modes[m];

		if (!e->recipe.modes[m] || !rm->present)
			continue;
		traced = traced && is_traced(l, (enum mode)m);
		for (int i = 0; i < rm->n_rows; i++)
			hashed = hashed && (rm->rows[i].n == 0 || (rm->rows[i].steps && rm->rows[i].steps[0].has_hash));
	}
	if (!traced)
		text_add(&l->unproven, "%sthe path (no counters)", l->unproven.n ? ", " : "");
	if (!hashed)
		text_add(&l->unproven, "%sbit-equality (no hashes of logits)", l->unproven.n ? ", " : "");
}

void require_check(struct evidence *e, struct leg *l)
{
	if (!l->has_report)
		return;
	if (strcmp(l->report.leg, l->want->name) != 0)
		text_also(&l->voids, "the report is of leg `%s`", l->report.leg);
	check_factors(l);
	check_identity(e, l);
	check_contract(e, l);
	for (int m = 0; m < N_MODES; m++) {
		if (!e->recipe.modes[m] || !l->report.modes[m].present)
			continue;
		check_rows(e, l, (enum mode)m);
		if (is_traced(l, (enum mode)m))
			check_trace(l, (enum mode)m);
	}
	if (l->want->engine != ENGINE_BUILT)
		say_unproven(e, l);
}

void require_same_runs(struct evidence *e)
{
	for (int i = 0; i < e->n_legs; i++) {
		for (int j = i + 1; j < e->n_legs; j++) {
			struct leg *a = &e->legs[i], *b = &e->legs[j];

			if (!a->has_report || !b->has_report || strcmp(a->engine, b->engine) != 0 ||
			    strcmp(a->host, b->host) != 0 ||
			    !arm_equal(&a->report.effective, &b->report.effective) ||
			    !arm_at_equal(&a->report.effective_at, &b->report.effective_at))
				continue;
			text_also(&a->voids, "the same run as leg %s: binary, host and effective factors are equal", b->want->name);
			text_also(&b->voids, "the same run as leg %s: binary, host and effective factors are equal", a->want->name);
		}
	}
}
