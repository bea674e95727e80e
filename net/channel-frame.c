/* SPDX-License-Identifier: MIT */
/* net/channel-frame.c - the frames of a channel.
 * The contract is in net/channel.h. */
#include "config.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "net/channel-private.h"

#define LEAST_ROOM ((size_t)4 << 10)
#define KEPT_ROOM ((size_t)256 << 10) /* of a queue that is empty */

/* --- the socket --- */

static bool is_later(int errnum)
{
	return errnum == EAGAIN || errnum == EWOULDBLOCK;
}

static void break_off(struct hoist__channel *c, int errnum)
{
	if (c->broken == 0)
		c->broken = errnum == EPIPE ? -ECONNRESET : -errnum;
}

int hoist__channel_fail_broken(const struct hoist__channel *channel)
{
	return hoist__fail(channel->broken, "the connection with %s has ended: %s",
			   channel->peer.text,
			   channel->broken == -ECONNRESET
				   ? "the other side closed it, or its process has ended"
				   : strerror(-channel->broken));
}

size_t hoist__channel_receive(struct hoist__channel *channel, void *ret, size_t bytes)
{
	ssize_t n;
	do
		n = recv(channel->fd, ret, bytes, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && is_later(errno))
		return 0;
	if (n <= 0)
		break_off(channel, n == 0 ? ECONNRESET : errno);
	return n < 0 ? 0 : (size_t)n;
}

void hoist__channel_flush(struct hoist__channel *channel)
{
	struct hoist__channel_out *out = &channel->out;
	while (out->begin < out->end) {
		ssize_t n = send(channel->fd, out->bytes + out->begin, out->end - out->begin,
				 MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && is_later(errno))
			return;
		if (n < 0)
			break_off(channel, errno);
		out->begin = n < 0 ? out->end : out->begin + (size_t)n;
	}
	out->begin = out->end = 0;
	if (out->room > KEPT_ROOM) {
		free(out->bytes);
		out->bytes = NULL;
		out->room = 0;
	}
}

/* --- out --- */

/* Makes room for @bytes behind the queue.  The queue moves only when a quarter of its bytes have
 * been written since: each byte is moved a few times, however small the frames are. */
static int make_room(struct hoist__channel_out *out, size_t bytes)
{
	size_t queued = out->end - out->begin;
	if (out->room - out->end < bytes && out->begin > queued / 4) {
		memmove(out->bytes, out->bytes + out->begin, queued);
		out->begin = 0;
		out->end = queued;
	}
	if (out->room - out->end >= bytes)
		return 0;
	size_t room = out->room < LEAST_ROOM ? LEAST_ROOM : out->room;
	while (room - out->end < bytes)
		room *= 2;
	unsigned char *more = realloc(out->bytes, room);
	if (more == NULL)
		return hoist__fail_nomem("frames that wait to be sent", room);
	out->bytes = more;
	out->room = room;
	return 0;
}

int hoist__channel_queue(struct hoist__channel *channel, const void *bytes, size_t n_bytes)
{
	int err = make_room(&channel->out, n_bytes);
	if (err < 0)
		return err;
	memcpy(channel->out.bytes + channel->out.end, bytes, n_bytes);
	channel->out.end += n_bytes;
	return 0;
}

/* The tag of a frame, @bytes without the tag. */
static void tag(const struct hoist__channel_direction *direction, const unsigned char *frame,
		size_t bytes, unsigned char ret[static HOIST__SECRET_BYTES])
{
	const uint64_t number = htole64(direction->number);
	const struct hoist__piece pieces[] = {{&number, sizeof(number)}, {frame, bytes}};
	hoist__secret_sign(direction->key, pieces, 2, ret);
}

static void write_frame(struct hoist__channel_out *out, uint16_t kind, const void *bytes,
			size_t n_bytes)
{
	unsigned char code[HOIST__SECRET_BYTES];
	unsigned char *frame = out->bytes + out->end;
	size_t n = HOIST__CHANNEL_HEADER_BYTES + n_bytes;
	const uint32_t little_bytes = htole32((uint32_t)n_bytes);
	const uint16_t little_kind[2] = {htole16(kind), 0};
	memcpy(frame, &little_bytes, 4);
	memcpy(frame + 4, little_kind, 4);
	if (n_bytes > 0)
		memcpy(frame + HOIST__CHANNEL_HEADER_BYTES, bytes, n_bytes);
	tag(&out->direction, frame, n, code);
	memcpy(frame + n, code, HOIST__CHANNEL_TAG_BYTES);
	out->direction.number++;
	out->end += n + HOIST__CHANNEL_TAG_BYTES;
}

