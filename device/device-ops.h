/* SPDX-License-Identifier: MIT */
/* device/device-ops.h - what a backend implements; private to device/.
 *
 * device.c checks arguments, processes and APIs once, for all backends; an
 * operation below may rely on the preconditions it names (Pre) and must
 * establish what it promises (Post).  Every operation also promises: 0 or a
 * negative errno value with the text set, results untouched on failure, nothing
 * left behind by a failure, the calling thread's current context or device as
 * it was (but for enter), and that it may run in several threads at once.
 */
#ifndef HOIST_DEVICE_DEVICE_OPS_H
#define HOIST_DEVICE_DEVICE_OPS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "device/device.h"
#include "device/graph.h"
#include "device/ipc.h"
#include "device/scope.h"
#include "device/vmm.h"

struct hoist__dev {
	const struct hoist__dev_ops *ops;
	enum hoist__api api;
	int ordinal;
	struct hoist__dev_props props;
	int native;		 /* CUdevice, hipDevice_t */
	size_t max_pitch;	 /* copy_box takes no greater distances of rows, and no planes
				  * that are no multiple of the pitch; SIZE_MAX: all (the CPU) */
	size_t max_plane;	 /* copy_box takes no greater distances of planes */
	unsigned generation;	 /* of the process that opened the driver: hoist__fork_now() */
	_Atomic(void *) context; /* CUcontext once retained; else NULL */
	pthread_mutex_t lock;	 /* retains the context once */
	/* Bit n is device n of the api: access to its memory is enabled, or cannot be. */
	_Atomic uint64_t peers_reached;
	_Atomic uint64_t peers_refused;
	/* The other direction, for pools, whose access drivers set one by one: all pools of this
	 * device give access to device n, except those that deny it. */
	pthread_mutex_t pools_lock; /* the two below, and each pool's `denied` */
	uint64_t reached_by;
	struct hoist__list pools;
	pthread_mutex_t streams_lock;
	struct hoist__list streams;   /* also wrapped ones, not the CPU's; streams_lock */
	_Atomic uint64_t waits_ended; /* number of the latest wait for the device that succeeded */
};

struct hoist__dev_stream {
	struct hoist__dev *dev;
	void *native;	     /* CUstream, hipStream_t, struct cpu_stream */
	bool wrapped;	     /* the native handle is the caller's */
	unsigned generation; /* of the process that made it */
	atomic_bool may_capture;
	_Atomic(struct hoist__call_queue *) calls; /* NULL before the first: call.c */
	_Atomic unsigned refs;	 /* the owner's, and one of each event last recorded here */
	struct hoist__list node; /* in dev->streams */
	pthread_rwlock_t asking; /* shared while a driver is asked about an event of the
				  * stream; guards the next three, see event.c */
	bool gone;
	int outcome;		 /* the events' answer once gone; -EAGAIN: they are lost ... */
	uint64_t lost_until;	 /* ... until this wait for the device */
};

struct hoist__dev_event {
	struct hoist__dev *dev;
	void *native; /* CUevent, hipEvent_t, struct cpu_event */
	unsigned flags;
	atomic_bool recorded;
	unsigned generation;
	_Atomic(struct hoist__dev_stream *) stream; /* last recorded on, referenced; NULL: none, or
						     * a stream of the CPU */
};

struct hoist__dev_pool {
	struct hoist__dev *dev;
	struct hoist__list node; /* in dev->pools */
	uint64_t denied; /* bit n: hoist__dev_pool_set_access() took device n's access */
	void *native;	 /* CUmemoryPool, hipMemPool_t */
	size_t max_bytes;
	bool borrowed; /* the device's own */
	bool shareable;
	unsigned generation;
};

struct hoist__dev_ops {
	/* Opens the driver and counts its devices, making no context.
	 * Pre: called at most once per process.  Post: *count is at least 1;
	 * *library is constant from here on, failed or not. */
	int (*open)(int *count, const char **library);

	/* Pre: opened; dev->ordinal is below the count; all else is zero.
	 * Post: dev->props and dev->native are filled. */
	int (*probe)(struct hoist__dev *dev);

	/* can_access, enable_access: Pre: another device of the same api.
	 * enable_access: Post: copies and kernels of dev reach peer's memory.  -ENOTSUP: the driver
	 * refuses this pair, or any further pair, for good. */
	int (*can_access)(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret);
	int (*enable_access)(struct hoist__dev *dev, struct hoist__dev *peer);
	int (*synchronize)(struct hoist__dev *dev); /* NULL: nothing to wait for */

	/* Makes the device current in the calling thread, and the thread's capture mode relaxed,
	 * until leave.  Post: a failure has changed nothing.  Both NULL: there is nothing to
	 * switch. */
	int (*enter)(struct hoist__dev *dev, bool relaxed, struct hoist__dev_switched *ret);
	void (*leave)(const struct hoist__dev *dev, const struct hoist__dev_switched *switched);

