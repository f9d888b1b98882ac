/* The JSON Schemas of contract/schemas, for `assay schema NAME`. */
#ifndef ASSAY_CONTRACT_SCHEMAS_H
#define ASSAY_CONTRACT_SCHEMAS_H

/* "recipe", "golden", "report", "verdict", "bench", "capture": the text of the file; NULL if there is none of that name. */
const char *schema_text(const char *name);
/* The names, in that order, ending in NULL. */
extern const char *const schema_names[];

#endif
