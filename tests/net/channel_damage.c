/* SPDX-License-Identifier: MIT */
/* Two members, and between them a relay that passes on what they say, but for one unit: a greeting,
 * a proof or a frame.  The receiver gives the frames before, and none after. */
#include "config.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "tests/net/raw.h"
#include "tests/support/patience.h"
#include "tests/support/unit-check.h"

enum { N_FRAMES = 5, N_UNITS = 2 + N_FRAMES, ROOM = 8192 };
static const size_t frame_sizes[N_FRAMES] = {0, 1, 100, 3000, 17};

enum what { NOTHING, FLIP, DROP, TWICE, SWAP, CUT, REFLECT };

struct damage {
	enum what what;
	unsigned from; /* the connector, 0, or the acceptor, 1 */
	unsigned unit;
	size_t at; /* a byte of it */
};

struct end {
	struct hoist__channel *channel; /* NULL: it failed, with `err` */
	int err;
	unsigned n_given;
	bool has_sent;
	int raw;    /* the relay's socket to it */
	bool ended; /* it has closed */
	bool cut;   /* nothing more goes to it */
	unsigned char said[ROOM];
	size_t n_said; /* and not passed on yet */
	unsigned n_units;
	unsigned char held[ROOM];
	size_t n_held;
};

struct relay {
	struct end ends[2];
	struct damage damage;
};

static unsigned char byte_of(unsigned frame, unsigned end)
{
	return (unsigned char)(16 * (frame + 1) + end);
}

/* --- the members --- */

static void expect_next(struct relay *relay, unsigned i, const struct hoist__frame *frame)
{
	struct end *end = &relay->ends[i];
	cr_assert_lt(end->n_given, N_FRAMES);
	cr_assert_eq(frame->kind, end->n_given);
	cr_assert_eq(frame->n_bytes, frame_sizes[end->n_given]);
	for (size_t b = 0; b < frame->n_bytes; b++)
		cr_assert_eq(frame->bytes[b], byte_of(end->n_given, 1 - i));
	end->n_given++;
}

static void work(struct relay *relay, unsigned i)
{
	struct end *end = &relay->ends[i];
	struct hoist__frame frame;
	if (end->channel == NULL)
		return;
	end->err = hoist__channel_work(end->channel);
	while (hoist__channel_next(end->channel, &frame))
		expect_next(relay, i, &frame);
	if (end->err < 0) {
		hoist__channel_close(end->channel);
		end->channel = NULL;
	} else if (hoist__channel_proved(end->channel) && !end->has_sent) {
		unsigned char bytes[ROOM];
		end->has_sent = true;
		for (unsigned f = 0; f < N_FRAMES; f++) {
			memset(bytes, byte_of(f, i), frame_sizes[f]);
			OK(hoist__channel_send(end->channel, (uint16_t)f, bytes, frame_sizes[f]));
		}
	}
}

/* --- the relay --- */

static int n_waiting(const struct hoist__channel *channel)
{
	int n = 0;
	OK(ioctl(hoist__channel_fd(channel), FIONREAD, &n));
	return n;
}

/* Passes bytes on, and waits until the receiver has them: it judges unit after unit. */
static void pass(struct relay *relay, unsigned to, const unsigned char *bytes, size_t n_bytes)
{
	struct end *end = &relay->ends[to];
	if (end->cut || end->channel == NULL)
		return;
	int expected = n_waiting(end->channel) + (int)n_bytes;
	cr_assert_eq(send(end->raw, bytes, n_bytes, MSG_NOSIGNAL), (ssize_t)n_bytes);
	for (uint64_t until = 0; n_waiting(end->channel) < expected;)
		cr_assert(patience(&until), "bytes do not come");
	work(relay, to);
}

static void cut(struct relay *relay, unsigned to)
{
	if (!relay->ends[to].cut)
		(void)shutdown(relay->ends[to].raw, SHUT_WR);
	relay->ends[to].cut = true;
}

static void pass_damaged(struct relay *relay, unsigned from, unsigned char *unit, size_t n_bytes)
{
	struct end *end = &relay->ends[from];
	switch (relay->damage.what) {
	case FLIP:
		unit[relay->damage.at] ^= 1;
		pass(relay, 1 - from, unit, n_bytes);
		break;
	case TWICE:
		pass(relay, 1 - from, unit, n_bytes);
		pass(relay, 1 - from, unit, n_bytes);
		break;
	case SWAP:
		memcpy(end->held, unit, n_bytes);
		end->n_held = n_bytes;
		break;
	case CUT:
		pass(relay, 1 - from, unit, relay->damage.at);
		cut(relay, 1 - from);
		break;
	case REFLECT:
		pass(relay, from, unit, n_bytes);
		break;
	case NOTHING:
	case DROP:
		break;
	}
}

