/* SPDX-License-Identifier: MIT */
/* lib/core/options.h - structs that begin with their size: a caller's options, and infos for a
 * caller. */
#ifndef HOIST_LIB_CORE_OPTIONS_H
#define HOIST_LIB_CORE_OPTIONS_H

#include <stddef.h>

/* Checks and copies an options struct that begins with its size.  Fields beyond the caller's size
 * become 0, which is every option's default.  @given NULL gives all defaults.  The size in @known
 * becomes @known_bytes.
 * Returns: 0; -EINVAL for a size that cannot hold itself, or for one above @known_bytes unless all
 *   bytes beyond @known_bytes are 0. */
int hoist__options_in(const char *what, const void *given, void *known, size_t known_bytes);

/* Fills an info struct: copies as many bytes of @known as the size in @given says, and keeps that
 * size.
 * Returns: 0; -EINVAL for NULL, for a size that cannot hold itself, or for one above @known_bytes.
 */
int hoist__options_out(const char *what, void *given, const void *known, size_t known_bytes);

/* Checks the size in @given as hoist__options_out() does, which then cannot fail. */
int hoist__options_check(const char *what, const void *given, size_t known_bytes);

#endif
