/* SPDX-License-Identifier: MIT */
/* Counts the processors that may work on some memory.
 * The contract is in numa/processors.h. */
#include "config.h"

#include "numa/processors.h"

#include <numaif.h>
#include <stdint.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "numa/place-private.h"
#include "numa/topology.h"

/* The one node that the page is bound to or preferred on; else the calling thread's. */
static int node_for(const void *address)
{
	struct hoist__kernel_mask mask = {{0}};
	unsigned cpu;
	unsigned node;
	int mode = MPOL_DEFAULT;
	int found = -1;
	void *page = (void *)(uintptr_t)address;
	if (get_mempolicy(&mode, mask.bits, HOIST__KERNEL_MASK_BITS, page, MPOL_F_ADDR) == 0 &&
	    (mode == MPOL_BIND || mode == MPOL_PREFERRED))
		for (unsigned i = 0; i < HOIST__MAX_NODES; i++)
			if ((mask.bits[i / HOIST__BITS_PER_LONG] >> i % HOIST__BITS_PER_LONG & 1) !=
			    0)
				found = found == -1 ? (int)i : -2;
	if (found >= 0)
		return found;
	return getcpu(&cpu, &node) == 0 ? (int)node : -1;
}

/* Leaves only the processors of @node in the set.  False: there is none, or one node in all. */
static bool keep_near(const struct hoist__topology *topology, int node, cpu_set_t *set)
{
	cpu_set_t near;
	const struct hoist__node *found = hoist__topology_node(topology, node);
	if (topology->n_nodes == 1 || found == NULL)
		return false;
	CPU_ZERO(&near);
	for (size_t i = 0; i < found->n_cpus; i++)
		if (found->cpus[i] >= 0 && found->cpus[i] < CPU_SETSIZE &&
		    CPU_ISSET((size_t)found->cpus[i], set))
			CPU_SET((size_t)found->cpus[i], &near);
	if (CPU_COUNT(&near) == 0)
		return false;
	*set = near;
	return true;
}

unsigned hoist__processors_allowed(cpu_set_t *ret)
{
	if (sched_getaffinity(0, sizeof *ret, ret) == 0)
		return (unsigned)CPU_COUNT(ret);
	CPU_ZERO(ret);
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	return online > 0 ? (unsigned)online : 1;
}

void hoist__processors_for(const void *address, struct hoist__processors *ret)
{
	struct hoist__topology *topology = NULL;
	*ret = (struct hoist__processors){0};
	ret->n = hoist__processors_allowed(&ret->set);
	if (CPU_COUNT(&ret->set) > 0) {
		if (hoist__topology_load("/sys", &topology) == 0)
			ret->near = keep_near(topology, node_for(address), &ret->set);
		else
			hoist__log(numa, "populating anywhere: %s", hoist__error_text());
		hoist__topology_destroy(topology);
		ret->n = (unsigned)CPU_COUNT(&ret->set);
	}
	ret->n = (unsigned)hoist__min_u64(ret->n, hoist__group_processors(""));
}

void hoist__processors_stay(const struct hoist__processors *processors)
{
	if (processors->near)
		(void)sched_setaffinity(0, sizeof processors->set, &processors->set);
}
