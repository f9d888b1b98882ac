/* Everything a verdict rests on, and everything the judge found: a run directory in memory.
 *
 * evidence_load fills what was stored (recipe, golden, reports, process ends); every other file of the judge answers one
 * question of docs/judging.md and writes its answer here; verdict_json.c turns it into the document. */
#ifndef ASSAY_GATES_EVIDENCE_H
#define ASSAY_GATES_EVIDENCE_H

#include "contract/report.h"
#include "contract/tokenizer.h"
#include "distance.h"
#include "oracle.h"
#include "recipe.h"
#include "speed.h"
#include "text.h"

/* Worst last. */
enum leg_verdict { LEG_STRICT_PASS, LEG_DIVERGENCE, LEG_SHORT, LEG_NOT_MEASURED, LEG_VOID, LEG_ERROR };
const char *leg_verdict_name(enum leg_verdict v);

enum adjudication {
	ADJ_NONE, ADJ_EQUIVALENT, ADJ_UNPROVEN, ADJ_NEAR_TIE, ADJ_UNDETERMINED, ADJ_SYSTEMATIC, ADJ_EXCESS,
	/* of a flip alone */
	ADJ_EXACT_TIE, ADJ_SUSPICIOUS, ADJ_NOT_MEASURED,
};
const char *adjudication_name(enum adjudication a);

/* A prompt of one mode against the expectation (section 2). */
struct row_compare {
	const struct report_row *row;  /* borrowed; NULL: it did not come back */
	int compared, matched;
	int first_fork;                /* -1: none */
};

struct mode_compare {
	bool asked;
	struct row_compare *rows;      /* owned [oracle.n_prompts] */
	size_t planned, compared, matched;
	int full_rows, short_rows;
};

/* A number that is not finite, or a token that is not its own best: never part of a pass. */
struct suspect { enum mode mode; int prompt, step; bool not_finite; };

/* A token that differs (section 3).  NaN: not measured. */
struct flip {
	enum mode mode;
	int prompt, step;              /* prompt: place in oracle.prompts */
	int32_t got, exp;
	int got_rank, exp_rank;        /* in the oracle's list, from 1; 0: not listed */
	double got_logprob, exp_logprob, got_subject, exp_subject;
	double margin, subject_margin; /* m, m' */
	bool margin_bound, subject_bound;   /* lower bounds */
	double ulps;                   /* not rounded */
	double tau, subject_tau, p;
	int forks_at;                  /* -1: no profile forks in this prompt */
	bool unstable;
	enum adjudication adjudication;
};

/* One line of the path contract (section 1). */
struct contract_line {
	enum mode mode;
	const struct want *want;       /* borrowed */
	bool ok;
	int rows, bad_rows, bad_row;   /* bad_row: index of the first; -1 */
	int64_t min, max;              /* of what was found; of a bad contract, the first bad row's value twice */
	bool absent;
};

struct flip_test { bool present; size_t positions; double sum_q; size_t count; double p; bool exact; };

struct noise {
	bool present;
	struct flip_test flips;        /* forced: positions, S */
	struct flip_test forks;        /* free: positions are prompts, count those that forked; sum_q and p may be NaN */
	double flip_rate_upper;
	struct distance distance;
	struct divergence kl;
	double same_top1;
	struct direction direction;
	struct drift drift;
	struct { int leg; size_t n; double subject, oracle; } arbiter;   /* leg -1: none */
	struct power power;
};

struct leg {
	const struct recipe_leg *want;       /* borrowed */
	bool has_report, has_exit;
	struct report report;                /* owned */
	struct leg_exit exit;                /* owned */
	char *load_error;                    /* owned; why the report cannot be read */

	char *engine, *host;                 /* owned; columns of the design: binary_sha256, name/gpu */
	enum leg_verdict verdict;
	enum adjudication adjudication;
	struct text reason;                  /* owned */
	struct text voids;                   /* owned; why the leg is VOID; empty: it is not */
	struct text unproven;                /* owned; what a foreign engine has not shown and the recipe does not require */
	struct mode_compare modes[N_MODES];
	struct suspect suspect;              /* the first */
	size_t n_suspects;
	struct flip *flips; size_t n_flips, flip_room;           /* owned */
	struct contract_line *contract; int n_contract;   /* owned */
	struct noise noise;
};

/* A factor (design column). */
#define COLUMN_AT N_FACTORS
#define COLUMN_ENGINE (N_FACTORS + 1)
#define COLUMN_HOST (N_FACTORS + 2)
#define N_COLUMNS (N_FACTORS + 3)
const char *column_name(int column);

/* A row of the design (section 7). */
struct design_row {
	const char *name;                    /* borrowed */
	int leg;                             /* -1: one that was not run */
	struct arm arm;
	const struct arm_at_list *at;        /* borrowed */
	const char *engine, *host;           /* borrowed */
	double seconds;                      /* per token; NaN: not known */
};

struct candidate {                           /* a leg that was not run: one factor of a leg changed */
	int row, factor, value;              /* of the design */
	struct arm arm;
	int (*pairs)[2]; int n_pairs;        /* owned: hypotheses that it separates */
	int *gained; int n_gained;           /* owned: columns that become separable */
	double minutes;                      /* NaN */
};

enum claim_status { CLAIM_SUPPORTED, CLAIM_CONSISTENT, CLAIM_EXONERATED, CLAIM_REFUSED, CLAIM_WITHDRAWN };
struct claim {
	const char *name, *says;             /* borrowed; NULL: drawn by the judge */
	const char *about;                   /* borrowed */
	int *legs; int n_legs;               /* owned */
	enum claim_status status;
	char *needs[2];                      /* owned; NULL: nothing */
};

