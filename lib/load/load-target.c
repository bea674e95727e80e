/* SPDX-License-Identifier: MIT */
/* The targets of a load: what the options ask for, devices, streams and wants.
 * The contract is in lib/load/load.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/plan/into.h"
#include "lib/load/load.h"

/* --- checks of one target --- */

static int check_lists(const hoist_load_target *a, const char *where)
{
	if (a->n_tensors > 0 && a->tensors == NULL)
		return hoist__fail(-EINVAL, "%sn_tensors is %zu, but tensors is NULL", where,
				   a->n_tensors);
	for (size_t i = 0; i < a->n_tensors; i++)
		if (a->tensors[i] == NULL)
			return hoist__fail(-EINVAL, "%stensors[%zu] is NULL", where, i);
	if (a->n_slices > 0 && a->slices == NULL)
		return hoist__fail(-EINVAL, "%sn_slices is %zu, but slices is NULL", where,
				   a->n_slices);
	return 0;
}

static int check_asked(const hoist_load_options *o, const hoist_load_target *a, const char *where)
{
	int err = check_lists(a, where);
	if (err == 0)
		err = hoist__into_check(o, a, where);
	if (err < 0)
		return err;
	if (a->n_slices > 0 && (o->flags & HOIST__LOAD_DIGESTS) != 0)
		return hoist__fail(
			-EINVAL,
			"%sdigests are of whole tensors; load without slices (--slice), or ask for "
			"no digests (HOIST_LOAD_DIGEST, HOIST_LOAD_VERIFY, --check-digests)",
			where);
	if (a->stream != NULL && a->device != NULL && hoist_stream_device(a->stream) != a->device)
		return hoist__fail(-EINVAL,
				   "%sthe stream belongs to %s, and the load goes to %s; both must "
				   "be of one device",
				   where, hoist_device_spec(hoist_stream_device(a->stream)),
				   hoist_device_spec(a->device));
	return 0;
}

/* --- the list --- */

static int fail_too_many(const char *what, size_t n, size_t most)
{
	return hoist__fail(-EINVAL, "%s is %zu; a load has at most %zu", what, n, most);
}

/* The target of the options themselves, and the replicas. */
static int ask_own(const hoist_load_options *o, struct hoist__load_asked *asked)
{
	asked->targets[0] = (hoist_load_target){
		.size = sizeof asked->targets[0],
		.device = o->device,
		.stream = o->stream,
		.tensors = o->tensors,
		.n_tensors = o->n_tensors,
		.slices = o->slices,
		.n_slices = o->n_slices,
		.dtype = o->dtype,
		.memory = o->memory,
		.into = o->into,
		.n_into = o->n_into,
	};
	asked->n = 1;
	if (o->n_replicas > 0 && o->replicas == NULL)
		return hoist__fail(-EINVAL, "n_replicas is %zu, but replicas is NULL",
				   o->n_replicas);
	if (o->n_replicas >= HOIST__LOAD_TARGETS)
		return fail_too_many("n_replicas", o->n_replicas, HOIST__LOAD_TARGETS - 1);
	for (size_t r = 0; r < o->n_replicas; r++) {
		if (o->replicas[r] == NULL)
			return hoist__fail(-EINVAL, "replicas[%zu] is NULL", r);
		asked->targets[asked->n] = asked->targets[0];
		asked->targets[asked->n].device = o->replicas[r];
		asked->targets[asked->n].stream = NULL;
		asked->targets[asked->n++].memory = NULL;
	}
	return check_asked(o, &asked->targets[0], "");
}

