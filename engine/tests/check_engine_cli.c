/* assay-engine as a program: exit codes, messages, reports, and the planted faults of assay-engine-faulty. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "contract/report.h"
#include "contract/tests/man_check.h"
#include "edit.h"

#define BOOK52 "oracle-goldens/models/book52-nvfp4"
#define GOLDEN "oracle-goldens/book52-nvfp4.json"
#define TINY "engine/tests/fixtures/tiny-lightning"     /* M E * M - E, FP8 Mamba, NVFP4 experts, chunks of 8 */
#define MICRO "engine/tests/fixtures/good-micro"

enum { OUTPUT = 1 << 16 };

struct outcome { int code; char out[OUTPUT], err[OUTPUT]; };

static char dir[4096];       /* of the programs: two above this test */
static char temp[64];        /* of this test's files */

static char *in_temp(const char *name)
{
	return xasprintf("%s/%s", temp, name);
}

static void read_back(FILE *f, char to[OUTPUT])
{
	rewind(f);
	to[fread(to, 1, OUTPUT - 1, f)] = '\0';
	fclose(f);
}

/* Runs a program of the build with the words of `line`; no shell, so no quoting. */
static struct outcome *run_program(const char *program, const char *line)
{
	static struct outcome o;
	char *path = xasprintf("%s/%s", dir, program), *words = xstrdup(line), *rest = words, *argv[64] = { path };
	FILE *out = tmpfile(), *err = tmpfile();
	int n = 1, status;
	pid_t pid;

	while ((argv[n] = strsep(&rest, " ")))
		if (*argv[n])
			ck_assert_int_lt(++n, 63);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		dup2(fileno(out), 1);
		dup2(fileno(err), 2);
		execv(path, argv);
		_exit(126);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "%s %s died of signal %d", program, line, WTERMSIG(status));
	o.code = WEXITSTATUS(status);
	read_back(out, o.out);
	read_back(err, o.err);
	free(path);
	free(words);
	return &o;
}

static struct outcome *engine(const char *line)
{
	return run_program("assay-engine", line);
}

static void expect(const struct outcome *o, int code, const char *line)
{
	ck_assert_msg(o->code == code, "%s: exit code %d, expected %d; stderr: %s", line, o->code, code, o->err);
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	ck_assert(f && fputs(text, f) >= 0);
	fclose(f);
}

/* `assay-engine run` with a report, which is read back. */
static void run_report(struct report *r, const char *program, const char *options, const char *name)
{
	struct err err = {0};
	char *path = in_temp(name), *line = xasprintf("%s --report %s", options, path);

	expect(run_program(program, line), 0, line);
	ck_assert_msg(report_load(r, path, &err) == 0, "%s", err.text);
	free(path);
	free(line);
}

/* ---- the command line ---- */

#define RUN "run --model " BOOK52 " "
#define REST " --steps 1 --report /dev/null/x"

