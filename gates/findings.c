#include "page.h"

#include <stdlib.h>
#include <string.h>

#include "contract/utf8.h"

int findings_load(struct findings *f, const char *run_dir, struct err *err)
{
	char *judged = path_join(run_dir, "verdict.json");

	*f = (struct findings){ 0 };
	if (!evidence_load(&f->evidence, run_dir, NULL, err)) {
		for (int i = 0; i < f->evidence.n_legs; i++)
			tokens_compare(&f->evidence, &f->evidence.legs[i]);
		f->verdict = file_exists(judged) ? verdict_load(run_dir, err) : verdict_judge(run_dir, err);
	}
	free(judged);
	if (f->verdict) {
		const char *sha256 = json_string_value(json_object_get(json_object_get(f->verdict, "recipe"), "sha256"));

		if (!sha256 || strcmp(sha256, f->evidence.recipe.sha256) != 0)
			err_set(err, ERR_INPUT, "%s/verdict.json: is not of the recipe.yaml beside it (assay judge %s)", run_dir, run_dir);
	}
	return err->kind ? -1 : 0;
}

void findings_release(struct findings *f)
{
	if (f->evidence.dir)
		evidence_release(&f->evidence);
	json_decref(f->verdict);
	*f = (struct findings){ 0 };
}

const json_t *findings_leg(const struct findings *f, int leg)
{
	return json_object_get(json_object_get(f->verdict, "legs"), f->evidence.legs[leg].want->name);
}

/* ---- text */

char *text_short(const char *s, int most)
{
	size_t size, at = 0, n = 0;
	char *clean = utf8_lossy(s, strlen(s), &size), *to = xmalloc(12 * size + 8);
	int shown = 0;

	while (at < size && (most == 0 || shown < most)) {
		uint32_t code;
		size_t bytes = utf8_get(clean + at, &code);

		if (unicode_is_hidden(code)) {
			n += (size_t)sprintf(to + n, code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\u{%x}", (unsigned)code);
		} else {
			memcpy(to + n, clean + at, bytes);
			n += bytes;
		}
		at += bytes;
		shown++;
	}
	strcpy(to + n, at < size ? "\xe2\x80\xa6" : "");
	free(clean);
	return to;
}

char *text_plain(const char *s)
{
	return text_short(s, 0);
}

char *text_xml(const char *s)
{
	char *plain = text_plain(s), *to = xmalloc(6 * strlen(plain) + 1), *at = to;

	for (const char *p = plain; *p; p++)
		switch (*p) {
		case '&': at = stpcpy(at, "&amp;"); break;
		case '<': at = stpcpy(at, "&lt;"); break;
		case '>': at = stpcpy(at, "&gt;"); break;
		case '"': at = stpcpy(at, "&quot;"); break;
		case '\'': at = stpcpy(at, "&#39;"); break;
		default: *at++ = *p;
		}
	*at = '\0';
	free(plain);
	return to;
}