int hoist__load_ask(const hoist_load_options *o, struct hoist__load_asked *asked)
{
	if (o->targets == NULL && o->n_targets == 0)
		return ask_own(o, asked);
	if (o->targets == NULL || o->n_targets == 0)
		return hoist__fail(-EINVAL, "n_targets is %zu, and targets is %s; give both",
				   o->n_targets, o->targets == NULL ? "NULL" : "not NULL");
	if (o->n_targets > HOIST__LOAD_TARGETS)
		return fail_too_many("n_targets", o->n_targets, HOIST__LOAD_TARGETS);
	if (o->device != NULL || o->stream != NULL || o->tensors != NULL || o->n_slices != 0 ||
	    o->dtype != HOIST_DTYPE_INVALID || o->memory != NULL || o->n_replicas != 0 ||
	    o->into != NULL || o->n_into != 0)
		return hoist__fail(-EINVAL,
				   "targets have devices, streams, tensors, slices, dtypes, memory "
				   "and buffers (into) of their own; leave these fields of "
				   "hoist_load_options, and replicas, unset");
	int err = 0;
	for (size_t t = 0; err == 0 && t < o->n_targets; t++) {
		char where[32];
		(void)snprintf(where, sizeof where, "targets[%zu]: ", t);
		if (o->targets[t] == NULL)
			return hoist__fail(-EINVAL, "targets[%zu] is NULL", t);
		err = hoist__options_in("hoist_load_target", o->targets[t], &asked->targets[t],
					sizeof asked->targets[t]);
		if (err == 0)
			err = check_asked(o, &asked->targets[t], where);
		asked->n++;
	}
	return err;
}

/* --- wants --- */

static bool same_text(const char *a, const char *b)
{
	return a != NULL && b != NULL ? strcmp(a, b) == 0 : a == b;
}

static bool same_slice(const hoist_load_slice *a, const hoist_load_slice *b)
{
	return same_text(a->tensor, b->tensor) && a->axis == b->axis && a->rank == b->rank &&
	       a->n_ranks == b->n_ranks && a->begin == b->begin && a->end == b->end;
}

/* Tells whether the two ask for the same, in the same words. */
static bool same_want(const hoist_load_target *a, const hoist_load_target *b)
{
	bool same = a->n_tensors == b->n_tensors && (a->tensors == NULL) == (b->tensors == NULL) &&
		    a->n_slices == b->n_slices && a->dtype == b->dtype && a->n_into == 0 &&
		    b->n_into == 0;
	for (size_t i = 0; i < a->n_tensors && same; i++)
		same = same_text(a->tensors[i], b->tensors[i]);
	for (size_t i = 0; i < a->n_slices && same; i++)
		same = same_slice(&a->slices[i], &b->slices[i]);
	return same;
}

/* Devices that ask for the same share a want.  A target on the host, or in place, has a want of its
 * own, so that an image, or a tensor, has one place. */
static void find_want(struct hoist_load *load, const struct hoist__load_asked *asked, size_t t)
{
	struct hoist__target *target = &load->targets[t];
	size_t like = 0;
	while (like < t && (target->to_host || load->targets[like].to_host ||
			    !same_want(&asked->targets[like], &asked->targets[t])))
		like++;
	target->want = like < t ? load->targets[like].want : (unsigned)load->n_wants++;
}

/* --- devices --- */

/* Takes the device that is asked for, or the device of the stream or of the first buffer; else the
 * CPU. */
static int take_device(const hoist_load_target *asked, struct hoist__target *target)
{
	hoist_device *of_buffers =
		asked->n_into > 0 ? hoist__into_device(asked->into, asked->n_into) : NULL;
	int err = 0;
	if (asked->device != NULL)
		target->device = hoist_device_ref(asked->device);
	else if (asked->stream == NULL && of_buffers != NULL)
		target->device = hoist_device_ref(of_buffers);
	else if (asked->stream != NULL)
		target->device = hoist_device_ref(hoist_stream_device(asked->stream));
	else
		err = hoist_device_open("cpu", &target->device);
	if (err < 0)
		return err;
	target->to_host = hoist__device_is_cpu(target->device);
	return 0;
}

static const struct hoist__target *first_device(const struct hoist_load *load, size_t n)
{
	size_t t = 0;
	while (t < n && load->targets[t].to_host)
		t++;
	return t < n ? &load->targets[t] : NULL;
}

static int check_replica(const struct hoist_load *load, size_t t)
{
	const struct hoist__target *first = &load->targets[0];
	hoist_device *device = load->targets[t].device;
	if (first->to_host || hoist__dev_api(hoist__device_dev(device)) !=
				      hoist__dev_api(hoist__device_dev(first->device)))
		return hoist__fail(-ENOTSUP,
				   "replica %zu on %s of a load to %s: a load and its replicas go "
				   "to accelerators of one API; load twice instead",
				   t - 1, hoist_device_spec(device),
				   hoist_device_spec(first->device));
	for (size_t other = 0; other < t; other++)
		if (load->targets[other].device == device)
			return hoist__fail(-EINVAL,
					   "replica %zu on %s: the load goes to that device "
					   "already; name each device once",
					   t - 1, hoist_device_spec(device));
	return 0;
}

