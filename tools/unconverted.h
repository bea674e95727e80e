/* SPDX-License-Identifier: MIT */
/* tools/unconverted.h - the tensors that --dtype leaves in the file's dtype, for the reports. */
#ifndef HOIST_TOOLS_UNCONVERTED_H
#define HOIST_TOOLS_UNCONVERTED_H

#include <stddef.h>

#include <hoist/dtype.h>
#include <hoist/load.h>

struct unconverted {
	size_t n;
	char dtypes[256]; /* each dtype once: "f8_e4m3, i64" */
};

/* Counts a tensor that has @dtype and was to have @asked; 0: nothing was asked for. */
void unconverted_count(struct unconverted *unconverted, hoist_dtype asked, hoist_dtype dtype);

/* Counts those of a load that has ended and does not stream; prints its failure.
 * Returns: a STATUS_*. */
int unconverted_count_all(struct unconverted *unconverted, hoist_dtype asked, hoist_load *load);

/* For commands that print bytes or digests: counts these tensors, too, and says on standard error
 * how many there are, if any.  Returns: a STATUS_*. */
int unconverted_note(hoist_dtype asked, hoist_load *load);

/* Prints a line of a report, if there are such tensors.  @converted: the dtypes that are converted,
 * as LOADS_CONVERT. */
#define LOADS_CONVERT "f32, f16 and bf16"
void unconverted_print(const struct unconverted *unconverted, const char *converted);

#endif
