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
 * Two devices are the same if their pointers are.
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
	const char *label;    /* "cpu", or "gpu" for all others */
	int is_compatible;    /* 1: hoist can use it.  What it cannot is refused by
			       * hoist_device_open(), with the reason */
	int is_virtual;       /* 1: made while hoist_virtual_set() was in force; emulated too */
	int driver_version;   /* as the driver encodes it (13000); 0 for the CPU */
	const char *library;  /* the path of the driver's library; "" for the CPU */
	const char *library_reason; /* why that one: "this process had loaded it" */
} hoist_device_info;

/* Fills @info up to the size it says.  Strings live as long as the device.
 * Returns: 0; -EINVAL if info->size is 0 or larger than this library knows. */
HOIST_API int hoist_device_get_info(const hoist_device *device, hoist_device_info *info);

/* Bytes of memory free now and in all.  Makes the device's context.
 * Returns: 0; -ENODEV, -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_device_memory(hoist_device *device, uint64_t *free_bytes, uint64_t *total_bytes);

typedef struct hoist_device_statistics {
	size_t size;           /* in: sizeof(hoist_device_statistics) */
	uint64_t free_memory;  /* as hoist_device_memory() says */
	uint64_t total_memory;
	uint64_t memory_limit; /* of what hoist takes; UINT64_MAX on the CPU: none */
	uint64_t limited;      /* what counts towards it now: all resources of device memory */
	uint64_t limited_peak;
	uint64_t used;         /* of that, or on the CPU of host memory: by live buffers */
	uint64_t cached;       /* kept for the next buffers, by the device's own resource */
	uint64_t pinned;       /* host memory that the device's own resources have pinned */
} hoist_device_statistics;

/* What is taken of the device's memory.  Makes the device's context.
 * Returns: 0; -EINVAL as hoist_device_get_info(); as hoist_device_memory(). */
HOIST_API int hoist_device_get_statistics(hoist_device *device,
					  hoist_device_statistics *statistics);

/* Whether copies and kernels of @device reach memory of @peer directly: 1 or 0.  A device
 * always reaches its own; no device reaches those of another API, nor the CPU's memory
 * unless that is pinned.  The first 1 of a pair enables the access in this direction, and makes
 * the contexts of both; copies of hoist's between two devices do the same.  A driver that refuses
 * to enable it (it has a largest number of peers) makes the answer 0.
 * Returns: 0; -EINVAL for NULL; -ENOSPC (no memory for a context); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_device_can_access(hoist_device *device, hoist_device *peer, int *ret);

/* Blocks until all work queued on the device so far is done, whosever it is; on the CPU:
 * that of the streams made by hoist_stream_create().  Not from a function that a stream calls.
 * While a hoist_stream captures a graph, which such waiting would break: all other hoist_streams
 * alone are waited for.
 * Gives back what consumers of exported buffers have let go (hoist/memory.h).
 * Returns: 0; the first failure of that work, as hoist_stream_synchronize() of each stream
 *   would: they do not report it again; -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_device_synchronize(hoist_device *device);

/* The device's own default stream, made on first use and shared by all callers;
 * a new reference.  A child of fork has its own.  Returns: 0; as hoist_stream_create(). */
HOIST_API int hoist_device_default_stream(hoist_device *device, hoist_stream **ret);

/* --- accelerators: the devices of the first API that has one, CUDA before HIP --- */

/* How many there are: "gpu:0" to "gpu:N-1".  Without a driver or a device: 0; why, says
 * hoist_device_count().
 * Returns: 0; -EINVAL (HOIST_EMULATE is malformed); -ESTALE. */
HOIST_API int hoist_accelerator_count(int *ret);

/* The API of the first one: "cuda", "hip"; "cpu" if there is none.  As above. */
HOIST_API int hoist_accelerator_api(const char **ret);

/* The architecture of the first one: "sm_90", "gfx942".  Lives as long as the process.
 * Returns: 0; -ENODEV if there is none, with the reasons (the CPU's is in hoist_device_info);
 *   -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_accelerator_architecture(const char **ret);

/* --- specs: names of devices as values, whether the devices exist or not --- */

enum { HOIST_SPEC_CPU, HOIST_SPEC_GPU, HOIST_SPEC_CUDA, HOIST_SPEC_HIP };

/* Two specs are equal if both fields are. */
typedef struct hoist_spec {
	int type; /* HOIST_SPEC_* */
	int id;   /* counted from 0; of the CPU any: -1 where none was said */
} hoist_spec;

/* Returns: 0; -EINVAL (an unknown type; an id below 0, unless of the CPU). */
HOIST_API int hoist_spec_make(int type, int id, hoist_spec *ret);

