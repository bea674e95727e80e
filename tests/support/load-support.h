/* SPDX-License-Identifier: MIT */
/* tests/support/load-support.h - helpers of the tests of loads: checkpoints written here, byte
 * by byte, without hoist, and comparison of buffers with the bytes that pread gives. */
#ifndef HOIST_TESTS_LOAD_SUPPORT_H
#define HOIST_TESTS_LOAD_SUPPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <hoist/hoist.h>
#include <hoist/timeline.h>

#include "emulator/control.h"
#include "tests/support/check.h"
#include "tests/support/lib-support.h"

/* A folder in $TMPDIR that support_cleanup() removes. */
const char *support_folder(void);
void support_cleanup(void);

/* Removes a folder, which has no folders in it, with its files. */
void support_remove(const char *path);

/* "<folder>/<name>"; the result is good until the 64th call after it.  One thread at a time. */
const char *support_path(const char *name);

/* Opens "<folder>/<name>", or @name if that begins with a slash. */
hoist_checkpoint *support_open(const char *name);

/* Opens the device. */
hoist_device *support_device(const char *spec);

/* Writes "<folder>/<name>", or @name if that begins with a slash, as a safetensors file by hand:
 * this header, and one block of bytes. */
void support_put_safetensors(const char *name, const char *header, const void *data, size_t n);

/* The file "<folder>/<name>" has these bytes. */
void support_put(const char *name, const void *bytes, size_t n);

/* Opens as above, starts a load as @o says, and waits for its end, which must be success. */
hoist_load *support_load(const char *name, const hoist_load_options *o);

/* Starting, or else waiting, gives @err and a text with @piece in it. */
void support_load_fails(hoist_checkpoint *checkpoint, const hoist_load_options *o, int err,
			const char *piece);

/* The last error's text has @piece in it. */
void support_said(const char *piece);

hoist_load_report support_report(hoist_load *load);

uint64_t support_time(const hoist_load_report *report, enum hoist_stage stage);

/* The load's times so far: they add up, and none is less than in @times, whose place they take. */
void support_times(hoist_load *load, hoist_load_report *times);

/* Writes @n u8 tensors "t000000", ... of sizes[i] pseudo-random bytes to
 * "<folder>/<name>"; the header is padded with spaces so that data begin at
 * @data_offset bytes mod 4096 if that is not negative. Shards: the first tensor's number. */
void support_write(const char *name, size_t first, size_t n, const size_t *sizes, int data_offset);

/* An index over files[0..n_files), shard f holding tensors first[f] .. first[f+1]-1. */
void support_write_index(const char *const *files, const size_t *first, size_t n_files);

/* Loads @path as @o says and compares every selected tensor with the file's bytes. */
void support_load_and_compare(const char *path, const hoist_load_options *o,
			      hoist_load_report *report);

/* Every selected tensor of an ended load, against pread. */
void support_compare(hoist_checkpoint *checkpoint, hoist_load *load);

/* Loads the checkpoint @name, and keeps the digests of its tensors beside its files. */
void support_keep_digests(const char *name);

/* Sets HOIST_EMULATE; skips the test (exit 77) where there are no stand-in drivers. */
void support_emulate(const char *devices);

/* A stand-in's control function, found in the library hoist opened; NULL if the
 * emulator is not in use. */
void *support_control(const char *api, const char *function);

/* The stand-in copies so many bytes in a second (0: as fast as it can); ends no copy while it is
 * held. */
void support_set_rate(const char *api, uint64_t bytes_per_second);
void support_hold(const char *api, bool on);

static inline struct hoist_emulator_counters support_counters(const char *api)
{
	return lib_counters(api);
}

/* No copy was refused, outlived its memory, or used host memory that is not pinned. */
static inline void support_check_copies(const char *api)
{
	const struct hoist_emulator_counters seen = support_counters(api);
	CHECK(seen.bad_copies == 0 && seen.use_after_free == 0 && seen.pageable_copies == 0);
}

static inline void support_fail(const char *api, const char *spec)
{
	OK(lib_fail(api, spec));
}

static inline void support_reset(const char *api)
{
	lib_reset(api);
}

#endif
