/* arm_resolve: what the factors that were left open become, and which values are refused.  docs/formats.md, 2. */
#include <sched.h>
#include <string.h>
#include "contract/err.h"
#include "session.h"

/* Which modules of the layers that an arm governs could take a value. */
struct modules { bool fp8, fp8_scaled, nvfp4, w4a4; };

struct search { const char *layers; struct modules found; };

static void look(struct linear *l, int layer, void *ud)
{
	struct search *s = ud;
	struct err ignored = {0};

	if (s->layers && (layer < 0 || arm_layers_hold(s->layers, layer, &ignored) != 1))
		return;
	s->found.fp8 |= l->format == WEIGHT_FP8;
	s->found.fp8_scaled |= l->format == WEIGHT_FP8 && l->input_scale > 0;
	s->found.nvfp4 |= l->format == WEIGHT_NVFP4;
	s->found.w4a4 |= l->format == WEIGHT_NVFP4 && l->w4a4 && l->input_scale > 0;
}

/* layers == NULL: the whole model. */
static struct modules modules(const struct model *m, const char *layers)
{
	struct search s = { .layers = layers };

	model_each_linear((struct model *)m, look, &s);
	return s.found;
}

static int refuse(const struct arm *arm, enum factor f, const char *why, struct err *err)
{
	char value[32];

	return err_set(err, ERR_INPUT, "%s: %s: %s", factor_name(f), arm_text(arm, f, value, sizeof(value)), why);
}

/* A numerics value is refused only if no module takes it. */
static int check_numerics(const struct arm *arm, struct modules have, struct err *err)
{
	int proj = arm->value[FACTOR_MAMBA_PROJ], experts = arm->value[FACTOR_MOE_EXPERTS];

	if ((proj == MAMBA_PROJ_W8A8 || proj == MAMBA_PROJ_W8A8_LT) && !have.fp8_scaled)
		return refuse(arm, FACTOR_MAMBA_PROJ, have.fp8 ? "no FP8 module here has an input_scale" :
			      "there is no FP8 module here", err);
	if (proj == MAMBA_PROJ_W8A16 && !have.fp8)
		return refuse(arm, FACTOR_MAMBA_PROJ, "there is no FP8 module here", err);
	if (proj == MAMBA_PROJ_NATIVE && have.fp8)
		return refuse(arm, FACTOR_MAMBA_PROJ, "the FP8 modules here take w8a8 or w8a16", err);
	if (experts == MOE_EXPERTS_W4A4 && !have.w4a4)
		return refuse(arm, FACTOR_MOE_EXPERTS, have.nvfp4 ?
			      "no NVFP4 module here is declared with quantised activations" :
			      "there is no NVFP4 module here", err);
	if (experts == MOE_EXPERTS_W4A16 && !have.nvfp4)
		return refuse(arm, FACTOR_MOE_EXPERTS, "there is no NVFP4 module here", err);
	if (experts == MOE_EXPERTS_NATIVE && have.nvfp4)
		return refuse(arm, FACTOR_MOE_EXPERTS, "the NVFP4 modules here take w4a16 or w4a4", err);
	return 0;
}

static int check_at(const struct arm_at_list *at, const struct model *m, struct err *err)
{
	for (int i = 0; i < at->n; i++) {
		const struct arm_at *item = &at->item[i];
		bool any = false;

		for (int l = 0; l < m->config.num_hidden_layers; l++) {
			int held = arm_layers_hold(item->layers, l, err);

			if (held < 0)
				return -1;
			any |= held;
		}
		if (!any)
			return err_set(err, ERR_INPUT, "at %s: the model has layers 0 to %d", item->layers,
				       m->config.num_hidden_layers - 1);
		if (check_numerics(&item->arm, modules(m, item->layers), err))
			return -1;
	}
	return 0;
}

