/* SPDX-License-Identifier: MIT */
/* A channel whose other end may say anything: bytes, greetings, proofs, and frames whose tags are
 * right, in any order, some of them damaged.  Who has not proved the secret learns a greeting, and
 * a channel gives the frames that were sent, in their order, and no others. */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/channel.h"
#include "tests/fuzz/fuzz-support.h"

enum { GREETING_BYTES = 44, PROOF_BYTES = 32, TAG_BYTES = 16, MOST_FRAMES = 64, LONGEST = 3000 };

struct other {
	int fd;
	bool connector;
	unsigned char own[GREETING_BYTES];
	unsigned char theirs[GREETING_BYTES];
	size_t n_heard;
	bool has_proved; /* a right proof was sent */
	unsigned char key[HOIST__SECRET_BYTES];
	uint64_t number;
	uint16_t sizes[MOST_FRAMES];
	unsigned n_frames; /* sent whole, with right tags, and nothing between them */
	bool spoilt;	   /* from here on, nothing may be given */
	unsigned n_given;
};

static struct hoist__secret secret;
static int listening = -1;
static struct hoist__address at;

/* Inputs end before a greeting takes too long, however slow the machine is. */
static uint64_t no_time(void *context)
{
	(void)context;
	return 1;
}

static void begin(void)
{
	struct hoist__address any;
	hoist__clock_hook(no_time, NULL);
	HOLDS(hoist__secret_find("a secret for fuzzing", &secret) == 0);
	HOLDS(hoist__address_find("127.0.0.1:0", true, &any, 1) == 1);
	HOLDS(hoist__address_listen(&any, &listening, &at) == 0);
}

static int accept_one(void)
{
	struct pollfd ready = {.fd = listening, .events = POLLIN};
	int fd = -1;
	HOLDS(poll(&ready, 1, 10000) == 1);
	HOLDS(hoist__address_accept(listening, &fd) == 0);
	return fd;
}

