/* How fast goldens and reports are read, and how long judging takes once they are arrays.
 *
 *   judge make DIR PROMPTS STEPS     writes DIR/golden.json (three profiles) and DIR/report.json (mode forced), 20 ids a position
 *   judge measure DIR [REPEATS]      reads both and judges, each repeat in a process of its own; files are in the page cache
 *
 * Wall and processor time of one thread; MB are 10^6 bytes of text.  "held" is what the process holds once the texts are freed, "most"
 * what it held at most while it judged. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gates/evidence.h"

#define PROFILES 3

static uint64_t state = 1;

static double uniform(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

/* ---- the files */

/* The truth of a position depends on its place alone, so that every profile and the leg hear of the same one. */
static void draw_list(struct top *top, int position, uint64_t stream)
{
	double at = 15;

	state = (uint64_t)position * 0x2545f4914f6cdd1du;
	for (int i = 0; i < TOP_MAX; i++, at -= (i == 1 ? 2.5 : 0.5) * uniform())
		top[i] = (struct top){ 100 + (int32_t)(7 * i + position % 997), at };
	state ^= (stream + 1) * 0x9e3779b97f4a7c15u;
	for (int i = 0; i < TOP_MAX; i++) {
		struct top x = { top[i].id, top[i].value + 0.2 * (uniform() - 0.5) };
		int j = i;

		for (; j > 0 && top[j - 1].value < x.value; j--)
			top[j] = top[j - 1];
		top[j] = x;
	}
	/* no two that print alike: ties would want the lower id first */
	for (int i = 1; i < TOP_MAX; i++)
		top[i].value = fmin(top[i].value, top[i - 1].value - 2e-6);
}

static double log_sum(const struct top *top)
{
	double sum = 0;

	for (int i = 0; i < TOP_MAX; i++)
		sum += exp(top[i].value - top[0].value);
	return top[0].value + log(sum) + 0.1;    /* the rest of the vocabulary */
}

static void put_top(FILE *f, const struct top *top, double lse, int decimals)
{
	fputs("\"top\":[", f);
	for (int i = 0; i < TOP_MAX; i++)
		fprintf(f, "%s[%d,%.*f]", i ? "," : "", top[i].id, decimals, top[i].value - lse);
	fputc(']', f);
}

static void put_ids(FILE *f, int prompt, int steps, uint64_t stream)
{
	struct top top[TOP_MAX];

	fputs("\"ids\":[", f);
	for (int t = 0; t < steps; t++) {
		draw_list(top, prompt * steps + t, stream);
		fprintf(f, "%s%d", t ? "," : "", top[0].id);
	}
	fputs("],\"steps\":[", f);
}

static void write_golden(FILE *f, int prompts, int steps)
{
	struct top top[TOP_MAX];

	fputs("{\"schema\":\"assay/golden/1\",\"name\":\"drawn\",\"model\":{\"name\":\"none\",\"files\":{}},\n\"prompts\":[", f);
	for (int p = 0; p < prompts; p++)
		fprintf(f, "%s{\"id\":\"p%d\",\"ids\":[1,2,3]}", p ? "," : "", p);
	fputs("],\"profiles\":[", f);
	for (int k = 0; k < PROFILES; k++) {
		fprintf(f, "%s\n{\"name\":\"k%d\",\"engine\":{\"name\":\"drawn\",\"version\":\"1\"},\"logits_dtype\":\"bf16\",\"mode\":\"%s\",\"prompts\":[",
			k ? "," : "", k, k ? "forced" : "free");
		for (int p = 0; p < prompts; p++) {
			fprintf(f, "%s\n{\"id\":\"p%d\",", p ? "," : "", p);
			put_ids(f, p, steps, (uint64_t)k);
			for (int t = 0; t < steps; t++) {
				draw_list(top, p * steps + t, (uint64_t)k);
				fprintf(f, "%s\n{\"id\":%d,", t ? "," : "", top[0].id);
				put_top(f, top, log_sum(top), 6);
				fputc('}', f);
			}
			fputs("]}", f);
		}
		fputs("]}", f);
	}
	fputs("]}\n", f);
}

