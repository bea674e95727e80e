/* SPDX-License-Identifier: MIT */
/* The far thread: waits for sockets, the fabric, the bell and the clock.
 * The contract is in lib/far/far.h. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "lib/far/far.h"

/* Beats come earlier, but not more often than every MOVED_NS, when so many of the slots' cells were
 * done: others keep a slot until they hear that. */
#define MOVED_NS (HOIST__FAR_BEAT_NS / 20)
#define MOVED_SHARE 4u
#define SETTLE_NS (UINT64_C(1) * 1000000)     /* between two looks whether all is over */
#define STOPPED_NS (UINT64_C(1000) * 1000000) /* a round that took so long was interrupted */
#define LEAVE_NS (UINT64_C(2000) * 1000000)   /* for each step of leaving */

void hoist__far_ring(struct hoist__far *far)
{
	const uint64_t one = 1;
	(void)!write(far->bell, &one, sizeof one);
}

static void look_at_share(struct hoist__far *far)
{
	pthread_mutex_lock(&far->lock);
	unsigned weight = far->beat_share.weight;
	if (far->ready)
		far->beat_share = hoist__swarm_update_share(far->swarm);
	pthread_mutex_unlock(&far->lock);
	if (weight != far->beat_share.weight)
		hoist__log(load,
			   "group \"%s\": this member reads %llu MB/s, and has %u of %u turns from "
			   "cell %zu on",
			   far->name, (unsigned long long)(far->beat_share.rate / 1000000),
			   far->beat_share.weight, HOIST__SWARM_FULL, far->beat_share.from);
}

/* Notes how far this member is, for the next BEAT: at times, when many cells were done since the
 * last one, and at the end. */
static void beat(struct hoist__far *far, uint64_t now)
{
	size_t done = 0;
	if (far->ready) {
		pthread_mutex_lock(&far->lock);
		const struct hoist__swarm_counts *counts = hoist__swarm_counts(far->swarm);
		done = hoist__swarm_done(far->swarm);
		far->beat_counts[0] = counts->read_bytes;
		far->beat_counts[1] = counts->received_bytes;
		far->beat_counts[2] = counts->sent_bytes;
		pthread_mutex_unlock(&far->lock);
	}
	bool ended = done == far->cells.n && far->beat_done != done;
	bool moved = done >= far->beat_done + far->n_slots / MOVED_SHARE &&
		     now > far->beat_at + MOVED_NS;
	if (ended || moved || now > far->beat_at + HOIST__FAR_BEAT_NS) {
		far->beat_at = now;
		far->beat_done = done;
		look_at_share(far);
	}
}

static void hear_peers(struct hoist__far *far, const struct pollfd *fds, const unsigned *which,
		       unsigned n, uint64_t now)
{
	for (unsigned i = 0; i < n; i++) {
		struct hoist__far_peer *peer = &far->peers[which[i]];
		if (peer->channel != NULL &&
		    (fds[i].revents != 0 || !hoist__channel_proved(peer->channel)))
			hoist__far_peer_work(far, peer, now);
	}
}

static void look_at_peers(struct hoist__far *far, uint64_t now)
{
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		if (far->peers[i].channel != NULL)
			hoist__far_peer_look(far, &far->peers[i], now);
}

/* Waits until @wake, or until there is something to see. */
static void wait(struct hoist__far *far, uint64_t wake)
{
	struct pollfd fds[3 + HOIST__FAR_DOORS + HOIST__FAR_PEERS];
	unsigned which[HOIST__FAR_PEERS];
	unsigned n = 0;
	uint64_t rings;
	uint64_t now = hoist__now_ns();
	fds[n++] = (struct pollfd){.fd = far->bell, .events = POLLIN};
	bool accepts = hoist__far_accepts(far, now);
	for (unsigned i = 0; i < HOIST__FAR_DOORS; i++)
		fds[n++] = (struct pollfd){.fd = accepts ? far->door_fd[i] : -1, .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = accepts ? far->listen_fd : -1, .events = POLLIN};
	int fabric = far->fabric != NULL ? hoist__fabric_fd(far->fabric) : -1;
	fds[n++] = (struct pollfd){.fd = fabric, .events = POLLIN};
	unsigned first = n;
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		const struct hoist__channel *channel = far->peers[i].channel;
		if (channel == NULL)
			continue;
		short events = hoist__channel_blocked(channel) ? POLLIN | POLLOUT : POLLIN;
		which[n - first] = i;
		fds[n++] = (struct pollfd){.fd = hoist__channel_fd(channel), .events = events};
	}
	bool sleeps = wake > now && (far->fabric == NULL || hoist__fabric_arm(far->fabric));
	int ms = sleeps ? (int)((wake - now) / 1000000) + 1 : 0;
	if (poll(fds, n, ms) < 0) {
		if (errno != EINTR)
			hoist__far_fail(far, hoist__fail_errno(-errno, "waiting for a group"));
		return;
	}
	if (fds[0].revents != 0)
		(void)!read(far->bell, &rings, sizeof rings);
	hear_peers(far, &fds[first], which, n - first, hoist__now_ns());
}

