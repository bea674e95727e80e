/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-memory.c - makes, seals, checks and maps files in memory.
 * The contract is in lib/cache/cache.h. */
#include "config.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "alloc/map.h"
#include "alloc/pool.h"
#include "alloc/region.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/limit.h"
#include "lib/cache/cache.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

/* The kernel releases the pages of a read a little after the read has ended. */
#define SEAL_TRIES 500

/* --- mapping --- */

/* A page must be available when it is copied on write.  The kernel reserves as many hugetlb pages
 * as may be copied, so that none is missing at a touch, which would kill the process.  Small pages
 * are not reserved.
 */
int hoist__memory_file_map(int fd, size_t bytes, bool hugetlb, bool read_only, char **ret)
{
	int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	int flags = MAP_PRIVATE | (hugetlb && !read_only ? 0 : MAP_NORESERVE);
	int err = hoist__map_file(fd, bytes, protection, flags, "an image", ret);
	if (err == -ENOMEM && hugetlb && !read_only)
		return hoist__fail(
			err,
			"mapping an image of %s in hugetlb pages, of which as many must be "
			"free, as each may be copied; attach it read-only",
			hoist__figure(bytes).text);
	return err;
}

/* --- pages --- */

/* Reads the kernel's choice for shared memory, which is in brackets in the list of choices. */
static bool read_choice(const char *path, char *ret, size_t room)
{
	char text[128];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof text - 1);
	(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	const char *from = strchr(text, '[');
	const char *to = from != NULL ? strchr(from, ']') : NULL;
	if (to == NULL)
		return false;
	(void)snprintf(ret, room, "%.*s", (int)(to - from - 1), from + 1);
	return true;
}

