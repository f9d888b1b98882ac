#include "routing.h"

#include <stdlib.h>
#include <string.h>
#include "contract/err.h"

void routing_open(struct routing *r, const struct config *c, int rows)
{
	*r = (struct routing){
		.layers = c->num_hidden_layers, .experts = c->n_routed_experts, .per_token = c->num_experts_per_tok, .rows = rows,
	};
	r->ids = xcalloc((size_t)rows * r->per_token + 1, sizeof(*r->ids));
	r->step = xcalloc((size_t)r->experts + 1, sizeof(*r->step));
	r->ever = xcalloc((size_t)r->layers * r->experts + 1, sizeof(*r->ever));
	r->sum = xcalloc(r->layers, sizeof(*r->sum));
	r->steps = xcalloc(r->layers, sizeof(*r->steps));
}

void routing_release(struct routing *r)
{
	free(r->ids);
	free(r->step);
	free(r->ever);
	free(r->sum);
	free(r->steps);
	*r = (struct routing){0};
}

void routing_add(struct routing *r, const struct backend *b, struct device *dev, const int32_t *expert, int layer, int T)
{
	int n = T * r->per_token;

	BUG_ON(T > r->rows || layer >= r->layers);
	b->download(dev, r->ids, expert, n * sizeof(*r->ids));
	memset(r->step, 0, r->experts * sizeof(*r->step));
	for (int i = 0; i < n; i++) {
		BUG_ON(r->ids[i] < 0 || r->ids[i] >= r->experts);
		r->sum[layer] += !r->step[r->ids[i]];
		r->step[r->ids[i]] = r->ever[(size_t)layer * r->experts + r->ids[i]] = true;
	}
	r->steps[layer]++;
}

double routing_in_a_step(const struct routing *r, int layer)
{
	return r->steps[layer] ? (double)r->sum[layer] / (double)r->steps[layer] : 0;
}

int routing_in_all(const struct routing *r, int layer)
{
	int n = 0;

	for (int e = 0; e < r->experts; e++)
		n += r->ever[(size_t)layer * r->experts + e];
	return n;
}
