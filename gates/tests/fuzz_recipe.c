/* libFuzzer: any bytes as a recipe, and as what the command line gives for factors and layers.  `make fuzz`. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "gates/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool failed, struct err *err)
{
	BUG_ON(failed != (err->kind != ERR_NONE));
	BUG_ON(failed && (err->text[0] == '\0' || strpbrk(err->text, "\n\r\033") != NULL));
	*err = (struct err){ 0 };
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct recipe recipe = { 0 };
	struct arm_at_list at = { 0 };
	struct err err = { 0 };
	struct arm arm;
	char *text;

	check(recipe_load_bytes(&recipe, (const char *)data, size, "f", &err) != 0, &err);
	recipe_release(&recipe);
	text = xmalloc(size + 1);
	memcpy(text, data, size);
	text[size] = '\0';
	arm_init(&arm);
	check(arm_parse(&arm, text, &err) != 0, &err);
	check(arm_at_parse(&at, text, &err) != 0, &err);
	check(arm_layers_hold(text, 7, &err) < 0, &err);
	arm_at_release(&at);
	free(text);
	return 0;
}
