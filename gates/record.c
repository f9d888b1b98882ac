/* A run into results/. */
#include "record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "contract/json.h"
#include "bench_array.h"
#include "show.h"

char *record_root(struct err *err)
{
	char *here = realpath(".", NULL);

	while (here) {
		char *git = path_join(here, ".git"), *above;
		bool found = file_exists(git) || access(git, F_OK) == 0;

		free(git);
		if (found)
			return here;
		above = strcmp(here, "/") == 0 ? NULL : path_dir(here);
		free(here);
		here = above;
	}
	err_set(err, ERR_INPUT, "neither this directory nor one above it is a git repository: records are kept in its results/");
	return NULL;
}

/* ---- paths */

static char *replace_all(const char *s, const char *old, const char *new)
{
	struct text to = { 0 };
	size_t n = strlen(old);

	for (const char *at; n && (at = strstr(s, old)); s = at + n)
		text_add(&to, "%.*s%s", (int)(at - s), s, new);
	text_add(&to, "%s", s);
	return to.s ? to.s : xstrdup("");
}

/* Of every absolute path in an argument or a sentence the last part. */
static char *shorten_paths(const char *s)
{
	struct text to = { 0 };

	for (const char *at = s, *end; *at; at = end) {
		bool path = *at == '/' && (at == s || strchr(" =`'\"(", at[-1]));
		const char *last = at;

		end = at + (path ? strcspn(at, " `'\"();,:") : 1);
		for (const char *p = at; p + 1 < end; p++)
			if (*p == '/')
				last = p + 1;
		text_add(&to, "%.*s", (int)(end - last), last);
	}
	return to.s ? to.s : xstrdup("");
}

/* What lies in the repository is named from its root; the run directory, and what else is absolute, by its last part. */
static char *relative(const char *s, const char *root, const char *run_dir)
{
	char *inside = xasprintf("%s/", root), *a = replace_all(s, inside, ""), *b;

	if (run_dir[0] == '/' && strlen(run_dir) > 1) {
		b = replace_all(a, run_dir, path_base(run_dir));
		free(a);
		a = b;
	}
	b = strcmp(a, root) == 0 ? xstrdup(".") : shorten_paths(a);
	free(inside);
	free(a);
	return b;
}

static json_t *relative_json(const json_t *v, const char *root, const char *run_dir)
{
	json_t *copy, *item;
	const char *key;
	size_t i;

	if (json_is_string(v)) {
		char *s = relative(json_string_value(v), root, run_dir);

		copy = json_string(s);
		free(s);
		return copy;
	}
	if (json_is_array(v)) {
		copy = json_array();
		json_array_foreach((json_t *)v, i, item)
			json_array_append_new(copy, relative_json(item, root, run_dir));
		return copy;
	}
	if (json_is_object(v)) {
		copy = json_object();
		json_object_foreach((json_t *)v, key, item)
			json_put(copy, key, relative_json(item, root, run_dir));
		return copy;
	}
	return json_incref((json_t *)v);
}

/* Model and tokens say what they like; only what the run itself says is changed. */
static json_t *relative_verdict(const struct findings *f, const char *root)
{
	static const char *const says_paths[] = { "run", "overall" };
	json_t *v = json_deep_copy(f->verdict), *leg;
	const char *name;

	for (size_t i = 0; i < sizeof says_paths / sizeof *says_paths; i++)
		json_put(v, says_paths[i], relative_json(json_object_get(v, says_paths[i]), root, f->evidence.dir));
	json_object_foreach(json_object_get(v, "legs"), name, leg)
		json_put(leg, "reason", relative_json(json_object_get(leg, "reason"), root, f->evidence.dir));
	return v;
}

/* ---- a summary */

static json_t *string(const char *s)
{
	return s ? json_string_lossy(s) : json_null();
}

static json_t *number(double x)
{
	return isfinite(x) ? json_number_rounded(x, 4) : json_null();
}

static json_t *digest_of(const struct text *t)
{
	char hex[SHA256_HEX];

	sha256_bytes(text_string(t), t->n, hex);
	return json_string(hex);
}

/* Of every token, and of every margin, in every mode. */
static void put_digests(json_t *to, const struct report *r)
{
	struct text ids = { 0 }, margins = { 0 };

	for (int m = 0; m < N_MODES; m++)
		for (int i = 0; r->modes[m].present && i < r->modes[m].n_rows; i++) {
			const struct report_row *row = &r->modes[m].rows[i];

			text_add(&ids, "%s %s", mode_name((enum mode)m), row->id);
			for (int j = 0; j < row->n; j++) {
				text_add(&ids, " %d", row->ids[j]);
				if (row->steps && row->steps[j].has_logits)
					text_add(&margins, " %.9g", row->steps[j].margin);
			}
			text_add(&ids, "\n");
		}
	json_put(to, "ids_sha256", digest_of(&ids));
	json_put(to, "margins_sha256", margins.n ? digest_of(&margins) : json_null());
	text_release(&ids);
	text_release(&margins);
}

