/* SPDX-License-Identifier: MIT */
/* lib/core/options.h - structs that begin with their size: options of callers, and infos for them. */
#ifndef HOIST_LIB_CORE_OPTIONS_H
#define HOIST_LIB_CORE_OPTIONS_H

#include <stddef.h>

/* Checks and copies an options struct that begins with its size.  Fields beyond
 * the caller's size become 0, which is every option's default; @given NULL gives
 * all defaults.  The size in @known becomes @known_bytes.
 * Returns: 0; -EINVAL for a size that cannot hold itself, or one above @known_bytes
 *   unless all bytes beyond are 0. */
int hoist__options_in(const char *what, const void *given, void *known, size_t known_bytes);

/* The way out, for info structs: copies the first given-size bytes of @known,
 * keeping the caller's size.
 * Returns: 0; -EINVAL for NULL, a size that cannot hold itself, or one above
 *   @known_bytes. */
int hoist__options_out(const char *what, void *given, const void *known, size_t known_bytes);

#endif
