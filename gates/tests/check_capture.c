/* assay capture, and an engine of another kind as a leg.  The oracles are the replay server and the example engine; expected is the golden
 * that they replay. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "contract/json.h"
#include "contract/tests/schema_check.h"
#include "gates/capture.h"
#include "beside_rig.h"
#include "gates/golden_tool.h"

#define GOLDEN "oracle-goldens/book52-nvfp4.json"
#define MODEL "oracle-goldens/models/book52-nvfp4"

static struct { pid_t pid; int in; char url[64]; } server;
static struct err err;
static char *assay, *replay_server;      /* as built beside this test */
static char dir[64], here[4096];

static void serve(const char *trick)
{
	int in[2], out[2], port = 0;

	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	server.pid = fork();
	if (server.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(replay_server, "replay_server", GOLDEN, "base", MODEL "/tokenizer.json", "content", trick, NULL);
		_exit(99);
	}
	close(in[0]);
	close(out[1]);
	FILE *f = fdopen(out[0], "r");

	ck_assert_int_eq(fscanf(f, "%d", &port), 1);
	fclose(f);
	server.in = in[1];
	snprintf(server.url, sizeof(server.url), "http://127.0.0.1:%d/v1", port);
}

static void end_server(void)
{
	if (server.pid > 0) {
		close(server.in);
		kill(server.pid, SIGTERM);
		waitpid(server.pid, NULL, 0);
		server.pid = 0;
	}
}

