/* SPDX-License-Identifier: MIT */
/* Buffers that a load reads into: devices, order, states.
 * The contract is in lib/plan/into.h. */
#include "config.h"

#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/checked.h"
#include "lib/buffer/buffer-private.h"
#include "lib/copy/copy.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"
#include "lib/plan/into.h"

/* How long the load sleeps before it asks again for queued work, at most. */
#define AWAIT_NS (UINT64_C(200) * 1000)

hoist_device *hoist__into_device(const hoist_load_into *given, size_t n)
{
	size_t first = 0;
	while (first + 1 < n && given[first].buffer->elements == 0)
		first++;
	const hoist_buffer *buffer = given[first].buffer;
	bool host = buffer->elements > 0 && hoist__storage_is_on_host(buffer->storage);
	return host ? NULL : buffer->device;
}

/* Tells whether the load can write to the buffer's memory as to that of the target's device.  A
 * buffer without elements has no memory. */
static bool is_of(const hoist_buffer *buffer, const struct hoist__into_target *target)
{
	enum hoist__memory_kind kind = hoist__storage_kind(buffer->storage);
	if (buffer->elements == 0)
		return true;
	if (target->stream == NULL)
		return hoist__storage_is_on_host(buffer->storage);
	return buffer->device == target->device &&
	       (kind == HOIST__MEMORY_DEVICE || kind == HOIST__MEMORY_MANAGED);
}

/* --- the buffers --- */

static int take(struct hoist__into *into, size_t t, size_t i)
{
	const struct hoist__into_target *target = &into->targets[t];
	const hoist_load_into *given = &target->given[i];
	hoist_buffer *buffer = given->buffer;
	if (!is_of(buffer, target))
		return hoist__fail(
			-EINVAL,
			"into[%zu]: the buffer for \"%.200s\" lies in %s memory of %s, and the "
			"target is %s; give the buffers of each device, and those in host memory "
			"(device \"cpu\"), to a target of their own (hoist_load_options.targets)",
			i, given->tensor,
			hoist__memory_kind_name(hoist__storage_kind(buffer->storage)),
			hoist_device_spec(buffer->device), hoist_device_spec(target->device));
	int err = hoist__storage_allocate(buffer->storage);
	if (err < 0)
		return hoist__fail_in(err, "into[%zu]: the memory for \"%.200s\"", i,
				      given->tensor);
	into->places[into->n] = (struct hoist__into_place){
		.buffer = hoist_buffer_ref(buffer),
		.storage = hoist__storage_ref(buffer->storage),
		.target = t,
	};
	into->planned[into->n++] = (struct hoist__plan_into){
		.tensor = given->tensor,
		.address = hoist__storage_address(buffer->storage) + buffer->offset,
		.dtype = buffer->dtype,
		.rank = buffer->rank,
		.shape = buffer->dims,
		.strides = buffer->contiguous ? NULL : buffer->strides,
	};
	return 0;
}

int hoist__into_open(const struct hoist__into_target *targets, size_t n, struct hoist__into **ret)
{
	struct hoist__into *into = calloc(1, sizeof *into);
	size_t n_places = 0;
	int err = 0;
	if (into == NULL)
		return hoist__fail_nomem("a load in place", sizeof *into);
	*ret = into;
	for (size_t t = 0; t < n; t++)
		n_places += targets[t].n;
	into->targets = calloc(n, sizeof *into->targets);
	into->places = calloc(n_places, sizeof *into->places);
	into->planned = calloc(n_places, sizeof *into->planned);
	if (into->targets == NULL || into->places == NULL || into->planned == NULL)
		return hoist__fail_nomem("a load in place", n_places * sizeof *into->places);
	into->n_targets = n;
	for (size_t t = 0; err == 0 && t < n; t++) {
		into->targets[t] = targets[t];
		into->targets[t].first = into->n;
		for (size_t i = 0; err == 0 && i < targets[t].n; i++)
			err = take(into, t, i);
	}
	return err;
}

const struct hoist__plan_into *hoist__into_planned(const struct hoist__into *into, size_t target)
{
	return &into->planned[into->targets[target].first];
}

