/* SPDX-License-Identifier: MIT */
/* Two fabrics of one process, which one thread drives, over tcp and over shared memory.
 * Plain C.  Exit: 0, 1, 77. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "net/fabric-private.h"
#include "tests/support/check.h"
#include "tests/support/net-fabric.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"

static const char *transports;
static struct side a, b;

static void begin(void)
{
	side_open(&a, transports);
	side_open(&b, transports);
	side_join(&a, &b);
}

static void end(void)
{
	side_close(&a);
	side_close(&b);
}

/* The way is known once bytes have come. */
static void the_way(void)
{
	char text[64] = "cma/memory";
	char small[8] = "";
	begin();
	side_send(&a, &b, 0, 4 << 20);
	side_settle(&a, &b);
	OK(hoist__fabric_way(a.peer, text, sizeof text));
	check_at("%s: %s", transports, text);
	CHECK(strncmp(text, "cma/memory ", 11) == 0 && strchr(text + 11, '/') != NULL);
	CHECK(strncmp(text + 11, transports, 3) == 0 && text[strlen(text) - 1] != ' ');
	size_t before = strlen(text);
	OK(hoist__fabric_way(a.peer, text, sizeof text));
	CHECK(strlen(text) == before);
	OK(hoist__fabric_way(a.peer, small, 4));
	CHECK(small[0] == '\0');
	printf("%s\n", text);
	end();
}

static void sizes(void)
{
	static const size_t bytes[] = {1,
				       7,
				       4096,
				       8191,
				       HOIST__FABRIC_RENDEZVOUS - 1,
				       HOIST__FABRIC_RENDEZVOUS,
				       (size_t)1 << 20,
				       ((size_t)4 << 20) + 3,
				       (size_t)16 << 20};
	begin();
	for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
		check_at("%s, %zu bytes", transports, bytes[i]);
		side_reset(&a);
		side_reset(&b);
		side_send(&a, &b, i, bytes[i]);
		side_send(&b, &a, i + 5, bytes[i]);
		side_settle(&a, &b);
		side_check(&b, &b.tickets[0], i);
		side_check(&a, &a.tickets[0], i + 5);
	}
	CHECK(a.n_sent_badly + b.n_sent_badly + a.n_arrived_badly + b.n_arrived_badly == 0);
	end();
}

/* Both send at once, messages of random sizes, the parts of a ticket in any order. */
static void many(void)
{
	enum { N = 150 };
	size_t from_a[N], from_b[N];
	begin();
	for (unsigned i = 0; i < N; i++) {
		size_t bytes = 1 + (size_t)random_below(&a.random, i % 4 == 0 ? 900000 : 20000);
		from_a[i] = (size_t)random_below(&a.random, SIDE_HALF - bytes);
		from_b[i] = (size_t)random_below(&b.random, SIDE_HALF - bytes);
		side_send(&a, &b, from_a[i], bytes);
		size_t half = bytes / 2;
		uint64_t ticket = side_ticket(&a, bytes)->ticket;
		OK(side_send_ticket(&b, ticket, (uint32_t)half, from_b[i] + half, bytes - half));
		if (half > 0)
			OK(side_send_ticket(&b, ticket, 0, from_b[i], half));
	}
	side_settle(&a, &b);
	for (unsigned i = 0; i < N; i++) {
		side_check(&b, &b.tickets[i], from_a[i]);
		side_check(&a, &a.tickets[i], from_b[i]);
	}
	end();
}

/* Nothing but the place of a known ticket is written, whatever the message. */
static void unknown(void)
{
	static const size_t bytes[] = {1, 5000, HOIST__FABRIC_RENDEZVOUS, (size_t)8 << 20};
	begin();
	struct side_ticket *ticket = side_ticket(&b, (size_t)4 << 20);
	for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
		OK(side_send_ticket(&a, ticket->ticket + 1, 0, 0, bytes[i]));
		OK(side_send_ticket(&a, ticket->ticket, 0xffffffff, 0, bytes[i]));
		OK(side_send_ticket(&a, ticket->ticket, (uint32_t)((size_t)4 << 20), 0, bytes[i]));
	}
	OK(side_send_ticket(&a, ticket->ticket, 0, 0, (size_t)8 << 20));
	while (a.n_sent < a.n_begun || b.n_unknown < a.n_begun)
		side_turn(&a, &b, 1000);
	CHECK(a.n_sent_badly == 0 && ticket->n_placed == 0);
	for (size_t i = 0; i < SIDE_HALF; i++)
		if (b.arena[SIDE_HALF + i] != (i < ticket->bytes ? 0x5a : 0))
			CHECK(i == SIZE_MAX);
	/* The connection is as good as before. */
	OK(side_send_ticket(&a, ticket->ticket, 0, 9, ticket->bytes));
	side_settle(&a, &b);
	side_check(&b, ticket, 9);
	end();
}

