#include <math.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY   /* the streaming state on the stack: nothing may allocate after open */
#include <xxhash.h>
#include "logits.h"

/* Is (a, i) ahead of (b, j)?  Larger first, equal by lower id, NaN last. */
static bool ahead(double a, int i, double b, int j)
{
	if (isnan(a) || isnan(b))
		return isnan(a) == isnan(b) ? i < j : isnan(b);
	return a > b || (a == b && i < j);
}

/* Keeps the 20 best so far, sorted. */
static void offer(struct logits_row *out, double logit, int id)
{
	int at = out->n_top;

	if (at == 20 && !ahead(logit, id, out->top_logit[19], out->top_id[19]))
		return;
	if (at < 20)
		out->n_top++;
	else
		at = 19;
	for (; at > 0 && ahead(logit, id, out->top_logit[at - 1], out->top_id[at - 1]); at--) {
		out->top_logit[at] = out->top_logit[at - 1];
		out->top_id[at] = out->top_id[at - 1];
	}
	out->top_logit[at] = logit;
	out->top_id[at] = id;
}

/* One body for both element types; at() reads element i as a double. */
#define FILL(at) do {									\
	double sum = 0, top;								\
	*out = (struct logits_row){0};							\
	for (int i = 0; i < n; i++)							\
		if (out->n_top < 20 || !(at(i) < out->top_logit[19]))			\
			offer(out, at(i), i);						\
	top = out->top_logit[0];							\
	for (int i = 0; i < n; i++)							\
		sum += exp(at(i) - top);						\
	out->lse = top + log(sum);							\
	if (given >= 0) {								\
		out->given_logit = at(given);						\
		out->given_rank = 1;							\
		for (int i = 0; i < n; i++)						\
			out->given_rank += i != given && ahead(at(i), i, at(given), given); \
	}										\
} while (0)

void logits_row_f64(struct logits_row *out, const double *logits, int n, int32_t given, bool f64)
{
#define AT(i) (logits[i])
	FILL(AT);
#undef AT
	if (f64) {
		out->xxh64 = XXH64(logits, (size_t)n * sizeof(*logits), 0);
		return;
	}
	XXH64_state_t hash;

	XXH64_reset(&hash, 0);
	for (int i = 0; i < n; i++) {
		float x = (float)logits[i];

		XXH64_update(&hash, &x, sizeof(x));
	}
	out->xxh64 = XXH64_digest(&hash);
}

void logits_row_f32(struct logits_row *out, const float *logits, int n, int32_t given)
{
#define AT(i) ((double)logits[i])
	FILL(AT);
#undef AT
	out->xxh64 = XXH64(logits, (size_t)n * sizeof(*logits), 0);
}
