/* SPDX-License-Identifier: MIT */
/* Drivers that the program loaded or started itself, and addresses of theirs. */
#include "config.h"

#define SUITE device_loaded

#include <errno.h>

#include "tests/support/device-driver.h"

static void need_stand_ins(void)
{
	if (!have_stand_ins())
		cr_skip_test("the stand-in drivers are not built");
}

/* A copy of the stand-in under the driver's own name, where nothing else finds it. */
static void *load_as(const char *stand_in, const char *name)
{
	char command[12000];
	char path[4096];
	char folder[2048];
	const char *temporary = getenv("TMPDIR");
	(void)snprintf(folder, sizeof folder, "%s/query-XXXXXX",
		       temporary == NULL ? "/tmp" : temporary);
	cr_assert_not_null(mkdtemp(folder)); /* tests run at the same time */
	(void)snprintf(path, sizeof path, "%s/%s", folder, name);
	(void)snprintf(command, sizeof command, "cp '%s/%s' '%s'", getenv("HOIST_EMULATOR_DIR"),
		       stand_in, path);
	cr_assert_eq(system(command), 0, "%s", command);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	cr_assert_not_null(library, "%s", dlerror());
	cr_assert(unlink(path) == 0 && rmdir(folder) == 0);
	return library;
}

static void symbol(void *library, const char *name, void *pointer)
{
	void *found = dlsym(library, name);
	cr_assert_not_null(found, "%s", dlerror());
	memcpy(pointer, &found, sizeof found);
}

/* As a program starts a driver of its own: device memory of 4096 bytes. */
static unsigned long long start_cuda(void *cuda)
{
	unsigned (*init)(unsigned);
	unsigned (*retain)(void **, int);
	unsigned (*push)(void *);
	unsigned (*alloc)(unsigned long long *, size_t);
	void *context = NULL;
	unsigned long long block = 0;
	symbol(cuda, "cuInit", &init);
	symbol(cuda, "cuDevicePrimaryCtxRetain", &retain);
	symbol(cuda, "cuCtxPushCurrent_v2", &push);
	symbol(cuda, "cuMemAlloc_v2", &alloc);
	cr_assert(init(0) == 0 && retain(&context, 0) == 0 && push(context) == 0 &&
		  alloc(&block, 4096) == 0);
	return block;
}

static void register_in_cuda(void *cuda, void *address, size_t bytes)
{
	unsigned (*register_host)(void *, size_t, unsigned);
	symbol(cuda, "cuMemHostRegister_v2", &register_host);
	cr_assert_eq(register_host(address, bytes, 0), 0);
}

static void leave_cuda(void *cuda)
{
	unsigned (*pop)(void **);
	void *context = NULL;
	symbol(cuda, "cuCtxPopCurrent_v2", &pop);
	cr_assert_eq(pop(&context), 0);
}

Test(device_loaded, a_driver_that_others_loaded_is_asked)
{
	static unsigned char registered[64];
	unsigned (*hip_malloc)(void **, size_t);
	void *hip_memory = NULL;
	int local = 0;
	need_stand_ins();
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	expect_unknown((uintptr_t)&local);
	expect_unknown((uintptr_t)&local);
	void *cuda = load_as("libhoist-emulated-cuda.so", "libcuda.so.1");
	expect_unknown((uintptr_t)&local); /* loaded, not started */
	unsigned long long block = start_cuda(cuda);
	register_in_cuda(cuda, registered, sizeof registered);
	struct hoist__pointer pointer = ask((uintptr_t)block + 3);
	cr_assert(pointer.api == HOIST__API_CUDA && pointer.ordinal == 0);
	cr_assert(pointer.device && !pointer.host);
	leave_cuda(cuda);
	pointer = ask((uintptr_t)block + 3);
	cr_assert(pointer.device && !pointer.host, "as before: no context is current now");
	pointer = ask((uintptr_t)registered + 5);
	cr_assert(pointer.api == HOIST__API_CUDA && pointer.device && pointer.host);
	cr_assert_eq(pointer.device_address, (uintptr_t)registered + 5);
	void *hip = load_as("libhoist-emulated-hip.so", "libamdhip64-1a2b.so.6");
	symbol(hip, "hipMalloc", &hip_malloc);
	cr_assert_eq(hip_malloc(&hip_memory, 4096), 0);
	pointer = ask((uintptr_t)hip_memory);
	cr_assert(pointer.api == HOIST__API_HIP && pointer.ordinal == 0 && pointer.device);
	expect_unknown((uintptr_t)&local);
	cr_assert_str_empty(hoist__api_library(HOIST__API_CUDA), "hoist has opened it");
	cr_assert_str_empty(hoist__api_library(HOIST__API_HIP), "hoist has opened it");
}

