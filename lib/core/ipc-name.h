/* SPDX-License-Identifier: MIT */
/* lib/core/ipc-name.h - random names of 16 bytes, by which processes know memory and each other. */
#ifndef HOIST_LIB_CORE_IPC_NAME_H
#define HOIST_LIB_CORE_IPC_NAME_H

struct hoist__ipc_name {
	unsigned char bytes[16];
};

/* Makes a new name.
 * Returns: 0; the error of getrandom(2). */
int hoist__ipc_name_make(struct hoist__ipc_name *ret);

#endif
