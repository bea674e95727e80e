/* SPDX-License-Identifier: MIT */
/* base/line.h - a text that is made piece by piece in a caller's array, which may be too short. */
#ifndef HOIST_BASE_LINE_H
#define HOIST_BASE_LINE_H

#include "base/error.h"

struct hoist__line {
	char *text;   /* may be NULL if `bytes` is 0 */
	size_t bytes; /* of the array */
	size_t used;  /* of the whole text, also of what found no room */
};

/* Adds to the text.  The array has as much of the text as fits, with a NUL. */
void hoist__line_add(struct hoist__line *line, const char *format, ...) HOIST__PRINTF(2, 3);

#endif
