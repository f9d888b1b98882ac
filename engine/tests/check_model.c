/* Checkpoints as structs: numerics per module, scales, biases, prefixes, leftovers, what model_verify finds. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "edit.h"
#include "engine/model.h"

static struct model m;
static struct err err;

static int open_dir(const char *dir)
{
	memset(&err, 0, sizeof err);
	return model_open(&m, dir, &err);
}

static void open_fixture(const char *name)
{
	char *dir = xasprintf("engine/tests/fixtures/%s", name);

	ck_assert_msg(open_dir(dir) == 0, "%s", err.text);
	free(dir);
}

static void edit_text(const char *dir, const char *name, const char *text)
{
	edit_write(dir, name, text, strlen(text));
}

/* Opening the edited copy fails with this message behind "DIR/"; the copy is removed. */
static void refused(char *dir, const char *says)
{
	int rc = open_dir(dir);

	if (!rc) {
		rc = model_verify(&m, &err);
		model_release(&m);
	}
	ck_assert_msg(rc == -1, "it was taken; expected: %s", says);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_msg(!strncmp(err.text, dir, strlen(dir)), "%s", err.text);
	ck_assert_str_eq(err.text + strlen(dir) + 1, says);
	edit_remove(dir);
}

static void taken(char *dir)
{
	ck_assert_msg(open_dir(dir) == 0, "%s", err.text);
	ck_assert_msg(model_verify(&m, &err) == 0, "%s", err.text);
}

/* ---- every good fixture loads whole ---- */

static const char *const fixtures[] = {
	"tiny-m", "tiny-attn", "tiny-mlp", "tiny-moe", "tiny-mix8", "tiny-group", "tiny-latent", "tiny-tied", "tiny-bias", "tiny-clamp",
	"tiny-list", "tiny-stacked", "tiny-odd", "tiny-fp8", "tiny-lightning", "tiny-nvfp4", "tiny-super", "tiny-attn-bias",
	"tiny-residual-fp32", "tiny-width-list", "tiny-alias",
};

static void check_linear(struct linear *l, int layer, void *ud)
{
	(void)ud;
	ck_assert_ptr_nonnull(l->name);
	ck_assert_msg(l->weight != NULL && l->out > 0 && l->in > 0 && l->scale > 0, "%s", l->name);
	ck_assert((l->format == WEIGHT_NVFP4) == (l->block_scale != NULL));
	ck_assert_ptr_null(l->prepared);
	if (layer >= 0) {
		char prefix[32];

		snprintf(prefix, sizeof prefix, "layers.%d.mixer.", layer);
		ck_assert_msg(!strncmp(l->name, prefix, strlen(prefix)), "%s", l->name);
	} else {
		ck_assert_str_eq(l->name, "lm_head");
	}
}

START_TEST(test_loads)
{
	size_t bytes = 0;

	open_fixture(fixtures[_i]);
	ck_assert_msg(model_verify(&m, &err) == 0, "%s", err.text);
	model_each_linear(&m, check_linear, NULL);
	for (int i = 0; i < m.tensors.n_tensors; i++)
		if (strncmp(m.tensors.tensors[i].name, "vision_model.", 13))
			bytes += m.tensors.tensors[i].bytes;
	ck_assert_uint_eq(m.weight_bytes, bytes);
	ck_assert_str_eq(m.name, fixtures[_i]);
	for (int i = 0; i < m.n_files; i++)
		ck_assert_uint_eq(strlen(m.files[i].sha256), 64);
	for (int i = 0; i < m.config.num_hidden_layers; i++) {
		const struct mamba *w = &m.layers[i].mamba;

		ck_assert_ptr_nonnull(m.layers[i].norm);
		for (int h = 0; m.layers[i].block == BLOCK_MAMBA && h < m.config.mamba_num_heads; h++)
			ck_assert_double_eq(w->A[h], -exp((double)w->A_log[h]));
	}
	model_release(&m);
}
END_TEST

