#include "capture.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "contract/json.h"
#include "proc.h"
#include "run.h"

#define RECIPE_BYTES ((size_t)1 << 20)
#define PROMPT_BYTES ((size_t)1 << 30)
#define MAX_FILE_BYTES (4LL << 30)
#define ANSWER_S "120"               /* one answer of a server */

struct session {
	struct capture c;
	char *model, *prompts, *golden, *parts, *like;   /* owned; paths */
	json_t *files, *questions;                       /* owned; {file: sha256}, [{id, text?, ids, tokens}] */
	int max_tokens;
	bool tty;
	const char *words;                               /* the stderr file of the program that runs */
	const char *running;
	int stopped;
};

/* ---- what is captured ---- */

static int find(struct session *s, const char *path, struct mark at, const char *what, char **found, struct err *err)
{
	*found = run_resolve(s->c.file, path);
	return *found ? 0 : yaml_error(&s->c.yaml, at, err, "%s `%s` is neither beside the recipe nor in any directory above it", what, path);
}

/* Files that decide what a checkpoint computes or how it reads text: those that golden_file.py hashes. */
static bool is_model_file(const char *name)
{
	static const char *const others[] = {"config.json", "hf_quant_config.json", "tokenizer.json", "model.safetensors.index.json",
					     "generation_config.json"};
	size_t n = strlen(name);

	for (int i = 0; i < 5; i++)
		if (strcmp(name, others[i]) == 0)
			return true;
	return n > 12 && strcmp(name + n - 12, ".safetensors") == 0;
}

static int hash_model(struct session *s, struct err *err)
{
	struct dirent **names;
	int n = scandir(s->model, &names, NULL, alphasort);

	s->files = json_object();
	if (n < 0)
		return err_set(err, ERR_INPUT, "%s: %s", s->model, strerror(errno));
	for (int i = 0; i < n; i++) {
		char hex[SHA256_HEX], *path = path_join(s->model, names[i]->d_name);

		if (is_model_file(names[i]->d_name) && sha256_file(path, hex, err) == 0)
			json_put(s->files, names[i]->d_name, json_string(hex));
		free(path);
		free(names[i]);
	}
	free(names);
	if (json_object_size(s->files) == 0 && !err->kind)
		err_set(err, ERR_INPUT, "%s: no file of a model in it", s->model);
	return err->kind ? -1 : 0;
}

/* Tokens that are wanted of a prompt; 0: the golden that says so has none. */
static int count_like(const struct golden *like, const struct golden_profile *p, const char *id)
{
	int prompt = golden_prompt_find(like, id);
	const struct golden_row *row = prompt < 0 ? NULL : golden_row_find(p, prompt);

	return row ? row->n : 0;
}

static int set_counts(struct session *s, struct err *err)
{
	const struct golden_profile *p = NULL;
	struct golden like = {0};
	const char *colon;
	json_t *q;
	size_t i;

	if (strncmp(s->c.tokens, "like:", 5) == 0) {
		colon = strrchr(s->c.tokens, ':');
		char *name = xasprintf("%.*s", (int)(colon - s->c.tokens) - 5 > 0 ? (int)(colon - s->c.tokens) - 5 : 0, s->c.tokens + 5);
		int failed = find(s, name, s->c.tokens_at, "golden", &s->like, err) || golden_load(&like, s->like, err);

		free(name);
		p = failed ? NULL : golden_profile_find(&like, colon + 1);
		if (!failed && !p)
			yaml_error(&s->c.yaml, s->c.tokens_at, err, "tokens: the golden has no profile `%s`", colon + 1);
	}
	json_array_foreach(s->questions, i, q) {
		int n = p ? count_like(&like, p, json_string_value(json_object_get(q, "id"))) : atoi(s->c.tokens);

		if (n <= 0 && !err->kind)
			err_set(err, ERR_INPUT, "%s: no row for prompt %s", s->like, json_string_value(json_object_get(q, "id")));
		json_put(q, "tokens", json_integer(n));
		s->max_tokens = n > s->max_tokens ? n : s->max_tokens;
	}
	golden_release(&like);
	return err->kind ? -1 : 0;
}

