/* SPDX-License-Identifier: MIT */
/* alloc/tree.h - an intrusive search tree over pairs of numbers.
 *
 * A treap: ordered by key, and a heap by random priority, so that it is balanced
 * whatever the order of insertions.  Keys are unique.  All operations are
 * O(log n) expected, none allocates or recurses.  No locks: the owner's.
 */
#ifndef HOIST_ALLOC_TREE_H
#define HOIST_ALLOC_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hoist__tree_key {
	uint64_t major;
	uint64_t minor; /* decides between equal majors */
};

struct hoist__tree_node {
	struct hoist__tree_key key;
	struct hoist__tree_node *left;
	struct hoist__tree_node *right;
	uint64_t priority; /* above that of both children */
};

struct hoist__tree {
	struct hoist__tree_node *root;
};

static inline bool hoist__tree_less(struct hoist__tree_key a, struct hoist__tree_key b)
{
	return a.major != b.major ? a.major < b.major : a.minor < b.minor;
}

/* @node has its key and a random priority, and is in no tree. */
void hoist__tree_insert(struct hoist__tree *tree, struct hoist__tree_node *node);

/* @node is in @tree. */
void hoist__tree_remove(struct hoist__tree *tree, struct hoist__tree_node *node);

/* The first node at or above @key; the last at or below; the last of all.  NULL if none. */
struct hoist__tree_node *hoist__tree_at_least(const struct hoist__tree *tree,
					      struct hoist__tree_key key);
struct hoist__tree_node *hoist__tree_at_most(const struct hoist__tree *tree,
					     struct hoist__tree_key key);
struct hoist__tree_node *hoist__tree_last(const struct hoist__tree *tree);

#endif
