/* SPDX-License-Identifier: MIT */
/* hoist/memory.h - memory resources: where bytes come from.
 *
 * A Memory resource hands out blocks of one kind of memory.  Its own kinds carve
 * them from regions: one mapping or driver allocation, on one NUMA node, pinned
 * once.  Small blocks come from slabs (8 sizes per doubling) through a cache that
 * every thread has for itself; blocks above 256 KiB are exact to 64 KiB; a request
 * of half a region or more has a region of its own.  The bookkeeping lies beside
 * the memory, which the resource never touches: device memory cannot be touched,
 * fresh memory should not be.
 *
 *   kind          bytes are                                   host  device
 *   HOST          pageable host memory                         x
 *   PINNED        host memory registered with the device's     x     x
 *                 driver; on the CPU: mlock'ed                 x
 *   DEVICE        memory of the device; on the CPU: HOST             x
 *   MANAGED       memory that the driver moves to who uses it  x     x
 *   DRIVER_POOL   the driver's own stream-ordered pool               x
 *   HEAP          host memory from a jemalloc arena of its     x    (x)
 *                 own over HOST regions, for a device PINNED
 *                 ones; needs jemalloc in the program
 *   CUSTOM        what the caller's functions give              as they say
 *   VIRTUAL       device memory of the driver's virtual                x
 *                 address calls: whole granules, that
 *                 hoist_memory_grow() grows in place
 *   GRAPH         device memory of the graph that a stream             x
 *                 captures: taken and given while it does
 *
 * GRAPH: each device has one, hoist_memory_of_device().  Its blocks are taken by
 * hoist_memory_alloc_on() of a stream that captures; the address is known at once, the
 * memory is there while the graph runs.  Freed on the capturing stream, the block is freed
 * by the graph; freed on a stream that does not capture, that stream frees what a graph
 * that ran has left; freed without a stream, the block is the graph's alone, and hoist
 * forgets it.  Its attributes are HOIST_POOL_RESERVED_CURRENT and those after it.
 *
 * Addresses are integers: only those of host memory may be made pointers.  A
 * block always goes back to the region, and so the node, that it came from.
 * Freeing what is not the start of a live block of the resource (twice, from
 * elsewhere, inside a block) is -EINVAL, at every debug level, and changes
 * nothing; only HEAP leaves that to jemalloc.
 *
 * Streams: work queued on a stream may still use a block when the host frees it.
 * hoist_memory_free_on() says which stream has the last work; the block comes back
 * when that stream has passed this point, and at once for an allocation on the
 * same stream (device memory: the next user is behind the last one).  Host memory
 * waits for the event always, as the next writer may be the host itself.
 *
 * Consumers: work that a consumer queued may still use the memory of an exported Buffer
 * (hoist/dlpack.h, hoist/cai.h) when the consumer has let go of it.  When such a Buffer ends, its
 * memory is parked: still counted as requested, and in parked_bytes.  The memory comes back when a
 * wait for the whole device has ended that began after the consumer let go (cuCtxSynchronize(),
 * hipDeviceSynchronize(); host and managed memory: a wait for every device of the driver).  One
 * wait serves all parked memory.  Who waits:
 *   hoist_memory_trim(), hoist_device_synchronize()
 *   a resource that is exhausted or lacks budget
 *   the end of a resource that only parked memory keeps
 *   an allocation of a Buffer that finds more than 64 MiB, and more than 1/32 of the device's
 *   memory, parked; below that, resources grow instead
 * No wait is begun while a hoist_stream captures a graph, or a stream that
 * the legacy default stream waits for.  Of other captures hoist cannot know, and drivers break
 * them where somebody waits for the device: wrap such a stream (hoist_stream_wrap()), or trim
 * before.  To give memory to another library at once, trim too.
 *
 * Memory that runs out: the resource first gives back what it only kept and what is parked, then
 * the others that take from the same place or share the budget do, then the
 * caller's function is called (options.exhausted), then the request fails with the
 * first failure's code and text.
 *
 * Threads: every function may be called from any thread.  fork: a child may go on
 * with memory that no driver has: HOST, and the CPU's PINNED (but it is not locked
 * there) and HEAP; of the others, what needs the driver is -ESTALE, and CUSTOM is.
 * A resource that is NULL is -EINVAL, unless a comment says otherwise.
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

/* Where host memory goes.  DEFAULT: near the device if its node is known (as
 * PREFER), else LOCAL. */
