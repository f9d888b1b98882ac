/* Why: what the columns of the table do not say.  Reasons, what a pass could have missed, the arbiter, claims. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "contract/err.h"
#include "show.h"

#define REASONS 8                /* of a VOID leg that are shown */

/* A pass that is equivalent and a near tie need no words. */
static bool is_plain(const json_t *leg)
{
	static const char *const plain[] = {"EQUIVALENT", "UNPROVEN", "NEAR-TIE"};
	const char *adjudication = show_string(json_object_get(leg, "adjudication"));

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (strcmp(adjudication, plain[i]) == 0)
			return true;
	return false;
}

/* What makes a leg VOID is a list: a line each, the first few. */
static void say_list(struct term *t, const char *names, enum tint tint, const char *reason)
{
	int n = 0, more = 0;

	for (const char *at = reason; at && *at; n++) {
		const char *end = strstr(at, "; ");
		int length = end ? (int)(end - at) : (int)strlen(at);

		if (n < REASONS)
			term_say(t, tint, 2, "%s: %.*s", names, length, at);
		else
			more++;
		at = end ? end + 2 : NULL;
	}
	if (more)
		term_say(t, tint, 2, "%s: and %d more", names, more);
}

static void say_reason(struct term *t, const json_t *leg, const char *names)
{
	const char *verdict = show_string(json_object_get(leg, "verdict")), *reason = show_string(json_object_get(leg, "reason"));
	const char *adjudication = show_string(json_object_get(leg, "adjudication"));
	enum tint tint = term_tint_of(*adjudication ? adjudication : verdict);

	if (strcmp(verdict, "VOID") == 0)
		say_list(t, names, tint, reason);
	else
		term_say(t, tint, 2, "%s: %s", names, reason);
}

/* Why a leg is neither a pass nor a plain near tie; legs with the same reason share it. */
static void show_why(struct term *t, const json_t *legs)
{
	const char *name, *other_name;
	const json_t *leg, *other;

	json_object_foreach((json_t *)legs, name, leg) {
		const json_t *reason = json_object_get(leg, "reason");
		char *names = xstrdup("");
		bool said = false;

		json_object_foreach((json_t *)legs, other_name, other) {
			if (is_plain(other) || !json_equal(reason, json_object_get(other, "reason")))
				continue;
			if (!*names && other != leg)
				said = true;     /* with an earlier leg */
			char *longer = xasprintf("%s%s%s", names, *names ? ", " : "", other_name);

			free(names);
			names = longer;
		}
		if (!is_plain(leg) && !said && *show_string(reason))
			say_reason(t, leg, names);
		free(names);
	}
}

/* What a pass could not have seen. */
static void say_power(struct term *t, const char *name, const json_t *leg)
{
	const json_t *noise = show_get(leg, "noise"), *rate = show_get(noise, "flip_rate_upper");
	const json_t *excess = show_get(noise, "power", "excess_R"), *noisier = show_get(noise, "power", "noisier_R");
	char *text = xstrdup("");

	if (json_is_number(excess) && json_is_number(noisier)) {
		free(text);
		text = xasprintf("an R below %.2f might not have been called EXCESS, one below %.2f not be seen above 1 (power 0.8); ",
				 json_number_value(excess), json_number_value(noisier));
	}
	if (json_is_number(rate))
		term_say(t, TINT_DIM, 2, "%s could have missed: %sup to %.2g %% of tokens flipping (95 %%)", name, text,
			 100 * json_number_value(rate));
	free(text);
}

/* Which side the exact computation is on. */
static void say_arbiter(struct term *t, const char *name, const json_t *arbiter)
{
	const char *nearer = show_string(json_object_get(arbiter, "nearer"));
	bool subject = strcmp(nearer, "subject") == 0;

	term_say(t, subject ? TINT_GOOD : TINT_NONE, 2, "arbiter %s is %s: distance %.3g to %s, %.3g to the oracle (n %lld)",
		 show_string(json_object_get(arbiter, "leg")), strcmp(nearer, "equal") == 0 ? "as near to both"
		 : subject ? "nearer to the leg" : "nearer to the oracle", json_number_value(json_object_get(arbiter, "subject")), name,
		 json_number_value(json_object_get(arbiter, "oracle")), (long long)json_integer_value(json_object_get(arbiter, "n")));
}

void show_failures(struct term *t, const json_t *verdict)
{
	const char *name;
	const json_t *leg;

	json_object_foreach(json_object_get(verdict, "legs"), name, leg) {
		const char *is = show_string(json_object_get(leg, "verdict"));

		if (strcmp(is, "ERROR") == 0 || strcmp(is, "VOID") == 0 || strcmp(is, "NOT MEASURED") == 0)
			say_reason(t, leg, name);
	}
}

static void show_limits(struct term *t, const json_t *legs)
{
	const char *name;
	const json_t *leg;

	json_object_foreach((json_t *)legs, name, leg) {
		const json_t *arbiter = show_get(leg, "noise", "arbiter");

		if (arbiter)
			say_arbiter(t, name, arbiter);
		if (strcmp(show_string(json_object_get(leg, "verdict")), "STRICT PASS") == 0)
			say_power(t, name, leg);
	}
}

static void show_contradictory(struct term *t, const json_t *verdict)
{
	const json_t *item, *side;
	size_t i, k, m;

	json_array_foreach(show_get(verdict, "golden", "contradictory"), i, item) {
		char *sides = xstrdup("");

		json_array_foreach(json_object_get(item, "sides"), k, side) {
			for (m = 0; m < json_array_size(side); m++) {
				const char *between = m ? ", " : k ? " against " : "";
				char *longer = xasprintf("%s%s%s", sides, between, show_string(json_array_get(side, m)));

				free(sides);
				sides = longer;
			}
		}
		term_say(t, TINT_WARN, 2, "the oracle contradicts itself on %s, most at step %lld, by %.3g nats: %s",
			 show_string(json_object_get(item, "prompt")), (long long)json_integer_value(json_object_get(item, "step")),
			 fabs(json_number_value(json_object_get(item, "d"))), sides);
		free(sides);
	}
}

static void show_claims(struct term *t, const json_t *verdict)
{
	const json_t *claim;
	size_t i;

	json_array_foreach(json_object_get(verdict, "claims"), i, claim) {
		const json_t *name = show_get(claim, "name"), *needs = show_get(claim, "needs");
		const char *status = show_string(json_object_get(claim, "status"));

		if (!name)
			continue;        /* drawn by the judge: the table of factors shows it */
		term_say(t, strcmp(status, "supported") == 0 ? TINT_NONE : TINT_WARN, 2, "claim %s is %s: %s%s%s%s%s",
			 json_string_value(name), status, show_string(json_object_get(claim, "says")), needs ? "; it needs " : "",
			 show_string(json_array_get(needs, 0)), needs ? " against " : "", show_string(json_array_get(needs, 1)));
	}
}

void show_reasons(struct term *t, const json_t *verdict)
{
	const json_t *legs = json_object_get(verdict, "legs");

	show_why(t, legs);
	show_limits(t, legs);
	show_contradictory(t, verdict);
	show_claims(t, verdict);
}
