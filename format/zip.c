/* SPDX-License-Identifier: MIT */
/* format/zip.c - opens zip archives, and finds the bytes of entries.
 * The contract is in format/zip.h.
 *
 * The places of fields in the records are written beside each number; the names are those of the
 * format's description (PKWARE's APPNOTE 6.3). */
#include "config.h"

#include "format/little.h"
#include "format/zip.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

#define LOCAL_BYTES 30

/* Features of zip archives that this reader refuses. */
#define FLAG_ENCRYPTED 0x0001u
#define FLAG_STRONG 0x0040u
#define FLAG_MASKED 0x2000u

int hoist__window_get(struct hoist__window *window, uint64_t offset, size_t n,
		      const unsigned char **ret)
{
	if (offset < window->at || offset - window->at > window->n ||
	    n > window->n - (offset - window->at)) {
		size_t there = (size_t)hoist__min_u64(sizeof window->bytes,
						      window->reader->bytes - offset);
		window->n = 0;
		int err =
			window->reader->read(window->reader->context, offset, window->bytes, there);
		if (err < 0)
			return err;
		window->at = offset;
		window->n = there;
	}
	*ret = window->bytes + (offset - window->at);
	return 0;
}

static int compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
	int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
	return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

const struct hoist__zip_entry *hoist__zip_find(const struct hoist__zip *zip, const char *name,
					       size_t name_bytes)
{
	size_t low = 0;
	size_t high = zip->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct hoist__zip_entry *entry = &zip->entries[middle];
		int order = compare_names(name, name_bytes, entry->name, entry->name_bytes);
		if (order == 0)
			return entry;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

/* Checks that the local header names the same entry as the directory. */
static int check_local_name(struct hoist__zip *zip, const struct hoist__zip_entry *entry)
{
	char shown[HOIST__QUOTED_BYTES];
	for (size_t done = 0; done < entry->name_bytes;) {
		const unsigned char *name;
		size_t n = entry->name_bytes - done;
		if (n > HOIST__WINDOW_BYTES)
			n = HOIST__WINDOW_BYTES;
		int err = hoist__window_get(&zip->window, entry->header + LOCAL_BYTES + done, n,
					    &name);
		if (err < 0)
			return err;
		if (memcmp(name, entry->name + done, n) != 0)
			return hoist__fail(
				-EBADMSG,
				"%s: entry %s has another name in front of its bytes (byte %llu)",
				zip->file, hoist__quoted(entry->name, entry->name_bytes, shown),
				(unsigned long long)(entry->header + LOCAL_BYTES));
		done += n;
	}
	return 0;
}

static int check_use(const struct hoist__zip *zip, const struct hoist__zip_entry *entry,
		     const char *remedy)
{
	char shown[HOIST__QUOTED_BYTES];
	if ((entry->flags & (FLAG_ENCRYPTED | FLAG_STRONG | FLAG_MASKED)) != 0)
		return hoist__fail(-ENOTSUP, "%s: entry %s is encrypted (flags %#x)", zip->file,
				   hoist__quoted(entry->name, entry->name_bytes, shown),
				   entry->flags);
	if (entry->method != 0)
		return hoist__fail(-ENOTSUP,
				   "%s: entry %s is compressed (method %u%s), and only stored "
				   "entries are read; %s",
				   zip->file, hoist__quoted(entry->name, entry->name_bytes, shown),
				   entry->method, entry->method == 8 ? ", deflate" : "", remedy);
	return 0;
}

int hoist__zip_data(struct hoist__zip *zip, const struct hoist__zip_entry *entry,
		    const char *remedy, uint64_t *ret)
{
	char shown[HOIST__QUOTED_BYTES];
	const unsigned char *local;
	int err = check_use(zip, entry, remedy);
	if (err == 0) /* the header fits: see hoist__zip_open() */
		err = hoist__window_get(&zip->window, entry->header, LOCAL_BYTES, &local);
	if (err < 0)
		return err;
	size_t name_bytes = (size_t)hoist__little(local + 26, 2);
	uint64_t data = entry->header + LOCAL_BYTES + name_bytes + hoist__little(local + 28, 2);
	if (memcmp(local, "PK\3\4", 4) != 0)
		return hoist__fail(-EBADMSG,
				   "%s: entry %s is not where the directory says: no header is "
				   "there (byte %llu)",
				   zip->file, hoist__quoted(entry->name, entry->name_bytes, shown),
				   (unsigned long long)entry->header);
	if (hoist__little(local + 8, 2) != entry->method || name_bytes != entry->name_bytes)
		return hoist__fail(-EBADMSG,
				   "%s: entry %s differs from its entry in the directory "
				   "(byte %llu)",
				   zip->file, hoist__quoted(entry->name, entry->name_bytes, shown),
				   (unsigned long long)entry->header);
	if (data > entry->end || entry->bytes > entry->end - data)
		return hoist__fail(-EBADMSG,
				   "%s: entry %s has its %llu bytes at %llu, and the bytes behind "
				   "it begin at %llu (byte %llu)",
				   zip->file, hoist__quoted(entry->name, entry->name_bytes, shown),
				   (unsigned long long)entry->bytes, (unsigned long long)data,
				   (unsigned long long)entry->end,
				   (unsigned long long)entry->header);
	err = check_local_name(zip, entry);
	if (err == 0)
		*ret = data;
	return err;
}
