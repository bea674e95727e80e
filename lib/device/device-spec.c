/* SPDX-License-Identifier: MIT */
/* lib/device/device-spec.c - opens a device by its spec ("cuda:1"), and counts the devices there
 * are.
 * The contract is in hoist/device.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hoist/compat.h"
#include "lib/core/options.h"
#include "lib/device/device-private.h"

static const char *api_title(enum hoist__api api)
{
	return api == HOIST__API_CUDA ? "CUDA" : api == HOIST__API_HIP ? "HIP" : "CPU";
}

/* Chooses the first accelerator API that has a device.  If no API has one, the message gives both
 * reasons; each begins with the name of its API. */
static int choose_gpu(enum hoist__api *ret)
{
	struct hoist__failure cuda;
	struct hoist__failure hip;
	int n;
	int err = hoist__dev_count(HOIST__API_CUDA, &n);
	if (err == 0) {
		*ret = HOIST__API_CUDA;
		return 0;
	}
	if (err != -ENODEV)
		return err;
	hoist__failure_keep(&cuda);
	err = hoist__dev_count(HOIST__API_HIP, &n);
	if (err == 0) {
		*ret = HOIST__API_HIP;
		return 0;
	}
	if (err != -ENODEV)
		return err;
	hoist__failure_keep(&hip);
	return hoist__fail_because(err, cuda.api != NULL ? &cuda : &hip,
				   "neither API has a device; %.511s; %s", cuda.text, hip.text);
}

static int fail_id(const char *text, enum hoist__api api, int count)
{
	const char *emulated = hoist__api_emulated(api) ? "emulated " : "";
	if (count == 1)
		return hoist__fail(-EINVAL, "\"%.64s\": this machine has 1 %s%s device; say %s:0",
				   text, emulated, api_title(api), hoist__api_name(api));
	return hoist__fail(-EINVAL,
			   "\"%.64s\": this machine has %d %s%s devices; say %s:0 to %s:%d", text,
			   count, emulated, api_title(api), hoist__api_name(api),
			   hoist__api_name(api), count - 1);
}

static int api_of(hoist_spec spec, enum hoist__api *ret)
{
	switch (spec.type) {
	case HOIST_SPEC_GPU:
		return choose_gpu(ret);
	case HOIST_SPEC_CUDA:
		*ret = HOIST__API_CUDA;
		return 0;
	case HOIST_SPEC_HIP:
		*ret = HOIST__API_HIP;
		return 0;
	default:
		*ret = HOIST__API_CPU;
		return 0;
	}
}

/* @text is the spec in the caller's words, for messages. */
static int open_spec(const char *text, hoist_spec spec, uint64_t memory_limit, hoist_device **ret)
{
	enum hoist__api api;
	int count = 0;
	int err = api_of(spec, &api);
	if (err == 0)
		err = hoist__dev_count(api, &count);
	if (err == 0 && spec.id >= count)
		return fail_id(text, api, count);
	if (err == 0 && api == HOIST__API_CPU && memory_limit != 0)
		return hoist__fail(-EINVAL,
				   "\"%.64s\": the CPU has no memory limit; limit its memory "
				   "resources instead (hoist_memory_options.limit_bytes)",
				   text);
	struct hoist__dev *dev = NULL;
	if (err == 0)
		err = hoist__dev_get(api, api == HOIST__API_CPU ? 0 : spec.id, &dev);
	hoist_device *device = NULL;
	if (err == 0)
		err = hoist__device_intern(dev, memory_limit, &device);
	if (err < 0)
		return hoist__fail_in(err, "\"%.64s\"", text);
	*ret = hoist_device_ref(device);
	return 0;
}

static int open_text(const char *text, uint64_t memory_limit, hoist_device **ret)
{
	hoist_spec spec;
	int err = hoist_spec_parse(text, 0, &spec);
	return err < 0 ? err : open_spec(text, spec, memory_limit, ret);
}

int hoist_device_open(const char *text, hoist_device **ret)
{
	return open_text(text, 0, ret);
}

int hoist_device_open_with(const char *text, const hoist_device_options *given, hoist_device **ret)
{
	hoist_device_options options;
	int err = hoist__options_in("hoist_device_options", given, &options, sizeof options);
	return err < 0 ? err : open_text(text, options.memory_limit, ret);
}