/* Asks for transparent huge pages, where the kernel gives them to shared memory on request. */
static int ask_for_huge(struct hoist__memory_file *file)
{
	static const char each[] =
		"/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled";
	static const char all[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	char choice[32] = "unknown";
	if (!read_choice(each, choice, sizeof choice) || strcmp(choice, "inherit") == 0)
		(void)read_choice(all, choice, sizeof choice);
	bool never = strcmp(choice, "never") == 0 || strcmp(choice, "deny") == 0 ||
		     strcmp(choice, "unknown") == 0;
	bool asked = !never && madvise(file->base, file->bytes, MADV_HUGEPAGE) == 0;
	return asked ? HOIST_PAGES_DEFAULT : HOIST_PAGES_SMALL;
}

static int open_memfd(unsigned flags, size_t bytes, int *ret)
{
	flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create("hoist-image", flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* the kernel is older than the flag */
		fd = memfd_create("hoist-image", flags);
	if (fd < 0)
		return hoist__fail_memfd(errno, "making an image");
	int err = hoist__check_file_bytes(bytes, "an image");
	if (err == 0 && ftruncate(fd, (off_t)bytes) < 0) {
		err = errno == EFBIG || errno == EINVAL ? -ENOMEM : -errno;
		(void)hoist__fail_errno(err, "an image of %s", hoist__figure(bytes).text);
	}
	if (err < 0) {
		(void)close(fd);
		return err;
	}
	*ret = fd;
	return 0;
}

/* A shared mapping of hugetlb pages reserves them: it fails if there are too few. */
static int open_hugetlb(size_t bytes, struct hoist__memory_file *file)
{
	size_t whole = (size_t)hoist__round_up(bytes, HOIST__HUGE_PAGE_BYTES);
	int fd = -1;
	int err = open_memfd(MFD_HUGETLB | MFD_HUGE_2MB, whole, &fd);
	if (err == 0)
		err = hoist__map_file(fd, whole, PROT_READ | PROT_WRITE, MAP_SHARED, "an image",
				      &file->base);
	if (err < 0) {
		(void)snprintf(file->note, sizeof file->note, "no hugetlb pages: %.120s",
			       hoist__error_text());
		if (fd >= 0)
			(void)close(fd);
		return err;
	}
	file->fd = fd;
	file->bytes = whole;
	file->pages = HOIST_PAGES_HUGETLB;
	return 0;
}

static int open_plain(size_t bytes, bool huge, struct hoist__memory_file *file)
{
	size_t whole = (size_t)hoist__round_up(bytes, hoist__page_bytes());
	int err = open_memfd(0, whole, &file->fd);
	if (err == 0)
		err = hoist__map_file(file->fd, whole, PROT_READ | PROT_WRITE, MAP_SHARED,
				      "an image", &file->base);
	if (err < 0)
		return err;
	file->bytes = whole;
	file->pages = huge ? ask_for_huge(file) : HOIST_PAGES_SMALL;
	if (!huge) /* some systems give huge pages unasked */
		(void)madvise(file->base, file->bytes, MADV_NOHUGEPAGE);
	return 0;
}

/* --- making and ending --- */

/* The pool may have enough pages, but the nodes asked for, or the cgroup, too few.  Mapping does
 * not tell that.
 * Returns: 0; -ENOMEM, with the note, if there are too few; other errors are final. */
static int create_hugetlb(size_t bytes, const hoist_cache_options *options,
			  struct hoist__memory_file *file)
{
	if (open_hugetlb(bytes, file) < 0)
		return -ENOMEM;
	int err = hoist__memory_file_place(file, options);
	if (err != -ENOMEM)
		return err;
	hoist__memory_file_close(file);
	(void)snprintf(file->note, sizeof file->note, "no hugetlb pages: %.120s",
		       hoist__error_text());
	file->pages = HOIST_PAGES_DEFAULT;
	return err;
}

/* Plain pages serve two cases that both arrive at them with -ENOMEM: no hugetlb pages were asked
 * for, or there are too few. */
int hoist__memory_file_create(size_t bytes, const hoist_cache_options *options,
			      struct hoist__memory_file *ret)
{
	struct hoist__memory_file file = {.fd = -1, .node = -1};
	int err = -ENOMEM;
	if (bytes > (size_t)INT64_MAX - HOIST__HUGE_PAGE_BYTES)
		return hoist__fail(err, "an image of %zu bytes exceeds every file", bytes);
	if (options->pages == HOIST_PAGES_HUGETLB)
		err = create_hugetlb(bytes, options, &file);
	if (err == -ENOMEM) {
		err = hoist__pools_make_room(bytes, "an image");
		if (err == 0)
			err = open_plain(bytes, options->pages != HOIST_PAGES_SMALL, &file);
		if (err == 0)
			err = hoist__memory_file_place(&file, options);
	}
	if (err < 0) {
		hoist__memory_file_close(&file);
		return err;
	}
	if (!file.late)
		file.node = hoist__memory_file_node(&file);
	*ret = file;
	return 0;
}

int hoist__memory_file_seal(struct hoist__memory_file *file)
{
	(void)munmap(file->base, file->bytes);
	file->base = NULL;
	for (int tries = 0; fcntl(file->fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0; tries++) {
		if (errno != EBUSY || tries == SEAL_TRIES)
			return hoist__fail_errno(-errno, "sealing an image of %s",
						 hoist__figure(file->bytes).text);
		(void)usleep(10000);
	}
	return 0;
}

void hoist__memory_file_close(struct hoist__memory_file *file)
{
	if (file->base != NULL)
		(void)munmap(file->base, file->bytes);
	if (file->fd >= 0)
		(void)close(file->fd);
	file->base = NULL;
	file->fd = -1;
}

int hoist__memory_file_judge(int fd, size_t *bytes, bool *hugetlb)
{
	struct stat status;
	struct statfs system;
	int seals = fcntl(fd, F_GET_SEALS);
	/* A file without seals is asked nothing else: its file system may be a process that does
	 * not answer. */
	if (seals < 0 || fstatfs(fd, &system) < 0 ||
	    (system.f_type != TMPFS_MAGIC && system.f_type != HUGETLBFS_MAGIC))
		return hoist__fail(-EBADMSG, "the descriptor received as an image is no memfd");
	if ((seals & SEALS) != SEALS)
		return hoist__fail(-EBADMSG,
				   "the descriptor received as an image is not sealed against "
				   "writing, shrinking and growing (seals %#x)",
				   (unsigned)seals);
	if (fstat(fd, &status) < 0 || status.st_size <= 0)
		return hoist__fail(-EBADMSG, "the descriptor received as an image has no bytes");
	*bytes = (size_t)status.st_size;
	*hugetlb = system.f_type == HUGETLBFS_MAGIC;
	/* A touch takes a page that is not there yet, and kills the process if none is free. */
	if (*hugetlb && status.st_blocks < status.st_size / 512)
		return hoist__fail(-EBADMSG,
				   "the descriptor received as an image has %lld of its %lld bytes "
				   "of huge pages",
				   (long long)status.st_blocks * 512, (long long)status.st_size);
	return 0;
}
