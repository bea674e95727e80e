/* SPDX-License-Identifier: MIT */
/* base/list.h - an intrusive doubly linked list with a sentinel head.
 *
 * The node lives in the element; the list owns nothing.  An unlinked node
 * points to itself, so removing twice is harmless.
 */
#ifndef HOIST_BASE_LIST_H
#define HOIST_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/assert.h"

struct hoist__list {
	struct hoist__list *next;
	struct hoist__list *prev;
};

#define HOIST__CONTAINER_OF(pointer, type, member) \
	((type *)(void *)((char *)(pointer) - offsetof(type, member)))

static inline void hoist__list_init(struct hoist__list *head)
{
	head->next = head;
	head->prev = head;
}

static inline bool hoist__list_empty(const struct hoist__list *head)
{
	return head->next == head;
}

static inline void hoist__list_push_back(struct hoist__list *head, struct hoist__list *node)
{
	HOIST__ASSERT(head->prev->next == head && head->next->prev == head);
	HOIST__ASSERT(node != head && node != head->prev);
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void hoist__list_push_front(struct hoist__list *head, struct hoist__list *node)
{
	hoist__list_push_back(head->next, node);
}

static inline void hoist__list_remove(struct hoist__list *node)
{
	HOIST__ASSERT(node->prev->next == node && node->next->prev == node);
	node->prev->next = node->next;
	node->next->prev = node->prev;
	hoist__list_init(node);
}

/* Unlinks and returns the first node; NULL if the list is empty. */
static inline struct hoist__list *hoist__list_pop(struct hoist__list *head)
{
	if (hoist__list_empty(head))
		return NULL;
	struct hoist__list *node = head->next;
	hoist__list_remove(node);
	return node;
}

#endif
