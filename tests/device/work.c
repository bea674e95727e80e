/* SPDX-License-Identifier: MIT */
/* Work on streams that is more than bytes in a row, on the CPU and with every driver, each
 * against a model of bytes: see device-driver.h. */
#include "config.h"

#define SUITE device_work

#include "base/checked.h"
#include "tests/support/device-driver.h"

#define ANYWHERE(name, body)                                                                       \
	ON_CPU(name, body)                                                                         \
	EVERYWHERE(name, body)

/* What every test has: a stream, host memory that is registered, as much device memory, and
 * what is expected to be there. */
static struct hoist__dev_stream *stream;
static uintptr_t memory;
static unsigned char *model;

static void set_up(void)
{
	OK(hoist__dev_stream_create(dev, &stream));
	if (hoist__dev_api(dev) != HOIST__API_CPU) /* which needs none, and has a limit */
		OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	model = calloc(1, BYTES);
	cr_assert_not_null(model);
	OK(hoist__fill_async(stream, memory, 0, 1, BYTES));
}

static void tear_down_with(int err)
{
	cr_assert_eq(hoist__dev_stream_synchronize(stream), err, "%s", hoist__error_text());
	free(model);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	if (hoist__dev_api(dev) != HOIST__API_CPU)
		OK(hoist__dev_host_unregister(dev, host, BYTES));
	hoist__dev_stream_destroy(stream);
}

static void tear_down(void)
{
	tear_down_with(0);
}

/* The device's memory is what the model says. */
static void compare(void)
{
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, memory, BYTES));
	OK(hoist__dev_stream_synchronize(stream));
	for (size_t i = 0; i < BYTES; i++)
		if (host[i] != model[i])
			cr_assert_fail("byte %zu is %#x, not %#x", i, host[i], model[i]);
}

/* --- fills --- */

static void fill(size_t offset, uint32_t value, unsigned width, size_t n)
{
	OK(hoist__fill_async(stream, memory + offset, value, width, n));
	for (size_t i = 0; i < n * width; i++)
		model[offset + i] = (unsigned char)(value >> 8 * (i % width));
}

static void fills(void)
{
	set_up();
	fill(0, 0x01020304, 4, BYTES / 4);
	fill(8, 0xfffe1234, 2, 1000001);
	fill(4, 0xa0b0c0d0, 4, 1);
	fill(3, 0xffffff77, 1, 2);
	fill(BYTES - 2, 0xbeef, 2, 1);
	fill(BYTES - 12, 0, 4, 2);
	compare();
	OK(hoist__fill_async(stream, 0, 1, 4, 0));
	cr_assert_eq(hoist__fill_async(stream, 0, 1, 4, 1), -EINVAL);
	cr_assert_eq(hoist__fill_async(stream, memory, 1, 3, 1), -EINVAL);
	cr_assert_not_null(strstr(hoist__error_text(), "3 bytes"));
	cr_assert_eq(hoist__fill_async(stream, memory + 2, 1, 4, 1), -EINVAL);
	cr_assert_eq(hoist__fill_async(stream, memory, 1, 4, SIZE_MAX / 2), -EINVAL);
	compare();
	tear_down();
}
ANYWHERE(fills_set_elements_of_each_width, fills)

/* --- rows --- */

static uint64_t random_state;

static size_t any(size_t below)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (size_t)(random_state >> 33) % below;
}

static const char *describe(const struct hoist__box *box, enum hoist__copy kind)
{
	static char text[256];
	(void)snprintf(text, sizeof text,
		       "kind %d: %zu x %zu x %zu, rows every %zu and %zu, planes every %zu and %zu",
		       (int)kind, box->planes, box->rows, box->width, box->dst_pitch,
		       box->src_pitch, box->dst_plane, box->src_plane);
	return text;
}

/* Where a side of the box ends. */
static size_t end_of(const struct hoist__box *box, size_t pitch, size_t plane)
{
	return (box->planes - 1) * plane + (box->rows - 1) * pitch + box->width;
}

