/* SPDX-License-Identifier: MIT */
/* net/channel.c - connecting, greetings and proofs.
 * The contract is in net/channel.h. */
#include "config.h"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/channel-private.h"

/* --- beginning and end --- */

/* Takes @fd, also if it fails. */
static int make(int fd, const struct hoist__secret *secret, struct hoist__channel **ret)
{
	struct hoist__channel *c = calloc(1, sizeof(*c));
	if (c == NULL) {
		(void)close(fd);
		return hoist__fail_nomem("a connection", sizeof(*c));
	}
	const int on = 1;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* merely faster */
	const uint32_t version = htole32(HOIST__CHANNEL_VERSION);
	c->fd = fd;
	c->began_ns = hoist__now_ns();
	memcpy(c->secret, secret->key, sizeof(c->secret));
	memcpy(c->own.magic, HOIST__CHANNEL_MAGIC, sizeof(c->own.magic));
	memcpy(c->own.version, &version, sizeof(version));
	hoist__secret_random(c->own.nonce, sizeof(c->own.nonce));
	*ret = c;
	return 0;
}

static int fail_connect(int errnum, const struct hoist__address *to)
{
	return hoist__fail(-errnum, "connecting to %s: %s%s", to->text, strerror(errnum),
			   hoist__address_remedy(errnum));
}

int hoist__channel_connect(const struct hoist__address *to, const struct hoist__secret *secret,
			   struct hoist__channel **ret)
{
	int fd = socket(to->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail_connect(errno, to);
	struct hoist__channel *c;
	int err = make(fd, secret, &c);
	if (err < 0)
		return err;
	c->connector = true;
	c->peer = *to;
	/* After EINTR, too, the kernel goes on. */
	if (connect(fd, (const struct sockaddr *)&to->socket, to->bytes) < 0 &&
	    errno != EINPROGRESS && errno != EINTR) {
		err = fail_connect(errno, to);
		hoist__channel_close(c);
		return err;
	}
	*ret = c;
	return 0;
}

int hoist__channel_accept(int socket, const struct hoist__secret *secret,
			  struct hoist__channel **ret)
{
	struct sockaddr_storage peer;
	socklen_t bytes = sizeof(peer);
	struct hoist__channel *c;
	int err = make(socket, secret, &c);
	if (err < 0)
		return err;
	c->state = HOIST__CHANNEL_GREETING;
	err = getpeername(socket, (struct sockaddr *)&peer, &bytes) < 0
		      ? hoist__fail_errno(errno == ENOTCONN ? -ECONNRESET : -errno,
					  "finding the other end's address")
		      : hoist__address_make((const struct sockaddr *)&peer, bytes, &c->peer);
	if (err < 0)
		hoist__channel_close(c);
	else
		*ret = c;
	return err;
}

void hoist__channel_close(struct hoist__channel *channel)
{
	if (channel == NULL)
		return;
	(void)close(channel->fd);
	free(channel->in.bytes);
	free(channel->out.bytes);
	explicit_bzero(channel, sizeof(*channel));
	free(channel);
}

/* --- connecting --- */

/* A socket that connects to a port of its own machine where nobody listens may get this very port:
 * the kernel connects it to itself. */
static bool is_own_end(const struct hoist__channel *c)
{
	struct sockaddr_storage own;
	struct hoist__address address;
	socklen_t bytes = sizeof(own);
	return getsockname(c->fd, (struct sockaddr *)&own, &bytes) == 0 &&
	       hoist__address_make((const struct sockaddr *)&own, bytes, &address) == 0 &&
	       strcmp(address.text, c->peer.text) == 0;
}

static int finish_connect(struct hoist__channel *c)
{
	struct pollfd ready = {.fd = c->fd, .events = POLLOUT};
	int errnum = 0;
	socklen_t bytes = sizeof(errnum);
	int n = poll(&ready, 1, 0);
	if (n == 0 || (n < 0 && errno == EINTR))
		return 0;
	if (n < 0 || getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &errnum, &bytes) < 0)
		errnum = errno;
	if (errnum == 0 && is_own_end(c))
		errnum = ECONNREFUSED;
	if (errnum != 0)
		return fail_connect(errnum, &c->peer);
	c->state = HOIST__CHANNEL_GREETING;
	return hoist__channel_queue(c, &c->own, sizeof(c->own));
}

