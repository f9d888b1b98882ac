/* The strict comparison: which tokens came back, which are equal.  docs/judging.md, section 2. */
#include <math.h>
#include <stdlib.h>

#include "evidence.h"

static void suspect_add(struct leg *l, enum mode m, int prompt, int step, bool not_finite)
{
	if (l->n_suspects++ == 0)
		l->suspect = (struct suspect){ .mode = m, .prompt = prompt, .step = step, .not_finite = not_finite };
}

/* Is the emitted id the best of its own list, to what files can tell apart?  A tie may go either way. */
static bool step_greedy(const struct report_step *s)
{
	if (!s->has_logits || s->n_top == 0)
		return true;
	double own = top_value(s->top, s->n_top, s->id), best = s->top[0].value;

	for (int i = 1; i < s->n_top; i++)
		best = s->top[i].value > best ? s->top[i].value : best;
	return best - own <= SAME;      /* false for an id that is not listed */
}

static void compare_row(struct leg *l, enum mode m, int prompt, const struct oracle_prompt *want, struct row_compare *c)
{
	const struct report_row *row = c->row;

	c->compared = row->n < want->planned ? row->n : want->planned;
	for (int t = 0; t < c->compared; t++) {
		bool equal = row->ids[t] == want->base->ids[t];

		c->matched += equal;
		if (!equal && c->first_fork < 0)
			c->first_fork = t;
		if (!row->steps)
			continue;
		if (!step_finite(&row->steps[t]))
			suspect_add(l, m, prompt, t, true);
		else if (!step_greedy(&row->steps[t]))
			suspect_add(l, m, prompt, t, false);
	}
}

void tokens_compare(struct evidence *e, struct leg *l)
{
	for (int m = 0; m < N_MODES; m++) {
		struct mode_compare *c = &l->modes[m];

		c->asked = e->recipe.modes[m];
		if (!c->asked)
			continue;
		c->rows = xcalloc((size_t)e->oracle.n_prompts + 1, sizeof *c->rows);
		for (int p = 0; p < e->oracle.n_prompts; p++) {
			const struct oracle_prompt *want = &e->oracle.prompts[p];
			struct row_compare *row = &c->rows[p];

			row->first_fork = -1;
			c->planned += (size_t)want->planned;
			if (l->has_report && l->report.modes[m].present)
				row->row = report_row_find(&l->report.modes[m], evidence_prompt(e, p));
			if (row->row)
				compare_row(l, (enum mode)m, p, want, row);
			c->compared += (size_t)row->compared;
			c->matched += (size_t)row->matched;
			*(row->compared == want->planned ? &c->full_rows : &c->short_rows) += 1;
		}
	}
}
