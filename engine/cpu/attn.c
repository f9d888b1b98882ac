#include "product.h"
#include "attn.h"

/* The cache is walked in blocks of KEY_BLOCK positions at absolute multiples of it, with a running maximum, as flash
 * attention does; so a query's result depends neither on its neighbours nor on how the prompt was cut. */

enum { BLOCK_QUERIES = 4 };      /* that share a value vector in registers */

struct attn_job {
	struct device *dev;
	float *y;
	const float *q, *k, *v;
	struct state_view k_cache, v_cache;
	const int32_t *slots, *pos;
	const struct attn_shape *s;
	float k_scale, v_scale;
	int T;
};

/* Query rows of one sequence with consecutive positions, and one kv head. */
struct attn_part {
	int row, rows;           /* token rows */
	int head;                /* kv head */
	int per;                 /* query heads that share it */
	int queries;             /* rows * per: query i is row i / per, head i % per of the group */
};

static void append_row(struct state_view cache, int slot, int pos, const float *row, int n, float scale)
{
	size_t at = (size_t)slot * cache.stride + (size_t)pos * (size_t)n;

	if (cache.dtype == DTYPE_F32) {
		memcpy((float *)cache.data + at, row, (size_t)n * sizeof(float));
	} else if (cache.dtype == DTYPE_BF16) {
		uint16_t *to = (uint16_t *)cache.data + at;
		int i = 0;

		for (; i + VW <= n; i += VW)
			vf_store_bf16(to + i, vf_round_bf16(vf_load(row + i)));
		for (; i < n; i++)
			to[i] = bf16_from_float(row[i]);
	} else {
		for (int i = 0; i < n; i++)
			((uint8_t *)cache.data)[at + (size_t)i] = e4m3_encode(row[i] / scale);
	}
}

static void append(const struct attn_job *j)
{
	int n = j->s->kv_heads * j->s->head_dim;

	for (int t = 0; t < j->T; t++) {
		append_row(j->k_cache, j->slots[t], j->pos[t], j->k + (size_t)t * (size_t)n, n, j->k_scale);
		append_row(j->v_cache, j->slots[t], j->pos[t], j->v + (size_t)t * (size_t)n, n, j->v_scale);
	}
}

/* A cached row as floats, without k_scale or v_scale. */
ALWAYS void load_row(float *to, struct state_view cache, size_t at, int n)
{
	if (cache.dtype == DTYPE_F32) {
		memcpy(to, (const float *)cache.data + at, (size_t)n * sizeof(float));
	} else if (cache.dtype == DTYPE_BF16) {
		const uint16_t *from = (const uint16_t *)cache.data + at;
		int i = 0;

		for (; i + VW <= n; i += VW)
			vf_store(to + i, vf_load_bf16(from + i));
		for (; i < n; i++)
			to[i] = bf16_to_float(from[i]);
	} else {
		for (int i = 0; i < n; i++)
			to[i] = e4m3_table[((const uint8_t *)cache.data)[at + (size_t)i]];
	}
}

/* Rows of floats to dense elements (product.h), each zero-padded to `pad`. */
static void to_dense(void *to, const float *from, int n, int pad, bool half)
{
	for (int i = 0; i < pad; i += VW) {
		vf v = i < n ? vf_load_part(from + i, n - i) : (vf){0};

		if (half) {
			uint16_t words[VW];

			vf_store_bf16(words, v);
			memcpy((uint16_t *)to + i, words, (size_t)min_int(VW, pad - i) * sizeof(*words));
		} else {
			vf_store_part((float *)to + i, v, pad - i);
		}
	}
}

