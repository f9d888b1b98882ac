/* What a person reads.  Everything comes from the verdict document; the question and what the hypotheses say
 * come from the recipe.yaml beside it, and are left out where there is none. */
#ifndef ASSAY_GATES_SHOW_H
#define ASSAY_GATES_SHOW_H

#include <jansson.h>
#include "term.h"

#define SHOW_FIRST 40                /* lines that hold the answer */

struct show_options {
	const char *run_dir;         /* NULL: not known */
	const char *recipe;          /* its file, where there is no run_dir; used if it is the one that was judged; NULL: none */
	bool quiet;                  /* a line per leg and the verdict */
	bool prompts;                /* also every prompt's row of every leg, with ids and texts */
};

/* The table of docs/formats.md, section 7: the first SHOW_FIRST lines are the answer. */
void show_verdict(struct term *t, const json_t *verdict, const struct show_options *o);
/* The design of an experiment: legs against factors, what each pair separates, what is aliased, what may be claimed of
 * each factor, what became of the hypotheses, the next leg.  `explained` holds design, claims and next_legs, and of a
 * run hypotheses, as in a verdict. */
void show_design(struct term *t, const json_t *explained);

/* ---- parts, for the files that print ---- */

/* A member down a path: show_get(v, "noise", "distance").  NULL where it ends early or is null. */
#define show_get(value, ...) show_path(value, (const char *const[]){__VA_ARGS__, NULL})
const json_t *show_path(const json_t *value, const char *const *keys);
const char *show_string(const json_t *value);                    /* "" if it is none */
/* A number as text, "-" if it is null: significant digits as %.*g, non-finite by name. */
const char *show_number(const json_t *value, int digits, char *buf, size_t size);
/* What the table does not say: reasons, limits of a pass, the arbiter, contradictory prompts, claims.  show_reasons.c */
void show_reasons(struct term *t, const json_t *verdict);
/* Of that, why a leg proved nothing: ERROR, VOID, NOT MEASURED. */
void show_failures(struct term *t, const json_t *verdict);
/* "next leg: ..." lines */
void show_next_legs(struct term *t, const json_t *next_legs, int most);
/* "speed: ..." lines, of pairs that were or will be timed in turns */
void show_speeds(struct term *t, const json_t *speed);
/* "aliased: ..." and "separable: ..." lines */
void show_separable(struct term *t, const json_t *design);

/* Flips that several legs or both modes have in common, as one: same prompt, step and tokens. */
struct flip_group {
	const json_t *flip;          /* the first of them */
	bool free;                   /* it is the first fork of a free row, not only a flip under teacher forcing */
	const char **legs; int n_legs;       /* owned; the names are the document's */
	double margin;               /* the largest of the legs' own; NaN: not measured */
	const char *adjudication;    /* the worst */
	int order;
};
/* Free forks first; of these what is worse than a near tie, then by prompt and step. */
struct flip_group *show_group_flips(const json_t *legs, int *n);
void show_free_groups(struct flip_group *groups, int n);
/* Appends rows to a table of SHOW_FLIP_COLUMNS: `of` names what they are in the head (NULL: no head). */
#define SHOW_FLIP_COLUMNS 8
void show_flip_rows(struct table *table, const char *of, const struct flip_group *groups, int n, int n_legs);

#endif
