/* SPDX-License-Identifier: MIT */
/* alloc/jemalloc-abi.c - compares jemalloc.h with jemalloc's own header.
 * The contract is in alloc/jemalloc.h.
 *
 * Compiled only where configure found jemalloc's header.  The file makes no code: it does not
 * compile when a declaration disagrees.
 */
#include "config.h"

#include <jemalloc/jemalloc.h>

#include "alloc/jemalloc.h"

/* The functions. */
#define SAME(member, function)                                                                     \
	_Static_assert(__builtin_types_compatible_p(__typeof__(*((struct hoist__je *)0)->member),  \
						    __typeof__(function)),                         \
		       #function);
SAME(mallocx, mallocx)
SAME(dallocx, dallocx)
SAME(sallocx, sallocx)
SAME(mallctl, mallctl)
#undef SAME

/* The hooks: the same members at the same places, of the same types but for the name of the
 * struct that they are given. */
_Static_assert(sizeof(struct hoist__je_hooks) == sizeof(extent_hooks_t), "extent_hooks_t");

#define SAME(member, result, ...)                                                                  \
	_Static_assert(offsetof(struct hoist__je_hooks, member) ==                                 \
			       offsetof(extent_hooks_t, member),                                   \
		       #member);                                                                   \
	_Static_assert(__builtin_types_compatible_p(result(*)(extent_hooks_t *, __VA_ARGS__),      \
						    __typeof__(((extent_hooks_t *)0)->member)),    \
		       #member);                                                                   \
	_Static_assert(                                                                            \
		__builtin_types_compatible_p(result(*)(struct hoist__je_hooks *, __VA_ARGS__),     \
					     __typeof__(((struct hoist__je_hooks *)0)->member)),   \
		#member);
SAME(alloc, void *, void *, size_t, size_t, bool *, bool *, unsigned)
SAME(dalloc, bool, void *, size_t, bool, unsigned)
SAME(destroy, void, void *, size_t, bool, unsigned)
SAME(commit, bool, void *, size_t, size_t, size_t, unsigned)
SAME(decommit, bool, void *, size_t, size_t, size_t, unsigned)
SAME(purge_lazy, bool, void *, size_t, size_t, size_t, unsigned)
SAME(purge_forced, bool, void *, size_t, size_t, size_t, unsigned)
SAME(split, bool, void *, size_t, size_t, size_t, bool, unsigned)
SAME(merge, bool, void *, size_t, void *, size_t, bool, unsigned)
#undef SAME

/* The flags. */
_Static_assert(HOIST__JE_TCACHE(0u) == MALLOCX_TCACHE(0), "MALLOCX_TCACHE");
_Static_assert(HOIST__JE_TCACHE(9u) == MALLOCX_TCACHE(9), "MALLOCX_TCACHE");
_Static_assert(HOIST__JE_TCACHE_NONE == MALLOCX_TCACHE_NONE, "MALLOCX_TCACHE_NONE");
_Static_assert(HOIST__JE_ARENA(0u) == MALLOCX_ARENA(0), "MALLOCX_ARENA");
_Static_assert(HOIST__JE_ARENA(9u) == MALLOCX_ARENA(9), "MALLOCX_ARENA");
_Static_assert(MALLOCX_LG_ALIGN(12) == 12, "MALLOCX_LG_ALIGN");
