/* SPDX-License-Identifier: MIT */
/* Files: which are opened, which are refused, and the facts that hoist knows of them. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/error.h"
#include "tests/support/io-helpers.h"
#include "tests/support/wrap-syscall.h"
#include "tests/support/wrap.h"

/* An old kernel, a filter of system calls, or a system without /proc. */
static int without_openat2; /* 0, or what it fails with */
static bool without_proc;

static bool refuses(long number)
{
	bool refused = number == SYS_openat2 && without_openat2 != 0;
	if (refused)
		errno = without_openat2;
	return refused;
}

WRAP(ssize_t, readlink, (const char *path, char *to, size_t bytes))
{
	errno = ENOENT;
	return without_proc ? -1 : __real_readlink(path, to, bytes);
}

WRAP(int, access, (const char *path, int mode))
{
	errno = ENOENT;
	return without_proc ? -1 : __real_access(path, mode);
}

static int try_open(int dir_fd, const char *path, unsigned flags)
{
	struct hoist__file *file = NULL;
	int err = hoist__file_open(dir_fd, path, NULL, flags, &file);
	cr_expect((err == 0) == (file != NULL), "the result is untouched on failure");
	hoist__file_close(file);
	return err;
}

Test(io_file, knows_its_size_device_and_inode)
{
	char path[256];
	make_file(scratch(path, sizeof path, "who"), 10000);
	struct hoist__file *file = NULL;
	cr_assert(hoist__file_open(AT_FDCWD, path, "shown name", 0, &file) == 0);
	struct stat st;
	cr_assert(stat(path, &st) == 0);
	cr_expect(file->bytes == 10000);
	cr_expect(file->dev == st.st_dev && file->ino == st.st_ino);
	cr_expect(strcmp(file->path, "shown name") == 0);
	cr_expect((fcntl(file->fd, F_GETFL) & (O_NONBLOCK | O_DIRECT)) == 0);
	cr_expect((fcntl(file->fd, F_GETFD) & FD_CLOEXEC) != 0);
	cr_expect(hoist__file_changed(file) == 0);
	hoist__file_close(file);
	hoist__file_close(NULL);
	unlink(path);
}

Test(io_file, a_path_that_is_no_file_is_refused)
{
	char path[256];
	cr_expect(try_open(AT_FDCWD, "/", 0) == -EINVAL);
	cr_expect(strstr(hoist__error_text(), "folder") != NULL);
	cr_expect(try_open(AT_FDCWD, "/dev/null", 0) == -EINVAL);
	cr_expect(try_open(AT_FDCWD, "/nonexistent/file", 0) == -ENOENT);
	cr_expect(strstr(hoist__error_text(), "/nonexistent/file") != NULL);
	cr_assert(mkfifo(scratch(path, sizeof path, "fifo"), 0600) == 0);
	cr_expect(try_open(AT_FDCWD, path, 0) == -EINVAL, "and does not hang on it");
	unlink(path);
}

static void stays_beneath(void)
{
	char folder[256], path[300];
	cr_assert(mkdir(scratch(folder, sizeof folder, "dir"), 0700) == 0);
	(void)snprintf(path, sizeof path, "%s/inside", folder);
	make_file(path, 10);
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(dir >= 0);
	cr_assert(symlinkat("inside", dir, "link-in") == 0);
	cr_assert(symlinkat("/etc/passwd", dir, "link-out") == 0);
	char outside[256], up[260];
	make_file(scratch(outside, sizeof outside, "up"), 10);
	(void)snprintf(up, sizeof up, "..%s", strrchr(outside, '/'));
	cr_assert(symlinkat(up, dir, "link-up") == 0);

	cr_expect(try_open(dir, "inside", HOIST__FILE_BENEATH) == 0);
	cr_expect(try_open(dir, "link-in", HOIST__FILE_BENEATH) == 0);
	cr_expect(try_open(dir, "link-out", HOIST__FILE_BENEATH) == -EXDEV);
	cr_expect(try_open(dir, "link-up", HOIST__FILE_BENEATH) == -EXDEV);
	cr_expect(try_open(dir, up, HOIST__FILE_BENEATH) == -EXDEV);
	cr_expect(try_open(dir, up, 0) == 0);
	unlink(outside);
	cr_expect(try_open(dir, "/etc/passwd", HOIST__FILE_BENEATH) == -EXDEV);
	cr_expect(strstr(hoist__error_text(), "out of its folder") != NULL);
	cr_expect(try_open(dir, "link-out", 0) == 0, "without the flag links lead anywhere");

	/* Nothing outside is opened, to find that it is outside: of a FIFO that would be seen. */
	char fifo[256];
	cr_assert(mkfifo(scratch(fifo, sizeof fifo, "outside"), 0600) == 0);
	cr_assert(symlinkat(fifo, dir, "link-fifo") == 0);
	int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	cr_assert(watch >= 0 && inotify_add_watch(watch, fifo, IN_OPEN) >= 0);
	cr_expect(try_open(dir, "link-fifo", HOIST__FILE_BENEATH) == -EXDEV);
	char event[512];
	cr_expect(read(watch, event, sizeof event) < 0 && errno == EAGAIN, "it was opened");
	cr_expect(try_open(dir, "link-fifo", 0) == -EINVAL);
	cr_expect(read(watch, event, sizeof event) > 0, "or else nothing is seen at all");
	close(watch);
	unlink(fifo);

	unlinkat(dir, "link-fifo", 0);
	unlinkat(dir, "link-in", 0);
	unlinkat(dir, "link-out", 0);
	unlinkat(dir, "link-up", 0);
	unlinkat(dir, "inside", 0);
	close(dir);
	rmdir(folder);
}

