/* SPDX-License-Identifier: MIT */
/* tools/verify.h - every loaded byte against the files, read another way. */
#ifndef HOIST_TOOLS_VERIFY_H
#define HOIST_TOOLS_VERIFY_H

#include "tools/operation.h"

/* Reads each loaded tensor back from its device and its bytes from its file with
 * pread(2), and compares.  Returns STATUS_OK if all are equal; else STATUS_FAILED,
 * with the first tensor and offset that differ printed. */
int verify_loaded(struct operation *op);

#endif
