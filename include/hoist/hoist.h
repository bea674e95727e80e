/* SPDX-License-Identifier: MIT */
/* hoist/hoist.h - the core of hoist's public interface.
 *
 *     hoist_device_open("gpu:0", &device);
 *     hoist_checkpoint_open("model/", 0, &checkpoint);
 *     hoist_load_options options = {.size = sizeof options, .device = device};
 *     hoist_load_start(checkpoint, &options, &load);
 *     hoist_load_wait(load);
 *     hoist_load_buffer(load, "lm_head.weight", &weight);  // on the GPU
 *
 * Read first:
 *
 *   error.h         return codes, and the conventions that all headers share
 *   device.h        the CPU and accelerators
 *   buffer.h        typed, shaped memory on a device
 *   checkpoint.h    files that name tensors
 *   load.h          from files to buffers
 *   save.h          from buffers to files
 *   forecast.h      what a load would read from where
 *
 * Then, as needed:
 *
 *   stream.h        queues of work on a device, and events
 *   copy.h          copying, moving and filling buffers
 *   memory.h        where buffers' bytes come from
 *   budget.h        a limit in bytes that loads and memory resources share
 *   cache.h         checkpoints in memory that processes share
 *   dtype.h slice.h    element types, parts of axes
 *
 * These headers are included by their own names:
 *
 *   dlpack.h cai.h ipc.h    buffers to other libraries and processes
 *   memory-driver.h  drivers' pools, and memory that grows in place
 *   mmap.h          buffers over files
 *   element.h number.h      elements as values, printing
 *   layout.h        shapes and strides as values, and their algebra
 *   user.h          one pointer of the caller's on each object, for bindings
 *   group.h         one load by several processes
 *   timeline.h      when each chunk of a load was where, and what the load waited for
 *   doctor.h        findings about this machine
 *   compat.h        calls that only other interfaces have
 */
#ifndef HOIST_H
#define HOIST_H

#include <hoist/budget.h>
#include <hoist/buffer.h>
#include <hoist/cache.h>
#include <hoist/checkpoint.h>
#include <hoist/copy.h>
#include <hoist/device.h>
#include <hoist/dtype.h>
#include <hoist/error.h>
#include <hoist/forecast.h>
#include <hoist/load.h>
#include <hoist/memory.h>
#include <hoist/save.h>
#include <hoist/stream.h>

#endif
