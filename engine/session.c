#include "session.h"

#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "faults.h"

static void apply_at(struct session *s, const struct arm_at_list *at)
{
	struct err ignored = {0};
	int layers = s->model->config.num_hidden_layers;

	s->layer_arm = xcalloc(layers, sizeof(*s->layer_arm));
	for (int l = 0; l < layers; l++) {
		s->layer_arm[l] = s->arm;
		for (int i = 0; i < at->n; i++)
			if (arm_layers_hold(at->item[i].layers, l, &ignored) == 1)
				arm_overlay(&s->layer_arm[l], &at->item[i].arm);
	}
}

/* slots: dirty.  Another request has filled every slot; what it left must not matter. */
static void dirty(struct session *s)
{
	int n = s->limits.rows < s->limits.len - 1 ? s->limits.rows : s->limits.len - 1;
	int vocab = s->model->config.vocab_size;
	struct logits_row row;

	for (int slot = 0; slot < s->limits.slots; slot++) {
		int32_t *ids = xcalloc(n > 0 ? n : 1, sizeof(*ids)), next = (slot + 1) % vocab;

		for (int i = 0; i < n; i++)
			ids[i] = (int32_t)((7 * i + 13 * slot + 3) % vocab);
		if (n > 0)
			session_prefill(s, NULL, slot, ids, n, -1);
		session_step(s, &row, &(int32_t){ slot }, &next, 1, NULL);
		free(ids);
	}
	s->counters = (struct counters){0};
}

int session_open(struct session *s, struct model *m, const struct arm *arm, const struct arm_at_list *at,
		 const struct limits *limits, struct err *err)
{
	const struct backend *b = backend_find(arm->value[FACTOR_BACKEND], err);

	*s = (struct session){0};
	return b ? session_open_on(s, b, m, arm, at, limits, err) : -1;
}

int session_open_on(struct session *s, const struct backend *b, struct model *m, const struct arm *arm,
		    const struct arm_at_list *at, const struct limits *limits, struct err *err)
{
	*s = (struct session){ .model = m, .arm = *arm, .limits = *limits };
	if (s->limits.rows < s->limits.slots)
		s->limits.rows = s->limits.slots;
	arm_at_copy(&s->at, at);
	apply_at(s, at);
	if (forward_open(&s->forward, b, m, arm, s->layer_arm, &s->limits, &s->counters, err))
		return -1;
	state_open(&s->pool, s->forward.main.b, s->forward.main.dev, m, s->layer_arm,
		   &(struct state_needs){
			.slots = limits->slots, .max_len = limits->len,
			.gathered = forward_gathers(&s->forward), .host = forward_hosts(&s->forward),
		   }, &s->counters);
	s->forward.pool = &s->pool;
	s->length = xcalloc(limits->slots, sizeof(*s->length));
	s->pos = xcalloc(limits->slots, sizeof(*s->pos));
	s->hash = xcalloc(limits->slots, sizeof(*s->hash));
	if (arm->value[FACTOR_SLOTS] == SLOTS_DIRTY)
		dirty(s);
	s->allocs = xalloc_count();
	return 0;
}

/* The pool's memory belongs to the device, so it goes first. */
void session_release(struct session *s)
{
	if (s->pool.backend)
		state_release(&s->pool);
	forward_release(&s->forward);
	arm_at_release(&s->at);
	free(s->layer_arm);
	free(s->length);
	free(s->pos);
	free(s->hash);
	*s = (struct session){0};
}

void session_reset(struct session *s, int slot)
{
	BUG_ON(slot < 0 || slot >= s->limits.slots);
	state_reset(&s->pool, slot);
	s->length[slot] = 0;
}

/* Of rows whose hashes the backend left open. */
static void set_hashes(struct session *s, struct logits_row *out, int n)
{
	const struct lane *l = &s->forward.main;

	BUG_ON(s->unhashed);
	if (!l->b->hashes)
		return;
	l->b->hashes(l->dev, s->hash, n);
	for (int i = 0; i < n; i++)
		out[i].xxh64 = s->hash[i];
}

static void check_ids(const struct session *s, const int32_t *ids, int n)
{
	for (int i = 0; i < n; i++)
		BUG_ON(ids[i] < 0 || ids[i] >= s->model->config.vocab_size);
}

void session_prefill(struct session *s, struct logits_row *out, int slot, const int32_t *ids, int n, int32_t given)
{
	BUG_ON(slot < 0 || slot >= s->limits.slots || n < 1 || n > s->limits.rows);
	BUG_ON(s->length[slot] + n > s->limits.len);
	check_ids(s, ids, n);
	if (FAULT(PAD_TOKEN) && s->length[slot] == 0) {
		struct counters before = s->counters;

		forward_prefill(&s->forward, slot, &(int32_t){ 0 }, 1, 0, false, -1);
		s->counters = before;
	}
	forward_prefill(&s->forward, slot, ids, n, s->length[slot], out != NULL, given);
	s->length[slot] += n;
	if (out) {
		forward_logits(&s->forward, out, 1);
		set_hashes(s, out, 1);
	}
}

static void launch(struct session *s, const int32_t *slots, const int32_t *ids, int n, const int32_t *given)
{
	BUG_ON(n < 1 || n > s->limits.slots);
	if (ids)
		check_ids(s, ids, n);
	for (int i = 0; i < n; i++) {
		BUG_ON(slots[i] < 0 || slots[i] >= s->limits.slots);
		BUG_ON(s->length[slots[i]] + 1 > s->limits.len);
		s->pos[i] = s->length[slots[i]]++;
	}
	forward_decode(&s->forward, ids, slots, s->pos, given, n);
}

void session_step(struct session *s, struct logits_row *out, const int32_t *slots, const int32_t *ids, int n,
		  const int32_t *given)
{
	launch(s, slots, ids, n, given);
	forward_logits(&s->forward, out, n);
	set_hashes(s, out, n);
}

void session_hashes(struct session *s, uint64_t *last)
{
	const struct lane *l = &s->forward.main;

	if (s->unhashed && l->b->hashes)
		l->b->hashes(l->dev, last, s->unhashed);
	else
		memcpy(last, s->hash, s->unhashed * sizeof(*last));
	s->unhashed = 0;
}

void session_step_late(struct session *s, struct logits_row *out, uint64_t *before, const int32_t *slots, const int32_t *ids,
		       int n, const int32_t *given)
{
	launch(s, slots, ids, n, given);
	session_hashes(s, before);
	forward_logits(&s->forward, out, n);
	for (int i = 0; i < n; i++)
		s->hash[i] = out[i].xxh64;
	s->unhashed = n;
}

struct counters session_take_counters(struct session *s)
{
	struct counters taken;
	unsigned long now = xalloc_count();

	s->counters.n[COUNT_ALLOCS_AFTER_OPEN] += now - s->allocs;
	s->allocs = now;
	taken = s->counters;
	s->counters = (struct counters){0};
	return taken;
}
