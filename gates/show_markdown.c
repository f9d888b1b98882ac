/* Markdown for a pull request, under 60 lines; and annotations of a GitHub run. */
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "page.h"
#include "show.h"
#include "speed.h"

#define LEGS_MOST 16
#define FLIPS_MOST 8
#define OTHERS_MOST 6
#define CELL_MOST 160

/* A text inside Markdown: nothing in it is markup, a link, a mention or an end of a cell. */
static char *text_markdown(const char *s, int most)
{
	char *plain = text_short(s, most), *to = xmalloc(6 * strlen(plain) + 1), *at = to;

	for (const char *p = plain; *p; p++) {
		if (strchr("&<>\"'`*_[]()|\\#@~!$:{}", *p))
			at += sprintf(at, "&#%d;", *p);
		else
			*at++ = *p;
	}
	*at = '\0';
	free(plain);
	return to;
}

static void add(struct text *to, const char *before, const char *s, const char *after)
{
	char *safe = text_markdown(s, CELL_MOST);

	text_add(to, "%s%s%s", before, safe, after);
	free(safe);
}

static void add_leg(struct text *to, const char *name, const json_t *leg)
{
	const json_t *tokens = show_get(leg, "tokens"), *d = show_get(leg, "noise", "distance"), *contract = json_object_get(leg, "contract"), *line;
	const json_t *forks = show_get(leg, "noise", "forks"), *flips = show_get(leg, "noise", "flips");
	char a[32], b[32], c[32];
	size_t i, met = 0;

	json_array_foreach(contract, i, line)
		met += json_is_true(json_object_get(line, "ok"));
	add(to, "| ", name, " | ");
	text_add(to, "%s | %s | ", show_string(json_object_get(leg, "verdict")), show_string(json_object_get(leg, "adjudication")));
	if (tokens)
		text_add(to, "%lld/%lld", (long long)json_integer_value(json_object_get(tokens, "matched")),
			 (long long)json_integer_value(json_object_get(tokens, "compared")));
	text_add(to, " | %zu/%zu | ", met, json_array_size(contract));
	if (show_get(d, "lower"))
		text_add(to, "%s [%s, %s]", show_number(json_object_get(d, "R"), 3, a, sizeof a),
			 show_number(json_object_get(d, "lower"), 3, b, sizeof b), show_number(json_object_get(d, "upper"), 3, c, sizeof c));
	else
		text_add(to, "%s", show_number(show_get(d, "R"), 3, a, sizeof a));
	text_add(to, " | ");
	if (forks)
		text_add(to, "%lld/%lld", (long long)json_integer_value(json_object_get(forks, "forked")),
			 (long long)json_integer_value(json_object_get(forks, "prompts")));
	text_add(to, " | ");
	if (flips)
		text_add(to, "%lld/%lld p %s", (long long)json_integer_value(json_object_get(flips, "S")),
			 (long long)json_integer_value(json_object_get(flips, "positions")),
			 show_number(json_object_get(flips, "p"), 2, a, sizeof a));
	text_add(to, " | %s |\n", show_number(show_get(leg, "timing", "per_token_ms", "p50"), 3, a, sizeof a));
}

static void add_legs(struct text *to, const json_t *legs)
{
	const char *name;
	const json_t *leg;
	int n = 0;

	text_add(to, "| leg | verdict | adjudication | tokens | contract | R, 95 %% | forks | flips | ms/token |\n|---|---|---|---|---|---|---|---|---|\n");
	json_object_foreach((json_t *)legs, name, leg)
		if (n++ < LEGS_MOST)
			add_leg(to, name, leg);
	if (n > LEGS_MOST)
		text_add(to, "\n%d more legs\n", n - LEGS_MOST);
	text_add(to, "\n");
}

static void add_reasons(struct text *to, const json_t *legs)
{
	const char *name;
	const json_t *leg;
	int n = 0;

	json_object_foreach((json_t *)legs, name, leg) {
		const char *reason = show_string(json_object_get(leg, "reason"));

		if (!*reason || ++n > OTHERS_MOST)
			continue;
		add(to, "- **", name, "**: ");
		add(to, "", reason, "\n");
	}
	if (n > OTHERS_MOST)
		text_add(to, "- and %d more\n", n - OTHERS_MOST);
	if (n)
		text_add(to, "\n");
}

static void add_hypotheses(struct text *to, const struct findings *f)
{
	const json_t *all = json_object_get(f->verdict, "hypotheses");
	const struct recipe *r = &f->evidence.recipe;
	int n = 0;

	for (int i = 0; i < r->n_hypotheses; i++) {
		const char *status = show_string(show_get(json_object_get(all, r->hypotheses[i].name), "status"));

		if (!*status || ++n > OTHERS_MOST)
			continue;
		add(to, "- ", r->hypotheses[i].name, " ");
		add(to, strcmp(status, "survives") == 0 ? "**survives**: " : strcmp(status, "eliminated") == 0 ? "eliminated: " : "untested: ",
		    r->hypotheses[i].says ? r->hypotheses[i].says : "", "\n");
	}
	if (n > OTHERS_MOST)
		text_add(to, "- and %d more\n", n - OTHERS_MOST);
	if (n)
		text_add(to, "\n");
}

static void add_speed(struct text *to, const json_t *speed)
{
	const json_t *found;
	size_t i;

	json_array_foreach(speed, i, found) {
		char *sentence = i < OTHERS_MOST ? speed_sentence(found) : NULL;

		if (sentence)
			add(to, "- speed: ", sentence, "\n");
		free(sentence);
	}
	if (i > OTHERS_MOST)
		text_add(to, "- and %zu more\n", i - OTHERS_MOST);
	if (i)
		text_add(to, "\n");
}

