#ifdef ASSAY_FAULTS
#include "faults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "ref/ref.h"

enum fault fault_planted;

static const struct { const char *name, *says; } table[] = {
	[FAULT_NONE] = { "none", "nothing" },
#define FAULT_ENTRY(id, name, says) [FAULT_##id] = { name, says },
	FAULTS(FAULT_ENTRY)
#undef FAULT_ENTRY
};

enum { N_FAULTS = sizeof(table) / sizeof(*table) };

const char *fault_name(void)
{
	return table[fault_planted].name;
}

int fault_option(int *argc, char ***argv)
{
	const char *name;

	if (*argc < 3 || strcmp((*argv)[1], "--fault"))
		return -1;
	name = (*argv)[2];
	if (strcmp(name, "list") == 0) {
		for (int i = 1; i < N_FAULTS; i++)
			printf("%-16s%s\n", table[i].name, table[i].says);
		return EXIT_DONE;
	}
	for (int i = 0; i < N_FAULTS; i++)
		if (strcmp(table[i].name, name) == 0) {
			fault_planted = i;
			(*argv)[2] = (*argv)[0];
			*argv += 2;
			*argc -= 2;
			return -1;
		}
	return cli_usage("", "no fault %s; --fault list shows them", name);
}

/* Scratch of a fault: not counted as an allocation, since the fault is elsewhere. */
static void *scratch(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	BUG_ON(!p);
	return p;
}

static void drop(struct linear *l, int layer, void *ud)
{
	(void)layer;
	(void)ud;
	if (l->input_scale > 0)
		l->input_scale = 1;
}

void fault_drop_input_scales(struct model *m)
{
	model_each_linear(m, drop, NULL);
}

void fault_scale_state(struct forward *f, int layer, int rows)
{
	const struct state_array *a = &f->pool->layers[layer].array[STATE_SSM];
	const struct lane *l = &f->main;
	size_t bytes = a->size * dtype_size(a->view.dtype);
	struct state_view copy = { .data = scratch(bytes), .dtype = a->view.dtype };
	double *x = scratch(a->size * sizeof(*x));
	int32_t *slots = scratch(rows * sizeof(*slots));

	l->b->download(l->dev, slots, l->slots, rows * sizeof(*slots));
	for (int r = 0; r < rows; r++) {
		char *at = (char *)a->view.data + slots[r] * a->view.stride * dtype_size(a->view.dtype);

		l->b->download(l->dev, copy.data, at, bytes);
		ref_load(x, copy, 0, a->size);
		for (size_t i = 0; i < a->size; i++)
			x[i] *= 1 + 0x1p-8;
		ref_store(copy, 0, x, a->size);
		l->b->upload(l->dev, at, copy.data, bytes);
	}
	free(copy.data);
	free(x);
	free(slots);
}

/* Each chunk but its last token; then that token from the state so far, which is put back. */
void fault_scan_to_boundary(struct forward *f, struct lane *l, void *y, const void *u, const void *dt, int ld,
			    struct state_view ssm, int slot, const struct mamba *w, int T, int64_t pos)
{
	const struct config *c = &f->model->config;
	size_t bytes = (size_t)c->d_inner * c->ssm_state_size * dtype_size(ssm.dtype);
	char *state = (char *)ssm.data + slot * ssm.stride * dtype_size(ssm.dtype);
	void *saved = scratch(bytes);

	for (int t = 0, n; t < T; t += n) {
		int left = c->chunk_size - (int)((pos + t) % c->chunk_size);
		bool edge = left == 1 && t + 1 < T;

		n = left > 1 ? left - 1 : 1;
		if (n > T - t)
			n = T - t;
		if (edge)
			l->b->download(l->dev, saved, state, bytes);
		l->b->ssm_scan(l->dev, (char *)y + (size_t)t * c->d_inner * l->act,
			       (const char *)u + (size_t)t * c->conv_dim * l->act, c->conv_dim,
			       (const char *)dt + (size_t)t * ld * l->act, ld, ssm, slot, w, &f->ssm, f->dt_limit, n,
			       pos + t);
		if (edge)
			l->b->upload(l->dev, state, saved, bytes);
	}
	free(saved);
}

void fault_swap_bc(struct forward *f, struct lane *l, void *u, int T)
{
	const struct config *c = &f->model->config;
	size_t n = (size_t)T * c->conv_dim;
	int bc = c->n_groups * c->ssm_state_size;
	double *x = scratch(n * sizeof(*x));

	l->b->act_to_host(l->dev, x, u, n);
	for (int t = 0; t < T; t++)
		for (int i = 0; i < bc; i++) {
			double *b = x + (size_t)t * c->conv_dim + c->d_inner + i, kept = *b;

			*b = b[bc];
			b[bc] = kept;
		}
	l->b->act_from_host(l->dev, u, x, n);
	free(x);
}

