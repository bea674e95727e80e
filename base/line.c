/* SPDX-License-Identifier: MIT */
/* A text that is made piece by piece.
 * The contract is in base/line.h. */
#include "config.h"

#include "base/line.h"

#include <stdarg.h>
#include <stdio.h>

void hoist__line_add(struct hoist__line *line, const char *format, ...)
{
	size_t at = line->used < line->bytes ? line->used : line->bytes;
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(line->bytes > 0 ? line->text + at : NULL, line->bytes - at, format,
			  arguments);
	va_end(arguments);
	line->used += n > 0 ? (size_t)n : 0;
}
