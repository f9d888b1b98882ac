/* assay openai: a request (assay/request/1) put to a completions server, its answers as a report (assay/report/1).
 * docs/foreign-engines.md; docs/formats.md, sections 6 and 9. */
#ifndef ASSAY_GATES_ASK_H
#define ASSAY_GATES_ASK_H

#include "contract/report.h"
#include "openai.h"

struct ask_prompt {
	char *id, *text;             /* owned; text may be NULL */
	int32_t *ids, *given;        /* owned; given NULL: nothing is expected of it */
	int n, wanted;               /* wanted: tokens */
};

struct ask {                         /* a request that was read */
	char *leg, *model;           /* owned */
	char golden_sha256[SHA256_HEX];
	struct arm requested;
	struct arm_at_list at;       /* owned */
	bool modes[N_MODES];
	int steps;
	struct ask_prompt *prompts; int n_prompts;   /* owned */
};

int ask_load_bytes(struct ask *a, const char *bytes, size_t size, const char *name, struct err *err);
void ask_release(struct ask *a);     /* {0} is valid */

/* Puts every prompt to the server, in order, and fills a report.  text: prompts go as texts, which leaves mode forced out.
 * report_release in any case. */
int ask_server(struct report *r, const struct ask *a, struct openai *o, bool text, struct err *err);

#endif
