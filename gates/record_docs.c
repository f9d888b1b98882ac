/* docs/STATUS.md and docs/BENCHMARKS.md, from the records alone. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "record.h"
#include "show.h"
#include "speed.h"

/* A text in a cell or a line of Markdown. */
static void add(struct text *to, const char *before, const char *s, const char *after)
{
	char *plain = text_plain(s);

	text_add(to, "%s", before);
	for (const char *p = plain; *p; p++)
		text_add(to, strchr("|<>&*_`[]\\", *p) ? "&#%d;" : "%c", *p);
	text_add(to, "%s", after);
	free(plain);
}

static bool is(const json_t *v, const char *word)
{
	return strcmp(show_string(v), word) == 0;
}

static const char *digits(const json_t *v, int n, char buf[40])
{
	return show_number(v, n, buf, 40);
}

/* ---- status of a recipe */

static void add_legs(struct text *to, const json_t *legs)
{
	char a[40], b[40], c[40];
	const char *name;
	const json_t *leg;

	text_add(to, "| leg | verdict | adjudication | tokens | path contract | R, 95 %% | git | box |\n|---|---|---|---|---|---|---|---|\n");
	json_object_foreach((json_t *)legs, name, leg) {
		const json_t *tokens = show_get(leg, "tokens"), *box = show_get(leg, "box");

		text_add(to, "| %s | %s | %s | ", name, show_string(json_object_get(leg, "verdict")), show_string(json_object_get(leg, "adjudication")));
		if (tokens)
			text_add(to, "%lld/%lld", (long long)json_integer_value(json_object_get(tokens, "matched")),
				 (long long)json_integer_value(json_object_get(tokens, "compared")));
		text_add(to, " | %lld/%lld | ", (long long)json_integer_value(show_get(leg, "contract", "met")),
			 (long long)json_integer_value(show_get(leg, "contract", "of")));
		text_add(to, "%s", digits(show_get(leg, "R"), 3, a));
		if (show_get(leg, "lower"))
			text_add(to, " [%s, %s]", digits(show_get(leg, "lower"), 3, b), digits(show_get(leg, "upper"), 3, c));
		text_add(to, " | %.12s%s | ", show_string(show_get(leg, "engine", "git")), json_is_true(show_get(leg, "engine", "dirty")) ? " modified" : "");
		add(to, "", show_string(show_get(box, "cpu")), "");
		if (show_get(box, "gpu"))
			add(to, ", ", show_string(show_get(box, "gpu")), "");
		text_add(to, " |\n");
	}
	text_add(to, "\n");
}

static bool any_diverged(const json_t *legs)
{
	const char *name;
	const json_t *leg;

	json_object_foreach((json_t *)legs, name, leg)
		if (is(json_object_get(leg, "verdict"), "DIVERGENCE"))
			return true;
	return false;
}

static void add_names(struct text *to, const json_t *names)
{
	const json_t *name;
	size_t i;

	json_array_foreach(names, i, name)
		add(to, i ? " / " : "", show_string(name), "");
}

/* A cause is what the design separated; everything else is open. */
static void add_causes(struct text *to, const json_t *summary)
{
	const json_t *claim, *hypothesis;
	const char *name;
	bool decided = is(json_object_get(summary, "verdict"), "DECIDED");
	size_t i;

	if (!any_diverged(json_object_get(summary, "legs")))
		return;
	if (!decided)
		text_add(to, "- Cause of the divergence: **OPEN**\n");
	json_object_foreach(json_object_get((json_t *)summary, "hypotheses"), name, hypothesis) {
		const char *status = show_string(json_object_get(hypothesis, "status"));

		if (decided && strcmp(status, "survives") == 0)
			add(to, "- Cause of the divergence: ", name, "");
		else
			add(to, "- ", name, "");
		text_add(to, ", %s", status);
		add(to, ": ", show_string(json_object_get(hypothesis, "says")), "\n");
	}
	json_array_foreach(json_object_get((json_t *)summary, "claims"), i, claim) {
		const json_t *status = json_object_get(claim, "status");

		add(to, "- ", show_string(json_object_get(claim, "about")), "");
		if (is(status, "supported"))
			text_add(to, " moves tokens: separated by ");
		else if (is(status, "exonerated"))
			text_add(to, " does not matter, logits are bit-equal: separated by ");
		else
			text_add(to, ": **OPEN**, %s%s", show_string(status), json_array_size(json_object_get(claim, "legs")) ? " " : "");
		add_names(to, json_object_get(claim, "legs"));
		if (show_get(claim, "needs")) {
			text_add(to, "; would be settled by ");
			add_names(to, json_object_get(claim, "needs"));
		}
		text_add(to, "\n");
	}
	text_add(to, "\n");
}

