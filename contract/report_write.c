#include "report.h"

#include <inttypes.h>
#include <math.h>
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

/* The schema wants a finite number here; measurements that are not were never made. */
static json_t *number(double x)
{
	BUG_ON(!isfinite(x));
	return json_number_rounded(x, 9);
}

static json_t *cells_to_json(const struct report_cell *cells, int n)
{
	json_t *out = json_object();

	for (int i = 0; i < n; i++)
		json_put(out, cells[i].name, json_string_lossy(cells[i].value));
	return out;
}

static void add_counters(json_t *out, const struct counters *counters)
{
	for (int c = 0; c < N_COUNTERS; c++)
		if (counters->n[c] != COUNTER_ABSENT)
			json_put(out, counter_name(c), json_integer(counters->n[c]));
}

static void append_logit(json_t *list, int32_t id, double logit, int digits)
{
	json_array_append_new(list, json_integer(id));
	json_array_append_new(list, json_number_rounded(logit, digits));
}

static json_t *step_to_json(const struct report_step *s, int digits)
{
	json_t *out = json_object(), *list;
	char hash[17];

	json_put(out, "id", json_integer(s->id));
	if (s->has_logits) {
		list = json_array();
		for (int i = 0; i < s->n_top; i++) {
			json_t *pair = json_array();

			append_logit(pair, s->top[i].id, s->top[i].value, digits);
			json_array_append_new(list, pair);
		}
		json_put(out, "margin", json_number_rounded(s->margin, digits));
		json_put(out, "lse", json_number_rounded(s->lse, digits));
		json_put(out, "top", list);
	}
	if (s->has_given) {
		list = json_array();
		append_logit(list, s->given, s->given_logit, digits);
		json_array_append_new(list, json_integer(s->given_rank));
		json_put(out, "given", list);
	}
	if (s->has_hash) {
		snprintf(hash, sizeof(hash), "%016" PRIx64, s->logits_xxh64);
		json_put(out, "logits_xxh64", json_string(hash));
	}
	return out;
}

static json_t *row_to_json(const struct report_row *row, int digits)
{
	json_t *out = json_object(), *steps;

	json_put(out, "id", json_string_lossy(row->id));
	json_put(out, "prompt_ids", json_from_ids(row->prompt_ids, row->n_prompt));
	json_put(out, "ids", json_from_ids(row->ids, row->n));
	json_put(out, "text", row->text != NULL ? json_string_lossy(row->text) : json_null());
	json_put(out, "wall_s", row->wall_s >= 0 ? number(row->wall_s) : json_null());
	if (row->steps == NULL)
		return out;
	steps = json_array();
	for (int i = 0; i < row->n; i++)
		json_array_append_new(steps, step_to_json(&row->steps[i], digits));
	json_put(out, "steps", steps);
	return out;
}

static json_t *trace_to_json(const struct report_trace *t)
{
	json_t *out = json_object();

	json_put(out, "step", json_integer(t->step));
	json_put(out, "T", json_integer(t->T));
	json_put(out, "nd", json_integer(t->nd));
	json_put(out, "np", json_integer(t->np));
	add_counters(out, &t->counters);
	return out;
}

static json_t *mode_to_json(const struct report_mode *m, int digits)
{
	json_t *rows = json_array(), *total = json_object(), *trace = json_array(), *out = json_object();

	for (int i = 0; i < m->n_rows; i++)
		json_array_append_new(rows, row_to_json(&m->rows[i], digits));
	add_counters(total, &m->total);
	for (int i = 0; i < m->n_trace; i++)
		json_array_append_new(trace, trace_to_json(&m->trace[i]));
	json_put(out, "prompts", rows);
	json_put(out, "counters_total", total);
	json_put(out, "trace", trace);
	return out;
}

static json_t *engine_to_json(const struct report *r)
{
	json_t *out = json_object();

	json_put(out, "name", json_string_lossy(r->engine.name));
	json_put(out, "version", json_string_lossy(r->engine.version));
	json_put(out, "git", string_or_null(r->engine.git));
	json_put(out, "dirty", r->engine.dirty < 0 ? json_null() : json_boolean(r->engine.dirty));
	json_put(out, "binary_sha256", string_or_null(r->engine.binary_sha256));
	json_put(out, "flags", string_or_null(r->engine.flags));
	json_put(out, "features", cells_to_json(r->engine.features, r->engine.n_features));
	return out;
}

