#include "until.h"

#include <math.h>
#include <stdlib.h>

#include "evidence.h"

/* splitmix64: each state gives a well mixed word. */
static uint64_t next_word(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

void until_order(int *order, int n, const char recipe_sha256[SHA256_HEX])
{
	char head[17];
	uint64_t state;

	for (int i = 0; i < 16; i++)
		head[i] = recipe_sha256[i];
	head[16] = '\0';
	state = strtoull(head, NULL, 16);
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n - 1; i > 0; i--) {
		int j = (int)(next_word(&state) % (uint64_t)(i + 1)), swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
}

const char *until_by_name(enum until_by by)
{
	switch (by) {
	case UNTIL_EXCESS: return "R above c";
	case UNTIL_EQUIVALENT: return "R below c";
	case UNTIL_NOISIER: return "e-process on sign(w)";
	case UNTIL_NOTHING: return "no distance to decide by";
	default: return "not decided";
	}
}

/* Walks w in the order in which the prompts ran. */
static bool signs_decided(const struct oracle *o, const double *w, const int *order)
{
	struct eprocess e = { 0 };

	for (int i = 0; i < o->n_prompts; i++) {
		const struct oracle_prompt *p = &o->prompts[order[i]];

		for (int t = 0; t < p->planned; t++) {
			eprocess_add(&e, w[p->first + (size_t)t]);
			if (eprocess_decided(&e))
				return true;
		}
	}
	return false;
}

enum until_by until_leg(const struct evidence *e, const struct leg *l, const int *order)
{
	const struct oracle *o = &e->oracle;
	enum until_by by = UNTIL_NOTHING;

	if (!l->has_report || l->voids.n || !l->modes[MODE_FORCED].asked || (l->has_exit && l->exit.exit_code != 0))
		return by;
	const struct report_row **rows = xcalloc((size_t)o->n_prompts + 1, sizeof *rows);
	double *B = xcalloc(o->n_positions + 1, sizeof *B), *w = xcalloc(o->n_positions + 1, sizeof *w);
	struct subject s = leg_subject(e, l, rows);
	struct distance d;

	distance_fill(B, NULL, &s);
	distance_measure(&d, w, o, B, e->recipe.limit);
	if (d.class == DISTANCE_EXCESS)
		by = UNTIL_EXCESS;
	else if (d.class == DISTANCE_EQUIVALENT)
		by = UNTIL_EQUIVALENT;
	else if (d.class == DISTANCE_INCONCLUSIVE)
		by = signs_decided(o, w, order) ? UNTIL_NOISIER : UNTIL_OPEN;
	free(rows);
	free(B);
	free(w);
	return by;
}

int until_decided(const char *run_dir, enum until_by *by, int n_legs, struct err *err)
{
	struct evidence e;
	int decided = -1;

	if (!evidence_load(&e, run_dir, NULL, err)) {
		int *order = xcalloc((size_t)e.oracle.n_prompts + 1, sizeof *order);

		BUG_ON(by && n_legs != e.n_legs);
		until_order(order, e.oracle.n_prompts, e.recipe.sha256);
		decided = 1;
		for (int i = 0; i < e.n_legs; i++) {
			struct leg *l = &e.legs[i];

			tokens_compare(&e, l);
			require_check(&e, l);
			enum until_by state = until_leg(&e, l, order);

			if (by)
				by[i] = state;
			decided = decided && state != UNTIL_OPEN;
		}
		free(order);
	}
	evidence_release(&e);
	return decided;
}
