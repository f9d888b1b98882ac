/* assay-engine: runs one leg, and a few commands for people. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench.h"
#include "cli.h"
#include "contract/version.h"
#include "faults.h"
#include "host.h"
#include "info.h"
#include "run.h"
#include "text.h"

static const struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *says;
} commands[] = {
	{ "run", run_main, "run one leg of a recipe and leave a report" },
	{ "generate", generate_main, "continue a text" },
	{ "bench", bench_main, "measure prefill and decode" },
	{ "info", info_main, "what a checkpoint holds" },
	{ "tokenize", tokenize_main, "text to ids" },
	{ "detokenize", detokenize_main, "ids to text" },
	{ "arms", arms_main, "the factors, their values and defaults" },
};

enum { N_COMMANDS = sizeof(commands) / sizeof(*commands) };

static void print_help(void)
{
	printf("usage: assay-engine COMMAND [ARGUMENTS]\n\nNemotronH inference, one arm at a time.\n\n");
	for (int i = 0; i < N_COMMANDS; i++)
		printf("  %-12s%s\n", commands[i].name, commands[i].says);
	printf("\n`assay-engine COMMAND --help` says more; `assay-engine --version` prints the build.\n");
}

static void print_version(void)
{
	int n;
	struct report_cell *cells = host_features(&n);

	printf("assay-engine %s\ngit %s%s\nflags %s\n", assay_version, assay_git, assay_dirty > 0 ? " (modified)" : "",
	       assay_flags);
	for (int i = 0; i < n; i++) {
		printf("feature %s: %s\n", cells[i].name, cells[i].value);
		free(cells[i].name);
		free(cells[i].value);
	}
	free(cells);
}

int main(int argc, char **argv)
{
	int status = -1;

#ifdef ASSAY_FAULTS
	status = fault_option(&argc, &argv);
	if (status >= 0)
		return status;
#endif
	if (argc < 2)
		return cli_usage("", "a command is needed");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help();
		status = EXIT_DONE;
	} else if (strcmp(argv[1], "--version") == 0) {
		print_version();
		status = EXIT_DONE;
	}
	for (int i = 0; i < N_COMMANDS && status < 0; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			status = commands[i].main(argc - 1, argv + 1);
	if (status < 0)
		return cli_usage("", "unknown command %s", argv[1]);
	/* A full disk or a closed pipe must not look like success. */
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "assay-engine: cannot write to standard output\n");
		return status ? status : EXIT_FAILED;
	}
	return status;
}