struct pair {
	int a, b;
	bool differ[N_COLUMNS];
	int ids_equal, bit_equal;            /* -1: not known */
	int fork_prompt, fork_step;          /* -1: none */
	double distance; size_t distance_n;
	struct distance spread;              /* R, lower, upper and class: the two legs against each other */
};

struct design {
	struct design_row *rows; int n_rows;         /* owned */
	bool varied[N_COLUMNS];
	int separable[N_COLUMNS][2];                 /* rows; -1: not separable */
	int alias[N_COLUMNS];                        /* the first column that splits the rows in the same way */
	struct candidate *candidates; int n_candidates;   /* owned; best first, those that bring nothing left out */
	int n_next;                                  /* how many of them are next_legs */
};

enum hypothesis_status { HYPOTHESIS_SURVIVES, HYPOTHESIS_ELIMINATED, HYPOTHESIS_UNTESTED };
struct hypothesis_finding { enum hypothesis_status status; int *by; int n_by; /* owned */ };

struct evidence {
	char *dir;                           /* owned */
	struct recipe recipe;
	struct overrides overrides;
	bool overridden;
	int prompts_asked;                   /* by the recipe, before --until-decided stopped */
	struct golden golden;
	struct tokenizer *tokenizer;         /* owned; NULL: no texts */
	char *no_texts;                      /* owned; why a tokenizer that is there cannot be used */
	struct { char *id, *started, *ended; char **argv; int argc; bool has_argv; } run;   /* owned; NULL: not said */

	struct oracle oracle;
	struct leg *legs; int n_legs;        /* owned; as in the recipe */
	struct pair *pairs; int n_pairs;     /* owned; of legs with reports */
	struct design design;
	struct hypothesis_finding *hypotheses;   /* owned [recipe.n_hypotheses] */
	struct claim *claims; int n_claims;      /* owned */
	struct speed *speed; int n_speed;        /* owned; of speed.json */
	struct { const char *verdict; int exit_code; struct text reason; } overall;
};

/* Reads a run directory.  A leg's report that cannot be read is that leg's finding, not an error. */
/* `golden`: that of the run, if it was read already (moved: {0} afterwards); NULL: golden.json is read. */
int evidence_load(struct evidence *e, const char *run_dir, struct golden *golden, struct err *err);
void evidence_release(struct evidence *e);

/* "p2" of an asked prompt. */
const char *evidence_prompt(const struct evidence *e, int prompt);
/* The text of a token or a row of them, or NULL; a NUL is shown as its symbol.  The caller frees. */
char *evidence_text(const struct evidence *e, const int32_t *ids, int n);
/* The rows of a leg in one mode, by asked prompt; owned by the compare. */
struct subject leg_subject(const struct evidence *e, const struct leg *l, const struct report_row **rows);
bool leg_counts(const struct leg *l);        /* neither VOID nor in ERROR, and it left a report */
bool leg_is_arbiter(const struct leg *l);    /* counts, and is `ref` in f64 */
enum mode headline_mode(const struct recipe *r);   /* free if it was asked, else forced */

/* The questions, in the order in which they are asked. */
void tokens_compare(struct evidence *e, struct leg *l);      /* section 2: ids, forks, suspects */
void require_check(struct evidence *e, struct leg *l);       /* section 1: contract, identity, trace -> voids */
void require_same_runs(struct evidence *e);                  /* section 1: two legs that are one run */
void margins_adjudicate(struct evidence *e, struct leg *l);  /* section 3: every flip */
void noise_measure(struct evidence *e, struct leg *l);       /* sections 4 to 6, without arbiter and Holm */
void noise_across(struct evidence *e);                       /* section 5: arbiters, Holm over all legs */
void ladder_verdict(struct evidence *e, struct leg *l);      /* sections 1, 2, 8: the verdict, without adjudication */
void ladder_adjudicate(struct evidence *e, struct leg *l);   /* section 8 */
void pairs_compare(struct evidence *e);                      /* section 7 */
void design_of_run(struct evidence *e);
void design_of_recipe(struct design *d, const struct recipe *r);
void hypotheses_test(struct evidence *e);
/* Every one-factor change of a row, best first.  h NULL: nothing ran yet, and what the planned legs will leave of the
 * hypotheses is not known: factors alone rank.  tokens: what a leg would have to run. */
void candidates_rank(struct design *d, const struct recipe *r, const struct hypothesis_finding *h, double tokens);
void next_legs(struct evidence *e);
void claims_draw(struct evidence *e);
void overall_decide(struct evidence *e);

void design_measure(struct design *d);       /* varied, separable and aliased columns of its rows */
void design_release(struct design *d);
bool rows_differ_in(const struct design_row *a, const struct design_row *b, int column);
/* The one column in which two rows differ; -1: none or several. */
int rows_only_difference(const struct design_row *a, const struct design_row *b);
/* The value of a design column as JSON; a new reference. */
json_t *row_value(const struct design_row *r, int column);
/* "LEG+FACTOR=VALUE"; the caller frees. */
char *candidate_name(const struct design *d, const struct candidate *c);
/* The pair that would make a column separable: a row and a candidate; false: none is known. */
bool candidate_pair(const struct design *d, int column, int *row, const struct candidate **c);
int column_find(const char *name);           /* -1 */

json_t *verdict_document(const struct evidence *e);          /* new reference */
json_t *design_document(const struct design *d);
json_t *next_legs_document(const struct design *d, const struct recipe *r);

#endif
