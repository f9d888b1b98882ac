#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bandwidth.h"
#include "bench_output.h"
#include "bench_profile.h"
#include "cli.h"
#include "contract/file.h"
#include "cpu/level.h"
#include "host.h"
#include "routing.h"
#include "session.h"
#include "synth.h"

enum { SEED = 1, POSITIONS_MAX = 1 << 30 };

static const char help[] =
"usage: assay-engine bench --model DIR|--shape CONFIG.json [options]\n"
"\n"
"Times prefill and decode, and holds decode against the read bandwidth of this machine, measured in between; on a device,\n"
"against its own copy bandwidth.\n"
"\n"
"  --model DIR        a checkpoint\n"
"  --shape F          a config.json; random weights are made in memory, in the formats it declares\n"
"  --save DIR         with --shape: also write the checkpoint\n"
"  --arm K=V[,K=V]    factors; may be repeated.  `assay-engine arms` lists them\n"
"  --at LAYERS:K=V    a factor for some layers, as in 0-11,30:mamba.decode=chunk; may be repeated\n"
"  --prompt N         tokens of the prompt (default 512)\n"
"  --decode N         tokens decoded after it (default 64; 0: prefill alone)\n"
"  --batch B          sequences decoded together (default 1)\n"
"  --runs N           repetitions (default 7), after one that is not counted\n"
"  --level L          CPU dispatch level: portable, avx2, avx512 or avx512bf16 (default: the best there is)\n"
"  --no-bandwidth     leave the bandwidth out\n"
"  --profile          time by op (backend cpu) or by kernel (cuda), and the experts that decode chooses\n"
"  --json F           write the results, one record of `assay schema bench` a line\n"
"\n"
"Exit codes: 0 done, 1 failed while running, 2 usage or refused input, 77 cannot run here.\n";

struct options {
	const char *model, *shape, *save, *json, *level;
	struct arm arm;
	struct arm_at_list at;
	struct bench_shape size;
	int runs;
	bool bandwidth, profile;
};

enum metric {
	PREFILL, DECODE, TOKENS, WEIGHT_RATE, TRAFFIC_RATE, READ_RATE, COPY_RATE, SHARE, FIRST_TOKEN, PEAK_RSS, PEAK_DEVICE,
	STEP_EXPERTS, ALL_EXPERTS, N_METRICS
};

struct bench {
	const struct options *o;
	struct model model;
	struct session session;
	struct bandwidth *bandwidth;     /* owned; NULL before the first run is over */
	struct series series[N_METRICS];
	int32_t *prompt, *slots, *ids;   /* owned */
	struct logits_row *rows;         /* owned [batch] */
	uint64_t *hash;                  /* owned [batch] */
	double dense_bytes, expert_bytes;/* weights outside the routed experts, and of all of these */
	double state_bytes;              /* that a sequence's step reads and writes */
	double distinct;                 /* experts of a layer that a step reads; 0: not known */
	double born;                     /* host_seconds when the process began */
	struct report about;             /* build, box, and what was seen of the device */
};

static const struct series names[N_METRICS] = {
	[PREFILL] = { .name = "prefill", .unit = "tokens/s", .larger_is_better = true },
	[DECODE] = { .name = "decode step", .unit = "ms", .of_steps = true, .of_window = true },
	[TOKENS] = { .name = "decode", .unit = "tokens/s", .larger_is_better = true, .of_window = true },
	[WEIGHT_RATE] = { .name = "weights read", .unit = "GB/s", .larger_is_better = true, .of_window = true },
	[TRAFFIC_RATE] = { .name = "weights and state", .unit = "GB/s", .larger_is_better = true, .of_window = true },
	[READ_RATE] = { .name = "read bandwidth", .unit = "GB/s", .larger_is_better = true },
	[COPY_RATE] = { .name = "copy bandwidth", .unit = "GB/s", .larger_is_better = true },
	[SHARE] = { .name = "share of it", .unit = "ratio", .larger_is_better = true, .of_window = true },
	[FIRST_TOKEN] = { .name = "first token", .unit = "ms" },
	[PEAK_RSS] = { .name = "peak memory", .unit = "MB" },
	[PEAK_DEVICE] = { .name = "device memory", .unit = "MB" },
	[STEP_EXPERTS] = { .name = "experts a step", .unit = "experts", .larger_is_better = true },
	[ALL_EXPERTS] = { .name = "experts in all", .unit = "experts", .larger_is_better = true },
};