/* ---- numerics: what make_fixtures.py of the fixtures quantised, written out by hand ---- */

struct expected { const char *module, *algorithm; bool input_scale; };

static const struct expected lightning[] = {
	{ "layers.0.mixer.in_proj", "FP8", true }, { "layers.0.mixer.out_proj", "FP8", true },
	{ "layers.1.mixer.experts.7.up_proj", "W4A16", false }, { "layers.1.mixer.shared_experts.down_proj", "W4A16", false },
	{ "layers.2.mixer.q_proj", "BF16", false }, { "layers.4.mixer.up_proj", "BF16", false }, { "lm_head", "W4A16", false }, { NULL, NULL, false },
};
static const struct expected nvfp4[] = {
	{ "layers.0.mixer.in_proj", "W4A4", true }, { "layers.1.mixer.experts.0.down_proj", "W4A4", true },
	{ "layers.1.mixer.shared_experts.up_proj", "W4A4", true }, { "layers.2.mixer.o_proj", "BF16", false },
	{ "layers.3.mixer.in_proj", "BF16", false }, { "layers.4.mixer.down_proj", "W4A4", true }, { "lm_head", "BF16", false },
	{ NULL, NULL, false },
};
static const struct expected super[] = {
	{ "layers.0.mixer.out_proj", "FP8", true }, { "layers.1.mixer.experts.3.up_proj", "W4A4", true },
	{ "layers.1.mixer.shared_experts.up_proj", "FP8", true }, { "layers.1.mixer.shared_experts.down_proj", "W4A4", true },
	{ "layers.1.mixer.fc1_latent_proj", "FP8", true }, { "layers.1.mixer.fc2_latent_proj", "BF16", false },
	{ "layers.2.mixer.o_proj", "FP8", true }, { "layers.2.mixer.q_proj", "BF16", false },
	{ "layers.3.mixer.shared_experts.down_proj", "FP8", true }, { "lm_head", "BF16", false }, { NULL, NULL, false },
};
static const struct expected fp8[] = {
	{ "layers.3.mixer.out_proj", "FP8", true }, { "layers.5.mixer.experts.2.up_proj", "FP8", true },
	{ "layers.4.mixer.up_proj", "FP8", true }, { "layers.2.mixer.k_proj", "BF16", false }, { "lm_head", "BF16", false }, { NULL, NULL, false },
};
static const struct { const char *fixture; const struct expected *expected; } numerics[] = {
	{ "tiny-lightning", lightning }, { "tiny-nvfp4", nvfp4 }, { "tiny-super", super }, { "tiny-fp8", fp8 },
};

struct lookup { const char *name; struct linear *found; };

static void match(struct linear *l, int layer, void *ud)
{
	struct lookup *k = ud;

	(void)layer;
	if (!strcmp(l->name, k->name))
		k->found = l;
}

static struct linear *find(const char *name)
{
	struct lookup k = { name, NULL };

	model_each_linear(&m, match, &k);
	ck_assert_msg(k.found != NULL, "no module %s", name);
	return k.found;
}

START_TEST(test_numerics)
{
	open_fixture(numerics[_i].fixture);
	for (const struct expected *e = numerics[_i].expected; e->module; e++) {
		const struct linear *l = find(e->module);
		const char *is = l->format == WEIGHT_NVFP4 ? (l->w4a4 ? "W4A4" : "W4A16") : weight_format_name(l->format);

		ck_assert_msg(!strcmp(is, e->algorithm), "%s is %s, expected %s", e->module, is, e->algorithm);
		ck_assert_msg((l->input_scale != 0) == e->input_scale, "%s: input_scale %g", e->module, l->input_scale);
	}
	ck_assert_int_eq(m.has_fp8, _i != 1);
	ck_assert_int_eq(m.has_nvfp4, _i != 3);
	ck_assert_int_eq(m.has_w4a4, _i == 1 || _i == 2);
	ck_assert_int_eq(m.kv_fp8_declared, _i != 3);
	model_release(&m);
}
END_TEST

