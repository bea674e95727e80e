/* SPDX-License-Identifier: MIT */
/* base/tree.h - an intrusive search tree over numbers.
 *
 * A treap: ordered by key, and a heap by random priority, so that it is balanced
 * whatever the order of insertions.  Keys are unique.  All operations are
 * O(log n) expected, none allocates or recurses.  No locks: the owner's.
 */
#ifndef HOIST_LIB_TREE_H
#define HOIST_LIB_TREE_H

#include <stdint.h>

struct hoist__tree_node {
	uint64_t key;
	uint64_t priority; /* above that of both children */
	struct hoist__tree_node *left;
	struct hoist__tree_node *right;
};

struct hoist__tree {
	struct hoist__tree_node *root;
};

/* @node has its key and a random priority, and is in no tree. */
void hoist__tree_insert(struct hoist__tree *tree, struct hoist__tree_node *node);

/* @node is in @tree. */
void hoist__tree_remove(struct hoist__tree *tree, struct hoist__tree_node *node);

/* The first node at or above @key; the last at or below.  NULL if none. */
struct hoist__tree_node *hoist__tree_at_least(const struct hoist__tree *tree, uint64_t key);
struct hoist__tree_node *hoist__tree_at_most(const struct hoist__tree *tree, uint64_t key);

#endif
