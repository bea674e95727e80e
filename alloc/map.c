/* SPDX-License-Identifier: MIT */
/* alloc/map.c - maps address space for host regions, and files of shared memory.
 * The contract is in alloc/map.h. */
#include "config.h"

#include "alloc/map.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "alloc/populate.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/log.h"

#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26) /* log2 of the size, in the six bits from 26 */
#endif

size_t hoist__page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static int fail_to_reserve(size_t bytes)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return hoist__fail_errno(-ENOMEM, "reserving %s", hoist__figure(bytes).text);
	return hoist__fail(-ENOMEM,
			   "reserving %s: the process may have %s of address space (RLIMIT_AS); "
			   "raise that with `ulimit -v`",
			   hoist__figure(bytes).text, hoist__figure(limit.rlim_cur).text);
}

int hoist__map_anonymous(size_t bytes, struct hoist__map *ret)
{
	/* The reservation reaches to the end of the last granule of the page map. */
	size_t start_bytes = hoist__round_up(bytes, HOIST__REGION_ALIGN) + HOIST__HUGE_PAGE_BYTES;
	void *start = mmap(NULL, start_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (start == MAP_FAILED)
		return fail_to_reserve(bytes);
	uintptr_t base = hoist__round_up((uintptr_t)start, HOIST__HUGE_PAGE_BYTES);
	struct hoist__map map = {start, start_bytes, (void *)base, bytes};
	if (mprotect(map.base, bytes, PROT_READ | PROT_WRITE) != 0) {
		hoist__map_release(&map);
		return fail_to_reserve(bytes);
	}
	*ret = map;
	return 0;
}

int hoist__map_hugetlb(size_t bytes, struct hoist__map *ret)
{
	if (!hoist__populate_supported())
		return hoist__fail(-ENOTSUP, "hugetlb: this kernel lacks MADV_POPULATE_WRITE");
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
	if (base == MAP_FAILED)
		return hoist__fail_errno(-ENOMEM, "hugetlb: %zu pages", bytes >> 21);
	*ret = (struct hoist__map){base, bytes, base, bytes};
	return 0;
}

int hoist__map_file(int fd, size_t bytes, int protection, int flags, const char *what, char **ret)
{
	const size_t align = HOIST__HUGE_PAGE_BYTES;
	if (bytes > SIZE_MAX / 2)
		return hoist__fail(-ENOMEM, "mapping %s of %zu bytes", what, bytes);
	char *room = mmap(NULL, bytes + align, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return hoist__fail_errno(-ENOMEM, "address space for %s of %s", what,
					 hoist__figure(bytes).text);
	char *base = (char *)hoist__round_up((uintptr_t)room, align);
	size_t before = (size_t)(base - room);
	/* hugetlb maps end at a boundary of their pages. */
	size_t after = align - before;
	if (mmap(base, bytes, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int err = -errno;
		(void)munmap(room, bytes + align);
		return hoist__fail_errno(err == -EAGAIN ? -ENOMEM : err, "mapping %s of %s", what,
					 hoist__figure(bytes).text);
	}
	/* If the process has too many mappings to unmap the rest, the rest costs no memory. */
	if (before > 0)
		(void)munmap(room, before);
	size_t end = hoist__round_up(bytes, hoist__page_bytes());
	if (after > end - bytes)
		(void)munmap(base + end, after - (end - bytes));
	*ret = base;
	return 0;
}

void hoist__map_release(struct hoist__map *map)
{
	if (map->start == NULL)
		return;
	/* munmap() fails only if the process has all the mappings it may have, and this one was
	 * merged with a neighbour.  The pages can go back even so. */
	if (munmap(map->start, map->start_bytes) != 0) {
		hoist__log(alloc, "munmap of %zu bytes failed: %m", map->start_bytes);
		(void)madvise(map->base, map->bytes, MADV_DONTNEED);
	}
	*map = (struct hoist__map){0};
}
