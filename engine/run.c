#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "contract/file.h"
#include "host.h"
#include "leg.h"

#define GIB (1024. * 1024 * 1024)

static const char help[] =
"usage: assay-engine run --model DIR (--golden G [--profile P] | --prompts F) --steps N --mode free[,forced]\n"
"                        --report R [options]\n"
"\n"
"Runs one leg: every prompt is continued by N greedy tokens under one arm, and a report is left at R.\n"
"\n"
"  --model DIR        checkpoint directory: config.json, safetensors, tokenizer.json\n"
"  --golden G         prompts and expected tokens (assay/golden/1)\n"
"  --profile P        whose tokens forced mode feeds (default base)\n"
"  --prompts F        a JSON list of {id, ids} or {id, text} instead of a golden\n"
"  --only ID[,ID]     these prompts only, in this order\n"
"  --leg NAME         the leg's name in the report (default leg)\n"
"  --arm K=V[,K=V]    factors; may be repeated.  `assay-engine arms` lists them\n"
"  --at LAYERS:K=V    a factor for some layers, as in 0-11,30:mamba.decode=chunk; may be repeated\n"
"  --steps N          tokens per prompt (at most what the golden's row has)\n"
"  --mode M           free, forced or free,forced (default free)\n"
"  --report R         where the report goes\n"
"  --trace            a line on stderr for every step\n"
"  --audit            compare the device's own launch record with the counters\n"
"\n"
"Exit codes: 0 done, 1 failed while running, 2 usage or refused input, 77 cannot run here.\n";

struct options {
	const char *model, *golden, *profile, *prompts, *only, *leg, *report;
	struct arm arm;
	struct arm_at_list at;
	int steps;
	bool mode[N_MODES], trace, audit;
};

static int parse_modes(struct options *o, const char *text, struct err *err)
{
	char *list = xstrdup(text), *rest = list, *word;
	int status = 0;

	while (!status && (word = strsep(&rest, ","))) {
		int m = 0;

		while (m < N_MODES && strcmp(word, mode_name(m)))
			m++;
		if (m == N_MODES || o->mode[m])
			status = err_set(err, ERR_INPUT, "--mode: expected free, forced or free,forced, found \"%s\"",
					 text);
		else
			o->mode[m] = true;
	}
	free(list);
	return status;
}

/* A leg's name is a file name too. */
static bool good_name(const char *s)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

	return *s && *s != '-' && *s != '_' && s[strspn(s, letters)] == '\0';
}

/* 0, an exit code above it, or -1 for help. */
static int parse(struct options *o, int argc, char **argv)
{
	struct err err = {0};
	struct cli_option options[] = {
		{ .name = "model", .takes_value = true }, { .name = "golden", .takes_value = true },
		{ .name = "profile", .takes_value = true }, { .name = "prompts", .takes_value = true },
		{ .name = "only", .takes_value = true }, { .name = "leg", .takes_value = true },
		{ .name = "arm", .takes_value = true, .each = cli_arm, .ud = &o->arm },
		{ .name = "at", .takes_value = true, .each = cli_at, .ud = &o->at },
		{ .name = "steps", .takes_value = true }, { .name = "mode", .takes_value = true },
		{ .name = "report", .takes_value = true }, { .name = "trace" }, { .name = "audit" }, { .name = "help" },
		{ 0 },
	};
	enum { MODEL, GOLDEN, PROFILE, PROMPTS, ONLY, LEG, ARM, AT, STEPS, MODE, REPORT, TRACE, AUDIT, HELP };
	char **operands = xcalloc(argc, sizeof(*operands));
	int n = cli_parse(options, operands, argc, argv, &err);
	const char *extra = n > 0 ? operands[0] : NULL;

	free(operands);
	if (options[HELP].given)
		return -1;
	if (n < 0)
		return cli_usage("run", "%s", err.text);
	if (extra)
		return cli_usage("run", "unexpected argument %s", extra);
	for (int i = 0; i < 3; i++) {
		static const int needed[] = { MODEL, STEPS, REPORT };

		if (!options[needed[i]].given)
			return cli_usage("run", "--%s is needed", options[needed[i]].name);
	}
	if (options[GOLDEN].given == options[PROMPTS].given)
		return cli_usage("run", "give either --golden or --prompts");
	if (options[PROFILE].given && options[PROMPTS].given)
		return cli_usage("run", "--profile goes with --golden");
	o->model = options[MODEL].value;
	o->golden = options[GOLDEN].value;
	o->profile = options[PROFILE].given ? options[PROFILE].value : "base";
	o->prompts = options[PROMPTS].value;
	o->only = options[ONLY].value;
	o->leg = options[LEG].given ? options[LEG].value : "leg";
	o->report = options[REPORT].value;
	o->trace = options[TRACE].given;
	o->audit = options[AUDIT].given;
	if (!good_name(o->leg))
		return cli_usage("run", "--leg: \"%s\" is no name (letters, digits, - and _)", o->leg);
	if (cli_number(&o->steps, "--steps", options[STEPS].value, 1, &err) ||
	    parse_modes(o, options[MODE].given ? options[MODE].value : "free", &err))
		return cli_usage("run", "%s", err.text);
	if (o->mode[MODE_FORCED] && o->prompts)
		return cli_usage("run", "--mode forced feeds a golden's tokens: it needs --golden");
	return 0;
}

