/* SPDX-License-Identifier: MIT */
/* hoist/ipc.h - buffers that several processes of one machine use.
 *
 *     hoist_ipc_send(socket, buffer, -1);            // the exporter
 *
 *     hoist_ipc_receive(socket, -1, &theirs);        // the importer: the same bytes
 *     ... work with theirs ...
 *     hoist_buffer_unref(theirs);                    // the exporter's memory stays
 *
 * The exporter describes a buffer.  The description travels to another process, which imports it:
 * the import is a buffer over the same bytes, with the same dtype, shape and strides.  Each process
 * sees the bytes that the other writes.  The address differs from process to process.
 *
 * Three kinds of memory can be exported:
 *
 *   HOST    a buffer of the CPU made with HOIST_BUFFER_SHAREABLE.  The buffer is a memfd of its
 *   own:
 *           the importer gets these bytes and no others.  The importer needs the file descriptor
 *   POOL    device memory from a DRIVER_POOL made with HOIST_MEMORY_SHAREABLE.  The importer needs
 *           the pool itself once, by a file descriptor, and then the description of each buffer.  A
 *           buffer from a resource that divides such a pool's blocks brings the whole block
 *   DEVICE  other device memory from the driver's plain allocations: the memory of Buffers by
 *           default, and memory that other libraries allocated.  The importer needs the description
 *           alone, and can reach the whole allocation around the buffer with all data in it
 *
 * hoist_ipc_send() and hoist_ipc_receive() transfer all that over a connected Unix socket.  The
 * socket's peer (SO_PEERCRED) must be of the same user, or root.  With hoist_ipc_export() and
 * hoist_ipc_import() the caller chooses the way and the peer: a descriptor is plain bytes, and file
 * descriptors are duplicated like any others.
 *
 * Life: an imported buffer never frees the exporter's memory.  Importing one descriptor several
 * times gives buffers at one address, each closed separately; so does importing in the exporting
 * process.  HOST memory stays until all processes have let go of it.  Device memory is the
 * exporter's: drivers leave undefined what importers see once the memory is freed.  So the exporter
 * keeps its buffer until the importers are done.  Each importer waits for its work and then says so
 * by a message of its own: no wait in the exporter covers the work of another process.
 *
 * Order: exporting waits for the work on the buffer's stream.  Nothing orders the streams of two
 * processes: a process that has written synchronizes before it tells the other.
 *
 * Trust: hoist checks each number that comes from a peer before using it.  hoist refuses a file of
 * another kind, a file that its owner could cut off (SIGBUS), and a description that leaves its
 * memory.  Drivers' handles are opaque: only the driver knows what memory they refer to.  The bytes
 * of shared memory can change while they are read.
 *
 * Read-only: a read-only buffer is read-only for the importer, too.  If its storage was frozen
 * (hoist_buffer_freeze()) and is host memory, the kernel enforces this: new mappings of it cannot
 * be written to.
 *
 * Threads: any; one thread at a time for each socket and direction.  fork: a child goes on with
 * HOST memory, which it shares with its parent; device memory that the parent imported is not the
 * child's.
 */
#ifndef HOIST_IPC_H
#define HOIST_IPC_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>
#include <hoist/device.h>
#include <hoist/error.h>
#include <hoist/memory.h>

HOIST_BEGIN

/* --- descriptors --- */

#define HOIST_IPC_VERSION 1

/* hoist_ipc_descriptor.kind */
enum {
	HOIST_IPC_HOST = 1,
	HOIST_IPC_DEVICE = 2,
	HOIST_IPC_POOL = 3,
	HOIST_IPC_EMPTY = 4 /* a buffer without bytes: there is no memory to share */
};

#define HOIST_IPC_READ_ONLY 1u /* hoist_ipc_descriptor.flags */

/* The description of a buffer for another process: plain bytes, which the caller may store and send
 * as they are, within one machine.  The size is fixed for this version. */
typedef struct hoist_ipc_descriptor {
	char magic[8];		  /* "hoistipc" */
	uint32_t version;	  /* HOIST_IPC_VERSION */
	uint32_t size;		  /* sizeof(hoist_ipc_descriptor) */
	uint32_t kind;		  /* HOIST_IPC_... */
	uint32_t flags;
	unsigned char process[16]; /* a number that only the exporting process has */
	int64_t pid;		  /* as that process knows itself; for messages, never used */
	char api[8];		  /* of the device: "cpu", "cuda", "hip", zeros behind */
	char pci[16];		  /* of the device: "0000:65:00.0"; zeros: the CPU */
	int32_t ordinal;	  /* the device's number in its driver: chooses among several
				   * devices with this pci */
	int32_t rank;
	unsigned char memory[16]; /* POOL: the resource; hoist_ipc_memory_uuid() */
	unsigned char payload[64]; /* DEVICE, POOL: the driver's handle of the allocation */
	uint64_t address;	  /* of the allocation, in the exporting process */
	uint64_t offset;	  /* from the allocation's beginning to the buffer's lowest byte */
	uint64_t bytes;		  /* from the lowest byte to the highest, both included */
	uint64_t first;		  /* from the lowest byte to the first element; not 0 with
				   * negative strides */
	uint32_t bit;		  /* 0 to 7: the first element's bit in its byte (sub-byte
				   * types) */
	uint32_t dtype;
	int64_t shape[HOIST_MAX_RANK];	 /* @rank values; the others are 0 */
	int64_t strides[HOIST_MAX_RANK]; /* in elements */
} hoist_ipc_descriptor;

