/* SPDX-License-Identifier: MIT */
/* HOIST_LOAD_STREAM: tensors are given one by one, in order, as they arrive; windows bound the
 * memory of what is given. */
#include "config.h"

#include <poll.h>

#include "tests/lib/load/stream.h"

static void tensors_come_in_the_order_of_the_file(const char *spec, size_t window, unsigned flags,
						  int io)
{
	hoist_device *device = support_device(spec);
	hoist_load_options o = {.size = sizeof o,
				.device = device,
				.flags = HOIST_LOAD_STREAM | flags,
				.io = (enum hoist_io)io,
				.window_bytes = window};
	hoist_load *load = start(&o);
	size_t last = 0;
	for (size_t i = 0; i < N; i++) {
		hoist_load_item item = next_of(load);
		CHECK(item.target == 0 && item.index == item.tensor && item.tensor < N);
		CHECK((sizes[item.tensor] == 0) == (i < N_EMPTY));
		CHECK(i == 0 || i == N_EMPTY || item.tensor > last);
		last = item.tensor;
		same_bytes(item.tensor, item.buffer);
		drop(&item);
	}
	CHECK(try_next(load, UINT64_MAX) == 0 && try_next(load, 0) == 0);
	OK(hoist_load_wait(load));
	hoist_load_report report = support_report(load);
	CHECK(window == 0 ? report.window_peak_bytes == 0
			  : report.window_peak_bytes <= window + 5 * MIB + 8 * KIB);
	hoist_buffer *none = NULL;
	CHECK(hoist_load_tensor(load, 0, NULL, &none) == -EINVAL && none == NULL);
	support_said("hoist_load_next()");
	CHECK(hoist_load_buffer(load, "t000003", &none) == -EINVAL && none == NULL);
	hoist_load_destroy(load);
	hoist_device_unref(device);
}

static void every_way_of_loading_streams(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	static const size_t windows[] = {0, 1, 2 * MIB, 100 * MIB};
	for (size_t d = 0; d < 2; d++)
		for (size_t w = 0; w < 4; w++)
			for (int io = HOIST_IO_AUTO; io <= HOIST_IO_CACHED; io++)
				tensors_come_in_the_order_of_the_file(
					specs[d], windows[w],
					w % 2 == 0 ? HOIST_LOAD_CALLER_DRIVEN : 0, io);
	tensors_come_in_the_order_of_the_file("cpu", 0, 0, HOIST_IO_MAP);
	tensors_come_in_the_order_of_the_file("cpu", 0, HOIST_LOAD_POPULATE, HOIST_IO_MAP);
	tensors_come_in_the_order_of_the_file("cuda:0", 2 * MIB, 0, HOIST_IO_MAP);
	tensors_come_in_the_order_of_the_file("cuda:0", 2 * MIB, HOIST_LOAD_DIGEST, HOIST_IO_AUTO);
}

/* Reads and gives the tensors that each entry names, then the rest: in a window of one tensor,
 * nothing but the next one can have been read. */
static void tensors_come_in_the_order_that_is_asked_for(const char *spec, size_t window,
							unsigned flags)
{
	static const char *const order[] = {"t000012", "t00000[38]", "t000003", "*7", "t00001*"};
	static const size_t came[] = {1, 7, 12, 3, 8, 10, 11, 13, 0, 2, 4, 5, 6, 9};
	hoist_device *device = support_device(spec);
	hoist_load_options o = {.size = sizeof o,
				.device = device,
				.flags = HOIST_LOAD_STREAM | flags,
				.window_bytes = window,
				.order = order,
				.n_order = 5};
	hoist_load *load = start(&o);
	for (size_t i = 0; i < N; i++) {
		hoist_load_item item = next_of(load);
		CHECK(item.tensor == came[i] && item.index == item.tensor);
		same_bytes(item.tensor, item.buffer);
		drop(&item);
	}
	CHECK(try_next(load, UINT64_MAX) == 0);
	hoist_load_destroy(load);
	hoist_device_unref(device);
}

static void every_way_of_loading_follows_an_order(void)
{
	static const char *const specs[] = {"cpu", "cuda:0"};
	static const size_t windows[] = {0, 1, 6 * MIB};
	for (size_t d = 0; d < 2; d++)
		for (size_t w = 0; w < 3; w++)
			for (unsigned digest = 0; digest < 2; digest++)
				tensors_come_in_the_order_that_is_asked_for(
					specs[d], windows[w],
					(digest ? HOIST_LOAD_DIGEST : 0) |
						(w % 2 == 0 ? HOIST_LOAD_CALLER_DRIVEN : 0));
}

