#include "selftest.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/file.h"
#include "proc.h"
#include "verdict.h"

#define SECONDS_PER_RUN 300

int selftest_run(const struct selftest *s, const char *fault, const char *model, const char *report, const char *const *more,
		 struct err *err)
{
	const char *argv[40];
	int n = 0;

	argv[n++] = s->engine;
	if (fault) {
		argv[n++] = "--fault";
		argv[n++] = fault;
	}
	argv[n++] = "run";
	argv[n++] = "--model";
	argv[n++] = model;
	argv[n++] = "--report";
	argv[n++] = report;
	while (*more) {
		BUG_ON(n == sizeof argv / sizeof *argv - 1);
		argv[n++] = *more++;
	}
	argv[n] = NULL;

	char *words = path_join(s->out, "stderr");
	struct proc p = { .argv = (char *const *)argv, .err_path = words, .timeout_s = SECONDS_PER_RUN };
	struct proc_end end;
	sigset_t old;

	proc_hold_signals(&old);
	int failed = proc_run(&p, &end, err);

	proc_release_signals(&old);
	if (!failed && end.exit_code != 0)
		failed = err_set(err, ERR_FAILED, "%s%s%s run on %s ended with %s %d (see %s)", s->engine, fault ? " --fault " : "",
				 fault ? fault : "", model, end.signal ? "signal" : "exit code", end.signal ? end.signal : end.exit_code,
				 words);
	free(words);
	return failed;
}

/* ---- the golden */

static bool is_cuda(const struct selftest *s) { return !strcmp(s->backend, "cuda"); }

#define PROMPTS "p3,p4,p5,p6,p7,p8,p9,p10,p11,p12,p13,p14"
#define STEPS "16"

static const char *const legs[2] = { "step", "chunk" };
static const char *const arms[2] = { "", ",mamba.decode=chunk,prefill_chunk=8,slots=dirty" };

/* More of every arm: a fault beside an op reads and writes state that a graph has captured. */
static const char *more_of(const struct selftest *s) { return is_cuda(s) ? ",graph=off" : ""; }

/* The caller frees. */
static char *recipe_of(const struct selftest *s)
{
	const char *graph = is_cuda(s) ? ", graph: off" : "", *audit = is_cuda(s) ? "audit: on" : "";

	return xasprintf(
		"schema: assay/recipe/1\n"
		"name: selftest\n"
		"kind: gate\n"
		"model: model\n"
		"golden: golden.json\n"
		"prompts: [p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14]\n"
		"steps: " STEPS "\n"
		"modes: [forced]\n"
		"base: {backend: %s%s}\n"
		"legs:\n"
		"  step:  {%s}\n"
		"  chunk: {mamba.decode: chunk, prefill_chunk: 8, slots: dirty%s%s}\n"
		"require:\n"
		"  step:  {decode_step: {state_update_rows: mamba*nd, conv_update_rows: mamba*nd, chunk_scan_calls: 0,\n"
		"                        conv_fwd_calls: 0, gathers: 0, scatters: 0}, total: {reference_tier: 0}}\n"
		"  chunk: {decode_step: {state_update_rows: 0, conv_update_rows: 0, chunk_scan_calls: mamba, conv_fwd_calls: mamba,\n"
		"                        gathers: 2*mamba, scatters: 2*mamba}, total: {reference_tier: 0}}\n",
		s->backend, graph, audit, *audit ? ", " : "", audit);
}

