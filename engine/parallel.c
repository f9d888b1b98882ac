#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MAX_THREADS = 64 };

struct loop {
	int n;
	atomic_int next;
	void (*fn)(int i, void *ud);
	void *ud;
};

static void *work(void *arg)
{
	struct loop *l = arg;
	int i;

	while ((i = atomic_fetch_add(&l->next, 1)) < l->n)
		l->fn(i, l->ud);
	return NULL;
}

void parallel_each(int n, int threads, void (*fn)(int i, void *ud), void *ud)
{
	struct loop l = { .n = n, .fn = fn, .ud = ud };
	pthread_t thread[MAX_THREADS];
	int started = 0;

	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	while (started < threads - 1 && started < n - 1 && !pthread_create(&thread[started], NULL, work, &l))
		started++;
	work(&l);
	for (int i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
}

int parallel_cores(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);

	return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}
