/* SPDX-License-Identifier: MIT */
/* numa/place.c - asks the kernel to place memory on nodes.
 * The contract is in numa/place.h. */
#include "config.h"

#include "numa/place.h"

#include <errno.h>
#include <numaif.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "numa/place-private.h"

static void mask_add(struct hoist__kernel_mask *mask, int node)
{
	size_t bit = (size_t)node % HOIST__BITS_PER_LONG;
	mask->bits[(size_t)node / HOIST__BITS_PER_LONG] |= 1ul << bit;
}

void hoist__kernel_mask(const struct hoist__nodeset *nodes, struct hoist__kernel_mask *ret)
{
	memset(ret, 0, sizeof *ret);
	for (int node = 0; node < HOIST__MAX_NODES; node++)
		if (hoist__nodeset_has(nodes, node))
			mask_add(ret, node);
}

int hoist__nodeset_first(const struct hoist__nodeset *set)
{
	for (int i = 0; i < HOIST__MAX_NODES / 64; i++)
		if (set->bits[i] != 0)
			return 64 * i + __builtin_ctzll(set->bits[i]);
	return -1;
}

static int policy_mode(enum hoist__policy policy)
{
	switch (policy) {
	case HOIST__POLICY_PREFER:
		return MPOL_PREFERRED;
	case HOIST__POLICY_BIND:
		return MPOL_BIND;
	case HOIST__POLICY_INTERLEAVE:
		return MPOL_INTERLEAVE;
	case HOIST__POLICY_LOCAL:
		break;
	}
	return -1;
}

static void policy_mask(const struct hoist__placement *placement, struct hoist__kernel_mask *mask)
{
	hoist__kernel_mask(&placement->nodes, mask);
	if (placement->policy == HOIST__POLICY_PREFER) {
		memset(mask, 0, sizeof *mask);
		mask_add(mask, hoist__nodeset_first(&placement->nodes));
	}
}

/* Decides what a refusal by mbind(2) means. */
static int place_refused(int error, const struct hoist__placement *placement,
			 enum hoist__placed *ret)
{
	int first = hoist__nodeset_first(&placement->nodes);
	bool strict = placement->policy == HOIST__POLICY_BIND;
	if (error == EPERM || error == ENOSYS || error == EACCES || (error == EINVAL && !strict)) {
		hoist__log(numa, "mbind refused (%s): first touch decides", strerror(error));
		*ret = HOIST__PLACED_FIRST_TOUCH;
		return 0;
	}
	if (error == EINVAL)
		return hoist__fail(-EINVAL,
				   "binding memory to node %d: a node of the set does not exist "
				   "or lies outside this process's cpuset (Mems_allowed in "
				   "/proc/self/status); name another node, or prefer it instead",
				   first);
	return hoist__fail_errno(-error, "binding memory to node %d", first);
}

int hoist__place(void *address, size_t bytes, const struct hoist__placement *placement,
		 enum hoist__placed *ret)
{
	int mode = policy_mode(placement->policy);
	if (mode < 0) {
		*ret = HOIST__PLACED_DEFAULT;
		return 0;
	}
	if (hoist__nodeset_first(&placement->nodes) < 0)
		return hoist__fail(-EINVAL, "placing memory: the set of nodes is empty");
	struct hoist__kernel_mask mask;
	policy_mask(placement, &mask);
	if (mbind(address, bytes, mode, mask.bits, HOIST__KERNEL_MASK_BITS, 0) != 0)
		return place_refused(errno, placement, ret);
	*ret = HOIST__PLACED_KERNEL;
	return 0;
}

bool hoist__nodes_allowed(const struct hoist__nodeset *nodes)
{
	struct hoist__kernel_mask wanted, allowed = {{0}};
	hoist__kernel_mask(nodes, &wanted);
	if (get_mempolicy(NULL, allowed.bits, HOIST__KERNEL_MASK_BITS, NULL, MPOL_F_MEMS_ALLOWED) !=
	    0)
		return true;
	for (size_t i = 0; i < sizeof wanted.bits / sizeof *wanted.bits; i++)
		if ((wanted.bits[i] & allowed.bits[i]) != 0)
			return true;
	return false;
}

int hoist__run_on_node(const struct hoist__topology *topology, int node)
{
	const struct hoist__node *found = hoist__topology_node(topology, node);
	if (found == NULL)
		return hoist__fail(-ENODEV, "there is no node %d", node);
	if (found->n_cpus == 0)
		return hoist__fail(-ENODEV, "node %d has no CPUs", node);
	int highest = found->cpus[found->n_cpus - 1];
	cpu_set_t *set = CPU_ALLOC((size_t)highest + 1);
	if (set == NULL)
		return hoist__fail_nomem("set of CPUs", CPU_ALLOC_SIZE((size_t)highest + 1));
	size_t bytes = CPU_ALLOC_SIZE((size_t)highest + 1);
	CPU_ZERO_S(bytes, set);
	for (size_t i = 0; i < found->n_cpus; i++)
		CPU_SET_S((size_t)found->cpus[i], bytes, set);
	int err = sched_setaffinity(0, bytes, set) == 0 ? 0 : -errno;
	CPU_FREE(set);
	return err == 0 ? 0 : hoist__fail_errno(err, "running on the CPUs of node %d", node);
}
