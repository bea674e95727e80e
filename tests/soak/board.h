/* SPDX-License-Identifier: MIT */
/* tests/soak/board.h - the shared memory of the soak's processes: every thread says its action
 * there and since when, all count their deeds, and processes that live long write down their
 * figures; random numbers; checks that tell which action failed. */
#ifndef HOIST_TESTS_SOAK_BOARD_H
#define HOIST_TESTS_SOAK_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <hoist/hoist.h>

#include "tests/support/check.h"
#include "tests/support/random.h"

#define SOAK_SLOTS 8   /* processes at once */
#define SOAK_OLD 2     /* of them, those that are stopped at times, but never killed */
#define SOAK_THREADS 3 /* of a process, that do things, */
#define SOAK_BEATS 4   /* and one more that takes what siblings send */
#define SOAK_RESTS 1024
#define SOAK_STUCK_SECONDS 60

/* The actions of threads. */
#define SOAK_ACTIONS(X)                                                                            \
	X(idle)                                                                                    \
	X(load)                                                                                    \
	X(load_static)                                                                             \
	X(load_private)                                                                            \
	X(save)                                                                                    \
	X(save_private)                                                                            \
	X(save_shards)                                                                             \
	X(save_again)                                                                              \
	X(attach)                                                                                  \
	X(add)                                                                                     \
	X(drop)                                                                                    \
	X(copy)                                                                                    \
	X(pool)                                                                                    \
	X(parcel)                                                                                  \
	X(send)                                                                                    \
	X(take)                                                                                    \
	X(fork)                                                                                    \
	X(rest)

/* The counts beside them. */
#define SOAK_COUNTS(X)                                                                             \
	X(digests)     /* tensors, or parts, compared by digest */                                 \
	X(bytes)       /* of these */                                                              \
	X(cancelled)   /* loads and saves that ended so */                                         \
	X(left)	       /* destroyed in the middle, without a wait */                               \
	X(not_there)   /* no such file, or image, yet */                                           \
	X(mixed)       /* shards of two saves, as documented, while no lock is held */             \
	X(stale)       /* images whose checkpoint was replaced */                                  \
	X(holder_lost) /* adds that gave up because holders were killed, or stopped */             \
	X(holder_late) /* adds that gave up after seconds, as the library does */                  \
	X(attached)    /* images, looked at */                                                     \
	X(added)       /* the same */                                                              \
	X(taken)       /* buffers of siblings, looked at */                                        \
	X(no_taker)    /* sends to a sibling that was not there, or ended */                       \
	X(torn)	       /* taken of a sibling that was killed meanwhile */                          \
	X(no_memory)   /* limits of pools met */                                                   \
	X(gigantic)    /* bytes of loads done, for the figure */                                   \
	X(rests)       /* looks at what a process holds */

enum soak_action {
#define X(name) SOAK_##name,
	SOAK_ACTIONS(X)
#undef X
		SOAK_N_ACTIONS
};
enum soak_count {
#define X(name) SOAK_N_##name,
	SOAK_COUNTS(X)
#undef X
		SOAK_N_COUNTS
};

struct soak_beat {
	_Atomic uint64_t since_ns; /* CLOCK_MONOTONIC; 0: no such thread now */
	_Atomic uint64_t seed;	   /* of what it does */
	_Atomic int action;
	_Atomic int tid;
};

/* The memory and handles of a process while its threads rest. */
struct soak_rest {
	uint64_t ns;
	uint64_t device_bytes; /* given out by the stand-in drivers */
	uint64_t private_kib;  /* resident, and nobody else's */
	uint64_t in_use;       /* of malloc, but for */
	uint64_t kept;	       /* what pools keep of it */
	uint64_t maps;
	uint64_t fds;
	uint64_t threads;
	uint64_t handles; /* of the stand-in drivers: allocations, registrations, streams... */
	uint64_t blocks;  /* live, of memory resources */
};

/* The files that may be at a path that one thread alone saves to: the one or the other. */
struct soak_own {
	_Atomic uint64_t seed; /* 0: no file */
	_Atomic uint64_t next; /* what is being saved; 0: nothing */
};

struct soak_slot {
	_Atomic int pid;
	struct soak_beat beats[SOAK_BEATS];
	struct soak_own own[SOAK_THREADS];
	_Atomic unsigned n_rests;
	struct soak_rest rests[SOAK_RESTS];
};

struct soak_board {
	uint64_t seed;
	uint64_t end_ns; /* when all stop */
	uint64_t round_ns;
	_Atomic bool stop;
	_Atomic bool failed;
	_Atomic bool shards_whole; /* no save of shards was killed or cancelled in the middle */
	_Atomic uint64_t actions[SOAK_N_ACTIONS];
	_Atomic uint64_t counts[SOAK_N_COUNTS];
	struct soak_slot slots[SOAK_SLOTS];
};

extern struct soak_board *board;
extern char soak_folder[256]; /* where files are */

/* Makes the board as the file @path, or opens it. */
void soak_board_make(const char *path);
void soak_board_open(const char *path);

uint64_t soak_now(void);
const char *soak_action_name(int action);
void soak_count(enum soak_count count, uint64_t n);

/* The calling thread's place. */
struct soak_self {
	int slot;
	int thread;
	uint64_t random;
	struct soak_beat *beat;
};
extern _Thread_local struct soak_self self;

/* The action of this thread from now on, as @seed says. */
void soak_begin(enum soak_action action, uint64_t seed);
/* The same, still alive: for waits that may be long. */
void soak_beat(void);

/* The number that splitmix64 gives from the state @x. */
static inline uint64_t soak_mix(uint64_t x)
{
	return random_next(&x);
}

static inline uint64_t soak_random(void)
{
	return random_next(&self.random);
}

static inline uint64_t soak_below(uint64_t n)
{
	return random_below(&self.random, n);
}

static inline bool soak_chance(unsigned of)
{
	return soak_below(of) == 0;
}

#define SOAK_PICK(table) ((table)[soak_below(sizeof(table) / sizeof((table)[0]))])

/* "<folder>/<name>" of this thread, until its eighth call from now. */
const char *soak_path(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A check that fails ends the whole soak, and tells what this thread was doing. */
#define NEVER(what) check_failed(__FILE__, __LINE__, __func__, what)

#endif
