/* SPDX-License-Identifier: MIT */
/* lib/core/user.c - the slots in which objects keep a pointer for the caller.
 * The contract is in lib/core/user.h. */
#include "config.h"

#include "lib/core/user.h"

#include <errno.h>

#include "base/error.h"
#include "base/lock-fork.h"

/* Guards the pointer and the release function of every object's slot. */
static struct hoist__lock slots_lock;

/* The lock is held across fork, so that the child can go on setting pointers. */
HOIST__WATCH_FORKS(slots_lock, device, "user pointers")

/* The release function of the old pointer runs after the lock is dropped: it may set a pointer
 * itself. */
int hoist__user_set(struct hoist__user *user, const char *what, void *expected, void *data,
		    void (*release)(void *data))
{
	if (user == NULL)
		return hoist__fail(-EINVAL, "the %s to set a pointer on is NULL", what);
	if (data == NULL && release != NULL)
		return hoist__fail(-EINVAL, "there is a function to release a pointer, which is "
					    "NULL");
	watch_forks();
	hoist__lock(&slots_lock);
	void *before = atomic_load(&user->xdata);
	void (*release_before)(void *data) = user->release;
	if (before == expected) {
		user->release = release;
		atomic_store(&user->xdata, data);
	}
	hoist__unlock(&slots_lock);
	if (before != expected)
		return hoist__fail(-EBUSY,
				   "the slot holds %p, not %p; pass the pointer that it holds",
				   before, expected);
	if (release_before != NULL)
		release_before(before);
	return 0;
}

void *hoist__user_get(const struct hoist__user *user)
{
	return atomic_load_explicit(&user->xdata, memory_order_acquire);
}

void hoist__user_end(struct hoist__user *user)
{
	if (user->release != NULL)
		user->release(atomic_load(&user->xdata));
}
