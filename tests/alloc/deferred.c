/* SPDX-License-Identifier: MIT */
/* Blocks in stream order, on the CPU and on both stand-ins: what comes out, when, and what it
 * cost.  Exit: 0, 1. */
#include "config.h"

#include <sys/wait.h>

#include "tests/support/alloc-stage.h"
#include "tests/support/random.h"

/* --- one thing each --- */

static bool order(void)
{
	begin("order", true);
	keep_busy(0);
	push(1, 0);
	push(2, 0);
	push(3, 1);
	CHECK(hoist__deferred_any(deferred) && hoist__deferred_bytes(deferred) == 3 * BLOCK);
	CHECK(hoist__deferred_holds(deferred, block(1)) &&
	      !hoist__deferred_holds(deferred, block(4)));
	uintptr_t out[4];
	size_t n = 0;
	while (n == 0)
		n = hoist__deferred_sweep(deferred, false, out, 4);
	bool busy = is_busy(0);
	if (busy) {
		CHECK(n == 1 && out[0] == block(3));
		/* One at a time: the rest is kept. */
		CHECK(hoist__deferred_sweep(deferred, true, out, 1) == 1 && out[0] == block(1));
		CHECK(!is_busy(0) && hoist__deferred_bytes(deferred) == BLOCK);
		CHECK(hoist__deferred_sweep(deferred, false, out, 4) == 1 && out[0] == block(2));
		n = 3;
	}
	CHECK(n + drain() == 3);
	end();
	return busy;
}

static bool taking(void)
{
	begin("taking", true);
	keep_busy(0);
	push(1, 0);
	push(2, 0);
	push(4, 0);
	CHECK(take(1) == 0);
	CHECK(hoist__deferred_take(deferred, streams[0], BLOCK * 2, 1) == 0);
	CHECK(hoist__deferred_take(deferred, streams[0], BLOCK, BLOCK * 2) == block(4));
	CHECK(take(0) == block(2));
	if (sweep(false) != 0) { /* block 1: the stream was not that busy */
		end();
		return false;
	}
	CHECK(take(0) == block(1)); /* its batch is closed */
	CHECK(take(0) == 0 && !hoist__deferred_any(deferred));
	/* They have their stream as user now, once. */
	push(1, 0);
	push(2, -1);
	CHECK(take(0) == block(2) && take(0) == block(1));
	/* With another user it is not for the taking. */
	use(1, 1);
	use(1, 1);
	push(1, 0);
	push(2, 1);
	push(4, 0);
	CHECK(take(1) == 0 && take(0) == block(4) && take(0) == 0);
	push(4, 0);
	CHECK(drain() == 3);
	end();
	begin("host memory is not taken", false);
	push(1, 0);
	CHECK(take(0) == 0 && drain() == 1);
	end();
	return true;
}

static bool several_users(void)
{
	begin("several users", true);
	keep_busy(1);
	use(1, 1);
	push(1, 0);
	use(2, 1);
	use(2, 0);
	push(2, -1);
	push(3, 0);
	uintptr_t out[4];
	size_t n = 0;
	while (n == 0)
		n = hoist__deferred_sweep(deferred, false, out, 4);
	bool busy = is_busy(1);
	CHECK(!busy || (n == 1 && out[0] == block(3)));
	CHECK(n + drain() == 3 && !is_busy(1));
	end();
	return busy;
}

static bool forgetting(void)
{
	begin("forgetting", true);
	struct hoist__dev_stream *kept = streams[1];
	CHECK(hoist__dev_stream_create(dev, &streams[1]) == 0);
	keep_busy(1);
	use(1, 1);
	push(2, 1);
	push(3, 1);
	CHECK(take(1) == block(3));		      /* live, used by it */
	hoist__deferred_forget(deferred, streams[2]); /* never heard of */
	hoist__deferred_forget(deferred, streams[1]);
	CHECK(take(1) == 0);
	push(3, -1);
	push(1, 0);
	size_t n = sweep(false);
	bool busy = is_busy(1);
	CHECK(!busy || n == 0);
	hoist__dev_stream_destroy(streams[1]);
	streams[1] = kept;
	CHECK(n + drain() == 3);
	end();
	return busy;
}

/* Blocks that live on wait for the last event of their stream, and once that has passed for
 * nothing. */
