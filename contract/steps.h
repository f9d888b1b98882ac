/* The bulk of goldens and reports: the arrays `steps` and `trace`, read without a tree.
 *
 * Nine tenths of such a file are pairs [id, value].  A tree of them would cost more time than all else that
 * the judge does, so the arrays are cut out of the text first, the rest is parsed as any JSON, and each array
 * is read in place when the walk comes to it.  Walks are in document order, so the k-th array of a kind that
 * the walk meets is the k-th of that kind that was cut.
 */
#ifndef ASSAY_CONTRACT_STEPS_H
#define ASSAY_CONTRACT_STEPS_H

#include <jansson.h>
#include "golden.h"
#include "report.h"

enum steps_kind { STEPS_GOLDEN, STEPS_REPORT, STEPS_TRACE };

struct steps_span { size_t begin, end; bool trace; };   /* '[' to ']' */

struct steps_doc {
	const char *file;       /* borrowed; for messages */
	const char *bytes;      /* borrowed */
	size_t size;
	json_t *json;           /* owned: the document, with the integer 0 for each array of steps */
	struct steps_span *spans;   /* owned; in document order */
	int n;
	int next_steps, next_trace; /* where the search for the next of each sort begins */
};

/* Cuts profiles[*].prompts[*].steps, or modes.*.prompts[*].steps and modes.*.trace, out of the text and parses
 * the rest; `outer` is "profiles" or "modes". */
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
	enum steps_kind kind;   /* a report's steps hold more, and their numbers may be "nan", "inf", "-inf" */
	int n;                  /* items read */
	struct err *err;
};

/* `marker`: the value that stands for the array in the parsed document. */
int steps_begin(struct steps_reader *r, struct steps_doc *d, const json_t *marker, const char *path,
		enum steps_kind kind, struct err *err);
/* 1: a step was read, 0: there is no more, -1: err.  Checked here: known members and types, tops best first
 * with ties by lower id (what is NaN aside), no id twice. */
int steps_next(struct steps_reader *r, struct step *s);
/* The same for STEPS_TRACE: one row. */
int steps_next_trace(struct steps_reader *r, struct report_trace *row);
/* Complains about the item read last; what: "expected ..., found ...".  Returns -1. */
int steps_refuse(const struct steps_reader *r, const char *what);

/* Space for n tops that lives until tops_free.  *arena starts as NULL. */
struct top *tops_alloc(void **arena, size_t n);
void tops_free(void **arena);

#endif