/* Of one side: no gap, a few bytes, or so many that it is no multiple of anything. */
static size_t distance(size_t bytes, size_t step)
{
	const size_t gaps[] = {0, 0, any(9), step * any(4), any(5000)};
	return bytes + gaps[any(HOIST__ARRAY_SIZE(gaps))];
}

/* A box whose sides take less than half of what there is. */
static struct hoist__box any_box(void)
{
	static const size_t widths[] = {1, 2, 3, 4, 7, 16, 100, 513, 4096, 40000};
	static const size_t counts[] = {1, 1, 2, 3, 7, 20};
	struct hoist__box box;
	do {
		box = (struct hoist__box){
			.width = widths[any(HOIST__ARRAY_SIZE(widths))],
			.rows = counts[any(HOIST__ARRAY_SIZE(counts))],
			.planes = counts[any(HOIST__ARRAY_SIZE(counts))],
		};
		box.dst_pitch = distance(box.width, 1);
		box.src_pitch = distance(box.width, 1);
		box.dst_plane = distance(box.rows * box.dst_pitch, box.dst_pitch);
		box.src_plane = distance(box.rows * box.src_pitch, box.src_pitch);
	} while (end_of(&box, box.dst_pitch, box.dst_plane) > BYTES / 2 ||
		 end_of(&box, box.src_pitch, box.src_plane) > BYTES / 2);
	return box;
}

/* What the copy should do, byte by byte. */
static void copy_model(unsigned char *dst, const unsigned char *src, const struct hoist__box *box)
{
	for (size_t plane = 0; plane < box->planes; plane++)
		for (size_t row = 0; row < box->rows; row++)
			for (size_t i = 0; i < box->width; i++)
				dst[plane * box->dst_plane + row * box->dst_pitch + i] =
					src[plane * box->src_plane + row * box->src_pitch + i];
}

static void expect_same(const unsigned char *seen, size_t bytes, const char *what)
{
	for (size_t i = 0; i < bytes; i++)
		if (seen[i] != model[i])
			cr_assert_fail("%s: byte %zu is %#x, not %#x", what, i, seen[i], model[i]);
}

/* Half of the host's memory is filled with what no two boxes share; half of the device's,
 * or all of the host's other half, is written to. */
static void copy_and_compare(struct hoist__box *box, enum hoist__copy kind, unsigned char *noise)
{
	const char *what = describe(box, kind);
	bool cpu = hoist__dev_api(dev) == HOIST__API_CPU;
	size_t half = BYTES / 2;
	for (size_t i = 0; i < half; i++)
		noise[i] = (unsigned char)(i * 2654435761u >> 13 ^ random_state);
	memset(model, 0x11, half);
	memset(host, 0x11, half);
	copy_model(model, noise, box);
	memcpy(host + half, noise, half);
	uintptr_t in = (uintptr_t)host + half;
	uintptr_t out = (uintptr_t)host;
	if (kind != HOIST__COPY_HOST_TO_DEVICE) {
		OK(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory + half, in, half));
		in = memory + half;
	}
	if (kind != HOIST__COPY_DEVICE_TO_HOST) {
		OK(hoist__fill_async(stream, memory, 0x11, 1, half));
		out = memory;
	}
	box->dst = out;
	box->src = in;
	struct hoist_emulator_counters before = {0};
	if (!cpu && hoist__api_emulated(hoist__dev_api(dev)))
		before = counters();
	OK(hoist__copy_box_async(stream, kind, box));
	if (before.calls > 0)
		cr_assert_leq(counters().copies - before.copies,
			      box->rows < box->planes ? box->rows : box->planes, "%s", what);
	if (out == memory)
		OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, memory,
				     half));
	OK(hoist__dev_stream_synchronize(stream));
	expect_same(host, half, what);
}

