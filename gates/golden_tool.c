#include "golden_tool.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/file.h"
#include "contract/json.h"
#include "contract/tokenizer.h"
#include "oracle.h"

const struct golden_profile *golden_expectation(const struct golden *g, const char *name)
{
	const struct golden_profile *p = golden_profile_find(g, name ? name : "base");

	return p || name || g->n_profiles == 0 ? p : &g->profiles[0];
}

int profile_batch(const struct golden_profile *p)
{
	const json_t *batch = json_object_get(p->engine_config, "batch");

	if (json_is_integer(batch))
		return json_integer_value(batch) == 1 ? 1 : 2;
	return !json_is_string(batch) ? 0 : strcmp(json_string_value(batch), "1") != 0 ? 2 : 1;
}

/* ---- check */

/* What checking one golden has found. */
struct checking { FILE *out; const struct golden *g; const struct golden_profile *base; int wrong; };

static void wrong(struct checking *c, const char *what, const char *which)
{
	fprintf(c->out, "  WRONG %s%s\n", what, which);
	c->wrong = 1;
}

static void say_profile(struct checking *c, const struct golden_profile *p)
{
	size_t ids = 0, listed = 0;

	for (int i = 0; i < p->n_rows; i++) {
		ids += (size_t)p->rows[i].n;
		for (int t = 0; p->rows[i].steps && t < p->rows[i].n; t++)
			listed += p->rows[i].steps[t].n_top > 0;
	}
	fprintf(c->out, "  profile %-16s %-6s %-5s %d prompts, %zu tokens, %zu with log-probabilities; %s %s%s%s", p->name,
		p->mode == GOLDEN_FORCED ? "forced" : "free", p->logits_dtype ? p->logits_dtype : "-", p->n_rows, ids, listed,
		p->engine ? p->engine : "-", p->engine_version ? p->engine_version : "", p->device ? " on " : "",
		p->device ? p->device : "");
	if (p->repeats > 0)
		fprintf(c->out, ", %d repeats %s", p->repeats, p->repeats_agree == 1 ? "agree" :
			p->repeats_agree == 0 ? "DISAGREE" : "");
	fputc('\n', c->out);
	if (p->repeats_agree == 0)
		wrong(c, "its repeats disagree: ", p->name);
}

/* Every profile answers the prompts of the expectation, which says something of each, and every id can be named in a list. */
static void check_rows(struct checking *c)
{
	for (int i = 0; i < c->g->n_prompts; i++) {
		const struct golden_row *want = golden_row_find(c->base, i);

		if (want && want->n == 0)
			wrong(c, "the expectation has no token for prompt ", c->g->prompts[i].id);
		if (strchr(c->g->prompts[i].id, ','))
			wrong(c, "--only cannot name a prompt with a comma in its id: ", c->g->prompts[i].id);
	}
	for (int k = 0; k < c->g->n_profiles; k++) {
		const struct golden_profile *p = &c->g->profiles[k];

		for (int i = 0; i < c->g->n_prompts; i++) {
			const struct golden_row *row = golden_row_find(p, i), *want = golden_row_find(c->base, i);

			if (!row == !want && (!row || row->n == want->n || p->mode == GOLDEN_FREE))
				continue;
			fprintf(c->out, "  WRONG profile %s, prompt %s: %s\n", p->name, c->g->prompts[i].id,
				!row ? "no row" : !want ? "the expectation has no row" : "not as many choices as ids were fed");
			c->wrong = 1;
		}
	}
}

static void check_ids(struct checking *c, int64_t vocab)
{
	int32_t most = -1;

	for (int i = 0; i < c->g->n_prompts; i++)
		for (int t = 0; t < c->g->prompts[i].n; t++)
			most = c->g->prompts[i].ids[t] > most ? c->g->prompts[i].ids[t] : most;
	for (int k = 0; k < c->g->n_profiles; k++)
		for (int i = 0; i < c->g->profiles[k].n_rows; i++) {
			const struct golden_row *row = &c->g->profiles[k].rows[i];

			for (int t = 0; t < row->n; t++) {
				most = row->ids[t] > most ? row->ids[t] : most;
				for (int j = 0; row->steps && j < row->steps[t].n_top; j++)
					most = row->steps[t].top[j].id > most ? row->steps[t].top[j].id : most;
			}
		}
	if (vocab < 0)
		fprintf(c->out, "  ids up to %d; not compared with a vocabulary (--model DIR)\n", most);
	else if (most < vocab)
		fprintf(c->out, "  ids up to %d, below the vocabulary of %lld\n", most, (long long)vocab);
	else
		wrong(c, "an id is not in the model's vocabulary", "");
}