static void pass_unit(struct relay *relay, unsigned from, unsigned char *unit, size_t n_bytes)
{
	struct end *end = &relay->ends[from];
	unsigned number = end->n_units++;
	if (from == relay->damage.from && number == relay->damage.unit &&
	    relay->damage.what != NOTHING) {
		pass_damaged(relay, from, unit, n_bytes);
		return;
	}
	pass(relay, 1 - from, unit, n_bytes);
	if (end->n_held > 0)
		pass(relay, 1 - from, end->held, end->n_held);
	end->n_held = 0;
}

static size_t unit_bytes(const struct end *end)
{
	return end->n_units == 0   ? (size_t)GREETING_BYTES
	       : end->n_units == 1 ? (size_t)PROOF_BYTES
				   : HEADER_BYTES + frame_sizes[end->n_units - 2] + TAG_BYTES;
}

static void take_units(struct relay *relay, unsigned from)
{
	struct end *end = &relay->ends[from];
	if (end->ended)
		return;
	ssize_t n = recv(end->raw, end->said + end->n_said, ROOM - end->n_said, MSG_DONTWAIT);
	end->n_said += n > 0 ? (size_t)n : 0;
	while (end->n_units < N_UNITS && end->n_said >= unit_bytes(end)) {
		size_t bytes = unit_bytes(end);
		pass_unit(relay, from, end->said, bytes);
		memmove(end->said, end->said + bytes, end->n_said - bytes);
		end->n_said -= bytes;
	}
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		end->ended = true;
		cut(relay, 1 - from);
	}
}