static bool forgotten_users(void)
{
	begin("users that are gone", true);
	struct hoist__dev_stream *kept = streams[1];
	CHECK(hoist__dev_stream_create(dev, &streams[1]) == 0);
	keep_busy(1);
	use(1, 1);
	use(2, 1);
	hoist__deferred_forget(deferred, streams[1]); /* does not wait */
	push(1, -1);
	size_t n = sweep(false);
	bool busy = is_busy(1);
	CHECK(!busy || n == 0);
	hoist__dev_stream_destroy(streams[1]);
	streams[1] = kept;
	CHECK(n + sweep(true) == 1);
	push(2, -1);
	CHECK(sweep(false) == 1);
	end();
	return busy;
}

static void economy(void)
{
	begin("economy", true);
	size_t out = 0;
	uint64_t before = api == HOIST__API_CPU ? 0 : called("EventRecord");
	for (int i = 0; i < 10000; i++)
		push(i, i % N_STREAMS);
	CHECK(calls.of[HOIST__CALL_EVENT].n <= 10000 / HOIST__DEFERRED_BATCH);
	CHECK(calls.of[HOIST__CALL_EVENT].n >= 10000 / HOIST__DEFERRED_BATCH - N_STREAMS);
	out += drain();
	CHECK(out == 10000);
	CHECK(calls.of[HOIST__CALL_EVENT].n <= 10000 / HOIST__DEFERRED_BATCH + N_STREAMS);
	if (api != HOIST__API_CPU)
		CHECK(called("EventRecord") - before == calls.of[HOIST__CALL_EVENT].n);
	/* Sweeping after every free takes no event each, as long as the stream is behind. */
	keep_busy(0);
	memset(&calls, 0, sizeof calls);
	for (int i = 0; i < 32; i++) {
		push(i, 0);
		(void)sweep(false);
	}
	CHECK(!is_busy(0) || calls.of[HOIST__CALL_EVENT].n == 1);
	(void)drain();
	end();
}

/* A stream whose native handle nobody has cannot capture: nothing is asked of the driver. */
static void fast_path(void)
{
	begin("the fast path", true);
	struct hoist__dev_stream *kept = streams[0];
	CHECK(hoist__dev_stream_create(dev, &streams[0]) == 0);
	for (int i = 0; i < 8; i++)
		push(i, 0);
	uint64_t before = api == HOIST__API_CPU ? 0 : counters_of(&control).calls;
	long mallocs = failing.n_calls;
	for (int i = 0; i < 10000; i++) {
		uintptr_t address = take(0);
		CHECK(address == block(7));
		CHECK(hoist__deferred_push(deferred, address, BLOCK, streams[0]) == 0);
	}
	CHECK(failing.n_calls == mallocs);
	CHECK(calls.of[HOIST__CALL_EVENT].n == 0 && calls.of[HOIST__CALL_QUERY].n == 0);
	if (api != HOIST__API_CPU)
		CHECK(counters_of(&control).calls == before);
	/* Whole batches, taken again and again: their events come back without a sweep. */
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < 8; i++)
			CHECK(take(0) != 0);
		for (int i = 0; i < 8; i++)
			push(i, 0);
		for (int i = 8; i < 72; i++)
			push(i, 0);
		for (int i = 8; i < 72; i++)
			CHECK(take(0) != 0);
	}
	if (api != HOIST__API_CPU)
		CHECK(counters_of(&control).live_events <= 2);
	hoist__deferred_forget(deferred, streams[0]);
	hoist__dev_stream_destroy(streams[0]);
	streams[0] = kept;
	CHECK(drain() == 8);
	end();
}

/* --- captures --- */

static void captures(void)
{
	begin("captures", true);
	control.hold(1);
	work(0, 0);
	push(1, 0);
	CHECK(sweep(false) == 0); /* recorded before, it must not be asked for meanwhile */
	capture(0, true, 0);
	control.hold(0);
	/* A block that was freed before is not asked for now, nor lent to the graph. */
	CHECK(sweep(true) == 0 && take(0) == 0);
	push(2, 0);
	push(3, 0);
	CHECK(take(0) == block(3) && take(0) == block(2) && take(0) == 0);
	push(2, 0);
	push(4, 1); /* another stream's blocks come and go meanwhile */
	CHECK(sweep(true) == 1);
	hoist__deferred_release_captured(deferred); /* too early */
	CHECK(sweep(true) == 0);
	capture(0, false, 0);
	CHECK(take(0) == block(1) && take(0) == 0);
	/* The graph has blocks 2 and 3, also if 3 is freed only now; not 1. */
	push(3, 0);
	push(1, 0);
	CHECK(sweep(true) == 1 && sweep(true) == 0);
	CHECK(hoist__deferred_bytes(deferred) == 2 * BLOCK && !hoist__deferred_any(deferred));
	/* Another graph must not share them. */
	capture(0, true, 0);
	CHECK(take(0) == 0);
	capture(0, false, 0);
	hoist__deferred_release_captured(deferred);
	CHECK(hoist__deferred_any(deferred) && sweep(true) == 2);
	end();
}

