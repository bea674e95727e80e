/* SPDX-License-Identifier: MIT */
/* The swarm's deeds: asks, bytes through the fabric, digests.
 * The contract is in lib/far/far.h. */
#include "config.h"

#include <errno.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "lib/far/far.h"
#include "net/secret.h"

/* Sends a message to a member of the swarm, unless the member has left. */
static void say_to(struct hoist__far *far, unsigned number,
		   const struct hoist__wire_message *message)
{
	struct hoist__far_peer *peer = hoist__far_peer_of(far, number);
	if (peer != NULL)
		hoist__far_say(far, peer, message);
}

void hoist__far_say_ticket(struct hoist__far *far, unsigned number, enum hoist__wire_kind kind,
			   uint64_t ticket)
{
	const struct hoist__wire_message m = {.kind = kind, .ticket = ticket};
	say_to(far, number, &m);
}

/* --- pieces of a cell --- */

bool hoist__far_next_piece(const struct hoist__far *far, size_t cell, const uint64_t *blocks,
			   struct hoist__far_piece *piece)
{
	size_t end = hoist__far_cell_bytes(far, cell);
	unsigned begin = 0;
	if (!hoist__blocks_run(blocks, 1, &piece->next, &begin))
		return false;
	piece->offset = begin * (size_t)HOIST__BLOCK_BYTES;
	piece->bytes = piece->next * (size_t)HOIST__BLOCK_BYTES;
	if (piece->offset >= end)
		return false;
	piece->bytes = (piece->bytes < end ? piece->bytes : end) - piece->offset;
	return true;
}

static struct hoist__wire_digest digest_of(const struct hoist__far *far, size_t cell,
					   const uint64_t *blocks, const unsigned char *bytes)
{
	struct hoist__far_piece piece = {.next = 0};
	XXH3_state_t state;
	XXH3_128bits_reset(&state);
	while (hoist__far_next_piece(far, cell, blocks, &piece))
		XXH3_128bits_update(&state, bytes + piece.offset, piece.bytes);
	XXH128_hash_t hash = XXH3_128bits_digest(&state);
	return (struct hoist__wire_digest){.low = hash.low64, .high = hash.high64};
}

/* --- taking --- */

struct hoist__far_slot *hoist__far_slot_of_ticket(struct hoist__far *far, uint64_t ticket)
{
	unsigned slot = (unsigned)(ticket % HOIST__SWARM_SLOTS);
	return ticket != 0 && slot < far->n_slots && far->slots[slot].ticket == ticket
		       ? &far->slots[slot]
		       : NULL;
}

void hoist__far_note_reader(struct hoist__far *far, struct hoist__far_slot *slot, uint64_t id)
{
	slot->reader = id;
	hoist__cell_readers_note(&far->readers, &far->cells, slot->job.cell, id);
}

/* Are all of these blocks asked for, and not here yet?  Then they are noted as got. */
static bool take_blocks(struct hoist__far_slot *slot, unsigned first, unsigned end)
{
	for (unsigned b = first; b < end; b++)
		if (!hoist__blocks_has(slot->blocks, b) || hoist__blocks_has(slot->got, b))
			return false;
	hoist__wants_add(slot->got, first, end);
	return true;
}

static void *place(void *context, uint64_t ticket, uint32_t offset, size_t bytes)
{
	struct hoist__far *far = context;
	unsigned char *at = NULL;
	pthread_mutex_lock(&far->lock);
	struct hoist__far_slot *slot = hoist__far_slot_of_ticket(far, ticket);
	size_t end = slot != NULL ? hoist__far_cell_bytes(far, slot->job.cell) : 0;
	bool fits = slot != NULL && offset % HOIST__BLOCK_BYTES == 0 && bytes > 0 && offset < end &&
		    bytes <= end - offset &&
		    (bytes % HOIST__BLOCK_BYTES == 0 || offset + bytes == end);
	unsigned first = (unsigned)(offset / HOIST__BLOCK_BYTES);
	unsigned n = (unsigned)((bytes + HOIST__BLOCK_BYTES - 1) / HOIST__BLOCK_BYTES);
	if (fits && hoist__far_populate(far, (unsigned)(slot - far->slots)) == 0 &&
	    take_blocks(slot, first, first + n)) {
		slot->since = slot->since == 0 ? hoist__now_ns() : slot->since;
		slot->n_placed++;
		at = slot->job.slot + offset;
	}
	pthread_mutex_unlock(&far->lock);
	return at;
}