/* A missing input_scale makes a module weight-only. */
START_TEST(test_weight_only)
{
	char *dir = edit_copy("tiny-nvfp4");

	edit_drop(dir, "backbone.layers.0.mixer.in_proj.input_scale");
	taken(dir);
	ck_assert(!find("layers.0.mixer.in_proj")->w4a4);
	ck_assert(find("layers.0.mixer.out_proj")->w4a4);
	model_release(&m);
	edit_remove(dir);
}
END_TEST

/* ---- values ---- */

START_TEST(test_kv_scales)
{
	char *dir = edit_copy("tiny-lightning");
	float two = 2, minus = -1;

	edit_poke(dir, "backbone.layers.2.mixer.k_proj.k_scale", 0, &two, 4);
	taken(dir);
	ck_assert_float_eq(m.layers[2].attn.k_scale, 2);
	ck_assert_float_eq(m.layers[2].attn.v_scale, 1);
	model_release(&m);
	edit_poke(dir, "backbone.layers.2.mixer.v_proj.v_scale", 0, &minus, 4);
	refused(dir, "model.safetensors: layers.2.mixer.v_proj.v_scale: expected a positive scale, found -1");
	open_fixture("tiny-mix8");
	ck_assert_float_eq(m.layers[2].attn.k_scale, 1);
	model_release(&m);
}
END_TEST

/* Stacked experts are views: expert e begins at e * out * in. */
START_TEST(test_stacked)
{
	const struct st_tensor *t;

	open_fixture("tiny-stacked");
	t = safetensors_find(&m.tensors, "layers.1.mixer.experts.down_proj");
	ck_assert_ptr_nonnull(t);
	for (int e = 0; e < 8; e++) {
		const struct linear *l = &m.layers[1].moe.experts[e].down_proj;

		ck_assert_int_eq(l->out, 64);
		ck_assert_int_eq(l->in, 12);
		ck_assert_ptr_eq(l->weight, (const char *)t->data + (size_t)e * 64 * 12 * 2);
	}
	model_release(&m);
}
END_TEST

START_TEST(test_tied)
{
	uint16_t one = 0x3f80;
	char *dir;
	void *copy;

	open_fixture("tiny-tied");
	ck_assert_ptr_eq(m.lm_head.weight, m.embed.weight);
	ck_assert_str_eq(m.lm_head.name, "lm_head");
	copy = xmalloc(128 * 64 * 2);
	memcpy(copy, m.embed.weight, 128 * 64 * 2);
	model_release(&m);
	dir = edit_copy("tiny-tied");
	edit_add(dir, "lm_head.weight", "BF16", "[128, 64]", copy, 128 * 64 * 2);
	taken(dir);
	ck_assert_int_eq(m.parameters, 48332);      /* the repeated matrix is not counted */
	model_release(&m);
	edit_poke(dir, "lm_head.weight", 2, &one, 2);
	refused(dir, "model.safetensors: lm_head.weight: tie_word_embeddings is true, but it differs from embeddings.weight");
	free(copy);
}
END_TEST

static const struct { const char *dtype; size_t width; } vector_dtypes[] = { { "BF16", 2 }, { "F32", 4 }, { "F16", 2 } };

/* dt_bias of 4 heads in each dtype that a loader takes: 1, -2, 0.5, 0. */
START_TEST(test_vector_dtypes)
{
	static const float f32[4] = { 1, -2, .5, 0 };
	static const uint16_t bf16[4] = { 0x3f80, 0xc000, 0x3f00, 0 }, f16[4] = { 0x3c00, 0xc000, 0x3800, 0 };
	const void *values[] = { bf16, f32, f16 };
	char *dir = edit_copy("tiny-m");

	edit_drop(dir, "backbone.layers.0.mixer.dt_bias");
	edit_add(dir, "backbone.layers.0.mixer.dt_bias", vector_dtypes[_i].dtype, "[4]", values[_i], 4 * vector_dtypes[_i].width);
	taken(dir);
	for (int h = 0; h < 4; h++)
		ck_assert_float_eq(m.layers[0].mamba.dt_bias[h], f32[h]);
	model_release(&m);
	edit_remove(dir);
}
END_TEST

