/* What the subcommands of assay-engine share: errors, exit codes, options. */
#ifndef ASSAY_ENGINE_CLI_H
#define ASSAY_ENGINE_CLI_H

#include "contract/arm.h"
#include "contract/err.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_CANNOT_RUN = 77 };

/* Prints "assay-engine: MESSAGE" to stderr and returns the exit code of its kind. */
int cli_fail(const struct err *err);
/* The same for a wrong command line, with a hint at --help; returns EXIT_USAGE. */
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Long options "--name value", "--name=value" and flags, and -h. */
struct cli_option {
	const char *name;            /* without the dashes; NULL ends a table */
	bool takes_value;
	const char *value;           /* of the last occurrence; borrowed from argv */
	bool given;
	/* Called for each occurrence if set; -1 after err_set. */
	int (*each)(const char *value, void *ud, struct err *err);
	void *ud;
};

/* Returns the number of operands, which are moved to the front of `operands` (room for argc), or -1 after err_set.
 * argv[0] is the command.  "--" ends the options. */
int cli_parse(struct cli_option *options, char **operands, int argc, char **argv, struct err *err);
/* A whole number of at least `min`; `name` is what the message calls it. */
int cli_number(int *out, const char *name, const char *text, int min, struct err *err);

/* --arm and --at, as cli_option.each; ud is a struct arm / struct arm_at_list. */
int cli_arm(const char *value, void *ud, struct err *err);
int cli_at(const char *value, void *ud, struct err *err);
/* Refuses a factor that the command would not heed; `instead` says what it does. */
int cli_run_only(const struct arm *arm, enum factor f, const char *instead, struct err *err);

#endif
