/* SPDX-License-Identifier: MIT */
/* Fills and copies of rows, on the CPU and with every driver, beside a model of bytes: see
 * device-driver.h. */
#include "config.h"

#define SUITE device_work

#include "base/checked.h"
#include "tests/support/device-driver.h"
#include "tests/support/random.h"

static unsigned char *model; /* the bytes that the device's memory should have */

static void set_up_model(void)
{
	set_up();
	model = calloc(1, BYTES);
	cr_assert_not_null(model);
	OK(hoist__fill_async(stream, memory, 0, 1, BYTES));
}

static void tear_down_model(void)
{
	tear_down();
	free(model);
}

static void expect_same(const unsigned char *seen, size_t bytes, const char *what)
{
	for (size_t i = 0; i < bytes; i++)
		if (seen[i] != model[i])
			cr_assert_fail("%s: byte %zu is %#x, not %#x", what, i, seen[i], model[i]);
}

/* The device's memory is what the model says. */
static void compare(void)
{
	to_host(stream, host, memory, BYTES);
	OK(hoist__dev_stream_synchronize(stream));
	expect_same(host, BYTES, "the device");
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
	set_up_model();
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
	SAYS("3 bytes");
	cr_assert_eq(hoist__fill_async(stream, memory + 2, 1, 4, 1), -EINVAL);
	cr_assert_eq(hoist__fill_async(stream, memory, 1, 4, SIZE_MAX / 2), -EINVAL);
	compare();
	tear_down_model();
}
ANYWHERE(fills_set_elements_of_each_width, fills)

/* --- rows --- */

static uint64_t random_state;

static size_t any(size_t below)
{
	return random_below(&random_state, below);
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

/* The distance on one side: no gap, a few bytes, or a gap that is no multiple of anything. */
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

/* The copy, byte by byte. */
static void copy_model(unsigned char *dst, const unsigned char *src, const struct hoist__box *box)
{
	for (size_t plane = 0; plane < box->planes; plane++)
		for (size_t row = 0; row < box->rows; row++)
			for (size_t i = 0; i < box->width; i++)
				dst[plane * box->dst_plane + row * box->dst_pitch + i] =
					src[plane * box->src_plane + row * box->src_pitch + i];
}

/* The source is half of the host's memory, with bytes that no two boxes share, or half of the
 * device's; the destination is the other half. */
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
		to_device(stream, memory + half, in, half);
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
		to_host(stream, host, memory, half);
	OK(hoist__dev_stream_synchronize(stream));
	expect_same(host, half, what);
}

static void boxes(void)
{
	unsigned char *noise = malloc(BYTES / 2);
	cr_assert_not_null(noise);
	set_up_model();
	random_state = 20261121;
	for (int i = 0; i < 60; i++) {
		struct hoist__box box = any_box();
		copy_and_compare(&box, (enum hoist__copy)(i % 3), noise);
	}
	free(noise);
	tear_down_model();
}
ANYWHERE(rows_are_copied_and_nothing_between_them, boxes)

/* The number of calls that a box takes: rows that touch are one copy, planes in step are one call.
 */
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
	set_up_model();
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
	tear_down_model();
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
	set_up_model();
	box.dst = memory + BYTES / 2;
	box.src = memory;
	for (size_t i = 0; i < 5 * 7; i++)
		fill(i, (uint32_t)(i * 31 ^ 5), 1, 1);
	for (size_t i = 0; i < 5; i++)
		memcpy(model + BYTES / 2 + i * 8, model + i * 7, 6);
	struct hoist_emulator_counters before = counters();
	inject("cuMemcpy2DAsync:1+:1");
	OK(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box));
	cr_expect_eq(counters().copies - before.copies, 5);
	box.src = (uintptr_t)host;
	cr_expect_eq(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box), -EREMOTEIO);
	box.src = memory;
	inject("cuMemcpy2DAsync:1+:719");
	cr_expect_eq(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box), -EREMOTEIO);
	inject("cuMemcpy2DAsync:1:1,cuMemcpyDtoDAsync:3:1");
	cr_expect_eq(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, &box), -EREMOTEIO);
	inject(NULL);
	compare();
	tear_down_model();
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
	set_up_model();
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
	tear_down_model();
}
EVERYWHERE(rows_may_end_with_the_allocation, last_plane)

/* A box from the host to the device and back, rows @pitch and planes @plane apart there. */
static void far_box(uintptr_t far, size_t planes, size_t rows, size_t pitch, size_t plane,
		    unsigned char seed)
{
	struct hoist__box box = {
		.dst = far,
		.src = (uintptr_t)host,
		.width = 100,
		.rows = rows,
		.planes = planes,
		.dst_pitch = pitch,
		.src_pitch = 100,
		.dst_plane = plane,
		.src_plane = 300,
	};
	size_t bytes = (planes - 1) * 300 + rows * 100;
	for (size_t i = 0; i < bytes; i++)
		model[i] = host[i] = (unsigned char)(i * 31 >> 2 ^ seed);
	OK(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box));
	OK(hoist__dev_stream_synchronize(stream));
	for (size_t i = 0; i < planes * rows; i++)
		memset(host + i / rows * 300 + i % rows * 100, 0, 100);
	box.dst = (uintptr_t)host;
	box.src = far;
	box.dst_pitch = 100;
	box.src_pitch = pitch;
	box.dst_plane = 300;
	box.src_plane = plane;
	OK(hoist__copy_box_async(stream, HOIST__COPY_DEVICE_TO_HOST, &box));
	OK(hoist__dev_stream_synchronize(stream));
	expect_same(host, bytes, "far");
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
	set_up_model();
	OK(hoist__dev_mem_alloc(dev, bytes, &far));
	far_box(far, 1, 3, (size_t)3 << 30, 0, 1);
	far_box(far, 1, 3, (size_t)1 << 30, 0, 2);
	far_box(far, 1, 7, (size_t)900 << 20, 0, 3);
	far_box(far, 2, 2, 128, (size_t)5 << 30, 4);
	far_box(far, 2, 2, INT32_MAX, 2 * (size_t)INT32_MAX, 5);
	OK(hoist__dev_mem_free(dev, far, bytes));
	tear_down_model();
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
	set_up_model();
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
			SAYS("do not fit");
		}
	struct hoist__box box = {.dst = memory, .width = 1, .rows = 1, .planes = 1};
	cr_assert_eq(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box), -EINVAL);
	SAYS("from address 0");
	tear_down_model();
}
ANYWHERE(rows_that_overlap_are_refused, refused_boxes)
