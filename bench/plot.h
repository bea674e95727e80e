/* SPDX-License-Identifier: MIT */
/* bench/plot.h - results as an SVG image, drawn by gnuplot. */
#ifndef HOIST_BENCH_PLOT_H
#define HOIST_BENCH_PLOT_H

#include <stdio.h>

#include "bench/results.h"

/* Sees whether gnuplot is there and @path can be written, which takes no time: before
 * measuring.  Returns a STATUS_*; *fd is the file, still with what it held, or -1 if @path is NULL:
 * then there is nothing to draw, and the functions below do nothing.  plot_end() is owed. */
int plot_prepare(const char *path, int *fd);
void plot_end(int fd);

/* Draws the rows in nanoseconds, in milliseconds and in GB/s; the other figures are no bars
 * beside each other.  Replaces what the file holds.  Returns a STATUS_*. */
int plot_draw(const struct results *results, const char *path, int fd);

/* Runs the script of gnuplot's that @make makes, which draws an SVG, in place of what the file
 * holds.  Returns a STATUS_*. */
int plot_run(void (*make)(FILE *out, const void *context), const void *context, const char *path,
	     int fd);

#endif
