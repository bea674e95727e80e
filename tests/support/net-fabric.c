/* SPDX-License-Identifier: MIT */
/* tests/support/net-fabric.c - one end of transfers over UCX.  See net-fabric.h. */
#include "config.h"

#include "tests/support/net-fabric.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"

/* 0: UCX is missing. */
static unsigned find_ucx(void)
{
	struct hoist__fabric_facts facts;
	int err = hoist__fabric_probe(&facts);
	if (err == -ENOSYS) {
		printf("skipped: %s\n", hoist__error_text());
		return 0;
	}
	CHECK(err == 0);
	printf("UCX %u.%u.%u: %s: %s\n", facts.major, facts.minor, facts.patch, facts.library,
	       facts.transports);
	return UCX_VERSION(facts.major, facts.minor);
}

unsigned need_ucx(void)
{
	unsigned version = find_ucx();
	if (version == 0)
		exit(77);
	return version;
}

unsigned ucx_of_child(void)
{
	unsigned version = 0;
	int ends[2];
	CHECK(pipe(ends) == 0);
	(void)fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		version = find_ucx();
		(void)fflush(NULL);
		_exit(write(ends[1], &version, sizeof version) != (ssize_t)sizeof version);
	}
	CHECK(child_status(child) == 0);
	CHECK(read(ends[0], &version, sizeof version) == (ssize_t)sizeof version);
	(void)close(ends[0]);
	(void)close(ends[1]);
	return version;
}

unsigned char side_byte(size_t at)
{
	return (unsigned char)(at * 2654435761u >> 13);
}

static struct side_ticket *find(struct side *side, uint64_t ticket)
{
	for (unsigned i = 0; i < side->n_tickets; i++)
		if (side->tickets[i].ticket == ticket)
			return &side->tickets[i];
	return NULL;
}

static void *place(void *context, uint64_t ticket, uint32_t offset, size_t bytes)
{
	struct side *side = context;
	struct side_ticket *known = find(side, ticket);
	if (side->forgot || known == NULL || offset > known->bytes ||
	    bytes > known->bytes - offset) {
		side->n_unknown++;
		return NULL;
	}
	known->n_placed++;
	return side->arena + SIDE_HALF + known->at + offset;
}

static void arrived(void *context, uint64_t ticket, uint32_t offset, size_t bytes, int err)
{
	struct side *side = context;
	struct side_ticket *known = find(side, ticket);
	CHECK(known != NULL && offset + bytes <= known->bytes);
	CHECK(known->n_arrived < known->n_placed);
	known->n_arrived++;
	known->bytes_over += bytes;
	if (err < 0)
		known->err = err;
	side->n_arrived++;
	side->n_arrived_badly += err < 0;
}

static void sent(void *context, void *owner, int err)
{
	struct side *side = context;
	CHECK(owner == side);
	side->n_sent++;
	side->n_sent_badly += err < 0;
}

static void broken(void *context, void *peer_owner, int err)
{
	struct side *side = context;
	CHECK(peer_owner == side && err < 0);
	side->n_broken++;
	side->broken_err = err;
}