/* ---- options ---- */

static int parse_numbers(struct options *o, const struct cli_option *prompt, struct err *err)
{
	static const struct { const char *name; int def, min; } numbers[] = {
		{ "--prompt", 512, 1 }, { "--decode", 64, 0 }, { "--batch", 1, 1 }, { "--runs", 7, 1 },
	};
	int *to[] = { &o->size.prompt, &o->size.decode, &o->size.batch, &o->runs };

	for (int i = 0; i < 4; i++) {
		*to[i] = numbers[i].def;
		if (prompt[i].given && cli_number(to[i], numbers[i].name, prompt[i].value, numbers[i].min, err))
			return -1;
	}
	if (((double)o->size.prompt + o->size.decode) * o->size.batch > POSITIONS_MAX)
		return err_set(err, ERR_INPUT, "--prompt %d, --decode %d, --batch %d: expected at most %d positions in all",
			       o->size.prompt, o->size.decode, o->size.batch, POSITIONS_MAX);
	return cli_run_only(&o->arm, FACTOR_BATCH, "--batch says how many sequences", err) ||
	       cli_run_only(&o->arm, FACTOR_PREFILL_CHUNK, "prompts are prefilled whole", err) ? -1 : 0;
}

/* 0, an exit code above it, or -1 for help. */
static int parse(struct options *o, int argc, char **argv)
{
	struct err err = {0};
	struct cli_option options[] = {
		{ .name = "model", .takes_value = true }, { .name = "shape", .takes_value = true },
		{ .name = "save", .takes_value = true }, { .name = "json", .takes_value = true },
		{ .name = "level", .takes_value = true },
		{ .name = "arm", .takes_value = true, .each = cli_arm, .ud = &o->arm },
		{ .name = "at", .takes_value = true, .each = cli_at, .ud = &o->at },
		{ .name = "prompt", .takes_value = true }, { .name = "decode", .takes_value = true },
		{ .name = "batch", .takes_value = true }, { .name = "runs", .takes_value = true },
		{ .name = "no-bandwidth" }, { .name = "profile" }, { .name = "help" }, { 0 },
	};
	enum { MODEL, SHAPE, SAVE, JSON, LEVEL_, ARM, AT, PROMPT, DEC, BATCH, RUNS, NO_BANDWIDTH, PROFILE, HELP };
	char **operands = xcalloc((size_t)argc, sizeof(*operands));
	int n = cli_parse(options, operands, argc, argv, &err);
	const char *extra = n > 0 ? operands[0] : NULL;

	free(operands);
	if (options[HELP].given)
		return -1;
	if (n < 0)
		return cli_usage("bench", "%s", err.text);
	if (extra)
		return cli_usage("bench", "unexpected argument %s", extra);
	if (options[MODEL].given == options[SHAPE].given)
		return cli_usage("bench", "give either --model or --shape");
	if (options[SAVE].given && !options[SHAPE].given)
		return cli_usage("bench", "--save goes with --shape");
	o->model = options[MODEL].value;
	o->shape = options[SHAPE].value;
	o->save = options[SAVE].value;
	o->json = options[JSON].value;
	o->level = options[LEVEL_].value;
	o->bandwidth = !options[NO_BANDWIDTH].given;
	o->profile = options[PROFILE].given;
	if (parse_numbers(o, &options[PROMPT], &err))
		return cli_usage("bench", "%s", err.text);
	return 0;
}

/* ---- what a step moves ---- */

static void add_linear(struct linear *l, int layer, void *ud)
{
	struct bench *b = ud;
	bool expert = l->name && strstr(l->name, ".experts.");

	(void)layer;
	*(expert ? &b->expert_bytes : &b->dense_bytes) += (double)linear_bytes(l);
}

static const struct backend *backend_of(const struct bench *b) { return b->session.forward.main.b; }

/* Of the routed experts a step reads those that its tokens chose: a share of them all. */
static double weight_bytes(const struct bench *b)
{
	int experts = b->model.config.n_routed_experts;

	return b->dense_bytes + (experts ? b->expert_bytes * b->distinct / experts : 0);
}

