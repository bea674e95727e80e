/* SPDX-License-Identifier: MIT */
/* Channels whose other end is a plain socket, which says what it wants, or ends. */
#include "config.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "tests/net/raw.h"
#include "tests/support/unit-check.h"

/* Works until it fails, for good. */
static int wait_error(struct hoist__channel *channel)
{
	struct hoist__frame frame;
	char text[1024];
	int err;
	while ((err = wait_frame(channel, &frame)) > 0)
		continue;
	(void)snprintf(text, sizeof text, "%s", hoist_error());
	cr_expect_eq(hoist__channel_send(channel, 1, "x", 1), err);
	cr_expect_eq(hoist__channel_work(channel), err);
	cr_expect_str_eq(hoist_error(), text);
	cr_expect_not(hoist__channel_next(channel, &frame));
	cr_expect_not(hoist__channel_blocked(channel));
	return err;
}

/* --- the protocol as it is described, one byte at a time --- */

static void send_in_pieces(struct raw *raw, struct hoist__channel *channel, const void *bytes,
			   size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++) {
		raw_send(raw, (const char *)bytes + i, 1);
		wait_for(hoist__channel_fd(channel), POLLIN);
		OK(hoist__channel_work(channel));
	}
}

static void speak_slowly(bool connector)
{
	unsigned char proof[PROOF_BYTES], bytes[200];
	struct hoist__channel *channel;
	struct hoist__frame frame;
	struct raw raw = raw_open(connector, &channel);
	if (!connector)
		cr_assert(raw_take(&raw, channel, raw.theirs, GREETING_BYTES));
	send_in_pieces(&raw, channel, raw.own, GREETING_BYTES);
	if (connector)
		cr_assert(raw_take(&raw, channel, raw.theirs, GREETING_BYTES));
	else
		cr_assert(raw_take(&raw, channel, proof, PROOF_BYTES));
	cr_expect_not(hoist__channel_proved(channel));
	raw_sign(&raw, connector ? "C" : "A", proof);
	send_in_pieces(&raw, channel, proof, PROOF_BYTES);
	cr_expect(hoist__channel_proved(channel));
	raw_sign(&raw, connector ? "c" : "a", raw.key);
	size_t n = raw_frame(&raw, 258, 0, "slowly", 6, bytes);
	send_in_pieces(&raw, channel, bytes, n - 1);
	cr_expect_not(hoist__channel_next(channel, &frame));
	send_in_pieces(&raw, channel, bytes + n - 1, 1);
	cr_assert(hoist__channel_next(channel, &frame));
	cr_expect_eq(frame.kind, 258);
	cr_expect_eq(frame.n_bytes, 6);
	cr_expect_arr_eq(frame.bytes, "slowly", 6);
	raw_close(&raw);
	hoist__channel_close(channel);
}

Test(net_hostile, bytes_may_come_one_by_one)
{
	speak_slowly(true);
	speak_slowly(false);
}

/* The proof and the first frames may come at once. */
Test(net_hostile, frames_may_follow_the_proof_at_once)
{
	unsigned char bytes[PROOF_BYTES + 200];
	struct hoist__channel *channel;
	struct hoist__frame frame;
	struct raw raw = raw_open(false, &channel);
	cr_assert(raw_take(&raw, channel, raw.theirs, GREETING_BYTES));
	raw_send(&raw, raw.own, GREETING_BYTES);
	raw_sign(&raw, "A", bytes);
	raw_sign(&raw, "a", raw.key);
	size_t n = PROOF_BYTES;
	n += raw_frame(&raw, 1, 0, "one", 3, bytes + n);
	n += raw_frame(&raw, 2, 0, "two", 3, bytes + n);
	raw_send(&raw, bytes, n);
	for (uint16_t kind = 1; kind <= 2; kind++) {
		cr_assert_eq(wait_frame(channel, &frame), 1);
		cr_expect_eq(frame.kind, kind);
	}
	raw_close(&raw);
	hoist__channel_close(channel);
}

