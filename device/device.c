/* SPDX-License-Identifier: MIT */
/* device/device.c - opens drivers once, interns devices, and knows the process that owns them.
 * The contract is in device/device.h and device/virtual.h.
 *
 * memory.c, stream.c and work.c check the process and the arguments before they call a backend. */
#include "config.h"

#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/device-ops.h"
#include "device/dl.h"
#include "device/virtual.h"

enum phase { PHASE_UNOPENED, PHASE_OPENED, PHASE_FAILED };

struct node {
	struct hoist__dev dev; /* first */
	struct node *next;
	bool is_virtual;
};

/* One per api.  `xowner` is set before the lock is taken, and `xphase` after all else is final.  So
 * a child of fork never needs the lock to learn that the driver belongs to its parent.  A failure
 * to open may come from a lack of memory or of descriptors, so it is not for ever: the next call
 * tries again.  A child of fork cannot try again, and gets its parent's failure. */
struct api {
	const char *name;
	const struct hoist__dev_ops *ops;
	_Atomic unsigned xowner; /* the generation that opened the driver; 0 before */
	_Atomic(enum phase) xphase;
	pthread_mutex_t lock; /* guards opening, the list of devices, becoming virtual */
	struct node *devs;
	int count; /* the driver's devices, without virtual ones */
	_Atomic int xvirtual;
	char architecture[HOIST__ARCHITECTURE_BYTES]; /* lock; of virtual devices, or "" */
	const char *library;
	int err; /* PHASE_FAILED: the last error of opening */
	struct hoist__failure failure;
};

static struct api apis[HOIST__N_APIS] = {
	[HOIST__API_CPU] = {.name = "cpu",
			    .ops = &hoist__cpu_ops,
			    .lock = PTHREAD_MUTEX_INITIALIZER,
			    .library = ""},
	[HOIST__API_CUDA] = {.name = "cuda",
			     .ops = &hoist__cuda_ops,
			     .lock = PTHREAD_MUTEX_INITIALIZER,
			     .library = ""},
	[HOIST__API_HIP] = {.name = "hip",
			    .ops = &hoist__hip_ops,
			    .lock = PTHREAD_MUTEX_INITIALIZER,
			    .library = ""},
};

/* --- fork --- */

_Atomic unsigned hoist__fork_generation = 1;

static void count_fork(void)
{
	atomic_fetch_add_explicit(&hoist__fork_generation, 1, memory_order_relaxed);
}

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_error;

static void watch(void)
{
	watch_error = pthread_atfork(NULL, NULL, count_fork);
}

int hoist__fork_watch(void)
{
	(void)pthread_once(&watch_once, watch);
	if (watch_error != 0)
		return hoist__fail_errno(-watch_error, "asking to be told of fork()");
	return 0;
}

/* --- finding devices --- */

int hoist__dev_fail_stale(const char *what)
{
	return hoist__fail(-ESTALE,
			   "%s belongs to the process that forked this one; a child of fork "
			   "cannot use it: call exec, or fork before the first use",
			   what);
}

int hoist__dev_check_process(unsigned generation, const char *what)
{
	return generation == hoist__fork_now() ? 0 : hoist__dev_fail_stale(what);
}

/* A virtual api's driver counts the virtual devices.  `count` keeps only those that HOIST_EMULATE
 * asks for, since the others go when the api is no longer virtual. */
static int open_driver(struct api *api)
{
	bool is_virtual = atomic_load(&api->xvirtual) > 0;
	int err = api->ops->open(&api->count, &api->library);
	if (err == 0 && is_virtual)
		err = hoist__dl_emulate((enum hoist__api)(api - apis), &api->count);
	return err;
}

static void open_locked(struct api *api, unsigned self)
{
	if (atomic_load_explicit(&api->xphase, memory_order_relaxed) == PHASE_OPENED)
		return;
	atomic_store(&api->xowner, self);
	int err = open_driver(api);
	if (err < 0) {
		api->err = err;
		hoist__failure_keep(&api->failure);
	}
	atomic_store_explicit(&api->xphase, err < 0 ? PHASE_FAILED : PHASE_OPENED,
			      memory_order_release);
}

/* Makes @self the owner of @api, unless it has one.  A driver that a parent process owns is stale
 * here.  The CPU belongs to every process. */
