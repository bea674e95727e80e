/* SPDX-License-Identifier: MIT */
/* The faces of the stand-in drivers and their environment. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/emulator-driver.h"

static struct cuda cu;
static struct hip hip;

Test(emulator_driver, cuda_devices_look_like_devices)
{
	int number = 0;
	char text[64];
	char pci[2][16];
	size_t bytes = 0;
	(void)setenv("HOIST_EMULATE_MEMORY", "3G", 1);
	cuda_open(&cu, "hip:1,cuda:2");
	cr_expect(cu.cuDeviceGetCount(&number) == HOIST__CU_ERROR_NOT_INITIALIZED);
	cr_expect(cu.cuInit(1) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_assert(cu.cuInit(0) == 0);
	cr_expect(cu.cuDriverGetVersion(&number) == 0 && number >= 12000);
	cr_expect(cu.cuDeviceGetCount(&number) == 0 && number == 2);
	cr_expect(cu.cuDeviceGet(&number, 1) == 0 && number == 1);
	cr_expect(cu.cuDeviceGet(&number, 2) == HOIST__CU_ERROR_INVALID_DEVICE);
	cr_expect(cu.cuDeviceGet(&number, -1) == HOIST__CU_ERROR_INVALID_DEVICE);
	cr_expect(cu.cuDeviceGetName(text, sizeof text, 0) == 0);
	cr_expect(strcmp(text, "Emulated CUDA device") == 0);
	cr_expect(cu.cuDeviceGetName(text, 9, 0) == 0);
	cr_expect(strcmp(text, "Emulated") == 0, "cut to the caller's bytes");
	cr_expect(cu.cuDeviceTotalMem(&bytes, 1) == 0);
	cr_expect(bytes == (size_t)3 << 30);
	for (int i = 0; i < 2; i++)
		cr_assert(cu.cuDeviceGetPCIBusId(pci[i], 16, i) == 0);
	cr_expect(strcmp(pci[0], pci[1]) != 0);
	cr_expect(cu.cuDeviceGetPCIBusId(pci[0], 5, 0) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(cu.cuDeviceGetAttribute(&number, 75, 0) == 0 && number == 9);
	cr_expect(cu.cuDeviceGetAttribute(&number, 9999, 0) == HOIST__CU_ERROR_INVALID_VALUE);
}

Test(emulator_driver, cuda_needs_a_current_context)
{
	hoist__cu_context context = NULL;
	hoist__cu_context current = NULL;
	hoist__cu_device_ptr memory = 0;
	const unsigned none = HOIST__CU_ERROR_INVALID_CONTEXT;
	cuda_open(&cu, "cuda:2");
	cr_assert(cu.cuInit(0) == 0);
	cr_expect(cu.cuMemAlloc(&memory, 1) == none);
	cr_expect(cu.cuMemFree(0) == none);
	cr_expect(cu.cuStreamSynchronize(NULL) == none);
	cr_expect(cu.cuCtxPopCurrent(&context) == none);
	cr_expect(cu.cuCtxGetCurrent(&current) == 0 && current == NULL);
	cr_expect(cu.cuCtxPushCurrent(NULL) == none);
	cr_expect(counters_of(&cu.control).live_contexts == 0);
	cr_assert(cu.cuDevicePrimaryCtxRetain(&context, 1) == 0);
	cr_expect(counters_of(&cu.control).live_contexts == 1);
	cr_assert(cu.cuCtxPushCurrent(context) == 0);
	cr_expect(cu.cuCtxGetCurrent(&current) == 0 && current == context);
	cr_expect(cu.cuMemAlloc(&memory, 1) == 0);
	cr_expect(cu.cuMemFree(memory) == 0);
	cr_expect(cu.cuCtxPopCurrent(&current) == 0 && current == context);
	cr_expect(cu.cuMemAlloc(&memory, 1) == none);
}

Test(emulator_driver, errors_have_the_vendors_names)
{
	const char *text = NULL;
	cuda_open(&cu, "cuda:1");
	cr_expect(cu.cuGetErrorName(2, &text) == 0);
	cr_expect(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
	cr_expect(cu.cuGetErrorString(713, &text) == 0 && text != NULL);
	cr_expect(cu.cuGetErrorName(12345, &text) == HOIST__CU_ERROR_INVALID_VALUE);
	hip_open(&hip, "hip:1");
	text = hip.hipGetErrorName(2);
	cr_expect(strcmp(text, "hipErrorOutOfMemory") == 0);
	text = hip.hipGetErrorName(12345);
	cr_expect(strcmp(text, "hipErrorUnknown") == 0);
}

Test(emulator_driver, hip_has_a_current_device_and_a_last_error)
{
	static struct hoist__hip_props_r0600 props;
	static struct hoist__hip_props_r0000 old_props;
	int number = -1;
	void *memory = NULL;
	hip_open(&hip, "hip:2");
	memset(&props, 0x5a, sizeof props);
	memset(&old_props, 0x5a, sizeof old_props);
	cr_expect(hip.hipGetDeviceCount(&number) == 0 && number == 2);
	cr_expect(hip.hipGetDevice(&number) == 0 && number == 0);
	cr_expect(hip.hipSetDevice(2) == HOIST__HIP_ERROR_INVALID_DEVICE);
	cr_expect(hip.hipGetLastError() == HOIST__HIP_ERROR_INVALID_DEVICE);
	cr_expect(hip.hipGetLastError() == 0, "taking it clears it");
	cr_expect(hip.hipSetDevice(1) == 0);
	cr_expect(hip.hipGetDevice(&number) == 0 && number == 1);
	cr_expect(hip.hipGetDevicePropertiesR0600(&props, 1) == 0);
	cr_expect(hip.hipGetDevicePropertiesR0000(&old_props, 1) == 0);
	cr_expect(strncmp(props.architecture, "gfx942", 6) == 0);
	cr_expect(strncmp(old_props.architecture, "gfx942", 6) == 0);
	cr_expect(((unsigned char *)&props)[HOIST__HIP_R0600_BYTES] == 0x5a, "not a byte behind");
	cr_expect(((unsigned char *)&old_props)[HOIST__HIP_R0000_BYTES] == 0x5a);
	cr_expect(hip.hipMalloc(&memory, 0) == 0 && memory == NULL);
	cr_expect(hip.hipMalloc(&memory, 100) == 0);
	cr_expect(hip.hipMemcpyAsync(memory, &number, 4, 0, NULL) ==
		  HOIST__HIP_ERROR_INVALID_VALUE);
	number = 41;
	cr_expect(hip.hipMemcpyAsync(memory, &number, 4, 1, NULL) == 0);
	number = 0;
	cr_expect(hip.hipMemcpyAsync(&number, memory, 4, 2, NULL) == 0);
	cr_expect(number == 41);
	cr_expect(counters_of(&hip.control).pageable_copies == 2);
	cr_expect(hip.hipFree(memory) == 0);
	cr_expect(counters_of(&hip.control).live_bytes == 0);
}

Test(emulator_driver, without_being_asked_there_is_no_device)
{
	int number = 7;
	cuda_open(&cu, "hip:3");
	cr_expect(cu.cuInit(0) == HOIST__CU_ERROR_NO_DEVICE);
	hip_open(&hip, "");
	cr_expect(hip.hipGetDeviceCount(&number) == HOIST__HIP_ERROR_NO_DEVICE);
	cr_expect(number == 7);
}

/* The environment is read once a process: each case has its own. */
static bool is_refused(const char *name, const char *value)
{
	pid_t child = fork();
	if (child == 0) {
		const char *text = "";
		(void)setenv(name, value, 1);
		cuda_open(&cu, strcmp(name, "HOIST_EMULATE") == 0 ? value : "cuda:1");
		bool refused = cu.cuInit(0) == HOIST__CU_ERROR_INVALID_VALUE;
		(void)cu.cuGetErrorString(HOIST__CU_ERROR_INVALID_VALUE, &text);
		_exit(refused && strstr(text, name) != NULL && strstr(text, value) != NULL ? 1 : 0);
	}
	int status = 0;
	cr_assert(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status) == 1;
}