/* The library's product is chosen for a whole leg: its plans are made at open.  `at` may take layers out of it. */
static int check_library(const struct arm *arm, const struct arm_at_list *at, bool host, struct err *err)
{
	bool all = arm->value[FACTOR_MAMBA_PROJ] == MAMBA_PROJ_W8A8_LT;

	for (int i = 0; i < at->n && !all; i++)
		if (at->item[i].arm.value[FACTOR_MAMBA_PROJ] == MAMBA_PROJ_W8A8_LT)
			return refuse(&at->item[i].arm, FACTOR_MAMBA_PROJ, "only for a whole leg; `at` may exempt layers", err);
	if (all && (arm->value[FACTOR_BACKEND] != BACKEND_CUDA || arm->value[FACTOR_COMPUTE] != COMPUTE_BF16 || host))
		return refuse(arm, FACTOR_MAMBA_PROJ, "only backend: cuda in compute: bf16 has it, and no host", err);
	return 0;
}

static int cores(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

static int state_value(enum dtype d)
{
	return d == DTYPE_BF16 ? MAMBA_STATE_BF16 : d == DTYPE_F16 ? MAMBA_STATE_FP16 : MAMBA_STATE_FP32;
}

/* A captured step holds no host code. */
static bool any_host(const struct arm *arm, const struct arm_at_list *at)
{
	bool host = false;

	for (int i = -1; i < at->n; i++) {
		const int *v = (i < 0 ? arm : &at->item[i].arm)->value;

		host |= v[FACTOR_PLACE_MAMBA] == PLACE_MAMBA_HOST || v[FACTOR_PLACE_ATTN] == PLACE_ATTN_HOST ||
			v[FACTOR_PLACE_MOE] == PLACE_MOE_HOST || v[FACTOR_PLACE_MLP] == PLACE_MLP_HOST;
	}
	return host;
}

static void set_default(struct arm *arm, enum factor f, int value)
{
	if (arm->value[f] == ARM_UNSET)
		arm->value[f] = value;
}

int arm_resolve(struct arm *arm, const struct arm_at_list *at, const struct model *m, struct err *err)
{
	struct modules have = modules(m, NULL);
	bool host = any_host(arm, at), cuda;

	arm_defaults(arm);
	cuda = arm->value[FACTOR_BACKEND] == BACKEND_CUDA;
	set_default(arm, FACTOR_MAMBA_PROJ, have.fp8_scaled ? MAMBA_PROJ_W8A8 : have.fp8 ? MAMBA_PROJ_W8A16 :
		    MAMBA_PROJ_NATIVE);
	set_default(arm, FACTOR_MOE_EXPERTS, have.w4a4 ? MOE_EXPERTS_W4A4 : have.nvfp4 ? MOE_EXPERTS_W4A16 :
		    MOE_EXPERTS_NATIVE);
	set_default(arm, FACTOR_MAMBA_STATE, state_value(m->config.mamba_ssm_cache_dtype));
	set_default(arm, FACTOR_ATTN_KV, arm->value[FACTOR_COMPUTE] == COMPUTE_BF16 ? ATTN_KV_BF16 : ATTN_KV_FP32);
	set_default(arm, FACTOR_GRAPH, cuda && !host ? GRAPH_ON : GRAPH_OFF);
	set_default(arm, FACTOR_THREADS, cores());
	if (arm->value[FACTOR_COMPUTE] == COMPUTE_F64 && arm->value[FACTOR_BACKEND] != BACKEND_REF)
		return refuse(arm, FACTOR_COMPUTE, "only backend: ref computes in double", err);
	if (arm->value[FACTOR_GRAPH] == GRAPH_ON && !cuda)
		return refuse(arm, FACTOR_GRAPH, "only backend: cuda replays graphs", err);
	if (arm->value[FACTOR_GRAPH] == GRAPH_ON && host)
		return refuse(arm, FACTOR_GRAPH, "a block placed on the host cannot be captured", err);
	if (check_numerics(arm, have, err) || check_at(at, m, err) || check_library(arm, at, host, err))
		return -1;
	return backend_find(arm->value[FACTOR_BACKEND], err) ? 0 : -1;
}
