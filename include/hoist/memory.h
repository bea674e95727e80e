/* SPDX-License-Identifier: MIT */
/* hoist/memory.h - memory resources: where bytes come from.
 *
 *     hoist_memory_options options = {
 *             .size = sizeof options, .kind = HOIST_MEMORY_PINNED, .device = device,
 *     };
 *     hoist_memory_create(&options, &memory);
 *     hoist_memory_alloc(memory, 1 << 20, 0, &block);
 *     ... queue copies from the block on a stream ...
 *     hoist_memory_free_on(memory, block, stream);   // reused when the stream has passed
 *     hoist_memory_unref(memory);
 *
 * A Memory resource hands out blocks of one kind of memory.  Most kinds carve blocks from regions:
 * a region is one mapping or driver allocation, on one NUMA node, pinned once.  Small blocks come
 * from slabs (8 sizes per doubling) through a cache that every thread has for itself.  Blocks above
 * 256 KiB are exact to 64 KiB.  A request of half a region or more has a region of its own.  The
 * bookkeeping lies beside the memory, which the resource never touches: device memory cannot be
 * touched, and fresh memory should not be.
 *
 *   kind          bytes are                                   host  device
 *   HOST          pageable host memory                         x
 *   PINNED        host memory registered with the device's     x     x
 *                 driver; on the CPU: mlock'ed                 x
 *   DEVICE        memory of the device; on the CPU: HOST             x
 *   MANAGED       memory that the driver moves to its user     x     x
 *   DRIVER_POOL   the driver's own stream-ordered pool               x
 *   HEAP          host memory from a jemalloc arena of its     x    (x)
 *                 own over HOST regions, for a device PINNED
 *                 ones; needs jemalloc in the program
 *   CUSTOM        memory from the caller's functions            as they say
 *   VIRTUAL       device memory of the driver's virtual                x
 *                 address calls: whole granules, which
 *                 hoist_memory_grow() grows in place
 *   GRAPH         device memory of the graph that a stream             x
 *                 captures: taken and given back while it
 *                 captures
 *
 * GRAPH: each device has one such resource, hoist_memory_of_device().  hoist_memory_alloc_on() of a
 * stream that captures takes a block from it.  The address is known at once; the memory exists
 * while the graph runs.  A block that is freed on the capturing stream is freed by the graph.  A
 * block that is freed on a stream that does not capture is freed by that stream, after a graph that
 * ran has left it.  A block that is freed without a stream belongs to the graph alone, and hoist
 * forgets it.  The resource's attributes are HOIST_POOL_RESERVED_CURRENT and those after it.
 *
 * Addresses are integers: only addresses of host memory may be made pointers.  A block always goes
 * back to the region, and so the node, that it came from.  Freeing an address that is not the start
 * of a live block of the resource (freed twice, from elsewhere, inside a block) is -EINVAL at every
 * debug level, and changes nothing; only HEAP leaves that to jemalloc.
 *
 * Streams: work queued on a stream may still use a block when the host frees it.
 * hoist_memory_free_on() names the stream that has the last work.  The block comes back when that
 * stream has passed this point, and at once for an allocation on the same stream (device memory:
 * the next user's work is behind the last user's).  Host memory always waits for the event, because
 * the next writer may be the host itself.
 *
 * Consumers: work that a consumer queued may still use the memory of an exported Buffer
 * (hoist/dlpack.h, hoist/cai.h) when the consumer has let go of the Buffer.  When such a Buffer
 * ends, its memory is parked: it still counts as requested, and in parked_bytes.  Parked memory
 * comes back after a wait for the whole device that began after the consumer let go
 * (cuCtxSynchronize(), hipDeviceSynchronize(); host and managed memory: a wait for every device of
 * the driver).  One wait serves all parked memory.  These calls wait:
 *
 *   hoist_memory_trim(), hoist_device_synchronize()
 *   an allocation from a resource that is exhausted or lacks budget
 *   the end of a resource that only parked memory keeps
 *   an allocation of a Buffer that finds more than 64 MiB, and more than 1/32 of the device's
 *   memory, parked; below that, resources grow instead
 *
 * No wait begins while a hoist_stream captures a graph, or a stream that the legacy default stream
 * waits for.  hoist does not know of other captures, and drivers break a capture when somebody
 * waits for the device: wrap such a stream (hoist_stream_wrap()), or trim before the capture.  To
 * give memory to another library at once, trim, too.
 *
 * Memory that runs out: first the resource gives back memory that it only kept and memory that is
 * parked.  Then the other resources that take from the same place or share the budget do.  Then the
 * caller's function is called (options.exhausted).  Then the request fails with the first failure's
 * code and text.
 *
 * Threads: every function may be called from any thread.  fork: a child may go on with memory that
 * no driver has: HOST, and the CPU's PINNED (which is not locked in the child) and HEAP.  For other
 * kinds, functions that need the driver, and all functions of CUSTOM, give -ESTALE.
 * Errors: a resource that is NULL is -EINVAL, unless a comment says otherwise.
 */