static bool bytes_known(const struct bench *b) { return b->distinct > 0 || b->model.config.n_routed_experts == 0; }

/* Matrices, the router's gate, the state read and written, and half of the positions that are decoded. */
static void count_bytes(struct bench *b)
{
	const struct config *c = &b->model.config;
	double length = b->o->size.prompt + b->o->size.decode / 2.;

	model_each_linear(&b->model, add_linear, b);
	b->distinct = b->o->size.batch == 1 ? c->num_experts_per_tok : 0;
	b->dense_bytes += (double)c->n_blocks[BLOCK_MOE] * c->n_routed_experts * c->hidden_size * sizeof(float);
	for (int i = 0; i < c->num_hidden_layers; i++)
		for (int k = 0; k < N_STATES; k++) {
			const struct state_array *a = &b->session.pool.layers[i].array[k];
			double bytes = (double)a->size * (double)dtype_size(a->view.dtype);

			b->state_bytes += k == STATE_CONV || k == STATE_SSM ? 2 * bytes :
				bytes / b->session.pool.max_len * length;
		}
}

/* ---- running ---- */

/* Ids from a fixed sequence, which the sequences of a batch share out; the first 16 are left to special tokens. */
static void make_prompt(struct bench *b)
{
	unsigned seed = 12345, vocab = (unsigned)b->model.config.vocab_size, first = vocab > 32 ? 16 : 0;

	size_t n = (size_t)b->o->size.prompt * (size_t)b->o->size.batch;

	b->prompt = xcalloc(n, sizeof(*b->prompt));
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		b->prompt[i] = (int32_t)(first + (seed >> 8) % (vocab - first));
	}
}

static int open_model(struct bench *b, struct err *err)
{
	const struct options *o = b->o;

	if (o->model)
		return model_open(&b->model, o->model, err);
	if (model_synthesise(&b->model, o->shape, SEED, err))
		return -1;
	return o->save ? model_save_synthetic(&b->model, o->shape, o->save, err) : 0;
}

static int open_all(struct bench *b, struct err *err)
{
	const struct options *o = b->o;
	struct limits limits = { .rows = o->size.prompt, .slots = o->size.batch, .len = o->size.prompt + o->size.decode };
	const struct level *level = o->level ? level_find(o->level) : NULL;
	struct arm arm = o->arm;

	if (o->level && !level)
		return err_set(err, ERR_INPUT, "--level: there is no level \"%s\" in this build", o->level);
	if (level && !level_supported(level))
		return err_set(err, ERR_CANNOT_RUN, "--level %s: %s", o->level, level_feature(level));
	level_force(level);
	if (open_model(b, err) || arm_resolve(&arm, &o->at, &b->model, err) ||
	    session_open(&b->session, &b->model, &arm, &o->at, &limits, err))
		return -1;
	b->slots = xcalloc((size_t)o->size.batch, sizeof(*b->slots));
	b->ids = xcalloc((size_t)o->size.batch, sizeof(*b->ids));
	b->rows = xcalloc((size_t)o->size.batch, sizeof(*b->rows));
	b->hash = xcalloc((size_t)o->size.batch, sizeof(*b->hash));
	for (int i = 0; i < o->size.batch; i++)
		b->slots[i] = i;
	make_prompt(b);
	count_bytes(b);
	return 0;
}

static double prefill(struct bench *b)
{
	int n = b->o->size.prompt, batch = b->o->size.batch;
	double start;

	for (int i = 0; i < batch; i++)
		session_reset(&b->session, i);
	start = host_seconds();
	for (int i = 0; i < batch; i++) {
		session_prefill(&b->session, &b->rows[i], i, b->prompt + (size_t)i * n, n, -1);
		b->ids[i] = b->rows[i].top_id[0];
	}
	return (double)n * batch / (host_seconds() - start);
}

/* Seconds of all steps as a leg makes them; each also goes to `step` unless that is NULL. */
static double decode(struct bench *b, struct series *step)
{
	const struct lane *main = &b->session.forward.main;
	double start, before;

	if (main->b->window)
		main->b->window(main->dev, true);
	start = before = host_seconds();

	for (int i = 0; i < b->o->size.decode; i++) {
		session_step_late(&b->session, b->rows, b->hash, b->slots, b->ids, b->o->size.batch, NULL);
		for (int k = 0; k < b->o->size.batch; k++)
			b->ids[k] = b->rows[k].top_id[0];
		double now = host_seconds();

		if (step)
			series_add(step, 1e3 * (now - before));
		before = now;
	}
	session_hashes(&b->session, b->hash);
	before = host_seconds();
	if (main->b->window)
		main->b->window(main->dev, false);
	return before - start;
}

