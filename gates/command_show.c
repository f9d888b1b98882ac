/* assay show, explain and schema: documents that are there already. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "commands.h"
#include "contract/file.h"
#include "contract/json.h"
#include "contract/schemas.h"
#include "recipe.h"
#include "record.h"
#include "show.h"
#include "suggest.h"

static bool is_directory(const char *path)
{
	struct stat s;

	return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static json_t *load_verdict(const char *path, struct err *err)
{
	char *inside = path_join(path, "verdict.json");
	bool judged = !is_directory(path) || file_exists(inside);

	free(inside);
	if (judged)
		return verdict_load(path, err);
	err_set(err, ERR_INPUT, "%s: holds no verdict.json (assay judge %s)", path, path);
	return NULL;
}

int command_show(int argc, char **argv)
{
	static const struct option options[] = {{"prompts", no_argument, NULL, 'p'}, {"quiet", no_argument, NULL, 'q'}, {0}};
	struct show_options show = {0};
	struct err err = {0};
	struct term term;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return EXIT_USAGE;
		show.prompts |= c == 'p';
		show.quiet |= c == 'q';
	}
	if (argc - optind != 1)
		return command_usage("show", "which run directory or verdict?");
	json_t *verdict = load_verdict(argv[optind], &err);

	if (!verdict)
		return command_fail(&err);
	char *dir = is_directory(argv[optind]) ? xstrdup(argv[optind]) : path_dir(argv[optind]);

	char *recipe = path_join(dir, "recipe.yaml"), *recorded = record_recipe(dir, verdict);

	show.run_dir = file_exists(recipe) ? dir : NULL;
	show.recipe = recorded;
	term_open(&term, stdout);
	show_verdict(&term, verdict, &show);
	free(recipe);
	free(recorded);
	free(dir);
	json_decref(verdict);
	return 0;
}

static json_t *explain_recipe(const char *path, struct err *err)
{
	struct recipe recipe = {0};
	json_t *explained = recipe_load(&recipe, path, err) ? NULL : verdict_explain_recipe(&recipe, err);

	recipe_release(&recipe);
	return explained;
}

/* A run has its verdict; one that was interrupted is judged as far as it came. */
static json_t *explain_run(const char *dir, struct err *err)
{
	char *path = path_join(dir, "verdict.json");
	json_t *verdict = file_exists(path) ? verdict_load(dir, err) : verdict_judge(dir, err);

	free(path);
	return verdict;
}

int command_explain(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	struct err err = {0};
	struct term term;
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return EXIT_USAGE;
		json = true;
	}
	if (argc - optind != 1)
		return command_usage("explain", "which recipe or run directory?");
	json_t *explained = is_directory(argv[optind]) ? explain_run(argv[optind], &err) : explain_recipe(argv[optind], &err);

	if (!explained)
		return command_fail(&err);
	if (json) {
		json_dumpf(explained, stdout, JSON_INDENT(1));
		putchar('\n');
	} else {
		term_open(&term, stdout);
		show_design(&term, explained);
	}
	json_decref(explained);
	return 0;
}

int command_schema(int argc, char **argv)
{
	const char *text;
	char near[200];
	int n = 0;

	while (schema_names[n])
		n++;
	if (argc != 2)
		return command_usage("schema", "which? %s", suggest(near, sizeof(near), "", schema_names, n) + 2);
	text = schema_text(argv[1]);
	if (!text)
		return command_usage("schema", "no schema is named `%s`%s", argv[1], suggest(near, sizeof(near), argv[1], schema_names, n));
	fputs(text, stdout);
	return 0;
}
