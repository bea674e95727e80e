/* SPDX-License-Identifier: MIT */
/* tests/net/raw.h - the other end of a channel as a plain socket: it speaks the protocol that
 * net/channel.h describes, or whatever a test wants. */
#ifndef HOIST_TESTS_NET_RAW_H
#define HOIST_TESTS_NET_RAW_H

#include "tests/net/pair.h"

enum { GREETING_BYTES = 44, PROOF_BYTES = 32, HEADER_BYTES = 8, TAG_BYTES = 16 };

struct raw {
	int fd;
	bool connector; /* of the two, this is the raw end's role */
	struct hoist__secret secret;
	unsigned char own[GREETING_BYTES];
	unsigned char theirs[GREETING_BYTES];
	unsigned char key[HOIST__SECRET_BYTES]; /* of what it sends */
	uint64_t number;
};

/* A channel that accepts and a raw connector, or the other way round; not a byte was sent. */
struct raw raw_open(bool connector, struct hoist__channel **ret);
void raw_close(struct raw *raw);

void raw_send(struct raw *raw, const void *bytes, size_t n_bytes);
/* Reads until @n_bytes have come, with the channel at work.  False: fewer will come. */
bool raw_take(struct raw *raw, struct hoist__channel *channel, void *ret, size_t n_bytes);
/* The channel's side has closed: no byte is there. */
bool raw_is_over(struct raw *raw);

/* The raw end's proof, and the key of what it sends.  Pre: both greetings. */
void raw_sign(struct raw *raw, const char *label, unsigned char ret[static HOIST__SECRET_BYTES]);

/* Both greetings and proofs. */
void raw_prove(struct raw *raw, struct hoist__channel *channel);

/* The next frame, HEADER_BYTES + @n_bytes + TAG_BYTES.  @zero: 0 in a sound one. */
size_t raw_frame(struct raw *raw, uint16_t kind, uint16_t zero, const void *bytes, size_t n_bytes,
		 unsigned char *ret);

#endif
