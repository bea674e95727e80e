/* SPDX-License-Identifier: MIT */
/* What the tests of io/lazy.c share: a world that the linker (--wrap) puts between the library and
 * the system, in which a disk has bad places and a kernel lacks this or that. */
#ifndef HOIST_TESTS_IO_LAZY_H
#define HOIST_TESTS_IO_LAZY_H

#include "config.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"
#include "count.h"
#include "io-helpers.h"
#include "io/lazy.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define SECOND UINT64_C(1000000000)

struct lazy_world {
	_Atomic uint64_t bad_begin, bad_end; /* reads of these bytes fail */
	atomic_int fail_at;		     /* the n-th call from now on fails; 0: none */
	atomic_bool no_move;		     /* the kernel knows no UFFDIO_MOVE */
	atomic_bool move_fails;		     /* it does, but not here */
	atomic_bool no_device;
	atomic_bool no_call;
	atomic_bool no_mbind;
	atomic_bool no_threads;		 /* a filter refuses them */
	atomic_bool no_maps;		 /* a process has only so many */
	atomic_bool no_pages;		 /* to copy to */
	_Atomic(void (*)(void)) on_page; /* called by whoever reads a single page */
};
extern struct lazy_world lazy_world;

static const struct hoist__placement anywhere = {.policy = HOIST__POLICY_LOCAL};

void threads_are(size_t n);
bool is_mapped(const void *address);

/* What a touch comes to: the byte, or minus the signal. */
int touch(const unsigned char *byte);

/* The lazy memory of one range. */
struct hoist__lazy *open_one(struct hoist__file *file, uint64_t begin, uint64_t end,
			     unsigned char **ret);

/* Opens @file's first 3 MiB and closes them again. */
int try_open(struct hoist__file *file);

/* They are what new_file() put at @offset. */
void same(const unsigned char *data, uint64_t offset, size_t bytes);

/* Can there be such memory at all?  If not, the program ends as skipped. */
void skip_without_lazy_memory(void);

#define CASE(name)                                                                                 \
	do {                                                                                       \
		printf(#name "\n");                                                                \
		fflush(stdout);                                                                    \
		name();                                                                            \
	} while (0)

#endif
