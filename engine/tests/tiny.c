#include "tiny.h"

#include <check.h>
#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "contract/file.h"

#define FIXTURES "engine/tests/fixtures/"

static json_t *expected(const char *fixture)
{
	char *path = xasprintf("%s/expected.json", fixture);
	json_error_t error;
	json_t *json = json_load_file(path, 0, &error);

	if (!json)
		BUG("%s: %s", path, error.text);   /* also called where no test runs yet */
	free(path);
	return json;
}

const struct tiny_case *tiny_cases(int *n)
{
	static struct tiny_case *cases;
	static int count;
	glob_t found;

	if (!cases) {
		BUG_ON(glob(FIXTURES "tiny-*", 0, NULL, &found));
		for (size_t i = 0; i < found.gl_pathc; i++) {
			json_t *json = expected(found.gl_pathv[i]), *value;
			const char *variant;

			json_object_foreach(json_object_get(json, "numerics"), variant, value) {
				cases = xrealloc(cases, count + 1, sizeof(*cases));
				cases[count++] = (struct tiny_case){ xstrdup(found.gl_pathv[i]), xstrdup(variant) };
			}
			json_decref(json);
		}
		globfree(&found);
	}
	*n = count;
	return cases;
}

bool tiny_weight_only(const struct tiny_case *c)
{
	return strcmp(c->variant, "f64") == 0;
}

void tiny_open_model(struct model *m, const char *dir)
{
	struct err err = {0};

	ck_assert_msg(model_open(m, dir, &err) == 0, "%s", err.text);
}

void tiny_open(struct session *s, struct model *m, const struct arm *arm, const struct limits *limits)
{
	struct err err = {0};
	struct arm resolved = *arm;
	struct arm_at_list none = {0};

	ck_assert_msg(arm_resolve(&resolved, &none, m, &err) == 0, "%s", err.text);
	ck_assert_msg(session_open(s, m, &resolved, &none, limits, &err) == 0, "%s", err.text);
}

struct arm tiny_arm(const char *text)
{
	struct err err = {0};
	struct arm arm;

	arm_init(&arm);
	if (*text)
		ck_assert_msg(arm_parse(&arm, text, &err) == 0, "%s", err.text);
	return arm;
}

int tiny_backends(const char *names[3])
{
	static const struct { int value; const char *name; } all[] = {
		{ BACKEND_REF, "ref" }, { BACKEND_CPU, "cpu" }, { BACKEND_CUDA, "cuda" },
	};
	int n = 0;

	for (int i = 0; i < 3; i++) {
		const struct backend *b;
		struct err err = {0};
		struct model m = {0};
		struct device *dev;
		struct counters counters;
		struct arm arm;

		arm_init(&arm);
		arm_defaults(&arm);
		b = backend_find(all[i].value, &err);
		if (b && model_open(&m, FIXTURES "tiny-m", &err) == 0 &&
		    b->open(&dev, &m, &arm, &(struct limits){ 1, 1, 1 }, &counters, &err) == 0) {
			b->close(dev);
			names[n++] = all[i].name;
		} else {
			fprintf(stderr, "skipped on backend %s: %s\n", all[i].name, err.text);
		}
		model_release(&m);
	}
	return n;
}

/* ---- comparing ---- */

struct run {
	const struct tiny_case *c;
	const struct tiny_check *check;
	struct session session;
	const char *prompt;
};

static void close_to(const struct run *r, const char *what, int i, double got, double want, double bound)
{
	ck_assert_msg(!isnan(got) && fabs(got - want) <= bound, "%s %s %s: %s[%d] = %.12g, expected %.12g (off by %g, "
		      "bound %g)", r->c->fixture, r->c->variant, r->prompt, what, i, got, want, fabs(got - want), bound);
}

static void check_logits(struct run *r, const json_t *want)
{
	const struct lane *l = &r->session.forward.main;
	size_t n = json_array_size(want);
	double *got = xcalloc(n, sizeof(*got)), top = 0;

	ck_assert_int_eq(n, r->session.model->config.vocab_size);
	for (size_t i = 0; i < n; i++)
		top = fmax(top, fabs(json_number_value(json_array_get(want, i))));
	if (l->b->logits_all) {
		l->b->logits_all(l->dev, got, 0);
		for (size_t i = 0; i < n; i++)
			close_to(r, "logit", (int)i, got[i], json_number_value(json_array_get(want, i)),
				 r->check->bound * top);
	}
	free(got);
}

static void check_forced(struct run *r, int i, const json_t *want)
{
	const struct lane *l = &r->session.forward.main;
	json_t *top5 = json_object_get(want, "top5");
	double top = fabs(json_number_value(json_array_get(json_array_get(top5, 0), 1)));
	double *got = xcalloc(r->session.model->config.vocab_size, sizeof(*got));

	l->b->logits_all(l->dev, got, 0);
	for (size_t j = 0; j < json_array_size(top5); j++) {
		json_t *pair = json_array_get(top5, j);

		close_to(r, "step", i, got[json_integer_value(json_array_get(pair, 0))],
			 json_number_value(json_array_get(pair, 1)), r->check->bound * top);
	}
	free(got);
}