#ifndef HOIST_MEMORY_H
#define HOIST_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/budget.h>
#include <hoist/device.h>
#include <hoist/error.h>
#include <hoist/stream.h>

HOIST_BEGIN

typedef struct hoist_memory hoist_memory;
struct hoist_virtual_options; /* hoist/memory-driver.h */

/* --- options --- */

/* hoist_memory_options.kind */
enum {
	HOIST_MEMORY_HOST,
	HOIST_MEMORY_PINNED,
	HOIST_MEMORY_DEVICE,
	HOIST_MEMORY_MANAGED,
	HOIST_MEMORY_DRIVER_POOL,
	HOIST_MEMORY_HEAP,
	HOIST_MEMORY_CUSTOM,
	HOIST_MEMORY_VIRTUAL,
	HOIST_MEMORY_GRAPH
};

/* hoist_memory_options.placement: the node of host memory.  DEFAULT: near the device if its node is
 * known (as PREFER), else LOCAL. */
enum {
	HOIST_PLACE_DEFAULT,
	HOIST_PLACE_LOCAL,	/* the node of the thread that grows the resource */
	HOIST_PLACE_PREFER,	/* the first of the nodes; others when it is full */
	HOIST_PLACE_BIND,	/* these nodes only: fails rather than spills */
	HOIST_PLACE_INTERLEAVE	/* page by page over the nodes */
};

/* hoist_memory_options.pages */
enum {
	HOIST_PAGES_DEFAULT, /* transparent huge pages, while they come fast enough */
	HOIST_PAGES_SMALL,   /* the kernel's base pages */
	HOIST_PAGES_HUGETLB  /* from the 2 MiB hugetlb pool; as DEFAULT where it has too few */
};

/* MANAGED, hoist_memory_options.preferred_location: where the driver prefers to keep pages that
 * both sides use. */
enum {
	HOIST_PREFER_NONE,     /* the driver decides */
	HOIST_PREFER_DEVICE,   /* the resource's device */
	HOIST_PREFER_HOST,     /* host memory, on any node */
	HOIST_PREFER_HOST_NODE /* host memory of the NUMA node options.preferred_node; CUDA */
};

/* The functions of a CUSTOM resource.  Each function gets options.functions_context, which must
 * stay valid until destroy was called.  Any thread may call alloc and free; hoist holds no lock
 * during a call.  @stream is the stream of the caller's call, and NULL if that has none.  hoist
 * notes each block that alloc gave, or that hoist_buffer_wrap() was given, with its size, and calls
 * free for live blocks only. */
typedef struct hoist_memory_functions {
	size_t size; /* sizeof(hoist_memory_functions) */
	/* Returns 0 and a block in *@ret, or a negative errno value, which hoist passes on.  @bytes
	 * is at least 1; @align is a power of two, at least 1. */
	int (*alloc)(void *context, size_t bytes, size_t align, hoist_stream *stream,
		     uintptr_t *ret);
	/* @bytes is the number that alloc, or hoist_buffer_wrap(), was given. */
	void (*free)(void *context, uintptr_t address, size_t bytes, hoist_stream *stream);
	/* Called when the resource ends, when no block is in use; may be NULL. */
	void (*destroy)(void *context);
	int is_host_accessible;
	int is_device_accessible;
	int is_managed;
	/* Waits until all work on the resource's memory that its owner queued is done.  Returns 0
	 * or a negative errno value.  NULL: there is no such work. */
	int (*synchronize)(void *context);
} hoist_memory_functions;

