/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/tree.h"

#include <assert.h>

void hoist__tree_insert(struct hoist__tree *tree, struct hoist__tree_node *node)
{
	struct hoist__tree_node **link = &tree->root;
	while (*link != NULL && (*link)->priority >= node->priority)
		link = hoist__tree_less(node->key, (*link)->key) ? &(*link)->left : &(*link)->right;
	/* The node takes this place; what was below is split around its key. */
	struct hoist__tree_node *below = *link;
	struct hoist__tree_node **smaller = &node->left;
	struct hoist__tree_node **larger = &node->right;
	*link = node;
	while (below != NULL) {
		if (hoist__tree_less(below->key, node->key)) {
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
		link = hoist__tree_less(node->key, (*link)->key) ? &(*link)->left : &(*link)->right;
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

struct hoist__tree_node *hoist__tree_at_least(const struct hoist__tree *tree,
					      struct hoist__tree_key key)
{
	struct hoist__tree_node *best = NULL;
	struct hoist__tree_node *at = tree->root;
	while (at != NULL) {
		if (hoist__tree_less(at->key, key)) {
			at = at->right;
		} else {
			best = at;
			at = at->left;
		}
	}
	return best;
}

struct hoist__tree_node *hoist__tree_at_most(const struct hoist__tree *tree,
					     struct hoist__tree_key key)
{
	struct hoist__tree_node *best = NULL;
	struct hoist__tree_node *at = tree->root;
	while (at != NULL) {
		if (hoist__tree_less(key, at->key)) {
			at = at->left;
		} else {
			best = at;
			at = at->right;
		}
	}
	return best;
}

struct hoist__tree_node *hoist__tree_last(const struct hoist__tree *tree)
{
	struct hoist__tree_node *at = tree->root;
	while (at != NULL && at->right != NULL)
		at = at->right;
	return at;
}
