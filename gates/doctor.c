/* assay doctor: what this machine can run. */
#include <fcntl.h>
#include <getopt.h>
#include <glob.h>
#include <jansson.h>
#include <openssl/crypto.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#include <yaml.h>
#include "commands.h"
#include "contract/version.h"
#include "proc.h"
#include "run.h"
#include "term.h"

#define ENGINE_TIMEOUT_S 20

/* The CPU features that a matrix product or a number format can use, as the kernel names them. */
static const char *const features[] = {"sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
	"avx512_bf16", "avx512_fp16", "avx_vnni", "amx_bf16", "amx_int8", "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"};

/* The value of "NAME : value" in a file of /proc; "" if it is not there.  The caller frees. */
static char *proc_line(const char *path, const char *name)
{
	FILE *f = fopen(path, "re");
	char *line = NULL, *value = NULL;
	size_t room = 0, length = strlen(name);

	while (f && !value && getline(&line, &room, f) > 0) {
		char *colon = strchr(line, ':');

		if (colon && strncmp(line, name, length) == 0 && strchr(" \t:", line[length])) {
			value = xstrdup(colon + 1 + strspn(colon + 1, " \t"));
			value[strcspn(value, "\n")] = '\0';
		}
	}
	free(line);
	if (f)
		fclose(f);
	return value ? value : xstrdup("");
}

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at += n)
		if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
			return true;
	return false;
}

static void tell_cpu(struct term *t)
{
	char *model = proc_line("/proc/cpuinfo", "model name"), *flags = proc_line("/proc/cpuinfo", "flags");
	char *list = xstrdup("");

	if (!*flags) {
		free(flags);
		flags = proc_line("/proc/cpuinfo", "Features");
	}
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (has_word(flags, features[i])) {
			char *longer = xasprintf("%s %s", list, features[i]);

			free(list);
			list = longer;
		}
	term_say(t, TINT_NONE, 11, "CPU        %s, %ld cores:%s", *model ? model : "unknown", sysconf(_SC_NPROCESSORS_ONLN),
		 *list ? list : " no feature that a kernel here uses");
	free(list);
	free(flags);
	free(model);
}

static void tell_memory(struct term *t)
{
	char *total = proc_line("/proc/meminfo", "MemTotal"), *free_now = proc_line("/proc/meminfo", "MemAvailable");

	term_say(t, TINT_NONE, 11, "memory     %.1f GiB, %.1f GiB available", strtod(total, NULL) / (1 << 20),
		 strtod(free_now, NULL) / (1 << 20));
	free(total);
	free(free_now);
}

static void tell_gpus(struct term *t)
{
	char *driver = proc_line("/proc/driver/nvidia/version", "NVRM version");
	glob_t found = {0};

	glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &found);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		char *model = proc_line(found.gl_pathv[i], "Model");

		term_say(t, TINT_NONE, 11, "GPU %zu      %s", i, model);
		free(model);
	}
	if (*driver)
		term_say(t, TINT_NONE, 11, "driver     %s", driver);
	else
		term_say(t, TINT_NONE, 11, "GPU        none: there is no NVIDIA driver");
	globfree(&found);
	free(driver);
}

static void tell_libraries(struct term *t)
{
	char pcre[64] = "";
	int major, minor, patch;
	unsigned xxhash = XXH_versionNumber();

	pcre2_config(PCRE2_CONFIG_VERSION, pcre);
	yaml_get_version(&major, &minor, &patch);
	term_say(t, TINT_NONE, 11, "libraries  jansson %s, libyaml %d.%d.%d, PCRE2 %s, %s, xxHash %u.%u.%u", jansson_version_str(), major,
		 minor, patch, pcre, OpenSSL_version(OPENSSL_VERSION), xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
}

/* What `assay-engine --version` says; the engine is never linked here. */
static int tell_engine(struct term *t, const char *engine)
{
	char *argv[] = {(char *)engine, "--version", NULL};
	int fd = memfd_create("version", MFD_CLOEXEC);
	char path[64], text[4096];
	struct proc_end end;
	struct err err = {0};

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	struct proc p = {.argv = argv, .out_path = path, .timeout_s = ENGINE_TIMEOUT_S};
	int failed = proc_run(&p, &end, &err) || end.exit_code != 0;
	ssize_t n = failed ? 0 : pread(fd, text, sizeof(text) - 1, 0);

	close(fd);
	if (failed) {
		if (err.kind)
			term_say(t, TINT_BAD, 11, "engine     %s", err.text);
		else
			term_say(t, TINT_BAD, 11, "engine     %s: --version failed", engine);
		return EXIT_USAGE;
	}
	text[n > 0 ? n : 0] = '\0';
	term_say(t, TINT_NONE, 11, "engine     %s", engine);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (strncmp(line, "flags ", 6) != 0)         /* long, and --version has them */
			term_say(t, TINT_NONE, 11, "           %s", line);
	return 0;
}

int command_doctor(int argc, char **argv)
{
	static const struct option options[] = {{"engine", required_argument, NULL, 'e'}, {0}};
	const char *given = NULL;
	struct term term;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return EXIT_USAGE;
		given = optarg;
	}
	if (optind < argc)
		return command_usage("doctor", "takes no argument");
	char *engine = given ? xstrdup(given) : run_engine_beside();

	term_open(&term, stdout);
	term_say(&term, TINT_NONE, 11, "assay      %s, git %s%s", assay_version, assay_git, assay_dirty == 1 ? " (modified)" : "");
	tell_cpu(&term);
	tell_memory(&term);
	tell_gpus(&term);
	tell_libraries(&term);
	c = tell_engine(&term, engine);
	free(engine);
	return c;
}