/* Called, with no lock of hoist's held, when memory or a limit is exhausted, after the resource has
 * given back all that it can.  The function frees memory, or waits.  It must not allocate from the
 * same resource, which would call it again.  @attempt counts from 1.
 * Returns: not 0: hoist tries the request again; 0: the request fails. */
typedef int hoist_memory_exhausted(void *context, size_t bytes, unsigned attempt);

/* hoist_memory_options.flags */
#define HOIST_MEMORY_NO_STATISTICS 1u /* counts of blocks and of requested bytes stay 0 */
#define HOIST_MEMORY_CURRENT_POOL 2u  /* DRIVER_POOL: the device's current pool, which is not
				       * this resource's own and outlives the resource */
#define HOIST_MEMORY_SHAREABLE 4u     /* DRIVER_POOL: other processes can import its blocks
				       * (hoist/ipc.h); not with CURRENT_POOL */

/* 0 or NULL is each option's default.  An option that the kind does not have must keep its default:
 * it would have no effect.
 *
 *   placement, nodes, pages                    HOST, PINNED, HEAP
 *   region_bytes, keep_bytes, soft_limit_bytes,
 *     budget                                   HOST, PINNED, DEVICE, MANAGED, HEAP
 *   limit_bytes                                these and DRIVER_POOL
 *   debug, cache_bytes, NO_STATISTICS          HOST, PINNED, DEVICE, MANAGED
 *   upstream                                   HOST, PINNED, DEVICE
 *   CURRENT_POOL, SHAREABLE                    DRIVER_POOL
 *   preferred_location, preferred_node         MANAGED
 *   virtual_options                            VIRTUAL
 *   functions                                  CUSTOM, which needs them
 *   name, exhausted                            all
 *
 * DEVICE on the CPU has the options of HOST.  hoist copies the name, nodes and functions, and keeps
 * the budget and the upstream alive.  The caller keeps the objects that the contexts point to. */
typedef struct hoist_memory_options {
	size_t size;	       /* sizeof(hoist_memory_options) */
	int kind;	       /* HOIST_MEMORY_...; 0: HOST */
	unsigned flags;
	hoist_device *device;  /* NULL: the CPU.  Needed by DEVICE, MANAGED, DRIVER_POOL,
				* VIRTUAL */
	const char *name;      /* for messages and snapshots, up to 63 bytes of it; NULL: hoist
			        * makes
				* one up */
	int placement;	       /* HOIST_PLACE_... */
	const int *nodes;      /* NUMA nodes, for PREFER (one), BIND and INTERLEAVE */
	size_t n_nodes;
	int pages;	       /* HOIST_PAGES_... */
	unsigned debug;	       /* 0: the checks that are always made; 1: also poisons freed memory
				* and finds later writes to it (host); 2: also puts redzones around
				* blocks and keeps freed blocks in a quarantine for a while (host
				* and device) */
	size_t region_bytes;   /* the least bytes of a new region; 0: 32 MiB (PINNED on the CPU,
				* where locked memory is scarce: 2 MiB) */
	size_t keep_bytes;     /* empty regions kept for reuse; 0: 8 times region_bytes */
	size_t cache_bytes;    /* that one thread may keep to itself; 0: 4 MiB.  1: nothing */
	size_t limit_bytes;    /* the most reserved bytes; 0: no limit.  DRIVER_POOL: the pool's
				* maximum size */
	size_t soft_limit_bytes; /* above this, growth first waits for the streams and gives back
				  * cached blocks and empty regions; at most limit_bytes; 0: none */
	hoist_budget *budget;  /* regions are charged to this budget; NULL: none */
	uint64_t budget_wait_ns; /* the longest wait for the budget, then -EDQUOT; 0: no wait */
	hoist_memory_exhausted *exhausted; /* NULL: none */
	void *exhausted_context;
	unsigned exhausted_retries; /* the most calls of `exhausted` for one request; 0: 1 */
	const hoist_memory_functions *functions; /* CUSTOM */
	void *functions_context;
	hoist_memory *upstream; /* regions are blocks of this resource, which must be CUSTOM or a
				 * DRIVER_POOL, with an accessibility that fits; it decides
				 * placement and pages.  NULL: regions come from the system, or from
				 * the driver */
	int preferred_location; /* HOIST_PREFER_...: advice to the driver for each region; if the
				 * driver refuses the advice, the allocation fails */
	int preferred_node;	/* for HOIST_PREFER_HOST_NODE */
	const struct hoist_virtual_options *virtual_options; /* hoist/memory-driver.h; NULL: all
						       * defaults */
} hoist_memory_options;

