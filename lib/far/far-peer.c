/* SPDX-License-Identifier: MIT */
/* The other members: channels, messages, life and death.
 * The contract is in lib/far/far.h. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "lib/far/far.h"

/* --- peers come and go --- */

struct hoist__far_peer *hoist__far_peer_add(struct hoist__far *far, struct hoist__channel *channel,
					    bool connector, uint64_t now)
{
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		struct hoist__far_peer *peer = &far->peers[i];
		if (peer->channel != NULL)
			continue;
		*peer = (struct hoist__far_peer){
			.channel = channel,
			.connector = connector,
			.share.weight = HOIST__SWARM_FULL,
			.heard_at = now,
			.at = *hoist__channel_peer(channel),
		};
		return peer;
	}
	hoist__channel_close(channel);
	return NULL;
}

struct hoist__far_peer *hoist__far_peer_of(struct hoist__far *far, unsigned number)
{
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		if (far->peers[i].joined && far->peers[i].number == number)
			return &far->peers[i];
	return NULL;
}

static void leave_swarm(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t now)
{
	pthread_mutex_lock(&far->lock);
	hoist__swarm_leave(far->swarm, peer->number, now);
	pthread_mutex_unlock(&far->lock);
	peer->joined = false;
}

void hoist__far_peer_drop(struct hoist__far *far, struct hoist__far_peer *peer, const char *why,
			  uint64_t now)
{
	struct hoist__far_peer gone = *peer;
	bool may_lend = (gone.joined || gone.farewell) && !atomic_load(&far->stopping);
	if (gone.has_hello)
		hoist__log(load, "group \"%s\": member %016llx at %s has left: %s", far->name,
			   (unsigned long long)gone.id, gone.at.text, why);
	if (gone.joined)
		leave_swarm(far, &gone, now);
	hoist__far_forget_sends(far, peer);
	if (may_lend)
		hoist__far_own_loans(far, gone.number);
	hoist__far_unmap(far, gone.memory);
	/* The entry is free before the fabric hears of this: transfers with the peer end within the
	 * call, or later, and their handlers must not find the peer. */
	*peer = (struct hoist__far_peer){.channel = NULL};
	if (gone.bulk != NULL)
		hoist__fabric_disconnect(gone.bulk);
	hoist__channel_close(gone.channel);
	hoist__swarm_wants_fini(&gone.wanting.wants);
	hoist__tour_end(&gone.tour);
	hoist__far_forget(far, &gone, why);
	if (gone.has_hello)
		far->met_at = now;
}

void hoist__far_say(struct hoist__far *far, struct hoist__far_peer *peer,
		    const struct hoist__wire_message *message)
{
	size_t n = hoist__wire_pack(message, far->frame);
	if (hoist__channel_send(peer->channel, (uint16_t)message->kind, far->frame, n) < 0)
		peer->broken = true;
}

/* --- messages that go out --- */

static void tell_hello(struct hoist__far *far, struct hoist__far_peer *peer)
{
	struct hoist__wire_message m = {
		.kind = HOIST__WIRE_HELLO,
		.id = far->id,
		.n_cells = far->cells.n,
		.n_patterns = far->wants.n_patterns,
		.rank = far->rank,
		.port = hoist__address_port(&far->listen_at),
		.place = far->place,
		.flag = far->load->checkpoint->n_absent == 0,
	};
	const void *address;
	memcpy(m.identity, far->identity, sizeof m.identity);
	hoist__fabric_address(far->fabric, &address, &m.n_bytes);
	m.bytes = address;
	(void)snprintf(m.text, sizeof m.text, "%s", far->name);
	hoist__far_say(far, peer, &m);
	peer->said_hello = true;
}

