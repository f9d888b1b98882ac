#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "busy.h"
#include "json.h"
#include "report_check.h"
#include "steps.h"

#define FILE_LIMIT ((size_t)4 << 30)

/* What the readers below share. */
struct reading {
	struct report *r;
	struct steps_doc *doc;
	const char *file;
	struct err *err;
};

const char *mode_name(enum mode m)
{
	static const char *const names[N_MODES] = { "free", "forced" };

	BUG_ON((unsigned)m >= N_MODES);
	return names[m];
}

/* ---- small members ---- */

static int64_t nullable_int(struct jobj *o, const char *key)
{
	return json_is_null_member(o, key) ? -1 : json_get_int(o, key, true, 0, -1);
}

/* A time, a share, a rate: a plain finite number, not below 0, where the schema allows no strings. */
static double plain_number(struct jobj *o, const char *key, bool need, double def)
{
	const json_t *value = json_get(o, key, need);
	char path[256];

	if (value == NULL)
		return def;
	if (!json_is_number(value))
		json_expected(value, "a number", o->file, json_path(path, sizeof(path), o->path, key), o->err);
	else if (json_number_value(value) < 0)
		err_set(o->err, ERR_INPUT, "%s: %s: expected a number of at least 0, found %.9g", o->file,
			json_path(path, sizeof(path), o->path, key), json_number_value(value));
	return json_number_value(value);
}

/* An object of strings: feature cells, or files and their sha256. */
static int read_cells(struct reading *in, struct report_cell **cells, int *n, const json_t *object,
		      const char *where, bool sha256)
{
	const char *key, *text;
	char path[300];
	json_t *value;

	if (object == NULL)
		return -1;
	*cells = xcalloc(json_object_size(object), sizeof(**cells));
	json_object_foreach((json_t *)object, key, value) {
		text = json_string_value(value);
		if (text == NULL || (sha256 && !json_is_sha256(text)))
			return json_expected(value, sha256 ? "64 hexadecimal digits" : "a string", in->file,
					     json_path(path, sizeof(path), where, key), in->err);
		(*cells)[(*n)++] = (struct report_cell){ .name = xstrdup(key), .value = xstrdup(text) };
	}
	return 0;
}

/* ---- sections ---- */

static int read_engine(struct reading *in, const json_t *value)
{
	struct report *r = in->r;
	struct jobj o;

	if (json_begin(&o, value, in->file, "$.engine", in->err))
		return -1;
	r->engine.name = json_get_owned(&o, "name", true, false);
	r->engine.version = json_get_owned(&o, "version", true, false);
	r->engine.git = json_get_owned(&o, "git", true, true);
	r->engine.dirty = json_is_null_member(&o, "dirty") ? -1 : json_get_bool(&o, "dirty", true, false);
	json_get_sha256(&o, "binary_sha256", true, true, r->engine.binary_sha256);
	r->engine.flags = json_get_owned(&o, "flags", true, true);
	if (read_cells(in, &r->engine.features, &r->engine.n_features, json_get_object(&o, "features", true),
		       "$.engine.features", false))
		return -1;
	return json_end(&o);
}

static int read_host(struct reading *in, const json_t *value)
{
	struct report *r = in->r;
	struct jobj o;

	if (json_begin(&o, value, in->file, "$.host", in->err))
		return -1;
	r->host.name = json_get_owned(&o, "name", true, false);
	r->host.cpu = json_get_owned(&o, "cpu", true, true);
	r->host.cores = nullable_int(&o, "cores");
	r->host.memory = nullable_int(&o, "memory");
	r->host.kernel = json_get_owned(&o, "kernel", true, true);
	r->host.gpu = json_get_owned(&o, "gpu", true, true);
	r->host.arch = json_get_owned(&o, "arch", true, true);
	r->host.driver = json_get_owned(&o, "driver", true, true);
	r->host.cuda = json_get_owned(&o, "cuda", true, true);
	return json_end(&o);
}

static int block_count(struct jobj *o, const char *key)
{
	int64_t n = json_get_int(o, key, true, 0, 0);

	if (n > INT32_MAX)
		err_set(o->err, ERR_INPUT, "%s: %s.%s: expected fewer blocks", o->file, o->path, key);
	return (int)n;
}

