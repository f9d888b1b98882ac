#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (1 << 20)

/* Opens a regular file for reading.  O_NONBLOCK: a FIFO must be refused, not waited for. */
static int open_regular(const char *path, struct stat *st, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return err_set(err, ERR_INPUT, "%s: %s", path, strerror(errno));
	if (fstat(fd, st) != 0) {
		err_set(err, ERR_FAILED, "%s: %s", path, strerror(errno));
		close(fd);
		return -1;
	}
	if (!S_ISREG(st->st_mode)) {
		close(fd);
		return err_set(err, ERR_INPUT, "%s: expected a file, found %s", path,
			       S_ISDIR(st->st_mode) ? "a directory" : "something else");
	}
	return fd;
}

static ssize_t read_some(int fd, void *to, size_t size)
{
	ssize_t n;

	do
		n = read(fd, to, size);
	while (n < 0 && errno == EINTR);
	return n;
}

static int write_all(int fd, const char *from, size_t size)
{
	while (size > 0) {
		ssize_t n = write(fd, from, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		from += n;
		size -= (size_t)n;
	}
	return 0;
}

char *file_read(const char *path, size_t limit, size_t *size, struct err *err)
{
	struct stat st;
	int fd = open_regular(path, &st, err);
	char *bytes;
	size_t want, got = 0;

	if (fd < 0)
		return NULL;
	want = (size_t)st.st_size;
	if (want > limit) {
		err_set(err, ERR_INPUT, "%s: expected at most %zu bytes, found %zu", path, limit, want);
		close(fd);
		return NULL;
	}
	bytes = xmalloc(want + 1);
	while (got < want) {
		ssize_t n = read_some(fd, bytes + got, want - got);

		if (n < 0) {
			err_set(err, ERR_FAILED, "%s: %s", path, strerror(errno));
			close(fd);
			free(bytes);
			return NULL;
		}
		if (n == 0)
			break;
		got += (size_t)n;
	}
	close(fd);
	bytes[got] = '\0';
	*size = got;
	return bytes;
}

/* A file on its way: written under a temporary name, renamed by out_commit. */
struct out {
	char *path;       /* owned; symbolic links followed */
	char *temporary;  /* owned; NULL: a device or pipe, written in place */
	int fd;
};

static int out_fail(struct out *o, struct err *err)
{
	err_set(err, ERR_FAILED, "%s: cannot write: %s", o->path, strerror(errno));
	if (o->fd >= 0)
		close(o->fd);
	if (o->temporary != NULL)
		unlink(o->temporary);
	free(o->temporary);
	free(o->path);
	return -1;
}

static int out_open(struct out *o, const char *path, struct err *err)
{
	static atomic_uint serial;
	struct stat st;
	char *dir;

	*o = (struct out){ .path = realpath(path, NULL), .fd = -1 };
	if (o->path == NULL) {
		o->path = xstrdup(path);
		if (errno != ENOENT || *path == '\0' || lstat(path, &st) == 0)
			return out_fail(o, err);
	} else if (stat(o->path, &st) == 0 && !S_ISREG(st.st_mode)) {
		/* /dev/null or a pipe: a rename would replace it */
		o->fd = open(o->path, O_WRONLY | O_CLOEXEC);
		return o->fd < 0 ? out_fail(o, err) : 0;
	}
	dir = path_dir(o->path);
	o->temporary = xasprintf("%s/.%.200s.%ld.%u.tmp", dir, path_base(o->path), (long)getpid(),
				 atomic_fetch_add(&serial, 1));
	free(dir);
	o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return o->fd < 0 ? out_fail(o, err) : 0;
}

static int out_commit(struct out *o, struct err *err)
{
	char *dir;
	int fd;

	if (o->temporary != NULL && fsync(o->fd) != 0)
		return out_fail(o, err);
	fd = o->fd;
	o->fd = -1;
	if (close(fd) != 0)
		return out_fail(o, err);
	if (o->temporary != NULL) {
		if (rename(o->temporary, o->path) != 0)
			return out_fail(o, err);
		/* Some file systems cannot sync a directory; the file itself is safe by now. */
		dir = path_dir(o->path);
		fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0) {
			fsync(fd);
			close(fd);
		}
		free(dir);
	}
	free(o->temporary);
	free(o->path);
	return 0;
}

