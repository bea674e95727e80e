/* SPDX-License-Identifier: MIT */
/* Opens direct descriptors, and finds the alignment that the file system wants.
 * The contract is in io/direct.h. */
#include "config.h"

#include "io/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "io/again.h"

/* Linux 6.1.  Older headers lack the bit and the two fields, whose offsets in the 256 bytes of
 * struct statx are fixed. */
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U
#endif
#define STATX_DIO_MEM_ALIGN 0x98
#define STATX_DIO_OFFSET_ALIGN 0x9c
_Static_assert(sizeof(struct statx) == 256, "struct statx has a fixed size");

/* Used where the kernel does not report an alignment: no file system in use wants more. */
#define FALLBACK_ALIGN 4096u

static void say(struct hoist__file *file, const char *why)
{
	(void)snprintf(file->direct_note, sizeof file->direct_note, "%s", why);
}

static uint32_t field(const struct statx *stx, size_t at)
{
	uint32_t value;
	memcpy(&value, (const char *)stx + at, sizeof value);
	return value;
}

/* Reads the alignment that the file system reports; false if it reports none. */
static bool ask(struct hoist__file *file)
{
	struct statx stx;
	memset(&stx, 0, sizeof stx);
	if (statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) < 0 ||
	    (stx.stx_mask & STATX_DIOALIGN) == 0)
		return false;
	file->memory_align = field(&stx, STATX_DIO_MEM_ALIGN);
	file->offset_align = field(&stx, STATX_DIO_OFFSET_ALIGN);
	return true;
}

static bool usable(uint32_t align)
{
	return hoist__is_power_of_two(align) && align <= HOIST__FILE_MAX_ALIGN;
}

/* Opens the same inode again, through /proc: the path may lead to another file by now.  O_DIRECT
 * set by fcntl(2) would be accepted by file systems that then fail every read. */
static int reopen(const struct hoist__file *file)
{
	char path[32];
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
	int fd = HOIST__UNINTERRUPTED(open(path, O_RDONLY | O_CLOEXEC | O_DIRECT));
	return fd < 0 ? -errno : fd;
}

/* Tries one aligned read, for kernels that do not report an alignment. */
static int try_read(int fd)
{
	void *block;
	if (posix_memalign(&block, FALLBACK_ALIGN, FALLBACK_ALIGN) != 0)
		return -ENOMEM;
	ssize_t n = HOIST__UNINTERRUPTED(pread(fd, block, FALLBACK_ALIGN, 0));
	int err = n < 0 ? -errno : 0;
	free(block);
	return err;
}

static void explain_refusal(struct hoist__file *file, int err)
{
	if (err == -ENOENT)
		say(file, "/proc is not mounted, so the file cannot be opened again");
	else if (err == -EINVAL || err == -EOPNOTSUPP)
		say(file, "the file system refuses O_DIRECT");
	else if (err == -EMFILE)
		say(file, HOIST__TOO_FEW_DESCRIPTORS);
	else
		(void)snprintf(file->direct_note, sizeof file->direct_note,
			       "opening the file with O_DIRECT: %s", strerrorname_np(-err));
}

/* An alignment that statx(2) reports is trusted.  Without one, the fallback is tried with a real
 * read, since some file systems accept O_DIRECT and then fail every read.  Alignments of zero say
 * that the file system supports no direct reads. */
static void open_it(struct hoist__file *file)
{
	bool told = ask(file);
	if (told && file->memory_align == 0 && file->offset_align == 0) {
		say(file, "the file system says that it would use the page cache anyway");
		return;
	}
	if (!told) {
		file->memory_align = FALLBACK_ALIGN;
		file->offset_align = FALLBACK_ALIGN;
	}
	if (!usable(file->memory_align) || !usable(file->offset_align)) {
		say(file, "the file system wants an alignment that hoist cannot give");
		return;
	}
	int fd = reopen(file);
	if (fd < 0) {
		explain_refusal(file, fd);
		return;
	}
	int err = told ? 0 : try_read(fd);
	if (err != 0) {
		explain_refusal(file, err);
		close(fd);
		return;
	}
	file->direct_fd = fd;
}

void hoist__direct_give_up(struct hoist__file *file, const char *why)
{
	if (file->direct_fd >= 0)
		(void)close(file->direct_fd);
	file->direct_fd = -1;
	file->memory_align = 1;
	file->offset_align = 1;
	say(file, why);
}

void hoist__direct_open(struct hoist__file *file, bool wanted)
{
	if (!wanted)
		say(file, "not asked for");
	else if (file->in_memory)
		say(file, "the file lives in memory (tmpfs, ramfs or hugetlbfs)");
	else
		open_it(file);
	if (file->direct_fd < 0) {
		file->memory_align = 1;
		file->offset_align = 1;
	}
}
