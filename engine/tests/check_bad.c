/* Damaged checkpoints: each is refused with the line below, within 2 s and 200 MB of address space; the undamaged
 * ones load.  Every directory bad-* and good-* of the fixtures is tried, also those that this table does not know. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "engine/model.h"

#define FIXTURES "engine/tests/fixtures/"
#define IN_PROJ "layers.0.mixer.in_proj.weight"
#define OUT_PROJ "layers.0.mixer.out_proj.weight"

/* The message after "engine/tests/fixtures/<name>/"; NULL: it loads. */
static const struct { const char *name, *says; } cases[] = {
	{ "bad-config-duplicate", "config.json:2:136: duplicate key \"hidden_size\"" },
	{ "bad-config-empty", "config.json:1:1: '[' or '{' expected near end of file" },
	{ "bad-config-missing", "config.json: No such file or directory" },
	{ "bad-config-nesting", "config.json:1:2053: maximum parsing depth reached near '['" },
	{ "bad-data-trailing", "model.safetensors: 16 bytes after the last tensor" },
	{ "bad-data-truncated", "model.safetensors: lm_head.weight: data_offsets [1020, 1276] do not lie in the 1266 bytes of data" },
	{ "bad-dtype-unknown", "model.safetensors: backbone." IN_PROJ ": unknown dtype BF15" },
	{ "bad-dtype-wrong", "model.safetensors: norm_f.weight: expected dtype BF16, F16 or F32, found I64" },
	{ "bad-experts-per-token", "config.json: num_experts_per_tok: expected at most 4, the experts that can be chosen from, found 5" },
	{ "bad-file-empty", "model.safetensors: expected at least the 8 bytes of the header length, found 0" },
	{ "bad-fp8-nan", "model.safetensors: " IN_PROJ ": row 0, column 3 is nan, expected a finite number" },
	{ "bad-groups", "config.json: n_groups: expected a divisor of mamba_num_heads 2, found 3" },
	{ "bad-header-duplicate", "model.safetensors: lm_head.weight: it occurs twice, as lm_head.weight in model.safetensors too" },
	{ "bad-header-json", "model.safetensors: header:1:1097: expected ',' or '}', found the end" },
	{ "bad-header-length", "model.safetensors: header: its length field says 1000000 bytes, the file has 2380" },
	{ "bad-header-length-2e63", "model.safetensors: header: its length field says 9223372036854775808 bytes, the file has 2380" },
	{ "bad-header-truncated", "model.safetensors: header: its length field says 1096 bytes, the file has 200" },
	{ "bad-header-utf8", "model.safetensors: header:1:954: byte 0xff is not UTF-8" },
	{ "bad-index-path", "model.safetensors.index.json: backbone." IN_PROJ
	  ": expected a file name in the same directory, found ../good-micro/model.safetensors" },
	{ "bad-index-tensor", "model.safetensors.index.json: backbone." IN_PROJ ": it is not in model-00002-of-00002.safetensors" },
	{ "bad-kv-heads", "config.json: num_key_value_heads: expected a divisor of num_attention_heads 3, found 2" },
	{ "bad-nvfp4-scale-negative", "model.safetensors: " IN_PROJ "_scale: row 3, column 0 is -1, expected a positive number" },
	{ "bad-nvfp4-scale-shape", "model.safetensors: " OUT_PROJ "_scale: expected shape [16, 1], found [8, 1]" },
	{ "bad-nvfp4-scale2-missing", "model.safetensors: " IN_PROJ "_scale_2: the tensor is missing" },
	{ "bad-nvfp4-shape", "model.safetensors: " IN_PROJ ": expected shape [42, 8], found [42, 16]" },
	{ "bad-offsets-overlap", "model.safetensors: backbone." IN_PROJ
	  ": its data begin at byte 412, expected 424 (they overlap another tensor's)" },
	{ "bad-offsets-range", "model.safetensors: lm_head.weight: data_offsets [2044, 2300] do not lie in the 1276 bytes of data" },
	{ "bad-offsets-reversed", "model.safetensors: backbone." IN_PROJ ": data_offsets [512, 16] do not lie in the 1276 bytes of data" },
	{ "bad-pattern-char", "config.json: hybrid_override_pattern: expected letters of M * - E, found 'X' at layer 0" },
	{ "bad-pattern-length", "config.json: num_hidden_layers: expected 1, the length of hybrid_override_pattern, found 3" },
	{ "bad-quant-disagree", "hf_quant_config.json: quantization: quant_algo is FP8, but "
	  FIXTURES "bad-quant-disagree/config.json says NVFP4" },
	{ "bad-quant-dtype", "model.safetensors: " IN_PROJ ": the quantization metadata say not quantised, the weight is F8_E4M3" },
	{ "bad-quant-plain", "model.safetensors: " OUT_PROJ ": the quantization metadata say FP8, the weight is BF16" },
	{ "bad-scale-missing", "model.safetensors: " IN_PROJ "_scale: the tensor is missing" },
	{ "bad-scale-negative", "model.safetensors: " IN_PROJ "_scale: expected a positive scale, found -0.01" },
	{ "bad-scale-shape", "model.safetensors: " IN_PROJ "_scale: expected shape [1], found [2]" },
	{ "bad-shape-negative", "model.safetensors: header:1:631: backbone." IN_PROJ
	  ": expected an integer of at least 0, found '-'" },
	{ "bad-shape-overflow", "model.safetensors: backbone." IN_PROJ ": 0 bytes of data for shape [4294967296, 4294967296] of BF16" },
	{ "bad-shape-wrong", "model.safetensors: " IN_PROJ ": expected shape [26, 8], found [8, 26]" },
	{ "bad-shard-missing", "model-00002-of-00002.safetensors: No such file or directory" },
	{ "bad-size-huge", "config.json: vocab_size: expected an integer from 1 to 2147483647, found 2305843009213693952" },
	{ "bad-size-negative", "config.json: hidden_size: expected an integer from 1 to 2147483647, found -8" },
	{ "bad-size-zero", "config.json: chunk_size: expected an integer from 1 to 2147483647, found 0" },
	{ "bad-tensor-missing", "model.safetensors: " OUT_PROJ ": the tensor is missing" },
	{ "bad-tensor-twice", "model.safetensors: model.norm_f.weight: it occurs twice, as backbone.norm_f.weight in model.safetensors too" },
	{ "bad-tokenizer-missing", NULL },    /* it runs on ids */
	{ "bad-weights-inf", "model.safetensors: norm_f.weight: element 3 is inf" },
	{ "bad-weights-nan", "model.safetensors: " IN_PROJ ": row 0, column 3 is nan, expected a finite number" },
	{ "good-micro", NULL },
	{ "good-micro-fp8", NULL },
	{ "good-micro-mix", NULL },
	{ "good-micro-nvfp4", NULL },
};
enum { N_CASES = sizeof cases / sizeof *cases };

