/* SPDX-License-Identifier: MIT */
/* tests/support/emulator-driver.h - a stand-in driver, opened as hoist opens it; and the controls
 * of one that hoist opened.
 *
 *   struct cuda cu;
 *   cuda_open(&cu, "cuda:2");      cu.cuMemAlloc(...), cu.control.fail("cuInit:1")
 *
 * The members are made from the driver tables, so that a new row can be tested
 * without a line here.  A library that cannot be opened aborts the program, which
 * ends a test of any kind. */
#ifndef HOIST_TESTS_EMULATOR_DRIVER_H
#define HOIST_TESTS_EMULATOR_DRIVER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/cuda-table.h"
#include "device/device.h"
#include "device/hip-table.h"
#include "emulator/control.h"

struct control {
	void (*counters)(struct hoist_emulator_counters *ret);
	uint64_t (*calls)(const char *function);
	const char *(*function)(unsigned index);
	int (*fail)(const char *spec);
	void (*set_rate)(uint64_t bytes_per_second);
	void (*set_latency)(unsigned min_us, unsigned max_us);
	void (*set_memory)(uint64_t bytes);
	void (*set_register_most)(uint64_t bytes);
	void (*hold)(int hold);
	int (*capture)(void *stream, int on);
	void (*reset)(void);
};

struct cuda {
	void *so;
	struct control control;
#define X(name, symbol, result, arguments, need, since) result(*name) arguments;
	HOIST__CUDA_TABLE(X)
#undef X
};

struct hip {
	void *so;
	struct control control;
#define X(name, symbol, result, arguments, need, since) result(*name) arguments;
	HOIST__HIP_TABLE(X)
#undef X
};

/* False where the stand-in drivers are not built. */
static inline bool have_stand_ins(void)
{
	setenv("HOIST_EMULATOR_DIR", EMULATOR_DIR, 0);
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/libhoist-emulated-cuda.so",
		       getenv("HOIST_EMULATOR_DIR"));
	return access(path, R_OK) == 0;
}

static inline void *driver_symbol(void *so, const char *name)
{
	void *symbol = dlsym(so, name);
	if (symbol == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		abort();
	}
	return symbol;
}

static inline void control_find(void *so, struct control *control)
{
#define CONTROL(name) *(void **)&control->name = driver_symbol(so, "hoist_emulator_" #name)
	CONTROL(counters);
	CONTROL(calls);
	CONTROL(function);
	CONTROL(fail);
	CONTROL(set_rate);
	CONTROL(set_latency);
	CONTROL(set_memory);
	CONTROL(set_register_most);
	CONTROL(hold);
	CONTROL(capture);
	CONTROL(reset);
#undef CONTROL
}

/* The controls of the stand-in that hoist has opened for @api. */
static inline void control_of(enum hoist__api api, struct control *control)
{
	control_find(dlopen(hoist__api_library(api), RTLD_NOW | RTLD_NOLOAD), control);
}

static inline void *driver_open(const char *name, const char *emulate, struct control *control)
{
	const char *folder = getenv("HOIST_EMULATOR_DIR");
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/%s", folder == NULL ? "../emulator/.libs" : folder,
		       name);
	(void)setenv("HOIST_EMULATE", emulate, 1);
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (so == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		abort();
	}
	control_find(so, control);
	return so;
}

static inline void cuda_open(struct cuda *cu, const char *emulate)
{
	void *so = driver_open("libhoist-emulated-cuda.so", emulate, &cu->control);
	cu->so = so;
#define X(name, symbol, result, arguments, need, since)                                            \
	*(void **)&cu->name = driver_symbol(so, #symbol);
	HOIST__CUDA_TABLE(X)
#undef X
}

static inline void hip_open(struct hip *hip, const char *emulate)
{
	void *so = driver_open("libhoist-emulated-hip.so", emulate, &hip->control);
	hip->so = so;
#define X(name, symbol, result, arguments, need, since)                                            \
	*(void **)&hip->name = driver_symbol(so, #symbol);
	HOIST__HIP_TABLE(X)
#undef X
}

/* Opens, initialises, and makes device @ordinal's context current. */
static inline void cuda_start(struct cuda *cu, const char *emulate, int ordinal)
{
	hoist__cu_context context = NULL;
	cuda_open(cu, emulate);
	if (cu->cuInit(0) != 0 || cu->cuDevicePrimaryCtxRetain(&context, ordinal) != 0 ||
	    cu->cuCtxPushCurrent(context) != 0) {
		fprintf(stderr, "the emulated device does not start\n");
		abort();
	}
}

static inline struct hoist_emulator_counters counters_of(const struct control *control)
{
	struct hoist_emulator_counters count;
	control->counters(&count);
	return count;
}

#endif