int hoist__channel_send(struct hoist__channel *channel, uint16_t kind, const void *bytes,
			size_t n_bytes)
{
	struct hoist__channel_out *out = &channel->out;
	size_t n = HOIST__CHANNEL_HEADER_BYTES + n_bytes + HOIST__CHANNEL_TAG_BYTES;
	if (channel->err < 0)
		return hoist__fail_again(channel->err, &channel->failure);
	HOIST__ASSERT(hoist__channel_proved(channel) && n_bytes <= HOIST__CHANNEL_MOST_BYTES);
	if (hoist__channel_queued(channel) + n > HOIST__CHANNEL_QUEUE_BYTES)
		hoist__channel_flush(channel);
	if (channel->broken < 0)
		return hoist__channel_fail_broken(channel);
	if (hoist__channel_queued(channel) + n > HOIST__CHANNEL_QUEUE_BYTES)
		return hoist__fail(-ENOBUFS, "%s does not read: %zu bytes wait to be sent to it",
				   channel->peer.text, hoist__channel_queued(channel));
	int err = make_room(out, n);
	if (err < 0)
		return err;
	write_frame(out, kind, bytes, n_bytes);
	hoist__channel_flush(channel);
	return channel->broken < 0 ? hoist__channel_fail_broken(channel) : 0;
}

/* --- in --- */

static size_t payload_bytes(const unsigned char *frame)
{
	uint32_t bytes;
	memcpy(&bytes, frame, sizeof(bytes));
	return le32toh(bytes);
}

/* Checks the frames that are there whole.  A length is judged before its bytes are waited for. */
static int check_frames(struct hoist__channel *c)
{
	struct hoist__channel_in *in = &c->in;
	while (in->end - in->good >= HOIST__CHANNEL_HEADER_BYTES) {
		unsigned char code[HOIST__SECRET_BYTES];
		const unsigned char *frame = in->bytes + in->good;
		size_t n = HOIST__CHANNEL_HEADER_BYTES + payload_bytes(frame);
		if (n > HOIST__CHANNEL_HEADER_BYTES + HOIST__CHANNEL_MOST_BYTES)
			return hoist__fail(-EBADMSG,
					   "a frame from %s has %zu bytes; one has at most %zu",
					   c->peer.text, n - HOIST__CHANNEL_HEADER_BYTES,
					   HOIST__CHANNEL_MOST_BYTES);
		if (in->end - in->good < n + HOIST__CHANNEL_TAG_BYTES)
			break;
		tag(&in->direction, frame, n, code);
		if (frame[6] != 0 || frame[7] != 0 ||
		    !hoist__secret_same(code, frame + n, HOIST__CHANNEL_TAG_BYTES))
			return hoist__fail(
				-EBADMSG,
				"frame %llu from %s is not as it was sent; a fault or an "
				"attacker has changed the connection's bytes",
				(unsigned long long)in->direction.number, c->peer.text);
		in->direction.number++;
		in->good += n + HOIST__CHANNEL_TAG_BYTES;
	}
	return 0;
}

int hoist__channel_read_frames(struct hoist__channel *channel)
{
	struct hoist__channel_in *in = &channel->in;
	if (in->begin > 0) {
		memmove(in->bytes, in->bytes + in->begin, in->end - in->begin);
		in->good -= in->begin;
		in->end -= in->begin;
		in->begin = 0;
	}
	while (in->end < HOIST__CHANNEL_FRAME_BYTES) {
		size_t n = hoist__channel_receive(channel, in->bytes + in->end,
						  HOIST__CHANNEL_FRAME_BYTES - in->end);
		if (n == 0)
			break;
		in->end += n;
		int err = check_frames(channel);
		if (err < 0)
			return err;
	}
	HOIST__ASSERT(in->good <= in->end);
	return 0;
}

bool hoist__channel_next(struct hoist__channel *channel, struct hoist__frame *ret)
{
	struct hoist__channel_in *in = &channel->in;
	if (channel->err < 0 || in->begin == in->good)
		return false;
	const unsigned char *frame = in->bytes + in->begin;
	uint16_t kind;
	memcpy(&kind, frame + 4, sizeof(kind));
	ret->kind = le16toh(kind);
	ret->bytes = frame + HOIST__CHANNEL_HEADER_BYTES;
	ret->n_bytes = payload_bytes(frame);
	in->begin += HOIST__CHANNEL_HEADER_BYTES + ret->n_bytes + HOIST__CHANNEL_TAG_BYTES;
	return true;
}
