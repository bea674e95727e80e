/* SPDX-License-Identifier: MIT */
/* emulator/hip-face.h - the face of the stand-in for libamdhip64; see face.h.
 *
 * HIP needs no initialisation and no context.  Each thread has a current device, 0 at first, and a
 * last error, which hoist__emu_face_leave() sets. */
#ifndef HOIST_EMULATOR_HIP_FACE_H
#define HOIST_EMULATOR_HIP_FACE_H

#include "device/hip-names.h"
#include "device/hip-table.h"

#define TABLE HOIST__HIP_TABLE
#define CONSTANTS HOIST__HIP_CONSTANTS

#define SYMBOL(function) hip##function

#include "emulator/face.h"

#endif