static json_t *host_to_json(const struct report *r)
{
	json_t *out = json_object();

	json_put(out, "name", json_string_lossy(r->host.name));
	json_put(out, "cpu", string_or_null(r->host.cpu));
	json_put(out, "cores", int_or_null(r->host.cores));
	json_put(out, "memory", int_or_null(r->host.memory));
	json_put(out, "kernel", string_or_null(r->host.kernel));
	json_put(out, "gpu", string_or_null(r->host.gpu));
	json_put(out, "arch", string_or_null(r->host.arch));
	json_put(out, "driver", string_or_null(r->host.driver));
	json_put(out, "cuda", string_or_null(r->host.cuda));
	return out;
}

static json_t *model_to_json(const struct report *r)
{
	json_t *out = json_object(), *blocks = json_object();

	json_put(blocks, "mamba", json_integer(r->model.mamba));
	json_put(blocks, "attn", json_integer(r->model.attn));
	json_put(blocks, "moe", json_integer(r->model.moe));
	json_put(blocks, "mlp", json_integer(r->model.mlp));
	json_put(blocks, "layers", json_integer(r->model.layers));
	json_put(out, "name", json_string_lossy(r->model.name));
	json_put(out, "files", cells_to_json(r->model.files, r->model.n_files));
	json_put(out, "config", r->model.config != NULL ? json_incref(r->model.config) : json_object());
	json_put(out, "blocks", blocks);
	return out;
}

static json_t *timing_to_json(const struct report *r)
{
	json_t *token, *out;

	if (!r->timing.present)
		return json_null();
	token = json_object();
	json_put(token, "p50", number(r->timing.p50));
	json_put(token, "p90", number(r->timing.p90));
	json_put(token, "p99", number(r->timing.p99));
	json_put(token, "n", json_integer(r->timing.n));
	out = json_object();
	json_put(out, "load_s", number(r->timing.load_s));
	json_put(out, "prefill_s", number(r->timing.prefill_s));
	json_put(out, "decode_s", number(r->timing.decode_s));
	if (r->timing.verify_s >= 0)
		json_put(out, "verify_s", number(r->timing.verify_s));
	json_put(out, "per_token_ms", token);
	return out;
}

static json_t *audit_to_json(const struct report *r)
{
	json_t *list = json_array(), *out = json_object();

	for (int i = 0; i < r->audit.n_mismatches; i++)
		json_array_append_new(list, json_string_lossy(r->audit.mismatches[i]));
	json_put(out, "source", json_string_lossy(r->audit.source));
	json_put(out, "agrees", json_boolean(r->audit.agrees));
	json_put(out, "mismatches", list);
	if (r->audit.kernels != NULL)
		json_put(out, "kernels", json_incref(r->audit.kernels));
	return out;
}

static json_t *report_to_json(const struct report *r)
{
	int digits = r->effective.value[FACTOR_COMPUTE] == COMPUTE_F64 ? 17 : 9;
	json_t *out = json_object(), *modes = json_object();

	for (int m = 0; m < N_MODES; m++)
		if (r->modes[m].present)
			json_put(modes, mode_name(m), mode_to_json(&r->modes[m], digits));
	json_put(out, "schema", json_string("assay/report/1"));
	json_put(out, "leg", json_string(r->leg));
	json_put(out, "requested", arm_to_json(&r->requested, &r->requested_at));
	json_put(out, "effective", arm_to_json(&r->effective, &r->effective_at));
	json_put(out, "engine", engine_to_json(r));
	json_put(out, "host", host_to_json(r));
	json_put(out, "model", model_to_json(r));
	json_put(out, "golden_sha256", string_or_null(r->golden_sha256));
	json_put(out, "modes", modes);
	json_put(out, "timing", timing_to_json(r));
	json_put(out, "busy", r->busy != NULL ? json_incref(r->busy) : json_null());
	json_put(out, "peak_rss_bytes", int_or_null(r->peak_rss_bytes));
	json_put(out, "peak_device_bytes", int_or_null(r->peak_device_bytes));
	if (r->audit.present)
		json_put(out, "audit", audit_to_json(r));
	return out;
}

int report_save(const struct report *r, const char *path, struct err *err)
{
	json_t *out = report_to_json(r);
	int status = json_write_file(out, path, JSON_INDENT(1) | JSON_COMPACT | JSON_FLAT, err);

	json_decref(out);
	return status;
}
