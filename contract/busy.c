#include "busy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "err.h"
#include "json.h"

static double number(const json_t *v, const char *key)
{
	return json_number_value(json_object_get(v, key));
}

static double at_least(struct jobj *o, const char *key, double least, double most)
{
	double x = json_get_number(o, key, true, least);
	char path[256];

	if (o->err->kind == 0 && !(isfinite(x) && x >= least && x <= most))
		err_set(o->err, ERR_INPUT, "%s: %s: expected a number from %g to %g, found %g", o->file,
			json_path(path, sizeof(path), o->path, key), least, most, x);
	return x;
}

static int check_clock(const json_t *v, const char *file, const char *path, struct err *err)
{
	struct jobj o;
	double least, middle;

	if (json_begin(&o, v, file, path, err))
		return -1;
	least = at_least(&o, "min", 0, 1e6);
	middle = at_least(&o, "p50", least, 1e6);
	at_least(&o, "max", middle, 1e6);
	return json_end(&o);
}

int busy_check(const json_t *busy, const char *file, const char *path, struct err *err)
{
	static const char *const window[] = { "decode", NULL };
	char clock[256];
	struct jobj o;

	if (json_begin(&o, busy, file, path, err))
		return -1;
	at_least(&o, "hz", 0, 1e6);
	json_get_int(&o, "samples", true, 0, 0);
	at_least(&o, "busy_share", 0, 1);
	json_get_word(&o, "window", true, window, 0);
	json_get_int(&o, "other_processes", false, 0, 0);
	if (!json_is_null_member(&o, "sm_clock") &&
	    check_clock(json_get(&o, "sm_clock", true), file, json_path(clock, sizeof(clock), path, "sm_clock"), err))
		return -1;
	return json_end(&o);
}

char *busy_refuse(const json_t *busy)
{
	const json_t *clock = json_object_get(busy, "sm_clock");
	long long samples = json_integer_value(json_object_get(busy, "samples"));
	long long others = json_integer_value(json_object_get(busy, "other_processes"));
	double low = number(clock, "min"), high = number(clock, "max"), middle = number(clock, "p50");

	if (!json_is_object(busy))
		return xasprintf("how busy the device was is not known");
	if (samples < BUSY_SAMPLES_LEAST)
		return xasprintf("%lld busy samples, fewer than %d", samples, BUSY_SAMPLES_LEAST);
	if (others > 0)
		return xasprintf("%lld other compute process%s on the device", others, others > 1 ? "es" : "");
	if (!json_is_object(clock))
		return xasprintf("the clocks of the device are not known");
	if (high - low > BUSY_CLOCK_SPREAD_MOST * middle)
		return xasprintf("SM clock from %.0f to %.0f MHz, a spread of %.1f %%, over %.0f %%", low, high, 100 * (high - low) / middle,
				 100 * BUSY_CLOCK_SPREAD_MOST);
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Clocks of all; null if one of them has none. */
static json_t *join_clocks(const json_t *const *busy, int n)
{
	double *middle = xcalloc((size_t)n, sizeof(*middle)), low = 0, high = 0;
	json_t *joined = NULL;
	int i;

	for (i = 0; i < n; i++) {
		const json_t *clock = json_object_get(busy[i], "sm_clock");

		if (!json_is_object(clock))
			break;
		middle[i] = number(clock, "p50");
		low = i == 0 || number(clock, "min") < low ? number(clock, "min") : low;
		high = i == 0 || number(clock, "max") > high ? number(clock, "max") : high;
	}
	if (i == n) {
		qsort(middle, (size_t)n, sizeof(*middle), ascending);
		joined = json_pack("{s:f, s:f, s:f}", "min", low, "p50", middle[n / 2], "max", high);
	}
	free(middle);
	return joined ? joined : json_null();
}

json_t *busy_join(const json_t *const *busy, int n)
{
	long long samples = 0, others = -1;
	double sum = 0;

	for (int i = 0; i < n; i++) {
		const json_t *other = json_object_get(busy[i], "other_processes");
		long long here = json_integer_value(json_object_get(busy[i], "samples"));

		if (!json_is_object(busy[i]))
			return json_null();
		samples += here;
		sum += (double)here * number(busy[i], "busy_share");
		if (other && json_integer_value(other) > others)
			others = json_integer_value(other);
	}
	if (n == 0)
		return json_null();
	json_t *o = json_pack("{s:O, s:I, s:f, s:o, s:s}", "hz", json_object_get(busy[0], "hz"), "samples", (json_int_t)samples, "busy_share",
			      samples ? sum / (double)samples : 0., "sm_clock", join_clocks(busy, n), "window", "decode");

	if (others >= 0)
		json_object_set_new(o, "other_processes", json_integer(others));
	return o;
}
