/* assay golden check|show|diff|import: looking at goldens.  docs/judging.md, "Goldens". */
#ifndef ASSAY_GATES_GOLDEN_TOOL_H
#define ASSAY_GATES_GOLDEN_TOOL_H

#include <stdio.h>
#include "contract/golden.h"

/* argv[1] is the verb.  0: as it should be; 1: something is wrong with a golden, or two differ; 2: usage, or a file that
 * cannot be read.  Findings go to stdout, complaints to stderr. */
int golden_main(int argc, char **argv);

/* The verbs, on goldens that were read. */

/* Prints what the golden holds, its limits and its contradictions.  model_dir: compare the files and the vocabulary with
 * those of a model directory; engine: its sha256 with what the profiles name; NULL: not.  0, 1 if something is wrong, -1 after err_set. */
int golden_check(FILE *out, const struct golden *g, const char *file, const char *model_dir, const char *engine, struct err *err);
/* Margins, the five tightest positions, and where each profile forks from `base`; texts if `tokenizer` is not NULL. */
struct tokenizer;
void golden_show(FILE *out, const struct golden *g, const struct golden_profile *base, const struct tokenizer *tokenizer);
/* 0: the same model, prompts and profiles; 1: not. */
int golden_diff(FILE *out, const struct golden *a, const struct golden *b);
/* The same for one profile of each, whatever their names. */
int golden_diff_profiles(FILE *out, const struct golden *a, const struct golden *b, const struct golden_profile *p,
			 const struct golden_profile *q);
/* The older form of formats.md section 5, {vllm, transformers, flashinfer, model, revision, sampling, golden[]}. */
int golden_import(struct golden *g, const char *path, struct err *err);

/* The profile of that name, or the first; NULL name: `base`. */
const struct golden_profile *golden_expectation(const struct golden *g, const char *name);

/* "1" where a profile was captured one sequence at a time, 2 where several were together, 0 where it does not say. */
int profile_batch(const struct golden_profile *p);

#endif
