/* SPDX-License-Identifier: MIT */
/* hoist/ipc.h - buffers that several processes of one machine use.
 *
 * The exporter describes a buffer; the description travels to another process, which
 * imports it: a buffer over the same bytes, with the same dtype, shape and strides.  What
 * either writes, the other one sees.  The address is another one in each process.
 *
 * What can be exported, and what that takes:
 *
 *   HOST    a buffer of the CPU made with HOIST_BUFFER_SHAREABLE.  It is a memfd of its
 *           own: the importer gets these bytes and no others.  Takes the file descriptor
 *   POOL    device memory from a DRIVER_POOL made with HOIST_MEMORY_SHAREABLE.  The importer
 *           needs the pool itself once, which takes a file descriptor, and then the
 *           description of each buffer.  A buffer from a resource that divides such a pool's
 *           blocks brings the whole block
 *   DEVICE  other device memory of the driver's plain allocations: what Buffers have by
 *           default, and what other libraries allocated.  Takes the description alone; the
 *           importer can reach the whole allocation around the buffer, with all that lies
 *           there
 *
 * hoist_ipc_send() and hoist_ipc_receive() do all that over a connected Unix socket, whose peer
 * (SO_PEERCRED) is of the same user, or root.  hoist_ipc_export() and hoist_ipc_import() leave
 * the way, and with whom, to the caller: a descriptor is plain bytes, file descriptors are
 * duplicated as any others.
 *
 * Life: an imported buffer never frees the exporter's memory.  Importing one descriptor
 * several times gives buffers at one address, each closed for itself, and so does importing in
 * the exporting process.  HOST memory stays until all processes have let go of it.  Device
 * memory is the exporter's: drivers leave undefined what importers see once it is freed, so
 * the exporter keeps its buffer until they are done (they say so by a message of their own, once
 * they have waited for their work: no wait of the exporter's covers that of another process).
 *
 * Order: exporting waits for the work on the buffer's stream.  Nothing orders the streams of
 * two processes: who has written synchronizes before he tells the other.
 *
 * Trust: what comes from a peer is checked, each number of it, before it is used: a file of
 * another kind, one that its owner could cut off (SIGBUS), a description that leaves its
 * memory, is refused.  Drivers' handles are opaque: what they refer to, only the driver
 * knows.  The bytes of shared memory can change while they are read.
 *
 * A buffer that is read-only is so for the importer.  If its storage was frozen
 * (hoist_buffer_freeze()) and is the host's, the kernel sees to that: new mappings of it
 * cannot be written to.
 *
 * Threads: any; one thread at a time per socket and direction.  fork: a child goes on with HOST
 * memory, which it shares with its parent; device memory that the parent imported is not its own.
 */
#ifndef HOIST_IPC_H
#define HOIST_IPC_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>
#include <hoist/device.h>
#include <hoist/error.h>
#include <hoist/layout.h>
#include <hoist/memory.h>

HOIST_BEGIN

#define HOIST_IPC_VERSION 1

enum {
	HOIST_IPC_HOST = 1,
	HOIST_IPC_DEVICE = 2,
	HOIST_IPC_POOL = 3,
	HOIST_IPC_EMPTY = 4 /* a buffer without bytes: there is no memory to share */
};

#define HOIST_IPC_READ_ONLY 1u /* descriptor.flags */

/* A buffer as another process needs to know it: plain bytes, which may be stored and sent
 * as they are, within one machine.  Its size is that of this version. */
typedef struct hoist_ipc_descriptor {
	char magic[8];		  /* "hoistipc" */
	uint32_t version;	  /* HOIST_IPC_VERSION */
	uint32_t size;		  /* sizeof(hoist_ipc_descriptor) */
	uint32_t kind;		  /* HOIST_IPC_... */
	uint32_t flags;
	unsigned char process[16]; /* of the exporting process, and no other */
	int64_t pid;		  /* as that process knows itself; only told, never used */
	char api[8];		  /* the device: "cpu", "cuda", "hip", zeros behind */
	char pci[16];		  /* which of them: "0000:65:00.0"; zeros: the CPU */
	int32_t ordinal;	  /* where several have that: by number */
	int32_t rank;
	unsigned char memory[16]; /* POOL: the resource; hoist_ipc_memory_uuid() */
	unsigned char payload[64]; /* DEVICE, POOL: what the driver made of the allocation */
	uint64_t address;	  /* of the allocation, in the exporting process */
	uint64_t offset;	  /* from the allocation's beginning to the buffer's lowest byte */
	uint64_t bytes;		  /* from there on, to its highest one */
	uint64_t first;		  /* from there to the first element; not 0 with negative strides */
	uint32_t bit;		  /* 0 to 7: where that begins in its byte (sub-byte types) */
	uint32_t dtype;
	int64_t shape[HOIST_MAX_RANK];	 /* @rank values; the others are 0 */
	int64_t strides[HOIST_MAX_RANK]; /* in elements */
} hoist_ipc_descriptor;

