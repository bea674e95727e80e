/* SPDX-License-Identifier: MIT */
/* hoist/doctor.h - what works here, what does not, and what to do about it.
 *
 * A Doctor looks at the machine, the process's limits, the file system at a path
 * and the drivers, and keeps one check for each thing that loads depend on.  It
 * tries things rather than guessing from versions: a ring is made, a file is read
 * directly, memory is locked.  A check that is not ok is no error of the
 * examination: hoist then works in another way or more slowly, and the check's
 * remedy says how to have it.
 *
 * Threads: immutable once created.  One owner.
 */
#ifndef HOIST_DOCTOR_H
#define HOIST_DOCTOR_H

#include <stddef.h>

#include <hoist/error.h>

HOIST_BEGIN

typedef struct hoist_doctor hoist_doctor;

typedef struct hoist_check_info {
	size_t size;        /* in: sizeof(hoist_check_info) */
	const char *name;   /* "io_uring", "direct reads", "cuda:0": names stay as they are */
	int ok;             /* 1 or 0 */
	const char *detail; /* what was found, or why not */
	const char *remedy; /* what to do; never empty if not ok, "" if ok */
} hoist_check_info;

/* Examines everything.  @path is a file, or a folder, where checkpoints lie; NULL is
 * the current folder.  Devices get their context, so this takes as long as the
 * drivers take to start.
 * Returns: 0; -ENOENT, -EACCES and the like for @path; -ENOMEM. */
HOIST_API int hoist_doctor_create(const char *path, hoist_doctor **ret);
HOIST_API void hoist_doctor_destroy(hoist_doctor *doctor); /* takes NULL */

HOIST_API size_t hoist_doctor_n_checks(const hoist_doctor *doctor);

/* Fills @info up to the size it says; pointers live as long as the doctor.
 * Returns: 0; -EINVAL for an index that is too large, or a bad size. */
HOIST_API int hoist_doctor_check(const hoist_doctor *doctor, size_t index,
				 hoist_check_info *info);

HOIST_END

#endif
