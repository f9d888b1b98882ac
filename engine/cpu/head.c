#include <xxhash.h>
#include "engine/quant.h"
#include "product.h"

/* A row of logits -> what a report keeps of it, as engine/logits.h defines it, faster. */

typedef double vd __attribute__((vector_size(4 * VW)));      /* VW / 2 doubles */
typedef int64_t vl __attribute__((vector_size(4 * VW)));

enum { VD = VW / 2 };

ALWAYS vd vd_set1(double x) { return x - (vd){0}; }

/* e^x for x <= 0 to 1e-15; 0 below -708.  x = n ln 2 + r, e^r by its series. */
ALWAYS vd vd_exp(vd x)
{
	const vd magic = vd_set1(0x1.8p52);
	vl tiny = x < vd_set1(-708);
	vd shifted = x * 0x1.71547652b82fep0 + magic, n = shifted - magic;
	vd r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33, p = vd_set1(1. / 479001600);
	static const double series[] = {1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720,
					1. / 120, 1. / 24, 1. / 6, .5, 1, 1};

	for (int i = 0; i < (int)(sizeof(series) / sizeof(*series)); i++)
		p = p * r + series[i];
	vl k = (vl)shifted - (vl)magic;
	vd y = p * (vd)((k + 1023) << 52);

	return (vd)((vl)y & ~tiny);
}

struct head_job {
	struct device *dev;
	const int32_t *given;
	int32_t *next;
	struct logits_row *out;
	int n;                       /* vocab_size */
	bool round;
};

/* Is (a, i) ahead of (b, j)?  Larger first, equal by lower id, NaN last. */
static bool ahead(float a, int i, float b, int j)
{
	if (a != a || b != b)
		return (a != a) == (b != b) ? i < j : b != b;
	return a > b || (a == b && i < j);
}

static void offer(struct logits_row *out, float logit, int id)
{
	int at = out->n_top;

	if (at == 20 && !ahead(logit, id, (float)out->top_logit[19], out->top_id[19]))
		return;
	if (at < 20)
		out->n_top++;
	else
		at = 19;
	for (; at > 0 && ahead(logit, id, (float)out->top_logit[at - 1], out->top_id[at - 1]); at--) {
		out->top_logit[at] = out->top_logit[at - 1];
		out->top_id[at] = out->top_id[at - 1];
	}
	out->top_logit[at] = logit;
	out->top_id[at] = id;
}

ALWAYS bool any_above(const float *x, int n, float limit)
{
	vi hit = vf_load_part(x, n) > vf_set1(limit);
	int32_t any = 0;

	for (int i = 0; i < VW; i++)
		any |= hit[i];
	return any != 0;
}

/* The 20 best.  A vector in which nothing beats the 20th so far is passed over; ids ascend, so equals never beat. */
static void find_top(struct logits_row *out, const float *x, int n)
{
	for (int i = 0; i < n; i += VW) {
		int m = min_int(VW, n - i);
		float least = out->n_top == 20 ? (float)out->top_logit[19] : 0;

		if (out->n_top == 20 && least == least && !any_above(x + i, m, least))
			continue;
		for (int k = 0; k < m; k++)
			offer(out, x[i + k], i + k);
	}
}

static double sum_exp(const float *x, int n, double top)
{
	vd sum[4] = {{0}};
	double total = 0;
	int i = 0;

	for (; i + 4 * VD <= n; i += 4 * VD)
		for (int k = 0; k < 4; k++) {
			vd v;

			for (int l = 0; l < VD; l++)
				v[l] = x[i + k * VD + l];
			sum[k] = sum[k] + vd_exp(v - vd_set1(top));
		}
	sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
	for (int l = 0; l < VD; l++)
		total += sum[0][l];
	for (; i < n; i++)
		total += vd_exp(vd_set1((double)x[i] - top))[0];
	return total;
}

static void rank_given(struct logits_row *out, const float *x, int n, int given)
{
	int rank = 1;

	for (int i = 0; i < n; i++)
		rank += i != given && ahead(x[i], i, x[given], given);
	out->given_logit = x[given];
	out->given_rank = rank;
}

static void row_part(void *arg, int row, int thread)
{
	struct head_job *j = arg;
	float *x = j->dev->logits + (size_t)row * (size_t)j->n;
	struct logits_row *out = &j->out[row];

	(void)thread;
	for (int i = 0; j->round && i < j->n; i += VW)
		vf_store_part(x + i, vf_round_bf16(vf_load_part(x + i, j->n - i)), j->n - i);
	*out = (struct logits_row){0};
	find_top(out, x, j->n);
	out->lse = out->top_logit[0] + __builtin_log(sum_exp(x, j->n, out->top_logit[0]));
	if (j->given[row] >= 0)
		rank_given(out, x, j->n, j->given[row]);
	out->xxh64 = XXH64(x, (size_t)j->n * sizeof(*x), 0);
	j->next[row] = out->top_id[0];
}

void cpu_head(struct device *dev, int32_t *next, const void *x, const struct linear *w, enum numerics numerics,
	      const int32_t *given, bool head_bf16, int rows)
{
	struct head_job j = {dev, given, next, dev->result, w->out, head_bf16};
	struct product p;

	product_pick(&p, dev, w, numerics);
	p.round = false;
	p.ldy = w->out;
	for (int r = 0; r < rows; r += dev->block_rows) {
		p.y = dev->logits + (size_t)r * (size_t)w->out;
		product_run(dev, &p, (const float *)x + (size_t)r * (size_t)w->in, w->in, numerics,
			    min_int(dev->block_rows, rows - r));
	}
	pool_run(dev->pool, row_part, &j, rows);
}

/* ---- embedding ---- */

static void embed_row(float *to, const struct linear *table, int row)
{
	size_t at = (size_t)row * (size_t)table->in;
	const char *from = table->weight;
	uint16_t word;

	if (table->format == WEIGHT_F32)
		memcpy(to, from + at * sizeof(float), (size_t)table->in * sizeof(float));
	else
		for (int i = 0; i < table->in; i++) {
			memcpy(&word, from + (at + (size_t)i) * sizeof(word), sizeof(word));
			to[i] = table->format == WEIGHT_BF16 ? bf16_to_float(word) : fp16_to_float(word);
		}
}

void cpu_embed(struct device *dev, void *h, const int32_t *ids, const struct linear *table, int T)
{
	BUG_ON(table->format == WEIGHT_FP8 || table->format == WEIGHT_NVFP4);
	for (int t = 0; t < T; t++) {
		float *row = (float *)h + (size_t)t * (size_t)table->in;

		embed_row(row, table, ids[t]);
		for (int i = 0; i < table->in; i += VW)
			vf_store_part(row + i, vf_round(dev, vf_load_part(row + i, table->in - i)), table->in - i);
	}
}
