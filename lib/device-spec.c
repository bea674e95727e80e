/* SPDX-License-Identifier: MIT */
/* lib/device-spec.c - from "cuda:1" to a device. */
#include "config.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "lib/device-private.h"

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

static int open_device(const char *text, uint64_t memory_limit, hoist_device **ret)
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
	if (err == 0 && spec.api == HOIST__API_CPU && memory_limit != 0)
		return hoist__fail(-EINVAL,
				   "\"%.64s\": the CPU has no memory limit; memory resources "
				   "have (hoist_memory_options)",
				   text);
	struct hoist__dev *dev = NULL;
	if (err == 0)
		err = hoist__dev_get(spec.api, spec.ordinal, &dev);
	hoist_device *device = NULL;
	if (err == 0)
		err = hoist__device_intern(dev, memory_limit, &device);
	if (err < 0)
		return hoist__fail_in(err, "\"%.64s\"", text);
	*ret = hoist_device_ref(device);
	return 0;
}

int hoist_device_open(const char *text, hoist_device **ret)
{
	return open_device(text, 0, ret);
}

int hoist_device_open_with(const char *text, const hoist_device_options *given, hoist_device **ret)
{
	hoist_device_options options;
	int err = hoist__options_in("hoist_device_options", given, &options, sizeof options);
	if (err < 0)
		return err;
	return open_device(text, options.memory_limit, ret);
}

int hoist_device_count(const char *name, int *ret)
{
	enum hoist__api api;
	if (name == NULL || parse_api(name, strlen(name), &api) < 0)
		return hoist__fail(-EINVAL, "\"%.64s\" names no API; say cpu, cuda or hip",
				   name != NULL ? name : "");
	return hoist__dev_count(api, ret);
}
