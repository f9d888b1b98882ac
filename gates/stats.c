#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/err.h"

/* ---- order statistics */

/* Floyd and Rivest's selection: afterwards x[k] is what sorting would put there, with nothing greater before it
 * and nothing less after it. */
static void select_at(double *x, ptrdiff_t left, ptrdiff_t right, ptrdiff_t k)
{
	while (right > left) {
		if (right - left > 600) {
			double n = (double)(right - left + 1), i = (double)(k - left + 1), z = log(n);
			double s = 0.5 * exp(2 * z / 3);
			double sd = 0.5 * sqrt(z * s * (n - s) / n) * (i < n / 2 ? -1 : 1);
			ptrdiff_t lo = (ptrdiff_t)((double)k - i * s / n + sd);
			ptrdiff_t hi = (ptrdiff_t)((double)k + (n - i) * s / n + sd);

			select_at(x, lo > left ? lo : left, hi < right ? hi : right, k);
		}
		double t = x[k];
		ptrdiff_t i = left, j = right;

		x[k] = x[left];
		x[left] = t;
		if (x[right] > t) {
			x[left] = x[right];
			x[right] = t;
		}
		while (i < j) {
			double swap = x[i];

			x[i++] = x[j];
			x[j--] = swap;
			while (x[i] < t)
				i++;
			while (x[j] > t)
				j--;
		}
		if (x[left] == t) {
			double swap = x[left];

			x[left] = x[j];
			x[j] = swap;
		} else {
			double swap = x[++j];

			x[j] = x[right];
			x[right] = swap;
		}
		if (j <= k)
			left = j + 1;
		if (k <= j)
			right = j - 1;
	}
}

double stats_percentile(double *x, size_t n, double p)
{
	if (n == 0)
		return NAN;
	double at = (double)(n - 1) * p;
	size_t k = (size_t)at;

	select_at(x, 0, (ptrdiff_t)n - 1, (ptrdiff_t)k);
	if (k + 1 >= n || at == (double)k)
		return x[k];
	double next = x[k + 1];

	for (size_t i = k + 2; i < n; i++)
		next = x[i] < next ? x[i] : next;
	return x[k] + (at - (double)k) * (next - x[k]);
}