/* Ends within one batch, without a sweep: nobody saw it but the free itself. */
static void short_capture(void)
{
	begin("a short capture", true);
	push(1, 0);
	capture(0, true, 0);
	push(2, 0);
	capture(0, false, 0);
	CHECK(take(0) == block(1) && take(0) == 0);
	push(1, 0);
	CHECK(sweep(true) == 1 && sweep(true) == 0);
	CHECK(drain() == 1);
	end();
	begin("a user that captured", true);
	capture(1, true, 0);
	use(1, 1);
	capture(1, false, 0);
	push(1, 0);
	use(2, 1);
	capture(1, true, 0);
	push(2, 0);
	capture(1, false, 0);
	CHECK(sweep(true) == 0 && hoist__deferred_bytes(deferred) == 2 * BLOCK);
	hoist__deferred_release_captured(deferred);
	CHECK(sweep(true) == 2);
	end();
}

static void ends_while_capturing(void)
{
	begin("the stream goes while it captures", true);
	void *native = hoist__dev_stream_native(streams[1]);
	struct hoist__dev_stream *kept = streams[1];
	CHECK(hoist__dev_stream_wrap(dev, native, &streams[1]) == 0);
	use(1, 1);
	push(2, 1);
	CHECK(control.capture(native, 1) == 0);
	push(3, 1);
	hoist__deferred_forget(deferred, streams[1]);
	hoist__dev_stream_destroy(streams[1]);
	streams[1] = kept;
	push(1, -1);
	CHECK(sweep(true) == 0 && hoist__deferred_bytes(deferred) == 3 * BLOCK);
	hoist__deferred_release_captured(deferred);
	CHECK(control.capture(native, 0) == 0);
	CHECK(sweep(true) == 3);
	end();
	begin("the pool goes while a stream captures", true);
	push(1, 0);
	capture(0, true, 0);
	push(2, 0);
	CHECK(drain() == 2);
	capture(0, false, 0);
	end();
}

/* --- a random life, against marks that the streams write --- */

enum { FREE, LIVE, PENDING };

struct slot {
	int state;
	unsigned users; /* bits of streams */
	size_t allocated;
};

static struct slot slots[N_SLOTS];
static uint64_t dice;

static void came_out(const uintptr_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t slot = (out[i] - block(0)) / BLOCK;
		CHECK(slot < N_SLOTS && slots[slot].state == PENDING);
		for (size_t stream = 0; stream < N_STREAMS; stream++)
			CHECK((slots[slot].users >> stream & 1) == 0 ||
			      marks[slot * N_STREAMS + stream] == due[slot * N_STREAMS + stream]);
		slots[slot] = (struct slot){.state = FREE};
	}
}

static void random_step(int i, int stream)
{
	struct slot *slot = &slots[i];
	uintptr_t out[8];
	switch (random_below(&dice, 12)) {
	case 0:
		came_out(out, hoist__deferred_sweep(deferred, random_below(&dice, 8) == 0, out, 8));
		break;
	case 1:
	case 2:
		if (slot->state != LIVE)
			break;
		work(i, stream);
		use(i, stream);
		slot->users |= 1u << stream;
		break;
	case 3:
	case 4:
	case 5: {
		size_t allocated = (size_t)(1 + random_below(&dice, 8)) * BLOCK;
		uintptr_t address =
			hoist__deferred_take(deferred, streams[stream], allocated, BLOCK);
		if (address == 0)
			break;
		slot = &slots[(address - block(0)) / BLOCK];
		CHECK(slot->state == PENDING && slot->users == 1u << stream &&
		      slot->allocated == allocated);
		slot->state = LIVE;
		break;
	}
	default:
		if (slot->state == FREE)
			*slot = (struct slot){.state = LIVE,
					      .allocated =
						      (size_t)(1 + random_below(&dice, 8)) * BLOCK};
		if (slot->state != LIVE)
			break;
		work(i, stream);
		slot->users |= 1u << stream;
		slot->state = PENDING;
		CHECK(hoist__deferred_push(deferred, block(i), slot->allocated, streams[stream]) ==
		      0);
	}
}