static void check_step(struct run *r, int i, const struct logits_row *row, const json_t *want)
{
	json_t *top5 = json_object_get(want, "top5");
	double top = fabs(json_number_value(json_array_get(json_array_get(top5, 0), 1)));
	double margin = json_number_value(json_object_get(want, "margin"));

	ck_assert_msg(row->top_id[0] == json_integer_value(json_object_get(want, "id")),
		      "%s %s %s: greedy id %d is %d, expected %d", r->c->fixture, r->c->variant, r->prompt, i,
		      row->top_id[0], (int)json_integer_value(json_object_get(want, "id")));
	/* Margins are written with six digits. */
	close_to(r, "margin", i, row->top_logit[0] - row->top_logit[1], margin, 2 * r->check->bound * top + 6e-6 * margin);
	for (size_t j = 0; j < json_array_size(top5); j++)
		close_to(r, "top5", i, row->top_logit[j],
			 json_number_value(json_array_get(json_array_get(top5, j), 1)), r->check->bound * top);
}

/* [sum, sum of squares] of an array of slot 0, in f64 only. */
static void check_state(struct run *r, int layer, enum state_kind kind, const char *name, const json_t *want)
{
	struct state_pool *p = &r->session.pool;
	const struct state_array *a = &p->layers[layer].array[kind];
	size_t n = a->size;
	double sum = 0, squares = 0, scale, *x;

	if (kind == STATE_K || kind == STATE_V)
		n = a->size / p->max_len * r->session.length[0];
	ck_assert_int_eq(a->view.dtype, DTYPE_F64);
	x = xcalloc(n ? n : 1, sizeof(*x));
	p->backend->download(p->dev, x, a->view.data, n * sizeof(*x));
	for (size_t i = 0; i < n; i++) {
		sum += x[i];
		squares += x[i] * x[i];
	}
	free(x);
	scale = sqrt(n * squares);
	close_to(r, name, layer, sum, json_number_value(json_array_get(want, 0)), 1e-9 * scale + 1e-9);
	close_to(r, name, layer, squares, json_number_value(json_array_get(want, 1)), 1e-9 * squares + 1e-9);
}

static void check_states(struct run *r, json_t *states)
{
	static const struct { const char *name; enum state_kind kind; } kinds[] = {
		{ "conv", STATE_CONV }, { "ssm", STATE_SSM }, { "k", STATE_K }, { "v", STATE_V },
	};
	const char *layer, *name;
	json_t *arrays, *want;
	int seen = 0;

	json_object_foreach(states, layer, arrays)
		json_object_foreach(arrays, name, want)
			for (size_t i = 0; i < 4; i++)
				if (strcmp(name, kinds[i].name) == 0) {
					check_state(r, atoi(layer), kinds[i].kind, name, want);
					seen++;
				}
	ck_assert_int_eq(seen, 2 * (r->session.model->config.n_blocks[BLOCK_MAMBA] +
				    r->session.model->config.n_blocks[BLOCK_ATTN]));
}

static void run_prompt(struct run *r, json_t *want)
{
	json_t *ids = json_object_get(want, "ids"), *greedy = json_object_get(want, "greedy");
	int n = (int)json_array_size(ids), piece = r->check->prefill_chunk ? r->check->prefill_chunk : n;
	int32_t *prompt = xcalloc(n, sizeof(*prompt));
	struct logits_row row;

	r->prompt = json_string_value(json_object_get(want, "id"));
	for (int i = 0; i < n; i++)
		prompt[i] = (int32_t)json_integer_value(json_array_get(ids, i));
	session_reset(&r->session, 0);
	for (int i = 0; i < n; i += piece)
		session_prefill(&r->session, i + piece < n ? NULL : &row, 0, prompt + i,
				i + piece < n ? piece : n - i, -1);
	check_logits(r, json_object_get(want, "logits"));
	if (r->check->states)
		check_states(r, json_object_get(want, "states"));
	ck_assert_int_eq(json_array_size(greedy), TINY_GREEDY);
	for (int i = 0; i < TINY_GREEDY; i++) {
		json_t *step = json_array_get(greedy, i);
		int32_t next = (int32_t)json_integer_value(json_object_get(step, "id"));

		if (r->check->forced)
			check_forced(r, i, step);
		else
			check_step(r, i, &row, step);
		if (i + 1 < TINY_GREEDY)
			session_step(&r->session, &row, &(int32_t){ 0 }, &next, 1, NULL);
	}
	free(prompt);
}

void tiny_run(const struct tiny_case *c, const struct arm *arm, const struct tiny_check *check)
{
	json_t *json = expected(c->fixture), *numerics, *prompts;
	struct run r = { .c = c, .check = check };
	struct model m = {0};
	struct arm a = *arm;

	tiny_open_model(&m, c->fixture);
	if (m.has_fp8)
		a.value[FACTOR_MAMBA_PROJ] = strstr(c->variant, "w8a8") ? MAMBA_PROJ_W8A8 : MAMBA_PROJ_W8A16;
	if (m.has_nvfp4)
		a.value[FACTOR_MOE_EXPERTS] = strstr(c->variant, "w4a4") ? MOE_EXPERTS_W4A4 : MOE_EXPERTS_W4A16;
	tiny_open(&r.session, &m, &a, &(struct limits){ .rows = 40, .slots = 1, .len = 40 + TINY_GREEDY });
	numerics = json_object_get(json_object_get(json, "numerics"), c->variant);
	prompts = json_object_get(numerics, "prompts");
	ck_assert_int_gt(json_array_size(prompts), 0);
	for (size_t i = 0; i < json_array_size(prompts); i++)
		run_prompt(&r, json_array_get(prompts, i));
	session_release(&r.session);
	model_release(&m);
	json_decref(json);
}
