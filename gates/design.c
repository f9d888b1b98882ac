/* What the legs can separate: rows are legs, columns are factors.  docs/judging.md, section 7. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "evidence.h"

const char *column_name(int column)
{
	return column == COLUMN_AT ? "at" : column == COLUMN_ENGINE ? "engine" : column == COLUMN_HOST ? "host" :
		factor_name((enum factor)column);
}

int column_find(const char *name)
{
	for (int c = 0; c < N_COLUMNS; c++)
		if (!strcmp(column_name(c), name))
			return c;
	return -1;
}

bool rows_differ_in(const struct design_row *a, const struct design_row *b, int column)
{
	switch (column) {
	case COLUMN_AT: return !arm_at_equal(a->at, b->at);
	case COLUMN_ENGINE: return strcmp(a->engine, b->engine) != 0;
	case COLUMN_HOST: return strcmp(a->host, b->host) != 0;
	default: return a->arm.value[column] != b->arm.value[column];
	}
}

int rows_only_difference(const struct design_row *a, const struct design_row *b)
{
	int only = -1;

	for (int c = 0; c < N_COLUMNS; c++) {
		if (!rows_differ_in(a, b, c))
			continue;
		if (only >= 0)
			return -1;
		only = c;
	}
	return only;
}

json_t *row_value(const struct design_row *r, int column)
{
	char buf[64];

	if (column == COLUMN_ENGINE)
		return json_string(r->engine);
	if (column == COLUMN_HOST)
		return json_string(r->host);
	if (column == COLUMN_AT) {
		json_t *arm = arm_to_json(&r->arm, r->at), *at = json_object_get(arm, "at");

		at = json_is_array(at) ? json_incref(at) : json_array();
		json_decref(arm);
		return at;
	}
	int v = r->arm.value[column];

	if (v == ARM_UNSET)
		return json_null();
	if (factor_is_number((enum factor)column) && v != ARM_ALL)
		return json_integer(v);
	return json_string(arm_text(&r->arm, (enum factor)column, buf, sizeof buf));
}

static bool same_split(const struct design *d, int a, int b)
{
	for (int i = 0; i < d->n_rows; i++)
		for (int j = i + 1; j < d->n_rows; j++)
			if (rows_differ_in(&d->rows[i], &d->rows[j], a) != rows_differ_in(&d->rows[i], &d->rows[j], b))
				return false;
	return true;
}

void design_measure(struct design *d)
{
	for (int c = 0; c < N_COLUMNS; c++) {
		d->varied[c] = false;
		d->separable[c][0] = d->separable[c][1] = -1;
		d->alias[c] = c;
	}
	for (int i = 0; i < d->n_rows; i++) {
		for (int j = i + 1; j < d->n_rows; j++) {
			int only = rows_only_difference(&d->rows[i], &d->rows[j]);

			for (int c = 0; c < N_COLUMNS; c++)
				d->varied[c] = d->varied[c] || rows_differ_in(&d->rows[i], &d->rows[j], c);
			if (only >= 0 && (d->separable[only][0] < 0 || i < d->separable[only][0])) {
				d->separable[only][0] = i;
				d->separable[only][1] = j;
			}
		}
	}
	for (int c = 0; c < N_COLUMNS; c++)
		for (int b = 0; b < c && d->alias[c] == c; b++)
			if (d->varied[c] && d->varied[b] && same_split(d, b, c))
				d->alias[c] = b;
}

/* Mean time per token; where the report does not count, the median it states. */
static double seconds_per_token(const struct report *r)
{
	if (!r->timing.present)
		return NAN;
	if (r->timing.decode_s > 0 && r->timing.n > 0)
		return r->timing.decode_s / (double)r->timing.n;
	return r->timing.p50 > 0 ? r->timing.p50 / 1000 : NAN;
}

void design_of_run(struct evidence *e)
{
	struct design *d = &e->design;

	d->rows = xcalloc((size_t)e->n_legs + 1, sizeof *d->rows);
	for (int i = 0; i < e->n_legs; i++) {
		const struct leg *l = &e->legs[i];

		if (leg_counts(l))
			d->rows[d->n_rows++] = (struct design_row){ .name = l->want->name, .leg = i, .arm = l->report.effective,
				.at = &l->report.effective_at, .engine = l->engine, .host = l->host,
				.seconds = seconds_per_token(&l->report) };
	}
	design_measure(d);
}

/* Before anything ran: what the recipe says, with the defaults that do not depend on the checkpoint. */
void design_of_recipe(struct design *d, const struct recipe *r)
{
	*d = (struct design){ .rows = xcalloc((size_t)r->n_legs + 1, sizeof *d->rows) };
	for (int i = 0; i < r->n_legs; i++) {
		const struct recipe_leg *l = &r->legs[i];
		struct design_row *row = &d->rows[d->n_rows++];

		*row = (struct design_row){ .name = l->name, .leg = i, .arm = l->arm, .at = &l->at, .seconds = NAN,
			.engine = l->engine == ENGINE_ARGV && l->argc ? l->argv[0] : l->engine == ENGINE_OPENAI ? l->url : "assay-engine",
			.host = l->host ? l->host : "here" };
		arm_defaults(&row->arm);
	}
	design_measure(d);
}

void design_release(struct design *d)
{
	for (int i = 0; i < d->n_candidates; i++) {
		free(d->candidates[i].pairs);
		free(d->candidates[i].gained);
	}
	free(d->candidates);
	free(d->rows);
	*d = (struct design){ 0 };
}
