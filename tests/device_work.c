/* SPDX-License-Identifier: MIT */
/* Work on streams that is more than bytes in a row, on the CPU and with every driver, each
 * against a model of bytes: see device-driver.h. */
#include "config.h"

#define SUITE device_work

#include "base/checked.h"
#include "device-driver.h"

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
	OK(hoist__stream_create(dev, &stream));
	if (hoist__dev_api(dev) != HOIST__API_CPU) /* which needs none, and has a limit */
		OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	model = calloc(1, BYTES);
	cr_assert_not_null(model);
	OK(hoist__fill_async(stream, memory, 0, 1, BYTES));
}

static void tear_down(void)
{
	OK(hoist__stream_synchronize(stream));
	free(model);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	if (hoist__dev_api(dev) != HOIST__API_CPU)
		OK(hoist__dev_host_unregister(dev, host, BYTES));
	hoist__stream_destroy(stream);
}

/* The device's memory is what the model says. */
static void compare(void)
{
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, memory, BYTES));
	OK(hoist__stream_synchronize(stream));
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
