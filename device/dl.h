/* SPDX-License-Identifier: MIT */
/* device/dl.h - opens a driver's library at run time and fills its table.
 *
 * A backend describes its driver with one `struct hoist__dl` and an array of
 * rows made from its X-macro table, then opens it once.  Libraries are never
 * closed: drivers leave threads behind, and their handlers run at exit.
 *
 * Which file is opened:
 *   1. HOIST_EMULATE names the api, or the api is virtual (virtual.h): the stand-in, from
 *      $HOIST_EMULATOR_DIR, else "hoist/" beside the object that contains this code, else
 *      the folder that was configured
 *   2. HOIST_CUDA_LIBRARY / HOIST_HIP_LIBRARY is set: the library that it names, nothing else
 *   3. somebody has loaded a library into this process already, under a name that begins
 *      with `prefix`, as frameworks do that bring their own: this library.  Two runtimes
 *      in one process do not know each other's memory and streams
 *   4. the names in `names`, in order; if all fail, the error tells of the first failure
 * Programs that gained privileges by exec see none of these variables.
 *
 * Threads: the caller serialises hoist__dl_open(); afterwards all is constant.
 */
#ifndef HOIST_DEVICE_DL_H
#define HOIST_DEVICE_DL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"

enum hoist__dl_need { HOIST__DL_OPTIONAL, HOIST__DL_REQUIRED };

struct hoist__dl_row {
	const char *symbol;
	size_t offset; /* of the function pointer in the table */
	enum hoist__dl_need need;
	int since;
};

/* For use as X: one row of the array, for a table of type HOIST__DL_TABLE. */
#define HOIST__DL_ROW(name, symbol, result, arguments, need, since)                                \
	{#symbol, offsetof(HOIST__DL_TABLE, name), HOIST__DL_##need, since},

/* For use as X: one member of the struct of function pointers. */
#define HOIST__DL_MEMBER(name, symbol, result, arguments, need, since) result(*name) arguments;

struct hoist__dl {
	/* Given by the backend. */
	enum hoist__api api;
	const char *title;	  /* "CUDA" */
	const char *variable;	  /* "HOIST_CUDA_LIBRARY" */
	const char *emulator;	  /* file name of the stand-in */
	const char *const *names; /* newest first; NULL ends */
	const char *prefix;	  /* of the names by which others may have loaded it */
	const char *remedy;	  /* how a user gets the driver */
	const struct hoist__dl_row *rows;
	size_t n_rows;
	void *table;
	/* Filled by hoist__dl_open(). */
	void *handle;
	bool emulated;
	char path[PATH_MAX];
	char reason[96];		     /* why this one: "this process had loaded it" */
	const struct hoist__dl_row *missing; /* the first REQUIRED row not found */
};

/* Reads HOIST_EMULATE: *ret is the number of devices of @api, 0 if the variable
 * does not name @api.
 * Returns: 0; -EINVAL if the variable is malformed (the text says where). */
int hoist__dl_emulate(enum hoist__api api, int *ret);

/* Opens the library and loads those functions of the table that it has.  A missing
 * required symbol is no failure yet.  Only the driver's version tells whether the
 * driver is too old or broken: see hoist__dl_check().
 * Returns: 0; -ENODEV; -EINVAL (HOIST_EMULATE). */
int hoist__dl_open(struct hoist__dl *dl);

/* Looks for the stand-in's file.  Returns: 0; -ENOENT, the text names the folders. */
int hoist__dl_find_emulator(enum hoist__api api);

/* Why hoist__dl_open() took the library that it opened last for @api; "" if it opened none. */
const char *hoist__dl_reason(enum hoist__api api);

/* True if the library that hoist__dl_open() opened last for @api is a stand-in. */
bool hoist__dl_is_emulated(enum hoist__api api);

/* Pre: hoist__dl_is_emulated().  The stand-in shows @count devices, unless it shows more already.
 * Returns: 0; -ENODEV if this stand-in has no function for it. */
int hoist__dl_set_devices(enum hoist__api api, int count);

/* Judges an opened library.  @version and @since are as the driver encodes them, @version is 0
 * if the driver could not be asked; @said and @needed are the same in words, "6.5" and "7.0".
 * Returns: 0; -ENODEV: too old, or a required symbol is missing. */
int hoist__dl_check(const struct hoist__dl *dl, int version, int since, const char *said,
		    const char *needed);

#endif