void hoist__into_close(struct hoist__into *into)
{
	if (into == NULL)
		return;
	for (size_t i = 0; i < into->n; i++) {
		hoist_buffer_unref(into->places[i].buffer);
		hoist__storage_unref(into->places[i].storage);
	}
	for (size_t i = 0; i < into->n_events; i++)
		hoist_event_unref(into->events[i]);
	free((void *)into->events);
	free(into->tensors);
	free(into->planned);
	free(into->places);
	free(into->targets);
	free(into);
}

/* --- the order behind queued work --- */

/* True if an earlier buffer of the target has the stream. */
static bool is_known(const struct hoist__into *into, size_t n, const hoist_stream *stream)
{
	bool known = false;
	for (size_t i = n; i-- > 0 && !known && into->places[i].target == into->places[n].target;)
		known = hoist__buffer_known_stream(into->places[i].buffer) == stream;
	return known;
}

static const char *name_of(const struct hoist__into *into, size_t tensor)
{
	return into->checkpoint->tensors[into->plan->tensors[tensor].index].tensor->name;
}

static int follow(struct hoist__into *into, size_t n)
{
	const struct hoist__into_target *target = &into->targets[into->places[n].target];
	hoist_stream *stream = hoist__buffer_known_stream(into->places[n].buffer);
	if (stream == NULL || is_known(into, n, stream))
		return 0;
	int err = hoist__stream_check_capture(stream);
	if (err == 0 && target->stream != NULL)
		err = hoist_stream_wait_for(target->stream, stream);
	else if (err == 0)
		err = hoist_stream_record(stream, 0, &into->events[into->n_events]);
	if (err < 0)
		return hoist__fail_in(
			err,
			"waiting for the work queued on the stream of the buffer for \"%.200s\"",
			name_of(into, into->places[n].tensor));
	into->n_events += target->stream == NULL;
	return 0;
}

/* The bytes of the tensor's elements as they are in the file. */
static uint64_t file_bytes(const struct hoist__into *into, size_t index)
{
	const struct hoist__plan_tensor *tensor = &into->plan->tensors[index];
	hoist_dtype from = into->checkpoint->tensors[tensor->index].tensor->dtype;
	if (from == tensor->dtype)
		return tensor->bytes;
	return tensor->bytes / (hoist_dtype_bits(tensor->dtype) / 8) * (hoist_dtype_bits(from) / 8);
}

/* A region of a pool is one allocation.  About other storages nothing is known but that each lies
 * in one.  @block: the last one that was found; a buffer in it has the same answer.  @last: the
 * last storage in no block. */
static uintptr_t memory_of(const struct hoist__into_place *place, struct hoist__block *block,
			   const struct hoist__storage **last)
{
	struct hoist__pool *pool;
	uintptr_t address = hoist__storage_address(place->storage);
	if (address - block->address < block->allocated)
		return (uintptr_t)block->region;
	if (place->storage != *last && hoist__pools_find(address, &pool, block) == 0)
		return (uintptr_t)block->region;
	*last = place->storage;
	return (uintptr_t)place->storage;
}

/* Finds the tensor of each place, and the bytes that each tensor awaits. */
static int find_tensors(struct hoist__into *into)
{
	const struct hoist__plan *plan = into->plan;
	const struct hoist__storage *last = NULL;
	struct hoist__block block = {0};
	into->tensors = calloc(plan->n_tensors + 1, sizeof *into->tensors);
	into->events = calloc(into->n + 1, sizeof(hoist_event *));
	if (into->tensors == NULL || into->events == NULL)
		return hoist__fail_nomem("a load in place",
					 plan->n_tensors * sizeof *into->tensors);
	for (size_t t = 0; t < into->n_targets; t++) {
		const struct hoist__plan_want *want = &plan->wants[into->targets[t].want];
		for (size_t i = 0; want->in_place && i < want->n_tensors; i++) {
			size_t index = want->first_tensor + i;
			const struct hoist__plan_tensor *tensor = &plan->tensors[index];
			struct hoist__into_place *place =
				&into->places[into->targets[t].first + tensor->entry];
			place->tensor = index;
			into->tensors[index] = (struct hoist__into_tensor){
				.memory = memory_of(place, &block, &last),
				.left = file_bytes(into, index),
				.state = tensor->bytes == 0 ? HOIST_INTO_WHOLE
							    : HOIST_INTO_UNTOUCHED,
			};
		}
	}
	return 0;
}

