#include "product.h"

enum { MOE_TOKENS = 16, EXPERT_ROWS = 32, EXPERT_BYTES = 16384 };

/* ---- router (3.6 steps 1 to 7) ---- */

struct route_job {
	struct device *dev;
	int32_t *expert;
	float *weight;
	const float *bias;
	const struct route_shape *s;
	int T;
};

/* The largest value, the lower index among equals. */
static int best(const float *value, int n)
{
	int at = 0;

	for (int i = 1; i < n; i++)
		if (value[i] > value[at])
			at = i;
	return at;
}

/* Only the experts of the topk_group groups with the largest sums of their two best choices stay (step 4). */
static void limit_groups(float *choice, float *score, const struct route_shape *s)
{
	int size = s->experts / s->n_group;
	const float lowest = -__builtin_inff();

	for (int g = 0; g < s->n_group; g++) {
		float first = lowest, second = lowest;

		for (int e = g * size; e < (g + 1) * size; e++) {
			if (choice[e] > first) {
				second = first;
				first = choice[e];
			} else if (choice[e] > second) {
				second = choice[e];
			}
		}
		score[g] = size > 1 ? first + second : first;
	}
	for (int kept = 0; kept < s->topk_group; kept++)
		score[best(score, s->n_group)] = lowest;
	for (int g = 0; g < s->n_group; g++)
		for (int e = g * size; e < (g + 1) * size && score[g] > lowest; e++)
			choice[e] = lowest;
}

/* `s`: the logits, then their sigmoids. */
static void route_row(const struct route_job *j, int32_t *expert, float *weight, float *s, float *choice)
{
	int E = j->s->experts, k = j->s->per_token;
	float sum = 0;

	for (int e = 0; e < E; e += VW) {
		vf v = vf_sigmoid(vf_load_part(s + e, E - e));

		vf_store_part(s + e, v, E - e);
		vf_store_part(choice + e, v + vf_load_part(j->bias + e, E - e), E - e);
	}
	if (j->s->n_group > 1)
		limit_groups(choice, choice + E, j->s);
	for (int i = 0; i < k; i++) {
		expert[i] = best(choice, E);
		choice[expert[i]] = -__builtin_inff();
		weight[i] = s[expert[i]];
		sum += weight[i];
	}
	for (int i = 0; i < k; i++) {
		if (j->s->norm_topk_prob)
			weight[i] = weight[i] / (sum + 1e-20f);
		weight[i] *= (float)j->s->scaling;
	}
}

static void route_part(void *arg, int part, int thread)
{
	struct route_job *j = arg;

	for (int t = part * MOE_TOKENS; t < min_int((part + 1) * MOE_TOKENS, j->T); t++)
		route_row(j, j->expert + t * j->s->per_token, j->weight + t * j->s->per_token,
			  j->dev->router + (size_t)t * (size_t)j->s->experts, j->dev->threads[thread].choice);
}

void cpu_route(struct device *dev, int32_t *expert, void *weight, const void *x, const float *gate, const float *bias,
	       int H, const struct route_shape *shape, int T)
{
	struct linear router = {.name = "gate", .out = shape->experts, .in = H, .format = WEIGHT_F32, .weight = gate,
				.scale = 1};
	struct product p;

	product_pick(&p, dev, &router, NUMERICS_BF16);
	p.round = false;
	p.y = dev->router;
	p.ldy = shape->experts;
	for (int t = 0; t < T; t += dev->block_rows) {
		struct route_job j = {dev, expert + t * shape->per_token, (float *)weight + t * shape->per_token, bias, shape,
				      min_int(dev->block_rows, T - t)};

		product_run(dev, &p, (const float *)x + (size_t)t * (size_t)H, H, NUMERICS_BF16, j.T);
		pool_run(dev->pool, route_part, &j, (j.T + MOE_TOKENS - 1) / MOE_TOKENS);
	}
}

/* ---- routed experts (3.6 steps 8 and 9) ----
 *
 * A slot is one choice of one token.  Slots are sorted by expert, so that each expert's weights are expanded once for
 * all its tokens; the sum over a token's slots follows in the order of its choices. */