static bool has_all(const struct hoist__far *far, const struct hoist__far_slot *slot)
{
	struct hoist__far_piece piece = {.next = 0};
	while (hoist__far_next_piece(far, slot->job.cell, slot->blocks, &piece))
		for (size_t b = piece.offset / HOIST__BLOCK_BYTES;
		     b * HOIST__BLOCK_BYTES < piece.offset + piece.bytes; b++)
			if (!hoist__blocks_has(slot->got, (unsigned)b))
				return false;
	return true;
}

/* Ends the ask if nothing more comes to the slot.  Pre: lock, which is left while the digest is
 * computed: the slot stays as it is meanwhile. */
static void end_ask(struct hoist__far *far, struct hoist__far_slot *slot)
{
	unsigned index = (unsigned)(slot - far->slots);
	if (slot->n_placed > 0)
		return;
	if (slot->leaving) {
		slot->leaving = false;
		slot->ticket = 0;
		hoist__swarm_withdrawn(far->swarm, index, hoist__now_ns());
		return;
	}
	if (slot->ticket == 0 || !slot->offered || (!slot->failed && !has_all(far, slot)))
		return;
	uint64_t ticket = slot->ticket;
	slot->ticket = 0;
	bool right = !slot->failed;
	if (right) {
		pthread_mutex_unlock(&far->lock);
		struct hoist__wire_digest is =
			digest_of(far, slot->job.cell, slot->blocks, slot->job.slot);
		pthread_mutex_lock(&far->lock);
		right = is.low == slot->digest.low && is.high == slot->digest.high;
	}
	slot->has_digest = right;
	struct hoist__far_peer *peer = hoist__far_peer_of(far, slot->peer);
	hoist__far_say_ticket(far, slot->peer, HOIST__WIRE_TOOK, ticket);
	if (peer != NULL)
		peer->moved = true;
	if (!right && !slot->failed)
		hoist__far_note_damage(far, peer != NULL ? peer->id : 0,
				       peer != NULL ? peer->at.text : "an unknown address", true);
	uint64_t now = hoist__now_ns();
	if (right)
		hoist__swarm_received(
			far->swarm, index,
			hoist__swarm_cell_ns(now - slot->since, hoist__blocks_count(slot->blocks)),
			now);
	else
		hoist__swarm_refused(far->swarm, index, !slot->failed, now);
	if (right)
		hoist__engine_wake(far->load->job.engine);
}

static void arrived(void *context, uint64_t ticket, uint32_t offset, size_t bytes, int err)
{
	struct hoist__far *far = context;
	struct hoist__far_slot *slot = &far->slots[ticket % HOIST__SWARM_SLOTS];
	(void)offset;
	(void)bytes;
	pthread_mutex_lock(&far->lock);
	slot->n_placed--;
	slot->failed = slot->failed || err < 0;
	end_ask(far, slot);
	pthread_mutex_unlock(&far->lock);
}

void hoist__far_offered(struct hoist__far *far, const struct hoist__far_peer *peer,
			const struct hoist__wire_message *offer)
{
	struct hoist__far_slot *slot = hoist__far_slot_of_ticket(far, offer->ticket);
	if (slot == NULL || slot->peer != peer->number || slot->offered)
		return;
	slot->offered = true;
	slot->since = slot->since == 0 ? hoist__now_ns() : slot->since;
	slot->digest = offer->digest;
	hoist__far_note_reader(far, slot, offer->id);
	end_ask(far, slot);
}

void hoist__far_refused(struct hoist__far *far, const struct hoist__far_peer *peer,
			const struct hoist__wire_message *refuse)
{
	struct hoist__far_slot *slot = hoist__far_slot_of_ticket(far, refuse->ticket);
	if (slot == NULL || slot->peer != peer->number)
		return;
	hoist__far_note_refusal(far, peer, refuse);
	slot->failed = slot->offered = true;
	end_ask(far, slot);
}

/* --- giving --- */

/* Ends the send if the fabric has done with it, and so has the taker.  Pre: lock. */
static void end_send(struct hoist__far *far, struct hoist__far_send *send)
{
	if (!send->busy || send->n_open > 0 || !send->took)
		return;
	hoist__swarm_sent(far->swarm, send->slot, send->number,
			  hoist__swarm_cell_ns(hoist__now_ns() - send->since, send->n_blocks));
	send->busy = false;
}

static void sent(void *context, void *owner, int err)
{
	struct hoist__far *far = context;
	struct hoist__far_send *send = owner;
	pthread_mutex_lock(&far->lock);
	send->n_open--;
	send->out_at = send->n_open == 0 ? hoist__now_ns() : 0;
	send->took = send->took || err < 0;
	end_send(far, send);
	pthread_mutex_unlock(&far->lock);
}

