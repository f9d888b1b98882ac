/* Files: whole reads, atomic writes with every step failing once, sha256, paths. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "help.h"

/* Faults: these stand before libc's functions of the same name. */
static int fail_fsync_in;    /* 1: the next call fails; 0: never */
static int fail_rename_in;
static int fsyncs, renames;

int fsync(int fd)
{
	fsyncs++;
	if (fail_fsync_in > 0 && --fail_fsync_in == 0) {
		errno = EIO;
		return -1;
	}
	return fdatasync(fd);
}

int rename(const char *from, const char *to)
{
	renames++;
	if (fail_rename_in > 0 && --fail_rename_in == 0) {
		errno = ENOSPC;
		return -1;
	}
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static char *dir, *path;
static struct err err;

static void start(void)
{
	dir = help_directory();
	path = path_join(dir, "f");
	err = (struct err){ 0 };
	fail_fsync_in = fail_rename_in = fsyncs = renames = 0;
}

static void stop(void)
{
	free(path);
	help_remove(dir);
}

static void expect_text(const char *file, const char *text)
{
	size_t size;
	char *bytes = help_slurp(file, &size);

	ck_assert_uint_eq(size, strlen(text));
	ck_assert_str_eq(bytes, text);
	free(bytes);
}

static void expect_error(enum err_kind kind, const char *text)
{
	char *whole = xasprintf("%s: %s", path, text);

	ck_assert_str_eq(err.text, whole);
	ck_assert_int_eq(err.kind, kind);
	free(whole);
}

START_TEST(read_whole)
{
	size_t size = 99;
	char *bytes;

	ck_ok(file_write(path, "a\0b", 3, &err), err);
	bytes = file_read(path, 3, &size, &err);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_uint_eq(size, 3);
	ck_assert_mem_eq(bytes, "a\0b\0", 4);
	free(bytes);
	ck_ok(file_write(path, "", 0, &err), err);
	bytes = file_read(path, 0, &size, &err);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_uint_eq(size, 0);
	ck_assert_int_eq(bytes[0], '\0');
	free(bytes);
}
END_TEST

START_TEST(read_refuses)
{
	size_t size;

	ck_assert_ptr_null(file_read(path, 10, &size, &err));
	expect_error(ERR_INPUT, "No such file or directory");
	err = (struct err){ 0 };
	ck_ok(file_write(path, "abcd", 4, &err), err);
	ck_assert_ptr_null(file_read(path, 3, &size, &err));
	expect_error(ERR_INPUT, "expected at most 3 bytes, found 4");
	err = (struct err){ 0 };
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0777), 0);
	ck_assert_ptr_null(file_read(path, 10, &size, &err));
	expect_error(ERR_INPUT, "expected a file, found a directory");
	err = (struct err){ 0 };
	rmdir(path);
	/* a FIFO that nobody writes must not be waited for */
	ck_assert_int_eq(mkfifo(path, 0666), 0);
	ck_assert_ptr_null(file_read(path, 10, &size, &err));
	expect_error(ERR_INPUT, "expected a file, found something else");
}
END_TEST

START_TEST(write_replaces_and_syncs)
{
	mode_t mask = umask(022);
	struct stat st;

	ck_ok(file_write(path, "old", 3, &err), err);
	ck_ok(file_write(path, "new!", 4, &err), err);
	expect_text(path, "new!");
	ck_assert_int_eq(help_count(dir), 1);
	ck_assert_int_eq(fsyncs, 4);     /* file and directory, twice */
	ck_assert_int_eq(renames, 2);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0644);
	umask(mask);
}
END_TEST

/* whatever fails, the old content stays and nothing is left behind */
static void expect_untouched(const char *message)
{
	expect_error(ERR_FAILED, message);
	expect_text(path, "old");
	ck_assert_int_eq(help_count(dir), 1);
}

START_TEST(failed_fsync_leaves_the_old)
{
	ck_ok(file_write(path, "old", 3, &err), err);
	fail_fsync_in = 1;
	ck_assert_int_eq(file_write(path, "new", 3, &err), -1);
	expect_untouched("cannot write: Input/output error");
}
END_TEST

START_TEST(failed_rename_leaves_the_old)
{
	ck_ok(file_write(path, "old", 3, &err), err);
	fail_rename_in = 1;
	ck_assert_int_eq(file_write(path, "new", 3, &err), -1);
	expect_untouched("cannot write: No space left on device");
}
END_TEST

START_TEST(full_disk_leaves_the_old)
{
	struct rlimit limit = { 4096, RLIM_INFINITY };
	static char big[100000];

	ck_ok(file_write(path, "old", 3, &err), err);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(file_write(path, big, sizeof(big), &err), -1);
	expect_untouched("cannot write: File too large");
	err = (struct err){ 0 };
	/* a limit that is met exactly is no failure */
	ck_ok(file_write(path, big, 4096, &err), err);
}
END_TEST