static int read_model(struct reading *in, const json_t *value)
{
	struct report *r = in->r;
	struct jobj o, blocks;
	char what[160];

	if (json_begin(&o, value, in->file, "$.model", in->err))
		return -1;
	r->model.name = json_get_owned(&o, "name", true, false);
	if (read_cells(in, &r->model.files, &r->model.n_files, json_get_object(&o, "files", true), "$.model.files", true))
		return -1;
	r->model.config = json_incref((json_t *)json_get_object(&o, "config", true));
	if (json_begin(&blocks, json_get(&o, "blocks", true), in->file, "$.model.blocks", in->err))
		return -1;
	r->model.mamba = block_count(&blocks, "mamba");
	r->model.attn = block_count(&blocks, "attn");
	r->model.moe = block_count(&blocks, "moe");
	r->model.mlp = block_count(&blocks, "mlp");
	r->model.layers = block_count(&blocks, "layers");
	if (json_end(&blocks) || json_end(&o))
		return -1;
	if (report_check_blocks(r, what, sizeof(what)))
		return err_set(in->err, ERR_INPUT, "%s: $.model.blocks: %s", in->file, what);
	return 0;
}

static int read_timing(struct reading *in, const json_t *value)
{
	struct report *r = in->r;
	struct jobj o, token;

	r->timing.present = !json_is_null(value);
	r->timing.verify_s = -1;
	if (!r->timing.present)
		return 0;
	if (json_begin(&o, value, in->file, "$.timing", in->err))
		return -1;
	r->timing.load_s = plain_number(&o, "load_s", true, 0);
	r->timing.prefill_s = plain_number(&o, "prefill_s", true, 0);
	r->timing.decode_s = plain_number(&o, "decode_s", true, 0);
	r->timing.verify_s = plain_number(&o, "verify_s", false, -1);
	if (json_begin(&token, json_get(&o, "per_token_ms", true), in->file, "$.timing.per_token_ms", in->err))
		return -1;
	r->timing.p50 = plain_number(&token, "p50", true, 0);
	r->timing.p90 = plain_number(&token, "p90", true, 0);
	r->timing.p99 = plain_number(&token, "p99", true, 0);
	r->timing.n = json_get_int(&token, "n", true, 0, 0);
	return json_end(&token) || json_end(&o) ? -1 : 0;
}

static int read_busy(struct reading *in, const json_t *value)
{
	if (json_is_null(value))
		return 0;
	if (busy_check(value, in->file, "$.busy", in->err))
		return -1;
	in->r->busy = json_incref((json_t *)value);
	return 0;
}

static int read_kernels(struct reading *in, const json_t *kernels)
{
	const json_t *item;
	char path[64];
	struct jobj o;
	size_t i;

	json_array_foreach(kernels, i, item) {
		snprintf(path, sizeof(path), "$.audit.kernels[%zu]", i);
		if (json_begin(&o, item, in->file, path, in->err))
			return -1;
		json_get_string(&o, "name", true);
		json_get_int(&o, "launches", true, 0, 0);
		if (json_end(&o))
			return -1;
	}
	in->r->audit.kernels = json_incref((json_t *)kernels);
	return 0;
}

static int read_audit(struct reading *in, const json_t *value)
{
	struct report *r = in->r;
	const json_t *list, *item;
	struct jobj o;
	char path[64];
	size_t i;

	if (value == NULL)
		return 0;
	if (json_begin(&o, value, in->file, "$.audit", in->err))
		return -1;
	r->audit.present = true;
	r->audit.source = json_get_owned(&o, "source", true, false);
	r->audit.agrees = json_get_bool(&o, "agrees", true, false);
	list = json_get_array(&o, "mismatches", false);
	r->audit.mismatches = xcalloc(json_array_size(list), sizeof(*r->audit.mismatches));
	json_array_foreach(list, i, item) {
		snprintf(path, sizeof(path), "$.audit.mismatches[%zu]", i);
		if (!json_is_string(item))
			return json_expected(item, "a string", in->file, path, in->err);
		r->audit.mismatches[r->audit.n_mismatches++] = xstrdup(json_string_value(item));
	}
	if (read_kernels(in, json_get_array(&o, "kernels", false)))
		return -1;
	return json_end(&o);
}