static void add_speeds(struct text *to, const json_t *speed)
{
	const json_t *found;
	size_t i;

	json_array_foreach(speed, i, found) {
		char *sentence = speed_sentence(found);

		add(to, "- Speed: ", sentence, "\n");
		free(sentence);
	}
	if (i)
		text_add(to, "\n");
}

static void add_recipe(struct text *to, const json_t *s)
{
	const json_t *word;
	size_t i;

	add(to, "## ", show_string(show_get(s, "recipe", "name")), "\n\n");
	if (show_get(s, "recipe", "question"))
		add(to, "", show_string(show_get(s, "recipe", "question")), "\n\n");
	text_add(to, "**%s** (exit %lld)", show_string(json_object_get(s, "verdict")), (long long)json_integer_value(json_object_get(s, "exit_code")));
	if (*show_string(json_object_get(s, "reason")))
		add(to, ": ", show_string(json_object_get(s, "reason")), "");
	text_add(to, "\n\n");
	add_legs(to, json_object_get(s, "legs"));
	add_causes(to, s);
	add_speeds(to, json_object_get(s, "speed"));
	text_add(to, "%s", show_string(json_object_get(s, "when")));
	add(to, ", golden ", show_string(show_get(s, "golden", "name")), "");
	text_add(to, " (%.12s)", show_string(show_get(s, "golden", "sha256")));
	add(to, ", model ", show_string(show_get(s, "model", "name")), "");
	if (show_get(s, "model", "sha256"))
		text_add(to, " (%.12s)", show_string(show_get(s, "model", "sha256")));
	if (show_get(s, "argv")) {
		text_add(to, ":\n\n   ");
		json_array_foreach(json_object_get(s, "argv"), i, word)
			text_add(to, " %s", show_string(word));
	}
	text_add(to, "\n\n");
}

static int is_record(const struct dirent *d)
{
	const char *dot = strrchr(d->d_name, '.');

	return dot && strcmp(dot, ".jsonl") == 0;
}

/* The verdict beside a history is that of its last line. */
static int check_verdict(const char *root, const json_t *s, struct err *err)
{
	char *path = xasprintf("%s/results/%s.json", root, show_string(show_get(s, "recipe", "name")));
	json_t *verdict = verdict_load(path, err);
	const json_t *id = show_get(verdict, "run", "id");

	if (verdict && id && !json_equal(id, json_object_get(s, "run")))
		err_set(err, ERR_INPUT, "%s: is of run %s, the last of its history is %s", path, show_string(id),
			show_string(json_object_get(s, "run")));
	json_decref(verdict);
	free(path);
	return err->kind ? -1 : 0;
}

char *record_status(const char *root, struct err *err)
{
	char *dir = path_join(root, "results/history");
	struct dirent **found = NULL;
	int n = scandir(dir, &found, is_record, alphasort);
	struct text to = { 0 };

	text_add(&to, "# Status\n\nMade from `results/` by `make docs`; the last recorded run of each recipe. `assay history RECIPE` says what changed before it, "
		 "docs/judging.md what the words mean.\n\n");
	for (int i = 0; i < n; i++) {
		char *path = path_join(dir, found[i]->d_name);
		json_t *lines = err->kind ? NULL : record_lines(path, "assay/history/1", err);
		const json_t *last = json_array_get(lines, json_array_size(lines) - 1);

		if (last && !check_verdict(root, last, err))
			add_recipe(&to, last);
		json_decref(lines);
		free(path);
		free(found[i]);
	}
	if (n <= 0)
		text_add(&to, "Nothing was recorded yet.\n");
	free(found);
	free(dir);
	while (to.n > 1 && to.s[to.n - 1] == '\n' && to.s[to.n - 2] == '\n')
		to.s[--to.n] = '\0';
	if (!err->kind)
		return to.s;
	text_release(&to);
	return NULL;
}

/* ---- benchmarks */

static bool same_line(const json_t *a, const json_t *b)
{
	static const char *const keys[] = { "recipe", "leg", "model", "shape" };

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i])))
			return false;
	return json_equal(show_get(a, "metric", "name"), show_get(b, "metric", "name")) && json_equal(show_get(a, "box", "cpu"), show_get(b, "box", "cpu")) &&
		json_equal(json_object_get(json_object_get(a, "box"), "gpu"), json_object_get(json_object_get(b, "box"), "gpu"));
}

static bool has_later(const json_t *lines, size_t at)
{
	for (size_t i = at + 1; i < json_array_size(lines); i++)
		if (same_line(json_array_get(lines, at), json_array_get(lines, i)))
			return true;
	return false;
}