static const struct { const char *line; int code; const char *says; } refused[] = {
	{ "", 2, "a command is needed" },
	{ "frobnicate", 2, "unknown command frobnicate" },
	{ "--fault dt-clamp run", 2, "unknown command --fault" },
	{ "run", 2, "--model is needed" },
	{ RUN "--report x --golden " GOLDEN, 2, "--steps is needed" },
	{ RUN "--steps 1 --report x", 2, "either --golden or --prompts" },
	{ RUN "--golden " GOLDEN " --prompts x" REST, 2, "either --golden or --prompts" },
	{ RUN "--golden " GOLDEN " --steps 0 --report x", 2, "--steps: expected a whole number of at least 1, found \"0\"" },
	{ RUN "--golden " GOLDEN " --steps 2x --report x", 2, "found \"2x\"" },
	{ RUN "--golden " GOLDEN " --steps 2147483648 --report x", 2,
	  "--steps: expected a whole number of 1 to 2147483647, found \"2147483648\"" },
	{ RUN "--golden " GOLDEN " --mode both" REST, 2, "--mode: expected free, forced" },
	{ RUN "--golden " GOLDEN " --mode free,free" REST, 2, "--mode: expected free, forced" },
	{ RUN "--prompts x --mode forced" REST, 2, "needs --golden" },
	{ RUN "--golden " GOLDEN " --arm backend=gpu" REST, 2, "backend" },
	{ RUN "--golden " GOLDEN " --arm frob=1" REST, 2, "frob" },
	{ RUN "--golden " GOLDEN " --at 0-3:batch=2" REST, 2, "batch" },
	{ RUN "--golden " GOLDEN " --leg a/b" REST, 2, "--leg: \"a/b\" is no name" },
	{ RUN "--golden " GOLDEN " --frob" REST, 2, "unknown option --frob" },
	{ RUN "--golden " GOLDEN " extra" REST, 2, "unexpected argument extra" },
	{ RUN "--golden /nonexistent" REST, 2, "/nonexistent: No such file" },
	{ RUN "--golden " GOLDEN " --profile none" REST, 2, "no profile none" },
	{ RUN "--golden " GOLDEN " --only p0,p99" REST, 2, "no prompt p99" },
	{ RUN "--golden " GOLDEN " --only p0,p0" REST, 2, "asked twice" },
	{ RUN "--golden " GOLDEN " --arm backend=cpu,compute=f64" REST, 2, "compute: f64" },
	{ "run --model " MICRO " --golden " GOLDEN REST, 2, "outside the vocabulary of" },
	{ "run --model /nonexistent --golden " GOLDEN REST, 2, "/nonexistent" },
	{ RUN "--golden " GOLDEN " --only p0 --arm backend=ref" REST, 1, "/dev/null/x" },
	/* before the first step, whose line --trace would print */
	{ RUN "--golden " GOLDEN " --only p0 --arm backend=ref --trace" REST, 1, "/dev/null/x: cannot write" },
	{ RUN "--golden " GOLDEN " --only p0 --arm backend=ref --audit" REST, 77, "--audit: backend ref" },
#ifndef ASSAY_CUDA
	{ RUN "--golden " GOLDEN " --arm backend=cuda" REST, 77, "backend cuda" },
#endif
	{ "generate --model " BOOK52, 2, "expected --model DIR and TEXT" },
	{ "generate --model engine/tests/fixtures/bad-tokenizer-missing --arm backend=ref x", 2, "tokenizer.json" },
	{ "generate --model " BOOK52 " --max-new 2147483647 x", 2, "--max-new 2147483647 exceed max_position_embeddings of 4096" },
	{ "generate --model " BOOK52 " --arm batch=2 x", 2, "batch is a factor of `assay-engine run` alone" },
	{ "generate --model " BOOK52 " --arm prefill_chunk=2 x", 2, "prefill_chunk is a factor of `assay-engine run` alone" },
	{ "bench --model " MICRO " --arm batch=2", 2, "batch is a factor of `assay-engine run` alone: --batch" },
	{ "bench --model " MICRO " --arm prefill_chunk=2", 2, "prefill_chunk is a factor of `assay-engine run` alone" },
	{ "bench --model " MICRO " --prompt 1 --decode 2147483647 --runs 1 --no-bandwidth", 2, "at most 1073741824 positions" },
	{ "bench --model " MICRO " --prompt 1 --decode 1 --runs 1 --no-bandwidth --batch 2147483647", 2, "positions in all" },
	/* before the first run, whose table would be printed */
	{ "bench --model " MICRO " --prompt 1 --decode 1 --runs 1 --no-bandwidth --json /dev/null/x", 1, "/dev/null/x: cannot write" },
	{ "tokenize " BOOK52, 2, "expected DIR and TEXT" },
	{ "detokenize " BOOK52 " x", 2, "assay-engine: ID: expected a whole number of at least 0, found \"x\"" },
	{ "detokenize " BOOK52 " 999999", 2, "999999" },
	{ "arms now", 2, "no arguments" },
};

