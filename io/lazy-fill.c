/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/log.h"
#include "io/lazy-kernel.h"
#include "io/lazy-private.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define WINDOW HOIST__LAZY_WINDOW_BYTES

const struct hoist__lazy_area *hoist__lazy_area_of(const struct hoist__lazy *lazy, size_t index)
{
	size_t low = 0;
	size_t high = lazy->n_areas;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (lazy->areas[middle].first <= index)
			low = middle;
		else
			high = middle;
	}
	return &lazy->areas[low];
}

/* Where the byte @at of the memory is in its file. */
static uint64_t offset_of(const struct hoist__lazy_area *area, size_t at)
{
	return area->start + (at - area->first * WINDOW);
}

/* So many of @bytes from @offset on the file had when it was opened: the rest is zeros. */
static size_t held(const struct hoist__file *file, uint64_t offset, size_t bytes)
{
	uint64_t left = offset < file->bytes ? file->bytes - offset : 0;
	return (size_t)hoist__min_u64(left, bytes);
}

/* --- a window --- */

static bool is_cached(const struct hoist__file *file, uint64_t offset, size_t bytes)
{
	uint64_t resident = 0;
	return hoist__file_resident(file, offset, bytes, &resident) == 0 && resident >= bytes;
}

/* What a direct read did not bring, for whatever reason, is read through the page cache: that is
 * also what says why it cannot be had. */
static int read_window(const struct hoist__file *file, uint64_t offset, void *to)
{
	size_t want = held(file, offset, WINDOW);
	size_t done = 0;
	if (file->direct_fd >= 0 && want > 0 && !is_cached(file, offset, want)) {
		ssize_t n = pread(file->direct_fd, to, WINDOW, (off_t)offset);
		done = n > 0 ? (size_t)hoist__min_u64((size_t)n, want) : 0;
	}
	int err = done < want
			  ? hoist__file_read(file, offset + done, (char *)to + done, want - done)
			  : 0;
	if (err == 0 && want < WINDOW)
		memset((char *)to + want, 0, WINDOW - want);
	return err;
}

/* A page of ours that is moved needs no copy, and stays huge.  Copies are small pages; where the
 * kernel can make one of them, it does so at once. */
static int place(struct hoist__lazy *lazy, unsigned char *to, unsigned char *from)
{
	size_t moved = 0;
	if (atomic_load_explicit(&lazy->xmoves, memory_order_relaxed)) {
		int err = hoist__uffd_move(lazy->uffd, to, from, WINDOW, &moved);
		if (err == 0)
			return 0;
		if (err != -EBUSY && err != -EEXIST) {
			hoist__log(io, "UFFDIO_MOVE: %s; pages are copied", strerrorname_np(-err));
			atomic_store(&lazy->xmoves, false);
		}
	}
	int err = hoist__uffd_copy(lazy->uffd, to + moved, from + moved, WINDOW - moved);
	if (err < 0)
		return hoist__fail_errno(err, "userfaultfd: placing %zu bytes", WINDOW - moved);
	if (lazy->region->pages == HOIST__PAGES_THP)
		(void)madvise(to, WINDOW, MADV_COLLAPSE);
	return 0;
}

/* Where in its file the memory's byte @at is; behind the end of one that shrank, its end. */
static uint64_t failed_at(const struct hoist__lazy_area *area, size_t at, int err)
{
	uint64_t offset = offset_of(area, at);
	struct stat now;
	if (err == -ENODATA && hoist__file_stat(area->file->fd, &now) == 0)
		offset = hoist__min_u64(area->file->bytes, (uint64_t)now.st_size);
	return offset;
}

int hoist__lazy_fill(struct hoist__lazy_thread *thread, size_t index)
{
	struct hoist__lazy *lazy = thread->lazy;
	const struct hoist__lazy_area *area = hoist__lazy_area_of(lazy, index);
	unsigned char *staging = (unsigned char *)thread->staging->base;
	uint64_t offset = offset_of(area, index * WINDOW);
	int err = read_window(area->file, offset, staging);
	if (err == 0)
		err = place(lazy, hoist__lazy_window_at(lazy, index), staging);
	if (err < 0)
		err = hoist__fail_in(err, "filling memory from byte %llu of %s on",
				     (unsigned long long)offset, area->file->path);
	if (err == -ENODATA)
		hoist__lazy_keep(lazy, err, area->file, failed_at(area, index * WINDOW, err));
	if (err < 0)
		return err;
	/* It is there; only, of which version? */
	int changed = hoist__file_changed(area->file);
	if (changed < 0)
		hoist__lazy_keep(lazy, changed, area->file, offset);
	return 0;
}

/* --- a page --- */

/* So many bytes from @address up to the end of its window are not there; at least a page if the
 * first one is not. */
static size_t absent(const struct hoist__lazy *lazy, unsigned char *address, size_t page)
{
	unsigned char there[WINDOW / 4096];
	size_t at = (size_t)(address - lazy->data);
	size_t n = (hoist__round_up(at + 1, WINDOW) - at) / page;
	if (mincore(address, n * page, there) < 0)
		return page;
	size_t i = 0;
	while (i < n && (there[i] & 1u) == 0)
		i++;
	return i * page;
}

/* SIGBUS from now on, as an empty file's map has it, whose neighbours the kernel makes one.  If not
 * even that can be had (a process has only so many maps), nothing can be touched any more: no
 * thread may wait for ever, and none may see zeros. */
static void forbid(struct hoist__lazy *lazy, unsigned char *address, size_t bytes)
{
	void *map = mmap(address, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, lazy->nothing,
			 (off_t)(address - lazy->data));
	if (map != MAP_FAILED)
		return;
	hoist__log(io, "%zu bytes that cannot be read cannot be mapped apart, either: %m", bytes);
	(void)mprotect(lazy->data, lazy->bytes, PROT_NONE);
}

static int fill_page(struct hoist__lazy_thread *thread, unsigned char *address, size_t page)
{
	struct hoist__lazy *lazy = thread->lazy;
	size_t at = (size_t)(address - lazy->data);
	const struct hoist__lazy_area *area = hoist__lazy_area_of(lazy, at / WINDOW);
	unsigned char *staging = (unsigned char *)thread->staging->base;
	uint64_t offset = offset_of(area, at);
	size_t want = held(area->file, offset, page);
	int err = want > 0 ? hoist__file_read(area->file, offset, staging, want) : 0;
	if (err < 0)
		return err;
	memset(staging + want, 0, page - want);
	err = hoist__uffd_copy(lazy->uffd, address, staging, page);
	return err < 0 ? hoist__fail_errno(err, "userfaultfd: placing a page of %s",
					   area->file->path)
		       : 0;
}

int hoist__lazy_fill_page(struct hoist__lazy_thread *thread, uintptr_t address)
{
	struct hoist__lazy *lazy = thread->lazy;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t at = hoist__round_down(address - (uintptr_t)lazy->data, page);
	unsigned char *from = lazy->data + at;
	pthread_mutex_lock(&lazy->pages);
	size_t bytes = absent(lazy, from, page);
	int err = bytes > 0 ? fill_page(thread, from, page) : 0;
	if (err < 0) {
		const struct hoist__lazy_area *area = hoist__lazy_area_of(lazy, at / WINDOW);
		hoist__lazy_keep(lazy, err, area->file, failed_at(area, at, err));
		/* Where the file ends, so does all that is behind. */
		forbid(lazy, from, err == -ENODATA ? bytes : page);
	}
	pthread_mutex_unlock(&lazy->pages);
	hoist__uffd_wake(lazy->uffd, from, page);
	return err;
}