enum {
	HOIST_PLACE_DEFAULT,
	HOIST_PLACE_LOCAL,	/* the node of the thread that grows the resource */
	HOIST_PLACE_PREFER,	/* the first of the nodes; others when it is full */
	HOIST_PLACE_BIND,	/* these nodes only: fails rather than spills */
	HOIST_PLACE_INTERLEAVE	/* page by page over the nodes */
};

enum {
	HOIST_PAGES_DEFAULT, /* transparent huge pages, while they come fast enough */
	HOIST_PAGES_SMALL,   /* the kernel's base pages */
	HOIST_PAGES_HUGETLB  /* from the 2 MiB hugetlb pool; as DEFAULT where it has too few */
};

/* MANAGED: where the driver prefers to keep the pages, when both sides use them. */
enum {
	HOIST_PREFER_NONE,     /* the driver decides */
	HOIST_PREFER_DEVICE,   /* the resource's device */
	HOIST_PREFER_HOST,     /* host memory, on any node */
	HOIST_PREFER_HOST_NODE /* host memory of the NUMA node options.preferred_node; CUDA */
};

/* The caller's own resource.  Each function gets @context, which stays until destroy was
 * called; alloc and free must be callable from any thread, and no lock of ours is held.
 * @stream is as given, and NULL for calls without one.
 * What alloc gave, or hoist_buffer_wrap() was given, is noted with its size: free is called for
 * live blocks alone. */
typedef struct hoist_memory_functions {
	size_t size; /* sizeof(hoist_memory_functions) */
	/* 0 and *ret, or a negative errno value, which is passed on.  @bytes is at least 1,
	 * @align a power of two, at least 1. */
	int (*alloc)(void *context, size_t bytes, size_t align, hoist_stream *stream,
		     uintptr_t *ret);
	/* @bytes as asked for, or as hoist_buffer_wrap() was told. */
	void (*free)(void *context, uintptr_t address, size_t bytes, hoist_stream *stream);
	/* Called when the resource ends, with no block in use; may be NULL. */
	void (*destroy)(void *context);
	int is_host_accessible;
	int is_device_accessible;
	int is_managed;
	/* Waits until all work on the resource's memory is done that its owner queued: 0, or a
	 * negative errno value.  May be NULL: there is nothing to wait for. */
	int (*synchronize)(void *context);
} hoist_memory_functions;

/* What a device may do with VIRTUAL memory. */
enum { HOIST_ACCESS_READ_WRITE, HOIST_ACCESS_READ, HOIST_ACCESS_NONE };

/* What VIRTUAL memory is made like; 0 or NULL is the default of every option.  It is pinned memory of
 * the resource's device, which no other process can import. */
typedef struct hoist_virtual_options {
	size_t size;		  /* sizeof(hoist_virtual_options) */
	int minimum_granularity;  /* 1: blocks are multiples of the smallest granularity that the
				   * driver has, not of the recommended one */
	int rdma;		  /* 1: network adapters may access it directly */
	uintptr_t address_hint;	  /* where blocks begin, if that is free; a multiple of the
				   * granularity.  0: the driver chooses */
	size_t address_align;	  /* of blocks; a power of two; 0: the granularity */
	size_t reserve_bytes;	  /* addresses that each block reserves at least: up to there it
				   * always grows in place.  0: its own alone */
	hoist_device *const *peers; /* other devices that may access it; copied */
	size_t n_peers;
	int self_access;	  /* HOIST_ACCESS_... of the resource's device */
	int peer_access;	  /* of the peers */
} hoist_virtual_options;

/* Called without any lock when memory or a limit is exhausted, after the resource has given
 * back what it can: frees something, or waits; it does not allocate of the same resource, which
 * would call it again.  @attempt counts from 1.
 * Returns: not 0 to have the request tried again. */
typedef int hoist_memory_exhausted(void *context, size_t bytes, unsigned attempt);

