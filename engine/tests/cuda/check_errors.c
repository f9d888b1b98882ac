/* Each call of the CUDA runtime and of cuBLASLt that a short run makes, failed in its turn: one clear line, exit 1 or 77,
 * everything given back.  Where there is no device the calls only seem to work (inject/inject.h), and all of this is walked.
 *
 * Every failure is a process of its own: this program, started again with --child. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "contract/err.h"
#include "contract/file.h"
#include "engine/run.h"
#include "inject/inject.h"

enum { SECONDS = 600, MOST = 16 };
#ifdef __SANITIZE_ADDRESS__
enum { SLOW = 8 };
#else
enum { SLOW = 1 };
#endif


static bool fake;
static int at_a_time;
static char temp[64];

/* ---- the child ---- */

static void account(void)
{
	char text[256];

	inject_account(text, sizeof(text));
	dprintf(3, "%s\n", text);
}

/* --child FAKE AT FROM_THERE_ON NAME ERROR MAJOR run-words... */
static int child_main(int argc, char **argv)
{
	struct inject what = {
		.fake = atoi(argv[0]), .at = atol(argv[1]), .from_there_on = atoi(argv[2]), .name = argv[3][0] ? argv[3] : NULL,
		.error = atoi(argv[4]), .major = atoi(argv[5]),
	};

	alarm(SECONDS);
	atexit(account);
	inject_start(what);
	return run_main(argc - 6, argv + 6);
}

/* ---- the parent ---- */

static const struct { const char *model, *arm; } arms[] = {
	{ "tiny-mix8", "backend=cuda" },
	{ "tiny-lightning", "backend=cuda,graph=off,mamba.decode=chunk,batch=2" },
	{ "tiny-lightning", "backend=cuda,compute=fp32,place.mamba=host,place.moe=host,graph=off" },
	{ "tiny-lightning", "backend=cuda,mamba.proj=w8a8-lt" },
};
enum { N_ARMS = sizeof(arms) / sizeof(*arms) };

/* Each call of the first arm fails in both ways, of the last (the library's) in one; of the others and where a process takes
 * its time, as with the start of a real device, it is a sample. */
static long stride(int arm) { return (arm == 0 ? 1 : arm == N_ARMS - 1 ? 2 : 6) * (fake ? SLOW : 16); }

struct outcome { int code; long calls; char failed[64], err[2048], account[256]; bool report; };

static char *file_of(int place, const char *what) { return xasprintf("%s/%d.%s", temp, place, what); }

static void redirect(int place, const char *what, int to)
{
	char *path = file_of(place, what);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || dup2(fd, to) < 0)
		_exit(127);
	free(path);
}

static pid_t start(int place, int arm, struct inject what)
{
	char *model = xasprintf("engine/tests/fixtures/%s", arms[arm].model), *report = file_of(place, "json"), numbers[5][32];
	char *prompts = xasprintf("%s/prompts", temp);
	pid_t child;

	snprintf(numbers[0], sizeof(numbers[0]), "%d", what.fake);
	snprintf(numbers[1], sizeof(numbers[1]), "%ld", what.at);
	snprintf(numbers[2], sizeof(numbers[2]), "%d", what.from_there_on);
	snprintf(numbers[3], sizeof(numbers[3]), "%d", what.error);
	snprintf(numbers[4], sizeof(numbers[4]), "%d", what.major);
	const char *argv[] = {
		"check_errors", "--child", numbers[0], numbers[1], numbers[2], what.name ? what.name : "", numbers[3], numbers[4],
		"run", "--model", model, "--prompts", prompts, "--steps", "3", "--arm", arms[arm].arm, "--report", report, NULL,
	};

	unlink(report);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		redirect(place, "out", 1);
		redirect(place, "err", 2);
		redirect(place, "account", 3);
		execv("/proc/self/exe", (char **)argv);
		_exit(127);
	}
	free(model);
	free(report);
	free(prompts);
	return child;
}

static void read_text(char *to, size_t size, int place, const char *what)
{
	char *path = file_of(place, what), *bytes;
	struct err err = {0};
	size_t n = 0;

	bytes = file_read(path, 1 << 20, &n, &err);
	snprintf(to, size, "%.*s", (int)(n < size ? n : size - 1), bytes ? bytes : "");
	free(bytes);
	free(path);
}

