/* SPDX-License-Identifier: MIT */
/* emulator/cuda-thread.h - functions for which the NULL stream is the calling thread's own: the
 * driver exports them with the suffix _ptsz (work on a stream) or _ptds (work that waits). */
#ifndef HOIST_EMULATOR_CUDA_THREAD_H
#define HOIST_EMULATOR_CUDA_THREAD_H

/* Returns the variant of a function of the table; NULL: the function has none. */
void (*hoist__emu_cuda_of_thread(const char *symbol))(void);

#endif
