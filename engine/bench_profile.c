#include "bench_profile.h"

#include <stdio.h>
#include "contract/err.h"
#include "cpu/profile.h"

bool profile_possible(const struct backend *b) { return b == &cpu_backend || b->profile_begin; }

int profile_begin(struct profile *p, struct err *err)
{
	if (p->b->profile_begin)
		return p->b->profile_begin(p->dev, err);
	profile_enabled = true;
	profile_clear();
	return 0;
}

static void print_ops(const char *what)
{
	int n;
	const struct profile_row *rows = profile_rows(&n);
	double total = 0;

	for (int i = 0; i < n; i++)
		total += rows[i].seconds;
	printf("\n%-32s %10s %8s %12s\n", what, "ms", "share", "calls");
	for (int i = 0; i < n; i++)
		printf("%-14s %-17s %10.3f %7.1f%% %12ld\n", rows[i].op, rows[i].module, 1e3 * rows[i].seconds,
		       100 * rows[i].seconds / total, rows[i].calls);
}

/* A kernel may begin while the one before it ends, and wait for it: the share is of the own time. */
static void print_kernels(const struct kernel_time *rows, int n, const char *what, int steps, double wall)
{
	double own = 0;

	for (int i = 0; i < n; i++)
		own += rows[i].own;
	printf("\n%-26s %12s %8s %12s %10s %10s\n", what, steps > 1 ? "ms a step" : "ms", "share", steps > 1 ? "a step" : "launches",
	       "us each", "with waits");
	for (int i = 0; i < n; i++)
		printf("%-26s %12.4f %7.1f%% %12.4g %10.2f %10.2f\n", rows[i].name, 1e3 * rows[i].own / steps,
		       100 * rows[i].own / own, (double)rows[i].launches / steps,
		       1e6 * rows[i].own / (double)rows[i].launches, 1e6 * rows[i].seconds / (double)rows[i].launches);
	printf("%-26s %12.4f, in %.4f of wall time while traced\n", "device busy", 1e3 * own / steps, 1e3 * wall / steps);
}

int profile_print(struct profile *p, const char *what, int steps, double wall, struct err *err)
{
	const struct kernel_time *rows;
	int n;

	if (!p->b->profile_end) {
		profile_enabled = false;
		print_ops(what);
		return 0;
	}
	if (p->b->profile_end(p->dev, &rows, &n, err))
		return -1;
	print_kernels(rows, n, what, steps, wall);
	return 0;
}

void routing_print(const struct routing *r)
{
	printf("\n%-32s %12s %12s %12s\n", "experts", "of", "a step", "in all steps");
	for (int i = 0; i < r->layers; i++)
		if (r->steps[i])
			printf("layer %-26d %12d %12.2f %12d\n", i, r->experts, routing_in_a_step(r, i), routing_in_all(r, i));
}
