/* SPDX-License-Identifier: MIT */
/* hoist/compat.h - calls that hoist needs only to stand in for other interfaces.
 *
 * A binding that offers MAX's driver API or cuda.core's under their own names needs these: names of
 * devices as values, virtual devices, second names and loops.  hoist/hoist.h does not include this
 * header.
 *
 *     hoist_spec specs[8];
 *     size_t n;
 *     hoist_spec_scan(0, specs, 8, &n);      // MAX's scan_available_devices()
 *
 * Threads: every function may be called from any thread.
 */
#ifndef HOIST_COMPAT_H
#define HOIST_COMPAT_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>
#include <hoist/copy.h>
#include <hoist/device.h>
#include <hoist/error.h>
#include <hoist/stream.h>

HOIST_BEGIN

/* --- buffers: a second name, and loops --- */

/* hoist_buffer_copy(), by the name that other interfaces have for it: always a copy, even of a
 * buffer that is contiguous.  @device NULL is @src's own device.  MAX's Buffer.contiguous() always
 * gives a buffer on the CPU: pass the CPU for that. */
HOIST_API int hoist_buffer_contiguous(hoist_buffer *src, hoist_device *device, hoist_buffer **ret);

/* As hoist_buffer_to(), for each of @n devices in their order; @n may be 0.  All or nothing: after
 * a failure there are no new references, and @rets is as it was. */
HOIST_API int hoist_buffer_to_all(hoist_buffer *buffer, size_t n, hoist_device *const *devices,
				  hoist_buffer **rets);

/* As hoist_buffer_to_all(), for hoist_buffer_to_stream() and @n streams. */
HOIST_API int hoist_buffer_to_streams(hoist_buffer *buffer, size_t n, hoist_stream *const *streams,
				      hoist_buffer **rets);

/* --- accelerators: the devices of the first API that has one, CUDA before HIP --- */

/* The number N of accelerators, "gpu:0" to "gpu:N-1".  Without a driver or a device the number is
 * 0; hoist_device_count() then gives the reason.
 * Returns: 0; -EINVAL (HOIST_EMULATE is malformed); -ESTALE. */
HOIST_API int hoist_accelerator_count(int *ret);

/* The API of the first accelerator: "cuda" or "hip"; "cpu" if there is no accelerator.  A constant.
 * Returns: as hoist_accelerator_count(). */
HOIST_API int hoist_accelerator_api(const char **ret);

/* The architecture of the first accelerator: "sm_90", "gfx942".  The string lives as long as the
 * process.  hoist_device_info has the CPU's architecture.
 * Returns: 0; -ENODEV (there is no accelerator; the text has the reasons); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_accelerator_architecture(const char **ret);

/* --- specs: names of devices as values, whether the devices exist or not --- */

enum { HOIST_SPEC_CPU, HOIST_SPEC_GPU, HOIST_SPEC_CUDA, HOIST_SPEC_HIP };

/* Two specs are equal if both fields are. */
typedef struct hoist_spec {
	int type; /* HOIST_SPEC_* */
	int id;   /* counted from 0; for the CPU any number, -1 if the text had none */
} hoist_spec;

/* A spec of these two values.
 * Returns: 0; -EINVAL (an unknown type; an id below 0, unless for the CPU). */
HOIST_API int hoist_spec_make(int type, int id, hoist_spec *ret);

/* hoist_spec_parse() accepts "CPU", "CUDA:0", "Gpu", too.  Without the flag names must be lower
 * case, as everywhere in hoist: a typing error in one place should not work in another. */
#define HOIST_SPEC_ANY_CASE 1u

/* Reads "cpu", "cuda:N", "hip:N", "gpu:N", or one of these without ":N", which means the id 0, or
 * -1 for the CPU.
 * Returns: 0; -EINVAL (the text is none of these; unknown flags). */
HOIST_API int hoist_spec_parse(const char *text, unsigned flags, hoist_spec *ret);

#define HOIST_SPEC_BYTES 24 /* the longest text, with its terminator */

/* The text that hoist_spec_parse() reads as this spec: "cpu" (id -1), "cpu:0", "gpu:3".
 * Returns: 0; -EINVAL (as hoist_spec_make(); @bytes are too few). */