/* Scores of `keys` cached rows from `first` on: scores[query][key]. */
static void block_scores(const struct attn_job *j, const struct attn_part *a, const struct attn_scratch *c, int first,
			 int keys, void *panel)
{
	int hd = j->s->head_dim, row = j->s->kv_heads * hd;
	bool half = product_dense_half(j->dev);
	size_t size = half ? 2 : 4, at = (size_t)j->slots[a->row] * j->k_cache.stride + (size_t)a->head * (size_t)hd;
	struct linear K;
	struct product p;

	for (int i = 0; i < keys; i++) {
		load_row(c->row, j->k_cache, at + (size_t)(first + i) * (size_t)row, hd);
		to_dense((char *)c->keys + (size_t)i * (size_t)hd * size, c->row, hd, hd, half);
	}
	product_dense(&p, &K, j->dev, c->keys, keys, hd);
	p.x = c->queries;
	p.ldx = (size_t)c->pad * size;
	p.y = c->scores;
	p.ldy = KEY_BLOCK;
	p.scale = j->k_cache.dtype == DTYPE_FP8 ? j->k_scale : 1;
	product_block(&p, 0, keys, 0, a->queries, panel);
}

/* Scores of one query -> weights e^(s - top), the running maximum and sum, and what the sums so far are scaled by. */
static float block_weights(float *score, float *top, float *sum, int seen, float scale)
{
	vf most = vf_set1(-__builtin_inff()), total = {0};
	float before = *top, now = before;

	for (int i = 0; i < KEY_BLOCK; i += VW) {
		vf s = vf_load(score + i) * vf_set1(scale);

		vf_store(score + i, s);
	}
	for (int i = seen > 0 ? seen : 0; i < KEY_BLOCK; i++)
		score[i] = -__builtin_inff();
	for (int i = 0; i < KEY_BLOCK; i += VW)
		most = vf_max(vf_load(score + i), most);
	for (int i = 0; i < VW; i++)
		now = most[i] > now ? most[i] : now;
	for (int i = 0; i < KEY_BLOCK; i += VW) {
		vf w = vf_exp(vf_load(score + i) - vf_set1(now));

		vf_store(score + i, w);
		total = total + w;
	}
	float keep = vf_exp(vf_set1(before - now))[0];

	*top = now;
	*sum = *sum * keep + vf_sum(total);
	return keep;
}

/* out[query] = keep * out[query] + sum_j weight_j V_j, key after key: four queries, VW channels. */
ALWAYS void block_values(float *out, const float *weights, const float *values, const float *keep, int queries, int keys,
			 int hd, int ldv)
{
	for (int i = 0; i < hd; i += VW) {
		vf sum[BLOCK_QUERIES];

#pragma GCC unroll 4
		for (int k = 0; k < BLOCK_QUERIES; k++)
			sum[k] = k < queries ? vf_load(out + k * ldv + i) * vf_set1(keep[k]) : (vf){0};
		for (int n = 0; n < keys; n++) {
			vf v = vf_load(values + (size_t)n * (size_t)ldv + i);

#pragma GCC unroll 4
			for (int k = 0; k < BLOCK_QUERIES; k++)
				sum[k] = vf_fma(vf_set1(weights[min_int(k, queries - 1) * KEY_BLOCK + n]), v, sum[k]);
		}
		for (int k = 0; k < queries; k++)
			vf_store(out + k * ldv + i, sum[k]);
	}
}

static void attend_block(const struct attn_job *j, const struct attn_part *a, const struct attn_scratch *c, int first,
			 int keys, void *panel)
{
	int hd = j->s->head_dim, row = j->s->kv_heads * hd;
	size_t at = (size_t)j->slots[a->row] * j->v_cache.stride + (size_t)a->head * (size_t)hd;
	float scale = (float)(1 / __builtin_sqrt(hd));

	block_scores(j, a, c, first, keys, panel);
	for (int i = 0; i < keys; i++)
		load_row(c->values + (size_t)i * (size_t)c->pad, j->v_cache, at + (size_t)(first + i) * (size_t)row, hd);
	for (int i = 0; i < a->queries; i++)
		c->keep[i] = block_weights(c->scores + (size_t)i * KEY_BLOCK, c->top + i, c->sum + i,
					   min_int(j->pos[a->row + i / a->per] + 1 - first, keys), scale);
	for (int i = 0; i < a->queries; i += BLOCK_QUERIES) {
		int n = min_int(BLOCK_QUERIES, a->queries - i);
		int last = j->pos[a->row + (i + n - 1) / a->per];

		if (last >= first)
			block_values(c->out + (size_t)i * (size_t)c->pad, c->scores + (size_t)i * KEY_BLOCK, c->values,
				     c->keep + i, n, min_int(keys, last + 1 - first), hd, c->pad);
	}
}

