#include "text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "prompts.h"
#include "session.h"

static const char generate_help[] =
"usage: assay-engine generate --model DIR [--arm K=V[,K=V]]... [--at LAYERS:K=V]... [--max-new N] TEXT\n"
"\n"
"Continues TEXT greedily and prints the continuation as it is made; stops at an end-of-sequence token or after\n"
"N tokens (default 64).\n";

static const char tokenize_help[] =
"usage: assay-engine tokenize DIR TEXT\n"
"\n"
"Prints the ids of TEXT under the tokenizer of the checkpoint in DIR, separated by spaces.\n";

static const char detokenize_help[] =
"usage: assay-engine detokenize DIR ID...\n"
"\n"
"Prints the text of the ids.\n";

static const char arms_help[] =
"usage: assay-engine arms\n"
"\n"
"Lists every factor of an arm with its values and meaning; * marks the default.\n";

/* ---- tokenize and detokenize ---- */

static struct tokenizer *open_tokenizer(const char *dir, struct err *err)
{
	struct model m = { .dir = (char *)dir };

	return prompts_tokenizer(&m, err);
}

/* Operands of a command that has no options but --help: their count, or -1 after printing help or an error
 * (*status is then the exit code). */
static int operands_of(char ***operands, int *status, const char *command, const char *help, int argc, char **argv)
{
	struct cli_option options[] = { { .name = "help" }, { 0 } };
	struct err err = {0};
	int n;

	*operands = xcalloc(argc, sizeof(**operands));
	n = cli_parse(options, *operands, argc, argv, &err);
	*status = EXIT_DONE;
	if (options[0].given)
		fputs(help, stdout);
	else if (n < 0)
		*status = cli_usage(command, "%s", err.text);
	else
		return n;
	return -1;
}

int tokenize_main(int argc, char **argv)
{
	struct err err = {0};
	struct tokenizer *t = NULL;
	int32_t *ids = NULL;
	char **operands;
	int status, n = operands_of(&operands, &status, "tokenize", tokenize_help, argc, argv), count = -1;

	if (n >= 0 && n != 2)
		status = cli_usage("tokenize", "expected DIR and TEXT");
	if (n == 2) {
		t = open_tokenizer(operands[0], &err);
		if (t)
			count = tokenizer_encode(t, &ids, operands[1], strlen(operands[1]), true, &err);
		for (int i = 0; i < count; i++)
			printf("%d%s", ids[i], i + 1 < count ? " " : "");
		if (count >= 0)
			putchar('\n');
		else
			status = cli_fail(&err);
	}
	free(ids);
	if (t)
		tokenizer_free(t);
	free(operands);
	return status;
}

int detokenize_main(int argc, char **argv)
{
	struct err err = {0};
	struct tokenizer *t = NULL;
	char **operands, *text = NULL;
	int status, n = operands_of(&operands, &status, "detokenize", detokenize_help, argc, argv), bad = 0;
	int32_t *ids = xcalloc(argc, sizeof(*ids));
	size_t size;

	if (n == 0)
		status = cli_usage("detokenize", "expected DIR and ids");
	for (int i = 1; i < n && !bad; i++)
		bad = cli_number(&ids[i - 1], "ID", operands[i], 0, &err);
	if (bad)
		status = cli_usage("detokenize", "%s", err.text);
	if (n >= 1 && !bad) {
		t = open_tokenizer(operands[0], &err);
		text = t ? tokenizer_decode(t, ids, n - 1, false, &size, &err) : NULL;
		if (text)
			fwrite(text, 1, size, stdout);
		else
			status = cli_fail(&err);
	}
	free(text);
	free(ids);
	if (t)
		tokenizer_free(t);
	free(operands);
	return status;
}

/* ---- arms ---- */

static void print_choice(enum factor f)
{
	int first, n;

	factor_values(f, &first, &n);
	for (int v = first; v < first + n; v++)
		printf("    %-9s%s %s\n", factor_value_name(v), factor_default(f) == v ? "*" : " ", factor_value_says(v));
}

int arms_main(int argc, char **argv)
{
	char **operands;
	int status, n = operands_of(&operands, &status, "arms", arms_help, argc, argv);

	free(operands);
	if (n > 0)
		return cli_usage("arms", "expected no arguments");
	for (enum factor f = 0; f < N_FACTORS && n == 0; f++) {
		printf("%s: %s%s%s\n", factor_name(f), factor_says(f), factor_per_layer(f) ? " (per layer)" : "",
		       factor_default(f) == ARM_UNSET ? "; the default depends on checkpoint, backend or machine" : "");
		if (factor_is_number(f))
			printf("    a whole number%s\n", factor_default(f) == ARM_UNSET ? "" :
			       factor_default(f) ? ", default 1" : ", default 0");
		else
			print_choice(f);
	}
	return status;
}

/* ---- generate ---- */

struct generate {
	struct model model;
	struct tokenizer *tokenizer;
	struct session session;
	struct arm arm;
	struct arm_at_list at;
	int32_t *ids;                /* prompt, then what came */
	int n_prompt, n, max_new;
};

