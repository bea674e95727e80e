/* SPDX-License-Identifier: MIT */
/* PyTorch's checkpoints.  An input is an archive, or, if it begins as a pickle does, a pickle that
 * an archive is put around: few changes of an archive leave one. */
#include "config.h"

#include <string.h>

#include "tests/fuzz/fuzz-support.h"

static uint8_t *put(uint8_t *to, const void *bytes, size_t n)
{
	memcpy(to, bytes, n);
	return to + n;
}

static uint8_t *put_number(uint8_t *to, uint64_t value, unsigned n)
{
	while (n-- > 0) {
		*to++ = (uint8_t)value;
		value >>= 8;
	}
	return to;
}

/* The fields that a local header and an entry of the directory have in common. */
static uint8_t *put_entry(uint8_t *to, const char *name, size_t n)
{
	to = put_number(to, 20, 2); /* version, flags, method, time, checksum */
	to = put_number(to, 0, 8);
	to = put_number(to, 0, 4);
	to = put_number(to, n, 4);
	to = put_number(to, n, 4);
	return put_number(to, strlen(name), 4); /* and no extra field */
}

static uint8_t *put_member(uint8_t *to, const char *name, const void *bytes, size_t n)
{
	to = put_entry(put(to, "PK\3\4", 4), name, n);
	return put(put(to, name, strlen(name)), bytes, n);
}

static uint8_t *put_listed(uint8_t *to, const char *name, size_t n, size_t at)
{
	to = put_entry(put_number(put(to, "PK\1\2", 4), 20, 2), name, n);
	to = put_number(put_number(to, 0, 10), at, 4);
	return put(to, name, strlen(name));
}

#define ARCHIVE_BYTES 512 /* what it takes beside the pickle */

static size_t put_archive(uint8_t *archive, const uint8_t *pickle, size_t n)
{
	static const char name[] = "m/data.pkl";
	static const char storage[] = "m/data/0";
	static const uint8_t zeros[96];
	uint8_t *to = put_member(archive, name, pickle, n);
	const size_t at = (size_t)(to - archive);
	to = put_member(to, storage, zeros, sizeof zeros);
	const size_t directory = (size_t)(to - archive);
	to = put_listed(put_listed(to, name, n, 0), storage, sizeof zeros, at);
	const size_t bytes = (size_t)(to - archive) - directory;
	to = put_number(put(to, "PK\5\6", 4), 0, 4);
	to = put_number(put_number(to, 2, 2), 2, 2);
	to = put_number(put_number(put_number(to, bytes, 4), directory, 4), 0, 2);
	return (size_t)(to - archive);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	if (n == 0 || bytes[0] != 0x80) {
		fuzz_format(bytes, n, HOIST__TORCH);
		return 0;
	}
	uint8_t *archive = malloc(n + ARCHIVE_BYTES);
	HOLDS(archive != NULL);
	fuzz_format(archive, put_archive(archive, bytes, n), HOIST__TORCH);
	free(archive);
	return 0;
}
