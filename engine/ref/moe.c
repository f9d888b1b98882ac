/* Squared ReLU, the router and the routed experts.  docs/model.md, 3.5 and 3.6. */
#include <math.h>
#include <string.h>
#include "ref.h"

/* x = max(x, 0)^2 */
void ref_relu2(struct device *dev, void *x, int T, int n)
{
	double *a = x;

	for (size_t i = 0; i < (size_t)T * n; i++)
		a[i] = a[i] > 0 ? a[i] * a[i] : 0;
	ref_round(dev, a, (size_t)T * n);
}

/* Index of the largest value, the lower one among equals. */
static int best(const double *value, int n)
{
	int at = 0;

	for (int i = 1; i < n; i++)
		if (value[i] > value[at])
			at = i;
	return at;
}

/* Group limiting: only the experts of the topk_group groups with the largest sums of their two best choices stay
 * (3.6 step 4). */
static void limit_groups(double *choice, double *score, const struct route_shape *shape)
{
	int size = shape->experts / shape->n_group;

	for (int g = 0; g < shape->n_group; g++) {
		double first = -INFINITY, second = -INFINITY;

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
	for (int kept = 0; kept < shape->topk_group; kept++)
		score[best(score, shape->n_group)] = -INFINITY;
	for (int g = 0; g < shape->n_group; g++)
		for (int e = g * size; e < (g + 1) * size && score[g] > -INFINITY; e++)
			choice[e] = -INFINITY;
}

/* s = sigmoid(gate x); the k largest s + bias; weights s / sum(s) * scaling */
static void route_row(struct device *dev, int32_t *expert, double *weight, const double *x, const float *gate,
		      const float *bias, int H, const struct route_shape *shape)
{
	int E = shape->experts, k = shape->per_token;
	double *s = dev->choice, *choice = s + E, *score = choice + E, sum = 0;

	for (int e = 0; e < E; e++) {
		double logit = 0;

		for (int i = 0; i < H; i++)
			logit += gate[(size_t)e * H + i] * x[i];
		s[e] = 1 / (1 + exp(-logit));
		choice[e] = s[e] + bias[e];
	}
	if (shape->n_group > 1)
		limit_groups(choice, score, shape);
	for (int j = 0; j < k; j++) {
		expert[j] = best(choice, E);
		choice[expert[j]] = -INFINITY;
		weight[j] = s[expert[j]];
		sum += weight[j];
	}
	for (int j = 0; j < k; j++) {
		if (shape->norm_topk_prob)
			weight[j] /= sum + 1e-20;
		weight[j] *= shape->scaling;
	}
}

void ref_route(struct device *dev, int32_t *expert, void *weight, const void *x, const float *gate, const float *bias,
	       int H, const struct route_shape *shape, int T)
{
	for (int t = 0; t < T; t++)
		route_row(dev, expert + t * shape->per_token, (double *)weight + t * shape->per_token,
			  (const double *)x + (size_t)t * H, gate, bias, H, shape);
}

/* Expert by expert, so that each weight row is expanded once however many tokens chose it; the sum is then formed
 * per token in the order of its slots. */
void ref_experts(struct device *dev, void *y, const void *x, const int32_t *expert, const void *weight,
		 const struct moe *w, struct rule rule, int per_token, int X, int T)
{
	const double *in = x, *share = weight;
	double *out = y;

	for (int e = 0; e < dev->config->n_routed_experts; e++) {
		const struct linear *up = &w->experts[e].up_proj, *down = &w->experts[e].down_proj;
		int n = 0;

		for (int i = 0; i < T * per_token; i++)
			if (expert[i] == e) {
				memcpy(dev->expert_in + (size_t)n * X, in + (size_t)(i / per_token) * X, X * sizeof(*in));
				dev->expert_rows[n++] = i;
			}
		if (n == 0)
			continue;
		ref_linear(dev, dev->expert_up, up->out, dev->expert_in, X, up, linear_numerics(up, rule), n);
		ref_relu2(dev, dev->expert_up, n, up->out);
		ref_linear(dev, dev->expert_in, X, dev->expert_up, up->out, down, linear_numerics(down, rule), n);
		for (int i = 0; i < n; i++)
			memcpy(dev->expert_out + (size_t)dev->expert_rows[i] * X, dev->expert_in + (size_t)i * X,
			       X * sizeof(*in));
	}
	for (int t = 0; t < T; t++)
		for (int i = 0; i < X; i++) {
			double sum = 0;

			for (int j = 0; j < per_token; j++)
				sum += share[t * per_token + j] * dev->expert_out[((size_t)t * per_token + j) * X + i];
			out[(size_t)t * X + i] = sum;
		}
	ref_round(dev, out, (size_t)T * X);
}
