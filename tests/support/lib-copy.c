/* SPDX-License-Identifier: MIT */
/* Random layouts over the memory of each place, and the copy that goes bit by bit. */
#include "config.h"

#include "tests/support/lib-copy.h"
#include "tests/support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/device/device-private.h"
#include "lib/memory/device-memory.h"

static void need(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "%s: %s\n", what, hoist_error());
	abort();
}

static void open_place(hoist_device *device, int kind, const char *name, struct lib_place *ret)
{
	const hoist_memory_options managed = {
		.size = sizeof managed, .kind = HOIST_MEMORY_MANAGED, .device = device};
	int err = kind == HOIST_MEMORY_MANAGED ? hoist_memory_create(&managed, &ret->memory)
					       : hoist_memory_of_device(device, kind, &ret->memory);
	need(err == 0, "a place's memory");
	need(hoist_stream_create(device, &ret->stream) == 0, "a place's stream");
	ret->device = device;
	(void)snprintf(ret->name, sizeof ret->name, "%s %s", hoist_device_spec(device), name);
}

void lib_open_places(hoist_device *const devices[LIB_N_DEVICES],
		     struct lib_place places[LIB_N_PLACES])
{
	open_place(devices[0], HOIST_MEMORY_HOST, "pageable", &places[0]);
	open_place(devices[0], HOIST_MEMORY_PINNED, "locked", &places[1]);
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		struct lib_place *place = &places[2 + 3 * (i - 1)];
		open_place(devices[i], HOIST_MEMORY_DEVICE, "memory", &place[0]);
		open_place(devices[i], HOIST_MEMORY_PINNED, "pinned", &place[1]);
		open_place(devices[i], HOIST_MEMORY_MANAGED, "managed", &place[2]);
	}
}

void lib_close_places(struct lib_place places[LIB_N_PLACES])
{
	for (int i = 0; i < LIB_N_PLACES; i++) {
		hoist_stream_unref(places[i].stream);
		hoist_memory_unref(places[i].memory);
	}
}

hoist_buffer *lib_random_buffer(const struct lib_place *place, size_t bytes, uint64_t *seed,
				unsigned char **model)
{
	hoist_buffer *buffer = NULL;
	const int64_t shape[] = {(int64_t)bytes};
	need(hoist_buffer_create_from(place->memory, NULL, HOIST_U8, 1, shape, 0, &buffer) == 0,
	     "a buffer");
	*model = malloc(bytes);
	need(*model != NULL, "memory");
	random_fill(seed, *model, bytes);
	need(hoist_buffer_write(buffer, 0, *model, bytes) == 0, "writing");
	return buffer;
}

void lib_random_layout(uint64_t *seed, bool repeats, struct lib_layout *ret)
{
	int64_t bits = hoist_dtype_bits(ret->dtype);
	int order[8];
	int64_t reach = 0; /* elements that the axes so far go over */
	int64_t below = 0; /* of these, before the first element */
	for (int i = 0; i < ret->rank; i++) {
		int at = (int)(random_next(seed) % (uint64_t)(i + 1));
		order[i] = order[at];
		order[at] = i;
	}
	bool plain = random_next(seed) % 4 == 0;
	for (int k = 0; k < ret->rank; k++) {
		int i = plain ? ret->rank - 1 - k : order[k];
		int64_t gap =
			plain || random_next(seed) % 2 == 0 ? 0 : (int64_t)(random_next(seed) % 4);
		int64_t way = (ret->shape[i] - 1) * (reach + 1 + gap);
		ret->strides[i] = reach + 1 + gap;
		if (repeats && random_next(seed) % 4 == 0) {
			ret->strides[i] = 0;
			continue;
		}
		if (!plain && random_next(seed) % 4 == 0) {
			ret->strides[i] = -ret->strides[i];
			below += way;
		}
		reach += way;
	}
	int64_t guard = (int64_t)(random_next(seed) % 20);
	int64_t first = bits % 8 != 0 ? guard * 8 + (plain ? 0 : (int64_t)(random_next(seed) % 8)) +
						below * bits
				      : (guard + below * (bits / 8)) * 8;
	/* Only a multiple of 2 bits is where an element can begin. */
	first -= bits % 8 != 0 ? first % 2 : 0;
	ret->offset = (size_t)(first / 8);
	ret->bit = (unsigned)(first % 8);
	ret->bytes = (size_t)((first + (reach - below + 1) * bits + 7) / 8 + 13);
}

