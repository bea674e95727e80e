/* SPDX-License-Identifier: MIT */
/* emulator/core.h - what both stand-in drivers are made of.
 *
 * A face (face.h; cuda.c, hip.c) defines the driver's functions and turns each into one
 * call of the core; the core holds the devices, their memory, the streams, the
 * events, the faults and the counters.  Each shared library is one face with
 * its own copy of the core.
 *
 *   device      an ordinal, a memory limit, an address range, two arenas: one
 *               that nobody can touch (its addresses are the device addresses)
 *               and one with the bytes, at the same offsets
 *   range       [start, start + bytes): what allocations, registrations and
 *               handles are looked up by
 *   span        one side of a copy: where its bytes are, and which allocation
 *               or registration must stay while the copy is queued
 *   pool        memory of a device that is given and taken in the order of streams, in
 *               pieces; see pool.h
 *   window      memory of another process; see ipc.h
 *   stream      a queue of operations and the thread that performs them, late
 *   mark        one recording of an event; outlives the event that made it
 *   face        the names of a driver's functions, and what they fail with
 *
 * Results are the drivers' own numbers: CUDA and HIP agree on all that the core
 * needs, and both faces assert it.
 *
 * Threads: one lock (hoist__emu.lock) guards everything here; it is released
 * while bytes are copied and while a stream sleeps.  Functions marked [locked]
 * are called with it held, all others without.
 */
#ifndef HOIST_EMULATOR_CORE_H
#define HOIST_EMULATOR_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "emulator/control.h"

/* Thread-local variables go in the static block, of which the C library keeps some bytes free for
 * libraries that are opened.  The usual model allocates at a thread's first touch, and ends the
 * process if that fails. */
#define EMU_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))

enum {
	EMU_SUCCESS = 0,
	EMU_INVALID_VALUE = 1,
	EMU_OUT_OF_MEMORY = 2,
	EMU_NOT_INITIALIZED = 3,
	EMU_NO_DEVICE = 100,
	EMU_INVALID_DEVICE = 101,
	EMU_INVALID_CONTEXT = 201,
	EMU_OPERATING_SYSTEM = 304,
	EMU_INVALID_HANDLE = 400,
	EMU_NOT_FOUND = 500,
	EMU_NOT_READY = 600,
	EMU_ILLEGAL_ADDRESS = 700,
	EMU_PEER_ENABLED = 704,
	EMU_CONTEXT_DESTROYED = 709,
	EMU_ALREADY_REGISTERED = 712,
	EMU_NOT_REGISTERED = 713,
	EMU_NOT_PERMITTED = 800,
	EMU_NOT_SUPPORTED = 801,
	EMU_CAPTURE_UNSUPPORTED = 900,
	EMU_CAPTURE_INVALID = 901,
	EMU_CAPTURE_ISOLATION = 905,
	EMU_CAPTURE_IMPLICIT = 906,
	EMU_CAPTURED_EVENT = 907,
	EMU_UNKNOWN = 999
};

#define EMU_MAX_DEVICES 64
#define EMU_MAX_PITCH ((size_t)0x7fffffff)
#define EMU_MAX_FUNCTIONS 192
#define EMU_MAX_FAULTS 64
#define EMU_MAX_MEMORY ((uint64_t)1 << 42) /* twice this is reserved, twice */

/* --- the face --- */

struct hoist__emu_function {
	const char *name;   /* as in the manual */
	const char *symbol; /* as exported */
};

struct hoist__emu_face {
	const char *api;	  /* "cuda", as HOIST_EMULATE names it */
	const char *other_prefix; /* "hip": functions of the other stand-in */
	const struct hoist__emu_function *functions;
	unsigned n_functions;
	int (*default_error)(unsigned function); /* of an injected failure */
	uintptr_t registered_offset; /* from registered memory to its address for kernels */
	bool events_read_streams;    /* asking an event reads the stream that it was recorded on */
	int lost_stream;	     /* the failure when asked whether a stream captures that does
				      * not exist */
	/* The driver's functions that the face lacks, and how often they were called; NULL from the
	 * end on.  NULL: the face does not say. */
	const char *(*absent)(unsigned index, uint64_t *n_calls);
};