void hoist__far_took(struct hoist__far *far, uint64_t ticket)
{
	for (unsigned i = 0; i < HOIST__SWARM_SENDS; i++) {
		struct hoist__far_send *send = &far->sends[i];
		if (!send->busy || send->ticket != ticket)
			continue;
		struct hoist__far_peer *taker = hoist__far_peer_of(far, send->number);
		if (taker != NULL)
			taker->moved = true;
		send->took = true;
		end_send(far, send);
	}
}

void hoist__far_forget_sends(struct hoist__far *far, struct hoist__far_peer *peer)
{
	pthread_mutex_lock(&far->lock);
	hoist__far_forget_lent(far, peer);
	for (unsigned i = 0; i < HOIST__SWARM_SENDS; i++) {
		struct hoist__far_send *send = &far->sends[i];
		if (!send->busy || send->peer != peer)
			continue;
		send->peer = NULL;
		send->took = true;
		end_send(far, send);
	}
	pthread_mutex_unlock(&far->lock);
}

bool hoist__far_is_sending(const struct hoist__far *far, const struct hoist__far_peer *peer)
{
	for (unsigned i = 0; i < HOIST__SWARM_SENDS; i++)
		if (far->sends[i].busy && (peer == NULL || far->sends[i].peer == peer))
			return true;
	return hoist__far_is_lending(far, peer);
}

bool hoist__far_keeps_send(struct hoist__far *far, const struct hoist__far_peer *peer, uint64_t now)
{
	bool keeps = false;
	pthread_mutex_lock(&far->lock);
	for (unsigned i = 0; i < HOIST__SWARM_SENDS; i++) {
		const struct hoist__far_send *send = &far->sends[i];
		uint64_t since = send->n_open > 0 ? send->since : send->out_at;
		keeps = keeps || (send->busy && send->peer == peer &&
				  now > since + hoist__swarm_send_patience(far->swarm, send->number,
									   send->n_open > 0));
	}
	pthread_mutex_unlock(&far->lock);
	return keeps;
}

void hoist__far_excuse_takers(struct hoist__far *far, uint64_t gap)
{
	for (unsigned i = 0; i < HOIST__SWARM_SENDS; i++) {
		far->sends[i].since += gap;
		far->sends[i].out_at += far->sends[i].out_at > 0 ? gap : 0;
	}
}

bool hoist__far_is_taking(struct hoist__far *far)
{
	bool taking = false;
	pthread_mutex_lock(&far->lock);
	for (unsigned i = 0; i < far->n_slots; i++)
		taking = taking || far->slots[i].n_placed > 0;
	pthread_mutex_unlock(&far->lock);
	return taking;
}

static void broken(void *context, void *peer_owner, int err)
{
	struct hoist__far_peer *peer = peer_owner;
	(void)context;
	(void)err;
	peer->broken = true;
}

const struct hoist__fabric_handlers hoist__far_handlers = {
	.place = place,
	.arrived = arrived,
	.sent = sent,
	.broken = broken,
};

static void do_send(struct hoist__far *far, const struct hoist__swarm_act *act, uint64_t now)
{
	struct hoist__far_slot *slot = &far->slots[act->slot];
	bool lost = !hoist__far_own(far, act->slot);
	struct hoist__far_peer *peer = lost ? NULL : hoist__far_peer_of(far, act->member);
	struct hoist__far_send *send = far->sends;
	struct hoist__far_piece piece = {.next = 0};
	bool same = slot->has_digest && memcmp(slot->blocks, act->blocks, sizeof act->blocks) == 0;
	while (send->busy)
		send++;
	*send = (struct hoist__far_send){
		.busy = true,
		.ticket = act->ticket,
		.peer = peer,
		.took = peer == NULL,
		.slot = act->slot,
		.number = act->member,
		.n_open = 1,
		.n_blocks = hoist__blocks_count(act->blocks),
		.since = now,
	};
	struct hoist__wire_message answer = {
		.kind = lost ? HOIST__WIRE_REFUSE : HOIST__WIRE_OFFER,
		.id = slot->reader,
		.ticket = act->ticket,
	};
	if (peer != NULL)
		answer.digest = same ? slot->digest
				     : digest_of(far, act->cell, act->blocks, slot->job.slot);
	say_to(far, act->member, &answer);
	while (peer != NULL && !peer->broken &&
	       hoist__far_next_piece(far, act->cell, act->blocks, &piece)) {
		send->n_open++;
		int err = hoist__fabric_send(peer->bulk, act->ticket, (uint32_t)piece.offset,
					     slot->job.slot + piece.offset, piece.bytes, send);
		if (err < 0) {
			send->n_open--;
			peer->broken = true;
		}
	}
	sent(far, send, 0);
}

