/* SPDX-License-Identifier: MIT */
/* emulator/cuda-face.h - what the files of the stand-in for libcuda.so.1 share.
 *
 * Each function of device/cuda-table.h is defined in one of cuda*.c: it enters, checks
 * what its face knows of, and calls the core. */
#ifndef HOIST_EMULATOR_CUDA_FACE_H
#define HOIST_EMULATOR_CUDA_FACE_H

#include "device/cuda-table.h"
#include "emulator/core.h"

#define X(name, symbol, result, arguments, need, since) HOIST_EMULATOR_API result symbol arguments;
HOIST__CUDA_TABLE(X)
#undef X

enum {
#define X(name, symbol, result, arguments, need, since) FN_##symbol,
	HOIST__CUDA_TABLE(X)
#undef X
		N_FUNCTIONS
};

/* First of all: counts the call.  0, or what to return at once. */
int hoist__emu_cuda_enter(unsigned function);

/* For what needs a current context, whose device it gives. */
int hoist__emu_cuda_enter_context(unsigned function, struct hoist__emu_device **ret);

/* The same for what frees: see hoist__emu_enter_free(). */
int hoist__emu_cuda_enter_free(unsigned function, int *forced);

/* The device of the current context; NULL if there is none. */
struct hoist__emu_device *hoist__emu_cuda_current(void);

static inline hoist__cu_result leave_free(int result, int forced)
{
	return (hoist__cu_result)(forced != EMU_SUCCESS ? forced : result);
}

/* NULL for what is not a retained context. */
struct hoist__emu_device *hoist__emu_cuda_context_device(hoist__cu_context context);

static inline struct hoist__emu_stream *stream_of(hoist__cu_stream stream)
{
	return (struct hoist__emu_stream *)(void *)stream;
}

static inline struct hoist__emu_event *event_of(hoist__cu_event event)
{
	return (struct hoist__emu_event *)(void *)event;
}

#endif
