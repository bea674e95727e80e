/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor.h - how the parts of the examination add their findings.
 *
 *   doctor.c          the object, and the order of the parts
 *   doctor-path.c     the file system at a path, direct reads, the page cache
 *   doctor-probe.c    how fast a file there is read, and the advice that follows
 *   doctor-machine.c  io_uring, memory and its limits, huge pages
 *   doctor-numa.c     the nodes, their pages, and the node of the path's disk
 *   doctor-devices.c  drivers and devices
 *
 * Each part adds its checks in order and returns 0, or the error that ends the
 * examination: -ENOMEM, or a path that cannot be examined.  What does not work
 * is a finding, not an error.
 */
#ifndef HOIST_LIB_DOCTOR_H
#define HOIST_LIB_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "hoist/doctor.h"
#include "hoist/load.h"
#include "io/file.h"

#define HOIST__CHECK_NAME_BYTES 32

struct hoist__check {
	char name[HOIST__CHECK_NAME_BYTES];
	bool ok;
	char *detail;
	char *remedy;
};

/* As hoist_advice has it. */
struct hoist__advice {
	char text[512];
	char skipped[512];
	enum hoist_io io;
	size_t chunk_bytes;
	unsigned depth;
	double direct_rate;
	double cached_rate;
	double hot_rate;
	bool huge_pages;
	double huge_gain;
	uint64_t bytes;
};

struct hoist_doctor {
	struct hoist__advice advice;
	struct hoist__check *checks;
	size_t n_checks;
	const char *path;  /* the caller's; only while it is examined */
	uint64_t path_dev; /* what holds it, as st_dev; 0 if that is not known */
};

/* It works; the formatted text is what was found. */
int hoist__doctor_yes(hoist_doctor *doctor, const char *name, const char *format, ...)
	HOIST__PRINTF(3, 4);

/* It does not; the formatted text is why, @remedy what to do. */
int hoist__doctor_no(hoist_doctor *doctor, const char *name, const char *remedy, const char *format,
		     ...) HOIST__PRINTF(4, 5);

/* It does not, for the thread's present error: "why; remedy".  @remedy serves where
 * that text has none. */
int hoist__doctor_error(hoist_doctor *doctor, const char *name, const char *remedy);

int hoist__doctor_path(hoist_doctor *doctor, const char *path);

/* Reads some of @file (NULL: there is none), and keeps what that advises for @path, or why not. */
void hoist__doctor_probe(hoist_doctor *doctor, const char *path, const struct hoist__file *file);
int hoist__doctor_machine(hoist_doctor *doctor);

/* @sysfs_root: "/sys", or a test's tree.  Placing is tried on the machine itself. */
int hoist__doctor_numa(hoist_doctor *doctor, const char *sysfs_root);
int hoist__doctor_devices(hoist_doctor *doctor);

#endif