/* ---- modes ---- */

static int keep_step(struct reading *in, struct steps_reader *steps, struct report_step *to, const struct step *s,
		     int32_t id, bool forced)
{
	char what[160];

	if (s->id != id) {
		snprintf(what, sizeof(what), "expected id %d as in ids, found %d", id, s->id);
		return steps_refuse(steps, what);
	}
	if (s->has_margin != s->has_lse || s->has_lse != (s->n_top > 0))
		return steps_refuse(steps, "expected margin, lse and top together, found only some of them");
	if (s->has_given && !forced)
		return steps_refuse(steps, "given belongs to mode forced alone");
	*to = (struct report_step){ .id = id, .has_logits = s->n_top > 0, .n_top = s->n_top, .has_given = s->has_given,
				    .has_hash = s->has_hash };
	if (to->has_logits) {
		to->margin = s->margin;
		to->lse = s->lse;
		to->top = report_tops(in->r, (size_t)s->n_top);
		memcpy(to->top, s->top, (size_t)s->n_top * sizeof(s->top[0]));
	}
	if (s->has_given) {
		to->given = s->given;
		to->given_logit = s->given_logit;
		to->given_rank = s->given_rank;
	}
	if (s->has_hash)
		to->logits_xxh64 = s->hash;
	return report_check_step(to, what, sizeof(what)) ? steps_refuse(steps, what) : 0;
}

static int read_steps(struct reading *in, struct report_row *row, const json_t *marker, const char *path,
		      bool forced)
{
	struct steps_reader steps;
	struct step s;
	int more = -1;

	if (steps_begin(&steps, in->doc, marker, path, STEPS_REPORT, in->err))
		return -1;
	row->steps = xcalloc((size_t)row->n, sizeof(*row->steps));
	while ((more = steps_next(&steps, &s)) > 0 && steps.n <= row->n)
		if (keep_step(in, &steps, &row->steps[steps.n - 1], &s, row->ids[steps.n - 1], forced))
			return -1;
	if (more < 0)
		return -1;
	if (more > 0 || steps.n != row->n)
		return err_set(in->err, ERR_INPUT, "%s: %s: expected %d steps, one for each of ids, found %s", in->file, path,
			       row->n, more > 0 ? "more" : "fewer");
	int odd = report_check_hashes(row);

	if (odd >= 0)
		return err_set(in->err, ERR_INPUT, "%s: %s[%d]: expected logits_xxh64 at every step that has logits, or at none", in->file, path,
			       odd);
	return 0;
}

static int read_row(struct reading *in, struct report_mode *m, const json_t *value, const char *path, bool forced)
{
	struct report_row *row = &m->rows[m->n_rows];
	const json_t *steps;
	char inner[160];
	struct jobj o;

	if (json_begin(&o, value, in->file, path, in->err))
		return -1;
	m->n_rows++;
	row->id = json_get_owned(&o, "id", true, false);
	row->text = json_get_owned(&o, "text", false, true);
	row->wall_s = json_is_null_member(&o, "wall_s") ? -1 : plain_number(&o, "wall_s", false, -1);
	snprintf(inner, sizeof(inner), "%s.prompt_ids", path);
	if (json_as_ids(json_get(&o, "prompt_ids", true), &row->prompt_ids, &row->n_prompt, in->file, inner, in->err))
		return -1;
	snprintf(inner, sizeof(inner), "%s.ids", path);
	if (json_as_ids(json_get(&o, "ids", true), &row->ids, &row->n, in->file, inner, in->err))
		return -1;
	steps = json_get(&o, "steps", false);
	snprintf(inner, sizeof(inner), "%s.steps", path);
	if (json_end(&o) || (steps != NULL && read_steps(in, row, steps, inner, forced)))
		return -1;
	if (report_row_find(m, row->id) != row)
		return err_set(in->err, ERR_INPUT, "%s: %s: a second entry for prompt \"%.100s\"", in->file, path, row->id);
	return 0;
}

