#include "tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"

/* The split that the ByteLevel pre-tokenizer makes by itself: GPT-2's. */
#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Records "FILE: PATH.key: WHAT"; nothing if the walk has failed already. */
static int refuse(struct jobj *o, const char *key, const char *what)
{
	char path[512];

	return err_set(o->err, ERR_INPUT, "%s: %s: %s", o->file, json_path(path, sizeof(path), o->path, key), what);
}

static int refuse_name(struct jobj *o, const char *key, const char *name, const char *supported)
{
	char what[512];

	snprintf(what, sizeof(what), "%.100s is not supported (%s)", name, supported);
	return refuse(o, key, what);
}

/* ---- model ---- */

static int read_vocab(struct tokenizer *t, const json_t *vocab, struct err *err)
{
	const char *text;
	json_t *value;
	char path[512];

	json_object_foreach((json_t *)vocab, text, value) {
		int64_t id;

		json_path(path, sizeof(path), "$.model.vocab", text);
		if (json_as_int(value, 0, &id, t->path, path, err))
			return -1;
		if (id > BPE_MAX_ID)
			return err_set(err, ERR_INPUT, "%s: %s: expected an id of at most %d, found %lld", t->path, path,
				       BPE_MAX_ID, (long long)id);
		if (bpe_add_token(&t->bpe, text, strlen(text), (int32_t)id))
			return err_set(err, ERR_INPUT, "%s: %s: the id %d is given twice", t->path, path, (int)id);
	}
	return 0;
}

/* The two sides of a merge, ["a", "b"] or "a b", as places in the file's strings. */
static const char *merge_sides(const json_t *merge, const char **left, size_t *left_len, const char **right)
{
	const char *both = json_string_value(merge), *space;

	if (both != NULL) {
		space = strchr(both, ' ');
		if (space == NULL || strchr(space + 1, ' ') != NULL || strncmp(both, "#version", 8) == 0)
			return "expected \"a b\" or [\"a\", \"b\"]";
		*left = both;
		*left_len = (size_t)(space - both);
		*right = space + 1;
		return NULL;
	}
	if (json_array_size(merge) != 2 || !json_is_string(json_array_get(merge, 0)) ||
	    !json_is_string(json_array_get(merge, 1)))
		return "expected \"a b\" or [\"a\", \"b\"]";
	*left = json_string_value(json_array_get(merge, 0));
	*left_len = strlen(*left);
	*right = json_string_value(json_array_get(merge, 1));
	return NULL;
}

static const char *read_merge(struct tokenizer *t, const json_t *merge)
{
	const char *left, *right, *wrong;
	size_t left_len, right_len;
	int32_t left_id, right_id, merged_id;
	char *merged;

	wrong = merge_sides(merge, &left, &left_len, &right);
	if (wrong != NULL)
		return wrong;
	right_len = strlen(right);
	merged = xmalloc(left_len + right_len + 1);
	memcpy(merged, left, left_len);
	memcpy(merged + left_len, right, right_len);
	left_id = bpe_find(&t->bpe, left, left_len);
	right_id = bpe_find(&t->bpe, right, right_len);
	merged_id = bpe_find(&t->bpe, merged, left_len + right_len);
	free(merged);
	if (left_id < 0)
		return "the left side is not in the vocabulary";
	if (right_id < 0)
		return "the right side is not in the vocabulary";
	if (merged_id < 0)
		return "the merged token is not in the vocabulary";
	if (bpe_add_merge(&t->bpe, left_id, right_id, merged_id))
		return "this merge is there already";
	return NULL;
}

static int read_merges(struct tokenizer *t, const json_t *merges, struct err *err)
{
	size_t i;
	json_t *merge;

	json_array_foreach((json_t *)merges, i, merge) {
		const char *wrong = read_merge(t, merge);

		if (wrong != NULL)
			return err_set(err, ERR_INPUT, "%s: $.model.merges[%zu]: %s", t->path, i, wrong);
	}
	return 0;
}

static void want_no_affix(struct jobj *o, const char *key)
{
	const char *affix = json_get_string(o, key, false);

	if (affix != NULL && affix[0] != '\0')
		refuse(o, key, "an affix is not supported");
}

