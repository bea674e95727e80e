/* SPDX-License-Identifier: MIT */
/* device/device.h - raw memory, streams, events and copies of one device.
 *
 * The lowest view of an accelerator: what a driver gives, with hoist's error
 * codes and nothing added.  Three backends stand behind one vtable (`struct
 * hoist__dev_ops`): cpu.c, cuda.c and hip.c.  Everything above, alloc/ first,
 * sees devices only through this header.
 *
 *   api       CPU, CUDA or HIP
 *   ordinal   the driver's number for the device, 0 .. count-1; the CPU is 0
 *   dev       one object per (api, ordinal), interned, alive until the process
 *             ends; getting one opens the driver but makes no context
 *   context   the device's primary context; retained by the first call below
 *             that is marked [context], released never (drivers may be half
 *             torn down when destructors run).  The caller's current context
 *             is saved and restored around every call, or around a scope of
 *             many calls (scope.h)
 *   stream    a queue of work, done in order.  Each CPU stream is a queue with a
 *             thread of its own
 *   event     a point in a stream; records nothing until hoist__dev_event_record()
 *
 * Addresses: device memory is an integer (`uintptr_t`), never dereferenced
 * here.  Host memory given to an asynchronous copy stays the caller's until an
 * event recorded behind the copy has completed.
 *
 * Errors: -ENODEV (no library, no symbol, no device, driver too old: four
 * different messages, each with its remedy), -ENOSPC (device memory is
 * exhausted), -EREMOTEIO (the driver's call failed; its name for the error is
 * in the text), -ESTALE (called in a child after fork; for the CPU only
 * with streams and events that the parent made).
 *
 * Threads: every function may be called from any thread, and on one object
 * from several at once, except destroy.
 *
 * Capture: while any stream captures a graph, any thread may ask for memory, registrations,
 * events and pools, and give them back.  The capture stays whole.
 *
 * Emulation: HOIST_EMULATE=cuda:N or hip:N (comma-separated for both) makes
 * this folder open hoist's stand-in drivers instead of the vendor's; see
 * emulator/.  hoist__api_emulated() says so and everything shown to a user
 * must repeat it.
 */
#ifndef HOIST_DEVICE_DEVICE_H
#define HOIST_DEVICE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hoist__api { HOIST__API_CPU, HOIST__API_CUDA, HOIST__API_HIP, HOIST__N_APIS };

struct hoist__dev;
struct hoist__dev_stream;
struct hoist__dev_event;
struct hoist__dev_pool;

struct hoist__dev_props {
	char name[128];	       /* "NVIDIA H200", the CPU's model name */
	char architecture[32]; /* "sm_90", "gfx942"; the machine for the CPU: "x86_64" */
	char pci[16];	       /* "0000:65:00.0" in lower case; "" for the CPU */
	uint64_t total_bytes;  /* device memory; physical memory for the CPU */
	int numa_node;	       /* as the driver says; -1 where it does not say */
	int driver_version;    /* as the driver encodes it (13000); 0 for the CPU */
	bool emulated;
	bool is_unified; /* as the driver says: device and host share one memory */
};

/* --- finding devices; none of these makes a context --- */

/* "cpu", "cuda", "hip". */
const char *hoist__api_name(enum hoist__api api);

/* True if HOIST_EMULATE selects a stand-in for @api. */
bool hoist__api_emulated(enum hoist__api api);

/* The path of the driver library that was opened for @api; "" if none. */
const char *hoist__api_library(enum hoist__api api);

/* The reason that this library was opened, in words; "" if none was. */
const char *hoist__api_library_reason(enum hoist__api api);

/* The state of @api's driver.  Opens nothing, is cheap, and takes no lock.
 * Returns: 0 (the driver is open); -ENOENT (nobody has tried to open it); -ENODEV (it could not be
 * opened, or has no device); neither of these two sets a text; -ESTALE. */
int hoist__api_opened(enum hoist__api api);

/* How many devices the driver offers, at least 1.
 * Returns: 0; -ENODEV with the reason (also when the driver is present but has
 *   no device); -EINVAL if HOIST_EMULATE is malformed; -ESTALE.  After
 *   a failure the next call looks again. */
int hoist__dev_count(enum hoist__api api, int *ret);

/* Returns: 0; -ENODEV; -EINVAL if @ordinal is not below the count (the text
 *   names both).  The object is interned: equal arguments, equal pointers. */
