/* assay: reads a recipe, runs its legs as child processes, judges what they left. */
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "commands.h"
#include "contract/version.h"
#include "golden_tool.h"
#include "selftest.h"
#include "suggest.h"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage;                       /* after the name */
	const char *says;
	const char *more;                        /* options and notes; NULL: the command has its own help */
};

static const struct command commands[] = {
	{"run", command_run, "RECIPE [--out DIR] [--leg NAME]... [--set FACTOR=VALUE]... [options]",
	 "run a recipe's legs, judge them, print the verdict",
	 "  --out DIR             the run directory (default: build/runs/<recipe>-<UTC time>); an interrupted run in it is\n"
	 "                        resumed, a complete one is never overwritten\n"
	 "  --leg NAME            run this leg alone (may be repeated); the verdict says so\n"
	 "  --set FACTOR=VALUE    change a factor of every leg (may be repeated); the verdict says so\n"
	 "  --until-decided       a few prompts at a time in a shuffled order, until more would not change what is known of\n"
	 "                        every leg's distance; the verdict says so\n"
	 "  --timeout S           seconds per leg, instead of the recipe's\n"
	 "  --engine FILE         instead of the assay-engine beside this program\n"
	 "  --json                print the verdict document alone\n"
	 "  --quiet               no progress; a line per leg, the verdict, and why a leg proved nothing\n"
	 "  --github              after it, annotations for a GitHub workflow\n"
	 "\n"
	 "Exit codes: 0 STRICT PASS or DECIDED, 1 DIVERGENCE, 2 ERROR, 3 VOID, 4 SHORT, NOT MEASURED or UNDECIDED,\n"
	 "130 or 143 interrupted (the legs that ran are kept; the same command with --out resumes).\n"},
	{"judge", command_judge, "RUN_DIR [--json] [--quiet]", "judge again from the stored reports; nothing is run",
	 "  --json                print the verdict document alone\n"
	 "  --quiet               a line per leg, the verdict, and why a leg proved nothing\n"},
	{"explain", command_explain, "RECIPE|RUN_DIR [--json]",
	 "the design: which factor each pair of legs separates, what is aliased, the next leg",
	 "  --json                print it as JSON\n"},
	{"show", command_show, "RUN_DIR|VERDICT [--prompts] [--quiet]", "the terminal table again",
	 "  --prompts             also every prompt's row of every leg, with ids and texts\n"
	 "  --quiet               a line per leg, the verdict, and why a leg proved nothing\n"},
	{"report", command_report, "RUN_DIR [--html FILE] [--junit FILE] [--markdown FILE] [--bench FILE]", "the verdict for other readers",
	 "  --html FILE           one self-contained page\n"
	 "  --junit FILE          JUnit XML: a suite per leg, a case per prompt and contract line\n"
	 "  --markdown FILE       a summary for a pull request, under 60 lines\n"
	 "  --bench FILE          the array that github-action-benchmark reads (customSmallerIsBetter)\n"
	 "  --chart-js FILE       the Chart.js to embed, instead of Debian's; '' embeds none: tables stand for charts\n"
	 "\n"
	 "FILE - is standard output.  A discriminate recipe's DIVERGENCE is data: in JUnit its prompts pass.\n"},
	{"record", command_record, "RUN_DIR [--root DIR] | --docs [--root DIR]",
	 "copy the verdict to results/, append the benchmark record, regenerate docs tables",
	 "  --docs                only write docs/STATUS.md and docs/BENCHMARKS.md again, from the records\n"
	 "  --root DIR            the repository (default: the nearest at or above this directory)\n"},
	{"history", command_history, "RECIPE [--root DIR]", "what changed between recorded verdicts",
	 "  --root DIR            the repository (default: the nearest at or above this directory)\n"},
	{"compare", command_compare, "RUN_DIR RUN_DIR", "two runs side by side, and what differs between them", ""},
	{"openai", command_openai, "--url URL --model NAME [--text] [--key-env VARIABLE] [--timeout S] [--report FILE]",
	 "put a request (stdin) to a completions server; its answers become a report",
	 "  --url URL             the protocol's root, as http://127.0.0.1:8080/v1\n"
	 "  --model NAME          as the server names it\n"
	 "  --text                send prompts as texts, not as ids\n"
	 "  --key-env VARIABLE    the environment variable that holds the server's key\n"
	 "  --timeout S           seconds for one answer (120)\n"
	 "  --report FILE         instead of stdout\n"
	 "\n"
	 "Legs with `engine: {openai: URL, model: NAME}` run this. docs/foreign-engines.md\n"},
	{"capture", command_capture, "RECIPE [--golden FILE] [--python PROGRAM]", "run oracles, write golden profiles",
	 "  --golden FILE         instead of the recipe's; the parts are kept in FILE.parts, and the same command resumes\n"
	 "  --python PROGRAM      instead of the recipe's `python`, for transformers and vllm\n"
	 "\n"
	 "Exit codes: 0 captured, 1 a profile could not be captured or its runs differ, 2 usage or an invalid recipe.\n"
	 "docs/formats.md, section 12; docs/foreign-engines.md\n"},
	{"golden", golden_main, "check|show|diff|import FILE...", "look at goldens", NULL},
	{"selftest", selftest_main, "[--fault NAME] [options]", "planted faults, and which instrument catches each", NULL},
	{"doctor", command_doctor, "[--engine FILE]", "what this machine can run", ""},
	{"schema", command_schema, "NAME", "print the JSON Schema of recipe, golden, report, verdict, bench or capture", ""},
};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct command *find_command(const char *name)
{
	for (int i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int print_help(void)
{
	printf("assay: differential testing and golden-token gates for NemotronH models\n\n"
	       "usage: assay COMMAND ...\n\n");
	for (int i = 0; i < N_COMMANDS; i++)
		printf("  %-9s %s\n", commands[i].name, commands[i].says);
	printf("\nassay COMMAND --help says more; assay --version names the build.\n"
	       "Results go to stdout, progress and errors to stderr.\n");
	return 0;
}

static int print_version(void)
{
	printf("assay %s\ngit %s%s\nflags %s\n", assay_version, assay_git, assay_dirty == 1 ? " (modified)" : "", assay_flags);
	return 0;
}

static int unknown_command(const char *name)
{
	const char *known[N_COMMANDS];
	char near[400];

	for (int i = 0; i < N_COMMANDS; i++)
		known[i] = commands[i].name;
	fprintf(stderr, "assay: no command is named `%s`%s\n", name, suggest(near, sizeof(near), name, known, N_COMMANDS));
	return EXIT_USAGE;
}

int command_help(const char *name)
{
	const struct command *c = find_command(name);

	if (!c)
		return unknown_command(name);
	printf("usage: assay %s %s\n\n%s\n", c->name, c->usage, c->says);
	if (*c->more)
		printf("\n%s", c->more);
	return 0;
}

int command_fail(const struct err *err)
{
	fprintf(stderr, "assay: %s\n", err->text);
	return EXIT_USAGE;
}

int command_usage(const char *name, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "assay %s: ", name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (assay %s --help)\n", name);
	return EXIT_USAGE;
}

static bool is_help(const char *word)
{
	return strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0;
}

/* A child's files must never land on 0, 1 or 2. */
static void fill_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

int main(int argc, char **argv)
{
	fill_standard_streams();
	setlocale(LC_CTYPE, "");
	if (argc < 2) {
		fprintf(stderr, "usage: assay COMMAND ... (assay --help)\n");
		return EXIT_USAGE;
	}
	if (is_help(argv[1]) || strcmp(argv[1], "help") == 0)
		return print_help();
	if (strcmp(argv[1], "--version") == 0)
		return print_version();
	const struct command *c = find_command(argv[1]);

	if (!c)
		return unknown_command(argv[1]);
	if (argc > 2 && is_help(argv[2]) && c->more)
		return command_help(c->name);
	char title[32];

	/* getopt names the program by it */
	snprintf(title, sizeof(title), "assay %s", c->name);
	argv[1] = title;
	int code = c->run(argc - 1, argv + 1);

	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "assay: standard output cannot be written\n");
		return EXIT_USAGE;
	}
	return code;
}