/* Defined by the face. */
extern const struct hoist__emu_face hoist__emu_face;

/* --- ranges: sets of disjoint address ranges (ranges.c) --- */

/* The first member of each struct that is kept in a set. */
struct hoist__emu_range {
	uintptr_t start;
	size_t bytes;
};

/* A set is a pointer that starts as NULL.  Adding fails with -EEXIST if any byte is taken, and with
 * -ENOMEM; find returns some member that shares a byte. */
int hoist__emu_range_add(void **set, struct hoist__emu_range *range);
void *hoist__emu_range_find(void *const *set, uintptr_t start, size_t bytes);
void hoist__emu_range_remove(void **set, struct hoist__emu_range *range);

/* --- state (core.c) --- */

struct hoist__emu_stream;
struct hoist__emu_pool;

struct hoist__emu_device {
	int ordinal;
	unsigned retained;    /* the primary context's count; CUDA only */
	unsigned flags;	      /* of the primary context */
	uintptr_t base;	      /* the device addresses: base .. base + span; 0 before use */
	unsigned char *bytes; /* the byte of address a is bytes[a - base] */
	size_t span;
	bool shared; /* the bytes are in this file: ipc.h */
	int fd;
	uint64_t file_device;
	uint64_t file_inode;
	uint64_t used;		   /* sum of the allocations' rounded sizes */
	struct hoist__list blocks; /* the allocations by address */
	struct hoist__list *rover; /* the search for a place begins behind this one */
	struct hoist__list streams;
	struct hoist__list pools;
	struct hoist__emu_pool *own_pools[3];  /* by kind: pool.h; made on first use */
	struct hoist__emu_pool *current_pool;  /* NULL: the device's own */
	struct hoist__emu_stream *null_stream; /* made on first use */
	/* bit n: the device reaches memory of device n; peer.c */
	uint64_t peers;
	uint64_t engine_free_ns[3]; /* by direction: when the copy engine is next idle */
};

enum hoist__emu_direction { EMU_TO_DEVICE, EMU_TO_HOST, EMU_ON_DEVICE };

struct hoist__emu_settings {
	int n_devices;
	uint64_t memory;	/* bytes of each device */
	uint64_t rate;		/* bytes/s of each copy engine; 0: unlimited */
	uint64_t latency_ns[2]; /* least, most */
	uint64_t resident;	/* bytes of each device that are populated from the start */
	uint64_t register_most; /* bytes that one registration may have; 0: any number */
	uint64_t seed;
};

struct hoist__emu_fault {
	int function;  /* an index, or EMU_FAULT_ANY, EMU_FAULT_ASYNC */
	uint64_t left; /* uses until it goes off; 0: spent */
	bool repeats;  /* also goes off at every later use */
	int code;
};

/* Far from the negative errno values that a search for a function may return. */
enum { EMU_FAULT_ANY = -100001, EMU_FAULT_ASYNC = -100002 };

struct hoist__emu {
	pthread_mutex_t lock;
	pthread_cond_t progress; /* an operation or a hold ended, or a chunk was copied */
	int pid;		 /* the process that initialised: a forked child is refused */
	char problem[160];	 /* the mistake in the environment; "" for none */
	struct hoist__emu_settings environment; /* as read */
	struct hoist__emu_settings now;		/* as in force */
	bool hold;
	uint64_t ticket;	 /* of the latest operation submitted */
	uint64_t n_streams_made; /* seeds their latencies */
	unsigned n_capturing;	 /* streams, broken captures included */
	uint64_t calls[EMU_MAX_FUNCTIONS];
	struct hoist_emulator_counters count;
	struct hoist__emu_fault faults[EMU_MAX_FAULTS];
	unsigned n_faults;
	unsigned n_touched; /* sides of copies of which a chunk is being copied */
	void *allocations;  /* sets of ranges */
	void *registrations;
	void *windows;
	void *streams;
	void *events;
	void *pools;
	struct hoist__emu_device devices[EMU_MAX_DEVICES];
};

