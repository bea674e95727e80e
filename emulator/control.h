/* SPDX-License-Identifier: MIT */
/* emulator/control.h - how a test steers and questions hoist's stand-in drivers.
 *
 * libhoist-emulated-cuda.so and libhoist-emulated-hip.so each export every function below beside
 * the driver's own.  The folder "drivers" beside them has both by the vendors' names, for programs
 * that know nothing of hoist (`hoist emulate`; doc/hoist-emulate.1 says how one tests one's own code
 * so).  The functions of CUDA's driver that the stand-in lacks answer NOT_SUPPORTED, and the report
 * counts them by name, under "not_supported".  hoist opens them privately, so find the functions in the library that is
 * already open:
 *
 *   void *so = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
 *   __typeof__(&hoist_emulator_fail) fail;
 *   *(void **)&fail = dlsym(so, "hoist_emulator_fail");
 *
 * Work, questions and waits for a stream are refused where the stream's device is not current.
 * Drivers take some of these calls; a program that makes none of them is right with every driver.
 *
 * The two libraries share nothing: each has its own devices, counters and faults.  All functions
 * may be called from any thread at any time.
 *
 * Environment, read at the library's first call:
 *   HOIST_EMULATE          cuda:2,hip:1   how many devices each stand-in shows
 *   HOIST_EMULATE_MEMORY   16G            memory of each device (K, M, G, T: powers of 1024)
 *   HOIST_EMULATE_RATE     0              bytes per second of each copy engine; 0: unlimited
 *   HOIST_EMULATE_LATENCY  10..200        microseconds from submission until an operation may
 *                                         start: MIN..MAX, or MAX alone
 *   HOIST_EMULATE_RESIDENT 0              bytes of each device that are populated at the start
 *                                         and stay so, as all memory of a real device is: for
 *                                         benchmarks, which otherwise time the kernel's page faults
 *   HOIST_EMULATE_REGISTER_MOST 0         bytes that one registration may have; 0: any number
 *   HOIST_EMULATE_SEED     1              of the pseudo-random latencies
 *   HOIST_EMULATE_FAIL     ""             faults, see hoist_emulator_fail()
 *   HOIST_EMULATE_REPORT   ""             a file to which the counters are appended at exit as
 *                                         one line of JSON, one line per process and stand-in
 *
 * Each device reserves four times its memory of address space, committed only when used.  If the
 * kernel refuses that (vm.overcommit_memory=2, ulimit -v), every allocation is "out of memory": set
 * HOIST_EMULATE_MEMORY lower.  A value that is not understood makes cuInit() or hipInit() fail with
 * "invalid value"; cuGetErrorString() or hipGetErrorString() of that code then names the value.
 */
#ifndef HOIST_EMULATOR_CONTROL_H
#define HOIST_EMULATOR_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HOIST_EMULATOR_API __attribute__((visibility("default")))

/* Every counter, once: its name here is its name in the report.  "live" counters tell how many
 * exist now, "peak" counters the most that ever existed; all others only count up. */
#define HOIST_EMULATOR_COUNTERS(X)                                                                 \
	X(calls)		/* driver calls of any kind */                                     \
	X(injected_failures)	/* faults that went off, asynchronous ones included */             \
	X(copies)		/* copies accepted, of any direction and shape */                  \
	X(memsets)		/* memsets accepted */                                             \
	X(host_calls)		/* calls of the program's functions, made */                       \
	X(bad_calls)		/* refused: driver calls out of such a function */                 \
	X(host_to_device_bytes) /* moved, not merely queued; likewise the next two */              \
	X(device_to_host_bytes)                                                                    \
	X(device_to_device_bytes)                                                                  \
	X(pageable_copies) /* copies accepted whose host side is not registered */                 \
	X(pageable_bytes)                                                                          \
	X(staged_copies)   /* between devices that the stream's does not both reach */             \
	X(bad_copies)	   /* refused: out of range, freed, or across registrations */             \
	X(bad_touches)	   /* work on memory of a peer that its device does not reach: it fails */ \
	X(bad_frees)	   /* a free or unregister of unknown memory */                            \
	X(use_after_free)  /* freed, unregistered or unmapped under a queued operation; HIP: an    \
			    * event asked whose stream is gone */                                  \
	X(broken_captures) /* calls that a capture forbids; see hoist_emulator_capture() */        \
	X(engine_busy_ns)  /* time the copy engines were taken at the set rate */                  \
	X(live_allocations)                                                                        \
	X(live_bytes) /* of devices: managed memory and what pools reserve included */             \
	X(peak_bytes)                                                                              \
	X(live_registrations)                                                                      \
	X(live_registered_bytes)                                                                   \
	X(peak_registered_bytes)                                                                   \
	X(live_streams)                                                                            \
	X(live_pools)	     /* made; a device's own is not counted */                             \
	X(live_imports)	     /* allocations of other processes that are open */                    \
	X(live_reservations) /* of addresses */                                                    \
	X(live_events)                                                                             \
	X(live_contexts) /* primary contexts retained; HIP has none */

