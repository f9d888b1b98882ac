/* A progress bar over legs, prompts and steps, on stderr and only on a terminal; else a line per leg.
 *
 * It reads the ARM lines that the engine's --trace writes to the leg's stderr file: a token comes back for every
 * sequence that was decoded or prefilled. */
#ifndef ASSAY_GATES_PROGRESS_H
#define ASSAY_GATES_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool bar, lines;             /* a bar; a line per leg */
	int leg, n_legs;
	const char *name;            /* borrowed: the leg that runs */
	const char *path;            /* borrowed: its stderr file */
	const char *const *prompts;  /* borrowed [n_prompts]: their ids */
	const int *planned;          /* borrowed [n_prompts]: tokens of each, per mode */
	int n_prompts, n_modes;
	const char *modes[2];

	int64_t offset;              /* bytes of the file that were read */
	char part[512]; int n_part;  /* a line that is not complete */
	int64_t per_leg, done;       /* tokens of one leg; of this leg */
	double begun, leg_begun;     /* seconds, monotonic */
	int legs_run;                /* that really ran, for the estimate */
};

void progress_open(struct progress *p, int n_legs, bool quiet);
void progress_leg(struct progress *p, int leg, const char *name, const char *path);
void progress_tick(void *progress);                          /* for proc.tick */
void progress_leg_done(struct progress *p, const char *how); /* "done", "exit code 1", "killed by SIGKILL" */
void progress_kept(struct progress *p, const char *name);    /* a leg that an earlier run did */
void progress_close(struct progress *p);

/* Tokens that a line of the trace tells of; 0 if it is none. */
int progress_line_tokens(const char *line);
/* The bar itself, as wide as `width` allows: "on 1/4 [####      ] 38 % forced p3 12/32, 14 s left".  Returns buf. */
const char *progress_text(const struct progress *p, double now, int width, char *buf, int size);

#endif