START_TEST(test_biases)
{
	open_fixture("tiny-bias");
	ck_assert_ptr_nonnull(m.layers[0].mamba.in_proj.bias);
	ck_assert_ptr_null(m.layers[0].mamba.conv_bias);
	ck_assert_ptr_nonnull(m.layers[1].mlp.up_proj.bias);
	ck_assert_ptr_null(m.layers[2].attn.q_proj.bias);
	model_release(&m);
	open_fixture("tiny-attn-bias");
	ck_assert_ptr_nonnull(m.layers[0].attn.o_proj.bias);
	ck_assert_ptr_nonnull(m.layers[2].attn.k_proj.bias);
	ck_assert_ptr_null(m.layers[1].mamba.in_proj.bias);
	model_release(&m);
}
END_TEST

/* The shared expert has a bias if the tensor is there, whatever mlp_bias says. */
START_TEST(test_shared_bias)
{
	char *dir = edit_copy("tiny-moe");
	uint16_t bias[24];

	for (int i = 0; i < 24; i++)
		bias[i] = 0x3f80;
	edit_add(dir, "backbone.layers.0.mixer.shared_experts.up_proj.bias", "BF16", "[24]", bias, sizeof bias);
	taken(dir);
	ck_assert_float_eq(m.layers[0].moe.shared.up_proj.bias[23], 1);
	ck_assert_ptr_null(m.layers[0].moe.shared.down_proj.bias);
	model_release(&m);
	edit_remove(dir);
}
END_TEST

/* generation_config.json adds stop tokens. */
START_TEST(test_eos)
{
	char *dir = edit_copy("tiny-m");

	edit_text(dir, "generation_config.json", "{\"eos_token_id\": [2, 11]}");
	taken(dir);
	ck_assert_int_eq(m.config.n_eos, 2);
	ck_assert_int_eq(m.config.eos_token_id[0], 2);
	ck_assert_int_eq(m.config.eos_token_id[1], 11);
	ck_assert_str_eq(m.files[1].name, "generation_config.json");
	model_release(&m);
	edit_remove(dir);
}
END_TEST

/* The files of the bundled model, against sha256sum. */
START_TEST(test_sha256)
{
	static const char *const want[][2] = {
		{ "config.json", "e779982118ff8dcc702299cb869ed08facc8d056e863a140d0ec1658652648d9" },
		{ "hf_quant_config.json", "bad4ea2eca8aded1d4c5e942a7e670c4a2f6d6941774812f167d31b1b01af9aa" },
		{ "model-00001-of-00003.safetensors", "9b8e2cab680942556ae3a76a0f9e46aaf8faac95c2dd107879f4504fe12de32c" },
		{ "model-00002-of-00003.safetensors", "b5107e00095a5157e10e4d041c482b50aa1408a219229eeaeefde1d9103c0606" },
		{ "model-00003-of-00003.safetensors", "4979ca5f9ada6ed3889bc301d2521afce3f81bc7594b0ad14ee51611fdf0916c" },
		{ "model.safetensors.index.json", "25da3f4305d331c4d7a1cef4b0fd7a4c729951fa83a9dbe6aaa512a22996eb20" },
		{ "tokenizer.json", "c05915dc9bd0bf527a6ee2d6c6237d74687d9c1ff9387ada311f3feffca7ebfb" },
	};

	ck_assert_msg(open_dir("oracle-goldens/models/book52-nvfp4/") == 0, "%s", err.text);
	ck_assert_msg(model_verify(&m, &err) == 0, "%s", err.text);
	ck_assert_str_eq(m.name, "book52-nvfp4");
	ck_assert_int_eq(m.n_files, 7);
	for (int i = 0; i < 7; i++) {
		ck_assert_str_eq(m.files[i].name, want[i][0]);
		ck_assert_str_eq(m.files[i].sha256, want[i][1]);
	}
	model_release(&m);
}
END_TEST