/* The window holds what the caller holds: the next tensor waits for room, whatever the timeout. */
static void a_full_window_is_an_error_until_room_is_made(const char *spec, unsigned flags)
{
	struct backing backing = {0};
	hoist_device *device = support_device(spec);
	hoist_memory *memory = make_custom(&backing, device, 1, 0);
	hoist_load_options o = {.size = sizeof o,
				.device = device,
				.memory = memory,
				.flags = HOIST_LOAD_STREAM | flags,
				.window_bytes = 6 * MIB};
	hoist_load *load = start(&o);
	hoist_load_item held[N];
	size_t n_held = 0;
	size_t n_given = 0;
	unsigned n_full = 0;
	for (int got = 1; got != 0;) {
		hoist_load_item item = {.size = sizeof item};
		got = hoist_load_next(load, UINT64_MAX, &item);
		if (got == -ENOBUFS) {
			support_said("the window of 6291456 bytes on ");
			support_said("is full: the caller holds ");
			CHECK(n_held > 0 && hoist_load_wait(load) == -EINVAL);
			n_full++;
			drop(&held[--n_held]);
			continue;
		}
		CHECK(got == 0 || got == 1);
		if (got == 1)
			held[n_held++] = item;
		n_given += got == 1;
		CHECK(backing.n_allocs >= backing.n_frees);
	}
	CHECK(n_full > 1 && n_given == N);
	OK(hoist_load_wait(load));
	CHECK(support_report(load).window_peak_bytes <= 6 * MIB);
	hoist_load_destroy(load);
	while (n_held > 0) {
		same_bytes(held[n_held - 1].tensor, held[n_held - 1].buffer);
		drop(&held[--n_held]);
	}
	CHECK(backing.n_allocs == backing.n_frees);
	hoist_memory_unref(memory);
	hoist_device_unref(device);
}

/* Nothing else has memory while a tensor is loaded that is larger than the window. */
static void a_tensor_larger_than_the_window_is_alone(void)
{
	struct backing backing = {0};
	hoist_device *device = support_device("cpu");
	hoist_memory *memory = make_custom(&backing, device, 1, 0);
	hoist_load_options o = {.size = sizeof o,
				.memory = memory,
				.flags = HOIST_LOAD_STREAM | HOIST_LOAD_CALLER_DRIVEN,
				.window_bytes = 1};
	hoist_load *load = start(&o);
	hoist_load_item item = {.size = sizeof item};
	hoist_load_item before = {.size = sizeof before};
	unsigned n_alone = 0;
	for (int got; (got = look(load, &item)) != 0;) {
		CHECK(got == 1 || got == -ENOBUFS);
		if (got == -ENOBUFS)
			drop(&before);
		CHECK(backing.n_allocs - backing.n_frees <= 1);
		n_alone += got == -ENOBUFS;
		if (got == 1) {
			hoist_buffer_unref(before.buffer);
			before = item;
		}
	}
	CHECK(n_alone > 3);
	drop(&before);
	hoist_load_destroy(load);
	hoist_memory_unref(memory);
	hoist_device_unref(device);
}

/* On a stream of the load's own a tensor is given when its copies have ended; on the caller's, as
 * soon as they are queued. */
/* Small tensors of one target lie between large ones of another: no lot waits for the file's end.
 */
static void targets_whose_tensors_alternate_keep_the_window(void)
{
	static const char *const small[] = {"t000000", "t000005", "t000006", "t000009", "t000013"};
	static const char *const large[] = {"t000002", "t000003", "t000004", "t000008",
					    "t000010", "t000011", "t000012"};
	const hoist_load_target first = {.size = sizeof first, .tensors = small, .n_tensors = 5};
	const hoist_load_target second = {.size = sizeof second, .tensors = large, .n_tensors = 7};
	const hoist_load_target *const targets[] = {&first, &second};
	hoist_load_options o = {.size = sizeof o,
				.flags = HOIST_LOAD_STREAM,
				.window_bytes = 6 * MIB,
				.targets = targets,
				.n_targets = 2};
	hoist_load *load = start(&o);
	for (size_t i = 0; i < 12; i++) {
		hoist_load_item item = next_of(load);
		CHECK(item.target == (sizes[item.tensor] >= 300 * KIB));
		same_bytes(item.tensor, item.buffer);
		drop(&item);
	}
	CHECK(try_next(load, UINT64_MAX) == 0);
	CHECK(support_report(load).window_peak_bytes <= 8 * MIB);
	hoist_load_destroy(load);
}

