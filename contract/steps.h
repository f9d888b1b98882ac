/* The bulk of goldens and reports: the arrays `steps`, read without a tree.
 *
 * Nine tenths of such a file are pairs [id, value].  A tree of them would cost more time than all else that
 * the judge does, so the arrays are cut out of the text first, the rest is parsed as any JSON, and each array
 * is read in place when the walk comes to it.  Walks are in document order, so the k-th is the k-th.
 */
#ifndef ASSAY_CONTRACT_STEPS_H
#define ASSAY_CONTRACT_STEPS_H

#include <jansson.h>
#include "golden.h"

struct steps_doc {
	const char *file;       /* borrowed; for messages */
	const char *bytes;      /* borrowed */
	size_t size;
	json_t *json;           /* owned: the document, with the integer 0 for each array of steps */
	struct { size_t begin, end; } *spans;   /* owned: '[' to ']' of each */
	int n, next;
};

/* Cuts OUTER.*.prompts[*].steps out of the text and parses the rest; OUTER is "profiles" or "modes". */
int steps_open(struct steps_doc *d, const char *bytes, size_t size, const char *file, const char *outer,
	       struct err *err);
/* Also checks that the walk came to every array.  0, or -1 if err is or was set. */
int steps_close(struct steps_doc *d, struct err *err);

struct step {
	int32_t id;
	int n_top;              /* 0: absent */
	struct top top[TOP_MAX];
	bool has_lse, has_margin, has_given, has_hash;
	double lse, margin;
	int32_t given;
	double given_logit;
	int given_rank;
	uint64_t hash;
};

struct steps_reader {
	const struct steps_doc *doc;
	const char *p, *end;
	const char *path;       /* borrowed: "$.profiles[0].prompts[3].steps" */
	bool report;            /* a report's step: margin, given, logits_xxh64; numbers may be "nan", "inf", "-inf" */
	int n;                  /* steps read */
	struct err *err;
};

/* `marker`: the value that stands for the array in the parsed document. */
int steps_begin(struct steps_reader *r, struct steps_doc *d, const json_t *marker, const char *path, bool report,
		struct err *err);
/* 1: a step was read, 0: there is no more, -1: err.  Checked here: known members and types, tops best first
 * with ties by lower id (what is NaN aside), no id twice. */
int steps_next(struct steps_reader *r, struct step *s);
/* Complains about the step read last; what: "expected ..., found ...".  Returns -1. */
int steps_refuse(const struct steps_reader *r, const char *what);

/* Space for n tops that lives until tops_free.  *arena starts as NULL. */
struct top *tops_alloc(void **arena, size_t n);
void tops_free(void **arena);

#endif