START_TEST(test_refused)
{
	const char *line = refused[_i].line;
	const struct outcome *o;

	o = engine(line);
	expect(o, refused[_i].code, line);
	ck_assert_msg(strstr(o->err, refused[_i].says) != NULL, "%s: \"%s\" does not say \"%s\"", line, o->err,
		      refused[_i].says);
	ck_assert_msg(strncmp(o->err, "assay-engine: ", 14) == 0, "%s: %s", line, o->err);
	ck_assert_msg(strchr(o->err, '\n') == o->err + strlen(o->err) - 1, "%s: not one line: %s", line, o->err);
	ck_assert_str_eq(o->out, "");
}
END_TEST

START_TEST(test_help)
{
	static const char *const commands[] = {
		"--help", "-h", "run --help", "run -h", "generate --help", "tokenize --help", "detokenize --help",
		"arms --help", "info --help", "bench --help",
	};

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		const struct outcome *o = engine(commands[i]);

		expect(o, 0, commands[i]);
		ck_assert_msg(strncmp(o->out, "usage: assay-engine ", 20) == 0, "%s: %s", commands[i], o->out);
		ck_assert_str_eq(o->err, "");
	}
}
END_TEST

START_TEST(test_man_page)
{
	static const char *const commands[] = { "run", "generate", "bench", "info", "tokenize", "detokenize", "arms" };
	char *page = man_page("docs/assay-engine.1"), *all = xstrdup("--help");

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		char *before = all, *line = xasprintf("%s --help", commands[i]);
		const struct outcome *o = engine(line);

		man_covers(page, o->out);
		all = xasprintf("%s %s", before, o->out);
		free(before);
		free(line);
	}
	man_covers(all, page);
	free(all);
	free(page);
}
END_TEST

START_TEST(test_version)
{
	const struct outcome *o = engine("--version");

	expect(o, 0, "--version");
	ck_assert(strncmp(o->out, "assay-engine ", 13) == 0);
	ck_assert(strstr(o->out, "\ngit ") && strstr(o->out, "\nflags ") && strstr(o->out, "\nfeature avx2: ") &&
		  strstr(o->out, "\nfeature cuda: "));
	ck_assert(!strstr(o->out, "feature fault"));
}
END_TEST

START_TEST(test_arms)
{
	const struct outcome *o = engine("arms");

	expect(o, 0, "arms");
	for (enum factor f = 0; f < N_FACTORS; f++) {
		char *line = xasprintf("%s: %s", factor_name(f), factor_says(f));

		ck_assert_msg(strstr(o->out, line) != NULL, "no \"%s\" in: %s", line, o->out);
		free(line);
	}
}
END_TEST

START_TEST(test_text)
{
	const struct outcome *o = engine("tokenize " BOOK52 " gloomy");
	char *line;

	expect(o, 0, "tokenize");
	line = xasprintf("detokenize " BOOK52 " %s", o->out);
	line[strcspn(line, "\n")] = '\0';
	o = engine(line);
	expect(o, 0, line);
	ck_assert_str_eq(o->out, "gloomy");
	free(line);
	o = engine("generate --model " BOOK52 " --arm backend=ref --max-new 3 dark");
	expect(o, 0, "generate");
	ck_assert_uint_gt(strlen(o->out), 3);
	ck_assert_str_eq(o->err, "");
}
END_TEST

/* A checkpoint in a directory whose name is no UTF-8: JSON has U+FFFD for what is none. */
START_TEST(test_name_of_bytes)
{
	char *copy = edit_copy("tiny-moe"), *odd = xasprintf("%s-\xff", copy), *records = in_temp("records.jsonl");
	char *shown = xasprintf("\"path\": \"%s-\xef\xbf\xbd\"", copy), *line = xasprintf("info --json %s", odd);
	const struct outcome *o;
	struct err err = {0};
	char *text;
	size_t size;

	ck_assert_int_eq(rename(copy, odd), 0);
	o = engine(line);
	expect(o, 0, line);
	ck_assert_msg(strstr(o->out, shown) != NULL, "%s", o->out);
	free(line);
	line = xasprintf("bench --model %s --prompt 1 --decode 1 --runs 1 --no-bandwidth --json %s", odd, records);
	expect(engine(line), 0, line);
	text = file_read(records, 1 << 20, &size, &err);
	ck_assert_msg(text != NULL, "%s", err.text);
	ck_assert_ptr_nonnull(strstr(text, "-\xef\xbf\xbd\",\"shape\":"));
	ck_assert_int_eq(rename(odd, copy), 0);
	free(text);
	free(line);
	free(shown);
	free(records);
	free(odd);
	edit_remove(copy);
}
END_TEST

