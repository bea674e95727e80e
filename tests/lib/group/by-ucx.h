/* SPDX-License-Identifier: MIT */
/* tests/lib/group/by-ucx.h - members of one machine that send bytes by UCX, and lend no slots.  A
 * program has by-ucx.c in its _SOURCES, and --wrap=hoist__neighbour_describe. */
#ifndef HOIST_TESTS_GROUP_BY_UCX_H
#define HOIST_TESTS_GROUP_BY_UCX_H

#include <stdbool.h>

extern bool by_ucx;

#endif
