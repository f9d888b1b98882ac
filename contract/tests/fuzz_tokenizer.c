/* libFuzzer: any bytes as tokenizer.json; one that loads encodes a text and decodes it again.  `make fuzz`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "contract/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char file[] = "/tmp/assay-fuzz-XXXXXX";
static bool made;

static void clean_up(void)
{
	unlink(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char text[] = "It's 12 dark\n  nights \xe2\x80\x9c" "and" "\xe2\x80\x9d \xff <s>";
	struct tokenizer *t;
	struct err err = { 0 };
	int32_t *ids = NULL;
	FILE *f;
	int n;

	if (!made) {
		BUG_ON(mkstemp(file) < 0);
		atexit(clean_up);
		made = true;
	}
	f = fopen(file, "wb");
	BUG_ON(f == NULL);
	fwrite(data, 1, size, f);
	fclose(f);
	t = tokenizer_load(file, &err);
	BUG_ON((t == NULL) != (err.kind == ERR_INPUT));
	BUG_ON(t == NULL && (err.text[0] == '\0' || strpbrk(err.text, "\n\r\033") != NULL));
	n = t != NULL ? tokenizer_encode(t, &ids, text, sizeof(text) - 1, true, &err) : -1;
	if (n >= 0)
		free(tokenizer_decode(t, ids, n, true, &size, &err));
	free(ids);
	tokenizer_free(t);
	return 0;
}