/* A golden, whose prompts are taken, or a list of {id, text?, ids}. */
static int read_prompts(struct session *s, struct err *err)
{
	json_t *doc = json_read_file(s->prompts, false, err), *p;
	const json_t *list = json_is_array(doc) ? doc : json_object_get(doc, "prompts");
	size_t i;

	s->questions = json_array();
	json_array_foreach(list, i, p) {
		json_t *q = json_object(), *text = json_object_get(p, "text"), *ids = json_object_get(p, "ids");
		const char *id = json_string_value(json_object_get(p, "id"));

		if ((!id || json_array_size(ids) == 0) && !err->kind)
			err_set(err, ERR_INPUT, "%s: prompt %zu has no id or no ids", s->prompts, i);
		json_put(q, "id", json_string(id ? id : ""));
		if (json_is_string(text))
			json_object_set(q, "text", text);
		json_object_set(q, "ids", ids);
		json_array_append_new(s->questions, q);
	}
	if (doc && json_array_size(s->questions) == 0)
		err_set(err, ERR_INPUT, "%s: no prompts in it", s->prompts);
	json_decref(doc);
	return err->kind ? -1 : set_counts(s, err);
}

/* ---- parts ---- */

static char *part_path(const struct session *s, const char *profile, const char *ending)
{
	return xasprintf("%s/%s%s", s->parts, profile, ending);
}

/* The program of the project that captures from this engine. */
static char *script_of(const struct session *s, const struct capture_profile *p)
{
	char *name = xasprintf("oracle-goldens/capture/%s_oracle.py", capture_program_name(p->program));
	char *path = run_resolve(s->c.file, name);

	free(name);
	return path;
}

/* Everything that decides what a profile holds, as a hash: with another one it is captured anew. */
static int part_key(const struct session *s, int index, char key[SHA256_HEX], struct err *err)
{
	const struct capture_profile *p = &s->c.profiles[index];
	json_t *doc = json_pack("{s:O, s:O, s:s, s:s, s:i, s:s?, s:s?, s:b}", "model", s->files, "prompts", s->questions, "program",
				capture_program_name(p->program), "mode", p->mode, "repeats", s->c.repeats, "url", p->url, "name", p->model,
				"text", p->text);
	json_t *args = json_array();
	char *script = p->program <= CAPTURE_VLLM ? script_of(s, p) : NULL, hex[SHA256_HEX] = "";

	for (int i = 0; i < p->n_args; i++)
		json_array_append_new(args, json_string_lossy(p->args[i]));
	json_put(doc, "args", args);
	if (p->program <= CAPTURE_VLLM && !script)
		err_set(err, ERR_INPUT, "%s: oracle-goldens/capture/%s_oracle.py is not in any directory above it", s->c.file,
			capture_program_name(p->program));
	else if (script && sha256_file(script, hex, err) == 0)
		json_put(doc, "script", json_string(hex));
	if (strcmp(p->mode, "forced") == 0 && part_key(s, 0, hex, err) == 0)
		json_put(doc, "given", json_string(hex));
	char *text = json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS);

	sha256_bytes(text, strlen(text), key);
	free(text);
	free(script);
	json_decref(doc);
	return err->kind ? -1 : 0;
}

static json_t *part_load(const struct session *s, const char *profile, struct err *err)
{
	char *path = part_path(s, profile, ".json");
	json_t *doc = json_read_file(path, false, err);

	free(path);
	return doc;
}

static bool part_is_kept(const struct session *s, const char *profile, const char *key)
{
	char *path = part_path(s, profile, ".key"), *there;
	struct err ignored = {0};
	size_t size;

	there = file_exists(path) ? file_read(path, 200, &size, &ignored) : NULL;
	bool same = there && strcmp(there, key) == 0;
	json_t *part = same ? part_load(s, profile, &ignored) : NULL;
	bool kept = part != NULL;

	json_decref(part);
	free(there);
	free(path);
	return kept;
}

