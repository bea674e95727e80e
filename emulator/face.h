/* SPDX-License-Identifier: MIT */
/* emulator/face.h - the common parts of both faces; cuda-face.h and hip-face.h include it last.
 *
 * A face defines every function of its driver's table.  Each function enters, checks the arguments
 * that the face knows, calls the core, and leaves.  Functions that both drivers have are written
 * once, in face-*.inc.h, which cuda.c and hip.c each include.  All others are in cuda*.c, hip*.c.
 *
 * cuda-face.h and hip-face.h define:
 *   TABLE(X), CONSTANTS(X)                  the rows of device/, and the constants
 *   RESULT, NATIVE(type), VALUE(constant)   see device/cuda-names.h
 *   SYMBOL(function)                        the exported symbol, by HIP's name without prefix
 *
 * cuda.c and hip.c define, where the drivers differ:
 *   LAST_ERROR             the last constant that is an error
 *   DEVICE_NAME, BUS_ID    a device's name; its PCI address, a format and the ordinal for it
 *   ALLOCATES_NOTHING      allocating 0 bytes gives NULL, and is no failure
 *   EVENT_FLAGS            the flags that an event may have
 *   face_import_device()   the device of an imported pool
 *   face_pool_place()      the kind and the device of a pool
 *   face_has_rdma()        true if virtual memory of a device can be for RDMA
 */
#ifndef HOIST_EMULATOR_FACE_H
#define HOIST_EMULATOR_FACE_H

#include "emulator/core.h"
#include "emulator/stream.h"

#define X(name, symbol, result, arguments, need, since) HOIST_EMULATOR_API result symbol arguments;
TABLE(X)
#undef X

enum {
#define X(name, symbol, result, arguments, need, since) FN_##symbol,
	TABLE(X)
#undef X
		N_FUNCTIONS
};

/* The index of a function, by the name that SYMBOL() takes. */
#define FN(function) FN_OF(SYMBOL(function))
#define FN_OF(symbol) FN_PASTED(symbol)
#define FN_PASTED(symbol) FN_##symbol

/* The core uses the driver's numbers. */
#define SAME(ours, constant) _Static_assert((int)(ours) == (int)VALUE(constant), #constant)

/* Every function begins with this, which counts the call.  Returns 0, or the result to return at
 * once. */
int hoist__emu_face_enter(unsigned function);

/* For functions on the thread's current device, *ret (CUDA: needs a current context). */
int hoist__emu_face_enter_current(unsigned function, struct hoist__emu_device **ret);

/* The same for functions that free: see hoist__emu_enter_free(). */
int hoist__emu_face_enter_free(unsigned function, int *forced);

/* The thread's current device; NULL if there is none. */
struct hoist__emu_device *hoist__emu_face_current(void);

/* Every function ends with this, or with leave_free() if it frees. */
RESULT hoist__emu_face_leave(int result);

static inline RESULT leave_free(int result, int forced)
{
	return hoist__emu_face_leave(forced != EMU_SUCCESS ? forced : result);
}

/* For questions about a device: there must be one, and a place for the answer. */
static inline int enter_device(unsigned function, int ordinal, const void *ret)
{
	int result = hoist__emu_face_enter(function);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && hoist__emu_device(ordinal) == NULL)
		result = EMU_INVALID_DEVICE;
	return result;
}

static inline struct hoist__emu_stream *stream_of(NATIVE(stream) stream)
{
	return (struct hoist__emu_stream *)(void *)stream;
}

static inline struct hoist__emu_event *event_of(NATIVE(event) event)
{
	return (struct hoist__emu_event *)(void *)event;
}

static inline struct hoist__emu_pool *pool_of(NATIVE(pool) pool)
{
	return (struct hoist__emu_pool *)(void *)pool;
}

#endif