static void attend(const struct attn_job *j, const struct attn_part *a, const struct attn_scratch *c, void *panel)
{
	int hd = j->s->head_dim, last = j->pos[a->row + a->rows - 1];
	bool half = product_dense_half(j->dev);
	float v_scale = j->v_cache.dtype == DTYPE_FP8 ? j->v_scale : 1;

	for (int i = 0; i < a->queries; i++) {
		size_t head = (size_t)(a->row + i / a->per) * (size_t)j->s->heads + (size_t)(a->head * a->per + i % a->per);

		to_dense((char *)c->queries + (size_t)i * (size_t)c->pad * (half ? 2 : 4), j->q + head * (size_t)hd, hd,
			 c->pad, half);
		c->top[i] = -__builtin_inff();
		c->sum[i] = 0;
		memset(c->out + (size_t)i * (size_t)c->pad, 0, (size_t)c->pad * sizeof(float));
	}
	for (int first = 0; first <= last; first += KEY_BLOCK)
		attend_block(j, a, c, first, min_int(KEY_BLOCK, last + 1 - first), panel);
	for (int i = 0; i < a->queries; i++) {
		size_t head = (size_t)(a->row + i / a->per) * (size_t)j->s->heads + (size_t)(a->head * a->per + i % a->per);
		const float *from = c->out + (size_t)i * (size_t)c->pad;

		for (int k = 0; k < hd; k += VW)
			vf_store_part(j->y + head * (size_t)hd + k,
				      vf_round(j->dev, vf_load(from + k) * vf_set1(v_scale) / vf_set1(c->sum[i])), hd - k);
	}
}

/* Token rows of a part: as many of one sequence as follow each other, from a multiple of QUERY_BLOCK on. */
static int run_length(const struct attn_job *j, int t)
{
	int n = 1, most = QUERY_BLOCK - t % QUERY_BLOCK;

	while (n < most && t + n < j->T && j->slots[t + n] == j->slots[t] && j->pos[t + n] == j->pos[t] + n)
		n++;
	return n;
}

/* part: token rows [QUERY_BLOCK * i, ...) and a kv head. */
static void attn_run_part(void *arg, int part, int thread)
{
	struct attn_job *j = arg;
	struct attn_part a = {.head = part % j->s->kv_heads, .per = j->s->heads / j->s->kv_heads};
	int t = part / j->s->kv_heads * QUERY_BLOCK, end = min_int(t + QUERY_BLOCK, j->T);
	struct attn_scratch c = attn_scratch_layout(j->dev->threads[thread].attn, j->s);

	for (; t < end; t += a.rows) {
		a.row = t;
		a.rows = run_length(j, t);
		a.queries = a.rows * a.per;
		attend(j, &a, &c, j->dev->threads[thread].panel);
	}
}

void cpu_attention(struct device *dev, void *y, const void *q, const void *k, const void *v, struct state_view k_cache,
		   struct state_view v_cache, const int32_t *slots, const int32_t *pos, const struct attn_shape *shape,
		   float k_scale, float v_scale, int T)
{
	struct attn_job j = {dev, y, q, k, v, k_cache, v_cache, slots, pos, shape, k_scale, v_scale, T};

	append(&j);
	pool_run(dev->pool, attn_run_part, &j, (T + QUERY_BLOCK - 1) / QUERY_BLOCK * shape->kv_heads);
}
