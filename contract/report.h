/* What a leg did: assay/report/1 and assay/exit/1.  docs/formats.md, section 6. */
#ifndef ASSAY_CONTRACT_REPORT_H
#define ASSAY_CONTRACT_REPORT_H

#include <stdint.h>
#include "arm.h"
#include "counters.h"
#include "golden.h"

enum mode { MODE_FREE, MODE_FORCED, N_MODES };
const char *mode_name(enum mode m);

struct report_step {
	int32_t id;
	double margin, lse;          /* NaN-able; valid if has_logits */
	int n_top;
	struct top *top;             /* borrowed: the report's arena; raw logits, best first */
	bool has_logits;             /* margin, lse and top are there */
	bool has_given;              /* forced mode */
	int32_t given;
	double given_logit;
	int given_rank;              /* from 1 */
	bool has_hash;
	uint64_t logits_xxh64;       /* XXH64, seed 0, of the row as little-endian fp32 (f64 under compute: f64) */
};

struct report_row {                  /* one prompt */
	char *id;
	int n_prompt, n;
	int32_t *prompt_ids, *ids;
	char *text;                  /* may be NULL */
	double wall_s;               /* < 0: not said */
	struct report_step *steps;   /* [n]; NULL: the engine gives no logits */
};

struct report_trace { int64_t step, T, nd, np; struct counters counters; };

struct report_mode {
	bool present;
	int n_rows;
	struct report_row *rows;
	struct counters total;       /* COUNTER_ABSENT where missing */
	int n_trace;
	struct report_trace *trace;
};

struct report_cell { char *name; char *value; };    /* feature cells; model files with their sha256 */

struct report {
	char *leg;
	struct arm requested, effective;
	struct arm_at_list requested_at, effective_at;
	struct { char *name, *version, *git, *flags; int dirty /* -1: null */; char binary_sha256[SHA256_HEX]; /* "": null */
		 struct report_cell *features; int n_features; } engine;
	struct { char *name, *cpu, *kernel, *gpu, *arch, *driver, *cuda; int64_t cores, memory; /* -1: null */ } host;
	struct { char *name; struct report_cell *files; int n_files; json_t *config;
		 int mamba, attn, moe, mlp, layers; } model;
	char golden_sha256[SHA256_HEX];     /* "": prompts alone */
	struct report_mode modes[N_MODES];
	struct { bool present; double load_s, prefill_s, decode_s, verify_s /* < 0: not said */;
		 double p50, p90, p99; int64_t n; } timing;
	json_t *busy;                       /* owned; NULL: null */
	int64_t peak_rss_bytes, peak_device_bytes;   /* -1: null */
	struct { bool present, agrees; char *source; char **mismatches; int n_mismatches; json_t *kernels; } audit;
	void *arena;                        /* owned: all tops */
};

/* Reads and checks everything that section 6 and the schema promise (a step for each id, tops sorted, margin,
 * lse and top together, `given` in mode forced only), and that it does not contradict itself (report_check.h).  Whether ids
 * are the argmax, and whether logits are finite, is for the judge to find.  {0} is valid to release. */
int report_load(struct report *r, const char *path, struct err *err);
int report_load_bytes(struct report *r, const char *bytes, size_t size, const char *name, struct err *err);
/* Logits with 9 significant digits, which a float survives; 17 where effective compute is f64. */
int report_save(const struct report *r, const char *path, struct err *err);
void report_release(struct report *r);
const struct report_row *report_row_find(const struct report_mode *m, const char *prompt);
/* Space for n tops that lives as long as the report. */
struct top *report_tops(struct report *r, size_t n);

#define EXIT_TAIL 20
struct leg_exit {                            /* how a leg's process ended */
	char *leg;
	char **argv; int argc;
	char started[40], ended[40];         /* ISO 8601 UTC; ended "" : null */
	int exit_code;                       /* -1: null */
	char signal[24];                     /* "SIGKILL"; "": null */
	bool timed_out;
	char *tail[EXIT_TAIL]; int n_tail;   /* last lines of stderr */
};
int leg_exit_load(struct leg_exit *e, const char *path, struct err *err);
int leg_exit_save(const struct leg_exit *e, const char *path, struct err *err);
void leg_exit_release(struct leg_exit *e);

#endif
