/* SPDX-License-Identifier: MIT */
/* lib/cache/cache.h - the folder, messages, files, tables and images, shared by the files of the
 * cache.
 *
 *   cache.c          add, list, drop
 *   cache-attach.c   hoist_image: an image, mapped
 *   cache-table.c    an image's table: made of a checkpoint, checked when it comes back
 *   cache-key.c      has the checkpoint changed since its image was made?
 *   cache-fill.c     a checkpoint into a sealed memfd
 *   cache-memory.c   memfds: huge pages, seals; their mappings
 *   cache-place.c    memfds: NUMA nodes, populated pages
 *   cache-folder.c   the user's folder, and the locks in it
 *   cache-message.c  requests and replies over the socket
 *   cache-start.c    starting the program that becomes the holder
 *   cache-hold.c     becoming the holder
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
#ifndef HOIST_LIB_CACHE_CACHE_H
#define HOIST_LIB_CACHE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hoist/cache.h"

#define HOIST__NOTE_BYTES 160

/* --- the folder (cache-folder.c) --- */

/* Opens the user's folder, which no other user can use.
 * Returns: 0; -ENOENT; -EPERM (another user could use the folder); the system's error. */
int hoist__cache_folder(int *ret);

struct hoist__cache_place {
	char path[4096];
};

/* A lock in the folder. */
struct hoist__cache_lock {
	const char *name;
	int folder;
	int fd;
	struct hoist__cache_place place;
};

/* Takes the lock called @name, a string that must live as long as the lock.  Makes the folder.
 * Returns: 0; -EAGAIN (another process has the lock), without a text; -EPERM; the system's
 * error. */
int hoist__cache_lock(const char *name, struct hoist__cache_lock *ret);

/* Gives the lock back, and removes the folder if nothing else is in it. */
void hoist__cache_unlock(struct hoist__cache_lock *lock);

/* Closes the descriptors: a child that was forked keeps the lock. */
void hoist__cache_lock_close(struct hoist__cache_lock *lock);

/* The name of the lock that processes take to add @path. */
struct hoist__lock_name {
	char text[32];
};
struct hoist__lock_name hoist__cache_lock_name(const char *path);

/* Gives the absolute path with links resolved, to be freed.  Returns: 0; -ENOENT and the like. */
int hoist__cache_path(const char *path, char **ret);

/* --- messages (cache-message.c) --- */

#define HOIST__CACHE_VERSION 1u
#define HOIST__CACHE_PATH_BYTES 4096
#define HOIST__CACHE_TRIES 4 /* of a request whose connection the holder closed */

enum hoist__cache_op {
	HOIST__CACHE_PUT = 1, /* takes fd; path and figures */
	HOIST__CACHE_GET,     /* path; gives fd */
	HOIST__CACHE_PEEK,    /* as GET, but not counted */
	HOIST__CACHE_LIST,    /* id; gives the first image with a larger id */
	HOIST__CACHE_DROP,    /* path ("": all); gives the number of images dropped in id */
	HOIST__CACHE_N_OPS
};

/* Sent both ways, always as a whole. */
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

/* Fills in @op, @path and the header.  Returns: 0; -ENAMETOOLONG. */
int hoist__cache_message_init(enum hoist__cache_op op, const char *path,
			      struct hoist__cache_message *ret);

/* Gives the address of the socket in the folder.  The address is short, however long the folder's
 * path is. */
struct sockaddr_un;
void hoist__cache_address(int folder, struct sockaddr_un *ret);

/* Returns: 0; -EPERM unless the peer of @socket is this user. */
int hoist__cache_check_peer(int socket);

/* Sends one record, with @fd unless that is -1.  Returns: 0; -EPIPE; -EAGAIN (time is over). */
int hoist__cache_send(int socket, const struct hoist__cache_message *message, int fd);

/* Receives one record and checks it.  *fd -1: no descriptor came.
 * Returns: 0; -EPIPE (the peer has ended); -EAGAIN; -EBADMSG (not a record of ours; the caller must
 * not read on); -EMFILE. */
int hoist__cache_receive(int socket, struct hoist__cache_message *ret, int *fd);

/* Connects, sends @message (with @fd) and puts the reply in its place.  @ret_fd NULL: no descriptor
 * is expected.
 * Returns: 0; -ENOENT (there is no holder), without a text; -EPIPE (the holder ended meanwhile);
 * the reply's status, without a text; else as above. */
int hoist__cache_ask(struct hoist__cache_message *message, int fd, int *ret_fd);

/* --- the holder (cache-start.c, cache-hold.c, cache-holder.c) --- */

#define HOIST__CACHE_SOCKET "holder"
#define HOIST__CACHE_HOLDER_LOCK "holder.lock"
#define HOIST__CACHE_MOST_PEERS 64
#define HOIST__CACHE_MOST_IMAGES                                                                   \
	4096 /* the most images that a holder takes, and that a client                             \
	      * accepts in its list */

/* Serves requests as the holder.  Takes over @listener and @lock, whose folder has the socket.
 * Ends the process. */
void hoist__cache_serve(struct hoist__cache_lock *lock, int listener) __attribute__((noreturn));

/* Returns: 0 if a holder answers; -ENOENT or -EPIPE if there is none; -EPERM, -EBADMSG and the
 * like. */
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
	bool late; /* the file had no pages when it was made: they come while it is filled */
	char note[HOIST__NOTE_BYTES];
};