/* Tells a part of this member's wants, as much as the channel's queue may hold. */
static void tell_wants(struct hoist__far *far, struct hoist__far_peer *peer)
{
	const struct hoist__swarm_wants *wants = &far->wants;
	while (!peer->broken && hoist__channel_queued(peer->channel) < HOIST__FAR_TELL_BYTES) {
		bool kinds = peer->kinds_told < wants->n_cells;
		size_t *told = kinds ? &peer->kinds_told : &peer->patterns_told;
		size_t left = kinds ? wants->n_cells - *told : wants->n_patterns - *told;
		size_t most = kinds ? HOIST__WIRE_MOST_KINDS : HOIST__WIRE_MOST_PATTERNS;
		size_t n = left < most ? left : most;
		if (n == 0) {
			peer->told = true;
			return;
		}
		const struct hoist__wire_message m = {
			.kind = kinds ? HOIST__WIRE_WANTS : HOIST__WIRE_PATTERNS,
			.at = *told,
			.n = (uint32_t)n,
			.bytes = kinds ? (const unsigned char *)(wants->kinds + *told)
				       : (const unsigned char *)wants->patterns[*told],
			.n_bytes = n * (kinds ? sizeof wants->kinds[0] : sizeof wants->patterns[0]),
		};
		hoist__far_say(far, peer, &m);
		*told += n;
	}
}

static void tell_beat(struct hoist__far *far, struct hoist__far_peer *peer)
{
	const struct hoist__wire_message m = {
		.kind = HOIST__WIRE_BEAT,
		.done = far->beat_done,
		.begun = far->state == HOIST__FAR_BEGUN,
		.counts = {far->beat_counts[0], far->beat_counts[1], far->beat_counts[2]},
		.share = far->beat_share,
	};
	hoist__far_say(far, peer, &m);
	peer->beat_at = far->beat_at;
}

/* Makes a peer that is ready, as this member is, a member of the swarm. */
static void join(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t now)
{
	struct hoist__swarm_wants *wants = &peer->wanting.wants;
	pthread_mutex_lock(&far->lock);
	int err = hoist__swarm_wants_check(wants);
	peer->reads = err == 0 &&
		      (wants->n_cells == 0 || hoist__swarm_wants_n_lacking(wants) < wants->n_cells);
	if (err == 0)
		err = hoist__swarm_join(far->swarm, peer->id, peer->place.machine, peer->reads,
					peer->first_cell, wants, now);
	if (err >= 0)
		*wants = (struct hoist__swarm_wants){0}; /* the swarm's */
	if (err == -ENOSPC)
		(void)hoist__far_send_away(far, peer, hoist__far_fail_full(far));
	peer->broken = peer->broken || err < 0;
	peer->joined = err >= 0;
	if (peer->joined) {
		peer->number = (unsigned)err;
		hoist__swarm_heard(far->swarm, peer->number, peer->done);
		hoist__swarm_heard_share(far->swarm, peer->number, &peer->share);
		hoist__cell_readers_name(&far->readers, peer->number, peer->id, "the member at",
					 peer->at.text);
	}
	pthread_mutex_unlock(&far->lock);
}

void hoist__far_peer_look(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t now)
{
	if (peer->tour.active)
		hoist__far_show_more(far, peer);
	if (peer->moved)
		hoist__far_note_way(far, peer);
	if (hoist__channel_proved(peer->channel) && !peer->visits) {
		if (!peer->said_hello && peer->connector)
			tell_hello(far, peer);
		if (peer->has_hello && !peer->told)
			tell_wants(far, peer);
		if (far->ready && peer->told && !peer->said_ready) {
			const struct hoist__wire_message m = {.kind = HOIST__WIRE_READY,
							      .cell = far->first_cell};
			hoist__far_say(far, peer, &m);
			peer->said_ready = true;
			if (peer->ready)
				join(far, peer, now);
		}
		if (peer->has_hello && peer->beat_at != far->beat_at)
			tell_beat(far, peer);
	}
	if (peer->farewell && !hoist__far_is_sending(far, peer)) {
		const struct hoist__wire_message bye = {.kind = HOIST__WIRE_BYE};
		hoist__far_say(far, peer, &bye);
		hoist__far_peer_drop(far, peer, "it has ended", now);
		return;
	}
	/* The peer may have said BYE before the end. */
	if (peer->broken && !peer->farewell) {
		peer->broken = false;
		hoist__far_peer_work(far, peer, now);
		if (peer->channel == NULL || peer->farewell)
			return;
		peer->broken = true;
	}
	if (peer->broken)
		hoist__far_peer_drop(far, peer, "the connection has failed", now);
	else if (now > peer->heard_at + HOIST__FAR_SILENCE_NS)
		hoist__far_peer_drop(far, peer, "it gives no sign of life", now);
	else if (far->ready &&
		 (hoist__far_keeps_send(far, peer, now) || hoist__far_keeps_lent(far, peer, now)))
		hoist__far_peer_drop(far, peer, "it does not take what it asks for", now);
}