static bool is_eos(const struct config *c, int32_t id)
{
	for (int i = 0; i < c->n_eos; i++)
		if (c->eos_token_id[i] == id)
			return true;
	return false;
}

/* Prints what is new in the text since `printed` bytes.  A character that the next token may complete stays back:
 * the decoder shows an unfinished one as U+FFFD at the end. */
static size_t print_new(struct generate *g, size_t printed, bool last, struct err *err)
{
	size_t size, end;
	char *text = tokenizer_decode(g->tokenizer, g->ids + g->n_prompt, g->n - g->n_prompt, true, &size, err);

	if (!text)
		return printed;
	end = size;
	while (!last && end >= 3 && end > printed && memcmp(text + end - 3, "\xef\xbf\xbd", 3) == 0)
		end -= 3;
	if (end > printed) {
		fwrite(text + printed, 1, end - printed, stdout);
		fflush(stdout);
		printed = end;
	}
	free(text);
	return printed;
}

static int generate(struct generate *g, const char *text, struct err *err)
{
	const struct config *c = &g->model.config;
	struct limits limits;
	struct logits_row row;
	size_t printed = 0;

	g->n_prompt = g->n = tokenizer_encode(g->tokenizer, &g->ids, text, strlen(text), true, err);
	if (g->n < 0)
		return -1;
	if (g->n == 0)
		return err_set(err, ERR_INPUT, "TEXT has no tokens");
	if ((int64_t)g->n + g->max_new > c->max_position_embeddings)
		return err_set(err, ERR_INPUT, "%d prompt tokens and --max-new %d exceed max_position_embeddings of %d",
			       g->n, g->max_new, c->max_position_embeddings);
	g->ids = xrealloc(g->ids, g->n + g->max_new, sizeof(*g->ids));
	for (int i = 0; i < g->n; i++)
		if (g->ids[i] >= c->vocab_size)
			return err_set(err, ERR_INPUT, "tokenizer.json: id %d is outside the vocabulary of %d", g->ids[i],
				       c->vocab_size);
	limits = (struct limits){ .rows = g->n, .slots = 1, .len = g->n + g->max_new };
	if (session_open(&g->session, &g->model, &g->arm, &g->at, &limits, err))
		return -1;
	session_reset(&g->session, 0);
	session_prefill(&g->session, &row, 0, g->ids, g->n, -1);
	while (!is_eos(c, row.top_id[0])) {
		if (!isfinite(row.lse))
			return err_set(err, ERR_FAILED, "the logits after %d tokens are not finite", g->n);
		g->ids[g->n++] = row.top_id[0];
		printed = print_new(g, printed, false, err);
		if (err->kind || g->n - g->n_prompt == g->max_new)
			break;
		session_step(&g->session, &row, &(int32_t){ 0 }, &g->ids[g->n - 1], 1, NULL);
	}
	print_new(g, printed, true, err);
	putchar('\n');
	return err->kind ? -1 : 0;
}

static int run_generate(struct generate *g, const char *dir, const char *text)
{
	struct err err = {0};
	int status = 0;

	if (model_open(&g->model, dir, &err) || model_verify(&g->model, &err) ||
	    arm_resolve(&g->arm, &g->at, &g->model, &err) || !(g->tokenizer = prompts_tokenizer(&g->model, &err)) ||
	    generate(g, text, &err))
		status = cli_fail(&err);
	session_release(&g->session);
	if (g->tokenizer)
		tokenizer_free(g->tokenizer);
	model_release(&g->model);
	free(g->ids);
	return status;
}

int generate_main(int argc, char **argv)
{
	struct generate g = { .max_new = 64 };
	struct err err = {0};
	struct cli_option options[] = {
		{ .name = "model", .takes_value = true }, { .name = "max-new", .takes_value = true },
		{ .name = "arm", .takes_value = true, .each = cli_arm, .ud = &g.arm },
		{ .name = "at", .takes_value = true, .each = cli_at, .ud = &g.at }, { .name = "help" }, { 0 },
	};
	enum { MODEL, MAX_NEW, ARM, AT, HELP };
	char **operands = xcalloc(argc, sizeof(*operands));
	int n, status;

	arm_init(&g.arm);
	n = cli_parse(options, operands, argc, argv, &err);
	if (options[HELP].given) {
		fputs(generate_help, stdout);
		status = EXIT_DONE;
	} else if (n < 0 || (options[MAX_NEW].given && cli_number(&g.max_new, "--max-new", options[MAX_NEW].value, 1, &err)) ||
		   cli_run_only(&g.arm, FACTOR_BATCH, "one text is continued", &err) ||
		   cli_run_only(&g.arm, FACTOR_PREFILL_CHUNK, "the prompt is prefilled whole", &err)) {
		status = cli_usage("generate", "%s", err.text);
	} else if (!options[MODEL].given || n != 1) {
		status = cli_usage("generate", "expected --model DIR and TEXT");
	} else {
		status = run_generate(&g, options[MODEL].value, operands[0]);
	}
	arm_at_release(&g.at);
	free(operands);
	return status;
}
