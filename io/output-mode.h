/* SPDX-License-Identifier: MIT */
/* io/output-mode.h - the mode of a file that replaces another.
 *
 * The new file may be no more open than the old one, nor than the umask allows.  This holds from
 * the file's creation on, since other users could open a hidden name while the file is written.
 * The group's rights on the old file only count for the same group.  If the new file has another
 * group, or one of the two has an access control list (the mode's group bits are then a mask for
 * all that the list names), the new file's group gets no more rights than everybody.
 *
 * The group of a new file depends on its folder, on the options of the mount and on the server; the
 * bits that the umask removes depend on the folder's list.  Neither can be predicted.  So the file
 * is created narrow and inspected, and, if it could have had more rights, created again.
 *
 * Threads: one owner.
 */
#ifndef HOIST_IO_OUTPUT_MODE_H
#define HOIST_IO_OUTPUT_MODE_H

#include <stdbool.h>
#include <sys/stat.h>

struct hoist__output_mode {
	bool replaces; /* a file is replaced; else the other fields mean nothing */
	bool listed;   /* the old file may have a list */
	mode_t bits;   /* of the old file's mode */
	gid_t group; /* of the old file */
	bool same_group; /* the new file was inspected: its group may have the old group's rights */
};

/* Inspects the file @name of the folder, which is to be replaced and whose stat is @st. */
void hoist__output_mode_of(int folder_fd, const char *name, const struct stat *st,
			   struct hoist__output_mode *ret);

/* The mode to create the new file with; the kernel removes the umask's bits.  The owner may always
 * write. */
mode_t hoist__output_mode_first(const struct hoist__output_mode *mode);

/* Inspects the new file, which is empty and as narrow as it has to be.  Returns: true if the file
 * is to be created again, with the mode that hoist__output_mode_first() now gives. */
bool hoist__output_mode_widens(struct hoist__output_mode *mode, int fd);

/* Gives the new file the old file's mode, less the umask's bits.  A file system without modes did
 * not keep the old file's either: a refusal is no error, and logged. */
void hoist__output_mode_set(const struct hoist__output_mode *mode, int fd, const char *path);

#endif
