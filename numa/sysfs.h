/* SPDX-License-Identifier: MIT */
/* numa/sysfs.h - reads small sysfs files under a root that is a parameter.
 *
 * Every path is <root>/<printf format>.  A missing file is an ordinary answer here, so that nothing
 * sets the error text. */
#ifndef HOIST_NUMA_SYSFS_H
#define HOIST_NUMA_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define HOIST__SYSFS_BYTES 16384 /* holds a list of some thousand CPUs with gaps */
#define HOIST__MAX_CPUS 65536	 /* higher ids are taken for damage */

/* Reads the file, at most @bytes - 1 of it, and terminates it.
 * Returns: 0; the negative errno of open(2) or read(2); -ENAMETOOLONG. */
int hoist__sysfs_read(char *buffer, size_t bytes, const char *root, const char *format, ...)
	HOIST__PRINTF(4, 5);

/* Reads the one decimal number of the file.  *ret is untouched on failure.
 * Returns: 0; as hoist__sysfs_read(); -EBADMSG if the file holds no number (logged). */
int hoist__sysfs_number(int64_t *ret, const char *root, const char *format, ...)
	HOIST__PRINTF(3, 4);

/* A growing array of ids in ascending order; the caller frees @ids. */
struct hoist__ids {
	int *ids;
	size_t n_ids;
	size_t capacity;
};

/* Appends the ids of a kernel list ("0-3,8,10-11"; empty means no ids).  A malformed part, or one
 * that does not ascend, ends the reading and is logged with @what.
 * Returns: 0; -ENOMEM with the text set; @ids keeps the ids that were read. */
int hoist__ids_parse(struct hoist__ids *ids, const char *text, const char *what);

#endif
