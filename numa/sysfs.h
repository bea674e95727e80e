/* SPDX-License-Identifier: MIT */
/* numa/sysfs.h - reading small sysfs files under a root that is a parameter.
 *
 * Every path is <root>/<printf format>.  A file that is missing is an ordinary
 * answer here, so nothing sets the error text.
 */
#ifndef HOIST_NUMA_SYSFS_H
#define HOIST_NUMA_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define HOIST__SYSFS_BYTES 16384 /* holds a list of some thousand CPUs with gaps */
#define HOIST__MAX_CPUS 65536	 /* ids from here on are taken for damage */

/* Reads the file, at most @bytes - 1 of it, and terminates it.
 * Returns: 0; the negative errno of open(2) or read(2); -ENAMETOOLONG. */
int hoist__sysfs_read(char *buffer, size_t bytes, const char *root, const char *format, ...)
	HOIST__PRINTF(4, 5);

/* The file's one decimal number.  @ret is untouched on failure.
 * Returns: 0; as hoist__sysfs_read(); -EBADMSG if it holds no number (logged). */
int hoist__sysfs_number(int64_t *ret, const char *root, const char *format, ...)
	HOIST__PRINTF(3, 4);

/* A growing array of ids in ascending order; the caller frees @ids. */
struct hoist__ids {
	int *ids;
	size_t n_ids;
	size_t capacity;
};

/* Appends the ids of a kernel list ("0-3,8,10-11"; empty is no ids).  What is
 * malformed, or not ascending, ends the reading and is logged with @what.
 * Returns: 0; -ENOMEM with the text set; @ids keeps what was read. */
int hoist__ids_parse(struct hoist__ids *ids, const char *text, const char *what);

#endif
