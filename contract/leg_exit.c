#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"

/* A string that has its place in the struct; null is "" if `null_ok`. */
static void get_short(struct jobj *o, const char *key, bool null_ok, char *to, size_t size)
{
	char *text = json_get_owned(o, key, true, null_ok), path[64];

	to[0] = '\0';
	if (text != NULL && strlen(text) >= size)
		err_set(o->err, ERR_INPUT, "%s: %s: expected at most %zu bytes, found %zu", o->file,
			json_path(path, sizeof(path), o->path, key), size - 1, strlen(text));
	else if (text != NULL)
		memcpy(to, text, strlen(text) + 1);
	free(text);
}

/* Appends the strings of an array; *n counts them, so that a release after an error finds them. */
static int get_strings(struct jobj *o, const char *key, char **to, int *n, size_t most)
{
	const json_t *list = json_get_array(o, key, true), *item;
	char path[64];
	size_t i;

	if (json_array_size(list) > most)
		return err_set(o->err, ERR_INPUT, "%s: $.%s: expected at most %zu items, found %zu", o->file, key, most,
			       json_array_size(list));
	json_array_foreach(list, i, item) {
		snprintf(path, sizeof(path), "$.%s[%zu]", key, i);
		if (!json_is_string(item))
			return json_expected(item, "a string", o->file, path, o->err);
		to[(*n)++] = xstrdup(json_string_value(item));
	}
	return 0;
}

/* -1: null. */
static int get_code(struct jobj *o)
{
	int64_t code = json_is_null_member(o, "exit_code") ? -1 : json_get_int(o, "exit_code", true, 0, 0);

	if (code > 255)
		err_set(o->err, ERR_INPUT, "%s: $.exit_code: expected at most 255, found %lld", o->file, (long long)code);
	return (int)code;
}

static int check_exit(const struct leg_exit *e, const char *file, struct err *err)
{
	bool ended = e->ended[0] != '\0', code = e->exit_code >= 0, signal = e->signal[0] != '\0';

	if (!json_is_name(e->leg))
		return err_set(err, ERR_INPUT, "%s: $.leg: expected a name of letters, digits, _ and -, found \"%.100s\"", file,
			       e->leg);
	if ((code && signal) || (ended && !code && !signal && !e->timed_out))
		return err_set(err, ERR_INPUT, "%s: $: expected exactly one of exit_code and signal, found %s", file,
			       code ? "both" : "neither");
	return 0;
}

static int read_exit(struct leg_exit *e, const json_t *json, const char *file, struct err *err)
{
	static const char *const schema[] = { "assay/exit/1", NULL };
	struct jobj o;
	size_t size;

	if (json_begin(&o, json, file, "$", err))
		return -1;
	json_get_word(&o, "schema", true, schema, 0);
	e->leg = json_get_owned(&o, "leg", true, false);
	size = json_array_size(json_get_array(&o, "argv", true));
	e->argv = xcalloc(size + 1, sizeof(*e->argv));
	if (get_strings(&o, "argv", e->argv, &e->argc, size) ||
	    get_strings(&o, "stderr_tail", e->tail, &e->n_tail, EXIT_TAIL))
		return -1;
	get_short(&o, "started", false, e->started, sizeof(e->started));
	get_short(&o, "ended", true, e->ended, sizeof(e->ended));
	get_short(&o, "signal", true, e->signal, sizeof(e->signal));
	e->exit_code = get_code(&o);
	e->timed_out = json_get_bool(&o, "timed_out", true, false);
	return json_end(&o) || check_exit(e, file, err) ? -1 : 0;
}

int leg_exit_load(struct leg_exit *e, const char *path, struct err *err)
{
	json_t *json = json_read_file(path, false, err);
	int status;

	*e = (struct leg_exit){ 0 };
	if (json == NULL)
		return -1;
	status = read_exit(e, json, path, err);
	json_decref(json);
	if (status)
		leg_exit_release(e);
	return status;
}

static json_t *strings_to_json(char *const *strings, int n)
{
	json_t *out = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(out, json_string_lossy(strings[i]));
	return out;
}

int leg_exit_save(const struct leg_exit *e, const char *path, struct err *err)
{
	json_t *out = json_object();
	int status;

	json_put(out, "schema", json_string("assay/exit/1"));
	json_put(out, "leg", json_string(e->leg));
	json_put(out, "argv", strings_to_json(e->argv, e->argc));
	json_put(out, "started", json_string(e->started));
	json_put(out, "ended", e->ended[0] != '\0' ? json_string(e->ended) : json_null());
	json_put(out, "exit_code", e->exit_code >= 0 ? json_integer(e->exit_code) : json_null());
	json_put(out, "signal", e->signal[0] != '\0' ? json_string(e->signal) : json_null());
	json_put(out, "timed_out", json_boolean(e->timed_out));
	json_put(out, "stderr_tail", strings_to_json(e->tail, e->n_tail));
	status = json_write_file(out, path, JSON_INDENT(1) | JSON_FLAT, err);

	json_decref(out);
	return status;
}

void leg_exit_release(struct leg_exit *e)
{
	free(e->leg);
	for (int i = 0; i < e->argc; i++)
		free(e->argv[i]);
	free(e->argv);
	for (int i = 0; i < e->n_tail; i++)
		free(e->tail[i]);
	*e = (struct leg_exit){ 0 };
}