static void write_report(FILE *f, int prompts, int steps)
{
	static const char arm[] = "{\"backend\":\"cpu\",\"place.mamba\":\"backend\",\"place.attn\":\"backend\",\"place.moe\":\"backend\","
		"\"place.mlp\":\"backend\",\"mamba.decode\":\"step\",\"mamba.prefill\":\"chunk\",\"mamba.proj\":\"w8a8\",\"mamba.state\":\"fp32\","
		"\"moe.experts\":\"w4a16\",\"attn.kv\":\"bf16\",\"compute\":\"bf16\",\"head\":\"fp32\",\"batch\":1,\"prefill_chunk\":0,"
		"\"slots\":\"clean\",\"graph\":null,\"threads\":2,\"at\":null}";
	struct top top[TOP_MAX], given[TOP_MAX];

	fprintf(f, "{\"schema\":\"assay/report/1\",\"leg\":\"leg\",\"requested\":%s,\"effective\":%s,\n"
		"\"engine\":{\"name\":\"drawn\",\"version\":\"1\",\"git\":null,\"dirty\":null,\"binary_sha256\":null,\"flags\":null,\"features\":{}},\n"
		"\"host\":{\"name\":\"here\",\"cpu\":null,\"cores\":null,\"memory\":null,\"kernel\":null,\"gpu\":null,\"arch\":null,\"driver\":null,"
		"\"cuda\":null},\n\"model\":{\"name\":\"none\",\"files\":{},\"config\":{},\"blocks\":{\"mamba\":1,\"attn\":0,\"moe\":0,\"mlp\":0,"
		"\"layers\":1}},\n\"golden_sha256\":null,\"modes\":{\"forced\":{\"prompts\":[", arm, arm);
	for (int p = 0; p < prompts; p++) {
		fprintf(f, "%s\n{\"id\":\"p%d\",\"prompt_ids\":[1,2,3],", p ? "," : "", p);
		put_ids(f, p, steps, PROFILES);
		for (int t = 0; t < steps; t++) {
			int rank = 0;

			draw_list(top, p * steps + t, PROFILES);
			draw_list(given, p * steps + t, 0);
			while (top[rank].id != given[0].id)
				rank++;
			fprintf(f, "%s\n{\"id\":%d,\"margin\":%.9g,\"lse\":%.7f,", t ? "," : "", top[0].id, top[0].value - top[1].value, log_sum(top));
			put_top(f, top, 0, 7);
			fprintf(f, ",\"given\":[%d,%.7f,%d],\"logits_xxh64\":\"%016x\"}", given[0].id, top[rank].value, rank + 1, p * steps + t);
		}
		fputs("]}", f);
	}
	fputs("],\"counters_total\":{},\"trace\":[]}},\"timing\":null,\"busy\":null,\"peak_rss_bytes\":null,\"peak_device_bytes\":null}\n", f);
}

static int make(const char *dir, int prompts, int steps)
{
	static void (*const writers[])(FILE *, int, int) = { write_golden, write_report };
	static const char *const names[] = { "golden.json", "report.json" };
	struct err err = { 0 };

	if (file_mkdirs(dir, &err))
		return fprintf(stderr, "judge: %s\n", err.text), 1;
	for (int i = 0; i < 2; i++) {
		char *path = path_join(dir, names[i]);
		FILE *f = fopen(path, "we");

		if (f)
			writers[i](f, prompts, steps);
		if (!f || fclose(f))
			return perror(path), 1;
		free(path);
	}
	return 0;
}

/* ---- the measurement */

enum { GOLDEN_MBS, REPORT_MBS, JUDGE_S, JUDGE_CPU_S, HELD_MB, MOST_MB, R_FOUND, N_NUMBERS };

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A line of /proc/self/status in MB. */
static double memory(const char *name)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[200];
	double kb = NAN;

	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, name, strlen(name)) == 0)
			kb = strtod(line + strlen(name), NULL);
	if (f)
		fclose(f);
	return kb * 1024 / 1e6;
}

static void forget_peak(void)
{
	FILE *f = fopen("/proc/self/clear_refs", "we");

	if (f) {
		fputs("5", f);
		fclose(f);
	}
}

static char *read_warm(const char *dir, const char *name, size_t *size)
{
	char *path = path_join(dir, name);
	struct err err = { 0 };
	char *bytes = file_read(path, (size_t)8 << 30, size, &err);

	if (!bytes) {
		fprintf(stderr, "judge: %s\n", err.text);
		exit(1);
	}
	free(path);
	return bytes;
}

