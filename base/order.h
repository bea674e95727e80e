/* SPDX-License-Identifier: MIT */
/* base/order.h - orders for qsort() and bsearch(). */
#ifndef HOIST_BASE_ORDER_H
#define HOIST_BASE_ORDER_H

#include <string.h>

/* Elements are C strings (char *), in the order of strcmp(). */
static inline int hoist__order_texts(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

#endif
