/* SPDX-License-Identifier: MIT */
/* bench/raw.h - the peers of loads and saves that move as much memory as these: direct reads or
 * writes by io_uring, each at its own place in as much memory as the file has bytes.  fio uses one
 * small buffer again and again, which stays in the processor's cache.
 *
 * The memory lies in huge pages, as far as the kernel has them, and is touched before the clock
 * starts; the ring is made by then, too.  Each run is a process of its own, with blocks of one size
 * at a constant depth. */
#ifndef HOIST_BENCH_RAW_H
#define HOIST_BENCH_RAW_H

#include "bench/fio.h"

/* Bytes a second of reading the whole file, cold. */
double raw_read(const char *path, const struct fio_shape *shape);

/* Bytes a second of writing a new file of @bytes, whole blocks of the file system, at @path, which
 * is then removed.  In the time are open, fallocate and fsync, as in fio_write()'s. */
double raw_write(const char *path, uint64_t bytes, const struct fio_shape *shape);

/* The fastest shape (fio_best()), of depths from 8 to 32, or to 16 for writes. */
struct fio_shape raw_best_read(const char *path);
struct fio_shape raw_best_write(const char *path, uint64_t bytes);

/* "raw, 2 MiB x 16". */
const char *raw_label(const struct fio_shape *shape, char *ret, unsigned bytes);

#endif