/* options.flags; 0: none */
#define HOIST_MEMORY_NO_STATISTICS 1u /* counts of blocks and bytes asked for stay 0 */
#define HOIST_MEMORY_CURRENT_POOL 2u  /* DRIVER_POOL: the device's current pool, which is not
				       * this resource's own and outlives it */
#define HOIST_MEMORY_SHAREABLE 4u     /* DRIVER_POOL: other processes can import its blocks
				       * (hoist/ipc.h); not with CURRENT_POOL */

/* 0 or NULL is the default of every option.  One that its kind does not have must be left at
 * that, as it would change nothing:
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
 *   functions                                  CUSTOM; needed there
 *   name, exhausted                            all
 *
 * DEVICE on the CPU has those of HOST.  The name, nodes and functions are copied; the budget and
 * the upstream are kept alive; what the contexts point to is the caller's to keep. */
typedef struct hoist_memory_options {
	size_t size;	       /* sizeof(hoist_memory_options) */
	int kind;	       /* HOIST_MEMORY_...; 0: HOST */
	unsigned flags;
	hoist_device *device;  /* NULL: the CPU.  Needed by DEVICE, MANAGED, DRIVER_POOL,
				* VIRTUAL */
	const char *name;      /* shown in messages and snapshots, up to 63 bytes of it; NULL: made
				* up */
	int placement;	       /* HOIST_PLACE_... */
	const int *nodes;      /* NUMA nodes, for PREFER (one), BIND and INTERLEAVE */
	size_t n_nodes;
	int pages;	       /* HOIST_PAGES_... */
	unsigned debug;	       /* 0: what is always checked; 1 poisons freed memory, finds later
				* writes to it (host); 2 also puts redzones around blocks and keeps
				* freed ones in a quarantine for a while (host and device) */
	size_t region_bytes;   /* what growth asks for at least; 0: 32 MiB (PINNED on the CPU, where
				* locked memory is scarce: 2 MiB) */
	size_t keep_bytes;     /* empty regions kept for reuse; 0: 8 times region_bytes */
	size_t cache_bytes;    /* that one thread may keep to itself; 0: 4 MiB.  1: nothing */
	size_t limit_bytes;    /* reserved bytes never exceed it; 0: no limit.  DRIVER_POOL: its
				* maximum size */
	size_t soft_limit_bytes; /* above it, growth first waits for the streams and gives back
				  * what is cached and empty; at most limit_bytes; 0: none */
	hoist_budget *budget;  /* regions are charged to it; NULL: none */
	uint64_t budget_wait_ns; /* how long to wait for it at most, then -EDQUOT; 0: not at all */
	hoist_memory_exhausted *exhausted; /* NULL: none */
	void *exhausted_context;
	unsigned exhausted_retries; /* calls of it for one request at most; 0: 1 */
	const hoist_memory_functions *functions; /* CUSTOM */
	void *functions_context;
	hoist_memory *upstream; /* regions are blocks of this resource, which is CUSTOM or a
				 * DRIVER_POOL and whose accessibility must fit; placement and
				 * pages are its own.  NULL: regions are the system's, or the
				 * driver's */
	int preferred_location; /* HOIST_PREFER_...: advice that the driver is given for each
				 * region; where it does not take it, there is no block */
	int preferred_node;	/* for HOIST_PREFER_HOST_NODE */
	const hoist_virtual_options *virtual_options; /* NULL: all defaults */
} hoist_memory_options;

/* A new resource; @options NULL is HOST with all defaults.  No memory is taken, no driver
 * context made, before the first block: whether the driver has pools or managed memory,
 * that says.
 * Returns: 0; -EINVAL (the options, with which and why); -ENODEV; -ENOMEM; -ENOTSUP
 *   (MANAGED, DRIVER_POOL, VIRTUAL: the CPU has none of them; VIRTUAL: the driver or the device has
 *   none, or none for RDMA, or a peer cannot access the device; HEAP: the program has no jemalloc);
 *   -EAGAIN
 *   (HEAP: jemalloc has no more arenas: some 4000). */
HOIST_API int hoist_memory_create(const hoist_memory_options *options, hoist_memory **ret);