static int check_model(struct checking *c, const char *dir, int64_t *vocab, struct err *err)
{
	char *config = path_join(dir, "config.json");
	json_t *json = json_read_file(config, true, err);
	const json_t *size = json_object_get(json, "vocab_size");

	*vocab = json_is_integer(size) ? json_integer_value(size) : -1;
	if (json && *vocab < 0)
		err_set(err, ERR_INPUT, "%s: $.vocab_size: expected an integer", config);
	json_decref(json);
	free(config);
	for (int i = 0; i < c->g->n_files && !err->kind; i++) {
		const struct golden_file *f = &c->g->files[i];
		char *path = path_join(dir, f->name), hex[SHA256_HEX];

		if (!file_exists(path))
			wrong(c, "the model directory lacks ", f->name);
		else if (!sha256_file(path, hex, err) && strcmp(hex, f->sha256) != 0)
			wrong(c, "the sha256 differs: ", f->name);
		free(path);
	}
	char *tokenizer = path_join(dir, "tokenizer.json"), hex[SHA256_HEX];

	if (c->g->tokenizer_sha256[0] && !err->kind && (!file_exists(tokenizer) || (!sha256_file(tokenizer, hex, err) &&
							strcmp(hex, c->g->tokenizer_sha256))))
		wrong(c, "the tokenizer has moved: ", tokenizer);
	free(tokenizer);
	if (!err->kind && !c->wrong && c->g->n_files)
		fprintf(c->out, "  model %s: the %d files listed are those of %s\n", c->g->model, c->g->n_files, dir);
	return err->kind ? -1 : 0;
}

static const char *engine_hash(const struct golden_profile *p)
{
	return json_string_value(json_object_get(p->engine_config, "binary_sha256"));
}

/* Profiles are one engine under benign configurations: another version in their midst is not. */
static void check_engines(struct checking *c, const char *engine, struct err *err)
{
	char hex[SHA256_HEX] = "";
	bool named = false;

	if (engine && sha256_file(engine, hex, err))
		return;
	for (int k = 0; k < c->g->n_profiles; k++) {
		const struct golden_profile *p = &c->g->profiles[k];
		const char *ours = engine_hash(p), *base = engine_hash(c->base);

		named = named || ours;
		if (engine && ours && strcmp(ours, hex))
			wrong(c, "the engine has moved since it was captured: ", p->name);
		if ((p->engine && c->base->engine && strcmp(p->engine, c->base->engine)) || (p->engine_version && c->base->engine_version &&
		    strcmp(p->engine_version, c->base->engine_version)) || (ours && base && strcmp(ours, base)))
			wrong(c, "captured from another engine than the expectation: ", p->name);
	}
	if (engine && !named)
		fprintf(c->out, "  limit: no profile names the sha256 of its engine: %s cannot be compared\n", engine);
}

/* What a judge will not be able to measure with this golden, and what to capture. */
static void say_limits(struct checking *c, const struct oracle *o)
{
	const struct golden *g = c->g;
	size_t listed = 0, spread = 0;
	bool lse = true;

	for (size_t i = 0; i < o->n_positions; i++) {
		listed += o->positions[i].second >= 0;
		spread += !isnan(o->positions[i].log_spread);
	}
	for (int p = 0; p < o->n_prompts; p++)
		for (int t = 0; o->prompts[p].base->steps && t < o->prompts[p].planned; t++)
			lse = lse && o->prompts[p].base->steps[t].has_lse;
	if (g->n_files == 0)
		fprintf(c->out, "  limit: it lists no model files: a leg's model identity is NOT MEASURED\n");
	if (listed < o->n_positions)
		fprintf(c->out, "  limit: margins NOT MEASURED at %zu of %zu positions: capture %s with the top %d log-probabilities\n",
			o->n_positions - listed, o->n_positions, c->base->name, TOP_MAX);
	if (g->n_profiles == 1)
		fprintf(c->out, "  limit: one profile: the oracle's spread is NOT MEASURED (tau, flip chances, R): capture a benign second\n");
	else if (spread < o->n_positions)
		fprintf(c->out, "  limit: the spread is known at %zu of %zu positions: elsewhere no other profile is under %s's prefix with "
			"other numbers (a forced profile reaches all)\n", spread, o->n_positions, c->base->name);
	if (o->n_d && !o->law.measured)
		fprintf(c->out, "  limit: flip chances NOT MEASURED from %zu values of d\n", o->n_d);
	if (!c->base->logits_dtype)
		fprintf(c->out, "  limit: the logits' dtype is not said: ulps NOT MEASURED\n");
	else if (listed && !lse)
		fprintf(c->out, "  limit: no lse: ulps are taken at the leg's own magnitude\n");
	if (c->base->mode == GOLDEN_FORCED)
		fprintf(c->out, "  limit: %s was scored in forced mode; a leg that decodes takes another path\n", c->base->name);
	if (o->n_prompts < 7)
		fprintf(c->out, "  limit: %d prompts%s: the drift test cannot reach p 0.01\n", o->n_prompts,
			o->n_prompts < 2 ? ": R has no interval" : "");
	bool batched = false;

	for (int k = 0; k < g->n_profiles; k++)
		batched = batched || profile_batch(&g->profiles[k]) == 2;
	if (profile_batch(c->base) == 1 && !batched)
		fprintf(c->out, "  limit: captured one sequence at a time: a batched leg differs from it in that too\n");
}

