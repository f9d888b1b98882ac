#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include "json.h"

static json_t *string_or_null(const char *s)
{
	return s != NULL && s[0] != '\0' ? json_string_lossy(s) : json_null();
}

static json_t *int_or_null(int64_t n)
{
	return n >= 0 ? json_integer(n) : json_null();
}

static json_t *cells_to_json(const struct report_cell *cells, int n)
{
	json_t *out = json_object();

	for (int i = 0; i < n; i++)
		json_object_set_new(out, cells[i].name, json_string_lossy(cells[i].value));
	return out;
}

static void add_counters(json_t *out, const struct counters *counters)
{
	for (int c = 0; c < N_COUNTERS; c++)
		if (counters->n[c] != COUNTER_ABSENT)
			json_object_set_new(out, counter_name(c), json_integer(counters->n[c]));
}

static json_t *step_to_json(const struct report_step *s, int digits)
{
	json_t *out = json_pack("{s:i}", "id", s->id), *top;
	char hash[17];

	if (s->has_logits) {
		top = json_array();
		json_object_set_new(out, "margin", json_number_rounded(s->margin, digits));
		json_object_set_new(out, "lse", json_number_rounded(s->lse, digits));
		json_object_set_new(out, "top", top);
		for (int i = 0; i < s->n_top; i++)
			json_array_append_new(top, json_pack("[i,o]", s->top[i].id, json_number_rounded(s->top[i].value, digits)));
	}
	if (s->has_given)
		json_object_set_new(out, "given", json_pack("[i,o,i]", s->given, json_number_rounded(s->given_logit, digits),
							    s->given_rank));
	if (s->has_hash) {
		snprintf(hash, sizeof(hash), "%016" PRIx64, s->logits_xxh64);
		json_object_set_new(out, "logits_xxh64", json_string(hash));
	}
	return out;
}

static json_t *row_to_json(const struct report_row *row, int digits)
{
	json_t *out = json_pack("{s:s}", "id", row->id), *steps;

	json_object_set_new(out, "prompt_ids", json_from_ids(row->prompt_ids, row->n_prompt));
	json_object_set_new(out, "ids", json_from_ids(row->ids, row->n));
	json_object_set_new(out, "text", row->text != NULL ? json_string_lossy(row->text) : json_null());
	json_object_set_new(out, "wall_s", row->wall_s >= 0 ? json_number_rounded(row->wall_s, 9) : json_null());
	if (row->steps == NULL)
		return out;
	steps = json_array();
	json_object_set_new(out, "steps", steps);
	for (int i = 0; i < row->n; i++)
		json_array_append_new(steps, step_to_json(&row->steps[i], digits));
	return out;
}

static json_t *mode_to_json(const struct report_mode *m, int digits)
{
	json_t *rows = json_array(), *total = json_object(), *trace = json_array();

	for (int i = 0; i < m->n_rows; i++)
		json_array_append_new(rows, row_to_json(&m->rows[i], digits));
	add_counters(total, &m->total);
	for (int i = 0; i < m->n_trace; i++) {
		const struct report_trace *t = &m->trace[i];
		json_t *row = json_pack("{s:I, s:I, s:I, s:I}", "step", (json_int_t)t->step, "T", (json_int_t)t->T, "nd",
					(json_int_t)t->nd, "np", (json_int_t)t->np);

		add_counters(row, &t->counters);
		json_array_append_new(trace, row);
	}
	return json_pack("{s:o, s:o, s:o}", "prompts", rows, "counters_total", total, "trace", trace);
}

static json_t *engine_to_json(const struct report *r)
{
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "name", r->engine.name, "version", r->engine.version,
			 "git", string_or_null(r->engine.git),
			 "dirty", r->engine.dirty < 0 ? json_null() : json_boolean(r->engine.dirty),
			 "binary_sha256", string_or_null(r->engine.binary_sha256), "flags", string_or_null(r->engine.flags),
			 "features", cells_to_json(r->engine.features, r->engine.n_features));
}

