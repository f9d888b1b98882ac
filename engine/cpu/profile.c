#include "profile.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAX_ROWS = 64 };

bool profile_enabled;

static struct profile_row rows[MAX_ROWS];
static int n_rows;

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void profile_clear(void)
{
	n_rows = 0;
}

const struct profile_row *profile_rows(int *n)
{
	*n = n_rows;
	return rows;
}

double profile_start(void)
{
	return profile_enabled ? seconds() : 0;
}

void profile_stop(double start, const char *op, const char *module)
{
	const char *dot = module ? strrchr(module, '.') : NULL;
	int i = 0;

	if (!profile_enabled)
		return;
	module = dot ? dot + 1 : module ? module : "";
	while (i < n_rows && (rows[i].op != op || strncmp(rows[i].module, module, sizeof(rows[i].module) - 1)))
		i++;
	if (i == MAX_ROWS)
		return;
	if (i == n_rows) {
		rows[n_rows++] = (struct profile_row){.op = op};
		snprintf(rows[i].module, sizeof(rows[i].module), "%s", module);
	}
	rows[i].seconds += seconds() - start;
	rows[i].calls++;
}