int hoist_device_count(const char *name, int *ret)
{
	for (int i = 0; name != NULL && i < HOIST__N_APIS; i++)
		if (strcmp(hoist__api_name((enum hoist__api)i), name) == 0)
			return hoist__dev_count((enum hoist__api)i, ret);
	return hoist__fail(-EINVAL, "\"%.64s\" names no API; say cpu, cuda or hip",
			   name != NULL ? name : "");
}

/* --- accelerators --- */

int hoist_accelerator_count(int *ret)
{
	enum hoist__api api;
	int err = choose_gpu(&api);
	if (err == -ENODEV) {
		*ret = 0;
		return 0;
	}
	return err < 0 ? err : hoist__dev_count(api, ret);
}

int hoist_accelerator_api(const char **ret)
{
	enum hoist__api api = HOIST__API_CPU;
	int err = choose_gpu(&api);
	if (err == 0 || err == -ENODEV) {
		*ret = hoist__api_name(api);
		return 0;
	}
	return err;
}

int hoist_accelerator_architecture(const char **ret)
{
	enum hoist__api api;
	struct hoist__dev *dev;
	int err = choose_gpu(&api);
	if (err == 0)
		err = hoist__dev_get(api, 0, &dev);
	if (err < 0)
		return hoist__fail_in(err, "the first accelerator's architecture");
	*ret = hoist__dev_props(dev)->architecture;
	return 0;
}

/* --- specs and the devices there are --- */

int hoist_spec_scan(unsigned flags, hoist_spec *specs, size_t n, size_t *ret)
{
	int gpus;
	if ((flags & ~HOIST_SCAN_CPU) != 0)
		return hoist__fail(-EINVAL, "unknown flags %#x for scanning devices", flags);
	int err = hoist_accelerator_count(&gpus);
	if (err < 0)
		return err;
	size_t cpus = gpus == 0 || flags & HOIST_SCAN_CPU ? 1 : 0;
	size_t found = cpus + (size_t)gpus;
	for (size_t i = 0; i < found && i < n; i++)
		specs[i] = i < cpus ? (hoist_spec){HOIST_SPEC_CPU, -1}
				    : (hoist_spec){HOIST_SPEC_GPU, (int)(i - cpus)};
	*ret = found;
	return 0;
}

/* Counts the devices of the spec's type: 0 without a driver or a device. */
static int count_of(hoist_spec spec, int *ret)
{
	enum hoist__api api;
	int err = api_of(spec, &api);
	if (err == 0)
		err = hoist__dev_count(api, ret);
	if (err != -ENODEV)
		return err;
	*ret = 0;
	return 0;
}

int hoist_spec_exist(const hoist_spec *specs, size_t n, int *ret)
{
	bool all = true;
	for (size_t i = 0; i < n; i++) {
		hoist_spec spec;
		int count = 0;
		int err = hoist_spec_make(specs[i].type, specs[i].id, &spec);
		if (err == 0 && spec.type != HOIST_SPEC_CPU)
			err = count_of(spec, &count);
		if (err < 0)
			return err;
		all = all && (spec.type == HOIST_SPEC_CPU || spec.id < count);
	}
	*ret = all;
	return 0;
}

static int open_one(const hoist_spec *spec, hoist_device **ret)
{
	char text[HOIST_SPEC_BYTES];
	int err = hoist_spec_format(*spec, text, sizeof text);
	if (err < 0)
		return err;
	hoist_spec any = *spec;
	if (any.type == HOIST_SPEC_CPU)
		any.id = 0;
	return open_spec(text, any, 0, ret);
}

/* All devices or none: @ret is written when every device is open. */
int hoist_spec_open(const hoist_spec *specs, size_t n, hoist_device **ret)
{
	hoist_device **opened = n > 0 ? calloc(n, sizeof(hoist_device *)) : NULL;
	if (n > 0 && opened == NULL)
		return hoist__fail_nomem("devices", n * sizeof(hoist_device *));
	int err = 0;
	size_t done = 0;
	while (err == 0 && done < n) {
		err = open_one(&specs[done], &opened[done]);
		if (err == 0)
			done++;
	}
	if (err < 0)
		err = hoist__fail_in(err, "spec %zu of %zu", done + 1, n);
	for (size_t i = 0; i < done; i++)
		if (err == 0)
			ret[i] = opened[i];
		else
			hoist_device_unref(opened[i]);
	free(opened);
	return err;
}