struct expert_job {
	struct device *dev;
	float *y;
	const float *x, *weight;
	const int32_t *expert;
	const struct moe *w;
	struct rule rule;
	int per_token, X, Im, T;
	bool gathered;               /* up_proj reads the packed rows of tokens, not of slots */
	int row_step, row_parts;
};

/* slot_token, slot_at, expert_start, active.  Returns the number of experts that were chosen. */
static int sort_slots(const struct expert_job *j, int experts)
{
	struct device *dev = j->dev;
	int32_t *start = dev->expert_start;
	int active = 0;

	memset(start, 0, ((size_t)experts + 1) * sizeof(*start));
	for (int i = 0; i < j->T * j->per_token; i++)
		start[j->expert[i] + 1]++;
	for (int e = 0; e < experts; e++) {
		if (start[e + 1])
			dev->active[active++] = e;
		start[e + 1] += start[e];
	}
	for (int i = 0; i < j->T * j->per_token; i++) {
		int at = start[j->expert[i]]++;

		dev->slot_token[at] = i / j->per_token;
		dev->slot_expert[at] = j->expert[i];
		dev->slot_at[i] = at;
	}
	memmove(start + 1, start, (size_t)experts * sizeof(*start));
	start[0] = 0;
	return active;
}

static enum numerics pick_up(const struct expert_job *j, struct product *p, int e)
{
	enum numerics n = linear_numerics(&j->w->experts[e].up_proj, j->rule);

	product_pick(p, j->dev, &j->w->experts[e].up_proj, n);
	p->x = j->gathered ? j->dev->packed : j->dev->expert_packed;
	p->ldx = j->dev->expert_stride;
	p->index = j->gathered ? j->dev->slot_token : NULL;
	p->y = j->dev->expert_mid;
	p->ldy = j->Im;
	return n;
}

static enum numerics pick_down(const struct expert_job *j, struct product *p, int e)
{
	enum numerics n = linear_numerics(&j->w->experts[e].down_proj, j->rule);

	product_pick(p, j->dev, &j->w->experts[e].down_proj, n);
	p->x = j->dev->expert_packed;
	p->ldx = j->dev->expert_stride;
	p->y = j->dev->expert_out;
	p->ldy = j->X;
	return n;
}

/* One packed row per token serves all its experts where they keep activations as they are and pack alike. */
static bool can_gather(const struct expert_job *j, int active)
{
	struct product first, p;

	pick_up(j, &first, j->dev->active[0]);
	for (int a = 0; a < active; a++) {
		enum numerics n = pick_up(j, &p, j->dev->active[a]);

		if (n == NUMERICS_W8A8 || n == NUMERICS_W4A4 || p.kernel != first.kernel)
			return false;
	}
	return true;
}

static void pack_tokens_part(void *arg, int part, int thread)
{
	struct expert_job *j = arg;
	struct product p;
	enum numerics n = pick_up(j, &p, j->dev->active[0]);

	pack_rows(&p, j->dev->packed, j->x, j->X, n, part * MOE_TOKENS, min_int((part + 1) * MOE_TOKENS, j->T),
		  j->dev->threads[thread].row);
}

static void pack_slots_part(void *arg, int part, int thread)
{
	struct expert_job *j = arg;
	struct device *dev = j->dev;
	int end = min_int((part + 1) * MOE_TOKENS, j->T * j->per_token);

	for (int s = part * MOE_TOKENS; s < end; s++) {
		struct product p;
		enum numerics n = pick_up(j, &p, dev->slot_expert[s]);

		pack_rows(&p, (char *)dev->expert_packed + (size_t)s * p.ldx,
			  j->x + (size_t)dev->slot_token[s] * (size_t)j->X, j->X, n, 0, 1, dev->threads[thread].row);
	}
}

/* a = relu(up)^2, packed for down_proj. */
static void pack_mid_part(void *arg, int part, int thread)
{
	struct expert_job *j = arg;
	struct device *dev = j->dev;
	int end = min_int((part + 1) * MOE_TOKENS, j->T * j->per_token);

	for (int s = part * MOE_TOKENS; s < end; s++) {
		float *mid = dev->expert_mid + (size_t)s * (size_t)j->Im;
		struct product p;
		enum numerics n = pick_down(j, &p, dev->slot_expert[s]);

		for (int i = 0; i < j->Im; i += VW) {
			vf v = vf_max(vf_set1(0), vf_load_part(mid + i, j->Im - i));

			vf_store_part(mid + i, vf_round(dev, v * v), j->Im - i);
		}
		pack_rows(&p, dev->expert_packed, dev->expert_mid, j->Im, n, s, s + 1, dev->threads[thread].row);
	}
}

