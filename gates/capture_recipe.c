#include "capture.h"

#include <stdlib.h>
#include <string.h>

#include "suggest.h"

#define SCHEMA "assay/capture/1"
#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static const char *const program_names[] = {"transformers", "vllm", "openai", "argv"};

const char *capture_program_name(enum capture_program p)
{
	return program_names[p];
}

static int read_text(struct capture *c, char **to, const struct ynode *map, const char *key, const char *otherwise, struct err *err)
{
	const struct ynode *text = yaml_get(map, key);

	if (text && yaml_want_string(&c->yaml, text, key, err))
		return -1;
	*to = text ? xstrdup(text->text) : otherwise ? xstrdup(otherwise) : NULL;
	return 0;
}

static int need(struct capture *c, const struct ynode *map, const char *what, const char *const *keys, int n, struct err *err)
{
	for (int i = 0; i < n; i++)
		if (!yaml_get(map, keys[i]))
			return yaml_error(&c->yaml, map->at, err, "%s: missing key `%s`", what, keys[i]);
	return 0;
}

static int read_words(struct capture *c, struct capture_profile *p, const struct ynode *list, const char *what, struct err *err)
{
	if (!list)
		return 0;
	if (yaml_want_list(&c->yaml, list, what, err))
		return -1;
	p->args = xcalloc((size_t)list->n + 1, sizeof(*p->args));
	for (; p->n_args < list->n; p->n_args++) {
		const struct ynode *word = &list->items[p->n_args];

		if (word->kind != YNODE_SCALAR)
			return yaml_want_string(&c->yaml, word, what, err);
		p->args[p->n_args] = xstrdup(word->text);
	}
	return 0;
}

static int read_mode(struct capture *c, struct capture_profile *p, const struct ynode *map, struct err *err)
{
	static const char *const modes[] = {"free", "forced", "single", "batch"};
	bool vllm = p->program == CAPTURE_VLLM;
	const struct ynode *mode = yaml_get(map, "mode");
	char near[100];

	if (read_text(c, &p->mode, map, "mode", vllm ? "single" : "free", err))
		return -1;
	for (int i = vllm ? 1 : 0; i < (vllm ? 4 : 2); i++)
		if (strcmp(p->mode, modes[i]) == 0)
			return 0;
	return yaml_error(&c->yaml, mode->at, err, "mode: unknown mode `%.60s`%s", p->mode,
			  suggest(near, sizeof(near), p->mode, vllm ? modes + 1 : modes, vllm ? 3 : 2));
}

/* The keys of each program, beside `program` and `mode`. */
static int read_program(struct capture *c, struct capture_profile *p, const struct ynode *map, struct err *err)
{
	static const char *const keys[N_CAPTURE_PROGRAMS][6] = {
		{"program", "mode", "args"}, {"program", "mode", "args"}, {"program", "mode", "url", "model", "prompts", "key_env"},
		{"program", "mode", "argv"},
	};
	static const char *const openai[] = {"url", "model"}, *const argv[] = {"argv"};
	int n_keys[N_CAPTURE_PROGRAMS] = {3, 3, 6, 3};
	const struct ynode *prompts = yaml_get(map, "prompts");

	if (yaml_want_keys(&c->yaml, map, p->name, keys[p->program], n_keys[p->program], err) || read_mode(c, p, map, err))
		return -1;
	if (p->program == CAPTURE_ARGV && (need(c, map, p->name, argv, 1, err) || read_words(c, p, yaml_get(map, "argv"), "argv", err)))
		return -1;
	if (p->program == CAPTURE_ARGV)
		return p->n_args ? 0 : yaml_error(&c->yaml, yaml_get(map, "argv")->at, err, "argv: no program in it");
	if (p->program != CAPTURE_OPENAI)
		return read_words(c, p, yaml_get(map, "args"), "args", err);
	if (need(c, map, p->name, openai, 2, err) || read_text(c, &p->url, map, "url", NULL, err)
	    || read_text(c, &p->model, map, "model", NULL, err) || read_text(c, &p->key_env, map, "key_env", NULL, err)
	    || (prompts && yaml_want_string(&c->yaml, prompts, "prompts", err)))
		return -1;
	p->text = prompts && strcmp(prompts->text, "text") == 0;
	if (prompts && !p->text && strcmp(prompts->text, "ids") != 0)
		return yaml_error(&c->yaml, prompts->at, err, "prompts: expected `ids` or `text`, found `%.60s`", prompts->text);
	return 0;
}

static int read_profile(struct capture *c, struct capture_profile *p, const struct ynode *map, struct err *err)
{
	const struct ynode *program;
	char near[100];
	int k = 0;

	if (yaml_want_map(&c->yaml, map, p->name, err))
		return -1;
	program = yaml_get(map, "program");
	if (!program)
		return yaml_error(&c->yaml, map->at, err, "%s: missing key `program`", p->name);
	if (yaml_want_string(&c->yaml, program, "program", err))
		return -1;
	while (k < N_CAPTURE_PROGRAMS && strcmp(program->text, program_names[k]) != 0)
		k++;
	if (k == N_CAPTURE_PROGRAMS)
		return yaml_error(&c->yaml, program->at, err, "program: unknown program `%.60s`%s", program->text,
				  suggest(near, sizeof(near), program->text, program_names, N_CAPTURE_PROGRAMS));
	p->program = (enum capture_program)k;
	return read_program(c, p, map, err);
}

