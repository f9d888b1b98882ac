/* JUnit XML.  A leg is a suite; its prompts and contract lines are cases; the last suite holds the verdict of the run.
 *
 *   VOID, ERROR                     <error>: the leg's own case, and the contract lines that are not met
 *   a token that differs            <failure> of its prompt; in a `discriminate` recipe it is data, and the case passes
 *   SHORT                           <failure> of each prompt that is shorter than planned
 *   NOT MEASURED                    <skipped>
 *   DIVERGENCE, SHORT, NOT MEASURED, UNDECIDED as a whole: <failure> of the verdict, so that a panel is as red as the exit code */
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "page.h"
#include "show.h"

struct suite {
	struct text cases;
	char *name;                      /* owned; escaped */
	int tests, failures, errors, skipped;
};

enum outcome { PASSED, FAILURE, ERROR, SKIPPED };

static void add_case(struct suite *s, const char *name, enum outcome outcome, const char *type, const char *message, const char *says)
{
	static const char *const elements[] = { "", "failure", "error", "skipped" };
	char *safe_name = text_xml(name), *safe = text_xml(message), *out = text_xml(says);

	s->tests++;
	s->failures += outcome == FAILURE;
	s->errors += outcome == ERROR;
	s->skipped += outcome == SKIPPED;
	text_add(&s->cases, "    <testcase classname=\"%s\" name=\"%s\"", s->name, safe_name);
	if (outcome == PASSED && !*says)
		text_add(&s->cases, "/>\n");
	else
		text_add(&s->cases, ">\n");
	if (outcome == SKIPPED)
		text_add(&s->cases, "      <skipped message=\"%s\"/>\n", safe);
	else if (outcome != PASSED)
		text_add(&s->cases, "      <%s type=\"%s\" message=\"%s\"/>\n", elements[outcome], type, safe);
	if (*says)
		text_add(&s->cases, "      <system-out>%s</system-out>\n", out);
	if (outcome != PASSED || *says)
		text_add(&s->cases, "    </testcase>\n");
	free(safe_name);
	free(safe);
	free(out);
}

static bool is(const json_t *value, const char *word)
{
	return strcmp(show_string(value), word) == 0;
}

static char *token_text(const json_t *token)
{
	const json_t *text = show_get(token, "text");

	return text ? xasprintf("\"%s\" %lld", show_string(text), (long long)json_integer_value(json_object_get(token, "id"))) :
		xasprintf("%lld", (long long)json_integer_value(json_object_get(token, "id")));
}

/* "step 8: expected " full" 1282, got " so" 385; oracle margin 0.312, own 0.00163 nats; SUSPICIOUS" */
static void say_flip(struct text *to, const json_t *flip)
{
	char *exp = token_text(json_object_get(flip, "exp")), *got = token_text(json_object_get(flip, "got")), margin[32], own[32];

	text_also(to, "%s step %lld: expected %s, got %s, oracle margin %s, own %s nats, %s", show_string(json_object_get(flip, "mode")),
		  (long long)json_integer_value(json_object_get(flip, "step")), exp, got,
		  show_number(json_object_get(flip, "oracle_margin"), 3, margin, sizeof margin),
		  show_number(json_object_get(flip, "subject_margin"), 3, own, sizeof own),
		  show_string(json_object_get(flip, "adjudication")));
	free(exp);
	free(got);
}

/* The first flips of one prompt. */
static void say_flips(struct text *to, const json_t *leg, const char *prompt)
{
	const json_t *flip;
	size_t i, n = 0;

	json_array_foreach(json_object_get(leg, "flips"), i, flip)
		if (is(json_object_get(flip, "prompt"), prompt) && n++ < 3)
			say_flip(to, flip);
	if (n > 3)
		text_also(to, "and %zu more", n - 3);
}

static void add_prompt(struct suite *s, const struct findings *f, int l, int p, const json_t *leg)
{
	const struct evidence *e = &f->evidence;
	const struct oracle_prompt *want = &e->oracle.prompts[p];
	bool differs = false, is_short = false, data = e->recipe.kind == RECIPE_DISCRIMINATE;
	struct text flips = { 0 }, lacks = { 0 };
	char *name = xasprintf("prompt %s", evidence_prompt(e, p));

	for (int m = 0; m < N_MODES; m++) {
		const struct mode_compare *c = &e->legs[l].modes[m];

		if (!c->asked)
			continue;
		differs |= c->rows[p].matched < c->rows[p].compared;
		is_short |= c->rows[p].compared < want->planned;
		if (c->rows[p].compared < want->planned)
			text_also(&lacks, "%s: %d of %d tokens", mode_name((enum mode)m), c->rows[p].compared, want->planned);
	}
	if (differs)
		say_flips(&flips, leg, evidence_prompt(e, p));
	if (is_short)
		add_case(s, name, FAILURE, "SHORT", text_string(&lacks), text_string(&flips));
	else if (differs && data)
		add_case(s, name, PASSED, "", "", text_string(&flips));
	else if (differs)
		add_case(s, name, FAILURE, "DIVERGENCE", *text_string(&flips) ? text_string(&flips) : "tokens differ", "");
	else
		add_case(s, name, PASSED, "", "", "");
	text_release(&flips);
	text_release(&lacks);
	free(name);
}