static void expert_block(const struct expert_job *j, const struct product *p, int e, int part, int thread)
{
	int r = part % j->row_parts * j->row_step;

	product_block(p, r, min_int(r + j->row_step, p->w->out), j->dev->expert_start[e], j->dev->expert_start[e + 1],
		      j->dev->threads[thread].panel);
}

static void up_part(void *arg, int part, int thread)
{
	struct expert_job *j = arg;
	int e = j->dev->active[part / j->row_parts];
	struct product p;

	pick_up(j, &p, e);
	expert_block(j, &p, e, part, thread);
}

static void down_part(void *arg, int part, int thread)
{
	struct expert_job *j = arg;
	int e = j->dev->active[part / j->row_parts];
	struct product p;

	pick_down(j, &p, e);
	expert_block(j, &p, e, part, thread);
}

static void combine_part(void *arg, int part, int thread)
{
	struct expert_job *j = arg;

	(void)thread;
	for (int t = part * MOE_TOKENS; t < min_int((part + 1) * MOE_TOKENS, j->T); t++)
		for (int i = 0; i < j->X; i += VW) {
			vf sum = {0};

			for (int k = 0; k < j->per_token; k++) {
				size_t at = (size_t)j->dev->slot_at[t * j->per_token + k];

				sum = vf_fma(vf_set1(j->weight[t * j->per_token + k]),
					     vf_load_part(j->dev->expert_out + at * (size_t)j->X + i, j->X - i), sum);
			}
			vf_store_part(j->y + (size_t)t * (size_t)j->X + i, vf_round(j->dev, sum), j->X - i);
		}
}

/* Rows of a part, as in linear.c. */
static void cut_rows(struct expert_job *j, const struct linear *w, int active)
{
	int threads = pool_threads(j->dev->pool), step = EXPERT_ROWS;

	if (j->T == 1) {
		int least = (int)(EXPERT_BYTES / (linear_bytes(w) / (size_t)w->out + 1)) + 1;

		step = active * w->out / (threads * 4) + 1;
		step = threads == 1 ? w->out : step > least ? step : least;
		step = (step + VW - 1) / VW * VW;
	}
	j->row_step = step;
	j->row_parts = (w->out + step - 1) / step;
}

static void run_experts(struct expert_job *j, int experts)
{
	struct pool *pool = j->dev->pool;
	int active = sort_slots(j, experts), slots = j->T * j->per_token;
	int token_parts = (j->T + MOE_TOKENS - 1) / MOE_TOKENS, slot_parts = (slots + MOE_TOKENS - 1) / MOE_TOKENS;

	j->gathered = can_gather(j, active);
	if (j->gathered)
		pool_run(pool, pack_tokens_part, j, token_parts);
	else
		pool_run(pool, pack_slots_part, j, slot_parts);
	cut_rows(j, &j->w->experts[0].up_proj, active);
	pool_run(pool, up_part, j, active * j->row_parts);
	pool_run(pool, pack_mid_part, j, slot_parts);
	cut_rows(j, &j->w->experts[0].down_proj, active);
	pool_run(pool, down_part, j, active * j->row_parts);
	pool_run(pool, combine_part, j, token_parts);
}

void cpu_experts(struct device *dev, void *y, const void *x, const int32_t *expert, const void *weight,
		 const struct moe *w, struct rule rule, int per_token, int X, int T)
{
	for (int t = 0; t < T; t += dev->block_rows) {
		struct expert_job j = {.dev = dev, .y = (float *)y + (size_t)t * (size_t)X,
				       .x = (const float *)x + (size_t)t * (size_t)X,
				       .weight = (const float *)weight + t * per_token, .expert = expert + t * per_token,
				       .w = w, .rule = rule, .per_token = per_token, .X = X,
				       .Im = w->experts[0].up_proj.out, .T = min_int(dev->block_rows, T - t)};

		run_experts(&j, dev->config->n_routed_experts);
	}
}