/* --- messages that come in --- */

int hoist__far_send_away(struct hoist__far *far, struct hoist__far_peer *peer, int err)
{
	struct hoist__wire_message m = {.kind = HOIST__WIRE_BYE, .err = err};
	(void)snprintf(m.text, sizeof m.text, "%s", hoist_error());
	hoist__far_say(far, peer, &m);
	return err;
}

static bool sends_away(int err)
{
	return err == -EINVAL || err == -EADDRINUSE || err == -ENOSPC || err == -EPROTONOSUPPORT ||
	       err == -EHOSTUNREACH;
}

/* The other side sends this member away.  A group of another name may leave the door in time. */
static void keep_refusal(struct hoist__far *far, const struct hoist__far_peer *peer, int err)
{
	if (!peer->connector || far->state != HOIST__FAR_MEETING)
		return;
	if (err == -EINVAL || err == -ENOSPC)
		hoist__far_fail(far, err);
	if (err == -EADDRINUSE)
		hoist__failure_keep(&far->other_group);
}

static int check_hello(const struct hoist__far *far, const struct hoist__far_peer *peer,
		       const struct hoist__wire_message *m)
{
	unsigned n = 1 + hoist__far_n_gone(far); /* members that are or were there */
	if (peer->has_hello || peer->visits || m->id == far->id)
		return hoist__fail(-EBADMSG, "a second greeting");
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		n += far->peers[i].has_hello;
		if (far->peers[i].channel != NULL && far->peers[i].id == m->id)
			return hoist__fail(-EEXIST, "a second connection of one member");
	}
	if (strcmp(m->text, far->name) != 0)
		return peer->connector ? hoist__far_fail_name(far, m->text, far->name)
				       : hoist__far_fail_name(far, far->name, m->text);
	int err = hoist__far_compare_files(far, peer, m);
	return err < 0 || n < HOIST__SWARM_MEMBERS ? err : hoist__far_fail_full(far);
}

static int hear_hello(struct hoist__far *far, struct hoist__far_peer *peer,
		      const struct hoist__wire_message *m, uint64_t now)
{
	int err = check_hello(far, peer, m);
	if (err == 0)
		err = hoist__wire_wanting_begin(&peer->wanting, m);
	/* UCX may abort where the peer has died, and UCX has not seen that (net/fabric.h). */
	if (err == 0)
		hoist__fabric_progress(far->fabric);
	if (err == 0 && hoist__channel_ended(peer->channel))
		err = hoist__fail(-ECONNRESET, "it has ended while it greeted");
	if (err == 0)
		err = hoist__fabric_connect(far->fabric, m->bytes, m->n_bytes, peer, &peer->bulk);
	if (err < 0)
		return sends_away(err) ? hoist__far_send_away(far, peer, err) : err;
	peer->has_hello = true;
	peer->id = m->id;
	peer->rank = m->rank;
	peer->shows = peer->reads = m->flag;
	peer->place = m->place;
	hoist__far_meet_neighbour(far, peer);
	hoist__address_set_port(&peer->at, m->port);
	if (!peer->said_hello)
		tell_hello(far, peer);
	if (!peer->connector)
		hoist__far_tell_roster(far, peer);
	hoist__log(load, "group \"%s\": member %016llx at %s", far->name,
		   (unsigned long long)peer->id, peer->at.text);
	far->met_at = now;
	peer->listed = hoist__wire_wanting_whole(&peer->wanting);
	return 0;
}