START_TEST(test_text_of_nothing)
{
	char *copy = edit_copy("tiny-moe"), *line = xasprintf("generate --model %s --max-new 3 dark", copy);
	const struct outcome *o;

	expect(engine(line), 0, line);
	edit_json(copy, "config.json", "{\"routed_scaling_factor\": 1e308}");
	o = engine(line);
	expect(o, 1, line);
	ck_assert_str_eq(o->err, "assay-engine: the logits after 4 tokens are not finite\n");
	ck_assert_str_eq(o->out, "");
	free(line);
	edit_remove(copy);
}
END_TEST

/* ---- reports ---- */

static void check_totals(const struct report_mode *m)
{
	struct counters sum = {0};

	for (int i = 0; i < m->n_trace; i++) {
		ck_assert_int_eq(m->trace[i].step, i);
		for (int c = 0; c < N_COUNTERS; c++)
			sum.n[c] += m->trace[i].counters.n[c];
	}
	for (int c = 0; c < N_COUNTERS; c++)
		ck_assert_int_eq(sum.n[c], m->total.n[c]);
}

/* Layers of their own are in the report, and nothing that was allocated for that counts as the first step's. */
START_TEST(test_report_of_layers)
{
	struct report r;

	run_report(&r, "assay-engine", RUN "--golden " GOLDEN " --only p0 --at 0-25:mamba.decode=chunk --steps 3", "layers");
	ck_assert_int_eq(r.requested_at.n, 1);
	ck_assert_int_eq(r.effective_at.n, 1);
	ck_assert_str_eq(r.effective_at.item[0].layers, "0-25");
	ck_assert_int_eq(r.modes[MODE_FREE].total.n[COUNT_ALLOCS_AFTER_OPEN], 0);
	ck_assert_int_gt(r.modes[MODE_FREE].total.n[COUNT_CHUNK_SCAN_CALLS], 0);
	report_release(&r);
}
END_TEST

