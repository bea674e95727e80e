/* SPDX-License-Identifier: MIT */
/* The transport of one machine: slots, cells, the watch over the others.
 * The contract is in lib/group/transport.h and group-shm.h. */
#include "config.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "alloc/populate.h"
#include "alloc/region.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "lib/group/group-shm.h"

#define MOST_TICK_NS (UINT64_C(250) * 1000000)

_Static_assert(sizeof(struct hoist__shm_header) <= HOIST__SHM_HEADER_BYTES, "there is room");

static size_t wants_bytes(const struct hoist__transport *t)
{
	return (size_t)hoist__round_up(hoist__wants_words(t->options.n_cells) * sizeof(uint64_t),
				       HOIST__BLOCK_BYTES);
}

size_t hoist__shm_slots_at(const struct hoist__transport *t)
{
	return (size_t)hoist__round_up(HOIST__SHM_HEADER_BYTES + wants_bytes(t), HOIST__CELL_BYTES);
}

static unsigned char *slot_of(const struct hoist__transport *t, unsigned rank, uint32_t ordinal)
{
	return (unsigned char *)hoist__shared_address(t->peers[rank].shared) +
	       hoist__shm_slots_at(t) + ordinal % t->peers[rank].n_slots * HOIST__CELL_BYTES;
}

void hoist__shm_ring(const struct hoist__transport *t, unsigned rank)
{
	const uint64_t one = 1;
	if (t->peers[rank].bell >= 0)
		(void)!write(t->peers[rank].bell, &one, sizeof one);
}

/* Rings those of @ranks that wait. */
static void ring_waiting(const struct hoist__transport *t, uint64_t ranks)
{
	ranks &= ~(UINT64_C(1) << t->options.rank);
	for (; ranks != 0; ranks &= ranks - 1) {
		unsigned r = (unsigned)__builtin_ctzll(ranks);
		if (atomic_load(&t->peers[r].header->waits) != 0)
			hoist__shm_ring(t, r);
	}
}

void hoist__shm_hang_up(struct hoist__shm_peer *peer)
{
	if (peer->socket >= 0)
		(void)close(peer->socket);
	if (peer->process >= 0)
		(void)close(peer->process);
	peer->socket = peer->process = -1;
}

static void ring_all(const struct hoist__transport *t)
{
	for (unsigned r = 0; r < t->options.n_ranks; r++)
		if (r != t->options.rank)
			hoist__shm_ring(t, r);
}

/* --- failure --- */

static bool all_done(const struct hoist__transport *t)
{
	bool done = true;
	for (unsigned r = 0; r < t->options.n_ranks && done; r++)
		done = t->peers[r].header != NULL && atomic_load(&t->peers[r].header->done) != 0;
	return done;
}

/* Keeps the first failure, which is in hoist_error(), and tells the others. */
static void fail(struct hoist__transport *t, int err)
{
	struct hoist__shm_header *own = hoist__shm_own(t);
	pthread_mutex_lock(&t->lock);
	if (t->err == 0) {
		t->err = err;
		hoist__failure_keep(&t->failure);
		(void)snprintf(own->text, sizeof own->text, "%.*s", (int)sizeof own->text - 1,
			       t->failure.text);
		atomic_store(&own->failed, err);
	}
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	ring_all(t);
	t->options.moved(t->options.context);
}

/* Looks whether a rank has left, and says why.  A text that names a rank already is passed on. */
static int look_at_failures(const struct hoist__transport *t)
{
	for (unsigned r = 0; r < t->options.n_ranks; r++) {
		char text[HOIST__SHM_TEXT_BYTES];
		int err = atomic_load(&t->peers[r].header->failed);
		if (r == t->options.rank || err == 0)
			continue;
		memcpy(text, t->peers[r].header->text, sizeof text);
		hoist__shm_clean(text);
		if (err == -ECONNRESET || err == -ETIMEDOUT)
			return hoist__fail(err, "%s", text);
		return hoist__fail(-ECONNRESET, "rank %u of the group \"%s\" left: %s", r, t->name,
				   text);
	}
	return 0;
}

/* --- the watch --- */