static unsigned n_peers(const struct hoist__far *far)
{
	unsigned n = 0;
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		n += far->peers[i].has_hello;
	return n;
}

/* Goes on without new deeds until @is_over.  False: that takes too long. */
static bool settle(struct hoist__far *far, bool (*is_over)(struct hoist__far *far))
{
	uint64_t end = hoist__now_ns() + LEAVE_NS;
	for (;;) {
		hoist__far_give_back_all(far); /* slots may be lent until BYE */
		if (is_over(far))
			return true;
		uint64_t now = hoist__now_ns();
		if (now > end)
			return false;
		hoist__fabric_progress(far->fabric);
		look_at_peers(far, now);
		wait(far, now + SETTLE_NS);
	}
}

static bool is_still(struct hoist__far *far)
{
	return !hoist__far_is_sending(far, NULL) && !hoist__far_is_taking(far);
}

static bool is_left(struct hoist__far *far)
{
	return n_peers(far) == 0;
}

/* Leaves the group, as far.h says. */
static void leave(struct hoist__far *far)
{
	const struct hoist__wire_message bye = {.kind = HOIST__WIRE_BYE};
	hoist__far_close(far);
	bool still = settle(far, is_still);
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		if (far->peers[i].has_hello)
			hoist__far_say(far, &far->peers[i], &bye);
	if (still)
		(void)settle(far, is_left);
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		if (far->peers[i].channel != NULL)
			hoist__far_peer_drop(far, &far->peers[i], "this member ends",
					     hoist__now_ns());
}

/* A process that was stopped has not read the others' messages of that time. */
static void excuse_silence(struct hoist__far *far, uint64_t gap, uint64_t now)
{
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		far->peers[i].heard_at += gap;
	hoist__far_excuse_lent(far, gap);
	hoist__far_excuse_takers(far, gap);
	if (!far->ready)
		return;
	pthread_mutex_lock(&far->lock);
	hoist__swarm_wait_anew(far->swarm, now);
	pthread_mutex_unlock(&far->lock);
}

static void *run(void *argument)
{
	struct hoist__far *far = argument;
	uint64_t last = hoist__now_ns();
	while (!atomic_load(&far->stopping)) {
		uint64_t now = hoist__now_ns();
		if (now - last > STOPPED_NS)
			excuse_silence(far, now - last, now);
		last = now;
		uint64_t wake = now + HOIST__FAR_BEAT_NS / 2;
		if (far->fabric != NULL) {
			hoist__far_meet(far, now);
			hoist__fabric_progress(far->fabric);
		}
		if (far->state == HOIST__FAR_BEGUN && far->err == 0) {
			uint64_t at = hoist__far_move(far, now);
			wake = at < wake ? at : wake;
		}
		beat(far, now);
		look_at_peers(far, now);
		if (!atomic_load(&far->stopping))
			wait(far, wake);
		/* The load's thread may be waiting to end. */
		if (far->whole)
			hoist__engine_wake(far->load->job.engine);
	}
	leave(far);
	return NULL;
}

int hoist__far_start(struct hoist__far *far)
{
	int err = hoist__thread_start(NULL, run, far, &far->thread);
	far->has_thread = err == 0;
	return err < 0 ? hoist__fail_thread(err, "starting a group's thread") : 0;
}

void hoist__far_stop(struct hoist__far *far)
{
	atomic_store(&far->stopping, true);
	if (far->has_thread) {
		hoist__far_ring(far);
		pthread_join(far->thread, NULL);
	}
	far->has_thread = false;
}
