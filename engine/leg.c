#include "leg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host.h"

int leg_planned(const struct leg *leg, const struct prompt *p)
{
	return p->row && p->row->n < leg->steps ? p->row->n : leg->steps;
}

static int batch_of(const struct leg *leg, const struct arm *arm)
{
	int batch = arm->value[FACTOR_BATCH];

	return batch == ARM_ALL || batch > leg->prompts->n ? leg->prompts->n : batch;
}

static int pieces(int n, int piece)
{
	return piece ? (n + piece - 1) / piece : 1;
}

static void release_batch(struct leg_batch *b)
{
	free(b->slots);
	free(b->ids);
	free(b->given);
	free(b->prompt);
	free(b->rows);
	free(b->hash);
	free(b->hash_to);
	free(b->started);
}

static void prepare_batch(struct leg_batch *b, int n)
{
	release_batch(b);
	b->slots = xcalloc(n, sizeof(*b->slots));
	b->ids = xcalloc(n, sizeof(*b->ids));
	b->given = xcalloc(n, sizeof(*b->given));
	b->prompt = xcalloc(n, sizeof(*b->prompt));
	b->rows = xcalloc(n, sizeof(*b->rows));
	b->hash = xcalloc(n, sizeof(*b->hash));
	b->hash_to = xcalloc(n, sizeof(*b->hash_to));
	b->started = xcalloc(n, sizeof(*b->started));
}

void leg_prepare(struct leg *leg, struct report *r, enum mode mode, const struct arm *arm)
{
	struct report_mode *m = &r->modes[mode];
	int batch = batch_of(leg, arm), trace = 0, decode = 0;

	m->present = true;
	m->n_rows = leg->prompts->n;
	m->rows = xcalloc(m->n_rows, sizeof(*m->rows));
	for (int i = 0; i < m->n_rows; i++) {
		const struct prompt *p = &leg->prompts->item[i];
		struct report_row *row = &m->rows[i];
		int n = leg_planned(leg, p);

		row->id = xstrdup(p->id);
		row->n_prompt = p->n;
		row->prompt_ids = xcalloc(p->n, sizeof(*row->prompt_ids));
		memcpy(row->prompt_ids, p->ids, p->n * sizeof(*row->prompt_ids));
		row->n = n;
		row->ids = xcalloc(n + 1, sizeof(*row->ids));
		row->steps = xcalloc(n + 1, sizeof(*row->steps));
		for (int j = 0; j < n; j++)
			row->steps[j].top = report_tops(r, TOP_MAX);
		trace += pieces(p->n, arm->value[FACTOR_PREFILL_CHUNK]);
	}
	for (int first = 0; first < leg->prompts->n; first += batch) {
		int longest = 0;

		for (int i = first; i < first + batch && i < leg->prompts->n; i++)
			longest = m->rows[i].n > longest ? m->rows[i].n : longest;
		decode += longest > 0 ? longest - 1 : 0;
	}
	m->trace = xcalloc(trace + decode + 1, sizeof(*m->trace));
	leg->max_decode += decode;
	leg->decode_ms = xrealloc(leg->decode_ms, leg->max_decode + 1, sizeof(*leg->decode_ms));
	prepare_batch(&leg->batch, batch);
}

void leg_release(struct leg *leg)
{
	release_batch(&leg->batch);
	free(leg->decode_ms);
	*leg = (struct leg){0};
}

/* ---- one step's record ---- */

static void trace(struct leg *leg, struct report_mode *m, int T, int nd, int np)
{
	struct report_trace *t = &m->trace[m->n_trace];

	*t = (struct report_trace){
		.step = m->n_trace++, .T = T, .nd = nd, .np = np, .counters = session_take_counters(leg->session),
	};
	for (int c = 0; c < N_COUNTERS; c++)
		m->total.n[c] += t->counters.n[c];
	if (leg->trace)
		fprintf(stderr, "ARM step T=%d nd=%d np=%d state_update_rows=%lld chunk_scan_calls=%lld "
			"conv_update_rows=%lld conv_fwd_calls=%lld gathers=%lld scatters=%lld\n", T, nd, np,
			(long long)t->counters.n[COUNT_STATE_UPDATE_ROWS],
			(long long)t->counters.n[COUNT_CHUNK_SCAN_CALLS],
			(long long)t->counters.n[COUNT_CONV_UPDATE_ROWS],
			(long long)t->counters.n[COUNT_CONV_FWD_CALLS], (long long)t->counters.n[COUNT_GATHERS],
			(long long)t->counters.n[COUNT_SCATTERS]);
}

static void record(struct report_row *row, int step, const struct logits_row *from, int32_t given)
{
	struct report_step *s = &row->steps[step];

	row->ids[step] = s->id = from->top_id[0];
	s->has_logits = s->has_hash = true;
	s->n_top = from->n_top;
	for (int i = 0; i < from->n_top; i++)
		s->top[i] = (struct top){ .id = from->top_id[i], .value = from->top_logit[i] };
	s->margin = from->n_top > 1 ? from->top_logit[0] - from->top_logit[1] : INFINITY;
	s->lse = from->lse;
	s->logits_xxh64 = from->xxh64;
	if (given >= 0) {
		s->has_given = true;
		s->given = given;
		s->given_logit = from->given_logit;
		s->given_rank = from->given_rank;
	}
}