/* ---- running a program ---- */

static void show_last_line(void *ud)
{
	const struct session *s = ud;
	FILE *f = fopen(s->words, "re");
	char bytes[400] = "", *end, *line;

	if (!f)
		return;
	if (fseek(f, -300, SEEK_END) != 0)
		rewind(f);
	bytes[fread(bytes, 1, sizeof(bytes) - 1, f)] = '\0';
	fclose(f);
	end = strrchr(bytes, '\n');
	if (!end)
		return;
	*end = '\0';
	line = strrchr(bytes, '\n');
	fprintf(stderr, "\r\033[K%s: %.100s", s->running, line ? line + 1 : bytes);
}

static int run_program(struct session *s, const struct capture_profile *p, char **argv, const char *input, const char *out, struct err *err)
{
	char *words = part_path(s, p->name, ".stderr");
	struct proc proc = {.argv = argv, .input = input, .input_size = input ? strlen(input) : 0, .out_path = out, .err_path = words,
			    .timeout_s = s->c.timeout_s, .max_file_bytes = MAX_FILE_BYTES, .tick = s->tty ? show_last_line : NULL, .ud = s,
			    .tick_s = 0.5};
	struct proc_end end;
	struct err ignored = {0};
	size_t size = 0;

	s->words = words;
	s->running = p->name;
	int failed = proc_run(&proc, &end, err);

	if (s->tty)
		fprintf(stderr, "\r\033[K");
	if (!failed && end.interrupted) {
		s->stopped = end.interrupted;
		failed = err_set(err, ERR_FAILED, "interrupted");
	} else if (!failed && (end.timed_out || end.signal || end.exit_code)) {
		char *said = file_read(words, 1 << 24, &size, &ignored), *at;

		while (said && size && (said[size - 1] == '\n' || said[size - 1] == '\r'))
			said[--size] = '\0';
		at = said ? strrchr(said, '\n') : NULL;
		failed = err_set(err, ERR_FAILED, "%s%s %d%s%s", end.timed_out ? "timed out, " : "", end.signal ? "signal" : "exit code",
				 end.signal ? end.signal : end.exit_code, said && *said ? ": " : "", at ? at + 1 : said ? said : "");
		free(said);
	}
	s->words = NULL;
	free(words);
	return failed;
}

/* transformers and vllm write a golden themselves; a part that another profile comes before holds that one first. */
static int run_script(struct session *s, int index, struct err *err)
{
	const struct capture_profile *p = &s->c.profiles[index];
	char *script = script_of(s, p), *part = part_path(s, p->name, ".new"), *prompts = part_path(s, "prompts", ".json");
	char *first = part_path(s, s->c.profiles[0].name, ".json"), *like = NULL, repeats[16], *out = part_path(s, p->name, ".stdout");
	char *what = p->program == CAPTURE_VLLM ? xasprintf("%s=%s", p->name, p->mode) : xstrdup(p->name);
	char **argv = xcalloc((size_t)p->n_args + 20, sizeof(*argv));
	const char *colon = strrchr(s->c.tokens, ':');
	int n = 0, failed = 0;

	unlink(part);
	like = s->like ? xasprintf("like:%s%s", s->like, colon) : xstrdup(s->c.tokens);
	snprintf(repeats, sizeof(repeats), "%d", s->c.repeats);
	if (index > 0)
		failed = file_copy(first, part, err);
	const char *words[] = {s->c.python, script, "--model", s->model, "--prompts", prompts, "--golden", part, "--name", s->c.name,
			       "--max-new", like, "--repeats", repeats, p->program == CAPTURE_VLLM ? "--do" : "--profile", what};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		argv[n++] = (char *)words[i];
	if (p->program == CAPTURE_TRANSFORMERS && strcmp(p->mode, "forced") == 0)
		argv[n++] = "--score";
	for (int i = 0; i < p->n_args; i++)
		argv[n++] = p->args[i];
	failed = failed || run_program(s, p, argv, NULL, out, err);
	free(argv);
	char *owned[] = {script, part, prompts, first, like, out, what};

	for (int i = 0; i < 7; i++)
		free(owned[i]);
	return failed ? -1 : 0;
}

