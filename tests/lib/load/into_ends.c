/* SPDX-License-Identifier: MIT */
/* Loads in place: what is read straight, the order behind queued work, and the states of buffers
 * after loads that do not succeed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/checkpoint/checkpoint.h"
#include "lib/plan/plan.h"
#include "tests/support/lib-gate.h"
#include "tests/support/load-support.h"

enum { CPU, CUDA_0, CUDA_1, HIP_0, N_DEVICES };

static hoist_device *devices[N_DEVICES];

/* --- straight --- */

enum { N_SIZES = 5 };
static const size_t sizes[N_SIZES] = {(3 << 20) + 17, 100, 700000, 2 << 20, 9000};

/* Tensors at @address + their place in the file, each moved by move[i]; @first, if not NULL, is
 * read first; *ret_images: their bytes that are read straight. */
static void plan_at(hoist_checkpoint *checkpoint, uint64_t address, const uint64_t *move,
		    const char *first, size_t *ret_extents, uint64_t *ret_images)
{
	struct hoist__plan_into into[N_SIZES];
	struct hoist__plan plan;
	int64_t shapes[N_SIZES];
	for (size_t i = 0; i < N_SIZES; i++) {
		const struct hoist__tensor *tensor = checkpoint->tensors[i].tensor;
		shapes[i] = (int64_t)sizes[i];
		into[i] = (struct hoist__plan_into){.tensor = tensor->name,
						    .address = address + tensor->offset + move[i],
						    .dtype = HOIST_U8,
						    .rank = 1,
						    .shape = &shapes[i]};
	}
	const struct hoist__plan_asked asked = {.into = into, .n_into = N_SIZES};
	const struct hoist__plan_options options = {.wants = &asked,
						    .n_wants = 1,
						    .order = &first,
						    .n_order = first != NULL,
						    .tensor_align = 256};
	OK(hoist__plan_make(checkpoint, &options, &plan));
	*ret_extents = plan.n_extents;
	*ret_images = 0;
	for (size_t e = 0; e < plan.n_extents; e++) {
		const struct hoist__plan_extent *extent = &plan.extents[e];
		if (extent->staged)
			continue;
		CHECK(extent->begin % extent->align == 0 && extent->end % extent->align == 0);
		CHECK(extent->image % extent->align == 0);
		*ret_images += extent->end - extent->begin;
	}
	hoist__plan_fini(&plan);
}

static void images_lie_between_boundaries(void)
{
	support_write("s.safetensors", 0, N_SIZES, sizes, 123);
	hoist_checkpoint *checkpoint = support_open("s.safetensors");
	const uint64_t at = UINT64_C(1) << 40;
	const uint64_t all = (3 << 20) + 17 + 100 + 700000 + (2 << 20) + 9000;
	const uint64_t gaps[] = {0, 4096, 8192, 12288, 16384};
	const uint64_t odd[] = {1, 2, 3, 4, 5};
	const uint64_t none[N_SIZES] = {0};
	size_t extents = 0;
	uint64_t images = 0;
	plan_at(checkpoint, at, none, NULL, &extents, &images);
	CHECK(extents == 3 && images > all - 8192 && images < all);
	/* Each large tensor by itself; the small ones are staged. */
	plan_at(checkpoint, at, gaps, NULL, &extents, &images);
	CHECK(extents == 7 && images > all - 9100 - 4 * 8192 && images < all - 9100);
	plan_at(checkpoint, at, odd, NULL, &extents, &images);
	CHECK(extents == 1 && images == 0);
	/* No image goes from one tier on into the next. */
	plan_at(checkpoint, at, none, "t000000", &extents, &images);
	CHECK(extents == 6 && images > all - 4 * 4096 && images < all);
	hoist_checkpoint_close(checkpoint);
}

/* The buffers of one load are filled again by the next. */
static void memory_of_a_load_is_read_into_again(hoist_device *device)
{
	support_write("s.safetensors", 0, N_SIZES, sizes, 123);
	hoist_checkpoint *checkpoint = support_open("s.safetensors");
	const hoist_load_options first = {.size = sizeof first, .device = device};
	hoist_load *load = NULL;
	hoist_load_into into[N_SIZES];
	OK(hoist_load_start(checkpoint, &first, &load));
	OK(hoist_load_wait(load));
	for (size_t i = 0; i < N_SIZES; i++) {
		hoist_tensor_info info = {.size = sizeof info};
		size_t t = 0;
		OK(hoist_load_tensor(load, i, &t, &into[i].buffer));
		OK(hoist_checkpoint_tensor(checkpoint, t, &info));
		into[i].tensor = info.name;
	}
	hoist_load_destroy(load);
	for (unsigned io = HOIST_IO_AUTO; io <= HOIST_IO_CACHED; io++) {
		for (size_t i = 0; i < N_SIZES; i++)
			OK(hoist_buffer_fill(into[i].buffer, "\xee", 1));
		const hoist_load_options again = {.size = sizeof again,
						  .io = (enum hoist_io)io,
						  .into = into,
						  .n_into = N_SIZES,
						  .flags = HOIST_LOAD_DIGEST};
		OK(hoist_load_start(checkpoint, &again, &load));
		OK(hoist_load_wait(load));
		support_compare(checkpoint, load);
		hoist_load_destroy(load);
	}
	for (size_t i = 0; i < N_SIZES; i++)
		hoist_buffer_unref(into[i].buffer);
	hoist_checkpoint_close(checkpoint);
}