static int read_model(struct tokenizer *t, const json_t *value, struct err *err)
{
	struct jobj o;
	const char *type, *unk;
	const json_t *dropout, *vocab, *merges;

	json_begin(&o, value, t->path, "$.model", err);
	type = json_get_string(&o, "type", true);
	if (type != NULL && strcmp(type, "BPE") != 0)
		return refuse_name(&o, "type", type, "BPE is");
	dropout = json_get(&o, "dropout", false);
	if (dropout != NULL && !json_is_null(dropout) && json_number_value(dropout) != 0)
		refuse(&o, "dropout", "dropout is not supported");
	want_no_affix(&o, "continuing_subword_prefix");
	want_no_affix(&o, "end_of_word_suffix");
	unk = json_get_string(&o, "unk_token", false);
	json_get_bool(&o, "fuse_unk", false, false);   /* acts on unknown tokens alone, of which there are none */
	if (json_get_bool(&o, "byte_fallback", false, false))
		refuse(&o, "byte_fallback", "byte fallback is not supported");
	t->bpe.ignore_merges = json_get_bool(&o, "ignore_merges", false, false);
	vocab = json_get_object(&o, "vocab", true);
	merges = json_get_array(&o, "merges", true);
	if (json_end(&o))
		return -1;
	bpe_open(&t->bpe, json_object_size(vocab), json_array_size(merges));
	if (read_vocab(t, vocab, err) || read_merges(t, merges, err))
		return -1;
	for (int c = 0; c < 256 && unk != NULL; c++)
		if (t->bpe.byte_id[c] < 0)
			return err_set(err, ERR_INPUT, "%s: $.model.unk_token: not supported in a vocabulary that has no "
				       "token for byte 0x%02X", t->path, c);
	return 0;
}

/* ---- added tokens ---- */

/* The id that the file must name: a token of the vocabulary keeps its id, any other gets the next free one. */
static int32_t expected_id(const struct tokenizer *t, const struct added_token *a, int32_t highest)
{
	int32_t id = bpe_find(&t->bpe, a->content, a->len);
	int32_t n = (int32_t)t->bpe.n_texts;

	return id >= 0 ? id : highest >= n ? highest + 1 : n;
}

static int read_added_token(struct tokenizer *t, const json_t *value, const char *path, int32_t *highest, json_t *seen,
			    struct err *err)
{
	struct added_token *a = &t->added[t->n_added];
	struct jobj o;
	const char *content;
	int64_t id;
	int32_t expected;

	json_begin(&o, value, t->path, path, err);
	id = json_get_int(&o, "id", true, 0, 0);
	content = json_get_string(&o, "content", true);
	a->single_word = json_get_bool(&o, "single_word", true, false);
	a->lstrip = json_get_bool(&o, "lstrip", true, false);
	a->rstrip = json_get_bool(&o, "rstrip", true, false);
	a->normalized = json_get_bool(&o, "normalized", true, false);
	a->special = json_get_bool(&o, "special", true, false);
	if (json_end(&o))
		return -1;
	if (content[0] == '\0' || json_object_get(seen, content) != NULL)
		return refuse(&o, "content", content[0] == '\0' ? "expected at least one character" :
			      "this token is added already");
	json_object_set_new(seen, content, json_true());
	a->content = xstrdup(content);
	a->len = strlen(content);
	t->n_added++;
	expected = expected_id(t, a, *highest);
	if (id != expected || id > BPE_MAX_ID)
		return err_set(err, ERR_INPUT, "%s: %s.id: expected %d (%s), found %lld", t->path, path, expected,
			       bpe_find(&t->bpe, content, a->len) >= 0 ? "its id in the vocabulary" :
			       "the first after all others", (long long)id);
	a->id = expected;
	if (a->id > *highest)
		*highest = a->id;
	if (bpe_find(&t->bpe, content, a->len) < 0 && bpe_name_id(&t->bpe, content, a->len, a->id))
		return refuse(&o, "id", "the vocabulary has another token of this id");
	if (a->single_word && t->word == NULL)
		t->word = regex_word_character();
	return 0;
}

