/* The reports of an engine that speaks assay/request/1 and assay/report/1, as a profile of a golden. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture.h"
#include "contract/json.h"

static json_t *step_of(const struct report_step *s)
{
	json_t *step = json_object(), *top = json_array();

	json_put(step, "id", json_integer(s->id));
	for (int i = 0; i < s->n_top; i++) {
		json_t *pair = json_array();

		json_array_append_new(pair, json_integer(s->top[i].id));
		json_array_append_new(pair, json_number_rounded(s->top[i].value - s->lse, 9));
		json_array_append_new(top, pair);
	}
	json_put(step, "top", top);
	if (s->lse != 0)                /* 0: the engine gave log-probabilities, its logits are not known */
		json_put(step, "lse", json_number_rounded(s->lse, 9));
	return step;
}

static json_t *rows_of(const struct report_mode *m)
{
	json_t *rows = json_array();

	for (int i = 0; i < m->n_rows; i++) {
		const struct report_row *r = &m->rows[i];
		json_t *row = json_object(), *steps = json_array();

		json_put(row, "id", json_string_lossy(r->id));
		json_put(row, "ids", json_from_ids(r->ids, r->n));
		if (r->text)
			json_put(row, "text", json_string_lossy(r->text));
		for (int t = 0; r->steps && t < r->n; t++)
			json_array_append_new(steps, step_of(&r->steps[t]));
		if (r->steps)
			json_put(row, "steps", steps);
		else
			json_decref(steps);
		json_array_append_new(rows, row);
	}
	return rows;
}

/* What the engine said of itself; nothing is echoed from what was asked. */
static json_t *config_of(const struct report *r)
{
	json_t *config = arm_to_json(&r->effective, &r->effective_at), *kept = json_object(), *value;
	const char *key;

	json_object_foreach(config, key, value)
		if (!json_is_null(value))
			json_object_set(kept, key, value);
	json_decref(config);
	for (int i = 0; i < r->engine.n_features; i++)
		json_put(kept, r->engine.features[i].name, json_string_lossy(r->engine.features[i].value));
	if (r->engine.binary_sha256[0])
		json_put(kept, "binary_sha256", json_string(r->engine.binary_sha256));
	if (r->host.driver)
		json_put(kept, "driver", json_string_lossy(r->host.driver));
	json_put(kept, "host", json_string_lossy(r->host.name));
	return kept;
}

json_t *capture_profile_of(const struct report *runs, int n, enum mode mode, const char *name, const char *command, bool *agree,
			   struct err *err)
{
	const struct report *r = &runs[0];
	json_t *rows = rows_of(&r->modes[mode]), *engine, *profile;
	const char *device = r->host.gpu ? r->host.gpu : r->host.cpu ? r->host.cpu : r->host.name;
	time_t now = time(NULL);
	char day[16];
	struct tm utc;

	if (!r->modes[mode].present || json_array_size(rows) == 0) {
		json_decref(rows);
		err_set(err, ERR_FAILED, "the engine's report holds no prompt in mode %s", mode_name(mode));
		return NULL;
	}
	*agree = true;
	for (int i = 1; i < n; i++) {
		json_t *other = rows_of(&runs[i].modes[mode]);

		*agree = *agree && json_equal(rows, other);
		json_decref(other);
	}
	gmtime_r(&now, &utc);
	strftime(day, sizeof(day), "%Y-%m-%d", &utc);
	engine = json_pack("{s:o, s:o, s:o}", "name", json_string_lossy(r->engine.name), "version", json_string_lossy(r->engine.version),
			   "config", config_of(r));
	profile = json_pack("{s:s, s:o, s:o, s:s, s:o, s:i, s:b, s:s, s:o}", "name", name, "engine", engine, "device",
			    json_string_lossy(device), "captured", day, "command", json_string_lossy(command), "repeats", n, "repeats_agree",
			    *agree, "mode", mode_name(mode), "prompts", rows);
	BUG_ON(!profile);
	return profile;
}
