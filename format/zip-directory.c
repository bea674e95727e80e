/* SPDX-License-Identifier: MIT */
/* format/zip-directory.c - reads the end of a zip archive and its directory.
 * The contract is in format/zip.h.
 *
 * Every byte of each resulting entry lies within the file. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/utf8.h"
#include "format/little.h"
#include "format/zip.h"

#define END_BYTES 22
#define LOCATOR_BYTES 20
#define END64_BYTES 56
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
#define MAX_COMMENT 65535

/* The values of the records at the end. */
struct ending {
	uint64_t at;	 /* the first of these records; the directory ends before it */
	uint64_t disks;	 /* the highest disk number found */
	uint64_t n_here; /* entries on this disk; `n` has all */
	uint64_t n;
	uint64_t bytes; /* of the directory */
	uint64_t offset;
};

/* --- the end --- */

/* Looks for the last record in the file's last @n bytes: a comment of the length it tells follows
 * it. */
static int find_end(const struct hoist__zip *zip, const unsigned char *tail, size_t n, size_t *ret)
{
	for (size_t at = n - END_BYTES + 1; at-- > 0;)
		if (memcmp(tail + at, "PK\5\6", 4) == 0 &&
		    hoist__little(tail + at + 20, 2) == n - at - END_BYTES) {
			*ret = at;
			return 0;
		}
	return hoist__fail(-EBADMSG,
			   "%s: not a whole zip archive: no end of a directory is in its last %zu "
			   "bytes; was it cut short?",
			   zip->file, n);
}

/* Compares a value of 16 or 32 bits with the one of 64 bits that may replace it. */
static bool disagree(uint64_t small, uint64_t limit, uint64_t big)
{
	return small != limit && small != big;
}

/* Reads the zip64 record, if there is one in front of @ending. */
static int read_end64(struct hoist__zip *zip, struct ending *ending)
{
	const unsigned char *record;
	if (ending->at < LOCATOR_BYTES)
		return 0;
	uint64_t locator_at = ending->at - LOCATOR_BYTES;
	int err = hoist__window_get(&zip->window, locator_at, LOCATOR_BYTES, &record);
	if (err < 0)
		return err;
	if (memcmp(record, "PK\6\7", 4) != 0)
		return 0;
	uint64_t at = hoist__little(record + 8, 8);
	ending->disks = hoist__max_u64(ending->disks, hoist__little(record + 4, 4));
	if (locator_at < END64_BYTES || at > locator_at - END64_BYTES)
		return hoist__fail(-EBADMSG,
				   "%s: the end of the directory in 64 bits is said to be at %llu, "
				   "behind its locator (byte %llu)",
				   zip->file, (unsigned long long)at,
				   (unsigned long long)locator_at);
	err = hoist__window_get(&zip->window, at, END64_BYTES, &record);
	if (err < 0)
		return err;
	if (memcmp(record, "PK\6\6", 4) != 0)
		return hoist__fail(-EBADMSG,
				   "%s: the end of the directory in 64 bits is not where it is "
				   "said to be (byte %llu)",
				   zip->file, (unsigned long long)at);
	struct ending big = {
		.at = at,
		.disks = hoist__max_u64(hoist__little(record + 16, 4),
					hoist__little(record + 20, 4)),
		.n_here = hoist__little(record + 24, 8),
		.n = hoist__little(record + 32, 8),
		.bytes = hoist__little(record + 40, 8),
		.offset = hoist__little(record + 48, 8),
	};
	if (disagree(ending->n_here, UINT16_MAX, big.n_here) ||
	    disagree(ending->n, UINT16_MAX, big.n) ||
	    disagree(ending->bytes, UINT32_MAX, big.bytes) ||
	    disagree(ending->offset, UINT32_MAX, big.offset))
		return hoist__fail(-EBADMSG,
				   "%s: the two ends of the directory disagree: %llu entries in "
				   "%llu bytes at %llu, and %llu in %llu at %llu (byte %llu)",
				   zip->file, (unsigned long long)ending->n,
				   (unsigned long long)ending->bytes,
				   (unsigned long long)ending->offset, (unsigned long long)big.n,
				   (unsigned long long)big.bytes, (unsigned long long)big.offset,
				   (unsigned long long)at);
	big.disks =
		ending->disks == UINT16_MAX ? big.disks : hoist__max_u64(big.disks, ending->disks);
	*ending = big;
	return 0;
}

