#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "contract/file.h"
#include "contract/json.h"
#include "run.h"
#include "suggest.h"

#define RECIPE_BYTES ((size_t)1 << 20)
#define GOLDEN_BYTES ((size_t)2 << 30)
#define RUNS "build/runs"

/* ---- what is run ---- */

int run_read(struct run *r, const struct run_options *o, struct err *err)
{
	r->lock = -1;
	r->recipe_bytes = file_read(o->recipe, RECIPE_BYTES, &r->recipe_size, err);
	if (!r->recipe_bytes)
		return -1;
	return recipe_load_bytes(&r->recipe, r->recipe_bytes, r->recipe_size, o->recipe, err)
	       || recipe_override(&r->recipe, &r->overrides, err) ? -1 : 0;
}

char *run_resolve(const char *recipe, const char *path)
{
	char *dir, *real, *found = NULL;

	if (path[0] == '/')
		return file_exists(path) ? xstrdup(path) : NULL;
	real = realpath(recipe, NULL);
	if (!real)
		return NULL;
	for (dir = path_dir(real); dir && !found;) {
		char *candidate = path_join(dir, path), *up = strcmp(dir, "/") ? path_dir(dir) : NULL;

		if (file_exists(candidate))
			found = candidate;
		else
			free(candidate);
		free(dir);
		dir = up;
	}
	free(dir);
	free(real);
	return found;
}

static int find_path(const struct run *r, const char *path, struct mark at, const char *what, char **found,
		     struct err *err)
{
	*found = run_resolve(r->recipe.file, path);
	if (*found)
		return 0;
	return recipe_error(&r->recipe, at, err, path[0] == '/' ? "%s `%s` does not exist" :
			    "%s `%s` is neither beside the recipe nor in any directory above it", what, path);
}

static int find_profile(struct run *r, struct err *err)
{
	const char **known = xcalloc((size_t)r->golden.n_profiles + 1, sizeof(*known));
	char near[400];

	for (int i = 0; i < r->golden.n_profiles; i++)
		known[i] = r->golden.profiles[i].name;
	r->profile = golden_profile_find(&r->golden, r->recipe.profile);
	if (!r->profile)
		recipe_error(&r->recipe, r->recipe.place.profile.line ? r->recipe.place.profile : r->recipe.place.golden, err,
			     "the golden has no profile `%s`%s", r->recipe.profile,
			     suggest(near, sizeof(near), r->recipe.profile, known, r->golden.n_profiles));
	free(known);
	return r->profile ? 0 : -1;
}

static int check_prompts(const struct run *r, struct err *err)
{
	const struct golden *g = &r->golden;
	const char **known = xcalloc((size_t)g->n_prompts + 1, sizeof(*known));
	char near[400];

	for (int i = 0; i < g->n_prompts; i++)
		known[i] = g->prompts[i].id;
	for (int i = 0; i < r->recipe.n_prompts && !err->kind; i++) {
		const char *id = r->recipe.prompts[i];
		int prompt = golden_prompt_find(g, id);

		if (prompt < 0)
			recipe_error(&r->recipe, r->recipe.place.prompts[i], err, "the golden has no prompt `%s`%s", id,
				     suggest(near, sizeof(near), id, known, g->n_prompts));
		else if (!golden_row_find(r->profile, prompt))
			recipe_error(&r->recipe, r->recipe.place.prompts[i], err, "profile `%s` of the golden has no row for prompt `%s`",
				     r->profile->name, id);
		else if (strchr(id, ','))
			recipe_error(&r->recipe, r->recipe.place.prompts[i], err, "prompt `%s`: an id with a comma cannot be asked for", id);
	}
	free(known);
	return err->kind ? -1 : 0;
}

/* assay-engine stands beside this program. */
char *run_engine_beside(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return xstrdup("assay-engine");
	self[n] = '\0';
	char *dir = path_dir(self), *engine = path_join(dir, "assay-engine");

	free(dir);
	return engine;
}

static int find_engine(struct run *r, const struct run_options *o, struct err *err)
{
	bool needed = false;

	for (int i = 0; i < r->recipe.n_legs; i++)
		needed |= r->recipe.legs[i].engine == ENGINE_BUILT && !r->recipe.legs[i].host;
	r->engine = o->engine ? xstrdup(o->engine) : run_engine_beside();
	if (needed && access(r->engine, X_OK) != 0)
		return err_set(err, ERR_INPUT, "%s: %s%s", r->engine, strerror(errno),
			       o->engine ? "" : " (assay-engine is looked for beside assay; --engine names another)");
	return 0;
}

