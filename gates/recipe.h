/* A recipe: which legs to run, what each must prove, which hypotheses are tested.
 * docs/formats.md, section 4; contract/schemas/recipe.schema.json. */
#ifndef ASSAY_GATES_RECIPE_H
#define ASSAY_GATES_RECIPE_H

#include "contract/arm.h"
#include "contract/counters.h"
#include "contract/report.h"
#include "yaml.h"

enum recipe_kind { RECIPE_GATE, RECIPE_DISCRIMINATE };

enum scope { SCOPE_DECODE_STEP, SCOPE_PREFILL_STEP, SCOPE_TOTAL, N_SCOPES };
const char *scope_name(enum scope s);

/* What a counter must be: an integer, [N*]blocks[*nd|*T], ">N" or ">=N". */
enum want_op { WANT_EQUAL, WANT_GREATER, WANT_AT_LEAST };
enum want_blocks { WANT_NUMBER, WANT_MAMBA, WANT_ATTN, WANT_MOE, WANT_MLP, WANT_LAYERS };
enum want_rows { WANT_ONCE, WANT_ND, WANT_T };
struct want {
	enum scope scope;
	enum counter counter;
	enum want_op op;
	int64_t n;                   /* the number, or the factor before the blocks */
	enum want_blocks blocks;
	enum want_rows rows;
	char *text;                  /* owned; as written */
	bool is_int;                 /* written as an integer: verdict.contract.want is one too */
};

struct contract { struct want *wants; int n; };   /* in the order of the recipe */

enum engine_kind { ENGINE_BUILT, ENGINE_ARGV, ENGINE_OPENAI };

struct recipe_leg {
	char *name;
	struct arm own;                      /* as written in the leg */
	struct arm_at_list own_at;
	struct arm arm;                      /* base, then own; what is requested of the engine */
	struct arm_at_list at;
	enum engine_kind engine;
	char **argv; int argc;               /* ENGINE_ARGV; owned */
	char *url, *url_model;               /* ENGINE_OPENAI; owned */
	char *url_key_env;                   /* the environment variable that holds the key; owned; NULL: none */
	bool url_text;                       /* prompts go as texts, not as ids */
	bool audit;                          /* --audit: the report must hold the device's own record */
	char *host;                          /* launcher target; NULL: here */
	struct contract contract;            /* `require` of this leg, without `all` */
};

enum prediction { PREDICT_PASS, PREDICT_DIVERGE, PREDICT_CLEAN, PREDICT_EXCESS };
struct predict {
	char *text;                          /* owned; "host" or "host+mamba.proj=w8a8" */
	int leg;                             /* index of the leg (before the +) */
	int factor, value;                   /* of the change; factor -1: the leg itself */
	enum prediction says;
};
struct hypothesis { char *name, *says; struct predict *predicts; int n; };

struct recipe_claim { char *name, *says, *about; int *legs; int n_legs; };

struct speed_pair { int a, b; };       /* legs; gates/speed.h */

struct recipe_pin { char *file; char sha256[SHA256_HEX]; };

struct recipe {
	char *name, *question;               /* question may be NULL */
	enum recipe_kind kind;
	char *model, *golden;                /* as written */
	char *profile;                       /* "base" */
	char **prompts; int n_prompts;       /* n 0: all */
	int *steps; int n_steps;             /* as written */
	int max_steps;                       /* the longest */
	bool modes[N_MODES];
	double timeout_s;
	struct arm base; struct arm_at_list base_at;
	struct recipe_leg *legs; int n_legs;
	struct contract all;
	struct report_cell *features; int n_features;
	struct recipe_pin *pins; int n_pins; /* sha256.model */
	char pin_golden[SHA256_HEX], pin_engine[SHA256_HEX];   /* "": not pinned */
	struct hypothesis *hypotheses; int n_hypotheses;
	struct recipe_claim *claims; int n_claims;
	struct speed_pair *speed; int n_speed, speed_runs;
	double limit; char *limit_why;       /* 2, NULL */
	char sha256[SHA256_HEX];             /* of the bytes that were read */

	/* Where it was written, for complaints that need the golden or the model. */
	char *file;
	struct { struct mark model, golden, profile, steps, *prompts /* owned [n_prompts] */; } place;
};

/* Every message is "FILE:LINE:COLUMN: what".  {0} is valid to release. */
int recipe_load(struct recipe *r, const char *path, struct err *err);
int recipe_load_bytes(struct recipe *r, const char *bytes, size_t size, const char *name, struct err *err);
void recipe_release(struct recipe *r);
int recipe_leg_find(const struct recipe *r, const char *name);   /* -1 */
/* "FILE:LINE:COLUMN: ..." as ERR_INPUT; always -1. */
int recipe_error(const struct recipe *r, struct mark at, struct err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void recipe_drop_legs(struct recipe *r, int kept);   /* frees the legs from `kept` on */
/* Two legs that differ in nothing (factors with their defaults, engine, host): their indices, or false. */
bool recipe_same_legs(const struct recipe *r, int *first, int *second);

/* <run>/overrides.json: {"set": {factor: value}, "legs": [name], "prompts": [id]}.  --set goes over every leg's arm, --leg
 * leaves the other legs out (with what names them in require; predictions about legs that were left out test nothing).
 * `prompts` are those that ran before --until-decided stopped; they replace the recipe's. */
struct overrides { struct arm set; char **legs; int n_legs; char **prompts; int n_prompts; };
int overrides_load(struct overrides *o, const char *path, struct err *err);   /* an absent file: none */
int overrides_save(const struct overrides *o, const char *path, struct err *err);
void overrides_release(struct overrides *o);
int recipe_override(struct recipe *r, const struct overrides *o, struct err *err);

#endif