static void add_ratio(struct text *to, const json_t *against)
{
	char value[40], ratio[40], lower[40], upper[40];

	add(to, "", show_string(show_get(against, "peer")), "");
	add(to, " ", show_string(show_get(against, "version")), "");
	text_add(to, ": %s, ratio %s", digits(show_get(against, "value"), 4, value), digits(show_get(against, "ratio"), 4, ratio));
	if (show_get(against, "lower"))
		text_add(to, " [%s, %s], %lld turns", digits(show_get(against, "lower"), 4, lower), digits(show_get(against, "upper"), 4, upper),
			 (long long)json_integer_value(show_get(against, "turns")));
}

static void add_against(struct text *to, const json_t *against)
{
	if (show_get(against, "refused"))
		add(to, "refused: ", show_string(show_get(against, "refused")), "");
	else if (against)
		add_ratio(to, against);
}

/* Four significant digits, but never an exponent. */
static const char *no_exponent(const json_t *v, char *to)
{
	double x = json_number_value(v);

	if (!(fabs(x) >= 1e4 && fabs(x) < 1e15))
		return digits(v, 4, to);
	snprintf(to, 40, "%.0f", x);
	return to;
}

static void add_speed(struct text *to, const json_t *line)
{
	const json_t *shape = json_object_get(line, "shape"), *metric = json_object_get(line, "metric"), *box = json_object_get(line, "box");
	char a[40], b[40];

	add(to, "| ", show_string(show_get(line, "recipe")), "");
	add(to, " | ", show_string(show_get(line, "leg")), " | ");
	add(to, "", show_string(json_object_get(line, "model")), "");
	text_add(to, " | %lld + %lld, batch %lld | ", (long long)json_integer_value(json_object_get(shape, "prompt")),
		 (long long)json_integer_value(json_object_get(shape, "decode")), (long long)json_integer_value(json_object_get(shape, "batch")));
	add(to, "", show_string(json_object_get(metric, "name")), "");
	text_add(to, " | %s %s | %s | %lld | ", no_exponent(json_object_get(metric, "value"), a), show_string(json_object_get(metric, "unit")),
		 no_exponent(json_object_get(metric, "p90"), b), (long long)json_integer_value(json_object_get(metric, "n")));
	add(to, "", show_string(show_get(line, "verdict")), " | ");
	add(to, "", show_string(json_object_get(box, "cpu")), "");
	if (show_get(box, "gpu"))
		add(to, ", ", show_string(show_get(box, "gpu")), "");
	text_add(to, " | %.12s | %s | ", show_string(json_object_get(line, "git")), show_string(json_object_get(line, "when")));
	add_against(to, show_get(line, "against"));
	text_add(to, " |\n");
}

char *record_benchmarks(const char *root, struct err *err)
{
	char *path = path_join(root, "results/bench.jsonl");
	json_t *lines = record_lines(path, "assay/bench/1", err);
	struct text to = { 0 };

	text_add(&to, "# Benchmarks\n\nMade from `results/bench.jsonl` by `make docs`; the last line of each leg, shape and box. Times are over the decode window "
		 "alone, medians, in the token gate whose verdict stands beside them, or of `assay-engine bench` where no recipe is named; docs/STATUS.md holds the commands. Numbers of different rows are not a race: "
		 "a ratio is written only for two engines in one run on one box (docs/formats.md).\n\n");
	if (json_array_size(lines))
		text_add(&to, "| recipe | leg | model | prompt + decode | metric | median | p90 | n | gate | box | git | when | against |\n"
			 "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
	else
		text_add(&to, "Nothing was recorded yet.\n");
	for (size_t i = 0; i < json_array_size(lines); i++)
		if (!has_later(lines, i))
			add_speed(&to, json_array_get(lines, i));
	json_decref(lines);
	free(path);
	if (!err->kind)
		return to.s;
	text_release(&to);
	return NULL;
}

int record_docs(const char *root, struct err *err)
{
	char *docs = path_join(root, "docs"), *status_path = path_join(docs, "STATUS.md"), *bench_path = path_join(docs, "BENCHMARKS.md");
	char *status = record_status(root, err), *bench = status ? record_benchmarks(root, err) : NULL;
	char *readme_path = path_join(root, "README.md"), *readme = bench ? record_readme(root, err) : NULL;
	int failed = !bench || err->kind || file_mkdirs(docs, err) || file_write(status_path, status, strlen(status), err) ||
		file_write(bench_path, bench, strlen(bench), err) || (readme && file_write(readme_path, readme, strlen(readme), err));

	free(docs);
	free(status_path);
	free(bench_path);
	free(readme_path);
	free(readme);
	free(status);
	free(bench);
	return failed ? -1 : 0;
}
