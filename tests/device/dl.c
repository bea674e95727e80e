/* SPDX-License-Identifier: MIT */
/* How drivers are found, refused and looked for again.  Criterion runs each test in a
 * process of its own, so each one opens its drivers for the first time. */
#include "config.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "device/device.h"
#include "device/dl.h"
#include "device/driver.h"
#include "device/virtual.h"
#include "tests/support/count.h"

static const enum hoist__api drivers[] = {HOIST__API_CUDA, HOIST__API_HIP};

static void clean_environment(void)
{
	unsetenv("HOIST_EMULATE");
	unsetenv("HOIST_EMULATE_FAIL");
	unsetenv("HOIST_CUDA_LIBRARY");
	unsetenv("HOIST_HIP_LIBRARY");
	setenv("HOIST_EMULATOR_DIR", EMULATOR_DIR, 0);
}

static void use_library(const char *path)
{
	setenv("HOIST_CUDA_LIBRARY", path, 1);
	setenv("HOIST_HIP_LIBRARY", path, 1);
}

/* Counting devices of @api must fail with -ENODEV and a text that has @word. */
static void refused(enum hoist__api api, const char *word)
{
	int count = -7;
	int err = hoist__dev_count(api, &count);
	cr_assert_eq(err, -ENODEV, "%s: %d", hoist__api_name(api), err);
	cr_assert_eq(count, -7);
	cr_assert_not_null(strstr(hoist__error_text(), word), "'%s' lacks '%s'",
			   hoist__error_text(), word);
}

static bool mapped(const char *word)
{
	return count_lines_with("/proc/self/maps", word) > 0;
}

TestSuite(device_dl, .init = clean_environment);

Test(device_dl, understands_every_HOIST_EMULATE)
{
	static const struct {
		const char *value;
		int cuda;
		int hip;
	} rows[] = {{"", 0, 0},		{"cuda:1", 1, 0},	{"hip:2", 0, 2},
		    {"cuda:64", 64, 0}, {"cuda:2,hip:1", 2, 1}, {"hip:3,cuda:10", 10, 3}};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(rows); i++) {
		int count = -1;
		setenv("HOIST_EMULATE", rows[i].value, 1);
		cr_assert_eq(hoist__dl_emulate(HOIST__API_CUDA, &count), 0);
		cr_assert_eq(count, rows[i].cuda, "%s", rows[i].value);
		cr_assert_eq(hoist__dl_emulate(HOIST__API_HIP, &count), 0);
		cr_assert_eq(count, rows[i].hip, "%s", rows[i].value);
		cr_assert_eq(hoist__api_emulated(HOIST__API_CUDA), rows[i].cuda > 0);
		cr_assert_eq(hoist__api_emulated(HOIST__API_HIP), rows[i].hip > 0);
		cr_assert_not(hoist__api_emulated(HOIST__API_CPU));
	}
}

Test(device_dl, refuses_a_malformed_HOIST_EMULATE_and_names_the_item)
{
	static const struct {
		const char *value;
		const char *item;
	} rows[] = {
		{"cuda", "'cuda'"},
		{"cuda:", "'cuda:'"},
		{"cuda:x", "'cuda:x'"},
		{"cuda:1x", "'cuda:1x'"},
		{"cuda:0", "'cuda:0'"},
		{"cuda:65", "'cuda:65'"},
		{"cuda:-1", "'cuda:-1'"},
		{"cuda: 1", "'cuda: 1'"},
		{"cuda:100", "'cuda:100'"},
		{"foo:1", "'foo:1'"},
		{"cpu:1", "'cpu:1'"},
		{"CUDA:1", "'CUDA:1'"},
		{"cuda:1,", "''"},
		{",cuda:1", "''"},
		{"cuda:1,hip", "'hip'"},
		{"cuda:1,cuda:2", "twice"},
		{"cuda:4294967297", "4294967297"},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(rows); i++) {
		int count = -1;
		setenv("HOIST_EMULATE", rows[i].value, 1);
		cr_assert_eq(hoist__dl_emulate(HOIST__API_HIP, &count), -EINVAL, "%s",
			     rows[i].value);
		cr_assert_eq(count, -1);
		cr_assert_not_null(strstr(hoist__error_text(), rows[i].item), "%s: %s",
				   rows[i].value, hoist__error_text());
		cr_assert_not(hoist__api_emulated(HOIST__API_CUDA));
	}
	int count = -1;
	cr_assert_eq(hoist__dev_count(HOIST__API_CUDA, &count), -EINVAL);
}