static void buffers_are_behind_their_copies(void)
{
	hoist_device *device = support_device("cuda:0");
	hoist_stream *stream = NULL;
	OK(hoist_stream_create(device, &stream));
	for (int own = 0; own < 2; own++) {
		hoist_load_options o = {.size = sizeof o,
					.device = device,
					.stream = own ? NULL : stream,
					.flags = HOIST_LOAD_STREAM | HOIST_LOAD_CALLER_DRIVEN};
		hoist_load *load = start(&o);
		hoist_load_item item;
		for (size_t i = 0; i < N_EMPTY; i++) {
			item = next_of(load);
			drop(&item);
		}
		support_hold("cuda", true);
		item = (hoist_load_item){.size = sizeof item};
		int got = -ETIMEDOUT;
		for (int i = 0; i < 40 && got == -ETIMEDOUT; i++)
			got = hoist_load_next(load, own ? 5000000 : UINT64_MAX, &item);
		CHECK(got == (own ? -ETIMEDOUT : 1));
		hoist_stream *on = NULL;
		if (!own)
			CHECK(hoist_buffer_stream(item.buffer, &on) == 0 && on == stream);
		support_hold("cuda", false);
		if (!own)
			same_bytes(item.tensor, item.buffer);
		drop(&item);
		while (try_next(load, UINT64_MAX) > 0)
			continue;
		hoist_load_destroy(load);
	}
	hoist_stream_unref(stream);
	hoist_device_unref(device);
}

/* Buffers that are dropped at once, while their copies are queued, and on the caller's stream. */
static void drops_on_a_stream_make_room(void)
{
	hoist_device *device = support_device("cuda:0");
	hoist_stream *stream = NULL;
	OK(hoist_stream_create(device, &stream));
	hoist_load_options o = {.size = sizeof o,
				.device = device,
				.stream = stream,
				.flags = HOIST_LOAD_STREAM,
				.window_bytes = 3 * MIB};
	hoist_load *load = start(&o);
	for (size_t i = 0; i < N; i++) {
		hoist_load_item item = next_of(load);
		OK(hoist_buffer_close(item.buffer, i % 2 == 0 ? stream : NULL));
		drop(&item);
	}
	CHECK(try_next(load, UINT64_MAX) == 0);
	hoist_load_destroy(load);
	CHECK(support_counters("cuda").use_after_free == 0);
	hoist_stream_unref(stream);
	hoist_device_unref(device);
}

static bool is_readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	int n = poll(&poll_fd, 1, 0);
	CHECK(n >= 0);
	return n == 1;
}

/* Readable: a tensor, a full window, the end. */
static void a_descriptor_tells_when_to_call(void)
{
	hoist_load_options o = {
		.size = sizeof o, .flags = HOIST_LOAD_STREAM, .window_bytes = 6 * MIB};
	hoist_load *load = start(&o);
	int fd = hoist_load_fd(load);
	CHECK(fd >= 0 && hoist_load_fd(load) == fd);
	hoist_load_item held[N];
	size_t n_held = 0;
	for (;;) {
		struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
		CHECK(poll(&poll_fd, 1, -1) == 1);
		hoist_load_item item = {.size = sizeof item};
		int got = hoist_load_next(load, 0, &item);
		CHECK(got == 0 || got == 1 || got == -ENOBUFS);
		if (got == 0)
			break;
		if (got == 1)
			held[n_held++] = item;
		else
			while (n_held > 0)
				drop(&held[--n_held]);
	}
	CHECK(is_readable(fd));
	while (n_held > 0)
		drop(&held[--n_held]);
	hoist_load_destroy(load);
	/* Copies that never end are nothing to call for. */
	hoist_device *device = support_device("cuda:0");
	o = (hoist_load_options){.size = sizeof o, .device = device, .flags = HOIST_LOAD_STREAM};
	support_hold("cuda", true);
	load = start(&o);
	fd = hoist_load_fd(load);
	for (size_t i = 0; i < N_EMPTY; i++) {
		CHECK(is_readable(fd));
		hoist_load_item item = next_of(load);
		drop(&item);
	}
	CHECK(!is_readable(fd) && try_next(load, 0) == -ETIMEDOUT &&
	      try_next(load, 1000) == -ETIMEDOUT);
	support_hold("cuda", false);
	while (try_next(load, UINT64_MAX) > 0)
		continue;
	hoist_load_destroy(load);
	hoist_device_unref(device);
}