/* y = rms_norm_per_group(y) * w * silu(z) */
void fault_gate_after_norm(struct forward *f, struct lane *l, void *y, const void *z, int ldz, const float *w, int T)
{
	const struct config *c = &f->model->config;
	int n = c->d_inner, size = n / c->n_groups, compute = f->compute;
	double *x = scratch(n * sizeof(*x)), *gate = scratch(n * sizeof(*gate));

	for (int t = 0; t < T; t++) {
		char *row = (char *)y + (size_t)t * n * l->act;

		l->b->act_to_host(l->dev, x, row, n);
		l->b->act_to_host(l->dev, gate, (const char *)z + (size_t)t * ldz * l->act, n);
		for (int g = 0; g < c->n_groups; g++) {
			double squares = 0;

			for (int i = g * size; i < (g + 1) * size; i++)
				squares += x[i] * x[i];
			for (int i = g * size; i < (g + 1) * size; i++) {
				double out = x[i] / sqrt(squares / size + c->layer_norm_epsilon) * w[i] * gate[i] /
					(1 + exp(-gate[i]));

				x[i] = compute == COMPUTE_BF16 ? ref_bf16(out) : compute == COMPUTE_FP32 ? (float)out : out;
			}
		}
		l->b->act_from_host(l->dev, row, x, n);
	}
	free(x);
	free(gate);
}

/* The selection stays; the weights become sigmoid + bias of the chosen. */
void fault_weigh_with_bias(struct forward *f, struct lane *l, const struct moe *w, int T)
{
	const struct config *c = &f->model->config;
	int H = c->hidden_size, k = c->num_experts_per_tok;
	bool wide = l->act == sizeof(double);
	double *x = scratch((size_t)T * H * sizeof(*x)), *weight = scratch(k * sizeof(*weight));
	float *narrow = scratch(k * sizeof(*narrow));
	int32_t *expert = scratch((size_t)T * k * sizeof(*expert));

	l->b->act_to_host(l->dev, x, l->x, (size_t)T * H);
	l->b->download(l->dev, expert, l->expert, (size_t)T * k * sizeof(*expert));
	for (int t = 0; t < T; t++) {
		double sum = 0;

		for (int j = 0; j < k; j++) {
			const float *gate = w->gate + (size_t)expert[t * k + j] * H;
			double logit = 0;

			for (int i = 0; i < H; i++)
				logit += gate[i] * x[(size_t)t * H + i];
			weight[j] = 1 / (1 + exp(-logit)) + w->correction_bias[expert[t * k + j]];
			sum += weight[j];
		}
		for (int j = 0; j < k; j++) {
			weight[j] *= c->routed_scaling_factor / (c->norm_topk_prob ? sum + 1e-20 : 1);
			narrow[j] = (float)weight[j];
		}
		if (wide)
			l->b->upload(l->dev, (double *)l->weight + (size_t)t * k, weight, k * sizeof(*weight));
		else
			l->b->upload(l->dev, (float *)l->weight + (size_t)t * k, narrow, k * sizeof(*narrow));
	}
	free(x);
	free(weight);
	free(narrow);
	free(expert);
}

void fault_count_as_asked(struct forward *f, int index, const struct step *step, const struct counters *before)
{
	static const enum counter path[] = {
		COUNT_STATE_UPDATE_ROWS, COUNT_CONV_UPDATE_ROWS, COUNT_CHUNK_SCAN_CALLS, COUNT_CONV_FWD_CALLS, COUNT_GATHERS,
		COUNT_SCATTERS,
	};
	const struct plan *p = &f->plan[index];
	bool chunk = step->prefill ? !p->prefill_step : p->asked_chunk;
	int64_t *n = f->counters->n;

	for (size_t i = 0; i < sizeof(path) / sizeof(*path); i++)
		n[path[i]] = before->n[path[i]];
	if (!chunk) {
		n[COUNT_STATE_UPDATE_ROWS] += step->T;
		n[COUNT_CONV_UPDATE_ROWS] += step->T;
		return;
	}
	n[COUNT_CHUNK_SCAN_CALLS]++;
	n[COUNT_CONV_FWD_CALLS]++;
	if (p->asked_chunk && (!step->prefill || step->pos > 0)) {
		n[COUNT_GATHERS] += 2;
		n[COUNT_SCATTERS] += 2;
	}
}

void fault_swap_ranks(struct logits_row *rows, int n)
{
	static long clock;

	for (int i = 0; i < n; i++)
		if (++clock % 100 == 0 && rows[i].n_top > 1) {
			int32_t best = rows[i].top_id[0];

			rows[i].top_id[0] = rows[i].top_id[1];
			rows[i].top_id[1] = best;
		}
}

#else
typedef int faults_not_in_this_build;   /* ISO C wants a declaration in every file */
#endif