/* ---- tensors that nobody takes ---- */

static const struct { const char *tensor; bool taken; } leftovers[] = {
	{ "mtp.layers.0.enorm.weight", true }, { "backbone.layers.0.mixer.rotary_emb.inv_freq", true },
	{ "model.mtp.layers.0.enorm.weight", true },
	{ "mtp_head.weight", false }, { "backbone.layers.0.mixer.q_norm.weight", false }, { "backbone.layers.1.norm.weight", false },
	{ "backbone.layers.0.mixer.q_proj.weight_scale_inv", false }, { "vision_model.patch.weight", false },
	{ "backbone.layers.0.mixer.q_proj.input_scale", false },
};

START_TEST(test_leftovers)
{
	char *dir = edit_copy("tiny-attn"), *says;
	uint16_t one = 0x3f80;

	edit_add(dir, leftovers[_i].tensor, "BF16", "[1]", &one, 2);
	if (leftovers[_i].taken) {
		taken(dir);
		model_release(&m);
		edit_remove(dir);
		return;
	}
	says = xasprintf("model.safetensors: %s: no module of this config takes the tensor",
			 leftovers[_i].tensor + (strncmp(leftovers[_i].tensor, "backbone.", 9) ? 0 : 9));
	refused(dir, says);
	free(says);
}
END_TEST

/* ---- contradictions ---- */

#define UP "layers.1.mixer.experts.0.up_proj"

START_TEST(test_bias_flag)
{
	char *dir = edit_copy("tiny-attn-bias");

	edit_json(dir, "config.json", "{\"attention_bias\": false}");
	refused(dir, "model.safetensors: layers.0.mixer.k_proj.bias: no module of this config takes the tensor");
	dir = edit_copy("tiny-attn");
	edit_json(dir, "config.json", "{\"attention_bias\": true}");
	refused(dir, "model.safetensors: layers.0.mixer.q_proj.bias: the tensor is missing");
}
END_TEST

START_TEST(test_contradictions)
{
	char *dir = edit_copy("tiny-lightning");

	edit_json(dir, "config.json", "{\"quantization_config\": {\"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": "
		  "{\"backbone." UP "\": {\"quant_algo\": \"FP8\"}}}}");
	ck_assert_int_eq(open_dir(dir), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "quantized_layers: " UP " is "));
	edit_json(dir, "config.json", "{\"quantization_config\": {\"quant_method\": \"gptq\"}}");
	refused(dir, "config.json: quantization: quant_method: expected \"modelopt\", found \"gptq\"");
	dir = edit_copy("tiny-lightning");
	edit_json(dir, "config.json", "{\"quantization_config\": {\"quant_algo\": \"MXFP8\"}}");
	refused(dir, "config.json: quantization: quant_algo: expected FP8, NVFP4, W4A16_NVFP4 or MIXED_PRECISION, found MXFP8");
	dir = edit_copy("tiny-nvfp4");
	edit_json(dir, "config.json", "{\"quantization_config\": {\"quant_algo\": \"NVFP4\", \"group_size\": 32}}");
	refused(dir, "config.json: quantization: group_size: expected 16, found 32");
}
END_TEST

/* Metadata lost: the weights say more than they do. */
START_TEST(test_metadata_lost)
{
	char *dir = edit_copy("tiny-nvfp4");

	edit_text(dir, "hf_quant_config.json", "{}");
	refused(dir, "model.safetensors: layers.0.mixer.in_proj.weight: the quantization metadata say not quantised, the weight is U8");
	dir = edit_copy("tiny-mix8");
	edit_text(dir, "hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"FP8\"}}");
	refused(dir, "model.safetensors: layers.0.mixer.in_proj.weight: the quantization metadata say FP8, the weight is BF16");
}
END_TEST