/* What one run owns. */
struct run {
	struct options options;
	struct model model;
	struct prompts prompts;
	struct session session;
	struct leg leg;
	struct report report;
	struct arm arm;              /* resolved */
};

static void run_release(struct run *r)
{
	session_release(&r->session);
	leg_release(&r->leg);
	report_release(&r->report);
	prompts_release(&r->prompts);
	model_release(&r->model);
	arm_at_release(&r->options.at);
}

static int load_prompts(struct run *r, struct err *err)
{
	const struct options *o = &r->options;

	if (o->prompts)
		return prompts_from_file(&r->prompts, o->prompts, o->only, &r->model, err);
	if (prompts_from_golden(&r->prompts, o->golden, o->profile, o->only, &r->model, err))
		return -1;
	for (int i = 0; i < r->prompts.n && o->mode[MODE_FORCED]; i++)
		if (!r->prompts.item[i].row)
			return err_set(err, ERR_INPUT, "%s: profile %s has no row for prompt %s, which forced mode needs",
				       o->golden, o->profile, r->prompts.item[i].id);
	return 0;
}

/* The longest prefill piece, the batch, and the longest sequence. */
static int find_limits(const struct run *r, struct limits *limits, struct err *err)
{
	int batch = r->arm.value[FACTOR_BATCH], piece = r->arm.value[FACTOR_PREFILL_CHUNK];
	int most = r->model.config.max_position_embeddings;

	*limits = (struct limits){ .slots = batch == ARM_ALL || batch > r->prompts.n ? r->prompts.n : batch };
	for (int i = 0; i < r->prompts.n; i++) {
		const struct prompt *p = &r->prompts.item[i];
		int rows = piece && piece < p->n ? piece : p->n;
		int64_t len = (int64_t)p->n + leg_planned(&r->leg, p);

		if (most > 0 && len > most)
			return err_set(err, ERR_INPUT, "prompt %s: %d prompt tokens and %d more exceed the model's "
				       "max_position_embeddings of %d", p->id, p->n, leg_planned(&r->leg, p), most);
		if (rows > limits->rows)
			limits->rows = rows;
		if (len > limits->len)
			limits->len = (int)len;
	}
	return 0;
}

static int verify(struct run *r, struct err *err)
{
	double start = host_seconds();

	if (model_verify(&r->model, err))
		return -1;
	r->report.timing.verify_s = host_seconds() - start;
	return 0;
}

static void describe_model(struct run *r)
{
	struct report *to = &r->report;
	const struct config *c = &r->model.config;

	to->leg = xstrdup(r->options.leg);
	to->model.name = xstrdup(r->model.name);
	to->model.config = config_to_json(c);
	to->model.mamba = c->n_blocks[BLOCK_MAMBA];
	to->model.attn = c->n_blocks[BLOCK_ATTN];
	to->model.moe = c->n_blocks[BLOCK_MOE];
	to->model.mlp = c->n_blocks[BLOCK_MLP];
	to->model.layers = c->num_hidden_layers;
	to->model.files = xcalloc(r->model.n_files + 1, sizeof(*to->model.files));
	to->model.n_files = r->model.n_files;
	for (int i = 0; i < r->model.n_files; i++)
		to->model.files[i] = (struct report_cell){
			xstrdup(r->model.files[i].name), xstrdup(r->model.files[i].sha256),
		};
	if (r->options.golden)
		memcpy(to->golden_sha256, r->prompts.golden.sha256, sizeof(to->golden_sha256));
}

