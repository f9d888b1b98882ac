/* Which experts decode steps choose: counted by layer, to see that tokens are routed apart. */
#ifndef ASSAY_ENGINE_ROUTING_H
#define ASSAY_ENGINE_ROUTING_H

#include <stdint.h>
#include "backend.h"

struct routing {
	int layers, experts, per_token, rows;
	int32_t *ids;                /* owned [rows * per_token]: of one layer and step */
	bool *step, *ever;           /* owned [experts] and [layers * experts] */
	long *sum, *steps;           /* owned [layers]: distinct experts of each step, summed; steps seen */
};

void routing_open(struct routing *r, const struct config *c, int rows);     /* rows: most tokens of a step */
void routing_release(struct routing *r);
/* The choice of T tokens in one layer; `expert` as the op `route` left it, in the backend's memory. */
void routing_add(struct routing *r, const struct backend *b, struct device *dev, const int32_t *expert, int layer, int T);
double routing_in_a_step(const struct routing *r, int layer);      /* distinct experts, mean over steps; 0: no MoE layer */
int routing_in_all(const struct routing *r, int layer);            /* distinct over all steps */

#endif