int hoist__dev_get(enum hoist__api api, int ordinal, struct hoist__dev **ret);

enum hoist__api hoist__dev_api(const struct hoist__dev *dev);
int hoist__dev_ordinal(const struct hoist__dev *dev);
const struct hoist__dev_props *hoist__dev_props(const struct hoist__dev *dev);

/* 0, or -ESTALE if @dev's driver was opened by the process that forked this one.
 * The CPU has no driver that fork could break.  All functions below ask this first.
 * Costs a load and a comparison, no system call. */
int hoist__dev_check(const struct hoist__dev *dev);

/* --- fork --- */

/* The number of this process.  It grows by one in each child of fork(), once this process or a
 * parent of it has called hoist__fork_watch().  An object that keeps the number of the process that
 * made it tells from a relaxed load whether this is still that process.  A child made without the C
 * library's fork handlers (clone(2), _Fork(), vfork()) has its parent's number: hoist does not
 * notice such a child, which may only exec. */
extern _Atomic unsigned hoist__fork_generation;

static inline unsigned hoist__fork_now(void)
{
	return atomic_load_explicit(&hoist__fork_generation, memory_order_relaxed);
}

/* Counts forks from now on.  The first request for a device, the CPU included, calls this.  Cheap
 * when repeated.  Returns: 0; -ENOMEM. */
int hoist__fork_watch(void);

/* --- memory --- */

/* [context] The device's free bytes and all its bytes, now; for the CPU
 * MemAvailable and MemTotal. */
int hoist__dev_mem_info(struct hoist__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes);

/* [context] @bytes of device memory, which the driver aligns to at least 256.
 * The CPU gives page-aligned anonymous memory.
 * Returns: 0; -EINVAL if bytes is 0; -ENOSPC; (CPU: -ENOMEM); -EREMOTEIO. */
int hoist__dev_mem_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret);

/* [context] @bytes that host and device share.  The driver moves them to the side that touches
 * them.  The caller gives them back with hoist__dev_mem_free().
 * Returns: 0; -EINVAL if bytes is 0; -ENOTSUP (the CPU, or the device cannot); -ENOSPC;
 *   -EREMOTEIO. */
int hoist__dev_managed_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret);

/* Where the driver should prefer to keep managed memory. */
enum hoist__prefer {
	HOIST__PREFER_NONE,
	HOIST__PREFER_DEVICE,
	HOIST__PREFER_HOST,
	HOIST__PREFER_NODE
};

/* [context] Sets @prefer for the @bytes at @address, which hoist__dev_managed_alloc() gave.  @node
 * counts with NODE only.  NONE does nothing.
 * Returns: 0; -ENOTSUP (the driver or the device has no such preference); -EREMOTEIO, -ESTALE. */
int hoist__dev_managed_prefer(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			      enum hoist__prefer prefer, int node);

/* @address from hoist__dev_mem_alloc() with the same @bytes; 0 is ignored.
 * The driver, not hoist, waits for work in flight on the memory: callers free
 * only memory that no stream still uses. */
int hoist__dev_mem_free(struct hoist__dev *dev, uintptr_t address, size_t bytes);

/* [context] Page-locks and maps [address, address+bytes) for every device of
 * this api (portable).  One registration per range; ranges must not overlap.
 * The CPU: mlock.  A copy must lie within one registration: drivers refuse a
 * copy that runs into the next one.
 * Returns: 0; -EPERM (memlock limit, with the remedy); -ENOMEM; -EREMOTEIO. */
int hoist__dev_host_register(struct hoist__dev *dev, void *address, size_t bytes);

/* The same of memory that may be mapped without write permission: devices only read it.  The plain
 * registration of such memory fails, as it pins the pages for writing.
 * Returns: as above; -ENOTSUP, HIP, or a device without
 *   CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED. */
int hoist__dev_host_register_read_only(struct hoist__dev *dev, void *address, size_t bytes);

int hoist__dev_host_unregister(struct hoist__dev *dev, void *address, size_t bytes);

/* The address by which kernels on @dev see registered host memory. */
int hoist__dev_host_address(struct hoist__dev *dev, void *address, uintptr_t *ret);

/* --- more of a device --- */

/* [context] of both devices.  *ret is true if copies and kernels of @dev reach @peer's memory
 * directly.  A device always reaches its own memory, and never that of a device of another api.
 * The first yes enables the access, which drivers do not do by themselves.  The access covers
 * memory of any age, also that of the driver's pools.  The other direction is another question.  If
 * the driver refuses to enable the access, the answer is no from then on.
 * Returns: 0; -ENOSPC (a context does not fit), -EREMOTEIO, -ESTALE. */
