/* SPDX-License-Identifier: MIT */
/* Reads numbers of bytes with their suffixes.
 * The contract is in tools/args.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/args.h"

int args_bytes(const char *text, size_t *ret)
{
	static const char prefixes[] = "KMGT";
	if (*text < '0' || *text > '9')
		return -EINVAL;
	char *end = NULL;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno == ERANGE)
		return -EOVERFLOW;
	const char *prefix = *end == '\0' ? NULL : strchr(prefixes, *end & ~0x20);
	if (prefix != NULL) {
		const char *unit = end + 1;
		uint64_t base = 1024;
		if (strcmp(unit, "B") == 0 || strcmp(unit, "b") == 0)
			base = 1000;
		else if (*unit != '\0' && strcasecmp(unit, "iB") != 0)
			return -EINVAL;
		for (const char *p = prefixes; p <= prefix; p++) {
			if (__builtin_mul_overflow(value, base, &value))
				return -EOVERFLOW;
		}
	} else if (*end != '\0') {
		return -EINVAL;
	}
	if (value > SIZE_MAX / 2)
		return -EOVERFLOW;
	*ret = (size_t)value;
	return 0;
}