/* How the pages of a `late` file come, from many threads.  Zero for a file that has its pages. */
struct hoist__late_pages {
	bool late;
	bool wants_huge;	  /* of the small pages that the kernel gives */
	size_t bytes;		  /* of the tensors */
	_Atomic bool gave_up;	  /* making huge pages */
	_Atomic size_t populated; /* bytes */
	_Atomic size_t collapsed; /* of these, bytes of huge pages */
	_Atomic int collapse_err; /* why not all; 0: the kernel did not refuse */
};

/* Makes a file of at least @bytes, mapped shared and writable, placed, and populated unless it is
 * `late`.
 * Returns: 0; -EINVAL (placement); -ENOMEM, -EMFILE, -ENOTSUP, -EPERM. */
int hoist__memory_file_create(size_t bytes, const hoist_cache_options *options,
			      struct hoist__memory_file *ret);

/* In cache-place.c: places the file, and populates it or makes it `late`.  The pages and the note
 * of a populated file say which pages it got. */
int hoist__memory_file_place(struct hoist__memory_file *file, const hoist_cache_options *options);

/* Populates a range of the file that @context, its struct hoist__late_pages, is of; nothing if the
 * file has its pages.  Any thread.  Returns: 0; -ENOMEM. */
int hoist__late_populate(void *context, void *address, size_t bytes);

/* Notes in the file which pages it got while it was filled, and its node. */
void hoist__late_note(const struct hoist__late_pages *pages, struct hoist__memory_file *file);

/* Returns: the one node of all samples of the file, or -1. */
int hoist__memory_file_node(const struct hoist__memory_file *file);

/* Unmaps and seals the file: no process can write to it or change its size any more. */
int hoist__memory_file_seal(struct hoist__memory_file *file);
void hoist__memory_file_close(struct hoist__memory_file *file);

/* Checks that @fd, which comes from another process, is a memfd sealed like that.
 * Returns: 0; -EBADMSG. */
int hoist__memory_file_judge(int fd, size_t *bytes, bool *hugetlb);

/* Maps the file @fd privately, 2 MiB-aligned.  Returns: 0; -ENOMEM. */
int hoist__memory_file_map(int fd, size_t bytes, bool hugetlb, bool read_only, char **ret);

/* --- the table (cache-table.c) ---
 *
 *   header | tensors | files | metadata | by name | dims | strings | ... data
 *
 * Integers have this machine's byte order.  A string is stored as its offset from the start of the
 * strings. */
#define HOIST__IMAGE_VERSION 2u

struct hoist__image_header {
	char magic[8];
	uint32_t version;
	uint32_t pages;
	int32_t node;
	uint32_t open_flags; /* the HOIST_OPEN_... flags that the checkpoint was opened with */
	uint64_t file_bytes;
	uint64_t data_offset; /* whole pages; the table ends before this offset */
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
	uint64_t dims;	 /* the index of the first of rank extents and rank strides */
	uint64_t offset; /* of the first element, from the start of the file */
	uint64_t bytes;	 /* this and the next two as the checkpoint says: */
	uint64_t shard;
	uint64_t shard_offset;
	uint32_t dtype;
	uint32_t rank;
};

enum hoist__image_file_kind {
	HOIST__IMAGE_SHARD,
	HOIST__IMAGE_INDEX, /* an index file, whose content decides which shards there are */
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

/* Pointers to a table's parts, in a mapping. */
struct hoist__image_table {
	struct hoist__image_header *header;
	struct hoist__image_tensor *tensors;
	struct hoist__image_file *files;
	struct hoist__image_metadata *metadata;
	uint64_t *by_name;
	int64_t *dims;
	char *strings;
};

/* Finds the parts of a table that begins at @base, in a file of @bytes, and checks each number in
 * the table, in O(n).  After that every number is safe to use.  Returns: 0; -EBADMSG. */
int hoist__image_table_check(void *base, size_t bytes, struct hoist__image_table *ret);

/* The key that identifies a checkpoint. */
struct hoist__image_key {
	size_t n_files;
	struct hoist__image_file *files; /* their paths are not set */
	char **paths;
};

/* Gives the bytes that the table of @checkpoint takes.  Returns: 0; -EOVERFLOW. */
int hoist__image_table_measure(hoist_checkpoint *checkpoint, const struct hoist__image_key *key,
			       const char *path, uint64_t *ret);

/* Writes the table, except the place of each tensor, and checks nothing.  Pre: @base has room for
 * the measured bytes, all zero.
 */
void hoist__image_table_write(hoist_checkpoint *checkpoint, const struct hoist__image_key *key,
			      const char *path, void *base, struct hoist__image_table *ret);

/* --- keys (cache-key.c) --- */

/* Makes the key of @path, which was resolved, and of the checkpoint opened there. */
int hoist__image_key_make(const char *path, hoist_checkpoint *checkpoint,
			  struct hoist__image_key *ret);
void hoist__image_key_free(struct hoist__image_key *key);

/* Returns: 0; -ESTALE, and the text says what changed; for a folder in which files came or went,
 *   also as hoist_checkpoint_open(). */
int hoist__image_key_check(const struct hoist__image_table *table);

/* --- filling (cache-fill.c) --- */

/* Makes the sealed image of @checkpoint. */
int hoist__cache_fill(hoist_checkpoint *checkpoint, const char *path,
		      const struct hoist__image_key *key, const hoist_cache_options *options,
		      struct hoist__memory_file *ret);

/* --- images (cache-attach.c) --- */

/* Maps the image in @fd, which stays the caller's. */
int hoist__image_open(int fd, unsigned flags, hoist_image **ret);
const struct hoist__image_table *hoist__image_table_of(const hoist_image *image);

/* hoist_cache_attach() of a resolved path; @op: GET or PEEK. */
int hoist__cache_find(const char *path, enum hoist__cache_op op, unsigned flags, hoist_image **ret);

#endif
