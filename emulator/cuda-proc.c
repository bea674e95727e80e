/* SPDX-License-Identifier: MIT */
/* emulator/cuda-proc.c - the stand-in for libcuda.so.1: addresses of functions, and the functions
 * that the stand-in lacks.
 *
 * A name asked of cuGetProcAddress() has no suffix: the newest symbol of that name which the
 * caller's version knows is found.  A function that is lacked has an address, too, as with a driver
 * that knows the function and a device that does not: calling it is NOT_SUPPORTED. */
#include "config.h"

#include <string.h>

#include "base/checked.h"
#include "emulator/cuda-face.h"
#include "emulator/cuda-thread.h"

/* --- functions that are lacked --- */

enum {
#define X(symbol, since) ABSENT_##symbol,
#include "emulator/cuda-absent.inc.h"
#undef X
	N_ABSENT
};

static uint64_t calls[N_ABSENT];

/* No argument is looked at, so that one type serves for all of them. */
static hoist__cu_result answer(unsigned function)
{
	bool ready = hoist__emu_cuda_ready();
	hoist__emu_lock();
	calls[function]++;
	hoist__emu_unlock();
	return ready ? HOIST__CU_ERROR_NOT_SUPPORTED : HOIST__CU_ERROR_NOT_INITIALIZED;
}

#define X(symbol, since)                                                                           \
	HOIST_EMULATOR_API hoist__cu_result symbol(void);                                          \
	hoist__cu_result symbol(void)                                                              \
	{                                                                                          \
		return answer(ABSENT_##symbol);                                                    \
	}
#include "emulator/cuda-absent.inc.h"
#undef X

const char *hoist__emu_cuda_absent(unsigned index, uint64_t *n_calls)
{
	static const char *const names[] = {
#define X(symbol, since) #symbol,
#include "emulator/cuda-absent.inc.h"
#undef X
	};
	if (index >= N_ABSENT)
		return NULL;
	*n_calls = calls[index];
	return names[index];
}

/* --- addresses --- */

typedef void (*address)(void);

struct symbol {
	const char *name;
	int since;
	address at;
};

static const struct symbol symbols[] = {
#define X(name, symbol, result, arguments, need, since) {#symbol, since, (address)symbol},
	TABLE(X)
#undef X
};

static const struct symbol absent[] = {
#define X(symbol, since) {#symbol, since, (address)symbol},
#include "emulator/cuda-absent.inc.h"
#undef X
};

/* True if @symbol is @name with or without a version: "cuMemAlloc" names cuMemAlloc_v2. */
static bool is_named(const char *symbol, const char *name)
{
	size_t n = strlen(name);
	return strncmp(symbol, name, n) == 0 &&
	       (symbol[n] == '\0' ||
		(symbol[n] == '_' && symbol[n + 1] == 'v' && symbol[n + 2] >= '2' &&
		 symbol[n + 2] <= '9' && symbol[n + 3] == '\0'));
}

/* A name with a version of its own is no name of a function. */
static bool has_version(const char *name)
{
	size_t n = strlen(name);
	return n > 3 && name[n - 3] == '_' && name[n - 2] == 'v';
}

static void search(const struct symbol *from, size_t n, const char *name, int version,
		   const struct symbol **found, int *status)
{
	for (size_t i = 0; i < n; i++) {
		if (!is_named(from[i].name, name))
			continue;
		if (from[i].since > version) {
			if (*found == NULL)
				*status = EMU_CU_NO_VERSION;
		} else if (*found == NULL || (*found)->since < from[i].since) {
			*found = &from[i];
			*status = EMU_CU_FOUND;
		}
	}
}

static int find(const char *name, void **ret, int version, uint64_t flags, int *status)
{
	const struct symbol *found = NULL;
	int state = EMU_CU_NO_SYMBOL;
	/* A driver refuses a version that is newer than the driver. */
	if (name == NULL || ret == NULL || version < 0 || version > EMU_CUDA_VERSION ||
	    flags > (EMU_CU_LEGACY_STREAM | EMU_CU_STREAM_OF_THREAD) ||
	    flags == (EMU_CU_LEGACY_STREAM | EMU_CU_STREAM_OF_THREAD))
		return EMU_INVALID_VALUE;
	if (!has_version(name)) {
		search(symbols, HOIST__ARRAY_SIZE(symbols), name, version, &found, &state);
		search(absent, HOIST__ARRAY_SIZE(absent), name, version, &found, &state);
	}
	address at = found == NULL ? NULL : found->at;
	address of_thread = at != NULL && flags == EMU_CU_STREAM_OF_THREAD
				    ? hoist__emu_cuda_of_thread(found->name)
				    : NULL;
	if (of_thread != NULL)
		at = of_thread;
	memcpy(ret, &at, sizeof *ret);
	if (status != NULL)
		*status = state;
	return EMU_SUCCESS;
}

/* Neither needs cuInit(). */
hoist__cu_result cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags)
{
	int result = hoist__emu_enter(FN_cuGetProcAddress);
	int status = EMU_CU_FOUND;
	if (result == EMU_SUCCESS)
		result = find(name, ret, version, flags, &status);
	/* This older function has no status to give. */
	if (result == EMU_SUCCESS && status != EMU_CU_FOUND)
		result = EMU_NOT_FOUND;
	return (hoist__cu_result)result;
}

hoist__cu_result cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags,
				     int *status)
{
	int result = hoist__emu_enter(FN_cuGetProcAddress_v2);
	if (result == EMU_SUCCESS)
		result = find(name, ret, version, flags, status);
	return (hoist__cu_result)result;
}