static double traffic(const struct bench *b) { return weight_bytes(b) + b->o->size.batch * b->state_bytes; }

/* The same machine, right after the run that it is compared with. */
static int measure_bandwidth(struct bench *b, double seconds_per_step, struct err *err)
{
	struct series *s = b->series;
	bool copies = backend_of(b)->copy_rate != NULL;
	double rate = copies ? backend_of(b)->copy_rate(b->session.forward.main.dev, err) : 0;

	if (copies && rate == 0)
		return -1;
	if (!copies && !b->bandwidth && bandwidth_open(&b->bandwidth, b->session.arm.value[FACTOR_THREADS], err))
		return -1;
	for (int i = 0; !copies && i < 3; i++) {
		double now = bandwidth_read(b->bandwidth);

		rate = now > rate ? now : rate;
	}
	series_add(&s[copies ? COPY_RATE : READ_RATE], rate / 1e9);
	if (b->o->size.decode && bytes_known(b))
		series_add(&s[SHARE], traffic(b) / seconds_per_step / rate);
	return 0;
}

static int run_once(struct bench *b, bool counted, struct err *err)
{
	const struct bench_shape *size = &b->o->size;
	struct series *s = b->series;
	double rate = prefill(b), step;

	if (!s[FIRST_TOKEN].n)
		series_add(&s[FIRST_TOKEN], 1e3 * (host_seconds() - b->born));
	step = decode(b, counted && size->decode ? &s[DECODE] : NULL) / (size->decode ? size->decode : 1);
	if (!s[PEAK_RSS].n)
		series_add(&s[PEAK_RSS], (double)host_peak_rss() / 1e6);
	if (!counted)
		return 0;
	series_add(&s[PREFILL], rate);
	if (size->decode) {
		series_add(&s[TOKENS], size->batch / step);
		if (bytes_known(b)) {
			series_add(&s[WEIGHT_RATE], weight_bytes(b) / step / 1e9);
			series_add(&s[TRAFFIC_RATE], traffic(b) / step / 1e9);
		}
	}
	return b->o->bandwidth ? measure_bandwidth(b, step, err) : 0;
}

/* ---- output ---- */

/* One more run, op by op, for the experts that its decode steps choose. */
static void run_routing(struct bench *b, struct routing *r)
{
	double in_a_step = 0, in_all = 0;
	int layers = b->model.config.n_blocks[BLOCK_MOE];

	prefill(b);
	b->session.forward.routing = r;
	decode(b, NULL);
	b->session.forward.routing = NULL;
	for (int i = 0; i < r->layers; i++) {
		int n = routing_in_all(r, i);

		in_a_step += routing_in_a_step(r, i) / layers;
		if (r->steps[i] && (in_all == 0 || n < in_all))
			in_all = n;
	}
	b->distinct = in_a_step;
	series_add(&b->series[STEP_EXPERTS], in_a_step);
	series_add(&b->series[ALL_EXPERTS], in_all);
}

/* One more run, with the clock read around every op, or with the device's kernels traced. */
static int run_profile(struct bench *b, struct err *err)
{
	struct profile p = { .b = backend_of(b), .dev = b->session.forward.main.dev };
	int steps = b->o->size.decode;
	double start;

	if (profile_begin(&p, err))
		return -1;
	start = host_seconds();
	prefill(b);
	if (profile_print(&p, "prefill", 1, host_seconds() - start, err))
		return -1;
	if (!steps)
		return 0;
	if (profile_begin(&p, err))
		return -1;
	return profile_print(&p, "decode", steps, decode(b, NULL), err);
}

