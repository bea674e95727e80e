/* SPDX-License-Identifier: MIT */
/* format/zip.h - the directory of a zip archive, and where an entry's bytes lie.
 *
 *     [ local header, name, extra | bytes ] ... [ directory ] [ zip64 end ] [ end, comment ]
 *
 * The archive is read from its end, as every reader does: the directory lists the entries.  A local
 * header is read only when its entry is used, to find the bytes behind it.  The name and extra
 * fields there may differ in length from those of the directory (PyTorch pads them, so that bytes
 * are aligned).  Entries must be stored uncompressed.  Checksums are not checked: that would read
 * every byte to open a file.
 *
 * Nothing is trusted: directory and entries lie within the file, entries do not overlap each other
 * or the directory, no name comes twice, and counts agree.  Memory: the directory itself, 1.5 times
 * its bytes for the list of entries, and 64 KiB while the end is searched.
 *
 * Threads: one user at a time.
 */
#ifndef HOIST_FORMAT_ZIP_H
#define HOIST_FORMAT_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/format.h"
#include "format/quote.h"

#define HOIST__ZIP_MAX_DIRECTORY UINT64_C(100000000)

/* The bytes of a file that were read last, so that fields next to each other are read once. */
#define HOIST__WINDOW_BYTES 4096
struct hoist__window {
	const struct hoist__reader *reader;
	uint64_t at;
	size_t n;
	unsigned char bytes[HOIST__WINDOW_BYTES];
};

/* Gives @n bytes (at most HOIST__WINDOW_BYTES) at @offset, which lie within the file; valid until
 * the next call.
 * Returns: 0; the reader's error. */
int hoist__window_get(struct hoist__window *window, uint64_t offset, size_t n,
		      const unsigned char **ret);

struct hoist__zip_entry {
	const char *name; /* UTF-8 without a NUL, in the directory; not terminated */
	size_t name_bytes;
	uint64_t header; /* where its local header is */
	uint64_t bytes;	 /* as stored */
	uint64_t end;	 /* the next entry, or the directory, begins here */
	uint16_t method;
	uint16_t flags;
};

struct hoist__zip {
	char file[HOIST__QUOTED_BYTES];	  /* for messages */
	struct hoist__zip_entry *entries; /* by name */
	size_t n;
	unsigned char *directory;
	uint64_t directory_at;
	struct hoist__window window;
};

/* Reads the directory.
 * Returns: 0, and the caller closes it; -EBADMSG; -ENOTSUP (of several disks); -ENOMEM; the
 *   reader's error. */
int hoist__zip_open(const struct hoist__reader *reader, struct hoist__zip *zip);
void hoist__zip_close(struct hoist__zip *zip);

/* Returns the entry of that name; NULL if there is none.  O(log n). */
const struct hoist__zip_entry *hoist__zip_find(const struct hoist__zip *zip, const char *name,
					       size_t name_bytes);

/* Gives where the entry's bytes begin, from the start of the file.  @remedy is for the message
 * about a compressed entry.
 * Returns: 0; -EBADMSG; -ENOTSUP (compressed, encrypted); the reader's error. */
int hoist__zip_data(struct hoist__zip *zip, const struct hoist__zip_entry *entry,
		    const char *remedy, uint64_t *ret);

/* Tells whether this archive is one of PyTorch's: it then has an entry FOLDER/data.pkl.  Otherwise
 * it can only be one of NumPy's.
 * Returns: 0; the error of reading the directory.  The places of its entries are not checked. */
int hoist__zip_is_torch(const struct hoist__reader *reader, bool *ret);

#endif
