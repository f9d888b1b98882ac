/* The audit's comparison, on tallies made up here, and that every kernel of the sources is in kernels.def.  Needs no device. */
#include <check.h>
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "contract/file.h"
#include "contract/report.h"
#include "engine/cuda/trace.h"

/* The name in "__global__ void __launch_bounds__(...) name(...)": the last word before the parameters. */
static bool next_kernel(char **at, char *name, size_t size)
{
	char *p = strstr(*at, "__global__"), *open;

	if (!p)
		return false;
	p += strlen("__global__");
	open = strchr(p, '(');
	if (open && strstr(p, "__launch_bounds__") && strstr(p, "__launch_bounds__") < open) {
		for (int depth = 0; *open; open++) {
			depth += (*open == '(') - (*open == ')');
			if (depth == 0)
				break;
		}
		open = strchr(open, '(');
	}
	ck_assert_ptr_nonnull(open);
	*at = open;
	while (isspace((unsigned char)open[-1]))
		open--;
	for (p = open; isalnum((unsigned char)p[-1]) || p[-1] == '_'; p--)
		;
	snprintf(name, size, "%.*s", (int)(open - p), p);
	return true;
}

START_TEST(test_every_kernel_is_known)
{
	glob_t found;
	int kernels = 0;

	ck_assert_int_eq(glob("engine/cuda/*.cu", 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct err err = {0};
		size_t size;
		char *text = file_read(found.gl_pathv[i], 1 << 20, &size, &err), *at = text, name[128];

		ck_assert_msg(text != NULL, "%s", err.text);
		while (next_kernel(&at, name, sizeof(name))) {
			ck_assert_msg(cuda_kernel_known(name), "%s: kernel %s is not in engine/cuda/kernels.def",
				      found.gl_pathv[i], name);
			kernels++;
		}
		free(text);
	}
	globfree(&found);
	ck_assert_int_gt(kernels, 30);
}
END_TEST

START_TEST(test_others_are_not)
{
	ck_assert(!cuda_kernel_known("nvjet_qqtst_64x16_64x12_2x4_h_bz_TNT"));
	ck_assert(!cuda_kernel_known("ssm_step"));
	ck_assert(!cuda_kernel_known("ssm_step_rows_"));
	ck_assert(cuda_kernel_known("ssm_step_rows"));
}
END_TEST

/* ---- comparing ---- */

/* Two sequences through two Mamba layers: a prefill each, one step together, by step; kernels as they would be traced. */
enum { EMBED, STEP, CONV, OUT, PART, PASS, SCAN, COPY, MORE, N_TALLIES };

static void set_up(struct report *r, struct report_trace trace[3], struct tally t[N_TALLIES])
{
	static const struct tally traced[N_TALLIES] = {
		[EMBED] = { "embed_rows", 3, 3, 0, 0 }, [STEP] = { "ssm_step_rows_wide", 2, 4, 0, 0 },
		[CONV] = { "stream_conv_tiles", 2, 2, 0, 0 }, [OUT] = { "ssm_chunk_out", 4, 4, 0, 0 },
		[PART] = { "ssm_chunk_states", 4, 4, 0, 0 }, [PASS] = { "ssm_chunk_pass", 4, 4, 0, 0 },
		[SCAN] = { "conv_scan_tokens", 4, 4, 0, 0 }, [COPY] = { "copy_rows", 0, 0, 0, 0 },
		[MORE] = { "rms_norm_rows", 7, 9, 0, 0 },
	};

	*r = (struct report){0};
	arm_init(&r->effective);
	memcpy(t, traced, sizeof(traced));
	memset(trace, 0, 3 * sizeof(*trace));
	for (int i = 0; i < 2; i++) {
		trace[i].np = 1;
		trace[i].counters.n[COUNT_CHUNK_SCAN_CALLS] = trace[i].counters.n[COUNT_CONV_FWD_CALLS] = 2;
		trace[i].counters.n[COUNT_KERNEL_LAUNCHES] = 10;
	}
	trace[2].nd = 2;
	trace[2].counters.n[COUNT_STATE_UPDATE_ROWS] = trace[2].counters.n[COUNT_CONV_UPDATE_ROWS] = 4;
	trace[2].counters.n[COUNT_KERNEL_LAUNCHES] = 10;
	r->modes[MODE_FREE] = (struct report_mode){ .present = true, .trace = trace, .n_trace = 3 };
}

static void add_up(struct report *r)
{
	struct report_mode *m = &r->modes[MODE_FREE];

	for (int i = 0; i < m->n_trace; i++)
		for (int c = 0; c < N_COUNTERS; c++)
			m->total.n[c] += m->trace[i].counters.n[c];
}

/* What each change is answered with; "": the audit agrees. */
static const struct { const char *what, *says; int tally, launches, rows; const char *name; enum counter counter; int by; } changes[] = {
	{ "nothing", "", MORE, 0, 0, NULL, 0, 0 },
	{ "a launch that was not counted", "kernel_launches: the counters say 30, the device 31", MORE, 1, 1, NULL, 0, 0 },
	{ "a row that was not counted", "state_update_rows: the counters say 4, the device 5", STEP, 0, 1, NULL, 0, 0 },
	{ "a counter that lies", "state_update_rows: the counters say 6, the device 4", MORE, 0, 0, NULL, COUNT_STATE_UPDATE_ROWS, 2 },
	{ "a scan too few", "chunk_scan_calls: the counters say 4, the device 3", OUT, -1, -1, NULL, 0, 0 },
	{ "a scan for two sequences", "chunk_scan_calls: the counters say 6, the device 4", MORE, 0, 0, NULL, COUNT_CHUNK_SCAN_CALLS, 1 },
	{ "a copy", "gathers + scatters: the counters say 0, the device 1", COPY, 1, 1, NULL, 0, 0 },
	{ "a pass left out", "forward passes: the counters say 3, the device 2", EMBED, -1, -1, NULL, 0, 0 },
	{ "a step without its convolution", "the device ran 1 convolution steps and 2 state updates", CONV, -1, -1, NULL, 0, 0 },
	{ "a part of a scan too many", "the device ran 5, 4 and 4 parts of a chunk scan", PART, 1, 1, NULL, 0, 0 },
	{ "a kernel of nobody", "7 launches of mystery, which is no kernel of this backend", MORE, 0, 0, "mystery", 0, 0 },
};

START_TEST(test_compare)
{
	struct report r;
	struct report_trace trace[3];
	struct tally t[N_TALLIES];
	bool found = false;

	set_up(&r, trace, t);
	t[changes[_i].tally].launches += changes[_i].launches;
	t[changes[_i].tally].rows += changes[_i].rows;
	if (changes[_i].name)
		snprintf(t[changes[_i].tally].name, sizeof(t->name), "%s", changes[_i].name);
	trace[2].counters.n[changes[_i].counter] += changes[_i].by;
	add_up(&r);
	audit_compare(&r, t, N_TALLIES);
	for (int i = 0; i < r.audit.n_mismatches; i++)
		found |= strcmp(r.audit.mismatches[i], changes[_i].says) == 0;
	ck_assert_msg(r.audit.present && r.audit.agrees == (changes[_i].says[0] == '\0'), "%s: %s", changes[_i].what,
		      r.audit.n_mismatches ? r.audit.mismatches[0] : "agrees");
	ck_assert_msg(found != r.audit.agrees, "%s: not said: %s; but %s", changes[_i].what, changes[_i].says,
		      r.audit.n_mismatches ? r.audit.mismatches[0] : "nothing");
	ck_assert_int_eq(json_array_size(r.audit.kernels), N_TALLIES);
	r.modes[MODE_FREE] = (struct report_mode){0};
	report_release(&r);
}
END_TEST

/* Of the library's kernels only as many are believed as there were W8A8 products, and only where it was asked for. */
START_TEST(test_library)
{
	struct report r;
	struct report_trace trace[3];
	struct tally t[N_TALLIES];

	set_up(&r, trace, t);
	snprintf(t[MORE].name, sizeof(t->name), "nvjet_qqtst_64x16");
	r.effective.value[FACTOR_MAMBA_PROJ] = MAMBA_PROJ_W8A8_LT;
	trace[2].counters.n[COUNT_W8A8_CALLS] = 7 - _i;
	add_up(&r);
	audit_compare(&r, t, N_TALLIES);
	ck_assert_int_eq(r.audit.agrees, _i == 0);
	r.modes[MODE_FREE] = (struct report_mode){0};
	report_release(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("audit of cuda");
	TCase *c = tcase_create("names");
	SRunner *runner;
	int failed;

	tcase_add_test(c, test_every_kernel_is_known);
	tcase_add_test(c, test_others_are_not);
	tcase_add_loop_test(c, test_compare, 0, sizeof(changes) / sizeof(*changes));
	tcase_add_loop_test(c, test_library, 0, 2);
	suite_add_tcase(s, c);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