/* ---- engines that speak the report format ---- */

static json_t *given_of(const json_t *first, const char *id)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(json_array_get(json_object_get(first, "profiles"), 0), "prompts"), i, row)
		if (strcmp(json_string_value(json_object_get(row, "id")), id) == 0)
			return json_incref(json_object_get(row, "ids"));
	return json_null();
}

static char *request_for(const struct session *s, const struct capture_profile *p, struct err *err)
{
	struct arm open;
	bool forced = strcmp(p->mode, "forced") == 0;
	json_t *first = forced ? part_load(s, s->c.profiles[0].name, err) : NULL, *prompts = json_deep_copy(s->questions), *q;
	size_t i;

	arm_init(&open);
	json_array_foreach(prompts, i, q)
		json_put(q, "given", forced ? given_of(first, json_string_value(json_object_get(q, "id"))) : json_null());
	json_t *request = json_pack("{s:s, s:s, s:o, s:s, s:n, s:i, s:[s], s:o}", "schema", "assay/request/1", "leg", p->name, "requested",
				    arm_to_json(&open, &(struct arm_at_list){0}), "model", s->model, "golden_sha256", "steps", s->max_tokens,
				    "modes", p->mode, "prompts", prompts);
	BUG_ON(!request);
	char *text = json_dumps(request, JSON_COMPACT);

	json_decref(request);
	json_decref(first);
	return text;
}

static char **engine_argv(const struct capture_profile *p, const char *report)
{
	const char *server[] = {"/proc/self/exe", "openai", "--url", p->url, "--model", p->model, "--timeout", ANSWER_S, "--report", report,
				p->text ? "--text" : NULL, p->key_env ? "--key-env" : NULL, p->key_env};
	char **argv = xcalloc((size_t)p->n_args + 20, sizeof(*argv));
	int n = 0;

	for (int i = 0; i < p->n_args; i++)
		argv[n++] = p->args[i];
	for (size_t i = 0; p->program == CAPTURE_OPENAI && i < sizeof(server) / sizeof(server[0]); i++)
		if (server[i])
			argv[n++] = (char *)server[i];
	return argv;
}

/* What was run, without the paths of one machine. */
static char *command_of(const struct capture_profile *p)
{
	char *command = p->program == CAPTURE_OPENAI ? xasprintf("assay openai --url %s --model %s%s", p->url, p->model, p->text ? " --text" : "")
						     : xstrdup("");

	for (int i = 0; i < p->n_args; i++) {
		char *longer = xasprintf("%s%s%s", command, i ? " " : "", p->args[i][0] == '/' ? path_base(p->args[i]) : p->args[i]);

		free(command);
		command = longer;
	}
	return command;
}

static json_t *empty_golden(const struct session *s)
{
	json_t *prompts = json_deep_copy(s->questions), *q, *tokenizer = json_object_get(s->files, "tokenizer.json");
	size_t i;

	json_array_foreach(prompts, i, q)
		json_object_del(q, "tokens");
	json_t *g = json_pack("{s:s, s:s, s:{s:s, s:O}, s:{s:i, s:i, s:b}, s:o, s:[]}", "schema", "assay/golden/1", "name", s->c.name, "model",
			      "name", path_base(s->model), "files", s->files, "sampling", "temperature", 0, "max_tokens", s->max_tokens,
			      "ignore_eos", 1, "prompts", prompts, "profiles");

	BUG_ON(!g);
	if (tokenizer)
		json_object_set(g, "tokenizer_sha256", tokenizer);
	return g;
}