static void add_contract(struct suite *s, const json_t *contract)
{
	const json_t *line;
	size_t i;

	json_array_foreach(contract, i, line) {
		char *want = json_dumps(json_object_get(line, "want"), JSON_ENCODE_ANY), *got = json_dumps(json_object_get(line, "got"), JSON_ENCODE_ANY);
		char *name = xasprintf("contract %s %s %s", show_string(json_object_get(line, "mode")), show_string(json_object_get(line, "scope")),
				       show_string(json_object_get(line, "counter")));
		char *message = xasprintf("want %s, got %s in %lld of %lld rows", want, got,
					  (long long)json_integer_value(json_object_get(line, "bad_rows")),
					  (long long)json_integer_value(json_object_get(line, "rows")));

		add_case(s, name, json_is_true(json_object_get(line, "ok")) ? PASSED : ERROR, "VOID", message, "");
		free(want);
		free(got);
		free(name);
		free(message);
	}
}

static void end_suite(struct text *to, struct suite *s, const char *properties, double seconds, const char *when)
{
	text_add(to, "  <testsuite name=\"%s\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\"", s->name, s->tests,
		 s->failures, s->errors, s->skipped, seconds);
	/* the schema has no room for a zone */
	if (*when)
		text_add(to, " timestamp=\"%.19s\"", when);
	text_add(to, ">\n%s%s  </testsuite>\n", properties, text_string(&s->cases));
	text_release(&s->cases);
	free(s->name);
}

static void add_property(struct text *to, const char *name, const char *value)
{
	char *safe = text_xml(value);

	if (*value)
		text_add(to, "      <property name=\"%s\" value=\"%s\"/>\n", name, safe);
	free(safe);
}

static char *leg_properties(const struct leg *l, const json_t *judged)
{
	struct text p = { 0 };
	char number[40];

	text_add(&p, "    <properties>\n");
	add_property(&p, "verdict", show_string(json_object_get(judged, "verdict")));
	add_property(&p, "adjudication", show_string(json_object_get(judged, "adjudication")));
	add_property(&p, "R", show_get(judged, "noise", "distance", "R") ?
		     show_number(show_get(judged, "noise", "distance", "R"), 4, number, sizeof number) : "");
	if (l->has_report)
		add_property(&p, "binary_sha256", l->report.engine.binary_sha256);
	text_add(&p, "    </properties>\n");
	return p.s;
}

/* Sums over all suites stand in the root, and come first. */
struct sums { int tests, failures, errors; double seconds; };

static void add_up(struct sums *sums, const struct suite *s, double seconds)
{
	sums->tests += s->tests;
	sums->failures += s->failures;
	sums->errors += s->errors;
	sums->seconds += seconds;
}

static void add_leg(struct text *to, struct sums *sums, const struct findings *f, int l)
{
	const struct leg *leg = &f->evidence.legs[l];
	const json_t *judged = findings_leg(f, l), *verdict = json_object_get(judged, "verdict");
	const char *reason = show_string(json_object_get(judged, "reason"));
	char *full = xasprintf("%s.%s", f->evidence.recipe.name, leg->want->name);
	struct suite s = { .name = text_xml(full) };
	bool counts = !is(verdict, "VOID") && !is(verdict, "ERROR") && !is(verdict, "NOT MEASURED");
	double seconds = 0;

	if (leg->has_report && leg->report.timing.present)
		seconds = leg->report.timing.load_s + leg->report.timing.prefill_s + leg->report.timing.decode_s;
	if (is(verdict, "NOT MEASURED"))
		add_case(&s, "leg", SKIPPED, "", *reason ? reason : "NOT MEASURED", "");
	else
		add_case(&s, "leg", counts ? PASSED : ERROR, show_string(verdict), *reason ? reason : show_string(verdict), "");
	for (int p = 0; counts && p < f->evidence.oracle.n_prompts; p++)
		add_prompt(&s, f, l, p, judged);
	add_contract(&s, json_object_get(judged, "contract"));
	add_up(sums, &s, seconds);
	char *properties = leg_properties(leg, judged);

	end_suite(to, &s, properties, seconds, leg->has_exit ? leg->exit.started : "");
	free(properties);
	free(full);
}

static void add_overall(struct text *to, struct sums *sums, const struct findings *f)
{
	const json_t *overall = json_object_get(f->verdict, "overall");
	const char *verdict = show_string(json_object_get(overall, "verdict")), *reason = show_string(json_object_get(overall, "reason"));
	bool error = strcmp(verdict, "VOID") == 0 || strcmp(verdict, "ERROR") == 0;
	struct suite s = { .name = text_xml(f->evidence.recipe.name) };
	char *message = xasprintf("%s: %s", verdict, reason);

	add_case(&s, "verdict", verdict_exit_code(f->verdict) == 0 ? PASSED : error ? ERROR : FAILURE, verdict, message, message);
	add_up(sums, &s, 0);
	end_suite(to, &s, "", 0, "");
	free(message);
}

char *show_junit(const struct findings *f, size_t *size)
{
	struct text suites = { 0 }, all = { 0 };
	struct sums sums = { 0 };
	char *name = text_xml(f->evidence.recipe.name);

	for (int l = 0; l < f->evidence.n_legs; l++)
		add_leg(&suites, &sums, f, l);
	add_overall(&suites, &sums, f);
	text_add(&all, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"%s\" tests=\"%d\" failures=\"%d\" errors=\"%d\" "
		 "time=\"%.3f\">\n%s</testsuites>\n", name, sums.tests, sums.failures, sums.errors, sums.seconds, text_string(&suites));
	text_release(&suites);
	free(name);
	*size = all.n;
	return all.s;
}
