/* SPDX-License-Identifier: MIT */
/* alloc/map.h - address space for host regions: the recipe's first two steps.
 *
 * An anonymous map reserves 2 MiB more than asked for, without access, and opens the aligned
 * middle.  The rest on both sides costs no memory, and a stray access there faults.  The map
 * reaches to the end of the last 64 KiB (HOIST__REGION_ALIGN) that the memory has a part of, so no
 * other mapping lies in these 64 KiB.  A hugetlb map fills its last 64 KiB, as both its ends are
 * multiples of 2 MiB.
 */
#ifndef HOIST_ALLOC_MAP_H
#define HOIST_ALLOC_MAP_H

#include <stddef.h>

#include "alloc/region.h"

struct hoist__map {
	void *start; /* the start that munmap() gets */
	size_t start_bytes;
	void *base; /* the start of the usable part: 2 MiB-aligned */
	size_t bytes;
};

size_t hoist__page_bytes(void);

/* Maps readable and writable anonymous memory in base pages.  @bytes is a multiple of the page.
 * Returns: 0; -ENOMEM. */
int hoist__map_anonymous(size_t bytes, struct hoist__map *ret);

/* The same from the 2 MiB hugetlb pool; @bytes is a multiple of 2 MiB.
 * Returns: 0; -ENOMEM if the pool has too few; -ENOTSUP if hugetlb memory cannot be populated
 *   safely here (a touch of a page that the pool cannot supply kills the process). */
int hoist__map_hugetlb(size_t bytes, struct hoist__map *ret);

/* Maps the first @bytes of a file at a 2 MiB boundary, so that huge pages of the page cache are
 * mapped as such.  @protection, @flags: as mmap(2).  @what: for messages.  The caller unmaps
 * @bytes.
 * Returns: 0; -ENOMEM; as mmap(2). */
int hoist__map_file(int fd, size_t bytes, int protection, int flags, const char *what, char **ret);

/* Gives the memory back, also where munmap() fails. */
void hoist__map_release(struct hoist__map *map);

#endif
