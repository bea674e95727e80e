/* SPDX-License-Identifier: MIT */
/* A group's name and secret, and the comparison of its members' files.
 * The contract is in lib/far/far.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "lib/far/far.h"
#include "net/secret.h"

#define MOST_TIMEOUT_NS ((uint64_t)INT64_MAX) /* a point in time behind it is a number, too */

/* --- the name --- */

static int split_name(struct hoist__far *far, const char *name)
{
	const char *door = name + strlen(HOIST__FAR_SCHEME);
	const char *slash = strchr(door, '/');
	size_t n = slash != NULL ? strlen(slash + 1) : 0;
	if (slash == NULL || slash == door || n == 0 || n >= HOIST__WIRE_NAME_BYTES)
		return hoist__fail(
			-EINVAL,
			"\"%.80s\" names no group: a group is tcp://HOST:PORT/NAME, as in "
			"tcp://10.0.0.1:7000/llama, where NAME has 1 to %u bytes",
			name, HOIST__WIRE_NAME_BYTES - 1);
	far->door_text = strndup(door, (size_t)(slash - door));
	far->name = strdup(slash + 1);
	if (far->door_text == NULL || far->name == NULL)
		return hoist__fail_nomem("a group's name", n);
	int found = hoist__address_find(far->door_text, false, far->door,
					sizeof far->door / sizeof far->door[0]);
	if (found < 0)
		return found;
	far->n_doors = (unsigned)found;
	return 0;
}

/* The user's own secret is good for this machine alone. */
static int check_secret(const struct hoist__far *far)
{
	for (unsigned i = 0; far->secret.local && i < far->n_doors; i++)
		if (!hoist__address_loopback(&far->door[i]))
			return hoist__fail(-EACCES,
					   "the group at %s needs a secret: give all members the "
					   "same in HOIST_GROUP_SECRET_FILE or HOIST_GROUP_SECRET; "
					   "without one, only members on one machine meet, at "
					   "localhost",
					   far->door_text);
	return 0;
}

int hoist__far_make(const hoist_group *group, struct hoist__load_source **ret)
{
	struct hoist__far *far = calloc(1, sizeof *far);
	if (far == NULL)
		return hoist__fail_nomem("a member of a group", sizeof *far);
	far->source.ops = &hoist__far_ops;
	far->n_ranks = group->n_ranks;
	far->rank = group->rank;
	far->reads = true;
	far->listen_fd = far->folder_fd = far->bell = far->shared_fd = -1;
	for (unsigned i = 0; i < HOIST__FAR_DOORS; i++)
		far->door_fd[i] = -1;
	far->timeout_ns = group->timeout_ns < MOST_TIMEOUT_NS ? group->timeout_ns : MOST_TIMEOUT_NS;
	far->report.note = far->note;
	far->report.damage = far->account.damage;
	far->report.way = far->account.way;
	pthread_mutex_init(&far->lock, NULL);
	int err = hoist__condition_init(&far->changed);
	if (err < 0) {
		pthread_mutex_destroy(&far->lock);
		free(far);
		return hoist__fail_errno(-ENOMEM, "a group's condition");
	}
	bool folder = strncmp(group->name, HOIST__FAR_FOLDER_SCHEME,
			      strlen(HOIST__FAR_FOLDER_SCHEME)) == 0;
	err = folder ? hoist__far_split_folder(far, group->name) : split_name(far, group->name);
	if (err == 0)
		err = hoist__secret_find(group->secret, &far->secret);
	if (err == 0)
		err = folder ? hoist__far_own_doors(far) : check_secret(far);
	while (err == 0 && far->id == 0)
		hoist__secret_random(&far->id, sizeof far->id);
	if (err < 0)
		far->source.ops->destroy(&far->source);
	else
		*ret = &far->source;
	return err;
}

/* --- the checkpoint --- */

int hoist__far_compare_files(const struct hoist__far *far, const struct hoist__far_peer *peer,
			     const struct hoist__wire_message *hello)
{
	const uint64_t *ours = far->identity;
	const uint64_t *theirs = hello->identity;
	struct hoist__address at = peer->at;
	hoist__address_set_port(&at, hello->port);
	if (hello->n_cells != far->cells.n || ours[0] != theirs[0] || ours[1] != theirs[1])
		return hoist__fail(-EINVAL,
				   "the member at %s has other files: all members of a group must "
				   "see the same checkpoint, byte for byte",
				   at.text);
	if ((ours[2] | ours[3]) == 0 || (theirs[2] | theirs[3]) == 0 ||
	    (ours[2] == theirs[2] && ours[3] == theirs[3]))
		return 0;
	return hoist__fail(
		-EINVAL,
		"the member at %s has other bytes in its tensors, as digests show: give "
		"all machines the same files (`hoist digest` tells which tensors differ)",
		at.text);
}

/* --- failures --- */

int hoist__far_fail_name(const struct hoist__far *far, const char *there, const char *wanted)
{
	return hoist__fail(
		-EADDRINUSE,
		"at %.60s is the group \"%.63s\", not \"%.63s\"; give the other group an "
		"address of its own",
		far->door_text, there, wanted);
}

/* A swarm never reuses a member's number: members that have gone keep their turns (swarm.h). */
int hoist__far_fail_full(const struct hoist__far *far)
{
	return hoist__fail(-ENOSPC,
			   "the group \"%.63s\" has had %u members, with those that have gone, "
			   "and takes no more; begin a new group once it has ended",
			   far->name, HOIST__SWARM_MEMBERS);
}