int side_try_open(struct side *side, const char *transports)
{
	memset(side, 0, sizeof *side);
	side->arena = mmap(NULL, 2 * SIDE_HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	CHECK(side->arena != MAP_FAILED);
	for (size_t i = 0; i < SIDE_HALF; i++)
		side->arena[i] = side_byte(i);
	side->random = (uintptr_t)side->arena ^ patience_now();
	const struct hoist__fabric_options options = {
		.handlers = {.place = place, .arrived = arrived, .sent = sent, .broken = broken},
		.context = side,
		.arena = side->arena,
		.arena_bytes = 2 * SIDE_HALF,
		.transports = transports,
	};
	int err = hoist__fabric_open(&options, &side->fabric);
	if (err < 0)
		OK(munmap(side->arena, 2 * SIDE_HALF));
	return err;
}

void side_open(struct side *side, const char *transports)
{
	OK(side_try_open(side, transports));
}

void side_connect(struct side *side, const void *address, size_t bytes)
{
	OK(hoist__fabric_connect(side->fabric, address, bytes, side, &side->peer));
}

void side_join(struct side *a, struct side *b)
{
	const void *address;
	size_t bytes;
	hoist__fabric_address(b->fabric, &address, &bytes);
	side_connect(a, address, bytes);
	hoist__fabric_address(a->fabric, &address, &bytes);
	side_connect(b, address, bytes);
}

struct side_ticket *side_ticket(struct side *side, size_t bytes)
{
	CHECK(side->n_tickets < SIDE_TICKETS && bytes <= SIDE_HALF - side->used);
	struct side_ticket *ticket = &side->tickets[side->n_tickets++];
	*ticket = (struct side_ticket){
		.ticket = random_next(&side->random), .at = side->used, .bytes = bytes};
	side->used += bytes;
	memset(side->arena + SIDE_HALF + ticket->at, 0x5a, bytes);
	return ticket;
}

int side_send_ticket(struct side *from, uint64_t ticket, uint32_t offset, size_t at, size_t bytes)
{
	int err = hoist__fabric_send(from->peer, ticket, offset, from->arena + at, bytes, from);
	if (err == 0)
		from->n_begun++;
	return err;
}

void side_send(struct side *from, struct side *to, size_t at, size_t bytes)
{
	OK(side_send_ticket(from, side_ticket(to, bytes)->ticket, 0, at, bytes));
}

void side_turn(struct side *a, struct side *b, int ms)
{
	struct side *sides[2] = {a, b};
	struct pollfd entries[2];
	unsigned n = b != NULL ? 2 : 1;
	bool sleeps = true;
	for (unsigned i = 0; i < n; i++) {
		entries[i].fd = hoist__fabric_fd(sides[i]->fabric);
		entries[i].events = POLLIN;
	}
	for (unsigned i = 0; i < n && sleeps; i++)
		sleeps = hoist__fabric_arm(sides[i]->fabric);
	if (sleeps)
		(void)poll(entries, n, ms);
	for (unsigned i = 0; i < n; i++)
		hoist__fabric_progress(sides[i]->fabric);
}

static bool settled(const struct side *side)
{
	unsigned n_whole = 0;
	for (unsigned i = 0; i < side->n_tickets; i++)
		n_whole += side->tickets[i].bytes_over >= side->tickets[i].bytes;
	return side->n_sent == side->n_begun && n_whole == side->n_tickets;
}

void side_settle(struct side *a, struct side *b)
{
	uint64_t end = patience_now() + UINT64_C(1000000000) * PATIENCE_SECONDS;
	while (!settled(a) || (b != NULL && !settled(b))) {
		CHECK(patience_now() < end);
		side_turn(a, b, 1000);
	}
	CHECK(hoist__fabric_in_flight(a->fabric) == 0);
	CHECK(b == NULL || hoist__fabric_in_flight(b->fabric) == 0);
}

void side_check(const struct side *side, const struct side_ticket *ticket, size_t at)
{
	const unsigned char *bytes = side->arena + SIDE_HALF + ticket->at;
	CHECK(ticket->n_arrived == ticket->n_placed && ticket->err == 0);
	for (size_t i = 0; i < ticket->bytes; i++)
		if (bytes[i] != side_byte(at + i))
			CHECK(bytes[i] == side_byte(at + i));
}

void side_reset(struct side *side)
{
	CHECK(hoist__fabric_in_flight(side->fabric) == 0);
	side->n_tickets = 0;
	side->used = 0;
	side->n_begun = side->n_sent = side->n_sent_badly = 0;
	side->n_arrived = side->n_arrived_badly = side->n_unknown = 0;
}

void side_close(struct side *side)
{
	CHECK(hoist__fabric_close(side->fabric));
	CHECK(side->n_sent == side->n_begun);
	for (unsigned i = 0; i < side->n_tickets; i++)
		CHECK(side->tickets[i].n_arrived == side->tickets[i].n_placed);
	OK(munmap(side->arena, 2 * SIDE_HALF));
}
