/* SPDX-License-Identifier: MIT */
/* The devices of scenarios that keep them open, and their judge: see sweep.h. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <errno.h>

#include "tests/support/lib-support.h"
#include "tests/support/patience.h"

hoist_device *sweep_devices[LIB_N_DEVICES];
int sweep_device;

int sweep_open_devices(void)
{
	int err = 0;
	for (int i = 0; i < LIB_N_DEVICES; i++)
		if (sweep_devices[i] == NULL)
			STEP(err, hoist_device_open(lib_specs[i], &sweep_devices[i]));
	return err;
}

void sweep_need_devices(void)
{
	if (sweep_open_devices() != 0)
		sweep_die("the devices");
}

void sweep_check_devices_but(int err, bool (*is_clean)(hoist_device *const devices[]))
{
	if (err != 0 && err != -ENOMEM && err != -ENOSPC && err != -EREMOTEIO && err != -EPERM &&
	    err != -ENODEV)
		sweep_wrong("%d is an unexpected error", err);
	sweep_need_devices();
	/* A stream that could not be waited for before it was destroyed frees a little later. */
	for (uint64_t until = 0; !is_clean(sweep_devices);)
		if (!patience(&until)) {
			sweep_wrong("the drivers hold something");
			return;
		}
	if (!lib_drivers_content())
		sweep_wrong("the drivers saw a misuse");
}

void sweep_check_devices(int err)
{
	sweep_check_devices_but(err, lib_nothing_outstanding);
}
