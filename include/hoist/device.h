/* SPDX-License-Identifier: MIT */
/* hoist/device.h - the CPU and accelerators.
 *
 *     hoist_device *device;
 *     hoist_device_info info = {.size = sizeof info};
 *     if (hoist_device_open("gpu:0", &device) < 0)
 *             return fail(hoist_error());
 *     hoist_device_get_info(device, &info);
 *     printf("%s: %s, %s\n", hoist_device_spec(device), info.name, info.architecture);
 *     hoist_device_unref(device);
 *
 * A Device is the CPU, or an accelerator that hoist reaches through its vendor's driver.  hoist
 * opens a driver when a device of its API is first asked for, and never earlier.  A device gets its
 * driver context when its memory or a stream is first used.  Opening the same device twice gives
 * the same object: two devices are the same if their pointers are equal.
 *
 * hoist/stream.h has the queues of work on devices.
 *
 * With HOIST_EMULATE=cuda:2 (or hip:1, or both, separated by a comma) in the environment, stand-in
 * drivers that come with hoist serve these APIs: the code paths are the real ones, without
 * hardware.  hoist_device_get_info() then says emulated.
 *
 * Threads: every function may be called from any thread.  Devices are reference counted; a function
 * that returns one through `ret` gives the caller a reference.
 * fork: a child gets -ESTALE from each function that needs a driver.
 */
#ifndef HOIST_DEVICE_H
#define HOIST_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/error.h>

HOIST_BEGIN

typedef struct hoist_device hoist_device;
typedef struct hoist_stream hoist_stream;

/* --- opening devices --- */

/* Opens the device that @spec names: "cpu", "cuda:N", "hip:N", "gpu:N" (the first accelerator API
 * that has a device, CUDA before HIP), or one of these without ":N", which means 0.
 * Returns: 0; -EINVAL (@spec is none of these; N is not below the number of devices, which the text
 *   gives); -ENODEV (there is no driver, or the driver is too old or finds no device; the text says
 *   which, and the remedy); -ENOMEM. */
HOIST_API int hoist_device_open(const char *spec, hoist_device **ret);

typedef struct hoist_device_options {
	size_t size;           /* sizeof(hoist_device_options) */
	uint64_t memory_limit; /* the most bytes of the device's memory that all resources of hoist
	                        * take together; the driver's pools and managed memory do not
	                        * count.  0: 99 % of the memory that is free when hoist first takes
	                        * some.  The limit of the first opening holds; the limits of later
	                        * openings are ignored */
} hoist_device_options;

/* As hoist_device_open(), with options; NULL: all defaults.  Allocating memory beyond the limit is
 * -ENOSPC, with the figures.
 * Returns: as hoist_device_open(); -EINVAL (a limit for the CPU, which has none). */
HOIST_API int hoist_device_open_with(const char *spec, const hoist_device_options *options,
				     hoist_device **ret);

/* One more reference.  Returns: @device. */
HOIST_API hoist_device *hoist_device_ref(hoist_device *device);
HOIST_API void hoist_device_unref(hoist_device *device); /* takes NULL */

/* The number of devices that @api ("cpu", "cuda", "hip") offers.
 * Returns: 0; -EINVAL (an unknown API); -ENODEV (no driver or no device; the text has the
 *   reason). */
HOIST_API int hoist_device_count(const char *api, int *ret);

/* --- properties of a device --- */

/* The spec that opens this device again: "cuda:0".  Valid as long as the device. */
HOIST_API const char *hoist_device_spec(const hoist_device *device);