/* The directory must lie before its end, and its length bounds the number of entries: memory is
 * taken for the entries before they are read. */
static int check_end(const struct hoist__zip *zip, const struct ending *ending)
{
	if (ending->disks > 0 || ending->n_here != ending->n)
		return hoist__fail(-ENOTSUP,
				   "%s: a zip archive of several disks (%llu of %llu entries are "
				   "on this one)",
				   zip->file, (unsigned long long)ending->n_here,
				   (unsigned long long)ending->n);
	if (ending->offset > ending->at || ending->bytes > ending->at - ending->offset)
		return hoist__fail(-EBADMSG,
				   "%s: the directory is said to have %llu bytes at %llu; its end "
				   "is at %llu (byte %llu)",
				   zip->file, (unsigned long long)ending->bytes,
				   (unsigned long long)ending->offset,
				   (unsigned long long)ending->at, (unsigned long long)ending->at);
	if (ending->bytes > HOIST__ZIP_MAX_DIRECTORY || ending->n > ending->bytes / ENTRY_BYTES)
		return hoist__fail(-EBADMSG,
				   "%s: a directory of %llu bytes cannot hold %llu entries of %d "
				   "and more; %llu bytes are the most (byte %llu)",
				   zip->file, (unsigned long long)ending->bytes,
				   (unsigned long long)ending->n, ENTRY_BYTES,
				   (unsigned long long)HOIST__ZIP_MAX_DIRECTORY,
				   (unsigned long long)ending->at);
	return 0;
}

/* A comment may follow the last record: the search covers the longest one. */
static int read_end(struct hoist__zip *zip, struct ending *ending)
{
	const struct hoist__reader *reader = zip->window.reader;
	if (reader->bytes < END_BYTES)
		return hoist__fail(-EBADMSG,
				   "%s: not a zip archive: %llu bytes, and its end alone has %d",
				   zip->file, (unsigned long long)reader->bytes, END_BYTES);
	size_t n = (size_t)hoist__min_u64(reader->bytes, END_BYTES + MAX_COMMENT);
	unsigned char *tail = malloc(n);
	if (tail == NULL)
		return hoist__fail_nomem("the end of a zip archive", n);
	size_t at = 0;
	int err = reader->read(reader->context, reader->bytes - n, tail, n);
	if (err == 0)
		err = find_end(zip, tail, n, &at);
	if (err == 0)
		*ending = (struct ending){
			.at = reader->bytes - n + at,
			.disks = hoist__max_u64(hoist__little(tail + at + 4, 2),
						hoist__little(tail + at + 6, 2)),
			.n_here = hoist__little(tail + at + 8, 2),
			.n = hoist__little(tail + at + 10, 2),
			.bytes = hoist__little(tail + at + 12, 4),
			.offset = hoist__little(tail + at + 16, 4),
		};
	free(tail);
	if (err == 0)
		err = read_end64(zip, ending);
	return err == 0 ? check_end(zip, ending) : err;
}

/* --- the directory --- */

static int fail_entry(const struct hoist__zip *zip, const struct hoist__zip_entry *entry,
		      const char *what)
{
	char shown[HOIST__QUOTED_BYTES];
	/* The name is in the directory, behind the fixed part of its entry. */
	uint64_t at = zip->directory_at +
		      (uint64_t)((const unsigned char *)entry->name - zip->directory) - ENTRY_BYTES;
	return hoist__fail(-EBADMSG, "%s: entry %s: %s (byte %llu)", zip->file,
			   hoist__quoted(entry->name, entry->name_bytes, shown), what,
			   (unsigned long long)at);
}