/* --- resources --- */

/* A new resource; @options NULL: HOST with all defaults.  The call takes no memory and makes no
 * driver context; the first block does.  So only the first allocation reports that the driver has
 * no pools or no managed memory.
 * Returns: 0; -EINVAL (the options: the text says which and why); -ENODEV; -ENOMEM; -ENOTSUP
 *   (MANAGED, DRIVER_POOL, VIRTUAL: the CPU has none of them; VIRTUAL: the driver or the device has
 *   none, or none for RDMA, or a peer cannot access the device; HEAP: the program has no jemalloc);
 *   -EAGAIN (HEAP: jemalloc has no more arenas: some 4000). */
HOIST_API int hoist_memory_create(const hoist_memory_options *options, hoist_memory **ret);

/* The resource of this kind that @device's Buffers come from, shared by all callers; a new
 * reference.  @kind is DEVICE or PINNED; for the CPU, HOST is the same as DEVICE.  GRAPH: the only
 * one of the device.
 * Returns: 0; -EINVAL (another kind); -ENOMEM; -ENOTSUP (GRAPH: the CPU has none). */
HOIST_API int hoist_memory_of_device(hoist_device *device, int kind, hoist_memory **ret);

HOIST_API hoist_memory *hoist_memory_ref(hoist_memory *memory); /* not NULL */

/* Takes NULL.  Dropping the last reference gives all memory back, after the streams have passed the
 * work that blocks were freed behind.  Blocks that are still in use then keep their regions for
 * good (blocks of a HEAP end with it). */
HOIST_API void hoist_memory_unref(hoist_memory *memory);

/* --- blocks --- */

/* A block of @bytes; 0 bytes give the address 0 and take no memory.  @align is a power of two up to
 * 2 MiB; 0: the kind's own (64 host, 16 HEAP, 256 device, 1 CUSTOM).  The content is undefined.
 * Returns: 0; -EINVAL (@align; CUSTOM: its function gave nonsense); -ENOMEM (host memory, or memory
 *   for bookkeeping), -ENOSPC (device memory, or the limit that the device was opened with),
 *   -EDQUOT (a limit of the resource, or its budget), these three with the figures; -EPERM (memlock
 *   limit, with the remedy); -ENOTSUP (the device has no such memory); -EREMOTEIO (the driver
 *   failed, with the driver's text); -ESTALE; CUSTOM, or an upstream that is CUSTOM: the failure of
 *   its function; HEAP: -EDEADLK (called within an exhausted function); debug levels 1 and 2:
 *   -EFAULT (free memory was written to: the text says where; the next call goes on without that
 *   memory). */
HOIST_API int hoist_memory_alloc(hoist_memory *memory, size_t bytes, size_t align, uintptr_t *ret);

