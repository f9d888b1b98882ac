#include "report_check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DECIMALS 0.002         /* three numbers of three decimals, and a little */
#define FLOAT 1e-6             /* of a logit: a few roundings to fp32 */
#define BF16 0.004             /* of a difference that was taken in bf16 */
#define PROBABILITIES 1.01     /* what the listed ids may sum to */

static int complain(char *what, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int complain(char *what, size_t size, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, size, fmt, args);
	va_end(args);
	return -1;
}

int report_check_blocks(const struct report *r, char *what, size_t size)
{
	static const char *const names[] = { "mamba", "attention", "moe", "mlp" };
	const int says[] = { r->model.mamba, r->model.attn, r->model.moe, r->model.mlp };
	enum { KINDS = sizeof(says) / sizeof(says[0]) };
	const json_t *list = json_object_get(r->model.config, "layers_block_type"), *item;
	long long sum = 0, named = 0, n[KINDS] = { 0 };
	size_t i;

	for (int k = 0; k < KINDS; k++)
		sum += says[k];
	if (sum != r->model.layers)
		return complain(what, size, "layers is %d, but the blocks are %lld", r->model.layers, sum);
	json_array_foreach(list, i, item)
		for (int k = 0; k < KINDS; k++)
			if (json_is_string(item) && strcmp(json_string_value(item), names[k]) == 0) {
				n[k]++;
				named++;
			}
	/* an engine that knows no blocks says 0 */
	for (int k = 0; sum && named && named == (long long)json_array_size(list) && k < KINDS; k++)
		if (n[k] != says[k])
			return complain(what, size, "%d of kind %s, but layers_block_type of the config has %lld", says[k], names[k], n[k]);
	return 0;
}

static double slack(double logit)
{
	return DECIMALS + FLOAT * fabs(logit);
}

static bool all_finite(const struct report_step *s)
{
	for (int i = 0; i < s->n_top; i++)
		if (!isfinite(s->top[i].value))
			return false;
	return s->n_top > 0;
}

static int check_margin(const struct report_step *s, char *what, size_t size)
{
	double best = s->top[0].value, between = s->n_top > 1 ? best - s->top[1].value : NAN;
	bool emitted_best = false;

	for (int i = 0; i < s->n_top; i++)
		emitted_best = emitted_best || (s->top[i].id == s->id && best - s->top[i].value <= slack(best));
	if (!emitted_best || !isfinite(s->margin) || !(fabs(s->margin - between) > slack(best) + BF16 * between))
		return 0;
	return complain(what, size, "margin is %.6g, but the first two of top differ by %.6g", s->margin, between);
}

static int check_lse(const struct report_step *s, char *what, size_t size)
{
	double sum = 0;

	if (!isfinite(s->lse))
		return 0;
	for (int i = 0; i < s->n_top && s->top[i].value - s->lse > -30; i++)
		sum += exp(s->top[i].value - s->lse);
	if (sum <= PROBABILITIES)
		return 0;
	return complain(what, size, "lse is %.6g, with which the probabilities of top sum to %.6g", s->lse, sum);
}

static int check_given(const struct report_step *s, char *what, size_t size)
{
	double x = s->given_logit, last = s->top[s->n_top - 1].value;
	int better = 0, as_good = 0, place = -1;

	if (!isfinite(x))
		return 0;
	for (int i = 0; i < s->n_top; i++) {
		better += s->top[i].value > x + slack(x);
		as_good += s->top[i].value >= x - slack(x);
		if (s->top[i].id == s->given)
			place = i;
	}
	if (place >= 0 && fabs(s->top[place].value - x) > slack(x))
		return complain(what, size, "given has the logit %.9g, top has %.9g for the same id", x, s->top[place].value);
	if (place < 0 && x > last + slack(x))
		return complain(what, size, "given has the logit %.9g and is not in top, which goes down to %.9g", x, last);
	if (s->given_rank > better && (as_good == s->n_top || s->given_rank <= as_good))
		return 0;
	return complain(what, size, "given has the rank %d, but %d of top are better%s", s->given_rank, better,
			s->given_rank > as_good ? " and no more" : "");
}

int report_check_step(const struct report_step *s, char *what, size_t size)
{
	if (!s->has_logits || !all_finite(s))
		return 0;
	return check_margin(s, what, size) || check_lse(s, what, size) || (s->has_given && check_given(s, what, size)) ? -1 : 0;
}

int report_check_hashes(const struct report_row *row)
{
	int first = -1;

	for (int t = 0; row->steps && t < row->n; t++) {
		if (!row->steps[t].has_logits)
			continue;
		first = first < 0 ? t : first;
		if (row->steps[t].has_hash != row->steps[first].has_hash)
			return t;
	}
	return -1;
}

static bool same_top(const struct report_step *a, const struct report_step *b)
{
	if (a->n_top != b->n_top)
		return false;
	for (int i = 0; i < a->n_top; i++) {
		const struct top *x = &a->top[i], *y = &b->top[i];

		if (x->id != y->id || (isfinite(x->value) && isfinite(y->value) && fabs(x->value - y->value) > slack(x->value)))
			return false;
	}
	return true;
}

int report_check_modes(const struct report_row *a, const struct report_row *b)
{
	for (int t = 0; a->steps && b->steps && t < a->n && t < b->n; t++) {
		const struct report_step *x = &a->steps[t], *y = &b->steps[t];

		if (x->has_hash && y->has_hash && x->logits_xxh64 == y->logits_xxh64 && x->has_logits && y->has_logits && !same_top(x, y))
			return t;
	}
	return -1;
}