Test(io_file, stays_beneath_its_folder)
{
	stays_beneath();
}

Test(io_file, stays_beneath_its_folder_without_openat2)
{
	without_openat2 = ENOSYS;
	stays_beneath();
	without_openat2 = EPERM;
	stays_beneath();
}

/* Then a link cannot be judged; a file in the folder need not be. */
Test(io_file, stays_beneath_its_folder_without_openat2_and_proc)
{
	char folder[256], path[300];
	without_openat2 = ENOSYS;
	without_proc = true;
	cr_assert(mkdir(scratch(folder, sizeof folder, "proc"), 0700) == 0);
	(void)snprintf(path, sizeof path, "%s/inside", folder);
	make_file(path, 10);
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(dir >= 0 && symlinkat("inside", dir, "link") == 0);
	cr_expect(try_open(dir, "inside", HOIST__FILE_BENEATH) == 0);
	cr_expect(try_open(dir, "absent", HOIST__FILE_BENEATH) == -ENOENT);
	cr_expect(try_open(dir, "link", HOIST__FILE_BENEATH) == -ENOTSUP);
	cr_expect(strstr(hoist__error_text(), "/proc is not mounted") != NULL);
	cr_expect(try_open(dir, "./inside", HOIST__FILE_BENEATH) == -ENOTSUP);
	cr_expect(try_open(dir, "..", HOIST__FILE_BENEATH) == -ENOTSUP);
	unlinkat(dir, "link", 0);
	unlinkat(dir, "inside", 0);
	close(dir);
	rmdir(folder);
}

Test(io_file, says_why_there_are_no_direct_reads)
{
	char path[256];
	struct hoist__file *file = NULL;
	make_file(scratch(path, sizeof path, "plain"), 4096);
	cr_assert(hoist__file_open(AT_FDCWD, path, NULL, HOIST__FILE_NO_DIRECT, &file) == 0);
	cr_expect(file->direct_fd == -1 && file->direct_note[0] != '\0');
	hoist__file_close(file);
	unlink(path);

	cr_assert(hoist__file_open(AT_FDCWD, "/proc/self/maps", NULL, 0, &file) == 0);
	cr_expect(file->direct_fd == -1 && file->direct_note[0] != '\0');
	hoist__file_close(file);
}

Test(io_file, on_tmpfs_lives_in_memory)
{
	struct statfs fs;
	if (statfs("/dev/shm", &fs) < 0 || fs.f_type != 0x01021994)
		cr_skip_test("/dev/shm is no tmpfs");
	char path[64];
	(void)snprintf(path, sizeof path, "/dev/shm/hoist-io-%d", (int)getpid());
	make_file(path, 5000);
	struct hoist__file *file = open_file(path);
	unlink(path);
	cr_expect(file->in_memory && file->direct_fd == -1);
	cr_expect(strcmp(file->fs->name, "tmpfs") == 0 && file->fs->memory && !file->dontcache);
	cr_expect(strstr(file->direct_note, "memory") != NULL);
	uint64_t resident = 0;
	cr_expect(hoist__file_resident(file, 0, 9999, &resident) == 0 && resident == 5000);
	hoist__file_close(file);
}