/* As hoist_memory_alloc(), for work on @stream.  Earlier work on @stream may still use the block:
 * until that work is done, only work on @stream may touch the block.  @stream must be:
 *
 *   DEVICE, VIRTUAL       of the resource's device
 *   DRIVER_POOL           of the resource's device; the stream captures no graph
 *   GRAPH                 of the resource's device; the stream captures a graph
 *   MANAGED               of the resource's device, or of the CPU
 *   PINNED, HEAP          of any device of the resource's driver, or of the CPU
 *   HOST                  of the CPU
 *   CUSTOM                any: its functions decide
 *
 * Returns: as hoist_memory_alloc(); -EINVAL (NULL; a stream that is not allowed; GRAPH: a stream
 *   that does not capture); -ENOTSUP (DRIVER_POOL: a stream that captures).  hoist_memory_alloc()
 *   itself is -EINVAL for GRAPH. */
HOIST_API int hoist_memory_alloc_on(hoist_memory *memory, size_t bytes, size_t align,
				    hoist_stream *stream, uintptr_t *ret);

/* Gives a block back.  No work may use the block any more, except on streams that were named to
 * hoist_memory_use(): the block is reused behind their work, and the caller does not wait.  Address
 * 0 is ignored.
 * Returns: 0; -EINVAL (not the start of a live block: the text says what the address is); -ESTALE;
 *   -ENOMEM (no room to note a block that streams use); -EAGAIN (DRIVER_POOL, VIRTUAL: a stream
 *   that uses the block captures a graph; @stream of hoist_memory_free_on() counts, too).  After
 *   these the block stays live.  Debug levels 1 and 2: -EFAULT (bytes around the block, or bytes of
 *   it while it was free, were overwritten; the block is freed).  DRIVER_POOL, GRAPH: -EREMOTEIO
 *   (the driver does not take the block; the block is gone). */
HOIST_API int hoist_memory_free(hoist_memory *memory, uintptr_t address);

/* As hoist_memory_free(), behind the work queued on @stream so far.  The caller does not wait for
 * that work (HEAP and VIRTUAL wait).  A block that is freed while @stream captures a graph is set
 * aside until hoist_memory_release_captured(); GRAPH: the graph frees the block; DRIVER_POOL,
 * VIRTUAL: -EAGAIN.  hoist_memory_alloc_on() lists the streams that are allowed.
 * Returns: as hoist_memory_free(); -EINVAL (NULL; a stream that is not allowed). */
HOIST_API int hoist_memory_free_on(hoist_memory *memory, uintptr_t address, hoist_stream *stream);

/* Says that work on @stream uses this block, too: the block is reused only behind that work.
 * GRAPH: no effect; the graph orders its work.
 * Returns: 0; -EINVAL (no live block starts there; a stream that is not allowed); -ENOMEM; -ENOTSUP
 *   (CUSTOM, HEAP); -ESTALE. */
HOIST_API int hoist_memory_use(hoist_memory *memory, uintptr_t address, hoist_stream *stream);

/* Gives back the blocks that were freed during captures.  Call this when those graphs are gone and,
 * if the memory was exported, its consumers' work is done.
 * Returns: 0, also if there are no such blocks; -ESTALE. */
HOIST_API int hoist_memory_release_captured(hoist_memory *memory);

/* Blocks until the work on the resource's memory is done, the work of other libraries included.
 * CUSTOM calls its synchronize function; other kinds do hoist_device_synchronize() of the
 * resource's device.
 * Returns: 0; the failure of these, with the resource's name; -EINVAL (CUSTOM: its function gave
 *   nonsense); -ESTALE. */
HOIST_API int hoist_memory_synchronize(hoist_memory *memory);

/* The address by which the device's kernels see the byte at @address.  With HIP it differs from the
 * host's for PINNED memory.  The CPU's is the same.
 * Returns: 0; -EINVAL (@address is in no live block); -ENOTSUP (the device cannot see the memory);
 *   -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_memory_device_address(hoist_memory *memory, uintptr_t address, uintptr_t *ret);

/* Lets a resource of kind HOST, PINNED or DEVICE carve blocks from memory of the caller's.  The
 * memory must stay until the resource has ended; the resource does not unmap or free it.  PINNED
 * registers the memory, and unregisters it at the end.  Only the part that is aligned to 64 KiB is
 * used.  No budget is charged.
 * Returns: 0; -EINVAL (too small; overlaps another region; the resource has a limit_bytes, which
 *   counts memory that the resource takes itself); -ENOMEM, -EPERM, -EREMOTEIO, -ESTALE; -ENOTSUP
 *   (other kinds). */
