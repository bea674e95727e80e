/* SPDX-License-Identifier: MIT */
/* lib/swarm/cell-readers.h - the members of a group that read a load's cells from storage.
 *
 * Digests of transfers show bytes that were damaged on their way.  Bytes that were wrong when their
 * reader had read them show only in the digest of their tensor.  A load that makes digests notes
 * the reader of each cell, so that the failure names the readers.
 *
 * Threads: the caller's lock.
 */
#ifndef HOIST_LIB_SWARM_CELL_READERS_H
#define HOIST_LIB_SWARM_CELL_READERS_H

#include "lib/swarm/cells.h"
#include "lib/swarm/swarm.h"

#define HOIST__READER_TEXT 96u

struct hoist__cell_readers {
	uint64_t *of; /* of each cell: its reader's id; NULL: the load makes no digests */
	struct {
		uint64_t id; /* 0: none */
		char text[HOIST__READER_TEXT];
	} names[HOIST__SWARM_MEMBERS];
};

/* Takes zeroed ones.  Returns: 0; -ENOMEM. */
int hoist__cell_readers_make(struct hoist__cell_readers *readers, const struct hoist__cells *cells);
void hoist__cell_readers_fini(struct hoist__cell_readers *readers);

/* The member @id, which has the @number in the group, is called @what @at. */
void hoist__cell_readers_name(struct hoist__cell_readers *readers, unsigned number, uint64_t id,
			      const char *what, const char *at);

/* The member @id has read the cell, or does now.  Once the load has used the cell, nothing is
 * noted: others may have the cell read once more. */
void hoist__cell_readers_note(struct hoist__cell_readers *readers, const struct hoist__cells *cells,
			      size_t cell, uint64_t id);

/* Adds to hoist_error(), whose failure is @err, the readers of the tensor's cells, six at most, and
 * from where to where in the file each read.  @group: its name.  Returns: @err. */
int hoist__cell_readers_say(const struct hoist__cell_readers *readers,
			    const struct hoist__cells *cells, const char *group,
			    const struct hoist__checkpoint_tensor *tensor, int err);

#endif
