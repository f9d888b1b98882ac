/* The tiny models of the self-test: logits of every arm against the clean `ref` in f64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/file.h"
#include "contract/report.h"
#include "distance.h"
#include "selftest.h"

/* Of the largest logit: the bounds that the engine's own tests hold its f64 and fp32 to. */
#define F64_ERROR 1e-8
#define FP32_ERROR 5e-5

/* Quantised activations turn one other rounding into units of a logit: there f64 alone is compared. */
static const struct { const char *name, *arm; bool quantised; } models[] = {
	{ "tiny-mix8", "", false },
	{ "tiny-moe", "", false },
	{ "tiny-group", "", false },
	{ "tiny-m", "", false },
	{ "tiny-fp8", ",mamba.proj=w8a8", true },
};

#define STEP "mamba.decode=step,mamba.prefill=chunk"
#define CHUNK "mamba.decode=chunk,prefill_chunk=5,slots=dirty"

enum tiny_arm { F64_STEP, F64_CHUNK, FP32_STEP, FP32_CHUNK, F64_TWIN, FP32_HOST, N_TINY_ARMS };
static const char *const tiny_arms[N_TINY_ARMS] = {
	"backend=ref,compute=f64," STEP, "backend=ref,compute=f64," CHUNK,
	"backend=cpu,compute=fp32," STEP, "backend=cpu,compute=fp32," CHUNK,
	"backend=ref,compute=f64,mamba.decode=chunk", "backend=cpu,compute=fp32,place.mamba=host," STEP,
};

/* Prompts of 1, 9 and 19 ids, below every fixture's vocabulary. */
static const char prompts[] =
	"[{\"id\":\"one\",\"ids\":[65]},{\"id\":\"nine\",\"ids\":[72,101,108,108,111,32,119,111,114]},"
	"{\"id\":\"nineteen\",\"ids\":[11,7,99,3,42,42,17,60,88,5,23,71,12,90,34,56,2,101,77]}]\n";

static int run_arm(struct report *r, const struct selftest *s, const char *fault, size_t model, enum tiny_arm arm, const char *file,
		   struct err *err)
{
	char *dir = path_join(s->fixtures, models[model].name), *report = path_join(s->out, file);
	char *asked = path_join(s->out, "prompts.json"), *factors = xasprintf("%s%s", tiny_arms[arm], models[model].arm);
	const char *more[] = { "--prompts", asked, "--steps", "8", "--mode", "free", "--arm", factors, NULL };
	int failed = file_write(asked, prompts, strlen(prompts), err) || selftest_run(s, fault, dir, report, more, err) ||
		report_load(r, report, err);

	free(dir);
	free(report);
	free(asked);
	free(factors);
	return failed;
}

/* The largest error of a listed logit up to the first other token, over the largest logit; 1 for a row that is missing. */
static double error_of(const struct report_mode *m, const struct report_mode *clean)
{
	double worst = 0, largest = 0;

	for (int i = 0; i < clean->n_rows; i++) {
		const struct report_row *want = &clean->rows[i], *got = report_row_find(m, want->id);

		if (!got || !got->steps || got->n != want->n)
			return 1;
		for (int t = 0; t < want->n; t++) {
			const struct report_step *a = &want->steps[t], *b = &got->steps[t];

			if (!step_finite(b))
				return 1;
			for (int k = 0; k < a->n_top; k++) {
				double x = step_logit(b, a->top[k].id), least = b->top[b->n_top - 1].value;
				double e = fabs(a->top[k].value - (isnan(x) ? least : x));

				largest = fmax(largest, fabs(a->top[k].value));
				worst = fmax(worst, e);
			}
			if (a->id != b->id)
				break;
		}
	}
	return largest > 0 ? worst / largest : 1;
}

static bool same_bits(const struct report_mode *a, const struct report_mode *b)
{
	for (int i = 0; i < a->n_rows; i++)
		for (int t = 0; t < a->rows[i].n; t++)
			if (a->rows[i].steps[t].logits_xxh64 != b->rows[i].steps[t].logits_xxh64)
				return false;
	return true;
}

/* *twins, *hosts: did step and chunk, cpu and ref give the same bits? */
static int try_model(struct detection *d, const struct selftest *s, const char *fault, size_t model, bool *twins, bool *hosts,
		     struct err *err)
{
	struct report clean = { 0 }, got[N_TINY_ARMS] = { { 0 } };
	int failed = run_arm(&clean, s, NULL, model, F64_STEP, "clean.json", err);

	for (int a = 0; a < N_TINY_ARMS && !failed; a++) {
		bool fp32 = a == FP32_STEP || a == FP32_CHUNK || a == FP32_HOST;
		double *worst = fp32 ? &d->fp32 : &d->f64;

		if (fp32 && models[model].quantised)
			continue;
		failed = run_arm(&got[a], s, fault, model, (enum tiny_arm)a, "faulty.json", err);
		if (!failed)
			*worst = fmax(*worst, error_of(&got[a].modes[MODE_FREE], &clean.modes[MODE_FREE]));
	}
	if (!failed)
		*twins = same_bits(&got[F64_STEP].modes[MODE_FREE], &got[F64_TWIN].modes[MODE_FREE]);
	if (!failed)
		*hosts = models[model].quantised ||
			same_bits(&got[FP32_STEP].modes[MODE_FREE], &got[FP32_HOST].modes[MODE_FREE]);
	for (int a = 0; a < N_TINY_ARMS; a++)
		report_release(&got[a]);
	report_release(&clean);
	return failed;
}

int selftest_tiny(struct detection *d, const struct selftest *s, const char *fault, struct err *err)
{
	bool twins = true, hosts = true;

	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		bool mamba = strcmp(models[i].name, "tiny-moe") != 0 && strcmp(models[i].name, "tiny-group") != 0;
		bool same = true, same_host = true;

		if (try_model(d, s, fault, i, &same, &same_host, err))
			return -1;
		twins = twins && (!mamba || same);
		hosts = hosts && (!mamba || same_host);
	}
	d->caught[BY_F64] = d->f64 > F64_ERROR;
	d->caught[BY_FP32] = d->fp32 > FP32_ERROR;
	d->caught[BY_TWINS] = twins || hosts;
	return 0;
}
