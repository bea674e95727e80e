/* SPDX-License-Identifier: MIT */
/* format/quote.h - makes names from a file fit for a message: short, on one line, and without the
 * control characters on which a terminal would act. */
#ifndef HOIST_FORMAT_QUOTE_H
#define HOIST_FORMAT_QUOTE_H

#include <stddef.h>

/* Writes @name for a message: in quotes, with control characters escaped.  A long name is cut, and
 * its length put behind it.  HOIST__QUOTED_BYTES are always enough. */
#define HOIST__QUOTED_BYTES 160
const char *hoist__quoted(const char *name, size_t bytes, char out[HOIST__QUOTED_BYTES]);

/* The same for the name of a file: without quotes, and a long name loses its beginning. */
const char *hoist__file_quoted(const char *file, char out[HOIST__QUOTED_BYTES]);

#endif
