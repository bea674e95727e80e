/* SPDX-License-Identifier: MIT */
/* lib/cache/cache.h - what the files of the cache share.
 *
 *   cache.c          add, list, drop
 *   cache-attach.c   hoist_image: an image, mapped
 *   cache-table.c    an image's table: made of a checkpoint, checked when it comes back
 *   cache-key.c      is the checkpoint still what it was?
 *   cache-fill.c     a checkpoint into a sealed memfd
 *   cache-memory.c   memfds: huge pages, NUMA nodes, seals; their mappings
 *   cache-folder.c   the user's folder, and the locks in it
 *   cache-message.c  requests and replies over the socket
 *   cache-start.c    starting the program that becomes the holder
 *   cache-hold.c     becoming it
 *   cache-holder.c   the process that keeps the descriptors
 *
 *     adder                          holder                     worker
 *       load -> memfd, sealed
 *       PUT path, fd     ----------->  images[]
 *                        <-----------  0
 *                                      images[]  <----------- GET path
 *                                                -----------> fd: seals, table, map
 *
 * One request is one record of SOCK_SEQPACKET and has one reply; the holder never waits for a
 * peer.
 */
#ifndef HOIST_LIB_CACHE_H
#define HOIST_LIB_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hoist/cache.h"

#define HOIST__NOTE_BYTES 160

/* --- the folder (cache-folder.c) --- */

/* A descriptor of the user's folder, which is his alone.  @create: made if it is not there.
 * Returns: 0; -ENOENT; -EPERM (it is not); what the system says. */
int hoist__cache_folder(bool create, int *ret);

/* The lock called @name in it, for this process until the descriptor is closed.
 * Returns: 0; -EAGAIN (another has it), without a text; what the system says. */
int hoist__cache_lock(int folder, const char *name, int *ret);

/* The lock's name of those who add @path. */
struct hoist__lock_name {
	char text[32];
};
struct hoist__lock_name hoist__cache_lock_name(const char *path);

/* The absolute path with links resolved, to be freed.  Returns: 0; -ENOENT and the like. */
int hoist__cache_path(const char *path, char **ret);

/* --- messages (cache-message.c) --- */

#define HOIST__CACHE_VERSION 1u
#define HOIST__CACHE_PATH_BYTES 4096
#define HOIST__CACHE_TRIES 4 /* of who was hung up on */

enum hoist__cache_op {
	HOIST__CACHE_PUT = 1, /* takes fd; path and figures */
	HOIST__CACHE_GET,     /* path; gives fd */
	HOIST__CACHE_PEEK,    /* the same, not counted */
	HOIST__CACHE_LIST,    /* id; gives the first image with a larger id */
	HOIST__CACHE_DROP,    /* path, "": all; gives how many in id */
	HOIST__CACHE_N_OPS
};

/* Both ways, always all of it. */
struct hoist__cache_message {
	char magic[8];
	uint32_t version;
	uint32_t op;
	int32_t status; /* of a reply: 0 or a negative errno value */
	int32_t node;
	uint32_t pages;
	uint32_t reserved; /* 0 */
	uint64_t id;
	uint64_t bytes;
	uint64_t tensor_bytes;
	uint64_t n_tensors;
	uint64_t added_ns; /* CLOCK_REALTIME */
	uint64_t n_attached;
	char note[HOIST__NOTE_BYTES];
	char path[HOIST__CACHE_PATH_BYTES];
};

/* Fills in all but what is asked.  Returns: 0; -ENAMETOOLONG. */
int hoist__cache_message_init(enum hoist__cache_op op, const char *path,
			      struct hoist__cache_message *ret);

/* The socket's name in the folder, as an address that is short however long the folder's is. */
struct sockaddr_un;
void hoist__cache_address(int folder, struct sockaddr_un *ret);

/* -EPERM unless the peer of @socket is this user. */
int hoist__cache_check_peer(int socket);

/* One record; @fd -1: none with it.  Returns: 0; -EPIPE, -EAGAIN (time is over). */
int hoist__cache_send(int socket, const struct hoist__cache_message *message, int fd);

/* One record, checked; *fd -1: none came.
 * Returns: 0; -EPIPE (the peer has ended); -EAGAIN; -EBADMSG (it is none of ours; nothing more must
 *   be read); -EMFILE. */
int hoist__cache_receive(int socket, struct hoist__cache_message *ret, int *fd);

/* Connects, sends @message (with @fd) and puts the reply in its place; @ret_fd NULL: none is
 * expected.  Returns: 0; -ENOENT there is no holder, without a text; -EPIPE it ended meanwhile; the
 *   reply's status, without a text; else as above. */
int hoist__cache_ask(struct hoist__cache_message *message, int fd, int *ret_fd);

/* --- the holder (cache-start.c, cache-hold.c, cache-holder.c) --- */

#define HOIST__CACHE_SOCKET "holder"
#define HOIST__CACHE_HOLDER_LOCK "holder.lock"
#define HOIST__CACHE_MOST_PEERS 64
#define HOIST__CACHE_MOST_IMAGES 4096 /* that it takes, and that are believed of it */

/* @listener and @lock are taken over.  Ends the process. */
void hoist__cache_serve(int folder, int listener) __attribute__((noreturn));

/* Returns: 0, a holder answers; -ENOENT, -EPIPE there is none; -EPERM, -EBADMSG and the like. */
int hoist__cache_answers(void);

