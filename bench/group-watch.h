/* SPDX-License-Identifier: MIT */
/* bench/group-watch.h - the course of a group of several machines: each rank's bytes over time, as
 * hoist_group_look() tells them, and an image of them. */
#ifndef HOIST_BENCH_GROUP_WATCH_H
#define HOIST_BENCH_GROUP_WATCH_H

#include <stddef.h>
#include <stdint.h>

#define GROUP_WATCH_SAMPLES 65536u
#define GROUP_WATCH_RANKS 4u

struct group_sample {
	double seconds; /* since the start */
	uint64_t id;	/* of the rank */
	uint64_t storage_bytes, received_bytes, sent_bytes;
};

struct group_watch {
	double begin; /* of the course */
	size_t n;
	struct group_sample samples[GROUP_WATCH_SAMPLES]; /* in the order of time */
};

/* A port of 127.0.0.1 that nobody listens at. */
unsigned group_watch_port(void);

/* Begins a new course, whose times count from @begin (clock_seconds()). */
void group_watch_begin(struct group_watch *watch, double begin);

/* Adds a sample of each rank of the group that loads now, and waits for some milliseconds. */
void group_watch_look(struct group_watch *watch, const char *name);

/* Draws the course, as plot_run().  A course without samples is a STATUS_FAILED. */
int group_watch_draw(const struct group_watch *watch, const char *path, int fd);

#endif