struct hoist_emulator_counters {
#define X(name) uint64_t name;
	HOIST_EMULATOR_COUNTERS(X)
#undef X
};

HOIST_EMULATOR_API void hoist_emulator_counters(struct hoist_emulator_counters *ret);

/* Returns how often @function was called ("cuMemAlloc" or "cuMemAlloc_v2"); UINT64_MAX if the
 * stand-in has no such function. */
HOIST_EMULATOR_API uint64_t hoist_emulator_calls(const char *function);

/* Returns the functions of this stand-in by their exported symbols; NULL from the end on. */
HOIST_EMULATOR_API const char *hoist_emulator_function(unsigned index);

/* Replaces all faults by those of @spec; NULL or "" leaves none.
 *
 *   spec   = fault {"," fault}
 *   fault  = what ":" N ["+"] [":" code]
 *   what   = a function's name or symbol | "any" (any driver call) | "async" (a
 *            copy that is accepted and fails later, at synchronize or query)
 *
 * The Nth use counted from now fails, with "+" every use from then on; @code is
 * the driver's number, by default "out of memory" for what creates something,
 * "illegal address" for async and "unknown" for the rest.  A failing call does
 * nothing, except that a free, destroy or unregister does its work and then
 * says that it failed, as drivers do: so nothing leaks by injection alone.
 * Functions that begin with the other stand-in's prefix are ignored.
 * Returns: 0; -EINVAL (nothing changed) if @spec cannot be read or names a
 *   function that this stand-in has not; -E2BIG above 64 faults. */
HOIST_EMULATOR_API int hoist_emulator_fail(const char *spec);

/* Set the same values as the environment.  They hold for operations submitted from now on (the
 * rate: started from now on); the memory, for allocations from now on. */
HOIST_EMULATOR_API void hoist_emulator_set_rate(uint64_t bytes_per_second);
HOIST_EMULATOR_API void hoist_emulator_set_latency(unsigned min_us, unsigned max_us);
HOIST_EMULATOR_API void hoist_emulator_set_memory(uint64_t bytes);

/* Shows @count devices, of at most 64, from now on; never fewer than are shown already, as devices
 * do not go away.  HOIST_EMULATE need not name them. */
HOIST_EMULATOR_API void hoist_emulator_set_devices(int count);

/* Makes registrations of more than @bytes fail from now on, as "out of memory".  Drivers describe
 * the pages of a registration in one allocation of the kernel, whose size has a limit.  0: no
 * limit. */
HOIST_EMULATOR_API void hoist_emulator_set_register_most(uint64_t bytes);

/* While @hold is not 0, no stream starts an operation: a way to see lateness without a clock.  A
 * copy from pageable memory waits for itself, so it must not be submitted by the thread that will
 * end the hold.  Nor may a function that a stream calls end the hold. */
HOIST_EMULATOR_API void hoist_emulator_hold(int hold);

/* Returns where managed memory at @address is preferred to be: a device's ordinal; -1: nowhere; -2:
 * the host; -3 - n: NUMA node n of the host. */
HOIST_EMULATOR_API int hoist_emulator_preferred(uintptr_t address);

/* Makes the native stream @stream (not the NULL stream) begin or end the capture of a graph, in the
 * drivers' global mode.  While it captures, its work is accepted and not done.  A call that drivers
 * forbid meanwhile fails, breaks every capture and is counted:
 *   by a thread whose mode is not relaxed: allocating, freeing, registering; making,
 *     destroying and trimming pools; asking or waiting for an event or a stream
 *   by any thread: asking or waiting for this stream; for an event recorded on it meanwhile or,
 *     with HIP, at any time; making another stream wait for such an event; waiting for all
 *     streams of the stream's device
 * Returns: 0; -EINVAL (no such stream); -EALREADY; ending: -ECANCELED if the capture was broken. */
HOIST_EMULATOR_API int hoist_emulator_capture(void *stream, int on);

/* Ends a hold and all captures, drops all faults, and forgets the failures of streams.  Sets
 * everything that hoist_emulator_set_*() changed back to the environment's values, and zeroes all
 * counters but those of objects that are alive.  Objects that the program holds stay valid and
 * counted. */
HOIST_EMULATOR_API void hoist_emulator_reset(void);

#ifdef __cplusplus
}
#endif
#endif
