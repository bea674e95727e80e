/* SPDX-License-Identifier: MIT */
/* lib/core/ipc-name.h - names that processes know memory and each other by: 16 random bytes. */
#ifndef HOIST_LIB_CORE_IPC_NAME_H
#define HOIST_LIB_CORE_IPC_NAME_H

struct hoist__ipc_name {
	unsigned char bytes[16];
};

/* A new one.  Returns: 0; what getrandom(2) says. */
int hoist__ipc_name_make(struct hoist__ipc_name *ret);

#endif
