/* SPDX-License-Identifier: MIT */
/* base/figure.h - byte counts as people read them: "256 MiB", "1.5 GiB". */
#ifndef HOIST_BASE_FIGURE_H
#define HOIST_BASE_FIGURE_H

#include <stddef.h>
#include <stdint.h>

struct hoist__figure {
	char text[24];
};

/* Returned by value, so that several figures fit into one argument list. */
struct hoist__figure hoist__figure(uint64_t bytes);

#endif
