/* SPDX-License-Identifier: MIT */
/* base/log.h - the debug log: off unless HOIST_DEBUG names the module.
 *
 * HOIST_DEBUG is a comma-separated list of module names, or "all".  A word that is none of these is
 * reported in the log's first line.  Each line goes to standard error in one write(2):
 *     hoist[io] 12.345678 io_uring refused: EPERM; using threads
 * The test for "off" is one load and one branch; arguments are not evaluated.
 */
#ifndef HOIST_BASE_LOG_H
#define HOIST_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"

#define HOIST__LOG_MODULES(X) \
	X(device) X(numa) X(alloc) X(io) X(format) X(load)

enum hoist__log_module {
#define X(name) HOIST__LOG_##name,
	HOIST__LOG_MODULES(X)
#undef X
	HOIST__LOG_COUNT
};

/* Bit m is set if module m logs; bit 31 is set once HOIST_DEBUG has been read. */
extern _Atomic unsigned hoist__log_mask;

unsigned hoist__log_init(void);
void hoist__log_write(enum hoist__log_module module, const char *format, ...) HOIST__PRINTF(2, 3);

static inline bool hoist__log_on(enum hoist__log_module module)
{
	unsigned mask = atomic_load_explicit(&hoist__log_mask, memory_order_relaxed);
	if (mask == 0)
		mask = hoist__log_init();
	return (mask >> module & 1u) != 0;
}

#define hoist__log(module, ...) \
	do { \
		if (hoist__log_on(HOIST__LOG_##module)) \
			hoist__log_write(HOIST__LOG_##module, __VA_ARGS__); \
	} while (0)

#endif