extern struct hoist__emu hoist__emu;

static inline void hoist__emu_lock(void)
{
	(void)pthread_mutex_lock(&hoist__emu.lock);
}

static inline void hoist__emu_unlock(void)
{
	(void)pthread_mutex_unlock(&hoist__emu.lock);
}

/* Reads the environment, once. */
void hoist__emu_load_environment(void);

/* Each driver function calls one of these first, with its index.  They read the environment once,
 * count the call, and return 0 or the value that the function must return at once: an injected
 * failure, or "not initialized" after a fork.  The second is for functions that free: an injected
 * failure comes in *forced, to be returned after the work was done. */
int hoist__emu_enter(unsigned function);
int hoist__emu_enter_free(unsigned function, int *forced);

/* Set while this thread calls a function for the caller, which must not call the driver. */
extern EMU_THREAD_LOCAL bool hoist__emu_in_call;

/* For cuInit and hipInit: 0, EMU_NO_DEVICE, EMU_INVALID_VALUE (environment). */
int hoist__emu_init(void);

/* Returns NULL if there is no device @ordinal. */
struct hoist__emu_device *hoist__emu_device(int ordinal);

const char *hoist__emu_error_text(int code);

/* Read CLOCK_MONOTONIC, and sleep until a time of it. */
uint64_t hoist__emu_now_ns(void);
void hoist__emu_sleep_until(uint64_t ns);

/* --- settings.c, faults.c --- */

/* Fills *ret from the environment; false, with @problem filled, if a value makes no sense. */
bool hoist__emu_settings_read(struct hoist__emu_settings *ret, char *problem, size_t bytes);

/* [locked] Parses hoist_emulator_fail()'s argument, and puts it into force. */
int hoist__emu_faults_set(const char *spec);

/* [locked] Counts one use of @function, or of EMU_FAULT_ASYNC.
 * Returns: the code to fail with, or 0. */
int hoist__emu_fault_due(int function);

/* --- memory.c --- */

/* [locked] Populates the resident bytes of @device, as far as there is memory. */
void hoist__emu_make_resident(struct hoist__emu_device *device);

int hoist__emu_alloc(struct hoist__emu_device *device, size_t bytes, uintptr_t *ret);
int hoist__emu_free(uintptr_t address);
void hoist__emu_mem_info(struct hoist__emu_device *device, size_t *free_bytes, size_t *total);

/* --- register.c --- */

int hoist__emu_managed_alloc(struct hoist__emu_device *device, size_t bytes, uintptr_t *ret);

/* Where a range of managed memory is preferred to be: a device, by ordinal, or one of these. */
#define EMU_PREFER_NONE (-1)
#define EMU_PREFER_HOST (-2)
#define EMU_PREFER_NODE(node) (-3 - (node))
int hoist__emu_prefer(uintptr_t address, size_t bytes, int preferred);
/* @read_only: the memory may be mapped without write permission; else its pages are pinned for
 * writing, and such a map is refused. */
int hoist__emu_register(void *address, size_t bytes, bool read_only);

/* Pinned memory that the driver allocates: a registration that only free ends. */
int hoist__emu_host_alloc(size_t bytes, void **ret);
int hoist__emu_host_free(void *address);
int hoist__emu_unregister(void *address);
int hoist__emu_host_address(void *address, uintptr_t *ret);

/* Returns the host's address for @address, which may be that address or the devices' one. */
uintptr_t hoist__emu_host_of(uintptr_t address);

/* --- query.c --- */

