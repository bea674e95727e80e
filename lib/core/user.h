/* SPDX-License-Identifier: MIT */
/* lib/core/user.h - the slot of hoist/user.h.  Each object that has one contains this struct.
 *
 * Readers take no lock.  Writers change both fields under one lock of the process, as setting is
 * rare.  A slot that is all zero is empty.
 */
#ifndef HOIST_LIB_CORE_USER_H
#define HOIST_LIB_CORE_USER_H

#include <stdatomic.h>

struct hoist__user {
	void *_Atomic xdata;
	void (*release)(void *data); /* under user.c's lock; NULL: nothing to call */
};

/* Serves hoist_*_set_user() of an object.  @user is the object's slot, NULL if the caller's object
 * was NULL.  @what names the object in the message ("buffer").
 * Returns: 0; -EINVAL; -EBUSY. */
int hoist__user_set(struct hoist__user *user, const char *what, void *expected, void *data,
		    void (*release)(void *data));
void *hoist__user_get(const struct hoist__user *user);

/* Calls the release function for an object that is gone.  @user is a copy of the object's slot. */
void hoist__user_end(struct hoist__user *user);

#endif