/* The promises of the defaults to a caller that plans with them. */
Test(io_file, file_systems_have_usable_defaults)
{
	static const struct {
		unsigned long magic;
		const char *name;
		bool direct;
		bool network;
	} known[] = {
		{0xEF53, "ext4", true, false},		 {0x58465342, "xfs", true, false},
		{0x9123683E, "btrfs", true, false},	 {0xF2F52010, "f2fs", true, false},
		{0x794c7630, "overlay", true, false},	 {0x6969, "nfs", true, true},
		{0xFF534D42, "smb", true, true},	 {0xFE534D42, "smb", true, true},
		{0x65735546, "fuse", false, true},	 {0x0BD00BD0, "lustre", true, true},
		{0x00c36400, "ceph", true, true},	 {0x47504653, "gpfs", true, true},
		{0x19830326, "beegfs", true, true},	 {0x01021997, "9p", false, true},
		{0x01021994, "tmpfs", false, false},	 {0x858458f6, "ramfs", false, false},
		{0x958458f6, "hugetlbfs", false, false}, {0x73717368, "other", true, false},
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		const struct hoist__fs *fs = hoist__fs_of(known[i].magic);
		cr_expect(strcmp(fs->name, known[i].name) == 0, "%s", fs->name);
		cr_expect(fs->direct == known[i].direct && fs->network == known[i].network);
		cr_expect(!fs->memory || (!fs->direct && !fs->network));
		cr_expect(fs->depth >= 1 && fs->depth <= 4096, "%s", fs->name);
		cr_expect(fs->chunk_bytes >= HOIST__FILE_MAX_ALIGN &&
				  (fs->chunk_bytes & (fs->chunk_bytes - 1)) == 0,
			  "%s", fs->name);
	}
}

/* Its node lies on a tmpfs, its bytes do not. */
Test(io_file, a_block_device_is_no_file_in_memory)
{
	static const char *const names[] = {"/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0"};
	struct hoist__file *file = NULL;
	for (size_t i = 0; i < 4 && file == NULL; i++)
		(void)hoist__file_open(AT_FDCWD, names[i], NULL, 0, &file);
	if (file == NULL)
		cr_skip_test("no block device can be opened");
	cr_expect(!file->in_memory && strcmp(file->fs->name, "block device") == 0);
	hoist__file_close(file);
}

Test(io_file, direct_reads_keep_the_promised_alignment)
{
	struct hoist__file *file = new_file(100000);
	if (file->direct_fd < 0)
		cr_skip_test("no direct reads here: %s", file->direct_note);
	cr_expect(file->direct_note[0] == '\0');
	uint32_t step = file->offset_align;
	cr_expect(step > 0 && (step & (step - 1)) == 0);
	cr_expect((file->memory_align & (file->memory_align - 1)) == 0);
	unsigned char *memory = new_memory(8192 + 4096);
	unsigned char *to = memory + file->memory_align % 4096;
	cr_assert(step <= 4096);
	cr_expect(pread(file->direct_fd, to, 8192, step) == 8192);
	cr_expect(first_wrong(file->fd, to, step, 8192) == 8192);
	free(memory);
	hoist__file_close(file);
}

Test(io_file, reads_exactly_or_says_where_it_ends)
{
	struct hoist__file *file = new_file(10000);
	unsigned char *memory = new_memory(10001);
	cr_expect(hoist__file_read(file, 0, memory, 10000) == 0);
	cr_expect(first_wrong(file->fd, memory, 0, 10000) == 10000);
	cr_expect(hoist__file_read(file, 9999, memory, 1) == 0 && memory[0] == byte_at(9999));
	cr_expect(hoist__file_read(file, 10000, memory, 0) == 0);
	cr_expect(hoist__file_read(file, 0, memory, 10001) == -ENODATA);
	cr_expect(strstr(hoist__error_text(), "10000") != NULL, "%s", hoist__error_text());
	cr_expect(hoist__file_read(file, 20000, memory, 1) == -ENODATA);
	free(memory);
	hoist__file_close(file);
}

Test(io_file, sees_that_it_was_changed)
{
	char path[256];
	make_file(scratch(path, sizeof path, "changing"), 10000);
	struct hoist__file *file = open_file(path);
	cr_assert(truncate(path, 9999) == 0);
	cr_expect(hoist__file_changed(file) == -EBADMSG);
	cr_expect(strstr(hoist__error_text(), "9999") != NULL);
	cr_assert(truncate(path, 10000) == 0);
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
	cr_assert(utimensat(AT_FDCWD, path, times, 0) == 0);
	cr_expect(hoist__file_changed(file) == -EBADMSG, "the same size, another time");
	hoist__file_close(file);
	unlink(path);
}

