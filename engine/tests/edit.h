/* Copies of fixtures with one thing changed. */
#ifndef ASSAY_ENGINE_TESTS_EDIT_H
#define ASSAY_ENGINE_TESTS_EDIT_H

#include <jansson.h>
#include <stddef.h>

/* A new directory under /tmp.  edit_remove deletes it with the files in it and frees the name. */
char *edit_dir(void);
void edit_remove(char *dir);
/* edit_dir with config.json, hf_quant_config.json (if there), tokenizer.json and model.safetensors of a fixture. */
char *edit_copy(const char *fixture);
void edit_write(const char *dir, const char *name, const void *bytes, size_t size);

/* Sets members of a JSON file, from text: edit_json(dir, "config.json", "{\"mlp_bias\": true}"); null deletes. */
void edit_json(const char *dir, const char *name, const char *members);
/* model.safetensors, written again: without a tensor; with one more; with bytes of one changed; under another name. */
void edit_drop(const char *dir, const char *tensor);
void edit_add(const char *dir, const char *tensor, const char *dtype, const char *shape, const void *bytes, size_t size);
void edit_poke(const char *dir, const char *tensor, size_t at, const void *bytes, size_t size);
void edit_rename(const char *dir, const char *tensor, const char *to);
/* The size in bytes of a tensor's data. */
size_t edit_size(const char *dir, const char *tensor);

#endif