/* Readable: the end, however the load ended and whenever the descriptor is asked for. */
static void a_descriptor_of_a_whole_load_tells_its_end(void)
{
	hoist_device *device = support_device("cuda:0");
	hoist_load_options o = {.size = sizeof o, .device = device};
	hoist_load_report report = {.size = sizeof report};
	for (int cancelled = 0; cancelled < 2; cancelled++) {
		support_hold("cuda", true);
		hoist_load *load = start(&o);
		int fd = hoist_load_fd(load);
		CHECK(fd >= 0 && hoist_load_fd(load) == fd && !is_readable(fd));
		if (cancelled)
			hoist_load_cancel(load);
		support_hold("cuda", false);
		struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
		CHECK(poll(&poll_fd, 1, -1) == 1);
		OK(hoist_load_get_report(load, &report)); /* not -EAGAIN: the load is done */
		CHECK(hoist_load_wait(load) == (cancelled ? -ECANCELED : 0));
		CHECK(is_readable(fd));
		hoist_load_destroy(load);
	}
	hoist_load *load = start(&o);
	OK(hoist_load_wait(load));
	CHECK(is_readable(hoist_load_fd(load)));
	hoist_load_destroy(load);
	hoist_device_unref(device);
}

static void wrong_calls_say_so(void)
{
	hoist_checkpoint *checkpoint = support_open("m.safetensors");
	hoist_load_options o = {.size = sizeof o, .window_bytes = MIB};
	support_load_fails(checkpoint, &o, -EINVAL, "add HOIST_LOAD_STREAM");
	o.flags = HOIST_LOAD_STREAM;
	o.io = HOIST_IO_MAP;
	support_load_fails(checkpoint, &o, -EINVAL,
			   "maps take no memory that a window could bound");
	const char *const order[] = {"t*", "t9*", NULL};
	o = (hoist_load_options){.size = sizeof o, .n_order = 2};
	support_load_fails(checkpoint, &o, -EINVAL, "n_order is 2, and order is NULL");
	o.order = order;
	support_load_fails(checkpoint, &o, -ENOENT, "called or matches \"t9*\"");
	o.n_order = 3;
	support_load_fails(checkpoint, &o, -EINVAL, "order[2] is NULL");
	o.n_order = SIZE_MAX;
	support_load_fails(checkpoint, &o, -EINVAL, "is no list of so many names");
	hoist_checkpoint_close(checkpoint);

	o = (hoist_load_options){.size = sizeof o};
	hoist_load *load = start(&o);
	CHECK(try_next(load, 0) == -EINVAL);
	support_said("started with HOIST_LOAD_STREAM");
	hoist_load_destroy(load);
	o.flags = HOIST_LOAD_CALLER_DRIVEN;
	load = start(&o);
	CHECK(hoist_load_fd(load) == -EINVAL);
	hoist_load_destroy(load);

	o.flags = HOIST_LOAD_STREAM | HOIST_LOAD_CALLER_DRIVEN;
	load = start(&o);
	CHECK(hoist_load_fd(load) == -EINVAL);
	CHECK(hoist_load_next(load, 0, NULL) == -EINVAL);
	hoist_load_item item = {.size = sizeof item + 8};
	CHECK(hoist_load_next(load, 0, &item) == -EINVAL && item.buffer == NULL);
	/* Without a window, the load may be waited for before its tensors are taken. */
	OK(hoist_load_wait(load));
	unsigned char digest[16];
	CHECK(hoist_load_digest(load, 0, digest) == -EINVAL);
	for (size_t i = 0; i < N; i++)
		CHECK(try_next(load, 0) == 1);
	CHECK(try_next(load, 0) == 0);
	hoist_load_destroy(load);
}

int main(void)
{
	support_emulate("cuda:2");
	support_write("m.safetensors", 0, N, sizes, 1333);
	every_way_of_loading_streams();
	every_way_of_loading_follows_an_order();
	a_full_window_is_an_error_until_room_is_made("cpu", 0);
	a_full_window_is_an_error_until_room_is_made("cpu", HOIST_LOAD_CALLER_DRIVEN);
	a_tensor_larger_than_the_window_is_alone();
	targets_whose_tensors_alternate_keep_the_window();
	buffers_are_behind_their_copies();
	drops_on_a_stream_make_room();
	a_descriptor_tells_when_to_call();
	a_descriptor_of_a_whole_load_tells_its_end();
	wrong_calls_say_so();
	support_cleanup();
	return 0;
}