typedef struct hoist_device_info {
	size_t size;          /* in: sizeof(hoist_device_info) */
	const char *api;      /* "cpu", "cuda", "hip" */
	int id;               /* the driver's number; 0 for the CPU */
	int is_host;          /* 1 for the CPU */
	int emulated;         /* 1: hoist's stand-in driver serves the device */
	const char *name;     /* "NVIDIA H200" */
	const char *architecture; /* "sm_90", "gfx942", "x86_64" */
	const char *pci;      /* "0000:65:00.0"; "" for the CPU */
	int numa_node;        /* nearest node; -1 unknown */
	uint64_t total_memory;
	const char *label;    /* "cpu", or "gpu" for all others */
	int is_compatible;    /* 1: hoist can use the device.  hoist_device_open() refuses a device
			       * that hoist cannot use, with the reason */
	int is_virtual;       /* 1: opened while hoist_virtual_set() was in force; emulated too */
	int driver_version;   /* as the driver encodes it (13000); 0 for the CPU */
	const char *library;  /* the path of the driver's library; "" for the CPU */
	const char *library_reason; /* why hoist uses this library: "this process had loaded it" */
	int is_host_unified; /* 1: device and host share one memory, as an integrated GPU does, and
			      * the CPU.  The host may still be unable to touch a buffer of the
			      * device */
} hoist_device_info;

/* Fills @info up to info->size.  Strings live as long as the device.
 * Returns: 0; -EINVAL (@device is NULL; info->size is 0 or larger than this library knows). */
HOIST_API int hoist_device_get_info(const hoist_device *device, hoist_device_info *info);

/* Bytes of memory that are free now, and bytes in all.  Makes the device's context.
 * Returns: 0; -EINVAL (NULL); -ENODEV, -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_device_memory(hoist_device *device, uint64_t *free_bytes,
				  uint64_t *total_bytes);

typedef struct hoist_device_statistics {
	size_t size;           /* in: sizeof(hoist_device_statistics) */
	uint64_t free_memory;  /* bytes, as all below; as hoist_device_memory() */
	uint64_t total_memory;
	uint64_t memory_limit; /* hoist_device_options.memory_limit; before hoist has taken memory of
				* the device, the limit if it took some now; the CPU has none: UINT64_MAX */
	uint64_t limited;      /* taken now by all resources that count towards the limit */
	uint64_t limited_peak; /* the most of that so far */
	uint64_t used;         /* in live buffers: of `limited`; on the CPU: of host memory */
	uint64_t cached;       /* kept by the device's own resource for the next buffers */
	uint64_t pinned;       /* host memory that the device's own resources have pinned */
} hoist_device_statistics;

/* Fills @statistics up to statistics->size with the use of the device's memory.  Makes the device's
 * context.
 * Returns: 0; as hoist_device_get_info() and hoist_device_memory(). */
HOIST_API int hoist_device_get_statistics(hoist_device *device,
					  hoist_device_statistics *statistics);

/* Whether copies and kernels of @device reach the memory of @peer directly: *@ret is 1 or 0.  A
 * device always reaches its own memory.  No device reaches the memory of a device of another API,
 * or memory of the CPU that is not pinned.  The first answer of 1 for a pair enables the access in
 * this direction and makes the contexts of both devices; a copy of hoist's between two devices does
 * the same.  The answer is 0 if the driver refuses to enable the access (a driver has a largest
 * number of peers).
 * Returns: 0; -EINVAL (NULL); -ENOSPC (no memory for a context); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_device_can_access(hoist_device *device, hoist_device *peer, int *ret);

/* --- all work on a device --- */

/* Blocks until all work queued on the device so far is done, the work of other libraries included;
 * on the CPU: the work of the streams made by hoist_stream_create().  While a hoist_stream captures
 * a graph, a wait for the device would break the capture: the call then waits only for all other
 * hoist_streams.  The call gives back memory that consumers of exported buffers have let go
 * ("Consumers" in hoist/memory.h).  A function that a stream calls must not call this one.
 * Returns: 0; the first failure of that work, as hoist_stream_synchronize() of each stream would:
 *   the streams do not report that failure again; -EINVAL (NULL); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_device_synchronize(hoist_device *device);

/* The device's default stream: made on first use and shared by all callers.  Gives a new reference.
 * A child of fork has a default stream of its own.
 * Returns: 0; as hoist_stream_create(). */
HOIST_API int hoist_device_default_stream(hoist_device *device, hoist_stream **ret);

HOIST_END

#endif