static void do_ask(struct hoist__far *far, const struct hoist__swarm_act *act)
{
	struct hoist__far_slot *slot = &far->slots[act->slot];
	const struct hoist__far_peer *peer = hoist__far_peer_of(far, act->member);
	bool lend = peer != NULL && peer->memory != NULL;
	uint64_t random;
	hoist__secret_random(&random, sizeof random);
	hoist__far_refill(far, act->slot);
	int err = lend ? 0 : hoist__far_populate(far, act->slot);
	if (err < 0)
		hoist__far_fail(far, err);
	pthread_mutex_lock(&far->lock);
	slot->job.cell = act->cell;
	memcpy(slot->blocks, act->blocks, sizeof slot->blocks);
	memset(slot->got, 0, sizeof slot->got);
	slot->ticket =
		(random | HOIST__SWARM_SLOTS) / HOIST__SWARM_SLOTS * HOIST__SWARM_SLOTS + act->slot;
	slot->peer = act->member;
	slot->since = 0;
	slot->leaving = slot->failed = slot->offered = slot->has_digest = false;
	pthread_mutex_unlock(&far->lock);
	struct hoist__wire_message ask = {
		.kind = HOIST__WIRE_ASK,
		.ticket = slot->ticket,
		.cell = act->cell,
		.flag = act->last_resort,
		.lend = lend,
	};
	memcpy(ask.blocks, act->blocks, sizeof ask.blocks);
	say_to(far, act->member, &ask);
}

static void do_withdraw(struct hoist__far *far, const struct hoist__swarm_act *act)
{
	struct hoist__far_slot *slot = &far->slots[act->slot];
	uint64_t ticket = slot->ticket;
	pthread_mutex_lock(&far->lock);
	slot->leaving = true;
	slot->ticket = 0;
	end_ask(far, slot);
	pthread_mutex_unlock(&far->lock);
	if (ticket != 0)
		hoist__far_say_ticket(far, act->member, HOIST__WIRE_UNASK, ticket);
}

static void do_warn(struct hoist__far *far, const struct hoist__swarm_act *act, uint64_t now)
{
	struct hoist__far_peer *about = hoist__far_peer_of(far, act->member);
	const struct hoist__wire_message m = {
		.kind = HOIST__WIRE_WARN,
		.id = about != NULL ? about->id : far->id,
		.flag = act->distrust,
	};
	pthread_mutex_lock(&far->lock);
	hoist__swarm_warned(far->swarm, act->member, act->distrust, now);
	pthread_mutex_unlock(&far->lock);
	hoist__log(load, "group \"%s\": member %016llx at %s is %s", far->name,
		   (unsigned long long)m.id, about != NULL ? about->at.text : "this machine",
		   m.flag ? "damaged: its bytes were wrong" : "slow");
	for (unsigned i = 0; i < HOIST__FAR_PEERS; i++)
		if (far->peers[i].joined)
			hoist__far_say(far, &far->peers[i], &m);
}

uint64_t hoist__far_move(struct hoist__far *far, uint64_t now)
{
	struct hoist__swarm_act act;
	struct hoist__wire_message m;
	for (;;) {
		pthread_mutex_lock(&far->lock);
		hoist__swarm_next(far->swarm, now, &act);
		pthread_mutex_unlock(&far->lock);
		switch (act.deed) {
		case HOIST__SWARM_NOTHING:
			hoist__far_look_at_loans(far, now);
			return act.wake_ns;
		case HOIST__SWARM_READ:
			hoist__far_read(far, &act);
			break;
		case HOIST__SWARM_ASK:
			do_ask(far, &act);
			break;
		case HOIST__SWARM_SEND:
			if (act.lend)
				hoist__far_lend(far, &act, now);
			else
				do_send(far, &act, now);
			break;
		case HOIST__SWARM_REFUSE:
			m = hoist__far_refusal(far, &act);
			say_to(far, act.member, &m);
			break;
		case HOIST__SWARM_WITHDRAW:
			do_withdraw(far, &act);
			break;
		case HOIST__SWARM_WARN:
			do_warn(far, &act, now);
			break;
		case HOIST__SWARM_LOST:
			hoist__far_lose(far, act.cell);
			return UINT64_MAX;
		}
	}
}
