#include "contract/busy.h"

#include <stdlib.h>

#include "contract/err.h"

static double number(const json_t *v, const char *key)
{
	return json_number_value(json_object_get(v, key));
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