/* ---- a batch of prompts ---- */

/* The id that forced mode feeds after this step, or -1. */
static int32_t given_at(const struct leg *leg, enum mode mode, int prompt, int step)
{
	return mode == MODE_FORCED ? leg->prompts->item[prompt].row->ids[step] : -1;
}

static void prefill(struct leg *leg, struct report_mode *m, enum mode mode, int prompt, int slot)
{
	const struct prompt *p = &leg->prompts->item[prompt];
	int piece = leg->session->arm.value[FACTOR_PREFILL_CHUNK];
	struct logits_row row;

	if (piece == 0)
		piece = p->n;
	session_reset(leg->session, slot);
	for (int at = 0; at < p->n; at += piece) {
		bool last = at + piece >= p->n;
		int n = last ? p->n - at : piece;
		double start = host_seconds();

		session_prefill(leg->session, last && m->rows[prompt].n ? &row : NULL, slot, p->ids + at, n,
				last && m->rows[prompt].n ? given_at(leg, mode, prompt, 0) : -1);
		leg->prefill_s += host_seconds() - start;
		trace(leg, m, n, 0, 1);
	}
	if (m->rows[prompt].n)
		record(&m->rows[prompt], 0, &row, given_at(leg, mode, prompt, 0));
}

static void window(const struct leg *leg, bool open)
{
	const struct lane *main = &leg->session->forward.main;

	if (main->b->window)
		main->b->window(main->dev, open);
}

static void record_hashes(struct leg_batch *b)
{
	for (int i = 0; i < b->hashes; i++)
		*b->hash_to[i] = b->hash[i];
	b->hashes = 0;
}

static void decode(struct leg *leg, struct report_mode *m, enum mode mode, struct leg_batch *b)
{
	for (int step = 1;; step++) {
		int n = 0;
		double start, seconds;

		for (int i = 0; i < b->n; i++) {
			const struct report_row *row = &m->rows[b->first + i];

			if (step >= row->n)
				continue;
			b->slots[n] = i;
			b->prompt[n] = b->first + i;
			b->ids[n] = mode == MODE_FORCED ? given_at(leg, mode, b->first + i, step - 1) : row->ids[step - 1];
			b->given[n++] = given_at(leg, mode, b->first + i, step);
		}
		start = host_seconds();
		if (n == 0) {
			session_hashes(leg->session, b->hash);
			record_hashes(b);
			leg->decode_s += host_seconds() - start;
			return;
		}
		session_step_late(leg->session, b->rows, b->hash, b->slots, b->ids, n, b->given);
		record_hashes(b);
		seconds = host_seconds() - start;
		leg->decode_ms[leg->n_decode++] = 1e3 * seconds;
		leg->decode_s += seconds;
		trace(leg, m, n, n, 0);
		for (int i = 0; i < n; i++) {
			struct report_row *row = &m->rows[b->prompt[i]];

			record(row, step, &b->rows[i], b->given[i]);
			b->hash_to[b->hashes++] = &row->steps[step].logits_xxh64;
			if (step + 1 == row->n)
				row->wall_s = host_seconds() - b->started[b->prompt[i] - b->first];
		}
	}
}

void leg_run(struct leg *leg, struct report *r, enum mode mode)
{
	struct report_mode *m = &r->modes[mode];
	int size = batch_of(leg, &leg->session->arm);

	for (int first = 0; first < leg->prompts->n; first += size) {
		struct leg_batch b = leg->batch;

		b.first = first;
		b.n = leg->prompts->n - first < size ? leg->prompts->n - first : size;
		for (int i = 0; i < b.n; i++) {
			b.started[i] = host_seconds();
			prefill(leg, m, mode, first + i, i);
			m->rows[first + i].wall_s = host_seconds() - b.started[i];
		}
		window(leg, true);
		decode(leg, m, mode, &b);
		window(leg, false);
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Interpolates at (n - 1) p. */
static double percentile(const double *sorted, int n, double p)
{
	double at = (n - 1) * p;
	int i = (int)at;

	if (n == 0)
		return 0;
	return i + 1 < n ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

void leg_timing(struct leg *leg, struct report *r)
{
	qsort(leg->decode_ms, leg->n_decode, sizeof(*leg->decode_ms), ascending);
	r->timing.present = true;
	r->timing.prefill_s = leg->prefill_s;
	r->timing.decode_s = leg->decode_s;
	r->timing.n = leg->n_decode;
	r->timing.p50 = percentile(leg->decode_ms, leg->n_decode, 0.5);
	r->timing.p90 = percentile(leg->decode_ms, leg->n_decode, 0.9);
	r->timing.p99 = percentile(leg->decode_ms, leg->n_decode, 0.99);
}
