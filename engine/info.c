#include "info.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"
#include "contract/json.h"
#include "session.h"
#include "synth.h"

static const char help[] =
	"usage: assay-engine info [--json] DIR|CONFIG.json\n\n"
	"Prints the schedule, sizes, numerics and memory of a checkpoint, or of the model that a config.json (with the\n"
	"hf_quant_config.json beside it) describes.  The weights are not scanned.\n";

/* ---- collecting ---- */

static const char *algorithm(const struct linear *l)
{
	if (l->format != WEIGHT_NVFP4)
		return weight_format_name(l->format);
	return l->w4a4 ? "NVFP4" : "W4A16_NVFP4";
}

/* "layers.3.mixer.experts.7.up_proj" -> "mixer.experts.up_proj" */
static char *kind_of(const char *module)
{
	char *kind = xstrdup(module), *to = kind;

	for (const char *p = module; *p;) {
		size_t n = strcspn(p, ".");
		bool skip = isdigit((unsigned char)*p) || (n == 6 && !strncmp(p, "layers", 6));

		if (!skip) {
			if (to != kind)
				*to++ = '.';
			memmove(to, p, n);
			to += n;
		}
		p += n + (p[n] == '.');
	}
	*to = '\0';
	return kind;
}

static void add_to(json_t *o, const char *key, json_int_t n)
{
	json_object_set_new(o, key, json_integer(json_integer_value(json_object_get(o, key)) + n));
}

static json_t *member(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	if (!v) {
		v = json_object();
		json_object_set_new(o, key, v);
	}
	return v;
}

struct tables { json_t *numerics, *modules; };

static void count_linear(struct linear *l, int layer, void *ud)
{
	struct tables *t = ud;
	json_t *row = member(t->numerics, algorithm(l));
	char *kind = kind_of(l->name);

	(void)layer;
	add_to(row, "modules", 1);
	add_to(row, "parameters", (json_int_t)l->out * l->in);
	add_to(row, "bytes", (json_int_t)linear_bytes(l));
	add_to(member(t->modules, kind), algorithm(l), 1);
	free(kind);
}

static json_t *schedule(const struct config *c)
{
	static const char letters[N_BLOCKS] = { [BLOCK_MAMBA] = 'M', [BLOCK_ATTN] = '*', [BLOCK_MOE] = 'E', [BLOCK_MLP] = '-' };
	char *text = xcalloc((size_t)c->num_hidden_layers + 1, 1);
	json_t *s;

	for (int i = 0; i < c->num_hidden_layers; i++)
		text[i] = letters[c->layers_block_type[i]];
	s = json_string(text);
	free(text);
	return s;
}

static json_t *blocks(const struct config *c)
{
	json_t *o = json_object();

	for (int b = 0; b < N_BLOCKS; b++)
		json_object_set_new(o, block_name(b), json_integer(c->n_blocks[b]));
	json_object_set_new(o, "layers", json_integer(c->num_hidden_layers));
	return o;
}

/* Bytes of one sequence's carried state (docs/model.md, section 3.3.3). */
static json_t *state(const struct config *c)
{
	json_int_t mamba = c->n_blocks[BLOCK_MAMBA], attn = c->n_blocks[BLOCK_ATTN];
	json_int_t width = c->mamba_ssm_cache_dtype == DTYPE_F32 ? 4 : 2;

	return json_pack("{s:I, s:I, s:I}", "ssm_bytes", mamba * c->d_inner * c->ssm_state_size * width,
			 "conv_bytes", mamba ? mamba * (c->conv_kernel - 1) * c->conv_dim * 2 : 0,
			 "kv_bytes_per_token", attn * 2 * c->num_key_value_heads * c->head_dim * 2);
}

/* null where this build or machine cannot run the model. */
static json_t *defaults(const struct model *m)
{
	struct arm arm;
	struct arm_at_list at = {0};
	struct err err = {0};

	arm_init(&arm);
	return arm_resolve(&arm, &at, m, &err) ? json_null() : arm_to_json(&arm, &at);
}

json_t *info_json(struct model *m)
{
	struct tables t = { json_object(), json_object() };
	json_t *files = json_array();

	model_each_linear(m, count_linear, &t);
	for (int i = 0; i < m->n_files; i++)
		json_array_append_new(files, json_string_lossy(m->files[i].name));
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:i, s:I, s:o, s:o, s:o, s:b, s:o, s:o}",
			 "name", json_string_lossy(m->name), "path", json_string_lossy(m->dir),
			 "schedule", schedule(&m->config), "blocks", blocks(&m->config), "config", config_to_json(&m->config),
			 "parameters", (json_int_t)m->parameters, "tensors", m->n_tensors,
			 "weight_bytes", (json_int_t)m->weight_bytes, "files", files, "numerics", t.numerics, "modules", t.modules,
			 "kv_cache_fp8_declared", m->kv_fp8_declared, "state", state(&m->config), "defaults", defaults(m));
}

/* ---- printing ---- */