START_TEST(failed_copy_leaves_the_old)
{
	char *from = path_join(dir, "from"), *absent = path_join(dir, "absent"), *whole;

	ck_ok(file_write(path, "old", 3, &err), err);
	ck_assert_int_eq(file_copy(absent, path, &err), -1);
	whole = xasprintf("%s: No such file or directory", absent);
	ck_assert_str_eq(err.text, whole);
	expect_text(path, "old");
	err = (struct err){ 0 };
	ck_ok(file_write(from, "new", 3, &err), err);
	fail_fsync_in = 1;
	ck_assert_int_eq(file_copy(from, path, &err), -1);
	expect_error(ERR_FAILED, "cannot write: Input/output error");
	expect_text(path, "old");
	ck_assert_int_eq(help_count(dir), 2);
	err = (struct err){ 0 };
	ck_ok(file_copy(from, path, &err), err);
	expect_text(path, "new");
	free(whole);
	free(absent);
	free(from);
}
END_TEST

START_TEST(copy_of_many_blocks)
{
	size_t size = 3 * (1 << 20) + 17, got;
	char *from = path_join(dir, "from"), *bytes = xmalloc(size), *copy;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (char)(i * 2654435761u >> 13);
	ck_ok(file_write(from, bytes, size, &err), err);
	ck_ok(file_copy(from, path, &err), err);
	copy = help_slurp(path, &got);
	ck_assert_uint_eq(got, size);
	ck_assert_int_eq(memcmp(copy, bytes, size), 0);
	free(copy);
	free(bytes);
	free(from);
}
END_TEST

START_TEST(write_refuses_places)
{
	char *whole, *below = path_join(path, "below");

	ck_assert_int_eq(file_write("", "x", 1, &err), -1);
	ck_assert_str_eq(err.text, ": cannot write: No such file or directory");
	err = (struct err){ 0 };
	ck_ok(file_write(path, "old", 3, &err), err);
	ck_assert_int_eq(file_write(below, "x", 1, &err), -1);
	whole = xasprintf("%s: cannot write: Not a directory", below);
	ck_assert_str_eq(err.text, whole);
	free(whole);
	err = (struct err){ 0 };
	ck_assert_int_eq(file_write(dir, "x", 1, &err), -1);
	whole = xasprintf("%s: cannot write: Is a directory", dir);
	ck_assert_str_eq(err.text, whole);
	free(whole);
	free(below);
}
END_TEST

/* file_check says beforehand what file_write would, and leaves no trace. */
START_TEST(checks_places)
{
	char *below = path_join(path, "below");
	const char *const bad[][2] = {
		{ below, ": cannot write: Not a directory" },
		{ dir, ": cannot write: Is a directory" },
		{ "", ": cannot write: No such file or directory" },
	};
	struct stat st;

	ck_ok(file_check(path, &err), err);
	ck_assert_int_eq(help_count(dir), 0);
	ck_ok(file_write(path, "old", 3, &err), err);
	ck_ok(file_check(path, &err), err);
	expect_text(path, "old");
	ck_assert_int_eq(help_count(dir), 1);
	for (int i = 0; i < 3; i++) {
		char *whole = xasprintf("%s%s", bad[i][0], bad[i][1]);

		err = (struct err){ 0 };
		ck_assert_int_eq(file_check(bad[i][0], &err), -1);
		ck_assert_str_eq(err.text, whole);
		ck_assert_int_eq(err.kind, ERR_FAILED);
		free(whole);
	}
	err = (struct err){ 0 };
	/* nobody reads this pipe: to open it would wait for ever */
	unlink(path);
	ck_assert_int_eq(mkfifo(path, 0666), 0);
	ck_ok(file_check(path, &err), err);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert(S_ISFIFO(st.st_mode));
	free(below);
}
END_TEST

START_TEST(links)
{
	char *link = path_join(dir, "link");
	struct stat st;

	ck_ok(file_write(path, "old", 3, &err), err);
	ck_assert_int_eq(symlink("f", link), 0);
	ck_ok(file_write(link, "new", 3, &err), err);
	expect_text(path, "new");
	ck_assert_int_eq(lstat(link, &st), 0);
	ck_assert(S_ISLNK(st.st_mode));
	/* a link that leads nowhere is no place to write */
	unlink(path);
	ck_assert_int_eq(file_write(link, "new", 3, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "cannot write: No such file or directory"));
	free(link);
}
END_TEST

/* A pipe or device is written, never replaced by a file.  These are nodes of our own: a mistake in the code under
 * test would replace those of the machine. */
