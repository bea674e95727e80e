/* SPDX-License-Identifier: MIT */
/* hoist/user.h - a pointer of the caller's on a hoist object, for bindings.
 *
 * Buffers, devices, streams and memory resources have one slot each for a pointer, which is NULL
 * when the object is made.  A binding that keeps its wrapper there hands out one wrapper for one
 * object, whichever function the object came from.
 *
 * Which objects: the slot is the object's, not the memory's.  Views of one storage are objects of
 * their own, with slots of their own.  A function that returns the buffer itself with one more
 * reference (hoist_buffer_to() on the same device) returns its slot with it.  Closing a buffer
 * leaves its slot.  A device is the same object as long as the process lives.
 *
 * Setting is compare-and-set: it names the pointer that it replaces.  Of two threads that wrap an
 * object at once, one sets its wrapper where NULL was; the other gets -EBUSY, drops its wrapper
 * and takes the one that is there.
 *
 * release(data) is called once for each pointer that was set with a release function:
 *
 *   replaced         in the thread that set another, when that is in the slot
 *   the object ends  in the thread that dropped the last reference, when the object is gone: it
 *                    must not be used.  hoist has references of its own while it works (a load, a
 *                    walk over all resources), so that this may be a thread of hoist's
 *   never            for devices, and for a resource whose blocks are in use when its last
 *                    reference goes: it is kept.  Nothing is released when the process exits
 *
 * It is called without any lock of hoist's, may call hoist, and must not wait for a stream of the
 * CPU, whose function may have dropped the reference.
 *
 * Who keeps whom: a slot keeps neither the object nor the wrapper.  A wrapper that has a reference
 * to its object is set without a release function, and its destructor sets NULL in its place before
 * it drops that reference.  To get a pointer and then use what it points to needs the binding's own
 * lock against that destructor (Python: the GIL).  What should live exactly as long as the object
 * is set with a release function, and has no reference to it.
 *
 * A child of fork has the pointers of its parent.
 * Threads: any.
 */
#ifndef HOIST_USER_H
#define HOIST_USER_H

#include <hoist/buffer.h>
#include <hoist/device.h>
#include <hoist/error.h>
#include <hoist/memory.h>
#include <hoist/stream.h>

HOIST_BEGIN

/* Puts @data into the object's slot if @expected is there.  @release NULL: nothing is called for
 * @data, and it must be NULL where @data is.
 * Returns: 0; -EBUSY if the slot holds another pointer than @expected: nothing was taken over;
 *   -EINVAL (the object is NULL; @release without @data). */
HOIST_API int hoist_buffer_set_user(hoist_buffer *buffer, void *expected, void *data,
				    void (*release)(void *data));
HOIST_API int hoist_device_set_user(hoist_device *device, void *expected, void *data,
				    void (*release)(void *data));
HOIST_API int hoist_stream_set_user(hoist_stream *stream, void *expected, void *data,
				    void (*release)(void *data));
HOIST_API int hoist_memory_set_user(hoist_memory *memory, void *expected, void *data,
				    void (*release)(void *data));

/* What is in the slot; NULL: nothing.  The object is not NULL; a buffer may be closed. */
HOIST_API void *hoist_buffer_get_user(const hoist_buffer *buffer);
HOIST_API void *hoist_device_get_user(const hoist_device *device);
HOIST_API void *hoist_stream_get_user(const hoist_stream *stream);
HOIST_API void *hoist_memory_get_user(const hoist_memory *memory);

HOIST_END

#endif