/* Values that do not fit in 32 bits are in the extra field, in this order, each only if needed. */
static int read_extra64(const struct hoist__zip *zip, struct hoist__zip_entry *entry,
			const unsigned char *extra, size_t n, uint64_t *unpacked)
{
	uint64_t *const values[] = {unpacked, &entry->bytes, &entry->header};
	bool missing = *unpacked == UINT32_MAX || entry->bytes == UINT32_MAX ||
		       entry->header == UINT32_MAX;
	while (missing && n >= 4) {
		size_t bytes = (size_t)hoist__little(extra + 2, 2);
		bool wanted = hoist__little(extra, 2) == 1;
		extra += 4;
		n -= 4;
		if (bytes > n)
			break;
		for (size_t i = 0, at = 0; wanted && i < HOIST__ARRAY_SIZE(values); i++) {
			if (*values[i] != UINT32_MAX)
				continue;
			if (bytes - at < 8)
				return fail_entry(zip, entry, "its sizes in 64 bits are cut short");
			*values[i] = hoist__little(extra + at, 8);
			at += 8;
		}
		if (wanted)
			return 0;
		extra += bytes;
		n -= bytes;
	}
	return 0;
}

static int check_entry(const struct hoist__zip *zip, const struct hoist__zip_entry *entry,
		       uint64_t unpacked)
{
	if (hoist__utf8_text(entry->name, entry->name_bytes) < entry->name_bytes)
		return fail_entry(zip, entry, "its name is no text in UTF-8");
	if (entry->method == 0 && unpacked != entry->bytes)
		return fail_entry(zip, entry, "stored, but of two different sizes");
	uint64_t least = LOCAL_BYTES + entry->name_bytes;
	if (entry->header > zip->directory_at || least > zip->directory_at - entry->header ||
	    entry->bytes > zip->directory_at - entry->header - least)
		return fail_entry(zip, entry, "its bytes do not end before the directory begins");
	return 0;
}

/* Reads one entry of the directory, which has @n more bytes; *taken is how many it took. */
static int read_entry(struct hoist__zip *zip, const unsigned char *bytes, uint64_t n, size_t *taken)
{
	unsigned long long at = zip->directory_at + (uint64_t)(bytes - zip->directory);
	if (n < ENTRY_BYTES || memcmp(bytes, "PK\1\2", 4) != 0)
		return hoist__fail(-EBADMSG,
				   "%s: entry %zu of the directory is not there (byte %llu)",
				   zip->file, zip->n, at);
	size_t name_bytes = (size_t)hoist__little(bytes + 28, 2);
	size_t extra_bytes = (size_t)hoist__little(bytes + 30, 2);
	size_t whole = ENTRY_BYTES + name_bytes + extra_bytes +
		       (size_t)hoist__little(bytes + 32, 2); /* a comment */
	if (whole > n)
		return hoist__fail(-EBADMSG,
				   "%s: entry %zu of the directory has %zu bytes, and %llu are "
				   "left (byte %llu)",
				   zip->file, zip->n, whole, (unsigned long long)n, at);
	if (hoist__little(bytes + 34, 2) != 0 && hoist__little(bytes + 34, 2) != UINT16_MAX)
		return hoist__fail(-ENOTSUP, "%s: a zip archive of several disks (byte %llu)",
				   zip->file, at + 34);
	struct hoist__zip_entry entry = {
		.name = (const char *)bytes + ENTRY_BYTES,
		.name_bytes = name_bytes,
		.flags = (uint16_t)hoist__little(bytes + 8, 2),
		.method = (uint16_t)hoist__little(bytes + 10, 2),
		.bytes = hoist__little(bytes + 20, 4),
		.header = hoist__little(bytes + 42, 4),
	};
	uint64_t unpacked = hoist__little(bytes + 24, 4);
	int err =
		read_extra64(zip, &entry, bytes + ENTRY_BYTES + name_bytes, extra_bytes, &unpacked);
	if (err == 0)
		err = check_entry(zip, &entry, unpacked);
	if (err < 0)
		return err;
	zip->entries[zip->n++] = entry;
	*taken = whole;
	return 0;
}

static int by_header(const void *left, const void *right)
{
	const struct hoist__zip_entry *a = left;
	const struct hoist__zip_entry *b = right;
	return (a->header > b->header) - (a->header < b->header);
}

static int by_name(const void *left, const void *right)
{
	const struct hoist__zip_entry *a = left;
	const struct hoist__zip_entry *b = right;
	size_t n = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
	int order = memcmp(a->name, b->name, n);
	return order != 0 ? order
			  : (a->name_bytes > b->name_bytes) - (a->name_bytes < b->name_bytes);
}

