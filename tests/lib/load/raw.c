/* SPDX-License-Identifier: MIT */
/* A file of any kind as one tensor: its bytes arrive whatever they look like. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "tests/support/load-support.h"

static hoist_checkpoint *open_raw(const char *name)
{
	char path[512];
	hoist_checkpoint *checkpoint = NULL;
	snprintf(path, sizeof path, "%s/%s", support_folder(), name);
	OK(hoist_checkpoint_open(path, HOIST_OPEN_RAW, &checkpoint));
	CHECK(strcmp(hoist_checkpoint_format(checkpoint), "raw") == 0);
	CHECK(hoist_checkpoint_n_files(checkpoint) == 1);
	CHECK(hoist_checkpoint_n_tensors(checkpoint) == 1);
	return checkpoint;
}

/* Its own header included, which a reader of the format would have parsed. */
static void all_bytes(const char *device, enum hoist_io io)
{
	const size_t sizes[] = {(5 << 20) + 3, 1, 70000};
	support_write("m.safetensors", 0, 3, sizes, -1);
	hoist_checkpoint *checkpoint = open_raw("m.safetensors");
	hoist_device *to = support_device(device);
	hoist_load *load = NULL;
	const hoist_load_options o = {.size = sizeof o, .device = to, .io = io};
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	CHECK(hoist_load_n_tensors(load) == 1);
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, 0, &info));
	CHECK(strcmp(info.name, "data") == 0 && info.rank == 1 && info.offset == 0);
	CHECK(info.shape[0] == (int64_t)info.bytes && info.bytes > sizes[0] + sizes[1] + sizes[2]);
	support_compare(checkpoint, load);
	hoist_load_destroy(load);
	hoist_device_unref(to);
	hoist_checkpoint_close(checkpoint);
}

/* A file that no reader takes, an empty file, and a folder. */
static void others(void)
{
	const char *path = support_path("notes.txt");
	hoist_checkpoint *checkpoint = NULL;
	support_put("notes.txt", "hello", 5);
	CHECK(hoist_checkpoint_open(path, 0, &checkpoint) == -EBADMSG);
	hoist_checkpoint_close(open_raw("notes.txt"));
	support_put("empty", "", 0);
	checkpoint = open_raw("empty");
	CHECK(hoist_checkpoint_bytes(checkpoint) == 0);
	hoist_checkpoint_close(checkpoint);
	CHECK(hoist_checkpoint_open(support_folder(), HOIST_OPEN_RAW, &checkpoint) == -EISDIR);
	support_said("this is a folder; name a file");
	CHECK(hoist_checkpoint_open(path, 8, &checkpoint) == -EINVAL);
	support_said("unknown flags 0x8");
}

int main(void)
{
	support_emulate("cuda:1");
	all_bytes("cpu", HOIST_IO_AUTO);
	all_bytes("cpu", HOIST_IO_CACHED);
	all_bytes("cpu", HOIST_IO_MAP);
	all_bytes("cuda:0", HOIST_IO_DIRECT);
	others();
	support_cleanup();
	return 0;
}
