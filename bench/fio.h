/* SPDX-License-Identifier: MIT */
/* bench/fio.h - the peer for reading a file: fio's io_uring engine, direct, its
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
};

/* Sets aside the huge pages that the largest shape needs, given back at exit.
 * Returns: false if the system does not give them; fio_read() then uses plain
 * memory, and its rate may be below fio's best. */
bool fio_reserve_huge_pages(void);

/* Reads the whole file once, cold.  Exits if fio is missing or fails. */
void fio_read(const char *path, const struct fio_shape *shape, struct fio_result *ret);

/* The fastest of 1, 2, 4, 8 MiB blocks by depths 8 and 16, each tried once. */
struct fio_shape fio_best_shape(const char *path);

#endif
