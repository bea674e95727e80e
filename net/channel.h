/* SPDX-License-Identifier: MIT */
/* net/channel.h - a TCP connection between two members that have proved that they know one secret.
 *
 *     connector                                      acceptor
 *       --- GREETING magic, version, nonce ------------>
 *       <-- GREETING magic, version, nonce -------------
 *       --- PROOF HMAC(secret, "C", both greetings) --->     the connector proves first
 *       <-- PROOF HMAC(secret, "A", both greetings) ----     or 32 zero bytes: refused
 *       <== frames, in both directions ================>
 *
 *     greeting [ "hoistnet" ][ u32 version ][ 32 random bytes ]
 *     frame    [ u32 bytes of the payload ][ u16 kind ][ u16 0 ][ payload ][ 16 bytes tag ]
 *     tag      the first 16 bytes of HMAC(key of the direction, u64 number of the frame, all
 *              before the tag).  The key of a direction is HMAC(secret, "c" or "a", both
 *              greetings): "c" from the connector to the acceptor
 *
 * "Both greetings" are the connector's, then the acceptor's.
 *
 * HMAC is HMAC-SHA-256 (RFC 2104).  Numbers are little-endian.  Payloads are not encrypted.
 *
 * Until the other side has proved that it knows the secret, the channel tells it nothing but the
 * greeting and the refusal, and takes at most a greeting and a proof from it: no memory of its
 * choosing is allocated, and nothing of the group is learned.  An acceptor that ends closes without
 * a refusal, so a connector can tell a wrong secret from a member that has ended.  A byte that is
 * changed, dropped, repeated or added afterwards makes the next tag wrong: the channel fails with
 * -EBADMSG, and gives no frame any more.  Frames that came before the other side closed are given;
 * the channel fails after the last.
 *
 * A channel is not blocking: the caller waits for its descriptor (poll, epoll), then calls
 * hoist__channel_work().  A greeting and a proof that have not come after HOIST__CHANNEL_GREET_NS
 * are a failure (-ETIMEDOUT).
 *
 * Memory: one frame that comes in, and twice the bytes that wait to go out, which are at most
 * HOIST__CHANNEL_QUEUE_BYTES.
 *
 * Threads: one at a time for each channel.
 */
#ifndef HOIST_NET_CHANNEL_H
#define HOIST_NET_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/address.h"
#include "net/secret.h"

/* Goes up with each change of this protocol, and of the messages in frames (lib/wire/wire.h). */
#define HOIST__CHANNEL_VERSION 3u
#define HOIST__CHANNEL_MOST_BYTES ((size_t)64 << 10) /* of a payload */
#define HOIST__CHANNEL_QUEUE_BYTES ((size_t)4 << 20)
#define HOIST__CHANNEL_GREET_NS (UINT64_C(2) * 1000000000)

struct hoist__channel;

/* A frame that has come.  The bytes are valid until the next call on the channel. */
struct hoist__frame {
	uint16_t kind;
	const unsigned char *bytes;
	size_t n_bytes;
};

/* Begins to connect.  Returns: 0; -ENOMEM; -EMFILE; as socket() and connect(). */
int hoist__channel_connect(const struct hoist__address *to, const struct hoist__secret *secret,
			   struct hoist__channel **ret);

/* The acceptor's end.  @socket, which must not block, becomes the channel's, also on failure.
 * Returns: 0; -ENOMEM; -ECONNRESET (the other side has gone already). */
int hoist__channel_accept(int socket, const struct hoist__secret *secret,
			  struct hoist__channel **ret);

/* Has the other side closed the connection, or died?  Its last words may still be here. */
bool hoist__channel_ended(const struct hoist__channel *channel);

int hoist__channel_fd(const struct hoist__channel *channel);

/* True while the caller must wait for POLLOUT, too. */
bool hoist__channel_blocked(const struct hoist__channel *channel);

/* True once both sides have proved that they know the secret. */
bool hoist__channel_proved(const struct hoist__channel *channel);

/* Reads and writes all that can be without waiting, and moves the greeting along.  To be called
 * when the descriptor is ready, and at least every 100 ms until the channel is proved.
 * Returns: 0; -ECONNREFUSED, -EHOSTUNREACH and the like from connecting; -ECONNRESET (the other
 * side has closed, and all its frames were given); -EACCES (the other side does not know the
 * secret, or says that this side does not); -EPROTO (no hoist, or another version); -EBADMSG (a
 * frame of more than HOIST__CHANNEL_MOST_BYTES, or a wrong tag); -ETIMEDOUT (the greeting takes too
 * long); -ENOMEM.  A channel that failed gives the same error again, and no frame. */
int hoist__channel_work(struct hoist__channel *channel);

/* Gives the next frame that hoist__channel_work() has read whole.  False: there is none.  The
 * caller takes all frames, then waits: a socket that has more is still readable (poll, and epoll
 * without EPOLLET). */
bool hoist__channel_next(struct hoist__channel *channel, struct hoist__frame *ret);

/* Queues a frame, and writes as much as the socket takes.  Pre: proved; @n_bytes at most
 * HOIST__CHANNEL_MOST_BYTES.
 * Returns: 0; -ENOBUFS (the other side does not read: the queue is full), -ENOMEM: nothing was
 * queued, and the channel goes on; -ECONNRESET and the like: frames that have come may still be
 * taken; as hoist__channel_work(), for a channel that failed. */
int hoist__channel_send(struct hoist__channel *channel, uint16_t kind, const void *bytes,
			size_t n_bytes);

/* The bytes that wait to go out. */
size_t hoist__channel_queued(const struct hoist__channel *channel);

/* The other end's address. */
const struct hoist__address *hoist__channel_peer(const struct hoist__channel *channel);

void hoist__channel_close(struct hoist__channel *channel); /* takes NULL */

#endif
