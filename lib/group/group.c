/* SPDX-License-Identifier: MIT */
/* hoist_group_load(): checks, and gives a load the rank's source.
 * The contract is in hoist/group.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/core/options.h"
#include "lib/far/far.h"
#include "lib/group/group.h"

#define DEFAULT_TIMEOUT_NS (30 * HOIST__NS_PER_S)
#define LEAST_TIMEOUT_NS (HOIST__NS_PER_S / 10)

static const struct hoist__transport_ops *const shm = &hoist__transport_shm;

static bool begins_with(const char *name, const char *scheme)
{
	return strncmp(name, scheme, strlen(scheme)) == 0;
}

static bool is_shm(const hoist_group *group)
{
	return begins_with(group->name, shm->scheme);
}

static int check_name(const char *name)
{
	if (name == NULL)
		return hoist__fail(-EINVAL, "hoist_group.name is NULL; it is \"shm:\" and a name, "
					    "\"tcp://host:port/name\", or \"dir:folder/name\"");
	if (begins_with(name, shm->scheme) || begins_with(name, HOIST__FAR_SCHEME) ||
	    begins_with(name, HOIST__FAR_FOLDER_SCHEME))
		return 0;
	return hoist__fail(
		-ENOTSUP,
		"\"%.80s\" names no group; a group is \"shm:\" and a name, on one machine, "
		"or \"tcp://host:port/name\", or \"dir:folder/name\"",
		name);
}

static int check_ranks(const hoist_group *group)
{
	bool far = !is_shm(group);
	unsigned most = far ? HOIST__SWARM_MEMBERS : HOIST__GROUP_RANKS;
	unsigned least = far ? 0 : 1;
	if (group->n_ranks < least || group->n_ranks > most)
		return hoist__fail(-EINVAL, "a group of %u ranks; it has %u to %u", group->n_ranks,
				   least, most);
	if (group->rank >= group->n_ranks && group->n_ranks > 0)
		return hoist__fail(-EINVAL, "rank %u of a group of %u; ranks begin with 0",
				   group->rank, group->n_ranks);
	if (group->timeout_ns < LEAST_TIMEOUT_NS)
		return hoist__fail(-EINVAL, "a group's timeout of %llu ns; the least is 100 ms",
				   (unsigned long long)group->timeout_ns);
	return 0;
}

/* Takes the caller's group, whose ranks are still to be checked.  @doing begins the text of a
 * failure. */
static int take_group(const char *doing, const hoist_group *group, hoist_group *ret)
{
	*ret = (hoist_group){.size = sizeof *ret};
	if (group == NULL)
		return hoist__fail(-EINVAL, "%s: the group is NULL", doing);
	int err = hoist__options_in("hoist_group", group, ret, sizeof *ret);
	if (err == 0)
		err = check_name(ret->name);
	ret->timeout_ns = ret->timeout_ns != 0 ? ret->timeout_ns : DEFAULT_TIMEOUT_NS;
	return err;
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

static int make_member(const hoist_group *group, struct hoist__load_source **ret)
{
	const struct hoist__transport_ops *ops = shm;
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
		.timeout_ns = group->timeout_ns,
	};
	pthread_mutex_init(&member->lock, NULL);
	*ret = &member->source;
	return 0;
}

int hoist_group_load(const hoist_group *group, hoist_checkpoint *checkpoint,
		     const hoist_load_options *options, hoist_load **ret)
{
	hoist_group known;
	hoist_load_options o = {.size = sizeof o};
	struct hoist__load_source *source = NULL;
	int err = take_group("a group's load", group, &known);
	if (err == 0)
		err = check_ranks(&known);
	if (err == 0 && options != NULL)
		err = hoist__options_in("hoist_load_options", options, &o, sizeof o);
	if (err == 0)
		err = check_options(&o);
	if (err == 0 && checkpoint != NULL && checkpoint->n_absent > 0 && is_shm(&known))
		err = hoist__fail(-ENODATA, "this machine lacks files of the checkpoint: its group "
					    "is one of several machines, \"tcp://host:port/name\"");
	if (err == 0)
		err = is_shm(&known) ? make_member(&known, &source)
				     : hoist__far_make(&known, &source);
	if (err < 0)
		return err;
	return hoist__load_start(checkpoint, &o, source, ret);
}

int hoist_group_open(const hoist_group *group, const char *path, unsigned flags,
		     hoist_checkpoint **ret)
{
	hoist_group known;
	int err = take_group("opening a group's checkpoint", group, &known);
	if (err == 0)
		err = check_ranks(&known);
	if (err == 0)
		err = hoist_checkpoint_open(path, flags, ret);
	if (err != -ENOENT || is_shm(&known))
		return err;
	struct hoist__failure missing;
	hoist__failure_keep(&missing);
	err = hoist__far_show(&known, path, flags, ret);
	return err < 0 ? hoist__fail_in(err, "%s is not on this machine, or not all of it (%s)",
					path, missing.text)
		       : 0;
}

int hoist_group_look(const hoist_group *group,
		     int (*each)(void *context, const hoist_group_member *member), void *context)
{
	hoist_group known;
	if (each == NULL)
		return hoist__fail(-EINVAL, "looking at a group: the function is NULL");
	int err = take_group("looking at a group", group, &known);
	if (err == 0 && is_shm(&known))
		err = hoist__fail(-ENOTSUP,
				  "a group of one machine cannot be looked at; its ranks' "
				  "loads tell their own progress");
	if (err == 0)
		err = check_ranks(&known);
	return err < 0 ? err : hoist__far_look(&known, each, context);
}