static void random_life(void)
{
	begin("a random life", true);
	uintptr_t out[64];
	dice = 20260;
	if (api != HOIST__API_CPU)
		control.set_latency(0, 50);
	for (int i = 0; i < 50000; i++) {
		random_step((int)random_below(&dice, N_SLOTS), (int)random_below(&dice, N_STREAMS));
		size_t pending = 0;
		for (int s = 0; i % 512 == 0 && s < N_SLOTS; s++) {
			pending += slots[s].state == PENDING ? slots[s].allocated : 0;
			CHECK(hoist__deferred_holds(deferred, block(s)) ==
			      (slots[s].state == PENDING));
		}
		CHECK(i % 512 != 0 || hoist__deferred_bytes(deferred) == pending);
	}
	for (int i = 0; i < N_SLOTS; i++)
		if (slots[i].state == LIVE && slots[i].users != 0) {
			CHECK(hoist__deferred_push(deferred, block(i), slots[i].allocated, NULL) ==
			      0);
			slots[i].state = PENDING;
		}
	for (size_t n; (n = hoist__deferred_drain(deferred, out, 64)) != 0;)
		came_out(out, n);
	for (int i = 0; i < N_SLOTS; i++)
		CHECK(slots[i].state != PENDING);
	memset(slots, 0, sizeof slots);
	end();
}

/* --- fork --- */

static void in_child(size_t bytes)
{
	uintptr_t out[8];
	CHECK(take(0) == 0);
	CHECK(sweep(false) == 0 && sweep(true) == 0);
	hoist__deferred_release_captured(deferred);
	CHECK(hoist__deferred_bytes(deferred) == bytes);
	struct hoist__dev *cpu;
	struct hoist__dev_stream *stream;
	CHECK(hoist__dev_get(HOIST__API_CPU, 0, &cpu) == 0);
	CHECK(hoist__dev_stream_create(cpu, &stream) == 0);
	CHECK(hoist__deferred_push(deferred, block(4), BLOCK, stream) == 0);
	CHECK(hoist__deferred_push(deferred, block(5), BLOCK, stream) == 0);
	CHECK(hoist__deferred_take(deferred, stream, BLOCK, 1) == block(5));
	/* Block 6 has a user of the parent's. */
	CHECK(hoist__deferred_push(deferred, block(6), BLOCK, stream) == 0);
	CHECK(hoist__deferred_sweep(deferred, true, out, 8) == 1 && out[0] == block(4));
	CHECK(hoist__deferred_sweep(deferred, true, out, 8) == 0);
	hoist__deferred_forget(deferred, stream);
	hoist__dev_stream_destroy(stream);
	CHECK(hoist__deferred_drain(deferred, out, 8) == 0);
	hoist__deferred_destroy(deferred);
	_exit(0);
}

static void forking(void)
{
	begin("fork", true);
	keep_busy(0);
	push(1, 0);
	size_t n = sweep(false); /* none, unless this is slower than the stream */
	push(2, 0);
	push(3, 1);
	use(6, 1);
	size_t bytes = hoist__deferred_bytes(deferred);
	CHECK(bytes == (3 - n) * BLOCK);
	hoist__deferred_lock(deferred);
	pid_t child = fork();
	hoist__deferred_unlock(deferred);
	CHECK(child >= 0);
	if (child == 0)
		in_child(bytes);
	int status = 0;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	push(6, -1);
	CHECK(n + drain() == 4);
	end();
}

/* Until the stream was busy for as long as the scene looked at it. */
static void play(bool (*one)(void))
{
	for (attempt = 0; !one(); attempt += attempt < MOST_BUSY)
		continue;
	attempt = 0;
}

static void all_of(enum hoist__api which)
{
	open_device(which);
	play(order);
	play(taking);
	play(several_users);
	play(forgetting);
	play(forgotten_users);
	economy();
	fast_path();
	random_life();
	if (api != HOIST__API_CPU) {
		captures();
		short_capture();
		ends_while_capturing();
	}
	forking();
	close_device();
}

int main(void)
{
	all_of(HOIST__API_CPU);
	all_of(HOIST__API_CUDA);
	all_of(HOIST__API_HIP);
	return 0;
}