int run_find(struct run *r, const struct run_options *o, struct err *err)
{
	char *golden = NULL;
	int failed;

	failed = find_path(r, r->recipe.model, r->recipe.place.model, "model", &r->model_dir, err)
		 || find_path(r, r->recipe.golden, r->recipe.place.golden, "golden", &golden, err);
	if (!failed) {
		r->golden_bytes = file_read(golden, GOLDEN_BYTES, &r->golden_size, err);
		failed = !r->golden_bytes || golden_load_bytes(&r->golden, r->golden_bytes, r->golden_size, golden, err)
			 || find_profile(r, err) || check_prompts(r, err) || find_engine(r, o, err);
	}
	free(golden);
	return failed ? -1 : 0;
}

/* ---- the directory ---- */

static void utc(char *buf, size_t size, const char *format)
{
	time_t t = time(NULL);
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(buf, size, format, &tm);
}

static int save_run(struct run *r, const struct run_options *o, const char *ended, struct err *err)
{
	char *path = path_join(r->dir, "run.json");
	json_t *argv = json_array();
	int failed;

	for (int i = 0; i < o->argc; i++)
		json_array_append_new(argv, json_string_lossy(o->argv[i]));
	json_t *json = json_pack("{s:s, s:s, s:s?, s:o}", "id", r->id, "started", r->started, "ended", ended, "argv", argv);

	failed = !json ? err_set(err, ERR_INPUT, "the command line is not UTF-8")
		 : json_write_file(json, path, JSON_INDENT(1), err);
	json_decref(json);
	free(path);
	return failed;
}

static int write_in(const struct run *r, const char *name, const char *bytes, size_t size, struct err *err)
{
	char *path = path_join(r->dir, name);
	int failed = file_write(path, bytes, size, err);

	free(path);
	return failed;
}

/* Texts need the tokenizer; a model without one is judged in ids. */
static int copy_tokenizer(const struct run *r, struct err *err)
{
	char *from = path_join(r->model_dir, "tokenizer.json"), *to = path_join(r->dir, "tokenizer.json");
	int failed = file_exists(from) ? file_copy(from, to, err) : 0;

	free(from);
	free(to);
	return failed;
}

int run_save_overrides(const struct run *r, struct err *err)
{
	char *path = path_join(r->dir, "overrides.json");
	bool any = r->overrides.n_legs > 0 || r->overrides.n_prompts > 0;
	int failed;

	for (int f = 0; f < N_FACTORS; f++)
		any |= r->overrides.set.value[f] != ARM_UNSET;
	failed = any ? overrides_save(&r->overrides, path, err) : 0;
	free(path);
	return failed;
}

static bool same_file(const struct run *r, const char *name, const char *bytes, size_t size)
{
	struct err ignored = {0};
	char *path = path_join(r->dir, name);
	size_t n = 0;
	char *there = file_exists(path) ? file_read(path, GOLDEN_BYTES, &n, &ignored) : NULL;
	bool same = there && n == size && memcmp(there, bytes, size) == 0;

	free(there);
	free(path);
	return same;
}

/* The prompts that ran before --until-decided stopped are not an option: they are found again. */
static bool same_overrides(const struct run *r, const struct run_options *o)
{
	struct overrides there;
	struct err ignored = {0};
	char *path = path_join(r->dir, "overrides.json");
	bool same = overrides_load(&there, path, &ignored) == 0 && arm_equal(&there.set, &r->overrides.set)
		    && there.n_legs == r->overrides.n_legs && (there.n_prompts == 0 || o->until_decided);

	for (int i = 0; same && i < there.n_legs; i++)
		same = strcmp(there.legs[i], r->overrides.legs[i]) == 0;
	overrides_release(&there);
	free(path);
	return same;
}

/* run.json of the run that was interrupted: it stays the same run. */
static int load_run(struct run *r, struct err *err)
{
	char *path = path_join(r->dir, "run.json");
	json_t *json = json_read_file(path, false, err);
	struct jobj o;
	int failed = !json || json_begin(&o, json, path, "$", err);

	if (!failed) {
		const char *id = json_get_string(&o, "id", true), *started = json_get_string(&o, "started", true);

		json_get(&o, "ended", false);
		json_get(&o, "argv", false);
		failed = json_end(&o);
		if (!failed) {
			free(r->id);
			r->id = xstrdup(id);
			snprintf(r->started, sizeof(r->started), "%s", started);
		}
	}
	json_decref(json);
	free(path);
	return failed ? -1 : 0;
}