/* Text is for people: without a usable tokenizer the report has ids alone, and stderr says why. */
static void add_text(struct run *r)
{
	struct err err = {0};
	struct tokenizer *t = prompts_tokenizer(&r->model, &err);

	for (int m = 0; m < N_MODES && t; m++)
		for (int i = 0; i < r->report.modes[m].n_rows && !err.kind; i++) {
			struct report_row *row = &r->report.modes[m].rows[i];
			size_t size;

			row->text = tokenizer_decode(t, row->ids, row->n, false, &size, &err);
		}
	if (err.kind)
		fprintf(stderr, "assay-engine: no text in the report: %s\n", err.text);
	if (t)
		tokenizer_free(t);
}

static void describe_arm(struct run *r)
{
	r->report.requested = r->arm;
	arm_at_copy(&r->report.requested_at, &r->options.at);
	r->report.effective = r->session.arm;
	arm_at_copy(&r->report.effective_at, &r->session.at);
}

static int compute(struct run *r, double start, struct err *err)
{
	const struct backend *b = backend_find(r->arm.value[FACTOR_BACKEND], err);
	struct limits limits;

	if (!b || find_limits(r, &limits, err))
		return -1;
	if (r->options.audit && !b->audit_begin)
		return err_set(err, ERR_CANNOT_RUN, "--audit: backend %s has no device to audit", b->name);
	if (r->options.audit && b->audit_begin(err))
		return -1;
	if (file_check(r->options.report, err))
		return -1;
	for (int m = 0; m < N_MODES; m++)
		if (r->options.mode[m])
			leg_prepare(&r->leg, &r->report, m, &r->arm);
	if (session_open(&r->session, &r->model, &r->arm, &r->options.at, &limits, err))
		return -1;
	r->leg.session = &r->session;
	r->report.timing.load_s = host_seconds() - start;
	if (r->report.timing.verify_s > 0)
		r->report.timing.load_s -= r->report.timing.verify_s;
	if (b->watch)
		b->watch(r->session.forward.main.dev, true);
	for (int m = 0; m < N_MODES; m++)
		if (r->options.mode[m])
			leg_run(&r->leg, &r->report, m);
	if (b->watch)
		b->watch(r->session.forward.main.dev, false);
	describe_arm(r);     /* not before: its copies are allocations, which the counters of the first step would hold */
	if (b->describe)
		b->describe(r->session.forward.main.dev, &r->report);
	return r->options.audit ? b->audit_end(&r->report, err) : 0;
}

static int run_leg(struct run *r, struct err *err)
{
	double start = host_seconds();
	bool large;

	r->report.timing.verify_s = -1;
	r->report.peak_device_bytes = -1;
	if (model_open(&r->model, r->options.model, err) || load_prompts(r, err))
		return -1;
	r->arm = r->options.arm;
	if (arm_resolve(&r->arm, &r->options.at, &r->model, err))
		return -1;
	r->leg = (struct leg){ .prompts = &r->prompts, .steps = r->options.steps, .trace = r->options.trace };
	/* Hashing a large checkpoint would keep the first token waiting. */
	large = r->model.weight_bytes > GIB;
	if ((!large && verify(r, err)) || compute(r, start, err) || (large && verify(r, err)))
		return -1;
	leg_timing(&r->leg, &r->report);
	if (host_describe(&r->report, err))
		return -1;
	describe_model(r);
	add_text(r);
	r->report.peak_rss_bytes = host_peak_rss();
	return report_save(&r->report, r->options.report, err);
}

int run_main(int argc, char **argv)
{
	struct run r = {0};
	struct err err = {0};
	int status;

	arm_init(&r.options.arm);
	status = parse(&r.options, argc, argv);
	if (status < 0) {
		fputs(help, stdout);
		status = EXIT_DONE;
	} else if (status == 0 && run_leg(&r, &err)) {
		status = cli_fail(&err);
	}
	run_release(&r);
	return status;
}
