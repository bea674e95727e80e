/* SPDX-License-Identifier: MIT */
/* lib/far/far-report.h - what the report of a member's load says beside counts. */
#ifndef HOIST_LIB_FAR_FAR_REPORT_H
#define HOIST_LIB_FAR_FAR_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "net/address.h"

#define HOIST__FAR_DAMAGED 8u /* members that the report names */

struct hoist__far;
struct hoist__far_peer;

/* A member whose bytes were wrong. */
struct hoist__far_damage {
	uint64_t id;
	unsigned n_seen; /* times that this member saw it; 0: others said so */
	char at[HOIST__ADDRESS_TEXT];
};

struct hoist__far_account {
	struct hoist__far_damage damaged[HOIST__FAR_DAMAGED];
	unsigned n_members;
	bool has_loan; /* a slot was lent or borrowed */
	/* Texts of the report. */
	char damage[1280];
	char way[512]; /* transports of UCX by which bytes have gone */
};

/* Adds a text to the report's note, behind "; " if the note has one.  The far thread's. */
void hoist__far_add_note(struct hoist__far *far, const char *format, ...) HOIST__PRINTF(2, 3);

/* Notes that the bytes of a member were wrong, as this member has @seen, or another one says.
 * Pre: lock. */
void hoist__far_note_damage(struct hoist__far *far, uint64_t id, const char *at, bool seen);

/* Bytes have gone to the peer, or have come: notes by which transports.  The far thread's. */
void hoist__far_note_way(struct hoist__far *far, struct hoist__far_peer *peer);

/* Completes the report.  Pre: the far thread has ended. */
void hoist__far_write_report(struct hoist__far *far);

#endif
