/* Two legs timed against each other: run in turns, the order changing from turn to turn, so that a machine that warms up,
 * slows down or is shared meets both alike; the ratio comes of the differences within turns.
 *
 * <run>/speed.json, assay/speed/1, holds what every run of every turn took.  docs/formats.md, section 11. */
#ifndef ASSAY_GATES_SPEED_H
#define ASSAY_GATES_SPEED_H

#include <jansson.h>
#include <stdint.h>
#include "contract/report.h"

#define SPEED_RUNS_LEAST 5
#define SPEED_RUNS_MOST 1000
#define SPEED_RUNS 6                  /* each leg begins as often as the other */
#define SPEED_TOKENS_LEAST 5

struct evidence;
struct leg;
struct recipe;

struct speed_side {
	double p50, p90;              /* ms per token of one run */
	int64_t n;                    /* tokens that were timed; 0: it was not timed */
	json_t *busy;                 /* owned; NULL: not known */
	char ids_sha256[SHA256_HEX];  /* of the tokens it gave */
};
struct speed_turn { struct speed_side side[2]; };

struct speed {
	int leg[2];
	struct speed_turn *turns; int n;     /* owned */
	char *failed;                        /* owned; why there are not more turns; NULL: there are all */

	/* Found by speed_judge. */
	char *refused;                       /* owned; NULL: the ratio below counts */
	double ms[2];                        /* medians over turns */
	double ratio, lower, upper;          /* of the times of side 0 over those of side 1, with its 95 % interval */
};

/* The tokens of every prompt in one mode, in whatever order the prompts ran. */
void speed_digest(char hex[SHA256_HEX], const struct report *r, enum mode mode);
/* One run into one side; takes nothing over. */
void speed_take(struct speed_side *to, const struct report *r, enum mode mode);
/* speed.json as a document, and back; `e` or `r` say which legs the names are of. */
json_t *speed_document(const struct speed *s, int n, const struct recipe *r);
int speed_load(struct speed **s, int *n, const struct recipe *r, const char *path, struct err *err);
/* Pairs of the recipe that are not among the n, each with a word for it: what was asked and not timed is refused, not forgotten. */
void speed_add_absent(struct speed **s, int *n, const struct recipe *r);
void speed_release(struct speed *s, int n);      /* and the array */
/* Busy share and clocks over all turns of one side; a new reference, null: not known. */
json_t *speed_busy(const struct speed *s, int side);

/* The ratio, or why there is none: a leg is VOID or in ERROR, was not timed, gave other tokens than the ones that were
 * judged, ran elsewhere than its peer, ran fewer than five times, or its device was not its own (contract/busy.h). */
void speed_judge(struct speed *s, const struct evidence *e);
/* The members of verdict.speed; a new reference. */
json_t *speed_findings(const struct evidence *e);
/* "on takes 0.331 [0.32, 0.34] of the time of off: ..." for every reader; `found`: one of verdict.speed.  The caller frees. */
char *speed_sentence(const json_t *found);

#endif
