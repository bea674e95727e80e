/* SPDX-License-Identifier: MIT */
/* device/hip-open.c - opens the HIP runtime, asks for devices and their properties, and judges
 * results.  The contract is in device/hip.h. */
#include "config.h"

#include "device/hip.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "device/driver.h"
#include "device/query.h"

struct hoist__hip_table hoist__hip;

#define HOIST__DL_TABLE struct hoist__hip_table
static const struct hoist__dl_row rows[] = {HOIST__HIP_TABLE(HOIST__DL_ROW)};

static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
				    NULL};

static struct hoist__dl dl = {
	.api = HOIST__API_HIP,
	.title = "HIP",
	.variable = "HOIST_HIP_LIBRARY",
	.emulator = "libhoist-emulated-hip.so",
	.names = names,
	.prefix = HOIST__HIP_PREFIX,
	.remedy = "install ROCm's HIP runtime (Debian: libamdhip64-5)",
	.rows = rows,
	.n_rows = HOIST__ARRAY_SIZE(rows),
	.table = &hoist__hip,
};

static int driver_version;

/* The driver's name and explanation of @error. */
static void describe(hoist__hip_error error, char *buffer, size_t bytes)
{
	const char *name = hoist__hip.hipGetErrorName(error);
	const char *text = hoist__hip.hipGetErrorString(error);
	if (name == NULL)
		(void)snprintf(buffer, bytes, "HIP error %u", error);
	else if (text == NULL || strcmp(text, name) == 0)
		(void)snprintf(buffer, bytes, "%s", name);
	else
		(void)snprintf(buffer, bytes, "%s (%s)", name, text);
}

int hoist__hip_judge(const struct hoist__dev *dev, hoist__hip_error error, const char *what)
{
	char words[256];
	if (error == HOIST__HIP_SUCCESS)
		return 0;
	(void)hoist__hip.hipGetLastError();
	if (error == HOIST__HIP_ERROR_NOT_READY)
		return -EAGAIN;
	describe(error, words, sizeof words);
	return hoist__fail_driver(error == HOIST__HIP_ERROR_OUT_OF_MEMORY ? -ENOSPC : -EREMOTEIO,
				  "hip", (int)error, "hip:%d: %s: %s", dev->ordinal, what, words);
}

static const char *init_remedy(hoist__hip_error error)
{
	switch (error) {
	case HOIST__HIP_ERROR_NO_DEVICE:
		return "check that rocminfo lists it, that this user may open /dev/kfd and "
		       "/dev/dri/render* (groups render and video), and HIP_VISIBLE_DEVICES";
	case HOIST__HIP_ERROR_INSUFFICIENT_DRIVER:
		return "the kernel's amdgpu driver is too old for this library: update that driver";
	default:
		return dl.emulated ? "check the HOIST_EMULATE variables"
				   : "check `rocminfo` and the kernel's log (dmesg)";
	}
}

static int fail_init(hoist__hip_error error, const char *version)
{
	char words[256];
	describe(error, words, sizeof words);
	(void)hoist__hip.hipGetLastError();
	return hoist__fail_driver(-ENODEV, "hip", (int)error,
				  "HIP: the runtime %.300s (version %s) offers no device: %s; %s",
				  dl.path, version, words, init_remedy(error));
}

int hoist__hip_open(int *count, const char **library)
{
	*library = dl.path;
	int err = hoist__dl_open(&dl);
	if (err < 0)
		return err;
	if (hoist__hip.hipRuntimeGetVersion == NULL ||
	    hoist__hip.hipRuntimeGetVersion(&driver_version) != HOIST__HIP_SUCCESS)
		driver_version = 0;
	char said[32];
	/* The number is major * 10,000,000 + minor * 100,000 + patch (HIP_VERSION in
	 * hip_version.h). */
	(void)snprintf(said, sizeof said, "%d.%d", driver_version / 10000000,
		       driver_version % 10000000 / 100000);
	err = hoist__dl_check(&dl, driver_version, HOIST__HIP_SINCE, said, "5.0");
	if (err < 0)
		return err;
	hoist__hip_error error = hoist__hip.hipInit(0);
	int found = 0;
	if (error == HOIST__HIP_SUCCESS)
		error = hoist__hip.hipGetDeviceCount(&found);
	/* Without devices ROCm 5's hipInit() returns "invalid device". */
	if (error == HOIST__HIP_ERROR_INVALID_DEVICE || (error == HOIST__HIP_SUCCESS && found <= 0))
		error = HOIST__HIP_ERROR_NO_DEVICE;
	if (error != HOIST__HIP_SUCCESS)
		return fail_init(error, driver_version == 0 ? "unknown" : said);
	*count = found;
	return 0;
}