/* --- greetings --- */

/* The first bytes are judged as they come: other protocols may say less than a greeting, and then
 * wait. */
static int check_magic(const struct hoist__channel *c)
{
	const size_t most = sizeof(c->theirs.magic);
	if (memcmp(c->theirs.magic, HOIST__CHANNEL_MAGIC,
		   c->early_bytes < most ? c->early_bytes : most) == 0)
		return 0;
	return hoist__fail(-EPROTO, "%s does not speak hoist's protocol; is the port right?",
			   c->peer.text);
}

static uint32_t their_version(const struct hoist__channel *c)
{
	uint32_t version;
	memcpy(&version, c->theirs.version, sizeof(version));
	return le32toh(version);
}

/* @label: "C", "A" for proofs, "c", "a" for the keys of the directions. */
static void sign(const struct hoist__channel *c, const char *label,
		 unsigned char ret[static HOIST__SECRET_BYTES])
{
	const struct hoist__piece pieces[] = {
		{label, 1},
		{c->connector ? &c->own : &c->theirs, sizeof(c->own)},
		{c->connector ? &c->theirs : &c->own, sizeof(c->own)},
	};
	hoist__secret_sign(c->secret, pieces, 3, ret);
}

static int queue_proof(struct hoist__channel *c)
{
	unsigned char proof[HOIST__SECRET_BYTES];
	sign(c, c->connector ? "C" : "A", proof);
	return hoist__channel_queue(c, proof, sizeof(proof));
}

/* Bytes of the other side's greeting have come.  An acceptor answers another version, too, so that
 * both sides can say which versions they are. */
static int take_greeting(struct hoist__channel *c)
{
	int err = check_magic(c);
	if (err < 0 || c->early_bytes < offsetof(struct hoist__greeting, nonce))
		return err;
	bool same = their_version(c) == HOIST__CHANNEL_VERSION;
	if (same && c->early_bytes < sizeof(c->theirs))
		return 0;
	if (!c->connector)
		err = hoist__channel_queue(c, &c->own, sizeof(c->own));
	if (err < 0)
		return err;
	if (!same) {
		hoist__channel_flush(c);
		return hoist__fail(-EPROTO,
				   "%s speaks version %u of the protocol, and this process version "
				   "%u; use the same release of hoist on all machines",
				   c->peer.text, their_version(c), HOIST__CHANNEL_VERSION);
	}
	c->state = HOIST__CHANNEL_PROVING;
	c->early_bytes = 0;
	return c->connector ? queue_proof(c) : 0;
}

/* Tells the connector that its proof is wrong.  If there is no memory for that, the connector only
 * sees that the connection ends. */
static void refuse(struct hoist__channel *c)
{
	static const unsigned char refusal[HOIST__SECRET_BYTES] = {0};
	if (hoist__channel_queue(c, refusal, sizeof(refusal)) == 0)
		hoist__channel_flush(c);
}

static int take_proof(struct hoist__channel *c)
{
	unsigned char expected[HOIST__SECRET_BYTES];
	sign(c, c->connector ? "A" : "C", expected);
	bool same = hoist__secret_same(c->proof, expected, sizeof(expected));
	explicit_bzero(expected, sizeof(expected));
	if (!same) {
		if (!c->connector)
			refuse(c);
		return hoist__fail(-EACCES,
				   "%s does not know this group's secret; give all members the "
				   "same one (HOIST_GROUP_SECRET_FILE)",
				   c->peer.text);
	}
	int err = c->connector ? 0 : queue_proof(c);
	if (err < 0)
		return err;
	c->in.bytes = malloc(HOIST__CHANNEL_FRAME_BYTES);
	if (c->in.bytes == NULL)
		return hoist__fail_nomem("a connection", HOIST__CHANNEL_FRAME_BYTES);
	sign(c, c->connector ? "a" : "c", c->in.direction.key);
	sign(c, c->connector ? "c" : "a", c->out.direction.key);
	explicit_bzero(c->secret, sizeof(c->secret));
	c->state = HOIST__CHANNEL_PROVED;
	return 0;
}

