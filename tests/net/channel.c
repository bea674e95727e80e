/* SPDX-License-Identifier: MIT */
/* Channels between two members that both keep to the protocol. */
#include "config.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/net/pair.h"
#include "tests/support/random.h"
#include "tests/support/unit-check.h"

static void expect_frame(const struct hoist__frame *frame, uint16_t kind, const void *bytes,
			 size_t n_bytes)
{
	cr_assert_eq(frame->kind, kind);
	cr_assert_eq(frame->n_bytes, n_bytes);
	cr_assert(n_bytes == 0 || memcmp(frame->bytes, bytes, n_bytes) == 0);
}

Test(net_channel, two_members_prove_themselves_and_talk)
{
	struct pair pair = pair_proved();
	struct hoist__frame frame;
	cr_expect_str_eq(hoist__channel_peer(pair.c)->text, pair.spot.at.text);
	cr_expect(hoist__address_loopback(hoist__channel_peer(pair.a)));
	OK(hoist__channel_send(pair.c, 7, "to the acceptor", 15));
	OK(hoist__channel_send(pair.a, 65535, NULL, 0));
	cr_assert_eq(wait_frame(pair.a, &frame), 1);
	expect_frame(&frame, 7, "to the acceptor", 15);
	cr_assert_eq(wait_frame(pair.c, &frame), 1);
	expect_frame(&frame, 65535, NULL, 0);
	cr_expect_not(hoist__channel_next(pair.c, &frame));
	cr_expect_eq(hoist__channel_queued(pair.c), 0);
	cr_expect_not(hoist__channel_blocked(pair.c));
	pair_close(&pair);
	hoist__channel_close(NULL);
}

Test(net_channel, ipv6)
{
	struct hoist__address at;
	struct hoist__secret secret = secret_of('s');
	struct pair pair;
	int err_c, err_a;
	cr_assert_eq(hoist__address_find("[::1]:0", true, &at, 1), 1);
	if (hoist__address_listen(&at, &pair.spot.listening, &pair.spot.at) < 0)
		cr_skip_test("this machine has no IPv6");
	OK(hoist__channel_connect(&pair.spot.at, &secret, &pair.c));
	OK(hoist__channel_accept(spot_accept(&pair.spot), &secret, &pair.a));
	pair_meet(&pair, &err_c, &err_a);
	OK(err_c);
	OK(err_a);
	cr_expect(hoist__address_loopback(hoist__channel_peer(pair.a)));
	pair_close(&pair);
}

/* --- many --- */

enum { N_FRAMES = 600 };

/* Frames that a seed repeats: the receiver knows them beforehand. */
struct script {
	uint64_t state;
	unsigned n; /* gone by */
	unsigned char bytes[HOIST__CHANNEL_MOST_BYTES];
	size_t n_bytes;
	uint16_t kind;
};

static void next_of(struct script *script)
{
	uint64_t size = random_next(&script->state);
	script->n_bytes = size % 8 == 0	  ? HOIST__CHANNEL_MOST_BYTES
			  : size % 8 == 1 ? 0
					  : size / 8 % (size % 2 ? 300 : HOIST__CHANNEL_MOST_BYTES);
	script->kind = (uint16_t)random_next(&script->state);
	random_fill(&script->state, script->bytes, script->n_bytes);
	script->n++;
}

/* Sends until the queue is full: the frame that was refused is sent later. */
static void send_some(struct hoist__channel *channel, struct script *script)
{
	while (script->n <= N_FRAMES) {
		int err =
			hoist__channel_send(channel, script->kind, script->bytes, script->n_bytes);
		if (err == -ENOBUFS)
			return;
		OK(err);
		next_of(script);
	}
}

static void take_some(struct hoist__channel *channel, struct script *script)
{
	struct hoist__frame frame;
	OK(hoist__channel_work(channel));
	while (hoist__channel_next(channel, &frame)) {
		expect_frame(&frame, script->kind, script->bytes, script->n_bytes);
		next_of(script);
	}
}

Test(net_channel, many_frames_of_all_sizes_go_both_ways)
{
	static struct script sent[2], taken[2];
	struct pair pair = pair_proved();
	struct hoist__channel *ends[] = {pair.c, pair.a};
	for (unsigned i = 0; i < 2; i++) {
		sent[i].state = taken[1 - i].state = i + 1;
		next_of(&sent[i]);
		next_of(&taken[1 - i]);
	}
	while (taken[0].n <= N_FRAMES || taken[1].n <= N_FRAMES) {
		struct pollfd fds[2];
		for (unsigned i = 0; i < 2; i++) {
			send_some(ends[i], &sent[i]);
			take_some(ends[i], &taken[i]);
		}
		for (unsigned i = 0; i < 2; i++)
			fds[i] = (struct pollfd){.fd = hoist__channel_fd(ends[i]),
						 .events = hoist__channel_blocked(ends[i])
								   ? POLLIN | POLLOUT
								   : POLLIN};
		bool done = taken[0].n > N_FRAMES && taken[1].n > N_FRAMES;
		cr_assert(done || poll(fds, 2, 60000) > 0, "nothing comes");
	}
	pair_close(&pair);
}