static int by_content(const void *a, const void *b)
{
	const struct added_token *const *x = a, *const *y = b;

	return strcmp((*x)->content, (*y)->content);    /* bytes are compared unsigned, a prefix comes first */
}

static void index_added(struct tokenizer *t)
{
	t->special = xcalloc((size_t)t->bpe.size + 1, sizeof(*t->special));
	for (int pass = 0; pass < 2; pass++)
		t->passes[pass].order = xcalloc(t->n_added + 1, sizeof(*t->passes[pass].order));
	for (size_t i = 0; i < t->n_added; i++) {
		const struct added_token *a = &t->added[i];
		struct added_set *set = &t->passes[a->normalized];

		t->special[a->id] = a->special;
		set->order[set->n++] = a;
		set->starts[(unsigned char)a->content[0]] = true;
	}
	for (int pass = 0; pass < 2; pass++)
		qsort(t->passes[pass].order, t->passes[pass].n, sizeof(*t->passes[pass].order), by_content);
}

static int read_added(struct tokenizer *t, const json_t *list, struct err *err)
{
	json_t *seen = json_object(), *value;
	int32_t highest = -1;
	int failed = 0;
	size_t i;

	t->added = xcalloc(json_array_size(list) + 1, sizeof(*t->added));
	json_array_foreach((json_t *)list, i, value) {
		char path[64];

		snprintf(path, sizeof(path), "$.added_tokens[%zu]", i);
		failed = read_added_token(t, value, path, &highest, seen, err);
		if (failed)
			break;
	}
	json_decref(seen);
	if (!failed)
		index_added(t);
	return failed;
}

/* ---- pre-tokenizer and decoder ---- */

static int read_split(struct tokenizer *t, struct jobj *o)
{
	struct jobj pattern;
	const char *behavior, *regex;
	const json_t *value;
	char path[128], place[4096];

	value = json_get_object(o, "pattern", true);
	behavior = json_get_string(o, "behavior", true);
	if (behavior != NULL && strcmp(behavior, "Isolated") != 0)
		return refuse_name(o, "behavior", behavior, "Isolated is");
	if (json_get_bool(o, "invert", true, false))
		refuse(o, "invert", "an inverted split is not supported");
	if (json_end(o))
		return -1;
	snprintf(path, sizeof(path), "%s.pattern", o->path);
	json_begin(&pattern, value, o->file, path, o->err);
	if (json_object_get(value, "String") != NULL)
		return refuse(&pattern, "String", "a plain string is not supported (Regex is)");
	regex = json_get_string(&pattern, "Regex", true);
	if (json_end(&pattern))
		return -1;
	if (t->n_splits == TOKENIZER_SPLITS)
		return err_set(o->err, ERR_INPUT, "%s: %s: more than %d splits are not supported", o->file, o->path,
			       TOKENIZER_SPLITS);
	snprintf(place, sizeof(place), "%s: %s.Regex", o->file, path);
	t->splits[t->n_splits] = regex_compile(regex, place, o->err);
	return t->splits[t->n_splits++] == NULL ? -1 : 0;
}

/* The members of ByteLevel in any of its three roles. */
static int read_byte_level(struct jobj *o, bool *add_prefix_space, bool *use_regex)
{
	*add_prefix_space = json_get_bool(o, "add_prefix_space", true, false);
	json_get_bool(o, "trim_offsets", true, false);  /* moves offsets, which nobody asks for */
	*use_regex = json_get_bool(o, "use_regex", false, true);
	return json_end(o);
}

static int read_step(struct tokenizer *t, const json_t *value, const char *path, struct err *err)
{
	struct jobj o;
	const char *type;
	bool use_regex;

	json_begin(&o, value, t->path, path, err);
	type = json_get_string(&o, "type", true);
	if (type == NULL)
		return -1;
	if (t->byte_level)
		return err_set(err, ERR_INPUT, "%s: %s: expected ByteLevel to be the last of the Sequence", t->path, path);
	if (strcmp(type, "Split") == 0)
		return read_split(t, &o);
	if (strcmp(type, "ByteLevel") != 0)
		return refuse_name(&o, "type", type, "ByteLevel, or a Sequence of Split and ByteLevel, is");
	if (read_byte_level(&o, &t->add_prefix_space, &use_regex))
		return -1;
	t->byte_level = true;
	if (use_regex)
		t->gpt2 = regex_compile(GPT2_PATTERN, "GPT-2's split", err);
	return 0;
}

