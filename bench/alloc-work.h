/* SPDX-License-Identifier: MIT */
/* bench/alloc-work.h - the measurements of `hoist bench alloc`, each in a process of its own.
 *
 *   catalogue   the measurements: name, threads, subjects, figures, bars    alloc-catalogue.c
 *   round       in the parent: runs every subject of a measurement in turn, again and
 *               again, each in a child process, and keeps the medians       alloc.c
 *   worker      in the child: one measurement of one subject, once          alloc-worker.c
 *   work        what the worker runs: alloc-slots.c, alloc-handover.c, alloc-small.c,
 *               alloc-device.c, alloc-region.c
 *
 * Subjects that replace malloc are preloaded into the child; hoist and the empty loop run
 * in such a child as well, so that all have the same start.
 */
#ifndef HOIST_BENCH_ALLOC_WORK_H
#define HOIST_BENCH_ALLOC_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hoist/memory.h>

#include "bench/samples.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GIB(n) ((size_t)(n) << 30)

enum subject {
	SUBJECT_HOIST,
	SUBJECT_EMPTY, /* the same loop with functions that do nothing */
	SUBJECT_GLIBC,
	SUBJECT_JEMALLOC,
	SUBJECT_MIMALLOC,
	SUBJECT_TCMALLOC,
	SUBJECT_HEAP,	  /* hoist, a heap of jemalloc's over regions of hoist's */
	SUBJECT_STREAM,	  /* hoist, freed and allocated on a stream */
	SUBJECT_TOUCH,	  /* mmap and madvise by hand, then a touch of every page */
	SUBJECT_POPULATE, /* the same, populated by MADV_POPULATE_WRITE */
	N_SUBJECTS
};

struct subject_info {
	const char *name;
	const char *library; /* that malloc lies in then; NULL if it needs none of its own */
	const char *package; /* that holds it; NULL for what every machine has */
};
extern const struct subject_info subjects[N_SUBJECTS];

#define SUBJECT(name) (1u << SUBJECT_##name)
#define SUBJECTS_MALLOC (SUBJECT(GLIBC) | SUBJECT(JEMALLOC) | SUBJECT(MIMALLOC) | SUBJECT(TCMALLOC))

#define WORK_MAX_FIGURES 3

/* One number that a measurement gives. */
struct figure {
	const char *label;   /* appended to the measurement's; NULL: nothing */
	const char *subject; /* shown in place of the subject; NULL: the subject */
	const char *unit;    /* NULL: there are no more */
	bool of_all;	     /* other allocators have this figure too, as the first */
	bool has_bar;	     /* hoist's should be at most: */
	double bar;
};

struct work;
/* Fills @values, one for each figure.  Returns a STATUS_*, with the message printed. */
typedef int work_run(const struct work *work, double values[WORK_MAX_FIGURES]);

struct measurement {
	const char *name;  /* of --work */
	const char *label; /* "A 64..4096 B" */
	int n_threads;
	unsigned subjects; /* SUBJECT() of those measured; the figures behind the first: hoist's */
	bool emulate;	   /* runs on an emulated device, unless another is asked for */
	bool exact;	   /* the same every time: one run is enough */
	bool quick;	   /* part of --quick */
	work_run *run;
	size_t argument; /* what @run says */
	struct figure figures[WORK_MAX_FIGURES];
};
extern const struct measurement measurements[];
extern const size_t n_measurements;

/* One measurement of one subject. */
struct work {
	const struct measurement *measurement;
	enum subject subject;
	hoist_device *device; /* NULL unless the measurement is of one */
	bool quick;	      /* only see whether it works */
};

/* An allocator for the loops.  Addresses are integers: those of device memory are no pointers. */
struct allocator {
	uintptr_t (*alloc)(const struct allocator *allocator, size_t bytes); /* 0: it failed */
	int (*free)(const struct allocator *allocator, uintptr_t address);
	hoist_memory *memory; /* of SUBJECT_HOIST, SUBJECT_HEAP and SUBJECT_STREAM; else NULL */
	hoist_stream *stream; /* of SUBJECT_STREAM */
};

struct allocator work_allocator(enum subject subject, hoist_memory *memory, hoist_stream *stream);

/* Prints why an allocation or a free of @subject failed; STATUS_FAILED. */
int work_fail(enum subject subject, const char *error);

uint64_t work_warm_ns(const struct work *work);	 /* how long to warm up, */
uint64_t work_timed_ns(const struct work *work); /* and how long to measure */

/* Leaves the calling thread @n of the processors that it may use, from the @first on (0 is the
 * first).  Returns: 0; -EINVAL if there are not as many (nothing changed); what the system
 * says. */
int work_use_processors(int first, int n);

/* Runs @run in @n threads, the ith with @arguments + i * @stride, to their ends.  If a thread
 * cannot be made the process ends: the others would wait for it. */
void work_in_threads(int n, void *(*run)(void *), void *arguments, size_t stride);

/* xorshift64*: cheap, and the same everywhere. */
static inline uint64_t work_random(uint64_t *state)
{
	uint64_t x = *state;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * UINT64_C(0x2545F4914F6CDD1D);
}

/* A number below @n from the upper half of @random. */
static inline uint32_t work_below(uint64_t random, uint32_t n)
{
	return (uint32_t)((random >> 32) * n >> 32);
}

static inline uint64_t work_seed(int thread)
{
	return UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(thread + 1);
}

/* The argument of work_slots(). */
enum { SLOTS_FIXED, SLOTS_MIXED, SLOTS_LARGE };

work_run work_slots; /* alloc-slots.c */
work_run work_slots_room;
work_run work_statistics;
work_run work_handover;	   /* alloc-handover.c; argument: bytes of a block */
work_run work_small;	   /* alloc-small.c; argument: live blocks */
work_run work_random_live; /* alloc-device.c; argument: live blocks */
work_run work_two_streams;
work_run work_events;
work_run work_pinned;
work_run work_region; /* alloc-region.c */

#endif