/* --- descriptors --- */

/* Describes @buffer.  *@ret_fd is a new file descriptor to be passed with it, the caller's to
 * close; -1 where none is needed (DEVICE, EMPTY).  NULL: none is made, which HOST does not allow;
 * the importer of a POOL then needs the resource already.
 * Returns: 0; -ENOTSUP (memory that cannot be shared, with what to make instead; the driver
 *   cannot do it); -EINVAL; -EMFILE; as hoist_buffer_allocate() of a LAZY one; -EREMOTEIO,
 *   -ESTALE. */
HOIST_API int hoist_ipc_export(hoist_buffer *buffer, hoist_ipc_descriptor *ret, int *ret_fd);

/* A buffer over the memory that the @bytes bytes at @descriptor describe.  @fd is what came with
 * them and stays the caller's; -1: nothing.  The resource of a POOL's buffer is the first there is
 * of: @memory (NULL: none), the one registered under its name, one made of @fd and registered.
 * Other kinds need no @memory.
 * Returns: 0; -EINVAL (@bytes are not those of a descriptor; the buffer leaves the memory that is
 *   there, with both figures; @memory is not the exporter's); -EBADMSG (no descriptor, or one that
 *   contradicts itself; @fd is not what it should be); -EBADF; -ENOENT (a POOL's resource is not
 *   there); -ENODEV (the device is not, or has no driver); -ENOTSUP; -ENOMEM, -EMFILE; -EREMOTEIO,
 *   -ESTALE: what the driver says, for instance when the exporter has ended. */
HOIST_API int hoist_ipc_import(const void *descriptor, size_t bytes, int fd, hoist_memory *memory,
			       hoist_buffer **ret);

/* --- sockets --- */

/* Sends @buffer, with what it takes, over @socket: a connected Unix socket of type STREAM or
 * SEQPACKET, blocking or not.  Waits @timeout_ms at most for the peer to take it; -1: any time.
 * When it returns the peer need not have received it.
 * Returns: 0; -EINVAL (no such socket); -EBADF; -EPERM (its peer is another user's process);
 *   -EPIPE (the peer is gone; no signal is raised);
 *   -ETIMEDOUT; what sendmsg(2) says; as hoist_ipc_export().  If it fails, a part may have been
 *   sent: the socket is of no more use, unless the failure is hoist_ipc_export()'s or -EPERM. */
HOIST_API int hoist_ipc_send(int socket, hoist_buffer *buffer, int timeout_ms);

/* Receives one.  Bytes that follow it stay in the socket.  No file descriptor that the peer sends
 * is left open, whatever it sends.
 * Returns: 0; -EINVAL (no such socket); -EBADF; -EPERM (its peer is another user's process:
 *   nothing was read); -EPIPE (the peer closed it, between two buffers);
 *   -ECONNRESET (half way); -ETIMEDOUT; -EBADMSG; -EMFILE (no room for what came with it); as
 *   hoist_ipc_import().  After a failure of hoist_ipc_import()'s, or for want of room, the next one
 *   can be received; after others the socket is of no more use. */
HOIST_API int hoist_ipc_receive(int socket, int timeout_ms, hoist_buffer **ret);

/* --- resources: DRIVER_POOL with HOIST_MEMORY_SHAREABLE --- */

/* A new file descriptor for the pool, the caller's to close.
 * Returns: 0; -ENOTSUP (not a shareable one; the driver cannot do it); -EMFILE; as the resource's
 *   first hoist_memory_alloc(); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_ipc_export_memory(hoist_memory *memory, int *ret_fd);

/* The resource behind such a descriptor, in another process: blocks cannot be allocated from it
 * (-ENOTSUP), imported buffers come from it.  @fd stays the caller's.  @uuid is the exporter's name
 * for it, under which it is registered: if there is one of that name, it is given.
 * Returns: 0; -EINVAL (@fd is negative; the CPU); -EBADF; -ENOTSUP (the driver cannot do it; any
 *   device of HIP's but the first); -ENOMEM, -EMFILE; -EREMOTEIO. */
HOIST_API int hoist_ipc_import_memory(hoist_device *device, int fd, const unsigned char uuid[16],
				      hoist_memory **ret);

/* The resource's name, made at random with it; that of an imported one is its exporter's.
 * Returns: 0; -ENOTSUP (not a shareable one). */
HOIST_API int hoist_ipc_memory_uuid(const hoist_memory *memory, unsigned char uuid[16]);

/* Lets hoist_ipc_find_memory() and imports find @memory under its name, as long as it lives.
 * Gives a new reference to the one that is registered: another than @memory if that was first.
 * Returns: 0; -ENOTSUP (not a shareable one); -ESTALE. */
HOIST_API int hoist_ipc_register_memory(hoist_memory *memory, hoist_memory **ret);

/* A new reference.  Returns: 0; -ENOENT. */
HOIST_API int hoist_ipc_find_memory(const unsigned char uuid[16], hoist_memory **ret);

HOIST_END

#endif
