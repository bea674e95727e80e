/* SPDX-License-Identifier: MIT */
/* hoist/device.h - the CPU and accelerators.
 *
 * A Device is the CPU or an accelerator reached through its vendor's driver.
 * Drivers are opened when a device of theirs is first asked for and never
 * earlier; no driver context exists before memory or a stream of the device is
 * used.  Devices are interned: opening the same one twice gives the same object.
 *
 * hoist/stream.h has the queues of work on them.
 *
 * With HOIST_EMULATE=cuda:2 (or hip:1, or both, comma-separated) in the
 * environment, stand-in drivers that come with hoist serve these APIs: real code
 * paths, no hardware.  hoist_device_get_info() then says emulated.
 *
 * Threads: every function may be called from any thread.  Objects are reference
 * counted; a function that returns one through `ret` gives the caller a reference.
 * fork: a child gets -ESTALE from whatever needs a driver.
 */
#ifndef HOIST_DEVICE_H
#define HOIST_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/error.h>

HOIST_BEGIN

typedef struct hoist_device hoist_device;
typedef struct hoist_stream hoist_stream;

/* Opens the device that @spec names: "cpu", "cuda:N", "hip:N", "gpu:N" (the
 * first accelerator API that has a device, CUDA before HIP), or one of these
 * without ":N", which means 0.
 * Returns: 0; -EINVAL if @spec is none of these or N is not below the number of
 *   devices (the text says how many there are); -ENODEV if there is no driver,
 *   it is too old or finds no device (the text says which, and the remedy);
 *   -ENOMEM. */
HOIST_API int hoist_device_open(const char *spec, hoist_device **ret);

typedef struct hoist_device_options {
	size_t size;           /* sizeof(hoist_device_options) */
	uint64_t memory_limit; /* bytes of the device's memory that hoist takes at most, all its
	                        * resources together, the driver's pools and managed memory
	                        * apart; 0: 99 % of what is free when the first of it is taken.
	                        * The first opening's holds: later ones are ignored */
} hoist_device_options;

/* The same with options; NULL is all defaults.  The CPU has no limit: -EINVAL.
 * Memory beyond the limit is -ENOSPC, with the figures. */
HOIST_API int hoist_device_open_with(const char *spec, const hoist_device_options *options,
				     hoist_device **ret);

HOIST_API hoist_device *hoist_device_ref(hoist_device *device);
HOIST_API void hoist_device_unref(hoist_device *device); /* takes NULL */

/* How many devices @api ("cpu", "cuda", "hip") offers.
 * Returns: 0; -EINVAL unknown api; -ENODEV with the reason. */
HOIST_API int hoist_device_count(const char *api, int *ret);

/* "cuda:0": what opens this device again.  Valid as long as the device. */
HOIST_API const char *hoist_device_spec(const hoist_device *device);

typedef struct hoist_device_info {
	size_t size;          /* in: sizeof(hoist_device_info) */
	const char *api;      /* "cpu", "cuda", "hip" */
	int id;               /* the driver's number; 0 for the CPU */
	int is_host;          /* 1 for the CPU */
	int emulated;         /* 1 behind hoist's stand-in driver */
	const char *name;     /* "NVIDIA H200" */
	const char *architecture; /* "sm_90", "gfx942", "x86_64" */
	const char *pci;      /* "0000:65:00.0"; "" for the CPU */
	int numa_node;        /* nearest node; -1 unknown */
	uint64_t total_memory;
} hoist_device_info;

/* Fills @info up to the size it says.  Strings live as long as the device.
 * Returns: 0; -EINVAL if info->size is 0 or larger than this library knows. */
HOIST_API int hoist_device_get_info(const hoist_device *device, hoist_device_info *info);

/* Bytes of memory free now and in all.  Makes the device's context.
 * Returns: 0; -ENODEV, -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_device_memory(hoist_device *device, uint64_t *free_bytes, uint64_t *total_bytes);

/* The device's own default stream, made on first use and shared by all callers;
 * a new reference.  Returns: 0; as hoist_stream_create(). */
HOIST_API int hoist_device_default_stream(hoist_device *device, hoist_stream **ret);

HOIST_END

#endif
