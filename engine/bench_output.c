#include "bench_output.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "contract/file.h"
#include "contract/report.h"
#include "contract/version.h"
#include "host.h"

void series_add(struct series *s, double value)
{
	s->run = xrealloc(s->run, (size_t)s->n_run + 1, sizeof(*s->run));
	s->run[s->n_run++] = value;
}

void series_add_step(struct series *s, double value)
{
	s->step = xrealloc(s->step, (size_t)s->n_step + 1, sizeof(*s->step));
	s->step[s->n_step++] = value;
}

void series_release(struct series *s)
{
	free(s->run);
	free(s->step);
	s->run = s->step = NULL;
	s->n_run = s->n_step = 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double percentile(double *v, int n, double q)
{
	int at;

	qsort(v, (size_t)n, sizeof(*v), by_value);
	at = (int)(q * n);
	if (at < q * n)
		at++;
	return v[at > 0 ? at - 1 : 0];
}

/* Of a copy: the order of the runs is kept. */
static double share_of(const double *v, int n, double q)
{
	double *copy = xcalloc((size_t)n, sizeof(*copy)), p;

	memcpy(copy, v, (size_t)n * sizeof(*copy));
	p = percentile(copy, n, q);
	free(copy);
	return p;
}

static double spread(const struct series *s, double q)
{
	return s->step ? share_of(s->step, s->n_step, q) : share_of(s->run, s->n_run, q);
}

double series_median(const struct series *s)
{
	return share_of(s->run, s->n_run, 0.5);
}

void bench_print(const struct series *s, int n)
{
	printf("%-28s %12s %12s %12s %12s %12s  %s\n", "", "median", "p50", "p90", "least", "most", "n");
	for (int i = 0; i < n; i++) {
		if (!s[i].n_run)
			continue;
		printf("%-18s %-9s %12.4g %12.4g %12.4g %12.4g %12.4g  %d\n", s[i].name, s[i].unit, series_median(&s[i]),
		       spread(&s[i], 0.5), spread(&s[i], 0.9), share_of(s[i].run, s[i].n_run, 0),
		       share_of(s[i].run, s[i].n_run, 1), s[i].step ? s[i].n_step : s[i].n_run);
	}
}

static json_t *metric(const struct series *s)
{
	return json_pack("{ss ss sf sf sf si ss}", "name", s->name, "unit", s->unit, "value", series_median(s),
			 "p50", spread(s, 0.5), "p90", spread(s, 0.9), "n", s->step ? s->n_step : s->n_run,
			 "better", s->larger_is_better ? "larger" : "smaller");
}

static json_t *record(const struct series *s, const char *when, const char *model, const char *leg, const char *cpu,
		      const struct bench_shape *shape)
{
	return json_pack("{ss ss sn ss sn ss s{si si si} s{sn sn sn ss} ss so sn sn}", "schema", "assay/bench/1",
			 "when", when, "recipe", "leg", leg, "verdict", "model", model, "shape",
			 "prompt", shape->prompt, "decode", shape->decode, "batch", shape->batch,
			 "box", "gpu", "arch", "driver", "cpu", cpu, "git", assay_git, "metric", metric(s),
			 "busy", "clocks");
}

int bench_write(const char *path, const struct series *s, int n, const char *model, const char *leg,
		const struct bench_shape *shape, struct err *err)
{
	struct report r = {0};
	char when[32], *all = xstrdup("");
	time_t now = time(NULL);
	struct tm utc;
	int status;

	if (host_describe(&r, err)) {
		free(all);
		return -1;
	}
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	for (int i = 0; i < n; i++) {
		if (!s[i].n_run)
			continue;
		json_t *json = record(&s[i], when, model, leg, r.host.cpu ? r.host.cpu : "unknown", shape);
		char *line = json_dumps(json, JSON_COMPACT), *more;

		BUG_ON(!json || !line);
		more = xasprintf("%s%s\n", all, line);
		free(all);
		free(line);
		json_decref(json);
		all = more;
	}
	status = file_write(path, all, strlen(all), err);
	free(all);
	report_release(&r);
	return status;
}