static int read_pre_tokenizer(struct tokenizer *t, const json_t *value, struct err *err)
{
	const char *type = json_string_value(json_object_get(value, "type"));
	const json_t *steps, *step;
	struct jobj o;

	if (type == NULL || strcmp(type, "Sequence") != 0) {
		if (read_step(t, value, "$.pre_tokenizer", err))
			return -1;
	} else {
		json_begin(&o, value, t->path, "$.pre_tokenizer", err);
		json_get(&o, "type", true);
		steps = json_get_array(&o, "pretokenizers", true);
		if (json_end(&o))
			return -1;
		for (size_t i = 0; (step = json_array_get(steps, i)) != NULL; i++) {
			char path[64];

			snprintf(path, sizeof(path), "$.pre_tokenizer.pretokenizers[%zu]", i);
			if (read_step(t, step, path, err))
				return -1;
		}
	}
	if (!t->byte_level)
		return err_set(err, ERR_INPUT, "%s: $.pre_tokenizer: expected a ByteLevel", t->path);
	return 0;
}

static int read_decoder(const struct tokenizer *t, const json_t *value, struct err *err)
{
	struct jobj o;
	const char *type;
	bool add_prefix_space, use_regex;

	json_begin(&o, value, t->path, "$.decoder", err);
	type = json_get_string(&o, "type", true);
	if (type != NULL && strcmp(type, "ByteLevel") != 0)
		return refuse_name(&o, "type", type, "ByteLevel is");
	return read_byte_level(&o, &add_prefix_space, &use_regex);
}

/* ---- post-processor ---- */

/* Appends the ids that a template's special token stands for. */
static int read_special(struct tokenizer *t, const json_t *specials, const char *name, const char *path, struct ids *to,
			struct err *err)
{
	struct jobj o;
	const json_t *special = json_object_get(specials, name), *ids;
	char at[320], item[352];

	if (special == NULL)
		return err_set(err, ERR_INPUT, "%s: %s.special_tokens: \"%.100s\", which the template names, is missing",
			       t->path, path, name);
	snprintf(at, sizeof(at), "%s.special_tokens", path);
	json_begin(&o, special, t->path, json_path(item, sizeof(item), at, name), err);
	json_get_string(&o, "id", true);
	json_get_array(&o, "tokens", true);
	ids = json_get_array(&o, "ids", true);
	if (json_end(&o))
		return -1;
	for (size_t i = 0; i < json_array_size(ids); i++) {
		char where[384];
		size_t len;
		int64_t id;

		snprintf(where, sizeof(where), "%s.ids[%zu]", item, i);
		if (json_as_int(json_array_get(ids, i), 0, &id, t->path, where, err))
			return -1;
		if (id >= t->bpe.size || bpe_bytes(&t->bpe, (int32_t)id, &len) == NULL)
			return err_set(err, ERR_INPUT, "%s: %s: there is no token %lld", t->path, where, (long long)id);
		ids_add(to, (int32_t)id);
	}
	return 0;
}

/* One part of a template; *sequence becomes true at the text's place. */
static int read_part(struct tokenizer *t, const json_t *part, const char *at, const json_t *specials, const char *path,
		     bool *sequence, struct err *err)
{
	struct jobj o, inner;
	const json_t *special, *text;
	const char *id;
	char inner_path[192];

	json_begin(&o, part, t->path, at, err);
	special = json_get_object(&o, "SpecialToken", false);
	text = json_get_object(&o, "Sequence", special == NULL);
	if (special != NULL && text != NULL)
		return err_set(err, ERR_INPUT, "%s: %s: expected one of SpecialToken and Sequence", t->path, at);
	if (json_end(&o))
		return -1;
	snprintf(inner_path, sizeof(inner_path), "%s.%s", at, special != NULL ? "SpecialToken" : "Sequence");
	json_begin(&inner, special != NULL ? special : text, t->path, inner_path, err);
	id = json_get_string(&inner, "id", true);
	json_get_int(&inner, "type_id", true, 0, 0);
	if (json_end(&inner))
		return -1;
	if (special != NULL)
		return read_special(t, specials, id, path, *sequence ? &t->after : &t->before, err);
	if (strcmp(id, "A") != 0 || *sequence)
		return refuse(&inner, "id", "expected the sequence A, once");
	*sequence = true;
	return 0;
}