/* --- no hoist --- */

/* An acceptor says nothing to them, not even its greeting. */
Test(net_hostile, other_protocols_are_refused_at_their_first_bytes)
{
	static const char *const texts[] = {"GET / HTTP/1.1\r\n\r\n",
					    "\n",
					    "SSH-2.0-x\r\n",
					    "\x16\x03\x01",
					    "hoistnot",
					    "hoistneT",
					    "Hoistnet"};
	for (size_t i = 0; i < 2 * HOIST__ARRAY_SIZE(texts); i++) {
		const char *text = texts[i / 2];
		struct hoist__channel *channel;
		struct raw raw = raw_open(i % 2 == 0, &channel);
		raw_send(&raw, text, strlen(text));
		cr_expect_eq(wait_error(channel), -EPROTO, "\"%s\"", text);
		expect_text("does not speak hoist's protocol");
		if (raw.connector) {
			hoist__channel_close(channel);
			cr_expect(raw_is_over(&raw));
		} else {
			hoist__channel_close(channel);
		}
		raw_close(&raw);
	}
}

/* As much of a greeting as all versions have is enough. */
Test(net_hostile, other_versions_are_named_to_both_sides)
{
	static const unsigned char versions[][4] = {{2}, {0}, {3, 0, 0, 1}, {3, 1}};
	for (size_t i = 0; i < 2 * HOIST__ARRAY_SIZE(versions); i++) {
		unsigned char theirs[GREETING_BYTES];
		struct hoist__channel *channel;
		struct raw raw = raw_open(i % 2 == 0, &channel);
		memcpy(raw.own + 8, versions[i / 2], 4);
		raw_send(&raw, raw.own, 12);
		cr_expect_eq(wait_error(channel), -EPROTO);
		expect_text("the same release of hoist");
		cr_assert(raw_take(&raw, channel, theirs, GREETING_BYTES));
		cr_expect_arr_eq(theirs, "hoistnet\3\0\0\0", 12);
		hoist__channel_close(channel);
		cr_expect(raw_is_over(&raw));
		raw_close(&raw);
	}
}

/* --- no secret --- */

/* A side that does not know the secret sees a greeting, the refusal, and then the end. */
static void expect_refusal(struct raw *raw, struct hoist__channel *channel, const void *proof)
{
	static const unsigned char refusal[PROOF_BYTES] = {0};
	unsigned char answer[PROOF_BYTES];
	raw_send(raw, raw->own, GREETING_BYTES);
	cr_assert(raw_take(raw, channel, raw->theirs, GREETING_BYTES));
	raw_send(raw, proof, PROOF_BYTES);
	cr_expect_eq(wait_error(channel), -EACCES);
	expect_text("does not know this group's secret");
	cr_expect_not(hoist__channel_proved(channel));
	cr_assert(raw_take(raw, channel, answer, PROOF_BYTES));
	cr_expect_arr_eq(answer, refusal, PROOF_BYTES);
	hoist__channel_close(channel);
	cr_expect(raw_is_over(raw));
	raw_close(raw);
}

Test(net_hostile, an_acceptor_shows_its_greeting_and_refuses)
{
	unsigned char proof[PROOF_BYTES] = {0};
	struct hoist__channel *channel;
	struct raw raw = raw_open(true, &channel);
	expect_refusal(&raw, channel, proof);
}

/* A proof that was heard does not serve in another connection, whose greeting is another. */
Test(net_hostile, a_proof_cannot_be_replayed)
{
	unsigned char proof[PROOF_BYTES];
	struct hoist__channel *channel;
	struct raw raw = raw_open(true, &channel);
	raw_prove(&raw, channel);
	raw_sign(&raw, "C", proof);
	hoist__channel_close(channel);
	raw_close(&raw);
	raw = raw_open(true, &channel);
	expect_refusal(&raw, channel, proof);
}

