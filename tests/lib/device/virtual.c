/* SPDX-License-Identifier: MIT */
/* Virtual devices: on and off, beside drivers that were opened, failed or are emulated. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/compat.h"
#include "tests/support/child.h"
#include "tests/support/lib-unit.h"

/* A machine without drivers, where the stand-ins are installed. */
static void bare(void)
{
	emulate();
	unsetenv("HOIST_EMULATE");
	setenv("HOIST_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
	setenv("HOIST_HIP_LIBRARY", "/nowhere/libhip.so", 1);
}

static int accelerators(void)
{
	int count = -1;
	OK(hoist_accelerator_count(&count));
	return count;
}

static void expect_virtual(const char *spec, const char *architecture)
{
	hoist_device *device = open_device(spec);
	hoist_device_info info = device_info_of(device);
	cr_expect(info.is_virtual == 1 && info.emulated == 1 && info.is_compatible == 1, "%s",
		  spec);
	cr_expect_str_eq(info.label, "gpu");
	cr_expect_str_eq(info.architecture, architecture);
	cr_expect_str_eq(hoist_device_spec(device), spec);
	hoist_device_unref(device);
}

/* proves: S1.18 S1.19 S1.22 V116 */
Test(virtual, devices_appear_and_go, .init = bare)
{
	const char *text = NULL;
	hoist_virtual_info info = {.size = sizeof info};
	cr_expect_eq(accelerators(), 0);
	OK(hoist_virtual_get("cuda", &info));
	cr_expect(info.count == 0 && info.architecture[0] == '\0');
	OK(hoist_virtual_set("cuda", "sm_80", 2));
	OK(hoist_virtual_get("cuda", &info));
	cr_expect_eq(info.count, 2);
	cr_expect_str_eq(info.architecture, "sm_80");
	cr_expect_eq(accelerators(), 2, "V116");
	expect_virtual("cuda:0", "sm_80");
	expect_virtual("cuda:1", "sm_80");
	OK(hoist_accelerator_api(&text));
	cr_expect_str_eq(text, "cuda");
	OK(hoist_accelerator_architecture(&text));
	cr_expect_str_eq(text, "sm_80");
	hoist_device *kept = NULL, *none = NULL;
	OK(hoist_device_open("gpu:1", &kept));
	REFUSED(hoist_device_open("cuda:2", &none), -EINVAL, "has 2 emulated CUDA devices");
	OK(hoist_virtual_set("cuda", NULL, 0));
	cr_expect_eq(accelerators(), 0, "V116: 0 restores");
	OK(hoist_virtual_get("cuda", &info));
	cr_expect(info.count == 0 && info.architecture[0] == '\0');
	REFUSED(hoist_device_open("cuda:1", &none), -ENODEV, "the virtual devices were ended");
	/* Open devices go on. */
	uint64_t bytes;
	OK(hoist_device_memory(kept, &bytes, &bytes));
	hoist_stream *stream = make_stream(kept);
	OK(hoist_stream_synchronize(stream));
	hoist_stream_unref(stream);
	cr_expect_null(none);
}

/* proves: S1.22 */
Test(virtual, counts_and_architectures_may_change, .init = bare)
{
	OK(hoist_virtual_set("cuda", NULL, 1));
	expect_virtual("cuda:0", "sm_90");
	OK(hoist_virtual_set("cuda", "sm_100a", 5));
	cr_expect_eq(accelerators(), 5);
	expect_virtual("cuda:0", "sm_90");
	expect_virtual("cuda:4", "sm_100a");
	OK(hoist_virtual_set("cuda", "sm_100a", 2));
	cr_expect_eq(accelerators(), 2);
	OK(hoist_virtual_set("cuda", "sm_75", HOIST_VIRTUAL_MAX));
	expect_virtual("cuda:63", "sm_75");
	OK(hoist_virtual_set("hip", "gfx90a:sramecc+:xnack-", 1));
	expect_virtual("hip:0", "gfx90a:sramecc+:xnack-");
	OK(hoist_virtual_set("cuda", NULL, 0));
	cr_expect_eq(accelerators(), 1, "HIP's are the first now");
	OK(hoist_virtual_set("cuda", NULL, 3));
	cr_expect_eq(accelerators(), 3);
}

/* proves: S1.22 */
Test(virtual, never_used_ones_leave_no_trace, .init = bare)
{
	hoist_device *none = NULL;
	OK(hoist_virtual_set("cuda", "sm_80", 2));
	OK(hoist_virtual_set("cuda", NULL, 0));
	REFUSED(hoist_device_open("cuda:0", &none), -ENODEV, "/nowhere/libcuda.so");
	cr_expect_null(none);
}

Test(virtual, beside_emulated_ones, .init = bare)
{
	setenv("HOIST_EMULATE", "cuda:2", 1);
	cr_expect_eq(accelerators(), 2);
	hoist_device *device = open_device("cuda:1");
	hoist_device_info info = device_info_of(device);
	cr_expect(info.emulated == 1 && info.is_virtual == 0);
	OK(hoist_virtual_set("cuda", "sm_80", 4));
	cr_expect_eq(accelerators(), 4);
	expect_virtual("cuda:3", "sm_80");
	OK(hoist_virtual_set("cuda", NULL, 0));
	cr_expect_eq(accelerators(), 2, "those of HOIST_EMULATE");
	cr_expect_eq(lib_counters("cuda").bad_copies, 0);
}

/* A driver with @n devices whose name is not the stand-in's. */
static void use_as_real(int n)
{
	char path[4096], name[64];
	__typeof__(&hoist_emulator_set_devices) set_devices;
	(void)snprintf(path, sizeof path, "%s/libhoist-emulated-cuda.so",
		       getenv("HOIST_EMULATOR_DIR"));
	(void)snprintf(name, sizeof name, "libcuda-as-real-%d.so", (int)getpid());
	const char *link = temporary(name);
	cr_assert_eq(symlink(path, link), 0);
	void *so = dlopen(link, RTLD_NOW | RTLD_LOCAL);
	cr_assert_not_null(so, "%s", dlerror());
	*(void **)&set_devices = dlsym(so, "hoist_emulator_set_devices");
	cr_assert_not_null(*(void **)&set_devices, "%s", dlerror());
	set_devices(n);
	setenv("HOIST_CUDA_LIBRARY", link, 1);
}

/* proves: S1.22 */
Test(virtual, the_real_driver_stays_once_it_is_open, .init = bare)
{
	use_as_real(1);
	OK(hoist_virtual_set("cuda", NULL, 0));
	hoist_device *device = open_device("cuda:0");
	hoist_device_info info = device_info_of(device);
	cr_expect(info.emulated == 0 && info.is_virtual == 0);
	REFUSED(hoist_virtual_set("cuda", "sm_80", 2), -EBUSY, "the real driver");
	cr_expect_eq(accelerators(), 1);
	OK(hoist_virtual_set("cuda", NULL, 0));
	OK(hoist_virtual_set("hip", NULL, 2));
	expect_virtual("hip:1", "gfx942");
	(void)unlink(getenv("HOIST_CUDA_LIBRARY"));
}

/* proves: S1.22 */
Test(virtual, a_driver_without_devices_is_in_nobodys_way, .init = bare)
{
	use_as_real(0);
	cr_expect_eq(accelerators(), 0);
	OK(hoist_virtual_set("cuda", "sm_80", 2));
	cr_expect_eq(accelerators(), 2);
	(void)unlink(getenv("HOIST_CUDA_LIBRARY"));
}

Test(virtual, wrong_counts_and_names_are_refused, .init = bare)
{
	hoist_virtual_info info = {.size = sizeof info};
	REFUSED(hoist_virtual_set("cpu", NULL, 1), -EINVAL, "\"cpu\" names no API of virtual");
	REFUSED(hoist_virtual_set("gpu", NULL, 1), -EINVAL, "say cuda or hip");
	REFUSED(hoist_virtual_set(NULL, NULL, 1), -EINVAL, "say cuda or hip");
	REFUSED(hoist_virtual_set("cuda", NULL, -1), -EINVAL, "-1 virtual devices");
	REFUSED(hoist_virtual_set("cuda", NULL, HOIST_VIRTUAL_MAX + 1), -EINVAL, "0 to 64");
	static const char *const bad[] = {"",	    "80",      "sm_",
					  "sm_8x",  "sm_80aa", "gfx942",
					  "sm_90 ", "SM_80",   "sm_00000000000000000000000000000"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		REFUSED(hoist_virtual_set("cuda", bad[i], 1), -EINVAL, "say for example sm_90");
	REFUSED(hoist_virtual_set("hip", "sm_90", 1), -EINVAL, "say for example gfx942");
	REFUSED(hoist_virtual_set("hip", "gfx", 1), -EINVAL, "say for example gfx942");
	REFUSED(hoist_virtual_get("cpu", &info), -EINVAL, "names no API");
	info.size = 0;
	REFUSED(hoist_virtual_get("cuda", &info), -EINVAL, "size field");
	cr_expect_eq(accelerators(), 0);
}

/* proves: S1.22 */
Test(virtual, without_stand_ins_says_where_they_were_looked_for, .init = bare)
{
	setenv("HOIST_EMULATOR_DIR", "/nowhere/emulators", 1);
	int err = hoist_virtual_set("cuda", "sm_80", 2);
	if (err == 0)
		cr_skip_test("the stand-ins are installed on this machine");
	cr_expect_eq(err, -ENOENT);
	expect_text("2 virtual devices");
	expect_text("/nowhere/emulators");
	cr_expect_eq(accelerators(), 0);
}

/* --- threads and forks --- */

static void *toggle(void *unused)
{
	(void)unused;
	for (int i = 0; i < 200; i++)
		if (hoist_virtual_set("cuda", i % 2 ? "sm_80" : NULL, i % 5) != 0)
			return (void *)(uintptr_t)1;
	return NULL;
}

static void *look(void *unused)
{
	(void)unused;
	for (int i = 0; i < 200; i++) {
		hoist_device *device = NULL;
		hoist_virtual_info info = {.size = sizeof info};
		int err = hoist_device_open("cuda:3", &device);
		if ((err != 0 && err != -ENODEV && err != -EINVAL) ||
		    hoist_virtual_get("cuda", &info) != 0)
			return (void *)(uintptr_t)1;
		hoist_device_unref(device);
	}
	return NULL;
}

Test(virtual, threads_may_look_meanwhile, .init = bare)
{
	pthread_t threads[3];
	void *failed[3];
	for (int i = 0; i < 3; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, i == 0 ? toggle : look, NULL), 0);
	for (int i = 0; i < 3; i++) {
		(void)pthread_join(threads[i], &failed[i]);
		cr_expect_null(failed[i]);
	}
}

/* 0: a child could open a device; 1: the child got -ESTALE. */
static int child_opens(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		hoist_device *device = NULL;
		int err = hoist_device_open("cuda:0", &device);
		_exit(err == 0 ? 0 : err == -ESTALE ? 1 : 2);
	}
	return child_status(pid);
}

Test(virtual, a_child_has_them_unless_its_parent_used_them, .init = bare)
{
	OK(hoist_virtual_set("cuda", "sm_80", 2));
	cr_expect_eq(child_opens(), 0);
	expect_virtual("cuda:0", "sm_80");
	cr_expect_eq(child_opens(), 1);
}
