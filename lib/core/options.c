/* SPDX-License-Identifier: MIT */
/* lib/core/options.c - copies structs that begin with their size, so that they can grow.
 * The contract is in lib/core/options.h.
 *
 * A caller built against an older header passes a smaller struct: the missing fields get their
 * defaults.  A caller built against a newer header passes a larger struct: that works as long as
 * the fields that this library does not know are 0. */
#include "config.h"

#include <string.h>

#include "base/error.h"
#include "lib/core/options.h"

/* The caller's struct may lie at an address that is not aligned for a size_t. */
static size_t size_of(const void *given)
{
	size_t size;
	memcpy(&size, given, sizeof size);
	return size;
}

static int check_least(const char *what, size_t size)
{
	if (size >= sizeof size)
		return 0;
	return hoist__fail(-EINVAL, "%s: the size field is %zu; set that field to sizeof(%s)", what,
			   size, what);
}

/* An unknown field that is set is refused: to ignore it would silently not do what the caller
 * asked. */
int hoist__options_in(const char *what, const void *given, void *known, size_t known_bytes)
{
	size_t size = known_bytes;
	if (given != NULL) {
		size = size_of(given);
		int err = check_least(what, size);
		if (err < 0)
			return err;
		const unsigned char *bytes = given;
		for (size_t i = known_bytes; i < size; i++)
			if (bytes[i] != 0)
				return hoist__fail(
					-EINVAL,
					"%s: byte %zu of %zu is set, and this library knows only "
					"%zu bytes; the library is older than the caller's header",
					what, i, size, known_bytes);
	}
	memset(known, 0, known_bytes);
	if (given != NULL)
		memcpy(known, given, size < known_bytes ? size : known_bytes);
	memcpy(known, &known_bytes, sizeof known_bytes);
	return 0;
}

int hoist__options_check(const char *what, const void *given, size_t known_bytes)
{
	if (given == NULL)
		return hoist__fail(-EINVAL, "%s: there is no struct to fill", what);
	size_t size = size_of(given);
	int err = check_least(what, size);
	if (err < 0)
		return err;
	if (size > known_bytes)
		return hoist__fail(-EINVAL,
				   "%s: the size field is %zu, and this library knows only %zu "
				   "bytes; the library is older than the caller's header",
				   what, size, known_bytes);
	return 0;
}

int hoist__options_out(const char *what, void *given, const void *known, size_t known_bytes)
{
	int err = hoist__options_check(what, given, known_bytes);
	if (err < 0)
		return err;
	size_t size = size_of(given);
	memcpy((unsigned char *)given + sizeof size, (const unsigned char *)known + sizeof size,
	       size - sizeof size);
	return 0;
}
