/* SPDX-License-Identifier: MIT */
/* tests/support/alloc-clock.h - blocks that change hands while their streams are late.
 *
 * A player, a thread with a stream, takes a block, and queues: a copy of a pattern into it, one
 * back out of it, and a write of garbage over it.  The player frees the block behind them, when
 * they have hardly begun, and goes on.  The player reads back its own pattern to the last byte,
 * unless a player before it was still writing (the garbage), or one after it was let in too early.
 *
 *   turns     of device memory: all on the stream; or one half on a stream that all share,
 *             which the block is told of (use)
 *             of pinned memory: the player himself writes the pattern, at once
 *   ring      a player's last patterns, and what came back: looked at half by half, when the
 *             event behind that half has passed
 *
 * Blocks come from what struct clock_calls stands for: pools, or the public resources. */
#ifndef HOIST_TESTS_ALLOC_CLOCK_H
#define HOIST_TESTS_ALLOC_CLOCK_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#define CLOCK_PLAYERS 3
#define CLOCK_BYTES 1024 /* of the largest block */
#define CLOCK_RING 512
#define CLOCK_HALF (CLOCK_RING / 2)
#define CLOCK_OWNERS 65536
#define CLOCK_HOST_BYTES ((size_t)CLOCK_PLAYERS * 2 * CLOCK_RING * CLOCK_BYTES)

/* @from gives device memory or pinned memory; streams are as it knows them. */
struct clock_calls {
	int (*alloc)(void *from, size_t bytes, uintptr_t *ret);
	int (*alloc_on)(void *from, size_t bytes, void *stream, uintptr_t *ret);
	int (*free)(void *from, uintptr_t address);
	int (*free_on)(void *from, uintptr_t address, void *stream);
	int (*use)(void *from, uintptr_t address, void *stream);
};

struct clock_stream {
	struct hoist__dev_stream *stream;
	void *known; /* to the calls */
};

struct clock {
	const struct clock_calls *calls;
	void *device;
	void *pinned;
	struct hoist__dev *dev;
	struct clock_stream streams[CLOCK_PLAYERS + 1]; /* the last is everybody's */
	uintptr_t garbage;				/* CLOCK_BYTES of it, on the device */
	unsigned char *host;				/* the rings, registered */
	_Atomic uint8_t owners[CLOCK_OWNERS];		/* the last, by address: for the figures */
	_Atomic uint64_t n_turns;
	_Atomic uint64_t n_others; /* blocks that were another player's before */
	_Atomic uint64_t n_asked;  /* times that a stream was asked behind a free ... */
	_Atomic uint64_t n_late;   /* ... and had not passed it */
};

struct clock_player {
	struct clock *clock;
	unsigned index;
	uint64_t random;
	uint64_t n; /* turns to play */
	pthread_t thread;
	unsigned char *patterns;
	unsigned char *results;
	size_t bytes[CLOCK_RING];
	struct hoist__dev_event *own[2];    /* behind each half */
	struct hoist__dev_event *common[2]; /* the same on everybody's stream */
	struct hoist__dev_event *handed;
};

/* --- the stage; the streams are the caller's --- */

static inline void clock_open(struct clock *clock)
{
	struct hoist__dev_stream *stream = clock->streams[0].stream;
	clock->host = mmap(NULL, CLOCK_HOST_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(clock->host != MAP_FAILED);
	CHECK(hoist__dev_host_register(clock->dev, clock->host, CLOCK_HOST_BYTES) == 0);
	CHECK(hoist__dev_mem_alloc(clock->dev, CLOCK_BYTES, &clock->garbage) == 0);
	CHECK(hoist__fill_async(stream, clock->garbage, 0xEE, 1, CLOCK_BYTES) == 0);
	CHECK(hoist__dev_stream_synchronize(stream) == 0);
}

static inline void clock_close(struct clock *clock)
{
	CHECK(hoist__dev_mem_free(clock->dev, clock->garbage, CLOCK_BYTES) == 0);
	CHECK(hoist__dev_host_unregister(clock->dev, clock->host, CLOCK_HOST_BYTES) == 0);
	(void)munmap(clock->host, CLOCK_HOST_BYTES);
}

/* --- one turn --- */

static inline size_t clock_some_bytes(struct clock_player *player)
{
	size_t most = random_below(&player->random, 16) == 0 ? CLOCK_BYTES : CLOCK_BYTES / 4;
	return 1 + random_below(&player->random, most);
}

static inline void clock_note_owner(struct clock_player *player, uintptr_t block)
{
	struct clock *clock = player->clock;
	uint8_t me = (uint8_t)(player->index + 1);
	uint8_t last = atomic_exchange(&clock->owners[block / 64 % CLOCK_OWNERS], me);
	if (last != 0 && last != me)
		atomic_fetch_add(&clock->n_others, 1);
}

static inline void clock_to_device(struct clock_stream *on, uintptr_t dst, const void *src,
				   size_t bytes)
{
	CHECK(hoist__copy_async(on->stream, HOIST__COPY_HOST_TO_DEVICE, dst, (uintptr_t)src,
				bytes) == 0);
}

static inline void clock_to_host(struct clock_stream *on, void *dst, uintptr_t src, size_t bytes)
{
	CHECK(hoist__copy_async(on->stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)dst, src,
				bytes) == 0);
}

