/* SPDX-License-Identifier: MIT */
/* Two channels in one thread. */
#include "config.h"

#include "tests/net/pair.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/patience.h"
#include "tests/support/unit-check.h"

#define MOST_MS (PATIENCE_SECONDS * 1000)

void wait_for(int fd, short events)
{
	struct pollfd ready = {.fd = fd, .events = events};
	cr_assert_eq(poll(&ready, 1, MOST_MS), 1, "nothing happens");
}

static void wait_channel(const struct hoist__channel *channel)
{
	wait_for(hoist__channel_fd(channel),
		 hoist__channel_blocked(channel) ? POLLIN | POLLOUT : POLLIN);
}

struct spot spot_open(void)
{
	struct spot spot;
	struct hoist__address any;
	cr_assert_eq(hoist__address_find("127.0.0.1:0", true, &any, 1), 1);
	OK(hoist__address_listen(&any, &spot.listening, &spot.at));
	return spot;
}

int spot_accept(const struct spot *spot)
{
	int fd = -1;
	wait_for(spot->listening, POLLIN);
	OK(hoist__address_accept(spot->listening, &fd));
	return fd;
}

void spot_close(struct spot *spot)
{
	OK(close(spot->listening));
}

struct hoist__secret secret_of(unsigned char byte)
{
	char text[33] = "";
	struct hoist__secret secret;
	memset(text, byte, 32);
	OK(hoist__secret_find(text, &secret));
	return secret;
}

struct pair pair_open(const struct hoist__secret *c, const struct hoist__secret *a)
{
	struct pair pair = {.spot = spot_open()};
	OK(hoist__channel_connect(&pair.spot.at, c, &pair.c));
	OK(hoist__channel_accept(spot_accept(&pair.spot), a, &pair.a));
	return pair;
}

/* Returns: 1 while the channel is at it. */
static int step(struct hoist__channel *channel)
{
	int err = hoist__channel_work(channel);
	return err < 0 ? err : hoist__channel_proved(channel) ? 0 : 1;
}

void pair_meet(struct pair *pair, int *ret_c, int *ret_a)
{
	*ret_c = *ret_a = 1;
	for (uint64_t until = 0; (*ret_c > 0 || *ret_a > 0) && patience(&until);) {
		*ret_c = *ret_c > 0 ? step(pair->c) : *ret_c;
		*ret_a = *ret_a > 0 ? step(pair->a) : *ret_a;
		/* As a caller does: the other side notices it. */
		if (*ret_a < 0 && pair->a != NULL && *ret_c > 0) {
			hoist__channel_close(pair->a);
			pair->a = NULL;
		}
		if (*ret_c < 0 && pair->c != NULL && *ret_a > 0) {
			hoist__channel_close(pair->c);
			pair->c = NULL;
		}
	}
}

struct pair pair_proved(void)
{
	struct hoist__secret secret = secret_of('s');
	struct pair pair = pair_open(&secret, &secret);
	int err_c, err_a;
	pair_meet(&pair, &err_c, &err_a);
	OK(err_c);
	OK(err_a);
	return pair;
}

void pair_close(struct pair *pair)
{
	hoist__channel_close(pair->c);
	hoist__channel_close(pair->a);
	spot_close(&pair->spot);
}

int wait_frame(struct hoist__channel *channel, struct hoist__frame *ret)
{
	for (;;) {
		if (hoist__channel_next(channel, ret))
			return 1;
		int err = hoist__channel_work(channel);
		if (err < 0)
			return err;
		if (hoist__channel_next(channel, ret))
			return 1;
		wait_channel(channel);
	}
}

int wait_proved(struct hoist__channel *channel)
{
	int err;
	while ((err = hoist__channel_work(channel)) == 0 && !hoist__channel_proved(channel))
		wait_channel(channel);
	return err;
}
