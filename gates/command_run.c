/* assay run and assay judge: the data flow, in order. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "commands.h"
#include "contract/file.h"
#include "contract/json.h"
#include "page.h"
#include "run.h"
#include "show.h"

/* ---- a run directory to a verdict ---- */

static void print_verdict(const json_t *verdict, const char *run_dir, bool json, bool quiet)
{
	struct show_options show = {.run_dir = run_dir, .quiet = quiet};
	struct term term;

	if (json) {
		json_dumpf(verdict, stdout, JSON_INDENT(1));
		putchar('\n');
		return;
	}
	term_open(&term, stdout);
	show_verdict(&term, verdict, &show);
}

/* A run that has begun and not ended can be resumed, until a verdict.json says that it is complete. */
static bool can_be_resumed(const json_t *verdict, const char *path)
{
	const json_t *run = json_object_get(verdict, "run");

	return json_is_string(json_object_get(run, "id")) && !json_is_string(json_object_get(run, "ended")) && !file_exists(path);
}

int command_verdict(const char *run_dir, struct golden *golden, bool json, bool quiet)
{
	struct err err = {0};
	json_t *verdict = verdict_judge_loaded(run_dir, golden, &err);
	char *path = path_join(run_dir, "verdict.json");
	int code;

	if (!verdict) {
		free(path);
		return command_fail(&err);
	}
	code = verdict_exit_code(verdict);
	if (!golden && can_be_resumed(verdict, path))
		fprintf(stderr, "assay: %s: the run was interrupted or is at work; the verdict is not kept\n", run_dir);
	else
		json_write_file(verdict, path, JSON_INDENT(1), &err);
	print_verdict(verdict, run_dir, json, quiet);
	json_decref(verdict);
	free(path);
	return err.kind ? command_fail(&err) : code;
}

/* ---- options ---- */

enum { OPT_OUT = 256, OPT_LEG, OPT_SET, OPT_TIMEOUT, OPT_ENGINE, OPT_JSON, OPT_QUIET, OPT_UNTIL, OPT_GITHUB };

static int parse_timeout(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	if (*end || end == text || !isfinite(*seconds) || *seconds <= 0)
		return command_usage("run", "--timeout %s: expected seconds, more than 0", text);
	return 0;
}

static int add_set(struct overrides *o, const char *text)
{
	struct err err = {0}, bad = {0};

	if (arm_parse(&o->set, text, &err)) {
		err_set(&bad, ERR_INPUT, "--set %s: %s", text, err.text);
		return command_fail(&bad);
	}
	return 0;
}

static void add_leg(struct overrides *o, const char *name)
{
	o->legs = xrealloc(o->legs, (size_t)o->n_legs + 1, sizeof(*o->legs));
	o->legs[o->n_legs++] = xstrdup(name);
}

struct printed { bool json, github; };

/* Fills *o, the overrides, and how the verdict is printed.  0, or an exit code after a message. */
static int parse_run(int argc, char **argv, struct run_options *o, struct overrides *over, struct printed *print)
{
	static const struct option options[] = {
		{"out", required_argument, NULL, OPT_OUT}, {"leg", required_argument, NULL, OPT_LEG},
		{"set", required_argument, NULL, OPT_SET}, {"timeout", required_argument, NULL, OPT_TIMEOUT},
		{"engine", required_argument, NULL, OPT_ENGINE}, {"json", no_argument, NULL, OPT_JSON},
		{"quiet", no_argument, NULL, OPT_QUIET}, {"until-decided", no_argument, NULL, OPT_UNTIL},
		{"github", no_argument, NULL, OPT_GITHUB}, {0},
	};
	int c, failed = 0;

	while (!failed && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case OPT_OUT: o->out = optarg; break;
		case OPT_LEG: add_leg(over, optarg); break;
		case OPT_SET: failed = add_set(over, optarg); break;
		case OPT_TIMEOUT: failed = parse_timeout(optarg, &o->timeout_s); break;
		case OPT_ENGINE: o->engine = optarg; break;
		case OPT_JSON: print->json = true; break;
		case OPT_QUIET: o->quiet = true; break;
		case OPT_UNTIL: o->until_decided = true; break;
		case OPT_GITHUB: print->github = true; break;
		default: failed = EXIT_USAGE;        /* getopt has said why */
		}
	}
	if (!failed && argc - optind != 1)
		failed = command_usage("run", argc == optind ? "which recipe?" : "one recipe, please");
	if (!failed && print->json && print->github)
		failed = command_usage("run", "--json prints the verdict alone: it goes without --github");
	o->recipe = failed ? NULL : argv[optind];
	return failed;
}