HOIST_API int hoist_spec_format(hoist_spec spec, char *text, size_t bytes);

/* The CPU comes first in a scan, whether or not there are accelerators.  Without the flag a scan
 * gives the list of MAX's scan_available_devices(), because programs run on the first entry. */
#define HOIST_SCAN_CPU 1u

/* Lists the devices of this machine: gpu:0 to gpu:N-1, or the CPU (id -1) if there is no
 * accelerator.  Writes the first @n specs to @specs (NULL for @n 0); *@ret is the length of the
 * whole list.
 * Returns: 0; -EINVAL (unknown flags; HOIST_EMULATE is malformed); -ESTALE. */
HOIST_API int hoist_spec_scan(unsigned flags, hoist_spec *specs, size_t n, size_t *ret);

/* Whether all @n devices exist: *@ret is 1 or 0.  The CPU exists, whatever its id.  The answer for
 * an empty list is 1.
 * Returns: 0; -EINVAL (as hoist_spec_make()); -ESTALE. */
HOIST_API int hoist_spec_exist(const hoist_spec *specs, size_t n, int *ret);

/* Opens the @n devices in their order into @ret[0] to @ret[n-1]; the CPU whatever its id.  If one
 * fails, the devices opened before it are given back.
 * Returns: 0; as hoist_device_open(): the text names the spec and gives the number of devices. */
HOIST_API int hoist_spec_open(const hoist_spec *specs, size_t n, hoist_device **ret);

/* --- virtual devices: accelerators that the machine does not have --- */

/* The number of devices that @specs need: the highest id of all but the CPU's, plus 1; at least 1.
 * Returns: 0; -EINVAL (as hoist_spec_make()); -EOVERFLOW. */
HOIST_API int hoist_virtual_count(const hoist_spec *specs, size_t n, int *ret);

/* The number of devices that the @n words of a command line need.  A word is
 *
 *   gpu               id 0; in lower case only
 *   gpu:all           the last accelerator of this machine; in any case
 *   gpu:0,3           these ids: integers with blanks around them, a sign and single
 *                     underscores between digits; empty parts and "all" among them are skipped
 *   anything else     no device: "cpu", "default", "GPU"
 *
 * These are the rules of MAX's calculate_virtual_device_count_from_cli().  Lists of numbers, which
 * that function takes as well, go to hoist_virtual_count().
 * Returns: 0; -EINVAL (a part is no integer: the text has the word; a word is NULL); -EOVERFLOW; as
 *   hoist_accelerator_count(). */
HOIST_API int hoist_virtual_count_of(const char *const *words, size_t n, int *ret);

#define HOIST_VIRTUAL_MAX 64 /* devices of one API */

/* Makes @count devices of @api ("cuda", "hip") appear in this process.  hoist's stand-in driver
 * serves them, as with HOIST_EMULATE, whatever hardware the machine has: their memory is host
 * memory, copies are real, kernels do not run.  The devices are described as emulated, virtual and
 * of @architecture ("sm_90"; NULL: the stand-in's own).  Devices that were opened before stay as
 * they are.
 *
 * @count 0 ends this state: virtual devices that are open go on working, and no new ones open.
 * Once a virtual device was opened, this process cannot reach the API's real driver any more: after
 * the end the API has no devices, unless HOIST_EMULATE gives it some.
 * Returns: 0; -EINVAL (an unknown @api or @architecture; @count outside 0..HOIST_VIRTUAL_MAX);
 *   -EBUSY (the real driver is open already: any question to it opens it); -ENOENT (the stand-in is
 *   not installed; the text says where hoist looked for it); -ESTALE. */
HOIST_API int hoist_virtual_set(const char *api, const char *architecture, int count);

typedef struct hoist_virtual_info {
	size_t size;           /* in: sizeof(hoist_virtual_info) */
	int count;             /* 0: off */
	char architecture[32]; /* as it was set; "" if none was, or after the end */
} hoist_virtual_info;

/* Fills @info up to info->size with the present state of @api's virtual devices.
 * Returns: 0; -EINVAL (an unknown @api; as hoist_device_get_info()). */
HOIST_API int hoist_virtual_get(const char *api, hoist_virtual_info *info);

HOIST_END

#endif
