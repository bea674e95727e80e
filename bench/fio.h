/* SPDX-License-Identifier: MIT */
/* bench/fio.h - the peer for reading and writing a file: fio's io_uring engine, direct, its
 * buffers in huge pages. */
#ifndef HOIST_BENCH_FIO_H
#define HOIST_BENCH_FIO_H

#include <stdbool.h>
#include <stdint.h>

struct fio_shape {
	uint64_t block_bytes;
	unsigned depth;
};

struct fio_result {
	double bytes_per_second;
	double cpu_seconds_per_byte;
	double creating_seconds; /* fio_write(): of the whole, for the file and its blocks */
};

/* Sets aside the huge pages that the largest shape needs, given back at exit.
 * Returns: false if the system does not give them; fio then uses plain
 * memory, and its rate may be below fio's best. */
bool fio_reserve_huge_pages(void);

/* Reads the whole file once, cold.  Exits if fio is missing or fails. */
void fio_read(const char *path, const struct fio_shape *shape, struct fio_result *ret);

/* Writes a new file of about @bytes at @path, then removes it.  In the time are: open, fallocate,
 * fio's direct writes of that file, and fsync.  The first two are made here, because fio makes them
 * before its clock starts.  Not in the time, unlike a save's: fio's start, its ring, its buffers,
 * and the fsync of the folder.  Exits as fio_read() does. */
void fio_write(const char *path, uint64_t bytes, const struct fio_shape *shape,
	       struct fio_result *ret);

/* The rate of one run in @shape, in bytes a second. */
typedef double fio_rate(const char *path, uint64_t bytes, const struct fio_shape *shape);

/* The fastest of blocks of 1 to 16 MiB by depths from 8 to @most_depth, as far as all blocks are
 * 256 MiB at most (beyond, fio is busy with touching them): each tried once, the best three twice
 * more. hoist is compared with the best that the peer can do. */
struct fio_shape fio_best(fio_rate *rate, const char *path, uint64_t bytes, unsigned most_depth);

/* Depths from 8 to 64. */
struct fio_shape fio_best_read(const char *path);
/* Depths 8 and 16. */
struct fio_shape fio_best_write(const char *path, uint64_t bytes);

/* "fio, 1 MiB x 8, huge pages"; "plain pages" where fio_reserve_huge_pages() got none. */
const char *fio_label(const struct fio_shape *shape, char *ret, unsigned bytes);

#endif