static int read_total(struct reading *in, struct report_mode *m, const json_t *value, const char *path)
{
	struct jobj o;

	if (json_begin(&o, value, in->file, path, in->err))
		return -1;
	for (int c = 0; c < N_COUNTERS; c++)
		m->total.n[c] = json_get_int(&o, counter_name(c), false, 0, COUNTER_ABSENT);
	return json_end(&o);
}

static int read_trace(struct reading *in, struct report_mode *m, const json_t *marker, const char *path)
{
	struct steps_reader rows;
	struct report_trace row;
	int room = 0, more;

	if (steps_begin(&rows, in->doc, marker, path, STEPS_TRACE, in->err))
		return -1;
	while ((more = steps_next_trace(&rows, &row)) > 0) {
		if (m->n_trace == room) {
			room = room ? 2 * room : 64;
			m->trace = xrealloc(m->trace, (size_t)room, sizeof(*m->trace));
		}
		m->trace[m->n_trace++] = row;
	}
	return more;
}

static int read_mode(struct reading *in, struct report_mode *m, const json_t *value, enum mode mode)
{
	const json_t *rows, *item, *trace;
	char path[64], inner[96];
	struct jobj o;
	size_t i;

	snprintf(path, sizeof(path), "$.modes.%s", mode_name(mode));
	if (json_begin(&o, value, in->file, path, in->err))
		return -1;
	m->present = true;
	rows = json_get_array(&o, "prompts", true);
	m->rows = xcalloc(json_array_size(rows), sizeof(*m->rows));
	json_array_foreach(rows, i, item) {
		snprintf(inner, sizeof(inner), "%s.prompts[%zu]", path, i);
		if (read_row(in, m, item, inner, mode == MODE_FORCED))
			return -1;
	}
	snprintf(inner, sizeof(inner), "%s.counters_total", path);
	if (read_total(in, m, json_get(&o, "counters_total", true), inner))
		return -1;
	trace = json_get(&o, "trace", true);
	snprintf(inner, sizeof(inner), "%s.trace", path);
	if (json_end(&o))
		return -1;
	return read_trace(in, m, trace, inner);
}

/* The same logits by their hash, and other numbers: one of the two rows was changed. */
static int compare_modes(struct reading *in)
{
	const struct report_mode *a = &in->r->modes[MODE_FREE], *b = &in->r->modes[MODE_FORCED];

	for (int i = 0; i < a->n_rows; i++) {
		const struct report_row *other = report_row_find(b, a->rows[i].id);
		int t = other ? report_check_modes(&a->rows[i], other) : -1;

		if (t >= 0)
			return err_set(in->err, ERR_INPUT, "%s: $.modes.free.prompts[%d].steps[%d]: the logits_xxh64 of mode forced, and other "
				       "logits in top", in->file, i, t);
	}
	return 0;
}

static int read_modes(struct reading *in, const json_t *modes)
{
	const char *key;
	json_t *value;

	/* in document order: steps.h */
	json_object_foreach((json_t *)modes, key, value) {
		int m = 0;

		while (m < N_MODES && strcmp(key, mode_name(m)) != 0)
			m++;
		if (m == N_MODES)
			return err_set(in->err, ERR_INPUT, "%s: $.modes: unknown key \"%.100s\"", in->file, key);
		if (read_mode(in, &in->r->modes[m], value, m))
			return -1;
	}
	return compare_modes(in);
}

/* ---- the whole ---- */