/* Runs the program (NULL: see hoist_cache_options.holder) until a holder answers. */
int hoist__cache_start(const char *program);

/* --- memory (cache-memory.c) --- */

struct hoist__memory_file {
	int fd;	    /* -1: none */
	char *base; /* NULL: not mapped */
	size_t bytes;
	int pages; /* HOIST_PAGES_... */
	int node;
	char note[HOIST__NOTE_BYTES];
};

/* A new one of at least @bytes, mapped shared and writable, placed and populated.
 * Returns: 0; -EINVAL (placement); -ENOMEM, -EMFILE, -ENOTSUP, -EPERM. */
int hoist__memory_file_create(size_t bytes, const hoist_cache_options *options,
			      struct hoist__memory_file *ret);

/* Unmaps it, and nobody will write to it, or change its size. */
int hoist__memory_file_seal(struct hoist__memory_file *file);
void hoist__memory_file_close(struct hoist__memory_file *file);

/* Is @fd, which comes from another process, a memfd so sealed?  Returns: 0; -EBADMSG. */
int hoist__memory_file_judge(int fd, size_t *bytes, bool *hugetlb);

/* Maps it privately, 2 MiB-aligned.  Returns: 0; -ENOMEM. */
int hoist__memory_file_map(int fd, size_t bytes, bool hugetlb, bool read_only, char **ret);

/* --- the table (cache-table.c) ---
 *
 *   header | tensors | files | metadata | by name | dims | strings | ... data
 *
 * Integers are this machine's; a string is its distance from the strings' beginning. */
#define HOIST__IMAGE_VERSION 2u

struct hoist__image_header {
	char magic[8];
	uint32_t version;
	uint32_t pages;
	int32_t node;
	uint32_t open_flags; /* HOIST_OPEN_... that its checkpoint was opened with */
	uint64_t file_bytes;
	uint64_t data_offset; /* whole pages; the table ends before it */
	uint64_t tensor_bytes;
	uint64_t n_tensors;
	uint64_t n_files;
	uint64_t n_metadata;
	uint64_t n_dims;
	uint64_t string_bytes;
	uint64_t added_ns;
	uint64_t path;
	uint64_t format;
	char note[HOIST__NOTE_BYTES];
};

struct hoist__image_tensor {
	uint64_t name;
	uint64_t dims;	 /* rank extents and rank strides begin at this one */
	uint64_t offset; /* of its first element, from the file's beginning */
	uint64_t bytes;	 /* as the checkpoint says, as are those two: */
	uint64_t shard;
	uint64_t shard_offset;
	uint32_t dtype;
	uint32_t rank;
};

enum hoist__image_file_kind {
	HOIST__IMAGE_SHARD,
	HOIST__IMAGE_INDEX, /* not a shard, but what it says counts */
	HOIST__IMAGE_FOLDER
};

struct hoist__image_file {
	uint64_t path;
	uint64_t dev;
	uint64_t ino;
	uint64_t bytes;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint64_t kind;
};

struct hoist__image_metadata {
	uint64_t key;
	uint64_t value;
};

/* Where a table's parts are; of a mapping. */
struct hoist__image_table {
	struct hoist__image_header *header;
	struct hoist__image_tensor *tensors;
	struct hoist__image_file *files;
	struct hoist__image_metadata *metadata;
	uint64_t *by_name;
	int64_t *dims;
	char *strings;
};

/* Finds the parts of a table that begins at @base, of which the file has @bytes, and checks each
 * number in it: what it says is then safe to use, and O(n).  Returns: 0; -EBADMSG. */
int hoist__image_table_check(void *base, size_t bytes, struct hoist__image_table *ret);

/* What a checkpoint is known by. */
struct hoist__image_key {
	size_t n_files;
	struct hoist__image_file *files; /* their paths are not set */
	char **paths;
};

/* How many bytes the table of @checkpoint takes.  Returns: 0; -EOVERFLOW. */
int hoist__image_table_measure(hoist_checkpoint *checkpoint, const struct hoist__image_key *key,
			       const char *path, uint64_t *ret);

/* Writes it, but for what each tensor's place is, and checks nothing; @base has that many zeroes.
 */
void hoist__image_table_write(hoist_checkpoint *checkpoint, const struct hoist__image_key *key,
			      const char *path, void *base, struct hoist__image_table *ret);

/* --- keys (cache-key.c) --- */

/* Of @path, which was resolved, and the checkpoint opened there. */
int hoist__image_key_make(const char *path, hoist_checkpoint *checkpoint,
			  struct hoist__image_key *ret);
void hoist__image_key_free(struct hoist__image_key *key);

/* Returns: 0; -ESTALE with what changed; as hoist_checkpoint_open(), of a folder in which files
 *   came or went. */
int hoist__image_key_check(const struct hoist__image_table *table);

/* --- filling (cache-fill.c) --- */

/* The image of @checkpoint, sealed. */
int hoist__cache_fill(hoist_checkpoint *checkpoint, const char *path,
		      const struct hoist__image_key *key, const hoist_cache_options *options,
		      struct hoist__memory_file *ret);

/* --- images (cache-attach.c) --- */

/* @fd stays the caller's. */
int hoist__image_open(int fd, unsigned flags, hoist_image **ret);
const struct hoist__image_table *hoist__image_table_of(const hoist_image *image);

/* hoist_cache_attach() of a resolved path; @op: GET or PEEK. */
int hoist__cache_find(const char *path, enum hoist__cache_op op, unsigned flags, hoist_image **ret);

#endif