static void memory_of_loads_is_read_into_again(void)
{
	for (int d = 0; d < N_DEVICES; d++)
		memory_of_a_load_is_read_into_again(devices[d]);
}

/* --- order --- */

static int write_late(void *context)
{
	struct gate *gate = context;
	(void)gate_pass(gate);
	return 0;
}

/* The work that is queued on a buffer's stream comes first, and the load's bytes stay. */
static void writes_wait_for_queued_work(void)
{
	support_write("s.safetensors", 0, 1, sizes, 123);
	hoist_checkpoint *checkpoint = support_open("s.safetensors");
	const int64_t n = (int64_t)sizes[0];
	for (int d = CPU; d <= CUDA_0; d++) {
		struct gate gate;
		hoist_stream *stream = NULL;
		hoist_load_into into = {.tensor = "t000000"};
		hoist_load *load = NULL;
		gate_init(&gate);
		OK(hoist_stream_create(devices[d], &stream));
		OK(hoist_buffer_create_on(stream, HOIST_U8, 1, &n, 0, &into.buffer));
		OK(hoist_stream_synchronize(stream));
		OK(hoist_stream_call(stream, write_late, &gate));
		OK(hoist_buffer_fill_on(into.buffer, "\xee", 1, stream));
		const hoist_load_options o = {.size = sizeof o,
					      .into = &into,
					      .n_into = 1,
					      .flags = HOIST_LOAD_CALLER_DRIVEN};
		OK(hoist_load_start(checkpoint, &o, &load));
		for (int step = 0; step < 50; step++)
			CHECK(hoist_load_step(load, 100000) == 0);
		enum hoist_into_state state;
		CHECK(hoist_load_into_state(load, 0, 0, &state) == -EAGAIN);
		gate_open(&gate);
		OK(hoist_load_wait(load));
		CHECK(atomic_load(&gate.passed) == 1);
		support_compare(checkpoint, load);
		hoist_load_destroy(load);
		hoist_buffer_unref(into.buffer);
		hoist_stream_unref(stream);
	}
	hoist_checkpoint_close(checkpoint);
}

static void a_capture_is_not_broken(void)
{
	static const char *const apis[] = {"cuda", "hip"};
	static const int first[] = {CUDA_0, HIP_0};
	support_write("s.safetensors", 0, 1, sizes, 123);
	hoist_checkpoint *checkpoint = support_open("s.safetensors");
	const int64_t n = (int64_t)sizes[0];
	for (int i = 0; i < 2; i++) {
		hoist_stream *stream = NULL;
		hoist_load_into into = {.tensor = "t000000"};
		OK(hoist_stream_create(devices[first[i]], &stream));
		OK(hoist_buffer_create_on(stream, HOIST_U8, 1, &n, 0, &into.buffer));
		OK(hoist_stream_synchronize(stream));
		OK(lib_capture(apis[i], hoist_stream_native(stream), 1));
		const hoist_load_options o = {.size = sizeof o, .into = &into, .n_into = 1};
		support_load_fails(checkpoint, &o, -ENOTSUP, "captures a graph");
		OK(lib_capture(apis[i], hoist_stream_native(stream), 0));
		hoist_buffer_unref(into.buffer);
		hoist_stream_unref(stream);
	}
	hoist_checkpoint_close(checkpoint);
}

/* --- states --- */

enum { N_MANY = 40, EACH = 50000 };

struct many {
	hoist_checkpoint *checkpoint;
	hoist_load_into into[N_MANY];
	hoist_load *load;
};

static hoist_buffer *make_zeros(hoist_device *device)
{
	const int64_t n = EACH;
	hoist_buffer *buffer = NULL;
	OK(hoist_buffer_create(device, HOIST_U8, 1, &n, HOIST_BUFFER_ZERO, &buffer));
	return buffer;
}

static void start_many(struct many *many, hoist_device *device)
{
	size_t each[N_MANY];
	for (size_t i = 0; i < N_MANY; i++)
		each[i] = EACH;
	support_write("m.safetensors", 0, N_MANY, each, 0);
	many->checkpoint = support_open("m.safetensors");
	for (size_t i = 0; i < N_MANY; i++) {
		hoist_tensor_info info = {.size = sizeof info};
		OK(hoist_checkpoint_tensor(many->checkpoint, i, &info));
		many->into[i].tensor = info.name;
		many->into[i].buffer = make_zeros(device);
	}
	hoist_load_options o = {.size = sizeof o,
				.into = many->into,
				.n_into = N_MANY,
				.depth = 1,
				.chunk_bytes = 16384,
				.io = HOIST_IO_DIRECT,
				.flags = HOIST_LOAD_CALLER_DRIVEN};
	/* Reads run ahead of a slow device's copies by the slots alone. */
	OK(hoist_budget_create(8 * o.chunk_bytes, &o.budget));
	OK(hoist_load_start(many->checkpoint, &o, &many->load));
	hoist_budget_unref(o.budget);
}