static int hear_ready(struct hoist__far *far, struct hoist__far_peer *peer,
		      const struct hoist__wire_message *m, uint64_t now)
{
	if (!peer->listed || peer->ready || m->cell > far->cells.n)
		return hoist__fail(-EBADMSG, "it is ready at a wrong time");
	peer->ready = true;
	peer->first_cell = m->cell;
	/* A member asks once it has said READY and heard it. */
	if (peer->said_ready)
		join(far, peer, now);
	return 0;
}

static int hear_warning(struct hoist__far *far, const struct hoist__wire_message *m, uint64_t now)
{
	const char *at = m->id == far->id ? "" : NULL;
	if (at != NULL)
		hoist__swarm_warned(far->swarm, 0, m->flag, now);
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++) {
		if (!far->peers[i].joined || far->peers[i].id != m->id)
			continue;
		hoist__swarm_warned(far->swarm, far->peers[i].number, m->flag, now);
		at = far->peers[i].at.text;
	}
	if (m->flag && at != NULL)
		hoist__far_note_damage(far, m->id, at, false);
	hoist__log(load, "group \"%s\": member %016llx is %s", far->name, (unsigned long long)m->id,
		   m->flag ? "damaged: its bytes were wrong" : "slow");
	return 0;
}

/* Pre: lock. */
static void hear_end(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t ticket)
{
	hoist__far_took(far, ticket);
	hoist__far_returned(far, peer, ticket);
}

/* Messages of members of the swarm.  Pre: lock. */
static int hear_member(struct hoist__far *far, struct hoist__far_peer *peer,
		       const struct hoist__wire_message *m, uint64_t now)
{
	switch (m->kind) {
	case HOIST__WIRE_ASK:
		return hoist__swarm_asked(far->swarm, peer->number, m->ticket, (size_t)m->cell,
					  m->blocks, m->flag,
					  m->lend && hoist__far_is_neighbour(far, peer));
	case HOIST__WIRE_UNASK:
		hoist__swarm_unasked(far->swarm, peer->number, m->ticket);
		hear_end(far, peer, m->ticket);
		return 0;
	case HOIST__WIRE_TOOK:
		hear_end(far, peer, m->ticket);
		return 0;
	case HOIST__WIRE_LEND:
		hoist__far_borrow(far, peer, m);
		return 0;
	case HOIST__WIRE_REFUSE:
		hoist__far_refused(far, peer, m);
		return 0;
	case HOIST__WIRE_OFFER:
		hoist__far_offered(far, peer, m);
		return 0;
	case HOIST__WIRE_WARN:
		return hear_warning(far, m, now);
	default:
		return hoist__fail(-EBADMSG, "a message at a wrong time");
	}
}

static int hear_beat(struct hoist__far *far, struct hoist__far_peer *peer,
		     const struct hoist__wire_message *m)
{
	if (m->done > far->cells.n)
		return hoist__fail(-EBADMSG, "it has done more cells than there are");
	peer->done = (size_t)m->done;
	peer->begun = m->begun;
	memcpy(peer->counts, m->counts, sizeof peer->counts);
	peer->share = m->share;
	if (peer->joined) {
		pthread_mutex_lock(&far->lock);
		hoist__swarm_heard(far->swarm, peer->number, peer->done);
		hoist__swarm_heard_share(far->swarm, peer->number, &peer->share);
		pthread_mutex_unlock(&far->lock);
	}
	return 0;
}

/* The peer leaves, or sends this member away. */
static int hear_bye(struct hoist__far *far, struct hoist__far_peer *peer,
		    const struct hoist__wire_message *m, uint64_t now)
{
	if (m->err < 0) {
		int err = hoist__fail(sends_away(m->err) ? m->err : -ECONNRESET,
				      "the member at %s says: %s", peer->at.text, m->text);
		keep_refusal(far, peer, err);
		return err;
	}
	peer->farewell = true;
	if (peer->joined)
		leave_swarm(far, peer, now);
	return 0;
}