/* Declared W4A16 and stored as something else. */
START_TEST(test_declared_nvfp4)
{
	static const char *const module[] = { "layers.0.mixer.in_proj", "layers.2.mixer.q_proj" };
	char *dir = edit_copy(_i ? "tiny-attn-bias" : "tiny-fp8"), *text, *says;

	text = xasprintf("{\"quantization\": {\"quantized_layers\": {\"backbone.%s\": {\"quant_algo\": \"W4A16_NVFP4\"}}}}", module[_i]);
	edit_text(dir, "hf_quant_config.json", text);
	says = xasprintf("model.safetensors: %s.weight: the quantization metadata say W4A16_NVFP4, the weight is %s", module[_i],
			 _i ? "BF16" : "F8_E4M3");
	refused(dir, says);
	free(says);
	free(text);
}
END_TEST

START_TEST(test_layer_missing)
{
	char *dir = edit_copy("tiny-moe");

	edit_json(dir, "config.json", "{\"hybrid_override_pattern\": \"EE\", \"num_hidden_layers\": 2}");
	refused(dir, "model.safetensors: layers.1.norm.weight: the tensor is missing");
	dir = edit_copy("tiny-moe");
	edit_json(dir, "config.json", "{\"n_shared_experts\": 0}");
	refused(dir, "model.safetensors: layers.0.mixer.shared_experts.down_proj.weight: no module of this config takes the tensor");
	dir = edit_copy("tiny-moe");
	edit_json(dir, "config.json", "{\"n_routed_experts\": 7}");
	refused(dir, "model.safetensors: layers.0.mixer.gate.weight: expected shape [7, 32], found [8, 32]");
}
END_TEST

START_TEST(test_stacked_shape)
{
	char *dir = edit_copy("tiny-stacked");

	edit_json(dir, "config.json", "{\"moe_intermediate_size\": 24}");
	refused(dir, "model.safetensors: layers.1.mixer.experts.up_proj: expected shape [8, 24, 64], found [8, 12, 64]");
	dir = edit_copy("tiny-stacked");
	edit_text(dir, "hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"FP8\", \"exclude_modules\": [\"*_proj\", "
		  "\"lm_head\"], \"quantized_layers\": {\"model." UP "\": {\"quant_algo\": \"FP8\"}}}}");
	ck_assert_int_eq(open_dir(dir), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "quantised stacked experts are not supported"));
	edit_remove(dir);
}
END_TEST

/* ---- what only the scan sees: the last element of a matrix of each format ---- */

static const struct { const char *fixture, *tensor, *says; unsigned char bad[4]; size_t width; } scans[] = {
	{ "tiny-mix8", "backbone.layers.0.mixer.out_proj.weight", "row 63, column 63 is -inf, expected a finite number", { 0x80, 0xff }, 2 },
	{ "tiny-mix8", "lm_head.weight", "row 127, column 63 is nan, expected a finite number", { 0x81, 0x7f }, 2 },
	{ "tiny-mix8", "backbone.embeddings.weight", "row 127, column 63 is inf, expected a finite number", { 0x80, 0x7f }, 2 },
	{ "tiny-stacked", "model.layers.1.mixer.experts.up_proj", "row 11, column 63 is nan, expected a finite number", { 0xc0, 0x7f }, 2 },
	{ "tiny-fp8", "backbone.layers.0.mixer.in_proj.weight", "row 195, column 63 is nan, expected a finite number", { 0xff }, 1 },
	{ "tiny-lightning", "backbone.layers.5.mixer.experts.7.down_proj.weight_scale", "row 63, column 1 is nan, expected a positive number", { 0x7f }, 1 },
	{ "tiny-lightning", "lm_head.weight_scale", "row 127, column 3 is nan, expected a positive number", { 0xff }, 1 },
	{ "tiny-lightning", "lm_head.weight_scale", "row 127, column 3 is -0.00195312, expected a positive number", { 0x81 }, 1 },
};

