/* SPDX-License-Identifier: MIT */
/* lib/device.c - the devices that were opened, and the memory they keep.
 *
 * A device object is made once per (api, ordinal) and never freed: buffers and
 * streams point to it without holding it, and an unref too many does no harm.
 * What belongs to it is made when first asked for and published with one
 * compare-and-swap: of two threads that make it at once, the later discards his. */
#include "config.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "lib/objects.h"
#include "lib/transfer.h"
#include "numa/topology.h"

/* Small device buffers share regions of this size, and pinned ones of the other:
 * a single pinned page must not take much of a small memlock limit. */
#define SHARED_REGION_BYTES (32 * HOIST__MIB)
#define PINNED_REGION_BYTES (2 * HOIST__MIB)

enum pool_use { POOL_MEMORY, POOL_PINNED, POOL_STAGING, N_POOLS };

struct hoist_device {
	hoist_device *next; /* in the list of all; constant once it is there */
	struct hoist__dev *dev;
	char spec[32];
	int node;		/* nearest NUMA node, -1 unknown */
	bool placed;		/* memory can be asked for on that node */
	_Atomic unsigned xrefs; /* the user's; only to notice an unref too many */
	struct hoist__pool *_Atomic xpools[N_POOLS];
	hoist_stream *_Atomic xstream; /* the default one */
	struct hoist__lanes lanes;
};

static hoist_device *_Atomic xdevices;

/* The machine's nodes, read once. */
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

static int make_device(struct hoist__dev *dev, hoist_device **ret)
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
	hoist__lanes_init(&made->lanes);
	*ret = made;
	return 0;
}

static hoist_device *find(hoist_device *first, const struct hoist__dev *dev)
{
	while (first != NULL && first->dev != dev)
		first = first->next;
	return first;
}

static int intern(struct hoist__dev *dev, hoist_device **ret)
{
	hoist_device *first = atomic_load(&xdevices);
	hoist_device *found = find(first, dev);
	hoist_device *made = NULL;
	int err = found != NULL ? 0 : make_device(dev, &made);
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

/* --- specs: "cuda:1" --- */

struct spec {
	bool any_gpu;
	enum hoist__api api; /* unless any_gpu */
	int ordinal;	     /* INT_MAX for all that is larger */
};

static const char *api_title(enum hoist__api api)
{
	return api == HOIST__API_CUDA ? "CUDA" : api == HOIST__API_HIP ? "HIP" : "CPU";
}

static int parse_api(const char *name, size_t length, enum hoist__api *ret)
{
	for (int i = 0; i < HOIST__N_APIS; i++) {
		const char *known = hoist__api_name((enum hoist__api)i);
		if (strlen(known) == length && memcmp(known, name, length) == 0) {
			*ret = (enum hoist__api)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_ordinal(const char *digits, int *ret)
{
	size_t length = strspn(digits, "0123456789");
	if (length == 0 || digits[length] != '\0')
		return -EINVAL;
	int ordinal = 0;
	for (; *digits != '\0'; digits++)
		if (__builtin_mul_overflow(ordinal, 10, &ordinal) ||
		    __builtin_add_overflow(ordinal, *digits - '0', &ordinal)) {
			ordinal = INT_MAX;
			break;
		}
	*ret = ordinal;
	return 0;
}

static int parse_spec(const char *text, struct spec *ret)
{
	struct spec spec = {false, HOIST__API_CPU, 0};
	size_t length = text != NULL ? strcspn(text, ":") : 0;
	int err = -EINVAL;
	if (length == 3 && memcmp(text, "gpu", 3) == 0) {
		spec.any_gpu = true;
		err = 0;
	} else if (length > 0) {
		err = parse_api(text, length, &spec.api);
	}
	if (err == 0 && text[length] == ':')
		err = parse_ordinal(text + length + 1, &spec.ordinal);
	if (err < 0)
		return hoist__fail(err,
				   "\"%.64s\" names no device; say cpu, cuda:N, hip:N or gpu:N, "
				   "where N counts from 0",
				   text != NULL ? text : "");
	*ret = spec;
	return 0;
}

/* The first accelerator API that has a device.  Where none has, each reason begins with
 * the name of its API. */
static int choose_gpu(enum hoist__api *ret)
{
	char cuda_text[HOIST__ERROR_BYTES / 2];
	int n;
	int err = hoist__dev_count(HOIST__API_CUDA, &n);
	if (err == 0) {
		*ret = HOIST__API_CUDA;
		return 0;
	}
	if (err != -ENODEV)
		return err;
	hoist__error_copy(cuda_text, sizeof cuda_text);
	err = hoist__dev_count(HOIST__API_HIP, &n);
	if (err == 0) {
		*ret = HOIST__API_HIP;
		return 0;
	}
	if (err != -ENODEV)
		return err;
	return hoist__fail(err, "neither API has a device; %s; %s", cuda_text, hoist__error_text());
}

static int fail_ordinal(const char *text, enum hoist__api api, int count)
{
	const char *emulated = hoist__api_emulated(api) ? "emulated " : "";
	if (count == 1)
		return hoist__fail(-EINVAL, "\"%.64s\": this machine has 1 %s%s device (0)", text,
				   emulated, api_title(api));
	return hoist__fail(-EINVAL, "\"%.64s\": this machine has %d %s%s devices (0..%d)", text,
			   count, emulated, api_title(api), count - 1);
}

int hoist_device_open(const char *text, hoist_device **ret)
{
	struct spec spec = {false, HOIST__API_CPU, 0};
	int err = parse_spec(text, &spec);
	if (err < 0)
		return err;
	int count = 0;
	if (spec.any_gpu)
		err = choose_gpu(&spec.api);
	if (err == 0)
		err = hoist__dev_count(spec.api, &count);
	if (err == 0 && spec.ordinal >= count)
		return fail_ordinal(text, spec.api, count);
	struct hoist__dev *dev = NULL;
	if (err == 0)
		err = hoist__dev_get(spec.api, spec.ordinal, &dev);
	hoist_device *device = NULL;
	if (err == 0)
		err = intern(dev, &device);
	if (err < 0)
		return hoist__fail_in(err, "\"%.64s\"", text);
	*ret = hoist_device_ref(device);
	return 0;
}

hoist_device *hoist_device_ref(hoist_device *device)
{
	atomic_fetch_add_explicit(&device->xrefs, 1, memory_order_relaxed);
	return device;
}

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

int hoist_device_count(const char *name, int *ret)
{
	enum hoist__api api;
	if (name == NULL || parse_api(name, strlen(name), &api) < 0)
		return hoist__fail(-EINVAL, "\"%.64s\" names no API; say cpu, cuda or hip",
				   name != NULL ? name : "");
	return hoist__dev_count(api, ret);
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
	};
	return hoist__options_out("hoist_device_info", info, &known, sizeof known);
}

int hoist_device_memory(hoist_device *device, uint64_t *free_bytes, uint64_t *total_bytes)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to ask for its memory is NULL");
	return hoist__dev_mem_info(device->dev, free_bytes, total_bytes);
}

int hoist_device_default_stream(hoist_device *device, hoist_stream **ret)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to ask for its stream is NULL");
	hoist_stream *known = atomic_load(&device->xstream);
	if (known == NULL) {
		hoist_stream *made;
		int err = hoist_stream_create(device, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&device->xstream, &known, made))
			known = made;
		else
			hoist_stream_unref(made);
	}
	*ret = hoist_stream_ref(known);
	return 0;
}

