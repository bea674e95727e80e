/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "base/tree.h"

#include <assert.h>
#include <stddef.h>

void hoist__tree_insert(struct hoist__tree *tree, struct hoist__tree_node *node)
{
	struct hoist__tree_node **link = &tree->root;
	while (*link != NULL && (*link)->priority >= node->priority)
		link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
	/* The node takes this place; what was below is split around its key. */
	struct hoist__tree_node *below = *link;
	struct hoist__tree_node **smaller = &node->left;
	struct hoist__tree_node **larger = &node->right;
	*link = node;
	while (below != NULL) {
		if (below->key < node->key) {
			*smaller = below;
			smaller = &below->right;
			below = below->right;
		} else {
			*larger = below;
			larger = &below->left;
			below = below->left;
		}
	}
	*smaller = NULL;
	*larger = NULL;
}

void hoist__tree_remove(struct hoist__tree *tree, struct hoist__tree_node *node)
{
	struct hoist__tree_node **link = &tree->root;
	while (*link != node) {
		assert(*link != NULL);
		link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
	}
	/* Its two subtrees are merged into its place. */
	struct hoist__tree_node *left = node->left;
	struct hoist__tree_node *right = node->right;
	while (left != NULL && right != NULL) {
		if (left->priority >= right->priority) {
			*link = left;
			link = &left->right;
			left = left->right;
		} else {
			*link = right;
			link = &right->left;
			right = right->left;
		}
	}
	*link = left != NULL ? left : right;
	node->left = NULL;
	node->right = NULL;
}

struct hoist__tree_node *hoist__tree_at_least(const struct hoist__tree *tree, uint64_t key)
{
	struct hoist__tree_node *best = NULL;
	struct hoist__tree_node *at = tree->root;
	while (at != NULL) {
		if (at->key < key) {
			at = at->right;
		} else {
			best = at;
			at = at->left;
		}
	}
	return best;
}

struct hoist__tree_node *hoist__tree_at_most(const struct hoist__tree *tree, uint64_t key)
{
	struct hoist__tree_node *best = NULL;
	struct hoist__tree_node *at = tree->root;
	while (at != NULL) {
		if (key < at->key) {
			at = at->left;
		} else {
			best = at;
			at = at->right;
		}
	}
	return best;
}