/* A member that has said BYE still takes the blocks on their way to it. */
static int hear_leaver(struct hoist__far *far, struct hoist__far_peer *peer,
		       const struct hoist__wire_message *m)
{
	if (m->kind == HOIST__WIRE_TOOK || m->kind == HOIST__WIRE_UNASK) {
		pthread_mutex_lock(&far->lock);
		hear_end(far, peer, m->ticket);
		pthread_mutex_unlock(&far->lock);
	}
	return 0;
}

static int hear(struct hoist__far *far, struct hoist__far_peer *peer,
		const struct hoist__wire_message *m, uint64_t now)
{
	int err = 0;
	if (!peer->has_hello && (m->kind == HOIST__WIRE_LOOK || m->kind == HOIST__WIRE_VISIT))
		return hoist__far_hear_visitor(far, peer, m, now);
	if (!peer->has_hello && m->kind != HOIST__WIRE_HELLO && m->kind != HOIST__WIRE_BYE)
		return hoist__fail(-EBADMSG, "a message before the greeting");
	switch (m->kind) {
	case HOIST__WIRE_HELLO:
		err = hear_hello(far, peer, m, now);
		keep_refusal(far, peer, err);
		return err;
	case HOIST__WIRE_ROSTER:
		if (peer->connector)
			hoist__far_learn(far, m);
		return 0;
	case HOIST__WIRE_ROSTER_END:
		if (peer->connector && !far->met_door)
			far->why_unmet[0] = '\0'; /* earlier tries of the door count no more */
		far->met_door = far->met_door || peer->connector;
		return 0;
	case HOIST__WIRE_WANTS:
	case HOIST__WIRE_PATTERNS:
		err = peer->listed ? hoist__fail(-EBADMSG, "wants behind the last")
				   : hoist__wire_wanting_take(&peer->wanting, m);
		peer->listed = err == 0 && hoist__wire_wanting_whole(&peer->wanting);
		return err;
	case HOIST__WIRE_READY:
		return hear_ready(far, peer, m, now);
	case HOIST__WIRE_BEAT:
		return hear_beat(far, peer, m);
	case HOIST__WIRE_BYE:
		return hear_bye(far, peer, m, now);
	default:
		if (peer->farewell)
			return hear_leaver(far, peer, m);
		if (!peer->joined)
			return hoist__fail(-EBADMSG, "a message at a wrong time");
		pthread_mutex_lock(&far->lock);
		err = hear_member(far, peer, m, now);
		pthread_mutex_unlock(&far->lock);
		return err;
	}
}

/* Keeps why a process was not met.  Only the door's refusal of the secret fails the load: at the
 * address of a member that a roster or a folder names, a member of another group may listen now. */
static void note_unmet(struct hoist__far *far, const struct hoist__far_peer *peer, int err)
{
	bool proved = hoist__channel_proved(peer->channel);
	bool tells = err == -EACCES || err == -EPROTO || err == -EPROTONOSUPPORT;
	bool unreached = err == -EHOSTUNREACH || err == -ETIMEDOUT;
	if (peer->has_hello || far->state != HOIST__FAR_MEETING || (!peer->connector && !proved) ||
	    !(tells || (unreached && (proved || !far->met_door))))
		return;
	(void)snprintf(far->why_unmet, sizeof far->why_unmet, "%s", hoist_error());
	if (err == -EACCES && hoist__far_at_door(far, peer))
		hoist__far_fail(far, err);
}

void hoist__far_peer_work(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t now)
{
	struct hoist__frame frame;
	struct hoist__wire_message message;
	int err = hoist__channel_work(peer->channel);
	while (err == 0 && hoist__channel_next(peer->channel, &frame)) {
		peer->heard_at = now;
		err = hoist__wire_unpack(&frame, &message);
		if (err == 0)
			err = hear(far, peer, &message, now);
	}
	if (err < 0) {
		note_unmet(far, peer, err);
		hoist__far_peer_drop(far, peer, hoist_error(), now);
	}
}