Test(device_dl, says_which_given_library_is_missing)
{
	use_library("/nowhere/libdriver.so");
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(drivers); i++) {
		refused(drivers[i], "/nowhere/libdriver.so");
		refused(drivers[i], "no driver library");
		cr_assert_str_empty(hoist__api_library(drivers[i]));
	}
	refused(HOIST__API_CUDA, "HOIST_CUDA_LIBRARY");
	refused(HOIST__API_HIP, "HOIST_HIP_LIBRARY");
}

Test(device_dl, looks_again_after_a_failure)
{
	use_library("/nowhere/libdriver.so");
	refused(HOIST__API_CUDA, "/nowhere/libdriver.so");
	use_library("/elsewhere/libdriver.so");
	refused(HOIST__API_CUDA, "/elsewhere/libdriver.so");
	struct hoist__dev *dev = NULL;
	cr_assert_eq(hoist__dev_get(HOIST__API_CUDA, 0, &dev), -ENODEV);
	cr_assert_null(dev);
	cr_assert_not_null(strstr(hoist__error_text(), "/elsewhere/libdriver.so"));
	/* The environment is right now. */
	setenv("HOIST_EMULATE", "cuda:1", 1);
	int count = 0;
	cr_assert_eq(hoist__dev_count(HOIST__API_CUDA, &count), 0, "%s", hoist__error_text());
	cr_assert_eq(count, 1);
}

Test(device_dl, names_the_library_and_the_remedies)
{
	if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL)
		cr_skip_test("this machine has libcuda.so.1");
	refused(HOIST__API_CUDA, "libcuda.so.1");
	refused(HOIST__API_CUDA, "HOIST_CUDA_LIBRARY");
	refused(HOIST__API_CUDA, "HOIST_EMULATE=cuda:1");
}

Test(device_dl, tells_a_driver_that_is_too_old)
{
	use_library(FAKE_DIR "/libfake_old.so");
	refused(HOIST__API_CUDA, "too old: it is version 6.5, hoist needs 7.0");
	refused(HOIST__API_HIP, "too old: it is version 4.5, hoist needs 5.0");
	cr_assert_not_null(strstr(hoist__api_library(HOIST__API_CUDA), "/libfake_old.so"));
}

/* Asking costs nothing where there is no driver: nothing is looked for again. */
Test(device_dl, is_not_opened_again_to_ask_where_an_address_is)
{
	struct hoist__pointer pointer;
	cr_assert_eq(hoist__api_opened(HOIST__API_CUDA), -ENOENT);
	use_library(FAKE_DIR "/libfake_old.so");
	refused(HOIST__API_CUDA, "too old");
	cr_assert_eq(hoist__api_opened(HOIST__API_CUDA), -ENODEV);
	cr_assert_eq(hoist__virtual_set(HOIST__API_CUDA, "", 0), 0);
	cr_assert_eq(hoist__api_opened(HOIST__API_CUDA), -ENOENT, "all is forgotten");
	refused(HOIST__API_CUDA, "too old");
	setenv("HOIST_EMULATE", "cuda:1", 1); /* what would be found now */
	cr_assert_eq(hoist__pointer_find((uintptr_t)&pointer, &pointer), 0);
	cr_assert_eq(pointer.api, HOIST__API_CPU);
	cr_assert_eq(hoist__api_opened(HOIST__API_CUDA), -ENODEV);
	cr_assert_not(mapped("libhoist-emulated"));
	int count = 0;
	cr_assert_eq(hoist__dev_count(HOIST__API_CUDA, &count), 0, "%s", hoist__error_text());
	cr_assert_eq(hoist__api_opened(HOIST__API_CUDA), 0);
}

Test(device_dl, tells_a_driver_that_lacks_a_symbol)
{
	use_library(FAKE_DIR "/libfake_damaged.so");
	refused(HOIST__API_CUDA, "lacks the symbol cuGetErrorName");
	refused(HOIST__API_HIP, "lacks the symbol hipGetErrorName");
}

Test(device_dl, tells_a_library_that_is_no_driver_at_all)
{
	use_library("libm.so.6");
	refused(HOIST__API_CUDA, "lacks the symbol cuDriverGetVersion");
	refused(HOIST__API_HIP, "lacks the symbol hipRuntimeGetVersion");
}

Test(device_dl, tells_a_real_runtime_without_devices)
{
	if (access("/dev/kfd", F_OK) == 0)
		cr_skip_test("this machine may have an AMD device");
	if (dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL) == NULL)
		cr_skip_test("libamdhip64.so.5 is not installed");
	setenv("HOIST_HIP_LIBRARY", "libamdhip64.so.5", 1);
	refused(HOIST__API_HIP, "offers no device: hipErrorNoDevice");
	refused(HOIST__API_HIP, "/dev/kfd");
}