static json_int_t get_int(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* 31577940288 -> "31,577,940,288"; two calls may share one line. */
static const char *grouped(json_int_t n)
{
	static char buf[4][32];
	static int turn;
	char digits[32], *to = buf[turn = (turn + 1) % 4];
	int len = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			to[at++] = ',';
		to[at++] = digits[i];
	}
	to[at] = '\0';
	return to;
}

static void print_sizes(const struct config *c)
{
	printf("hidden %d, vocabulary %d%s, at most %d positions\n", c->hidden_size, c->vocab_size,
	       c->tie_word_embeddings ? " (tied)" : "", c->max_position_embeddings);
	if (c->n_blocks[BLOCK_MAMBA])
		printf("mamba  %d heads x %d, %d groups, state %d, conv %d, chunk %d\n", c->mamba_num_heads, c->mamba_head_dim,
		       c->n_groups, c->ssm_state_size, c->conv_kernel, c->chunk_size);
	if (c->n_blocks[BLOCK_ATTN])
		printf("attn   %d heads x %d, %d kv heads%s\n", c->num_attention_heads, c->head_dim, c->num_key_value_heads,
		       c->attention_bias ? ", biases" : "");
	if (c->n_blocks[BLOCK_MOE]) {
		printf("moe    %d experts x %d, %d per token, shared %d", c->n_routed_experts, c->moe_intermediate_size,
		       c->num_experts_per_tok, c->shared_intermediate_size);
		printf(c->moe_latent_size ? ", latent %d\n" : "\n", c->moe_latent_size);
	}
	for (int i = 0; i < c->n_blocks[BLOCK_MLP]; i++)
		if (!i || c->intermediate_size[i] != c->intermediate_size[0])
			printf(i ? " %d" : "mlp    width %d", c->intermediate_size[i]);
	if (c->n_blocks[BLOCK_MLP])
		putchar('\n');
}

static void print_numerics(json_t *info)
{
	const char *name, *algo;
	json_t *row, *n;

	printf("\n%-30s%10s%18s%18s\n", "numerics", "modules", "parameters", "bytes");
	json_object_foreach(json_object_get(info, "numerics"), name, row)
		printf("  %-28s%10s%18s%18s\n", name, grouped(get_int(row, "modules")), grouped(get_int(row, "parameters")),
		       grouped(get_int(row, "bytes")));
	printf("\nmodules\n");
	json_object_foreach(json_object_get(info, "modules"), name, row) {
		printf("  %-34s", name);
		json_object_foreach(row, algo, n)
			printf("  %s %s", algo, grouped(json_integer_value(n)));
		putchar('\n');
	}
}

static void print_info(struct model *m, json_t *info)
{
	json_t *s = json_object_get(info, "state"), *v;
	const char *key, *sep = "";

	printf("%s  (%s)\n%s\n", m->name, m->dir, json_string_value(json_object_get(info, "schedule")));
	json_object_foreach(json_object_get(info, "blocks"), key, v)
		printf("%s%lld %s", strcmp(key, "mamba") ? ", " : "", (long long)json_integer_value(v), key);
	putchar('\n');
	print_sizes(&m->config);
	printf("%s parameters, %s bytes in %s tensors", grouped(get_int(info, "parameters")),
	       grouped(get_int(info, "weight_bytes")), grouped(get_int(info, "tensors")));
	printf(m->n_files ? ", %d files\n" : "\n", m->n_files);
	print_numerics(info);
	printf("\nstate per sequence: SSM %s bytes, conv %s, KV %s a token%s\n", grouped(get_int(s, "ssm_bytes")),
	       grouped(get_int(s, "conv_bytes")), grouped(get_int(s, "kv_bytes_per_token")),
	       m->kv_fp8_declared ? " (bf16; FP8 is declared)" : "");
	printf("defaults:");
	json_object_foreach(json_object_get(info, "defaults"), key, v) {
		if (json_is_string(v))
			printf("%s %s=%s", sep, key, json_string_value(v));
		else if (json_is_integer(v))
			printf("%s %s=%lld", sep, key, (long long)json_integer_value(v));
		sep = json_is_null(v) ? sep : ",";
	}
	putchar('\n');
}

static int show(const char *path, bool json, struct err *err)
{
	struct model m;
	struct stat st;
	json_t *info;
	int rc = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? model_describe(&m, path, err) : model_open(&m, path, err);

	if (rc)
		return -1;
	info = info_json(&m);
	if (json) {
		json_dumpf(info, stdout, JSON_INDENT(1));
		putchar('\n');
	} else {
		print_info(&m, info);
	}
	json_decref(info);
	model_release(&m);
	return 0;
}

int info_main(int argc, char **argv)
{
	struct cli_option options[] = { { .name = "json" }, { .name = "help" }, { .name = NULL } };
	char **operands = xcalloc((size_t)argc + 1, sizeof *operands);
	struct err err = {0};
	int n = cli_parse(options, operands, argc, argv, &err), status = EXIT_DONE;

	if (n < 0)
		status = cli_fail(&err);
	else if (options[1].given)
		printf("%s", help);
	else if (n != 1)
		status = cli_usage("info", "expected DIR or CONFIG.json");
	else if (show(operands[0], options[0].given, &err))
		status = cli_fail(&err);
	free(operands);
	return status;
}
