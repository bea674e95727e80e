/* SPDX-License-Identifier: MIT */
/* Every other row of a matrix, on a device and back. */
#include <stdio.h>
#include <hoist/element.h>
#include <hoist/hoist.h>

int main(void)
{
	const int64_t shape[] = {4, 3};
	const hoist_slice rows = HOIST_STEP(HOIST_NONE, HOIST_NONE, -2); /* [::-2] */
	hoist_device *cpu = NULL, *device = NULL;
	hoist_buffer *matrix = NULL, *view = NULL, *there = NULL;
	char text[256];

	if (hoist_device_open("cpu", &cpu) < 0 || hoist_device_open("gpu:0", &device) < 0 ||
	    hoist_buffer_create(cpu, HOIST_BF16, 2, shape, HOIST_BUFFER_ZERO, &matrix) < 0 ||
	    hoist_buffer_set(matrix, 2, (const int64_t[]){-1, 0}, hoist_number_f64(0.1), 0) < 0 ||
	    hoist_buffer_slice(matrix, 1, &rows, &view) < 0 ||
	    hoist_buffer_to(view, device, &there) < 0 ||
	    hoist_buffer_describe(there, HOIST_DESCRIBE_VALUES, text, sizeof text) < 0) {
		fprintf(stderr, "%s\n", hoist_error());
		return 1;
	}
	puts(text);
	hoist_buffer_unref(there);
	hoist_buffer_unref(view);
	hoist_buffer_unref(matrix);
	hoist_device_unref(device);
	hoist_device_unref(cpu);
	return 0;
}
