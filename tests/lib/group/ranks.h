/* SPDX-License-Identifier: MIT */
/* tests/lib/group/ranks.h - ranks as children of fork, and what they leave behind. */
#ifndef HOIST_TESTS_GROUP_RANKS_H
#define HOIST_TESTS_GROUP_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <hoist/group.h>
#include <hoist/hoist.h>

#include "lib/wire/wire.h"

#define MOST_RANKS 4u

/* Memory that the children share with the parent. */
struct ranks_said {
	int err[MOST_RANKS];
	char text[MOST_RANKS][1024];
	uint64_t read_bytes[MOST_RANKS];
	volatile unsigned marks[MOST_RANKS];
};
extern struct ranks_said *said;
void ranks_begin(void);

/* The same for groups of several machines alone, without a secret; ends the program with 77 where
 * UCX is missing. */
void ranks_begin_far(void);

/* Does a status say that UCX ended a rank?  UCX before 1.16 aborts a member whose connection to
 * another one is of this moment, if the other one dies (net/fabric.h). */
bool ranks_aborted(int status);

/* Waits until the rank has one of the marks. */
void ranks_wait_for_mark(unsigned rank, unsigned marks);

/* From now on groups are of one machine ("shm:"), or, with @far, as those of several ("tcp://"),
 * which are elastic: a rank that fails is no failure of the others. */
void ranks_use(bool far);
bool ranks_are_far(void);

/* A group of a name that no other test uses. */
hoist_group ranks_group(unsigned rank, unsigned n_ranks);
void ranks_next_group(void);

/* Runs @rank_main(0 .. n - 1) in a child each, and waits for all: each exits with 0, or, if its bit
 * is in @killed, was killed by SIGKILL. */
void ranks_run(unsigned n, void (*rank_main)(unsigned rank), unsigned killed);

/* For tests that play a member of a group of several machines: the group's door; a message to the
 * other side; the next one from there. */
struct hoist__address ranks_door(void);
void ranks_say(struct hoist__channel *channel, const struct hoist__wire_message *message);
struct hoist__wire_message ranks_hear(struct hoist__channel *channel);

pid_t ranks_start(unsigned rank, void (*rank_main)(unsigned rank));
void ranks_end(pid_t child, int killed);

/* Loads as a rank, drives the load to its end, and notes result, text and bytes in `said`.  Checks
 * that no descriptor, thread or mapping stays.  @drive returns the load's result, with its text in
 * hoist_error(). */
void ranks_load_driven(const hoist_group *group, const char *path, const hoist_load_options *o,
		       int (*drive)(hoist_checkpoint *checkpoint, hoist_load *load, unsigned rank),
		       void (*look)(hoist_checkpoint *checkpoint, hoist_load *load, int err));

/* The same, which waits.  @look: called after a success. */
void ranks_load(const hoist_group *group, const char *path, const hoist_load_options *o,
		void (*look)(hoist_checkpoint *checkpoint, hoist_load *load));

/* No socket of the group is left. */
void ranks_left_nothing(void);

/* "big.safetensors" in support_folder(): 80 MiB; a: long rows, b: rows to slice, c: odd. */
#define BIG_BYTES (UINT64_C(40000) * 1024 + 300 * 131072 + 5000001)
const char *ranks_big(void);

/* "quarter.safetensors" there: the same tensors, each a quarter as long. */
const char *ranks_quarter(void);

/* "floats.safetensors" there: 22 MiB; f: f32, of more cells than a rank has slots; g: bf16; h: f16,
 * odd. */
#define FLOATS_BYTES (UINT64_C(5000) * 1024 * 4 + 300 * 4096 * 2 + 300001 * 2)
const char *ranks_floats(void);

/* A buffer to read into, filled with one byte; is each byte of it as it was, or that of the whole
 * tensor? */
hoist_buffer *ranks_buffer(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape);
bool ranks_untouched(hoist_buffer *buffer);
bool ranks_is_whole(hoist_checkpoint *checkpoint, size_t tensor, hoist_buffer *buffer);

#endif