	/* Memory.  Pre: bytes and addresses are not 0. */
	int (*mem_info)(struct hoist__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes);
	int (*mem_alloc)(struct hoist__dev *dev, size_t bytes, uintptr_t *ret);
	int (*mem_free)(struct hoist__dev *dev, uintptr_t address, size_t bytes);
	int (*host_register)(struct hoist__dev *dev, void *address, size_t bytes, bool read_only);
	int (*host_unregister)(struct hoist__dev *dev, void *address, size_t bytes);
	int (*host_address)(struct hoist__dev *dev, void *address, uintptr_t *ret);
	int (*managed_alloc)(struct hoist__dev *dev, size_t bytes, uintptr_t *ret); /* or NULL */
	/* Pre: managed_alloc gave the memory; prefer is not HOIST__PREFER_NONE. */
	int (*managed_prefer)(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			      enum hoist__prefer prefer, int node);

	/* Streams.  stream_create: Pre: all but native is set.  Post: native is.
	 * stream_destroy: Pre: not wrapped; its work is done, or it captures.  For the CPU, Post:
	 * its work is done.
	 * stream_capturing: -EBADF: it is wrapped, and the driver knows that its handle is
	 * destroyed.
	 * stream_wait_event: Pre: the event is of this api and was recorded. */
	int (*stream_create)(struct hoist__dev_stream *stream);
	void (*stream_destroy)(struct hoist__dev_stream *stream);
	int (*stream_synchronize)(struct hoist__dev_stream *stream);
	int (*stream_query)(struct hoist__dev_stream *stream);
	int (*stream_capturing)(struct hoist__dev_stream *stream, bool *ret); /* NULL: never */
	int (*stream_wait_event)(struct hoist__dev_stream *stream, struct hoist__dev_event *event);

	bool events_read_streams; /* event_query and event_synchronize read the event's stream */

	/* Events.  event_create: Pre: all but native is set.  Post: native is.
	 * event_record: Pre: event and stream are of one device.
	 * event_query, event_synchronize: Pre: recorded.
	 * event_elapsed_ns: Pre: of one api, both recorded, both with
	 * HOIST__EVENT_TIMING.  -EAGAIN while one has not completed. */
	int (*event_create)(struct hoist__dev_event *event);
	void (*event_destroy)(struct hoist__dev_event *event);
	int (*event_record)(struct hoist__dev_event *event, struct hoist__dev_stream *stream);
	int (*event_query)(struct hoist__dev_event *event);
	int (*event_synchronize)(struct hoist__dev_event *event);
	int (*event_elapsed_ns)(struct hoist__dev_event *start, struct hoist__dev_event *end,
				uint64_t *ret);

	/* Pools: all NULL where the API has none.  pool_create, pool_current: Pre: all but
	 * native is set.  Post: native is.  pool_destroy: Pre: not borrowed.
	 * pool_alloc, pool_free: Pre: the stream is of the pool's device; bytes and addresses
	 * are not 0.  pool_set: Pre: attribute and value go together.  pool_*_access: Pre: the
	 * peer is another device of the api. */
	int (*pool_create)(struct hoist__dev_pool *pool);
	int (*pool_current)(struct hoist__dev_pool *pool);
	void (*pool_destroy)(struct hoist__dev_pool *pool);
	int (*pool_alloc)(struct hoist__dev_pool *pool, size_t bytes,
			  struct hoist__dev_stream *stream, uintptr_t *ret);
	int (*pool_free)(struct hoist__dev_pool *pool, uintptr_t address,
			 struct hoist__dev_stream *stream);
	int (*pool_trim)(struct hoist__dev_pool *pool, size_t keep_bytes);
	int (*pool_get)(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t *ret);
	int (*pool_set)(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t value);
	int (*pool_set_access)(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool allowed);
	int (*pool_get_access)(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool *ret);

	/* Sharing between processes (ipc.h): all NULL where the API has none.
	 * pool_import: as pool_create; the fd stays the caller's, and is not 0.
	 * pool_export: Pre: shareable.  Post: an fd, closed by exec or not.
	 * *_block: Pre: the pool is shareable, or imported. */
	int (*allocation)(struct hoist__dev *dev, uintptr_t address, uintptr_t *base,
			  size_t *bytes);
	int (*ipc_export)(struct hoist__dev *dev, uintptr_t base, struct hoist__ipc_handle *ret);
	int (*ipc_open)(struct hoist__dev *dev, const struct hoist__ipc_handle *handle,
			uintptr_t *ret);
	int (*ipc_close)(struct hoist__dev *dev, uintptr_t base);
	int (*pool_import)(struct hoist__dev_pool *pool, int fd);
	int (*pool_export)(struct hoist__dev_pool *pool, int *ret);
	int (*pool_export_block)(struct hoist__dev_pool *pool, uintptr_t address,
				 struct hoist__ipc_handle *ret);
	int (*pool_import_block)(struct hoist__dev_pool *pool,
				 const struct hoist__ipc_handle *handle, uintptr_t *ret);

