/* SPDX-License-Identifier: MIT */
/* How members find each other, and when a member begins.
 * The contract is in lib/far/far.h. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "lib/far/far.h"

#define TRY_NS (UINT64_C(100) * 1000000)	  /* between two tries of the door */
#define RETAKE_NS (UINT64_C(1) * HOIST__NS_PER_S) /* the same, once the group is there */
#define MOST_TRIES 3u				  /* to greet a member that is known */

/* --- sockets --- */

/* Tries to be the door.  True: this member is.  The first of HOST's addresses that are this
 * machine's decides: if it is taken, another member is the door.  The door listens at the others,
 * too: members may reach only some of them. */
static bool take_door(struct hoist__far *far)
{
	int err = 0;
	for (unsigned i = 0; i < far->n_doors && (far->is_door || err != -EADDRINUSE); i++) {
		err = hoist__address_listen(&far->door[i], &far->door_fd[i], NULL);
		far->is_door = far->is_door || err == 0;
	}
	return far->is_door;
}

/* Members of one machine need no port that others can reach.  The kernel connects from 127.0.0.1 to
 * all of 127.0.0.0/8, and the others take this for the address.  [::] takes IPv4, too: the others
 * come by the family by which this member reached the door. */
int hoist__far_open(struct hoist__far *far)
{
	static const char *const anywhere[] = {"0.0.0.0:0", "[::]:0"};
	static const char *const local[] = {"127.0.0.1:0", "[::1]:0"};
	bool loopback = hoist__address_loopback(&far->door[0]);
	bool v6 = far->door[0].socket.ss_family == AF_INET6;
	int err = -1;
	for (unsigned i = 1; i < far->n_doors && !loopback; i++)
		v6 = v6 || far->door[i].socket.ss_family == AF_INET6;
	for (int family = v6; err < 0 && family >= 0; family--) {
		struct hoist__address at;
		err = hoist__address_find((loopback ? local : anywhere)[family], true, &at, 1);
		if (err >= 0)
			err = hoist__address_listen(&at, &far->listen_fd, &far->listen_at);
	}
	if (err >= 0 && far->folder_fd >= 0)
		err = hoist__far_post(far);
	else
		far->met_door = err >= 0 && take_door(far);
	return err < 0 ? err : 0;
}

/* A child of fork() that lives on must not keep the port: nobody would accept there. */
static void close_listener(int fd)
{
	(void)shutdown(fd, SHUT_RDWR);
	(void)close(fd);
}

void hoist__far_close(struct hoist__far *far)
{
	hoist__far_unpost(far);
	for (unsigned i = 0; i < HOIST__FAR_DOORS; i++) {
		if (far->door_fd[i] >= 0)
			close_listener(far->door_fd[i]);
		far->door_fd[i] = -1;
	}
	if (far->listen_fd >= 0)
		close_listener(far->listen_fd);
	far->listen_fd = -1;
	far->is_door = false;
}

bool hoist__far_accepts(const struct hoist__far *far, uint64_t now)
{
	unsigned n = 0;
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		const struct hoist__far_peer *peer = &far->peers[i];
		n += peer->channel != NULL && !peer->connector && !peer->has_hello;
	}
	return n < HOIST__FAR_STRANGERS && now >= far->crowded_until;
}

/* Notes that a connection could not be made for want of descriptors or memory: the socket that
 * listens stays readable, and the far thread would try without a pause. */
static void note_crowded(struct hoist__far *far, int err)
{
	if (err != -EMFILE && err != -ENFILE && err != -ENOMEM && err != -ENOBUFS)
		return;
	far->crowded_until = hoist__now_ns() + HOIST__FAR_CROWDED_NS;
	if (far->crowded[0] == '\0')
		hoist__log(load, "group \"%s\": %s", far->name, hoist_error());
	(void)snprintf(far->crowded, sizeof far->crowded, "; %.*s", (int)sizeof far->crowded - 3,
		       hoist_error());
}

