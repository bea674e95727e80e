/* SPDX-License-Identifier: MIT */
/* lib/far/far-read.h - cells from storage, and readings that fail: the far thread's. */
#ifndef HOIST_LIB_FAR_FAR_READ_H
#define HOIST_LIB_FAR_FAR_READ_H

#include "lib/swarm/cell-read.h"
#include "lib/wire/wire.h"

struct hoist__far;
struct hoist__far_peer;

/* The swarm's READ. */
void hoist__far_read(struct hoist__far *far, const struct hoist__swarm_act *act);

/* The message for the swarm's REFUSE. */
struct hoist__wire_message hoist__far_refusal(struct hoist__far *far,
					      const struct hoist__swarm_act *act);

/* Notes why another member refused. */
void hoist__far_note_refusal(struct hoist__far *far, const struct hoist__far_peer *peer,
			     const struct hoist__wire_message *refuse);

/* The swarm's LOST: fails the load with the failure of this member's own reading, or with that of
 * another's, if there was one. */
void hoist__far_lose(struct hoist__far *far, size_t cell);

extern const struct hoist__cell_reader_ops hoist__far_reader_ops;

#endif