struct outcome { int rc, kind; double seconds; char text[1024]; };

/* Opens and verifies in a child with limited memory; a sanitizer's shadow memory needs the whole address space. */
static void load(const char *dir, struct outcome *out)
{
	struct timespec a, b;
	struct model m;
	struct err err = {0};
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	struct rlimit limit = { 200 << 20, 200 << 20 };

	setrlimit(RLIMIT_AS, &limit);
#endif
	clock_gettime(CLOCK_MONOTONIC, &a);
	out->rc = model_open(&m, dir, &err);
	if (!out->rc) {
		out->rc = model_verify(&m, &err);
		model_release(&m);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	out->kind = err.kind;
	out->seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
	memcpy(out->text, err.text, sizeof out->text);
}

static void load_in_child(const char *name, struct outcome *out)
{
	char *dir = xasprintf(FIXTURES "%s", name);
	int fd[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe(fd), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		struct outcome mine = {0};

		load(dir, &mine);
		_exit(write(fd[1], &mine, sizeof mine) != sizeof mine);
	}
	close(fd[1]);
	ck_assert_msg(read(fd[0], out, sizeof *out) == sizeof *out, "%s: the child died", name);
	close(fd[0]);
	waitpid(pid, &status, 0);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "%s: the child ended with status %d", name, status);
	free(dir);
}

START_TEST(test_case)
{
	struct outcome o = {0};
	char want[1024];

	load_in_child(cases[_i].name, &o);
	ck_assert_msg(o.seconds < 2, "%s took %.2f s", cases[_i].name, o.seconds);
	if (!cases[_i].says) {
		ck_assert_msg(o.rc == 0, "%s", o.text);
		return;
	}
	snprintf(want, sizeof want, FIXTURES "%s/%s", cases[_i].name, cases[_i].says);
	ck_assert_int_eq(o.rc, -1);
	ck_assert_int_eq(o.kind, ERR_INPUT);
	ck_assert_str_eq(o.text, want);
}
END_TEST

/* No fixture is forgotten by the table. */
START_TEST(test_complete)
{
	DIR *d = opendir(FIXTURES);
	struct dirent *e;
	int found = 0;

	ck_assert_msg(d != NULL, "run the tests from the repository root");
	while ((e = readdir(d))) {
		int i = 0;

		if (strncmp(e->d_name, "bad-", 4) && strncmp(e->d_name, "good-", 5))
			continue;
		while (i < N_CASES && strcmp(cases[i].name, e->d_name))
			i++;
		ck_assert_msg(i < N_CASES, "%s is not in the table", e->d_name);
		found++;
	}
	closedir(d);
	ck_assert_int_eq(found, N_CASES);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("damaged checkpoints");
	TCase *c = tcase_create("fixtures");
	SRunner *runner = srunner_create(s);
	int failed;

	tcase_add_loop_test(c, test_case, 0, N_CASES);
	tcase_add_test(c, test_complete);
	suite_add_tcase(s, c);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