/* --- the queue --- */

Test(net_channel, a_queue_that_is_full_refuses_and_goes_on)
{
	static unsigned char bytes[HOIST__CHANNEL_MOST_BYTES];
	struct pair pair = pair_proved();
	struct hoist__frame frame;
	unsigned n = 0;
	int err;
	for (;; n++) {
		memset(bytes, (int)(n % 256), sizeof bytes);
		err = hoist__channel_send(pair.c, (uint16_t)n, bytes, sizeof bytes);
		if (err < 0)
			break;
		cr_assert_leq(hoist__channel_queued(pair.c), HOIST__CHANNEL_QUEUE_BYTES);
	}
	cr_assert_eq(err, -ENOBUFS);
	expect_text("does not read");
	cr_expect(hoist__channel_blocked(pair.c));
	cr_expect_gt(hoist__channel_queued(pair.c) + sizeof bytes + 24, HOIST__CHANNEL_QUEUE_BYTES);
	OK(hoist__channel_work(pair.c));
	cr_expect_eq(hoist__channel_send(pair.c, 0, bytes, sizeof bytes), -ENOBUFS);
	for (unsigned i = 0; i < n; i++) {
		memset(bytes, (int)(i % 256), sizeof bytes);
		OK(hoist__channel_work(pair.c));
		cr_assert_eq(wait_frame(pair.a, &frame), 1);
		expect_frame(&frame, (uint16_t)i, bytes, sizeof bytes);
	}
	OK(hoist__channel_work(pair.c));
	cr_expect_eq(hoist__channel_queued(pair.c), 0);
	OK(hoist__channel_send(pair.c, 9, "again", 5));
	cr_assert_eq(wait_frame(pair.a, &frame), 1);
	expect_frame(&frame, 9, "again", 5);
	pair_close(&pair);
}

/* --- the end --- */

static void expect_ended(struct hoist__channel *channel, int err)
{
	struct hoist__frame frame;
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(hoist__channel_work(channel), err);
		cr_expect_not(hoist__channel_next(channel, &frame));
		cr_expect_eq(hoist__channel_send(channel, 1, "x", 1), err);
		cr_expect_not(hoist__channel_blocked(channel));
	}
}

Test(net_channel, the_last_frames_of_a_side_that_closes_are_given)
{
	struct pair pair = pair_proved();
	struct hoist__frame frame;
	for (uint16_t i = 0; i < 3; i++)
		OK(hoist__channel_send(pair.a, i, "bye", 3));
	hoist__channel_close(pair.a);
	pair.a = NULL;
	for (uint16_t i = 0; i < 3; i++) {
		cr_assert_eq(wait_frame(pair.c, &frame), 1);
		expect_frame(&frame, i, "bye", 3);
	}
	cr_assert_eq(wait_frame(pair.c, &frame), -ECONNRESET);
	expect_text("closed it");
	expect_ended(pair.c, -ECONNRESET);
	pair_close(&pair);
}

/* The side that closes has not read all: the kernel resets the connection. */
Test(net_channel, writing_to_a_side_that_has_gone_is_an_error_and_its_frames_are_given)
{
	struct pair pair = pair_proved();
	struct hoist__frame frame;
	int err = 0;
	OK(hoist__channel_send(pair.c, 1, "unread", 6));
	OK(hoist__channel_send(pair.a, 5, "bye", 3));
	wait_for(hoist__channel_fd(pair.a), POLLIN);
	hoist__channel_close(pair.a);
	pair.a = NULL;
	wait_for(hoist__channel_fd(pair.c), POLLIN | POLLHUP);
	while (err == 0)
		err = hoist__channel_send(pair.c, 2, "more", 4);
	cr_expect_eq(err, -ECONNRESET);
	cr_assert_eq(wait_frame(pair.c, &frame), 1);
	expect_frame(&frame, 5, "bye", 3);
	cr_assert_eq(wait_frame(pair.c, &frame), -ECONNRESET);
	expect_ended(pair.c, -ECONNRESET);
	pair_close(&pair);
}

/* --- connecting --- */

/* A socket that has a port of 127.0.0.1 and does not listen. */
static int take_port(struct hoist__address *ret)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	OK(bind(fd, (struct sockaddr *)&at, sizeof at));
	OK(getsockname(fd, (struct sockaddr *)&at, &bytes));
	OK(hoist__address_make((struct sockaddr *)&at, bytes, ret));
	return fd;
}

