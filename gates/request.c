/* What a foreign engine is asked: assay/request/1.  docs/formats.md, section 9. */
#include <stdlib.h>
#include <string.h>
#include "contract/json.h"
#include "leg.h"

int leg_prompts(const struct recipe *r, const struct golden *g, const struct golden_profile *profile, int **prompts)
{
	int n = 0;

	*prompts = xcalloc((size_t)(r->n_prompts ? r->n_prompts : g->n_prompts) + 1, sizeof(**prompts));
	for (int i = 0; i < r->n_prompts; i++)
		(*prompts)[n++] = golden_prompt_find(g, r->prompts[i]);
	for (int i = 0; !r->n_prompts && i < g->n_prompts; i++)
		if (golden_row_find(profile, i))
			(*prompts)[n++] = i;
	return n;
}

int leg_planned(const struct recipe *r, const struct golden_profile *profile, int prompt)
{
	const struct golden_row *row = golden_row_find(profile, prompt);
	int n = row ? row->n : 0;

	return n < r->max_steps ? n : r->max_steps;
}

static json_t *ids_to_json(const int32_t *ids, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

static json_t *prompt_to_json(const struct leg_task *task, int prompt)
{
	const struct golden_prompt *p = &task->golden->prompts[prompt];
	const struct golden_row *row = golden_row_find(task->profile, prompt);

	return json_pack("{s:s, s:s?, s:o, s:o}", "id", p->id, "text", p->text, "ids", ids_to_json(p->ids, p->n),
			 "given", ids_to_json(row->ids, leg_planned(task->recipe, task->profile, prompt)));
}

char *leg_request(const struct leg_task *task, size_t *size)
{
	const struct recipe *r = task->recipe;
	json_t *prompts = json_array(), *modes = json_array(), *request;
	int *asked, n = leg_prompts(r, task->golden, task->profile, &asked);
	char *bytes;

	for (int i = 0; i < n; i++)
		json_array_append_new(prompts, prompt_to_json(task, asked[i]));
	for (int m = 0; m < N_MODES; m++)
		if (r->modes[m])
			json_array_append_new(modes, json_string(mode_name((enum mode)m)));
	request = json_pack("{s:s, s:s, s:o, s:s, s:s, s:i, s:o, s:o}", "schema", "assay/request/1", "leg", task->leg->name,
			    "requested", arm_to_json(&task->leg->arm, &task->leg->at), "model", task->model_dir,
			    "golden_sha256", task->golden->sha256, "steps", r->max_steps, "modes", modes, "prompts", prompts);
	BUG_ON(!request);
	bytes = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	free(asked);
	*size = bytes ? strlen(bytes) : 0;
	BUG_ON(!bytes);
	return bytes;
}