/* The connector gets its own greeting and proof back. */
Test(net_hostile, a_proof_cannot_be_reflected)
{
	unsigned char proof[PROOF_BYTES];
	struct hoist__channel *channel;
	struct raw raw = raw_open(false, &channel);
	cr_assert(raw_take(&raw, channel, raw.theirs, GREETING_BYTES));
	raw_send(&raw, raw.theirs, GREETING_BYTES);
	cr_assert(raw_take(&raw, channel, proof, PROOF_BYTES));
	raw_send(&raw, proof, PROOF_BYTES);
	cr_expect_eq(wait_error(channel), -EACCES);
	hoist__channel_close(channel);
	cr_expect(raw_is_over(&raw));
	raw_close(&raw);
}

/* A connector lets another connector, which proves itself to it, prove itself once more: each
 * proof says whose it is. */
Test(net_hostile, a_connectors_proof_is_no_acceptors)
{
	unsigned char proof[PROOF_BYTES];
	struct hoist__channel *channel;
	struct raw raw = raw_open(false, &channel);
	cr_assert(raw_take(&raw, channel, raw.theirs, GREETING_BYTES));
	raw_send(&raw, raw.own, GREETING_BYTES);
	raw_sign(&raw, "C", proof);
	raw_send(&raw, proof, PROOF_BYTES);
	cr_expect_eq(wait_error(channel), -EACCES);
	hoist__channel_close(channel);
	raw_close(&raw);
}

/* --- it knows the secret, and breaks the rules --- */

static unsigned char frame_bytes[2 * HOIST__CHANNEL_MOST_BYTES];
static unsigned char payload[HOIST__CHANNEL_MOST_BYTES + 1];

Test(net_hostile, frames_have_a_longest_length)
{
	for (int connector = 0; connector < 2; connector++) {
		struct hoist__channel *channel;
		struct hoist__frame frame;
		struct raw raw = raw_open(connector, &channel);
		raw_prove(&raw, channel);
		size_t n = raw_frame(&raw, 1, 0, payload, HOIST__CHANNEL_MOST_BYTES, frame_bytes);
		raw_send(&raw, frame_bytes, n);
		cr_assert_eq(wait_frame(channel, &frame), 1);
		cr_expect_eq(frame.n_bytes, HOIST__CHANNEL_MOST_BYTES);
		(void)raw_frame(&raw, 1, 0, payload, sizeof payload, frame_bytes);
		raw_send(&raw, frame_bytes, HEADER_BYTES); /* no more is waited for */
		cr_expect_eq(wait_error(channel), -EBADMSG);
		expect_text("65537 bytes");
		hoist__channel_close(channel);
		raw_close(&raw);
	}
}

Test(net_hostile, a_length_of_all_ones_is_refused)
{
	struct hoist__channel *channel;
	struct raw raw = raw_open(true, &channel);
	raw_prove(&raw, channel);
	raw_send(&raw, "\xff\xff\xff\xff\1\0\0\0", HEADER_BYTES);
	cr_expect_eq(wait_error(channel), -EBADMSG);
	expect_text("4294967295 bytes");
	hoist__channel_close(channel);
	raw_close(&raw);
}

Test(net_hostile, the_word_that_is_zero_is_checked)
{
	struct hoist__channel *channel;
	struct raw raw = raw_open(true, &channel);
	raw_prove(&raw, channel);
	size_t n = raw_frame(&raw, 1, 256, "x", 1, frame_bytes);
	raw_send(&raw, frame_bytes, n);
	cr_expect_eq(wait_error(channel), -EBADMSG);
	hoist__channel_close(channel);
	raw_close(&raw);
}