static void accept_all(struct hoist__far *far, int listening, uint64_t now)
{
	int fd;
	while (listening >= 0 && hoist__far_accepts(far, now)) {
		struct hoist__channel *channel;
		int err = hoist__address_accept(listening, &fd);
		if (err < 0) {
			note_crowded(far, err);
			return;
		}
		if (hoist__channel_accept(fd, &far->secret, &channel) < 0)
			continue;
		/* The user's own secret proves nothing on another machine. */
		if (far->secret.local && !hoist__address_loopback(hoist__channel_peer(channel)))
			hoist__channel_close(channel);
		else
			(void)hoist__far_peer_add(far, channel, false, now);
	}
}

static bool connect_to(struct hoist__far *far, const struct hoist__address *at, uint64_t now)
{
	struct hoist__channel *channel;
	if (far->secret.local && !hoist__address_loopback(at))
		return false;
	int err = hoist__channel_connect(at, &far->secret, &channel);
	if (err < 0) {
		note_crowded(far, err);
		return false;
	}
	return hoist__far_peer_add(far, channel, true, now) != NULL;
}

/* --- those that are there --- */

struct hoist__far_known *hoist__far_known_of(struct hoist__far *far, uint64_t id)
{
	for (unsigned i = 0; i < far->n_known; i++)
		if (far->known[i].id == id)
			return &far->known[i];
	if (far->n_known == HOIST__FAR_MOST_KNOWN)
		return NULL;
	far->known[far->n_known] = (struct hoist__far_known){.id = id};
	return &far->known[far->n_known++];
}

bool hoist__far_is_address(const char *text)
{
	return strspn(text, "0123456789abcdef.:[]") == strlen(text);
}

static bool is_one_of(const struct hoist__address *address, const struct hoist__address *at,
		      unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (strcmp(address->text, at[i].text) == 0)
			return true;
	return false;
}

bool hoist__far_at_door(const struct hoist__far *far, const struct hoist__far_peer *peer)
{
	return far->folder_fd < 0 && is_one_of(&peer->at, far->door, far->n_doors);
}

void hoist__far_learn(struct hoist__far *far, const struct hoist__wire_message *roster)
{
	struct hoist__far_known *known;
	if (roster->id == 0 || roster->id == far->id || roster->cell > far->cells.n ||
	    (known = hoist__far_known_of(far, roster->id)) == NULL)
		return;
	known->met = true;
	known->gone = known->gone || roster->flag;
	known->tries = roster->flag ? 0 : known->tries; /* another member reached it */
	known->first_cell = (size_t)roster->cell;
	known->rank = roster->rank;
	if (known->n_at == 0) { /* a folder names more */
		if (known->gone || !hoist__far_is_address(roster->text) ||
		    hoist__address_find(roster->text, false, known->at, 1) < 0)
			known->gone = true;
		known->n_at = 1;
	}
	if (known->after == 0)
		known->after = hoist__now_ns() + (far->met_door ? HOIST__FAR_CROSS_NS : 0);
}

void hoist__far_forget(struct hoist__far *far, const struct hoist__far_peer *gone, const char *why)
{
	struct hoist__far_known *known;
	if (gone->id == 0 || (known = hoist__far_known_of(far, gone->id)) == NULL)
		return;
	if (!known->gone && !gone->farewell && !atomic_load(&far->stopping))
		hoist__far_add_note(far, "the member at %s was left out: %s", gone->at.text, why);
	known->gone = known->met = true;
	known->first_cell = gone->first_cell;
	known->rank = gone->rank;
}

static bool has_peer(const struct hoist__far *far, uint64_t id)
{
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		if (far->peers[i].channel != NULL && far->peers[i].id == id)
			return true;
	return false;
}

static bool has_gone(const struct hoist__far *far, const struct hoist__far_known *known)
{
	return known->gone && known->met && !has_peer(far, known->id);
}