static int look_at_beats(struct hoist__transport *t)
{
	if (atomic_exchange(&t->stepped, false))
		atomic_fetch_add(&hoist__shm_own(t)->beat, 1);
	for (unsigned r = 0; r < t->options.n_ranks; r++) {
		struct hoist__shm_peer *peer = &t->peers[r];
		uint32_t beat = atomic_load(&peer->header->beat);
		peer->n_silent =
			r == t->options.rank || beat != peer->beat ? 0 : peer->n_silent + 1;
		peer->beat = beat;
		if (peer->n_silent > t->n_ticks)
			return hoist__fail(-ETIMEDOUT,
					   "rank %u of the group \"%s\" has stopped: it gave no "
					   "sign of life for %g s",
					   r, t->name, (double)t->options.timeout_ns / 1e9);
	}
	return 0;
}

/* The rank's process or connection has ended. */
static int look_at_end(struct hoist__transport *t, unsigned rank)
{
	hoist__shm_hang_up(&t->peers[rank]);
	int err = all_done(t) ? 0 : look_at_failures(t);
	if (err == 0 && !all_done(t))
		err = hoist__fail(-ECONNRESET, "rank %u of the group \"%s\" ended", rank, t->name);
	return err;
}

/* Waits for a bell, the end of a rank or the next tick.  Returns: 0; -ECONNRESET. */
static int wait_once(struct hoist__transport *t, uint64_t ns)
{
	struct pollfd fds[2 * HOIST__GROUP_RANKS];
	unsigned ranks[2 * HOIST__GROUP_RANKS];
	unsigned n = 1;
	uint64_t rings;
	fds[0] = (struct pollfd){.fd = t->peers[t->options.rank].bell, .events = POLLIN};
	for (unsigned r = 0; r < t->options.n_ranks; r++)
		for (unsigned i = 0; i < 2 && t->peers[r].socket >= 0; i++) {
			int fd = i == 0 ? t->peers[r].socket : t->peers[r].process;
			ranks[n] = r;
			fds[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
		}
	int ready = poll(fds, n, (int)(ns / 1000000) + 1);
	if (ready < 0 && errno != EINTR)
		return hoist__fail_errno(-errno, "watching the ranks");
	if (ready > 0 && fds[0].revents != 0) {
		(void)!read(fds[0].fd, &rings, sizeof rings);
		/* Before the look: what comes behind the look rings again, if the look was in vain.
		 */
		atomic_store(&hoist__shm_own(t)->waits, 0);
		t->options.moved(t->options.context);
	}
	int err = 0;
	for (unsigned i = 1; ready > 0 && i < n && err == 0; i++)
		if (fds[i].revents != 0 && t->peers[ranks[i]].socket >= 0)
			err = look_at_end(t, ranks[i]);
	return err;
}

static void watch(struct hoist__transport *t)
{
	uint64_t next = hoist__now_ns();
	int err = 0;
	while (err == 0 && !atomic_load(&t->stopping)) {
		uint64_t now = hoist__now_ns();
		err = all_done(t) ? 0 : look_at_failures(t);
		if (err == 0 && now >= next) {
			err = look_at_beats(t);
			err = all_done(t) ? 0 : err;
			next = now + t->tick_ns;
		}
		if (err == 0)
			err = wait_once(t, next > now ? next - now : 0);
	}
	if (err < 0)
		fail(t, err);
}

static void *run(void *argument)
{
	struct hoist__transport *t = argument;
	int err = hoist__shm_meet(t);
	if (err < 0) {
		fail(t, err);
		hoist__shm_dismiss(t, err);
		return NULL;
	}
	pthread_mutex_lock(&t->lock);
	t->state = HOIST__SHM_MET;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	t->options.moved(t->options.context);
	watch(t);
	return NULL;
}

/* --- begin and end --- */

static void shm_stop(struct hoist__transport *t)
{
	atomic_store(&t->stopping, true);
	if (t->has_thread) {
		hoist__shm_ring(t, t->options.rank);
		pthread_join(t->thread, NULL);
	}
	t->has_thread = false;
}

static void shm_close(struct hoist__transport *t)
{
	if (t == NULL)
		return;
	shm_stop(t);
	for (unsigned r = 0; r < HOIST__GROUP_RANKS; r++) {
		struct hoist__shm_peer *peer = &t->peers[r];
		hoist__shm_hang_up(peer);
		if (peer->bell >= 0)
			(void)close(peer->bell);
		for (unsigned s = 0; s < peer->n_slots; s++)
			if (peer->pinned[s])
				hoist__cell_unpin(&t->pins, slot_of(t, r, s), &peer->pinned[s]);
		hoist__shared_close(peer->shared);
	}
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static int check_name(const char *name)
{
	size_t n = strlen(name);
	if (n > 0 && n < HOIST__SHM_NAME_BYTES)
		return 0;
	return hoist__fail(-EINVAL,
			   "the group's name has %zu bytes behind \"shm:\"; it has 1 to %u", n,
			   HOIST__SHM_NAME_BYTES - 1);
}

/* Makes this rank's memory and bell. */
static int make_own(struct hoist__transport *t)
{
	struct hoist__shm_peer *own = &t->peers[t->options.rank];
	int fd = -1;
	own->n_slots = t->options.n_slots;
	int err = hoist__shared_create(
		hoist__shm_slots_at(t) + own->n_slots * (size_t)HOIST__CELL_BYTES, &own->shared);
	if (err == 0)
		err = hoist__shared_export(own->shared, true, &fd);
	if (err < 0)
		return err;
	(void)close(fd);
	own->header = (struct hoist__shm_header *)hoist__shared_address(own->shared);
	memcpy((unsigned char *)own->header + HOIST__SHM_HEADER_BYTES, t->options.wants,
	       hoist__wants_words(t->options.n_cells) * sizeof *t->options.wants);
	own->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return own->bell < 0 ? hoist__fail_errno(-errno, "a bell of a group") : 0;
}

static int shm_open_(const struct hoist__transport_options *options, struct hoist__transport **ret)
{
	int err = check_name(options->name);
	if (err < 0)
		return err;
	struct hoist__transport *t = calloc(1, sizeof *t);
	if (t == NULL)
		return hoist__fail_nomem("a group", sizeof *t);
	t->options = *options;
	(void)snprintf(t->name, sizeof t->name, "%s", options->name);
	t->tick_ns = hoist__min_u64(options->timeout_ns / 16 + 1, MOST_TICK_NS);
	t->n_ticks = (unsigned)hoist__min_u64(options->timeout_ns / t->tick_ns + 1, UINT32_MAX / 2);
	for (unsigned r = 0; r < HOIST__GROUP_RANKS; r++)
		t->peers[r].bell = t->peers[r].socket = t->peers[r].process = -1;
	err = hoist__condition_init(&t->changed);
	if (err < 0) {
		free(t);
		return hoist__fail_errno(-ENOMEM, "a group's condition");
	}
	pthread_mutex_init(&t->lock, NULL);
	err = make_own(t);
	if (err == 0) {
		err = hoist__thread_start(NULL, run, t, &t->thread);
		t->has_thread = err == 0;
		err = err < 0 ? hoist__fail_thread(err, "starting a group's thread") : 0;
	}
	if (err < 0)
		shm_close(t);
	else
		*ret = t;
	return err;
}

static int shm_meet(struct hoist__transport *t, uint64_t timeout_ns)
{
	atomic_store(&t->stepped, true);
	pthread_mutex_lock(&t->lock);
	if (t->err == 0 && t->state == HOIST__SHM_MEETING && timeout_ns > 0)
		(void)hoist__condition_wait(&t->changed, &t->lock, hoist__deadline(timeout_ns));
	int err = t->err < 0			   ? hoist__fail_again(t->err, &t->failure)
		  : t->state == HOIST__SHM_MEETING ? 1
						   : 0;
	pthread_mutex_unlock(&t->lock);
	return err;
}

static const uint64_t *shm_wants(const struct hoist__transport *t, unsigned rank)
{
	return (const uint64_t *)(hoist__shared_address(t->peers[rank].shared) +
				  HOIST__SHM_HEADER_BYTES);
}

/* --- cells --- */

/* Have the ranks @before released the cell that the slot of cell @ordinal had before? */
static bool released(const struct hoist__transport *t, uint32_t ordinal, uint64_t before)
{
	unsigned n_slots = t->options.n_slots;
	unsigned s = ordinal % n_slots;
	bool all = true;
	for (unsigned r = 0; r < t->options.n_ranks && all; r++)
		all = (before >> r & 1) == 0 ||
		      atomic_load(&t->peers[r].header->released[t->options.rank][s]) ==
			      ordinal - n_slots + 1;
	return all;
}

/* This rank is to be rung.  The caller looks once more: what came before is not rung for. */
static void wait_for_ring(const struct hoist__transport *t)
{
	atomic_store(&hoist__shm_own(t)->waits, 1);
}

/* Takes the memory of a slot, which must fail here, and not as SIGBUS at a touch.  A huge page, as
 * direct reads into small pages are slower. */
static int populate_slot(unsigned char *slot)
{
	const struct hoist__populate_job job = {
		.base = slot,
		.bytes = HOIST__CELL_BYTES,
		.n_threads = 1,
		.collapse = true,
	};
	struct hoist__populate_report report;
	int err = hoist__populate_parallel(&job, &report);
	if (err < 0)
		return hoist__fail_errno(err == -EAGAIN ? -ENOMEM : err,
					 "memory that a group shares");
	return 0;
}

static int shm_slot(struct hoist__transport *t, uint32_t ordinal, uint64_t before,
		    unsigned char **ret)
{
	unsigned char *slot = slot_of(t, t->options.rank, ordinal);
	bool first = ordinal < t->options.n_slots;
	if (!first && !released(t, ordinal, before)) {
		wait_for_ring(t);
		if (!released(t, ordinal, before))
			return 0;
	}
	int err = first ? populate_slot(slot) : 0;
	if (err < 0)
		return err;
	*ret = slot;
	return 1;
}

static void shm_publish(struct hoist__transport *t, uint32_t ordinal, uint64_t wanted_by)
{
	atomic_store(&hoist__shm_own(t)->published[ordinal % t->options.n_slots], ordinal + 1);
	ring_waiting(t, wanted_by);
	t->options.moved(t->options.context);
}

static const unsigned char *shm_arrived(const struct hoist__transport *t, unsigned owner,
					uint32_t ordinal)
{
	const _Atomic uint32_t *published =
		&t->peers[owner].header->published[ordinal % t->peers[owner].n_slots];
	bool there = atomic_load(published) == ordinal + 1;
	if (!there) {
		wait_for_ring(t);
		there = atomic_load(published) == ordinal + 1;
	}
	return there ? slot_of(t, owner, ordinal) : NULL;
}

static unsigned char *shm_reach(struct hoist__transport *t, struct hoist__dev *dev, unsigned owner,
				uint32_t ordinal)
{
	bool *pinned = &t->peers[owner].pinned[ordinal % t->peers[owner].n_slots];
	unsigned char *slot = slot_of(t, owner, ordinal);
	bool read_only = owner != t->options.rank;
	return hoist__cell_pin(&t->pins, dev, slot, read_only, pinned) ? slot : NULL;
}

static void shm_release(struct hoist__transport *t, unsigned owner, uint32_t ordinal)
{
	atomic_store(&hoist__shm_own(t)->released[owner][ordinal % t->peers[owner].n_slots],
		     ordinal + 1);
	if (owner != t->options.rank)
		ring_waiting(t, UINT64_C(1) << owner);
	else
		t->options.moved(t->options.context);
}

static int shm_check(struct hoist__transport *t)
{
	atomic_store(&t->stepped, true);
	pthread_mutex_lock(&t->lock);
	int err = t->err < 0 ? hoist__fail_again(t->err, &t->failure) : 0;
	pthread_mutex_unlock(&t->lock);
	return err;
}

static bool shm_finish(struct hoist__transport *t)
{
	if (atomic_exchange(&hoist__shm_own(t)->done, 1) == 0)
		ring_all(t);
	return all_done(t);
}

static void shm_leave(struct hoist__transport *t)
{
	if (!all_done(t))
		fail(t, -ECANCELED);
}

const struct hoist__transport_ops hoist__transport_shm = {
	.scheme = "shm:",
	.open = shm_open_,
	.meet = shm_meet,
	.wants = shm_wants,
	.slot = shm_slot,
	.publish = shm_publish,
	.arrived = shm_arrived,
	.reach = shm_reach,
	.release = shm_release,
	.check = shm_check,
	.finish = shm_finish,
	.leave = shm_leave,
	.stop = shm_stop,
	.close = shm_close,
};