static bool has(const struct run *r, const char *name)
{
	char *path = path_join(r->dir, name);
	bool there = file_exists(path);

	free(path);
	return there;
}

static int resume(struct run *r, const struct run_options *o, struct err *err)
{
	if (has(r, "verdict.json"))
		return err_set(err, ERR_INPUT, "%s: holds a complete run; give another --out", r->dir);
	if (!has(r, "run.json"))
		return err_set(err, ERR_INPUT, "%s: exists and is no run directory; give another --out", r->dir);
	if (!same_file(r, "recipe.yaml", r->recipe_bytes, r->recipe_size))
		return err_set(err, ERR_INPUT, "%s: was begun with another recipe.yaml; give another --out", r->dir);
	if (!same_file(r, "golden.json", r->golden_bytes, r->golden_size))
		return err_set(err, ERR_INPUT, "%s: was begun with another golden.json; give another --out", r->dir);
	if (!same_overrides(r, o))
		return err_set(err, ERR_INPUT, "%s: was begun with other --set, --leg or --until-decided; give another --out", r->dir);
	return load_run(r, err);
}

static int make_default_dir(struct run *r, struct err *err)
{
	if (file_mkdirs(RUNS, err))
		return -1;
	for (int n = 1;; n++) {
		free(r->dir);
		r->dir = n == 1 ? xasprintf(RUNS "/%s", r->id) : xasprintf(RUNS "/%s-%d", r->id, n);
		if (mkdir(r->dir, 0777) == 0)
			return 0;
		if (errno != EEXIST)
			return err_set(err, ERR_FAILED, "%s: %s", r->dir, strerror(errno));
	}
}

static bool is_empty(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	bool empty = dir != NULL;

	while (empty && (entry = readdir(dir)))
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	if (dir)
		closedir(dir);
	return empty;
}

/* *fresh: there was nothing in it. */
static int make_dir(struct run *r, const char *out, bool *fresh, struct err *err)
{
	*fresh = true;
	if (!out) {
		if (make_default_dir(r, err))
			return -1;
	} else {
		r->dir = xstrdup(out);
		*fresh = !file_exists(out) || is_empty(out);
		if (file_mkdirs(out, err))
			return -1;
	}
	r->lock = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->lock < 0 || flock(r->lock, LOCK_EX | LOCK_NB) != 0)
		return err_set(err, ERR_INPUT, "%s: %s", r->dir, errno == EWOULDBLOCK ? "another assay is at work in it"
			       : strerror(errno));
	return 0;
}

int run_open(struct run *r, const struct run_options *o, struct err *err)
{
	char stamp[32];
	bool fresh;

	utc(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ");
	utc(r->started, sizeof(r->started), "%Y-%m-%dT%H:%M:%SZ");
	r->id = xasprintf("%s-%s", r->recipe.name, stamp);
	if (make_dir(r, o->out, &fresh, err))
		return -1;
	if (!fresh)
		return resume(r, o, err);
	char *legs = path_join(r->dir, "legs");
	int failed = file_mkdirs(legs, err);

	free(legs);
	/* run.json last: with it, the directory can be resumed. */
	return failed || write_in(r, "recipe.yaml", r->recipe_bytes, r->recipe_size, err)
	       || write_in(r, "golden.json", r->golden_bytes, r->golden_size, err) || copy_tokenizer(r, err)
	       || run_save_overrides(r, err) || save_run(r, o, NULL, err) ? -1 : 0;
}

void run_close(struct run *r, const struct run_options *o)
{
	char ended[40];

	utc(ended, sizeof(ended), "%Y-%m-%dT%H:%M:%SZ");
	save_run(r, o, ended, &r->trouble);
}

void run_release(struct run *r)
{
	recipe_release(&r->recipe);
	overrides_release(&r->overrides);
	golden_release(&r->golden);
	free(r->recipe_bytes);
	free(r->golden_bytes);
	free(r->model_dir);
	free(r->engine);
	free(r->dir);
	free(r->id);
	if (r->lock > 0)
		close(r->lock);
	*r = (struct run){.lock = -1};
}