/* The resource of this kind that @device's Buffers come from, shared by all; a new reference.
 * DEVICE or PINNED; for the CPU, HOST is the same as DEVICE.  GRAPH: the only one of the device.
 * Returns: 0; -EINVAL; -ENOMEM; -ENOTSUP (GRAPH: the CPU has none). */
HOIST_API int hoist_memory_of_device(hoist_device *device, int kind, hoist_memory **ret);

HOIST_API hoist_memory *hoist_memory_ref(hoist_memory *memory); /* not NULL */
/* Takes NULL.  The last reference gives everything back, after the streams have passed what
 * was freed on them; blocks still in use then keep their regions, for good (of a HEAP, they
 * end with it). */
HOIST_API void hoist_memory_unref(hoist_memory *memory);

/* @bytes of it; 0 bytes is address 0, which takes nothing.  @align is a power of two up to
 * 2 MiB; 0 is what the kind gives by itself (64 host, 16 HEAP, 256 device, 1 CUSTOM).  Content
 * is undefined.
 * Returns: 0; -EINVAL (@align; CUSTOM: its function gave nonsense); -ENOMEM (host, bookkeeping),
 *   -ENOSPC (device, or the limit that it was opened with), -EDQUOT (a limit of the resource or
 *   its budget), these with the figures; -EPERM (memlock limit, with the remedy); -ENOTSUP (the
 *   device has no such memory); -EREMOTEIO (the driver, with what it said); -ESTALE; CUSTOM, or
 *   an upstream that is: what its function says; HEAP: -EDEADLK within an exhausted function;
 *   debug levels 1 and 2: -EFAULT if free memory was written to, with where (the next call goes
 *   on without it). */
HOIST_API int hoist_memory_alloc(hoist_memory *memory, size_t bytes, size_t align, uintptr_t *ret);

/* The same for work on @stream: the block may be one that earlier work on @stream still uses.
 * Until that has passed, only @stream may touch it.  Whose stream:
 *   DEVICE, VIRTUAL       of the resource's device
 *   DRIVER_POOL           of the resource's device; the stream captures no graph
 *   GRAPH                 of the resource's device; the stream captures a graph
 *   MANAGED               of its device, or of the CPU
 *   PINNED, HEAP          of any device of its driver, or of the CPU
 *   HOST                  of the CPU
 *   CUSTOM                any: its functions know
 * Returns: as hoist_memory_alloc(); -EINVAL for another's stream, and for NULL; GRAPH: for one that
 *   does not capture, and for hoist_memory_alloc(); -ENOTSUP (DRIVER_POOL: for one that
 *   captures). */
HOIST_API int hoist_memory_alloc_on(hoist_memory *memory, size_t bytes, size_t align,
				    hoist_stream *stream, uintptr_t *ret);

/* Gives a block back: nothing uses it any more, but for streams named to hoist_memory_use(),
 * which are waited for (not by the caller).  Address 0 is ignored.
 * Returns: 0; -EINVAL, with what it is instead; -ESTALE.  The block stays live after these, after
 *   -ENOMEM (no room to note a block that streams use), and after -EAGAIN (DRIVER_POOL, VIRTUAL: a
 *   stream that uses the block captures a graph; @stream of hoist_memory_free_on() counts,
 *   too).  Debug levels 1 and 2: -EFAULT, after the block was freed, if bytes around it, or
 *   of it while it was free, were overwritten.  DRIVER_POOL, GRAPH: -EREMOTEIO if the driver does
 *   not take the block; the block is gone then. */
HOIST_API int hoist_memory_free(hoist_memory *memory, uintptr_t address);

/* The same when @stream has passed the work queued on it so far, which the caller does not wait
 * for (HEAP and VIRTUAL wait).  A block freed while @stream captures a graph is set aside until
 * hoist_memory_release_captured(); GRAPH: the graph frees the block; DRIVER_POOL, VIRTUAL:
 * see -EAGAIN above.  For whose streams, see hoist_memory_alloc_on().
 * Returns: as hoist_memory_free(); -EINVAL for another's stream, and for NULL. */
HOIST_API int hoist_memory_free_on(hoist_memory *memory, uintptr_t address, hoist_stream *stream);

