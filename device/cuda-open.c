/* SPDX-License-Identifier: MIT */
/* device/cuda-open.c - opens the CUDA driver, asks for devices and their properties, and judges
 * results.  The contract is in device/cuda.h. */
#include "config.h"

#include "device/cuda.h"

#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "device/driver.h"
#include "device/query.h"

struct hoist__cuda_table hoist__cuda;

#define HOIST__DL_TABLE struct hoist__cuda_table
static const struct hoist__dl_row rows[] = {HOIST__CUDA_TABLE(HOIST__DL_ROW)};

static const char *const names[] = {"libcuda.so.1", NULL};

static struct hoist__dl dl = {
	.api = HOIST__API_CUDA,
	.title = "CUDA",
	.variable = "HOIST_CUDA_LIBRARY",
	.emulator = "libhoist-emulated-cuda.so",
	.names = names,
	.prefix = HOIST__CUDA_PREFIX,
	.remedy = "install NVIDIA's driver (in a container: run it with the NVIDIA runtime)",
	.rows = rows,
	.n_rows = HOIST__ARRAY_SIZE(rows),
	.table = &hoist__cuda,
};

static int driver_version;

/* The driver's name and explanation of @result. */
static void describe(hoist__cu_result result, char *buffer, size_t bytes)
{
	const char *name = NULL;
	const char *text = NULL;
	if (hoist__cuda.cuGetErrorName(result, &name) != HOIST__CU_SUCCESS || name == NULL)
		(void)snprintf(buffer, bytes, "CUDA error %u", result);
	else if (hoist__cuda.cuGetErrorString(result, &text) != HOIST__CU_SUCCESS || text == NULL)
		(void)snprintf(buffer, bytes, "%s", name);
	else
		(void)snprintf(buffer, bytes, "%s (%s)", name, text);
}

int hoist__cuda_judge(const struct hoist__dev *dev, hoist__cu_result result, const char *what)
{
	char words[256];
	if (result == HOIST__CU_SUCCESS)
		return 0;
	if (result == HOIST__CU_ERROR_NOT_READY)
		return -EAGAIN;
	describe(result, words, sizeof words);
	int err = result == HOIST__CU_ERROR_OUT_OF_MEMORY   ? -ENOSPC
		  : result == HOIST__CU_ERROR_NOT_PERMITTED ? -EPERM
							    : -EREMOTEIO;
	return hoist__fail_driver(err, "cuda", (int)result, "cuda:%d: %s: %s", dev->ordinal, what,
				  words);
}

static const char *init_remedy(hoist__cu_result result)
{
	switch (result) {
	case HOIST__CU_ERROR_NO_DEVICE:
		return "check that nvidia-smi lists it, that this user or container may open "
		       "/dev/nvidia*, and CUDA_VISIBLE_DEVICES";
	case HOIST__CU_ERROR_SYSTEM_DRIVER_MISMATCH:
		return "the kernel module and the library are of different versions: load the "
		       "new module or reboot";
	case HOIST__CU_ERROR_SYSTEM_NOT_READY:
		return "start nvidia-fabricmanager and nvidia-persistenced, then try again";
	case HOIST__CU_ERROR_STUB_LIBRARY:
		return "this is the toolkit's link-time stub: take its folder out of "
		       "LD_LIBRARY_PATH";
	default:
		return dl.emulated ? "check the HOIST_EMULATE variables"
				   : "check `nvidia-smi` and the kernel's log (dmesg)";
	}
}

static int fail_init(hoist__cu_result result)
{
	char words[256];
	describe(result, words, sizeof words);
	return hoist__fail_driver(-ENODEV, "cuda", (int)result,
				  "CUDA: the driver %.300s (version %d.%d) offers no device: %s; "
				  "%s",
				  dl.path, driver_version / 1000, driver_version % 1000 / 10, words,
				  init_remedy(result));
}

/* A function that the library lacks is NULL, for which hoist__dl_check() refuses the library.  So
 * before this check only the version is asked. */