unsigned hoist__far_n_gone(const struct hoist__far *far)
{
	unsigned n = 0;
	for (unsigned i = 0; i < far->n_known; i++)
		n += has_gone(far, &far->known[i]);
	return n;
}

/* Is a connection to one of the addresses on its way? */
static bool is_connecting(const struct hoist__far *far, const struct hoist__address *at, unsigned n)
{
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		const struct hoist__far_peer *peer = &far->peers[i];
		if (peer->channel != NULL && peer->connector && !peer->has_hello &&
		    is_one_of(&peer->at, at, n))
			return true;
	}
	return false;
}

static void connect_known(struct hoist__far *far, uint64_t now)
{
	for (unsigned i = 0; i < far->n_known && now >= far->crowded_until; i++) {
		struct hoist__far_known *known = &far->known[i];
		if (known->gone || now < known->after || has_peer(far, known->id) ||
		    is_connecting(far, known->at, known->n_at))
			continue;
		/* It is not there any more. */
		known->gone = known->tries >= MOST_TRIES * known->n_at;
		if (!known->gone)
			(void)connect_to(far, &known->at[known->tries % known->n_at], now);
		known->tries += now >= far->crowded_until;
	}
}

static void look_for_door(struct hoist__far *far, uint64_t now)
{
	bool knocking = is_connecting(far, far->door, far->n_doors);
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) /* its roster is on its way */
		knocking = knocking || (far->peers[i].channel != NULL && far->peers[i].connector);
	if (far->is_door || now < far->door_at + (far->met_door ? RETAKE_NS : TRY_NS))
		return;
	far->door_at = now;
	if (take_door(far)) {
		far->met_door = true;
		return;
	}
	/* The addresses of HOST in turn: that one can be connected to shows later. */
	if (!far->met_door && !knocking)
		(void)connect_to(far, &far->door[far->next_door++ % far->n_doors], now);
}

/* --- ready, begun --- */

struct census {
	unsigned n;	    /* members that have said HELLO */
	unsigned n_came;    /* these, this member, and ranks of which all members have gone */
	bool all_listed;    /* of all connections */
	bool all_joined;    /* all that are listed have said READY, and heard it */
	bool begun;	    /* somebody has */
	size_t first_after; /* the furthest cell that one of those that have begun has done */
};

/* Has a rank come, gone and not come again?  The first of a rank's entries counts. */
static bool is_lost(const struct hoist__far *far, const struct hoist__far_known *gone)
{
	bool reached = gone->n_at == 0 || gone->tries < MOST_TRIES * gone->n_at;
	bool lost = has_gone(far, gone) && reached && gone->rank != far->rank;
	for (unsigned i = 0; i < HOIST__FAR_PEERS && lost; i++)
		lost = !far->peers[i].has_hello || far->peers[i].rank != gone->rank;
	for (const struct hoist__far_known *k = far->known; k < gone && lost; k++)
		lost = k->rank != gone->rank || !has_gone(far, k);
	return lost;
}

static struct census count_members(const struct hoist__far *far)
{
	struct census census = {.all_listed = true, .all_joined = true};
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		const struct hoist__far_peer *peer = &far->peers[i];
		/* Strangers that have not proved anything hold nobody up. */
		if (peer->channel == NULL || (!peer->connector && !peer->has_hello))
			continue;
		census.n += peer->has_hello;
		census.all_listed = census.all_listed && peer->listed;
		census.all_joined = census.all_joined && (!peer->listed || peer->joined);
		if (!peer->begun || !peer->ready || peer->first_cell != 0)
			continue;
		census.begun = true;
		if (peer->done > census.first_after)
			census.first_after = peer->done;
	}
	for (unsigned i = 0; i < far->n_known; i++) {
		const struct hoist__far_known *known = &far->known[i];
		if (!known->gone && !has_peer(far, known->id))
			census.all_listed = false;
		census.n_came += is_lost(far, known);
	}
	census.n_came += 1 + census.n;
	return census;
}

