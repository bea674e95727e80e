/* SPDX-License-Identifier: MIT */
/* emulator/face.h - what a face is made of; cuda-face.h and hip-face.h include it last.
 *
 * A face defines every function of its driver's table: it enters, checks what the face knows of,
 * calls the core, and leaves.  Functions that both drivers have stand once, in face-*.inc.h, which
 * cuda.c and hip.c each include; the others are in cuda*.c and hip*.c.
 *
 * cuda-face.h and hip-face.h define:
 *   TABLE(X), CONSTANTS(X)                  the rows of device/, and the constants
 *   RESULT, NATIVE(type), VALUE(constant)   see device/cuda-names.h
 *   SYMBOL(function)                        what the driver exports, by HIP's name without prefix
 *
 * cuda.c and hip.c define, where the drivers differ:
 *   LAST_ERROR             the last of the constants that is an error
 *   DEVICE_NAME, BUS_ID    what a device is called; its PCI address, a format of its ordinal
 *   ALLOCATES_NOTHING      allocating 0 bytes gives NULL, and is no failure
 *   EVENT_FLAGS            the flags that an event may have
 *   face_import_device()   the device of an imported pool
 *   face_has_rdma()        true if virtual memory of a device can be for RDMA
 */
#ifndef HOIST_EMULATOR_FACE_H
#define HOIST_EMULATOR_FACE_H

#include "emulator/core.h"

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

/* The core speaks the driver's numbers. */
#define SAME(ours, constant) _Static_assert((int)(ours) == (int)VALUE(constant), #constant)

/* First of all: counts the call.  0, or what to return at once. */
int hoist__emu_face_enter(unsigned function);

/* For what works on the thread's current device (CUDA: needs a current context). */
int hoist__emu_face_enter_current(unsigned function, struct hoist__emu_device **ret);

/* The same for what frees: see hoist__emu_enter_free(). */
int hoist__emu_face_enter_free(unsigned function, int *forced);

/* The thread's current device; NULL if there is none. */
struct hoist__emu_device *hoist__emu_face_current(void);

/* Every function ends with this; what frees, with the other. */
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