/* --- overlaps --- */

/* The bytes between a buffer's first and last. */
struct span {
	uint64_t low;
	uint64_t high;
	const struct hoist__into_place *place;
};

static int compare(const void *a, const void *b)
{
	const struct span *first = a;
	const struct span *second = b;
	return (first->low > second->low) - (first->low < second->low);
}

/* Tied tensors may have one place: they are the same bytes, which are read once. */
static bool collide(const struct hoist__into *into, const struct span *a, const struct span *b)
{
	const struct hoist__plan_tensor *tensors = into->plan->tensors;
	return tensors[a->place->tensor].like != tensors[b->place->tensor].like &&
	       hoist__buffers_may_overlap(a->place->buffer, b->place->buffer);
}

static int fail_overlap(const struct hoist__into *into, const struct span *a, const struct span *b)
{
	return hoist__fail(
		-EINVAL,
		"into: the buffers for \"%.200s\" (bytes 0x%llx to 0x%llx) and \"%.200s\" (0x%llx "
		"to 0x%llx) overlap, or interleave in a way that hoist cannot tell from that; give "
		"each tensor memory of its own",
		name_of(into, a->place->tensor), (unsigned long long)a->low,
		(unsigned long long)a->high, name_of(into, b->place->tensor),
		(unsigned long long)b->low, (unsigned long long)b->high);
}

static int check_overlaps(const struct hoist__into *into)
{
	struct span *spans = calloc(into->n > 0 ? into->n : 1, sizeof *spans);
	size_t n = 0;
	bool in_order = true;
	int err = 0;
	if (spans == NULL)
		return hoist__fail_nomem("a load in place", into->n * sizeof *spans);
	for (size_t i = 0; i < into->n; i++) {
		spans[n].place = &into->places[i];
		if (into->places[i].buffer->elements == 0)
			continue;
		hoist__buffer_reach(into->places[i].buffer, &spans[n].low, &spans[n].high);
		in_order = in_order && (n == 0 || spans[n - 1].low <= spans[n].low);
		n++;
	}
	if (!in_order)
		qsort(spans, n, sizeof *spans, compare);
	for (size_t i = 0; err == 0 && i < n; i++)
		for (size_t j = i + 1; err == 0 && j < n && spans[j].low < spans[i].high; j++)
			if (collide(into, &spans[i], &spans[j]))
				err = fail_overlap(into, &spans[i], &spans[j]);
	free(spans);
	return err;
}

int hoist__into_match(struct hoist__into *into, const hoist_checkpoint *checkpoint,
		      const struct hoist__plan *plan)
{
	if (into == NULL)
		return 0;
	into->checkpoint = checkpoint;
	into->plan = plan;
	free(into->planned);
	into->planned = NULL;
	int err = find_tensors(into);
	return err < 0 ? err : check_overlaps(into);
}

int hoist__into_begin(struct hoist__into *into)
{
	int err = 0;
	for (size_t i = 0; into != NULL && err == 0 && i < into->n; i++)
		err = follow(into, i);
	return err;
}

int hoist__into_await(struct hoist__into *into, uint64_t timeout_ns)
{
	int err = 0;
	while (into != NULL && err == 0 && into->n_passed < into->n_events) {
		err = hoist_event_query(into->events[into->n_passed]);
		into->n_passed += err == 0;
	}
	if (err != -EAGAIN)
		return err;
	const struct timespec pause = {
		.tv_nsec = (long)hoist__min_u64(timeout_ns, AWAIT_NS),
	};
	(void)nanosleep(&pause, NULL);
	return 1;
}

/* --- states --- */

void hoist__into_touch(struct hoist__into *into, const struct hoist__chunk *chunk)
{
	struct hoist__plan_bytes brings;
	size_t cursor = 0;
	while (into != NULL && hoist__plan_brings(into->plan, chunk, &cursor, &brings))
		for (size_t p = 0; p < brings.n_places; p++) {
			struct hoist__into_tensor *tensor = &into->tensors[brings.places[p]];
			HOIST__ASSERT(tensor->state != HOIST_INTO_WHOLE);
			tensor->state = HOIST_INTO_TORN;
		}
}

