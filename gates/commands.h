/* The subcommands of `assay`: argv[0] is "assay NAME", for messages; the result is the exit code of
 * docs/formats.md, section 1. */
#ifndef ASSAY_GATES_COMMANDS_H
#define ASSAY_GATES_COMMANDS_H

#include <stdbool.h>
#include "contract/err.h"
#include "verdict.h"

#define EXIT_USAGE 2

int command_run(int argc, char **argv);          /* run.c does the work; command_run.c */
int command_judge(int argc, char **argv);
int command_explain(int argc, char **argv);      /* command_show.c */
int command_show(int argc, char **argv);
int command_doctor(int argc, char **argv);       /* doctor.c */
int command_schema(int argc, char **argv);       /* command_show.c */
int command_report(int argc, char **argv);       /* command_report.c */
int command_openai(int argc, char **argv);       /* ask.c */
int command_capture(int argc, char **argv);      /* capture.c */
int command_record(int argc, char **argv);       /* command_record.c */
int command_history(int argc, char **argv);      /* command_record.c */
int command_compare(int argc, char **argv);      /* compare.c */

/* "assay: TEXT" on stderr; always EXIT_USAGE. */
int command_fail(const struct err *err);
/* "assay NAME: what is wrong" and where help is; always EXIT_USAGE. */
int command_usage(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the help of a subcommand to stdout; always 0. */
int command_help(const char *name);

/* Judges a run directory, writes its verdict.json, and prints it: the table, its first lines (quiet), or the
 * document (json).  The exit code; what could not be written makes it 2, and the verdict is printed all the same. */
int command_verdict(const char *run_dir, struct golden *golden /* as verdict_judge_loaded; NULL */, bool json, bool quiet);

#endif