static void say_contradictions(struct checking *c, const struct oracle *o)
{
	for (int i = 0; i < o->n_contradictions; i++) {
		const struct contradiction *x = &o->contradictions[i];

		fprintf(c->out, "  CONTRADICTORY %s[%d]: profiles are %.3g nats apart, noise scale %.3g;", c->g->prompts[x->prompt].id, x->step,
			x->d, o->s);
		for (int side = 0; side < 2; side++) {
			const char *before = side ? " | " : " ";

			for (int k = 0; k < c->g->n_profiles; k++)
				if (x->side[k] == side) {
					fprintf(c->out, "%s%s", before, c->g->profiles[k].name);
					before = ", ";
				}
		}
		fprintf(c->out, " (leave the prompt out, or capture it again; an f64 leg says which side is right)\n");
	}
}

/* All prompts that the expectation has a row for. */
static void measure_all(struct oracle *o, const struct golden *g, const struct golden_profile *base)
{
	int *asked = xcalloc((size_t)g->n_prompts + 1, sizeof *asked), n = 0;

	for (int i = 0; i < g->n_prompts; i++)
		if (golden_row_find(base, i))
			asked[n++] = i;
	oracle_measure(o, g, base, asked, n, INT32_MAX);
	free(asked);
}

int golden_check(FILE *out, const struct golden *g, const char *file, const char *model_dir, const char *engine, struct err *err)
{
	struct checking c = { .out = out, .g = g, .base = golden_expectation(g, NULL) };
	struct oracle o;
	int64_t vocab = -1;

	fprintf(out, "%s: %s, sha256 %s\n", file, g->name, g->sha256);
	if (!c.base) {
		wrong(&c, "it has no profile", "");
		return 1;
	}
	for (int k = 0; k < g->n_profiles; k++)
		say_profile(&c, &g->profiles[k]);
	check_rows(&c);
	check_engines(&c, engine, err);
	if (err->kind)
		return -1;
	if (model_dir && check_model(&c, model_dir, &vocab, err))
		return -1;
	if (!model_dir && g->n_files)
		fprintf(out, "  model %s: %d files listed, not compared (--model DIR)\n", g->model, g->n_files);
	check_ids(&c, vocab);
	measure_all(&o, g, c.base);
	if (o.n_d)
		fprintf(out, "  noise scale %.4g nats, from %zu differences of margins\n", o.s, o.n_d);
	say_limits(&c, &o);
	say_contradictions(&c, &o);
	fprintf(out, "  %s\n", c.wrong ? "WRONG" : o.n_contradictions ? "valid, with contradictory prompts" : "valid");
	oracle_release(&o);
	return c.wrong;
}

/* ---- the command */

static const char usage[] =
	"usage: assay golden check [--model DIR] [--engine FILE] GOLDEN...\n"
	"       assay golden show [--profile NAME] [--model DIR] GOLDEN...\n"
	"       assay golden diff [--profile NAME[=OTHER]] GOLDEN GOLDEN\n"
	"       assay golden import [--out GOLDEN] OLD\n"
	"\n"
	"  check    what it holds, what cannot be judged with it, prompts in which it contradicts itself; with --model also the\n"
	"           sha256 of the model's files and the range of the ids, with --engine the sha256 of the program\n"
	"  show     margins, the five tightest positions, where each profile forks from the expectation; texts with --model\n"
	"  diff     two goldens: models, prompts, profiles of one name, or one profile and another; where they fork, and by how much each\n"
	"           prefers its own token\n"
	"  import   the older form {vllm, transformers, flashinfer, model, revision, sampling, golden: [...]}; to stdout without --out\n"
	"\n"
	"Exit codes: 0 as it should be, 1 something is wrong or two differ, 2 usage or an unreadable file.\n";

