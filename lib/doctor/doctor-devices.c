/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-devices.c - examines each driver, and puts each of its devices to work.
 * The contract is in lib/doctor/doctor.h. */
#include "config.h"

#include <stdio.h>
#include <sys/mman.h>

#include "base/figure.h"
#include "device/device.h"
#include "hoist/doctor.h"
#include "lib/doctor/doctor.h"

#define TRIAL_BYTES ((size_t)64 << 10)

/* Pins a little memory with the driver, and unpins it: staging depends on that. */
static int try_pinning(struct hoist__dev *dev)
{
	void *memory =
		mmap(NULL, TRIAL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return hoist__fail_nomem("memory to pin", TRIAL_BYTES);
	int err = hoist__dev_host_register(dev, memory, TRIAL_BYTES);
	if (err == 0)
		err = hoist__dev_host_unregister(dev, memory, TRIAL_BYTES);
	(void)munmap(memory, TRIAL_BYTES);
	return err;
}

static int check_device(hoist_doctor *doctor, enum hoist__api api, int ordinal)
{
	static const char remedy[] =
		"look for the driver's own report (nvidia-smi, rocm-smi, dmesg) and for other "
		"users of the device";
	char name[HOIST__CHECK_NAME_BYTES];
	struct hoist__dev *dev = NULL;
	uint64_t available = 0;
	uint64_t total = 0;
	(void)snprintf(name, sizeof name, "%s:%d", hoist__api_name(api), ordinal);
	if (hoist__dev_get(api, ordinal, &dev) < 0 ||
	    hoist__dev_mem_info(dev, &available, &total) < 0 || try_pinning(dev) < 0)
		return hoist__doctor_error(doctor, name, remedy);
	const struct hoist__dev_props *props = hoist__dev_props(dev);
	return hoist__doctor_yes(doctor, name, "%s, %s, %s free of %s, at %s%s", props->name,
				 props->architecture, hoist__figure(available).text,
				 hoist__figure(total).text, props->pci,
				 props->emulated ? " (emulated)" : "");
}

static int check_api(hoist_doctor *doctor, enum hoist__api api)
{
	int n = 0;
	if (hoist__dev_count(api, &n) < 0)
		return hoist__doctor_error(doctor, hoist__api_name(api),
					   "install the vendor's driver");
	int err = hoist__doctor_yes(doctor, hoist__api_name(api), "%d device%s by %s (%s)%s", n,
				    n == 1 ? "" : "s", hoist__api_library(api),
				    hoist__api_library_reason(api),
				    hoist__api_emulated(api) ? " (emulated)" : "");
	for (int i = 0; i < n && err == 0; i++)
		err = check_device(doctor, api, i);
	return err;
}

int hoist__doctor_devices(hoist_doctor *doctor)
{
	int err = check_api(doctor, HOIST__API_CUDA);
	return err < 0 ? err : check_api(doctor, HOIST__API_HIP);
}