static void boxes(void)
{
	unsigned char *noise = malloc(BYTES / 2);
	cr_assert_not_null(noise);
	set_up();
	random_state = 20261121;
	for (int i = 0; i < 60; i++) {
		struct hoist__box box = any_box();
		copy_and_compare(&box, (enum hoist__copy)(i % 3), noise);
	}
	free(noise);
	tear_down();
}
ANYWHERE(rows_are_copied_and_nothing_between_them, boxes)

/* How many calls a box takes: what touches is one copy, planes in step are one call. */
static void calls_of_boxes(void)
{
	static const struct {
		size_t planes, rows, width, pitch, plane;
		unsigned calls;
	} cases[] = {
		{4, 5, 6, 6, 30, 1},  /* all of it touches */
		{4, 5, 6, 8, 40, 1},  /* planes touch: 20 rows */
		{4, 5, 6, 6, 31, 1},  /* rows touch: 4 rows of 30 */
		{4, 1, 6, 6, 31, 1},  /* a row a plane */
		{4, 5, 6, 8, 48, 1},  /* planes 6 rows apart */
		{4, 5, 6, 8, 41, 4},  /* no whole rows apart: plane by plane */
		{50, 2, 6, 8, 41, 2}, /* row by row: there are fewer */
		{1, 5, 6, 8, 0, 1},   /* one plane is nowhere */
		{1, 1, 6, 0, 0, 1},   {0, 5, 6, 8, 41, 0}, {4, 0, 6, 8, 41, 0}, {4, 5, 0, 8, 41, 0},
	};
	set_up();
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++) {
		const struct hoist__box box = {
			.dst = memory,
			.src = memory + BYTES / 2,
			.width = cases[i].width,
			.rows = cases[i].rows,
			.planes = cases[i].planes,
			.dst_pitch = cases[i].pitch,
			.src_pitch = cases[i].pitch,
			.dst_plane = cases[i].plane,
			.src_plane = cases[i].plane,
		};
		struct hoist_emulator_counters before = counters();
		OK(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box));
		OK(hoist__dev_stream_synchronize(stream));
		struct hoist_emulator_counters after = counters();
		cr_expect_eq(after.copies - before.copies, cases[i].calls, "case %zu", i);
		cr_expect_eq(after.device_to_device_bytes - before.device_to_device_bytes,
			     box.planes * box.rows * box.width, "case %zu", i);
	}
	cr_assert_eq(counters().bad_copies, 0);
	tear_down();
}
EMULATED(rows_take_few_calls, calls_of_boxes)

/* CUDA's driver may refuse any pitch within a device, with "invalid value" (1): the rows go one by
 * one. Other failures (719) are told, and so is a refusal of what goes to the device. */
static void refused_pitches(void)
{
	struct hoist__box box = {
		.width = 6,
		.rows = 5,
		.planes = 1,
		.dst_pitch = 8,
		.src_pitch = 7,
	};
	int (*fail)(const char *);
	set_up();
	find(hoist__dev_api(dev), "hoist_emulator_fail", &fail);
	box.dst = memory + BYTES / 2;
	box.src = memory;
	for (size_t i = 0; i < 5 * 7; i++)
		fill(i, (uint32_t)(i * 31 ^ 5), 1, 1);
	for (size_t i = 0; i < 5; i++)
		memcpy(model + BYTES / 2 + i * 8, model + i * 7, 6);
	struct hoist_emulator_counters before = counters();
	cr_assert_eq(fail("cuMemcpy2DAsync:1+:1"), 0);
	OK(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box));
	cr_expect_eq(counters().copies - before.copies, 5);
	box.src = (uintptr_t)host;
	cr_expect_eq(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box), -EREMOTEIO);
	box.src = memory;
	cr_assert_eq(fail("cuMemcpy2DAsync:1+:719"), 0);
	cr_expect_eq(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box), -EREMOTEIO);
	cr_assert_eq(fail("cuMemcpy2DAsync:1:1,cuMemcpyDtoDAsync:3:1"), 0);
	cr_expect_eq(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box), -EREMOTEIO);
	cr_assert_eq(fail(NULL), 0);
	compare();
	tear_down();
}
ON_EMULATED(cuda_rows_of_refused_pitches_go_one_by_one, HOIST__API_CUDA, refused_pitches)

