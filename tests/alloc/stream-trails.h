/* SPDX-License-Identifier: MIT */
/* The reference of stream_model.c, which is too simple to be wrong.  Streams tick: each piece of
 * work on a block is a copy of the stream's next number to a place where the test sees the number.
 *
 *   lane     a stream and its clock
 *   block    a live block, with the numbers of its last work on each lane
 *   trail    a freed block: its addresses, and the numbers that they wait for */
#ifndef HOIST_TESTS_ALLOC_STREAM_TRAILS_H
#define HOIST_TESTS_ALLOC_STREAM_TRAILS_H

#include <stdatomic.h>
#include <stdint.h>

#include "device/device.h"
#include "tests/support/alloc-support.h"
#include "tests/support/emulator-driver.h"

#define LANES 4
#define THREADS_MOST 3
#define SLOTS 150
#define TRAILS 60000
#define MEETINGS 10
#define NUMBERS 65536
#define HOST_BYTES (NUMBERS * sizeof(uint16_t))
#define SCRATCH_BYTES (HOIST__MIB / 2)

struct scenario {
	const char *name;
	enum hoist__api api;
	enum hoist__memory_kind kind;
	unsigned n_threads;
	unsigned n_operations; /* of each thread */
	size_t limit_bytes;
	size_t cache_bytes;
	unsigned debug;
	bool captures; /* one thread: no other may ask a stream while its capture begins */
};

struct lane {
	pthread_mutex_t lock; /* its numbers are queued in order */
	struct hoist__dev_stream *stream;
	volatile uint16_t *seen;
	_Atomic uint32_t issued;
	unsigned capture; /* how many there were */
	bool capturing;
};

struct need { /* of one lane */
	bool any;
	bool queued; /* number counts */
	uint16_t number;
	unsigned capture; /* the graph that has it; 0: none */
};

struct block {
	uintptr_t address; /* 0: none */
	size_t bytes;
	unsigned home; /* the lane whose work the pool need not be told of before the end */
	bool untold;   /* there was such work */
	struct need needs[LANES];
};

struct trail {
	uintptr_t address;
	size_t bytes;
	struct need needs[LANES];
};

struct model;

struct worker {
	struct model *model;
	unsigned index;
	uint64_t random;
	struct block blocks[SLOTS];
};

struct model {
	const struct scenario *scenario;
	struct hoist__pool *pool;
	struct control *control; /* NULL: the CPU */
	struct hoist__dev *dev;
	uint16_t *host;	   /* each number, and then those seen of each lane */
	uintptr_t numbers; /* each number, where the streams can read it */
	uintptr_t scratch;
	struct lane lanes[LANES];
	pthread_barrier_t barrier;
	pthread_mutex_t lock; /* of the trails */
	struct trail trails[TRAILS];
	size_t n_trails;
	_Atomic uint64_t n_reused; /* for the same lane, before the time */
	_Atomic uint64_t n_full;
	struct worker workers[THREADS_MOST];
};

/* --- clocks --- */

static inline bool has_seen(const struct lane *lane, uint16_t number)
{
	return (int16_t)(uint16_t)(*lane->seen - number) >= 0;
}

/* Work of the block on the lane; a graph's is never done. */
static inline void work(struct model *model, struct block *block, unsigned at)
{
	struct lane *lane = &model->lanes[at];
	struct need *need = &block->needs[at];
	need->any = true;
	if (lane->capturing) {
		need->capture = lane->capture;
		return;
	}
	enum hoist__copy kind =
		model->control != NULL ? HOIST__COPY_DEVICE_TO_HOST : HOIST__COPY_DEVICE_TO_DEVICE;
	pthread_mutex_lock(&lane->lock);
	uint16_t number = (uint16_t)(atomic_load(&lane->issued) + 1);
	CHECK(hoist__copy_async(lane->stream, kind, (uintptr_t)lane->seen,
				model->numbers + number * sizeof number, sizeof number) == 0);
	atomic_fetch_add(&lane->issued, 1);
	pthread_mutex_unlock(&lane->lock);
	need->queued = true;
	need->number = number;
}

/* Numbers come again after 65536. */
static inline void catch_up(struct model *model, unsigned at)
{
	if (!model->lanes[at].capturing)
		CHECK(hoist__dev_stream_synchronize(model->lanes[at].stream) == 0);
}

/* --- trails --- */

static inline bool is_over(const struct model *model, const struct trail *trail)
{
	for (unsigned i = 0; i < LANES; i++) {
		const struct need *need = &trail->needs[i];
		if (need->capture != 0 ||
		    (need->queued && !has_seen(&model->lanes[i], need->number)))
			return false;
	}
	return true;
}

/* Whether it is for the lane's next work already: device memory that nobody else had, and that the
 * same graph has, if it is one's. */
static inline bool is_for(const struct model *model, const struct trail *trail, int at)
{
	if (at < 0 || model->scenario->kind != HOIST__MEMORY_DEVICE || model->scenario->debug != 0)
		return false;
	const struct lane *lane = &model->lanes[at];
	for (int i = 0; i < LANES; i++)
		if (i != at && trail->needs[i].any)
			return false;
	return trail->needs[at].capture == (lane->capturing ? lane->capture : 0);
}

/* A block of these addresses was given out, for the work of one lane or (-1) of anybody. */
static inline void expect_free(struct model *model, struct block *block, int at)
{
	pthread_mutex_lock(&model->lock);
	for (size_t i = 0; i < model->n_trails;) {
		struct trail *trail = &model->trails[i];
		bool apart = trail->address + trail->bytes <= block->address ||
			     block->address + block->bytes <= trail->address;
		bool over = is_over(model, trail);
		if (!apart && !over) {
			CHECK(is_for(model, trail, at));
			/* It stays the lane's, whatever becomes of the block. */
			block->needs[at] = trail->needs[at];
			atomic_fetch_add(&model->n_reused, 1);
		}
		if (!apart || over)
			*trail = model->trails[--model->n_trails];
		else
			i++;
	}
	pthread_mutex_unlock(&model->lock);
}

static inline void leave_trail(struct model *model, const struct block *block)
{
	struct trail trail = {.address = block->address, .bytes = block->bytes};
	memcpy(trail.needs, block->needs, sizeof trail.needs);
	pthread_mutex_lock(&model->lock);
	CHECK(model->n_trails < TRAILS);
	model->trails[model->n_trails++] = trail;
	pthread_mutex_unlock(&model->lock);
}

#endif