static struct outcome finish(int place, int status)
{
	struct outcome o = { .code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status) };
	char *report = file_of(place, "json");

	read_text(o.err, sizeof(o.err), place, "err");
	read_text(o.account, sizeof(o.account), place, "account");
	sscanf(o.account, "calls %ld, failed %63[^,],", &o.calls, o.failed);
	o.report = file_exists(report);
	free(report);
	return o;
}

static struct outcome run_one(int arm, struct inject what)
{
	int status = 0;
	pid_t child = start(0, arm, what);

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return finish(0, status);
}

static bool one_line(const char *s)
{
	const char *end = strchr(s, '\n');

	return strncmp(s, "assay-engine: ", 14) == 0 && end && end[1] == '\0' && end - s < 300;
}

/* Closing, which comes after the report, ignores what fails; before it only the device's name for NVML and the description
 * of an algorithm of the library may fail unseen.  What asks for feature cells leaves the reason there. */
static bool may_pass(const char *call)
{
	static const char *const names[] = {
		"cudaFree", "cudaFreeHost", "cudaStreamSynchronize", "cudaStreamDestroy", "cudaEventDestroy", "cudaGraphExecDestroy", "cudaGetLastError",
		"cudaGetDevice", "cudaGetDeviceProperties", "cudaFuncGetAttributes", "cudaDeviceGetPCIBusId", "cublasLtMatmulAlgoConfigGetAttribute", "cublasLtDestroy",
		"cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceDestroy",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(names[i], call) == 0)
			return true;
	return false;
}

/* What was made was given back, and the leg ended as it should or, where the call decides nothing, came to its end. */
static void judge(const struct outcome *o, const char *what, long at, int *passed_over)
{
	const char *left = strstr(o->account, "left: ");

	ck_assert_msg(o->code == 0 || o->code == 1 || o->code == 77, "%s of call %ld (%s): exit %d, %s", what, at, o->failed, o->code,
		      o->err);
	ck_assert_msg(left && strcmp(left, "left: 0\n") == 0, "%s of call %ld (%s): %s", what, at, o->failed, o->account);
	if (o->code == 0) {
		ck_assert_msg(o->report && may_pass(o->failed), "%s of call %ld (%s): exit 0", what, at, o->failed);
		++*passed_over;
		return;
	}
	ck_assert_msg(one_line(o->err), "%s of call %ld (%s): exit %d, says \"%s\"", what, at, o->failed, o->code, o->err);
}

/* Fails call first, first + step, ... of a run, several processes at a time; returns how many failures decided nothing. */
static int fail_each(int arm, struct inject what, const char *name, long first, long step, long calls)
{
	pid_t pid[MOST] = {0};
	long at[MOST], next = first;
	int busy = 0, passed_over = 0;

	while (next <= calls || busy) {
		int place = 0, status;
		pid_t done;

		while (busy < at_a_time && next <= calls) {
			for (place = 0; pid[place]; place++)
				;
			what.at = at[place] = next;
			pid[place] = start(place, arm, what);
			next += step;
			busy++;
		}
		done = waitpid(-1, &status, 0);
		ck_assert_int_gt(done, 0);
		for (place = 0; place < MOST && pid[place] != done; place++)
			;
		if (place == MOST)           /* left over by a test that failed */
			continue;
		pid[place] = 0;
		busy--;

		struct outcome o = finish(place, status);

		judge(&o, name, at[place], &passed_over);
	}
	return passed_over;
}

static const struct { const char *name; int error; bool from_there_on; } kinds[] = {
	{ "out of memory", cudaErrorMemoryAllocation, false },
	{ "loss", cudaErrorLaunchFailure, true },
};

START_TEST(test_each_call)
{
	int arm = _i / 2, kind = _i % 2, passed_over;
	struct inject what = { .fake = fake, .major = 9 };
	struct outcome clean = run_one(arm, what);
	long step = stride(arm);

	ck_assert_msg(clean.code == 0 && clean.report && strstr(clean.account, "left: 0\n"), "%s: exit %d, %s%s", arms[arm].arm,
		      clean.code, clean.err, clean.account);
	ck_assert_int_gt(clean.calls, 100);
	what.error = kinds[kind].error;
	what.from_there_on = kinds[kind].from_there_on;
	passed_over = fail_each(arm, what, kinds[kind].name, step > 1 ? 1 + kind * step / 2 : 1, step, clean.calls);
	printf("%s, %s: %s at one in %ld of %ld calls: %d ended in a line and exit 1 or 77, %d came after the report\n",
	       arms[arm].model, arms[arm].arm, kinds[kind].name, step, clean.calls,
	       (int)((clean.calls + step - 1) / step) - passed_over, passed_over);
}
END_TEST