START_TEST(test_report)
{
	struct report r;
	struct golden g;
	struct err err = {0};
	const struct golden_row *row;
	const struct report_row *forced, *free_row;

	run_report(&r, "assay-engine", RUN "--golden " GOLDEN " --only p1,p0 --leg on --arm backend=ref --steps 40 "
		   "--mode free,forced", "report");
	ck_assert_int_eq(golden_load(&g, GOLDEN, &err), 0);
	row = golden_row_find(golden_profile_find(&g, "base"), golden_prompt_find(&g, "p0"));
	ck_assert_str_eq(r.leg, "on");
	ck_assert_str_eq(r.golden_sha256, g.sha256);
	ck_assert_int_eq(strlen(r.engine.binary_sha256), 64);
	ck_assert_int_eq(r.model.mamba, 23);
	ck_assert_int_eq(r.model.layers, 52);
	ck_assert_int_eq(r.model.n_files, 7);   /* config, hf_quant_config, tokenizer, index, three shards */
	for (int i = 0; i < r.model.n_files; i++)
		ck_assert_int_eq(strlen(r.model.files[i].value), 64);
	ck_assert(arm_equal(&r.requested, &r.effective));
	ck_assert_int_eq(r.effective.value[FACTOR_BACKEND], BACKEND_REF);
	ck_assert_int_eq(r.effective.value[FACTOR_MAMBA_PROJ], MAMBA_PROJ_W8A8);
	for (int m = 0; m < N_MODES; m++) {
		ck_assert(r.modes[m].present);
		ck_assert_int_eq(r.modes[m].n_rows, 2);
		ck_assert_str_eq(r.modes[m].rows[0].id, "p1");
		/* 40 were asked, the golden's rows have 32: a prefill and 31 decode steps each. */
		ck_assert_int_eq(r.modes[m].n_trace, 2 * 32);
		check_totals(&r.modes[m]);
		ck_assert_int_eq(r.modes[m].total.n[COUNT_STATE_RESETS], 2);
		ck_assert_int_eq(r.modes[m].total.n[COUNT_ALLOCS_AFTER_OPEN], 0);
	}
	forced = report_row_find(&r.modes[MODE_FORCED], "p0");
	free_row = report_row_find(&r.modes[MODE_FREE], "p0");
	ck_assert_int_eq(forced->n, 32);
	ck_assert_int_eq(forced->n_prompt, 5);
	for (int i = 0; i < forced->n; i++) {
		const struct report_step *s = &forced->steps[i];

		ck_assert(s->has_given && s->given == row->ids[i] && s->given_rank >= 1);
		ck_assert_int_eq(s->id, s->top[0].id);
		ck_assert(s->n_top == 20 && s->has_hash && s->lse > s->top[0].value);
		if (s->given_rank <= 20)
			ck_assert_int_eq(s->top[s->given_rank - 1].id, s->given);
		ck_assert(!free_row->steps[i].has_given);
	}
	/* The first position has no history: both modes saw the same. */
	ck_assert(forced->steps[0].logits_xxh64 == free_row->steps[0].logits_xxh64);
	ck_assert(free_row->text && strlen(free_row->text) > 0);
	ck_assert(r.timing.present && r.timing.n == 2 * 2 * 31 && r.timing.p50 > 0 && r.timing.p90 >= r.timing.p50);
	ck_assert(r.peak_rss_bytes > 0);
	report_release(&r);
	golden_release(&g);
}
END_TEST

/* The same run twice, and with one or two threads, in a batch or not: the same ids and hashes. */
START_TEST(test_repeats)
{
	static const char *const backends[] = { "ref", "cpu" };
	static const char *const variants[] = { "threads=1", "threads=1", "threads=2", "threads=2,batch=all", "slots=dirty" };
	struct report first = {0};

	for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
		char *line = xasprintf(RUN "--golden " GOLDEN " --only p0,p15,p2 --arm backend=%s,%s --steps 8", backends[_i],
				       variants[v]);
		struct report r;

		run_report(&r, "assay-engine", line, "repeat");
		for (int p = 0; v > 0 && p < 3; p++) {
			const struct report_row *a = &first.modes[MODE_FREE].rows[p], *b = &r.modes[MODE_FREE].rows[p];

			ck_assert_int_eq(a->n, b->n);
			ck_assert_mem_eq(a->ids, b->ids, a->n * sizeof(*a->ids));
			for (int i = 0; i < a->n; i++)
				ck_assert(a->steps[i].logits_xxh64 == b->steps[i].logits_xxh64);
		}
		if (v == 0)
			first = r;
		else
			report_release(&r);
		free(line);
	}
	report_release(&first);
}
END_TEST

START_TEST(test_trace)
{
	const char *line = RUN "--golden " GOLDEN " --only p0 --arm backend=ref --steps 3 --trace --report ";
	char *path = in_temp("traced"), *full = xasprintf("%s%s", line, path);
	const struct outcome *o = engine(full);

	expect(o, 0, full);
	ck_assert_str_eq(o->err,
			 "ARM step T=5 nd=0 np=1 state_update_rows=0 chunk_scan_calls=23 conv_update_rows=0 "
			 "conv_fwd_calls=23 gathers=0 scatters=0\n"
			 "ARM step T=1 nd=1 np=0 state_update_rows=23 chunk_scan_calls=0 conv_update_rows=23 "
			 "conv_fwd_calls=0 gathers=0 scatters=0\n"
			 "ARM step T=1 nd=1 np=0 state_update_rows=23 chunk_scan_calls=0 conv_update_rows=23 "
			 "conv_fwd_calls=0 gathers=0 scatters=0\n");
	ck_assert_str_eq(o->out, "");
	free(path);
	free(full);
}
END_TEST

