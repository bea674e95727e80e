/* SPDX-License-Identifier: MIT */
/* lib/device/device.c - the devices that were opened, and their properties.
 * The contract is in hoist/device.h and lib/device/device.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "device/virtual.h"
#include "hoist/user.h"
#include "lib/core/options.h"
#include "lib/device/device-private.h"
#include "lib/device/device.h"
#include "lib/device/stream-private.h"
#include "numa/topology.h"

static hoist_device *_Atomic xdevices;

/* The machine's nodes are read once, and kept. */
static int machine_topology(struct hoist__topology **ret)
{
	static struct hoist__topology *_Atomic xtopology;
	struct hoist__topology *known = atomic_load(&xtopology);
	if (known == NULL) {
		struct hoist__topology *made;
		int err = hoist__topology_load("/sys", &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&xtopology, &known, made))
			known = made;
		else
			hoist__topology_destroy(made);
	}
	*ret = known;
	return 0;
}

/* A driver may name the device's node itself.  Otherwise sysfs has the node of its PCI address. */
static int make_device(struct hoist__dev *dev, uint64_t memory_limit, hoist_device **ret)
{
	struct hoist__topology *topology;
	int err = machine_topology(&topology);
	if (err < 0)
		return err;
	hoist_device *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a device", sizeof *made);
	const struct hoist__dev_props *props = hoist__dev_props(dev);
	made->dev = dev;
	made->memory_limit = memory_limit;
	made->node = props->numa_node;
	if (made->node < 0 && props->pci[0] != '\0')
		made->node = hoist__topology_pci_node(topology, "/sys", props->pci);
	made->placed = hoist__topology_node(topology, made->node) != NULL;
	enum hoist__api api = hoist__dev_api(dev);
	if (api == HOIST__API_CPU)
		(void)snprintf(made->spec, sizeof made->spec, "cpu");
	else
		(void)snprintf(made->spec, sizeof made->spec, "%s:%d", hoist__api_name(api),
			       hoist__dev_ordinal(dev));
	*ret = made;
	return 0;
}

static hoist_device *find(hoist_device *first, const struct hoist__dev *dev)
{
	while (first != NULL && first->dev != dev)
		first = first->next;
	return first;
}

/* The list only grows, so it is read without a lock.  A thread that loses the race to add a device
 * takes the winner's object. */
int hoist__device_intern(struct hoist__dev *dev, uint64_t memory_limit, hoist_device **ret)
{
	hoist_device *first = atomic_load(&xdevices);
	hoist_device *found = find(first, dev);
	hoist_device *made = NULL;
	int err = found != NULL ? 0 : make_device(dev, memory_limit, &made);
	if (err < 0)
		return err;
	while (found == NULL) {
		made->next = first;
		if (atomic_compare_exchange_strong(&xdevices, &first, made))
			found = made;
		else
			found = find(first, dev);
	}
	if (found != made)
		free(made);
	*ret = found;
	return 0;
}

int hoist__device_cpu(hoist_device **ret)
{
	static hoist_device *_Atomic xcpu;
	hoist_device *cpu = atomic_load(&xcpu);
	if (cpu == NULL) {
		int err = hoist_device_open("cpu", &cpu);
		if (err < 0)
			return err;
		hoist_device_unref(cpu);
		atomic_store(&xcpu, cpu);
	}
	*ret = cpu;
	return 0;
}

hoist_device *hoist_device_ref(hoist_device *device)
{
	atomic_fetch_add_explicit(&device->xrefs, 1, memory_order_relaxed);
	return device;
}

/* Devices live as long as the process.  References are counted only to report one that was given
 * back too often. */
void hoist_device_unref(hoist_device *device)
{
	if (device == NULL)
		return;
	unsigned refs = atomic_load_explicit(&device->xrefs, memory_order_relaxed);
	while (refs != 0)
		if (atomic_compare_exchange_weak_explicit(&device->xrefs, &refs, refs - 1,
							  memory_order_relaxed,
							  memory_order_relaxed))
			return;
	hoist__log(device, "%s: hoist_device_unref() without a reference", device->spec);
}

