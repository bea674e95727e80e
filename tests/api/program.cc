// SPDX-License-Identifier: MIT
// The same from C++: the headers compile, and the functions link by their C names.
#include <cstring>

#include <hoist/hoist.h>
#include <hoist/layout.h>

// [1, :, 2:, ::-2] of a layout of shape (3, 4, 5, 6).
static bool slices_as_python()
{
	const int64_t shape[] = {3, 4, 5, 6};
	const std::size_t two = 2; // any integer will do
	const hoist_slice slices[] = {HOIST_AT(1), HOIST_ALL, HOIST_RANGE(two, HOIST_NONE),
				      HOIST_STEP(HOIST_NONE, HOIST_NONE, -2)};
	hoist_layout layout;
	return hoist_layout_make(4, shape, nullptr, 4, HOIST_STRIDES_IN_ITEMS, &layout) == 0 &&
	       hoist_layout_slice(&layout, 4, slices, &layout) == 0 && layout.rank == 3 &&
	       layout.shape[1] == 3 && layout.strides[2] == -2 && layout.offset == 120 + 12 + 5;
}

int main()
{
	if (!slices_as_python())
		return 1;
	hoist_device *device = nullptr;
	if (hoist_device_open("cpu", &device) != 0)
		return 1;
	hoist_device_info info;
	std::memset(&info, 0, sizeof info);
	info.size = sizeof info;
	int err = hoist_device_get_info(device, &info);
	hoist_load_options options = {};
	options.size = sizeof options;
	options.engine = HOIST_ENGINE_THREADS;
	hoist_memory_options memory_options = {};
	memory_options.size = sizeof memory_options;
	memory_options.kind = HOIST_MEMORY_HOST;
	hoist_memory *memory = nullptr;
	uintptr_t block = 0;
	if (hoist_memory_create(&memory_options, &memory) != 0 ||
	    hoist_memory_alloc(memory, 100, 0, &block) != 0 || block == 0 ||
	    hoist_memory_free(memory, block) != 0)
		return 1;
	hoist_memory_unref(memory);
	hoist_device_unref(device);
	return err == 0 && info.is_host == 1 && std::strcmp(info.api, "cpu") == 0 ? 0 : 1;
}
