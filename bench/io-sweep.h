/* SPDX-License-Identifier: MIT */
/* bench/io-sweep.h - the results of `hoist bench io`: a rate for each way, engine, size of a
 * read and depth. */
#ifndef HOIST_BENCH_IO_SWEEP_H
#define HOIST_BENCH_IO_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/samples.h"

#define SWEEP_N_BLOCKS 6
#define SWEEP_N_DEPTHS 6
#define SWEEP_N_ENGINES 2
#define SWEEP_N_WAYS 3

extern const size_t sweep_blocks[SWEEP_N_BLOCKS];
extern const unsigned sweep_depths[SWEEP_N_DEPTHS];
extern const char *const sweep_engines[SWEEP_N_ENGINES];
extern const char *const sweep_ways[SWEEP_N_WAYS];

struct sweep_cell {
	struct samples rates; /* bytes a second; empty: not measured */
	struct samples cpu;   /* seconds a GiB, as many as rates */
};

struct sweep {
	struct sweep_cell cells[SWEEP_N_WAYS][SWEEP_N_ENGINES][SWEEP_N_BLOCKS][SWEEP_N_DEPTHS];
	/* With the size and depth that the library chooses: cold and hot. */
	struct sweep_cell own[2];
	const char
		*skipped[SWEEP_N_WAYS][SWEEP_N_ENGINES]; /* why nothing of it was measured; NULL */
};

double sweep_rate(const struct sweep_cell *cell); /* the median, bytes a second; 0: not measured */

/* The fastest cell of @way, of both engines; NULL if there is none. */
const struct sweep_cell *sweep_best(const struct sweep *sweep, int way, int *engine, int *block,
				    int *depth);

/* "direct, 1 MiB x 8". */
const char *sweep_label(int way, int block, int depth, char *ret, size_t bytes);

void sweep_print(const struct sweep *sweep);

/* Draws a panel for each way and engine, a line for each size.  Returns a STATUS_*. */
int sweep_draw(const struct sweep *sweep, const char *path, int fd);

#endif
