/* SPDX-License-Identifier: MIT */
/* bench/made.h - checkpoints that measurements make: safetensors in memory (memfd), which lie in
 * the page cache as a hot file does, and are gone with this process. */
#ifndef HOIST_BENCH_MADE_H
#define HOIST_BENCH_MADE_H

#include <stddef.h>
#include <stdint.h>

struct made {
	int fd;
	char path[40];	  /* for this process and its children */
	uint64_t data_at; /* the offset of the first tensor's bytes */
};

/* Makes @n tensors "t0", "t1" and so on, one behind the other, of bytes in the shape
 * [@rows, @columns].  Returns a STATUS_*; made_close() is owed in any case. */
int made_open(size_t n, uint64_t rows, uint64_t columns, struct made *ret);
void made_close(struct made *made);

#endif