int hoist__dev_can_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret);

/* [context] Blocks until all work on the device is done, on every stream of every owner.  A device
 * without a context has no work.  The CPU, whose streams know only themselves, returns 0.
 * While a stream of the device captures a graph, drivers refuse this wait and break the capture.
 * So the answer is -EBUSY if that stream is one of hoist's, or one that the legacy default stream
 * waits for.  Nobody can know of other streams.
 * A stream's own synchronize, not this one, reports calls that failed.
 * Returns: 0; -EBUSY; -EREMOTEIO (work failed), -ESTALE. */
int hoist__dev_synchronize(struct hoist__dev *dev);

/* True if hoist has enabled @dev's access to memory of @peer, another device of its api. */
bool hoist__dev_reaches(const struct hoist__dev *dev, const struct hoist__dev *peer);

/* The first gives the number of the next hoist__dev_synchronize() to begin, on any device.  The
 * second is true once a wait for @dev with that number or a later one has succeeded.  Work that was
 * queued on @dev, on any stream, when the number was asked for is done then. */
uint64_t hoist__dev_next_wait(void);
bool hoist__dev_waited(const struct hoist__dev *dev, uint64_t wait);

/* A driver's knowledge of an address. */
struct hoist__pointer {
	enum hoist__api api;	  /* of the driver that knows the address; CPU: none does */
	int ordinal;		  /* of the device that owns the memory; -1: none */
	bool host;		  /* the CPU may touch the memory */
	bool device;		  /* kernels may touch the memory */
	bool managed;		  /* the driver moves the memory */
	uintptr_t device_address; /* as kernels see the memory; 0 unless device */
	uintptr_t host_address;	  /* as the CPU sees the memory; 0 unless host */
};

/* Asks each driver that this process has loaded, by hoist or by others; opens none, and makes no
 * context.  An address that no driver knows is the host's: {CPU, -1, true, false, false, 0, ADDRESS}.
 * Returns: 0; -EREMOTEIO, -ESTALE. */
int hoist__pointer_find(uintptr_t address, struct hoist__pointer *ret);

/* --- streams [context] --- */

int hoist__dev_stream_create(struct hoist__dev *dev, struct hoist__dev_stream **ret);

/* Wraps a native handle (CUstream, hipStream_t, as a pointer) that stays the
 * caller's.  NULL is the legacy default stream, and 1 is another name of it.  -ENOTSUP on the CPU,
 * and for 2, which names a different stream in each thread. */
int hoist__dev_stream_wrap(struct hoist__dev *dev, void *native, struct hoist__dev_stream **ret);

/* Takes NULL.  Waits for queued work, unless the stream captures.  Then ends the stream's events:
 * they have completed, and no driver is asked about them any more.  The events are lost if the
 * stream captured, or if the caller destroyed its native handle first and the driver can say so.  A
 * lost event has completed when a later hoist__dev_synchronize() has succeeded; waiting for the
 * event makes that call.  A wrapped native handle is left alone. */
void hoist__dev_stream_destroy(struct hoist__dev_stream *stream);

/* NULL on the CPU.  The caller can make the stream capture by this handle, so from now on the
 * stream counts as one that may capture. */
void *hoist__dev_stream_native(struct hoist__dev_stream *stream);
struct hoist__dev *hoist__dev_stream_dev(const struct hoist__dev_stream *stream);

/* Blocks until all queued work is done; returns the first error of that work
 * since the last synchronize.  A call's error is returned before the driver's. */
int hoist__dev_stream_synchronize(struct hoist__dev_stream *stream);

/* The same for a caller that only needs the work to be done.  The failure of a call is not
 * returned, and stays for the next synchronize. */
int hoist__dev_stream_await(struct hoist__dev_stream *stream);

/* True in a function that a stream of the CPU calls.  A wait for a stream in such a function may
 * wait for the function itself. */
bool hoist__in_cpu_stream(void);

/* Calls run(context) sooner or later, in a thread that belongs to no stream.
 * Returns: 0; -ENOMEM, -EAGAIN: run is not called. */
int hoist__leave_cpu_stream(void *(*run)(void *context), void *context);

/* 0 idle, -EAGAIN busy, other: work failed. */
int hoist__dev_stream_query(struct hoist__dev_stream *stream);

