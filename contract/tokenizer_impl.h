/* The tokenizer as tokenizer_json.c reads it and tokenizer.c runs it. */
#ifndef ASSAY_CONTRACT_TOKENIZER_IMPL_H
#define ASSAY_CONTRACT_TOKENIZER_IMPL_H

#include "bpe.h"
#include "regex.h"
#include "tokenizer.h"

#define TOKENIZER_SPLITS 8

struct added_token {
	char *content;          /* owned */
	size_t len;
	int32_t id;
	bool single_word;       /* only where no word character touches it */
	bool lstrip, rstrip;    /* takes the white space before, after it */
	bool normalized;        /* looked for in a second pass, in what the others left */
	bool special;
};

struct added_set {              /* one pass */
	const struct added_token **order;       /* owned; by content */
	size_t n;
	bool starts[256];                       /* some content starts with this byte */
};

struct tokenizer {
	char *path;                             /* owned */
	struct bpe bpe;
	struct added_token *added;              /* owned */
	size_t n_added;
	struct added_set passes[2];             /* normalized false, then true */
	bool *special;                          /* owned [bpe.size] */
	struct regex *word;                     /* owned; NULL: no added token asks for it */
	struct regex *splits[TOKENIZER_SPLITS]; /* owned */
	int n_splits;
	bool byte_level;                        /* its pre-tokenizer was read */
	bool add_prefix_space;
	struct regex *gpt2;                     /* owned; ByteLevel's own split, NULL: use_regex is false */
	struct ids before, after;               /* the template */
	bool has_template;
};

/* Fills an empty tokenizer from the file at t->path. */
int tokenizer_read(struct tokenizer *t, struct err *err);

#endif
