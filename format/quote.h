/* SPDX-License-Identifier: MIT */
/* format/quote.h - names from a file, made fit for a message: short, on one
 * line, and without the control characters that a terminal would act on. */
#ifndef HOIST_FORMAT_QUOTE_H
#define HOIST_FORMAT_QUOTE_H

#include <stddef.h>

/* Writes @name for a message: in quotes, control characters escaped, cut with
 * its length behind it if it is long.  HOIST__QUOTED_BYTES are always enough. */
#define HOIST__QUOTED_BYTES 160
const char *hoist__quoted(const char *name, size_t bytes, char out[HOIST__QUOTED_BYTES]);

/* The same for the name of a file: no quotes, and a long one loses its front. */
const char *hoist__file_quoted(const char *file, char out[HOIST__QUOTED_BYTES]);

#endif
