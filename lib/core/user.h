/* SPDX-License-Identifier: MIT */
/* lib/core/user.h - the slot of hoist/user.h: part of each object that has one.
 *
 * The pointer is read without a lock.  Both fields are written under one lock of the process:
 * setting is rare.  All zero is an empty slot.
 */
#ifndef HOIST_LIB_USER_H
#define HOIST_LIB_USER_H

#include <stdatomic.h>

struct hoist__user {
	void *_Atomic xdata;
	void (*release)(void *data); /* user.c's lock; NULL: nothing to call */
};

/* For an object that has gone: @user is a copy of its slot. */
void hoist__user_end(struct hoist__user *user);

#endif
