/* SPDX-License-Identifier: MIT */
/* lib/wire/tour.h - a member with all files shows the checkpoint to a visitor that lacks some.
 *
 *     visitor    VISIT name
 *     member     FILE for each file; for each file again DIGITS (of the digests that are kept
 *                beside the file) and BYTES (all that are no tensor's); TOUR_END; or, if it lacks
 *                files itself, ROSTER for each other member, ROSTER_END and BYE
 *
 * The visitor makes files of the same names and sizes in a folder in memory, with holes where the
 * tensors are, opens them as any checkpoint, puts its own files in the places of those that it
 * has (hoist__checkpoint_localize()), and removes the folder.  The visitor takes the
 * kept digests for its own files, too (hoist__kept_take()): these were compared with the member's.
 */
#ifndef HOIST_LIB_WIRE_TOUR_H
#define HOIST_LIB_WIRE_TOUR_H

#include "lib/checkpoint/absent.h"
#include "lib/wire/wire.h"

#define HOIST__TOUR_PIECE ((size_t)48 << 10)
#define HOIST__TOUR_MOST_BYTES ((uint64_t)512 << 20) /* that are no tensor's, and digits */
#define HOIST__TOUR_MOST_FILES 100000u

/* How far the files have been shown to a visitor. */
struct hoist__tour {
	bool active;
	size_t files_told;
	struct hoist__gaps gaps;
	bool ended;
	int index_fd; /* an index in memory, made for the visitor; -1: the checkpoint has none */
	uint64_t index_bytes;
	uint64_t index_at; /* those before it were told */
	size_t digits_at;  /* of the digits of gaps.file: those before it were told */
};

/* Begins.  Returns: 0; -ENOTSUP (more than HOIST__TOUR_MOST_BYTES are no tensor's; a name
 * of HOIST__WIRE_REASON bytes); as memfd_create() and writing. */
int hoist__tour_begin(struct hoist__tour *tour, const struct hoist_checkpoint *checkpoint);

/* The next message, whose bytes lie in @buffer of HOIST__TOUR_PIECE bytes.
 * Returns: 1; 0: that was the last one; as reading. */
int hoist__tour_next(struct hoist__tour *tour, const struct hoist_checkpoint *checkpoint,
		     const uint64_t identity[static HOIST__CHECKPOINT_IDENTITY],
		     unsigned char *buffer, struct hoist__wire_message *ret);
void hoist__tour_end(struct hoist__tour *tour);

#endif