Test(emulator_driver, nonsense_in_the_environment_is_refused_and_named)
{
	cr_expect(is_refused("HOIST_EMULATE", "cuda:x"));
	cr_expect(is_refused("HOIST_EMULATE", "cuda:65"));
	cr_expect(is_refused("HOIST_EMULATE_MEMORY", "12Q"));
	cr_expect(is_refused("HOIST_EMULATE_MEMORY", "99999999999T"));
	cr_expect(is_refused("HOIST_EMULATE_RATE", "fast"));
	cr_expect(is_refused("HOIST_EMULATE_LATENCY", "9..3"));
	cr_expect(is_refused("HOIST_EMULATE_REGISTER_MOST", "all"));
	cr_expect(is_refused("HOIST_EMULATE_SEED", "-1"));
	cr_expect(is_refused("HOIST_EMULATE_RESIDENT", "17G")); /* of 16G */
	cr_expect(!is_refused("HOIST_EMULATE_RESIDENT", "4M"));
	cr_expect(is_refused("HOIST_EMULATE_FAIL", "cuNoSuchThing:1"));
	cr_expect(!is_refused("HOIST_EMULATE_FAIL", "hipAnything:1"));
	cr_expect(!is_refused("HOIST_EMULATE_RATE", "3g"));
	cr_expect(!is_refused("HOIST_EMULATE_LATENCY", "3..9"));
}

Test(emulator_driver, a_forked_child_is_turned_away)
{
	hoist__cu_device_ptr memory = 0;
	cuda_start(&cu, "cuda:1", 0);
	pid_t child = fork();
	if (child == 0)
		_exit(cu.cuMemAlloc(&memory, 1) == HOIST__CU_ERROR_NOT_INITIALIZED &&
				      cu.cuMemFree(1) == HOIST__CU_ERROR_NOT_INITIALIZED
			      ? 0
			      : 1);
	int status = 1;
	cr_assert(child > 0 && waitpid(child, &status, 0) == child);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
