/* SPDX-License-Identifier: MIT */
/* base/order.h - comparisons for qsort() and bsearch(). */
#ifndef HOIST_BASE_ORDER_H
#define HOIST_BASE_ORDER_H

#include <string.h>

/* Compares two elements of an array of C strings, as strcmp(). */
static inline int hoist__compare_texts(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

#endif
