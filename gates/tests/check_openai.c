/* Completions servers: the adapter against a small server of the project's own that replays the bundled golden, honest and lying; and
 * what real servers answered.  Expected values are the golden's. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "contract/json.h"
#include "contract/report.h"
#include "beside_rig.h"
#include "gates/openai.h"

#define GOLDEN "oracle-goldens/book52-nvfp4.json"
#define MODEL "oracle-goldens/models/book52-nvfp4"
#define TOKENIZER MODEL "/tokenizer.json"
#define STEPS 5
#define ROUNDED 1e-12        /* a double through JSON and back */

static struct { pid_t pid; int in; char url[64]; } server;
static struct golden golden;
static struct tokenizer *tokenizer;
static struct err err;
static char *assay, *replay_server;      /* as built beside this test */
static char dir[64];
static char *trusted;                    /* owned; certificates that `ask` trusts; NULL: the system's */

/* ---- the server ---- */

/* host: over TLS, with a certificate of its own for that host, in `dir`/certificate.pem. */
static void serve_as(const char *shape, const char *trick, const char *host)
{
	char *certificate = host ? path_join(dir, "certificate.pem") : NULL;
	int in[2], out[2], port = 0;

	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	server.pid = fork();
	if (server.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(replay_server, "replay_server", GOLDEN, "base", TOKENIZER, shape, trick, certificate, host, NULL);
		_exit(99);
	}
	close(in[0]);
	close(out[1]);
	FILE *f = fdopen(out[0], "r");

	ck_assert_int_eq(fscanf(f, "%d", &port), 1);
	fclose(f);
	server.in = in[1];
	snprintf(server.url, sizeof(server.url), "http%s://127.0.0.1:%d/v1", host ? "s" : "", port);
	free(certificate);
}

static void serve(const char *shape, const char *trick)
{
	serve_as(shape, trick, NULL);
}

