/* SPDX-License-Identifier: MIT */
/* A zip archive: its directory is read, and where each entry's bytes lie is asked. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "format/zip.h"
#include "tests/fuzz/fuzz-support.h"

static void check_entry(struct hoist__zip *zip, size_t i, size_t file_bytes)
{
	const struct hoist__zip_entry *entry = &zip->entries[i];
	uint64_t at = 0;
	HOLDS(entry->name_bytes == 0 || memchr(entry->name, 0, entry->name_bytes) == NULL);
	HOLDS(hoist__zip_find(zip, entry->name, entry->name_bytes) == entry);
	HOLDS(entry->header <= entry->end && entry->end <= file_bytes);
	int err = hoist__zip_data(zip, entry, "unpack it", &at);
	HOLDS(err == 0 || err == -EBADMSG || err == -ENOTSUP);
	if (err < 0)
		fuzz_check_text(hoist_error());
	else
		HOLDS(at > entry->header && at <= entry->end && entry->bytes <= entry->end - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct fuzz_file file = {.bytes = bytes, .n = n};
	const struct hoist__reader reader = fuzz_reader(&file);
	struct hoist__zip zip = {.n = 0};
	bool torch = false;
	int err = hoist__zip_open(&reader, &zip);
	HOLDS(err == 0 || err == -EBADMSG || err == -ENOTSUP);
	/* hoist__zip_is_torch() does not look at how entries lie. */
	int asked = hoist__zip_is_torch(&reader, &torch);
	HOLDS(asked == err || (asked == 0 && err == -EBADMSG));
	if (err < 0) {
		fuzz_check_text(hoist_error());
		return 0;
	}
	HOLDS(zip.directory_at <= n);
	for (size_t i = 0; i < zip.n; i++)
		check_entry(&zip, i, n);
	HOLDS(hoist__zip_find(&zip, "no such entry", 13) == NULL || zip.n > 0);
	hoist__zip_close(&zip);
	return 0;
}
