#include "bench_output.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "contract/busy.h"
#include "contract/file.h"
#include "contract/json.h"
#include "contract/version.h"

void series_add(struct series *s, double value)
{
	s->value = xrealloc(s->value, (size_t)s->n + 1, sizeof(*s->value));
	s->value[s->n++] = value;
}

void series_release(struct series *s)
{
	free(s->value);
	s->value = NULL;
	s->n = 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of a copy: the order of the runs is kept. */
double series_share(const struct series *s, double q)
{
	double *sorted = xcalloc((size_t)s->n, sizeof(*sorted)), v;
	int at = (int)ceil(q * s->n);

	memcpy(sorted, s->value, (size_t)s->n * sizeof(*sorted));
	qsort(sorted, (size_t)s->n, sizeof(*sorted), by_value);
	v = sorted[at > 0 ? at - 1 : 0];
	free(sorted);
	return v;
}

static void print_device(const json_t *busy)
{
	const json_t *clock = json_object_get(busy, "sm_clock");
	char *why = busy_refuse(busy);

	printf("device: busy %.0f %% of the decode window, SM clock %.0f [%.0f, %.0f] MHz, %lld samples\n",
	       100 * json_number_value(json_object_get(busy, "busy_share")), json_number_value(json_object_get(clock, "p50")),
	       json_number_value(json_object_get(clock, "min")), json_number_value(json_object_get(clock, "max")),
	       (long long)json_integer_value(json_object_get(busy, "samples")));
	if (why)
		printf("these times are not to be held against another engine's: %s\n", why);
	free(why);
}

void bench_print(const struct series *s, int n, const struct report *about)
{
	printf("%-28s %12s %12s %12s %12s  %s\n", "", "median", "least", "p90", "most", "of");
	for (int i = 0; i < n; i++) {
		if (!s[i].n)
			continue;
		printf("%-18s %-9s %12.4g %12.4g %12.4g %12.4g  %d %s%s\n", s[i].name, s[i].unit, series_share(&s[i], 0.5),
		       series_share(&s[i], 0), series_share(&s[i], 0.9), series_share(&s[i], 1), s[i].n,
		       s[i].of_steps ? "step" : "run", s[i].n > 1 ? "s" : "");
	}
	if (about->busy)
		print_device(about->busy);
}

static json_t *metric(const struct series *s)
{
	double median = series_share(s, 0.5);

	return json_pack("{ss ss sf sf sf si ss}", "name", s->name, "unit", s->unit, "value", median, "p50", median,
			 "p90", series_share(s, 0.9), "n", s->n, "better", s->larger_is_better ? "larger" : "smaller");
}

static json_t *record(const struct series *s, const char *when, const char *model, const char *leg, const struct report *r,
		      const struct bench_shape *shape)
{
	const json_t *busy = s->of_window ? r->busy : NULL, *clock = json_object_get(busy, "sm_clock");

	return json_pack("{ss ss sn ss sn so s{si si si} s{ss? ss? ss? ss} ss so sO? sO?}", "schema", "assay/bench/1",
			 "when", when, "recipe", "leg", leg, "verdict", "model", json_string_lossy(model), "shape",
			 "prompt", shape->prompt, "decode", shape->decode, "batch", shape->batch,
			 "box", "gpu", r->host.gpu, "arch", r->host.arch, "driver", r->host.driver, "cpu",
			 r->host.cpu ? r->host.cpu : "unknown", "git", assay_git, "metric", metric(s),
			 "busy", json_object_get(busy, "busy_share"), "clocks", clock);
}

int bench_write(const char *path, const struct series *s, int n, const char *model, const char *leg,
		const struct bench_shape *shape, const struct report *about, struct err *err)
{
	char when[32], *all = xstrdup("");
	time_t now = time(NULL);
	struct tm utc;
	int status;

	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	for (int i = 0; i < n; i++) {
		if (!s[i].n)
			continue;
		json_t *json = record(&s[i], when, model, leg, about, shape);
		size_t size;
		char *line, *more;

		BUG_ON(!json);
		line = json_text(json, JSON_COMPACT, &size);
		more = xasprintf("%s%s", all, line);
		free(all);
		free(line);
		json_decref(json);
		all = more;
	}
	status = file_write(path, all, strlen(all), err);
	free(all);
	return status;
}