/* From here on a change gives the file another ctime: kernels take it from a coarse clock. */
static void await_tick(const struct hoist__file *file)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct timespec now;
	do {
		(void)nanosleep(&nap, NULL);
		cr_assert(clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0);
	} while (hoist__file_time_ns(&now) <= file->ctime_ns);
}

Test(io_file, sees_a_write_whose_time_was_set_back)
{
	char path[256];
	struct stat was;
	make_file(scratch(path, sizeof path, "set-back"), 10000);
	struct hoist__file *file = open_file(path);
	cr_assert(stat(path, &was) == 0);
	await_tick(file);
	int fd = open(path, O_WRONLY);
	const struct timespec times[2] = {was.st_atim, was.st_mtim};
	cr_assert(fd >= 0 && pwrite(fd, "x", 1, 5000) == 1 && futimens(fd, times) == 0);
	close(fd);
	cr_expect(hoist__file_changed(file) == -EBADMSG);
	cr_expect(strstr(hoist__error_text(), "set back") != NULL, "%s", hoist__error_text());
	hoist__file_close(file);
	unlink(path);
}

/* ctime moves, the bytes stay. */
Test(io_file, a_rename_is_no_change)
{
	char path[256], other[256];
	scratch(other, sizeof other, "other-name");
	for (int way = 0; way < 6; way++) {
		unlink(other);
		make_file(scratch(path, sizeof path, "same-bytes"), 10000);
		struct hoist__file *file = open_file(path);
		struct stat now;
		await_tick(file);
		if (way == 0)
			cr_assert(rename(path, other) == 0);
		if (way == 1 || way == 4)
			cr_assert(link(path, other) == 0);
		if (way == 2)
			cr_assert(chmod(path, 0400) == 0);
		if (way == 3)
			cr_assert(unlink(path) == 0);
		if (way == 4 || way == 5) { /* replaced; in 4 the old one kept by a link */
			char new[256];
			make_file(scratch(new, sizeof new, "new-bytes"), 10000);
			cr_assert(rename(new, path) == 0);
		}
		cr_assert(hoist__file_stat(file->fd, &now) == 0);
		cr_expect(hoist__file_time_ns(&now.st_ctim) != file->ctime_ns);
		cr_expect(hoist__file_changed(file) == 0, "way %d: %s", way, hoist__error_text());
		hoist__file_close(file);
		unlink(path);
	}
	unlink(other);
}

Test(io_file, counts_the_bytes_in_the_cache)
{
	struct hoist__file *file = new_file(8 << 20);
	uint64_t resident = 1;
	unsigned char *memory = new_memory(8 << 20);
	cr_assert(hoist__file_read(file, 0, memory, 8 << 20) == 0);
	cr_assert(hoist__file_resident(file, 0, 8 << 20, &resident) == 0);
	cr_expect(resident == 8 << 20);
	cr_assert(hoist__file_resident(file, 8 << 20, 1, &resident) == 0);
	cr_expect(resident == 0, "nothing is behind the end");
	cr_assert(hoist__file_resident(file, (8 << 20) - 1, 100, &resident) == 0);
	cr_expect(resident == 1, "one byte, not a page");
	cr_assert(hoist__file_resident(file, 0, 0, &resident) == 0);
	cr_expect(resident == 0);
	if (!file->in_memory) {
		cr_assert(posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
		cr_assert(hoist__file_resident(file, 0, 8 << 20, &resident) == 0);
		cr_expect(resident < 8 << 20);
		/* The end of one page, a page, the beginning of one that is not there. */
		uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
		cr_assert(posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM) == 0);
		cr_assert(hoist__file_read(file, 0, memory, 2 * page) == 0);
		cr_assert(hoist__file_resident(file, page - 100, page + 200, &resident) == 0);
		if (hoist__file_counts_resident(file) == 0)
			cr_expect(resident < page + 200, "%llu", (unsigned long long)resident);
		cr_assert(hoist__file_resident(file, page - 100, page + 100, &resident) == 0);
		cr_expect(resident == page + 100 || resident == 0, "all or, dropped, nothing");
	}
	free(memory);
	hoist__file_close(file);
}