static int read_profiles(struct capture *c, const struct ynode *map, struct err *err)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

	if (yaml_want_map(&c->yaml, map, "profiles", err))
		return -1;
	if (map->n == 0)
		return yaml_error(&c->yaml, map->at, err, "profiles: none in it");
	c->profiles = xcalloc((size_t)map->n, sizeof(*c->profiles));
	for (int i = 0; i < map->n; i++) {
		struct capture_profile *p = &c->profiles[c->n_profiles++];

		p->name = xstrdup(map->keys[i]);
		if (strspn(p->name, letters) != strlen(p->name) || strlen(p->name) > 64 || strchr("-_", p->name[0]))
			return yaml_error(&c->yaml, map->key_at[i], err, "profile `%.80s`: a name is up to 64 letters, digits, - and _, and "
					  "starts with a letter or digit", p->name);
		if (read_profile(c, p, &map->items[i], err))
			return -1;
		if (i == 0 && strcmp(p->mode, "forced") == 0)
			return yaml_error(&c->yaml, map->key_at[i], err, "profile `%.80s`: the first profile runs freely: its ids are what mode "
					  "forced feeds", p->name);
	}
	return 0;
}

static int read_numbers(struct capture *c, const struct ynode *root, struct err *err)
{
	const struct ynode *repeats = yaml_get(root, "repeats"), *timeout = yaml_get(root, "timeout_s"), *tokens = yaml_get(root, "tokens");
	int64_t n = 2;

	c->timeout_s = 3600;
	if (repeats && yaml_want_int(&c->yaml, repeats, "repeats", 2, 1000, &n, err))
		return -1;
	c->repeats = (int)n;
	if (timeout && yaml_want_number(&c->yaml, timeout, "timeout_s", &c->timeout_s, err))
		return -1;
	if (c->timeout_s <= 0)
		return yaml_error(&c->yaml, timeout->at, err, "timeout_s: %s is not more than 0", timeout->text);
	if (tokens->kind != YNODE_SCALAR || (strncmp(tokens->text, "like:", 5) != 0 && (!ynode_is_int(tokens, &n) || n < 1 || n > 1 << 24)))
		return yaml_error(&c->yaml, tokens->at, err, "tokens: expected a number, or like:GOLDEN:PROFILE");
	c->tokens = xstrdup(tokens->text);
	c->tokens_at = tokens->at;
	return 0;
}

static int read_capture(struct capture *c, struct err *err)
{
	static const char *const known[] = {"schema", "name", "model", "prompts", "golden", "tokens", "repeats", "timeout_s", "python",
					    "profiles"};
	static const char *const needed[] = {"schema", "name", "model", "prompts", "golden", "tokens", "profiles"};
	const struct ynode *root = &c->yaml.root, *schema;
	char found[100];

	if (yaml_want_map(&c->yaml, root, "capture", err))
		return -1;
	schema = yaml_get(root, "schema");
	if (schema && (schema->kind != YNODE_SCALAR || strcmp(schema->text, SCHEMA) != 0))
		return yaml_error(&c->yaml, schema->at, err, "schema: expected `%s`, found %s", SCHEMA,
				  yaml_describe(schema, found, sizeof(found)));
	if (yaml_want_keys(&c->yaml, root, "capture", known, COUNT(known), err) || need(c, root, "capture", needed, COUNT(needed), err)
	    || read_text(c, &c->name, root, "name", NULL, err) || read_text(c, &c->model, root, "model", NULL, err)
	    || read_text(c, &c->prompts, root, "prompts", NULL, err) || read_text(c, &c->golden, root, "golden", NULL, err)
	    || read_text(c, &c->python, root, "python", "python3", err))
		return -1;
	c->model_at = yaml_get(root, "model")->at;
	c->prompts_at = yaml_get(root, "prompts")->at;
	return read_numbers(c, root, err) || read_profiles(c, yaml_get(root, "profiles"), err);
}

int capture_load_bytes(struct capture *c, const char *bytes, size_t size, const char *name, struct err *err)
{
	*c = (struct capture){.file = xstrdup(name)};
	return yaml_load_bytes(&c->yaml, bytes, size, name, err) || read_capture(c, err) ? -1 : 0;
}

void capture_release(struct capture *c)
{
	for (int i = 0; i < c->n_profiles; i++) {
		struct capture_profile *p = &c->profiles[i];

		for (int k = 0; k < p->n_args; k++)
			free(p->args[k]);
		free(p->args);
		free(p->name);
		free(p->mode);
		free(p->url);
		free(p->model);
		free(p->key_env);
	}
	void *owned[] = {c->profiles, c->file, c->name, c->model, c->prompts, c->golden, c->python, c->tokens};

	for (int i = 0; i < COUNT(owned); i++)
		free(owned[i]);
	yaml_release(&c->yaml);
	*c = (struct capture){0};
}