static void start(void)
{
	err = (struct err){0};
	ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
	strcpy(dir, "/tmp/check_capture.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void stop(void)
{
	char *command = xasprintf("rm -rf %s", dir);

	end_server();
	ck_assert_int_eq(system(command), 0);
	free(command);
}

/* Captures 6 tokens of every prompt; the exit code, and what it said in said.txt. */
static int capture(const char *profiles)
{
	char *recipe = xasprintf("%s/capture.yaml", dir);
	char *text = xasprintf("schema: assay/capture/1\nname: captured\nmodel: %s/" MODEL "\nprompts: %s/" GOLDEN "\ngolden: %s/out.json\n"
			       "tokens: 6\nprofiles:\n%s", here, here, dir, profiles);
	char *command = xasprintf("'%s' capture %s > %s/said.txt 2>&1", assay, recipe, dir);

	ck_assert_int_eq(file_write(recipe, text, strlen(text), &err), 0);
	int status = system(command);

	free(command);
	free(text);
	free(recipe);
	return WEXITSTATUS(status);
}

static void check_said(const char *text)
{
	char *path = xasprintf("%s/said.txt", dir);
	size_t size;
	char *said = file_read(path, 1 << 20, &size, &err);

	ck_assert_msg(said && strstr(said, text), "\"%s\" is not in:\n%s", text, said);
	free(said);
	free(path);
}

/* Every row of a profile that was captured begins the golden's, with the same numbers. */
static void check_profile(const char *name, enum golden_mode mode)
{
	struct golden want = {0}, got = {0};
	char *path = xasprintf("%s/out.json", dir);

	ck_assert_int_eq(golden_load(&want, GOLDEN, &err), 0);
	ck_assert_msg(golden_load(&got, path, &err) == 0, "%s", err.text);
	const struct golden_profile *p = golden_profile_find(&got, name), *base = golden_profile_find(&want, "base");

	ck_assert_ptr_nonnull(p);
	ck_assert_int_eq(p->mode, mode);
	ck_assert_int_eq(p->repeats, 2);
	ck_assert_int_eq(p->n_rows, want.n_prompts);
	ck_assert_int_eq(got.n_files, want.n_files);
	ck_assert_str_eq(got.tokenizer_sha256, want.tokenizer_sha256);
	for (int i = 0; i < p->n_rows; i++) {
		const struct golden_row *row = &p->rows[i], *exp = golden_row_find(base, row->prompt);

		ck_assert_int_eq(row->n, 6);
		for (int t = 0; t < 6; t++) {
			ck_assert_int_eq(row->ids[t], exp->ids[t]);
			ck_assert_int_eq(row->steps[t].n_top, exp->steps[t].n_top);
			for (int k = 0; k < row->steps[t].n_top; k++)
				ck_assert_double_eq_tol(row->steps[t].top[k].value, exp->steps[t].top[k].value, 1e-8);   /* 9 digits */
		}
	}
	golden_release(&want);
	golden_release(&got);
	free(path);
}

START_TEST(a_server_is_captured_and_kept)
{
	serve("honest");
	char *profiles = xasprintf("  base: {program: openai, url: \"%s\", model: replayed}\n"
				   "  score: {program: openai, url: \"%s\", model: replayed, mode: forced}\n", server.url, server.url);

	ck_assert_int_eq(capture(profiles), 0);
	check_profile("base", GOLDEN_FREE);
	check_profile("score", GOLDEN_FORCED);
	end_server();            /* nobody is asked for what is there */
	ck_assert_int_eq(capture(profiles), 0);
	check_said("base 1/2: kept\nscore 2/2: kept\n");
	free(profiles);
	profiles = xasprintf("  base: {program: openai, url: \"%s\", model: replayed}\n"
			     "  other: {program: openai, url: \"%s\", model: another}\n", server.url, server.url);
	ck_assert_int_eq(capture(profiles), 1);
	check_said("base 1/2: kept\nother 2/2: openai ... exit code 1: assay openai: http://127.0.0.1:");
	check_profile("score", GOLDEN_FORCED);       /* a capture that failed has lost nothing */
	free(profiles);
}
END_TEST

/* The key goes to the server and into no file; without it nothing is asked. */
START_TEST(a_key_is_kept_nowhere)
{
	serve("honest");
	char *profiles = xasprintf("  base: {program: openai, url: \"%s\", model: replayed, key_env: CHECK_CAPTURE_KEY}\n", server.url);
	char *grep = xasprintf("grep -rq s3cret-word %s", dir);

	unsetenv("CHECK_CAPTURE_KEY");
	ck_assert_int_eq(capture(profiles), 1);
	check_said("the environment variable CHECK_CAPTURE_KEY, which key_env names, is not set");
	setenv("CHECK_CAPTURE_KEY", "s3cret-word", 1);
	ck_assert_int_eq(capture(profiles), 0);
	check_profile("base", GOLDEN_FREE);
	ck_assert_int_eq(WEXITSTATUS(system(grep)), 1);
	free(grep);
	free(profiles);
}
END_TEST

START_TEST(runs_that_differ_are_named)
{
	serve("wobble");
	char *profiles = xasprintf("  base: {program: openai, url: \"%s\", model: replayed}\n", server.url);
	struct golden g = {0};
	char *path = xasprintf("%s/out.json", dir);

	ck_assert_int_eq(capture(profiles), 1);
	check_said("profile base: its 2 runs DIFFER: not reproducible");
	ck_assert_int_eq(golden_load(&g, path, &err), 0);
	ck_assert_int_eq(g.profiles[0].repeats_agree, 0);
	golden_release(&g);
	free(path);
	free(profiles);
}
END_TEST

static bool has_python(void)
{
	if (system("command -v python3 > /dev/null 2>&1") == 0)
		return true;
	printf("check_capture: the example engine is skipped, no python3 is installed\n");
	return false;
}

START_TEST(a_program_is_captured)
{
	if (!has_python())
		return;
	/* The example answers as many tokens as are given, and a capture gives none in mode free. */
	serve("honest");
	char *profiles = xasprintf("  base: {program: openai, url: \"%s\", model: replayed}\n"
				   "  example: {program: argv, mode: forced, argv: [python3, recipes/examples/foreign_engine.py, " GOLDEN ", base]}\n",
				   server.url);

	ck_assert_msg(capture(profiles) == 0, "exit code");
	check_profile("example", GOLDEN_FORCED);
	free(profiles);
}
END_TEST

START_TEST(the_example_engine_passes_the_gate)
{
	if (!has_python())
		return;
	char *command = xasprintf("'%s' run recipes/examples/foreign-engine.yaml --quiet --out %s/run > %s/said.txt 2>&1", assay, dir, dir);
	char *path = xasprintf("%s/run/verdict.json", dir);

	ck_assert_int_eq(WEXITSTATUS(system(command)), 0);
	check_said("TOKEN MATCH 480/480 full rows=15 short rows=0 mode=free  same  STRICT PASS  EQUIVALENT");
	json_t *v = json_read_file(path, false, &err);
	const char *reason = json_string_value(json_object_get(json_object_get(json_object_get(v, "legs"), "same"), "reason"));

	ck_assert_msg(reason && strstr(reason, "unproven: the path (no counters), bit-equality (no hashes of logits)"), "%s", reason);
	json_decref(v);
	free(path);
	free(command);
}
END_TEST

/* A capture recipe as JSON, for the schema that users are given. */
static json_t *as_json(const struct ynode *n)
{
	json_t *out = n->kind == YNODE_MAP ? json_object() : json_array();
	int64_t i;

	if (n->kind == YNODE_SCALAR) {
		json_decref(out);
		return ynode_is_int(n, &i) ? json_integer(i) : ynode_is_number(n) ? json_real(strtod(n->text, NULL)) : json_string(n->text);
	}
	for (int k = 0; k < n->n; k++) {
		if (n->kind == YNODE_MAP)
			json_object_set_new(out, n->keys[k], as_json(&n->items[k]));
		else
			json_array_append_new(out, as_json(&n->items[k]));
	}
	return out;
}

static bool schema_takes(const char *text)
{
	struct yaml y = {0};
	struct err why = {0};

	ck_assert_msg(yaml_load_bytes(&y, text, strlen(text), "c.yaml", &why) == 0, "%s", why.text);
	json_t *v = as_json(&y.root);
	bool takes = schema_check("capture", NULL, v, &why);

	json_decref(v);
	yaml_release(&y);
	return takes;
}

static const char *const good[] = {
	"profiles: {a: {program: vllm}}", "profiles: {a: {program: vllm, mode: batch, args: [--kw, 64, '{\"a\": 1}']}, b-1: {program: transformers, mode: forced}}",
	"profiles: {a: {program: openai, url: \"http://x\", model: m, prompts: text, key_env: K}}\nrepeats: 3\ntimeout_s: 0.5\npython: p",
	"profiles: {a: {program: argv, argv: [./e, -v]}}",
};

START_TEST(the_schema_and_the_reader_agree)
{
	static const char *const counts[] = {"4", "like:g.json:base"};
	char *text = xasprintf("schema: assay/capture/1\nname: x\nmodel: m\nprompts: p\ngolden: g\ntokens: %s\n%s\n", counts[_i % 2], good[_i]);
	struct capture c;

	ck_assert_msg(capture_load_bytes(&c, text, strlen(text), "c.yaml", &err) == 0, "%s", err.text);
	ck_assert(schema_takes(text));
	capture_release(&c);
	free(text);
}
END_TEST

#define READER_ALONE 2       /* the first of these: no schema can say them */
static const struct { const char *line, *says; } bad[] = {
	{"profiles: {a: {program: argv, argv: [x], mode: forced}}", "c.yaml:7:12: profile `a`: the first profile runs freely: its ids are what mode "
	 "forced feeds"},
	{"name: again", "c.yaml:7:1: duplicate key `name` (first on line 2)"},
	{"profiles: {a: {program: transformer}}", "c.yaml:7:25: program: unknown program `transformer`; did you mean `transformers`?"},
	{"profiles: {a: {}}", "c.yaml:7:15: a: missing key `program`"},
	{"profiles: {a: {program: openai, url: \"http://x\"}}", "c.yaml:7:15: a: missing key `model`"},
	{"profiles: {a: {program: vllm, argv: [x]}}", "c.yaml:7:31: a: unknown key `argv`; did you mean `args`?"},
	{"profiles: {a: {program: vllm, mode: free}}", "c.yaml:7:37: mode: unknown mode `free`; known: forced, single, batch"},
	{"profiles: {a: {program: argv, argv: []}}", "c.yaml:7:37: argv: no program in it"},
	{"profiles: {}", "c.yaml:7:11: profiles: none in it"},
	{"profiles: {../a: {program: vllm}}", "c.yaml:7:12: profile `../a`: a name is up to 64 letters, digits, - and _, and starts with a letter or digit"},
	{"profiles: {a: {program: vllm}}\nrepeats: 1", "c.yaml:8:10: repeats: 1 is less than 2"},
	{"profiles: {a: {program: vllm}}\nprofile: x", "c.yaml:8:1: capture: unknown key `profile`; did you mean `profiles`?"},
};

START_TEST(a_bad_recipe_is_refused_in_its_place)
{
	char *text = xasprintf("schema: assay/capture/1\nname: x\nmodel: m\nprompts: p\ngolden: g\ntokens: 4\n%s\n", bad[_i].line);
	struct capture c;

	ck_assert_int_eq(capture_load_bytes(&c, text, strlen(text), "c.yaml", &err), -1);
	ck_assert_int_eq(err.kind, ERR_INPUT);
	ck_assert_str_eq(err.text, bad[_i].says);
	ck_assert(_i < READER_ALONE || !schema_takes(text));
	capture_release(&c);
	free(text);
}
END_TEST

START_TEST(the_bundled_recipe_is_read)
{
	size_t size;
	char *bytes = file_read("recipes/capture-book52-transformers.yaml", 1 << 20, &size, &err);
	struct capture c;

	ck_assert_msg(capture_load_bytes(&c, bytes, size, "x", &err) == 0, "%s", err.text);
	ck_assert_int_eq(c.n_profiles, 5);
	ck_assert_str_eq(c.profiles[1].mode, "forced");
	ck_assert_str_eq(c.profiles[4].args[1], "fp32");
	ck_assert_int_eq(c.repeats, 2);
	ck_assert(schema_takes(bytes));
	capture_release(&c);
	free(bytes);
}
END_TEST

int main(void)
{
	replay_server = beside_test("replay_server");
	assay = beside_test(BUILT_ASSAY);

	Suite *suite = suite_create("capture");
	TCase *tc = tcase_create("capture");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_server_is_captured_and_kept);
	tcase_add_test(tc, a_key_is_kept_nowhere);
	tcase_add_test(tc, runs_that_differ_are_named);
	tcase_add_test(tc, a_program_is_captured);
	tcase_add_test(tc, the_example_engine_passes_the_gate);
	tcase_add_loop_test(tc, a_bad_recipe_is_refused_in_its_place, 0, (int)(sizeof(bad) / sizeof(bad[0])));
	tcase_add_test(tc, the_bundled_recipe_is_read);
	tcase_add_loop_test(tc, the_schema_and_the_reader_agree, 0, (int)(sizeof(good) / sizeof(good[0])));
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	free(assay);
	free(replay_server);
	return failed != 0;
}