static json_t *host_to_json(const struct report *r)
{
	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", r->host.name,
			 "cpu", string_or_null(r->host.cpu), "cores", int_or_null(r->host.cores),
			 "memory", int_or_null(r->host.memory), "kernel", string_or_null(r->host.kernel),
			 "gpu", string_or_null(r->host.gpu), "arch", string_or_null(r->host.arch),
			 "driver", string_or_null(r->host.driver), "cuda", string_or_null(r->host.cuda));
}

static json_t *model_to_json(const struct report *r)
{
	json_t *blocks = json_pack("{s:i, s:i, s:i, s:i, s:i}", "mamba", r->model.mamba, "attn", r->model.attn,
				   "moe", r->model.moe, "mlp", r->model.mlp, "layers", r->model.layers);

	return json_pack("{s:s, s:o, s:o, s:o}", "name", r->model.name,
			 "files", cells_to_json(r->model.files, r->model.n_files),
			 "config", r->model.config != NULL ? json_incref(r->model.config) : json_object(), "blocks", blocks);
}

static json_t *timing_to_json(const struct report *r)
{
	json_t *token, *out;

	if (!r->timing.present)
		return json_null();
	token = json_pack("{s:o, s:o, s:o, s:I}", "p50", json_number_rounded(r->timing.p50, 9),
			  "p90", json_number_rounded(r->timing.p90, 9), "p99", json_number_rounded(r->timing.p99, 9),
			  "n", (json_int_t)r->timing.n);
	out = json_pack("{s:o, s:o, s:o}", "load_s", json_number_rounded(r->timing.load_s, 9),
			"prefill_s", json_number_rounded(r->timing.prefill_s, 9),
			"decode_s", json_number_rounded(r->timing.decode_s, 9));
	if (r->timing.verify_s >= 0)
		json_object_set_new(out, "verify_s", json_number_rounded(r->timing.verify_s, 9));
	json_object_set_new(out, "per_token_ms", token);
	return out;
}

static json_t *audit_to_json(const struct report *r)
{
	json_t *list = json_array(), *out;

	for (int i = 0; i < r->audit.n_mismatches; i++)
		json_array_append_new(list, json_string_lossy(r->audit.mismatches[i]));
	out = json_pack("{s:s, s:b, s:o}", "source", r->audit.source, "agrees", r->audit.agrees, "mismatches", list);
	if (r->audit.kernels != NULL)
		json_object_set(out, "kernels", r->audit.kernels);
	return out;
}

static json_t *report_to_json(const struct report *r)
{
	int digits = r->effective.value[FACTOR_COMPUTE] == COMPUTE_F64 ? 17 : 9;
	json_t *out = json_pack("{s:s, s:s}", "schema", "assay/report/1", "leg", r->leg), *modes = json_object();

	json_object_set_new(out, "requested", arm_to_json(&r->requested, &r->requested_at));
	json_object_set_new(out, "effective", arm_to_json(&r->effective, &r->effective_at));
	json_object_set_new(out, "engine", engine_to_json(r));
	json_object_set_new(out, "host", host_to_json(r));
	json_object_set_new(out, "model", model_to_json(r));
	json_object_set_new(out, "golden_sha256", string_or_null(r->golden_sha256));
	json_object_set_new(out, "modes", modes);
	for (int m = 0; m < N_MODES; m++)
		if (r->modes[m].present)
			json_object_set_new(modes, mode_name(m), mode_to_json(&r->modes[m], digits));
	json_object_set_new(out, "timing", timing_to_json(r));
	json_object_set_new(out, "busy", r->busy != NULL ? json_incref(r->busy) : json_null());
	json_object_set_new(out, "peak_rss_bytes", int_or_null(r->peak_rss_bytes));
	json_object_set_new(out, "peak_device_bytes", int_or_null(r->peak_device_bytes));
	if (r->audit.present)
		json_object_set_new(out, "audit", audit_to_json(r));
	return out;
}

int report_save(const struct report *r, const char *path, struct err *err)
{
	json_t *out = report_to_json(r);
	int status = json_write_file(out, path, JSON_INDENT(1) | JSON_COMPACT | JSON_FLAT, err);

	json_decref(out);
	return status;
}
