/* SPDX-License-Identifier: MIT */
/* tools/verify.h - compares every loaded byte with the files, which are read another way. */
#ifndef HOIST_TOOLS_VERIFY_H
#define HOIST_TOOLS_VERIFY_H

#include "tools/operation.h"

/* Reads each loaded tensor back from its device, and its bytes from its file with pread(2), and
 * compares them.
 * Returns: STATUS_OK if all are equal; otherwise STATUS_FAILED, with the first tensor and offset
 *   that differ printed. */
int verify_loaded(struct operation *op);

#endif
