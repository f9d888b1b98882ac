/* libFuzzer: any bytes as the one shard of a checkpoint.  `make fuzz`.
 *
 * The first byte says whether the rest is the whole file, or only its header, which then gets the right length
 * before it: else nearly every input would end at the length. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[] = "/tmp/assay-fuzz-XXXXXX", file[64];

static void clean_up(void)
{
	unlink(file);
	rmdir(directory);
}

static void write_shard(const uint8_t *data, size_t size)
{
	FILE *f = fopen(file, "wb");

	BUG_ON(f == NULL);
	if (size > 0 && data[0] & 1) {
		uint64_t length = size - 1;

		fwrite(&length, sizeof(length), 1, f);
		fwrite(data + 1, 1, size - 1, f);
		for (int i = 0; i < data[0] >> 1; i++)
			fputc(i, f);
	} else if (size > 0) {
		fwrite(data + 1, 1, size - 1, f);
	}
	fclose(f);
}

static volatile uint8_t sum;

/* every byte that a tensor claims is there */
static void read_tensors(const struct safetensors *s)
{
	for (int i = 0; i < s->n_tensors; i++)
		for (size_t j = 0; j < s->tensors[i].bytes; j++)
			sum = (uint8_t)(sum + ((const uint8_t *)s->tensors[i].data)[j]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct safetensors s = { 0 };
	struct err err = { 0 };

	if (file[0] == '\0') {
		BUG_ON(mkdtemp(directory) == NULL);
		snprintf(file, sizeof(file), "%s/model.safetensors", directory);
		atexit(clean_up);
	}
	write_shard(data, size);
	if (safetensors_open(&s, directory, &err) == 0) {
		read_tensors(&s);
		BUG_ON(err.kind != ERR_NONE);
	} else {
		BUG_ON(err.text[0] == '\0' || strpbrk(err.text, "\n\r\033") != NULL);
	}
	safetensors_release(&s);
	return 0;
}
