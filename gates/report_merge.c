#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "contract/file.h"
#include "contract/json.h"
#include "report_merge.h"

static void append(json_t *to, const json_t *from)
{
	const json_t *item;
	size_t i;

	json_array_foreach(from, i, item) {
		json_array_append(to, (json_t *)item);
	}
}

static void append_trace(json_t *to, const json_t *from)
{
	json_int_t offset = (json_int_t)json_array_size(to);
	json_t *row;
	size_t i;

	json_array_foreach(from, i, row) {
		json_t *copy = json_copy(row);

		json_object_set_new(copy, "step", json_integer(offset + (json_int_t)i));
		json_array_append_new(to, copy);
	}
}

static void add_totals(json_t *to, const json_t *from)
{
	const char *name;
	json_t *count;

	json_object_foreach(to, name, count) {
		json_integer_set(count, json_integer_value(count) + json_integer_value(json_object_get(from, name)));
	}
}

static void merge_mode(json_t *to, const json_t *from)
{
	append(json_object_get(to, "prompts"), json_object_get(from, "prompts"));
	append_trace(json_object_get(to, "trace"), json_object_get(from, "trace"));
	add_totals(json_object_get(to, "counters_total"), json_object_get(from, "counters_total"));
}

static json_int_t timed_tokens(const json_t *report)
{
	return json_integer_value(json_object_get(json_object_get(json_object_get(report, "timing"), "per_token_ms"), "n"));
}

static void keep_larger(json_t *to, const json_t *from, const char *key)
{
	json_t *a = json_object_get(to, key), *b = json_object_get(from, key);

	if (json_is_integer(b) && (!json_is_integer(a) || json_integer_value(b) > json_integer_value(a)))
		json_object_set(to, key, b);
}

/* An audit that disagrees once disagrees. */
static void merge_audit(json_t *to, const json_t *from)
{
	json_t *a = json_object_get(to, "audit"), *b = json_object_get(from, "audit");

	if (a && b && json_is_true(json_object_get(a, "agrees")) && !json_is_true(json_object_get(b, "agrees")))
		json_object_set(to, "audit", b);
}

static int check_same(const json_t *a, const json_t *b, const char *part, struct err *err)
{
	static const char *const same[] = {"schema", "leg", "requested", "effective", "engine", "model", "golden_sha256"};

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		const json_t *x = json_object_get(a, same[i]), *y = json_object_get(b, same[i]);

		if (x != y && !json_equal(x, y))
			return err_set(err, ERR_INPUT, "%s: $.%s: is not that of the prompts before", part, same[i]);
	}
	return 0;
}

static void merge(json_t *whole, const json_t *part)
{
	const char *name;
	json_t *mode;

	json_object_foreach(json_object_get(whole, "modes"), name, mode) {
		merge_mode(mode, json_object_get(json_object_get(part, "modes"), name));
	}
	if (timed_tokens(part) > timed_tokens(whole)) {
		json_object_set(whole, "timing", json_object_get(part, "timing"));
		json_object_set(whole, "busy", json_object_get(part, "busy"));
	}
	keep_larger(whole, part, "peak_rss_bytes");
	keep_larger(whole, part, "peak_device_bytes");
	merge_audit(whole, part);
}

int report_merge(const char *whole, const char *part, struct err *err)
{
	json_t *a, *b;
	int failed;

	if (!file_exists(whole))
		return rename(part, whole) ? err_set(err, ERR_FAILED, "%s: cannot be moved", part) : 0;
	a = json_read_file(whole, false, err);
	b = json_read_file(part, false, err);
	failed = !a || !b || check_same(a, b, part, err);
	if (!failed) {
		merge(a, b);
		failed = json_write_file(a, whole, JSON_COMPACT, err);
	}
	json_decref(a);
	json_decref(b);
	unlink(part);
	return failed ? -1 : 0;
}
