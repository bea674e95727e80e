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
 * It also reads some of a file at the path, and advises on how to load from there.
 *
 * Threads: immutable once created.  One owner.
 */
#ifndef HOIST_DOCTOR_H
#define HOIST_DOCTOR_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/error.h>
#include <hoist/load.h>

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

/* How to read what lies at the path.  For this hoist_doctor_create() reads some of the file, or of
 * the largest one in the folder, for less than two seconds and 256 MiB at most; a file of less than
 * 32 MiB says nothing about its disk, and is left alone. */
typedef struct hoist_advice {
	size_t size;         /* in: sizeof(hoist_advice) */
	const char *text;    /* all of it in one line; "" if skipped */
	const char *skipped; /* why nothing was measured; "" if it was */
	enum hoist_io io;    /* hoist_load_options.io */
	size_t chunk_bytes;  /* .chunk_bytes and .depth: the best of a few for direct reads; 0: leave */
	unsigned depth;      /* them as they are */
	double direct_rate;  /* bytes a second; 0: there are no direct reads */
	double cached_rate;  /* through an empty page cache; 0: what was read lay in it already */
	double hot_rate;     /* from the page cache */
	int huge_pages;      /* memory in huge pages can be had */
	double huge_gain;    /* direct rate into these / into small pages; 0: not measured */
	uint64_t bytes;      /* read for this */
} hoist_advice;

/* Fills @ret up to the size it says; pointers live as long as the doctor.
 * Returns: 0; -EINVAL for a bad size. */
HOIST_API int hoist_doctor_advice(const hoist_doctor *doctor, hoist_advice *ret);

HOIST_END

#endif