/* Who changes bytes has no say: frames that came together with a changed one are not given. */
Test(net_hostile, a_channel_that_failed_gives_no_frame)
{
	struct hoist__channel *channel;
	struct hoist__frame frame;
	struct raw raw = raw_open(true, &channel);
	raw_prove(&raw, channel);
	size_t n = raw_frame(&raw, 1, 0, "one", 3, frame_bytes);
	n += raw_frame(&raw, 1, 0, "two", 3, frame_bytes + n);
	frame_bytes[n - 1] ^= 1;
	raw_send(&raw, frame_bytes, n);
	wait_for(hoist__channel_fd(channel), POLLIN);
	cr_expect_eq(hoist__channel_work(channel), -EBADMSG);
	cr_expect_not(hoist__channel_next(channel, &frame));
	hoist__channel_close(channel);
	raw_close(&raw);
}

/* --- it ends --- */

/* Sends @n_bytes of what an end says from the greeting on, and closes. */
static int end_after(bool connector, bool reset, size_t n_bytes, unsigned *ret_frames)
{
	unsigned char bytes[GREETING_BYTES + PROOF_BYTES + 200];
	struct hoist__channel *channel;
	struct hoist__frame frame;
	struct raw raw = raw_open(connector, &channel);
	int err;
	memcpy(bytes, raw.own, GREETING_BYTES);
	size_t n = n_bytes < GREETING_BYTES ? n_bytes : GREETING_BYTES;
	if (!connector)
		cr_assert(raw_take(&raw, channel, raw.theirs, GREETING_BYTES));
	if (n > 0)
		raw_send(&raw, bytes, n);
	if (n_bytes > n) {
		unsigned char skipped[PROOF_BYTES];
		cr_assert(connector ? raw_take(&raw, channel, raw.theirs, GREETING_BYTES)
				    : raw_take(&raw, channel, skipped, PROOF_BYTES));
		raw_sign(&raw, connector ? "C" : "A", bytes + n);
		raw_sign(&raw, connector ? "c" : "a", raw.key);
		size_t all = n + PROOF_BYTES;
		all += raw_frame(&raw, 1, 0, "one", 3, bytes + all);
		all += raw_frame(&raw, 2, 0, NULL, 0, bytes + all);
		cr_assert_leq(n_bytes, all);
		raw_send(&raw, bytes + n, n_bytes - n);
	}
	const struct linger at_once = {.l_onoff = reset};
	OK(setsockopt(raw.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
	raw_close(&raw);
	*ret_frames = 0;
	while ((err = wait_frame(channel, &frame)) > 0)
		++*ret_frames;
	hoist__channel_close(channel);
	return err;
}

Test(net_hostile, a_side_may_end_at_any_byte)
{
	enum {
		PROVED = GREETING_BYTES + PROOF_BYTES,
		FIRST = PROVED + HEADER_BYTES + 3 + TAG_BYTES,
		SECOND = FIRST + HEADER_BYTES + TAG_BYTES
	};
	for (size_t i = 0; i <= 4 * SECOND + 3; i++) {
		size_t n = i / 4;
		bool connector = i % 4 < 2;
		unsigned n_frames;
		int err = end_after(connector, i % 2 == 1, n, &n_frames);
		cr_expect_eq(err, -ECONNRESET, "%s, %zu bytes: %d",
			     connector ? "connector" : "acceptor", n, err);
		unsigned most = n == SECOND ? 2 : n >= FIRST;
		cr_expect_eq(n_frames, most, "%zu bytes: %u frames", n, n_frames);
	}
}

Test(net_hostile, a_connection_that_has_ended_before_it_is_accepted)
{
	struct spot spot = spot_open();
	struct hoist__secret secret = secret_of('s');
	struct hoist__channel *channel = NULL;
	const struct linger at_once = {.l_onoff = 1};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	OK(connect(fd, (struct sockaddr *)&spot.at.socket, spot.at.bytes));
	OK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
	int accepted = spot_accept(&spot);
	OK(close(fd));
	wait_for(accepted, POLLIN);
	cr_expect_eq(hoist__channel_accept(accepted, &secret, &channel), -ECONNRESET);
	cr_expect_null(channel);
	cr_expect_lt(close(accepted), 0);
	spot_close(&spot);
}