/* Messages with headers that are not hoist's, by UCX's own call. */
static void headers(void)
{
	unsigned char header[64] = {0};
	begin();
	side_send(&a, &b, 0, 10);
	side_settle(&a, &b);
	struct hoist__fabric_header right = {
		.magic = HOIST__FABRIC_MAGIC, .offset = 0, .ticket = b.tickets[0].ticket};
	for (size_t n = 0; n <= sizeof header; n++) {
		bool is_ours = n == sizeof right;
		memset(header, 0, sizeof header);
		memcpy(header, &right, sizeof right);
		if (is_ours)
			header[0] ^= 1; /* another magic */
		for (size_t bytes = 0; bytes <= 1 << 20; bytes = bytes * 40 + 1) {
			hoist__ucp_request_param param = {0};
			void *request = hoist__ucx.ucp_am_send_nbx(
				a.peer->ep, HOIST__FABRIC_AM, header, n, a.arena, bytes, &param);
			CHECK(!hoist__ucx_is_error(request));
			for (int i = 0; i < 20; i++)
				side_turn(&a, &b, 0);
			if (request != NULL)
				hoist__ucx.ucp_request_free(request);
		}
	}
	/* No bytes, with a header that is right. */
	hoist__ucp_request_param param = {0};
	void *request = hoist__ucx.ucp_am_send_nbx(a.peer->ep, HOIST__FABRIC_AM, &right,
						   sizeof right, NULL, 0, &param);
	CHECK(!hoist__ucx_is_error(request));
	if (request != NULL)
		hoist__ucx.ucp_request_free(request);
	side_send(&a, &b, 1, 10);
	side_settle(&a, &b);
	side_check(&b, &b.tickets[1], 1);
	CHECK(b.tickets[0].n_placed == 1 && b.n_unknown == 0);
	end();
}

/* Disconnects while bytes are on their way: once nothing is in flight, nothing is written. */
static void disconnect(void)
{
	for (unsigned round = 0; round < 6; round++) {
		check_at("%s, round %u", transports, round);
		begin();
		for (unsigned i = 0; i < 7; i++) {
			side_send(&a, &b, i, (size_t)8 << 20);
			side_send(&b, &a, i, (size_t)8 << 20);
		}
		for (unsigned i = 0; i < 3 * round; i++)
			side_turn(&a, &b, 0);
		struct side *leaver = round % 2 == 0 ? &a : &b;
		hoist__fabric_disconnect(leaver->peer);
		leaver->forgot = true;
		uint64_t until = 0;
		while (hoist__fabric_in_flight(leaver->fabric) > 0) {
			CHECK(patience(&until));
			side_turn(&a, &b, 10);
		}
		CHECK(leaver->n_sent == leaver->n_begun && leaver->n_broken == 0);
		memset(leaver->arena, 0x77, 2 * SIDE_HALF);
		for (unsigned i = 0; i < 20; i++)
			side_turn(&a, &b, 1);
		for (size_t i = 0; i < 2 * SIDE_HALF; i++)
			if (leaver->arena[i] != 0x77)
				CHECK(i == SIZE_MAX);
		end();
	}
}

/* A fabric with nothing to do lets its caller sleep. */
static void sleeps(void)
{
	uint64_t until = 0;
	bool slept = false;
	begin();
	side_send(&a, &b, 0, (size_t)1 << 20);
	side_settle(&a, &b);
	while (!slept) {
		struct pollfd entries[2] = {{.fd = hoist__fabric_fd(a.fabric), .events = POLLIN},
					    {.fd = hoist__fabric_fd(b.fabric), .events = POLLIN}};
		CHECK(patience(&until));
		slept = hoist__fabric_arm(a.fabric) && hoist__fabric_arm(b.fabric) &&
			poll(entries, 2, 50) == 0;
		hoist__fabric_progress(a.fabric);
		hoist__fabric_progress(b.fabric);
	}
	end();
}

/* Has @side nothing to do until something comes?  UCX may need some turns to get there. */
static bool falls_asleep(struct side *side)
{
	for (unsigned turn = 0; turn < 1000; turn++) {
		struct pollfd entry = {.fd = hoist__fabric_fd(side->fabric), .events = POLLIN};
		if (hoist__fabric_arm(side->fabric) && poll(&entry, 1, 0) == 0)
			return true;
		hoist__fabric_progress(side->fabric);
	}
	return false;
}

