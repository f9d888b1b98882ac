/* The judge: a run directory in, a verdict out.  docs/judging.md; contract/schemas/verdict.schema.json.
 *
 * A run directory holds recipe.yaml, golden.json, legs/<leg>.json, legs/<leg>.exit.json, and maybe
 * overrides.json, run.json {id, started, ended, argv} and tokenizer.json; nothing else is needed, no model and no engine.
 * Everything that prints (show_terminal.c, show_html.c, show_junit.c, show_markdown.c, bench.c) reads the
 * verdict document and the run directory; nothing is computed twice. */
#ifndef ASSAY_GATES_VERDICT_H
#define ASSAY_GATES_VERDICT_H

#include <jansson.h>
#include "contract/err.h"

/* Judges again from the stored files.  A new reference to a document of assay/verdict/1, or NULL after
 * err_set (the recipe or golden of the run cannot be read; a leg's report that cannot is that leg's ERROR). */
json_t *verdict_judge(const char *run_dir, struct err *err);
/* The same for a run whose golden.json has just been written from `golden`, so that it is not read twice.  Moved: {0} afterwards. */
struct golden;
json_t *verdict_judge_loaded(const char *run_dir, struct golden *golden, struct err *err);
int verdict_exit_code(const json_t *verdict);
/* Reads and checks the outline of a verdict: RUN_DIR (its verdict.json) or a file. */
json_t *verdict_load(const char *path, struct err *err);

/* What can be said of a recipe before anything runs: the design part of a verdict ("design", "claims" that could be
 * supported: status supportable or refused; "next_legs") with minutes null, and "tokens_per_leg", what a leg costs (null
 * where the recipe asks for all prompts).  New reference. */
struct recipe;
json_t *verdict_explain_recipe(const struct recipe *r, struct err *err);

#endif