/* Chooses the first cell of this member's pace, makes the swarm, and adds those that are ready. */
static int get_ready(struct hoist__far *far, const struct census *census, uint64_t now)
{
	struct hoist__swarm_options options = {
		.id = far->id,
		.machine = far->place.machine,
		.reads = far->reads,
		.n_cells = far->cells.n,
		.n_slots = far->n_slots,
		.wants = &far->wants,
	};
	if (census->begun)
		far->first_cell = hoist__cells_start_at(
			&far->cells, hoist__swarm_cell_ahead(census->first_after, far->n_slots));
	options.first_cell = far->first_cell;
	int err = hoist__swarm_create(&options, &far->swarm);
	/* The turns of those that have gone count. */
	for (unsigned i = 0; err == 0 && i < far->n_known; i++) {
		struct hoist__swarm_wants none = {.n_cells = 0};
		if (!has_gone(far, &far->known[i]))
			continue;
		int number = hoist__swarm_join(far->swarm, far->known[i].id, 0, false,
					       far->known[i].first_cell, &none, now);
		if (number >= 0)
			hoist__swarm_leave(far->swarm, (unsigned)number, now);
	}
	far->ready = err == 0;
	return err;
}

static void begin(struct hoist__far *far, const struct census *census, bool late)
{
	const char *why = far->why_unmet[0] != '\0' ? far->why_unmet
			  : far->met_door	    ? ""
			  : far->folder_fd < 0	    ? "nobody listens there"
					       : "a member that is named there does not answer";
	if (far->n_ranks > census->n_came)
		hoist__far_add_note(far, "%u of %u members came to %.100s%s%s%.*s", census->n_came,
				    far->n_ranks, far->door_text, why[0] != '\0' ? "; " : "", why,
				    HOIST__FAR_TEXT / 2, far->crowded);
	else if ((late && !far->met_door) || (far->n_ranks == 0 && far->why_unmet[0] != '\0'))
		hoist__far_add_note(far, "%.100s: %s", far->door_text, why);
	hoist__log(load, "group \"%s\": begins with %u members, at cell %zu of %zu%s%s", far->name,
		   census->n + 1, far->first_cell, far->cells.n, far->note[0] != '\0' ? ": " : "",
		   far->note);
	far->state = HOIST__FAR_BEGUN;
	pthread_cond_broadcast(&far->changed);
}

void hoist__far_meet(struct hoist__far *far, uint64_t now)
{
	for (unsigned i = 0; i < HOIST__FAR_DOORS; i++)
		accept_all(far, far->door_fd[i], now);
	accept_all(far, far->listen_fd, now);
	if (far->folder_fd >= 0)
		hoist__far_look_in_folder(far, now);
	else
		look_for_door(far, now);
	connect_known(far, now);
	if (far->state == HOIST__FAR_BEGUN)
		return;
	struct census census = count_members(far);
	bool late = now > far->opened_at + far->timeout_ns;
	/* The connection of a member that lives may have failed, and be made anew. */
	bool settled = now > far->met_at + HOIST__FAR_GATHER_NS;
	bool enough = far->n_ranks == 0 ? settled
					: census.n + 1 >= far->n_ranks ||
						  (settled && census.n_came >= far->n_ranks);
	bool complete = far->met_door && census.all_listed && (enough || census.begun);
	pthread_mutex_lock(&far->lock);
	int err = late && !far->met_door && far->other_group.text[0] != '\0'
			  ? hoist__fail_again(-EINVAL, &far->other_group)
			  : 0;
	if (err == 0 && !far->ready && (complete || late))
		err = get_ready(far, &census, now);
	if (err == 0 && far->ready && (census.all_joined || late))
		begin(far, &census, late);
	pthread_mutex_unlock(&far->lock);
	if (err < 0)
		hoist__far_fail(far, err);
}