static json_t *contract_of(const json_t *contract)
{
	const json_t *line;
	size_t i;
	json_int_t met = 0;

	json_array_foreach(contract, i, line)
		met += json_is_true(json_object_get(line, "ok"));
	return json_pack("{s:I, s:I}", "met", met, "of", (json_int_t)json_array_size(contract));
}

static json_t *member(const json_t *v, const char *a, const char *b, const char *c)
{
	const json_t *x = show_get(v, a, b, c);

	return json_is_number(x) ? json_number_rounded(json_number_value(x), 4) : json_null();
}

static json_t *summary_of_leg(const struct leg *l, const json_t *judged, const char *root, const char *run_dir)
{
	const json_t *tokens = show_get(judged, "tokens");
	const struct report *r = &l->report;
	json_t *o = json_object();

	json_put(o, "verdict", json_incref(json_object_get(judged, "verdict")));
	json_put(o, "adjudication", json_incref(json_object_get(judged, "adjudication")));
	json_put(o, "reason", relative_json(json_object_get(judged, "reason"), root, run_dir));
	json_put(o, "tokens", tokens ? json_pack("{s:O, s:O, s:O}", "mode", json_object_get(tokens, "mode"), "matched",
						 json_object_get(tokens, "matched"), "compared", json_object_get(tokens, "compared")) : json_null());
	json_put(o, "contract", contract_of(json_object_get(judged, "contract")));
	json_put(o, "R", member(judged, "noise", "distance", "R"));
	json_put(o, "lower", member(judged, "noise", "distance", "lower"));
	json_put(o, "upper", member(judged, "noise", "distance", "upper"));
	if (!l->has_report)
		return o;
	json_put(o, "engine", json_pack("{s:s?, s:s?, s:s?, s:o, s:s}", "name", r->engine.name, "version", r->engine.version, "git", r->engine.git,
					"dirty", r->engine.dirty < 0 ? json_null() : json_boolean(r->engine.dirty), "binary_sha256",
					r->engine.binary_sha256));
	json_put(o, "box", json_pack("{s:s?, s:s?, s:I}", "cpu", r->host.cpu, "gpu", r->host.gpu, "cores", (json_int_t)r->host.cores));
	json_put(o, "factors", arm_to_json(&r->effective, &r->effective_at));
	put_digests(o, r);
	json_put(o, "ms_per_token", r->timing.present && r->timing.n > 0 ? number(r->timing.p50) : json_null());
	return o;
}

static json_t *model_of(const struct evidence *e)
{
	struct text files = { 0 };

	for (int l = 0; l < e->n_legs; l++) {
		const struct report *r = &e->legs[l].report;

		if (!e->legs[l].has_report)
			continue;
		for (int i = 0; i < r->model.n_files; i++)
			text_add(&files, "%s %s\n", r->model.files[i].name, r->model.files[i].value);
		break;
	}
	json_t *o = json_pack("{s:s, s:o}", "name", e->golden.model, "sha256", files.n ? digest_of(&files) : json_null());

	text_release(&files);
	return o;
}

static json_t *hypotheses_of(const struct findings *f)
{
	const struct recipe *r = &f->evidence.recipe;
	json_t *o = json_object();

	for (int i = 0; i < r->n_hypotheses; i++) {
		const json_t *h = show_get(f->verdict, "hypotheses", r->hypotheses[i].name);

		json_put(o, r->hypotheses[i].name, json_pack("{s:s, s:s}", "status", show_string(show_get(h, "status")), "says",
							     r->hypotheses[i].says ? r->hypotheses[i].says : ""));
	}
	return o;
}

/* When the run ended; of a directory made by hand, when its recipe was written: the same each time it is asked. */
static char *when_of(const struct evidence *e)
{
	char when[40], *recipe = path_join(e->dir, "recipe.yaml");
	struct stat s = { 0 };
	struct tm utc;

	stat(recipe, &s);
	free(recipe);

	if (e->run.ended)
		return xstrdup(e->run.ended);
	for (int l = e->n_legs; l-- > 0;)
		if (e->legs[l].has_exit && e->legs[l].exit.ended[0])
			return xstrdup(e->legs[l].exit.ended);
	strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&s.st_mtime, &utc));
	return xstrdup(when);
}

