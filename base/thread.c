/* SPDX-License-Identifier: MIT */
/* base/thread.c - starts the library's own threads.
 * The contract is in base/thread.h. */
#include "config.h"

#include "base/thread.h"

#include <errno.h>
#include <signal.h>

static int create(size_t stack_bytes, bool detached, void *(*run)(void *argument), void *argument,
		  pthread_t *ret)
{
	pthread_attr_t attributes;
	int err = pthread_attr_init(&attributes);
	if (err != 0)
		return err;
	/* If the stack size is refused, the default stays, which is only larger. */
	if (stack_bytes != 0)
		(void)pthread_attr_setstacksize(&attributes, stack_bytes);
	if (detached)
		(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	err = pthread_create(ret, &attributes, run, argument);
	pthread_attr_destroy(&attributes);
	return err;
}

int hoist__thread_start(const struct hoist__thread_options *options, void *(*run)(void *argument),
			void *argument, pthread_t *ret)
{
	const struct hoist__thread_options o =
		options != NULL ? *options : (struct hoist__thread_options){0};
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int err = create(o.stack_bytes, o.detached, run, argument, ret);
	if (err == EINVAL && o.stack_bytes != 0)
		err = create(0, o.detached, run, argument, ret);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}
