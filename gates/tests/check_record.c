/* Records and what is made from them; and that the docs of this repository say what its records say. */
#include <ctype.h>
#include <math.h>
#include "gates/record.h"
#include "reported.h"

static char root[64];

static void make_root(void)
{
	strcpy(root, "/tmp/assay-record-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static void end_root(void)
{
	end();
	if (root[0])
		remove_tree(root);
	root[0] = '\0';
}

static char *in_root(const char *name)
{
	char *path = path_join(root, name), *text;
	size_t size;

	text = file_read(path, 1 << 26, &size, &err);
	ck_assert_msg(text != NULL, "%s", err.text);
	free(path);
	return text;
}

static void keep(const char *name)
{
	findings_release(&found);
	stop();
	use(name);
	load();
	ck_assert_msg(!record_keep(&found, root, &err), "%s", err.text);
}

START_TEST(a_run_is_kept_once)
{
	make_root();
	keep("near-tie");
	ck_assert_msg(!record_keep(&found, root, &err), "%s", err.text);
	char *history = in_root("results/history/near-tie.jsonl"), *bench = in_root("results/bench.jsonl"), *kept = in_root("results/near-tie.json");
	json_t *line = json_loads(bench, 0, NULL), *v = json_loads(kept, 0, NULL);

	ck_assert_int_eq(count_of(history, "\n"), 1);
	ck_assert_int_eq(count_of(bench, "\n"), 1);
	ck_assert_msg(schema_check("bench", NULL, line, &err), "%s", err.text);
	ck_assert_msg(schema_check("verdict", NULL, v, &err), "%s", err.text);
	json_decref(line);
	json_decref(v);
	free(history);
	free(bench);
	free(kept);
}
END_TEST

/* The nearest repository at or above the current directory; .git may be a file, as in a worktree. */
START_TEST(the_root_is_looked_for_upwards)
{
	make_root();
	char *real = realpath(root, NULL), *deep = path_join(real, "a/b"), *a = path_join(real, "a"), *git = path_join(real, ".git");
	char *file = path_join(a, ".git"), *found_root;

	ck_assert_msg(!file_mkdirs(deep, &err) && !file_mkdirs(git, &err), "%s", err.text);
	ck_assert_int_eq(chdir(deep), 0);
	found_root = record_root(&err);
	ck_assert_str_eq(found_root, real);
	free(found_root);
	ck_assert_int_eq(chdir(real), 0);
	found_root = record_root(&err);
	ck_assert_str_eq(found_root, real);
	free(found_root);
	ck_assert_msg(!file_write(file, "gitdir: x\n", 10, &err), "%s", err.text);
	ck_assert_int_eq(chdir(deep), 0);
	found_root = record_root(&err);
	ck_assert_str_eq(found_root, a);
	free(found_root);
	ck_assert_int_eq(chdir("/"), 0);
	found_root = file_exists("/.git") ? NULL : record_root(&err);
	ck_assert_ptr_null(found_root);
	free(file);
	free(git);
	free(a);
	free(deep);
	free(real);
}
END_TEST

START_TEST(paths_are_the_repositorys)
{
	make_root();
	use("near-tie");
	load();
	char *inside = xasprintf("%s/recipes/x.yaml", root), *reason = xasprintf("%s/legs/step.json:1:1: no /opt/models/m/config.json: bad at 1/2 of http://h/v1, in %s/build", run, root);

	json_object_set_new(found.verdict, "run", json_pack("{s:s, s:n, s:n, s:[s, s, s, s, s]}", "id", "r", "started", "ended", "argv", "assay", "run",
							    inside, "/opt/elsewhere/dir", "--engine=/opt/a place/engine"));
	json_object_set_new((json_t *)findings_leg(&found, 0), "reason", json_string(reason));
	ck_assert_msg(!record_keep(&found, root, &err), "%s", err.text);
	char *kept = in_root("results/near-tie.json"), *history = in_root("results/history/near-tie.jsonl");

	has(kept, "\"recipes/x.yaml\"");
	has(kept, "\"dir\"");
	lacks(kept, root);
	lacks(kept, "/tmp/");
	lacks(kept, "/opt/");
	lacks(history, "/tmp/");
	lacks(history, "/opt/");
	has(kept, ": no config.json: bad at 1/2 of http://h/v1, in build\"");
	free(inside);
	free(reason);
	free(kept);
	free(history);
}
END_TEST

START_TEST(part_of_a_recipe_is_no_record)
{
	make_root();
	use("near-tie");
	load();
	json_object_set_new(json_object_get(found.verdict, "run"), "overrides", json_pack("{s:{s:s}}", "set", "threads", "1"));
	ck_assert(record_keep(&found, root, &err));
	has(err.text, "was run with --set or --leg");
}
END_TEST

START_TEST(a_cause_is_open_unless_separated)
{
	make_root();
	keep("near-tie");
	keep("seed-three-legs");
	char *status = in_root("docs/STATUS.md"), *gate = strstr(status, "## near-tie"), *legs = strstr(status, "## seed-three-legs");

	ck_assert(gate && legs && gate < legs);
	ck_assert_ptr_nonnull(strstr(gate, "- Cause of the divergence: **OPEN**"));
	/* three legs that vary two factors at once leave one of them open */
	ck_assert_ptr_nonnull(strstr(legs, "**OPEN**"));
	free(status);
}
END_TEST

START_TEST(history_says_what_changed)
{
	make_root();
	use("near-tie");
	load();
	json_t *a = record_summary(&found, root), *b = json_deep_copy(a), *leg = json_object_get(json_object_get(b, "legs"), "step");
	char *none = history_changes(a, a, ""), *some;

	ck_assert_str_eq(none, "");
	json_object_set_new(b, "verdict", json_string("STRICT PASS"));
	json_object_set_new(json_object_get(leg, "factors"), "threads", json_integer(9));
	json_object_set_new(json_object_get(leg, "engine"), "binary_sha256",
			    json_string("1111111111111111111111111111111111111111111111111111111111111111"));
	json_object_set_new(leg, "ms_per_token", json_real(4));
	json_object_set_new(json_object_get(leg, "box"), "cpu", json_string("another"));
	some = history_changes(a, b, "  ");
	has(some, "  verdict: DIVERGENCE -> STRICT PASS\n");
	has(some, "  step: threads: 2 -> 9\n");
	has(some, "-> 111111111111\n");
	has(some, "  step: ms/token: 8 -> 4, on another box\n");
	lacks(some, "ids");
	json_decref(a);
	json_decref(b);
	free(none);
	free(some);
}
END_TEST

/* Another token, another digest. */
START_TEST(digests_follow_the_tokens)
{
	use("near-tie");
	load();
	json_t *a = record_summary(&found, "");

	found.evidence.legs[0].report.modes[MODE_FREE].rows[0].ids[0]++;
	json_t *b = record_summary(&found, "");
	char *changes = history_changes(a, b, "");

	ck_assert_int_eq(count_of(changes, "\n"), 1);
	has(changes, "step: ids: ");
	json_decref(a);
	json_decref(b);
	free(changes);
}
END_TEST

/* ---- the docs of this repository */

static double numbers[200000];
static int n_numbers;
static struct text all;

static void collect(const json_t *v)
{
	const char *key;
	json_t *item;
	size_t i;

	if (json_is_number(v))
		numbers[n_numbers++] = json_number_value(v);
	if (json_is_string(v))
		text_add(&all, "%s\n", json_string_value(v));
	json_array_foreach((json_t *)v, i, item)
		collect(item);
	json_object_foreach((json_t *)v, key, item) {
		text_add(&all, "%s\n", key);
		collect(item);
	}
}

static void collect_lines(const char *path, const char *schema)
{
	json_t *lines = record_lines(path, schema, &err);

	ck_assert_msg(lines != NULL, "%s", err.text);
	collect(lines);
	json_decref(lines);
}

/* Is a word of the docs a text of a record, or a number of one at the word's own precision? */
static bool recorded(const char *word)
{
	const char *dot = strchr(word, '.');
	int decimals = dot ? (int)strlen(dot + 1) : 0;
	char *end;
	double x = strtod(word, &end);

	if (strlen(word) > 3 && strstr(all.s, word))
		return true;
	if (*end || strchr(word, 'e'))
		return false;
	for (int i = 0; i < n_numbers; i++)
		if (fabs(numbers[i] - x) <= 0.5 * pow(10, -decimals) * (1 + 1e-9))
			return true;
	return false;
}

/* An escaped character, "&#93;", ends a word and is a word that is no number. */
#define DELIMITERS " \n|[](),;/*`&"

static void check_numbers(const char *name, const char *doc)
{
	char *copy = xstrdup(doc), *body = strstr(copy, "\n\n"), *save = NULL;

	/* the title and the paragraph below it are ours */
	body = body ? strstr(body + 2, "\n\n") : NULL;
	for (char *word = body ? strtok_r(body, DELIMITERS, &save) : NULL; word; word = strtok_r(NULL, DELIMITERS, &save)) {
		size_t n = strlen(word);

		while (n && strchr(":.", word[n - 1]))
			word[--n] = '\0';
		if (isdigit((unsigned char)word[0]) && strcmp(word, "95"))
			ck_assert_msg(recorded(word), "%s: %s is in no record", name, word);
	}
	free(copy);
}

static char *repository_doc(const char *name)
{
	size_t size;
	char *text = file_read(name, 1 << 24, &size, &err);

	ck_assert_msg(text != NULL, "%s: make docs", err.text);
	return text;
}

START_TEST(docs_say_what_the_records_say)
{
	char *status = record_status(".", &err), *bench = record_benchmarks(".", &err);

	ck_assert_msg(status && bench, "%s", err.text);
	char *kept_status = repository_doc("docs/STATUS.md"), *kept_bench = repository_doc("docs/BENCHMARKS.md");
	char *readme = record_readme(".", &err), *kept_readme = repository_doc("README.md");

	ck_assert_msg(readme && strcmp(readme, kept_readme) == 0, "README.md shows another verdict than results/: make docs");
	free(readme);
	free(kept_readme);
	ck_assert_msg(strcmp(status, kept_status) == 0, "docs/STATUS.md is not what the records say: make docs");
	ck_assert_msg(strcmp(bench, kept_bench) == 0, "docs/BENCHMARKS.md is not what the records say: make docs");
	free(status);
	free(bench);
	free(kept_status);
	free(kept_bench);
}
END_TEST

/* README's block is the record's, whatever stood there; what stands around it stays. */
START_TEST(a_readme_shows_its_record)
{
	static const char before[] = "# x\n\n1 of 2\n\n<!-- assay show results/near-tie.json -->\n\n    TOKEN MATCH 1/2\n\n    old\n\nAfter 3.\n\n    kept\n";

	make_root();
	keep("near-tie");
	char *path = path_join(root, "README.md"), *made;

	ck_assert_ptr_null(record_readme(root, &err));
	ck_assert(!file_write(path, before, sizeof(before) - 1, &err));
	ck_assert_msg(!record_docs(root, &err), "%s", err.text);
	made = in_root("README.md");
	ck_assert_msg(strncmp(made, "# x\n\n1 of 2\n\n<!-- assay show results/near-tie.json -->\n\n    TOKEN MATCH 29/36 full rows=", 86) == 0, "%s", made);
	has(made, "nats; oracle: where it forks from itself\n\nAfter 3.\n\n    kept\n");
	lacks(made, "    old");
	/* made again, it stays the same */
	char *again = record_readme(root, &err);

	ck_assert_str_eq(again, made);
	free(again);
	free(made);
	free(path);
}
END_TEST

START_TEST(records_fit_their_schemas)
{
	json_t *lines = record_lines("results/bench.jsonl", "assay/bench/1", &err), *line;
	DIR *dir = opendir("results");
	struct dirent *entry;
	size_t i;

	ck_assert_msg(lines != NULL, "%s", err.text);
	json_array_foreach(lines, i, line)
		ck_assert_msg(schema_check("bench", NULL, line, &err), "results/bench.jsonl:%zu: %s", i + 1, err.text);
	json_decref(lines);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (!dot || strcmp(dot, ".json"))
			continue;
		char *path = path_join("results", entry->d_name);
		json_t *v = json_read_file(path, false, &err);

		ck_assert_msg(v && schema_check("verdict", NULL, v, &err), "%s: %s", path, err.text);
		json_decref(v);
		free(path);
	}
	closedir(dir);
}
END_TEST

START_TEST(every_number_is_in_a_record)
{
	DIR *dir = opendir("results/history");
	struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)))
		if (strstr(entry->d_name, ".jsonl")) {
			char *path = xasprintf("results/history/%s", entry->d_name);

			collect_lines(path, "assay/history/1");
			free(path);
		}
	closedir(dir);
	collect_lines("results/bench.jsonl", "assay/bench/1");
	ck_assert_int_gt(n_numbers, 0);
	/* that it can fail */
	ck_assert(!recorded("31415.9265"));
	char *status = repository_doc("docs/STATUS.md"), *bench = repository_doc("docs/BENCHMARKS.md");

	check_numbers("docs/STATUS.md", status);
	check_numbers("docs/BENCHMARKS.md", bench);
	free(status);
	free(bench);
	text_release(&all);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("record");

	tcase_add_checked_fixture(c, NULL, end_root);
	tcase_add_test(c, a_run_is_kept_once);
	tcase_add_test(c, the_root_is_looked_for_upwards);
	tcase_add_test(c, paths_are_the_repositorys);
	tcase_add_test(c, part_of_a_recipe_is_no_record);
	tcase_add_test(c, a_cause_is_open_unless_separated);
	tcase_add_test(c, history_says_what_changed);
	tcase_add_test(c, digests_follow_the_tokens);
	tcase_add_test(c, a_readme_shows_its_record);
	tcase_add_test(c, docs_say_what_the_records_say);
	tcase_add_test(c, records_fit_their_schemas);
	tcase_add_test(c, every_number_is_in_a_record);
	return run_suite("record", c);
}
