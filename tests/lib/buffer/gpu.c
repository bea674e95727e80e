/* SPDX-License-Identifier: MIT */
/* Buffers through the public functions alone, on the device that HOIST_TEST_DEVICE
 * names ("cuda", "hip:1"), and without it on an emulated one. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check.h"
#include "tests/support/lib-make.h"

#define MAX_BYTES ((size_t)40 << 20)

static unsigned char model[MAX_BYTES];
static unsigned char got[MAX_BYTES];

/* Bytes that differ after a shift by pages or slots. */
static void fill_model(unsigned seed)
{
	unsigned x = seed * 2654435761u + 1;
	for (size_t i = 0; i < MAX_BYTES; i++) {
		x = x * 1664525u + 1013904223u;
		model[i] = (unsigned char)(x >> 24);
	}
}

static hoist_buffer *create(hoist_device *device, size_t bytes, unsigned flags)
{
	hoist_buffer *buffer = make_buffer(device, HOIST_U8, 1, SHAPE((int64_t)bytes), flags);
	return buffer;
}

static void check_bytes(hoist_buffer *buffer, size_t bytes)
{
	memset(got, 0, bytes);
	OK(hoist_buffer_read(buffer, 0, got, bytes));
	CHECK(memcmp(got, model, bytes) == 0);
}

/* host -> device -> pinned -> device -> the same device -> host */
static void go_round(hoist_device *device, hoist_device *cpu, size_t bytes)
{
	hoist_buffer *first = create(device, bytes, HOIST_BUFFER_ZERO);
	hoist_buffer *second = create(device, bytes, 0);
	hoist_buffer *pinned = create(device, bytes, HOIST_BUFFER_PINNED);
	OK(hoist_buffer_read(first, 0, got, bytes));
	for (size_t i = 0; i < bytes; i++)
		CHECK(got[i] == 0);
	OK(hoist_buffer_write(first, 0, model, bytes));
	OK(hoist_buffer_copy_into(pinned, first));
	CHECK(memcmp(hoist_buffer_data(pinned), model, bytes) == 0);
	OK(hoist_buffer_copy_into(second, pinned));
	check_bytes(second, bytes);
	hoist_buffer *copy = make_copy(second, device);
	check_bytes(copy, bytes);
	hoist_buffer_unref(copy);
	OK(hoist_buffer_copy(second, cpu, &copy));
	CHECK(memcmp(hoist_buffer_data(copy), model, bytes) == 0);
	hoist_buffer_unref(copy);
	hoist_buffer_unref(first);
	hoist_buffer_unref(second);
	hoist_buffer_unref(pinned);
}

/* A view is copied over another of the same buffer, a page and a byte away. */
static void copy_overlapping(hoist_device *device)
{
	const size_t shift = 4097;
	const size_t bytes = ((size_t)10 << 20) + 3;
	const int64_t shape[] = {(int64_t)bytes};
	hoist_buffer *all = create(device, bytes + shift, 0);
	hoist_buffer *low = make_view(all, 0, HOIST_U8, 1, shape);
	hoist_buffer *high = make_view(all, shift, HOIST_U8, 1, shape);
	OK(hoist_buffer_write(all, 0, model, bytes + shift));
	OK(hoist_buffer_copy_into(high, low));
	check_bytes(low, shift);
	check_bytes(high, bytes);
	hoist_buffer_unref(low);
	hoist_buffer_unref(high);
	hoist_buffer_unref(all);
}

int main(void)
{
	const size_t sizes[] = {1, 4095, 65537, (4 << 20) - 1, 8 << 20, MAX_BYTES - 7};
	const char *spec = getenv("HOIST_TEST_DEVICE");
	if (spec == NULL) {
		spec = "cuda";
		setenv("HOIST_EMULATE", "cuda:1", 1);
	}
	hoist_device *cpu = NULL;
	hoist_device *device = NULL;
	OK(hoist_device_open("cpu", &cpu));
	if (hoist_device_open(spec, &device) != 0) {
		printf("skipped: %s\n", hoist_error());
		return 77;
	}
	hoist_device_info info = device_info_of(device);
	printf("%s: %s, %s, node %d%s\n", hoist_device_spec(device), info.name, info.architecture,
	       info.numa_node, info.emulated ? ", emulated" : "");
	for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		fill_model(i);
		go_round(device, cpu, sizes[i]);
	}
	copy_overlapping(device);
	hoist_device_unref(device);
	hoist_device_unref(cpu);
	return 0;
}