/* The kernel keeps no port for a connection that this side resets. */
static struct hoist__channel *open_both(struct other *o)
{
	const struct linger at_once = {.l_onoff = 1};
	struct hoist__channel *channel = NULL;
	memcpy(o->own, "hoistnet\3\0\0\0", 12);
	memset(o->own + 12, 'x', 32);
	if (o->connector) {
		o->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		HOLDS(connect(o->fd, (const struct sockaddr *)&at.socket, at.bytes) == 0);
		HOLDS(hoist__channel_accept(accept_one(), &secret, &channel) == 0);
	} else {
		HOLDS(hoist__channel_connect(&at, &secret, &channel) == 0);
		o->fd = accept_one();
	}
	HOLDS(setsockopt(o->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
	return channel;
}

/* --- the other end --- */

static void say(struct other *o, const void *bytes, size_t n)
{
	(void)!send(o->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void hear(struct other *o)
{
	unsigned char bytes[512];
	ssize_t n;
	while ((n = recv(o->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
		for (ssize_t i = 0; i < n; i++, o->n_heard++)
			if (o->n_heard < GREETING_BYTES)
				o->theirs[o->n_heard] = bytes[i];
			else /* a connector proves first: an acceptor refuses with zero bytes */
				HOLDS(!o->connector || o->has_proved || bytes[i] == 0);
	HOLDS(o->has_proved || o->n_heard <= GREETING_BYTES + PROOF_BYTES);
}

static void sign(struct other *o, const char *label, unsigned char *ret)
{
	const struct hoist__piece pieces[] = {{label, 1},
					      {o->connector ? o->own : o->theirs, GREETING_BYTES},
					      {o->connector ? o->theirs : o->own, GREETING_BYTES}};
	hoist__secret_sign(secret.key, pieces, 3, ret);
}

static void say_proof(struct other *o)
{
	unsigned char proof[PROOF_BYTES];
	sign(o, o->connector ? "C" : "A", proof);
	sign(o, o->connector ? "c" : "a", o->key);
	o->has_proved = true;
	say(o, proof, sizeof proof);
}

enum damage { NONE, HEADER, BYTE, CUT, N_DAMAGES };

static void say_frame(struct other *o, struct fuzz_bytes *from, enum damage damage)
{
	static const unsigned char not_kind[] = {0, 1, 2, 3, 6, 7};
	unsigned char bytes[8 + LONGEST + TAG_BYTES], tag[HOIST__SECRET_BYTES];
	uint16_t size = (uint16_t)fuzz_below(from, fuzz_below(from, 4) ? 16 : LONGEST);
	size_t n = 8u + size;
	const uint32_t length = htole32(size);
	const uint16_t words[2] = {htole16((uint16_t)o->n_frames), 0};
	const uint64_t number = htole64(o->number++);
	memcpy(bytes, &length, 4);
	memcpy(bytes + 4, words, 4);
	memset(bytes + 8, (int)o->n_frames, size);
	if (damage == HEADER)
		bytes[not_kind[fuzz_below(from, 6)]] ^= (unsigned char)(1 + fuzz_below(from, 255));
	const struct hoist__piece pieces[] = {{&number, 8}, {bytes, n}};
	hoist__secret_sign(o->key, pieces, 2, tag);
	memcpy(bytes + n, tag, TAG_BYTES);
	n += TAG_BYTES;
	if (damage == BYTE)
		bytes[fuzz_below(from, n)] ^= (unsigned char)(1 + fuzz_below(from, 255));
	o->spoilt |= damage != NONE;
	if (!o->spoilt)
		o->sizes[o->n_frames++] = size;
	say(o, bytes, damage == CUT ? fuzz_below(from, n) : n);
}

static void say_something(struct other *o, struct fuzz_bytes *from)
{
	unsigned char bytes[256];
	size_t n = 0;
	uint64_t what = fuzz_below(from, 8);
	o->spoilt |= what < 4 && o->has_proved;
	switch (what) {
	case 0:
		n = 1 + fuzz_below(from, sizeof bytes);
		for (size_t i = 0; i < n; i++)
			bytes[i] = (unsigned char)fuzz_take(from, 1);
		say(o, bytes, n);
		break;
	case 1:
		say(o, o->own, GREETING_BYTES);
		break;
	case 2:
		say(o, o->own, 1 + fuzz_below(from, GREETING_BYTES - 1));
		break;
	case 3:
		say_proof(o);
		break;
	case 4:
	case 5:
		if (o->n_frames < MOST_FRAMES)
			say_frame(o, from, NONE);
		break;
	case 6:
		say_frame(o, from, (enum damage)(1 + fuzz_below(from, N_DAMAGES - 1)));
		break;
	default:
		HOLDS(shutdown(o->fd, SHUT_WR) == 0 || errno == ENOTCONN);
		break;
	}
}

/* --- the channel --- */

static void take_frames(struct other *o, struct hoist__channel *channel)
{
	struct hoist__frame frame;
	while (hoist__channel_next(channel, &frame)) {
		HOLDS(o->n_given < o->n_frames && frame.kind == o->n_given);
		HOLDS(frame.n_bytes == o->sizes[o->n_given]);
		for (size_t i = 0; i < frame.n_bytes; i++)
			HOLDS(frame.bytes[i] == (unsigned char)o->n_given);
		o->n_given++;
	}
}

static int work(struct other *o, struct hoist__channel *channel)
{
	int err = hoist__channel_work(channel);
	HOLDS(!hoist__channel_proved(channel) || o->has_proved);
	take_frames(o, channel);
	if (err == 0 && hoist__channel_proved(channel) && hoist__channel_queued(channel) < 4096)
		err = hoist__channel_send(channel, 1, "hello", 5);
	if (err < 0)
		fuzz_check_text(hoist_error());
	HOLDS(err == 0 || err == -EPROTO || err == -EACCES || err == -EBADMSG ||
	      err == -ECONNRESET);
	return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct fuzz_bytes from = {bytes, n};
	if (listening < 0)
		begin();
	size_t n_fds = fuzz_n_fds();
	uint64_t how = fuzz_below(&from, 8);
	struct other o = {.connector = how & 1};
	struct hoist__channel *channel = open_both(&o);
	(void)work(&o, channel);
	if (how & 2) {
		/* As it should begin: most of what follows are frames. */
		hear(&o);
		say(&o, o.own, GREETING_BYTES);
		(void)work(&o, channel);
		hear(&o);
		say_proof(&o);
	}
	int err = work(&o, channel);
	for (unsigned i = 0; err == 0 && from.n > 0 && i < 256; i++) {
		hear(&o);
		say_something(&o, &from);
		err = work(&o, channel);
	}
	hear(&o);
	HOLDS(close(o.fd) == 0);
	hoist__channel_close(channel);
	HOLDS(fuzz_n_fds() == n_fds);
	return 0;
}