HOIST_API int hoist_memory_add_region(hoist_memory *memory, uintptr_t address, size_t bytes);

/* Gives back cached blocks and empty regions until at most @keep_bytes are in empty regions.
 * DRIVER_POOL: until the driver's pool holds at most @keep_bytes.  GRAPH: gives back all memory
 * that no graph uses, whatever @keep_bytes is.  Blocks that wait for a stream stay.  Parked memory
 * is waited for first, CUSTOM's too, unless a stream captures a graph.
 * Returns: 0, also for a kind that keeps no memory (CUSTOM); -EREMOTEIO, -ESTALE (DRIVER_POOL,
 *   GRAPH). */
HOIST_API int hoist_memory_trim(hoist_memory *memory, size_t keep_bytes);

/* --- what a resource has --- */

typedef struct hoist_memory_info {
	size_t size;	      /* in: sizeof(hoist_memory_info) */
	int kind;
	const char *name;
	hoist_device *device; /* borrowed */
	int device_id;	      /* as the driver counts; -1: the memory is the host's */
	int is_host_accessible;
	int is_device_accessible; /* by an accelerator; 0: only the CPU sees the memory */
	int is_managed;
	int node;	      /* the requested NUMA node; -1: none or several */
	size_t alignment;     /* of every block */
	int is_shareable;     /* 1: other processes can import its blocks (SHAREABLE) */
	int is_mapped;	      /* 1: another process's resource: it holds imported buffers, and
			       * allocates nothing */
	int is_own;	      /* 0: CURRENT_POOL, whose pool is the device's and outlives the
			       * resource */
} hoist_memory_info;

/* Fills @info up to info->size.  Name and device live as long as the resource.
 * Returns: 0; -EINVAL (info->size is 0 or larger than this library knows). */
HOIST_API int hoist_memory_get_info(const hoist_memory *memory, hoist_memory_info *info);

typedef struct hoist_block_info {
	size_t size;	      /* in: sizeof(hoist_block_info) */
	hoist_memory *memory; /* borrowed; the resource of the block */
	uintptr_t address;    /* where the block starts */
	size_t bytes;	      /* as requested */
	size_t allocated_bytes; /* with rounding */
	int node;	      /* the NUMA node of its region; -1: several or unknown */
	uintptr_t region;     /* the region's first address */
	size_t region_bytes;
} hoist_block_info;

/* Fills @info up to info->size with the live block that holds @address, of any resource of kind
 * HOST, PINNED, DEVICE or MANAGED.  The information is valid as long as nobody frees the block.
 * Returns: 0; -ENOENT (no live block holds @address); -EINVAL (as hoist_memory_get_info()). */
HOIST_API int hoist_memory_find(uintptr_t address, hoist_block_info *info);

/* --- statistics --- */

/* Calls of the system and of drivers that may take long: indexes of
 * hoist_memory_statistics.calls. */
enum {
	HOIST_CALL_MAP,	       /* reserving, placing and populating host memory */
	HOIST_CALL_REGISTER,   /* pinning; unregistering */
	HOIST_CALL_ALLOC,      /* the driver's allocation and free */
	HOIST_CALL_EVENT,      /* recording events */
	HOIST_CALL_QUERY,      /* asking whether an event has passed */
	HOIST_CALL_WAIT,       /* waiting for events, for a budget */
	HOIST_N_CALLS
};

/* requested <= allocated; allocated + cached + pending <= reserved.  Pages that a live block gave
 * back, as those of dropped tensors (hoist/load.h), are in none of these, nor in the limit and the
 * budget; the sizes of blocks and regions still count them.  Each thread keeps counts of
 * its own, which are added up here: they are exact when no other thread is in a call. */
