/* SPDX-License-Identifier: MIT */
/* lib/memory/objects.h - what the public objects' files share with each other.
 *
 * A hoist_device keeps the memory resources of its Buffers.  They are created on first
 * use and live as long as the device object, which is interned for the life of the
 * process: buffers may therefore outlive every other handle of the user's.
 */
#ifndef HOIST_LIB_OBJECTS_H
#define HOIST_LIB_OBJECTS_H

#include <stdbool.h>

#include "alloc/budget.h"
#include "alloc/pool.h"
#include "device/device.h"
#include "hoist/budget.h"
#include "hoist/device.h"
#include "hoist/memory.h"

struct hoist__lanes;

struct hoist__dev *hoist__device_dev(const hoist_device *device);
bool hoist__device_is_cpu(const hoist_device *device);

/* The CPU; borrowed, as devices live as long as the process.  Returns: as hoist_device_open(). */
int hoist__device_cpu(hoist_device **ret);

/* The NUMA node near it on which memory can be asked for; -1: none, or unknown. */
int hoist__device_node(const hoist_device *device);
/* True if this machine has that node. */
bool hoist__device_has_node(int node);

/* Where Buffers of this device live: DEVICE memory, for the CPU HOST memory; @pinned: PINNED memory
 * on the device's NUMA node.  Borrowed. */
int hoist__device_buffers(hoist_device *device, bool pinned, hoist_memory **ret);

/* PINNED memory (the CPU: HOST) for staging slots: keeps its region between loads (trimmed to the
 * budget by the load).  Borrowed. */
int hoist__device_staging_pool(hoist_device *device, struct hoist__pool **ret);

/* What all resources of the device's memory share; borrowed.  Made when first asked for, with
 * the device's context.  Returns: 0; -ENOMEM; what the driver says. */
int hoist__device_budget(hoist_device *device, struct hoist__budget **ret);

/* A stream of the device's own that nothing but waits is queued on; a new reference. */
int hoist__device_returns(hoist_device *device, hoist_stream **ret);

/* The streams that lib/memory/transfer.c keeps for this device. */
struct hoist__lanes *hoist__device_lanes(hoist_device *device);

/* Gives back what is only kept for reuse: idle lanes, empty regions of the pools. */
void hoist__device_trim(hoist_device *device);

/* True if nobody but the caller has @stream and all its work is done: there will be no more.  Never
 * for one that may capture a graph, which asking would break. */
bool hoist__stream_is_over(const hoist_stream *stream);

struct hoist__dev_stream *hoist__stream_dev_stream(const hoist_stream *stream);

/* What comes before waiting for a stream on the host, which would break a capture.
 * Returns: 0; -ENOTSUP if @stream captures a graph. */
int hoist__stream_check_capture(hoist_stream *stream);

struct hoist__budget *hoist__budget_of(const hoist_budget *budget);

/* Checks and copies an options struct that begins with its size.  Fields beyond
 * the caller's size become 0, which is every option's default; @given NULL gives
 * all defaults.  The size in @known becomes @known_bytes.
 * Returns: 0; -EINVAL for a size that cannot hold itself, or one above @known_bytes
 *   unless all bytes beyond are 0. */
int hoist__options_in(const char *what, const void *given, void *known, size_t known_bytes);

/* The way out, for info structs: copies the first given-size bytes of @known,
 * keeping the caller's size.
 * Returns: 0; -EINVAL for NULL, a size that cannot hold itself, or one above
 *   @known_bytes. */
int hoist__options_out(const char *what, void *given, const void *known, size_t known_bytes);

#endif