/* "CPU", "CUDA:0", "Gpu" are understood too.  Without it names are lower case, as everywhere in
 * hoist: what is a typing error in one place should not work in another. */
#define HOIST_SPEC_ANY_CASE 1u

/* Reads "cpu", "cuda:N", "hip:N", "gpu:N", or one of these without ":N", which is 0, for the
 * CPU -1.  Returns: 0; -EINVAL (also: unknown flags). */
HOIST_API int hoist_spec_parse(const char *text, unsigned flags, hoist_spec *ret);

#define HOIST_SPEC_BYTES 24 /* the longest text, with its end */

/* The text that gives this spec again: "cpu" (-1), "cpu:0", "gpu:3".
 * Returns: 0; -EINVAL (as hoist_spec_make(); @bytes are too few). */
HOIST_API int hoist_spec_format(hoist_spec spec, char *text, size_t bytes);

/* The CPU comes first in a scan, whether or not there are accelerators.  Without it a scan is
 * what MAX's scan_available_devices() gives, as programs take its first entry to run on. */
#define HOIST_SCAN_CPU 1u

/* What there is: gpu:0 to gpu:N-1, or the CPU (id -1) if there is no accelerator.  Writes the
 * first @n of them to @specs (NULL for 0) and gives how many there are.
 * Returns: 0; -EINVAL (unknown flags; HOIST_EMULATE); -ESTALE. */
HOIST_API int hoist_spec_scan(unsigned flags, hoist_spec *specs, size_t n, size_t *ret);

/* 1 if all @n are there, else 0: the CPU is, whatever its id; none at all are.
 * Returns: 0; -EINVAL as hoist_spec_make(); -ESTALE. */
HOIST_API int hoist_spec_exist(const hoist_spec *specs, size_t n, int *ret);

/* Opens all @n, in their order, into @ret[0] to @ret[n-1]; the CPU whatever its id.  At the first
 * that fails those before it are given back.
 * Returns: 0; as hoist_device_open(): the text names the spec and says how many devices there
 *   are. */
HOIST_API int hoist_spec_open(const hoist_spec *specs, size_t n, hoist_device **ret);

/* --- virtual devices: accelerators that are not there --- */

/* How many devices @specs need: the highest id of all but the CPU's, plus 1; at least 1.
 * Returns: 0; -EINVAL as hoist_spec_make(); -EOVERFLOW. */
HOIST_API int hoist_virtual_count(const hoist_spec *specs, size_t n, int *ret);

/* The same of words from a command line, each of which is
 *
 *   gpu               id 0; in lower case only
 *   gpu:all           the last accelerator of this machine; in any case
 *   gpu:0,3           these ids: integers with blanks around them, a sign and single
 *                     underscores between digits; empty parts and "all" among them are skipped
 *   anything else     nothing: "cpu", "default", "GPU"
 *
 * (the rules of MAX's calculate_virtual_device_count_from_cli(), whose lists of numbers go to
 * hoist_virtual_count()).
 * Returns: 0; -EINVAL (a part is no integer, with the word; a word is NULL); -EOVERFLOW; as
 *   hoist_accelerator_count(). */
HOIST_API int hoist_virtual_count_of(const char *const *words, size_t n, int *ret);

#define HOIST_VIRTUAL_MAX 64 /* devices of one API */

/* Makes @count devices of @api ("cuda", "hip") appear in this process, served by hoist's stand-in
 * driver whatever the machine has, as with HOIST_EMULATE: their memory is the host's, copies
 * are real, kernels are not run.  They say emulated, virtual and @architecture ("sm_90"; NULL: the
 * stand-in's).  Devices that were opened before stay as they are.
 * @count 0 ends it: virtual devices that are open go on working, and new ones are not opened.
 * From the first open of a virtual device on, the API's real driver is out of this process's
 * reach: afterwards it has no devices, unless HOIST_EMULATE gives it some.
 * Returns: 0; -EINVAL (api, architecture, a count outside 0..HOIST_VIRTUAL_MAX); -EBUSY if the real
 *   driver is open already, as soon as anything was asked of it; -ENOENT if the stand-in is not
 *   installed (the text says where it was looked for); -ESTALE. */
HOIST_API int hoist_virtual_set(const char *api, const char *architecture, int count);

typedef struct hoist_virtual_info {
	size_t size;           /* in: sizeof(hoist_virtual_info) */
	int count;             /* 0: off */
	char architecture[32]; /* as it was set; "" if none was, or after the end */
} hoist_virtual_info;

/* Returns: 0; -EINVAL (api; as hoist_device_get_info()). */
HOIST_API int hoist_virtual_get(const char *api, hoist_virtual_info *info);

HOIST_END

#endif