hoist_buffer *lib_view(hoist_buffer *bytes, const struct lib_layout *layout)
{
	hoist_buffer *view = NULL;
	const struct hoist__view made = {
		.dtype = layout->dtype,
		.rank = layout->rank,
		.bit = layout->bit,
		.offset = bytes->offset + layout->offset,
		.shape = layout->shape,
		.strides = layout->strides,
	};
	need(hoist__buffer_make(bytes->storage, &made, &view) == 0, "a view");
	return view;
}

/* Bits of the element at @index, from the buffer's beginning on. */
static uint64_t place_of(const struct lib_layout *layout, const int64_t *index)
{
	int64_t at = 0;
	for (int i = 0; i < layout->rank; i++)
		at += index[i] * layout->strides[i];
	return layout->offset * 8 + layout->bit +
	       (uint64_t)(at * (int64_t)hoist_dtype_bits(layout->dtype));
}

static void copy_element(unsigned char *dst, uint64_t to, const unsigned char *src, uint64_t from,
			 unsigned bits)
{
	if (bits % 8 == 0) {
		memcpy(dst + to / 8, src + from / 8, bits / 8);
		return;
	}
	for (unsigned i = 0; i < bits; i++, to++, from++) {
		unsigned bit = (unsigned)src[from / 8] >> from % 8 & 1u;
		unsigned others = dst[to / 8] & ~(1u << to % 8);
		dst[to / 8] = (unsigned char)(others | bit << to % 8);
	}
}

void lib_model_copy(unsigned char *dst, const struct lib_layout *to, const unsigned char *src,
		    const struct lib_layout *from)
{
	unsigned char *before = malloc(from->bytes);
	int64_t index[8] = {0};
	need(before != NULL, "memory");
	memcpy(before, src, from->bytes);
	for (int i = 0; i >= 0;) {
		copy_element(dst, place_of(to, index), before, place_of(from, index),
			     hoist_dtype_bits(to->dtype));
		for (i = to->rank - 1; i >= 0 && ++index[i] == to->shape[i]; i--)
			index[i] = 0;
	}
	free(before);
}

bool lib_has_bytes(hoist_buffer *buffer, const unsigned char *model, size_t bytes)
{
	unsigned char *got = malloc(bytes);
	need(got != NULL, "memory");
	need(hoist_buffer_read(buffer, 0, got, bytes) == 0, "reading");
	bool same = memcmp(got, model, bytes) == 0;
	for (size_t i = 0; !same && i < bytes; i++)
		if (got[i] != model[i]) {
			(void)fprintf(stderr, "byte %zu of %zu is 0x%02x, not 0x%02x\n", i, bytes,
				      got[i], model[i]);
			break;
		}
	free(got);
	return same;
}

/* How many of an API's devices have one, and waits for those. */
static uint64_t settle_default_streams(hoist_device *const devices[LIB_N_DEVICES], const char *api)
{
	uint64_t n = 0;
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_stream *stream = atomic_load(&devices[i]->xstream);
		if (strncmp(lib_specs[i], api, strlen(api)) != 0 || stream == NULL)
			continue;
		need(hoist_stream_synchronize(stream) == 0, "a default stream");
		n++;
	}
	return n;
}

static bool has_only(const char *api, uint64_t n_streams)
{
	const struct hoist_emulator_counters c = lib_counters(api);
	return c.live_streams == n_streams && c.live_allocations == 0 && c.live_bytes == 0 &&
	       c.live_registrations == 0 && c.live_events == 0 && c.live_pools == 0;
}

static bool check_api(hoist_device *const devices[LIB_N_DEVICES], const char *api)
{
	uint64_t n_streams = 0;
	/* A pending block is marked on its stream first, and given back when the stream has
	 * passed the mark.  A block that several streams use waits for one after the other. */
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < LIB_N_DEVICES; i++)
			hoist__device_trim(devices[i]);
		n_streams = settle_default_streams(devices, api);
		if (has_only(api, n_streams))
			return true;
	}
	const struct hoist_emulator_counters c = lib_counters(api);
	(void)fprintf(stderr,
		      "%s: %llu streams of which %llu are the devices', %llu allocations, "
		      "%llu registrations, %llu events\n",
		      api, (unsigned long long)c.live_streams, (unsigned long long)n_streams,
		      (unsigned long long)c.live_allocations,
		      (unsigned long long)c.live_registrations, (unsigned long long)c.live_events);
	return false;
}

bool lib_only_default_streams(hoist_device *const devices[LIB_N_DEVICES])
{
	bool cuda = check_api(devices, "cuda");
	return check_api(devices, "hip") && cuda;
}