/* One slot is copied to all targets, so the slot's memory must be pinned for all of them. */
static int check_api(const struct hoist_load *load, size_t t)
{
	const struct hoist__target *target = &load->targets[t];
	const struct hoist__target *first = first_device(load, t);
	if (target->to_host || first == NULL ||
	    hoist__dev_api(hoist__device_dev(target->device)) ==
		    hoist__dev_api(hoist__device_dev(first->device)))
		return 0;
	return hoist__fail(-ENOTSUP,
			   "targets[%zu] is on %s, and another target on %s: the targets of a load "
			   "are on accelerators of one API, and on the CPU; load twice instead",
			   t, hoist_device_spec(target->device), hoist_device_spec(first->device));
}

/* Targets on one device share a stream of the load's own, so that a slot has one event for all of
 * them: a device copies from the host one after the other in any case.  NULL: there is none yet, or
 * the caller has named one. */
static const struct hoist__target *find_stream(const struct hoist_load *load,
					       const struct hoist__load_asked *asked, size_t t)
{
	const struct hoist__target *found = NULL;
	for (size_t like = 0; like < t && found == NULL && asked->targets[t].stream == NULL; like++)
		if (load->targets[like].device == load->targets[t].device &&
		    asked->targets[like].stream == NULL)
			found = &load->targets[like];
	return found;
}

static int take_target(struct hoist_load *load, const struct hoist__load_asked *asked, size_t t)
{
	struct hoist__target *target = &load->targets[t];
	int err = take_device(&asked->targets[t], target);
	load->n_targets += err == 0;
	if (err == 0 && load->options.targets == NULL)
		err = t > 0 ? check_replica(load, t) : 0;
	else if (err == 0)
		err = check_api(load, t);
	if (err < 0)
		return err;
	find_want(load, asked, t);
	if (target->to_host)
		return 0;
	const struct hoist__target *like = find_stream(load, asked, t);
	target->number = like != NULL ? like->number : load->n_streams++;
	if (like != NULL) {
		target->stream = hoist_stream_ref(like->stream);
		return 0;
	}
	if (asked->targets[t].stream == NULL)
		return hoist_stream_create(target->device, &target->stream);
	target->stream = hoist_stream_ref(asked->targets[t].stream);
	target->shares_stream = (load->options.flags & HOIST_LOAD_STREAM) != 0;
	return 0;
}

int hoist__load_take_targets(struct hoist_load *load, const struct hoist__load_asked *asked)
{
	load->targets = calloc(asked->n, sizeof *load->targets);
	if (load->targets == NULL)
		return hoist__fail_nomem("a load", asked->n * sizeof *load->targets);
	int err = 0;
	for (size_t t = 0; err == 0 && t < asked->n; t++)
		err = take_target(load, asked, t);
	load->to_host = load->n_streams == 0;
	load->maps = load->to_host && load->n_targets == 1 && load->options.io == HOIST_IO_MAP;
	return err;
}

int hoist__load_open_into(struct hoist_load *load, const struct hoist__load_asked *asked)
{
	struct hoist__into_target targets[HOIST__LOAD_TARGETS] = {{0}};
	bool any = false;
	for (size_t t = 0; t < load->n_targets; t++) {
		targets[t] = (struct hoist__into_target){
			.given = asked->targets[t].into,
			.n = asked->targets[t].n_into,
			.device = load->targets[t].device,
			.stream = load->targets[t].stream,
			.want = load->targets[t].want,
		};
		any = any || targets[t].n > 0;
	}
	if (any && load->maps)
		return hoist__fail(-EINVAL,
				   "a map is memory of its own, and cannot be put into buffers; "
				   "load in place (into) with another HOIST_IO than MAP");
	return any ? hoist__into_open(targets, load->n_targets, &load->into) : 0;
}

hoist_device *hoist__load_staging_device(const struct hoist_load *load)
{
	const struct hoist__target *first = first_device(load, load->n_targets);
	return first != NULL ? first->device : load->targets[0].device;
}
