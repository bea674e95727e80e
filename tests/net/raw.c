/* SPDX-License-Identifier: MIT */
/* The other end of a channel as a plain socket. */
#include "config.h"

#include "tests/net/raw.h"

#include <endian.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/unit-check.h"

static int connect_to(const struct hoist__address *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_geq(fd, 0);
	OK(connect(fd, (const struct sockaddr *)&at->socket, at->bytes));
	return fd;
}

struct raw raw_open(bool connector, struct hoist__channel **ret)
{
	struct spot spot = spot_open();
	struct raw raw = {.connector = connector, .secret = secret_of('s')};
	memcpy(raw.own, "hoistnet\3\0\0\0", 12);
	memset(raw.own + 12, connector ? 'c' : 'a', 32);
	if (connector) {
		raw.fd = connect_to(&spot.at);
		OK(hoist__channel_accept(spot_accept(&spot), &raw.secret, ret));
	} else {
		OK(hoist__channel_connect(&spot.at, &raw.secret, ret));
		raw.fd = spot_accept(&spot);
	}
	spot_close(&spot);
	return raw;
}

void raw_close(struct raw *raw)
{
	OK(close(raw->fd));
}

void raw_send(struct raw *raw, const void *bytes, size_t n_bytes)
{
	cr_assert_eq(send(raw->fd, bytes, n_bytes, MSG_NOSIGNAL), (ssize_t)n_bytes);
}

bool raw_take(struct raw *raw, struct hoist__channel *channel, void *ret, size_t n_bytes)
{
	size_t n = 0;
	while (n < n_bytes) {
		struct pollfd fds[] = {{.fd = raw->fd, .events = POLLIN},
				       {.fd = hoist__channel_fd(channel), .events = POLLIN}};
		int err = hoist__channel_work(channel);
		fds[1].events = hoist__channel_blocked(channel) ? POLLIN | POLLOUT : POLLIN;
		cr_assert_gt(poll(fds, 2, 60000), 0, "nothing comes");
		ssize_t got = recv(raw->fd, (char *)ret + n, n_bytes - n, MSG_DONTWAIT);
		if (got == 0 || (got < 0 && err < 0))
			return false;
		n += got > 0 ? (size_t)got : 0;
	}
	return true;
}

bool raw_is_over(struct raw *raw)
{
	char byte;
	wait_for(raw->fd, POLLIN);
	return recv(raw->fd, &byte, 1, 0) <= 0;
}

void raw_sign(struct raw *raw, const char *label, unsigned char ret[static HOIST__SECRET_BYTES])
{
	const struct hoist__piece pieces[] = {
		{label, 1},
		{raw->connector ? raw->own : raw->theirs, GREETING_BYTES},
		{raw->connector ? raw->theirs : raw->own, GREETING_BYTES},
	};
	hoist__secret_sign(raw->secret.key, pieces, 3, ret);
}

void raw_prove(struct raw *raw, struct hoist__channel *channel)
{
	unsigned char proof[PROOF_BYTES], theirs[PROOF_BYTES], expected[PROOF_BYTES];
	raw_send(raw, raw->own, GREETING_BYTES);
	cr_assert(raw_take(raw, channel, raw->theirs, GREETING_BYTES));
	raw_sign(raw, raw->connector ? "C" : "A", proof);
	raw_sign(raw, raw->connector ? "A" : "C", expected);
	raw_send(raw, proof, sizeof proof);
	cr_assert(raw_take(raw, channel, theirs, sizeof theirs));
	cr_assert_arr_eq(theirs, expected, sizeof theirs);
	raw_sign(raw, raw->connector ? "c" : "a", raw->key);
	OK(wait_proved(channel));
}

size_t raw_frame(struct raw *raw, uint16_t kind, uint16_t zero, const void *bytes, size_t n_bytes,
		 unsigned char *ret)
{
	unsigned char tag[HOIST__SECRET_BYTES];
	const uint64_t number = htole64(raw->number++);
	const uint32_t length = htole32((uint32_t)n_bytes);
	const uint16_t words[2] = {htole16(kind), htole16(zero)};
	memcpy(ret, &length, 4);
	memcpy(ret + 4, words, 4);
	if (n_bytes > 0)
		memcpy(ret + HEADER_BYTES, bytes, n_bytes);
	const struct hoist__piece pieces[] = {{&number, 8}, {ret, HEADER_BYTES + n_bytes}};
	hoist__secret_sign(raw->key, pieces, 2, tag);
	memcpy(ret + HEADER_BYTES + n_bytes, tag, TAG_BYTES);
	return HEADER_BYTES + n_bytes + TAG_BYTES;
}