static int keep_profile(struct session *s, const struct capture_profile *p, const struct report *runs, int n, struct err *err)
{
	char *part = part_path(s, p->name, ".new"), *command = command_of(p);
	json_t *g = empty_golden(s);
	bool agree;
	json_t *profile = capture_profile_of(runs, n, strcmp(p->mode, "forced") == 0 ? MODE_FORCED : MODE_FREE, p->name, command, &agree, err);
	int failed = !profile;

	if (profile) {
		json_array_append_new(json_object_get(g, "profiles"), profile);
		failed = json_write_file(g, part, JSON_COMPACT, err);
	}
	json_decref(g);
	free(command);
	free(part);
	return failed;
}

static int run_engine(struct session *s, int index, struct err *err)
{
	const struct capture_profile *p = &s->c.profiles[index];
	struct report *runs = xcalloc((size_t)s->c.repeats, sizeof(*runs));
	char *report = part_path(s, p->name, ".report"), *out = part_path(s, p->name, ".stdout");
	char *request = request_for(s, p, err), **argv = engine_argv(p, report);
	const char *reported = p->program == CAPTURE_OPENAI ? report : out;
	int n = 0;

	for (; n < s->c.repeats && !err->kind; n++) {
		unlink(report);
		if (!run_program(s, p, argv, request, out, err))
			report_load(&runs[n], reported, err);
	}
	if (!err->kind)
		keep_profile(s, p, runs, n, err);
	for (int i = 0; i < n; i++)
		report_release(&runs[i]);
	unlink(report);
	free(runs);
	free(report);
	free(out);
	free(argv);
	free(request);
	return err->kind ? -1 : 0;
}

/* ---- the whole ---- */

/* The profile alone, checked as a golden; its key last: with it the part is done. */
static int finish_part(struct session *s, const struct capture_profile *p, const char *key, struct err *err)
{
	char *fresh = part_path(s, p->name, ".new"), *path = part_path(s, p->name, ".json"), *key_path = part_path(s, p->name, ".key");
	json_t *doc = json_read_file(fresh, false, err), *profiles = json_object_get(doc, "profiles");
	struct golden g = {0};
	size_t size;

	while (json_array_size(profiles) > 1 && json_string_value(json_object_get(json_array_get(profiles, 0), "name"))
	       && strcmp(json_string_value(json_object_get(json_array_get(profiles, 0), "name")), p->name))
		json_array_remove(profiles, 0);
	char *text = doc ? json_text(doc, JSON_COMPACT, &size) : NULL;
	int failed = !text || golden_load_bytes(&g, text, size, fresh, err) || file_write(path, text, size, err)
		     || file_write(key_path, key, strlen(key), err);

	golden_release(&g);
	unlink(fresh);
	free(text);
	json_decref(doc);
	free(fresh);
	free(path);
	free(key_path);
	return failed;
}

static int capture_one(struct session *s, int index, struct err *err)
{
	const struct capture_profile *p = &s->c.profiles[index];
	char key[SHA256_HEX];
	struct err why = {0};

	if (part_key(s, index, key, err))
		return -1;
	fprintf(stderr, "%s %d/%d: ", p->name, index + 1, s->c.n_profiles);
	if (part_is_kept(s, p->name, key)) {
		fprintf(stderr, "kept\n");
		return 0;
	}
	fprintf(stderr, "%s%s", capture_program_name(p->program), s->tty ? "\n" : " ... ");
	fflush(stderr);
	int failed = (p->program <= CAPTURE_VLLM ? run_script : run_engine)(s, index, &why) || finish_part(s, p, key, &why);

	fprintf(stderr, "%s\n", failed ? why.text : "done");
	return failed ? err_set(err, ERR_FAILED, "profile %s: %s", p->name, why.text) : 0;
}