static const struct { const char *what, *name; int error, major, code; const char *says; } refusals[] = {
	{ "no device", "cudaGetDeviceCount", cudaErrorNoDevice, 9, 77, "no usable NVIDIA device" },
	{ "old driver", "cudaGetDeviceCount", cudaErrorInsufficientDriver, 9, 77, "no usable NVIDIA device" },
	{ "no code for it", "cudaFuncGetAttributes", cudaErrorNoKernelImageForDevice, 9, 77, "no code for this device" },
	{ "its PTX is too new", "cudaFuncGetAttributes", cudaErrorUnsupportedPtxVersion, 9, 77, "no code for this device" },
	{ "no memory at all", "cudaMalloc", cudaErrorMemoryAllocation, 9, 1, "memory is too small" },
	{ "no pinned memory", "cudaMallocHost", cudaErrorMemoryAllocation, 9, 1, "memory is too small" },
	{ "lost at a launch", "cudaLaunchKernelExC", cudaErrorLaunchFailure, 9, 1, "cudaErrorLaunchFailure" },
	{ "lost at a replay", "cudaGraphLaunch", cudaErrorLaunchFailure, 9, 1, "cudaErrorLaunchFailure" },
	{ "an old device", "", 0, 7, 77, "sm_80 or later is needed" },
};

START_TEST(test_refusal)
{
	struct outcome o;

	if (refusals[_i].major != 9 && !fake) {
		printf("%s: only without a device can it be another\n", refusals[_i].what);
		return;
	}
	o = run_one(0, (struct inject){ .fake = fake, .name = refusals[_i].name[0] ? refusals[_i].name : NULL,
					.error = refusals[_i].error, .major = refusals[_i].major });
	ck_assert_msg(o.code == refusals[_i].code, "%s: exit %d, %s", refusals[_i].what, o.code, o.err);
	ck_assert_msg(one_line(o.err) && strstr(o.err, refusals[_i].says), "%s: %s", refusals[_i].what, o.err);
	ck_assert_msg(strstr(o.account, "left: 0\n"), "%s: %s", refusals[_i].what, o.account);
}
END_TEST

/* Asked in a child: this process never touches the driver, for it forks. */
static bool have_device(void)
{
	int status = 0, n;
	pid_t child = fork();

	if (child == 0)
		_exit(cudaGetDeviceCount(&n) != cudaSuccess || n == 0);
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool write_prompts(void)
{
	static const char text[] = "[{\"id\":\"a\",\"ids\":[5,6,7]},{\"id\":\"b\",\"ids\":[1,2,3,4,5,6,7]}]";
	char *path = xasprintf("%s/prompts", temp);
	struct err err = {0};
	int failed = file_write(path, text, strlen(text), &err);

	free(path);
	return !failed;
}

static int parent_main(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	Suite *s = suite_create("errors of cuda calls");
	TCase *c = tcase_create("injected");
	SRunner *runner;
	char *command;
	int failed;

	strcpy(temp, "/tmp/check_errors.XXXXXX");
	if (!mkdtemp(temp) || !write_prompts())
		return 1;
	fake = !have_device();
	at_a_time = cores < 2 ? 2 : cores < MOST ? (int)cores : MOST;
	if (fake)
		printf("no NVIDIA device: its calls only seem to work\n");
	tcase_set_timeout(c, 600);
	tcase_add_loop_test(c, test_refusal, 0, sizeof(refusals) / sizeof(*refusals));
	tcase_add_loop_test(c, test_each_call, 0, 2 * N_ARMS);
	suite_add_tcase(s, c);
	runner = srunner_create(s);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	command = xasprintf("rm -rf %s", temp);
	failed |= system(command);
	free(command);
	return failed != 0;
}

int main(int argc, char **argv)
{
	return argc > 8 && strcmp(argv[1], "--child") == 0 ? child_main(argc - 2, argv + 2) : parent_main();
}
