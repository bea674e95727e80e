/* SPDX-License-Identifier: MIT */
/* tests/net/pair.h - two channels in one thread, over a connection of this machine's. */
#ifndef HOIST_TESTS_NET_PAIR_H
#define HOIST_TESTS_NET_PAIR_H

#include "net/channel.h"

/* A listener at a port of 127.0.0.1 that the kernel chooses. */
struct spot {
	int listening;
	struct hoist__address at;
};

struct spot spot_open(void);
int spot_accept(const struct spot *spot); /* waits */
void spot_close(struct spot *spot);

/* A secret of 32 bytes @byte. */
struct hoist__secret secret_of(unsigned char byte);

struct pair {
	struct spot spot;
	struct hoist__channel *c; /* the connector's end */
	struct hoist__channel *a;
};

/* Both ends, before any greeting. */
struct pair pair_open(const struct hoist__secret *c, const struct hoist__secret *a);
/* The same, proved. */
struct pair pair_proved(void);
void pair_close(struct pair *pair);

/* Works at both ends until both are done: proved, or failed.  @ret: of each. */
void pair_meet(struct pair *pair, int *ret_c, int *ret_a);

/* Works at a channel, as poll() tells, until it gives an error (returned), or a frame is there
 * (returns 1, and the frame). */
int wait_frame(struct hoist__channel *channel, struct hoist__frame *ret);

/* Works at a channel until it is proved (returns 0) or fails. */
int wait_proved(struct hoist__channel *channel);

/* Waits until poll() has @events of @fd. */
void wait_for(int fd, short events);

#endif