/* *ret is true while @stream captures a graph, also if that capture is broken already.  For the
 * NULL stream it is true also while work on it would break another stream's capture.  It is false
 * where the driver cannot say.  Asking breaks no capture; a query or a record would.
 * Returns: 0; -EREMOTEIO; -EBADF (HIP: @stream is wrapped, and its native handle was destroyed). */
int hoist__dev_stream_capturing(struct hoist__dev_stream *stream, bool *ret);

/* False as long as nobody can make @stream capture.  That is so on the CPU, and for a stream that
 * was created here, never waited for an event, and whose native handle was never asked for.  Costs
 * a load, no driver call. */
bool hoist__dev_stream_may_capture(const struct hoist__dev_stream *stream);

/* True if a wait for @stream may break a capture: the stream captures, or the driver, asked twice,
 * does not say.  Keeps the caller's error text. */
bool hoist__dev_stream_forbids_wait(struct hoist__dev_stream *stream);

/* Later work on @stream waits for @event; the host does not.  The event may be
 * another stream's, of the same api.  If the event was never recorded, nothing waits. */
int hoist__dev_stream_wait_event(struct hoist__dev_stream *stream, struct hoist__dev_event *event);

/* --- events [context] --- */

#define HOIST__EVENT_TIMING 1u /* hoist__dev_event_elapsed_ns() will be asked */

int hoist__dev_event_create(struct hoist__dev *dev, unsigned flags, struct hoist__dev_event **ret);
void hoist__dev_event_destroy(struct hoist__dev_event *event); /* takes NULL */
int hoist__dev_event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream);

/* Neither asks a driver where the question could reach a stream that is gone, or break a capture
 * that the event's stream began since.  HIP: while that stream captures, query returns -EAGAIN and
 * synchronize -ENOTSUP.  For a lost event synchronize waits for the device, or returns -EBUSY if
 * that is not possible now.  Neither may run while another thread records the event. */
int hoist__dev_event_query(struct hoist__dev_event *event);	      /* 0, -EAGAIN, error */
int hoist__dev_event_synchronize(struct hoist__dev_event *event); /* blocks, sleeping */
int hoist__dev_event_elapsed_ns(struct hoist__dev_event *start, struct hoist__dev_event *end,
			    uint64_t *ret);

/* --- the driver's own stream-ordered pools [context] --- */

/* In the order of HOIST_POOL_* (hoist/memory.h). */
enum hoist__pool_attribute {
	HOIST__POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES,
	HOIST__POOL_REUSE_ALLOW_OPPORTUNISTIC,
	HOIST__POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
	HOIST__POOL_RELEASE_THRESHOLD,
	HOIST__POOL_RESERVED_CURRENT,
	HOIST__POOL_RESERVED_HIGH,
	HOIST__POOL_USED_CURRENT,
	HOIST__POOL_USED_HIGH,
	HOIST__N_POOL_ATTRIBUTES
};

/* A pool of @dev's memory of at most @max_bytes (0: no limit; where the driver is too old for
 * limits, another value is -ENOTSUP).  Its release threshold is UINT64_MAX, so that freed memory
 * stays in the pool.  A driver that ignores the threshold (HIP) is no error.
 * Returns: 0; -ENOTSUP (the CPU; the driver or device has no pools); -ENOMEM; -EREMOTEIO. */
int hoist__dev_pool_create(struct hoist__dev *dev, size_t max_bytes, struct hoist__dev_pool **ret);

/* The device's current pool, which belongs to the driver.  This call leaves its attributes as they
 * were, and destroying the object leaves the pool alone. */
int hoist__dev_pool_current(struct hoist__dev *dev, struct hoist__dev_pool **ret);

/* Takes NULL.  All blocks of the pool must be freed before.  The driver keeps the memory until
 * those frees have passed in their streams. */
void hoist__dev_pool_destroy(struct hoist__dev_pool *pool);

/* Both act in the order of @stream, a stream of the pool's device.  Freeing 0 does nothing.
 * Returns: 0; -EINVAL (0 bytes, another device's stream); -ENOSPC; -EREMOTEIO; -ESTALE. */
int hoist__dev_pool_alloc(struct hoist__dev_pool *pool, size_t bytes,
			  struct hoist__dev_stream *stream, uintptr_t *ret);
int hoist__dev_pool_free(struct hoist__dev_pool *pool, uintptr_t address,
			 struct hoist__dev_stream *stream);

