/* SPDX-License-Identifier: MIT */
/* The engine for systems that refuse io_uring: a crew (io/crew.h), and nothing else.
 * The contract is in io/engine-impl.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/crew.h"
#include "io/engine-impl.h"

#define DEFAULT_THREADS 16u /* for each disk */

struct threads {
	struct hoist__engine engine; /* first: the two are cast into each other */
	struct hoist__crew *crew;
};

static struct hoist__crew *crew_of(struct hoist__engine *engine)
{
	return HOIST__CONTAINER_OF(engine, struct threads, engine)->crew;
}

static int threads_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			  unsigned n)
{
	hoist__crew_submit(crew_of(engine), requests, n);
	return 0;
}

static unsigned threads_reap(struct hoist__engine *engine, struct hoist__request **ret,
			     unsigned max, uint64_t timeout_ns)
{
	return hoist__crew_reap(crew_of(engine), ret, max, timeout_ns);
}

static void threads_cancel(struct hoist__engine *engine)
{
	hoist__crew_cancel(crew_of(engine));
}

static void threads_wake(struct hoist__engine *engine)
{
	hoist__crew_wake(crew_of(engine));
}

static void threads_destroy(struct hoist__engine *engine, bool forked)
{
	hoist__crew_destroy(crew_of(engine), forked);
	free(HOIST__CONTAINER_OF(engine, struct threads, engine));
}

static const struct hoist__engine_ops threads_ops = {
	.name = "threads",
	.submit = threads_submit,
	.reap = threads_reap,
	.cancel = threads_cancel,
	.wake = threads_wake,
	.destroy = threads_destroy,
};

/* Depth and the default number of threads count for each disk, like the queues of the crew. */
int hoist__threads_create(const struct hoist__engine_options *options, struct hoist__engine **ret)
{
	struct hoist__crew_options crew = {.n_threads = options->n_threads};
	hoist__disks_find(options->files, options->n_files, &crew.disks);
	unsigned depth = options->depth * crew.disks.n;
	if (crew.n_threads == 0)
		crew.n_threads = DEFAULT_THREADS * crew.disks.n;
	crew.n_threads = (unsigned)hoist__min_u64(crew.n_threads, depth);

	struct threads *t = calloc(1, sizeof *t);
	if (t == NULL)
		return hoist__fail_nomem("a threads engine", sizeof *t);
	int err = hoist__crew_create(&crew, &t->crew);
	if (err != 0) {
		free(t);
		return err;
	}
	t->engine.ops = &threads_ops;
	t->engine.depth = depth;
	unsigned n = hoist__crew_n_threads(t->crew);
	(void)snprintf(t->engine.reason, sizeof t->engine.reason, "threads: %u%s", n,
		       n < hoist__min_u64(crew.n_threads, HOIST__CREW_MAX_THREADS)
			       ? " (more were refused)"
			       : "");
	*ret = &t->engine;
	return 0;
}