double stats_median(double *x, size_t n)
{
	return stats_percentile(x, n, 0.5);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void stats_sort(double *x, size_t n)
{
	if (n > 1)
		qsort(x, n, sizeof *x, by_value);
}

double stats_percentile_sorted(const double *x, size_t n, double p)
{
	if (n == 0)
		return NAN;
	double at = (double)(n - 1) * p;
	size_t k = (size_t)at;

	return k + 1 >= n ? x[n - 1] : x[k] + (at - (double)k) * (x[k + 1] - x[k]);
}

double stats_mean(const double *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += x[i];
	return n ? sum / (double)n : NAN;
}

double stats_sd(const double *x, size_t n)
{
	double mean = stats_mean(x, n), sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (x[i] - mean) * (x[i] - mean);
	return n < 2 ? NAN : sqrt(sum / (double)(n - 1));
}

/* ---- Student's t */

/* The continued fraction of the incomplete beta function, by Lentz's method; converges fast for
 * x < (a+1)/(a+b+2). */
static double beta_fraction(double a, double b, double x)
{
	const double tiny = 1e-300;
	double c = 1, d = 1 - (a + b) * x / (a + 1);
	double f = d = 1 / (fabs(d) < tiny ? tiny : d);

	for (int m = 1; m < 500; m++) {
		double m2 = 2.0 * m;
		double even = m * (b - m) * x / ((a + m2 - 1) * (a + m2));
		double odd = -(a + m) * (a + b + m) * x / ((a + m2) * (a + m2 + 1));

		d = 1 + even * d;
		c = 1 + even / c;
		d = 1 / (fabs(d) < tiny ? tiny : d);
		c = fabs(c) < tiny ? tiny : c;
		f *= d * c;
		d = 1 + odd * d;
		c = 1 + odd / c;
		d = 1 / (fabs(d) < tiny ? tiny : d);
		c = fabs(c) < tiny ? tiny : c;
		f *= d * c;
		if (fabs(d * c - 1) < 1e-15)
			break;
	}
	return f;
}

/* What the distribution function and the density share; lgamma is the dear part. */
struct student { double df, log_beta; };

static struct student student_of(double df)
{
	return (struct student){ df, lgamma(df / 2) + lgamma(0.5) - lgamma((df + 1) / 2) };
}

/* P(T > t), t >= 0: half of I_x(df/2, 1/2) at x = df / (df + t^2). */
static double student_upper(const struct student *s, double t)
{
	double a = s->df / 2, b = 0.5, x = s->df / (s->df + t * t);
	double y = t * t / (s->df + t * t);       /* 1 - x without cancellation */

	if (y <= 0)
		return 0.5;
	double front = exp(a * log1p(-y) + b * log(y) - s->log_beta);

	if (x < (a + 1) / (a + b + 2))
		return 0.5 * front * beta_fraction(a, b, x) / a;
	return 0.5 - 0.5 * front * beta_fraction(b, a, y) / b;
}

double stats_student_cdf(double t, double df)
{
	struct student s = student_of(df);
	double upper = student_upper(&s, fabs(t));

	return t > 0 ? 1 - upper : upper;
}

static double student_density(const struct student *s, double t)
{
	return exp(-s->log_beta - 0.5 * log(s->df) - (s->df + 1) / 2 * log1p(t * t / s->df));
}

/* The normal quantile to about 4.5e-4 (Abramowitz and Stegun 26.2.23), and Cornish and Fisher's first terms for t. */
static double student_guess(double upper, double df)
{
	double u = sqrt(-2 * log(upper));
	double z = u - (2.515517 + 0.802853 * u + 0.010328 * u * u) /
		(1 + 1.432788 * u + 0.189269 * u * u + 0.001308 * u * u * u);

	return z + (z * z * z + z) / (4 * df) + (5 * pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * df * df);
}

double stats_student_quantile(double p, double df)
{
	if (!(p > 0 && p < 1 && df >= 1))
		return NAN;
	if (p < 0.5)
		return -stats_student_quantile(1 - p, df);
	if (df == 1)
		return tan(M_PI * (p - 0.5));
	if (df == 2)
		return (2 * p - 1) * sqrt(2 / (4 * p * (1 - p)));
	/* Newton, with bisection whenever a step leaves the bracket. */
	struct student s = student_of(df);
	double upper = 1 - p, lo = 0, hi = INFINITY, t = student_guess(upper, df);

	for (int i = 0; i < 100; i++) {
		double miss = upper - student_upper(&s, t);

		*(miss > 0 ? &hi : &lo) = t;
		double next = t - miss / student_density(&s, t);

		if (!(next > lo && next < hi))
			next = isinf(hi) ? 2 * t + 1 : 0.5 * (lo + hi);
		if (fabs(next - t) <= 1e-13 * (1 + fabs(t)))
			return next;
		t = next;
	}
	return t;
}

/* ---- sign tests */

double stats_sign_upper(int64_t k, int64_t n)
{
	if (k <= 0)
		return 1;
	if (k > n)
		return 0;
	if (2 * k <= n)
		return 1 - stats_sign_upper(n - k + 1, n);
	/* From the largest term of the tail outwards: each is (n-i)/(i+1) < 1 of the one before. */
	double term = exp(lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) -
			  (double)n * M_LN2);
	double sum = 0;

	for (int64_t i = k; i <= n && term > sum * 1e-18; i++) {
		sum += term;
		term *= (double)(n - i) / (double)(i + 1);
	}
	return sum < 1 ? sum : 1;
}

double stats_sign_two_sided(int64_t k, int64_t n)
{
	double p = 2 * stats_sign_upper(k > n - k ? k : n - k, n);

	return p < 1 ? p : 1;
}

/* ---- Poisson-binomial */

/* K(u) - u s and the first two derivatives of the cumulant generating function K(u) = sum ln(1 - q + q e^u). */
static double cumulant(const double *q, size_t n, double u, double *first, double *second)
{
	double k = 0, e = exp(u);

	*first = *second = 0;
	for (size_t i = 0; i < n; i++) {
		double z = 1 - q[i] + q[i] * e, r = q[i] * e / z;

		k += log(z);
		*first += r;
		*second += r * (1 - r);
	}
	return k;
}

