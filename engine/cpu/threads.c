#include "threads.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_NS = 100000, SPIN_CHECK = 64 };

struct worker {
	struct pool *pool;
	pthread_t thread;
	int id;
};

/* Fields that different threads write stand on lines of their own. */
struct pool {
	struct worker *workers;          /* owned [threads - 1] */
	int threads, started;
	long spin_ns;

	/* The job.  Stable from the store to `ticket` until its last part is done. */
	_Atomic(part_fn *) fn;
	_Atomic(void *) arg;
	_Atomic uint32_t parts;
	_Atomic bool stop;

	/* Job number in the high half, parts not yet claimed in the low half: a claim can never take a part of
	 * another job than the one it looked at. */
	_Alignas(64) _Atomic uint64_t ticket;
	_Alignas(64) _Atomic uint32_t job;       /* futex of idle workers */
	_Atomic int sleepers;
	_Alignas(64) _Atomic uint32_t done;      /* parts finished; futex of the caller */
	_Atomic bool caller_sleeps;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static long monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Waits until *word differs from `old` (want_equal: until it equals it).  False when the time is up. */
static bool spin(const _Atomic uint32_t *word, uint32_t value, bool want_equal, long ns)
{
	long end = 0;

	for (int i = 0;; i++) {
		if ((atomic_load_explicit(word, memory_order_acquire) == value) == want_equal)
			return true;
		relax();
		if (i % SPIN_CHECK == SPIN_CHECK - 1) {
			long now = monotonic_ns();

			if (!end)
				end = now + ns;
			else if (now > end)
				return false;
		}
	}
}

static void run_parts(struct pool *p, uint32_t job, int thread)
{
	uint64_t t = atomic_load_explicit(&p->ticket, memory_order_acquire);

	while ((uint32_t)(t >> 32) == job && (uint32_t)t) {
		if (!atomic_compare_exchange_weak_explicit(&p->ticket, &t, t - 1, memory_order_acq_rel,
							   memory_order_acquire))
			continue;
		uint32_t parts = atomic_load_explicit(&p->parts, memory_order_relaxed);
		part_fn *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
		void *arg = atomic_load_explicit(&p->arg, memory_order_relaxed);

		fn(arg, (int)(parts - (uint32_t)t), thread);
		if (atomic_fetch_add(&p->done, 1) + 1 == parts && atomic_load(&p->caller_sleeps))
			futex_wake(&p->done, 1);
		t = atomic_load_explicit(&p->ticket, memory_order_acquire);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	uint32_t job = 0;

	for (;;) {
		if (!spin(&p->job, job, false, p->spin_ns)) {
			atomic_fetch_add(&p->sleepers, 1);
			while (atomic_load(&p->job) == job)
				futex_wait(&p->job, job);
			atomic_fetch_sub(&p->sleepers, 1);
		}
		job = atomic_load_explicit(&p->job, memory_order_acquire);
		if (atomic_load(&p->stop))
			return NULL;
		run_parts(p, job, w->id);
	}
}

static void announce(struct pool *p, uint32_t job)
{
	atomic_store(&p->job, job);
	if (atomic_load(&p->sleepers))
		futex_wake(&p->job, INT_MAX);
}

void pool_run(struct pool *p, part_fn *fn, void *arg, int parts)
{
	if (p->threads == 1 || parts <= 1) {
		for (int i = 0; i < parts; i++)
			fn(arg, i, 0);
		return;
	}
	uint32_t job = atomic_load_explicit(&p->job, memory_order_relaxed) + 1;

	atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
	atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
	atomic_store_explicit(&p->parts, (uint32_t)parts, memory_order_relaxed);
	atomic_store_explicit(&p->done, 0, memory_order_relaxed);
	atomic_store_explicit(&p->ticket, (uint64_t)job << 32 | (uint32_t)parts, memory_order_release);
	announce(p, job);
	run_parts(p, job, 0);
	if (spin(&p->done, (uint32_t)parts, true, p->spin_ns))
		return;
	atomic_store(&p->caller_sleeps, true);
	for (uint32_t done; (done = atomic_load(&p->done)) != (uint32_t)parts;)
		futex_wait(&p->done, done);
	atomic_store(&p->caller_sleeps, false);
}

int pool_open(struct pool **out, int threads, struct err *err)
{
	struct pool *p = aligned_alloc(64, (sizeof(*p) + 63) / 64 * 64);
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (!p)
		return err_set(err, ERR_FAILED, "out of memory");
	memset(p, 0, sizeof(*p));
	p->threads = threads;
	p->spin_ns = threads > cores ? 0 : SPIN_NS;
	p->workers = xcalloc((size_t)threads, sizeof(*p->workers));
	for (; p->started < threads - 1; p->started++) {
		struct worker *w = &p->workers[p->started];

		w->pool = p;
		w->id = p->started + 1;
		int rc = pthread_create(&w->thread, NULL, worker_main, w);
		if (rc) {
			err_set(err, ERR_FAILED, "cannot start thread %d: %s", w->id, strerror(rc));
			pool_release(p);
			return -1;
		}
	}
	*out = p;
	return 0;
}

void pool_release(struct pool *p)
{
	if (!p)
		return;
	atomic_store(&p->stop, true);
	announce(p, atomic_load(&p->job) + 1);
	for (int i = 0; i < p->started; i++)
		pthread_join(p->workers[i].thread, NULL);
	free(p->workers);
	free(p);
}

int pool_threads(const struct pool *p)
{
	return p->threads;
}
