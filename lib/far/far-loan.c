/* SPDX-License-Identifier: MIT */
/* Slots in memory that members of one machine share, and lend each other.
 * The contract is in lib/far/far-loan.h. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "alloc/populate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/wait.h"
#include "lib/far/far.h"

/* A slot that was borrowed for so long is copied, and given back: its owner needs the slot. */
#define BORROW_NS (UINT64_C(200) * 1000000)
/* A member that keeps a slot for so long is left out. */
#define LEND_NS HOIST__SWARM_PATIENCE_NS
/* How often a thread that waits for a lost cell looks. */
#define LOST_NS (UINT64_C(10) * 1000000)

/* --- the memory --- */

size_t hoist__far_arena_bytes(const struct hoist__far *far)
{
	return far->n_slots * (size_t)HOIST__CELL_BYTES;
}

/* Takes memory, whose lack would be SIGBUS at a touch. */
static int populate(void *base, size_t bytes, bool collapse)
{
	const struct hoist__populate_job job = {
		.base = base, .bytes = bytes, .n_threads = 1, .collapse = collapse};
	struct hoist__populate_report report;
	int err = hoist__populate_parallel(&job, &report);
	return err < 0 ? hoist__fail_errno(err == -EAGAIN ? -ENOMEM : err, "slots of a group") : 0;
}

/* Returns: 0; an error, and nothing is left. */
static int make_shared(struct hoist__far *far)
{
	int err = hoist__shared_create(HOIST__FAR_BOARD_BYTES + hoist__far_arena_bytes(far),
				       &far->shared);
	if (err == 0)
		err = populate((void *)hoist__shared_address(far->shared),
			       sizeof(struct hoist__far_board), false);
	if (err == 0)
		err = hoist__shared_export(far->shared, true, &far->shared_fd);
	if (err < 0) {
		hoist__shared_close(far->shared);
		far->shared = NULL;
		return err;
	}
	far->board = (struct hoist__far_board *)hoist__shared_address(far->shared);
	far->arena = (unsigned char *)far->board + HOIST__FAR_BOARD_BYTES;
	hoist__neighbour_describe(&far->secret, far->shared_fd, &far->place);
	return 0;
}

int hoist__far_arena_make(struct hoist__far *far)
{
	const struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST,
		.bytes = hoist__far_arena_bytes(far),
	};
	if (make_shared(far) == 0)
		return 0;
	hoist__log(load, "group \"%s\": this member shares no memory with others: %s", far->name,
		   hoist_error());
	int err = hoist__region_create(&options, &far->region);
	if (err == 0)
		far->arena = (unsigned char *)far->region->base;
	return err;
}

void hoist__far_arena_end(struct hoist__far *far, bool stays)
{
	for (unsigned i = 0; i < HOIST__FAR_MOST_KNOWN; i++) {
		hoist__shared_close(far->memories[i].shared);
		far->memories[i] = (struct hoist__far_memory){.shared = NULL};
	}
	if (far->shared_fd >= 0)
		(void)close(far->shared_fd);
	far->shared_fd = -1;
	bool made = far->slots != NULL && far->arena != NULL;
	if (!stays) {
		for (unsigned i = 0; made && i < far->n_slots; i++)
			hoist__cell_unpin(&far->pins, hoist__far_slot(far, i),
					  &far->slots[i].pinned);
		hoist__shared_close(far->shared);
		hoist__region_destroy(far->region);
	}
	far->shared = NULL;
	far->region = NULL;
}

int hoist__far_populate(struct hoist__far *far, unsigned slot)
{
	if (far->shared == NULL || far->slots[slot].populated)
		return 0;
	int err = populate(hoist__far_slot(far, slot), HOIST__CELL_BYTES, true);
	far->slots[slot].populated = err == 0;
	return err;
}

/* --- neighbours --- */

bool hoist__far_is_neighbour(const struct hoist__far *far, const struct hoist__far_peer *peer)
{
	return far->place.machine != 0 && peer->place.machine == far->place.machine;
}