const char *hoist_device_spec(const hoist_device *device)
{
	return device->spec;
}

int hoist_device_get_info(const hoist_device *device, hoist_device_info *info)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to describe is NULL");
	const struct hoist__dev_props *props = hoist__dev_props(device->dev);
	enum hoist__api api = hoist__dev_api(device->dev);
	const hoist_device_info known = {
		.size = sizeof known,
		.api = hoist__api_name(api),
		.id = hoist__dev_ordinal(device->dev),
		.is_host = api == HOIST__API_CPU,
		.emulated = props->emulated,
		.name = props->name,
		.architecture = props->architecture,
		.pci = props->pci,
		.numa_node = device->node,
		.total_memory = props->total_bytes,
		.label = api == HOIST__API_CPU ? "cpu" : "gpu",
		.is_compatible = 1,
		.is_virtual = hoist__dev_is_virtual(device->dev),
		.driver_version = props->driver_version,
		.library = hoist__api_library(api),
		.library_reason = hoist__api_library_reason(api),
		.is_host_unified = api == HOIST__API_CPU || props->is_unified,
	};
	return hoist__options_out("hoist_device_info", info, &known, sizeof known);
}

int hoist_device_memory(hoist_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to ask for its memory is NULL");
	return hoist__dev_mem_info(device->dev, free_bytes, total_bytes);
}

static bool is_ours(const hoist_stream *stream)
{
	return stream != NULL && stream->generation == hoist__fork_now();
}

hoist_stream *hoist__device_known_stream(const hoist_device *device)
{
	hoist_stream *known = atomic_load(&device->xstream);
	return is_ours(known) ? known : NULL;
}

/* Takes the stream from @slot.  A child of fork makes a new one: the references that others hold to
 * the parent's stream stay with that stream. */
static int stream_in(hoist_stream *_Atomic *slot, hoist_device *device, hoist_stream **ret)
{
	hoist_stream *known = atomic_load(slot);
	if (!is_ours(known)) {
		hoist_stream *made;
		int err = hoist_stream_create(device, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(slot, &known, made))
			known = made;
		else
			hoist__stream_end(made); /* no other thread has seen it */
	}
	*ret = hoist_stream_ref(known);
	return 0;
}

int hoist_device_default_stream(hoist_device *device, hoist_stream **ret)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to ask for its stream is NULL");
	return stream_in(&device->xstream, device, ret);
}

int hoist__device_returns(hoist_device *device, hoist_stream **ret)
{
	return stream_in(&device->xreturns, device, ret);
}

int hoist_device_can_access(hoist_device *device, hoist_device *peer, int *ret)
{
	bool can = false;
	if (device == NULL || peer == NULL)
		return hoist__fail(-EINVAL, "the device to %s is NULL",
				   device == NULL ? "ask" : "be reached");
	int err = hoist__dev_can_access(device->dev, peer->dev, &can);
	if (err < 0)
		return hoist__fail_in(err, "whether %s reaches memory of %s", device->spec,
				      peer->spec);
	*ret = can;
	return 0;
}

struct hoist__dev *hoist__device_dev(const hoist_device *device)
{
	return device->dev;
}

bool hoist__device_is_cpu(const hoist_device *device)
{
	return hoist__dev_api(device->dev) == HOIST__API_CPU;
}

int hoist__device_node(const hoist_device *device)
{
	return device->placed ? device->node : -1;
}

bool hoist__device_has_node(int node)
{
	struct hoist__topology *topology;
	return machine_topology(&topology) == 0 && hoist__topology_node(topology, node) != NULL;
}

int hoist_device_set_user(hoist_device *device, void *expected, void *data,
			  void (*release)(void *data))
{
	return hoist__user_set(device != NULL ? &device->user : NULL, "device", expected, data,
			       release);
}

void *hoist_device_get_user(const hoist_device *device)
{
	return hoist__user_get(&device->user);
}
