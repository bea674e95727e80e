/* SPDX-License-Identifier: MIT */
/* emulator/core.c - the state of a stand-in driver, its initialisation, and the entry of every
 * call.
 * The contract is in emulator/core.h. */
#include "config.h"

#include "emulator/core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct hoist__emu hoist__emu = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.progress = PTHREAD_COND_INITIALIZER,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* True in a child that the process forked. */
static bool is_child;

static void note_child(void)
{
	is_child = true;
}

/* A mistake is kept as text: hoist__emu_init() then fails, and the text tells why. */
static void read_environment(void)
{
	struct hoist__emu *emu = &hoist__emu;
	emu->pid = (int)getpid();
	if (pthread_atfork(NULL, NULL, note_child) != 0)
		(void)snprintf(emu->problem, sizeof emu->problem, "out of memory");
	if (emu->problem[0] != '\0' ||
	    !hoist__emu_settings_read(&emu->environment, emu->problem, sizeof emu->problem))
		emu->environment.n_devices = 0;
	emu->now = emu->environment;
	const char *faults = secure_getenv("HOIST_EMULATE_FAIL");
	hoist__emu_lock();
	if (hoist__emu_faults_set(faults) < 0)
		(void)snprintf(emu->problem, sizeof emu->problem,
			       "HOIST_EMULATE_FAIL=%.80s is not understood", faults);
	for (int i = 0; i < EMU_MAX_DEVICES; i++) {
		struct hoist__emu_device *device = &emu->devices[i];
		device->ordinal = i;
		hoist__list_init(&device->blocks);
		hoist__list_init(&device->streams);
		hoist__list_init(&device->pools);
		device->rover = &device->blocks;
		if (i < emu->environment.n_devices && emu->environment.resident > 0)
			hoist__emu_make_resident(device);
	}
	hoist__emu_unlock();
}

void hoist__emu_load_environment(void)
{
	(void)pthread_once(&once, read_environment);
}

/* A forked child has no stream threads, and its copy of the lock may be held for ever: it must be
 * refused before the lock is taken. */
static bool forked(void)
{
	hoist__emu_load_environment();
	return is_child;
}

EMU_THREAD_LOCAL bool hoist__emu_in_call;

static int count_call(unsigned function)
{
	hoist__emu_lock();
	hoist__emu.calls[function]++;
	hoist__emu.count.calls++;
	int code = hoist__emu_fault_due((int)function);
	if (hoist__emu_in_call) {
		hoist__emu.count.bad_calls++;
		code = EMU_NOT_PERMITTED;
	}
	hoist__emu_unlock();
	return code;
}

int hoist__emu_enter(unsigned function)
{
	return forked() ? EMU_NOT_INITIALIZED : count_call(function);
}

int hoist__emu_enter_free(unsigned function, int *forced)
{
	if (forked())
		return EMU_NOT_INITIALIZED;
	*forced = count_call(function);
	return EMU_SUCCESS;
}

int hoist__emu_init(void)
{
	if (hoist__emu.problem[0] != '\0')
		return EMU_INVALID_VALUE;
	return hoist__emu.environment.n_devices == 0 ? EMU_NO_DEVICE : EMU_SUCCESS;
}

struct hoist__emu_device *hoist__emu_device(int ordinal)
{
	/* hoist_emulator_set_devices() may raise the number meanwhile. */
	if (ordinal < 0 ||
	    ordinal >= __atomic_load_n(&hoist__emu.environment.n_devices, __ATOMIC_ACQUIRE))
		return NULL;
	return &hoist__emu.devices[ordinal];
}

/* The words follow those of NVIDIA's driver. */
const char *hoist__emu_error_text(int code)
{
	switch (code) {
	case EMU_SUCCESS:
		return "no error";
	case EMU_INVALID_VALUE:
		return hoist__emu.problem[0] != '\0' ? hoist__emu.problem : "invalid argument";
	case EMU_OUT_OF_MEMORY:
		return "out of memory";
	case EMU_NOT_INITIALIZED:
		return "initialization error";
	case EMU_NO_DEVICE:
		return "no emulated device: HOIST_EMULATE asks for none";
	case EMU_INVALID_DEVICE:
		return "invalid device ordinal";
	case EMU_INVALID_CONTEXT:
		return "invalid device context";
	case EMU_OPERATING_SYSTEM:
		return "OS call failed or operation not supported on this OS";
	case EMU_INVALID_HANDLE:
		return "invalid resource handle";
	case EMU_NOT_FOUND:
		return "named symbol not found";
	case EMU_NOT_READY:
		return "device not ready";
	case EMU_PEER_ENABLED:
		return "access to the peer has been enabled already";
	case EMU_ILLEGAL_ADDRESS:
		return "an illegal memory access was encountered";
	case EMU_CONTEXT_DESTROYED:
		return "context is destroyed";
	case EMU_ALREADY_REGISTERED:
		return "part or all of the requested memory range is already mapped";
	case EMU_NOT_REGISTERED:
		return "pointer does not correspond to a registered memory region";
	case EMU_NOT_PERMITTED:
		return "operation not permitted in a call that the driver makes";
	case EMU_NOT_SUPPORTED:
		return "the stand-in does not do this";
	case EMU_CAPTURE_UNSUPPORTED:
		return "operation not permitted when stream is capturing";
	case EMU_CAPTURE_INVALID:
		return "operation failed due to a previous error during capture";
	case EMU_CAPTURE_ISOLATION:
		return "dependency created on uncaptured work in another stream";
	case EMU_CAPTURE_IMPLICIT:
		return "operation would make the legacy stream depend on a capturing stream";
	case EMU_CAPTURED_EVENT:
		return "operation not permitted on an event last recorded in a capturing stream";
	default:
		return "emulated failure";
	}
}

uint64_t hoist__emu_now_ns(void)
{
	struct timespec t = {0};
	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail for this clock */
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void hoist__emu_sleep_until(uint64_t ns)
{
	if (ns <= hoist__emu_now_ns())
		return;
	struct timespec t = {
		.tv_sec = (time_t)(ns / 1000000000u),
		.tv_nsec = (long)(ns % 1000000000u),
	};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
	}
}