/* Planes of 3 rows, of which 2 are copied: there is no memory where the third of the last one
 * would be. */
static void last_plane(void)
{
	struct hoist__box box = {
		.dst = 0,
		.src = (uintptr_t)host,
		.width = 500,
		.rows = 2,
		.planes = 4,
		.dst_pitch = 512,
		.src_pitch = 512,
		.dst_plane = 3 * (size_t)512,
		.src_plane = 3 * (size_t)512,
	};
	set_up();
	size_t offset = BYTES - (3 * box.dst_plane + box.dst_pitch + box.width);
	box.dst = memory + offset;
	for (size_t i = 0; i < BYTES - offset; i++)
		host[i] = (unsigned char)(i * 31 >> 3);
	for (size_t i = 0; i < 8; i++) {
		size_t row = i / 2 * box.dst_plane + i % 2 * box.dst_pitch;
		memcpy(model + offset + row, host + row, box.width);
	}
	OK(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box));
	compare();
	tear_down();
}
EVERYWHERE(rows_may_end_with_the_allocation, last_plane)

/* Rows from the host to the device and back, @pitch apart there. */
static void far_rows_of(uintptr_t far, size_t pitch, size_t rows, unsigned char seed)
{
	struct hoist__box box = {
		.dst = far,
		.src = (uintptr_t)host,
		.width = 100,
		.rows = rows,
		.planes = 1,
		.dst_pitch = pitch,
		.src_pitch = 100,
	};
	for (size_t i = 0; i < rows * 100; i++)
		model[i] = host[i] = (unsigned char)(i * 31 >> 2 ^ seed);
	OK(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box));
	OK(hoist__dev_stream_synchronize(stream));
	memset(host, 0, rows * 100);
	box.dst = (uintptr_t)host;
	box.src = far;
	box.dst_pitch = 100;
	box.src_pitch = pitch;
	OK(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_HOST, &box));
	OK(hoist__dev_stream_synchronize(stream));
	expect_same(host, rows * 100, "far");
}

/* Two planes of two rows to the device, @pitch and @plane apart there. */
static void far_planes_of(uintptr_t far, size_t pitch, size_t plane, unsigned char seed)
{
	struct hoist__box box = {
		.dst = far,
		.src = (uintptr_t)host,
		.width = 100,
		.rows = 2,
		.planes = 2,
		.dst_pitch = pitch,
		.src_pitch = 100,
		.dst_plane = plane,
		.src_plane = 300,
	};
	for (size_t i = 0; i < 500; i++)
		model[i] = host[i] = (unsigned char)(i * 29 >> 2 ^ seed);
	OK(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box));
	OK(hoist__dev_stream_synchronize(stream));
	for (size_t i = 0; i < 4; i++)
		memset(host + i / 2 * 300 + i % 2 * 100, 0, 100);
	box.dst = (uintptr_t)host;
	box.src = far;
	box.dst_pitch = 100;
	box.src_pitch = pitch;
	box.dst_plane = 300;
	box.src_plane = plane;
	OK(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_HOST, &box));
	OK(hoist__dev_stream_synchronize(stream));
	expect_same(host, 500, "far planes");
}

/* Rows further apart than a driver takes go one by one, and so do planes; rows of HIP that are many
 * and far, a few at a time. */
static void far_rows(void)
{
	const size_t bytes = (size_t)7 << 30;
	uintptr_t far = 0;
	uint64_t available = 0;
	uint64_t total = 0;
	OK(hoist__dev_mem_info(dev, &available, &total));
	if (available < bytes + bytes / 4)
		cr_skip_test("this device has no %zu bytes", bytes);
	set_up();
	OK(hoist__dev_mem_alloc(dev, bytes, &far));
	far_rows_of(far, (size_t)3 << 30, 3, 1);
	far_rows_of(far, (size_t)1 << 30, 3, 2);
	far_rows_of(far, (size_t)900 << 20, 7, 3);
	far_planes_of(far, 128, (size_t)5 << 30, 4);
	far_planes_of(far, INT32_MAX, 2 * (size_t)INT32_MAX, 5);
	OK(hoist__dev_mem_free(dev, far, bytes));
	tear_down();
}
EVERYWHERE(rows_may_be_far_apart, far_rows)

