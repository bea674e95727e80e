/* SPDX-License-Identifier: MIT */
/* lib/group/transport.h - how bytes get from the rank that read them to the ranks that want them.
 *
 * A transport brings the ranks together, gives each the others' wants, and then moves cells
 * (lib/group/ownership.h).  Each rank has HOIST__CELL_LEAST_SLOTS to
 * HOIST__GROUP_MOST_SLOTS slots of one cell, as its budget allows.  The k-th cell of an owner with
 * N slots lies in slot k modulo N:
 *
 *     owner   slot ---read---> publish             slot(k + N) gives the slot again once each
 *     others             arrived ---copy---> release    rank that wants cell k has released it
 *
 * A rank's failure is every rank's: after `leave`, a death, or a silence of timeout_ns, `meet`,
 * `finish` and `check` of all others fail.  Errors: -ECONNRESET, a rank died, failed or was
 * cancelled; -ETIMEDOUT, a rank did not come, or stopped.  The text names the rank.
 *
 * Everything that comes from another rank is checked as if an enemy had sent it: wrong words give
 * wrong bytes or a failure, never a fault.
 *
 * Threads: `arrived` and `moved` are any thread's; `slot` and `publish` belong to the thread that
 * reads; the others to the thread that drives the load.
 */
#ifndef HOIST_LIB_GROUP_TRANSPORT_H
#define HOIST_LIB_GROUP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "lib/group/ownership.h"
#include "lib/swarm/cell-charge.h"

#define HOIST__GROUP_MOST_SLOTS 32u

struct hoist__transport;

struct hoist__transport_options {
	const char *name; /* behind the scheme */
	unsigned rank;
	unsigned n_ranks;
	unsigned n_slots; /* of this rank */
	uint64_t timeout_ns;
	uint64_t identity[2];  /* of the checkpoint: the same for all ranks */
	const uint64_t *wants; /* this rank's; copied */
	size_t n_cells;
	void (*moved)(void *context); /* a hint, from a thread of the transport's: look again.  Must
				       * not block */
	void *context;
};

struct hoist__transport_ops {
	const char *scheme; /* "shm:" */
	/* Begins to look for the others.  @options->name is kept.  Returns: 0; -ENOMEM; what
	 * failed. */
	int (*open)(const struct hoist__transport_options *options, struct hoist__transport **ret);
	/* Returns: 0: all have come; 1: not yet, after @timeout_ns; -EEXIST, this rank is there
	 * already; -EINVAL, another number of ranks or another checkpoint; -EPROTO, another
	 * version; -EPERM, another user; the errors above. */
	int (*meet)(struct hoist__transport *transport, uint64_t timeout_ns);
	/* Behind meet: the bitmap of a rank. */
	const uint64_t *(*wants)(const struct hoist__transport *transport, unsigned rank);
	/* Gives the slot of this rank's cell @ordinal, if the ranks @before, which wanted the cell
	 * in it before, have released that.  Returns: 1; 0: not yet; -ENOMEM. */
	int (*slot)(struct hoist__transport *transport, uint32_t ordinal, uint64_t before,
		    unsigned char **ret);
	void (*publish)(struct hoist__transport *transport, uint32_t ordinal, uint64_t wanted_by);
	/* The bytes of the cell; NULL: not yet. */
	const unsigned char *(*arrived)(const struct hoist__transport *transport, unsigned owner,
					uint32_t ordinal);
	/* The cell, which has arrived, in memory that is registered with the driver of @dev: all of
	 * its api's devices may copy from there until the cell is released.  NULL: the driver takes
	 * no such registration.  Each slot is registered once, until close. */
	unsigned char *(*reach)(struct hoist__transport *transport, struct hoist__dev *dev,
				unsigned owner, uint32_t ordinal);
	void (*release)(struct hoist__transport *transport, unsigned owner, uint32_t ordinal);
	int (*check)(struct hoist__transport *transport);
	/* This rank has all that it wants.  True: so have the others. */
	bool (*finish)(struct hoist__transport *transport);
	/* This rank fails, for the reason in hoist_error(). */
	void (*leave)(struct hoist__transport *transport);
	/* The transport's thread ends, so that `moved` is not called any more; what the ranks share
	 * stays mapped.  May be called twice. */
	void (*stop)(struct hoist__transport *transport);
	void (*close)(struct hoist__transport *transport); /* stops; takes NULL */
};

extern const struct hoist__transport_ops hoist__transport_shm;

#endif
