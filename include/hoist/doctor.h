/* SPDX-License-Identifier: MIT */
/* hoist/doctor.h - findings about this machine, and a remedy for each thing that does not work.
 *
 *     hoist_doctor *doctor;
 *     hoist_check_info check = {.size = sizeof check};
 *     hoist_doctor_create("models/", &doctor);
 *     for (size_t i = 0; i < hoist_doctor_n_checks(doctor); i++)
 *             if (hoist_doctor_check(doctor, i, &check) == 0 && !check.ok)
 *                     printf("%s: %s; %s\n", check.name, check.detail, check.remedy);
 *     hoist_doctor_destroy(doctor);
 *
 * A Doctor examines the machine, the process's limits, the file system at a path and the drivers.
 * The Doctor keeps one check for each thing that loads depend on.  It tries each thing rather than
 * guessing from versions: it makes a ring, reads a file directly, locks memory.  A check that is
 * not ok is no error of the examination: hoist then works in another way or more slowly, and the
 * check's remedy says how to change that.
 *
 * The Doctor also reads some of a file at the path, and advises how to load from there.
 *
 * Threads: a doctor is immutable; any thread may read it.  Its one owner calls
 * hoist_doctor_destroy().
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
	const char *name;   /* "io_uring", "direct reads", "cuda:0": names never change */
	int ok;             /* 1 or 0 */
	const char *detail; /* the finding, or the reason why it does not work */
	const char *remedy; /* the remedy: "" if ok is 1, never empty if ok is 0 */
} hoist_check_info;

/* Examines everything.  @path is a file, or a folder with checkpoints; NULL: the current folder.
 * The call makes the devices' contexts, and takes as long as the drivers take to start.  Where UCX is
 * installed, the first call loads it, and sets variables of the environment for the time of that: no
 * other thread may read or change the environment meanwhile.
 * Returns: 0; -ENOENT, -EACCES and the like (@path); -ENOMEM. */
HOIST_API int hoist_doctor_create(const char *path, hoist_doctor **ret);
HOIST_API void hoist_doctor_destroy(hoist_doctor *doctor); /* takes NULL */

/* The number of checks. */
HOIST_API size_t hoist_doctor_n_checks(const hoist_doctor *doctor);

/* Fills @info up to info->size with check @index.  Pointers live as long as the doctor.
 * Returns: 0; -EINVAL (@index is too large; info->size is 0 or larger than this library knows). */
HOIST_API int hoist_doctor_check(const hoist_doctor *doctor, size_t index,
				 hoist_check_info *info);

/* Advice on loading from the path.  To measure, hoist_doctor_create() reads some of the file, or of
 * the largest file in the folder: for less than two seconds, and 256 MiB at most.  A file of less
 * than 32 MiB says nothing about its disk, and is not read. */
typedef struct hoist_advice {
	size_t size;         /* in: sizeof(hoist_advice) */
	const char *text;    /* the whole advice in one line; "" if skipped */
	const char *skipped; /* why nothing was measured; "" if it was */
	enum hoist_io io;    /* for hoist_load_options.io */
	size_t chunk_bytes;  /* for hoist_load_options.chunk_bytes: the best of a few values for
			      * direct reads; 0: leave the option as it is */
	unsigned depth;      /* for hoist_load_options.depth, likewise */
	double direct_rate;  /* bytes per second; 0: there are no direct reads */
	double cached_rate;  /* through an empty page cache; 0: the bytes were in it already */
	double hot_rate;     /* from the page cache */
	int huge_pages;      /* 1: memory in huge pages is available */
	double huge_gain;    /* the direct rate into huge pages over that into small pages; 0: not
			      * measured */
	uint64_t bytes;      /* read for the measurement */
} hoist_advice;

/* Fills @ret up to ret->size.  Pointers live as long as the doctor.
 * Returns: 0; -EINVAL (ret->size is 0 or larger than this library knows). */
HOIST_API int hoist_doctor_advice(const hoist_doctor *doctor, hoist_advice *ret);

HOIST_END

#endif