Test(device_dl, tells_a_driver_without_devices)
{
	if (access(EMULATOR_DIR "/libhoist-emulated-cuda.so", R_OK) != 0)
		cr_skip_test("the stand-in drivers are not built");
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	setenv("HOIST_EMULATE_FAIL", "cuInit:1+:100,hipInit:1+:100", 1);
	refused(HOIST__API_CUDA, "offers no device: CUDA_ERROR_NO_DEVICE");
	refused(HOIST__API_CUDA, "nvidia-smi");
	refused(HOIST__API_HIP, "offers no device: hipErrorNoDevice");
	refused(HOIST__API_HIP, "rocminfo");
}

Test(device_dl, says_where_it_looked_for_a_stand_in)
{
	setenv("HOIST_EMULATOR_DIR", "/nowhere/emulators", 1);
	setenv("HOIST_EMULATE", "cuda:1", 1);
	int count = 0;
	if (hoist__dev_count(HOIST__API_CUDA, &count) == 0)
		cr_skip_test("an installed stand-in was found");
	refused(HOIST__API_CUDA, "libhoist-emulated-cuda.so");
	refused(HOIST__API_CUDA, "/nowhere/emulators");
	refused(HOIST__API_CUDA, "HOIST_EMULATOR_DIR");
}

Test(device_dl, tells_a_stand_in_that_cannot_be_loaded)
{
	char folder[] = "/tmp/hoist-device-XXXXXX";
	char path[64];
	cr_assert_not_null(mkdtemp(folder));
	(void)snprintf(path, sizeof path, "%s/libhoist-emulated-hip.so", folder);
	FILE *file = fopen(path, "we");
	cr_assert_not_null(file);
	cr_assert_gt(fputs("not a library", file), 0);
	cr_assert_eq(fclose(file), 0);
	setenv("HOIST_EMULATOR_DIR", folder, 1);
	setenv("HOIST_EMULATE", "hip:1", 1);
	int count = 0;
	int err = hoist__dev_count(HOIST__API_HIP, &count);
	if (err < 0)
		refused(HOIST__API_HIP, path);
	(void)unlink(path);
	(void)rmdir(folder);
	if (err == 0)
		cr_skip_test("an installed stand-in was found");
}

Test(device_dl, opens_nothing_before_the_first_need)
{
	struct hoist__dev *dev = NULL;
	cr_assert_eq(hoist__dev_get(HOIST__API_CPU, 0, &dev), 0);
	cr_assert_str_empty(hoist__api_library(HOIST__API_CUDA));
	cr_assert_not(mapped("libcuda"));
	cr_assert_not(mapped("libamdhip64"));
	cr_assert_not(mapped("libhoist-emulated"));
}

Test(device_dl, marks_a_stand_in_that_was_given_as_a_library)
{
	if (access(EMULATOR_DIR "/libhoist-emulated-cuda.so", R_OK) != 0)
		cr_skip_test("the stand-in drivers are not built");
	struct hoist__dl_row none = {"hoist_no_such_symbol", 0, HOIST__DL_OPTIONAL, 0};
	void *table[1] = {NULL};
	static const char *const names[] = {EMULATOR_DIR "/libhoist-emulated-cuda.so", NULL};
	struct hoist__dl dl = {.api = HOIST__API_CUDA,
			       .title = "CUDA",
			       .variable = "HOIST_CUDA_LIBRARY",
			       .names = names,
			       .prefix = "libcuda.so",
			       .rows = &none,
			       .n_rows = 1,
			       .table = table};
	cr_assert_eq(hoist__dl_open(&dl), 0, "%s", hoist__error_text());
	cr_assert(dl.emulated);
	cr_assert_null(dl.missing);
	cr_assert_null(table[0]);
}

Test(device_dl, spells_pci_addresses_as_sysfs_does)
{
	static const char *const rows[][2] = {
		{"0000:65:00.0", "0000:65:00.0"},
		{"00000000:3B:00.0", "0000:3b:00.0"},
		{"3b:1f.7", "0000:3b:1f.7"},
		{"10000:E1:00.0", "10000:e1:00.0"},
		{"", ""},
		{"nonsense", ""},
		{"0000:65:00.0.1", ""},
		{"0000:65:00", ""},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(rows); i++) {
		char said[16] = "before";
		hoist__driver_pci(rows[i][0], said, sizeof said);
		cr_assert_str_eq(said, rows[i][1], "%s", rows[i][0]);
	}
}