json_t *record_summary(const struct findings *f, const char *root)
{
	const struct evidence *e = &f->evidence;
	const json_t *overall = json_object_get(f->verdict, "overall"), *id = show_get(f->verdict, "run", "id");
	json_t *o = json_object(), *legs = json_object();
	char *when = when_of(e);

	json_put(o, "schema", json_string("assay/history/1"));
	json_put(o, "when", string(when));
	json_put(o, "run", string(id ? json_string_value(id) : path_base(e->dir)));
	json_put(o, "argv", relative_json(show_get(f->verdict, "run", "argv") ? json_object_get(json_object_get(f->verdict, "run"), "argv") :
					  json_null(), root, e->dir));
	json_put(o, "recipe", json_pack("{s:s, s:s, s:s, s:s?}", "name", e->recipe.name, "sha256", e->recipe.sha256, "kind",
					e->recipe.kind == RECIPE_DISCRIMINATE ? "discriminate" : "gate", "question", e->recipe.question));
	json_put(o, "golden", json_pack("{s:s, s:s, s:s}", "name", e->golden.name, "sha256", e->golden.sha256, "profile", e->recipe.profile));
	json_put(o, "model", model_of(e));
	json_put(o, "verdict", json_incref(json_object_get(overall, "verdict")));
	json_put(o, "exit_code", json_incref(json_object_get(overall, "exit_code")));
	json_put(o, "reason", relative_json(json_object_get(overall, "reason"), root, e->dir));
	for (int l = 0; l < e->n_legs; l++)
		json_put(legs, e->legs[l].want->name, summary_of_leg(&e->legs[l], findings_leg(f, l), root, e->dir));
	json_put(o, "legs", legs);
	json_put(o, "hypotheses", hypotheses_of(f));
	json_put(o, "claims", json_deep_copy(json_object_get(f->verdict, "claims")));
	if (show_get(f->verdict, "speed"))
		json_put(o, "speed", json_deep_copy(json_object_get(f->verdict, "speed")));
	free(when);
	return o;
}

/* ---- files of lines */

json_t *record_lines(const char *path, const char *schema, struct err *err)
{
	json_t *lines = json_array();
	size_t size;
	char *bytes = file_exists(path) ? file_read(path, (size_t)1 << 30, &size, err) : NULL;
	int n = 0;

	for (char *at = bytes, *end; at && *at && !err->kind; at = end + 1) {
		end = strchrnul(at, '\n');
		bool last = *end == '\0';
		char *name = xasprintf("%s:%d", path, ++n);
		json_t *line = json_read_bytes(at, (size_t)(end - at), name, false, err);

		if (line && strcmp(show_string(json_object_get(line, "schema")), schema) != 0)
			err_set(err, ERR_INPUT, "%s: $.schema: expected %s", name, schema);
		json_array_append_new(lines, line ? line : json_null());
		free(name);
		if (last)
			break;
	}
	free(bytes);
	if (!err->kind)
		return lines;
	json_decref(lines);
	return NULL;
}

static int write_lines(const json_t *lines, const char *path, struct err *err)
{
	struct text all = { 0 };
	const json_t *line;
	size_t i;

	json_array_foreach(lines, i, line) {
		size_t size;
		char *text = json_text(line, JSON_COMPACT, &size);

		text_add(&all, "%s", text);
		free(text);
	}
	int failed = file_write(path, text_string(&all), all.n, err);

	text_release(&all);
	return failed;
}

/* Lines that agree with the new one in both members make place for it. */
static int add_line(const char *path, const char *schema, json_t *line, const char *a, const char *b, const char *c, struct err *err)
{
	json_t *lines = record_lines(path, schema, err);

	for (size_t i = json_array_size(lines); i-- > 0;) {
		const json_t *old = json_array_get(lines, i);

		if (json_equal(json_object_get(old, a), json_object_get(line, a)) && json_equal(json_object_get(old, b), json_object_get(line, b)) &&
		    json_equal(json_object_get(old, c), json_object_get(line, c)))
			json_array_remove(lines, i);
	}
	if (lines)
		json_array_append(lines, line);
	int failed = !lines || write_lines(lines, path, err);

	json_decref(lines);
	return failed ? -1 : 0;
}

/* ---- keeping */

static int refuse_run(const struct findings *f, struct err *err)
{
	const struct evidence *e = &f->evidence;
	const json_t *set = show_get(f->verdict, "run", "overrides");

	if (!json_is_name(e->recipe.name))
		return err_set(err, ERR_INPUT, "%s: the recipe's name `%s` cannot name a record", e->dir, e->recipe.name);
	if (show_get(set, "set") || show_get(set, "legs"))
		return err_set(err, ERR_INPUT, "%s: was run with --set or --leg; a record is of the recipe as it is written", e->dir);
	return 0;
}

int record_keep(const struct findings *f, const char *root, struct err *err)
{
	const char *name = f->evidence.recipe.name;
	char *history_dir = path_join(root, "results/history"), *bench = path_join(root, "results/bench.jsonl");
	char *verdict_path = xasprintf("%s/results/%s.json", root, name), *history = xasprintf("%s/%s.jsonl", history_dir, name);
	json_t *verdict = relative_verdict(f, root), *summary = record_summary(f, root), *line;
	json_t *speeds = bench_records(f, show_string(json_object_get(summary, "when")));
	size_t i;
	int failed = refuse_run(f, err) || file_mkdirs(history_dir, err) ||
		add_line(history, "assay/history/1", summary, "run", "when", "schema", err);

	for (i = 0; !failed && i < json_array_size(speeds); i++) {
		line = json_array_get(speeds, i);
		failed = add_line(bench, "assay/bench/1", line, "when", "recipe", "leg", err);
	}
	failed = failed || json_write_file(verdict, verdict_path, JSON_INDENT(1) | JSON_FLAT, err) || record_docs(root, err);
	json_decref(verdict);
	json_decref(summary);
	json_decref(speeds);
	free(history_dir);
	free(bench);
	free(verdict_path);
	free(history);
	return failed ? -1 : 0;
}
