/* Records: what a run found, kept in results/ of a repository, and the docs that are made from it.  docs/formats.md, section 11.
 *
 *   results/<recipe>.json             the verdict, paths relative to the repository
 *   results/history/<recipe>.jsonl    a line of assay/history/1 per recorded run, oldest first
 *   results/bench.jsonl               lines of assay/bench/1
 *   docs/STATUS.md, docs/BENCHMARKS.md and the verdict in README.md are made from these alone */
#ifndef ASSAY_GATES_RECORD_H
#define ASSAY_GATES_RECORD_H

#include "page.h"

/* The nearest directory at or above the current one that holds .git; NULL after err_set.  The caller frees. */
char *record_root(struct err *err);
/* A line of assay/history/1: what a run found and what it was made of.  A new reference. */
json_t *record_summary(const struct findings *f, const char *root);
/* Keeps a run; recorded again, it takes the place of its own record.  Refused: a run of other legs or factors than the recipe
 * has, and one whose recipe cannot name a file. */
int record_keep(const struct findings *f, const char *root, struct err *err);
/* Writes docs/STATUS.md, docs/BENCHMARKS.md, and the verdict that README.md shows. */
int record_docs(const char *root, struct err *err);
/* Their texts; the caller frees.  NULL after err_set. */
char *record_status(const char *root, struct err *err);
char *record_benchmarks(const char *root, struct err *err);
/* README.md with the first screen of the verdict that `<!-- assay show results/NAME.json -->` asks for below that line; NULL:
 * there is no README or no such line, or after err_set. */
char *record_readme(const char *root, struct err *err);
/* Where the recipe of a recorded verdict is: recipes/NAME.yaml beside `results`, whether it is there or not.  The caller frees. */
char *record_recipe(const char *results, const json_t *verdict);
/* The objects of a .jsonl file; an absent file has none.  `schema`: what each must be.  A new reference, NULL after err_set. */
json_t *record_lines(const char *path, const char *schema, struct err *err);

/* What changed between two summaries, a line each, every line after `indent`.  "" if nothing did.  The caller frees. */
char *history_changes(const json_t *before, const json_t *after, const char *indent);

#endif