struct hoist__emu_pointer {
	bool host; /* mapped for the host; otherwise the device's alone */
	bool managed;
	int ordinal; /* 0 for registered memory */
	uintptr_t device_address;
	uintptr_t host_address; /* 0: none */
	uintptr_t start;	/* of the whole allocation, registration or mapping */
	size_t bytes;
	struct hoist__emu_pool *pool; /* NULL: of none */
};

/* False if the memory was neither allocated nor registered here: *ret is untouched. */
bool hoist__emu_pointer(uintptr_t address, struct hoist__emu_pointer *ret);

/* Waits for all work that all streams were given before.
 * Returns: 0; the failure of one stream. */
int hoist__emu_device_synchronize(struct hoist__emu_device *device);

struct hoist__emu_box;
struct hoist__emu_op;
struct hoist__emu_stream;

/* --- span.c --- */

struct hoist__emu_block; /* an allocation or a registration */

struct hoist__emu_span {
	unsigned char *bytes;		/* where they really are */
	struct hoist__emu_block *block; /* NULL: pageable host memory */
	bool host;			/* the caller's memory, which may be unmapped at any time */
};

/* [locked] Finds @bytes at @address as device memory (registered host memory also serves) or as
 * host memory, and takes the block for a queued operation.
 * Returns: 0; EMU_INVALID_VALUE, counted as a bad copy. */
int hoist__emu_span_device(uintptr_t address, size_t bytes, struct hoist__emu_span *ret);
int hoist__emu_span_host(uintptr_t address, size_t bytes, struct hoist__emu_span *ret);
void hoist__emu_span_release(struct hoist__emu_span *span);

/* [locked] Call these around the copying of one chunk: in between, a free in another thread does
 * not give the block up.  Touch fails with EMU_ILLEGAL_ADDRESS if the bytes are gone. */
int hoist__emu_span_touch(struct hoist__emu_span *span, size_t offset, size_t bytes);
void hoist__emu_span_leave(struct hoist__emu_span *span);

/* --- peer.c --- */

/* Lets work of @device touch memory of @peer from now on, but not the other way round.
 * Returns: 0; EMU_PEER_ENABLED; EMU_INVALID_VALUE if both are one device. */
int hoist__emu_peer_enable(struct hoist__emu_device *device, const struct hoist__emu_device *peer);

/* True if kernels of @device reach the memory that @pointer describes. */
bool hoist__emu_peer_reaches(const struct hoist__emu_device *device,
			     const struct hoist__emu_pointer *pointer);

/* [locked] True if work of @device may touch the bytes of @span. */
bool hoist__emu_peer_may_touch(const struct hoist__emu_device *device,
			       const struct hoist__emu_span *span);

/* [locked] True if @span is memory of @device alone. */
bool hoist__emu_peer_owns(const struct hoist__emu_device *device,
			  const struct hoist__emu_span *span);

/* --- copy.c --- */

int hoist__emu_copy(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
		    enum hoist__emu_direction direction, uintptr_t dst, uintptr_t src,
		    size_t bytes);

/* Copies from memory of @src_device to memory of @dst_device; through the host if @device does not
 * reach both. */
int hoist__emu_copy_peer(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			 const struct hoist__emu_device *dst_device, uintptr_t dst,
			 const struct hoist__emu_device *src_device, uintptr_t src, size_t bytes);

/* Rows and planes must not overlap, nor a pitch be above EMU_MAX_PITCH. */
int hoist__emu_copy_box(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			enum hoist__emu_direction direction, const struct hoist__emu_box *box);
int hoist__emu_memset(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
		      uintptr_t dst, uint32_t value, unsigned width, size_t n);

/* Calls a function of the caller's on the stream's thread, unless the stream has failed.  The
 * function must not call the driver. */
int hoist__emu_call(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
		    void (*function)(void *), void *argument);

/* [locked] Performs a copy or memset in the stream's thread.
 * Returns: 0; the failure. */
int hoist__emu_copy_perform(struct hoist__emu_stream *stream, struct hoist__emu_op *op);

#endif
