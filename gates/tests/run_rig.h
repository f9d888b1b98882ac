/* Drives build/assay as a program with an engine that misbehaves on request (fake_engine.c), each test in a directory of its
 * own.  Paths are named relative to that directory.  Strings returned are the caller's to free. */
#ifndef ASSAY_GATES_TESTS_RUN_RIG_H
#define ASSAY_GATES_TESTS_RUN_RIG_H

#include <check.h>
#include <jansson.h>
#include <sys/types.h>
#include "contract/report.h"

#define CASE "gates/tests/verdicts/strict-pass-equivalent"
#define CONTRACT "{decode_step: {gathers: 0}}"

extern char *assay, *engine, *root, *canned;      /* absolute paths: programs, repository, CASE */
extern char dir[64];
extern struct err err;                            /* cleared before each test */

/* A suite of one test case, which `add` fills.  Returns what main returns. */
int run_rig_main(const char *name, void (*add)(TCase *tc));

/* ---- files ---- */
char *in_dir(const char *name);
char *read_in(const char *name);
bool there(const char *name);
void wait_for_file(const char *name);             /* fails after ten seconds */
void check_holds(const char *name, const char *text);
json_t *load_json(const char *name);

/* ---- recipes ---- */
/* recipe.yaml with these legs (YAML lines) and their contracts. */
void write_recipe(const char *legs, const char *require);
void write_two_good_legs(void);
/* The recipe of a canned case, with the case as model and its golden as golden. */
void write_case_recipe(const char *name);
int expected_code(const char *name);              /* exit code of that case */

/* Seconds for each leg of a run in which one hangs: the others need a tenth of one, and many times that under valgrind. */
#define LEG_LIMIT "5"

/* ---- assay ---- */
/* Starts assay; output in out.txt and err.txt. */
pid_t start_assay(char **argv);
/* `assay run recipe.yaml --engine FAKE WORDS...`; the words end with NULL. */
pid_t start_run(const char *const *words);
int end_run(pid_t pid);                           /* exit code */
#define run_assay(...) end_run(start_run((const char *const[]){__VA_ARGS__, NULL}))
char *run_dir_option(void);                       /* <dir>/run */
int run_here(void);                               /* into <dir>/run */

/* ---- what a leg came to ---- */
struct leg_exit load_exit(const char *leg);
const json_t *leg_verdict(const json_t *verdict, const char *leg);      /* borrowed */
/* `tail`: what a line of the tail holds; NULL: anything. */
void check_exit(const char *leg, int exit_code, const char *signal, bool timed_out, const char *tail);
/* `reason`: what the reason holds; NULL: anything. */
void check_leg(const json_t *verdict, const char *leg, const char *expected, const char *reason);

#endif