/* Pieces of three tokens: one trace row each, np = 1. */
START_TEST(test_prefill_chunk)
{
	struct report r;
	const struct report_mode *m = &r.modes[MODE_FREE];

	run_report(&r, "assay-engine", RUN "--golden " GOLDEN " --only p1 --arm backend=ref,prefill_chunk=3 --steps 2",
		   "pieces");
	ck_assert_int_eq(m->rows[0].n_prompt, 8);
	ck_assert_int_eq(m->n_trace, 4);
	for (int i = 0; i < 3; i++)
		ck_assert(m->trace[i].np == 1 && m->trace[i].nd == 0 && m->trace[i].T == (i < 2 ? 3 : 2));
	ck_assert(m->trace[3].np == 0 && m->trace[3].nd == 1 && m->trace[3].T == 1);
	report_release(&r);
}
END_TEST

/* ---- prompts ---- */

static const struct { const char *model, *text, *says; } prompts[] = {
	{ MICRO, "[]", "no prompts" },
	{ MICRO, "{}", "expected a list" },
	{ MICRO, "[{\"id\":\"a\"}]", "$[0]: expected either ids or text" },
	{ MICRO, "[{\"id\":\"a\",\"ids\":[]}]", "prompt a has no tokens" },
	{ MICRO, "[{\"id\":\"a\",\"ids\":[-1]}]", "$[0]" },
	{ MICRO, "[{\"id\":\"a\",\"ids\":[16]}]", "id 16 is outside the vocabulary of 16" },
	{ MICRO, "[{\"id\":\"a\",\"ids\":[99999999999]}]", "outside the vocabulary" },
	{ MICRO, "[{\"id\":\"a\",\"ids\":[1],\"frob\":2}]", "frob" },
	{ MICRO, "[{\"id\":\"a\",\"ids\":[1]},{\"id\":\"a\",\"ids\":[2]}]", "prompt a occurs twice" },
	{ MICRO, "[{\"id\":\"a\",\"ids\":[1]}", "prompts:1:" },
	{ "engine/tests/fixtures/bad-tokenizer-missing", "[{\"id\":\"a\",\"text\":\"b\"}]", "tokenizer.json" },
	/* Without a tokenizer it still runs on ids. */
	{ "engine/tests/fixtures/bad-tokenizer-missing", "[{\"id\":\"a\",\"ids\":[1,2]}]", NULL },
	{ BOOK52, "[{\"id\":\"a\",\"text\":\"It was a dark and\"}]", NULL },
};

START_TEST(test_prompts)
{
	char *path = in_temp("prompts"), *report = in_temp("prompted");
	char *line = xasprintf("run --model %s --prompts %s --arm backend=ref --steps 2 --report %s", prompts[_i].model,
			       path, report);
	const struct outcome *o;

	write_text(path, prompts[_i].text);
	o = engine(line);
	expect(o, prompts[_i].says ? 2 : 0, line);
	if (prompts[_i].says)
		ck_assert_msg(strstr(o->err, prompts[_i].says) != NULL, "\"%s\" does not say \"%s\"", o->err,
			      prompts[_i].says);
	free(path);
	free(report);
	free(line);
}
END_TEST

/* ---- planted faults ---- */

/* Two prompts through one slot; the second is long enough for two chunk boundaries. */
static void run_faulty(struct report *r, const char *fault, const char *arm)
{
	char *path = in_temp("fault-prompts"), *line;

	write_text(path, "[{\"id\":\"a\",\"ids\":[5,6,7,8,9,10,11]},"
		   "{\"id\":\"b\",\"ids\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]}]");
	line = xasprintf("--fault %s run --model " TINY " --prompts %s --arm %s --steps 60", fault, path, arm);
	run_report(r, "assay-engine-faulty", line, fault);
	free(path);
	free(line);
}

