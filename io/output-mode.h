/* SPDX-License-Identifier: MIT */
/* io/output-mode.h - what a file that replaces another may have of the mode of that one.
 *
 * It may be no more open than the old one, nor than the umask allows; and from its creation on, for
 * under a hidden name others could open it while it is written.  What the old one's group could do
 * says nothing of others: where the new one is of another group, or one of the two has an access
 * control list (the mode's bits of the group are then a mask, for all whom the list names), that
 * may do no more than everybody.
 *
 * Which group a new file gets depends on its folder, on the options of the mount and on the server,
 * and what the umask leaves of its mode on the folder's list.  So neither is foretold: the file is
 * made narrow, looked at, and, if it could have had more, made again.
 *
 * Threads: one owner.
 */
#ifndef HOIST_IO_OUTPUT_MODE_H
#define HOIST_IO_OUTPUT_MODE_H

#include <stdbool.h>
#include <sys/stat.h>

struct hoist__output_mode {
	bool replaces; /* a file; else all of this is of no meaning */
	bool listed;   /* that may have a list */
	mode_t bits;   /* of its mode */
	gid_t group;
	bool same_group; /* the new one was looked at: its group may do what that one's could */
};

/* Looks at the file @name of the folder, which is to be replaced, and of which @st is known. */
void hoist__output_mode_of(int folder_fd, const char *name, const struct stat *st,
			   struct hoist__output_mode *ret);

/* What to create the new file with; the kernel takes the umask from it.  The owner writes. */
mode_t hoist__output_mode_first(const struct hoist__output_mode *mode);

/* The new file, empty, and as narrow as it has to be.  Returns: true if it is to be made again,
 * with what hoist__output_mode_first() now says. */
bool hoist__output_mode_widens(struct hoist__output_mode *mode, int fd);

/* Of the old file's mode, what the umask has left of it.  A file system without modes does not keep
 * the old file's either: that is no error, and logged. */
void hoist__output_mode_set(const struct hoist__output_mode *mode, int fd, const char *path);

#endif
