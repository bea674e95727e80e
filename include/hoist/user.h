/* SPDX-License-Identifier: MIT */
/* hoist/user.h - one pointer of the caller's on each hoist object, for bindings.
 *
 *     struct wrapper *wrapper = hoist_buffer_get_user(buffer);
 *     if (wrapper == NULL) {
 *             wrapper = make_wrapper(buffer);
 *             if (hoist_buffer_set_user(buffer, NULL, wrapper, NULL) == -EBUSY) {
 *                     drop_wrapper(wrapper);   // another thread was first: take its wrapper
 *                     wrapper = hoist_buffer_get_user(buffer);
 *             }
 *     }
 *
 * Buffers, devices, streams and memory resources have one slot each for a pointer.  The slot of a
 * new object holds NULL.  A binding that keeps its wrapper in the slot hands out one wrapper for
 * one object, whichever function returned the object.
 *
 * A slot belongs to the object, not to the memory.  Views of one storage are objects of their own
 * and have slots of their own.  A function that returns the same buffer with one more reference
 * (hoist_buffer_to() on the same device) returns the same slot.  Closing a buffer leaves its slot.
 * A device is the same object as long as the process lives.
 *
 * Setting is compare-and-set: the caller names the pointer that the new one replaces.  If two
 * threads wrap an object at once, one finds NULL in the slot and sets its wrapper; the other gets
 * -EBUSY, drops its own wrapper and takes the wrapper in the slot.
 *
 * release(data) is called once for each pointer that was set with a release function:
 *
 *   replaced         in the thread that set another pointer, when the new pointer is in the slot
 *   the object ends  in the thread that dropped the last reference, when the object is gone: the
 *                    function must not use the object.  hoist holds references of its own while it
 *                    works (a load, a walk over all resources), so the thread may be one of hoist's
 *   never            for devices; for a resource that is kept because its blocks are in use when
 *                    its last reference goes; and when the process exits
 *
 * hoist holds no lock during the call.  The function may call hoist.  It must not wait for a stream
 * of the CPU: a function that this stream runs may have dropped the reference.
 *
 * A slot keeps neither the object nor the wrapper alive.  There are two ways to use it:
 *
 *   A wrapper that holds a reference to its object is set without a release function.  The
 *   wrapper's destructor sets NULL in its place before it drops that reference.  Getting the
 *   pointer and then using the wrapper needs the binding's own lock against that destructor.
 *   A pointer that should live exactly as long as the object is set with a release function, and
 *   holds no reference to the object.
 *
 * Threads: any.  fork: a child has the pointers of its parent.
 */
#ifndef HOIST_USER_H
#define HOIST_USER_H

#include <hoist/buffer.h>
#include <hoist/device.h>
#include <hoist/error.h>
#include <hoist/memory.h>
#include <hoist/stream.h>

HOIST_BEGIN

/* Puts @data into the object's slot if the slot holds @expected.  @release NULL: nothing is called
 * for @data.  @release must be NULL if @data is NULL.
 * Returns: 0; -EBUSY (the slot holds another pointer than @expected: nothing changed, and @data
 *   stays the caller's); -EINVAL (the object is NULL; @release without @data). */
HOIST_API int hoist_buffer_set_user(hoist_buffer *buffer, void *expected, void *data,
				    void (*release)(void *data));
/* As hoist_buffer_set_user(). */
HOIST_API int hoist_device_set_user(hoist_device *device, void *expected, void *data,
				    void (*release)(void *data));
/* As hoist_buffer_set_user(). */
HOIST_API int hoist_stream_set_user(hoist_stream *stream, void *expected, void *data,
				    void (*release)(void *data));
/* As hoist_buffer_set_user(). */
HOIST_API int hoist_memory_set_user(hoist_memory *memory, void *expected, void *data,
				    void (*release)(void *data));

/* The pointer in the slot; NULL if there is none.  The object must not be NULL; a buffer may be
 * closed. */
HOIST_API void *hoist_buffer_get_user(const hoist_buffer *buffer);
/* As hoist_buffer_get_user(). */
HOIST_API void *hoist_device_get_user(const hoist_device *device);
/* As hoist_buffer_get_user(). */
HOIST_API void *hoist_stream_get_user(const hoist_stream *stream);
/* As hoist_buffer_get_user(). */
HOIST_API void *hoist_memory_get_user(const hoist_memory *memory);

HOIST_END

#endif
