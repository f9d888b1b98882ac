/* What an oracle said: assay/golden/1.  docs/formats.md, section 5. */
#ifndef ASSAY_CONTRACT_GOLDEN_H
#define ASSAY_CONTRACT_GOLDEN_H

#include <jansson.h>
#include <stdint.h>
#include "err.h"
#include "file.h"

#define TOP_MAX 20

struct top {
	int32_t id;
	double value;      /* golden: log-probability in nats; report: raw logit */
};

struct golden_step {
	int32_t id;
	int n_top;         /* 0: this step holds the id only */
	struct top *top;   /* borrowed: the golden's arena; best first, ties by lower id */
	bool has_lse;
	double lse;
};

struct golden_row {            /* one prompt of one profile */
	int prompt;            /* index into golden.prompts */
	int n;                 /* ids and steps */
	int32_t *ids;          /* owned */
	char *text;            /* owned; may be NULL */
	struct golden_step *steps;  /* owned [n]; NULL if the profile holds ids only */
};

enum golden_mode { GOLDEN_FREE, GOLDEN_FORCED };

struct golden_profile {
	char *name;
	char *engine, *engine_version;
	json_t *engine_config;      /* owned; may be NULL */
	char *device, *logits_dtype, *captured, *command;   /* owned; may be NULL */
	int repeats;                /* 0: not said */
	int repeats_agree;          /* -1: not said */
	enum golden_mode mode;
	int n_rows;
	struct golden_row *rows;    /* owned */
};

struct golden_prompt {
	char *id;
	char *text;                 /* may be NULL */
	int n;
	int32_t *ids;
};

struct golden_file { char *name; char sha256[SHA256_HEX]; };

struct golden {
	char *name;
	char *model;
	char *model_revision;       /* may be NULL */
	struct golden_file *files;  /* the model's files; none: identity was not recorded */
	int n_files;
	char tokenizer_sha256[SHA256_HEX];  /* "" if not said */
	int64_t max_tokens;         /* -1 if not said */
	int ignore_eos;             /* -1 if not said */
	int n_prompts;
	struct golden_prompt *prompts;
	int n_profiles;
	struct golden_profile *profiles;
	char sha256[SHA256_HEX];    /* of the bytes that were read */
	void *arena;                /* owned: all tops */
};

/* Reads and checks everything that section 5 and the schema promise (ids equal the steps' ids, tops
 * sorted, probabilities sum to at most 1 + 1e-4, the emitted id has the highest listed value, no two
 * prompts or profiles of one name, profiles over known prompts).  {0} is valid to release. */
int golden_load(struct golden *g, const char *path, struct err *err);
int golden_load_bytes(struct golden *g, const char *bytes, size_t size, const char *name, struct err *err);
int golden_save(const struct golden *g, const char *path, struct err *err);
void golden_release(struct golden *g);
int golden_prompt_find(const struct golden *g, const char *id);            /* -1 */
const struct golden_profile *golden_profile_find(const struct golden *g, const char *name);
const struct golden_row *golden_row_find(const struct golden_profile *p, int prompt);

#endif