START_TEST(test_scan)
{
	char *dir = edit_copy(scans[_i].fixture), *says;
	const char *name = scans[_i].tensor;

	edit_poke(dir, name, edit_size(dir, name) - scans[_i].width, scans[_i].bad, scans[_i].width);
	ck_assert_msg(open_dir(dir) == 0, "%s", err.text);
	model_release(&m);
	name += !strncmp(name, "backbone.", 9) ? 9 : !strncmp(name, "model.", 6) ? 6 : 0;
	says = _i == 3 ? xasprintf("model.safetensors: layers.1.mixer.experts.7.up_proj.weight: %s", scans[_i].says) :
			 xasprintf("model.safetensors: %s: %s", name, scans[_i].says);
	refused(dir, says);
	free(says);
}
END_TEST

/* The scans of F32 and F16 matrices, and the largest finite numbers of each. */
START_TEST(test_scan_wide)
{
	static const char *const dtypes[] = { "F32", "F16" };
	static const uint32_t most32 = 0x7f7fffff, inf32 = 0x7f800000;
	static const uint16_t most16 = 0x7bff, inf16 = 0x7c00;
	size_t width = _i ? 2 : 4, n = 32 * 80;
	char *dir = edit_copy("tiny-mlp"), *zeros = xcalloc(n, width);
	const char *name = "backbone.layers.0.mixer.down_proj.weight";

	edit_drop(dir, name);
	edit_add(dir, name, dtypes[_i], "[32, 80]", zeros, n * width);
	edit_poke(dir, name, (n - 1) * width, _i ? (const void *)&most16 : (const void *)&most32, width);
	taken(dir);
	ck_assert_int_eq(m.layers[0].mlp.down_proj.format, _i ? WEIGHT_F16 : WEIGHT_F32);
	model_release(&m);
	edit_poke(dir, name, (n - 1) * width, _i ? (const void *)&inf16 : (const void *)&inf32, width);
	refused(dir, "model.safetensors: layers.0.mixer.down_proj.weight: row 31, column 79 is inf, expected a finite number");
	free(zeros);
}
END_TEST

static void add_tests(TCase *c)
{
	tcase_add_loop_test(c, test_loads, 0, sizeof fixtures / sizeof *fixtures);
	tcase_add_loop_test(c, test_numerics, 0, sizeof numerics / sizeof *numerics);
	tcase_add_test(c, test_weight_only);
	tcase_add_test(c, test_kv_scales);
	tcase_add_test(c, test_stacked);
	tcase_add_test(c, test_tied);
	tcase_add_loop_test(c, test_vector_dtypes, 0, 3);
	tcase_add_test(c, test_biases);
	tcase_add_test(c, test_shared_bias);
	tcase_add_test(c, test_eos);
	tcase_add_test(c, test_sha256);
	tcase_add_loop_test(c, test_leftovers, 0, sizeof leftovers / sizeof *leftovers);
	tcase_add_test(c, test_bias_flag);
	tcase_add_test(c, test_contradictions);
	tcase_add_test(c, test_metadata_lost);
	tcase_add_loop_test(c, test_declared_nvfp4, 0, 2);
	tcase_add_test(c, test_layer_missing);
	tcase_add_test(c, test_stacked_shape);
	tcase_add_loop_test(c, test_scan, 0, sizeof scans / sizeof *scans);
	tcase_add_loop_test(c, test_scan_wide, 0, 2);
}

int main(void)
{
	Suite *s = suite_create("model");
	TCase *c = tcase_create("checkpoints");
	SRunner *runner = srunner_create(s);
	int failed;

	add_tests(c);
	tcase_set_timeout(c, 60);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
