/* Each pair of legs against each other.  docs/judging.md, section 7. */
#include <stdlib.h>
#include <string.h>

#include "evidence.h"

/* One prompt of one mode on two legs. */
static void compare_rows(struct pair *p, enum mode m, int prompt, const struct report_row *a, const struct report_row *b,
			 bool *hashes)
{
	int n = a->n < b->n ? a->n : b->n, fork = -1;

	for (int t = 0; t < n && fork < 0; t++)
		if (a->ids[t] != b->ids[t])
			fork = t;
	if (fork >= 0 || a->n != b->n)
		p->ids_equal = 0;
	if (fork >= 0 && (p->fork_step < 0 || fork < p->fork_step)) {
		p->fork_step = fork;
		p->fork_prompt = prompt;
	}
	/* Under a common prefix: up to and with the fork; forced mode feeds both the same ids. */
	int last = m == MODE_FREE && fork >= 0 ? fork + 1 : n;

	for (int t = 0; t < last; t++) {
		if (!a->steps || !b->steps || !a->steps[t].has_hash || !b->steps[t].has_hash)
			*hashes = false;
		else if (a->steps[t].logits_xxh64 != b->steps[t].logits_xxh64)
			p->bit_equal = 0;
	}
}

/* Returns whether both legs have the mode. */
static bool compare_mode(const struct evidence *e, struct pair *p, enum mode m, bool *hashes, size_t *positions)
{
	const struct leg *a = &e->legs[p->a], *b = &e->legs[p->b];

	if (!a->modes[m].asked || !a->report.modes[m].present || !b->report.modes[m].present)
		return false;
	for (int i = 0; i < e->oracle.n_prompts; i++) {
		const struct report_row *ra = a->modes[m].rows[i].row, *rb = b->modes[m].rows[i].row;

		if (ra && rb) {
			*positions += (size_t)(ra->n < rb->n ? ra->n : rb->n);
			compare_rows(p, m, i, ra, rb, hashes);
		} else if (ra || rb) {
			p->ids_equal = 0;
		}
	}
	return true;
}

static void compare_pair(const struct evidence *e, struct pair *p)
{
	const struct leg *a = &e->legs[p->a], *b = &e->legs[p->b];
	bool hashes = true, any = false;
	size_t positions = 0;

	p->ids_equal = p->bit_equal = 1;
	p->fork_prompt = p->fork_step = -1;
	for (int m = 0; m < N_MODES; m++) {
		struct pair before = *p;

		if (!compare_mode(e, p, (enum mode)m, &hashes, &positions))
			continue;
		if (any) {      /* the fork is told of free mode if both have it */
			p->fork_prompt = before.fork_prompt;
			p->fork_step = before.fork_step;
		}
		any = true;
	}
	if (!positions)
		p->ids_equal = -1;
	if (!positions || (p->bit_equal && !hashes))
		p->bit_equal = -1;

	struct design_row ra = { .arm = a->report.effective, .at = &a->report.effective_at, .engine = a->engine, .host = a->host };
	struct design_row rb = { .arm = b->report.effective, .at = &b->report.effective_at, .engine = b->engine, .host = b->host };

	for (int c = 0; c < N_COLUMNS; c++)
		p->differ[c] = rows_differ_in(&ra, &rb, c);
}

void pairs_compare(struct evidence *e)
{
	size_t n = (size_t)e->n_legs, n_prompts = (size_t)e->oracle.n_prompts;
	const struct report_row **rows = xcalloc(n_prompts + 1, sizeof *rows), **others = xcalloc(n_prompts + 1, sizeof *others);

	e->pairs = xcalloc(n * n / 2 + 1, sizeof *e->pairs);
	for (int i = 0; i < e->n_legs; i++) {
		for (int j = i + 1; j < e->n_legs; j++) {
			struct pair *p = &e->pairs[e->n_pairs];

			if (!e->legs[i].has_report || !e->legs[j].has_report)
				continue;
			e->n_pairs++;
			p->a = i;
			p->b = j;
			compare_pair(e, p);
			struct subject a = leg_subject(e, &e->legs[i], rows), b = leg_subject(e, &e->legs[j], others);

			p->distance = distance_between(&p->spread, &p->distance_n, &a, &b, e->recipe.limit);
		}
	}
	free(rows);
	free(others);
}