static inline void clock_spoil(struct clock_stream *on, uintptr_t block, size_t bytes)
{
	CHECK(hoist__fill_async(on->stream, block, 0xEE, 1, bytes) == 0);
}

/* Everybody's stream gets the second half of the block, which it writes itself, or waits for. */
static inline void clock_share(struct clock_player *player, uintptr_t block, size_t slot,
			       bool written)
{
	struct clock *clock = player->clock;
	struct clock_stream *all = &clock->streams[CLOCK_PLAYERS];
	size_t half = player->bytes[slot] / 2;
	size_t rest = player->bytes[slot] - half;
	if (written) {
		struct hoist__dev_stream *own = clock->streams[player->index].stream;
		CHECK(hoist__dev_event_record(player->handed, own) == 0);
		CHECK(hoist__dev_stream_wait_event(all->stream, player->handed) == 0);
	} else {
		clock_to_device(all, block + half, player->patterns + slot * CLOCK_BYTES + half,
				rest);
	}
	clock_to_host(all, player->results + slot * CLOCK_BYTES + half, block + half, rest);
	clock_spoil(all, block + half, rest);
	CHECK(clock->calls->use(clock->device, block, all->known) == 0);
}

static inline void clock_give(struct clock_player *player, void *from, uintptr_t block)
{
	const struct clock_calls *calls = player->clock->calls;
	void *own = player->clock->streams[player->index].known;
	if (random_below(&player->random, 16) != 0) {
		CHECK(calls->free_on(from, block, own) == 0);
	} else {
		CHECK(calls->use(from, block, own) == 0);
		CHECK(calls->free(from, block) == 0);
	}
}

static inline uintptr_t clock_take(struct clock_player *player, void *from, size_t bytes, bool on)
{
	const struct clock_calls *calls = player->clock->calls;
	void *own = player->clock->streams[player->index].known;
	uintptr_t block = 0;
	CHECK((on ? calls->alloc_on(from, bytes, own, &block)
		  : calls->alloc(from, bytes, &block)) == 0);
	clock_note_owner(player, block);
	return block;
}

static inline void clock_turn_of_device(struct clock_player *player, size_t slot)
{
	struct clock *clock = player->clock;
	struct clock_stream *own = &clock->streams[player->index];
	unsigned char *pattern = player->patterns + slot * CLOCK_BYTES;
	size_t bytes = player->bytes[slot];
	bool on = random_below(&player->random, 2) != 0;
	bool shared = random_below(&player->random, on ? 64 : 8) == 0;
	uintptr_t block = clock_take(player, clock->device, bytes, on);
	/* A block that was taken for the own stream is for no other before that has passed. */
	clock_to_device(own, block, pattern, shared && !on ? bytes / 2 : bytes);
	if (shared)
		clock_share(player, block, slot, on);
	clock_to_host(own, player->results + slot * CLOCK_BYTES, block, shared ? bytes / 2 : bytes);
	clock_spoil(own, block, shared ? bytes / 2 : bytes);
	clock_give(player, clock->device, block);
}

/* Through a staging block, which a copy from the device spoils. */
static inline void clock_turn_of_pinned(struct clock_player *player, size_t slot)
{
	struct clock *clock = player->clock;
	struct clock_stream *own = &clock->streams[player->index];
	size_t bytes = player->bytes[slot];
	/* A quarter of pinned memory's sizes: fewer slabs, and the next owner comes sooner. */
	uintptr_t staging = clock_take(player, clock->pinned, (bytes + 255) / 256 * 256,
				       random_below(&player->random, 2) != 0);
	memcpy((void *)staging, player->patterns + slot * CLOCK_BYTES, bytes);
	uintptr_t block =
		clock_take(player, clock->device, bytes, random_below(&player->random, 2) != 0);
	clock_to_device(own, block, (const void *)staging, bytes);
	clock_to_host(own, (void *)staging, clock->garbage, bytes);
	clock_give(player, clock->pinned, staging);
	clock_to_host(own, player->results + slot * CLOCK_BYTES, block, bytes);
	clock_give(player, clock->device, block);
}

/* --- the ring --- */

static inline void clock_look(struct clock_player *player, size_t first, size_t n)
{
	for (size_t slot = first; slot < first + n; slot++)
		CHECK(memcmp(player->patterns + slot * CLOCK_BYTES,
			     player->results + slot * CLOCK_BYTES, player->bytes[slot]) == 0);
}

static inline void clock_half_queued(struct clock_player *player, size_t half)
{
	struct clock *clock = player->clock;
	struct hoist__dev_stream *own = clock->streams[player->index].stream;
	struct hoist__dev_stream *all = clock->streams[CLOCK_PLAYERS].stream;
	CHECK(hoist__dev_event_record(player->own[half], own) == 0);
	CHECK(hoist__dev_event_record(player->common[half], all) == 0);
}