static void open_relay(struct relay *relay, struct damage damage)
{
	struct spot spot = spot_open();
	struct hoist__secret secret = secret_of('s');
	memset(relay, 0, sizeof *relay);
	relay->damage = damage;
	OK(hoist__channel_connect(&spot.at, &secret, &relay->ends[0].channel));
	relay->ends[0].raw = spot_accept(&spot);
	relay->ends[1].raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	OK(connect(relay->ends[1].raw, (struct sockaddr *)&spot.at.socket, spot.at.bytes));
	OK(hoist__channel_accept(spot_accept(&spot), &secret, &relay->ends[1].channel));
	spot_close(&spot);
	const int on = 1;
	for (unsigned i = 0; i < 2; i++)
		OK(setsockopt(relay->ends[i].raw, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

static void wait_any(const struct relay *relay)
{
	struct pollfd fds[4];
	for (unsigned i = 0; i < 2; i++) {
		const struct end *end = &relay->ends[i];
		bool open = end->channel != NULL;
		bool blocked = open && hoist__channel_blocked(end->channel);
		fds[2 * i] = (struct pollfd){.fd = end->ended ? -1 : end->raw, .events = POLLIN};
		fds[2 * i + 1] = (struct pollfd){.fd = open ? hoist__channel_fd(end->channel) : -1,
						 .events = blocked ? POLLIN | POLLOUT : POLLIN};
	}
	cr_assert_gt(poll(fds, 4, PATIENCE_SECONDS * 1000), 0, "nothing happens");
}

/* Lets both say all that they have to say. */
static void run(struct relay *relay, struct damage damage)
{
	open_relay(relay, damage);
	struct end *ends = relay->ends;
	for (;;) {
		for (unsigned i = 0; i < 2; i++) {
			work(relay, i);
			take_units(relay, i);
		}
		if ((ends[0].channel == NULL && ends[1].channel == NULL) ||
		    (ends[0].n_units == N_UNITS && ends[1].n_units == N_UNITS))
			break;
		wait_any(relay);
	}
	for (unsigned i = 0; i < 2; i++)
		OK(close(ends[i].raw));
	for (unsigned i = 0; i < 2; i++)
		while (ends[i].channel != NULL) {
			wait_for(hoist__channel_fd(ends[i].channel), POLLIN);
			work(relay, i);
		}
}

static struct relay relay;

Test(net_damage, a_relay_that_changes_nothing_is_not_noticed)
{
	run(&relay, (struct damage){.what = NOTHING});
	for (unsigned i = 0; i < 2; i++) {
		cr_expect_eq(relay.ends[i].err, -ECONNRESET);
		cr_expect_eq(relay.ends[i].n_given, N_FRAMES);
	}
}

/* The direction that was left alone gives its frames, once both are proved. */
static void expect_damage(struct damage damage, int err, unsigned n_given)
{
	run(&relay, damage);
	struct end *receiver = &relay.ends[1 - damage.from];
	struct end *sender = &relay.ends[damage.from];
	cr_expect_eq(receiver->err, err, "%d of unit %u from %u, byte %zu: %d", (int)damage.what,
		     damage.unit, damage.from, damage.at, receiver->err);
	cr_expect_eq(receiver->n_given, n_given, "%d of unit %u from %u, byte %zu: %u frames",
		     (int)damage.what, damage.unit, damage.from, damage.at, receiver->n_given);
	if (damage.unit >= 2)
		cr_expect_eq(sender->n_given, N_FRAMES);
}

Test(net_damage, frames_that_are_dropped_repeated_swapped_or_cut)
{
	static const struct {
		enum what what;
		unsigned unit;
		size_t at;
		int err;
		unsigned n_given;
	} cases[] = {
		{DROP, 2, 0, -EBADMSG, 0},	  {DROP, 4, 0, -EBADMSG, 2},
		{DROP, 5, 0, -EBADMSG, 3},	  {DROP, 6, 0, -ECONNRESET, 4},
		{TWICE, 2, 0, -EBADMSG, 1},	  {TWICE, 4, 0, -EBADMSG, 3},
		{TWICE, 6, 0, -EBADMSG, 5},	  {SWAP, 2, 0, -EBADMSG, 0},
		{SWAP, 4, 0, -EBADMSG, 2},	  {SWAP, 5, 0, -EBADMSG, 3},
		{CUT, 2, 0, -ECONNRESET, 0},	  {CUT, 2, 23, -ECONNRESET, 0},
		{CUT, 4, 3, -ECONNRESET, 2},	  {CUT, 4, 60, -ECONNRESET, 2},
		{CUT, 6, 8 + 17, -ECONNRESET, 4}, {CUT, 6, 8 + 17 + 15, -ECONNRESET, 4},
	};
	for (size_t i = 0; i < 2 * HOIST__ARRAY_SIZE(cases); i++)
		expect_damage((struct damage){.what = cases[i / 2].what,
					      .from = i % 2,
					      .unit = cases[i / 2].unit,
					      .at = cases[i / 2].at},
			      cases[i / 2].err, cases[i / 2].n_given);
}

/* A frame that claims more bytes than will come is noticed at the end, or earlier if no frame may
 * have as many. */
static int error_of_flip(unsigned unit, size_t at)
{
	if (unit < 2)
		return unit == 0 && at < 12 ? -EPROTO : -EACCES;
	size_t claimed = frame_sizes[unit - 2] ^ (at < 4 ? (size_t)1 << 8 * at : 0);
	size_t rest = HEADER_BYTES + TAG_BYTES;
	for (unsigned f = unit - 2; f < N_FRAMES; f++)
		rest += frame_sizes[f] + (f > unit - 2 ? HEADER_BYTES + TAG_BYTES : 0);
	bool waits =
		claimed <= HOIST__CHANNEL_MOST_BYTES && HEADER_BYTES + claimed + TAG_BYTES > rest;
	return waits ? -ECONNRESET : -EBADMSG;
}

Test(net_damage, no_byte_can_change)
{
	static const size_t sizes[] = {GREETING_BYTES, PROOF_BYTES, 24, 25, 124, 0, 24 + 17};
	for (unsigned unit = 0; unit < HOIST__ARRAY_SIZE(sizes); unit++)
		for (size_t at = 0; at < sizes[unit]; at++)
			for (unsigned from = 0; from < 2; from++)
				expect_damage((struct damage){FLIP, from, unit, at},
					      error_of_flip(unit, at), unit < 2 ? 0 : unit - 2);
}

/* A member's own words are never taken for the other's.  An acceptor that gets its proof back is
 * proved already, and takes it for a frame of some length. */
Test(net_damage, nothing_can_be_reflected)
{
	for (unsigned i = 0; i < 2 * N_UNITS; i++) {
		unsigned from = i % 2, unit = i / 2;
		run(&relay, (struct damage){REFLECT, from, unit, 0});
		int err = relay.ends[from].err;
		bool proved = unit >= 2 || (unit == 1 && from == 1);
		/* The acceptor, which got no greeting, takes the connector's proof for one. */
		int unproved = unit == 0 && from == 0 ? -ECONNRESET : -EACCES;
		cr_expect(proved ? err == -EBADMSG || (unit == 1 && err == -ECONNRESET)
				 : err == unproved,
			  "unit %u of %u: %d", unit, from, err);
	}
}
