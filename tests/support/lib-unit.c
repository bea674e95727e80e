/* SPDX-License-Identifier: MIT */
/* Fixtures of the Criterion tests of lib/: all devices or the CPU, files, and a look that nothing
 * is left. */
#include "config.h"

#include "tests/support/lib-unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

hoist_device *devices[LIB_N_DEVICES];

void emulate(void)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
}

void open_all(void)
{
	emulate();
	lib_open_all(devices);
}

void open_cpu(void)
{
	devices[0] = open_device("cpu");
}

const char *temporary(const char *name)
{
	static char path[4096];
	const char *folder = getenv("TMPDIR");
	(void)snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : "/tmp", name);
	return path;
}

void write_file(const char *path, const void *bytes, size_t n)
{
	FILE *file = fopen(path, "wb");
	cr_assert_not_null(file, "%s", path);
	cr_assert_eq(fwrite(bytes, 1, n, file), n);
	cr_assert_eq(fclose(file), 0);
}

const char *api_of(const hoist_device *device)
{
	return strncmp(hoist_device_spec(device), "hip", 3) == 0 ? "hip" : "cuda";
}

void expect_all_given_back(void)
{
	cr_expect(lib_nothing_outstanding(devices));
	cr_expect(lib_drivers_content());
}

void refuse_memory(const hoist_memory_options *options, int err, const char *text)
{
	hoist_memory *memory = NULL;
	REFUSED(hoist_memory_create(options, &memory), err, text);
	cr_expect_null(memory);
}

int set_capture(hoist_stream *stream, int on)
{
	return lib_capture(api_of(hoist_stream_device(stream)), hoist_stream_native(stream), on);
}