static inline void clock_half_passed(struct clock_player *player, size_t half)
{
	CHECK(hoist__dev_event_synchronize(player->own[half]) == 0);
	CHECK(hoist__dev_event_synchronize(player->common[half]) == 0);
	clock_look(player, half * CLOCK_HALF, CLOCK_HALF);
}

static inline void clock_prepare(struct clock_player *player, size_t slot, uint64_t turn)
{
	uint64_t *words = (uint64_t *)(void *)(player->patterns + slot * CLOCK_BYTES);
	player->bytes[slot] = clock_some_bytes(player);
	for (size_t i = 0; i * sizeof *words < player->bytes[slot]; i++)
		words[i] = (turn * CLOCK_PLAYERS + player->index) * UINT64_C(0x9E3779B97F4A7C15) +
			   i * UINT64_C(0xD1B54A32D192ED03);
}

static inline void clock_ask_how_late(struct clock *clock, struct hoist__dev_stream *stream)
{
	int err = hoist__dev_stream_query(stream);
	CHECK(err == 0 || err == -EAGAIN);
	atomic_fetch_add(&clock->n_asked, 1);
	atomic_fetch_add(&clock->n_late, err == -EAGAIN);
}

static inline void clock_turns(struct clock_player *player)
{
	struct clock *clock = player->clock;
	for (uint64_t i = 0; i < player->n; i++) {
		size_t slot = i % CLOCK_RING;
		if (slot % CLOCK_HALF == 0 && i >= CLOCK_RING)
			clock_half_passed(player, slot / CLOCK_HALF);
		clock_prepare(player, slot, i);
		if (random_below(&player->random, 4) == 0)
			clock_turn_of_pinned(player, slot);
		else
			clock_turn_of_device(player, slot);
		if (i % 61 == 0)
			clock_ask_how_late(clock, clock->streams[player->index].stream);
		if (slot % CLOCK_HALF == CLOCK_HALF - 1)
			clock_half_queued(player, slot / CLOCK_HALF);
	}
	CHECK(hoist__dev_stream_synchronize(clock->streams[player->index].stream) == 0);
	CHECK(hoist__dev_stream_synchronize(clock->streams[CLOCK_PLAYERS].stream) == 0);
	clock_look(player, 0, player->n < CLOCK_RING ? player->n : CLOCK_RING);
	atomic_fetch_add(&clock->n_turns, player->n);
}

static inline void *clock_play(void *argument)
{
	struct clock_player *player = argument;
	struct hoist__dev *dev = player->clock->dev;
	for (int i = 0; i < 2; i++) {
		CHECK(hoist__dev_event_create(dev, 0, &player->own[i]) == 0);
		CHECK(hoist__dev_event_create(dev, 0, &player->common[i]) == 0);
	}
	CHECK(hoist__dev_event_create(dev, 0, &player->handed) == 0);
	clock_turns(player);
	for (int i = 0; i < 2; i++) {
		hoist__dev_event_destroy(player->own[i]);
		hoist__dev_event_destroy(player->common[i]);
	}
	hoist__dev_event_destroy(player->handed);
	return NULL;
}

/* All players, @n turns together at least.  With @sure fails unless streams were late often, and
 * many blocks came from another player: else it would have shown nothing. */
static inline void clock_run(struct clock *clock, const char *name, uint64_t n, bool sure)
{
	static struct clock_player players[CLOCK_PLAYERS];
	atomic_store(&clock->n_turns, 0);
	atomic_store(&clock->n_others, 0);
	atomic_store(&clock->n_asked, 0);
	atomic_store(&clock->n_late, 0);
	for (unsigned i = 0; i < CLOCK_PLAYERS; i++) {
		unsigned char *ring = clock->host + (size_t)i * 2 * CLOCK_RING * CLOCK_BYTES;
		players[i] = (struct clock_player){
			.clock = clock,
			.index = i,
			.random = n + i,
			.n = (n + CLOCK_PLAYERS - 1) / CLOCK_PLAYERS,
			.patterns = ring,
			.results = ring + (size_t)CLOCK_RING * CLOCK_BYTES,
		};
		CHECK(pthread_create(&players[i].thread, NULL, clock_play, &players[i]) == 0);
	}
	for (unsigned i = 0; i < CLOCK_PLAYERS; i++)
		CHECK(pthread_join(players[i].thread, NULL) == 0);
	uint64_t n_turns = atomic_load(&clock->n_turns);
	uint64_t n_others = atomic_load(&clock->n_others);
	uint64_t n_asked = atomic_load(&clock->n_asked);
	uint64_t n_late = atomic_load(&clock->n_late);
	printf("%s: %llu turns, %llu blocks were another's before; late at %llu of %llu frees\n",
	       name, (unsigned long long)n_turns, (unsigned long long)n_others,
	       (unsigned long long)n_late, (unsigned long long)n_asked);
	CHECK(!sure || (n_others > n_turns / 500 && n_late > n_asked / 4));
}

#endif