Test(net_channel, a_port_where_nobody_listens)
{
	struct hoist__address at;
	struct hoist__secret secret = secret_of('s');
	struct hoist__channel *c = NULL;
	int fd = take_port(&at);
	int err = hoist__channel_connect(&at, &secret, &c);
	if (err == 0)
		err = wait_proved(c);
	cr_expect_eq(err, -ECONNREFUSED);
	expect_text(at.text);
	hoist__channel_close(c);
	OK(close(fd));
}

/* The kernel connects a socket that is bound to a port, and connects to this port, to itself. */
Test(net_channel, a_connection_to_itself_is_refused)
{
	struct spot spot = spot_open();
	struct hoist__secret secret = secret_of('s');
	struct hoist__channel *c = NULL;
	int fd = take_port(&spot.at); /* which is not where the listener is */
	OK(hoist__channel_connect(&spot.at, &secret, &c));
	OK(connect(fd, (struct sockaddr *)&spot.at.socket, spot.at.bytes));
	cr_assert_eq(dup2(fd, hoist__channel_fd(c)), hoist__channel_fd(c));
	OK(close(fd));
	cr_expect_eq(hoist__channel_work(c), -ECONNREFUSED);
	hoist__channel_close(c);
	spot_close(&spot);
}

/* --- secrets --- */

Test(net_channel, members_with_different_secrets_part)
{
	struct hoist__secret one = secret_of('s');
	struct hoist__secret other = secret_of('t');
	struct pair pair = pair_open(&one, &other);
	int err_c, err_a;
	pair_meet(&pair, &err_c, &err_a);
	cr_expect_eq(err_a, -EACCES);
	cr_expect_eq(err_c, -EACCES);
	pair_close(&pair);
}

/* --- time --- */

static uint64_t set_now(void *context)
{
	return *(uint64_t *)context;
}

/* @a: an acceptor's, or NULL. */
static void expect_timeout(struct hoist__channel *c, uint64_t *now, const char *words)
{
	*now += HOIST__CHANNEL_GREET_NS - 1;
	OK(hoist__channel_work(c));
	*now += 1;
	REFUSED(hoist__channel_work(c), -ETIMEDOUT, words);
	*now = 0;
	REFUSED(hoist__channel_work(c), -ETIMEDOUT, words);
	hoist__channel_close(c);
}

Test(net_channel, a_side_that_says_nothing_is_given_up)
{
	uint64_t now = 1000;
	struct spot spot = spot_open();
	struct hoist__secret secret = secret_of('s');
	struct hoist__channel *c, *a;
	hoist__clock_hook(set_now, &now);
	OK(hoist__channel_connect(&spot.at, &secret, &c));
	int fd = spot_accept(&spot);
	wait_for(hoist__channel_fd(c), POLLOUT);
	expect_timeout(c, &now, "say that it is hoist");
	OK(close(fd));
	now = 1000;
	OK(hoist__channel_connect(&spot.at, &secret, &c));
	OK(hoist__channel_accept(spot_accept(&spot), &secret, &a));
	expect_timeout(a, &now, "say that it is hoist");
	hoist__channel_close(c);
	now = 1000;
	OK(hoist__channel_connect(&spot.at, &secret, &c));
	OK(hoist__channel_accept(spot_accept(&spot), &secret, &a));
	wait_for(hoist__channel_fd(c), POLLOUT);
	OK(hoist__channel_work(c));
	wait_for(hoist__channel_fd(a), POLLIN);
	OK(hoist__channel_work(a));
	wait_for(hoist__channel_fd(c), POLLIN);
	expect_timeout(a, &now, "prove that it knows the secret");
	hoist__channel_close(c);
	hoist__clock_hook(NULL, NULL);
	spot_close(&spot);
}

/* Linux does not answer while the listener's line is full. */
Test(net_channel, a_connection_that_nobody_answers_is_given_up)
{
	uint64_t now = 1000;
	struct spot spot = spot_open();
	struct hoist__secret secret = secret_of('s');
	struct hoist__channel *waiting[4], *c;
	OK(listen(spot.listening, 0));
	hoist__clock_hook(set_now, &now);
	for (unsigned i = 0; i < 4; i++)
		OK(hoist__channel_connect(&spot.at, &secret, &waiting[i]));
	OK(hoist__channel_connect(&spot.at, &secret, &c));
	cr_expect(hoist__channel_blocked(c));
	expect_timeout(c, &now, "accept the connection");
	for (unsigned i = 0; i < 4; i++)
		hoist__channel_close(waiting[i]);
	hoist__clock_hook(NULL, NULL);
	spot_close(&spot);
}

/* Once proved, time is the caller's matter. */
Test(net_channel, a_proved_channel_may_be_silent)
{
	uint64_t now = 1000;
	hoist__clock_hook(set_now, &now);
	struct pair pair = pair_proved();
	now += 100 * HOIST__CHANNEL_GREET_NS;
	OK(hoist__channel_work(pair.c));
	OK(hoist__channel_work(pair.a));
	pair_close(&pair);
	hoist__clock_hook(NULL, NULL);
}
