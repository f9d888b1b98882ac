#include "schemas.h"

#include <stddef.h>
#include <string.h>

/* The assembler reads the file itself, from the directory in which make runs. */
#define SCHEMA(name) \
	extern const char schema_##name[]; \
	__asm__(".pushsection .rodata\n" \
		"schema_" #name ":\n" \
		".incbin \"contract/schemas/" #name ".schema.json\"\n" \
		".byte 0\n" \
		".popsection\n")

SCHEMA(recipe);
SCHEMA(golden);
SCHEMA(report);
SCHEMA(verdict);
SCHEMA(bench);
SCHEMA(capture);

const char *const schema_names[] = { "recipe", "golden", "report", "verdict", "bench", "capture", NULL };

const char *schema_text(const char *name)
{
	const char *const texts[] = { schema_recipe, schema_golden, schema_report, schema_verdict, schema_bench, schema_capture };

	for (int i = 0; schema_names[i] != NULL; i++)
		if (strcmp(name, schema_names[i]) == 0)
			return texts[i];
	return NULL;
}