static int claim(struct api *api, unsigned self)
{
	unsigned owner = 0;
	if (!atomic_compare_exchange_strong(&api->xowner, &owner, self) && owner != self &&
	    api->ops != &hoist__cpu_ops)
		return hoist__dev_fail_stale(api->name);
	return 0;
}

/* Takes the lock only while the driver is not open: a child of fork may find the lock held by a
 * thread that the child does not have. */
static int open_api(struct api *api)
{
	int err = hoist__fork_watch();
	if (err < 0)
		return err;
	unsigned self = hoist__fork_now();
	enum phase phase = atomic_load_explicit(&api->xphase, memory_order_acquire);
	if (phase == PHASE_FAILED && atomic_load(&api->xowner) != self)
		return hoist__fail_again(api->err, &api->failure); /* the failure at the fork */
	if (phase != PHASE_OPENED) {
		err = claim(api, self);
		if (err < 0)
			return err;
		pthread_mutex_lock(&api->lock);
		open_locked(api, self);
		phase = atomic_load_explicit(&api->xphase, memory_order_relaxed);
		if (phase == PHASE_FAILED)
			err = hoist__fail_again(api->err, &api->failure);
		pthread_mutex_unlock(&api->lock);
		return err;
	}
	if (api->ops != &hoist__cpu_ops && atomic_load(&api->xowner) != self)
		return hoist__dev_fail_stale(api->name);
	return 0;
}

/* The number of devices of an opened api now. */
static int count_now(struct api *api, int *ret)
{
	int count = atomic_load(&api->xvirtual);
	if (count == 0)
		count = api->count;
	if (count == 0)
		return hoist__fail(-ENODEV,
				   "%s: the virtual devices were ended, and a process that used "
				   "the stand-in driver cannot open the real one; start another, "
				   "or make devices virtual again",
				   api->name);
	*ret = count;
	return 0;
}

const char *hoist__api_name(enum hoist__api api)
{
	return apis[api].name;
}

bool hoist__api_emulated(enum hoist__api api)
{
	int devices = 0;
	return hoist__virtual_count(api) > 0 ||
	       (hoist__dl_emulate(api, &devices) == 0 && devices > 0);
}

const char *hoist__api_library(enum hoist__api api)
{
	if (atomic_load_explicit(&apis[api].xphase, memory_order_acquire) == PHASE_UNOPENED)
		return "";
	return apis[api].library;
}

const char *hoist__api_library_reason(enum hoist__api api)
{
	return hoist__api_library(api)[0] != '\0' ? hoist__dl_reason(api) : "";
}

int hoist__api_opened(enum hoist__api which)
{
	struct api *api = &apis[which];
	enum phase phase = atomic_load_explicit(&api->xphase, memory_order_acquire);
	if (phase != PHASE_OPENED)
		return phase == PHASE_FAILED ? -ENODEV : -ENOENT;
	if (atomic_load(&api->xowner) != hoist__fork_now())
		return hoist__dev_fail_stale(api->name);
	return api->count == 0 && atomic_load(&api->xvirtual) == 0 ? -ENODEV : 0;
}

int hoist__dev_count(enum hoist__api api, int *ret)
{
	int err = open_api(&apis[api]);
	return err < 0 ? err : count_now(&apis[api], ret);
}

/* The architecture that was given for virtual devices replaces the stand-in's. */
static int make_dev(struct api *api, int ordinal, struct node **ret)
{
	struct node *node = calloc(1, sizeof *node);
	if (node == NULL)
		return hoist__fail_nomem("a device", sizeof *node);
	struct hoist__dev *dev = &node->dev;
	dev->ops = api->ops;
	dev->api = (enum hoist__api)(api - apis);
	dev->ordinal = ordinal;
	dev->generation = atomic_load(&api->xowner);
	int err = api->ops->probe(dev);
	if (err < 0) {
		free(node);
		return err;
	}
	pthread_mutex_init(&dev->lock, NULL);
	pthread_mutex_init(&dev->pools_lock, NULL);
	hoist__list_init(&dev->pools);
	pthread_mutex_init(&dev->streams_lock, NULL);
	hoist__list_init(&dev->streams);
	node->is_virtual = atomic_load(&api->xvirtual) > 0;
	if (node->is_virtual && api->architecture[0] != '\0')
		(void)snprintf(dev->props.architecture, sizeof dev->props.architecture, "%s",
			       api->architecture);
	*ret = node;
	return 0;
}

