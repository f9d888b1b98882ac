/* What changed between two runs. */
#include <stdlib.h>
#include <string.h>

#include "contract/json.h"
#include "record.h"
#include "show.h"

struct changes {
	struct text text;
	const char *indent;
};

/* What a person tells apart: hashes by their first digits. */
static char *shown(const json_t *v)
{
	const char *s = json_string_value(v);

	if (s && json_is_sha256(s))
		return xasprintf("%.12s", s);
	if (s)
		return text_short(s, 100);
	if (!v || json_is_null(v))
		return xstrdup("none");
	if (json_is_real(v))
		return xasprintf("%.4g", json_real_value(v));
	return json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
}

static bool differs(const json_t *a, const json_t *b)
{
	return !json_equal(a, b) && !((!a || json_is_null(a)) && (!b || json_is_null(b)));
}

static bool say(struct changes *c, const char *leg, const char *what, const json_t *a, const json_t *b)
{
	char *before, *after;

	if (!differs(a, b))
		return false;
	before = shown(a);
	after = shown(b);
	text_add(&c->text, "%s%s%s%s: %s -> %s\n", c->indent, leg ? leg : "", leg ? ": " : "", what, before, after);
	free(before);
	free(after);
	return true;
}

static void say_factors(struct changes *c, const char *leg, const json_t *a, const json_t *b)
{
	const char *factor;
	const json_t *value;

	json_object_foreach((json_t *)b, factor, value)
		say(c, leg, factor, json_object_get(a, factor), value);
}

/* Two runs are no race: both numbers, never their ratio. */
static void say_speed(struct changes *c, const char *leg, const json_t *a, const json_t *b)
{
	const json_t *before = show_get(a, "ms_per_token"), *after = show_get(b, "ms_per_token");

	if (!before || !after || !differs(before, after))
		return;
	text_add(&c->text, "%s%s: ms/token: %.4g -> %.4g%s\n", c->indent, leg, json_number_value(before), json_number_value(after),
		 differs(json_object_get(a, "box"), json_object_get(b, "box")) ? ", on another box" : "");
}

/* Pairs that ran in turns in both: their ratios, each of one box and one run. */
static void say_speeds(struct changes *c, const json_t *a, const json_t *b)
{
	const json_t *old, *new;
	size_t i, j;

	json_array_foreach(b, i, new)
		json_array_foreach(a, j, old)
			if (json_equal(json_object_get(old, "a"), json_object_get(new, "a")) &&
			    json_equal(json_object_get(old, "b"), json_object_get(new, "b"))) {
				char *what = xasprintf("%s against %s", show_string(json_object_get(new, "a")), show_string(json_object_get(new, "b")));

				say(c, what, "ratio of times", json_object_get(old, "ratio"), json_object_get(new, "ratio"));
				free(what);
			}
}

static void say_leg(struct changes *c, const char *name, const json_t *a, const json_t *b)
{
	const json_t *old = json_object_get(a, "engine"), *new = json_object_get(b, "engine");

	if (!a || !b) {
		text_add(&c->text, "%s%s: %s\n", c->indent, name, a ? "is no more" : "is new");
		return;
	}
	say(c, name, "verdict", json_object_get(a, "verdict"), json_object_get(b, "verdict"));
	say(c, name, "adjudication", json_object_get(a, "adjudication"), json_object_get(b, "adjudication"));
	if (say(c, name, "binary", json_object_get(old, "binary_sha256"), json_object_get(new, "binary_sha256")))
		say(c, name, "git", json_object_get(old, "git"), json_object_get(new, "git"));
	say(c, name, "cpu", show_get(a, "box", "cpu"), show_get(b, "box", "cpu"));
	say(c, name, "gpu", show_get(a, "box", "gpu"), show_get(b, "box", "gpu"));
	say_factors(c, name, json_object_get(a, "factors"), json_object_get(b, "factors"));
	say(c, name, "ids", json_object_get(a, "ids_sha256"), json_object_get(b, "ids_sha256"));
	say(c, name, "tokens matched", show_get(a, "tokens", "matched"), show_get(b, "tokens", "matched"));
	say(c, name, "tokens compared", show_get(a, "tokens", "compared"), show_get(b, "tokens", "compared"));
	say(c, name, "margins", json_object_get(a, "margins_sha256"), json_object_get(b, "margins_sha256"));
	say(c, name, "contract", json_object_get(a, "contract"), json_object_get(b, "contract"));
	say(c, name, "R", json_object_get(a, "R"), json_object_get(b, "R"));
	say_speed(c, name, a, b);
}

char *history_changes(const json_t *before, const json_t *after, const char *indent)
{
	static const char *const parts[][2] = { { "recipe", "name" }, { "recipe", "sha256" }, { "golden", "name" }, { "golden", "sha256" },
		{ "golden", "profile" }, { "model", "name" }, { "model", "sha256" } };
	struct changes c = { .indent = indent };
	const json_t *old = json_object_get(before, "legs"), *new = json_object_get(after, "legs"), *leg, *hypothesis;
	const char *name;

	say(&c, NULL, "verdict", json_object_get(before, "verdict"), json_object_get(after, "verdict"));
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		char *what = xasprintf("%s%s%s", parts[i][0], strcmp(parts[i][1], "name") ? " " : "", strcmp(parts[i][1], "name") ? parts[i][1] : "");

		say(&c, NULL, what, show_get(before, parts[i][0], parts[i][1]), show_get(after, parts[i][0], parts[i][1]));
		free(what);
	}
	json_object_foreach(json_object_get((json_t *)after, "hypotheses"), name, hypothesis) {
		char *what = xasprintf("hypothesis %s", name);

		say(&c, NULL, what, show_get(before, "hypotheses", name, "status"), json_object_get(hypothesis, "status"));
		free(what);
	}
	say_speeds(&c, json_object_get(before, "speed"), json_object_get(after, "speed"));
	json_object_foreach((json_t *)new, name, leg)
		say_leg(&c, name, json_object_get(old, name), leg);
	json_object_foreach((json_t *)old, name, leg)
		if (!json_object_get(new, name))
			say_leg(&c, name, leg, NULL);
	return c.text.s ? c.text.s : xstrdup("");
}