	/* Memory of graphs (graph.h): all NULL where the API has none. */
	int (*graph_alloc)(struct hoist__dev_stream *stream, size_t bytes, uintptr_t *ret);
	int (*graph_free)(struct hoist__dev_stream *stream, uintptr_t address);
	int (*graph_get)(struct hoist__dev *dev, enum hoist__pool_attribute attribute,
			 uint64_t *ret);
	int (*graph_reset)(struct hoist__dev *dev, enum hoist__pool_attribute attribute);
	int (*graph_trim)(struct hoist__dev *dev);

	/* Virtual memory (vmm.h): all NULL where the API has none.  vmm_check makes no context.
	 * The others: Pre: vmm_check gave 0 once; sizes are multiples of the granularity, and not
	 * 0. */
	int (*vmm_check)(struct hoist__dev *dev, const struct hoist__vmm_props *props);
	int (*vmm_granularity)(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			       size_t *ret);
	int (*vmm_reserve)(struct hoist__dev *dev, size_t bytes, size_t align, uintptr_t hint,
			   uintptr_t *ret);
	int (*vmm_unreserve)(struct hoist__dev *dev, uintptr_t address, size_t bytes);
	int (*vmm_create)(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			  size_t bytes, uint64_t *ret);
	int (*vmm_release)(struct hoist__dev *dev, uint64_t handle);
	int (*vmm_map)(struct hoist__dev *dev, uintptr_t address, size_t bytes, uint64_t handle);
	int (*vmm_unmap)(struct hoist__dev *dev, uintptr_t address, size_t bytes);
	int (*vmm_set_access)(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			      const struct hoist__dev *accessor, enum hoist__vmm_access access);

	/* Work.  Pre: bytes and addresses are not 0; all devices are of one api.
	 * copy_box: Pre: no side of the box is 0, rows is more than 1, all distances are as
	 * device.h asks, and within max_pitch and max_plane as said there.
	 * fill_async: Pre: width is 1, 2 or 4, the address is a multiple of it, and the bytes do
	 * not overflow a size.
	 * stream_call: Post: function is called once, unless work before it fails. */
	int (*copy_async)(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
			  uintptr_t src, size_t bytes);
	int (*copy_peer_async)(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
			       uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src,
			       size_t bytes);
	int (*copy_box)(struct hoist__dev_stream *stream, enum hoist__copy kind,
			const struct hoist__box *box);
	int (*stream_call)(struct hoist__dev_stream *stream, void (*function)(void *argument),
			   void *argument); /* or -ENOTSUP */
	int (*fill_async)(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
			  unsigned width, size_t n);
};

/* pool.c: from now on @peer reaches memory of all pools of @dev, later pools included.  On
 * failure @peer reaches the memory of some pools. */
int hoist__dev_pools_open_to(struct hoist__dev *dev, struct hoist__dev *peer);

/* stream.c: makes a stream with one reference of zeroed memory; calls no driver. */
void hoist__dev_stream_init(struct hoist__dev_stream *stream, struct hoist__dev *dev, void *native);
void hoist__dev_stream_unref(struct hoist__dev_stream *stream); /* takes NULL */

/* event.c: from now on nobody asks the driver about an event of @stream.  These events answer with
 * @outcome; with -EAGAIN they are lost.  Only the first call counts. */
void hoist__dev_events_end(struct hoist__dev_stream *stream, int outcome);
/* True if the event's stream is gone, and all work before the record is done. */
bool hoist__dev_event_is_over(struct hoist__dev_event *event);

/* -ENOTSUP: the driver cannot call (call.c). */
int hoist__call_queue_fail_lack(const struct hoist__dev *dev);

/* call.c: the first failure, with its text set, of calls in @stream's order since a failure was
 * last taken.  Synchronize takes the failure; query leaves it. */
int hoist__call_queue_take_failure(struct hoist__dev_stream *stream);
int hoist__call_queue_failure(struct hoist__dev_stream *stream);

/* The end of a stream that is idle, or broken. */
void hoist__call_queue_end(struct hoist__dev_stream *stream);

/* Returns -ESTALE, its text set: @what belongs to the parent of this process. */
int hoist__dev_fail_stale(const char *what);

/* 0, or -ESTALE if @generation is that of a process that forked this one. */
int hoist__dev_check_process(unsigned generation, const char *what);

extern const struct hoist__dev_ops hoist__cpu_ops;
extern const struct hoist__dev_ops hoist__cuda_ops;
extern const struct hoist__dev_ops hoist__hip_ops;

#endif