/* Counts the states, and looks at the bytes: a buffer is zero before. */
static void end_many(struct many *many, size_t n[3])
{
	static unsigned char out[EACH];
	static unsigned char file[EACH];
	int fd = open(support_path("m.safetensors"), O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	n[0] = n[1] = n[2] = 0;
	for (size_t i = 0; i < N_MANY; i++) {
		enum hoist_into_state state = HOIST_INTO_TORN;
		hoist_tensor_info info = {.size = sizeof info};
		OK(hoist_load_into_state(many->load, 0, i, &state));
		OK(hoist_checkpoint_tensor(many->checkpoint, i, &info));
		CHECK(pread(fd, file, EACH, (off_t)info.offset) == EACH);
		OK(hoist_buffer_copy_out(many->into[i].buffer, out, EACH));
		n[state]++;
		if (state == HOIST_INTO_WHOLE)
			CHECK(memcmp(out, file, EACH) == 0);
		for (size_t b = 0; state == HOIST_INTO_UNTOUCHED && b < EACH; b++)
			CHECK(out[b] == 0);
		hoist_buffer_unref(many->into[i].buffer);
	}
	OK(close(fd));
	hoist_load_destroy(many->load);
	hoist_checkpoint_close(many->checkpoint);
}

/* Bytes that have arrived say how far a load is that is cancelled then. */
static void a_cancelled_load_says_what_is_torn(void)
{
	for (int d = CPU; d <= CUDA_0; d++) {
		struct many many;
		uint64_t done = 0;
		char text[128];
		size_t n[3];
		start_many(&many, devices[d]);
		while (done < (uint64_t)N_MANY * EACH / 2) {
			CHECK(hoist_load_step(many.load, UINT64_MAX) == 0);
			hoist_load_progress(many.load, &done, NULL);
		}
		hoist_load_cancel(many.load);
		CHECK(hoist_load_wait(many.load) == -ECANCELED);
		(void)snprintf(text, sizeof text, "%s", "of the 40 buffers of this load in place");
		support_said(text);
		const char *figures = strstr(hoist_error(), "in place ");
		char said[256];
		(void)snprintf(said, sizeof said, "%s", figures != NULL ? figures : "");
		end_many(&many, n);
		(void)snprintf(text, sizeof text,
			       "in place %zu are untouched, %zu whole and %zu torn",
			       n[HOIST_INTO_UNTOUCHED], n[HOIST_INTO_WHOLE], n[HOIST_INTO_TORN]);
		CHECK(strstr(said, text) == said);
		CHECK(n[HOIST_INTO_WHOLE] >= 15 && n[HOIST_INTO_UNTOUCHED] >= 10);
		CHECK(n[0] + n[1] + n[2] == N_MANY);
	}
}

static void a_file_that_changes_tears_all(void)
{
	struct many many;
	size_t n[3];
	start_many(&many, devices[CPU]);
	const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	OK(utimensat(AT_FDCWD, support_path("m.safetensors"), times, 0));
	CHECK(hoist_load_wait(many.load) == -EBADMSG);
	end_many(&many, n);
	CHECK(n[HOIST_INTO_TORN] == N_MANY);
}

/* A copy that a device refuses leaves its tensor torn, and those behind it untouched. */
static void a_copy_that_fails_tears_its_tensor(void)
{
	struct many many;
	size_t n[3];
	start_many(&many, devices[CUDA_0]);
	support_fail("cuda", "cuMemcpyHtoDAsync_v2:30");
	CHECK(hoist_load_wait(many.load) == -EREMOTEIO);
	support_fail("cuda", "");
	end_many(&many, n);
	CHECK(n[HOIST_INTO_TORN] > 0 && n[HOIST_INTO_UNTOUCHED] > 0 && n[HOIST_INTO_WHOLE] > 0);
}

int main(void)
{
	support_emulate("cuda:2,hip:1");
	lib_open_all(devices);
	CASE(images_lie_between_boundaries);
	CASE(memory_of_loads_is_read_into_again);
	CASE(writes_wait_for_queued_work);
	CASE(a_capture_is_not_broken);
	CASE(a_cancelled_load_says_what_is_torn);
	CASE(a_file_that_changes_tears_all);
	CASE(a_copy_that_fails_tears_its_tensor);
	for (int d = 0; d < N_DEVICES; d++)
		hoist_device_unref(devices[d]);
	support_cleanup();
	return 0;
}