/* ---- run ---- */

/* As a shell reads it back. */
static void print_word(const char *word)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=,:+@%";

	if (*word && !word[strspn(word, plain)]) {
		fprintf(stderr, " %s", word);
		return;
	}
	fputs(" '", stderr);
	for (; *word; word++)
		fprintf(stderr, *word == '\'' ? "'\\''" : "%c", *word);
	fputc('\'', stderr);
}

static int end_interrupted(const struct run *r, const struct run_options *o)
{
	fprintf(stderr, "assay: interrupted; the legs that ran are kept. To resume:");
	for (int i = 0; i < o->argc; i++)
		print_word(o->argv[i]);
	if (!o->out) {
		print_word("--out");
		print_word(r->dir);
	}
	fputc('\n', stderr);
	return 128 + r->stopped;
}

/* A file that could not be written: what there is has been judged and shown. */
static int end_troubled(const struct run *r, int code)
{
	return r->trouble.kind ? command_fail(&r->trouble) : code;
}

static int check_until(const struct run *r, const struct run_options *o, struct err *err)
{
	if (!o->until_decided || r->recipe.modes[MODE_FORCED])
		return 0;
	return err_set(err, ERR_INPUT, "--until-decided: %s does not ask mode `forced`: there is no distance to decide by",
		       r->recipe.file);
}

/* After the table, for the log of a CI run.  A run that cannot be judged has said so already. */
static void print_github(const char *run_dir, const char *recipe)
{
	struct findings found = {0};
	struct err ignored = {0};

	if (findings_load(&found, run_dir, &ignored) == 0) {
		char *lines = show_github(&found, recipe);

		fputs(lines, stdout);
		free(lines);
	}
	findings_release(&found);
}

/* As it was typed: assay, run, ...; the strings are argv's. */
static char **keep_argv(int argc, char **argv)
{
	char **words = xcalloc((size_t)argc + 2, sizeof(*words));

	words[0] = "assay";
	words[1] = "run";
	for (int i = 1; i < argc; i++)
		words[i + 1] = argv[i];
	return words;
}

int command_run(int argc, char **argv)
{
	char **words = keep_argv(argc, argv);    /* getopt changes the order */
	struct run_options options = {.argv = words, .argc = argc + 1};
	struct run run = {.lock = -1};
	struct err err = {0};
	struct printed print = {0};
	int code;

	arm_init(&run.overrides.set);
	code = parse_run(argc, argv, &options, &run.overrides, &print);
	if (!code && (run_read(&run, &options, &err) || check_until(&run, &options, &err) || run_find(&run, &options, &err)
		      || run_open(&run, &options, &err)))
		code = command_fail(&err);
	if (!code) {
		(options.until_decided ? run_until_decided : run_legs)(&run, &options);
		if (!run.stopped)
			run_speed(&run, &options);
		if (run.stopped) {
			code = end_interrupted(&run, &options);
		} else {
			run_close(&run, &options);
			code = end_troubled(&run, command_verdict(run.dir, &run.golden, print.json, options.quiet));
			if (print.github)
				print_github(run.dir, options.recipe);
		}
	}
	run_release(&run);
	free(words);
	return code;
}

/* ---- judge ---- */

int command_judge(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, OPT_JSON}, {"quiet", no_argument, NULL, OPT_QUIET}, {0}};
	bool json = false, quiet = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return EXIT_USAGE;
		json |= c == OPT_JSON;
		quiet |= c == OPT_QUIET;
	}
	if (argc - optind != 1)
		return command_usage("judge", "which run directory?");
	return command_verdict(argv[optind], NULL, json, quiet);
}