static double saddlepoint_upper(const double *q, size_t n, size_t s)
{
	double lo = -40, hi = 40, x = (double)s, first, second;

	for (int i = 0; i < 80; i++) {
		double u = 0.5 * (lo + hi);

		cumulant(q, n, u, &first, &second);
		*(first < x ? &lo : &hi) = u;
	}
	double u = 0.5 * (lo + hi), k = cumulant(q, n, u, &first, &second);

	if (fabs(u) < 1e-4)        /* at the mean the formula is 0/0; its limit is near the normal half */
		return 0.5 * erfc((x - 0.5 - first) / sqrt(2 * second));
	double w = copysign(sqrt(2 * (u * x - k)), u);
	double v = (1 - exp(-u)) * sqrt(second);     /* the lattice correction of a count */
	double p = 0.5 * erfc(w / sqrt(2)) + exp(-w * w / 2) / sqrt(2 * M_PI) * (1 / v - 1 / w);

	return p < 0 ? 0 : p > 1 ? 1 : p;
}

#define RECURSION_WORK 2e9

double stats_poisson_binomial_upper(const double *q, size_t n, size_t s, bool *exact)
{
	if (exact)
		*exact = true;
	if (s == 0)
		return 1;
	if (s > n)
		return 0;
	if ((double)n * (double)s > RECURSION_WORK) {
		if (exact)
			*exact = false;
		return saddlepoint_upper(q, n, s);
	}
	double *f = xcalloc(s + 1, sizeof *f), tail = 0;

	f[0] = 1;
	for (size_t i = 0; i < n; i++) {
		tail += f[s - 1] * q[i];
		for (size_t j = (i + 1 < s ? i + 1 : s - 1); j > 0; j--)
			f[j] = f[j] * (1 - q[i]) + f[j - 1] * q[i];
		f[0] *= 1 - q[i];
	}
	free(f);
	return tail < 1 ? tail : 1;
}

/* ---- Holm */

void stats_holm(double *p, size_t n)
{
	size_t *order = xcalloc(n + 1, sizeof *order);
	double worst = 0;

	for (size_t i = 0; i < n; i++) {
		size_t j = i;

		for (; j > 0 && p[order[j - 1]] > p[i]; j--)
			order[j] = order[j - 1];
		order[j] = i;
	}
	for (size_t i = 0; i < n; i++) {
		double x = p[order[i]] * (double)(n - i);

		worst = x > worst ? x : worst;
		p[order[i]] = worst < 1 ? worst : 1;
	}
	free(order);
}

/* ---- Theil and Sen */

double stats_theil_sen(const double *x, const double *y, size_t n)
{
	if (n < 2)
		return NAN;
	double *slope = xcalloc(n * (n - 1) / 2, sizeof *slope);
	size_t m = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t j = i + 1; j < n; j++)
			if (x[j] != x[i])
				slope[m++] = (y[j] - y[i]) / (x[j] - x[i]);
	double median = stats_median(slope, m);

	free(slope);
	return median;
}

/* ---- how often benign noise moves a margin */

/* The first index whose value is not below x by SAME or more / exceeds x by SAME or more. */
static size_t first_equal(const double *d, size_t n, double x)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (x - d[mid] >= SAME)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static size_t first_greater(const double *d, size_t n, double x)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (d[mid] - x >= SAME)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static double counted(const struct flip_law *law, double x)
{
	size_t from = first_equal(law->d, law->n, x), to = first_greater(law->d, law->n, x);

	return ((double)(law->n - to) + 0.5 * (double)(to - from)) / (2 * (double)law->n);
}

void flip_law_fit(struct flip_law *law, const double *sorted, size_t n)
{
	*law = (struct flip_law){ .d = sorted, .n = n };
	if (n < FLIP_LAW_MIN)
		return;
	law->v = stats_percentile_sorted(sorted, n, 0.95);
	if (law->v < SAME)
		return;
	double sum = 0;
	size_t above = 0;

	for (size_t i = n; i > 0 && sorted[i - 1] >= law->v; i--, above++)
		sum += log(sorted[i - 1] / law->v);
	double mean = above ? sum / (double)above : 0;

	law->a = mean > 0.25 ? 1 / mean : 4;
	law->at_v = counted(law, law->v);
	law->measured = true;
}

double flip_law_q1(const struct flip_law *law, double x)
{
	if (!law->measured || isnan(x))
		return NAN;
	return x <= law->v ? counted(law, x) : law->at_v * pow(x / law->v, -law->a);
}

/* ---- stopping early */

void eprocess_add(struct eprocess *e, double w)
{
	if (isnan(w) || w == 0)
		return;
	e->n++;
	e->positive += w > 0;
	e->log_e += log((w > 0 ? EPROCESS_ALTERNATIVE : 1 - EPROCESS_ALTERNATIVE) / 0.5);
}

bool eprocess_decided(const struct eprocess *e)
{
	return e->log_e >= -log(EPROCESS_ALPHA);
}