/* Maps the memory of a neighbour.  Returns: 0; as hoist__shared_open(). */
static int map_memory(struct hoist__far *far, const struct hoist__far_peer *peer,
		      struct hoist__shared **ret)
{
	int fd;
	int err = hoist__neighbour_open(&peer->place, far->shared_fd, &fd);
	if (err < 0)
		return err;
	err = hoist__shared_open(fd, true, ret);
	(void)close(fd);
	if (err < 0)
		return err;
	size_t bytes = hoist__shared_bytes(*ret);
	if (bytes > HOIST__FAR_BOARD_BYTES && bytes % HOIST__CELL_BYTES == 0 &&
	    bytes <= HOIST__FAR_BOARD_BYTES + HOIST__SWARM_SLOTS * HOIST__CELL_BYTES)
		return 0;
	hoist__shared_close(*ret);
	*ret = NULL;
	return hoist__fail(-EBADMSG, "a member shares %zu bytes, which are no slots", bytes);
}

void hoist__far_meet_neighbour(struct hoist__far *far, struct hoist__far_peer *peer)
{
	struct hoist__far_memory *memory = far->memories;
	while (memory < far->memories + HOIST__FAR_MOST_KNOWN && memory->shared != NULL)
		memory++;
	if (!hoist__far_is_neighbour(far, peer) || memory == far->memories + HOIST__FAR_MOST_KNOWN)
		return;
	if (map_memory(far, peer, &memory->shared) < 0) {
		hoist__log(load,
			   "group \"%s\": UCX moves the bytes of a member of this machine: %s",
			   far->name, hoist_error());
		return;
	}
	peer->memory = memory;
}

static bool is_used(const struct hoist__far *far, const struct hoist__far_memory *memory)
{
	for (unsigned i = 0; i < far->n_slots; i++)
		if (far->slots[i].loan.memory == memory)
			return true;
	return memory->n_copies > 0;
}

/* Unmaps the memory of neighbours that have left, where it is used no more. */
static void unmap_left(struct hoist__far *far)
{
	for (unsigned i = 0; i < HOIST__FAR_MOST_KNOWN && far->n_left > 0; i++) {
		struct hoist__far_memory *memory = &far->memories[i];
		pthread_mutex_lock(&far->lock);
		bool used = !memory->left || is_used(far, memory);
		pthread_mutex_unlock(&far->lock);
		if (used)
			continue;
		hoist__shared_close(memory->shared);
		*memory = (struct hoist__far_memory){.shared = NULL};
		far->n_left--;
	}
}

void hoist__far_unmap(struct hoist__far *far, struct hoist__far_memory *memory)
{
	if (memory == NULL)
		return;
	memory->left = true;
	far->n_left++;
	unmap_left(far);
}

/* --- lending --- */

static void take_back(struct hoist__far *far, struct hoist__far_peer *peer, unsigned slot)
{
	peer->lent[slot] = (struct hoist__far_lent){.ticket = 0};
	far->n_lent--;
	hoist__swarm_returned(far->swarm, slot, peer->number);
}

void hoist__far_lend(struct hoist__far *far, const struct hoist__swarm_act *act, uint64_t now)
{
	struct hoist__far_peer *peer = hoist__far_peer_of(far, act->member);
	bool can = peer != NULL && hoist__far_is_neighbour(far, peer) &&
		   peer->lent[act->slot].ticket == 0 && act->ticket != 0 &&
		   hoist__far_own(far, act->slot);
	if (!can) {
		hoist__far_say_ticket(far, act->member, HOIST__WIRE_REFUSE, act->ticket);
		pthread_mutex_lock(&far->lock);
		hoist__swarm_returned(far->swarm, act->slot, act->member);
		pthread_mutex_unlock(&far->lock);
		return;
	}
	const struct hoist__wire_message lend = {
		.kind = HOIST__WIRE_LEND,
		.ticket = act->ticket,
		.n = act->slot,
		.at = atomic_load(&far->board->editions[act->slot]),
		.id = far->slots[act->slot].reader,
	};
	peer->lent[act->slot] = (struct hoist__far_lent){.ticket = act->ticket, .since = now};
	far->n_lent++;
	far->account.has_loan = true;
	hoist__far_say(far, peer, &lend);
}

void hoist__far_returned(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t ticket)
{
	for (unsigned i = 0; i < far->n_slots && ticket != 0; i++)
		if (peer->lent[i].ticket == ticket)
			take_back(far, peer, i);
}

void hoist__far_forget_lent(struct hoist__far *far, struct hoist__far_peer *peer)
{
	for (unsigned i = 0; i < far->n_slots; i++)
		if (peer->lent[i].ticket != 0)
			take_back(far, peer, i);
}