/* What VIRTUAL blocks are multiples of: of that many bytes each has all, whatever was asked for.
 * Returns: 0; -ENOTSUP (not VIRTUAL); -EREMOTEIO; -ESTALE. */
HOIST_API int hoist_memory_granularity(hoist_memory *memory, size_t *ret);

/* Makes the VIRTUAL block that starts at @address one of @bytes, with its content; what is new is
 * undefined.  In place, if the addresses behind it can be had (up to reserve_bytes, always); else its
 * memory is shown at other addresses, without a copy, and *ret is where the block starts now: the
 * old address is gone.  @bytes that it has already change nothing.
 * A block that moves must not be in use, but for streams named to hoist_memory_use(), which the
 * caller waits for.  A block that a buffer owns is grown by hoist_buffer_grow().
 * Returns: 0; -EINVAL (no live block starts there); -ENOTSUP (not VIRTUAL); -ENOMEM, -ENOSPC
 *   (memory, addresses); -EAGAIN (it must move, and one of those streams captures a graph);
 *   -EREMOTEIO; -ESTALE.  After each the block is as it was. */
HOIST_API int hoist_memory_grow(hoist_memory *memory, uintptr_t address, size_t bytes,
				uintptr_t *ret);

/* Work on @stream uses this block too: freeing it will wait for that.  GRAPH: the graph orders its
 * work, nothing is noted.
 * Returns: 0; -EINVAL (no live block starts there; another's stream); -ENOMEM; -ENOTSUP (CUSTOM,
 *   HEAP); -ESTALE. */
HOIST_API int hoist_memory_use(hoist_memory *memory, uintptr_t address, hoist_stream *stream);

/* Gives back what was freed during captures: call it when those graphs are gone, and, of memory that
 * was exported, when its consumers' work is done.
 * Returns: 0, also where there is nothing of the kind; -ESTALE. */
HOIST_API int hoist_memory_release_captured(hoist_memory *memory);

/* Blocks until the work on the resource's memory is done, whoever queued it: CUSTOM asks its
 * synchronize function; for the others it is hoist_device_synchronize() of the resource's device.
 * Returns: 0; what that says, with the resource's name; -EINVAL (CUSTOM: its function gave
 *   nonsense); -ESTALE. */
HOIST_API int hoist_memory_synchronize(hoist_memory *memory);

/* The address by which the device's kernels see the byte at @address: with HIP it differs
 * from the host's for PINNED memory.  The CPU's is the same.
 * Returns: 0; -EINVAL if it is in no live block, -ENOTSUP if the device cannot see it;
 *   -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_memory_device_address(hoist_memory *memory, uintptr_t address, uintptr_t *ret);

/* Lets a resource of kind HOST, PINNED or DEVICE carve blocks from memory that the caller has
 * and keeps: it must stay until the resource has ended, and is not unmapped or freed by it.
 * PINNED registers it, and takes that back at the end.  Only the 64 KiB-aligned part is used; no
 * budget is charged for it.
 * Returns: 0; -EINVAL (too small; overlaps another region; the resource has a limit_bytes, which
 *   counts what it takes itself); -ENOMEM, -EPERM, -EREMOTEIO, -ESTALE; -ENOTSUP (other kinds). */
HOIST_API int hoist_memory_add_region(hoist_memory *memory, uintptr_t address, size_t bytes);

/* Gives back what is cached and empty until at most @keep_bytes lie in empty regions;
 * DRIVER_POOL: until the driver's pool holds at most that; GRAPH: all that no graph uses goes back,
 * whatever @keep_bytes says.  What waits for a stream stays; what is
 * parked is waited for first, that of CUSTOM too, unless a stream captures a graph.
 * Returns: 0, also where nothing is kept (CUSTOM); -EREMOTEIO, -ESTALE (DRIVER_POOL, GRAPH). */
HOIST_API int hoist_memory_trim(hoist_memory *memory, size_t keep_bytes);