static void judge(struct evidence *e)
{
	int *asked = xcalloc((size_t)e->golden.n_prompts, sizeof *asked);

	for (int p = 0; p < e->golden.n_prompts; p++)
		asked[p] = p;
	oracle_measure(&e->oracle, &e->golden, &e->golden.profiles[0], asked, e->golden.n_prompts, e->recipe.max_steps);
	tokens_compare(e, e->legs);
	ladder_verdict(e, e->legs);
	margins_adjudicate(e, e->legs);
	noise_measure(e, e->legs);
	noise_across(e);
	ladder_adjudicate(e, e->legs);
	free(asked);
}

/* Nothing is released: the process ends. */
static void once(const char *dir, double out[N_NUMBERS])
{
	static struct evidence e;
	static struct leg leg;
	static struct recipe_leg want = { .name = "leg" };
	struct err err = { 0 };
	size_t size;
	char *bytes = read_warm(dir, "golden.json", &size);
	double from = seconds(CLOCK_MONOTONIC);
	int failed = golden_load_bytes(&e.golden, bytes, size, "golden.json", &err);

	out[GOLDEN_MBS] = (double)size / 1e6 / (seconds(CLOCK_MONOTONIC) - from);
	free(bytes);
	bytes = read_warm(dir, "report.json", &size);
	from = seconds(CLOCK_MONOTONIC);
	failed = failed || report_load_bytes(&leg.report, bytes, size, "report.json", &err);
	out[REPORT_MBS] = (double)size / 1e6 / (seconds(CLOCK_MONOTONIC) - from);
	free(bytes);
	if (failed) {
		fprintf(stderr, "judge: %s\n", err.text);
		exit(1);
	}
	leg.want = &want;
	leg.has_report = true;
	e.recipe.modes[MODE_FORCED] = true;
	e.recipe.limit = 2;
	e.recipe.max_steps = e.golden.profiles[0].rows[0].n;
	e.legs = &leg;
	e.n_legs = 1;
	out[HELD_MB] = memory("VmRSS:");
	forget_peak();
	from = seconds(CLOCK_MONOTONIC);
	double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);

	judge(&e);
	out[JUDGE_S] = seconds(CLOCK_MONOTONIC) - from;
	out[JUDGE_CPU_S] = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	out[MOST_MB] = memory("VmHWM:");
	out[R_FOUND] = leg.noise.distance.R;
}

static int measure(const char *dir, int repeats)
{
	static const char *const says[N_NUMBERS] = { "reading the golden, MB/s", "reading the report, MB/s", "judging, s", "judging, s of one core",
						     "held before judging, MB", "most while judging, MB", "R" };
	double *x[N_NUMBERS];

	for (int k = 0; k < N_NUMBERS; k++)
		x[k] = xcalloc((size_t)repeats, sizeof **x);
	for (int i = 0; i < repeats; i++) {
		double out[N_NUMBERS];
		int pipes[2], status = 0;

		if (pipe(pipes))
			return 1;
		pid_t pid = fork();

		if (pid == 0) {
			once(dir, out);
			_exit(write(pipes[1], out, sizeof out) != sizeof out);
		}
		close(pipes[1]);
		if (read(pipes[0], out, sizeof out) != sizeof out || waitpid(pid, &status, 0) < 0 || status)
			return 1;
		close(pipes[0]);
		for (int k = 0; k < N_NUMBERS; k++)
			x[k][i] = out[k];
	}
	for (int k = 0; k < N_NUMBERS; k++) {
		stats_sort(x[k], (size_t)repeats);
		printf("%-26s %.4g   (%.4g to %.4g, %d runs)\n", says[k], stats_median(x[k], (size_t)repeats), x[k][0], x[k][repeats - 1], repeats);
		free(x[k]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "make") == 0 && atoi(argv[3]) > 0 && atoi(argv[4]) > 0)
		return make(argv[2], atoi(argv[3]), atoi(argv[4]));
	if (argc >= 3 && strcmp(argv[1], "measure") == 0)
		return measure(argv[2], argc > 3 && atoi(argv[3]) > 0 ? atoi(argv[3]) : 5);
	fprintf(stderr, "usage: judge make DIR PROMPTS STEPS | judge measure DIR [REPEATS]\n");
	return 2;
}