static int read_report(struct reading *in)
{
	static const char *const schema[] = { "assay/report/1", NULL };
	struct report *r = in->r;
	const json_t *part;
	struct jobj o;

	if (json_begin(&o, in->doc->json, in->file, "$", in->err))
		return -1;
	json_get_word(&o, "schema", true, schema, 0);
	r->leg = json_get_owned(&o, "leg", true, false);
	json_get_sha256(&o, "golden_sha256", true, true, r->golden_sha256);
	r->peak_rss_bytes = nullable_int(&o, "peak_rss_bytes");
	r->peak_device_bytes = nullable_int(&o, "peak_device_bytes");
	if (in->err->kind == ERR_NONE && !json_is_name(r->leg))
		err_set(in->err, ERR_INPUT, "%s: $.leg: expected a name of letters, digits, _ and -, found \"%.100s\"", in->file,
			r->leg);
	part = json_get(&o, "requested", true);
	if (in->err->kind != ERR_NONE ||
	    arm_from_json(&r->requested, &r->requested_at, part, in->file, "$.requested", true, in->err))
		return -1;
	part = json_get(&o, "effective", true);
	if (in->err->kind != ERR_NONE ||
	    arm_from_json(&r->effective, &r->effective_at, part, in->file, "$.effective", true, in->err))
		return -1;
	if (read_engine(in, json_get(&o, "engine", true)) || read_host(in, json_get(&o, "host", true)) ||
	    read_model(in, json_get(&o, "model", true)) || read_audit(in, json_get(&o, "audit", false)))
		return -1;
	part = json_get(&o, "timing", true);
	if (part == NULL || read_timing(in, part))
		return -1;
	part = json_get(&o, "busy", true);
	if (part == NULL || read_busy(in, part))
		return -1;
	part = json_get_object(&o, "modes", true);
	return json_end(&o) || read_modes(in, part) ? -1 : 0;
}

int report_load_bytes(struct report *r, const char *bytes, size_t size, const char *name, struct err *err)
{
	struct steps_doc doc;
	struct reading in = { .r = r, .doc = &doc, .file = name, .err = err };

	*r = (struct report){ 0 };
	if (steps_open(&doc, bytes, size, name, "modes", err))
		return -1;
	read_report(&in);
	if (steps_close(&doc, err)) {
		report_release(r);
		return -1;
	}
	return 0;
}

int report_load(struct report *r, const char *path, struct err *err)
{
	size_t size;
	char *bytes;
	int status;

	*r = (struct report){ 0 };
	bytes = file_read(path, FILE_LIMIT, &size, err);
	if (bytes == NULL)
		return -1;
	status = report_load_bytes(r, bytes, size, path, err);
	free(bytes);
	return status;
}

static void release_cells(struct report_cell *cells, int n)
{
	for (int i = 0; i < n; i++) {
		free(cells[i].name);
		free(cells[i].value);
	}
	free(cells);
}

static void release_mode(struct report_mode *m)
{
	for (int i = 0; i < m->n_rows; i++) {
		free(m->rows[i].id);
		free(m->rows[i].prompt_ids);
		free(m->rows[i].ids);
		free(m->rows[i].text);
		free(m->rows[i].steps);
	}
	free(m->rows);
	free(m->trace);
}

void report_release(struct report *r)
{
	char *strings[] = {
		r->leg, r->engine.name, r->engine.version, r->engine.git, r->engine.flags, r->host.name, r->host.cpu,
		r->host.kernel, r->host.gpu, r->host.arch, r->host.driver, r->host.cuda, r->model.name, r->audit.source,
	};

	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		free(strings[i]);
	arm_at_release(&r->requested_at);
	arm_at_release(&r->effective_at);
	release_cells(r->engine.features, r->engine.n_features);
	release_cells(r->model.files, r->model.n_files);
	json_decref(r->model.config);
	json_decref(r->busy);
	json_decref(r->audit.kernels);
	for (int i = 0; i < r->audit.n_mismatches; i++)
		free(r->audit.mismatches[i]);
	free(r->audit.mismatches);
	for (int m = 0; m < N_MODES; m++)
		release_mode(&r->modes[m]);
	tops_free(&r->arena);
	*r = (struct report){ 0 };
}

const struct report_row *report_row_find(const struct report_mode *m, const char *prompt)
{
	for (int i = 0; i < m->n_rows; i++)
		if (strcmp(m->rows[i].id, prompt) == 0)
			return &m->rows[i];
	return NULL;
}

struct top *report_tops(struct report *r, size_t n)
{
	return tops_alloc(&r->arena, n);
}