typedef struct hoist_memory_statistics {
	size_t size;		     /* in: sizeof(hoist_memory_statistics) */
	uint64_t requested_bytes;    /* of live blocks */
	uint64_t requested_peak;     /* exact to 64 KiB for each thread that allocates */
	uint64_t allocated_bytes;    /* of live blocks, with rounding */
	uint64_t cached_bytes;	     /* free blocks in the threads' caches */
	uint64_t pending_bytes;	     /* freed, waiting for a stream (or in quarantine) */
	uint64_t reserved_bytes;     /* in regions */
	uint64_t reserved_peak;
	uint64_t largest_free_bytes; /* the most that one block could have without growth */
	double fragmentation;	     /* 1 - largest free / all free; 0 if nothing is free */
	uint64_t n_blocks;	     /* live */
	uint64_t n_regions;
	uint64_t n_allocs;	     /* ever */
	uint64_t n_frees;
	uint64_t n_growths;	     /* regions ever made */
	uint64_t n_events;	     /* recorded, for stream-ordered frees */
	uint64_t n_exhausted;	     /* calls of the exhausted function */
	struct {
		uint64_t n;
		uint64_t ns;	     /* in all */
		uint64_t longest_ns; /* the longest one */
	} calls[HOIST_N_CALLS];
	uint64_t parked_bytes;	     /* of requested_bytes: the memory of exported Buffers that
				      * their consumers let go, and that waits for the device */
} hoist_memory_statistics;

/* Fills @statistics up to statistics->size.  CUSTOM, DRIVER_POOL, VIRTUAL and GRAPH have the bytes,
 * the counts of blocks and the peaks.  HEAP: jemalloc does not know the requested bytes, and counts
 * blocks that stay in the threads' caches late.  hoist_memory_snapshot() has the nodes of pages and
 * the number of huge ones, which take longer to ask for.
 * Returns: 0; -EINVAL (as hoist_memory_get_info()); -ESTALE (CUSTOM, DRIVER_POOL). */
HOIST_API int hoist_memory_get_statistics(hoist_memory *memory,
					  hoist_memory_statistics *statistics);

/* Sets the peaks to the present values.
 * Returns: 0; -EREMOTEIO (DRIVER_POOL), -ESTALE (CUSTOM, DRIVER_POOL). */
HOIST_API int hoist_memory_reset_peaks(hoist_memory *memory);

/* Writes the state of the resource to @fd as one JSON object:
 *
 *   name, kind, device   as made; "driver_pool", "cuda:0"
 *   options              as made, with the values of defaults; budget is {limit, used, peak}
 *   statistics           as above; calls by name
 *   regions              address, bytes, kind, pages (small, thp, hugetlb), node, placed (how:
 *                        default, kernel, first_touch), pinned, piece_bytes (of registrations),
 *                        given (by the caller), steps by name {ns, note: why it fell back},
 *                        huge_page_share (of the resident bytes), pages_per_node {sampled,
 *                        absent, unknown, nodes [{node, pages}]}
 *   huge_page_share, pages_per_node   of all regions; null if the kernel does not report them
 *   blocks               address, bytes (with rounding), requested, state (live, cached, pending,
 *                        free)
 *
 * The object shows one moment, and is written afterwards.
 * Returns: 0; -ENOMEM; the error of write(2) (a part is written then); -ESTALE. */
HOIST_API int hoist_memory_snapshot(hoist_memory *memory, int fd);

/* Records each allocation and free from now on in the file @path (made anew), as a line of CSV with
 * the columns of RMM's log: Thread,Time,Action,Pointer,Size,Stream.  The action is allocate, free,
 * or "allocate failure", with the pointer (nil).  The stream is the driver's handle; 0: none, or a
 * stream of the CPU.  Every call of the resource is slower during the recording.
 * @path NULL, or another @path, ends the recording, and so does the end of the resource.  Until
 * then the last lines are not in the file.
 * Returns: 0; the error of open(2) (nothing is recorded then); the error of write(2) of the
 *   recording that ends (it lacks all lines after that error); -ENOMEM; -ENOTSUP (CUSTOM,
 *   DRIVER_POOL, HEAP, VIRTUAL, GRAPH). */
HOIST_API int hoist_memory_trace(hoist_memory *memory, const char *path);

HOIST_END

#endif
