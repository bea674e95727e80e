/* SPDX-License-Identifier: MIT */
/* hoist_group_load(): checks, and gives a load the rank's source.
 * The contract is in hoist/group.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lib/core/options.h"
#include "lib/group/group.h"

#define DEFAULT_TIMEOUT_NS (30 * HOIST__NS_PER_S)
#define LEAST_TIMEOUT_NS (HOIST__NS_PER_S / 10)

static const struct hoist__transport_ops *const transports[] = {&hoist__transport_shm};

static int find_transport(const char *name, const struct hoist__transport_ops **ret)
{
	if (name == NULL)
		return hoist__fail(-EINVAL, "hoist_group.name is NULL; it is \"shm:\" and a name");
	for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++)
		if (strncmp(name, transports[i]->scheme, strlen(transports[i]->scheme)) == 0) {
			*ret = transports[i];
			return 0;
		}
	return hoist__fail(
		-ENOTSUP,
		"\"%.80s\" names no group of this machine; a group is \"shm:\" and a name", name);
}

static int check_group(const hoist_group *group)
{
	if (group->n_ranks == 0 || group->n_ranks > HOIST__GROUP_RANKS)
		return hoist__fail(-EINVAL, "a group of %u ranks; it has 1 to %u", group->n_ranks,
				   HOIST__GROUP_RANKS);
	if (group->rank >= group->n_ranks)
		return hoist__fail(-EINVAL, "rank %u of a group of %u; ranks begin with 0",
				   group->rank, group->n_ranks);
	if (group->timeout_ns != 0 && group->timeout_ns < LEAST_TIMEOUT_NS)
		return hoist__fail(-EINVAL, "a group's timeout of %llu ns; the least is 100 ms",
				   (unsigned long long)group->timeout_ns);
	return 0;
}

/* The load's copies of the options that a group changes: chunks reach across two cells at most, and
 * a disk has room for a read and a copy. */
static int check_options(hoist_load_options *o)
{
	if (o->window_bytes > 0)
		return hoist__fail(-ENOTSUP,
				   "a group's load has no window: a rank whose window is full "
				   "would stop all others; leave out window_bytes");
	if (o->n_order > 0)
		return hoist__fail(-ENOTSUP,
				   "a group's load reads in the order of the files; leave "
				   "out hoist_load_options.order");
	if (o->io == HOIST_IO_MAP)
		return hoist__fail(-ENOTSUP,
				   "a group's load reads its files; it does not map them");
	if (o->io == HOIST_IO_ADAPTIVE)
		o->io = HOIST_IO_AUTO; /* which bytes a rank reads is not the rank's choice alone */
	if (o->chunk_bytes > HOIST__CELL_BYTES)
		return hoist__fail(-ENOTSUP, "chunk_bytes is %zu; in a group it is 2 MiB at most",
				   o->chunk_bytes);
	o->chunk_bytes = o->chunk_bytes != 0 ? o->chunk_bytes : HOIST__CELL_BYTES;
	o->depth = o->depth == 1 ? 2 : o->depth;
	return 0;
}

static int make_member(const hoist_group *group, const struct hoist__transport_ops *ops,
		       struct hoist__member **ret)
{
	struct hoist__member *member = calloc(1, sizeof *member);
	char *name = strdup(group->name + strlen(ops->scheme));
	if (member == NULL || name == NULL) {
		free(member);
		free(name);
		return hoist__fail_nomem("a rank of a group", sizeof *member);
	}
	*member = (struct hoist__member){
		.source.ops = &hoist__member_ops,
		.ops = ops,
		.name = name,
		.rank = group->rank,
		.n_ranks = group->n_ranks,
		.timeout_ns = group->timeout_ns != 0 ? group->timeout_ns : DEFAULT_TIMEOUT_NS,
	};
	pthread_mutex_init(&member->lock, NULL);
	*ret = member;
	return 0;
}

int hoist_group_load(const hoist_group *group, hoist_checkpoint *checkpoint,
		     const hoist_load_options *options, hoist_load **ret)
{
	hoist_group known = {.size = sizeof known};
	hoist_load_options o = {.size = sizeof o};
	const struct hoist__transport_ops *ops = NULL;
	struct hoist__member *member = NULL;
	if (group == NULL)
		return hoist__fail(-EINVAL, "a group's load: the group is NULL");
	int err = hoist__options_in("hoist_group", group, &known, sizeof known);
	if (err == 0)
		err = find_transport(known.name, &ops);
	if (err == 0)
		err = check_group(&known);
	if (err == 0 && options != NULL)
		err = hoist__options_in("hoist_load_options", options, &o, sizeof o);
	if (err == 0)
		err = check_options(&o);
	if (err == 0)
		err = make_member(&known, ops, &member);
	if (err < 0)
		return err;
	return hoist__load_start(checkpoint, &o, &member->source, ret);
}
