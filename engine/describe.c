#include "synth.h"

#include <stdio.h>
#include <string.h>
#include "arena.h"
#include "contract/file.h"
#include "layout.h"

/* Lists tensors instead of loading them. */
struct lister {
	struct layout layout;
	struct safetensors *to;
	const struct quant_config *quant;
	const char *file;
	bool nvfp4;                  /* some module is NVFP4: such repositories keep the router in F32, A_log and D in BF16 */
	int room;
};

static void add(struct lister *ls, const char *module, const char *suffix, enum st_dtype dtype, int rank, const int64_t *shape)
{
	struct safetensors *s = ls->to;
	char name[256];
	struct st_tensor *t;

	if (s->n_tensors == ls->room) {
		ls->room = ls->room ? 2 * ls->room : 256;
		s->tensors = xrealloc(s->tensors, ls->room, sizeof *s->tensors);
	}
	snprintf(name, sizeof name, "%s%s%s", strcmp(module, "lm_head") ? "backbone." : "", module, suffix);
	t = &s->tensors[s->n_tensors++];
	*t = (struct st_tensor){ .disk_name = arena_strdup(&s->arena, name), .file = ls->file, .dtype = dtype, .rank = rank };
	t->name = canonical_name(t->disk_name);
	t->bytes = st_dtype_size(dtype);
	for (int i = 0; i < rank; i++) {
		t->shape[i] = shape[i];
		t->bytes *= (size_t)shape[i];
	}
}

static int list_linear(struct layout *v, struct linear *l, const char *module, int out, int in, int flags)
{
	struct lister *ls = (struct lister *)v;
	enum quant_algo algo = flags & LAYOUT_PLAIN ? QUANT_NONE : quant_config_find(ls->quant, module);

	(void)l;
	switch (algo) {
	case QUANT_NONE:
		add(ls, module, ".weight", ST_BF16, 2, (int64_t[]){ out, in });
		break;
	case QUANT_FP8:
		add(ls, module, ".weight", ST_F8_E4M3, 2, (int64_t[]){ out, in });
		add(ls, module, ".weight_scale", ST_F32, 0, NULL);
		add(ls, module, ".input_scale", ST_F32, 1, (int64_t[]){ 1 });
		break;
	default:
		add(ls, module, ".weight", ST_U8, 2, (int64_t[]){ out, in / 2 });
		add(ls, module, ".weight_scale", ST_F8_E4M3, 2, (int64_t[]){ out, in / 16 });
		add(ls, module, ".weight_scale_2", ST_F32, 0, NULL);
		if (algo == QUANT_NVFP4)
			add(ls, module, ".input_scale", ST_F32, 0, NULL);
	}
	if (flags & LAYOUT_BIAS)
		add(ls, module, ".bias", ST_BF16, 1, (int64_t[]){ out });
	return 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

static int list_vector(struct layout *v, const float **to, const char *name, int rank, const int64_t *shape)
{
	struct lister *ls = (struct lister *)v;
	bool f32 = ends_with(name, "e_score_correction_bias") || (ls->nvfp4 && ends_with(name, "gate.weight")) ||
		   (!ls->nvfp4 && (ends_with(name, ".A_log") || ends_with(name, ".D")));

	(void)to;
	add(ls, name, "", f32 ? ST_F32 : ST_BF16, rank, shape);
	return 0;
}

static int list_kv_scale(struct layout *v, float *to, const char *name)
{
	struct lister *ls = (struct lister *)v;

	(void)to;
	if (ls->quant->algo == QUANT_MIXED_PRECISION && ls->quant->kv_fp8)
		add(ls, name, "", ST_F32, 1, (int64_t[]){ 1 });
	return 0;
}

static bool has_nvfp4(const struct quant_config *q)
{
	bool any = q->algo == QUANT_NVFP4 || q->algo == QUANT_W4A16_NVFP4;

	for (int i = 0; i < q->n_layers; i++)
		any |= q->layers[i].algo == QUANT_NVFP4 || q->layers[i].algo == QUANT_W4A16_NVFP4;
	return any;
}

int model_list_tensors(struct model *m, struct quant_config *q, const char *config_path, struct err *err)
{
	struct lister ls = { .layout = { list_linear, list_vector, list_kv_scale }, .to = &m->tensors, .quant = q };
	const char *base = path_base(config_path);
	char *end;

	memset(m, 0, sizeof *m);
	m->dir = xstrdup(config_path);
	m->name = xstrdup(base);
	end = strstr(m->name, ".config.json");
	if (end)
		*end = '\0';
	ls.file = m->dir;
	if (model_read_configs(m, q, config_path, err))
		return -1;
	ls.nvfp4 = has_nvfp4(q);
	return layout_visit(&ls.layout, m);
}

int model_describe(struct model *m, const char *config_path, struct err *err)
{
	struct quant_config q = {0};
	int rc = model_list_tensors(m, &q, config_path, err) || safetensors_sort(&m->tensors, err) || model_build(m, &q, err) ? -1 : 0;

	quant_config_release(&q);
	if (rc)
		model_release(m);
	return rc;
}
