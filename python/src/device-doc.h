/* SPDX-License-Identifier: MIT */
/* Docstrings of Device (device.c), in numpydoc's form. */
#ifndef HOIST_PY_DEVICE_DOC_H
#define HOIST_PY_DEVICE_DOC_H

static const char device_doc[] =
	"Device(spec=None)\n"
	"--\n\n"
	"The CPU or an accelerator.  One device is one object: `Device(\"cpu\") is "
	"Device(\"cpu\")`.\n\n"
	"Parameters\n"
	"----------\n"
	"spec : str, int or Device, optional\n"
	"    \"cpu\" (None, too), \"cuda:0\", \"hip:1\"; \"gpu:0\", \"gpu\", 0: an accelerator of "
	"the first API that\n"
	"    has any.  With HOIST_EMULATE=cuda:2 in the environment, stand-ins take the drivers' "
	"places.\n\n"
	"Raises\n"
	"------\n"
	"InvalidError\n"
	"    No device has such a name, or the machine has fewer: the text says how many.\n"
	"DeviceError\n"
	"    There is no driver, or the driver failed.\n\n"
	"Notes\n"
	"-----\n"
	"Threads: any thread may call every method.  fork: in a child, only the CPU works; "
	"others raise\n"
	"StaleError.";

static const char info_doc[] =
	"info($self, /)\n"
	"--\n\n"
	"The device's properties.\n\n"
	"Returns\n"
	"-------\n"
	"dict\n"
	"    api, id, is_host, emulated, name, architecture, pci, numa_node (-1: unknown), "
	"total_memory\n"
	"    (bytes), label, driver_version, library (the path of the driver's).";

static const char synchronize_doc[] =
	"synchronize($self, /)\n"
	"--\n\n"
	"Waits for all work on the device.  In the main thread, Ctrl-C ends the wait.\n\n"
	"Raises\n"
	"------\n"
	"DeviceError\n"
	"    Work on the device has failed.";

static const char can_access_doc[] =
	"can_access($self, other, /)\n"
	"--\n\n"
	"Whether kernels of this device can access memory of another.\n\n"
	"Parameters\n"
	"----------\n"
	"other : Device\n\n"
	"Returns\n"
	"-------\n"
	"bool";

static const char cpu_doc[] =
	"cpu($type, id=-1, /)\n"
	"--\n\n"
	"The CPU.\n\n"
	"Parameters\n"
	"----------\n"
	"id : int\n"
	"    Has no effect.\n\n"
	"Returns\n"
	"-------\n"
	"Device";

#endif