START_TEST(pipes_and_devices)
{
	char got[4] = "";
	struct stat st;
	int fd;

	ck_assert_int_eq(mkfifo(path, 0666), 0);
	fd = open(path, O_RDONLY | O_NONBLOCK);
	ck_assert_int_ge(fd, 0);
	ck_ok(file_write(path, "new", 3, &err), err);
	ck_assert_int_eq((int)read(fd, got, sizeof(got)), 3);
	ck_assert_str_eq(got, "new");
	close(fd);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert(S_ISFIFO(st.st_mode));
	unlink(path);
	if (mknod(path, S_IFCHR | 0666, makedev(1, 7)) != 0 || (fd = open(path, O_WRONLY)) < 0) {
		printf("skipped: a full device, which this user or file system cannot make\n");
		return;
	}
	close(fd);
	ck_assert_int_eq(file_write(path, "new", 3, &err), -1);
	expect_error(ERR_FAILED, "cannot write: No space left on device");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert(S_ISCHR(st.st_mode));
	ck_assert_int_eq(help_count(dir), 1);
}
END_TEST

START_TEST(relative_names)
{
	char *old = getcwd(NULL, 0);

	ck_assert_int_eq(chdir(dir), 0);
	ck_ok(file_write("plain", "1", 1, &err), err);
	expect_text("plain", "1");
	ck_ok(file_write("./dotted", "2", 1, &err), err);
	expect_text("dotted", "2");
	ck_assert_int_eq(chdir(old), 0);
	free(old);
}
END_TEST

START_TEST(directories)
{
	char *deep = xasprintf("%s/a//b/c/", dir), *a = path_join(dir, "a"), *b = path_join(a, "b"), *c = path_join(b, "c");
	char *below = path_join(path, "x/y"), *whole;

	ck_ok(file_mkdirs(deep, &err), err);
	ck_assert(file_exists(c));
	ck_ok(file_mkdirs(deep, &err), err);
	ck_assert(!file_exists(path));
	ck_ok(file_write(path, "", 0, &err), err);
	ck_assert(file_exists(path));
	ck_assert_int_eq(file_mkdirs(below, &err), -1);
	whole = xasprintf("%s: cannot make the directory: File exists", path);
	ck_assert_str_eq(err.text, whole);
	rmdir(c);
	rmdir(b);
	rmdir(a);
	free(whole);
	free(below);
	free(a);
	free(b);
	free(c);
	free(deep);
}
END_TEST

START_TEST(paths)
{
	static const struct { const char *dir, *name, *joined; } joins[] = {
		{ "a/b", "c", "a/b/c" }, { "a/", "c", "a/c" }, { "a", "/c", "/c" }, { "", "c", "c" }, { "/", "c", "/c" },
	};
	static const struct { const char *path, *dir, *base; } parts[] = {
		{ "a/b/c", "a/b", "c" }, { "c", ".", "c" }, { "/c", "/", "c" }, { "a/", "a", "" },
	};

	for (size_t i = 0; i < sizeof(joins) / sizeof(joins[0]); i++) {
		char *joined = path_join(joins[i].dir, joins[i].name);

		ck_assert_str_eq(joined, joins[i].joined);
		free(joined);
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		char *d = path_dir(parts[i].path);

		ck_assert_str_eq(d, parts[i].dir);
		ck_assert_str_eq(path_base(parts[i].path), parts[i].base);
		free(d);
	}
}
END_TEST

/* FIPS 180-4 examples, and the million times "a" of its predecessor */
START_TEST(sha256)
{
	char hex[SHA256_HEX], *million = xmalloc(1000000);

	sha256_bytes("", 0, hex);
	ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_bytes("abc", 3, hex);
	ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	memset(million, 'a', 1000000);
	sha256_bytes(million, 1000000, hex);
	ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	ck_ok(file_write(path, million, 1000000, &err), err);
	memset(hex, 0, sizeof(hex));
	ck_ok(sha256_file(path, hex, &err), err);
	ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	unlink(path);
	ck_assert_int_eq(sha256_file(path, hex, &err), -1);
	expect_error(ERR_INPUT, "No such file or directory");
	free(million);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("file");
	TCase *tc = tcase_create("file");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_add_test(tc, read_whole);
	tcase_add_test(tc, read_refuses);
	tcase_add_test(tc, write_replaces_and_syncs);
	tcase_add_test(tc, failed_fsync_leaves_the_old);
	tcase_add_test(tc, failed_rename_leaves_the_old);
	tcase_add_test(tc, full_disk_leaves_the_old);
	tcase_add_test(tc, failed_copy_leaves_the_old);
	tcase_add_test(tc, copy_of_many_blocks);
	tcase_add_test(tc, write_refuses_places);
	tcase_add_test(tc, checks_places);
	tcase_add_test(tc, links);
	tcase_add_test(tc, pipes_and_devices);
	tcase_add_test(tc, relative_names);
	tcase_add_test(tc, directories);
	tcase_add_test(tc, paths);
	tcase_add_test(tc, sha256);
	suite_add_tcase(suite, tc);
	return help_run(suite);
}