/* backend, threads and compute as they came out, and the other factors that were asked for. */
static char *leg_text(const struct bench *b)
{
	static const enum factor shown[] = { FACTOR_BACKEND, FACTOR_THREADS, FACTOR_COMPUTE };
	char backend[32], threads[32], compute[32];
	struct arm others = b->o->arm;

	arm_text(&b->session.arm, FACTOR_BACKEND, backend, sizeof(backend));
	arm_text(&b->session.arm, FACTOR_THREADS, threads, sizeof(threads));
	arm_text(&b->session.arm, FACTOR_COMPUTE, compute, sizeof(compute));
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		others.value[shown[i]] = ARM_UNSET;
	char *words = arm_words(&others);
	char *text = xasprintf("backend=%s,threads=%s,compute=%s%s%s", backend, threads, compute, words ? "," : "", words ? words : "");

	free(words);
	for (int i = 0; i < b->o->at.n; i++) {
		char *shorter = text, *at = arm_at_words(&b->o->at.item[i]);

		text = xasprintf("%s at %s", shorter, at);
		free(shorter);
		free(at);
	}
	return text;
}

/* The runs that are counted; the device is watched from the first of them on. */
static int run_all(struct bench *b, struct routing *routing, struct err *err)
{
	const struct lane *main = &b->session.forward.main;

	if (run_once(b, false, err))
		return -1;
	if (routing)
		run_routing(b, routing);
	if (main->b->watch)
		main->b->watch(main->dev, true);
	for (int i = 0; i < b->o->runs; i++)
		if (run_once(b, true, err))
			return -1;
	if (main->b->watch)
		main->b->watch(main->dev, false);
	if (main->b->describe)
		main->b->describe(main->dev, &b->about);
	if (b->about.peak_device_bytes > 0)
		series_add(&b->series[PEAK_DEVICE], (double)b->about.peak_device_bytes / 1e6);
	return host_describe(&b->about, err);
}

static void print_results(const struct bench *b, const char *leg)
{
	const struct bench_shape *size = &b->o->size;

	printf("%s  %s  level=%s  prompt=%d decode=%d batch=%d\n", b->model.name, leg, level_current()->name, size->prompt,
	       size->decode, size->batch);
	if (bytes_known(b))
		printf("a step: %.1f MB of weights, %.1f MB of state\n", weight_bytes(b) / 1e6,
		       size->batch * b->state_bytes / 1e6);
	bench_print(b->series, N_METRICS, &b->about);
}

static int bench(struct bench *b, struct err *err)
{
	const struct options *o = b->o;
	struct routing routing = {0};
	bool routed;
	char *leg;
	int status;

	if ((o->json && file_check(o->json, err)) || open_all(b, err))
		return -1;
	if (o->profile && !profile_possible(backend_of(b)))
		return err_set(err, ERR_CANNOT_RUN, "--profile is not built for backend %s", backend_of(b)->name);
	routed = o->profile && o->size.decode && b->model.config.n_blocks[BLOCK_MOE];
	if (routed)
		routing_open(&routing, &b->model.config, o->size.batch);
	status = run_all(b, routed ? &routing : NULL, err);
	leg = leg_text(b);
	if (!status)
		print_results(b, leg);
	if (!status && routed)
		routing_print(&routing);
	if (!status && o->profile)
		status = run_profile(b, err);
	if (!status && o->json)
		status = bench_write(o->json, b->series, N_METRICS, b->model.name, leg, &o->size, &b->about, err);
	routing_release(&routing);
	free(leg);
	return status;
}

static void release(struct bench *b)
{
	bandwidth_release(b->bandwidth);
	report_release(&b->about);
	session_release(&b->session);
	model_release(&b->model);
	for (int i = 0; i < N_METRICS; i++)
		series_release(&b->series[i]);
	free(b->prompt);
	free(b->slots);
	free(b->ids);
	free(b->rows);
	free(b->hash);
}

int bench_main(int argc, char **argv)
{
	struct options o = {0};
	struct bench b = { .o = &o };
	struct timespec used;
	struct err err = {0};
	int status;

	/* a process that has waited for nothing is as old as the processor time it has used */
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	b.born = host_seconds() - ((double)used.tv_sec + 1e-9 * (double)used.tv_nsec);
	memcpy(b.series, names, sizeof(names));
	arm_init(&o.arm);
	status = parse(&o, argc, argv);
	if (status == -1)
		fputs(help, stdout);
	else if (status == 0 && bench(&b, &err))
		status = cli_fail(&err);
	release(&b);
	arm_at_release(&o.at);
	return status > 0 ? status : EXIT_DONE;
}