int file_write(const char *path, const void *bytes, size_t size, struct err *err)
{
	struct out o;

	if (out_open(&o, path, err))
		return -1;
	if (write_all(o.fd, bytes, size))
		return out_fail(&o, err);
	return out_commit(&o, err);
}

int file_check(const char *path, struct err *err)
{
	struct stat st;
	struct out o;

	/* whoever reads a pipe would take the first close for its end */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0;
	if (out_open(&o, path, err))
		return -1;
	close(o.fd);
	unlink(o.temporary);
	free(o.temporary);
	free(o.path);
	return 0;
}

int file_copy(const char *from, const char *to, struct err *err)
{
	struct stat st;
	struct out o;
	char *buffer;
	ssize_t n = 0;
	int fd = open_regular(from, &st, err);

	if (fd < 0)
		return -1;
	if (out_open(&o, to, err)) {
		close(fd);
		return -1;
	}
	buffer = xmalloc(CHUNK);
	while ((n = read_some(fd, buffer, CHUNK)) > 0)
		if (write_all(o.fd, buffer, (size_t)n))
			break;
	if (n < 0)
		err_set(err, ERR_FAILED, "%s: %s", from, strerror(errno));
	free(buffer);
	close(fd);
	return n == 0 ? out_commit(&o, err) : out_fail(&o, err);
}

static int make_dir(const char *path, struct err *err)
{
	struct stat st;

	if (mkdir(path, 0777) == 0)
		return 0;
	if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	return err_set(err, ERR_FAILED, "%s: cannot make the directory: %s", path, strerror(errno));
}

int file_mkdirs(const char *path, struct err *err)
{
	char *part = xstrdup(path);
	int status = 0;

	for (char *p = part + 1; part[0] != '\0' && *p != '\0' && status == 0; p++) {
		if (*p != '/' || p[-1] == '/')
			continue;
		*p = '\0';
		status = make_dir(part, err);
		*p = '/';
	}
	if (status == 0)
		status = make_dir(path, err);
	free(part);
	return status;
}

bool file_exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0;
}

char *path_join(const char *dir, const char *name)
{
	size_t n = strlen(dir);

	if (name[0] == '/' || n == 0)
		return xstrdup(name);
	return xasprintf("%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

char *path_dir(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (slash == NULL)
		return xstrdup(".");
	if (slash == path)
		return xstrdup("/");
	return xasprintf("%.*s", (int)(slash - path), path);
}

const char *path_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static void to_hex(char hex[SHA256_HEX], const unsigned char *digest)
{
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

int sha256_file(const char *path, char hex[SHA256_HEX], struct err *err)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	struct stat st;
	EVP_MD_CTX *md;
	char *buffer;
	ssize_t n = 0;
	int fd = open_regular(path, &st, err);

	if (fd < 0)
		return -1;
	md = EVP_MD_CTX_new();
	if (md == NULL || !EVP_DigestInit_ex(md, EVP_sha256(), NULL))
		BUG("libcrypto has no sha256");
	buffer = xmalloc(CHUNK);
	while ((n = read_some(fd, buffer, CHUNK)) > 0)
		EVP_DigestUpdate(md, buffer, (size_t)n);
	if (n < 0)
		err_set(err, ERR_FAILED, "%s: %s", path, strerror(errno));
	else
		EVP_DigestFinal_ex(md, digest, NULL);
	EVP_MD_CTX_free(md);
	free(buffer);
	close(fd);
	if (n < 0)
		return -1;
	to_hex(hex, digest);
	return 0;
}

void sha256_bytes(const void *bytes, size_t size, char hex[SHA256_HEX])
{
	unsigned char digest[EVP_MAX_MD_SIZE];

	if (!EVP_Digest(bytes, size, digest, NULL, EVP_sha256(), NULL))
		BUG("libcrypto has no sha256");
	to_hex(hex, digest);
}