static double number_at(const json_t *noise, const char *part, const char *key)
{
	const json_t *v = json_object_get(json_object_get(noise, part), key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

/* A flip called EXCESS, or more flips than noise leaves. */
static bool tokens_caught(const json_t *leg, const json_t *noise)
{
	const json_t *flips = json_object_get(leg, "flips");

	for (size_t i = 0; i < json_array_size(flips); i++)
		if (!strcmp(json_string_value(json_object_get(json_array_get(flips, i), "adjudication")), "EXCESS"))
			return true;
	return number_at(noise, "flips", "p") < 0.01;
}

/* Why a leg is VOID: a line of its contract, or the audit; whatever else it is, the contract's section of the judge. */
static void look_at_void(struct detection *d, const json_t *leg)
{
	const json_t *lines = json_object_get(leg, "contract");
	const char *reason = json_string_value(json_object_get(leg, "reason"));
	bool audit = reason && strstr(reason, "the device audit") != NULL, line = false;

	for (size_t i = 0; i < json_array_size(lines); i++)
		line |= json_is_false(json_object_get(json_array_get(lines, i), "ok"));
	d->caught[BY_AUDIT] |= audit;
	d->caught[BY_CONTRACT] |= line || !audit;
}

static void look_at(struct detection *d, int leg, const json_t *verdict)
{
	const json_t *l = json_object_get(json_object_get(verdict, "legs"), legs[leg]), *noise = json_object_get(l, "noise");
	const char *class = json_string_value(json_object_get(json_object_get(noise, "distance"), "class"));

	d->R[leg] = number_at(noise, "distance", "R");
	if (!strcmp(json_string_value(json_object_get(l, "verdict")), "VOID")) {
		look_at_void(d, l);
		return;
	}
	d->caught[BY_TOKENS] |= tokens_caught(l, noise);
	d->caught[BY_DISTANCE] |= class && !strcmp(class, "EXCESS");
	d->caught[BY_SYSTEM] |= number_at(noise, "drift", "p_holm") < 0.01 || number_at(noise, "direction", "p_holm") < 0.01;
}

int selftest_golden(struct detection *d, const struct selftest *s, const char *fault, struct err *err)
{
	char *dir = path_join(s->out, "golden"), *inner = path_join(dir, "legs"), *golden = path_join(dir, "golden.json");
	char *text = path_join(dir, "recipe.yaml"), *recipe = recipe_of(s);
	int failed = file_mkdirs(inner, err) || file_copy(s->golden, golden, err) || file_write(text, recipe, strlen(recipe), err);

	for (int i = 0; i < 2 && !failed; i++) {
		char *report = xasprintf("%s/%s.json", inner, legs[i]), *arm = xasprintf("backend=%s%s%s", s->backend, arms[i], more_of(s));
		const char *more[] = { "--golden", golden, "--only", PROMPTS, "--steps", STEPS, "--mode", "forced", "--leg", legs[i],
				       "--arm", arm, is_cuda(s) ? "--audit" : NULL, NULL };

		failed = selftest_run(s, fault, s->model, report, more, err);
		free(report);
		free(arm);
	}
	json_t *verdict = failed ? NULL : verdict_judge(dir, err);

	for (int i = 0; i < 2 && verdict; i++)
		look_at(d, i, verdict);
	failed = verdict ? 0 : -1;
	json_decref(verdict);
	free(dir);
	free(inner);
	free(golden);
	free(text);
	free(recipe);
	return failed;
}

/* ---- the table */

static const char *const instruments[N_INSTRUMENTS] = { "contract", "audit", "tokens", "distance", "drift", "f64", "fp32", "twins" };

/* What decode does instead of what was asked: all that a device needs to be asked about again. */
static const char *const path_faults[] = { "wrong-path", "host-served", "counter-only", "counter-step", "counter-host" };

/* The names that `--fault list` prints: the first word of each line. */
static int list_faults(char ***names, const struct selftest *s, struct err *err)
{
	char *path = path_join(s->out, "faults"), *argv[] = { (char *)s->engine, "--fault", "list", NULL };
	struct proc p = { .argv = argv, .out_path = path, .timeout_s = SECONDS_PER_RUN };
	struct proc_end end;
	size_t size = 0;
	int n = 0;
	char *text = proc_run(&p, &end, err) ? NULL : file_read(path, 1 << 16, &size, err);

	*names = NULL;
	for (char *save = NULL, *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		*names = xrealloc(*names, (size_t)n + 1, sizeof **names);
		(*names)[n++] = xasprintf("%.*s", (int)strcspn(line, " "), line);
	}
	if (!n && !err->kind)
		err_set(err, ERR_FAILED, "%s lists no faults: it is not the engine that they are planted in", s->engine);
	free(text);
	free(path);
	return n;
}

static void print_head(void)
{
	printf("%-16s", "fault");
	for (int i = 0; i < N_INSTRUMENTS; i++)
		printf(" %-9s", instruments[i]);
	printf(" R step  R chunk  f64      fp32\n");
}

/* name NULL: no fault was planted. */
static void print_row(const char *name, const struct detection *d)
{
	bool golden = false, any = false;

	printf("%-16s", name ? name : "(none)");
	for (int i = 0; i < N_INSTRUMENTS; i++) {
		printf(" %-9s", d->caught[i] ? "CAUGHT" : "-");
		golden |= i < BY_F64 && d->caught[i];
		any |= d->caught[i];
	}
	for (int i = 0; i < 2; i++)
		if (isnan(d->R[i]))
			printf(" %-7s", "VOID");
		else
			printf(" %-7.3g", d->R[i]);
	printf(" %-8.2g %-8.2g%s\n", d->f64, d->fp32, !name || golden ? "" : any ? "no golden sees it" : "nobody");
	fflush(stdout);
}

static int run_all(const struct selftest *s, const char *const *faults, int n, struct err *err)
{
	int missed = 0, false_alarms = 0;

	print_head();
	for (int i = -1; i < n; i++) {
		struct detection d = { .R = { NAN, NAN } };
		const char *fault = i < 0 ? NULL : faults[i];
		bool any = false;

		if (selftest_golden(&d, s, fault, err) || (!is_cuda(s) && selftest_tiny(&d, s, fault, err)))
			return 2;
		print_row(fault, &d);
		for (int k = 0; k < N_INSTRUMENTS; k++)
			any |= d.caught[k];
		missed += fault && !any;
		false_alarms += !fault && any;
	}
	printf("%d of %d planted faults caught%s\n", n - missed, n, false_alarms ? "; an engine without a fault was caught too" : "");
	return missed || false_alarms ? 1 : 0;
}

static const char usage[] =
	"usage: assay selftest [--engine FILE] [--golden FILE] [--model DIR] [--fixtures DIR] [--out DIR] [--fault NAME] [--backend NAME]\n"
	"\n"
	"Runs the engine with each planted fault and shows which instrument catches it.\n"
	"  --engine FILE    the engine with planted faults (default: assay-engine-faulty beside this program)\n"
	"  --golden FILE    default oracle-goldens/book52-nvfp4.json\n"
	"  --model DIR      default oracle-goldens/models/book52-nvfp4\n"
	"  --fixtures DIR   the tiny models (default engine/tests/fixtures)\n"
	"  --out DIR        where the runs go, overwritten (default build/selftest)\n"
	"  --fault NAME     this fault alone\n"
	"  --backend NAME   cpu, or cuda: the faults of the path, on the golden, with the device audit (default cpu)\n"
	"\n"
	"contract: VOID; audit: VOID, since the device ran other kernels than were counted; tokens: a flip called EXCESS, or more\n"
	"flips than noise leaves; distance: R above its limit; drift: the drift or the direction test; f64, fp32: logits of tiny models against `ref`\n"
	"in f64; twins: two kernels that should round differently give the same bits.  Exit codes: 0 every fault is caught, 1 not so, 2 it cannot run.\n";

static char *engine_beside(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	self[n > 0 ? n : 0] = '\0';
	char *dir = path_dir(self), *engine = path_join(dir, "assay-engine-faulty");

	free(dir);
	return engine;
}

static int read_options(struct selftest *s, const char **only, int argc, char **argv)
{
	static const struct option options[] = {
		{ "engine", required_argument, NULL, 'e' }, { "golden", required_argument, NULL, 'g' },
		{ "model", required_argument, NULL, 'm' }, { "fixtures", required_argument, NULL, 't' },
		{ "out", required_argument, NULL, 'o' }, { "fault", required_argument, NULL, 'f' },
		{ "backend", required_argument, NULL, 'b' }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	int c;

	optind = 0;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		if (c == '?')
			return 2;
		*(c == 'e' ? &s->engine : c == 'g' ? &s->golden : c == 'm' ? &s->model : c == 't' ? &s->fixtures :
		  c == 'o' ? &s->out : c == 'b' ? &s->backend : only) = optarg;
	}
	if (strcmp(s->backend, "cpu") && !is_cuda(s)) {
		fprintf(stderr, "assay selftest: --backend: cpu or cuda, not `%s`\n", s->backend);
		return 2;
	}
	if (optind == argc)
		return -1;
	fprintf(stderr, "assay selftest: what is `%s`? (assay selftest --help)\n", argv[optind]);
	return 2;
}

int selftest_main(int argc, char **argv)
{
	char *beside = engine_beside();
	struct selftest s = { .engine = beside, .golden = "oracle-goldens/book52-nvfp4.json",
		.model = "oracle-goldens/models/book52-nvfp4", .fixtures = "engine/tests/fixtures", .out = "build/selftest", .backend = "cpu" };
	const char *only = NULL;
	struct err err = { 0 };
	char **faults = NULL;
	int n = 0, code = read_options(&s, &only, argc, argv);

	if (code < 0) {
		if (access(s.engine, X_OK))
			err_set(&err, ERR_INPUT, "%s: cannot be run (make build/assay-engine-faulty)", s.engine);
		code = err.kind || file_mkdirs(s.out, &err) ? 2 : 0;
		if (!code && !only && !is_cuda(&s))
			n = list_faults(&faults, &s, &err);
		if (!code && !err.kind)
			code = only ? run_all(&s, &only, 1, &err) :
				is_cuda(&s) ? run_all(&s, path_faults, sizeof path_faults / sizeof *path_faults, &err) :
				run_all(&s, (const char *const *)faults, n, &err);
		if (err.kind) {
			fprintf(stderr, "assay: %s\n", err.text);
			code = 2;
		}
	}
	for (int i = 0; i < n; i++)
		free(faults[i]);
	free(faults);
	free(beside);
	return code;
}
