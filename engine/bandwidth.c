#include "bandwidth.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/threads.h"
#include "host.h"

enum { PARTS = 64 };

struct bandwidth {
	struct pool *pool;           /* owned */
	char *buffer;                /* owned: mapping */
	size_t size;
	uint64_t sum[PARTS];         /* so that the reads have a purpose */
};

typedef uint64_t words __attribute__((vector_size(64)));

/* Four sums, so that the loads do not wait for each other. */
static void read_part(void *arg, int part, int thread)
{
	struct bandwidth *b = arg;
	const char *from = b->buffer + b->size / PARTS * (size_t)part, *end = from + b->size / PARTS;
	words sum[4] = {{0}}, v;

	(void)thread;
	for (; from < end; from += sizeof(sum))
		for (int i = 0; i < 4; i++) {
			memcpy(&v, from + (size_t)i * sizeof(v), sizeof(v));
			sum[i] += v;
		}
	sum[0] += sum[1] + sum[2] + sum[3];
	for (int i = 0; i < 8; i++)
		b->sum[part] += sum[0][i];
}

static size_t cache_bytes(void)
{
	long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);

	return l3 > 0 ? (size_t)l3 : l2 > 0 ? (size_t)l2 : (size_t)32 << 20;
}

int bandwidth_open(struct bandwidth **out, int threads, struct err *err)
{
	struct bandwidth *b = xcalloc(1, sizeof(*b));

	b->size = ((size_t)128 << 20);
	while (b->size < 4 * cache_bytes())
		b->size *= 2;
	b->buffer = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->buffer == MAP_FAILED) {
		err_set(err, ERR_FAILED, "no memory for a buffer of %zu bytes to read", b->size);
		b->buffer = NULL;
		bandwidth_release(b);
		return -1;
	}
	madvise(b->buffer, b->size, MADV_HUGEPAGE);
	memset(b->buffer, 1, b->size);
	if (pool_open(&b->pool, threads, err)) {
		bandwidth_release(b);
		return -1;
	}
	*out = b;
	return 0;
}

void bandwidth_release(struct bandwidth *b)
{
	if (!b)
		return;
	pool_release(b->pool);
	if (b->buffer)
		munmap(b->buffer, b->size);
	free(b);
}

double bandwidth_read(struct bandwidth *b)
{
	double start = host_seconds();

	pool_run(b->pool, read_part, b, PARTS);
	return (double)b->size / (host_seconds() - start);
}