void hoist__into_count(struct hoist__into *into, const struct hoist__chunk *chunk)
{
	struct hoist__plan_bytes brings;
	size_t cursor = 0;
	while (into != NULL && hoist__plan_brings(into->plan, chunk, &cursor, &brings))
		for (size_t p = 0; p < brings.n_places; p++) {
			struct hoist__into_tensor *tensor = &into->tensors[brings.places[p]];
			/* Tensors of other targets have nothing left. */
			if (tensor->left == 0)
				continue;
			HOIST__ASSERT(brings.bytes <= tensor->left);
			tensor->left -= brings.bytes;
			if (tensor->left == 0)
				tensor->state = HOIST_INTO_WHOLE;
		}
}

static struct hoist__into_tensor *tensor_of(const struct hoist__into *into, size_t place)
{
	return &into->tensors[into->plan->tensors[into->places[place].tensor].like];
}

static bool device_failed(const struct hoist__into_target *target)
{
	return target->given != NULL && target->stream != NULL &&
	       hoist__stream_settle(target->stream) < 0;
}

/* Whole tensors of a device that did not do its copies, or of a file that changed, are torn. */
static void doubt(const struct hoist__into *into)
{
	size_t target = SIZE_MAX;
	bool failed = false;
	size_t file = SIZE_MAX;
	bool changed = false;
	for (size_t i = 0; i < into->n; i++) {
		const struct hoist__into_place *place = &into->places[i];
		const struct hoist__plan_tensor *planned = &into->plan->tensors[place->tensor];
		struct hoist__into_tensor *tensor = tensor_of(into, i);
		size_t own = into->checkpoint->tensors[planned->index].file;
		if (place->target != target)
			failed = device_failed(&into->targets[place->target]);
		target = place->target;
		if (tensor->state != HOIST_INTO_WHOLE || planned->bytes == 0)
			continue;
		if (own != file)
			changed = hoist__file_changed(into->checkpoint->files[own].file) < 0;
		file = own;
		if (failed || changed)
			tensor->state = HOIST_INTO_TORN;
	}
}

void hoist__into_end(struct hoist__into *into, int err, struct hoist__failure *failure)
{
	size_t n[HOIST_INTO_WHOLE + 1] = {0};
	size_t torn = 0;
	if (into == NULL || err == 0)
		return;
	doubt(into);
	for (size_t i = into->n; i-- > 0;) {
		enum hoist_into_state state = tensor_of(into, i)->state;
		n[state]++;
		if (state == HOIST_INTO_TORN)
			torn = into->places[i].tensor;
	}
	const char *name = n[HOIST_INTO_TORN] > 0 ? name_of(into, torn) : NULL;
	(void)hoist__fail_because(
		err, failure,
		"%.600s; of the %zu buffers of this load in place %zu are untouched, %zu whole and "
		"%zu torn%s%.100s%s",
		failure->text, into->n, n[HOIST_INTO_UNTOUCHED], n[HOIST_INTO_WHOLE],
		n[HOIST_INTO_TORN], name != NULL ? ", of these first \"" : "",
		name != NULL ? name : "", name != NULL ? "\"" : "");
	hoist__failure_keep(failure);
}

void hoist__into_keep(const struct hoist__into *into)
{
	for (size_t i = 0; into != NULL && i < into->n; i++)
		(void)hoist__storage_ref(into->places[i].storage);
}

hoist_buffer *hoist__into_buffer(const struct hoist__into *into, size_t target, size_t index)
{
	return into->places[into->targets[target].first + into->plan->tensors[index].entry].buffer;
}

int hoist__into_state(const struct hoist__into *into, size_t target, size_t index,
		      enum hoist_into_state *ret)
{
	if (target >= into->n_targets || index >= into->targets[target].n)
		return hoist__fail(-EINVAL, "into[%zu] of target %zu: the load has %zu targets%s",
				   index, target, into->n_targets,
				   target < into->n_targets ? ", and fewer buffers on this one"
							    : "");
	*ret = tensor_of(into, into->targets[target].first + index)->state;
	return 0;
}
