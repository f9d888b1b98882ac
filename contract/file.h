/* Files: whole reads, atomic writes, sha256, paths. */
#ifndef ASSAY_CONTRACT_FILE_H
#define ASSAY_CONTRACT_FILE_H

#include <stdint.h>
#include "err.h"

#define SHA256_HEX 65  /* with the final NUL */

/* Reads a regular file of at most `limit` bytes; the buffer gets a final NUL that is not counted.  Caller frees. */
char *file_read(const char *path, size_t limit, size_t *size, struct err *err);
/* Temporary name in the same directory, fsync of file and directory, rename.  Nothing is left behind on
 * failure, and a file of that name keeps its old content.  Symbolic links are followed; a device or pipe is
 * written in place.  Under a file size limit the caller must ignore SIGXFSZ to get a message. */
int file_write(const char *path, const void *bytes, size_t size, struct err *err);
/* Whether file_write could begin, for what is written after long work: 0, or -1 with the message it would give. */
int file_check(const char *path, struct err *err);
int file_copy(const char *from, const char *to, struct err *err);
/* mkdir -p. */
int file_mkdirs(const char *path, struct err *err);
bool file_exists(const char *path);
/* "dir/name", or `name` alone if it is absolute.  Caller frees. */
char *path_join(const char *dir, const char *name);
char *path_dir(const char *path);          /* caller frees */
const char *path_base(const char *path);   /* points into path */

int sha256_file(const char *path, char hex[SHA256_HEX], struct err *err);
void sha256_bytes(const void *bytes, size_t size, char hex[SHA256_HEX]);

#endif
