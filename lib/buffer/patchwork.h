/* SPDX-License-Identifier: MIT */
/* lib/buffer/patchwork.h - a storage of host memory in which ranges of files are mapped.
 *
 * A patchwork is anonymous memory of one region (alloc/region.h) that belongs to this storage
 * alone, and to no pool: no other block ever has its addresses.  A patch replaces whole pages of it
 * by a private, writable map of a file: the pages are the page cache's until somebody writes to
 * them, and then copies of the process's own.  The rest is unpopulated, and is filled by its owner.
 *
 *   file        |...a...|.......b.......|....c....|
 *   patchwork   | read  |  patch: maps  |  read   |     each byte at the same place within a page
 *
 * The storage's end unmaps all of it at once.  Until then pages can go back one by one
 * (portions.h): the kernel forgets anonymous pages, and of a patch the map of the pages and the
 * process's own copies.  From the first time on, the kernel makes no new huge page of the anonymous
 * memory.  A touch would show zeros there, or the file: nobody touches bytes that went back.
 *
 * A touch of a page that the file has lost raises SIGBUS, as in all maps (io/map.h).  A patch is a
 * map of this process, and a child of fork has it, too.
 *
 * Threads: making and patching are the owner's, before anybody else knows the storage.
 */
#ifndef HOIST_LIB_BUFFER_PATCHWORK_H
#define HOIST_LIB_BUFFER_PATCHWORK_H

#include <stddef.h>
#include <stdint.h>

#include "io/file.h"
#include "lib/buffer/storage.h"

/* Makes a patchwork of @bytes bytes on @device, the CPU, without patches.  It begins @skew bytes, a
 * number of pages below 2 MiB, behind a multiple of 2 MiB: patches that lie in a huge page as they
 * lie in their file are mapped by huge pages, where the page cache has them.
 * Returns: 0; -ENOMEM. */
int hoist__patchwork_create(hoist_device *device, size_t bytes, size_t skew,
			    struct hoist__storage **ret);

/* Maps [@offset, @offset + @bytes) of @file over the bytes from @at on.  @at and @offset are
 * multiples of the page; the last page may be a part of one.  Patches are made in ascending order.
 * The map needs no descriptor later.
 * Returns: 0; -ENOMEM; the kernel's refusal.  On failure the bytes stay anonymous memory. */
int hoist__patchwork_map(struct hoist__storage *storage, size_t at, const struct hoist__file *file,
			 uint64_t offset, size_t bytes);

#endif