/* A peer that UCX waits for keeps no processor busy, and delays no other peer's bytes. */
static void silent(void)
{
	struct side c;
	const void *address;
	size_t bytes;
	begin();
	side_send(&a, &b, 0, 1000); /* connected: what follows is a message */
	side_settle(&a, &b);
	side_open(&c, transports);
	struct hoist__fabric_peer *peer = a.peer;
	hoist__fabric_address(c.fabric, &address, &bytes);
	side_connect(&a, address, bytes);
	side_send(&a, &c, 0, 1000); /* c does not answer */
	for (unsigned i = 0; i < 100; i++) {
		check_at("%s, message %u", transports, i);
		CHECK(falls_asleep(&a));
		side_send(&b, &a, i, 1000);
		unsigned n = a.n_arrived;
		for (uint64_t until = 0; a.n_arrived == n;) {
			struct pollfd entry = {.fd = hoist__fabric_fd(a.fabric), .events = POLLIN};
			CHECK(patience(&until));
			hoist__fabric_progress(b.fabric);
			if (hoist__fabric_arm(a.fabric) && poll(&entry, 1, 0) == 0)
				continue;
			hoist__fabric_progress(a.fabric);
		}
	}
	side_settle(&b, NULL);
	side_settle(&a, &c);
	side_check(&c, &c.tickets[0], 0);
	hoist__fabric_disconnect(a.peer);
	a.peer = peer;
	side_close(&c);
	end();
}

static void again(void)
{
	begin();
	hoist__fabric_disconnect(a.peer);
	hoist__fabric_disconnect(b.peer);
	for (unsigned i = 0; i < 5; i++)
		side_turn(&a, &b, 1);
	side_join(&a, &b);
	side_send(&a, &b, 0, (size_t)1 << 20);
	side_send(&b, &a, 0, (size_t)1 << 20);
	side_settle(&a, &b);
	side_check(&b, &b.tickets[0], 0);
	end();
}

/* Garbage, cut off, changed, of another version: refused, and nothing else. */
static void addresses(void)
{
	const void *address;
	size_t bytes;
	struct hoist__fabric_peer *peer = NULL;
	unsigned char bad[HOIST__FABRIC_ADDRESS_MOST + 1];
	begin();
	hoist__fabric_address(b.fabric, &address, &bytes);
	CHECK(bytes < sizeof bad);
	for (size_t n = 0; n < bytes; n++) {
		memcpy(bad, address, bytes);
		CHECK(hoist__fabric_connect(a.fabric, bad, n, NULL, &peer) == -EBADMSG);
		bad[n] = (unsigned char)~bad[n];
		int err = hoist__fabric_connect(a.fabric, bad, bytes, NULL, &peer);
		CHECK(err == (n >= 8 && n < 12 ? -EPROTONOSUPPORT : -EBADMSG));
	}
	for (unsigned round = 0; round < 1000; round++) {
		size_t n = (size_t)random_below(&a.random, sizeof bad);
		random_fill(&a.random, bad, n);
		CHECK(hoist__fabric_connect(a.fabric, bad, n, NULL, &peer) == -EBADMSG);
	}
	memset(bad, 0, sizeof bad);
	memcpy(bad, address, bytes);
	CHECK(hoist__fabric_connect(a.fabric, bad, bytes + 1, NULL, &peer) == -EBADMSG);
	CHECK(hoist__fabric_connect(a.fabric, bad, sizeof bad, NULL, &peer) == -EBADMSG);
	CHECK(peer == NULL);
	side_send(&a, &b, 0, 100);
	side_settle(&a, &b);
	end();
}

int main(void)
{
	static const char *const all[] = {"tcp", "posix,cma", "tcp,cma"};
	(void)need_ucx();
	/* UCX's shared memory tells of failed peers only if it is asked to. */
	OK(setenv("UCX_POSIX_ERROR_HANDLING", "y", 1));
	for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
		transports = all[i];
		check_at("%s", transports);
		printf("%s\n", transports);
		CASE(sizes);
		CASE(the_way);
		CASE(many);
		CASE(unknown);
		CASE(headers);
		CASE(sleeps);
		CASE(again);
		if (strcmp(all[i], "tcp") != 0)
			continue;
		CASE(disconnect);
		CASE(silent);
	}
	transports = "tcp";
	CASE(addresses);
	return 0;
}
