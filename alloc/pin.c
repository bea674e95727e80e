/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/pin.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "alloc/figure.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

static bool by_driver(const struct hoist__dev *dev)
{
	return dev != NULL && hoist__dev_api(dev) != HOIST__API_CPU;
}

static int lock_failed(int error, size_t bytes)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	bool limited = limit.rlim_cur != RLIM_INFINITY && (error == ENOMEM || error == EPERM);
	if (!limited)
		return hoist__fail_errno(error == EPERM ? -EPERM : -ENOMEM, "pinning %s",
					 hoist__figure(bytes).text);
	return hoist__fail(-EPERM,
			   "pinning %s: RLIMIT_MEMLOCK is %s%s; raise it with `ulimit -l`, or set "
			   "LimitMEMLOCK= for a service",
			   hoist__figure(bytes).text, hoist__figure(limit.rlim_cur).text,
			   bytes <= limit.rlim_cur ? " and the rest of it is in use" : "");
}

/* Undoes the pieces of the first @bytes, last one first. */
static void unregister_pieces(struct hoist__dev *dev, char *base, size_t bytes)
{
	size_t at = hoist__round_up(bytes, HOIST__PIN_PIECE_BYTES);
	while (at > 0) {
		at -= HOIST__PIN_PIECE_BYTES;
		size_t piece = (size_t)hoist__min_u64(HOIST__PIN_PIECE_BYTES, bytes - at);
		int err = hoist__dev_host_unregister(dev, base + at, piece);
		if (err != 0)
			hoist__log(alloc, "unregistering %zu bytes: %s", piece,
				   hoist__error_text());
	}
}

int hoist__pin(struct hoist__dev *dev, void *base, size_t bytes)
{
	if (!by_driver(dev))
		return mlock(base, bytes) == 0 ? 0 : lock_failed(errno, bytes);
	for (size_t at = 0; at < bytes; at += HOIST__PIN_PIECE_BYTES) {
		size_t piece = (size_t)hoist__min_u64(HOIST__PIN_PIECE_BYTES, bytes - at);
		int err = hoist__dev_host_register(dev, (char *)base + at, piece);
		if (err == 0)
			continue;
		/* Rolling back must not replace the text of the cause. */
		char cause[HOIST__ERROR_BYTES];
		hoist__error_copy(cause, sizeof cause);
		unregister_pieces(dev, base, at);
		return hoist__fail(err, "%s", cause);
	}
	return 0;
}

void hoist__unpin(struct hoist__dev *dev, void *base, size_t bytes)
{
	/* What mlock() pinned, unmapping releases. */
	if (by_driver(dev))
		unregister_pieces(dev, base, bytes);
}
