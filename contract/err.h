/* The error object, and the four kinds of error of this code base.
 *
 *   the world is wrong (a file, an argument, a device): the function calls err_set and returns -1.
 *     The first message wins, so calls chain:  if (a(x, err) || b(x, err)) goto out;
 *     The message is one line that names the file and the place, what was expected and what was found.
 *   we are wrong: BUG(), always compiled in.
 *   host memory is out: xmalloc and friends end the process with exit code 2.
 *   the engine's answer is wrong: not an error but a finding; it goes into a report or a verdict.
 */
#ifndef ASSAY_CONTRACT_ERR_H
#define ASSAY_CONTRACT_ERR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum err_kind {
	ERR_NONE,
	ERR_INPUT,       /* a file or argument that is refused: exit 2 */
	ERR_CANNOT_RUN,  /* not built here, or no such device: the engine exits 77 */
	ERR_FAILED,      /* it failed while running (I/O, device): exit 1 */
};

struct err {
	enum err_kind kind;
	char text[1024];
};

/* Records the message unless one is there already; always returns -1.
 * Characters that are hidden (utf8.h) and invalid UTF-8 in the formatted text are replaced by '?', so that a name
 * read from a damaged file stays one line and is what it looks like. */
int err_set(struct err *err, enum err_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
#define BUG_ON(cond) do { if (cond) BUG("%s", #cond); } while (0)
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* End the process on exhaustion ("error: out of memory"), never return NULL; n * size is checked for overflow. */
void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *old, size_t n, size_t size);
char *xstrdup(const char *s);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Every x-allocation since the process began: the session compares it with its value at open to
 * fill the counter allocs_after_open. */
unsigned long xalloc_count(void);

#endif