/* A device that was made once stays in the list for the life of the process, so *ret is valid
 * without a reference. */
int hoist__dev_get(enum hoist__api which, int ordinal, struct hoist__dev **ret)
{
	struct api *api = &apis[which];
	int count = 0;
	int err = open_api(api);
	if (err == 0)
		err = count_now(api, &count);
	if (err < 0)
		return err;
	if (ordinal < 0 || ordinal >= count)
		return hoist__fail(-EINVAL, "there is no device %s:%d; there %s %d, counted from 0",
				   api->name, ordinal, count == 1 ? "is" : "are", count);
	pthread_mutex_lock(&api->lock);
	struct node *node = api->devs;
	while (node != NULL && node->dev.ordinal != ordinal)
		node = node->next;
	if (node == NULL) {
		err = make_dev(api, ordinal, &node);
		if (err == 0) {
			node->next = api->devs;
			api->devs = node;
		}
	}
	pthread_mutex_unlock(&api->lock);
	if (err < 0)
		return err;
	*ret = &node->dev;
	return 0;
}

enum hoist__api hoist__dev_api(const struct hoist__dev *dev)
{
	return dev->api;
}

int hoist__dev_ordinal(const struct hoist__dev *dev)
{
	return dev->ordinal;
}

const struct hoist__dev_props *hoist__dev_props(const struct hoist__dev *dev)
{
	return &dev->props;
}

int hoist__dev_check(const struct hoist__dev *dev)
{
	if (dev->api == HOIST__API_CPU)
		return 0;
	return hoist__dev_check_process(dev->generation, apis[dev->api].name);
}

/* --- virtual devices --- */

int hoist__virtual_count(enum hoist__api api)
{
	return atomic_load(&apis[api].xvirtual);
}

bool hoist__dev_is_virtual(const struct hoist__dev *dev)
{
	return ((const struct node *)(const void *)dev)->is_virtual;
}

/* Claims @api and takes its lock.  unlock_claimed() ends the claim if nothing was opened. */
static int lock_claimed(struct api *api)
{
	int err = hoist__fork_watch();
	if (err == 0)
		err = claim(api, hoist__fork_now());
	if (err == 0)
		pthread_mutex_lock(&api->lock);
	return err;
}

/* A driver that was never opened belongs to nobody: a child of fork may open it. */
static void unlock_claimed(struct api *api)
{
	if (atomic_load(&api->xphase) == PHASE_UNOPENED)
		atomic_store(&api->xowner, 0);
	pthread_mutex_unlock(&api->lock);
}

/* The caller holds the lock. */
static int become_virtual(struct api *api, int count)
{
	enum hoist__api which = (enum hoist__api)(api - apis);
	if (atomic_load(&api->xphase) != PHASE_OPENED)
		return hoist__dl_find_emulator(which);
	if (hoist__dl_is_emulated(which))
		return hoist__dl_set_devices(which, count);
	return hoist__fail(-EBUSY,
			   "%s: the real driver %s is open; virtual devices must be asked for "
			   "before anything else is asked of this API",
			   api->name, api->library);
}

int hoist__virtual_set(enum hoist__api which, const char *architecture, int count)
{
	struct api *api = &apis[which];
	int err = lock_claimed(api);
	if (err < 0)
		return err;
	if (count > 0)
		err = become_virtual(api, count);
	if (err == 0) {
		(void)snprintf(api->architecture, sizeof api->architecture, "%s",
			       count > 0 ? architecture : "");
		atomic_store(&api->xvirtual, count);
		if (atomic_load(&api->xphase) == PHASE_FAILED)
			atomic_store(&api->xphase, PHASE_UNOPENED);
	}
	unlock_claimed(api);
	return err;
}

int hoist__virtual_get(enum hoist__api which, char architecture[HOIST__ARCHITECTURE_BYTES],
		       int *count)
{
	struct api *api = &apis[which];
	int err = lock_claimed(api);
	if (err < 0)
		return err;
	memcpy(architecture, api->architecture, sizeof api->architecture);
	*count = atomic_load(&api->xvirtual);
	unlock_claimed(api);
	return 0;
}
