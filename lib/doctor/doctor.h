/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor.h - how the parts of the examination add their findings.
 *
 *   doctor.c          the object, and the order of the parts
 *   doctor-path.c     the file system at a path, direct reads, the page cache
 *   doctor-probe.c    how fast a file there is read, and the advice that follows
 *   doctor-machine.c  io_uring, memory and its limits, huge pages
 *   doctor-numa.c     the nodes, their pages, and the node of the path's disk
 *   doctor-devices.c  drivers and devices
 *   doctor-network.c  UCX, interfaces and RDMA, for groups across machines
 *
 * Each part adds its checks in order and returns 0, or the error that ends the examination:
 * -ENOMEM, or a path that cannot be examined.  A thing that does not work is a finding, not an
 * error.
 */
#ifndef HOIST_LIB_DOCTOR_DOCTOR_H
#define HOIST_LIB_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "hoist/doctor.h"
#include "hoist/load.h"
#include "io/file.h"
#include "net/fabric.h"

#define HOIST__CHECK_NAME_BYTES 32

struct hoist__check {
	char name[HOIST__CHECK_NAME_BYTES];
	bool ok;
	char *detail;
	char *remedy;
};

/* The advice in the form of hoist_advice. */
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
	const char *path;  /* the caller's; valid only during the examination */
	uint64_t path_dev; /* st_dev of the path's file system; 0 if unknown */
};

/* Adds a check that passed; the formatted text is the finding. */
int hoist__doctor_yes(hoist_doctor *doctor, const char *name, const char *format, ...)
	HOIST__PRINTF(3, 4);

/* Adds a check that failed; the formatted text says why, @remedy what to do. */
int hoist__doctor_no(hoist_doctor *doctor, const char *name, const char *remedy, const char *format,
		     ...) HOIST__PRINTF(4, 5);

/* Adds a check that failed with the thread's present error: "why; remedy".  @remedy is used if that
 * text has none. */
int hoist__doctor_error(hoist_doctor *doctor, const char *name, const char *remedy);

int hoist__doctor_path(hoist_doctor *doctor, const char *path);

/* Reads some of @file (NULL: there is none), and keeps the advice for @path, or the reason why
 * there is none. */
void hoist__doctor_probe(hoist_doctor *doctor, const char *path, const struct hoist__file *file);
int hoist__doctor_machine(hoist_doctor *doctor);

/* May the process lock so many bytes? */
bool hoist__doctor_can_lock(size_t bytes);

/* @sysfs_root is "/sys", or a test's tree.  Placing is tried on the machine itself. */
int hoist__doctor_numa(hoist_doctor *doctor, const char *sysfs_root);
int hoist__doctor_devices(hoist_doctor *doctor);
int hoist__doctor_network(hoist_doctor *doctor);

/* RDMA's devices: @root has their sys and dev, "" or a test's tree. */
int hoist__doctor_rdma(hoist_doctor *doctor, const struct hoist__fabric_facts *facts,
		       const char *root, bool can_lock);

#endif