typedef struct hoist_memory_info {
	size_t size;	      /* in: sizeof(hoist_memory_info) */
	int kind;
	const char *name;
	hoist_device *device; /* borrowed */
	int device_id;	      /* as the driver counts; -1 where memory is the host's */
	int is_host_accessible;
	int is_device_accessible; /* by an accelerator; 0 for what only the CPU sees */
	int is_managed;
	int node;	      /* the one NUMA node asked for; -1: none or several */
	size_t alignment;     /* of every block */
	int is_shareable;     /* other processes can import its blocks: SHAREABLE */
	int is_mapped;	      /* it is another process's: it has what is imported, and allocates
			       * nothing */
	int is_own;	      /* 0: CURRENT_POOL, whose pool is the device's and outlives this */
} hoist_memory_info;

/* Fills @info up to the size it says.  Name and device live as long as the resource.
 * Returns: 0; -EINVAL if info->size is 0 or larger than this library knows. */
HOIST_API int hoist_memory_get_info(const hoist_memory *memory, hoist_memory_info *info);

typedef struct hoist_block_info {
	size_t size;	      /* in: sizeof(hoist_block_info) */
	hoist_memory *memory; /* borrowed; the resource of the block */
	uintptr_t address;    /* where the block starts */
	size_t bytes;	      /* as asked for */
	size_t allocated_bytes; /* with rounding */
	int node;	      /* NUMA node of its region; -1 several or unknown */
	uintptr_t region;     /* the region's first address */
	size_t region_bytes;
} hoist_block_info;

/* The live block that holds @address, of any resource of kind HOST, PINNED, DEVICE or MANAGED.
 * What it says holds as long as nobody frees the block.
 * Returns: 0; -ENOENT if none does; -EINVAL as hoist_memory_get_info(). */
HOIST_API int hoist_memory_find(uintptr_t address, hoist_block_info *info);

/* Calls of the system and of drivers that may take long. */
enum {
	HOIST_CALL_MAP,	       /* reserving, placing and populating host memory */
	HOIST_CALL_REGISTER,   /* pinning; unregistering */
	HOIST_CALL_ALLOC,      /* the driver's allocation and free */
	HOIST_CALL_EVENT,      /* recording events */
	HOIST_CALL_QUERY,      /* asking whether an event has passed */
	HOIST_CALL_WAIT,       /* waiting for events, for a budget */
	HOIST_N_CALLS
};

/* requested <= allocated; allocated + cached + pending <= reserved.  Counts of blocks are kept
 * by each thread and added up here: they are exact when no other thread is in a call. */
typedef struct hoist_memory_statistics {
	size_t size;		     /* in: sizeof(hoist_memory_statistics) */
	uint64_t requested_bytes;    /* by live blocks */
	uint64_t requested_peak;     /* exact but for 64 KiB for each thread that allocates */
	uint64_t allocated_bytes;    /* these, with rounding */
	uint64_t cached_bytes;	     /* free blocks in the threads' caches */
	uint64_t pending_bytes;	     /* freed, waiting for a stream (or in quarantine) */
	uint64_t reserved_bytes;     /* in regions */
	uint64_t reserved_peak;
	uint64_t largest_free_bytes; /* what one block could have without growth */
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
	uint64_t parked_bytes;	     /* of requested_bytes: exported Buffers' that their consumers let
				      * go, and that wait for the device */
} hoist_memory_statistics;

/* CUSTOM, DRIVER_POOL, VIRTUAL and GRAPH have the bytes, the counts of blocks and the peaks; of a
 * HEAP, jemalloc does not know the bytes asked for, and counts late what stays in the threads' caches.
 * Where pages are, and how many are huge ones, a snapshot says: that takes longer to ask.
 * Returns: 0; -EINVAL as hoist_memory_get_info(); -ESTALE (CUSTOM, DRIVER_POOL). */
HOIST_API int hoist_memory_get_statistics(hoist_memory *memory, hoist_memory_statistics *statistics);
/* Peaks begin anew at what is now.
 * Returns: 0; -EREMOTEIO (DRIVER_POOL), -ESTALE (CUSTOM, DRIVER_POOL). */
HOIST_API int hoist_memory_reset_peaks(hoist_memory *memory);