/* A framework's own runtime comes before the system's, whatever its name; a variable before both.
 */
Test(device_loaded, a_driver_that_others_loaded_is_the_one_opened)
{
	static const struct {
		enum hoist__api api;
		const char *stand_in, *name, *init, *variable;
	} rows[] = {
		{HOIST__API_HIP, "libhoist-emulated-hip.so", "libamdhip64-1a2b.so.6", "hipInit",
		 "HOIST_HIP_LIBRARY"},
		{HOIST__API_CUDA, "libhoist-emulated-cuda.so", "libcuda.so.550.1", "cuInit",
		 "HOIST_CUDA_LIBRARY"},
	};
	need_stand_ins();
	for (size_t i = 0; i < 2; i++) {
		unsigned (*init)(unsigned);
		int count = 0;
		setenv("HOIST_EMULATE", "cuda:2,hip:2", 1); /* for what is loaded here alone */
		symbol(load_as(rows[i].stand_in, rows[i].name), rows[i].init, &init);
		cr_assert_eq(init(0), 0);
		unsetenv("HOIST_EMULATE");
		setenv(rows[i].variable, "/nowhere/libdriver.so", 1);
		cr_assert_eq(hoist__dev_count(rows[i].api, &count), -ENODEV);
		SAYS("/nowhere/libdriver.so");
		unsetenv(rows[i].variable);
		OK(hoist__dev_count(rows[i].api, &count));
		cr_assert_eq(count, 2);
		cr_assert_not_null(strstr(hoist__api_library(rows[i].api), rows[i].name), "%s",
				   hoist__api_library(rows[i].api));
		cr_assert_str_eq(hoist__api_library_reason(rows[i].api),
				 "this process had loaded it");
	}
}

Test(device_loaded, asking_opens_no_driver)
{
	int local = 0;
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	expect_unknown((uintptr_t)&local);
	cr_assert_str_empty(hoist__api_library(HOIST__API_CUDA));
	cr_assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
	cr_assert_null(dlopen("libhoist-emulated-cuda.so", RTLD_NOW | RTLD_NOLOAD));
}

/* Hoist failed to start a driver; the program did not, later. */
Test(device_loaded, a_driver_that_only_others_could_start_is_asked)
{
	int count = 0;
	need_stand_ins();
	setenv("HOIST_EMULATE", "cuda:1", 1);
	setenv("HOIST_EMULATE_FAIL", "cuInit:1+:2", 1);
	cr_assert_lt(hoist__dev_count(HOIST__API_CUDA, &count), 0);
	unsetenv("HOIST_EMULATE_FAIL");
	void *cuda = load_as("libhoist-emulated-cuda.so", "libcuda.so.1");
	unsigned long long block = start_cuda(cuda);
	struct hoist__pointer pointer = ask((uintptr_t)block);
	cr_assert(pointer.api == HOIST__API_CUDA && pointer.device && !pointer.host);
	expect_unknown((uintptr_t)&count);
}

/* A driver that fails for every address, as one of another version does, tells nothing of any. */
Test(device_loaded, a_driver_that_nobody_can_start_is_nobodys)
{
	int count = 0;
	need_stand_ins();
	setenv("HOIST_EMULATE", "cuda:1", 1);
	setenv("HOIST_EMULATE_FAIL", "cuInit:1+:803,cuPointerGetAttributes:1+:803", 1);
	(void)load_as("libhoist-emulated-cuda.so", "libcuda.so.1");
	cr_assert_lt(hoist__dev_count(HOIST__API_CUDA, &count), 0);
	expect_unknown((uintptr_t)&count);
}

/* A driver that could not be opened knows no address. */
Test(device_loaded, a_driver_without_devices_is_not_asked)
{
	int count = 0;
	int local = 0;
	need_stand_ins();
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	setenv("HOIST_EMULATE_FAIL", "cuInit:1+:100", 1);
	cr_assert_eq(hoist__dev_count(HOIST__API_CUDA, &count), -ENODEV);
	cr_assert_str_not_empty(hoist__api_library(HOIST__API_CUDA));
	expect_unknown((uintptr_t)&local);
}