/* All parts in the recipe's order; *unsure counts profiles whose runs differ. */
static int merge(struct session *s, int *unsure, struct err *err)
{
	json_t *whole = NULL;
	struct golden g = {0};
	size_t size;

	for (int i = 0; i < s->c.n_profiles && !err->kind; i++) {
		json_t *part = part_load(s, s->c.profiles[i].name, err);
		json_t *profile = json_array_get(json_object_get(part, "profiles"), 0);

		if (profile && json_is_false(json_object_get(profile, "repeats_agree"))) {
			printf("profile %s: its %d runs DIFFER: not reproducible\n", s->c.profiles[i].name, s->c.repeats);
			++*unsure;
		}
		if (whole && profile)
			json_array_append(json_object_get(whole, "profiles"), profile);
		else if (part)
			whole = json_incref(part);
		json_decref(part);
	}
	char *text = whole && !err->kind ? json_text(whole, JSON_COMPACT, &size) : NULL;

	if (text && golden_load_bytes(&g, text, size, s->golden, err) == 0 && file_write(s->golden, text, size, err) == 0)
		printf("%s: %d profiles of %d prompts\n", s->golden, g.n_profiles, g.n_prompts);
	golden_release(&g);
	free(text);
	json_decref(whole);
	return err->kind ? -1 : 0;
}

static int prepare(struct session *s, struct err *err)
{
	char *path, *dir;

	if (find(s, s->c.model, s->c.model_at, "model", &s->model, err) || find(s, s->c.prompts, s->c.prompts_at, "prompts", &s->prompts, err)
	    || hash_model(s, err) || read_prompts(s, err))
		return -1;
	s->parts = xasprintf("%s.parts", s->golden);
	dir = path_dir(s->golden);
	path = part_path(s, "prompts", ".json");
	int failed = file_mkdirs(dir, err) || file_mkdirs(s->parts, err) || json_write_file(s->questions, path, JSON_COMPACT, err);

	free(path);
	free(dir);
	return failed;
}

static void session_release(struct session *s)
{
	char *owned[] = {s->model, s->prompts, s->golden, s->parts, s->like};

	for (int i = 0; i < 5; i++)
		free(owned[i]);
	json_decref(s->files);
	json_decref(s->questions);
	capture_release(&s->c);
}

/* Fills the session from the command line and the recipe; 0, or an exit code after a message. */
static int open_session(struct session *s, int argc, char **argv)
{
	static const struct option options[] = {{"golden", required_argument, NULL, 'g'}, {"python", required_argument, NULL, 'p'}, {0}};
	const char *golden = NULL, *python = NULL;
	struct err err = {0};
	size_t size;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return EXIT_USAGE;
		*(c == 'g' ? &golden : &python) = optarg;
	}
	if (argc - optind != 1)
		return command_usage("capture", "which capture recipe?");
	char *bytes = file_read(argv[optind], RECIPE_BYTES, &size, &err);

	if (bytes && capture_load_bytes(&s->c, bytes, size, argv[optind], &err) == 0) {
		s->golden = xstrdup(golden ? golden : s->c.golden);
		if (python) {
			free(s->c.python);
			s->c.python = xstrdup(python);
		}
		prepare(s, &err);
	}
	free(bytes);
	return err.kind ? command_fail(&err) : 0;
}

int command_capture(int argc, char **argv)
{
	struct session s = {.tty = isatty(STDERR_FILENO)};
	struct err err = {0};
	int code = open_session(&s, argc, argv), unsure = 0;
	sigset_t old;

	if (!code) {
		proc_hold_signals(&old);
		for (int i = 0; i < s.c.n_profiles && !err.kind; i++)
			capture_one(&s, i, &err);
		proc_release_signals(&old);
		if (s.stopped) {
			fprintf(stderr, "assay: interrupted; the profiles that were captured are kept: the same command resumes\n");
			code = 128 + s.stopped;
		} else if (err.kind || merge(&s, &unsure, &err)) {
			command_fail(&err);
			code = 1;
		} else {
			code = unsure ? 1 : 0;
		}
	}
	session_release(&s);
	return code;
}
