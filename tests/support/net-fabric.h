/* SPDX-License-Identifier: MIT */
/* tests/support/net-fabric.h - one end of transfers over UCX: a fabric, an arena, and an account of
 * what came and went.  The arena's first half is sent from, the second is received into.
 *
 *     need_ucx();                                 // ends the program with 77 without UCX
 *     side_open(&a, "tcp");
 *     side_open(&b, "tcp");
 *     side_join(&a, &b);
 *     side_send(&a, &b, 0, 4096);                 // a ticket of b's, and a send of a's
 *     side_settle(&a, &b);                        // until all came
 */
#ifndef HOIST_TESTS_NET_FABRIC_H
#define HOIST_TESTS_NET_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/fabric.h"

#define SIDE_HALF ((size_t)64 << 20)
enum { SIDE_TICKETS = 1024 };

struct side_ticket {
	uint64_t ticket;
	size_t at; /* in the half that is received into */
	size_t bytes;
	size_t bytes_over; /* that arrived, or will never */
	unsigned n_placed;
	unsigned n_arrived;
	int err;
};

struct side {
	struct hoist__fabric *fabric;
	struct hoist__fabric_peer *peer;
	unsigned char *arena;
	struct side_ticket tickets[SIDE_TICKETS];
	unsigned n_tickets;
	size_t used; /* of the half that is received into */
	uint64_t random;
	unsigned n_begun; /* sends that returned 0 */
	unsigned n_sent;
	unsigned n_sent_badly;
	unsigned n_arrived;
	unsigned n_arrived_badly;
	unsigned n_unknown; /* places that were asked for without a ticket */
	unsigned n_broken;
	int broken_err;
	bool forgot; /* no ticket is known any more */
};

/* Ends the program with 77 and the reason where the library of UCX is missing, or under a sanitizer
 * that UCX does not go with.  Returns: the version, as UCX_VERSION(). */
unsigned need_ucx(void);

/* The version that need_ucx() would return, found by a child: this process does not load UCX, and may
 * fork processes that do.  0, and the reason was printed: UCX is missing. */
unsigned ucx_of_child(void);
#define UCX_VERSION(major, minor) ((major)*1000u + (minor))

void side_open(struct side *side, const char *transports);

/* Returns: as hoist__fabric_open(). */
int side_try_open(struct side *side, const char *transports);

/* Connects both, if both are of this process. */
void side_join(struct side *a, struct side *b);

/* Connects @side to the worker at @address, without the other's doing. */
void side_connect(struct side *side, const void *address, size_t bytes);

/* A new ticket for @bytes, whose place holds other bytes than those that come. */
struct side_ticket *side_ticket(struct side *side, size_t bytes);

/* Sends, as from @at of the arena.  Returns: as hoist__fabric_send(). */
int side_send_ticket(struct side *from, uint64_t ticket, uint32_t offset, size_t at, size_t bytes);

/* Makes a ticket of @to's and sends the bytes as its peer @from, whole. */
void side_send(struct side *from, struct side *to, size_t at, size_t bytes);

/* Sleeps until one of the sides (@b: NULL: there is none) may have something to do, or for @ms;
 * then progresses both. */
void side_turn(struct side *a, struct side *b, int ms);

/* Turns until all sends have ended, and all tickets arrived. */
void side_settle(struct side *a, struct side *b);

/* The byte that is sent from @at. */
unsigned char side_byte(size_t at);

/* Fails unless @ticket has the bytes that are sent from @at. */
void side_check(const struct side *side, const struct side_ticket *ticket, size_t at);

/* Forgets tickets, and counts from 0. */
void side_reset(struct side *side);

/* Closes the fabric, which must end, and frees the arena. */
void side_close(struct side *side);

#endif