bool hoist__far_is_lending(const struct hoist__far *far, const struct hoist__far_peer *peer)
{
	if (peer == NULL)
		return far->n_lent > 0;
	for (unsigned i = 0; i < far->n_slots; i++)
		if (peer->lent[i].ticket != 0)
			return true;
	return false;
}

bool hoist__far_keeps_lent(const struct hoist__far *far, const struct hoist__far_peer *peer,
			   uint64_t now)
{
	for (unsigned i = 0; far->n_lent > 0 && i < far->n_slots; i++)
		if (peer->lent[i].ticket != 0 && now > peer->lent[i].since + LEND_NS)
			return true;
	return false;
}

void hoist__far_excuse_lent(struct hoist__far *far, uint64_t gap)
{
	for (unsigned p = 0; far->n_lent > 0 && p < HOIST__FAR_PEERS; p++)
		for (unsigned i = 0; i < far->n_slots; i++)
			far->peers[p].lent[i].since += gap;
}

/* --- borrowing --- */

void hoist__far_borrow(struct hoist__far *far, const struct hoist__far_peer *peer,
		       const struct hoist__wire_message *lend)
{
	struct hoist__far_slot *slot = hoist__far_slot_of_ticket(far, lend->ticket);
	const struct hoist__far_board *board = NULL;
	const struct hoist__shared *shared = peer->memory != NULL ? peer->memory->shared : NULL;
	if (slot == NULL || slot->peer != peer->number || slot->offered)
		return;
	if (shared != NULL && slot->n_placed == 0 &&
	    lend->n < hoist__shared_bytes(shared) / HOIST__CELL_BYTES - 1)
		board = (const struct hoist__far_board *)hoist__shared_address(shared);
	if (board == NULL || atomic_load(&board->editions[lend->n]) != lend->at) {
		hoist__far_refused(far, peer, lend);
		return;
	}
	slot->ticket = 0;
	hoist__far_note_reader(far, slot, lend->id);
	far->account.has_loan = true;
	slot->loan = (struct hoist__far_loan){
		.bytes = (const unsigned char *)board + HOIST__FAR_BOARD_BYTES +
			 lend->n * (size_t)HOIST__CELL_BYTES,
		.memory = peer->memory,
		.edition = &board->editions[lend->n],
		.edition_was = (uint32_t)lend->at,
		.ticket = lend->ticket,
		.since = hoist__now_ns(),
	};
	hoist__swarm_received(far->swarm, (unsigned)(slot - far->slots), 0, slot->loan.since);
	hoist__engine_wake(far->load->job.engine);
}

/* Had the giver's slot the same bytes all the time that it was read? */
static bool still_holds(const struct hoist__far_loan *loan)
{
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(loan->edition, memory_order_relaxed) == loan->edition_was;
}

static void give_back(struct hoist__far *far, unsigned slot, bool lost)
{
	uint64_t ticket = far->slots[slot].loan.ticket;
	pthread_mutex_lock(&far->lock);
	far->slots[slot].loan = (struct hoist__far_loan){.bytes = NULL};
	far->slots[slot].lost = lost;
	pthread_mutex_unlock(&far->lock);
	hoist__far_say_ticket(far, far->slots[slot].peer, HOIST__WIRE_TOOK, ticket);
}

bool hoist__far_own(struct hoist__far *far, unsigned index)
{
	struct hoist__far_slot *slot = &far->slots[index];
	struct hoist__far_piece piece = {.next = 0};
	if (slot->loan.bytes == NULL)
		return !slot->lost;
	int err = hoist__far_populate(far, index);
	if (err < 0)
		hoist__far_fail(far, err);
	while (err == 0 && hoist__far_next_piece(far, slot->job.cell, slot->blocks, &piece))
		memcpy(slot->job.slot + piece.offset, slot->loan.bytes + piece.offset, piece.bytes);
	give_back(far, index, err < 0 || !still_holds(&slot->loan));
	return !slot->lost;
}

/* Nobody reads from the slot's loan, if there is one, any more. */
static void end_loan(struct hoist__far *far, unsigned slot)
{
	if (far->slots[slot].loan.bytes != NULL)
		give_back(far, slot, false);
	far->slots[slot].lost = false;
}

void hoist__far_refill(struct hoist__far *far, unsigned slot)
{
	end_loan(far, slot);
	if (far->board != NULL)
		atomic_fetch_add(&far->board->editions[slot], 1);
}

void hoist__far_give_back_all(struct hoist__far *far)
{
	for (unsigned i = 0; i < far->n_slots; i++)
		end_loan(far, i);
}