/* Gives free memory back to the device until no more than @keep_bytes are reserved.  Memory is
 * free once its stream has passed the free.  Returns: 0; -EREMOTEIO; -ESTALE. */
int hoist__dev_pool_trim(struct hoist__dev_pool *pool, size_t keep_bytes);

/* Flags are 0 and 1.  Returns: 0; -EINVAL (set: *_CURRENT, a flag above 1, *_HIGH to anything
 *   but 0); -ENOTSUP (an attribute newer than the driver); -EREMOTEIO. */
int hoist__dev_pool_get(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t *ret);
int hoist__dev_pool_set(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t value);

/* Whether kernels and copies of @peer reach the pool's memory.  The pool's own device always does;
 * a device of another api never does.  A peer whose access to the pool's device is enabled
 * (hoist__dev_can_access()) has access to the pool, unless that was set to false.  For an imported
 * pool both functions mean the access of this process only.
 * Returns: 0; -EINVAL (set: a device of another api; the own device, to false); -EREMOTEIO (set:
 *   also where @peer cannot reach the device at all); -ESTALE. */
int hoist__dev_pool_set_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool allowed);
int hoist__dev_pool_get_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool *ret);

/* CUmemoryPool or hipMemPool_t, valid as long as @pool. */
void *hoist__dev_pool_native(const struct hoist__dev_pool *pool);

/* --- asynchronous work --- */

enum hoist__copy {
	HOIST__COPY_HOST_TO_DEVICE,
	HOIST__COPY_DEVICE_TO_HOST,
	HOIST__COPY_DEVICE_TO_DEVICE /* within one device; the CPU's only direction is this one */
};

/* Queues a copy of @bytes (0 is a no-op).  On the CPU all kinds are memcpy in
 * the stream's thread.  For CUDA and HIP the host side should be registered
 * memory.  A driver copies pageable memory synchronously through its own
 * buffers; hoist never asks for that. */
int hoist__copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
		      uintptr_t src, size_t bytes);

/* Queues a copy between two devices of one api (either may be the stream's).  The access of the
 * stream's device to the other's memory is enabled, so that the copy goes directly.  Where the
 * access cannot be enabled, the driver copies through the host, and the log says why. */
int hoist__copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
			   uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src, size_t bytes);

/* A copy of rows: @width bytes each, contiguous on both sides, @rows of them to a plane, @planes
 * planes.  Each side has its own distance from row to row and from plane to plane.  A distance is
 * at least the size of the row or plane: rows and planes of one side never overlap, and their
 * addresses grow. */
struct hoist__box {
	uintptr_t dst;
	uintptr_t src;
	size_t width;
	size_t rows;
	size_t planes;
	size_t dst_pitch; /* bytes from row to row */
	size_t src_pitch;
	size_t dst_plane; /* bytes from plane to plane */
	size_t src_plane;
};

/* Queues the copy: one driver call where the driver has one for the shape, else a few.  There is
 * one call for each plane where a distance between planes is no multiple of the pitch, or more than
 * the driver takes.  There is one for each row where a pitch is more than the driver takes, or is
 * refused.  0 bytes are a no-op.
 * Returns: 0; -EINVAL (a distance that is too small); -EREMOTEIO, -ESTALE; CPU: -ENOMEM. */
int hoist__copy_box_async(struct hoist__dev_stream *stream, enum hoist__copy kind,
			  const struct hoist__box *box);

/* Queues setting @n elements of @width bytes (1, 2 or 4) to the low bytes of @value; @dst is a
 * multiple of @width.  0 elements are a no-op.
 * Returns: 0; -EINVAL; -EREMOTEIO, -ESTALE; CPU: -ENOMEM. */
int hoist__fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
		      unsigned width, size_t n);

/* Queues a call of @run(@context) on a thread of the driver's (the CPU: of the stream's), behind
 * the work queued before; work queued later waits for the call.  @run must not call the driver.
 * It returns 0, or a negative errno value with hoist__fail()'s text.  The stream's next synchronize
 * returns the first such failure, once; later work is done all the same.  Where earlier work failed
 * in the driver, @run may never be called; synchronize then returns that failure.
 * Returns: 0; -ENOTSUP (the driver is too old; the stream captures a graph, which may run never
 *   or often); -ENOMEM, -EREMOTEIO, -ESTALE: @run is not called. */
int hoist__dev_stream_call(struct hoist__dev_stream *stream, int (*run)(void *context), void *context);

#endif