static void refused_boxes(void)
{
	static const struct {
		size_t planes, rows, width, pitch, plane;
	} cases[] = {
		{1, 2, 6, 5, 100}, /* rows overlap */
		{2, 2, 6, 8, 13},  /* planes overlap */
		{2, 1, 6, 0, 5},
		{1, SIZE_MAX, 2, 2, 0}, /* no memory is that large */
		{SIZE_MAX / 2, 1, 1, 0, SIZE_MAX},
		{1, 2, 1, SIZE_MAX - 10, 0},
	};
	set_up();
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++)
		for (int side = 0; side < 2; side++) {
			struct hoist__box box = {
				.dst = memory,
				.src = memory,
				.width = cases[i].width,
				.rows = cases[i].rows,
				.planes = cases[i].planes,
				.dst_pitch = cases[i].width,
				.src_pitch = cases[i].width,
				.dst_plane = cases[i].rows * cases[i].width,
				.src_plane = cases[i].rows * cases[i].width,
			};
			*(side ? &box.dst_pitch : &box.src_pitch) = cases[i].pitch;
			*(side ? &box.dst_plane : &box.src_plane) = cases[i].plane;
			cr_expect_eq(
				hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box),
				-EINVAL, "case %zu", i);
			cr_expect_not_null(strstr(hoist__error_text(), "do not fit"),
					   "case %zu: %s", i, hoist__error_text());
		}
	struct hoist__box box = {.dst = memory, .width = 1, .rows = 1, .planes = 1};
	cr_assert_eq(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box), -EINVAL);
	cr_assert_not_null(strstr(hoist__error_text(), "from address 0"));
	tear_down();
}
ANYWHERE(rows_that_overlap_are_refused, refused_boxes)

/* --- calls --- */

#define N_CALLS 300

/* What each call found when it came: its turn, and the byte that the copy before it wrote. */
static int order[N_CALLS];
static unsigned char found[N_CALLS];
static int n_called;

static int called(void *context)
{
	int which = (int)((int *)context - order);
	found[n_called] = host[0];
	order[n_called++] = which;
	return 0;
}

/* Copies and calls alternate: each call sees the copy before it, and not the one behind. */
static void calls_in_order(void)
{
	set_up();
	for (int i = 0; i < N_CALLS; i++) {
		OK(hoist__fill_async(stream, memory, (uint32_t)i, 1, 64));
		OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, memory,
				     64));
		OK(hoist__dev_stream_call(stream, called, &order[i]));
	}
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(n_called, N_CALLS);
	for (int i = 0; i < N_CALLS; i++) {
		cr_assert_eq(order[i], i);
		cr_assert_eq(found[i], (unsigned char)i);
	}
	OK(hoist__dev_stream_query(stream));
	tear_down();
}
ANYWHERE(calls_are_made_in_the_streams_order, calls_in_order)

static int fails(void *context)
{
	n_called++;
	return hoist__fail(*(int *)context, "call %d has no paper", n_called);
}

