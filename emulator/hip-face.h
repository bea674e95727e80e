/* SPDX-License-Identifier: MIT */
/* emulator/hip-face.h - what the files of the stand-in for libamdhip64 share.
 *
 * Each function of device/hip-table.h is defined in one of hip*.c: it enters, checks what
 * its face knows of, calls the core, and leaves.  HIP needs no initialisation and no
 * context: each thread has a current device, 0 at first, and a last error. */
#ifndef HOIST_EMULATOR_HIP_FACE_H
#define HOIST_EMULATOR_HIP_FACE_H

#include "device/hip-table.h"
#include "emulator/core.h"

#define X(name, symbol, result, arguments, need, since) HOIST_EMULATOR_API result symbol arguments;
HOIST__HIP_TABLE(X)
#undef X

enum {
#define X(name, symbol, result, arguments, need, since) FN_##symbol,
	HOIST__HIP_TABLE(X)
#undef X
		N_FUNCTIONS
};

/* First of all: counts the call.  0, or what to return at once. */
int hoist__emu_hip_enter(unsigned function);

/* For what works on the thread's current device. */
int hoist__emu_hip_enter_current(unsigned function, struct hoist__emu_device **ret);

/* The thread's current device; NULL before there is any. */
struct hoist__emu_device *hoist__emu_hip_current(void);

/* Every function ends with this; what frees, with the other. */
hoist__hip_error hoist__emu_hip_leave(int result);

static inline hoist__hip_error leave_free(int result, int forced)
{
	return hoist__emu_hip_leave(forced != EMU_SUCCESS ? forced : result);
}

static inline struct hoist__emu_stream *stream_of(hoist__hip_stream stream)
{
	return (struct hoist__emu_stream *)(void *)stream;
}

static inline struct hoist__emu_event *event_of(hoist__hip_event event)
{
	return (struct hoist__emu_event *)(void *)event;
}

#endif