int hoist__cuda_open(int *count, const char **library)
{
	*library = dl.path;
	int err = hoist__dl_open(&dl);
	if (err < 0)
		return err;
	if (hoist__cuda.cuDriverGetVersion == NULL ||
	    hoist__cuda.cuDriverGetVersion(&driver_version) != HOIST__CU_SUCCESS)
		driver_version = 0;
	char said[16];
	/* The number is major * 1000 + minor * 10 (the manual of cuDriverGetVersion). */
	(void)snprintf(said, sizeof said, "%d.%d", driver_version / 1000,
		       driver_version % 1000 / 10);
	err = hoist__dl_check(&dl, driver_version, HOIST__CUDA_SINCE, said, "7.0");
	if (err < 0)
		return err;
	hoist__cu_result result = hoist__cuda.cuInit(0);
	int found = 0;
	if (result == HOIST__CU_SUCCESS)
		result = hoist__cuda.cuDeviceGetCount(&found);
	if (result == HOIST__CU_SUCCESS && found <= 0)
		result = HOIST__CU_ERROR_NO_DEVICE;
	if (result != HOIST__CU_SUCCESS)
		return fail_init(result);
	*count = found;
	return 0;
}

/* The compute capability as the compiler spells it: "sm_90". */
static hoist__cu_result probe_architecture(struct hoist__dev *dev)
{
	int major = 0;
	int minor = 0;
	hoist__cu_result result = hoist__cuda.cuDeviceGetAttribute(
		&major, HOIST__CU_ATTRIBUTE_COMPUTE_MAJOR, dev->native);
	if (result == HOIST__CU_SUCCESS)
		result = hoist__cuda.cuDeviceGetAttribute(&minor, HOIST__CU_ATTRIBUTE_COMPUTE_MINOR,
							  dev->native);
	if (result == HOIST__CU_SUCCESS)
		(void)snprintf(dev->props.architecture, sizeof dev->props.architecture, "sm_%d%d",
			       major, minor);
	return result;
}

int hoist__cuda_probe(struct hoist__dev *dev)
{
	struct hoist__dev_props *props = &dev->props;
	size_t total = 0;
	int pitch = 0;
	char pci[32] = "";
	hoist__cu_result result = hoist__cuda.cuDeviceGet(&dev->native, dev->ordinal);
	if (result == HOIST__CU_SUCCESS)
		result = hoist__cuda.cuDeviceGetName(props->name, sizeof props->name, dev->native);
	if (result == HOIST__CU_SUCCESS)
		result = hoist__cuda.cuDeviceTotalMem(&total, dev->native);
	if (result == HOIST__CU_SUCCESS)
		result = probe_architecture(dev);
	if (result == HOIST__CU_SUCCESS)
		result = hoist__cuda.cuDeviceGetPCIBusId(pci, sizeof pci, dev->native);
	if (result == HOIST__CU_SUCCESS)
		result = hoist__cuda.cuDeviceGetAttribute(&pitch, HOIST__CU_ATTRIBUTE_MAX_PITCH,
							  dev->native);
	if (result != HOIST__CU_SUCCESS)
		return hoist__cuda_judge(dev, result, "asking for its properties");
	hoist__driver_pci(pci, props->pci, sizeof props->pci);
	/* Drivers before 12 do not know the attribute; then the node is unknown. */
	if (hoist__cuda.cuDeviceGetAttribute(&props->numa_node, HOIST__CU_ATTRIBUTE_HOST_NUMA_ID,
					     dev->native) != HOIST__CU_SUCCESS ||
	    props->numa_node < 0)
		props->numa_node = -1;
	int integrated = 0;
	props->is_unified =
		hoist__cuda.cuDeviceGetAttribute(&integrated, HOIST__CU_ATTRIBUTE_INTEGRATED,
						 dev->native) == HOIST__CU_SUCCESS &&
		integrated != 0;
	dev->max_pitch = pitch > 0 ? (size_t)pitch : 0;
	dev->max_plane = SIZE_MAX;
	props->total_bytes = total;
	props->driver_version = driver_version;
	props->emulated = dl.emulated;
	return 0;
}