struct golden_options { const char *profile, *model, *engine, *out; };

static int fail(const struct err *err)
{
	fprintf(stderr, "assay: %s\n", err->text);
	return 2;
}

static int bad_usage(const char *what)
{
	fprintf(stderr, "assay golden: %s (assay golden --help)\n", what);
	return 2;
}

static int run_check(char *const *files, int n, const struct golden_options *o)
{
	int worst = 0;

	for (int i = 0; i < n; i++) {
		struct golden g = { 0 };
		struct err err = { 0 };
		int found = golden_load(&g, files[i], &err) ? -1 : golden_check(stdout, &g, files[i], o->model, o->engine, &err);

		if (found < 0)
			worst = fail(&err);
		else if (found && worst == 0)
			worst = 1;
		golden_release(&g);
	}
	return worst;
}

static int run_show(char *const *files, int n, const struct golden_options *o)
{
	char *path = o->model ? path_join(o->model, "tokenizer.json") : NULL;
	struct err err = { 0 };
	struct tokenizer *t = path ? tokenizer_load(path, &err) : NULL;
	int worst = path && !t ? fail(&err) : 0;

	for (int i = 0; i < n && !worst; i++) {
		struct golden g = { 0 };
		const struct golden_profile *base = golden_load(&g, files[i], &err) ? NULL : golden_expectation(&g, o->profile);

		if (!err.kind && !base)
			err_set(&err, ERR_INPUT, "%s: no profile `%s`", files[i], o->profile ? o->profile : "base");
		if (err.kind) {
			worst = fail(&err);
		} else {
			printf("%s: %s\n", files[i], g.name);
			golden_show(stdout, &g, base, t);
		}
		golden_release(&g);
	}
	if (t)
		tokenizer_free(t);
	free(path);
	return worst;
}

/* "NAME" or "NAME=OTHER" */
static int diff_pair(const struct golden *a, const struct golden *b, char *const *files, const char *names, struct err *err)
{
	const char *equals = strchr(names, '=');
	char *first = equals ? xasprintf("%.*s", (int)(equals - names), names) : xstrdup(names);
	const char *second = equals ? equals + 1 : first;
	const struct golden_profile *p = golden_profile_find(a, first), *q = golden_profile_find(b, second);

	if (!p || !q)
		err_set(err, ERR_INPUT, "%s: no profile `%s`", p ? files[1] : files[0], p ? second : first);
	free(first);
	return p && q ? golden_diff_profiles(stdout, a, b, p, q) : fail(err);
}

static int run_diff(char *const *files, const struct golden_options *o)
{
	struct golden a = { 0 }, b = { 0 };
	struct err err = { 0 };
	int found = golden_load(&a, files[0], &err) || golden_load(&b, files[1], &err) ? fail(&err) :
		o->profile ? diff_pair(&a, &b, files, o->profile, &err) : golden_diff(stdout, &a, &b);

	golden_release(&a);
	golden_release(&b);
	return found;
}

static int run_import(const char *file, const struct golden_options *o)
{
	struct golden g = { 0 };
	struct err err = { 0 };
	int failed = golden_import(&g, file, &err) || golden_save(&g, o->out ? o->out : "/dev/stdout", &err);

	golden_release(&g);
	return failed ? fail(&err) : 0;
}

int golden_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "profile", required_argument, NULL, 'p' }, { "model", required_argument, NULL, 'm' },
		{ "engine", required_argument, NULL, 'e' }, { "out", required_argument, NULL, 'o' }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	struct golden_options o = { 0 };
	int c;

	optind = 0;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h')
			return fputs(usage, stdout) < 0 ? 2 : 0;
		if (c == '?')
			return 2;
		*(c == 'p' ? &o.profile : c == 'm' ? &o.model : c == 'e' ? &o.engine : &o.out) = optarg;
	}
	if (optind >= argc)
		return bad_usage("what to do: check, show, diff or import?");
	const char *verb = argv[optind++];
	int n = argc - optind;

	if (!strcmp(verb, "check"))
		return n ? run_check(argv + optind, n, &o) : bad_usage("check which goldens?");
	if (!strcmp(verb, "show"))
		return n ? run_show(argv + optind, n, &o) : bad_usage("show which goldens?");
	if (!strcmp(verb, "diff"))
		return n == 2 ? run_diff(argv + optind, &o) : bad_usage("diff takes two goldens");
	if (!strcmp(verb, "import"))
		return n == 1 ? run_import(argv[optind], &o) : bad_usage("import takes one file");
	return bad_usage("the verbs are check, show, diff and import");
}