/* Describes @buffer.  *@ret_fd is a new file descriptor to pass along with the descriptor, the
 * caller's to close; -1 if none is needed (DEVICE, EMPTY).  @ret_fd NULL: no file descriptor is
 * made.  HOST does not allow NULL; the importer of a POOL then needs the resource already.
 * Returns: 0; -ENOTSUP (memory that cannot be shared: the text says which kind to make instead; the
 *   driver cannot share it); -EINVAL (NULL; HOST without @ret_fd); -EBADF (closed); -EMFILE; as
 *   hoist_buffer_allocate() (a LAZY buffer); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_ipc_export(hoist_buffer *buffer, hoist_ipc_descriptor *ret, int *ret_fd);

/* A buffer over the memory that the @bytes bytes at @descriptor describe.  @fd is the file
 * descriptor that came with them, and stays the caller's; -1: none.  The buffer of a POOL takes the
 * first resource that exists of: @memory (NULL: none), the resource registered under the pool's
 * name, a resource made of @fd and then registered.  Other kinds need no @memory.
 * Returns: 0; -EINVAL (@bytes is not the size of a descriptor; the buffer leaves the memory: the
 *   text has both figures; @memory is not the exporter's); -EBADMSG (no descriptor, or one that
 *   contradicts itself; @fd is not of the kind that the descriptor needs); -EBADF (@fd is not
 *   open); -ENOENT (a POOL's resource does not exist); -ENODEV (the device does not exist, or has
 *   no driver); -ENOTSUP; -ENOMEM, -EMFILE; -EREMOTEIO, -ESTALE (the driver refuses, for instance
 *   when the exporter has ended). */
HOIST_API int hoist_ipc_import(const void *descriptor, size_t bytes, int fd, hoist_memory *memory,
			       hoist_buffer **ret);

/* --- sockets --- */

/* Sends @buffer's description and file descriptors over @socket, a connected Unix socket of type
 * STREAM or SEQPACKET, blocking or not.  The call waits at most @timeout_ms milliseconds until the
 * socket takes the bytes; -1: without a limit.  When the call returns, the peer need not have
 * received the buffer.
 * Returns: 0; -EINVAL (no such socket); -EBADF; -EPERM (the peer is another user's process); -EPIPE
 *   (the peer is gone; no signal is raised); -ETIMEDOUT; the errors of sendmsg(2); as
 *   hoist_ipc_export().  After a failure a part may have been sent: the socket is of no more use,
 *   unless the failure is hoist_ipc_export()'s or -EPERM. */
HOIST_API int hoist_ipc_send(int socket, hoist_buffer *buffer, int timeout_ms);

/* Receives one buffer.  Bytes that follow the buffer stay in the socket.  No file descriptor that
 * the peer sends is left open, whatever the peer sends.
 * Returns: 0; -EINVAL (no such socket); -EBADF; -EPERM (the peer is another user's process: nothing
 *   was read); -EPIPE (the peer closed the socket between two buffers); -ECONNRESET (the peer
 *   closed it within a buffer); -ETIMEDOUT; -EBADMSG; -EMFILE (no room for the file descriptors
 *   that came); as hoist_ipc_import().  After a failure of hoist_ipc_import()'s, or for want of
 *   room, the next buffer can be received; after other failures the socket is of no more use. */
HOIST_API int hoist_ipc_receive(int socket, int timeout_ms, hoist_buffer **ret);

/* --- resources that processes share: DRIVER_POOL with HOIST_MEMORY_SHAREABLE --- */

/* A new file descriptor for the pool, the caller's to close.
 * Returns: 0; -ENOTSUP (the resource is not shareable; the driver cannot share it); -EMFILE; as the
 *   resource's first hoist_memory_alloc(); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_ipc_export_memory(hoist_memory *memory, int *ret_fd);

/* The resource behind such a file descriptor, in another process.  Imported buffers come from the
 * resource; blocks cannot be allocated from it (-ENOTSUP).  @fd stays the caller's.  @uuid is the
 * exporter's name for the resource, which is registered under this name.  If a resource of that
 * name is registered already, the call gives a reference to that one.
 * Returns: 0; -EINVAL (@fd is negative; the CPU); -EBADF (@fd is not open); -ENOTSUP (the driver
 *   cannot import it; any device of HIP's but the first); -ENOMEM, -EMFILE; -EREMOTEIO. */
HOIST_API int hoist_ipc_import_memory(hoist_device *device, int fd, const unsigned char uuid[16],
				      hoist_memory **ret);

/* The resource's name: 16 random bytes, made with the resource.  An imported resource has its
 * exporter's name.
 * Returns: 0; -ENOTSUP (the resource is not shareable). */
HOIST_API int hoist_ipc_memory_uuid(const hoist_memory *memory, unsigned char uuid[16]);

/* Registers @memory under its name, so that hoist_ipc_find_memory() and imports find it as long as
 * it lives.  *@ret is a new reference to the registered resource: @memory, or the resource that was
 * registered under that name before.
 * Returns: 0; -ENOTSUP (the resource is not shareable); -ESTALE. */
HOIST_API int hoist_ipc_register_memory(hoist_memory *memory, hoist_memory **ret);

/* A new reference to the resource that is registered under the name @uuid.
 * Returns: 0; -ENOENT (none is registered). */
HOIST_API int hoist_ipc_find_memory(const unsigned char uuid[16], hoist_memory **ret);

HOIST_END

#endif