void hoist__far_own_loans(struct hoist__far *far, unsigned giver)
{
	for (unsigned i = 0; i < far->n_slots; i++)
		if (far->slots[i].loan.bytes != NULL && far->slots[i].peer == giver)
			(void)hoist__far_own(far, i);
}

/* Has the swarm get a lost cell anew. */
static void ask_anew(struct hoist__far *far, unsigned slot, uint64_t now)
{
	if (far->slots[slot].loan.bytes != NULL)
		give_back(far, slot, true);
	hoist__log(load,
		   "group \"%s\": a neighbour's slot was filled anew while it was lent; cell %zu "
		   "is asked for once more",
		   far->name, far->slots[slot].job.cell);
	pthread_mutex_lock(&far->lock);
	far->slots[slot].lost = false;
	hoist__swarm_lost(far->swarm, slot, now);
	pthread_mutex_unlock(&far->lock);
	hoist__far_ring(far);
}

void hoist__far_look_at_loans(struct hoist__far *far, uint64_t now)
{
	unmap_left(far);
	for (unsigned i = 0; i < far->n_slots; i++) {
		const struct hoist__far_slot *slot = &far->slots[i];
		if (slot->loan.bytes == NULL && !slot->lost)
			continue;
		pthread_mutex_lock(&far->lock);
		bool lost = slot->lost;
		bool used = hoist__swarm_slot_of(far->swarm, slot->job.cell) != (int)i;
		pthread_mutex_unlock(&far->lock);
		if (used)
			end_loan(far, i);
		else if (lost)
			ask_anew(far, i, now);
		else if (slot->loan.bytes != NULL && now > slot->loan.since + BORROW_NS)
			(void)hoist__far_own(far, i);
	}
}

/* --- the load's copies --- */

/* The cell's slot, if its bytes are there; -1.  Pre: lock. */
static int slot_with(const struct hoist__far *far, size_t cell)
{
	int slot = hoist__swarm_slot_of(far->swarm, cell);
	return slot >= 0 && !far->slots[slot].lost ? slot : -1;
}

/* Finds the bytes of a cell that is or was HERE; waits for one that is lost.  False: the load
 * fails. */
static bool find_bytes(struct hoist__far *far, size_t cell, struct hoist__far_loan *ret)
{
	bool cancelled = false;
	int slot;
	pthread_mutex_lock(&far->lock);
	while ((slot = slot_with(far, cell)) < 0 && far->err == 0 && !cancelled) {
		(void)hoist__condition_wait(&far->changed, &far->lock, hoist__deadline(LOST_NS));
		cancelled = atomic_load(&far->load->job.cancelled);
	}
	if (slot >= 0)
		*ret = far->slots[slot].loan;
	if (slot >= 0 && ret->memory != NULL)
		ret->memory->n_copies++;
	pthread_mutex_unlock(&far->lock);
	if (slot >= 0 && ret->bytes == NULL)
		ret->bytes = hoist__far_slot(far, (unsigned)slot);
	if (slot < 0 && cancelled)
		hoist__far_fail(far, hoist__fail(-ECANCELED, "the load was cancelled"));
	return slot >= 0;
}

/* Ends a copy.  False: the loan's giver has filled the slot anew.  If the far thread had copied the
 * cell by then, the bytes are in the own slot. */
static bool end_copy(struct hoist__far *far, size_t cell, const struct hoist__far_loan *loan)
{
	if (loan->memory == NULL)
		return true;
	bool holds = still_holds(loan);
	pthread_mutex_lock(&far->lock);
	int slot = hoist__swarm_slot_of(far->swarm, cell);
	if (!holds && slot >= 0 && far->slots[slot].loan.ticket == loan->ticket)
		far->slots[slot].lost = true;
	loan->memory->n_copies--;
	pthread_mutex_unlock(&far->lock);
	if (!holds)
		hoist__far_ring(far);
	return holds;
}

int hoist__far_copy(struct hoist__far *far, size_t file, uint64_t offset, size_t bytes,
		    unsigned char *to)
{
	size_t cell = hoist__cells_at(&far->cells, file, offset);
	size_t at = (size_t)(offset % HOIST__CELL_BYTES);
	struct hoist__far_loan from;
	while (find_bytes(far, cell, &from)) {
		memcpy(to, from.bytes + at, bytes);
		if (end_copy(far, cell, &from))
			return 0;
	}
	return -ECONNRESET;
}