static bool same_hashes(const struct report *a, const struct report *b)
{
	for (int p = 0; p < 2; p++)
		for (int i = 0; i < 60; i++)
			if (a->modes[MODE_FREE].rows[p].steps[i].logits_xxh64 !=
			    b->modes[MODE_FREE].rows[p].steps[i].logits_xxh64)
				return false;
	return true;
}

static bool same_counts(const struct report *a, const struct report *b)
{
	return memcmp(&a->modes[MODE_FREE].total, &b->modes[MODE_FREE].total, sizeof(a->modes[MODE_FREE].total)) == 0;
}

/* A recipe can ask for any of these cells on any machine and build: each says enabled, or why not. */
START_TEST(test_feature_cells)
{
	static const char *const names[] = {
		"avx2", "avx512", "avx512_bf16", "avx512_vnni", "cuda", "cuda_archs", "graphs", "cublaslt_fp8", "nvfp4_mma", "cupti", "nvml",
	};
	struct report r;

	run_faulty(&r, "none", "backend=cpu");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		int found = 0;

		for (int c = 0; c < r.engine.n_features; c++)
			if (strcmp(r.engine.features[c].name, names[i]) == 0) {
				found++;
				ck_assert_msg(strlen(r.engine.features[c].value) > 3, "%s is \"%s\"", names[i],
					      r.engine.features[c].value);
			}
		ck_assert_msg(found == 1, "%d cells %s", found, names[i]);
	}
	report_release(&r);
}
END_TEST

static const struct { const char *name; bool numbers, counts; } faults[] = {
	{ "none", false, false },
	{ "state-scaled", true, false }, { "state-left", true, false }, { "chunk-boundary", true, false },
	{ "pad-token", true, false }, { "input-scale", true, false }, { "swap-bc", true, false },
	{ "gate-after-norm", true, false }, { "dt-clamp", true, false }, { "router-bias", true, false },
	{ "rank-swap", true, false }, /* One token by chunk and by step are the same fp32 numbers here: only the counts tell. */
	{ "wrong-path", false, true }, { "counter-only", false, true },
};

/* Each fault changes the numbers or the counts that it should, and no others, on both host backends.  For counter-only
 * chunk is asked: its counts must be chunk's, its numbers the step's. */
START_TEST(test_fault)
{
	static const char *const arms[] = { "backend=ref,compute=fp32", "backend=cpu,compute=fp32" };
	const char *name = faults[_i / 2].name, *arm = arms[_i % 2];
	bool lies = strcmp(name, "counter-only") == 0;
	char *chunk = xasprintf("%s,mamba.decode=chunk", arm);
	struct report clean, faulty;

	run_faulty(&clean, "none", arm);
	run_faulty(&faulty, name, lies ? chunk : arm);
	ck_assert_msg(same_hashes(&clean, &faulty) == !faults[_i / 2].numbers, "%s, %s: numbers", name, arm);
	ck_assert_msg(same_counts(&clean, &faulty) == !faults[_i / 2].counts, "%s, %s: counts", name, arm);
	ck_assert_int_eq(faulty.modes[MODE_FREE].total.n[COUNT_ALLOCS_AFTER_OPEN], 0);
	report_release(&clean);
	if (lies) {
		run_faulty(&clean, "none", chunk);
		ck_assert(same_counts(&clean, &faulty));
		report_release(&clean);
	}
	report_release(&faulty);
	free(chunk);
}
END_TEST

/* Faults of the path: what ran is `ran`, what is counted is `counted`.  One token by chunk and by step are the same numbers
 * here, in f64 too; check_selftest sees them apart. */
static const struct { const char *name, *asked, *ran, *counted; } paths[] = {
	{ "host-served", "backend=cpu,compute=fp32", "backend=cpu,compute=fp32,place.mamba=host",
	  "backend=cpu,compute=fp32,place.mamba=host" },
	{ "counter-host", "backend=cpu,compute=fp32", "backend=cpu,compute=fp32,place.mamba=host", "backend=cpu,compute=fp32" },
	{ "counter-step", "backend=ref,compute=f64", "backend=ref,compute=f64,mamba.decode=chunk", "backend=ref,compute=f64" },
};