static void add_token(struct text *to, const json_t *token)
{
	const json_t *text = show_get(token, "text");
	char *safe = text ? text_markdown(show_string(text), 24) : NULL;

	if (text)
		text_add(to, "&quot;%s&quot; ", safe);
	text_add(to, "%lld | ", (long long)json_integer_value(json_object_get(token, "id")));
	free(safe);
}

static void add_flips(struct text *to, const json_t *legs)
{
	int n;
	struct flip_group *groups = show_group_flips(legs, &n);
	char margin[32];

	if (n)
		text_add(to, "| flip | expected | got | margin, nats | adjudication | legs |\n|---|---|---|---|---|---|\n");
	for (int i = 0; i < n && i < FLIPS_MOST; i++) {
		const json_t *flip = groups[i].flip;

		add(to, "| ", show_string(json_object_get(flip, "prompt")), "");
		text_add(to, " step %lld | ", (long long)json_integer_value(json_object_get(flip, "step")));
		add_token(to, json_object_get(flip, "exp"));
		add_token(to, json_object_get(flip, "got"));
		text_add(to, "%s | %s |", show_number(json_object_get(flip, "oracle_margin"), 3, margin, sizeof margin), groups[i].adjudication);
		for (int l = 0; l < groups[i].n_legs && l < LEGS_MOST; l++)
			add(to, l ? ", " : " ", groups[i].legs[l], "");
		text_add(to, " |\n");
	}
	if (n > FLIPS_MOST)
		text_add(to, "\n%d more flips\n", n - FLIPS_MOST);
	if (n)
		text_add(to, "\n");
	show_free_groups(groups, n);
}

char *show_markdown(const struct findings *f, size_t *size)
{
	const json_t *overall = json_object_get(f->verdict, "overall"), *legs = json_object_get(f->verdict, "legs");
	const json_t *next = json_array_get(json_object_get(f->verdict, "next_legs"), 0);
	const char *question = f->evidence.recipe.question;
	struct text to = { 0 };

	text_add(&to, "### assay: %s, exit %d", show_string(json_object_get(overall, "verdict")), verdict_exit_code(f->verdict));
	add(&to, " (", f->evidence.recipe.name, ")\n\n");
	if (question)
		add(&to, "", question, "\n\n");
	if (*show_string(json_object_get(overall, "reason")))
		add(&to, "", show_string(json_object_get(overall, "reason")), "\n\n");
	add_legs(&to, legs);
	add_reasons(&to, legs);
	add_hypotheses(&to, f);
	add_speed(&to, json_object_get(f->verdict, "speed"));
	add_flips(&to, legs);
	if (next)
		add(&to, "Next leg: ", show_string(json_object_get(next, "leg")), "\n\n");
	text_add(&to, "recipe %.12s, golden %.12s\n", f->evidence.recipe.sha256, f->evidence.golden.sha256);
	*size = to.n;
	return to.s;
}

/* ---- annotations */

/* The workflow commands' own escapes; in a property, ':' and ',' too. */
static void add_escaped(struct text *to, const char *s, bool property)
{
	char *plain = text_plain(s);

	for (const char *p = plain; *p; p++)
		if (*p == '%' || (property && (*p == ':' || *p == ',')))
			text_add(to, "%%%02X", (unsigned)*p);
		else
			text_add(to, "%c", *p);
	free(plain);
}

static void annotate(struct text *to, const char *level, const char *recipe, const char *title, const char *message)
{
	text_add(to, "::%s file=", level);
	add_escaped(to, recipe, true);
	text_add(to, ",title=");
	add_escaped(to, title, true);
	text_add(to, "::");
	add_escaped(to, message, false);
	text_add(to, "\n");
}

char *show_github(const struct findings *f, const char *recipe)
{
	const json_t *overall = json_object_get(f->verdict, "overall");
	bool data = f->evidence.recipe.kind == RECIPE_DISCRIMINATE;
	struct text to = { 0 };

	for (int l = 0; l < f->evidence.n_legs; l++) {
		const json_t *leg = findings_leg(f, l), *tokens = show_get(leg, "tokens");
		const char *verdict = show_string(json_object_get(leg, "verdict")), *reason = show_string(json_object_get(leg, "reason"));
		const char *adjudication = show_string(json_object_get(leg, "adjudication"));
		bool diverges = strcmp(verdict, "DIVERGENCE") == 0, passes = strcmp(verdict, "STRICT PASS") == 0;
		char *title = xasprintf("%s %s", f->evidence.legs[l].want->name, verdict);
		char *message = xasprintf("%s%s%s", adjudication, *adjudication && *reason ? ": " : "", reason);
		char *counted = tokens ? xasprintf("%lld/%lld tokens%s%s", (long long)json_integer_value(json_object_get(tokens, "matched")),
						   (long long)json_integer_value(json_object_get(tokens, "compared")), *message ? "; " : "", message) : NULL;

		annotate(&to, passes || (diverges && data) ? "notice" : strcmp(verdict, "NOT MEASURED") == 0 ? "warning" : "error", recipe, title,
			 counted ? counted : *message ? message : verdict);
		free(title);
		free(message);
		free(counted);
	}
	annotate(&to, verdict_exit_code(f->verdict) == 0 ? "notice" : "error", recipe, show_string(json_object_get(overall, "verdict")),
		 *show_string(json_object_get(overall, "reason")) ? show_string(json_object_get(overall, "reason")) :
		 show_string(json_object_get(overall, "verdict")));
	return to.s;
}