/* Sorts.  Most archives are in order already, by place or by name or both. */
static void sort(struct hoist__zip *zip, int (*compare)(const void *, const void *))
{
	size_t i = 1;
	while (i < zip->n && compare(&zip->entries[i - 1], &zip->entries[i]) <= 0)
		i++;
	if (i < zip->n)
		qsort(zip->entries, zip->n, sizeof *zip->entries, compare);
}

/* Sets where each entry must end; then sorts by name, as hoist__zip_find() needs. */
static int arrange(struct hoist__zip *zip)
{
	struct hoist__zip_entry *entries = zip->entries;
	sort(zip, by_header);
	for (size_t i = 0; i < zip->n; i++) {
		entries[i].end = i + 1 < zip->n ? entries[i + 1].header : zip->directory_at;
		if (entries[i].end - entries[i].header <
		    LOCAL_BYTES + entries[i].name_bytes + entries[i].bytes)
			return fail_entry(zip, &entries[i],
					  "its bytes overlap those of the next entry");
	}
	sort(zip, by_name);
	for (size_t i = 1; i < zip->n; i++)
		if (by_name(&entries[i - 1], &entries[i]) == 0)
			return fail_entry(zip, &entries[i], "its name comes twice");
	return 0;
}

/* The entries must fill the directory: bytes behind the last one are refused. */
static int read_directory(struct hoist__zip *zip, const struct ending *ending)
{
	const struct hoist__reader *reader = zip->window.reader;
	size_t bytes = (size_t)ending->bytes;
	size_t n = (size_t)ending->n;
	zip->directory_at = ending->offset;
	zip->directory = malloc(bytes > 0 ? bytes : 1);
	zip->entries = malloc(n > 0 ? n * sizeof *zip->entries : 1);
	if (zip->directory == NULL || zip->entries == NULL)
		return hoist__fail_nomem("the directory of a zip archive",
					 bytes + n * sizeof *zip->entries);
	int err = bytes > 0 ? reader->read(reader->context, ending->offset, zip->directory, bytes)
			    : 0;
	size_t at = 0;
	for (size_t i = 0; err == 0 && i < n; i++) {
		size_t taken = 0;
		err = read_entry(zip, zip->directory + at, bytes - at, &taken);
		at += taken;
	}
	if (err == 0 && at < bytes)
		err = hoist__fail(-EBADMSG,
				  "%s: the directory goes on for %zu bytes behind its %zu entries "
				  "(byte %llu)",
				  zip->file, bytes - at, n,
				  (unsigned long long)(zip->directory_at + at));
	return err;
}

/* Reads the entries in the order of the directory. */
static int read_entries(const struct hoist__reader *reader, struct hoist__zip *zip)
{
	struct ending ending = {.at = 0};
	zip->entries = NULL;
	zip->n = 0;
	zip->directory = NULL;
	zip->directory_at = 0;
	zip->window.reader = reader;
	zip->window.at = 0;
	zip->window.n = 0;
	(void)hoist__file_quoted(reader->name, zip->file);
	int err = read_end(zip, &ending);
	return err == 0 ? read_directory(zip, &ending) : err;
}

int hoist__zip_open(const struct hoist__reader *reader, struct hoist__zip *zip)
{
	int err = read_entries(reader, zip);
	if (err == 0)
		err = arrange(zip);
	if (err < 0)
		hoist__zip_close(zip);
	return err;
}

void hoist__zip_close(struct hoist__zip *zip)
{
	free(zip->entries);
	free(zip->directory);
	zip->entries = NULL;
	zip->directory = NULL;
	zip->n = 0;
}

int hoist__zip_is_torch(const struct hoist__reader *reader, bool *ret)
{
	static const char suffix[] = "/data.pkl";
	const size_t n = sizeof suffix - 1;
	struct hoist__zip zip;
	bool found = false;
	int err = read_entries(reader, &zip);
	for (size_t i = 0; err == 0 && i < zip.n; i++) {
		const struct hoist__zip_entry *entry = &zip.entries[i];
		found = found || (entry->name_bytes > n &&
				  memcmp(entry->name + entry->name_bytes - n, suffix, n) == 0);
	}
	hoist__zip_close(&zip);
	if (err == 0)
		*ret = found;
	return err;
}
