/* assay capture: oracles run by a YAML list of configurations; each profile a file of its own, merged into a golden at the end.
 * docs/formats.md, section 12; docs/foreign-engines.md. */
#ifndef ASSAY_GATES_CAPTURE_H
#define ASSAY_GATES_CAPTURE_H

#include "contract/golden.h"
#include "contract/report.h"
#include "yaml.h"

enum capture_program { CAPTURE_TRANSFORMERS, CAPTURE_VLLM, CAPTURE_OPENAI, CAPTURE_ARGV, N_CAPTURE_PROGRAMS };

struct capture_profile {
	char *name;
	enum capture_program program;
	char *mode;                          /* owned; "free", "forced", and of vllm "single", "batch" */
	char **args; int n_args;             /* owned; of the program, or the words of argv */
	char *url, *model, *key_env;         /* owned; openai; key_env may be NULL */
	bool text;                           /* openai: prompts go as texts */
};

struct capture {
	char *file;                          /* owned; in messages */
	char *name, *model, *prompts, *golden, *python, *tokens;   /* owned; as written */
	struct mark model_at, prompts_at, tokens_at;
	int repeats;
	double timeout_s;
	struct capture_profile *profiles; int n_profiles;   /* owned */
	struct yaml yaml;                    /* owned */
};

/* Every message is "FILE:LINE:COLUMN: what".  capture_release in any case. */
int capture_load_bytes(struct capture *c, const char *bytes, size_t size, const char *name, struct err *err);
void capture_release(struct capture *c);
const char *capture_program_name(enum capture_program p);

/* What two or more runs of an engine reported, as a profile; *agree: they are equal.  capture_report.c.  A new reference, NULL after
 * err_set. */
json_t *capture_profile_of(const struct report *runs, int n, enum mode mode, const char *name, const char *command, bool *agree,
			   struct err *err);

#endif
