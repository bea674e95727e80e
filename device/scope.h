/* SPDX-License-Identifier: MIT */
/* device/scope.h - many calls of one thread to one device.
 *
 * A driver wants its device current in the calling thread and, for some calls, the thread's capture
 * mode relaxed (cuda-run.h).  By itself each function of device.h switches both and back: up to
 * five driver calls for one.  A thread within a scope has switched already: a function is one
 * driver call there.
 *
 *     the thread's own state --enter A--> A --enter B--> B --leave--> A --leave--> its own state
 *
 *   - Scopes nest: the scope that was entered last is left first, by the thread that entered it.
 *     CUDA and HIP have separate states, so each api has its own chain of scopes.
 *   - A scope of the device that is current already is empty, and costs no driver call.
 *   - A function for another device switches to that device and back: two driver calls.
 *   - If the driver refuses to switch, the scope is not held: the functions within switch by
 *     themselves, and each reports its own failure.  So entering cannot fail.
 *   - All driver calls within a scope run relaxed.  A relaxed thread may make every call.
 *   - The caller's own functions, which hoist calls, must find the thread as the caller left it:
 *     such a call stands between hoist__dev_step_out() and hoist__dev_step_in().
 *
 * Entering makes the device's context if the device has none.  A scope must be left before hoist
 * returns to its caller.
 *
 * Threads: a scope is its thread's.
 */
#ifndef HOIST_DEVICE_SCOPE_H
#define HOIST_DEVICE_SCOPE_H

#include <stdbool.h>

#include "device/device.h"

/* The changes that switching made to the calling thread; the backends' own. */
struct hoist__dev_switched {
	bool pushed;   /* CUDA: a context */
	int device;    /* HIP: the device that was current */
	bool relaxed;  /* the capture mode was changed */
	unsigned mode; /* if relaxed: the mode before */
};

struct hoist__dev_scope {
	struct hoist__dev *dev; /* NULL: the scope is empty */
	bool switched; /* to be undone: `changes` */
	bool held;     /* the device is current for certain */
	struct hoist__dev_scope *outer;
	struct hoist__dev_switched changes;
};

/* @dev NULL and the CPU: the scope is empty.  Keeps the text of hoist_error(). */
void hoist__dev_enter(struct hoist__dev *dev, struct hoist__dev_scope *ret);

/* Logs a failure to switch back.  In a forked child nothing is switched. */
void hoist__dev_leave(struct hoist__dev_scope *scope);

/* The scopes that the thread has stepped out of. */
struct hoist__dev_steps {
	struct hoist__dev_scope *innermost[HOIST__N_APIS];
};

void hoist__dev_step_out(struct hoist__dev_steps *ret);
void hoist__dev_step_in(const struct hoist__dev_steps *steps);

/* --- for backends --- */

/* The device of @api that a scope of the calling thread holds current; NULL: none. */
const struct hoist__dev *hoist__dev_held(enum hoist__api api);

/* The driver refused to switch back: the innermost scope's device is perhaps not current.  From now
 * on the functions within that scope switch by themselves. */
void hoist__dev_doubt(enum hoist__api api);

#endif