/* Writes what the resource holds to @fd as one JSON object:
 *
 *   name, kind, device   as made; "driver_pool", "cuda:0"
 *   options              as made, with what the defaults are; budget is {limit, used, peak}
 *   statistics           as above; calls by name
 *   regions              address, bytes, kind, pages (small, thp, hugetlb), node, placed (how:
 *                        default, kernel, first_touch), pinned, piece_bytes (of registrations),
 *                        given (by the caller), steps by name {ns, note: why it fell back},
 *                        huge_page_share (of what is resident), pages_per_node {sampled,
 *                        absent, unknown, nodes [{node, pages}]}
 *   huge_page_share, pages_per_node   of all regions; null where the kernel does not tell
 *   blocks               address, bytes (with rounding), requested, state (live, cached, pending,
 *                        free)
 *
 * It shows one moment, and is written after that.
 * Returns: 0; -ENOMEM; what write(2) says (part of it is written then); -ESTALE. */
HOIST_API int hoist_memory_snapshot(hoist_memory *memory, int fd);

/* Writes each allocation and free from now on to the file @path (made anew) as a line of CSV with
 * the columns of RMM's log: Thread,Time,Action,Pointer,Size,Stream.  The action is allocate,
 * free, or "allocate failure", with the pointer (nil).  The stream is the driver's handle; 0 is
 * none, or one of the CPU.  Every call is slower meanwhile.
 * NULL, or another @path, ends it: until then the last lines are not in the file.  So does the
 * end of the resource.
 * Returns: 0; what open(2) says, nothing is recorded then; what write(2) said of the trace that
 *   ends, which lacks all that followed; -ENOMEM; -ENOTSUP (CUSTOM, DRIVER_POOL, HEAP,
 *   VIRTUAL, GRAPH). */
HOIST_API int hoist_memory_trace(hoist_memory *memory, const char *path);

/* Attributes of a driver's pool, with the driver's meaning; GRAPH has the last four.  The first four can be set, the *_HIGH
 * ones to 0. */
enum {
	HOIST_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES,
	HOIST_POOL_REUSE_ALLOW_OPPORTUNISTIC,
	HOIST_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
	HOIST_POOL_RELEASE_THRESHOLD, /* bytes kept at synchronization; hoist sets UINT64_MAX */
	HOIST_POOL_RESERVED_CURRENT,
	HOIST_POOL_RESERVED_HIGH,
	HOIST_POOL_USED_CURRENT,
	HOIST_POOL_USED_HIGH
};

/* They make the pool, and with it the device's context, if no block did yet.
 * Returns: 0; -EINVAL (no such attribute, or not to be set to that); -ENOTSUP (neither a
 *   DRIVER_POOL nor, for the last four, GRAPH; the driver does not have it); -EREMOTEIO; -ESTALE. */
HOIST_API int hoist_memory_get_attribute(hoist_memory *memory, int attribute, uint64_t *ret);
HOIST_API int hoist_memory_set_attribute(hoist_memory *memory, int attribute, uint64_t value);

/* The driver's handle of the pool (CUmemoryPool, hipMemPool_t), for the driver's own calls; it stays
 * as long as the resource.  info.is_own says whose it is: nobody else destroys the resource's own,
 * and what is allocated of it elsewhere is freed there.  Makes the pool, as above.
 * Returns: 0; -ENOTSUP (not a DRIVER_POOL); -EREMOTEIO; -ESTALE. */
HOIST_API int hoist_memory_native_pool(hoist_memory *memory, void **ret);

/* Lets kernels and copies of @peer access all memory of the pool, what is allocated already too, or
 * no longer.  The pool's own device always has access.  Of CURRENT_POOL, it is everybody's setting;
 * of another process's pool, this process's alone.  Makes the pool, as above.
 * Returns: 0; -EINVAL (@peer is NULL or of another driver; @allowed is 0 for the own device);
 *   -ENOTSUP (not a DRIVER_POOL; @peer cannot access the device: hoist_device_can_access());
 *   -EREMOTEIO; -ESTALE. */
HOIST_API int hoist_memory_set_peer_access(hoist_memory *memory, hoist_device *peer, int allowed);
/* 1 or 0, as the driver says now; 0 for a device of another driver.
 * Returns: 0; as hoist_memory_set_peer_access(). */
HOIST_API int hoist_memory_get_peer_access(hoist_memory *memory, hoist_device *peer, int *ret);

HOIST_END

#endif