static void start(void)
{
	err = (struct err){0};
	ck_assert_int_eq(golden_load(&golden, GOLDEN, &err), 0);
	tokenizer = tokenizer_load(TOKENIZER, &err);
	ck_assert_ptr_nonnull(tokenizer);
	strcpy(dir, "/tmp/check_openai.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void stop(void)
{
	char *command = xasprintf("rm -rf %s", dir);

	if (server.pid > 0) {
		close(server.in);
		kill(server.pid, SIGTERM);
		waitpid(server.pid, NULL, 0);
		server.pid = 0;
	}
	ck_assert_int_eq(system(command), 0);
	free(command);
	free(trusted);
	trusted = NULL;
	tokenizer_free(tokenizer);
	golden_release(&golden);
}

static const struct golden_row *row_of(const char *prompt)
{
	return golden_row_find(golden_profile_find(&golden, "base"), golden_prompt_find(&golden, prompt));
}

/* One question about p0; 0 or -1 with err. */
static int ask(struct openai *o, struct openai_answer *a, double timeout_s, const char *text)
{
	const struct golden_prompt *p = &golden.prompts[golden_prompt_find(&golden, "p0")];

	*a = (struct openai_answer){0};
	err = (struct err){0};
	if (openai_open(o, server.url, "replayed", timeout_s, NULL, &err))
		return -1;
	o->tokenizer = tokenizer;
	o->http.max_bytes = 1 << 20;
	o->http.ca_file = trusted;
	return openai_check_model(o, &err) || openai_complete(o, a, p->ids, p->n, text, STEPS, &err) ? -1 : 0;
}

static void check_step(const struct openai_step *got, const struct golden_step *want)
{
	ck_assert_int_eq(got->id, want->id);
	ck_assert_int_eq(got->n_top, want->n_top);
	for (int i = 0; i < want->n_top; i++) {
		ck_assert_int_eq(got->top[i].id, want->top[i].id);
		ck_assert_double_eq_tol(got->top[i].value, want->top[i].value, ROUNDED);
	}
}

/* ---- honest servers ---- */

static const struct { const char *shape, *says; bool text; } shapes[] = {
	{"content", "content", false}, {"ids", "token ids", false}, {"prompt", "token ids", false}, {"content", "content", true},
};

START_TEST(each_shape_gives_the_golden)
{
	struct openai o;
	struct openai_answer a;

	serve(shapes[_i].shape, "honest");
	ck_assert_msg(ask(&o, &a, 10, shapes[_i].text ? golden.prompts[golden_prompt_find(&golden, "p0")].text : NULL) == 0, "%s", err.text);
	ck_assert_str_eq(o.shape, shapes[_i].says);
	ck_assert_str_eq(o.server, "replay");
	ck_assert_str_eq(o.version, "replay-1");
	ck_assert_int_eq(a.n, STEPS);
	for (int t = 0; t < STEPS; t++)
		check_step(&a.steps[t], &row_of("p0")->steps[t]);
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

/* Texts name tokens only where one token has that text: the list ends at the first that is part of a character. */
START_TEST(texts_are_looked_up)
{
	const struct golden_row *row = row_of("p0");
	struct openai o;
	struct openai_answer a;
	int listed = 0;

	serve("classic", "honest");
	ck_assert_msg(ask(&o, &a, 10, NULL) == 0, "%s", err.text);
	ck_assert_str_eq(o.shape, "classic");
	ck_assert_int_eq(a.n, STEPS);
	for (int t = 0; t < STEPS; t++) {
		ck_assert_int_eq(a.steps[t].id, row->ids[t]);
		for (int i = 0; i < a.steps[t].n_top; i++)
			ck_assert_int_eq(a.steps[t].top[i].id, row->steps[t].top[i].id);
		listed += a.steps[t].n_top;
	}
	ck_assert_int_gt(listed, STEPS * 10);
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

START_TEST(forced_mode_scores_every_position)
{
	const struct golden_prompt *p = &golden.prompts[golden_prompt_find(&golden, "p3")];
	const struct golden_row *row = row_of("p3");
	struct openai o;
	struct openai_answer a = {0};
	bool at_once = false;

	serve(_i ? "prompt" : "content", "honest");
	ck_assert_int_eq(openai_open(&o, server.url, "replayed", 10, NULL, &err), 0);
	ck_assert_msg(openai_score(&o, &a, p->ids, p->n, row->ids, STEPS, &at_once, &err) == 0, "%s", err.text);
	ck_assert_int_eq(at_once, _i);
	ck_assert_int_eq(a.n, STEPS);
	for (int t = 0; t < STEPS; t++) {
		check_step(&a.steps[t], &row->steps[t]);
		ck_assert(a.steps[t].has_given);
		ck_assert_int_eq(a.steps[t].given_rank, 1);
		ck_assert_double_eq_tol(a.steps[t].given_logprob, row->steps[t].top[0].value, ROUNDED);
	}
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

/* The k-th id that the golden does not list; the server gives it -40 - 0.01 id when it is asked for a longer list. */
static int32_t unlisted(const struct golden_step *s, int k)
{
	int32_t id = 0;

	for (;; id++) {
		bool listed = false;

		for (int i = 0; i < s->n_top; i++)
			listed = listed || s->top[i].id == id;
		if (!listed && k-- == 0)
			return id;
	}
}

/* An id that is none of the best 20 is looked up in a list of everything, where the server gives one; else the row ends. */
static const struct { const char *shape, *trick; int n; bool narrow; } lists[] = {
	{"content", "honest", STEPS, false}, {"ids", "honest", STEPS, false}, {"content", "narrow", STEPS - 1, true}, {"ids", "narrow", STEPS - 1, true},
};

START_TEST(a_fed_id_outside_the_best)
{
	const struct golden_prompt *p = &golden.prompts[golden_prompt_find(&golden, "p3")];
	const struct golden_row *row = row_of("p3");
	int32_t fed[STEPS];
	int at = STEPS - 1;
	struct openai o;
	struct openai_answer a = {0};
	bool at_once;

	memcpy(fed, row->ids, sizeof(fed));
	fed[at] = unlisted(&row->steps[at], 5);
	serve(lists[_i].shape, lists[_i].trick);
	ck_assert_int_eq(openai_open(&o, server.url, "replayed", 10, NULL, &err), 0);
	ck_assert_msg(openai_score(&o, &a, p->ids, p->n, fed, STEPS, &at_once, &err) == 0, "%s", err.text);
	ck_assert_int_eq(a.n, lists[_i].n);
	ck_assert_int_eq(o.narrow, lists[_i].narrow);
	for (int t = 0; t < a.n; t++)
		check_step(&a.steps[t], &row->steps[t]);
	if (!lists[_i].narrow) {
		ck_assert(a.steps[at].has_given);
		ck_assert_int_eq(a.steps[at].given_rank, 26);
		ck_assert_double_eq_tol(a.steps[at].given_logprob, -40 - 0.01 * fed[at], 1e-9);
	}
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

/* ---- TLS ---- */

/* Nobody vouches for this server: nothing is said to it, and nothing taken from it. */
START_TEST(a_certificate_that_nobody_signed)
{
	struct openai o;
	struct openai_answer a = {0};

	serve_as("content", "honest", "127.0.0.1");
	ck_assert_int_eq(ask(&o, &a, 10, NULL), -1);
	ck_assert_int_eq(err.kind, ERR_FAILED);
	ck_assert_msg(strstr(err.text, "certificate") != NULL, "%s", err.text);
	ck_assert_int_eq((int)o.status, 0);
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

/* The same server answers whom it convinces: it was the certificate that was refused above, and not TLS. */
START_TEST(a_certificate_that_is_trusted)
{
	struct openai o;
	struct openai_answer a;

	serve_as("content", "honest", "127.0.0.1");
	trusted = path_join(dir, "certificate.pem");
	ck_assert_msg(ask(&o, &a, 10, NULL) == 0, "%s", err.text);
	ck_assert_int_eq(a.n, STEPS);
	check_step(&a.steps[0], &row_of("p0")->steps[0]);
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

START_TEST(a_certificate_for_another_host)
{
	struct openai o;
	struct openai_answer a = {0};

	serve_as("content", "honest", _i ? "127.0.0.2" : "example.org");
	trusted = path_join(dir, "certificate.pem");
	ck_assert_int_eq(ask(&o, &a, 10, NULL), -1);
	ck_assert_msg(strstr(err.text, "certificate") && strstr(err.text, "match"), "%s", err.text);
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

/* ---- broken and lying servers ---- */

static const struct { const char *trick, *says; } lies[] = {
	{"wrong-json", "no JSON"}, {"cut", "cut"}, {"status-500", "status 500: the engine fell over"},
	{"no-logprobs", "no log-probabilities and no token ids"}, {"endless", "longer than 1048576 bytes"},
	{"other-model", "answered as model `another`"}, {"no-such-model", "has no model `replayed`"}, {"more", "6 tokens came back, 5 were asked"},
	{"bos", "the server counts 6 prompt tokens where 5 were meant"}, {"above-zero", "log-probability is above 0"},
	{"garbage", "http://127.0.0.1:"}, {"twice", "is listed twice"}, {"redirect", "status 307"},
};

START_TEST(a_lie_is_an_error)
{
	struct openai o;
	struct openai_answer a;

	serve("content", lies[_i].trick);
	ck_assert_int_eq(ask(&o, &a, 20, NULL), -1);
	ck_assert_int_eq(err.kind, ERR_FAILED);
	ck_assert_msg(strstr(err.text, lies[_i].says) != NULL, "%s: \"%s\" lacks \"%s\"", lies[_i].trick, err.text, lies[_i].says);
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

/* Ids that are none: of a chosen token, of a candidate, too few of them, and numbers that would wrap round to one.  Candidates
 * that are none. */
#define CHOICE(logprobs, ids) "{\"choices\": [{\"text\": \"\", \"token_ids\": " ids ", \"logprobs\": " logprobs "}]}"
#define CONTENT(id, candidate) "{\"content\": [{\"id\": " id ", \"top_logprobs\": [{\"id\": " candidate ", \"logprob\": -1}]}]}"
#define CLASSIC_TOP(token, top) "{\"tokens\": [\"" token "\", \"token_id:6\"], \"top_logprobs\": " top "}"
#define CLASSIC(token) CLASSIC_TOP(token, "null")
static const struct { const char *answer, *says; } malformed[] = {
	{CHOICE(CONTENT("4294967301", "5"), "null"), "a token without an id"}, {CHOICE(CONTENT("-1", "5"), "null"), "a token without an id"},
	{CHOICE(CONTENT("5", "4294967301"), "null"), "a candidate without an id"}, {CHOICE(CONTENT("5", "-1"), "null"), "a candidate without an id"},
	{CHOICE(CLASSIC("token_id:5"), "[5]"), "2 tokens and 1 token_ids"}, {CHOICE(CLASSIC("token_id:5"), "[5, \"6\"]"), "token_ids[1] is no id"},
	{CHOICE(CLASSIC("token_id:5"), "[4294967301, 6]"), "token_ids[0] is no id"}, {CHOICE(CLASSIC("token_id:4294967301"), "null"), "no single token"},
	{CHOICE(CLASSIC("token_id: 5"), "null"), "no single token"}, {CHOICE("null", "[5, 4294967301]"), "token_ids[1] is no id"},
	{CHOICE(CLASSIC_TOP("token_id:5", "\"none\""), "null"), "top_logprobs: expected a list, found "},
	{CHOICE(CLASSIC_TOP("token_id:5", "[{}, [-1]]"), "null"), "top_logprobs: expected an object, found "},
	{CHOICE("{\"content\": [{\"id\": 5, \"top_logprobs\": 0}]}", "null"), "top_logprobs: expected a list, found "},
};

START_TEST(a_malformed_answer_is_refused)
{
	json_t *answer = json_loads(malformed[_i].answer, 0, NULL);
	struct openai o = {.seek = -1};
	struct openai_answer a = {0};

	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(openai_read_answer(&o, &a, answer, "here", 1, 2, &err), -1);
	ck_assert_int_eq(err.kind, ERR_FAILED);
	ck_assert_msg(strstr(err.text, malformed[_i].says) != NULL, "\"%s\" lacks \"%s\"", err.text, malformed[_i].says);
	openai_answer_release(&a);
	json_decref(answer);
}
END_TEST

/* Late, silent from the first word on, silent in a handshake, or never done: one limit for all. */
static const struct { const char *trick, *host; } late[] = {{"slow", NULL}, {"mute", NULL}, {"mute", "127.0.0.1"}, {"drip", NULL}};

START_TEST(a_slow_server_meets_its_limit)
{
	struct openai o;
	struct openai_answer a;

	serve_as("content", late[_i].trick, late[_i].host);
	ck_assert_int_eq(ask(&o, &a, 0.5, NULL), -1);
	ck_assert_msg(strstr(err.text, "no whole answer within 0.5 s") != NULL, "%s", err.text);
	openai_answer_release(&a);
	openai_release(&o);
}
END_TEST

START_TEST(no_server_is_an_error)
{
	struct openai o;
	struct openai_answer a;

	strcpy(server.url, "http://127.0.0.1:1/v1");
	ck_assert_int_eq(ask(&o, &a, 5, NULL), -1);
	ck_assert_msg(strstr(err.text, "http://127.0.0.1:1/v1/models") != NULL, "%s", err.text);
	openai_release(&o);
}
END_TEST

START_TEST(urls_and_keys_are_checked)
{
	static const char *const bad[] = {"ftp://x/v1", "file:///etc/passwd", "http://", "http://me:secret@host/v1", "localhost:8080"};
	struct openai o;
	struct openai_answer a = {0};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err = (struct err){0};
		ck_assert_int_eq(openai_open(&o, bad[i], "m", 1, NULL, &err), -1);
		ck_assert_int_eq(err.kind, ERR_INPUT);
		ck_assert_ptr_null(strstr(err.text, "secret"));
		openai_release(&o);
	}
	err = (struct err){0};
	ck_assert_int_eq(openai_open(&o, "http://192.0.2.1/v1", "m", 1, "s3cret", &err), 0);
	ck_assert_int_eq(openai_complete(&o, &a, (int32_t[]){1}, 1, NULL, 1, &err), -1);
	ck_assert_msg(strstr(err.text, "over https or to this machine only") != NULL, "%s", err.text);
	openai_release(&o);
	serve("content", "key-back");
	err = (struct err){0};
	ck_assert_int_eq(openai_open(&o, server.url, "replayed", 5, "s3cret", &err), 0);
	ck_assert_int_eq(openai_complete(&o, &a, (int32_t[]){1}, 1, NULL, 1, &err), -1);
	ck_assert_msg(strstr(err.text, "wrong key ******") != NULL, "%s", err.text);
	openai_release(&o);
}
END_TEST

/* ---- what real servers answered ---- */

static const struct { const char *file, *shape; int n_ids, n, first; double logprob; } recorded[] = {
	/* the first numbers of each file: " S" over " P" */
	{"llama-server.json", "content", 13, 2, 376, -3.8329713344573975},
	{"llama-cpp-python.json", "classic", 13, 2, 376, -3.8353652954101562},
	{"vllm.json", "token ids", 13, 2, 376, -3.8353652954101562},
};

START_TEST(recorded_answers_are_read)
{
	char *path = xasprintf("gates/tests/replay/%s", recorded[_i].file);
	struct openai o = {.tokenizer = tokenizer, .shape = ""};
	struct openai_answer a;
	json_t *doc = json_read_file(path, false, &err);

	ck_assert_msg(doc && openai_read_answer(&o, &a, doc, path, recorded[_i].n_ids, 64, &err) == 0, "%s", err.text);
	ck_assert_str_eq(o.shape, recorded[_i].shape);
	ck_assert_int_eq(a.n, recorded[_i].n);
	ck_assert_int_eq(a.steps[0].id, recorded[_i].first);
	ck_assert_int_eq(a.steps[0].top[0].id, recorded[_i].first);
	ck_assert_double_eq_tol(a.steps[0].top[0].value, recorded[_i].logprob, ROUNDED);
	ck_assert_int_eq(a.steps[0].top[1].id, 477);
	openai_answer_release(&a);
	json_decref(doc);
	token_names_free(o.names);
	free(path);
}
END_TEST

/* ---- a leg ---- */

static int run_leg(const char *modes, const char *more)
{
	char *recipe = xasprintf("%s/recipe.yaml", dir);
	char *text = xasprintf("schema: assay/recipe/1\nname: server\nkind: gate\nmodel: %s/" MODEL "\ngolden: %s/" GOLDEN "\nprompts: [p0, p3]\n"
			       "steps: 5\nmodes: [%s]\ntimeout_s: 20\nlegs: {served: {engine: {openai: \"%s\", model: replayed}}}\n%s",
			       getcwd((char[4096]){0}, 4096), getcwd((char[4096]){0}, 4096), modes, server.url, more);
	char *command = xasprintf("'%s' run %s --quiet --out %s/run > %s/out 2>&1", assay, recipe, dir, dir);

	ck_assert_int_eq(file_write(recipe, text, strlen(text), &err), 0);
	int status = system(command);

	free(command);
	free(text);
	free(recipe);
	return WEXITSTATUS(status);
}

static char *leg_reason(void)
{
	char *path = xasprintf("%s/run/verdict.json", dir);
	json_t *v = json_read_file(path, false, &err);
	const char *reason = json_string_value(json_object_get(json_object_get(json_object_get(v, "legs"), "served"), "reason"));
	char *copy = xstrdup(reason ? reason : "");

	json_decref(v);
	free(path);
	return copy;
}

static const struct { const char *shape, *trick, *modes, *require; int code; const char *says; } legs[] = {
	{"content", "honest", "free, forced", "", 0, "unproven: the model (5 of its files are not named), the path (no counters), bit-equality"},
	{"prompt", "honest", "free, forced", "", 0, "mode forced was computed by one prefill (prompt_logprobs), the golden by decoding"},
	{"content", "honest", "free", "base: {backend: cpu}\n", 3, "backend=cpu was requested and - was run"},
	{"content", "honest", "free", "require: {served: {total: {allocs_after_open: 0}}}\n", 3, "allocs_after_open: want 0, got absent"},
	{"content", "honest", "free", "sha256: {model: {config.json: "
	 "e779982118ff8dcc702299cb869ed08facc8d056e863a140d0ec1658652648d9}}\n", 3, "model file config.json is not the pinned one"},
	{"content", "fewer", "free", "", 4, "free: 8 of 10 positions came back"},
	{"content", "status-500", "free", "", 2, "exit code 1: assay openai: prompt p0, mode free: http://127.0.0.1:"},
	{"ids", "other-model", "free", "", 2, "answered as model `another`, asked was `replayed`"},
	{"content", "no-logprobs", "free", "", 2, "no log-probabilities"},
	{"https", "honest", "free", "", 2, "exit code 1: assay openai: https://127.0.0.1:"},
};

START_TEST(a_server_is_a_leg)
{
	bool secret = strcmp(legs[_i].shape, "https") == 0;

	serve_as(secret ? "content" : legs[_i].shape, legs[_i].trick, secret ? "127.0.0.1" : NULL);
	int code = run_leg(legs[_i].modes, legs[_i].require);
	char *reason = leg_reason();

	ck_assert_msg(code == legs[_i].code, "exit code %d: %s", code, reason);
	ck_assert_msg(strstr(reason, legs[_i].says) != NULL, "\"%s\" lacks \"%s\"", reason, legs[_i].says);
	free(reason);
}
END_TEST

/* The key reaches the server and nothing else. */
START_TEST(no_key_is_written)
{
	serve("content", "key-back");
	setenv("CHECK_OPENAI_KEY", "s3cret-word", 1);
	char *recipe = xasprintf("%s/recipe.yaml", dir);
	char *text = xasprintf("schema: assay/recipe/1\nname: server\nkind: gate\nmodel: %s/" MODEL "\ngolden: %s/" GOLDEN "\nprompts: [p0]\n"
			       "steps: 5\nlegs: {served: {engine: {openai: \"%s\", model: replayed, key_env: CHECK_OPENAI_KEY}}}\n",
			       getcwd((char[4096]){0}, 4096), getcwd((char[4096]){0}, 4096), server.url);
	char *command = xasprintf("'%s' run %s --quiet --out %s/run > %s/out 2>&1; grep -r s3cret %s", assay, recipe, dir, dir, dir);
	char *without = xasprintf("rm -r %s/run; '%s' run %s --quiet --out %s/run > %s/out 2>&1", dir, assay, recipe, dir, dir);

	ck_assert_int_eq(file_write(recipe, text, strlen(text), &err), 0);
	ck_assert_int_eq(WEXITSTATUS(system(command)), 1);
	char *reason = leg_reason();

	ck_assert_msg(strstr(reason, "status 401: wrong key ***********") != NULL, "%s", reason);
	free(reason);
	/* one that is not there is said, and nothing is asked without it */
	unsetenv("CHECK_OPENAI_KEY");
	ck_assert_int_eq(WEXITSTATUS(system(without)), 2);
	reason = leg_reason();
	ck_assert_msg(strstr(reason, "the environment variable CHECK_OPENAI_KEY, which key_env names, is not set") != NULL, "%s", reason);
	free(reason);
	free(without);
	free(command);
	free(text);
	free(recipe);
}
END_TEST

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int main(void)
{
	replay_server = beside_test("replay_server");
	assay = beside_test(BUILT_ASSAY);

	Suite *suite = suite_create("openai");
	TCase *tc = tcase_create("servers");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, each_shape_gives_the_golden, 0, COUNT(shapes));
	tcase_add_test(tc, texts_are_looked_up);
	tcase_add_loop_test(tc, forced_mode_scores_every_position, 0, 2);
	tcase_add_loop_test(tc, a_lie_is_an_error, 0, COUNT(lies));
	tcase_add_loop_test(tc, a_malformed_answer_is_refused, 0, COUNT(malformed));
	tcase_add_loop_test(tc, a_fed_id_outside_the_best, 0, COUNT(lists));
	tcase_add_test(tc, a_certificate_that_nobody_signed);
	tcase_add_test(tc, a_certificate_that_is_trusted);
	tcase_add_loop_test(tc, a_certificate_for_another_host, 0, 2);
	tcase_add_loop_test(tc, a_slow_server_meets_its_limit, 0, COUNT(late));
	tcase_add_test(tc, no_server_is_an_error);
	tcase_add_test(tc, urls_and_keys_are_checked);
	tcase_add_loop_test(tc, recorded_answers_are_read, 0, COUNT(recorded));
	tcase_add_loop_test(tc, a_server_is_a_leg, 0, COUNT(legs));
	tcase_add_test(tc, no_key_is_written);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);
	free(assay);
	free(replay_server);
	return failed != 0;
}
