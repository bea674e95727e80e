/* SPDX-License-Identifier: MIT */
/* Keeps each thread's chain of scopes.
 * The contract is in device/scope.h. */
#include "config.h"

#include "device/scope.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "device/device-ops.h"

/* The thread's innermost scope of each api; NULL outside of all scopes. */
static _Thread_local struct hoist__dev_scope *innermost[HOIST__N_APIS];

const struct hoist__dev *hoist__dev_held(enum hoist__api api)
{
	const struct hoist__dev_scope *scope = innermost[api];
	return scope != NULL && scope->held ? scope->dev : NULL;
}

void hoist__dev_doubt(enum hoist__api api)
{
	if (innermost[api] != NULL)
		innermost[api]->held = false;
}

/* Makes the scope's device current, and the scope the innermost one. */
static void hold(struct hoist__dev_scope *scope)
{
	struct hoist__failure failure;
	hoist__failure_keep(&failure);
	int err = hoist__dev_check(scope->dev);
	if (err == 0)
		err = scope->dev->ops->enter(scope->dev, true, &scope->changes);
	if (err < 0)
		hoist__log(device, "each call switches by itself: %s", hoist__error_text());
	(void)hoist__fail_again(0, &failure);
	scope->held = scope->switched = err == 0;
	innermost[scope->dev->api] = scope;
}

static void let_go(struct hoist__dev_scope *scope)
{
	if (scope->switched && scope->dev->generation == hoist__fork_now())
		scope->dev->ops->leave(scope->dev, &scope->changes);
	scope->held = scope->switched = false;
}

void hoist__dev_enter(struct hoist__dev *dev, struct hoist__dev_scope *ret)
{
	*ret = (struct hoist__dev_scope){.dev = NULL};
	if (dev == NULL || dev->ops->enter == NULL || hoist__dev_held(dev->api) == dev)
		return;
	ret->dev = dev;
	ret->outer = innermost[dev->api];
	hold(ret);
}

void hoist__dev_leave(struct hoist__dev_scope *scope)
{
	if (scope->dev == NULL)
		return;
	HOIST__ASSERT(innermost[scope->dev->api] == scope);
	innermost[scope->dev->api] = scope->outer;
	let_go(scope);
	scope->dev = NULL;
}

void hoist__dev_step_out(struct hoist__dev_steps *ret)
{
	for (int api = 0; api < HOIST__N_APIS; api++) {
		ret->innermost[api] = innermost[api];
		for (; innermost[api] != NULL; innermost[api] = innermost[api]->outer)
			let_go(innermost[api]);
	}
}

/* The chain is built anew from its outermost scope on. */
static void hold_again(struct hoist__dev_scope *scope)
{
	if (scope == NULL)
		return;
	hold_again(scope->outer);
	hold(scope);
}

void hoist__dev_step_in(const struct hoist__dev_steps *steps)
{
	for (int api = 0; api < HOIST__N_APIS; api++) {
		HOIST__ASSERT(innermost[api] == NULL);
		hold_again(steps->innermost[api]);
	}
}