START_TEST(test_path_fault)
{
	struct report clean, ran, counted, faulty;

	run_faulty(&clean, "none", paths[_i].asked);
	run_faulty(&ran, "none", paths[_i].ran);
	run_faulty(&counted, "none", paths[_i].counted);
	run_faulty(&faulty, paths[_i].name, paths[_i].asked);
	ck_assert(same_hashes(&clean, &ran) == (strcmp(paths[_i].name, "counter-step") == 0));
	ck_assert_msg(same_hashes(&ran, &faulty), "%s: numbers", paths[_i].name);
	ck_assert_msg(same_counts(&counted, &faulty), "%s: counts", paths[_i].name);
	report_release(&clean);
	report_release(&ran);
	report_release(&counted);
	report_release(&faulty);
}
END_TEST

/* The path that the judge must find VOID: step was asked, chunk is what ran, and the counters say so. */
START_TEST(test_wrong_path)
{
	struct report r;
	const struct report_mode *m = &r.modes[MODE_FREE];

	run_faulty(&r, "wrong-path", "backend=cpu,mamba.decode=step");
	ck_assert_int_eq(r.effective.value[FACTOR_MAMBA_DECODE], MAMBA_DECODE_STEP);
	for (int i = 0; i < m->n_trace; i++)
		if (m->trace[i].np == 0) {
			ck_assert_int_eq(m->trace[i].counters.n[COUNT_STATE_UPDATE_ROWS], 0);
			ck_assert_int_eq(m->trace[i].counters.n[COUNT_CHUNK_SCAN_CALLS], 2);   /* 2 Mamba layers */
			ck_assert_int_eq(m->trace[i].counters.n[COUNT_GATHERS], 4);
		}
	report_release(&r);
}
END_TEST

static void find_programs(void)
{
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	BUG_ON(n < 0);
	dir[n] = '\0';
	for (int i = 0; i < 3; i++)
		*strrchr(dir, '/') = '\0';
	snprintf(temp, sizeof(temp), "/tmp/check-engine-XXXXXX");
	BUG_ON(!mkdtemp(temp));
}

static void remove_temp(void)
{
	char *line = xasprintf("rm -r %s", temp);

	BUG_ON(system(line));
	free(line);
}

#define COUNT(array) (int)(sizeof(array) / sizeof(*(array)))

int main(void)
{
	Suite *s = suite_create("assay-engine");
	TCase *line = tcase_create("command line"), *reports = tcase_create("reports"), *planted = tcase_create("faults");
	SRunner *runner = srunner_create(s);
	int failed;

	find_programs();
	tcase_set_timeout(line, 60);
	tcase_add_loop_test(line, test_refused, 0, COUNT(refused));
	tcase_add_test(line, test_help);
	tcase_add_test(line, test_man_page);
	tcase_add_test(line, test_version);
	tcase_add_test(line, test_arms);
	tcase_add_test(line, test_text);
	tcase_add_test(line, test_name_of_bytes);
	tcase_add_test(line, test_text_of_nothing);
	tcase_add_loop_test(line, test_prompts, 0, COUNT(prompts));
	suite_add_tcase(s, line);
	tcase_set_timeout(reports, 60);
	tcase_add_test(reports, test_report);
	tcase_add_test(reports, test_report_of_layers);
	tcase_add_loop_test(reports, test_repeats, 0, 2);
	tcase_add_test(reports, test_trace);
	tcase_add_test(reports, test_prefill_chunk);
	suite_add_tcase(s, reports);
	tcase_set_timeout(planted, 60);
	tcase_add_loop_test(planted, test_fault, 0, 2 * COUNT(faults));
	tcase_add_test(planted, test_feature_cells);
	tcase_add_loop_test(planted, test_path_fault, 0, COUNT(paths));
	tcase_add_test(planted, test_wrong_path);
	suite_add_tcase(s, planted);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	remove_temp();
	return failed != 0;
}