static int read_template(struct tokenizer *t, struct jobj *o)
{
	const json_t *single, *specials, *part;
	bool sequence = false;

	single = json_get_array(o, "single", true);
	json_get_array(o, "pair", true);        /* nobody encodes pairs */
	specials = json_get_object(o, "special_tokens", true);
	if (json_end(o))
		return -1;
	if (t->has_template)
		return err_set(o->err, ERR_INPUT, "%s: %s: a second template is not supported", o->file, o->path);
	t->has_template = true;
	for (size_t i = 0; (part = json_array_get(single, i)) != NULL; i++) {
		char at[128];

		snprintf(at, sizeof(at), "%s.single[%zu]", o->path, i);
		if (read_part(t, part, at, specials, o->path, &sequence, o->err))
			return -1;
	}
	if (!sequence)
		return refuse(o, "single", "expected the sequence A, once");
	return 0;
}

static int read_processor(struct tokenizer *t, const json_t *value, const char *path, bool inner, struct err *err)
{
	const json_t *list, *processor;
	struct jobj o;
	const char *type;
	bool add_prefix_space, use_regex;

	json_begin(&o, value, t->path, path, err);
	type = json_get_string(&o, "type", true);
	if (type == NULL)
		return -1;
	if (strcmp(type, "ByteLevel") == 0)
		return read_byte_level(&o, &add_prefix_space, &use_regex);
	if (strcmp(type, "TemplateProcessing") == 0)
		return read_template(t, &o);
	if (strcmp(type, "Sequence") != 0 || inner)
		return refuse_name(&o, "type", type, "ByteLevel, TemplateProcessing, or a Sequence of them, is");
	list = json_get_array(&o, "processors", true);
	if (json_end(&o))
		return -1;
	for (size_t i = 0; (processor = json_array_get(list, i)) != NULL; i++) {
		char at[64];

		snprintf(at, sizeof(at), "%s.processors[%zu]", path, i);
		if (read_processor(t, processor, at, true, err))
			return -1;
	}
	return 0;
}

/* ---- the file ---- */

/* A member that must be null; an object is named by its type. */
static void want_null(struct jobj *o, const char *key)
{
	const json_t *value = json_get(o, key, false);
	const char *type = json_string_value(json_object_get(value, "type"));

	if (value != NULL && !json_is_null(value))
		refuse_name(o, key, type != NULL ? type : json_says(value), "null is");
}

static int read_top(struct tokenizer *t, const json_t *top, struct err *err)
{
	const json_t *added, *pre_tokenizer, *processor, *decoder, *model;
	struct jobj o;
	const char *version;

	json_begin(&o, top, t->path, "$", err);
	version = json_get_string(&o, "version", true);
	if (version != NULL && strcmp(version, "1.0") != 0)
		refuse_name(&o, "version", version, "1.0 is");
	want_null(&o, "truncation");
	want_null(&o, "padding");
	want_null(&o, "normalizer");
	added = json_get_array(&o, "added_tokens", false);
	pre_tokenizer = json_get(&o, "pre_tokenizer", true);
	processor = json_get(&o, "post_processor", false);
	decoder = json_get(&o, "decoder", true);
	model = json_get(&o, "model", true);
	if (json_end(&o) || read_model(t, model, err) || read_added(t, added, err) ||
	    read_pre_tokenizer(t, pre_tokenizer, err) || read_decoder(t, decoder, err))
		return -1;
	if (processor == NULL || json_is_null(processor))
		return 0;
	return read_processor(t, processor, "$.post_processor", false, err);
}

int tokenizer_read(struct tokenizer *t, struct err *err)
{
	json_t *top = json_read_file(t->path, false, err);
	int failed = top == NULL ? -1 : read_top(t, top, err);

	json_decref(top);
	return failed;
}
