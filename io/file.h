/* SPDX-License-Identifier: MIT */
/* io/file.h - one opened file: a cached descriptor, a direct one, and the file's identity.
 *
 * The direct descriptor is opened through /proc/self/fd (the same inode, never
 * the path again, never fcntl(F_SETFL)).  It is kept only if the file system reports its
 * alignment with statx(STATX_DIOALIGN), or, on kernels that do not report one, if one aligned
 * probe read works.  direct_note says why there is no direct descriptor.
 *
 * Identity (device, inode, size, mtime, ctime) is taken at open; hoist__file_changed()
 * compares it, so that a load can tell that its bytes are of one version.  Programs can set mtime
 * back (cp -p, rsync -t, touch -r), but not ctime.  A rename, a link, chmod and chown move ctime
 * too, but leave the bytes as they are.  Owner, mode and link count are kept to tell these apart.
 *
 * Threads: immutable after open, but for `no_readahead`.  One owner.
 */
#ifndef HOIST_IO_FILE_H
#define HOIST_IO_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "io/fs.h"

/* A file whose alignment is larger is read through the page cache: the smallest staging slot must
 * hold an aligned piece. */
#define HOIST__FILE_MAX_ALIGN ((uint32_t)64 << 10)

struct hoist__file {
	char *path; /* for messages; hoist__file_changed() checks whether it still leads here */
	int fd;
	int direct_fd;		    /* -1: no direct reads */
	uint32_t memory_align;	    /* for direct reads: of addresses, */
	uint32_t offset_align;	    /* and of offsets and lengths; powers of two, at most
				     * HOIST__FILE_MAX_ALIGN */
	char direct_note[96];	    /* why direct_fd is -1, else "" */
	const struct hoist__fs *fs; /* set by open.  Even where fs->direct is false there may
				     * be a direct descriptor, for callers that ask */
	bool absent;		    /* the bytes are on another machine: fd cannot be read */
	bool in_memory;		    /* tmpfs, ramfs, hugetlbfs: the bytes are page cache */
	bool dontcache;		    /* reads take RWF_DONTCACHE: pages they bring in do not stay */
	atomic_bool no_readahead;   /* the kernel's readahead is switched off */
	uint64_t bytes;
	uint64_t dev;
	uint64_t ino;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint64_t n_links;
	uint32_t mode, uid, gid;
};

#define HOIST__FILE_NO_DIRECT 1u /* do not look for a direct descriptor */
#define HOIST__FILE_BENEATH                                                                        \
	2u /* @path, links followed, must stay beneath @dir_fd, or be a                            \
	    * link of io/snapshot.h */

/* Opens @path, relative to @dir_fd (AT_FDCWD for the process's folder), for
 * reading; @display is the name for messages (NULL: @path).  Only regular files
 * and block devices are accepted.
 * Returns: 0; -ENOENT, -EACCES, ... as open(2); -EXDEV if BENEATH is violated
 *   (by openat2(2); where the kernel lacks it, by comparing resolved paths); -ENOTSUP if the
 *   paths cannot be compared: without /proc, unless the file is in the folder itself;
 *   -EINVAL not a file; -ENOMEM. */
int hoist__file_open(int dir_fd, const char *path, const char *display, unsigned flags,
		     struct hoist__file **ret);
void hoist__file_close(struct hoist__file *file); /* takes NULL */

/* Reads exactly @bytes at @offset through the page cache, in the calling thread.
 * Returns: 0; -ENODATA if the file ends before (text names file and offset);
 *   -EIO and the like (media errors, which the kernel may call ENODATA, are -EIO). */
int hoist__file_read(const struct hoist__file *file, uint64_t offset, void *buffer, size_t bytes);

/* Sets the text of a read at @offset that failed with @err, an errno value.  Returns: -EIO where
 * @err has another meaning to our callers (ENODATA; EINTR and EAGAIN without an end), else
 * -@err. */
int hoist__file_read_failed(int err, const char *path, uint64_t offset);

/* The file's present device, inode, links, mode, owner, size, mtime and ctime.  A network's file
 * system is asked anew: the attributes that this machine caches may be a minute old (NFS), or as
 * old as the server allows (FUSE).  Returns: 0; -EIO and the like, without a text. */
int hoist__file_stat(int fd, struct stat *ret);
int hoist__path_stat(const char *path, struct stat *ret); /* links followed */

/* A file's time in nanoseconds since 1970. */
int64_t hoist__file_time_ns(const struct timespec *time);

/* Returns: 0 if the file is still what was opened; -EBADMSG, and the text says what changed.  A
 * file that was renamed, replaced by rename, removed, linked, or given another mode or owner is
 * still what was opened; so is an absent file. */
int hoist__file_changed(const struct hoist__file *file);

/* Switches the kernel's readahead for the file off, once.  Threads: any. */
void hoist__file_stop_readahead(const struct hoist__file *file);

/* How much of [offset, offset+bytes) is in the page cache: counted by cachestat(2),
 * or, where that is missing or refused (EPERM: the caller neither owns the file nor
 * may write it), estimated from a few samples.  *ret 0 means for certain that nothing is cached
 * (an estimate gives 0 for a single byte only): pages that a read brings in may then be dropped.
 * Returns: 0; -ENOTSUP if the kernel supports neither. */
int hoist__file_resident(const struct hoist__file *file, uint64_t offset, uint64_t bytes,
			 uint64_t *ret);

/* One answer for the many ranges that a reader asks about in a row.  The reader zeroes the window
 * before its first question. */
struct hoist__resident_window {
	uint64_t file_ino; /* with file_dev: the file that the answer is about */
	uint64_t file_dev;
	uint64_t begin;
	uint64_t end;
	uint64_t asked_ns;
	enum {
		HOIST__WINDOW_MIXED, /* or unknown: the kernel is asked about each range */
		HOIST__WINDOW_NONE,  /* nothing is cached */
		HOIST__WINDOW_FEW,   /* an estimate found nothing cached */
		HOIST__WINDOW_ALL
	} answer;
};

/* The same, for a reader that will go on to ask about the bytes up to @end, in ascending order. The
 * kernel is asked about 32 MiB at once.  Where these are alike, the answer holds for each range in
 * them, for up to a tenth of a second.  So an answer may be that old; a reader uses it to choose
 * between two ways that both give the file's bytes. */
int hoist__file_resident_ahead(const struct hoist__file *file,
			       struct hoist__resident_window *window, uint64_t offset,
			       uint64_t bytes, uint64_t end, uint64_t *ret);

/* Tells whether hoist__file_resident() counts.  Returns: 0; the kernel's refusal of cachestat(2):
 * it estimates. */
int hoist__file_counts_resident(const struct hoist__file *file);

#endif
