/* SPDX-License-Identifier: MIT */
/* hoist/slice.h - parts of axes, as Python's slices: what buffers and layouts are sliced by.
 *
 *     const hoist_slice rows = HOIST_RANGE(8, 16);   // [8:16]
 *     hoist_buffer_slice(weight, 1, &rows, &part);
 */
#ifndef HOIST_SLICE_H
#define HOIST_SLICE_H

#include <stdint.h>

#include <hoist/error.h>

HOIST_BEGIN

#define HOIST_MAX_RANK 64 /* axes of a buffer or layout */

/* An index of one axis, as in NumPy: an integer, which drops its axis, or a range.  In ranges,
 * HOIST_NONE means the same as Python's None; negative values count from the end. */
typedef struct hoist_slice {
	int64_t start; /* for an integer, the integer itself */
	int64_t stop;
	int64_t step;  /* not 0 */
	int is_index;  /* 1: an integer; 0: a range */
} hoist_slice;

#define HOIST_NONE INT64_MIN
#ifdef __cplusplus
#define HOIST_SLICE_(start, stop, step, is_index)                                                  \
	(hoist_slice{static_cast<int64_t>(start), static_cast<int64_t>(stop),                     \
		     static_cast<int64_t>(step), is_index})
#else
#define HOIST_SLICE_(start, stop, step, is_index)                                                  \
	((hoist_slice){(int64_t)(start), (int64_t)(stop), (int64_t)(step), is_index})
#endif
#define HOIST_AT(i) HOIST_SLICE_(i, 0, 1, 1)				     /* [i] */
#define HOIST_ALL HOIST_SLICE_(HOIST_NONE, HOIST_NONE, 1, 0)		     /* [:] */
#define HOIST_RANGE(start, stop) HOIST_SLICE_(start, stop, 1, 0)	     /* [start:stop] */
#define HOIST_STEP(start, stop, step) HOIST_SLICE_(start, stop, step, 0) /* [start:stop:step] */

HOIST_END

#endif