/* Takes "gfx942" from "gfx942:sramecc+:xnack-"; "gfx" where no runtime call tells the name. */
static void probe_architecture(struct hoist__dev *dev)
{
	union {
		struct hoist__hip_props_r0600 r0600;
		struct hoist__hip_props_r0000 r0000;
	} props;
	const char *name = "gfx";
	memset(&props, 0, sizeof props);
	hoist__hip_error error = HOIST__HIP_ERROR_NOT_SUPPORTED;
	if (hoist__hip.hipGetDevicePropertiesR0600 != NULL) {
		error = hoist__hip.hipGetDevicePropertiesR0600(&props.r0600, dev->ordinal);
		name = props.r0600.architecture;
	} else if (hoist__hip.hipGetDevicePropertiesR0000 != NULL) {
		error = hoist__hip.hipGetDevicePropertiesR0000(&props.r0000, dev->ordinal);
		name = props.r0000.architecture;
	}
	/* If the layout changed once more, another text would stand here. */
	if (error != HOIST__HIP_SUCCESS || strncmp(name, "gfx", 3) != 0)
		name = "gfx";
	(void)hoist__hip.hipGetLastError();
	(void)snprintf(dev->props.architecture, sizeof dev->props.architecture, "%.*s",
		       (int)strcspn(name, ":"), name);
}

/* Every failed call sets the thread's last error, also one that is no failure here: it is taken
 * back. */
int hoist__hip_probe(struct hoist__dev *dev)
{
	struct hoist__dev_props *props = &dev->props;
	size_t total = 0;
	char pci[32] = "";
	hoist__hip_error error = hoist__hip.hipDeviceGet(&dev->native, dev->ordinal);
	if (error == HOIST__HIP_SUCCESS)
		error = hoist__hip.hipDeviceGetName(props->name, sizeof props->name, dev->native);
	if (error == HOIST__HIP_SUCCESS)
		error = hoist__hip.hipDeviceTotalMem(&total, dev->native);
	if (error == HOIST__HIP_SUCCESS)
		error = hoist__hip.hipDeviceGetPCIBusId(pci, sizeof pci, dev->ordinal);
	if (error != HOIST__HIP_SUCCESS)
		return hoist__hip_judge(dev, error, "asking for its properties");
	probe_architecture(dev);
	hoist__driver_pci(pci, props->pci, sizeof props->pci);
	props->numa_node = -1;
	if (driver_version >= HOIST__HIP_HOST_NUMA_ID_SINCE &&
	    (hoist__hip.hipDeviceGetAttribute(&props->numa_node, HOIST__HIP_ATTRIBUTE_HOST_NUMA_ID,
					      dev->ordinal) != HOIST__HIP_SUCCESS ||
	     props->numa_node < 0)) {
		props->numa_node = -1;
		(void)hoist__hip.hipGetLastError();
	}
	int integrated = 0;
	props->is_unified =
		hoist__hip.hipDeviceGetAttribute(&integrated, HOIST__HIP_ATTRIBUTE_INTEGRATED,
						 dev->ordinal) == HOIST__HIP_SUCCESS &&
		integrated != 0;
	(void)hoist__hip.hipGetLastError();
	dev->max_pitch = HOIST__HIP_MAX_PITCH;
	dev->max_plane = HOIST__HIP_MAX_PLANE;
	props->total_bytes = total;
	props->driver_version = driver_version;
	props->emulated = dl.emulated;
	return 0;
}
