/* SPDX-License-Identifier: MIT */
/* tests/vm/nodes.h - helpers of the proofs of placement: the places of pages, asked of the kernel
 * with move_pages(2) and nothing of hoist's; the memory of a node; running on a node's processors.
 */
#ifndef HOIST_TESTS_VM_NODES_H
#define HOIST_TESTS_VM_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/pool.h"
#include "base/error.h"
#include "tests/support/check.h"

#define MAX_NODES 8

/* hoist's last text has this in it. */
#define CHECK_TEXT(part)                                                                           \
	do {                                                                                       \
		if (strstr(hoist__error_text(), (part)) == NULL) {                                 \
			fprintf(stderr, "%s:%d: %s: no \"%s\" in: %s\n", __FILE__, __LINE__,       \
				__func__, (part), hoist__error_text());                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* How many nodes there are, 0 up to that; exits with 77, and why, if there are fewer than @least.
 */
int nodes_need(int least);
/* The next node, round and round. */
int nodes_after(int node);

/* The nodes of pages, one by one. */
struct spread {
	size_t n;
	size_t n_absent;
	size_t n_unknown;
	size_t on[MAX_NODES];
};

struct spread spread_of(uintptr_t address, size_t bytes);
struct spread spread_of_regions(struct hoist__pool *pool); /* of all that the pool has */
void spread_print(const struct spread *spread, const char *what);

/* Every page is there, and on @node; else fails, and says @what and where they are. */
void check_spread(const struct spread *spread, int node, const char *what);
void check_on(uintptr_t address, size_t bytes, int node, const char *what);

/* A line of the node's meminfo ("MemFree"), in bytes. */
size_t node_bytes(int node, const char *key);
/* A number from a file. */
size_t number_in(const char *path);
/* The machine's count of "oom_kill", "numa_miss" ... */
size_t vmstat(const char *key);

/* How much of the range, whose map is its own, is in transparent huge pages now. */
size_t huge_bytes(uintptr_t address, size_t bytes);
/* False: says why on standard output. */
bool huge_can_be_had(void);

/* This thread runs on the node's processors from now on. */
void run_on(int node);

struct hoist__placement placement_on(enum hoist__policy policy, int node);
struct hoist__placement placement_all(enum hoist__policy policy); /* all nodes */

/* The note of a region's step, of the first region of the pool that has one; "" if none has. */
const char *region_note(struct hoist__pool *pool, enum hoist__region_step step);

#endif