/* --- what the device keeps --- */

static bool is_cpu(const hoist_device *device)
{
	return hoist__dev_api(device->dev) == HOIST__API_CPU;
}

static struct hoist__pool_options pool_options(const hoist_device *device, enum pool_use use)
{
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_PINNED, .dev = device->dev};
	switch (use) {
	case POOL_MEMORY:
		options.kind = is_cpu(device) ? HOIST__MEMORY_HOST : HOIST__MEMORY_DEVICE;
		options.dev = is_cpu(device) ? NULL : device->dev;
		options.region_bytes = SHARED_REGION_BYTES;
		options.keep_bytes = SHARED_REGION_BYTES;
		break;
	case POOL_PINNED:
		options.region_bytes = PINNED_REGION_BYTES;
		options.keep_bytes = PINNED_REGION_BYTES;
		break;
	case POOL_STAGING:
	case N_POOLS:
		/* So small that every ring has a region of its own, of its exact size; kept,
		 * because pinning is slow and the next load wants the same. */
		options.region_bytes = 4096;
		options.keep_bytes = HOIST_BUDGET_DEFAULT;
		break;
	}
	if (options.kind == HOIST__MEMORY_PINNED && device->placed) {
		options.placement.policy = HOIST__POLICY_PREFER;
		hoist__nodeset_add(&options.placement.nodes, device->node);
	}
	return options;
}

static int use_pool(hoist_device *device, enum pool_use use, struct hoist__pool **ret)
{
	struct hoist__pool *known = atomic_load(&device->xpools[use]);
	if (known == NULL) {
		const struct hoist__pool_options options = pool_options(device, use);
		struct hoist__pool *made;
		int err = hoist__pool_create(&options, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&device->xpools[use], &known, made))
			known = made;
		else
			hoist__pool_unref(made);
	}
	*ret = known;
	return 0;
}

int hoist__device_pool(hoist_device *device, struct hoist__pool **ret)
{
	return use_pool(device, POOL_MEMORY, ret);
}

int hoist__device_pinned_pool(hoist_device *device, struct hoist__pool **ret)
{
	return use_pool(device, POOL_PINNED, ret);
}

int hoist__device_staging_pool(hoist_device *device, struct hoist__pool **ret)
{
	return use_pool(device, POOL_STAGING, ret);
}

enum hoist__memory_kind hoist__device_pool_kind(const hoist_device *device,
						const struct hoist__pool *pool)
{
	if (pool != atomic_load(&device->xpools[POOL_MEMORY]))
		return HOIST__MEMORY_PINNED;
	return is_cpu(device) ? HOIST__MEMORY_HOST : HOIST__MEMORY_DEVICE;
}

struct hoist__dev *hoist__device_dev(const hoist_device *device)
{
	return device->dev;
}

struct hoist__lanes *hoist__device_lanes(hoist_device *device)
{
	return &device->lanes;
}

void hoist__device_trim(hoist_device *device)
{
	hoist__lanes_drain(&device->lanes);
	for (int i = 0; i < N_POOLS; i++) {
		struct hoist__pool *pool = atomic_load(&device->xpools[i]);
		if (pool != NULL)
			hoist__pool_trim(pool, 0);
	}
}
