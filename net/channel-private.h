/* SPDX-License-Identifier: MIT */
/* net/channel-private.h - the state of a channel, for channel.c (connecting and proving) and
 * channel-frame.c (frames). */
#ifndef HOIST_NET_CHANNEL_PRIVATE_H
#define HOIST_NET_CHANNEL_PRIVATE_H

#include "base/error.h"
#include "net/channel.h"

#define HOIST__CHANNEL_MAGIC "hoistnet"
#define HOIST__CHANNEL_MAGIC_BYTES 8u
#define HOIST__CHANNEL_NONCE_BYTES 32u
#define HOIST__CHANNEL_HEADER_BYTES 8u /* of a frame */
#define HOIST__CHANNEL_TAG_BYTES 16u
#define HOIST__CHANNEL_FRAME_BYTES                                                                 \
	(HOIST__CHANNEL_HEADER_BYTES + HOIST__CHANNEL_MOST_BYTES + HOIST__CHANNEL_TAG_BYTES)

/* As it goes over the wire. */
struct hoist__greeting {
	char magic[HOIST__CHANNEL_MAGIC_BYTES];
	unsigned char version[4];
	unsigned char nonce[HOIST__CHANNEL_NONCE_BYTES];
};

enum hoist__channel_state {
	HOIST__CHANNEL_CONNECTING,
	HOIST__CHANNEL_GREETING, /* waits for the other side's greeting */
	HOIST__CHANNEL_PROVING,	 /* waits for the other side's proof */
	HOIST__CHANNEL_PROVED,
};

/* One direction: its key, and the number of its next frame. */
struct hoist__channel_direction {
	unsigned char key[HOIST__SECRET_BYTES];
	uint64_t number;
};

/* begin <= good <= end <= HOIST__CHANNEL_FRAME_BYTES. */
struct hoist__channel_in {
	struct hoist__channel_direction direction;
	unsigned char *bytes; /* NULL until the other side has proved itself */
	size_t begin;	      /* of the frames that were not given yet */
	size_t good;	      /* up to here are whole frames whose tags are right */
	size_t end;
};

struct hoist__channel_out {
	struct hoist__channel_direction direction;
	unsigned char *bytes;
	size_t begin; /* of the bytes that were not written yet */
	size_t end;
	size_t room;
};

struct hoist__channel {
	int fd;
	bool connector;
	enum hoist__channel_state state;
	uint64_t began_ns;
	struct hoist__address peer;
	unsigned char secret[HOIST__SECRET_BYTES]; /* zero once proved */
	struct hoist__greeting own;
	struct hoist__greeting theirs;
	unsigned char proof[HOIST__SECRET_BYTES]; /* the other side's */
	size_t early_bytes;			  /* of `theirs` or `proof`, which have come */
	struct hoist__channel_in in;
	struct hoist__channel_out out;
	int broken; /* the connection's error; frames that came before can still be given */
	int err;    /* the channel has failed, with `failure` */
	struct hoist__failure failure;
};

/* Receives at most @bytes.  Returns: how many; 0: none now, or the connection is broken. */
size_t hoist__channel_receive(struct hoist__channel *channel, void *ret, size_t bytes);

/* Queues bytes behind the others.  Returns: 0; -ENOMEM. */
int hoist__channel_queue(struct hoist__channel *channel, const void *bytes, size_t n_bytes);

/* Writes as much of the queue as the socket takes now. */
void hoist__channel_flush(struct hoist__channel *channel);

/* Reads and checks frames until the socket has no more, or the room is full.
 * Returns: 0; -EBADMSG. */
int hoist__channel_read_frames(struct hoist__channel *channel);

/* Sets the text of a broken connection, and returns its error. */
int hoist__channel_fail_broken(const struct hoist__channel *channel);

#endif