static void failing_calls(void)
{
	static int codes[] = {-EILSEQ, -ENOENT};
	set_up();
	OK(hoist__dev_stream_call(stream, fails, &codes[0]));
	OK(hoist__dev_stream_call(stream, fails, &codes[1]));
	OK(hoist__dev_stream_call(stream, called, &order[0]));
	OK(hoist__fill_async(stream, memory, 0x61, 1, BYTES));
	int err = -EAGAIN;
	while (err == -EAGAIN)
		err = hoist__dev_stream_query(stream);
	cr_assert_eq(err, -EILSEQ, "asking tells it, and does not take it");
	cr_assert_eq(hoist__dev_stream_synchronize(stream), -EILSEQ);
	cr_assert_str_eq(hoist__error_text(), "call 1 has no paper");
	cr_assert_eq(n_called, 3);
	OK(hoist__dev_stream_synchronize(stream));
	OK(hoist__dev_stream_query(stream));
	/* The work behind went on, and so does the stream. */
	memset(model, 0x61, BYTES);
	compare();
	OK(hoist__dev_stream_call(stream, fails, &codes[1]));
	cr_assert_eq(hoist__dev_stream_synchronize(stream), -ENOENT);
	cr_assert_str_eq(hoist__error_text(), "call 4 has no paper");
	OK(hoist__dev_stream_call(stream, fails, &codes[0]));
	tear_down_with(-EILSEQ);
}
ANYWHERE(calls_that_fail_are_told_once, failing_calls)

/* What a stream still has to call is called before it ends, and its failure ends with it. */
static void calls_at_the_end(void)
{
	static int code = -EILSEQ;
	struct hoist__dev_stream *other = NULL;
	struct hoist__dev_stream *wrapper = NULL;
	OK(hoist__dev_stream_create(dev, &other));
	for (int i = 0; i < 20; i++)
		OK(hoist__dev_stream_call(other, called, &order[i]));
	OK(hoist__dev_stream_call(other, fails, &code));
	hoist__dev_stream_destroy(other);
	cr_assert_eq(n_called, 21);
	if (hoist__dev_api(dev) == HOIST__API_CPU)
		return;
	OK(hoist__dev_stream_wrap(dev, NULL, &wrapper));
	OK(hoist__dev_stream_call(wrapper, called, &order[21]));
	hoist__dev_stream_destroy(wrapper);
	cr_assert_eq(n_called, 22);
}
ANYWHERE(calls_are_made_before_a_stream_ends, calls_at_the_end)

static void calls_and_captures(void)
{
	set_up();
	begin_capture(stream);
	cr_assert_eq(hoist__dev_stream_call(stream, called, &order[0]), -ENOTSUP);
	cr_assert_not_null(strstr(hoist__error_text(), "captures a graph"));
	cr_assert_eq(end_capture(stream), 0);
	OK(hoist__dev_stream_call(stream, called, &order[0]));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(n_called, 1);
	tear_down();
}
EVERYWHERE(calls_are_in_no_graph, calls_and_captures)

/* Behind a failure of the driver's the call is not made; nothing of it is lost by that. */
static void calls_behind_failures(void)
{
	int (*fail)(const char *);
	void (*hold)(int);
	void (*reset)(void);
	set_up();
	find(hoist__dev_api(dev), "hoist_emulator_fail", &fail);
	find(hoist__dev_api(dev), "hoist_emulator_hold", &hold);
	find(hoist__dev_api(dev), "hoist_emulator_reset", &reset);
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(fail("async:1"), 0);
	hold(1); /* both are queued before the first one fails */
	OK(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host, BYTES));
	OK(hoist__dev_stream_call(stream, called, &order[0]));
	hold(0);
	cr_assert_eq(hoist__dev_stream_synchronize(stream), -EREMOTEIO);
	cr_assert_eq(n_called, 0);
	cr_assert_eq(hoist__dev_stream_call(stream, called, &order[0]), -EREMOTEIO);
	reset();
	tear_down();
}
EMULATED(calls_behind_a_failure_are_not_made, calls_behind_failures)

static int calls_the_driver(void *context)
{
	uint64_t available = 0;
	uint64_t total = 0;
	(void)context;
	return hoist__dev_mem_info(dev, &available, &total);
}

static void misuse(void)
{
	set_up();
	OK(hoist__dev_stream_call(stream, calls_the_driver, NULL));
	cr_assert_neq(hoist__dev_stream_synchronize(stream), 0);
	cr_assert_gt(counters().bad_calls, 0);
	tear_down();
}
EMULATED(a_call_must_not_call_the_driver, misuse)