/* Reads the bytes of the greeting or the proof that are there, and no byte behind. */
static int read_early(struct hoist__channel *c)
{
	bool greeting = c->state == HOIST__CHANNEL_GREETING;
	unsigned char *to = greeting ? (unsigned char *)&c->theirs : c->proof;
	size_t whole = greeting ? sizeof(c->theirs) : sizeof(c->proof);
	size_t n = hoist__channel_receive(c, to + c->early_bytes, whole - c->early_bytes);
	c->early_bytes += n;
	if (n > 0 && greeting)
		return take_greeting(c);
	return n > 0 && c->early_bytes == whole ? take_proof(c) : 0;
}

static int move_early(struct hoist__channel *c)
{
	size_t before;
	enum hoist__channel_state state;
	int err = 0;
	if (c->state == HOIST__CHANNEL_CONNECTING)
		err = finish_connect(c);
	if (err < 0 || c->state == HOIST__CHANNEL_CONNECTING)
		return err;
	do {
		state = c->state;
		before = c->early_bytes;
		err = read_early(c);
	} while (err == 0 && c->state != HOIST__CHANNEL_PROVED &&
		 (c->state != state || c->early_bytes != before));
	return err;
}

/* --- work --- */

static int check_end(struct hoist__channel *c)
{
	bool proved = c->state == HOIST__CHANNEL_PROVED;
	if (c->broken < 0 && c->in.begin == c->in.good)
		return hoist__channel_fail_broken(c);
	if (!proved && hoist__now_ns() - c->began_ns >= HOIST__CHANNEL_GREET_NS)
		return hoist__fail(-ETIMEDOUT, "%s did not %s within %g s", c->peer.text,
				   c->state == HOIST__CHANNEL_CONNECTING ? "accept the connection"
				   : c->state == HOIST__CHANNEL_GREETING
					   ? "say that it is hoist"
					   : "prove that it knows the secret",
				   (double)HOIST__CHANNEL_GREET_NS / (double)HOIST__NS_PER_S);
	return 0;
}

/* Reads last: where writing finds that the other side has closed, its last frames are there. */
static int work(struct hoist__channel *c)
{
	int err = c->state == HOIST__CHANNEL_PROVED ? 0 : move_early(c);
	if (err < 0)
		return err;
	if (c->state != HOIST__CHANNEL_CONNECTING)
		hoist__channel_flush(c);
	if (c->state == HOIST__CHANNEL_PROVED)
		err = hoist__channel_read_frames(c);
	return err < 0 ? err : check_end(c);
}

int hoist__channel_work(struct hoist__channel *channel)
{
	if (channel->err == 0) {
		channel->err = work(channel);
		if (channel->err == 0)
			return 0;
		hoist__failure_keep(&channel->failure);
	}
	return hoist__fail_again(channel->err, &channel->failure);
}

/* --- questions --- */

bool hoist__channel_ended(const struct hoist__channel *channel)
{
	struct pollfd entry = {.fd = channel->fd, .events = POLLRDHUP};
	return poll(&entry, 1, 0) > 0;
}

int hoist__channel_fd(const struct hoist__channel *channel)
{
	return channel->fd;
}

bool hoist__channel_blocked(const struct hoist__channel *channel)
{
	return channel->err == 0 && (channel->state == HOIST__CHANNEL_CONNECTING ||
				     channel->out.begin < channel->out.end);
}

bool hoist__channel_proved(const struct hoist__channel *channel)
{
	return channel->state == HOIST__CHANNEL_PROVED;
}

size_t hoist__channel_queued(const struct hoist__channel *channel)
{
	return channel->out.end - channel->out.begin;
}

const struct hoist__address *hoist__channel_peer(const struct hoist__channel *channel)
{
	return &channel->peer;
}
